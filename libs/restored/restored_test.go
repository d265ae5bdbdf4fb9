package restored_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/restored"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

var (
	dataAt = time.Date(2026, 11, 26, 2, 30, 0, 0, time.UTC)
	now    = dataAt.Add(6 * time.Hour)
)

// clock is the database's clock.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time           { return now.Add(time.Duration(c.offset.Load())) }
func (c *clock) forward(by time.Duration) { c.offset.Add(int64(by)) }

func open(t *testing.T) (*firestoredb.DB, *cloudtest.Cloud, *clock) {
	t.Helper()
	c := &clock{}
	cloud := cloudtest.Start(t, cloudtest.Options{Clock: c.now})
	return openAs(t, cloud, ""), cloud, c
}

func openAs(t *testing.T, cloud *cloudtest.Cloud, name string) *firestoredb.DB {
	t.Helper()
	db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: cloudtest.Project, Database: name, Endpoint: cloud.Endpoint})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func write(t *testing.T, db *firestoredb.DB) restored.Record {
	t.Helper()
	r, err := restored.Write(t.Context(), db, dataAt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestARestorePausesUntilTheOperatorResumes(t *testing.T) {
	t.Parallel()
	db, _, c := open(t)
	ctx := t.Context()
	if r, err := restored.Resume(ctx, db, "rst_1", restored.Pauses{Webhooks: true, Janitor: true}); err != nil || r != (restored.Record{}) {
		t.Fatalf("Resume on a database that was never restored = %+v, %v, want no record", r, err)
	}
	first := write(t, db)
	if r, err := restored.Read(ctx, db); err != nil || r != first || !r.WebhooksPaused() || !r.JanitorPaused() || !r.DataAt.Equal(dataAt) {
		t.Fatalf("after a restore: %+v, %v; want %+v", r, err, first)
	}
	c.forward(time.Hour)
	r, err := restored.Resume(ctx, db, first.ID, restored.Pauses{Webhooks: true})
	if err != nil || r.WebhooksPaused() || !r.JanitorPaused() {
		t.Fatalf("Resume for webhooks = %+v, %v, want only the janitor paused", r, err)
	}
	// The times come from the database's clock, and a repeated call keeps the time of the first.
	if took := r.WebhooksResumedAt.Sub(r.RestoredAt); took.Round(time.Minute) != time.Hour || r.RestoredAt.Before(now) {
		t.Errorf("restored at %v and resumed at %v, want an hour in between", r.RestoredAt, r.WebhooksResumedAt)
	}
	c.forward(time.Hour)
	if again, err := restored.Resume(ctx, db, first.ID, restored.Pauses{Webhooks: true}); err != nil || again != r {
		t.Fatalf("a second Resume = %+v, %v, want %+v", again, err, r)
	}
	second := write(t, db)
	if second.ID == first.ID {
		t.Fatalf("the second restore has the same ID %s as the first, want a new ID", second.ID)
	}
	// An operator is still checking the first restore's data.
	if r, err := restored.Resume(ctx, db, first.ID, restored.Pauses{Webhooks: true, Janitor: true}); !errors.Is(err, restored.ErrOther) || r != second {
		t.Errorf("Resume for the first restore = %+v, %v, want %+v and ErrOther", r, err, second)
	}
	if r, err := restored.Read(ctx, db); err != nil || r != second {
		t.Errorf("after a second restore: %+v, %v; want %+v", r, err, second)
	}
}

// The test copies a restored database, as Google's restore does, and restores data from the same
// time into the copy.
func TestARepeatedRestoreIsTheSameOnlyWhereItWas(t *testing.T) {
	t.Parallel()
	db, cloud, _ := open(t)
	once := func(db *firestoredb.DB) restored.Record {
		t.Helper()
		r, err := restored.WriteOnce(t.Context(), db, dataAt.Add(time.Nanosecond)) // the database has microsecond precision
		if err != nil || !r.WebhooksPaused() || !r.JanitorPaused() {
			t.Fatalf("WriteOnce = %+v, %v, want webhooks and the janitor paused", r, err)
		}
		return r
	}
	first := once(db)
	if again := once(db); again != first {
		t.Errorf("a repeated WriteOnce = %+v, want %+v", again, first)
	}
	second := openAs(t, cloud, "second")
	for _, name := range []string{"database", "restore"} {
		snap, err := db.Collection("installation").Doc(name).Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := second.Collection("installation").Doc(name).Set(t.Context(), snap.Data()); err != nil {
			t.Fatal(err)
		}
	}
	other := once(second)
	if other.ID == first.ID || other.Database == first.Database || once(second) != other {
		t.Errorf("the restore into the copy is %+v, want an ID and a database that differ from %+v", other, first)
	}
	if _, err := restored.Resume(t.Context(), db, first.ID, restored.Pauses{Janitor: true}); err != nil {
		t.Fatal(err)
	}
	if later := once(db); later.ID == first.ID {
		t.Error("a restore after the operator resumed something has the ID of the first restore, want a new ID")
	}
}

// A Google database may be deleted, and a backup restored under the same name. In that case, the
// name and the id in the records are those of the deleted database, but it is a different restore.
func TestRestoresIntoDatabasesOfOneNameDiffer(t *testing.T) {
	t.Parallel()
	source, _, _ := open(t)
	restore := func(backup *firestoredb.DB, from time.Time, documents ...string) (*firestoredb.DB, restored.Record) {
		t.Helper()
		if _, err := backup.Identity(t.Context()); err != nil {
			t.Fatal(err)
		}
		db, _, _ := open(t)
		for _, name := range documents {
			snap, err := backup.Collection("installation").Doc(name).Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Collection("installation").Doc(name).Set(t.Context(), snap.Data()); err != nil {
				t.Fatal(err)
			}
		}
		r, err := restored.WriteOnce(t.Context(), db, from)
		if err != nil {
			t.Fatal(err)
		}
		return db, r
	}
	first, one := restore(source, dataAt, "database")
	again, two := restore(source, dataAt, "database")
	if one.Database != two.Database {
		t.Fatalf("the databases are %q and %q, want the same identity", one.Database, two.Database)
	}
	if one.ID == two.ID {
		t.Errorf("two restores of the same backup have the ID %s, want two IDs", one.ID)
	}
	if r, err := restored.Resume(t.Context(), again, one.ID, restored.Pauses{Webhooks: true, Janitor: true}); !errors.Is(err, restored.ErrOther) || r != two {
		t.Errorf("Resume for the first restore = %+v, %v, want %+v and ErrOther", r, err, two)
	}
	// A backup of the first database already has a record.
	if _, three := restore(first, dataAt.Add(time.Hour), "database", "restore"); three.ID == one.ID || three.Database != one.Database {
		t.Errorf("the restore of a later backup is %+v, want the database from %+v and a different ID", three, one)
	}
}

func TestAWatchKnowsNothingUntilItHasRead(t *testing.T) {
	t.Parallel()
	db, cloud, _ := open(t)
	fault := cloud.Firestore.Faults().Add(firestore.Fault{Code: codes.Unavailable})
	w := restored.NewWatch(db)
	calls := 0
	w.OnChange(func() { calls++ })
	if err := w.Look(t.Context()); err == nil || errors.Is(err, firestoredb.ErrNotFound) {
		t.Fatalf("Look while Firestore is unavailable = %v, want an error", err)
	}
	if _, known := w.Last(); known || calls != 0 {
		t.Fatal("before the first read, the record is known, want unknown")
	}
	fault()
	look := func(wantCalls int) restored.Record {
		t.Helper()
		if err := w.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, known := w.Last()
		if !known || calls != wantCalls {
			t.Fatalf("the record is known: %v, after %d calls to OnChange; want true and %d", known, calls, wantCalls)
		}
		return r
	}
	if r := look(1); r.WebhooksPaused() || r.JanitorPaused() {
		t.Errorf("without a restore, the record is %+v, want nothing paused", r)
	}
	made := write(t, db)
	if r := look(2); !r.WebhooksPaused() {
		t.Errorf("after a restore, the record is %+v, want webhooks paused", r)
	}
	look(2) // nothing has changed
	if _, err := restored.Resume(t.Context(), db, made.ID, restored.Pauses{Webhooks: true, Janitor: true}); err != nil {
		t.Fatal(err)
	}
	if r := look(3); r.WebhooksPaused() || r.JanitorPaused() {
		t.Errorf("after the resume, the record is %+v, want nothing paused", r)
	}
}

// An operator may restore the database while a service is running.
func TestAWatchDoubtsWhatItReadBeforeAnOutage(t *testing.T) {
	t.Parallel()
	db, cloud, _ := open(t)
	w := restored.NewWatch(db)
	var calls atomic.Int64
	w.OnChange(func() { calls.Add(1) })
	known := func(want bool) {
		t.Helper()
		if _, known := w.Last(); known != want {
			t.Fatalf("the record is known: %v, want %v", known, want)
		}
	}
	if err := w.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The watch's own reads fail. One or two failures are not enough to doubt the record.
	fault := cloud.Firestore.Faults().Add(firestore.Fault{Code: codes.Unavailable})
	for _, want := range []bool{true, true, false} {
		if err := w.Look(t.Context()); err == nil {
			t.Fatal("Look succeeded while Firestore is unavailable, want an error")
		}
		known(want)
	}
	fault()
	look := func() {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; {
			err := w.Look(t.Context())
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	look()
	known(true)
	if n := calls.Load(); n != 2 {
		t.Errorf("after the record was read again, OnChange was called %d times, want 2", n)
	}
	// Other calls notice the outage, and the watch does not read in the meantime.
	fault = cloud.Firestore.Faults().Add(firestore.Fault{Code: codes.Unavailable})
	for before := db.Outages(); db.Outages() == before && t.Context().Err() == nil; {
		_, _ = restored.Read(t.Context(), db)
	}
	fault()
	known(false)
	look()
	known(true)
}

// lines is a log that calls fn for each line.
type lines struct {
	slog.Handler
	fn func(slog.Record)
}

func (l lines) Enabled(context.Context, slog.Level) bool { return true }

func (l lines) Handle(_ context.Context, r slog.Record) error { l.fn(r); return nil }

func logTo(t *testing.T, fn func(slog.Record)) {
	former := slog.Default()
	slog.SetDefault(slog.New(lines{slog.DiscardHandler, fn}))
	t.Cleanup(func() { slog.SetDefault(former) })
}

// The test does not run in parallel, because all watches share the log and the gauge.
func TestARecordThatCannotBeReadIsTold(t *testing.T) {
	db, cloud, _ := open(t)
	if _, err := db.Identity(t.Context()); err != nil {
		t.Fatal(err)
	}
	doc := cloud.Client(t).Doc("installation/restore")
	if _, err := doc.Set(t.Context(), map[string]any{"id": 7}); err != nil {
		t.Fatal(err)
	}
	told := make(chan slog.Record, 100)
	logTo(t, func(r slog.Record) {
		if r.Level == slog.LevelWarn {
			told <- r
		}
	})
	w := restored.NewWatch(db)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	if r := <-told; !strings.HasPrefix(r.Message, "cannot read the record of the last restore") {
		t.Errorf("the log line is %q, want one about the record of the last restore", r.Message)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, at := range []struct {
		after time.Duration
		want  float64
	}{{time.Minute, 0}, {4 * time.Minute, 2}} {
		if w.CheckAt(began.Add(at.after)); restored.Shown() != at.want {
			t.Errorf("after %v, the sum of the gauge is %v, want %v", at.after, restored.Shown(), at.want)
		}
	}
	if _, err := doc.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Look(t.Context()); err != nil || restored.Shown() != 0 {
		t.Errorf("Look returned %v, and the sum of the gauge is %v, want no error and 0", err, restored.Shown())
	}
}

// The log may block, and other goroutines may be waiting for the watch while they hold their own
// locks.
func TestAWatchIsFreeWhileItLogs(t *testing.T) {
	db, cloud, _ := open(t)
	w := restored.NewWatch(db)
	if err := w.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	cloud.Firestore.Faults().Add(firestore.Fault{Code: codes.Unavailable})
	for known := true; known; _, known = w.Last() {
		_ = w.Look(t.Context()) // the error is expected
	}
	doubts := 0
	logTo(t, func(r slog.Record) {
		doubts++
		free := make(chan struct{})
		go func() { w.Last(); close(free) }()
		select {
		case <-free:
		case <-time.After(5 * time.Second):
			t.Errorf("the watch is locked while it logs %q, want it unlocked", r.Message)
		}
	})
	w.CheckAt(time.Now())
	if w.CheckAt(time.Now()); doubts != 1 {
		t.Errorf("the watch logged %d lines about an unknown record, want one", doubts)
	}
}
