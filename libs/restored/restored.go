// Package restored keeps the record of the last restore: what time the restored data is from, when
// it was restored, and what has been paused since then.
//
// A restore goes back in time, but other systems have already seen the events that it undoes.
// After a restore, webhooks and the janitor, which removes objects without a record, are
// therefore paused until the operator resumes them ([Resume]). A restore writes the record
// ([Write]) before any service serves the data. The record is a document in the database, so
// the next backup includes it.
//
// Services read the record through a [Watch] and notice the end of a pause within seconds.
// While the record is unknown, they must behave as if everything were paused. It is unknown
// until the first read, and after a database outage until the next read, because an
// operator may have restored the database during the outage.
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
	ID         string    // rst_…, unique to each restore
	Database   string    // where the data was restored to; see firestoredb.DB.Identity
	DataAt     time.Time // the time that the restored data is from
	RestoredAt time.Time
	// WebhooksResumedAt and JanitorResumedAt are when the operator ended each pause. They are
	// zero during the pause.
	WebhooksResumedAt time.Time
	JanitorResumedAt  time.Time
}

// WebhooksPaused reports whether webhooks are paused until the operator resumes them.
func (r Record) WebhooksPaused() bool { return r.ID != "" && r.WebhooksResumedAt.IsZero() }

// JanitorPaused reports whether the janitor is paused until the operator resumes it.
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

// Write records a restore of data from dataAt. It pauses webhooks and the janitor, and replaces
// any earlier record. Call it before any service serves the data. A second call counts as a second
// restore, so repeat the call only if the first one failed. All times in the record except dataAt
// come from the database's clock.
func Write(ctx context.Context, db *firestoredb.DB, dataAt time.Time) (Record, error) {
	return note(ctx, db, dataAt, func(Record) bool { return false })
}

// WriteOnce is like [Write], but for a caller that may run more than once. If the database already
// has a record of restoring data from the same time into this database, and nothing has been
// resumed since, WriteOnce keeps that record. A restore into a copy of the database is a new
// restore because the copy has a different name. A restore after the operator has resumed something
// is also new. So is a restore into a new database with the same name: its backup is either older
// than the first record, or has a later time than the first restore.
func WriteOnce(ctx context.Context, db *firestoredb.DB, dataAt time.Time) (Record, error) {
	return note(ctx, db, dataAt, func(last Record) bool { return last.WebhooksPaused() && last.JanitorPaused() })
}

func note(ctx context.Context, db *firestoredb.DB, dataAt time.Time, repeats func(Record) bool) (r Record, err error) {
	in, err := db.Identity(ctx)
	if err != nil {
		return Record{}, err
	}
	err = change(ctx, db, "record the restore", func(tx *firestore.Transaction, last Record, now time.Time) error {
		// The database has microsecond precision.
		r = Record{ID: identity.NewID("rst"), Database: in, DataAt: dataAt.UTC().Truncate(time.Microsecond), RestoredAt: now}
		if last.Database == r.Database && last.DataAt.Equal(r.DataAt) && repeats(last) {
			r = last
			return nil
		}
		return tx.Set(ref(db), document(r))
	})
	return r, err
}

// change reads the record in a transaction. now is the database's time.
func change(ctx context.Context, db *firestoredb.DB, what string, do func(tx *firestore.Transaction, last Record, now time.Time) error) error {
	return db.Tx(ctx, what, func(_ context.Context, tx *firestore.Transaction) error {
		snaps, err := tx.GetAll([]*firestore.DocumentRef{ref(db)}) // unlike Get, GetAll does not fail if the document does not exist
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

// Pauses selects pauses after a restore.
type Pauses struct{ Webhooks, Janitor bool }

// ErrOther means that there has been a later restore.
var ErrOther = errors.New("there has been a later restore")

// Resume ends the pauses from the restore with this id and returns the new record. It has no effect
// on a pause that has already ended, or on a database that was never restored. If there has been a
// later restore, Resume returns its record and [ErrOther] and changes nothing, because a caller
// that specifies the earlier restore has not checked the later one's data.
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

// How often a [Watch] reads the record: while it is unknown or the last read failed, while
// something is paused, and otherwise.
const (
	unreadPace = time.Second
	pausedPace = 3 * time.Second
	usualPace  = time.Minute
)

// doubtAfter is how many reads in a row must fail before the record counts as unknown when
// nothing else has noticed an outage. A single lost call must not pause anything.
const doubtAfter = 3

var paused = promauto.NewGaugeVec(prometheus.GaugeOpts{
	Name: "linkreel_restored_paused",
	Help: "1 if webhooks, or the janitor that removes objects without a record, are paused: since a restore until the operator " +
		"runs linkreel admin recovery resume, or because the record of the last restore has been unreadable for minutes.",
}, []string{"what"})

// unknownLong is how long the record must be unknown before the metric shows that everything is
// paused. A pod start or a short outage takes less time.
const unknownLong = 3 * time.Minute

// Watch follows the record. It is safe for concurrent use.
type Watch struct {
	db *firestoredb.DB

	mu      sync.Mutex
	last    Record
	read    bool      // at least once
	failed  int       // failed reads in a row
	outages uint64    // number of database outages at the last read
	doubted bool      // a warning about an outage since then has been logged
	unknown time.Time // since when the record has been unknown; zero if it is known
	changed []func()

	unread lograte.Limit // limits the lines about failed reads
}

// NewWatch returns a watch. It reads nothing until [Watch.Look] or [Watch.Run] is called.
func NewWatch(db *firestoredb.DB) *Watch { return &Watch{db: db} }

// OnChange makes the watch call fn after each change to the record, and when the record becomes
// known again. Call OnChange before [Watch.Run].
func (w *Watch) OnChange(fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed = append(w.changed, fn)
}

// Last returns the record as it was last read. known is false if the record was never read, or if
// the database has had an outage since then.
func (w *Watch) Last() (r Record, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, w.known()
}

func (w *Watch) known() bool { return w.read && w.failed < doubtAfter && w.outages == w.db.Outages() }

// Get returns the record as it was last read. If the record is unknown, Get reads it.
func (w *Watch) Get(ctx context.Context) (Record, error) {
	r, known := w.Last()
	if known {
		return r, nil
	}
	err := w.Look(ctx)
	r, _ = w.Last()
	return r, err
}

// Run follows the record until ctx is done.
func (w *Watch) Run(ctx context.Context) error {
	looked := time.Now()
	if _, known := w.Last(); !known { // otherwise the service read the record before it became ready
		looked = time.Time{}
	}
	// Wake more often than pace says, because an outage makes the record unknown and the next read
	// due at once.
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

// tellUnread logs failed reads at most once a minute, unless the record is still known.
func (w *Watch) tellUnread(ctx context.Context, err error) {
	if _, known := w.Last(); known {
		return
	}
	if times := w.unread.Due(time.Now(), 1); times > 0 {
		slog.WarnContext(ctx, "cannot read the record of the last restore; webhooks and the janitor are paused; retrying", "error", err, "times", times)
	}
}

// pace returns how long after a read the next one is due. It logs without holding w.mu, because
// other goroutines may be waiting for w.mu while they hold their own locks.
func (w *Watch) pace(now time.Time) time.Duration {
	pace, doubts := w.check(now)
	if doubts {
		slog.Warn("the database was unreachable and may have been restored; webhooks and the janitor are paused until the record of the last restore is read")
	}
	return pace
}

// check is pace without logging. doubts reports whether pace must log that the record is unknown.
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
		return 0, doubts // Run pauses between reads
	case w.failed > 0:
		return 0, false
	case w.last.WebhooksPaused(), w.last.JanitorPaused():
		return pausedPace, false
	}
	return usualPace, false
}

// Look reads the record once.
func (w *Watch) Look(ctx context.Context) error {
	outages := w.db.Outages() // before the read so that an outage during it counts
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

// show sets the metrics for the pauses. The caller holds w.mu so that the metrics match the
// record.
func show(webhooks, janitor bool) {
	for what, on := range map[string]bool{"webhooks": webhooks, "janitor": janitor} {
		value := 0.0
		if on {
			value = 1
		}
		paused.WithLabelValues(what).Set(value)
	}
}

// tell logs the current pauses.
func tell(ctx context.Context, r Record) {
	for what, on := range map[string]bool{"webhooks": r.WebhooksPaused(), "janitor": r.JanitorPaused()} {
		if on {
			slog.WarnContext(ctx, fmt.Sprintf("paused since a restore; resume with linkreel admin recovery resume --%s", what),
				"what", what, "restore", r.ID, "restoredAt", r.RestoredAt, "dataAt", r.DataAt)
		}
	}
}
