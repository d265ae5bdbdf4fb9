package restored_test

import (
	"errors"
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

func open(t *testing.T) (*firestoredb.DB, *cloudtest.Cloud) {
	t.Helper()
	cloud := cloudtest.Start(t, cloudtest.Options{})
	db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: cloudtest.Project, Endpoint: cloud.Endpoint})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db, cloud
}

func TestARestorePausesUntilTheOperatorResumes(t *testing.T) {
	t.Parallel()
	db, _ := open(t)
	ctx := t.Context()
	if r, err := restored.Resume(ctx, db, restored.Pauses{Webhooks: true, Janitor: true}, now); err != nil || r != (restored.Record{}) {
		t.Fatalf("resume what was never restored = %+v, %v", r, err)
	}
	first, err := restored.Write(ctx, db, dataAt, now)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := restored.Read(ctx, db); err != nil || r != first || !r.WebhooksPaused() || !r.JanitorPaused() || !r.DataAt.Equal(dataAt) {
		t.Fatalf("after a restore: %+v, %v; want %+v", r, err, first)
	}
	r, err := restored.Resume(ctx, db, restored.Pauses{Webhooks: true}, now.Add(time.Hour))
	if err != nil || r.WebhooksPaused() || !r.JanitorPaused() {
		t.Fatalf("webhooks resumed: %+v, %v", r, err)
	}
	// A repeated call keeps the time of the first.
	if again, err := restored.Resume(ctx, db, restored.Pauses{Webhooks: true}, now.Add(2*time.Hour)); err != nil || again != r {
		t.Fatalf("resumed twice: %+v, %v; want %+v", again, err, r)
	}
	second, err := restored.Write(ctx, db, dataAt, now.Add(3*time.Hour))
	if err != nil || second.ID == first.ID {
		t.Fatalf("a second restore: %+v, %v", second, err)
	}
	if r, err := restored.Read(ctx, db); err != nil || r != second {
		t.Errorf("after a second restore: %+v, %v; want %+v", r, err, second)
	}
}

func TestAWatchKnowsNothingUntilItHasRead(t *testing.T) {
	t.Parallel()
	db, cloud := open(t)
	fault := cloud.Firestore.Faults().Add(firestore.Fault{Code: codes.Unavailable})
	w := restored.NewWatch(db)
	calls := 0
	w.OnChange(func() { calls++ })
	if err := w.Look(t.Context()); err == nil || errors.Is(err, firestoredb.ErrNotFound) {
		t.Fatalf("look while Firestore is away = %v", err)
	}
	if _, known := w.Last(); known || calls != 0 {
		t.Fatal("a watch that has read nothing says that it knows")
	}
	fault()
	look := func(wantCalls int) restored.Record {
		t.Helper()
		if err := w.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, known := w.Last()
		if !known || calls != wantCalls {
			t.Fatalf("known %v, %d calls; want %d", known, calls, wantCalls)
		}
		return r
	}
	if r := look(1); r.WebhooksPaused() || r.JanitorPaused() {
		t.Errorf("paused without a restore: %+v", r)
	}
	if _, err := restored.Write(t.Context(), db, dataAt, now); err != nil {
		t.Fatal(err)
	}
	if r := look(2); !r.WebhooksPaused() {
		t.Errorf("not paused after a restore: %+v", r)
	}
	look(2) // nothing has changed
	if _, err := restored.Resume(t.Context(), db, restored.Pauses{Webhooks: true, Janitor: true}, now); err != nil {
		t.Fatal(err)
	}
	if r := look(3); r.WebhooksPaused() || r.JanitorPaused() {
		t.Errorf("paused after the resume: %+v", r)
	}
}
