package video

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/linkreel/linkreel/libs/tenant"
)

func TestStandingsJoinNoReadFromBeforeAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		stored, reads := tenant.Active, 0
		s := newStandings(func(context.Context, string) (tenant.Standing, error) {
			mu.Lock()
			reads++
			state, slow := stored, reads == 1
			mu.Unlock()
			if slow {
				time.Sleep(3 * lease)
			}
			return tenant.Standing{State: state}, nil
		})
		first := make(chan tenant.State)
		go func() {
			state, _ := s.of(t.Context(), "acc_a")
			first <- state
		}()
		synctest.Wait() // its read has begun
		mu.Lock()
		stored = tenant.Suspended
		mu.Unlock()
		if err := Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if state, err := s.of(t.Context(), "acc_a"); err != nil || state != tenant.Suspended {
			t.Errorf("after the change was answered the account is %q, %v; want suspended", state, err)
		}
		if state := <-first; state != tenant.Active {
			t.Errorf("who asked before the change is told %q, want what the read found", state)
		}
		if reads != 2 {
			t.Errorf("%d reads, want 2", reads)
		}
	})
}
