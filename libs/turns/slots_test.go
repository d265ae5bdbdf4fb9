package turns_test

import (
	"testing"

	"github.com/linkreel/linkreel/libs/turns"
)

func TestSlotsBoundANameAndAll(t *testing.T) {
	t.Parallel()
	s := turns.NewSlots(2, 3)
	take := func(name string, want bool) func() {
		t.Helper()
		release, ok := s.Take(name)
		if ok != want {
			t.Fatalf("Take(%s) = %v, want %v", name, ok, want)
		}
		return release
	}
	first := take("one", true)
	second := take("one", true)
	take("one", false)
	take("two", true)
	take("three", false)
	first()
	take("three", true)
	take("one", false)
	second()
	take("one", true)
	if s.Taken() != 3 {
		t.Errorf("Taken = %d, want 3", s.Taken())
	}
}
