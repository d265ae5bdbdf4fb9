package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/linkreel/linkreel/libs/identity"
)

// traffic is the output of setup and the input to load.
type traffic struct {
	Key      string   `json:"key"`
	Watch    string   `json:"watch"`   // a key for reading events and webhooks
	Session  string   `json:"session"` // a console session, as a Cookie header
	ShortURL string   `json:"shortUrl"`
	ShareURL string   `json:"shareUrl"`
	Links    []string `json:"links"` // IDs
}

// setup creates the records that load requests, and prints them.
func setup(ctx context.Context, t *target) error {
	account, key, err := makeAccount(ctx, t, "enterprise")
	if err != nil {
		return err
	}
	_, watch, err := makeKey(ctx, t, account, "events:read", "webhooks:read")
	if err != nil {
		return err
	}
	p, err := signIn(ctx, t, account, "check load")
	if err != nil {
		return err
	}
	var link struct{ ID, ShortURL string }
	if _, err := t.want(ctx, http.StatusCreated, http.MethodPost, t.base+"/api/v1/links", key, map[string]any{"url": "https://example.com/load"}, &link); err != nil {
		return fmt.Errorf("cannot create a link: %w", err)
	}
	var video struct{ ShareURL string }
	if _, err := t.want(ctx, http.StatusCreated, http.MethodPost, t.base+"/api/v1/videos", key, map[string]any{"title": "load"}, &video); err != nil {
		return fmt.Errorf("cannot create a video: %w", err)
	}
	return json.NewEncoder(os.Stdout).Encode(traffic{Key: key, Watch: watch, Session: p.cookies(), ShortURL: link.ShortURL, ShareURL: video.ShareURL, Links: []string{link.ID}})
}

// stack prints a deployment's stack.json for the end-to-end tests.
func stack(ctx context.Context, t *target, upload string) error {
	keys := map[string]string{}
	for _, plan := range []string{"free", "creator", "business", "enterprise"} {
		// The tests use keys with all scopes, like the keys in a local stack.
		_, key, err := makeAccount(ctx, t, plan, identity.AllScopes.Names()...)
		if err != nil {
			return err
		}
		keys[plan] = key
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"baseUrl": t.base, "shortBaseUrl": t.short, "adminUrl": t.operator, "adminToken": t.token, "uploadUrl": upload, "keys": keys,
	})
}

// load sends requests at a constant rate. A slow response does not delay the next request.
type load struct {
	rate        int
	connections int
	kind, from  string
	limit       time.Duration
}

func newLoad(flags *flag.FlagSet) *load {
	var l load
	flags.IntVar(&l.rate, "rate", 200, "requests per second")
	flags.IntVar(&l.connections, "connections", 32, "keep-alive connections to each address")
	flags.StringVar(&l.kind, "kind", "redirect", "redirect, auth, console, events, links, videos, or mixed (all of them)")
	flags.StringVar(&l.from, "traffic", "", "`FILE` with the output of check setup")
	flags.DurationVar(&l.limit, "for", time.Hour, "how long to run, unless interrupted")
	return &l
}

// result is the result of one request.
type result struct {
	took time.Duration
	fail string
}

func (l *load) run(ctx context.Context, t *target) error {
	text, err := os.ReadFile(l.from)
	if err != nil {
		return fmt.Errorf("cannot read the traffic file: %w", err)
	}
	var records traffic
	if err := json.Unmarshal(text, &records); err != nil {
		return fmt.Errorf("cannot parse the traffic file: %w", err)
	}
	requests := records.requests(t, l.kind)
	if len(requests) == 0 {
		return fmt.Errorf("unknown kind of load %q; see -help", l.kind)
	}
	t.routes.limitConnections(l.connections)
	t.client.Timeout = 10 * time.Second
	started := time.Now()
	results := l.send(ctx, t, requests)
	return report(l.kind, results, time.Since(started))
}

type request struct {
	address, bearer string
	status          int
	cookie          string
}

func (r request) send(ctx context.Context, t *target) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.address, nil)
	if err != nil {
		return nil, err
	}
	if r.bearer != "" {
		req.Header.Set("Authorization", "Bearer "+r.bearer)
	}
	if r.cookie != "" {
		req.Header.Set("Cookie", r.cookie)
	}
	return t.send(req)
}

func (r traffic) requests(t *target, kind string) []request {
	all := map[string][]request{
		"redirect": {{address: r.ShortURL, status: http.StatusFound}},
		"auth":     {{address: t.base + "/api/v1/account", bearer: r.Key, status: http.StatusOK}},
		// Without the session, the console would redirect to the sign-in page.
		"console": {{address: t.base + "/app/links", status: http.StatusOK, cookie: r.Session}, {address: t.base + "/app/settings", status: http.StatusOK, cookie: r.Session}},
		"events":  {{address: t.base + "/api/v1/events?limit=1", bearer: r.Watch, status: http.StatusOK}, {address: t.base + "/api/v1/webhooks", bearer: r.Watch, status: http.StatusOK}},
		"links":   {{address: t.base + "/api/v1/links?limit=1", bearer: r.Key, status: http.StatusOK}, {address: t.base + "/api/v1/links/" + r.Links[0], bearer: r.Key, status: http.StatusOK}},
		"videos":  {{address: t.base + "/api/v1/videos?limit=1", bearer: r.Key, status: http.StatusOK}, {address: r.ShareURL, status: http.StatusOK}},
	}
	if kind == "mixed" {
		return slices.Concat(all["redirect"], all["auth"], all["redirect"], all["links"], all["redirect"], all["videos"],
			all["redirect"], all["events"], all["console"][:1]) // a page costs as much as several calls
	}
	return all[kind]
}

func (l *load) send(ctx context.Context, t *target, requests []request) []result {
	ctx, cancel := context.WithTimeout(ctx, l.limit)
	defer cancel()
	var (
		mu      sync.Mutex
		results []result
		wg      sync.WaitGroup
	)
	tick := time.NewTicker(time.Second / time.Duration(l.rate))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			wg.Wait()
			return results
		case <-tick.C:
		}
		wg.Go(func() {
			r := requests[i%len(requests)]
			started := time.Now()
			// In-flight requests finish even when the load is stopped.
			a, err := r.send(context.WithoutCancel(ctx), t)
			res := result{took: time.Since(started)}
			var dial *url.Error
			switch {
			case errors.As(err, &dial):
				res.fail = dial.Err.Error()
			case err != nil:
				res.fail = err.Error()
			case a.status != r.status:
				res.fail = fmt.Sprintf("%s: status %d %s", withoutQuery(r.address), a.status, a.code())
			}
			mu.Lock()
			results = append(results, res)
			mu.Unlock()
		})
	}
}

// report prints one line with the actual rate, which may differ from the configured rate.
func report(kind string, results []result, took time.Duration) error {
	if len(results) == 0 {
		return errors.New("no request was sent")
	}
	fails := map[string]int{}
	failed := 0
	times := make([]time.Duration, len(results))
	for i, r := range results {
		times[i] = r.took
		if r.fail != "" {
			failed++
			fails[r.fail]++
		}
	}
	slices.Sort(times)
	at := func(share float64) float64 {
		return float64(times[int(share*float64(len(times)-1))].Microseconds()) / 1000
	}
	fmt.Printf("%s: %d requests, %.0f/s, %d failed; ms p50 %.1f p99 %.1f max %.1f\n",
		kind, len(results), float64(len(results))/took.Seconds(), failed, at(.5), at(.99), at(1))
	for what, n := range fails {
		fmt.Printf("     %d × %s\n", n, what)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d requests failed", failed, len(results))
	}
	return nil
}
