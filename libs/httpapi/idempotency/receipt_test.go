package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

// shelf is a database in which the tests create things.
type shelf struct {
	world
	records *record.DB

	mu        sync.Mutex
	announced []string
}

func newShelf(t *testing.T) *shelf {
	s := &shelf{world: newWorld(t)}
	s.records = record.Open(s.db, record.Options{Announce: func(_ context.Context, keys ...string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.announced = append(s.announced, keys...)
	}})
	return s
}

// put runs a request that creates one thing in one commit.
func (s *shelf) put(ctx context.Context, r idempotency.Request, name string) (*idempotency.Receipt, error) {
	return s.do(ctx, r, s.records.Commit, func(tx *record.Tx) error {
		tx.Create(s.db.Ref("things", name), map[string]any{"name": name})
		tx.Announce(name)
		return nil
	})
}

type by func(ctx context.Context, what string, fn func(*record.Tx) error) error

func (s *shelf) do(ctx context.Context, r idempotency.Request, change by, fn func(*record.Tx) error) (*idempotency.Receipt, error) {
	receipt := s.Receipt(r, func() *idempotency.Response { a := answer; return &a })
	return receipt, change(record.WithReceipt(ctx, receipt), "put", fn)
}

func (s *shelf) wantThings(t *testing.T, want ...string) {
	t.Helper()
	got, err := s.db.IDs(t.Context(), "list", s.db.Collection("things").Query)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("stored things = %v, want %v", got, want)
	}
}

func wantRepeated(t *testing.T, err error) {
	t.Helper()
	var repeated *idempotency.Repeated
	if !errors.As(err, &repeated) {
		t.Errorf("got %v, want the first response", err)
		return
	}
	got := repeated.Response
	got.Changed = nil
	if d := cmp.Diff(answer, got); d != "" {
		t.Errorf("response (-want +got):\n%s", d)
	}
}

func TestAReceiptCostsOneWriteAndIsFoundByTheNextTry(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	first := request
	first.Key = "order-0"
	if _, err := s.put(t.Context(), first, "0"); err != nil { // reads the database's identity before the count
		t.Fatal(err)
	}
	s.cloud.Firestore.ResetStats()
	if _, err := s.put(t.Context(), request, "a"); err != nil {
		t.Fatal(err)
	}
	if n := s.cloud.Firestore.Stats(); n.Writes != 2 || n.Reads != 0 || n.Calls["Commit"] != 1 {
		t.Errorf("calls = %+v, want one commit with two documents", n)
	}
	s.announced = nil // simulates the first attempt dying after its commit
	_, err := s.put(t.Context(), request, "b")
	wantRepeated(t, err)
	if !slices.Contains(s.announced, "a") {
		t.Errorf("the second attempt announced %v, want the keys of the first attempt", s.announced)
	}
	s.wantThings(t, "0", "a")
	other := request
	other.Body = []byte("bb")
	if _, err := s.put(t.Context(), other, "c"); apierr.CodeOf(err) != apierr.IdempotencyKeyReused {
		t.Errorf("different body: got %v, want IDEMPOTENCY_KEY_REUSED", err)
	}
	s.wantThings(t, "0", "a")
}

func TestOfManyRequestsAtOnceOneIsDone(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	var wg sync.WaitGroup
	errs := make([]error, 30)
	for i := range errs {
		wg.Go(func() { _, errs[i] = s.put(t.Context(), request, fmt.Sprint("a", i)) })
	}
	wg.Wait()
	done := slices.IndexFunc(errs, func(err error) bool { return err == nil })
	for i, err := range errs {
		if i != done {
			wantRepeated(t, err)
		}
	}
	s.wantThings(t, fmt.Sprint("a", done))
}

func TestACommitThatIsSentAgainKnowsItsOwnReceipt(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.cloud.Firestore.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, Times: 1, LoseAnswer: true, Code: codes.Unavailable})
	receipt, err := s.put(t.Context(), request, "a")
	if err != nil {
		t.Fatal(err)
	}
	s.wantThings(t, "a")
	if err := receipt.Keep(t.Context(), &idempotency.Response{Status: 409}); err != nil {
		t.Errorf("Keep: %v", err)
	}
	_, err = s.put(t.Context(), request, "b")
	wantRepeated(t, err)
}

func TestAReceiptEndsAfterADay(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	if _, err := s.put(t.Context(), request, "a"); err != nil {
		t.Fatal(err)
	}
	s.forward(24*time.Hour + time.Second)
	if _, err := s.put(t.Context(), request, "b"); err != nil {
		t.Errorf("put a day later: got %v, want no error", err)
	}
	s.wantThings(t, "a", "b")
	_, err := s.put(t.Context(), request, "c")
	wantRepeated(t, err)
	s.forward(24*time.Hour + time.Second)
	receipt := s.Receipt(request, nil)
	if err := receipt.Keep(t.Context(), &idempotency.Response{Status: 404}); err != nil {
		t.Errorf("Keep for an error response a day later: got %v, want no error", err)
	}
}

// The second attempt may be rejected only because the first one used up the quota or took the
// requested name.
func TestARefusalGivesWayToTheFirstAnswer(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	if _, err := s.put(t.Context(), request, "a"); err != nil {
		t.Fatal(err)
	}
	_, err := s.do(t.Context(), request, s.records.Tx, func(*record.Tx) error { return apierr.New(apierr.SlugTaken, "taken") })
	wantRepeated(t, err)
	_, err = s.do(t.Context(), request, s.records.Tx, func(*record.Tx) error { return nil })
	wantRepeated(t, err)
	wantRepeated(t, s.Receipt(request, nil).Keep(t.Context(), &idempotency.Response{Status: 400}))

	refused := request
	refused.Key = "order-2"
	receipt, err := s.do(t.Context(), refused, s.records.Tx, func(*record.Tx) error { return apierr.New(apierr.SlugTaken, "taken") })
	if apierr.CodeOf(err) != apierr.SlugTaken {
		t.Fatal(err)
	}
	if err := receipt.Keep(t.Context(), &answer); err != nil {
		t.Fatal(err)
	}
	_, err = s.put(t.Context(), refused, "b")
	wantRepeated(t, err)
	s.wantThings(t, "a")
}

// An attempt whose commit failed because of an expired receipt may not find a receipt if another
// attempt has removed that receipt and not yet written its own.
func TestOfManyTriesAtOnceOneReplacesAReceiptThatHasEnded(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]func(s *shelf, thing string) error{
		"create": func(s *shelf, thing string) error {
			_, err := s.put(t.Context(), request, thing)
			return err
		},
		"error response": func(s *shelf, _ string) error {
			return s.Receipt(request, nil).Keep(t.Context(), &idempotency.Response{Status: 404})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShelf(t)
			for day := range 5 {
				errs := make([]error, 20)
				var wg sync.WaitGroup
				for i := range errs {
					wg.Go(func() { errs[i] = try(s, fmt.Sprint("a", day, "x", i)) })
				}
				wg.Wait()
				kept := 0
				for _, err := range errs {
					if err == nil {
						kept++
					} else if !errors.As(err, new(*idempotency.Repeated)) {
						t.Errorf("day %d: got %v, want the stored response", day, err)
					}
				}
				if kept != 1 {
					t.Errorf("day %d: %d responses were stored, want 1", day, kept)
				}
				s.forward(24*time.Hour + time.Second)
			}
		})
	}
}
