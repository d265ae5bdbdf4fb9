package quota_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/firestore"
	"cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc/codes"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/quota"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	local "github.com/linkreel/linkreel/services/localcloud/firestore"
)

// world is a database of things, with a limit on the number of things per account.
type world struct {
	t      *testing.T
	db     *firestoredb.DB
	server *local.Server
	clock  *atomic.Int64 // how far Firestore's clock is ahead of the real clock
	counts func(context.Context) (int64, error)
}

func newWorld(t *testing.T) world {
	t.Helper()
	w := world{t: t, clock: new(atomic.Int64)}
	cloud := cloudtest.Start(t, cloudtest.Options{Clock: func() time.Time { return time.Now().Add(time.Duration(w.clock.Load())) }})
	db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: "p", Endpoint: cloud.Endpoint, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	w.db, w.server = db, cloud.Firestore
	w.counts = w.count
	return w
}

// skewed returns a gate for a replica with a wrong clock.
func (w world) skewed(by time.Duration) *quota.Gate {
	return quota.New(w.db, func() time.Time { return time.Now().Add(by) })
}

func (w world) count(ctx context.Context) (int64, error) {
	found, err := w.db.Collection("things").NewAggregationQuery().WithCount("n").Get(ctx)
	if err != nil {
		return 0, err
	}
	return found["n"].(*firestorepb.Value).GetIntegerValue(), nil
}

func (w world) things() int64 {
	w.t.Helper()
	n, err := w.count(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w world) limit(most int64) quota.Limit {
	return quota.Limit{Account: "acc", Kind: "things", Max: most, Count: w.counts}
}

var errFull = errors.New("full")

// add creates one thing. It first tries a commit without reads. before is called after a slot has
// been found and before the commit.
func (w world) add(g *quota.Gate, most int64, id string, before func()) error {
	return w.addFor(w.t.Context(), g, most, id, before)
}

// addFor is like add, but for a request with the context ctx.
func (w world) addFor(ctx context.Context, g *quota.Gate, most int64, id string, before func()) error {
	things := w.db.Collection("things")
	type runner func(context.Context, string, func(context.Context, *firestore.Transaction) error, ...firestore.TransactionOption) error
	with := func(run runner, reads bool) error {
		c := g.Claim(ctx)
		try := func() error {
			return run(ctx, "add", func(ctx context.Context, tx *firestore.Transaction) error {
				asked := tx
				if !reads {
					asked = nil
				} else if snap, err := tx.Get(things.Doc(id)); err == nil && snap.Exists() {
					return nil // an earlier attempt has created it
				}
				room, err := c.Room(ctx, asked, w.limit(most), 1)
				if err == nil && room == 0 {
					err = errFull
				}
				if err != nil {
					return err
				}
				before()
				return errors.Join(tx.Create(things.Doc(id), map[string]any{"x": 1}), c.Take(tx))
			})
		}
		return c.Settle(ctx, try(), try)
	}
	err := with(w.db.Commit, false)
	if errors.Is(err, quota.ErrAsk) || errors.Is(err, firestoredb.ErrExists) || errors.Is(err, firestoredb.ErrUncertain) {
		err = with(w.db.Tx, true)
	}
	return err
}

func nothing() {}

// fill lets writers add things until each of them gets the account-full error. It returns how many
// things they created.
func (w world) fill(most int64, writers int, gates ...*quota.Gate) (made int64) {
	w.t.Helper()
	var n atomic.Int64
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for k := 0; w.t.Context().Err() == nil; {
				err := w.add(gates[i%len(gates)], most, fmt.Sprintf("%d-%d-%d", time.Now().UnixNano(), i, k), nothing)
				switch {
				case err == nil:
					n.Add(1)
					k++
				case errors.Is(err, errFull):
					if have := w.things(); have < most {
						w.t.Errorf("the account was reported as full with %d things, want %d", have, most)
					}
					return
				case apierr.CodeOf(err) != apierr.RateLimited && apierr.CodeOf(err) != apierr.Unavailable && !errors.Is(err, firestoredb.ErrUncertain):
					w.t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return n.Load()
}

func TestOfManyCreatesAtOnceExactlyTheAllowedOnesSucceed(t *testing.T) {
	t.Parallel()
	for _, most := range []int64{1, 5, 70} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			made := w.fill(most, 40, w.skewed(0), w.skewed(0))
			if have := w.things(); made != most || have != most {
				t.Errorf("%d things were created and %d exist, want %d", made, have, most)
			}
		})
	}
}

func TestFarFromTheLimitPlacesComeFromMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.skewed(0)
	if err := w.add(g, 0, "free", nothing); err != nil {
		t.Fatal(err)
	}
	if left, err := w.db.Collection(quota.Collection).Documents(t.Context()).GetAll(); err != nil || len(left) != 0 {
		t.Fatalf("an account without a limit has %d ledger documents, error %v; want 0", len(left), err)
	}
	for i, want := range []int64{2, 1, 1, 1} {
		w.server.ResetStats()
		if err := w.add(g, 1000, fmt.Sprint(i), nothing); err != nil {
			t.Fatal(err)
		}
		if got := w.server.Stats().Writes; got != want {
			t.Errorf("create %d made %d writes, want %d", i+1, got, want)
		}
		if calls := w.server.Stats().Calls; want == 1 && (calls["BatchGetDocuments"] != 0 || calls["BeginTransaction"] != 0) {
			t.Errorf("create %d: %v, want one commit", i+1, calls)
		}
	}
}

func TestARepeatedCreateTakesNoPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.skewed(0)
	for range 20 { // more than the number of slots in the first lease
		if err := w.add(g, 1000, "same", nothing); err != nil {
			t.Fatal(err)
		}
	}
	w.server.ResetStats()
	if err := w.add(g, 1000, "new", nothing); err != nil {
		t.Fatal(err)
	}
	if got := w.server.Stats().Writes; got != 1 {
		t.Errorf("%d writes, want 1 because memory still has slots", got)
	}
}

// A process that is killed does not return its leased slots.
func TestPlacesOfAKilledReplicaComeBackWithinAMinute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const most = 66
	if err := w.add(w.skewed(0), most, "killed", nothing); err != nil {
		t.Fatal(err)
	}
	alive := w.skewed(0)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := 0; ; k++ {
				switch err := w.add(alive, most, fmt.Sprintf("alive%d-%d", i, k), nothing); {
				case apierr.CodeOf(err) == apierr.RateLimited:
					return
				case err != nil:
					t.Errorf("add = %v, want RATE_LIMITED while slots are still leased", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if have := w.things(); have != most-2 {
		t.Fatalf("there are %d things, want %d because two slots are leased", have, most-2)
	}
	w.clock.Add(int64(56 * time.Second))
	w.fill(most, 1, alive)
	if have := w.things(); have != most {
		t.Errorf("there are %d things, want %d", have, most)
	}
}

// fillTo adds things without updating the ledger, which does not include them until the next count.
func (w world) fillTo(n int64) {
	w.t.Helper()
	for i := w.things(); i < n; {
		refs := make([]string, 0, 400)
		for ; i < n && len(refs) < 400; i++ {
			refs = append(refs, fmt.Sprint("old", i))
		}
		err := w.db.Commit(w.t.Context(), "fill", func(_ context.Context, tx *firestore.Transaction) error {
			for _, id := range refs {
				if err := tx.Create(w.db.Collection("things").Doc(id), map[string]any{"x": 1}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// Near the limit, correctness does not depend on clocks: a replica that is suspended between
// finding a slot and committing cannot use the slot after it has been taken back.
func TestAReplicaThatSleptCannotUseAPlaceThatWasTakenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const most = 60
	sleeper, other := w.skewed(0), w.skewed(0)
	w.fillTo(20)
	// Creates in quick succession get a lease with a fence.
	var asleep []chan error
	wake := make(chan struct{})
	for i := range 7 {
		done := make(chan error, 1)
		stopped, once := make(chan struct{}), sync.Once{}
		go func() {
			done <- w.add(sleeper, most, fmt.Sprint("slept", i), func() {
				if i >= 3 {
					once.Do(func() { close(stopped); <-wake })
				}
			})
		}()
		if i < 3 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			continue
		}
		<-stopped
		asleep = append(asleep, done)
	}
	w.clock.Add(int64(3 * time.Second))
	w.fill(most, 2, other)
	close(wake)
	for i, done := range asleep {
		if err := <-done; err == nil {
			t.Errorf("replica %d used a slot that had been taken back, want an error", i)
		}
	}
	if have := w.things(); have != most {
		t.Errorf("there are %d things, want %d", have, most)
	}
}

// A replica that loses responses does not know which slots it has used. It must neither exceed the
// limit nor lose slots permanently, even if its clock is wrong.
func TestLostAnswersAndWrongClocksPassNoLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const most = 150
	w.server.Faults().Add(local.Fault{Methods: []string{"Commit"}, Every: 7, Times: 12, LoseAnswer: true})
	w.server.Faults().Add(local.Fault{Methods: []string{"Commit"}, Every: 5, Times: 12, Code: codes.Aborted})
	w.server.Faults().Add(local.Fault{Methods: []string{"Commit"}, Every: 11, Times: 4, Code: codes.DeadlineExceeded, LoseAnswer: true})
	stop := make(chan struct{})
	defer close(stop)
	go func() { // leases from commits without a response are taken back when they are old enough
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
				w.clock.Add(int64(20 * time.Second))
			}
		}
	}()
	w.fill(most, 12, w.skewed(0), w.skewed(-3*time.Hour), w.skewed(48*time.Hour))
	if have := w.things(); have != most {
		t.Errorf("there are %d things, want %d", have, most)
	}
}

func TestAnErasedAccountLeavesNoLedger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var wg sync.WaitGroup
	g := w.skewed(0)
	for i := range 9 { // some of these creates get a lease with a fence
		wg.Go(func() { _ = w.add(g, 90, fmt.Sprint(i), nothing) })
	}
	wg.Wait()
	kept := func() int {
		docs, err := w.db.Collection(quota.Collection).Documents(t.Context()).GetAll()
		if err != nil {
			t.Fatal(err)
		}
		return len(docs)
	}
	if n := kept(); n < 2 {
		t.Fatalf("%d documents, want the ledger and a fence", n)
	}
	if err := quota.Forget(t.Context(), w.db, "acc"); err != nil || kept() != 0 {
		t.Errorf("%d ledger documents after Forget, error %v; want 0", kept(), err)
	}
}

func TestADeletedRecordMakesRoomAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := []*quota.Gate{w.skewed(0), w.skewed(0)}
	w.fill(5, 4, g...)
	for i := range 3 {
		w.clock.Add(int64(time.Minute))
		if err := w.add(g[i%2], 5, "new", nothing); !errors.Is(err, errFull) {
			t.Fatalf("add = %v, want the error for a full account", err)
		}
		some, err := w.db.Collection("things").Limit(1).Documents(t.Context()).GetAll()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := some[0].Ref.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.add(g[i%2], 5, fmt.Sprint("new", i), nothing); err != nil {
			t.Errorf("add after a deletion: got %v, want no error", err)
		}
	}
}

func TestTheLedgerIsWrittenOnceASecond(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var n atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(4 * time.Second)
	gates := []*quota.Gate{w.skewed(0), w.skewed(0), w.skewed(0)}
	for i := range 30 {
		g := gates[i%3]
		wg.Go(func() {
			for k := 0; time.Now().Before(end); k++ {
				if err := w.add(g, 1_000_000, fmt.Sprintf("%d-%d", i, k), nothing); err == nil {
					n.Add(1)
				}
			}
		})
	}
	wg.Wait()
	most := w.server.MaxSustainedWrites(10 * time.Second)
	if took := time.Since(end.Add(-4 * time.Second)).Seconds(); float64(most.Writes) > 4+took || n.Load() < 200 {
		t.Errorf("%d creates, want at least 200; the document with the most writes is %s, with %d writes in %.1f s, want at most 4 and one per second", n.Load(), most.Document, most.Writes, took)
	}
}

// A transaction reads from a snapshot taken at its first read. If it gets a newer lease from
// memory, it does not see that lease's fence, and must not conclude that the lease has ended.
func TestALeaseOutlastsATransactionThatBeganBeforeIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const most = 60
	w.fillTo(20)
	g, late := w.skewed(0), w.db.Collection("things").Doc("late")
	tries, c := 0, g.Claim(t.Context())
	try := func() error {
		return w.db.Tx(t.Context(), "add late", func(ctx context.Context, tx *firestore.Transaction) error {
			if _, err := tx.GetAll([]*firestore.DocumentRef{late}); err != nil {
				return err
			}
			if tries++; tries == 1 {
				for i := range 4 { // creates in quick succession get a lease with a fence
					if err := w.add(g, most, fmt.Sprint(i), nothing); err != nil {
						return err
					}
				}
			}
			if _, err := c.Room(ctx, tx, w.limit(most), 1); err != nil {
				return err
			}
			return errors.Join(tx.Create(late, map[string]any{"x": 1}), c.Take(tx))
		})
	}
	w.server.ResetStats()
	if err := c.Settle(t.Context(), try(), try); err != nil || tries != 2 {
		t.Fatalf("%d attempts with error %v; want 2", tries, err)
	}
	// Five things, the ledger twice, and a fence.
	if n := w.server.Stats().Writes; n != 5+1+2 {
		t.Errorf("%d writes, want 8 because the late create uses a slot from the lease", n)
	}
}

func TestABurstUnderASmallLimitIsServedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const most = 100
	w.server.Faults().Add(local.Fault{Methods: []string{"Commit"}, Delay: 30 * time.Millisecond})
	g := w.skewed(0)
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			if err := w.add(g, most, fmt.Sprint(i), nothing); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// While a large account is full, its records are counted only every few seconds. All creates that
// wait for a count must get its result, even if the count is slow.
func TestAllWaitingCreatesHearThatTheAccountIsFull(t *testing.T) {
	t.Parallel()
	const most = 50_000 // counted every half second
	w := newWorld(t)
	var calls atomic.Int64
	begun, end := make(chan struct{}), make(chan struct{})
	w.counts = func(context.Context) (int64, error) {
		if calls.Add(1) == 2 {
			close(begun)
			<-end
		}
		return most, nil
	}
	g := quota.New(w.db, nil)
	if err := w.add(g, most, "first", nothing); !errors.Is(err, errFull) {
		t.Fatalf("create in a full account: got %v, want the error for a full account", err)
	}
	ctx := identity.WithRequest(t.Context(), &identity.Request{Began: time.Now()}) // all creates belong to one request, which began before the second count
	answers := make(chan error, 8)
	for i := range cap(answers) {
		go func() { answers <- w.addFor(ctx, g, most, fmt.Sprint(i), nothing) }()
	}
	<-begun
	<-time.After(5500 * time.Millisecond) // longer than a create waits before it counts
	close(end)
	for range cap(answers) {
		if err := <-answers; !errors.Is(err, errFull) {
			t.Errorf("create that waited for the count: got %v, want the error for a full account", err)
		}
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("the records were counted %d times, want 2", n)
	}
}

// A request may need several changes: a first change that finds too few slots, and a second change
// that takes the available slots. The second change uses the first one's count.
func TestTheChangesOfARequestShareACount(t *testing.T) {
	t.Parallel()
	const most = 500_000 // counted every five seconds
	w := newWorld(t)
	var calls atomic.Int64
	w.counts = func(context.Context) (int64, error) {
		calls.Add(1)
		return most - 2, nil
	}
	ctx := identity.WithRequest(t.Context(), &identity.Request{Began: time.Now()})
	g := quota.New(w.db, nil)
	room := func(want int64) (room int64) {
		t.Helper()
		c := g.Claim(ctx)
		try := func() error {
			return w.db.Tx(ctx, "add", func(ctx context.Context, tx *firestore.Transaction) (err error) {
				if room, err = c.Room(ctx, tx, w.limit(most), want); err == nil && room < want {
					err = errFull
				}
				return errors.Join(err, c.Take(tx))
			})
		}
		if err := c.Settle(ctx, try(), try); err != nil && !errors.Is(err, errFull) {
			t.Fatal(err)
		}
		return room
	}
	if got := room(5); got != 2 {
		t.Errorf("Room for five = %d, want 2", got)
	}
	if got := room(2); got != 2 {
		t.Errorf("Room for two = %d, want 2", got)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the records were counted %d times, want 1", n)
	}
}
