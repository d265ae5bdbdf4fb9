package delivery

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/events/internal/store"
)

// lanes is a store of which one lane cannot be read.
type lanes struct {
	Store
	begun chan struct{} // the first lane that had to wait for a slot

	mu   sync.Mutex
	read int
}

func (s *lanes) Overlooked(context.Context, time.Time) ([]string, time.Time, error) {
	return nil, time.Time{}, nil
}

func (s *lanes) Due(ctx context.Context, i int) (store.Due, error) {
	switch {
	case i == 0:
		return store.Due{}, errors.New("not today")
	case i == 8:
		close(s.begun) // its slot is that of lane 0, whose error has been dealt with
	case i < 8:
		<-s.begun
	}
	if ctx.Err() != nil {
		return store.Due{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read++
	return store.Due{}, nil
}

func TestALaneThatCannotBeReadStopsNoOther(t *testing.T) {
	t.Parallel()
	s := &lanes{begun: make(chan struct{})}
	New(s, nil, nil, Options{}).Sweep(t.Context())
	if s.read != store.DueLanes-1 {
		t.Errorf("%d lanes read, want %d", s.read, store.DueLanes-1)
	}
}
