package webhook

import (
	"math/rand/v2"
	"time"

	"github.com/linkreel/linkreel/libs/events"
)

// Status is where a delivery stands.
type Status string

// The states. Pending becomes Delivered or Failed; a retry by hand makes it
// Pending again.
const (
	Pending   Status = "pending"
	Delivered Status = "delivered"
	Failed    Status = "failed"
)

// Delivery is one event on its way to one webhook.
type Delivery struct {
	ID        string
	AccountID string
	WebhookID string
	EventID   string
	EventType events.Type
	CreatedAt time.Time
	Status    Status
	Attempts  []Attempt // the oldest first; the last MaxAttempts
	Tries     int       // since it was created or last retried by hand
	NextTry   time.Time // of a pending one; zero while it is in its first

	// Payload is the data of a message that belongs to no event, such as a test.
	Payload string
	// EventAt is the event's time, where Payload is set.
	EventAt time.Time

	// DueAt is when a replica may take it. A claim moves it on, so that a replica
	// that dies holds it no longer than Lease.
	DueAt time.Time
	// Deferred is set while its lane is full; the lane comes back for it.
	Deferred bool
	// Version names the stored state; a change is written only over the one it was
	// made from.
	Version time.Time
}

// Attempt is one call of the receiver.
type Attempt struct {
	At       time.Time
	Duration time.Duration
	Status   int    // 0: no answer
	Error    string // why it is a failure, in words
	Answer   string // the first KiB of the answer
}

// MaxAttempts bounds what a delivery remembers.
const MaxAttempts = 20

// Lease is how long a claim holds: longer than an attempt takes with all that
// is around it.
const Lease = 45 * time.Second

// Defer is after what time a deferred delivery is due by itself, should its lane
// have been forgotten in a crash.
const Defer = 10 * time.Minute

// Schedule is the pause after each failed try. After the tenth try a delivery
// has failed.
var Schedule = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// FailingFor is after what time of nothing but failures a webhook is disabled.
const FailingFor = 5 * 24 * time.Hour

// maxRetryAfter bounds what a receiver may ask for.
const maxRetryAfter = 24 * time.Hour

// Result is what came of a call.
type Result struct {
	Attempt
	RetryAfter time.Duration
	// Final is set when no further try can help: the webhook is gone or disabled.
	Final bool
	// Ours is set when the fault is ours and nobody was called. It is tried again, and
	// says nothing about the webhook's health.
	Ours bool
}

// Unsigned is the result of a try whose message nobody can sign, because none of the
// webhook's secrets opens. A new secret mends it, and so does the operator.
func Unsigned(now time.Time) Result {
	return Result{Attempt: Attempt{At: now, Error: "Nothing was sent: we cannot open this webhook's secret to sign the message. Roll the secret, or ask the operator of this installation."}, Ours: true}
}

// OK reports whether the receiver has taken the message.
func (r Result) OK() bool { return r.Error == "" && r.Status >= 200 && r.Status < 300 }

// Gone reports whether the receiver wants no more messages.
func (r Result) Gone() bool { return r.Status == 410 }

// Note adds the result of a try and decides what comes next.
func (d *Delivery) Note(r Result, now time.Time) {
	d.Attempts = append(d.Attempts, r.Attempt)
	if n := len(d.Attempts); n > MaxAttempts {
		d.Attempts = d.Attempts[n-MaxAttempts:]
	}
	d.Tries++
	d.Deferred = false
	switch {
	case r.OK():
		d.Status, d.DueAt, d.NextTry = Delivered, time.Time{}, time.Time{}
	// Schedule has the pauses between tries, so there is one try more than it is long.
	case r.Final, r.Gone(), d.Tries > len(Schedule):
		d.Status, d.DueAt, d.NextTry = Failed, time.Time{}, time.Time{}
	default:
		d.DueAt = now.Add(pause(d.Tries, r.RetryAfter))
		d.NextTry = d.DueAt
	}
}

// pause is the schedule's, give or take a tenth, so that what failed together is
// not tried together; never less than the receiver asked for.
func pause(tries int, asked time.Duration) time.Duration {
	usual := Schedule[tries-1]
	usual += time.Duration((rand.Float64()*2 - 1) * 0.1 * float64(usual))
	return max(usual, min(asked, maxRetryAfter))
}

// Health is what a result says about its webhook.
type Health int

// What to do about a webhook after a result.
const (
	Unchanged   Health = iota
	Recovered          // note that it works again
	BeganToFail        // note since when it fails
	GiveUp             // disable it
)

// Judge decides what a result means for the webhook.
func (w *Webhook) Judge(r Result, now time.Time) (Health, Reason) {
	switch {
	case r.OK():
		if w.FailingSince.IsZero() {
			return Unchanged, ""
		}
		return Recovered, ""
	case r.Gone():
		return GiveUp, ReasonGone
	case w.FailingSince.IsZero():
		return BeganToFail, ""
	case now.Sub(w.FailingSince) >= FailingFor:
		return GiveUp, ReasonFailing
	}
	return Unchanged, ""
}

// Replay is the wish to send a time range of events again.
type Replay struct {
	ID        string
	AccountID string
	WebhookID string
	From, To  time.Time

	// Next is the place in the account's feed that is looked at next.
	Next  int64
	DueAt time.Time
}
