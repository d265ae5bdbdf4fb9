package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// stream makes a call and returns the body of its response as a stream, which the caller must
// close. The call is retried only until the response begins. After that, a failed read returns a
// [ConnectionError].
func stream(ctx context.Context, c *Client, k call, opts []Option) (io.ReadCloser, error) {
	var out io.ReadCloser
	err := send(ctx, c, k, &out, opts)
	return out, err
}

// streamed is the body of a response with a time limit for each read. The time between reads does
// not count.
type streamed struct {
	io.ReadCloser
	call  *call
	limit time.Duration
	timer *time.Timer // cancels the request when the time limit has passed
	end   context.CancelCauseFunc
	why   func() error // why the request was cancelled; nil if it was not
}

// begin runs do, which stores the body of a response in *to. It limits the duration of do and of
// each read from the body.
func begin(ctx context.Context, k *call, limit time.Duration, to *io.ReadCloser, do func(context.Context) error) error {
	ours, end := context.WithCancelCause(ctx)
	s := &streamed{
		call: k, limit: limit, timer: time.AfterFunc(limit, func() { end(context.DeadlineExceeded) }), end: end,
		why: func() error { return cmp.Or(ctx.Err(), context.Cause(ours)) },
	}
	err := do(ours)
	s.timer.Stop()
	if err != nil {
		if IsConnection(err) {
			err = lost(k, cmp.Or(s.why(), errors.Unwrap(err)))
		}
		end(nil)
		return err
	}
	s.ReadCloser, *to = *to, s
	return nil
}

// Read implements [io.Reader].
func (s *streamed) Read(p []byte) (int, error) {
	s.timer.Reset(s.limit)
	n, err := s.ReadCloser.Read(p)
	s.timer.Stop()
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	return n, lost(s.call, fmt.Errorf("the response was cut off: %w", cmp.Or(s.why(), err)))
}

// Close implements [io.Closer].
func (s *streamed) Close() error {
	defer s.end(nil)
	return s.ReadCloser.Close()
}
