package lograte_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/linkreel/linkreel/libs/lograte"
)

func TestALimitLetsOneLineAMinuteThroughAndCountsTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var minute, second lograte.Limit
		var got, quick []int64
		for range 121 {
			if n := minute.Due(time.Now(), 2); n > 0 {
				got = append(got, n)
			}
			if n := second.DueAfter(time.Second, time.Now(), 1); n > 0 {
				quick = append(quick, n)
			}
			time.Sleep(time.Second)
		}
		if want := []int64{2, 120, 120}; !slices.Equal(got, want) {
			t.Errorf("the lines with a one-minute limit represent %v occurrences, want %v", got, want)
		}
		if len(quick) != 121 {
			t.Errorf("%d lines with a one-second limit, want 121", len(quick))
		}
	})
}

func TestEachKeyHasItsOwnLimit(t *testing.T) {
	t.Parallel()
	var l lograte.Limits[string]
	now := time.Now()
	if a, b, again := l.Due("a", now), l.Due("b", now), l.Due("a", now); a != 1 || b != 1 || again != 0 {
		t.Errorf("Due = %d, %d, %d, want 1, 1, 0", a, b, again)
	}
	if n := l.Due("a", now.Add(time.Minute)); n != 2 {
		t.Errorf("Due after a minute = %d, want 2", n)
	}
}

func TestTheEndIsToldIfTheFailureWas(t *testing.T) {
	t.Parallel()
	var s lograte.State
	now := time.Now()
	at := now.Add
	if _, tell := s.Worked(now); tell {
		t.Error("Worked without a failure = true, want false")
	}
	if n := s.Failed(at(time.Second)); n != 1 {
		t.Errorf("Failed = %d, want 1", n)
	}
	if n := s.Failed(at(3 * time.Second)); n != 0 {
		t.Errorf("Failed again = %d, want 0", n)
	}
	if d, tell := s.Worked(at(11 * time.Second)); !tell || d != 10*time.Second {
		t.Errorf("Worked = %v, %v, want 10s, true", d, tell)
	}
	// Neither a short failure within the minute nor the recovery from it is logged.
	if n := s.Failed(at(20 * time.Second)); n != 0 {
		t.Errorf("Failed within the minute = %d, want 0", n)
	}
	if _, tell := s.Worked(at(21 * time.Second)); tell {
		t.Error("Worked after a failure without a line = true, want false")
	}
	// A failure that lasts longer than the minute is logged.
	if n := s.Failed(at(30 * time.Second)); n != 0 {
		t.Errorf("second Failed within the minute = %d, want 0", n)
	}
	if n := s.StillFailing(at(40 * time.Second)); n != 0 {
		t.Errorf("StillFailing within the minute = %d, want 0", n)
	}
	if n := s.StillFailing(at(61 * time.Second)); n != 3 {
		t.Errorf("StillFailing after the minute = %d, want the 3 failures since the line", n)
	}
	if d, tell := s.Worked(at(70 * time.Second)); !tell || d != 40*time.Second {
		t.Errorf("Worked = %v, %v, want 40s, true", d, tell)
	}
}

// TestAFailureThatHasEndedIsNotFailing calls StillFailing after another call's success has ended
// the outage.
func TestAFailureThatHasEndedIsNotFailing(t *testing.T) {
	t.Parallel()
	var s lograte.State
	now := time.Now()
	at := now.Add
	s.Failed(now)
	s.Worked(at(time.Second))
	s.Failed(at(2 * time.Second)) // not logged
	s.Worked(at(3 * time.Second))
	if n := s.StillFailing(at(2 * time.Minute)); n != 0 {
		t.Errorf("StillFailing after the outage = %d, want 0", n)
	}
	if d, tell := s.Worked(at(3 * time.Minute)); tell {
		t.Errorf("Worked = %v, true, want no recovery without a failure", d)
	}
}
