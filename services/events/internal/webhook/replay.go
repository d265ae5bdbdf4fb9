package webhook

import (
	"time"

	"github.com/linkreel/linkreel/services/events/internal/feed"
)

// Replay is a request to send a time range of events again. It reads the feed page by page and
// creates deferred deliveries.
type Replay struct {
	ID        string
	AccountID string
	WebhookID string
	From, To  time.Time

	// Next is the position in the account's feed after which the next step starts to read. It is
	// 0 before the first step.
	Next  int64
	DueAt time.Time
}

const (
	// ReplayPage is the number of events that one replay step reads.
	ReplayPage = 100
	// MaxWaiting is the number of a webhook's deferred deliveries at which its replays pause. The
	// remaining events wait in the feed.
	MaxWaiting = 500
	// ReplayRest is the duration of such a pause.
	ReplayRest = 5 * time.Second
	// maxReplays is the maximum number of a webhook's unfinished replays. All accounts' replays
	// take turns.
	maxReplays = 10
)

// Step creates the deliveries for page, which follows r.Next. next is the replay's new state,
// or nil if the replay has ended. An unfinished replay is due again now, but only after the
// replays that have been waiting longer.
func (r *Replay) Step(w *Webhook, page feed.Page, now time.Time) (list []*Delivery, next *Replay) {
	after := *r
	after.DueAt = now
	for _, e := range page.Events {
		// Positions follow commit order, and times follow request order. The two orders can differ
		// slightly, so read a little beyond the end.
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
