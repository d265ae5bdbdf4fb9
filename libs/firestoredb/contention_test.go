package firestoredb_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	local "github.com/linkreel/linkreel/services/localcloud/firestore"
)

func openWithin(t *testing.T, timeout time.Duration, indexes ...[]byte) (*firestoredb.DB, *local.Server) {
	t.Helper()
	cloud := cloudtest.Start(t, cloudtest.Options{Indexes: indexes})
	db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: cloudtest.Project, Endpoint: cloud.Endpoint, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.Identity(t.Context()); err != nil { // make the first call now, before the test adds a fault
		t.Fatal(err)
	}
	return db, cloud.Firestore
}

func ping(ctx context.Context, db *firestoredb.DB) error {
	_, err := db.Find(ctx, "ping", db.Collection("a").Limit(1))
	return err
}

func as(ctx context.Context, account string) context.Context {
	return identity.WithPrincipal(ctx, &identity.Principal{AccountID: account})
}

func set(ref *firestore.DocumentRef) func(context.Context, *firestore.Transaction) error {
	return func(_ context.Context, tx *firestore.Transaction) error {
		return tx.Set(ref, map[string]any{"n": 1})
	}
}

func TestATransactionThatLosesTriesAgainUntilItsTimeIsOver(t *testing.T) {
	t.Parallel()
	db, server := openWithin(t, 3*time.Second)
	server.Faults().Add(local.Fault{Methods: []string{"Commit"}, Code: codes.Aborted})
	for name, run := range map[string]func(context.Context, string, func(context.Context, *firestore.Transaction) error, ...firestore.TransactionOption) error{
		"transaction": db.Tx, "commit": db.Commit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := server.Stats().Calls["Commit"]
			err := run(t.Context(), "try", set(db.Doc("a/b")))
			for i := 0; i < 10 && apierr.CodeOf(err) == apierr.Unavailable; i++ { // if the machine stalls, an attempt may time out
				err = run(t.Context(), "try", set(db.Doc("a/b")))
			}
			var e *apierr.Error
			if !errors.Is(err, firestoredb.ErrContended) || !errors.As(err, &e) || e.Code != apierr.RateLimited || e.RetryAfter != time.Second {
				t.Errorf("got %v, want ErrContended as a RATE_LIMITED with a RetryAfter of one second", err)
			}
			if n := server.Stats().Calls["Commit"] - before; n < 12 {
				t.Errorf("got %d attempts, want at least 12", n)
			}
		})
	}
}

// A caller may retry after a 429 because the request had no effect. A call that lost to other
// writers therefore returns a 429 only if every commit got a response.
func TestALoserIsContendedOnlyWhenNothingOfItCanHaveBeenCommitted(t *testing.T) {
	t.Parallel()
	lose := local.Fault{Methods: []string{"Commit"}, Times: 1, Code: codes.Aborted}
	for name, faults := range map[string][]local.Fault{
		"next commit times out":             {lose, {Methods: []string{"Commit"}, Delay: time.Hour}},
		"earlier commit without a response": {{Methods: []string{"Commit"}, LoseAnswer: true}, {Methods: []string{"Commit"}, Every: 2, Code: codes.Aborted}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, server := openWithin(t, 1100*time.Millisecond)
			for _, f := range faults {
				server.Faults().Add(f)
			}
			// A Commit makes all its attempts within a single timeout.
			if err := db.Commit(t.Context(), "try", set(db.Doc("a/b"))); apierr.CodeOf(err) != apierr.Unavailable || errors.Is(err, firestoredb.ErrContended) {
				t.Errorf("got %v, want UNAVAILABLE", err)
			}
		})
	}
	t.Run("next commit in a transaction times out", func(t *testing.T) {
		t.Parallel()
		db, server := openWithin(t, 1100*time.Millisecond)
		// The second abort hits one of the later attempts, which share a new timeout.
		server.Faults().Add(local.Fault{Methods: []string{"Commit"}, Times: 2, Code: codes.Aborted})
		server.Faults().Add(local.Fault{Methods: []string{"Commit"}, Delay: time.Hour})
		if err := db.Tx(t.Context(), "try", set(db.Doc("a/b"))); apierr.CodeOf(err) != apierr.Unavailable || errors.Is(err, firestoredb.ErrContended) {
			t.Errorf("got %v, want UNAVAILABLE", err)
		}
	})
	t.Run("transaction commit loses its response, and the retry is aborted", func(t *testing.T) {
		t.Parallel()
		db, server := openWithin(t, 3*time.Second)
		for i, f := range []local.Fault{{Code: codes.Aborted}, {LoseAnswer: true}, {Code: codes.Aborted}} {
			f.Methods, f.Every, f.Times = []string{"Commit"}, i+1, 1
			server.Faults().Add(f)
		}
		made := 0
		err := db.Tx(t.Context(), "try", func(_ context.Context, tx *firestore.Transaction) error {
			made++
			return tx.Create(db.Doc(fmt.Sprint("a/", made)), map[string]any{})
		})
		found, readErr := db.Collection("a").Documents(t.Context()).GetAll()
		if apierr.CodeOf(err) != apierr.Unavailable || errors.Is(err, firestoredb.ErrContended) || len(found) != 1 || readErr != nil {
			t.Errorf("got %v with %d documents, error %v; want UNAVAILABLE and exactly one document", err, len(found), readErr)
		}
	})
	t.Run("transaction times out before its next commit", func(t *testing.T) {
		t.Parallel()
		db, server := openWithin(t, 3*time.Second)
		server.Faults().Add(local.Fault{Methods: []string{"Commit"}, Code: codes.Aborted})
		server.Faults().Add(local.Fault{Methods: []string{"BeginTransaction"}, Every: 3, Delay: time.Hour})
		if err := db.Tx(t.Context(), "try", set(db.Doc("a/b"))); !errors.Is(err, firestoredb.ErrContended) {
			t.Errorf("got %v, want ErrContended", err)
		}
	})
}

// All these calls reach their deadline at the same time, like the losers of a race. The database
// answered them, so this is not an outage.
func TestCallsThatAreAnsweredAreNoOutage(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]local.Fault{
		"other writers win":        {Methods: []string{"Commit"}, Code: codes.Aborted},
		"commits hang":             {Methods: []string{"Commit"}, Delay: time.Hour},
		"commits fail immediately": {Methods: []string{"Commit"}, Code: codes.Unavailable},
		"commits are rejected":     {Methods: []string{"Commit"}, Code: codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The breaker opens only after failures that span a second, so the timeout must be
			// longer.
			db, server := openWithin(t, 1100*time.Millisecond)
			server.Faults().Add(fault)
			for range 2 {
				var wg sync.WaitGroup
				for range 20 {
					wg.Go(func() {
						if err := db.Tx(t.Context(), "try", set(db.Doc("a/b"))); err == nil {
							t.Error("the commit succeeded, want an error")
						}
					})
				}
				wg.Wait()
			}
			if err := ping(t.Context(), db); err != nil {
				t.Errorf("another call returned %v, want no error", err)
			}
		})
	}
}

func TestCallsWithoutAnyAnswerAreAnOutage(t *testing.T) {
	t.Parallel()
	db, server := openWithin(t, 1100*time.Millisecond)
	server.Faults().Add(local.Fault{Delay: time.Hour})
	for range 2 {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { _ = db.Tx(t.Context(), "try", set(db.Doc("a/b"))) })
		}
		wg.Wait()
	}
	began := time.Now()
	if err := ping(t.Context(), db); apierr.CodeOf(err) != apierr.Unavailable || time.Since(began) > time.Second {
		t.Errorf("got %v after %v, want UNAVAILABLE immediately", err, time.Since(began))
	}
}

// If the losers retried in parallel, all but one would lose in each round, and most would time out.
func TestTransactionsThatLostTakeTurns(t *testing.T) {
	t.Parallel()
	db, server := openWithin(t, 3*time.Second)
	server.Faults().Add(local.Fault{Methods: []string{"Commit"}, Delay: 20 * time.Millisecond})
	doc := db.Doc("a/b")
	const writers = 100
	var tries atomic.Int64
	ctx, cancel := context.WithTimeout(as(t.Context(), "acc_1"), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			err := db.Tx(ctx, "count", func(_ context.Context, tx *firestore.Transaction) error {
				tries.Add(1)
				snaps, err := tx.GetAll([]*firestore.DocumentRef{doc})
				if err != nil {
					return err
				}
				n, _ := snaps[0].Data()["n"].(int64)
				return tx.Set(doc, map[string]any{"n": n + 1})
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	snap, err := doc.Get(t.Context())
	if err != nil || snap.Data()["n"] != int64(writers) {
		t.Errorf("n = %v, %v; want %d", snap.Data()["n"], err, writers)
	}
	if n := tries.Load(); n > 3*writers {
		t.Errorf("got %d attempts for %d changes, want at most three per change", n, writers)
	}
}

func TestNoAccountTakesAllCallsInFlight(t *testing.T) {
	t.Parallel()
	db, server := openWithin(t, time.Minute)
	remove := server.Faults().Add(local.Fault{Methods: []string{"Commit"}, Delay: time.Hour})
	defer remove()
	ctx, cancel := context.WithCancel(t.Context())
	var inFlight atomic.Int64
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			_ = db.Do(as(ctx, "noisy"), "write", func(ctx context.Context) error {
				inFlight.Add(1)
				_, err := db.Doc("a/b").Set(ctx, map[string]any{"n": 1})
				return err
			})
		})
	}
	for deadline := time.Now().Add(time.Minute); inFlight.Load() < 32 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	queued := identity.WithRequest(as(t.Context(), "other"), &identity.Request{ID: "r"})
	if err := ping(queued, db); err != nil || identity.RequestOf(queued).Queued.Load() != 0 {
		t.Errorf("call from another account: error %v after waiting %v, want no error and no wait", err, time.Duration(identity.RequestOf(queued).Queued.Load()))
	}
	if err := ping(t.Context(), db); err != nil {
		t.Errorf("call without an account: got %v, want no error", err)
	}
	if n := inFlight.Load(); n != 32 {
		t.Errorf("got %d calls in flight, want 32", n)
	}
	cancel()
	wg.Wait()
}
