package client

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// BulkMax is how many links one bulk request takes.
const BulkMax = 100

// maxBody is how many bytes of items one bulk request takes: the API reads 1 MiB, and the rest of
// the body is short.
const maxBody = 1<<20 - 16<<10

// BulkError says that a bulk call ended half-way. The results that came with it are those of the
// first items; each link that is known to exist is among them.
type BulkError struct {
	// Unsure is how many items after the results were in the request that failed. If no answer
	// came, it may have taken effect: repeat the whole call with the same [IdempotencyKey].
	Unsure  int
	NotSent int   // how many items after those were not sent
	Err     error // of the request that failed
}

func (e *BulkError) Error() string {
	return fmt.Sprintf("bulk request: %v (%d items in the failed request, %d not sent)", e.Err, e.Unsure, e.NotSent)
}

// Unwrap returns the error of the request that failed.
func (e *BulkError) Unwrap() error { return e.Err }

// CreateLinks makes any number of links, in as many requests as needed, and returns one result per
// item, in order. A refused item does not fail the call: look at each Status. If a request fails,
// the results so far come with a *[BulkError]. With an [IdempotencyKey], the call can be repeated
// with the same items, and makes nothing twice.
func (c *Client) CreateLinks(ctx context.Context, items []LinkCreate, opts ...Option) ([]BulkResult, error) {
	return inChunks(items, opts, func(part []LinkCreate, opts []Option) ([]BulkResult, error) {
		out, err := c.BulkCreateLinks(ctx, BulkCreate{part}, opts...)
		if err != nil {
			return nil, err
		}
		return out.Results, nil
	})
}

// ChangeLinks makes one change to any number of links; see [Client.CreateLinks].
func (c *Client) ChangeLinks(ctx context.Context, ids []string, set BulkSet, opts ...Option) ([]BulkChange, error) {
	return inChunks(ids, opts, func(part []string, opts []Option) ([]BulkChange, error) {
		out, err := c.BulkUpdateLinks(ctx, BulkUpdate{part, set}, opts...)
		if err != nil {
			return nil, err
		}
		return out.Results, nil
	})
}

// DeleteLinks removes any number of links; see [Client.CreateLinks].
func (c *Client) DeleteLinks(ctx context.Context, ids []string, opts ...Option) ([]BulkChange, error) {
	return inChunks(ids, opts, func(part []string, opts []Option) ([]BulkChange, error) {
		out, err := c.BulkDeleteLinks(ctx, BulkDelete{part}, opts...)
		if err != nil {
			return nil, err
		}
		return out.Results, nil
	})
}

// inChunks sends items in requests that the API takes. An Idempotency-Key of the caller becomes one
// for each request; the same items are always cut alike.
func inChunks[T, R any](items []T, opts []Option, send func([]T, []Option) ([]R, error)) ([]R, error) {
	key := chosen(opts).key
	out := make([]R, 0, len(items))
	for n := 0; len(out) < len(items); n++ {
		rest := items[len(out):]
		part := rest[:fits(rest)]
		mine := opts
		if key != "" {
			mine = append(slices.Clone(opts), IdempotencyKey(fmt.Sprintf("%s-%d", key, n)))
		}
		got, err := send(part, mine)
		if err == nil && len(got) != len(part) {
			err = &AnswerError{Err: fmt.Errorf("%d results for %d items", len(got), len(part))}
		}
		if err != nil {
			return out, &BulkError{Unsure: len(part), NotSent: len(rest) - len(part), Err: err}
		}
		out = append(out, got...)
	}
	return out, nil
}

// fits says how many of the first items one request takes, at least one.
func fits[T any](items []T) int {
	size := 0
	for i, item := range items[:min(BulkMax, len(items))] {
		b, _ := json.Marshal(item) // an item that cannot be written fails the request
		if size += len(b) + 1; size > maxBody && i > 0 {
			return i
		}
	}
	return min(BulkMax, len(items))
}
