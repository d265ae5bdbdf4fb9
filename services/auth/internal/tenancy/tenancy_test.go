package tenancy

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/libs/tenant"
)

// shelf is a store of takedowns in memory.
type shelf struct {
	Store
	takedowns map[string]Takedown
}

func (s shelf) Takedown(_ context.Context, id string) (Takedown, error) {
	t, ok := s.takedowns[id]
	if !ok {
		return t, ErrNoTakedown
	}
	return t, nil
}

func (s shelf) PutTakedown(_ context.Context, t Takedown) error { s.takedowns[t.ID] = t; return nil }

func (s shelf) DeleteTakedown(_ context.Context, id string) error {
	delete(s.takedowns, id)
	return nil
}

// links is a holder with one link, which the first order takes down.
type links struct {
	tenant.Holder
	made tenant.Takedown
}

func (l *links) TakeDown(_ context.Context, o tenant.Order) (tenant.Takedown, error) {
	if l.made.ID == "" {
		l.made = tenant.Takedown{ID: o.ID, Kind: tenant.KindLink, RecordID: "lnk_1"}
	}
	return l.made, nil
}

func TestATakedownIsAuditedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := NewService(shelf{takedowns: map[string]Takedown{}}, []Holder{{Kind: tenant.KindLink, Holder: &links{}}}, nil)
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	for _, id := range []string{"tkd_1", "tkd_2"} {
		made, err := s.TakeDown(t.Context(), tenant.Order{ID: id, Target: tenant.Target{ID: "lnk_1"}}, tenant.KindLink)
		if err != nil || made.ID != "tkd_1" {
			t.Errorf("order %s returned takedown %s and error %v, want tkd_1", id, made.ID, err)
		}
	}
	if n := strings.Count(log.String(), "action=takedown.create"); n != 1 {
		t.Errorf("the log has %d audit lines, want one:\n%s", n, &log)
	}
}
