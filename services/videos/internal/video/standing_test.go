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
		synctest.Wait() // the first read has begun
		mu.Lock()
		stored = tenant.Suspended
		mu.Unlock()
		if err := Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if state, err := s.of(t.Context(), "acc_a"); err != nil || state != tenant.Suspended {
			t.Errorf("after the change, the account is %q (error %v), want suspended", state, err)
		}
		if state := <-first; state != tenant.Active {
			t.Errorf("the caller before the change got %q, want %q", state, tenant.Active)
		}
		if reads != 2 {
			t.Errorf("got %d reads, want 2", reads)
		}
	})
}
