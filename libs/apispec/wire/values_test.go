package wire

import (
	"slices"
	"strconv"
	"testing"
	"time"
)

func TestWhatIsNotThereIsNull(t *testing.T) {
	t.Parallel()
	if OrNull("") != nil || OrNull(0) != nil || Millis(time.Time{}) != nil {
		t.Error("OrNull or Millis returned non-nil for a zero value, want nil")
	}
	if text, ms := OrNull("a"), Millis(time.UnixMilli(5)); *text != "a" || *ms != 5 {
		t.Errorf("OrNull = %q and Millis = %d, want a and 5", *text, *ms)
	}
}

func TestAnEmptyListIsShown(t *testing.T) {
	t.Parallel()
	if none := List(nil, strconv.Itoa); none == nil || len(none) > 0 {
		t.Errorf("List without records = %#v, want an empty list", none)
	}
	if got := List([]int{1, 2}, strconv.Itoa); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("List = %q, want 1 and 2", got)
	}
}
