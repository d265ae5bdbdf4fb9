// Package restored keeps the record of the last restore: which time the restored data is
// from, when it was restored, and what has waited for the operator since then.
//
// A restore goes back in time, and others have seen what happened in the time that it lost.
// So after a restore, webhooks wait and the search for objects without a record is off, until
// the operator turns each on again ([Resume]). A restore writes the record ([Write]) before
// any service serves the data. The record is a document of the database, so it is in the next
// backup too.
//
// Services read the record through a [Watch]. They notice the end of a pause within seconds.
// While the record is not known, they must behave as if everything were paused: until it was
// read for the first time, and from an outage of the database until it was read again, because
// somebody may have restored the database meanwhile.
package restored

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"cloud.google.com/go/firestore"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/lograte"
	"github.com/linkreel/linkreel/libs/outage"
)

// Record describes the last restore. The zero value means that there was none.
type Record struct {
	ID         string    // rst_…; every restore has another one
	Database   string    // where the data was restored to; see firestoredb.DB.Identity
	DataAt     time.Time // the restored data is as it was at this time
	RestoredAt time.Time
	// WebhooksResumedAt and JanitorResumedAt are when the operator ended each pause. They are
	// zero while the pause lasts.
	WebhooksResumedAt time.Time
	JanitorResumedAt  time.Time
}

// WebhooksPaused reports whether webhooks wait for the operator.
func (r Record) WebhooksPaused() bool { return r.ID != "" && r.WebhooksResumedAt.IsZero() }

// JanitorPaused reports whether the search for objects without a record waits for the
// operator.
func (r Record) JanitorPaused() bool { return r.ID != "" && r.JanitorResumedAt.IsZero() }

type document struct {
	ID                string    `firestore:"id"`
	Database          string    `firestore:"database"`
	DataAt            time.Time `firestore:"dataAt"`
	RestoredAt        time.Time `firestore:"restoredAt"`
	WebhooksResumedAt time.Time `firestore:"webhooksResumedAt,omitzero"`
	JanitorResumedAt  time.Time `firestore:"janitorResumedAt,omitzero"`
}

var read = firestoredb.Reader(func(_ firestoredb.Snap, d *document) Record { return Record(*d) })

func ref(db *firestoredb.DB) firestoredb.Ref { return db.Collection("installation").Doc("restore") }

// Write notes a restore of data that is as it was at dataAt. It pauses webhooks and the
// janitor, and replaces the record of an earlier restore. Call it before any service serves
// the data. A second call is a second restore, so repeat it only if the first failed. Its time
// is the database's, as all times of the record.
func Write(ctx context.Context, db *firestoredb.DB, dataAt time.Time) (Record, error) {
	return note(ctx, db, dataAt, func(Record) bool { return false })
}

// WriteOnce is [Write] for a caller that may be repeated. If the database has the record of a
// restore of the same time into this database, of which nothing was resumed, it is the same
// restore, and its record stays. A copy of the database has another name, so a restore into
// it is another one; so is a restore after the operator has resumed something.
func WriteOnce(ctx context.Context, db *firestoredb.DB, dataAt time.Time) (Record, error) {
	return note(ctx, db, dataAt, func(last Record) bool { return last.WebhooksPaused() && last.JanitorPaused() })
}

func note(ctx context.Context, db *firestoredb.DB, dataAt time.Time, repeats func(Record) bool) (r Record, err error) {
	in, err := db.Identity(ctx)
	if err != nil {
		return Record{}, err
	}
	err = change(ctx, db, "note the restore", func(tx *firestore.Transaction, last Record, now time.Time) error {
		// The database keeps microseconds.
		r = Record{ID: identity.NewID("rst"), Database: in, DataAt: dataAt.UTC().Truncate(time.Microsecond), RestoredAt: now}
		if last.Database == r.Database && last.DataAt.Equal(r.DataAt) && repeats(last) {
			r = last
			return nil
		}
		return tx.Set(ref(db), document(r))
	})
	return r, err
}

// change reads the record in a transaction. now is the time of the database.
func change(ctx context.Context, db *firestoredb.DB, what string, do func(tx *firestore.Transaction, last Record, now time.Time) error) error {
	return db.Tx(ctx, what, func(_ context.Context, tx *firestore.Transaction) error {
		snaps, err := tx.GetAll([]*firestore.DocumentRef{ref(db)}) // unlike Get, it does not fail if there is none
		if err != nil {
			return err
		}
		var last Record
		if snaps[0].Exists() {
			if last, err = read(snaps[0]); err != nil {
				return err
			}
		}
		return do(tx, last, snaps[0].ReadTime.UTC())
	})
}

// Read returns the record of the last restore.
func Read(ctx context.Context, db *firestoredb.DB) (Record, error) {
	r, _, err := firestoredb.Lookup(ctx, db, "read the record of the last restore", ref(db), read)
	return r, err
}

// Pauses names pauses after a restore.
type Pauses struct{ Webhooks, Janitor bool }

// ErrOther means that a restore is not the last one.
var ErrOther = errors.New("another restore is the last one")

// Resume ends pauses of the restore with this id, and returns the record as it is then. A pause
// that has ended, and a database that was never restored, stay as they are. If another restore
// is the last one, Resume returns its record and [ErrOther], and changes nothing: whoever
// named the earlier one has not looked at the data of the later one.
func Resume(ctx context.Context, db *firestoredb.DB, id string, end Pauses) (r Record, err error) {
	err = change(ctx, db, "resume after a restore", func(tx *firestore.Transaction, last Record, now time.Time) error {
		r = last
		if r.ID != id && r != (Record{}) {
			return ErrOther
		}
		var changed []firestore.Update
		if end.Webhooks && r.WebhooksPaused() {
			r.WebhooksResumedAt = now
			changed = append(changed, firestore.Update{Path: "webhooksResumedAt", Value: now})
		}
		if end.Janitor && r.JanitorPaused() {
			r.JanitorResumedAt = now
			changed = append(changed, firestore.Update{Path: "janitorResumedAt", Value: now})
		}
		if len(changed) == 0 {
			return nil
		}
		return tx.Update(ref(db), changed)
	})
	return r, err
}

// How often a [Watch] reads the record: while it is not known or the last look failed, while
// something is paused, and otherwise.
const (
	unreadPace = time.Second
	pausedPace = 3 * time.Second
	usualPace  = time.Minute
)

// doubtAfter is how many looks in a row fail before the record counts as unknown, although
// nothing else has noticed an outage. One lost call must not pause anything.
const doubtAfter = 3

var paused = promauto.NewGaugeVec(prometheus.GaugeOpts{
	Name: "linkreel_restored_paused",
	Help: "1 if webhooks, or the janitor that removes objects without a record, wait since a restore for the operator " +
		"(linkreel admin recovery resume), or because the record of the last restore cannot be read for minutes.",
}, []string{"what"})

// unknownLong is how long the record is not known before the metric says that all is paused. Pods
// that start and short outages are shorter.
const unknownLong = 3 * time.Minute

// Watch follows the record. It is safe for concurrent use.
type Watch struct {
	db *firestoredb.DB

	mu      sync.Mutex
	last    Record
	read    bool      // at least once
	failed  int       // looks in a row
	outages uint64    // of the database, when it was last read
	doubted bool      // the doubt since then is in the log
	unknown time.Time // since when the record is not known; zero if it is
	changed []func()

	unread lograte.Limit // of the lines about failed looks
}

// NewWatch makes a watch. It reads nothing before [Watch.Look] or [Watch.Run].
func NewWatch(db *firestoredb.DB) *Watch { return &Watch{db: db} }

// OnChange makes the watch call fn after each change of the record, and when it is known again.
// Call it before [Watch.Run].
func (w *Watch) OnChange(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed = append(w.changed, fn)
}

// Last returns the record as it was last read. known is false if it was never read, or if there
// was an outage of the database since then.
func (w *Watch) Last() (r Record, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, w.known()
}

func (w *Watch) known() bool { return w.read && w.failed < doubtAfter && w.outages == w.db.Outages() }

// Get returns the record as it was last read. If it is not known, Get reads it.
func (w *Watch) Get(ctx context.Context) (Record, error) {
	r, known := w.Last()
	if known {
		return r, nil
	}
	err := w.Look(ctx)
	r, _ = w.Last()
	return r, err
}

// Run follows the record until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	looked := time.Now()
	if _, known := w.Last(); !known { // otherwise the service has read it before it was ready
		looked = time.Time{}
	}
	for ; ctx.Err() == nil; outage.Pause(ctx, unreadPace) {
		if time.Since(looked) < w.pace(time.Now()) {
			continue
		}
		looked = time.Now()
		if err := w.Look(ctx); err != nil && ctx.Err() == nil {
			w.tellUnread(ctx, err)
		}
	}
	return nil
}

// tellUnread writes a line a minute about looks that fail, unless the record is known all the same.
func (w *Watch) tellUnread(ctx context.Context, err error) {
	if _, known := w.Last(); known {
		return
	}
	if times := w.unread.Due(time.Now(), 1); times > 0 {
		slog.WarnContext(ctx, "cannot read the record of the last restore; webhooks and the janitor wait; retrying", "error", err, "times", times)
	}
}

// pace returns how long after a look the next one is due. It writes its line without w.mu, because
// others wait for w.mu while they hold locks of their own.
func (w *Watch) pace(now time.Time) time.Duration {
	pace, doubts := w.check(now)
	if doubts {
		slog.Warn("the database was away and may have been restored; webhooks and the janitor wait until the record of the last restore is read")
	}
	return pace
}

// check is pace without the line. doubts says that the line is due.
func (w *Watch) check(now time.Time) (pace time.Duration, doubts bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch known := w.known(); {
	case !known:
		if w.unknown.IsZero() {
			w.unknown = now
		}
		if now.Sub(w.unknown) > unknownLong {
			show(true, true)
		}
		doubts, w.doubted = w.read && !w.doubted, w.read
		return 0, doubts // Run pauses between two looks
	case w.failed > 0:
		return 0, false
	case w.last.WebhooksPaused(), w.last.JanitorPaused():
		return pausedPace, false
	}
	return usualPace, false
}

// Look reads the record once.
func (w *Watch) Look(ctx context.Context) error {
	outages := w.db.Outages() // before the read, so that an outage during it counts
	r, err := Read(ctx, w.db)
	w.mu.Lock()
	if err != nil {
		w.failed++
		w.mu.Unlock()
		return err
	}
	again, fresh, changed := !w.known(), !w.read || w.last != r, w.changed
	w.last, w.read, w.failed, w.outages, w.doubted, w.unknown = r, true, 0, outages, false, time.Time{}
	show(r.WebhooksPaused(), r.JanitorPaused())
	w.mu.Unlock()
	if fresh {
		tell(ctx, r)
	}
	if fresh || again {
		for _, fn := range changed {
			fn()
		}
	}
	return nil
}

// show says in metrics what is paused. w.mu is held, so the metric follows the record.
func show(webhooks, janitor bool) {
	for what, on := range map[string]bool{"webhooks": webhooks, "janitor": janitor} {
		value := 0.0
		if on {
			value = 1
		}
		paused.WithLabelValues(what).Set(value)
	}
}

// tell says in the log what is paused.
func tell(ctx context.Context, r Record) {
	for what, on := range map[string]bool{"webhooks": r.WebhooksPaused(), "janitor": r.JanitorPaused()} {
		if on {
			slog.WarnContext(ctx, fmt.Sprintf("paused since a restore; resume with linkreel admin recovery resume --%s", what),
				"what", what, "restore", r.ID, "restoredAt", r.RestoredAt, "dataAt", r.DataAt)
		}
	}
}
