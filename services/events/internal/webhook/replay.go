package webhook

import (
	"time"

	"github.com/linkreel/linkreel/services/events/internal/feed"
)

// Replay is the wish to send a time range of events again. It goes through the feed
// a page at a time, and makes deliveries that are deferred.
type Replay struct {
	ID        string
	AccountID string
	WebhookID string
	From, To  time.Time

	// Next is the place in the account's feed behind which the next step looks; 0 before
	// the first.
	Next  int64
	DueAt time.Time
}

const (
	// ReplayPage is how many events a step of a replay reads.
	ReplayPage = 100
	// MaxWaiting is with how many deferred deliveries a webhook's replays rest: what
	// its receiver is not ready for stays a place in the feed.
	MaxWaiting = 500
	// ReplayRest is for how long a replay rests.
	ReplayRest = 5 * time.Second
	// maxReplays is how many replays a webhook may have that have not ended. Each takes
	// its turn among those of all accounts.
	maxReplays = 10
)

// Step makes the deliveries of the page behind r.Next. next is the replay afterwards,
// due behind all others; nil when it has ended.
func (r *Replay) Step(w *Webhook, page feed.Page, now time.Time) (list []*Delivery, next *Replay) {
	after := *r
	after.DueAt = now
	for _, e := range page.Events {
		// Places follow the order of commits, times the order of requests: they can
		// differ by moments, so the end is looked for a little beyond.
		if e.At.After(r.To.Add(time.Minute)) {
			return list, nil
		}
		after.Next = e.Seq
		if !e.At.Before(r.From) && !e.At.After(r.To) && w.Wants(e.Type) {
			list = append(list, Send(r.ID, r.WebhookID, e, false, now))
		}
	}
	if !page.More {
		return list, nil
	}
	return list, &after
}
