package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// stream makes a call and returns its answer while it arrives. The caller closes it. An attempt is
// only repeated until the answer begins; a later failure is a [ConnectionError] of a read.
func stream(ctx context.Context, c *Client, k call, opts []Option) (io.ReadCloser, error) {
	var out io.ReadCloser
	err := send(ctx, c, k, &out, opts)
	return out, err
}

// streamed is the body of an answer, of which each read has a time limit. What the caller does
// between two reads takes none of that time.
type streamed struct {
	io.ReadCloser
	call  *call
	limit time.Duration
	timer *time.Timer // ends the request when the limit is over
	end   context.CancelCauseFunc
	why   func() error // why the request was ended; nil if it was not
}

// begin runs do, which writes the body of an answer to *to, and puts a limit on do and on each read.
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
	return n, lost(s.call, fmt.Errorf("the answer broke off: %w", cmp.Or(s.why(), err)))
}

// Close implements [io.Closer].
func (s *streamed) Close() error {
	defer s.end(nil)
	return s.ReadCloser.Close()
}
