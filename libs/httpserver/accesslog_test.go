package httpserver

import (
	"sync/atomic"
	"testing"
	"time"
)

func TestWhichRequestsWriteAnAccessLine(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		choice AccessLog
		status int
		took   time.Duration
		lines  int // of 1,000 requests
		of     int // how many requests each line represents
	}{
		"all by default":               {status: 200, lines: 1000, of: 1},
		"all":                          {choice: AccessAll, status: 404, lines: 1000, of: 1},
		"none":                         {choice: AccessNone, status: 500, took: time.Minute},
		"server errors":                {choice: AccessErrors, status: 503, lines: 1000, of: 1},
		"slow requests":                {choice: AccessErrors, status: 200, took: time.Second, lines: 1000, of: 1},
		"sample of the other requests": {choice: AccessErrors, status: 200, took: time.Second - 1, lines: 10, of: 100},
		"sample of 4xx errors":         {choice: AccessErrors, status: 429, lines: 10, of: 100},
	} {
		var others atomic.Uint64
		lines, of := 0, 0
		for range 1000 {
			if n := tt.choice.Line(tt.status, tt.took, &others); n > 0 {
				lines, of = lines+1, n
			}
		}
		if lines != tt.lines || of != tt.of {
			t.Errorf("%s: got %d lines for %d requests each, want %d lines for %d", name, lines, of, tt.lines, tt.of)
		}
	}
	var a AccessLog
	if err := a.UnmarshalText([]byte("some")); err == nil {
		t.Error("UnmarshalText(some) succeeded, want an error")
	}
	if err := a.UnmarshalText([]byte("errors")); err != nil || a != AccessErrors {
		t.Errorf("UnmarshalText(errors) = %q, %v, want errors", a, err)
	}
}
