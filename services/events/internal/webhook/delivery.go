package webhook

import (
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/services/events/internal/feed"
)

// Status is the state of a delivery. This table lists all of a delivery's transitions, with the
// [Delivery] method for each. Package delivery decides when to call the methods, and the store
// saves the result:
//
//	before     what happens                               method   after      due           deferred
//	-          its event is placed, a lane has room       Send     pending    in Lease (*)
//	-          its event is placed, the lane is full      Send     pending    in Defer      yes
//	-          its event is placed during a pause         PutOff   pending    now           yes
//	-          a replay reaches its event                 Send     pending    in Defer      yes
//	-          the owner tests the webhook                Test     pending    now
//	pending    a lane claims it                           Claim    pending    in Lease
//	pending    lane is full, or account suspended         PutOff   pending    later         yes
//	pending    the replica that has it stops              Release  pending    now
//	pending    an attempt ends with 2xx                   Note     delivered
//	pending    an attempt fails, more are left            Note     pending    by Schedule
//	pending    an attempt fails, the last or a final one  Note     failed
//	any        the owner retries it                       Again    pending    now
//	any        its webhook is gone                                 dropped
//
// (*) The delivery has only a [Flight] and no document yet. The feed refers to its event, which
// remains in the outbox until the next state is stored. After Lease, a replica that still finds
// the event in the outbox creates the document, and the delivery is due immediately.
//
// "Due" is the time from which any replica may take the delivery. If the replica that has claimed a
// delivery dies, the delivery becomes due at the end of its lease. Deferred deliveries do not slow
// down sweeps, because their webhook's lane loads them when it has room.
type Status string

// The states of a delivery.
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
	Attempts  []Attempt // the last MaxAttempts attempts, oldest first
	Tries     int       // attempts since the creation or the owner's last retry
	NextTry   time.Time // the time of a pending delivery's next attempt; zero until its first attempt ends

	// Payload is the event's data as JSON, and EventAt is its time. They are copies, so an attempt
	// does not have to read the feed.
	Payload string
	EventAt time.Time

	// DueAt is the time from which any replica may take the delivery. A claim sets DueAt to the end
	// of the lease. If the replica dies, another one can take the delivery at that time.
	DueAt time.Time
	// Deferred is set while the delivery's lane is full. When the lane has room, it loads the
	// delivery.
	Deferred bool
	// Version identifies the stored state from which this value was read. A change is written
	// only if the stored state is still the same.
	Version time.Time
	// Flight is set during the first attempt. Nothing about this attempt is stored until it ends.
	Flight *Flight
}

// Place returns the delivery's position in its webhook's list.
func (d *Delivery) Place() paging.Place { return paging.Place{At: d.CreatedAt, ID: d.ID} }

// Flight is shared by the first attempts of one event.
type Flight struct {
	mu   sync.Mutex
	left int // attempts with an outcome that is not stored yet
}

// Fly puts one event's deliveries into a flight.
func Fly(list []*Delivery) {
	f := &Flight{left: len(list)}
	for _, d := range list {
		d.Flight = f
	}
}

// Land takes the delivery out of its flight with a commit that stores the outcome. The last commit
// of a flight also removes the event from the outbox. The commits run one after another, so exactly
// one of them is the last.
func (d *Delivery) Land(commit func(last bool) error) error {
	f := d.Flight
	f.mu.Lock()
	defer f.mu.Unlock()
	err := commit(f.left == 1)
	if err == nil {
		f.left--
		d.Flight = nil
	}
	return err
}

// Send creates the delivery of an event to a webhook. source is the ID of the webhook, or of
// the replay that caused the delivery. Calling Send again with the same source and event
// returns a delivery with the same ID. inHand means that a lane in this replica already holds the
// delivery.
func Send(source, webhookID string, e *feed.Event, inHand bool, now time.Time) *Delivery {
	d := &Delivery{
		ID: deliveryID(source, e.ID), AccountID: e.AccountID, WebhookID: webhookID,
		EventID: e.ID, EventType: e.Type, EventAt: e.At, Payload: e.Data, CreatedAt: now, Status: Pending,
	}
	if inHand {
		d.Claim(now)
	} else {
		d.PutOff(now.Add(Defer))
	}
	return d
}

// deliveryID returns the ID of the delivery that source causes for an event.
func deliveryID(source, eventID string) string { return identity.IDFrom("whd", source+"/"+eventID) }

// Repeated reports whether the delivery was caused by a replay. Such a delivery's event may be old.
func (d *Delivery) Repeated() bool { return d.ID != deliveryID(d.WebhookID, d.EventID) }

// Claim reserves the delivery. Other replicas won't take it until Lease has passed.
func (d *Delivery) Claim(now time.Time) { d.DueAt, d.Deferred = now.Add(Lease), false }

// PutOff makes the delivery wait until its lane has room, or until t.
func (d *Delivery) PutOff(t time.Time) { d.DueAt, d.Deferred = t, true }

// Release gives up the claim, so that any replica may take the delivery.
func (d *Delivery) Release(now time.Time) { d.DueAt, d.Deferred = now, false }

// Again restarts the delivery's attempts, regardless of its status.
func (d *Delivery) Again(now time.Time) {
	d.Release(now)
	d.Status, d.Tries, d.NextTry = Pending, 0, now
}

// MaxLanes is the maximum number of lanes in the index of due deliveries. The index needs lanes
// because its values rise with time, and Firestore sustains only about 500 writes per second in one
// range of rising values.
const MaxLanes = 256

// LaneOf returns the lane for a webhook's deliveries out of the given number of lanes.
func LaneOf(webhookID string, lanes int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(webhookID)) // never fails
	return int(h.Sum32() % uint32(lanes))
}

// Attempt is one call to the receiver.
type Attempt struct {
	At       time.Time
	Duration time.Duration
	Status   int    // the HTTP status; 0 if there was no response
	Error    string // the reason for a failure, as a sentence
	Answer   string // the first KiB of the response
}

// MaxAttempts is the number of attempts that a delivery stores.
const MaxAttempts = 20

// Lease is how long a claim lasts. It is longer than the longest attempt, including its reads
// and writes.
const Lease = 45 * time.Second

// Defer is the time after which a deferred delivery becomes due even if its lane has not loaded
// it, in case a crash has lost the lane.
const Defer = 10 * time.Minute

// Schedule contains the pause after each failed attempt. If the tenth attempt also fails, the
// delivery has failed.
var Schedule = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// FailingFor is the time after which a webhook is disabled if every attempt fails.
const FailingFor = 5 * 24 * time.Hour

// maxRetryAfter limits the pause that a receiver may request.
const maxRetryAfter = 24 * time.Hour

// Cause is the reason for a failed attempt, for the operator. The owner gets the attempt's Error.
type Cause string

// The causes of failed attempts.
const (
	CauseDNS       Cause = "dns"       // the host name does not resolve to an address, or could not be looked up
	CauseRefused   Cause = "refused"   // the connection was refused
	CauseTLS       Cause = "tls"       // the certificate is not valid, or the handshake failed
	CauseTimeout   Cause = "timeout"   // no response in time
	CauseForbidden Cause = "forbidden" // the address check does not allow the call
	CauseProxy     Cause = "proxy"     // the egress proxy did not connect
	CauseClosed    Cause = "closed"    // the connection was closed before a response
	CauseOther     Cause = "other"     // any other failure without a response
	CauseStatus    Cause = "status"    // a non-2xx response
	CauseUnsigned  Cause = "unsigned"  // not sent because none of the secrets can be decrypted
)

// Unanswered lists the causes of attempts without a response.
var Unanswered = []Cause{
	CauseDNS, CauseRefused, CauseTLS, CauseTimeout, CauseForbidden, CauseProxy, CauseClosed, CauseOther,
}

// Result is the result of a call.
type Result struct {
	Attempt
	// Cause is set if the attempt failed.
	Cause      Cause
	RetryAfter time.Duration
	// Final is set if further attempts cannot help, for example because the webhook is disabled.
	Final bool
	// Ours is set if a fault on our side prevented the call. The delivery is retried, and the
	// result does not affect the webhook's health.
	Ours bool
}

// Unsigned returns the result of an attempt that could not sign its message because no key decrypts
// any of the webhook's secrets. The owner can fix this by rolling the secret, or the operator by
// restoring the removed key.
func Unsigned(now time.Time) Result {
	return Result{Attempt: Attempt{At: now, Error: "Nothing was sent: we cannot decrypt this webhook's secret to sign the message. " +
		"Roll the secret, or ask the operator of this installation for help."}, Cause: CauseUnsigned, Ours: true}
}

// OK reports whether the receiver accepted the message.
func (r Result) OK() bool { return r.Error == "" && r.Status >= 200 && r.Status < 300 }

// Gone reports whether the receiver asked not to receive any more messages.
func (r Result) Gone() bool { return r.Status == 410 }

// Note adds the result of an attempt and decides the next state.
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
	// Schedule contains the pauses between attempts, so there is one more attempt than there
	// are pauses.
	case r.Final, r.Gone(), d.Tries > len(Schedule):
		d.Status, d.DueAt, d.NextTry = Failed, time.Time{}, time.Time{}
	default:
		d.DueAt = now.Add(pause(d.Tries, r.RetryAfter))
		d.NextTry = d.DueAt
	}
}

// pause returns the scheduled pause plus or minus up to a tenth, so that deliveries that failed
// together are not all retried at the same time. If the receiver requested a longer pause, it
// returns that pause, up to maxRetryAfter.
func pause(tries int, asked time.Duration) time.Duration {
	usual := Schedule[tries-1]
	usual += time.Duration((rand.Float64()*2 - 1) * 0.1 * float64(usual))
	return max(usual, min(asked, maxRetryAfter))
}

// Health is what a result means for its webhook.
type Health int

// What a result can mean.
const (
	Unchanged   Health = iota
	Recovered          // record that the webhook works again
	BeganToFail        // record when and why the webhook started to fail
	OtherCause         // record why the webhook fails now
	GiveUp             // disable the webhook
)

// Judge decides what a result means for the webhook. Failures before since do not count,
// because messages were paused until then and the receiver had no chance to recover.
func (w *Webhook) Judge(r Result, now, since time.Time) (Health, Reason) {
	switch {
	case r.OK():
		if w.FailingSince.IsZero() {
			return Unchanged, ""
		}
		return Recovered, ""
	case r.Gone():
		return GiveUp, ReasonGone
	case w.FailingSince.IsZero(), w.FailingSince.Before(since):
		return BeganToFail, ""
	case now.Sub(w.FailingSince) >= FailingFor:
		return GiveUp, ReasonFailing
	case w.Cause != r.Cause:
		return OtherCause, ""
	}
	return Unchanged, ""
}
