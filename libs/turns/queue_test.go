package turns_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/turns"
)

// enter starts one of name's jobs. The job must start without waiting.
func enter(t *testing.T, q *turns.Queue, name string) (release func()) {
	t.Helper()
	release, err := q.Enter(t.Context(), name)
	if err != nil {
		t.Fatalf("Enter for %s: got %v, want no error", name, err)
	}
	return release
}

// served records the order of jobs in a queue.
type served struct {
	mu    sync.Mutex
	names []string
}

// join adds a job and returns when the job is waiting. It must run in a synctest bubble. The job
// ends as soon as it has run.
func (s *served) join(t *testing.T, q *turns.Queue, name, job string) {
	t.Helper()
	go func() {
		release, err := q.Enter(t.Context(), name)
		if err != nil {
			job = fmt.Sprintf("%s: %v", job, err)
		}
		s.mu.Lock()
		s.names = append(s.names, job)
		s.mu.Unlock()
		if err == nil {
			release()
		}
	}()
	synctest.Wait()
}

func TestNamesTakeTurnsInAQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := turns.NewQueue(turns.QueueOptions{Parallel: 1})
		release := enter(t, q, "noisy")
		var got served
		for i := range 5 {
			got.join(t, q, "noisy", fmt.Sprint("noisy ", i))
		}
		got.join(t, q, "other", "other 0")
		got.join(t, q, "other", "other 1")
		got.join(t, q, "third", "third 0")
		release()
		synctest.Wait()
		want := []string{"noisy 0", "other 0", "third 0", "noisy 1", "other 1", "noisy 2", "noisy 3", "noisy 4"}
		if !slices.Equal(got.names, want) {
			t.Errorf("order = %v, want %v", got.names, want)
		}
		if q.Names() != 0 || q.Waiting() != 0 {
			t.Errorf("%d names and %d waiting jobs are left, want 0", q.Names(), q.Waiting())
		}
	})
}

func TestANameAtItsBoundHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := turns.NewQueue(turns.QueueOptions{Parallel: 3, Each: 2})
		first, second := enter(t, q, "noisy"), enter(t, q, "noisy")
		var got served
		got.join(t, q, "noisy", "noisy waits")
		enter(t, q, "other")()
		third := enter(t, q, "other")
		got.join(t, q, "third", "third waits")
		first()
		synctest.Wait()
		if want := []string{"third waits", "noisy waits"}; !slices.Equal(got.names, want) {
			t.Errorf("order = %v, want %v", got.names, want)
		}
		second()
		third()
		if q.Names() != 0 {
			t.Errorf("%d names are left, want 0", q.Names())
		}
	})
}

func TestALineThatIsFullRefusesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := turns.NewQueue(turns.QueueOptions{Each: 1, Waiting: 2, AllWaiting: 3})
		releases := []func(){enter(t, q, "noisy"), enter(t, q, "other"), enter(t, q, "third")}
		var got served
		got.join(t, q, "noisy", "noisy 0")
		got.join(t, q, "noisy", "noisy 1")
		if _, err := q.Enter(t.Context(), "noisy"); !errors.Is(err, turns.ErrFull) {
			t.Errorf("third waiting job for one name: got %v, want ErrFull", err)
		}
		got.join(t, q, "other", "other 0")
		// The queue is full, so the longest backlog loses a job to a name without a backlog.
		got.join(t, q, "third", "third 0")
		if want := "noisy 1: " + turns.ErrFull.Error(); !slices.Equal(got.names, []string{want}) {
			t.Errorf("ended jobs = %v, want %v", got.names, want)
		}
		if _, err := q.Enter(t.Context(), "noisy"); !errors.Is(err, turns.ErrFull) {
			t.Errorf("Enter on a full queue without a longer backlog: got %v, want ErrFull", err)
		}
		for _, release := range releases {
			release()
		}
		synctest.Wait()
		if len(got.names) != 4 || q.Names() != 0 || q.Waiting() != 0 {
			t.Errorf("order = %v with %d names and %d waiting jobs left, want four jobs and none left", got.names, q.Names(), q.Waiting())
		}
	})
}

func TestAWaiterThatLeavesLosesNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := turns.NewQueue(turns.QueueOptions{Parallel: 1, Waiting: 1})
		release := enter(t, q, "a")
		ctx, cancel := context.WithTimeout(identity.WithRequest(t.Context(), &identity.Request{ID: "r"}), time.Second)
		defer cancel()
		if _, err := q.Enter(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Enter = %v, want the context's error", err)
		}
		if got := time.Duration(identity.RequestOf(ctx).Queued.Load()); got != time.Second {
			t.Errorf("the request's Queued = %v, want a second", got)
		}
		if q.Waiting() != 0 {
			t.Error("a job is still waiting after its context is done, want none")
		}
		if _, err := q.Enter(ctx, "b"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Enter = %v, want the context's error", err)
		}
		release()
		release() // a second call has no effect
		enter(t, q, "a")()
		if q.Names() != 0 {
			t.Errorf("%d names are left, want 0", q.Names())
		}
	})
}

// Jobs arrive, are cancelled and end in random order. The limits are never exceeded, and the queue
// is empty at the end.
func TestAQueueHoldsItsBoundsUnderLoad(t *testing.T) {
	t.Parallel()
	q := turns.NewQueue(turns.QueueOptions{Name: "test", Parallel: 4, Each: 2, Waiting: 20, AllWaiting: 60})
	var all, ran atomic.Int64
	var each [8]atomic.Int64
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for j := range 200 {
				name := (i + j) % len(each)
				ctx, cancel := context.WithCancel(t.Context())
				if j%3 == 0 {
					go cancel()
				}
				if release, err := q.Enter(ctx, fmt.Sprint(name)); err == nil {
					if n := all.Add(1); n > 4 {
						t.Errorf("%d jobs ran at the same time, want at most 4", n)
					}
					if n := each[name].Add(1); n > 2 {
						t.Errorf("%d jobs for one name ran at the same time, want at most 2", n)
					}
					ran.Add(1)
					each[name].Add(-1)
					all.Add(-1)
					release()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if q.Names() != 0 || q.Waiting() != 0 || q.Turns() != 0 {
		t.Errorf("%d names, %d waiting jobs and %d turns are left, want 0", q.Names(), q.Waiting(), q.Turns())
	}
	if ran.Load() == 0 {
		t.Error("no jobs ran, want at least one")
	}
}
