package client

import (
	"net/http"
	"strconv"
	"time"
)

// Option changes a single call. Every method takes options last.
type Option func(*options)

type options struct {
	header   http.Header
	key      string // the Idempotency-Key
	timeout  time.Duration
	attempts int
	response *Response
}

func chosen(opts []Option) *options {
	o := &options{header: http.Header{}}
	for _, set := range opts {
		set(o)
	}
	return o
}

// IfMatch makes a change only if the record still has this ETag, which [WithResponse] gives. If it
// has changed, the error's code is PRECONDITION_FAILED. If it may have been changed by an attempt of
// this call whose answer was lost, the error is a [ConnectionError]: read the record.
func IfMatch(etag string) Option { return WithHeader("If-Match", etag) }

// IfNoneMatch reads a record only if its ETag is another one; else the error is one that
// [IsNotModified] knows.
func IfNoneMatch(etag string) Option { return WithHeader("If-None-Match", etag) }

// IdempotencyKey makes a POST send this key instead of a new one. So a program that was stopped can
// safely repeat its last step: the service answers as it did at first, for 24 hours.
func IdempotencyKey(key string) Option { return func(o *options) { o.key = key } }

// WithHeader sets a header of the request.
func WithHeader(name, value string) Option { return func(o *options) { o.header.Set(name, value) } }

// Timeout bounds each attempt of the call. The seconds for which the service may hold a request for
// events come on top. An answer that is streamed must begin within this time, and each of its next
// bytes must come within it. To bound the call as a whole, give ctx a deadline.
func Timeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// Attempts is how often the call is tried in total; 1 is without retries.
func Attempts(n int) Option { return func(o *options) { o.attempts = n } }

// WithResponse fills r with what else the last answer says, also when the call fails. In a walk over
// pages it is the answer with the last page that was read.
func WithResponse(r *Response) Option { return func(o *options) { o.response = r } }

// Response is what an answer says beside its body.
type Response struct {
	Status    int    // HTTP status; 0 if there was no answer
	RequestID string // names the request in the service's logs and in errors
	ETag      string // the version of the record, for [IfMatch] and [IfNoneMatch]
	// Replayed says that an earlier call with the same Idempotency-Key got this answer.
	Replayed bool
	// Limit is the account's rate limit; nil if the answer does not tell it.
	Limit    *RateLimit
	Attempts int // how many attempts the call took
	Header   http.Header
}

// RateLimit is the state of an account's rate limit.
type RateLimit struct {
	Limit     int       // requests per minute
	Remaining int       // requests that are possible at once
	Reset     time.Time // when nothing of the limit is in use again
}

// fill notes an answer.
func (r *Response) fill(status int, h http.Header, attempt int) {
	*r = Response{
		Status: status, RequestID: h.Get("X-Request-Id"), ETag: h.Get("ETag"), Replayed: h.Get("Idempotent-Replayed") == "true",
		Attempts: attempt, Header: h,
	}
	limit, err := strconv.Atoi(h.Get("X-RateLimit-Limit"))
	remaining, rerr := strconv.Atoi(h.Get("X-RateLimit-Remaining"))
	if err != nil || rerr != nil {
		return
	}
	r.Limit = &RateLimit{Limit: limit, Remaining: remaining}
	if at, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64); err == nil {
		r.Limit.Reset = time.Unix(at, 0).UTC()
	}
}
