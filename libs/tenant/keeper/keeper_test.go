package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
)

// world is a service in which each account has a number of record pages.
type world struct {
	*Keeper
	ahead   atomic.Int64
	pages   map[string]int
	looks   map[string]int
	fails   map[string]bool
	waits   map[string]bool // accounts with work that was postponed during a suspension
	changed []tenant.State
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cloud := cloudtest.Start(t, cloudtest.Options{Complete: true, Rare: []string{"accounts.lookAt", "accounts.since"}})
	w := &world{pages: map[string]int{}, looks: map[string]int{}, fails: map[string]bool{}, waits: map[string]bool{}}
	w.Keeper = New(Options{
		Standings: Standings{DB: firestoredb.Use(cloud.Client(t), 10*time.Second), Collection: "accounts"}, Now: w.now,
		Changed: func(_ context.Context, _ string, s tenant.State) error {
			w.changed = append(w.changed, s)
			return nil
		},
		Erase: func(_ context.Context, id string) (bool, error) {
			if w.looks[id]++; w.fails[id] {
				return false, errors.New("refused")
			}
			w.pages[id] = max(0, w.pages[id]-1)
			return w.pages[id] > 0, nil
		},
		Remains: func(_ context.Context, id string) (bool, error) { return w.pages[id] > 0, nil },
		Resume: func(_ context.Context, id string) (bool, error) {
			w.looks[id]++
			return w.waits[id], nil
		},
	})
	return w
}

func (w *world) now() time.Time          { return time.Now().Add(time.Duration(w.ahead.Load())) }
func (w *world) forward(d time.Duration) { w.ahead.Add(int64(d)) }

func (w *world) set(t *testing.T, id string, state tenant.State, version int64) {
	t.Helper()
	if err := w.SetState(t.Context(), id, tenant.Standing{State: state, Version: version}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) rounds(t *testing.T, n int) {
	t.Helper()
	for range n {
		if _, err := w.round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheHighestVersionIsInEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, step := range []struct{ told, want tenant.Standing }{
		{tenant.Standing{State: tenant.Active, Version: 6}, tenant.Standing{State: tenant.Active, Version: 6}},
		{tenant.Standing{State: tenant.Suspended, Version: 5}, tenant.Standing{State: tenant.Active, Version: 6}},
		{tenant.Standing{State: tenant.Suspended, Version: 7}, tenant.Standing{State: tenant.Suspended, Version: 7}},
		{tenant.Standing{State: tenant.Suspended, Version: 7}, tenant.Standing{State: tenant.Suspended, Version: 7}},
	} {
		w.set(t, "acc_a", step.told.State, step.told.Version)
		if got, err := w.Standing(t.Context(), "acc_a"); err != nil || got != step.want {
			t.Errorf("step %d: standing = %v, %v; want %v", i, got, err, step.want)
		}
		// Changed runs each time and gets the decision in effect because an earlier attempt
		// may have died before it called Changed.
		if len(w.changed) != i+1 || w.changed[i] != step.want.State {
			t.Errorf("step %d: Changed was called with %v, want one call with the decision in effect", i, w.changed)
		}
	}
	if got, err := w.Standing(t.Context(), "acc_none"); err != nil || got != (tenant.Standing{}) || !got.State.Serves() {
		t.Errorf("Standing for an account without a decision = %v, %v, want zero", got, err)
	}
}

func TestALargeErasureDelaysNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pages["acc_large"], w.pages["acc_small"] = 10_000, 2
	w.set(t, "acc_large", tenant.Deleting, 2)
	w.set(t, "acc_small", tenant.Deleting, 2)
	<-w.wake
	w.rounds(t, 1)
	if w.pages["acc_small"] > 0 {
		t.Error("the small account still has pages, want it erased before the large account")
	}
	if n := 10_000 - w.pages["acc_large"]; n != turn {
		t.Errorf("a round erased %d of the large account's pages, want %d", n, turn)
	}
	select {
	case <-w.wake:
	default:
		t.Error("the large account's next turn is later, want it due immediately")
	}
}

// The failing erasures fill a whole round and are due before the erasure that can succeed.
func TestErasuresThatFailDelayNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range accounts {
		id := fmt.Sprint("acc_bad", i)
		w.fails[id] = true
		w.set(t, id, tenant.Deleting, 2)
	}
	w.pages["acc_good"] = 1
	w.set(t, "acc_good", tenant.Deleting, 2)
	w.rounds(t, 2)
	if w.pages["acc_good"] > 0 {
		t.Error("the account with a working erasure still has pages, want it erased")
	}
	w.forward(resumeEvery)
	w.rounds(t, 1)
	if w.looks["acc_bad7"] != 2 {
		t.Errorf("a failing erasure was tried %d times, want 2", w.looks["acc_bad7"])
	}
}

func TestAnAccountIsErasedOnceNothingRemains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pages["acc_a"] = 1
	erased := func(want bool, when string) {
		t.Helper()
		if got, err := w.Erased(t.Context(), "acc_a"); err != nil || got != want {
			t.Errorf("%s: Erased = %v, %v, want %v", when, got, err, want)
		}
	}
	w.set(t, "acc_a", tenant.Suspended, 1)
	w.forward(Settle)
	erased(false, "suspended")
	w.set(t, "acc_a", tenant.Deleting, 2)
	w.forward(Settle)
	erased(false, "before its turn")
	w.rounds(t, 1)
	erased(true, "after its turn")
	w.pages["acc_a"] = 1
	erased(false, "after a late commit")
	w.set(t, "acc_a", tenant.Deleting, 2)
	w.rounds(t, 1)
	erased(true, "after auth repeats its call")
}

func TestADeletingAccountIsLookedOverForADay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.set(t, "acc_a", tenant.Deleting, 2)
	for range 2 * 24 * 60 {
		w.rounds(t, 1)
		w.forward(time.Minute)
	}
	if n := w.looks["acc_a"]; n < 8 || n > 20 {
		t.Errorf("the account got %d turns in two days, want 8 to 20", n)
	}
	r, err := w.get(t.Context(), "acc_a")
	if err != nil || r.LookAt != nil {
		t.Errorf("after two days the next turn is at %v, error %v; want none", r.LookAt, err)
	}
	w.pages["acc_a"] = 1
	w.set(t, "acc_a", tenant.Deleting, 2) // the same decision again because auth repeats its call
	w.rounds(t, 1)
	if w.pages["acc_a"] > 0 {
		t.Error("after a repeated call on a later day, the account still has pages, want it erased")
	}
}

func TestWhatWaitedForTheEndOfASuspensionIsLookedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.waits["acc_a"] = true
	w.set(t, "acc_a", tenant.Suspended, 2)
	w.rounds(t, 1)
	if w.looks["acc_a"] > 0 {
		t.Error("a suspended account got a turn, want none")
	}
	w.set(t, "acc_a", tenant.Active, 3)
	for range 5 {
		w.rounds(t, 1)
		w.forward(resumeEvery)
	}
	w.waits["acc_a"] = false
	w.rounds(t, 1)
	if w.looks["acc_a"] != 6 {
		t.Errorf("the account got %d turns while it had work, want 6", w.looks["acc_a"])
	}
	w.forward(resumeEvery)
	w.rounds(t, 1)
	if w.looks["acc_a"] != 6 {
		t.Error("the account got a turn after its work was done, want none")
	}
}
