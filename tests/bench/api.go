package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"
)

// benchAPI counts what a create and a list cost.
func benchAPI(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "linkreel-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	sys, err := startSystem(ctx, dir)
	if err != nil {
		return err
	}
	defer sys.stop()
	fmt.Printf("%-14s %14s %12s %12s\n", "", "CPU µs/call", "reads/call", "writes/call")
	for _, op := range []struct {
		name string
		call func(i int) (int, error)
		want int
	}{
		{"create", func(i int) (int, error) {
			return sys.call(ctx, http.MethodPost, "/api/v1/links", map[string]string{"url": fmt.Sprintf("https://example.com/%d", i)}, nil)
		}, http.StatusCreated},
		{"list 20", func(int) (int, error) { return sys.call(ctx, http.MethodGet, "/api/v1/links?limit=20", nil, nil) }, http.StatusOK},
		{"get", func() func(int) (int, error) {
			id := ""
			return func(int) (int, error) {
				if id == "" {
					var made struct{ ID string }
					if _, err := sys.call(ctx, http.MethodPost, "/api/v1/links", map[string]string{"url": "https://example.com/"}, &made); err != nil {
						return 0, err
					}
					id = made.ID
				}
				return sys.call(ctx, http.MethodGet, "/api/v1/links/"+id, nil, nil)
			}
		}(), http.StatusOK},
		{"bulk of 100", func(int) (int, error) {
			items := make([]map[string]string, 100)
			for i := range items {
				items[i] = map[string]string{"url": "https://example.com/"}
			}
			return sys.call(ctx, http.MethodPost, "/api/v1/links/bulk", map[string]any{"urls": items}, nil)
		}, http.StatusCreated},
	} {
		if err := sys.measure(ctx, op.name, 200, op.want, op.call); err != nil {
			return err
		}
	}
	return nil
}

type counters struct{ Reads, Writes int64 }

func (s *server) measure(ctx context.Context, name string, n, want int, call func(i int) (int, error)) error {
	if _, err := call(-1); err != nil { // warm
		return err
	}
	var before, after counters
	if err := s.control(ctx, "/counters", &before); err != nil {
		return err
	}
	cpu, err := cpuOf(s.linkPids()...)
	if err != nil {
		return err
	}
	for i := range n {
		status, err := call(i)
		if err != nil {
			return err
		}
		if status != want {
			return fmt.Errorf("%s answers %d, want %d", name, status, want)
		}
	}
	used, err := cpuOf(s.linkPids()...)
	if err != nil {
		return err
	}
	if err := s.control(ctx, "/counters", &after); err != nil {
		return err
	}
	fmt.Printf("%-14s %14.0f %12.2f %12.2f\n", name, float64((used-cpu)/time.Microsecond)/float64(n),
		float64(after.Reads-before.Reads)/float64(n), float64(after.Writes-before.Writes)/float64(n))
	return nil
}
