package client

import (
	"context"
	mathrand "math/rand/v2"
	"time"
)

// followWait is how many seconds a request waits for the next event; the service takes no more.
const followWait = 25

// followPause is the longest pause before a service that was away is asked again.
const followPause = 10 * time.Second

// FollowEvents calls do with each event, oldest first, until ctx ends or do returns an error. q.After
// is a cursor or an event's id to start behind; nil starts with the next event, and an empty text
// with the oldest that is kept. It returns the value of After with which a later call resumes: behind
// the last event for which do returned nil. To resume after a crash, let do store the event's ID.
// Once a page was read, a service that is away, restarts or wants fewer requests is waited for, as
// long as ctx lives. Other errors end the walk: [IsGone] if the service was restored from a backup
// and After is of the time that it lost. Then read the records again that you rely on, and go on from
// [APIError].RestartAfter. An After that is older than what is kept is INVALID_CURSOR.
func (c *Client) FollowEvents(ctx context.Context, q ListEventsQuery, do func(Event) error, opts ...Option) (after *string, err error) {
	q.Cursor, q.Wait = nil, new(followWait)
	if q.After == nil {
		// The first answer comes at once and fixes the place. If a held request without a place were
		// lost, its next attempt would begin later, and miss what happened in between.
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
		// When reading forwards, every page has a cursor, even an empty page. So the first page
		// fixes the place to read from, and this loop misses no events between two requests.
		if page.NextCursor != nil {
			q.After = page.NextCursor
		}
		held := *q.Wait > 0
		q.Wait = new(followWait)
		if held && len(page.Data) == 0 {
			// A server that is stopping does not hold the request. The pause is random, so that its
			// callers do not all return at once.
			if err := c.cfg.Sleep(ctx, mathrand.N(time.Second)); err != nil {
				return q.After, err
			}
		}
	}
	return q.After, ctx.Err()
}
