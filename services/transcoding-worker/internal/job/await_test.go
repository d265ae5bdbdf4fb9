package job

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// An account with many large files must not block the worker for all other accounts. A job waits
// for space only for a limited time. After that, jobs are not allowed to wait for a while.
func TestAJobWaitsForRoomForAWhileAndThenOthersHaveTheirTurn(t *testing.T) {
	t.Parallel()
	s, err := openScratch(t, 1000<<20+2*spare)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	dirs := map[string]string{}
	ends := map[string]func(){}
	for _, name := range []string{"running", "large", "small", "next"} {
		if dirs[name], ends[name], err = s.Job(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.reserve(dirs["running"], 600<<20); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) { // the clock advances when all goroutines are blocked
		s.freed = make(chan struct{}) // created here because it must belong to the synctest bubble
		waits := func(name string) <-chan error {
			done := make(chan error, 1)
			go func() { done <- s.await(t.Context(), dirs[name], 900<<20, func() {}) }()
			synctest.Wait()
			return done
		}
		began := time.Now()
		large := waits("large")
		if err := s.reserve(dirs["small"], 1<<20); !errors.Is(err, errReserved) {
			t.Errorf("reserve by a new job while another job waits = %v, want %v", err, errReserved)
		}
		if err := <-large; !errors.Is(err, errReserved) {
			t.Errorf("await for the large job = %v, want %v", err, errReserved)
		}
		if waited := time.Since(began); waited != longestWait {
			t.Errorf("the large job waited for %v, want %v", waited, longestWait)
		}
		began = time.Now()
		for { // the queue redelivers the job, which retries immediately
			select {
			case err := <-waits("next"):
				if !errors.Is(err, errReserved) {
					t.Fatalf("await for a job that is not allowed to wait = %v, want %v", err, errReserved)
				}
				if err := s.reserve(dirs["small"], 1<<20); err != nil {
					t.Fatalf("reserve for a small job %v after the wait = %v, want nil", time.Since(began), err)
				}
				time.Sleep(time.Second)
				continue
			default:
			}
			break
		}
		if turn := time.Since(began); turn != othersTurn {
			t.Errorf("waiting was forbidden for %v, want %v", turn, othersTurn)
		}
		ends["small"]()
		ends["running"]()
		synctest.Wait()
		if s.waiting != "" || s.reserved[dirs["next"]] == 0 {
			t.Error("the waiting job did not get the freed space, want a reservation")
		}
	})
}
