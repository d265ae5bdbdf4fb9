package apikey

import (
	"testing"
	"time"
)

func TestStepOfEveryRateIsAtLeastAMicrosecond(t *testing.T) {
	t.Parallel()
	for rate, want := range map[int]time.Duration{-1: time.Minute, 0: time.Minute, 1: time.Minute, 600: 100 * time.Millisecond, 60_000_000: time.Microsecond, 100_000_000: time.Microsecond} {
		if got := stepOf(rate); got != want {
			t.Errorf("stepOf(%d) = %v, want %v", rate, got, want)
		}
		if got := limitOf(rate, 0, 0); got.Remaining != rate && rate > 0 {
			t.Errorf("limitOf(%d).Remaining = %d, want 0", rate, got.Remaining)
		}
	}
}
