package tenancy

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/tenant"
)

// ledger is a store of deleting accounts, each of which has some pages.
type ledger struct {
	Store
	order   []string
	pages   map[string]int
	records map[string]*Record
}

func (l *ledger) DueAccounts(_ context.Context, limit int) ([]string, error) {
	due := slices.DeleteFunc(slices.Clone(l.order), func(id string) bool { return l.records[id].LookAt.IsZero() })
	slices.SortStableFunc(due, func(a, b string) int { return l.records[a].LookAt.Compare(l.records[b].LookAt) })
	return due[:min(len(due), limit)], nil
}

func (l *ledger) Account(_ context.Context, id string) (*Record, error) { return l.records[id], nil }

func (l *ledger) PutAccount(_ context.Context, id string, decide func(*Record) *Record) error {
	if after := decide(l.records[id]); after != nil {
		l.records[id] = after
	}
	return nil
}

func (l *ledger) EraseSome(_ context.Context, id string) (bool, error) {
	l.pages[id]--
	return l.pages[id] > 0, nil
}

func TestALargeErasureDelaysNoOther(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	l := &ledger{order: []string{"acc_large", "acc_small"}, pages: map[string]int{"acc_large": 10_000, "acc_small": 2}, records: map[string]*Record{}}
	for _, id := range l.order {
		l.records[id] = &Record{Standing: tenant.Standing{State: tenant.Deleting, Version: 2}, Since: now, LookAt: now}
	}
	s := NewService(Options{Store: l, Now: func() time.Time { return now }})
	if err := s.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.pages["acc_small"] > 0 {
		t.Error("the small account waits for the end of the large one's erasure")
	}
	if n := 10_000 - l.pages["acc_large"]; n != turn {
		t.Errorf("a round erased %d pages of the large account, want %d", n, turn)
	}
	select {
	case <-s.wake:
	default:
		t.Error("the large account's next turn waits for a tick")
	}
}
