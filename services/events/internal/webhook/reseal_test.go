package webhook

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sealed is a store of webhooks in pages of one.
type sealed struct {
	Store
	list   []Sealed
	broken map[string]bool
	looks  []bool // at everything?
	ended  func() // called at the end of each look
}

func (s *sealed) Seals(_ context.Context, all bool, after string) ([]Sealed, error) {
	if after == "" {
		s.looks = append(s.looks, all)
	}
	for _, w := range s.list {
		if w.ID > after && (all || w.State == SealOlder) {
			return []Sealed{w}, nil
		}
	}
	s.ended()
	return nil, nil
}

func (s *sealed) Reseal(_ context.Context, id string) error {
	if s.broken[id] {
		return errors.New("not today")
	}
	for i := range s.list {
		if s.list[i].ID == id {
			s.list[i].State = SealCurrent
		}
	}
	return nil
}

// shownSealed is the metric's value; -1 while it is not shown.
func shownSealed(t *testing.T) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "linkreel_webhooks_sealed_by_older_keys" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

// A replica looks at everything once, and again only if it had to leave something. What
// it left is what the operator sees, until it is done.
func TestReseal(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	st := &sealed{
		list:   []Sealed{{"whk_1", SealOlder}, {"whk_2", SealOlder}, {"whk_3", SealLost}, {"whk_4", SealCurrent}, {"whk_5", SealOlder}},
		broken: map[string]bool{"whk_2": true},
	}
	s := NewService(st, nil, time.Now, nil)
	if n := shownSealed(t); n >= 0 {
		t.Errorf("%v before anybody has looked", n)
	}
	st.ended = func() {
		switch len(st.looks) {
		case 2:
			if n := shownSealed(t); n != 1 {
				t.Errorf("%v left after the first look, want 1", n)
			}
			st.broken = nil
		case 3: // mended by now, but a look at everything may have missed more
			if n := shownSealed(t); n != 1 {
				t.Errorf("%v left after the second look, want 1", n)
			}
		case fullAgain + 4:
			if n := shownSealed(t); n != 0 {
				t.Errorf("%v left at the end", n)
			}
			stop()
		}
	}
	for ctx.Err() == nil {
		_ = s.Reseal(ctx)
	}
	for i, w := range st.list {
		if want := map[bool]SealState{true: SealLost, false: SealCurrent}[w.ID == "whk_3"]; w.State != want {
			t.Errorf("webhook %d: state %d, want %d", i, w.State, want)
		}
	}
	for i, all := range st.looks {
		if want := i == 0 || i == fullAgain+1; all != want {
			t.Errorf("look %d is at everything: %v", i, all)
		}
	}
}
