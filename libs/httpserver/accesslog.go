package httpserver

import (
	"fmt"
	"sync/atomic"
	"time"
)

// AccessLog says which requests write an access line. The zero value means all.
type AccessLog string

// The choices of access lines.
const (
	AccessAll    AccessLog = "all"
	AccessErrors AccessLog = "errors" // server errors, slow requests, and a sample of the others
	AccessNone   AccessLog = "none"
)

const (
	// slow is the minimum duration of a request that [AccessErrors] logs as slow.
	slow = time.Second
	// sample is how many of the other requests one line stands for.
	sample = 100
)

// UnmarshalText implements [encoding.TextUnmarshaler]. It rejects an unknown choice, so the
// service does not start.
func (a *AccessLog) UnmarshalText(text []byte) error {
	switch v := AccessLog(text); v {
	case AccessAll, AccessErrors, AccessNone:
		*a = v
		return nil
	}
	return fmt.Errorf("LINKREEL_LOG_ACCESS is %q; use all, errors or none", text)
}

// Line returns how many requests the access line of this request stands for, or 0 if it
// writes none. others counts the requests of the server that are sampled.
func (a AccessLog) Line(status int, took time.Duration, others *atomic.Uint64) int {
	switch {
	case a == AccessNone:
		return 0
	case a != AccessErrors || status >= 500 || took >= slow:
		return 1
	case others.Add(1)%sample == 1: // the first one too, so that a rare route is seen
		return sample
	}
	return 0
}
