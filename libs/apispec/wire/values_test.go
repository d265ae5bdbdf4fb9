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
		t.Error("an empty value is shown")
	}
	if text, ms := OrNull("a"), Millis(time.UnixMilli(5)); *text != "a" || *ms != 5 {
		t.Errorf("%q, %d", *text, *ms)
	}
}

func TestAnEmptyListIsShown(t *testing.T) {
	t.Parallel()
	if none := List(nil, strconv.Itoa); none == nil || len(none) > 0 {
		t.Errorf("no records are shown as %#v", none)
	}
	if got := List([]int{1, 2}, strconv.Itoa); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("two records are shown as %q", got)
	}
}
