package job

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// An account with many large files must not block the worker for everybody else. A job
// waits for room for a limited time, and after that no job may wait for a while.
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
	synctest.Test(t, func(t *testing.T) { // its clock moves forward when all goroutines wait
		s.freed = make(chan struct{}) // made here, since it must belong to the bubble
		waits := func(name string) <-chan error {
			done := make(chan error, 1)
			go func() { done <- s.await(t.Context(), dirs[name], 900<<20, func() {}) }()
			synctest.Wait()
			return done
		}
		began := time.Now()
		large := waits("large")
		if err := s.reserve(dirs["small"], 1<<20); !errors.Is(err, errReserved) {
			t.Errorf("a job that begins while another waits for room: %v", err)
		}
		if err := <-large; !errors.Is(err, errReserved) {
			t.Errorf("the job that waited: %v", err)
		}
		if waited := time.Since(began); waited != longestWait {
			t.Errorf("it waited for %v, want %v", waited, longestWait)
		}
		began = time.Now()
		for { // the queue delivers the job again, so it tries again at once
			select {
			case err := <-waits("next"):
				if !errors.Is(err, errReserved) {
					t.Fatalf("a job that may not wait: %v", err)
				}
				if err := s.reserve(dirs["small"], 1<<20); err != nil {
					t.Fatalf("a small job after %v of the others' turn: %v", time.Since(began), err)
				}
				time.Sleep(time.Second)
				continue
			default:
			}
			break
		}
		if turn := time.Since(began); turn != othersTurn {
			t.Errorf("others had their turn for %v, want %v", turn, othersTurn)
		}
		ends["small"]()
		ends["running"]()
		synctest.Wait()
		if s.waiting != "" || s.reserved[dirs["next"]] == 0 {
			t.Error("the waiting job did not get the room that became free")
		}
	})
}
