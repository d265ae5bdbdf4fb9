package httpserver

import (
	"fmt"
	"sync/atomic"
	"time"
)

// AccessLog selects the requests for which an access line is logged. The zero value means all.
type AccessLog string

// AccessLog values.
const (
	AccessAll    AccessLog = "all"
	AccessErrors AccessLog = "errors" // server errors, slow requests, and a sample of the other requests
	AccessNone   AccessLog = "none"
)

const (
	// slow is the minimum duration of a request that [AccessErrors] logs as slow.
	slow = time.Second
	// sample is how many of the other requests one line represents.
	sample = 100
)

// UnmarshalText implements [encoding.TextUnmarshaler]. It rejects an unknown value, so a
// misconfigured service does not start.
func (a *AccessLog) UnmarshalText(text []byte) error {
	switch v := AccessLog(text); v {
	case AccessAll, AccessErrors, AccessNone:
		*a = v
		return nil
	}
	return fmt.Errorf("LINKREEL_LOG_ACCESS is %q; use all, errors or none", text)
}

// Line returns how many requests this request's access line represents, or 0 if no line is
// logged. others counts the requests that are subject to sampling.
func (a AccessLog) Line(status int, took time.Duration, others *atomic.Uint64) int {
	switch {
	case a == AccessNone:
		return 0
	case a != AccessErrors || status >= 500 || took >= slow:
		return 1
	case others.Add(1)%sample == 1: // including the first request, so rare routes appear in the log
		return sample
	}
	return 0
}
