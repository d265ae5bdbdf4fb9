package client

import (
	"net/http"
	"strconv"
	"time"
)

// Option changes a single call. Options are the last arguments of every method.
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

// IfMatch lets a call change a record only if it still has this ETag, which [WithResponse] returned
// when the record was read. If the record has changed, the error has the code PRECONDITION_FAILED.
// If the change may have been made by an earlier attempt at this call that got no response, the
// error is a [ConnectionError]. In that case, read the record.
func IfMatch(etag string) Option { return WithHeader("If-Match", etag) }

// IfNoneMatch lets a call return a record only if it no longer has this ETag. Otherwise the call
// returns an error for which [IsNotModified] is true.
func IfNoneMatch(etag string) Option { return WithHeader("If-None-Match", etag) }

// IdempotencyKey sets the Idempotency-Key of a POST. With it, a program that was interrupted can
// safely repeat its last step: for 24 hours, the service returns the first response again.
func IdempotencyKey(key string) Option { return func(o *options) { o.key = key } }

// WithHeader sets a request header.
func WithHeader(name, value string) Option { return func(o *options) { o.header.Set(name, value) } }

// Timeout bounds each attempt at the call. For a long poll, the requested wait is added. A streamed
// response must begin within this time, and each read from it must receive bytes within this time.
// To bound the whole call, use a ctx with a deadline.
func Timeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// Attempts is the maximum number of attempts at the call; 1 means no retries.
func Attempts(n int) Option { return func(o *options) { o.attempts = n } }

// WithResponse fills r with metadata from the last response, even if the call fails. For an
// iterator over pages, r describes the last page that was read.
func WithResponse(r *Response) Option { return func(o *options) { o.response = r } }

// Response holds a response's metadata.
type Response struct {
	Status    int    // HTTP status, or 0 if no response arrived
	RequestID string // identifies the request in the service's logs and in errors
	ETag      string // the version of the record, for [IfMatch] and [IfNoneMatch]
	// Replayed is set if this is the stored response from an earlier call with the same
	// Idempotency-Key.
	Replayed bool
	// Limit is the account's rate limit, or nil if the response does not contain it.
	Limit    *RateLimit
	Attempts int // the number of attempts that the call took
	Header   http.Header
}

// RateLimit is the state of an account's rate limit.
type RateLimit struct {
	Limit     int       // requests per minute
	Remaining int       // remaining requests
	Reset     time.Time // when the full limit is available again
}

// fill copies a response's metadata.
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
