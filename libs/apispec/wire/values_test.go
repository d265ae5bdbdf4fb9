package wire

import (
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
