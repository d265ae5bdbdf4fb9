package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
)

// BulkMax is the maximum number of links in one bulk request.
const BulkMax = 100

// maxBody is the maximum size of the items in one bulk request. The API accepts bodies up to 1 MiB,
// and the rest of the body is short.
const maxBody = 1<<20 - 16<<10

// BulkError is returned when a bulk call stops before sending all items. The results
// returned with it belong to the first items and include every link that is known to exist.
type BulkError struct {
	// Unsure is the number of items in the failed request. They follow the items with results. If
	// the request got no response, it may have taken effect: repeat the call with Key.
	Unsure int
	Unsent int    // the number of items after those in the failed request, which were not sent
	Key    string // the [IdempotencyKey] for repeating the call without creating a link twice
	Err    error  // the error from the failed request
}

func (e *BulkError) Error() string {
	return fmt.Sprintf("bulk request: %v (%d items in the failed request, %d not sent)", e.Err, e.Unsure, e.Unsent)
}

// Unwrap returns the error from the request that failed.
func (e *BulkError) Unwrap() error { return e.Err }

// CreateLinks creates any number of links, in as many requests as required. It returns one result
// per item, in order. A rejected item does not fail the call: check each Status. If a request
// fails, CreateLinks returns the results so far and a *[BulkError]. To resume, repeat the call with
// the error's Key.
func (c *Client) CreateLinks(ctx context.Context, items []LinkCreate, opts ...Option) ([]BulkResult, error) {
	return inChunks(items, opts, func(part []LinkCreate, opts []Option) ([]BulkResult, error) {
		out, err := c.BulkCreateLinks(ctx, BulkCreate{part}, opts...)
		if err != nil {
			return nil, err
		}
		return out.Results, nil
	})
}

// UpdateLinks applies one change to any number of links. See [Client.CreateLinks].
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

// inChunks sends items in requests small enough for the API. It derives each request's
// Idempotency-Key from the call's, and always splits the same items in the same way.
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
			err = &AnswerError{Err: fmt.Errorf("got %d results for %d items", len(got), len(part))}
		}
		if err != nil {
			return out, &BulkError{Unsure: len(part), Unsent: len(rest) - len(part), Key: key, Err: err}
		}
		out = append(out, got...)
	}
	return out, nil
}

// fits returns how many leading items fit into one request. It is always at least one.
func fits[T any](items []T) int {
	size := 0
	for i, item := range items[:min(BulkMax, len(items))] {
		b, _ := json.Marshal(item) // an item that cannot be encoded fails the request
		if size += len(b) + 1; size > maxBody && i > 0 {
			return i
		}
	}
	return min(BulkMax, len(items))
}
