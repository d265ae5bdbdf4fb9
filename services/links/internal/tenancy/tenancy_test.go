package tenancy

import (
	"context"
	"errors"
	"testing"

	"github.com/linkreel/linkreel/services/links/internal/link"
)

// ledger has one account with more links than anybody counts, and others that end at
// their first page.
type ledger struct {
	Store
	pages map[string]int
}

func (l *ledger) Deleting(context.Context, int) ([]string, error) {
	return []string{"acc_large", "acc_small"}, nil
}

func (l *ledger) Purge(_ context.Context, id string, before int64, _ int) (int64, error) {
	l.pages[id]++
	if id == "acc_large" {
		return before - 1, nil
	}
	return link.Top, errors.New("has had its turn")
}

func TestALargeErasureDelaysNoOther(t *testing.T) {
	t.Parallel()
	l := &ledger{pages: map[string]int{}}
	s := NewService(Options{Store: l, Links: l})
	if err := s.purgeRound(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.pages["acc_small"] != 1 {
		t.Error("the small account has no turn")
	}
	if n := l.pages["acc_large"]; n != turn {
		t.Errorf("a round removed %d pages of the large account, want %d", n, turn)
	}
	select {
	case <-s.wake:
	default:
		t.Error("the large account's next turn waits for a tick")
	}
}
