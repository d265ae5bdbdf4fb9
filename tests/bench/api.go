package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/linkreel/linkreel/services/localcloud/procstat"
)

// benchAPI measures the cost of API calls. With BENCH_BASELINE, it also measures their cost at that
// commit.
func benchAPI(ctx context.Context) error {
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
	if err != nil {
		return err
	}
	systems := []*server{sys}
	if old != nil {
		defer old.stop()
		systems = append(systems, old)
	}
	fmt.Printf("%-14s %14s %12s %12s   and in the baseline\n", "", "CPU µs/call", "reads/call", "writes/call")
	atRest := make([][]float64, len(systems))
	for _, op := range apiCalls {
		if only := os.Getenv("BENCH_CALL"); only != "" && !slices.Contains(strings.Split(only, ","), op.name) {
			continue
		}
		costs := make([][]callCost, len(systems))
		for _, s := range systems {
			if err := op.prepare(ctx, s); err != nil {
				return err
			}
			if _, err := s.measure(ctx, op, 5); err != nil { // warm up
				return err
			}
		}
		for round := range setting("BENCH_ROUNDS", 5) {
			idle, err := idleShares(ctx, systems)
			if err != nil {
				return err
			}
			for i := range systems {
				if round%2 == 1 { // alternate the order
					i = len(systems) - 1 - i
				}
				s := systems[i]
				if dir := os.Getenv("BENCH_PROFILES"); dir != "" {
					go s.profile(ctx, filepath.Join(dir, fmt.Sprintf("%s-%d.pprof", op.name, i)), time.Second)
				}
				c, err := s.measure(ctx, op, cmp.Or(op.calls, 500))
				if err != nil {
					return err
				}
				// As in the redirect rounds, a call's cost does not include the system's background
				// loops.
				c.cpu -= idle[i] * c.took
				costs[i], atRest[i] = append(costs[i], c), append(atRest[i], idle[i])
			}
		}
		fmt.Printf("%-14s", op.name)
		var cpu [][]float64
		for _, rounds := range costs {
			var each []float64
			var reads, writes float64
			for _, c := range rounds {
				each = append(each, c.cpu)
				reads, writes = reads+c.reads/float64(len(rounds)), writes+c.writes/float64(len(rounds))
			}
			cpu = append(cpu, each)
			fmt.Printf(" %14.0f %12.2f %12.2f", median(each), reads, writes)
		}
		if old != nil {
			each := ratios(cpu[0], cpu[1])
			fmt.Printf("   CPU × %.2f (rounds: %.2f to %.2f)", median(each), each[0], each[len(each)-1])
		}
		fmt.Println()
	}
	fmt.Print("at rest, % of a processor, not included above:")
	for _, shares := range atRest {
		fmt.Printf(" %.1f", 100*median(shares))
	}
	fmt.Println()
	return nil
}

// idleShares returns how much of a processor each system uses while idle.
func idleShares(ctx context.Context, systems []*server) ([]float64, error) {
	const length = 4 * time.Second
	before, err := usedBy(systems)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, length); err != nil {
		return nil, err
	}
	shares, err := usedBy(systems)
	for i := range shares {
		shares[i] = (shares[i] - before[i]) / length.Seconds()
	}
	return shares, err
}

// usedBy returns how much processor time each system has used so far, in seconds.
func usedBy(systems []*server) ([]float64, error) {
	used := make([]float64, len(systems))
	for i, s := range systems {
		d, err := procstat.CPU(s.linkPids()...)
		if err != nil {
			return nil, err
		}
		used[i] = d.Seconds()
	}
	return used, nil
}

// apiCall is one kind of API call. All systems are prepared for it in the same way.
type apiCall struct {
	name         string
	want         int
	method, path string
	body         func(i int) any
	// needs is set if the call needs a record. The record's ID replaces {id} in the path.
	needs bool
	// calls is the number of calls in a round. The default is 500. A round takes a second or two
	// because the kernel measures processor time in steps of 10 ms.
	calls int
}

var apiCalls = []*apiCall{
	{name: "create", calls: 2000, want: http.StatusCreated, method: http.MethodPost, path: "/api/v1/links", body: func(i int) any {
		return map[string]string{"url": fmt.Sprintf("https://example.com/%d", i), "title": fmt.Sprintf("The page number %d", i)}
	}},
	{name: "change", want: http.StatusOK, method: http.MethodPatch, path: "/api/v1/links/{id}", needs: true, body: func(i int) any { return map[string]string{"title": fmt.Sprintf("Title %d", i)} }},
	{name: "get", want: http.StatusOK, method: http.MethodGet, path: "/api/v1/links/{id}", needs: true},
	{name: "list 20", want: http.StatusOK, method: http.MethodGet, path: "/api/v1/links?limit=20"},
	{name: "search", want: http.StatusOK, method: http.MethodGet, path: "/api/v1/links?limit=20&q=page+number"}, // a baseline without search returns a list
	{name: "bulk of 100", want: http.StatusCreated, method: http.MethodPost, path: "/api/v1/links/bulk", calls: 60, body: func(int) any {
		items := make([]map[string]string, 100)
		for i := range items {
			items[i] = map[string]string{"url": "https://example.com/"}
		}
		return map[string]any{"urls": items}
	}},
}

// prepare creates the record that the call needs, once for each system.
func (c *apiCall) prepare(ctx context.Context, s *server) error {
	if !c.needs || s.record != "" {
		return nil
	}
	var made struct{ ID string }
	status, err := s.call(ctx, http.MethodPost, "/api/v1/links", map[string]string{"url": "https://example.com/"}, &made)
	if err == nil && status != http.StatusCreated {
		err = fmt.Errorf("creating the record returned %d, want 201", status)
	}
	s.record = made.ID
	return err
}

type counters struct{ Reads, Writes int64 }

// callCost is the average cost of one call. Times are in µs.
type callCost struct{ cpu, took, reads, writes float64 }

func (s *server) measure(ctx context.Context, op *apiCall, n int) (callCost, error) {
	var before, after counters
	if err := s.control(ctx, "/counters", &before); err != nil {
		return callCost{}, err
	}
	used, err := procstat.CPU(s.linkPids()...)
	if err != nil {
		return callCost{}, err
	}
	started := time.Now()
	path := strings.ReplaceAll(op.path, "{id}", s.record)
	for range n {
		var body any
		if op.body != nil {
			s.calls++
			body = op.body(s.calls)
		}
		status, err := s.call(ctx, op.method, path, body, nil)
		if err != nil {
			return callCost{}, err
		}
		if status != op.want {
			return callCost{}, fmt.Errorf("%s returned %d, want %d", op.name, status, op.want)
		}
	}
	// Events get their feed positions later, in one commit per second. That work is also part of
	// the cost.
	if err := pause(ctx, 2500*time.Millisecond); err != nil {
		return callCost{}, err
	}
	took := time.Since(started)
	now, err := procstat.CPU(s.linkPids()...)
	if err != nil {
		return callCost{}, err
	}
	if err := s.control(ctx, "/counters", &after); err != nil {
		return callCost{}, err
	}
	per := func(v float64) float64 { return v / float64(n) }
	return callCost{cpu: per(float64((now - used).Microseconds())), took: per(float64(took.Microseconds())),
		reads: per(float64(after.Reads - before.Reads)), writes: per(float64(after.Writes - before.Writes))}, nil
}
