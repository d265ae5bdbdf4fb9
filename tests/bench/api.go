package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/linkreel/linkreel/libs/localcloud/procstat"
)

// benchAPI counts what calls cost, and with BENCH_BASELINE what they cost then.
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
	for _, op := range apiCalls {
		costs := make([][]callCost, len(systems))
		for _, s := range systems {
			if err := op.prepare(ctx, s); err != nil {
				return err
			}
			if _, err := s.measure(ctx, op, 5); err != nil { // warm
				return err
			}
		}
		for range setting("BENCH_ROUNDS", 5) {
			for i, s := range systems {
				c, err := s.measure(ctx, op, op.calls())
				if err != nil {
					return err
				}
				costs[i] = append(costs[i], c)
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
			fmt.Printf("   CPU × %.2f", ratio(cpu[0], cpu[1]))
		}
		fmt.Println()
	}
	return nil
}

// apiCall is one kind of call. Each is asked of the same state in every system.
type apiCall struct {
	name         string
	want         int
	method, path string
	body         func(i int) any
	// needs makes the record whose id stands for {id} in the path.
	needs bool
}

var apiCalls = []*apiCall{
	{name: "create", want: http.StatusCreated, method: http.MethodPost, path: "/api/v1/links", body: func(i int) any {
		return map[string]string{"url": fmt.Sprintf("https://example.com/%d", i), "title": fmt.Sprintf("The page number %d", i)}
	}},
	{name: "change", want: http.StatusOK, method: http.MethodPatch, path: "/api/v1/links/{id}", needs: true, body: func(i int) any { return map[string]string{"title": fmt.Sprintf("Title %d", i)} }},
	{name: "get", want: http.StatusOK, method: http.MethodGet, path: "/api/v1/links/{id}", needs: true},
	{name: "list 20", want: http.StatusOK, method: http.MethodGet, path: "/api/v1/links?limit=20"},
	{name: "search", want: http.StatusOK, method: http.MethodGet, path: "/api/v1/links?limit=20&q=page+number"}, // a list, in a baseline without it
	{name: "bulk of 100", want: http.StatusCreated, method: http.MethodPost, path: "/api/v1/links/bulk", body: func(int) any {
		items := make([]map[string]string, 100)
		for i := range items {
			items[i] = map[string]string{"url": "https://example.com/"}
		}
		return map[string]any{"urls": items}
	}},
}

// calls are so many that a round takes a second or two: processor time comes in steps
// of 10 ms.
func (c *apiCall) calls() int {
	if strings.HasPrefix(c.name, "bulk") {
		return 60
	}
	return 500
}

// prepare makes what the call needs, once for each system.
func (c *apiCall) prepare(ctx context.Context, s *server) error {
	if !c.needs || s.record != "" {
		return nil
	}
	var made struct{ ID string }
	status, err := s.call(ctx, http.MethodPost, "/api/v1/links", map[string]string{"url": "https://example.com/"}, &made)
	if err == nil && status != http.StatusCreated {
		err = fmt.Errorf("create answers %d", status)
	}
	s.record = made.ID
	return err
}

type counters struct{ Reads, Writes int64 }

// callCost is of one call, on average.
type callCost struct{ cpu, reads, writes float64 }

func (s *server) measure(ctx context.Context, op *apiCall, n int) (callCost, error) {
	var before, after counters
	if err := s.control(ctx, "/counters", &before); err != nil {
		return callCost{}, err
	}
	used, err := procstat.CPU(s.linkPids()...)
	if err != nil {
		return callCost{}, err
	}
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
			return callCost{}, fmt.Errorf("%s answers %d, want %d", op.name, status, op.want)
		}
	}
	now, err := procstat.CPU(s.linkPids()...)
	if err != nil {
		return callCost{}, err
	}
	if err := s.control(ctx, "/counters", &after); err != nil {
		return callCost{}, err
	}
	per := func(v float64) float64 { return v / float64(n) }
	return callCost{per(float64((now - used).Microseconds())), per(float64(after.Reads - before.Reads)), per(float64(after.Writes - before.Writes))}, nil
}
