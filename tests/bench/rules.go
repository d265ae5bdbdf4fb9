package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// benchRules compares plain links, and a link with 20 rules, to the baseline's plain links. Without
// a baseline, it compares them to plain links in a second system built from this tree, which shows
// how precise the figures are.
func benchRules(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "linkreel-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	sys, err := startSystem(ctx, filepath.Join(dir, "now"), "")
	if err != nil {
		return err
	}
	defer sys.stop()
	old, err := startBaseline(ctx, dir)
	if err == nil && old == nil {
		fmt.Println("BENCH_BASELINE is not set: the baseline is this tree again")
		old, err = startSystem(ctx, filepath.Join(dir, "again"), "")
	}
	if err != nil {
		return err
	}
	defer old.stop()
	many := setting("BENCH_LINKS", manyLinks)
	fmt.Printf("creating %d links in each …\n", many)
	slugs, err := sys.createLinks(ctx, many)
	if err != nil {
		return err
	}
	oldSlugs, err := old.createLinks(ctx, many)
	if err != nil {
		return err
	}
	ruled, err := sys.createRuled(ctx)
	if err != nil {
		return err
	}
	of := func(name string, s *server, slug string) *contender {
		return &contender{name: name, addr: s.Short, pids: s.linkPids(), path: func(int, int) string { return "/" + slug + ruledQuery }}
	}
	zipf, drawn := drawZipf(slugs)
	oldZipf, oldDrawn := drawZipf(oldSlugs)
	// All contenders in one system run in the same processes, so the two contenders in a pair
	// belong to different systems.
	pairs := [][]*contender{
		{of("one plain link", sys, slugs[0]), of("one plain link, baseline", old, oldSlugs[0])},
		{
			{name: "plain links by Zipf", addr: sys.Short, pids: sys.linkPids(), path: zipf, warm: drawn},
			{name: "plain links by Zipf, baseline", addr: old.Short, pids: old.linkPids(), path: oldZipf, warm: oldDrawn},
		},
		{of("the last of 20 rules", sys, ruled), of("one plain link, baseline again", old, oldSlugs[0])},
	}
	for _, pair := range pairs {
		pair[0].server = sys // only this tree is profiled
	}
	before, err := sys.clicks(ctx)
	if err != nil {
		return err
	}
	oldBefore, err := old.clicks(ctx)
	if err != nil {
		return err
	}
	for round := -1; round < setting("BENCH_ROUNDS", 9); round++ { // the first round is not counted
		for _, pair := range pairs {
			if err := takeTurns(ctx, pair, round >= 0); err != nil {
				return err
			}
		}
	}
	fmt.Printf("\n%-34s %14s %10s %22s\n", "", "CPU µs/request", "requests/s", "× baseline (extremes)")
	var answered, oldAnswered int64
	for _, pair := range pairs {
		each := ratios(pair[0].perRequest(), pair[1].perRequest())
		fmt.Printf("%-34s %14.2f %10.0f %8.3f (%.3f to %.3f)\n", pair[0].name, median(pair[0].perRequest()), median(pair[0].rate()),
			median(each), each[0], each[len(each)-1])
		fmt.Printf("%-34s %14.2f %10.0f\n", pair[1].name, median(pair[1].perRequest()), median(pair[1].rate()))
		answered, oldAnswered = answered+pair[0].answered, oldAnswered+pair[1].answered
	}
	if err := old.reconcile(ctx, oldBefore, oldAnswered); err != nil {
		return fmt.Errorf("baseline: %w", err)
	}
	return sys.reconcile(ctx, before, answered)
}

// ruledQuery is the query for all visits to individual links. Only the last rule matches it, so
// each decision must read the full query.
const ruledQuery = "?utm_source=bench&c=last"

// createRuled creates a link with 20 rules. Only the last rule matches the bench's visits. It
// returns the link's slug.
func (s *server) createRuled(ctx context.Context) (slug string, err error) {
	others := []map[string]any{
		{"device": []string{"phone", "tablet"}}, {"system": []string{"ios", "android"}}, {"language": []string{"de", "fr"}},
		{"query": map[string]string{"c": "other"}}, {"until": time.Now().Add(-time.Hour).UnixMilli()},
	}
	rules := make([]map[string]any, 20)
	for i := range rules {
		to := fmt.Sprintf("https://example.com/rule/%d", i)
		rules[i] = map[string]any{"name": fmt.Sprint("rule ", i), "url": to, "when": others[i%len(others)]}
	}
	last := rules[len(rules)-1]
	last["when"] = map[string]any{"query": map[string]string{"c": "last"}, "system": []string{"linux"}}
	var made struct{ Slug string }
	status, err := s.call(ctx, http.MethodPost, "/api/v1/links", map[string]any{"url": "https://example.com/base", "rules": rules}, &made)
	if err != nil {
		return "", err
	}
	if status != http.StatusCreated {
		return "", fmt.Errorf("creating a link with rules returned %d, want 201", status)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, "http://"+s.Short+"/"+made.Slug+ruledQuery, nil)
	if err != nil {
		return "", err
	}
	req.Host = "localhost"
	req.Header.Set("User-Agent", userAgent)
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	_ = res.Body.Close()
	if to := res.Header.Get("Location"); to != last["url"] {
		return "", fmt.Errorf("the visit returned %s to %q, want the destination of the last of 20 rules", res.Status, to)
	}
	return made.Slug, nil
}
