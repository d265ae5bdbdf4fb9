package client

import (
	"context"
	"crypto/rand"
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
	// came, it may have taken effect: repeat the call with Key.
	Unsure int
	Unsent int    // how many items after those were not sent
	Key    string // the [IdempotencyKey] with which the same call continues, and makes nothing twice
	Err    error  // of the request that failed
}

func (e *BulkError) Error() string {
	return fmt.Sprintf("bulk request: %v (%d items in the failed request, %d not sent)", e.Err, e.Unsure, e.Unsent)
}

// Unwrap returns the error of the request that failed.
func (e *BulkError) Unwrap() error { return e.Err }

// CreateLinks makes any number of links, in as many requests as needed, and returns one result per
// item, in order. A refused item does not fail the call: look at each Status. If a request fails,
// the results so far come with a *[BulkError], and the same call with its Key continues.
func (c *Client) CreateLinks(ctx context.Context, items []LinkCreate, opts ...Option) ([]BulkResult, error) {
	return inChunks(items, opts, func(part []LinkCreate, opts []Option) ([]BulkResult, error) {
		out, err := c.BulkCreateLinks(ctx, BulkCreate{part}, opts...)
		if err != nil {
			return nil, err
		}
		return out.Results, nil
	})
}

// UpdateLinks makes one change to any number of links; see [Client.CreateLinks].
func (c *Client) UpdateLinks(ctx context.Context, ids []string, set BulkSet, opts ...Option) ([]BulkChange, error) {
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

// inChunks sends items in requests that the API takes. The call's Idempotency-Key becomes one for
// each request; the same items are always cut alike.
func inChunks[T, R any](items []T, opts []Option, send func([]T, []Option) ([]R, error)) ([]R, error) {
	key := chosen(opts).key
	if key == "" {
		key = rand.Text()
	}
	out := make([]R, 0, len(items))
	for n := 0; len(out) < len(items); n++ {
		rest := items[len(out):]
		part := rest[:fits(rest)]
		got, err := send(part, append(slices.Clone(opts), IdempotencyKey(fmt.Sprintf("%s-%d", key, n))))
		if err == nil && len(got) != len(part) {
			err = &AnswerError{Err: fmt.Errorf("%d results for %d items", len(got), len(part))}
		}
		if err != nil {
			return out, &BulkError{Unsure: len(part), Unsent: len(rest) - len(part), Key: key, Err: err}
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
