package client

import (
	"context"
	mathrand "math/rand/v2"
	"time"
)

// followWait is how many seconds a request waits for the next event. It is the maximum that the
// service accepts.
const followWait = 25

// followPause is the longest pause between attempts to reach an unreachable service.
const followPause = 10 * time.Second

// FollowEvents calls do with each event, oldest first, until ctx is done or do returns an error. It
// starts after the cursor or event id in q.After. If q.After is nil, it starts with the next event.
// If q.After is empty, it starts with the oldest stored event. It returns the value of After that
// makes a later call resume right after the last event for which do returned nil. To resume after a
// crash, have do store the event's ID. After the first page, FollowEvents retries until ctx is done
// if the service is unreachable, restarts or limits the rate. It returns all other errors. [IsGone]
// is true for the error if the service was restored from a backup that does not contain the
// position After. In that case, re-read the records that you rely on, and resume from
// [APIError].RestartAfter. If After is older than the oldest stored event, the code is
// INVALID_CURSOR.
func (c *Client) FollowEvents(ctx context.Context, q ListEventsQuery, do func(Event) error, opts ...Option) (after *string, err error) {
	q.Cursor, q.Wait = nil, new(followWait)
	if q.After == nil {
		// The first response arrives immediately and determines the position. If a long poll without
		// a position failed, its retry would start at a later position and miss the events in
		// between.
		q.Wait = new(0)
	}
	if q.Limit == 0 {
		q.Limit = 100
	}
	for reached := false; ctx.Err() == nil; reached = true {
		page, err := c.ListEvents(ctx, q, opts...)
		if err != nil && reached && ctx.Err() == nil && (IsConnection(err) || IsServer(err) || IsRateLimited(err)) {
			if err := c.cfg.Sleep(ctx, followPause/2+mathrand.N(followPause/2)); err != nil {
				return q.After, err
			}
			continue
		}
		if err != nil {
			return q.After, err
		}
		for _, e := range page.Data {
			if err := do(e); err != nil {
				return q.After, err
			}
			q.After = &e.ID
		}
		// When reading forwards, every page has a cursor, even an empty page. The first page
		// therefore determines the position, and this loop does not miss any events between
		// requests.
		if page.NextCursor != nil {
			q.After = page.NextCursor
		}
		held := *q.Wait > 0
		q.Wait = new(followWait)
		if held && len(page.Data) == 0 {
			// A server that is shutting down responds to its long polls immediately. The pause is
			// random, so its callers do not all retry at the same time.
			if err := c.cfg.Sleep(ctx, mathrand.N(time.Second)); err != nil {
				return q.After, err
			}
		}
	}
	return q.After, ctx.Err()
}
