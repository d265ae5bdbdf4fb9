package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// userAgent is the User-Agent header for all visitors.
const userAgent = "Mozilla/5.0 (X11; Linux x86_64) bench"

// load sends GETs over keep-alive connections for the given duration and counts the responses with
// the expected status. To save processor time, it parses only as much of a response as it needs.
func load(ctx context.Context, addr string, connections int, d time.Duration, wantStatus string, path func(worker, n int) string) (answers int64, p99 time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var (
		total  atomic.Int64
		wg     sync.WaitGroup
		mu     sync.Mutex
		took   []time.Duration
		failed error
	)
	for w := range connections {
		wg.Go(func() {
			n, times, err := oneConnection(ctx, addr, wantStatus, func(n int) string { return path(w, n) })
			total.Add(n)
			mu.Lock()
			defer mu.Unlock()
			took = append(took, times...)
			if err != nil && failed == nil {
				failed = err
			}
		})
	}
	wg.Wait()
	return total.Load(), quantile(took, 0.99), failed
}

func oneConnection(ctx context.Context, addr, wantStatus string, path func(n int) string) (answers int64, took []time.Duration, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, nil, err
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for n := 0; ctx.Err() == nil; n++ {
		started := time.Now()
		if _, err := io.WriteString(conn, "GET "+path(n)+" HTTP/1.1\r\nHost: localhost\r\nUser-Agent: "+userAgent+"\r\n\r\n"); err != nil {
			return answers, took, err
		}
		status, err := readAnswer(r)
		if err != nil {
			return answers, took, err
		}
		if status != wantStatus {
			return answers, took, fmt.Errorf("%s returned %s, want %s", path(n), status, wantStatus)
		}
		answers++
		if n%16 == 0 {
			took = append(took, time.Since(started))
		}
	}
	return answers, took, nil
}

func readAnswer(r *bufio.Reader) (status string, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	if len(line) < 12 {
		return "", errors.New("the status line is too short")
	}
	status = string(line[9:12])
	length := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return "", err
		}
		if len(line) <= 2 {
			break
		}
		if len(line) > 15 && (line[0] == 'C' || line[0] == 'c') && strings.EqualFold(string(line[:15]), "Content-Length:") {
			if length, err = strconv.Atoi(strings.TrimSpace(string(line[15:]))); err != nil {
				return "", err
			}
		}
	}
	_, err = r.Discard(length)
	return status, err
}

func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	values := make([]float64, len(d))
	for i, x := range d {
		values[i] = float64(x)
	}
	s := sorted(values)
	return time.Duration(s[min(len(s)-1, int(q*float64(len(s))))])
}
