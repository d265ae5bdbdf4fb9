package tenancy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// shelf is an in-memory store of takedowns.
type shelf struct {
	Store
	takedowns map[string]Takedown
}

// shelves guards the takedowns of every shelf: a round settles several at a time.
var shelves sync.Mutex

func (s shelf) Takedown(_ context.Context, id string) (Takedown, error) {
	shelves.Lock()
	defer shelves.Unlock()
	t, ok := s.takedowns[id]
	if !ok {
		return t, ErrNoTakedown
	}
	return t, nil
}

func (s shelf) NoteTakedown(ctx context.Context, id string) (Takedown, error) {
	return s.Takedown(ctx, id)
}

func (s shelf) PutTakedown(_ context.Context, t Takedown) error {
	shelves.Lock()
	defer shelves.Unlock()
	s.takedowns[t.ID] = t
	return nil
}

func (s shelf) OrderTakedown(ctx context.Context, t Takedown) (Takedown, error) {
	if now, err := s.Takedown(ctx, t.ID); err == nil {
		return now, nil
	}
	return t, s.PutTakedown(ctx, t)
}

func (s shelf) LiftTakedown(ctx context.Context, id string) (Takedown, error) {
	t, err := s.Takedown(ctx, id)
	if err != nil {
		return t, err
	}
	t.Phase = Lifting
	return t, s.PutTakedown(ctx, t)
}

func (s shelf) ConfirmTakedown(ctx context.Context, t Takedown) error {
	if now, err := s.Takedown(ctx, t.ID); err != nil || now.Phase == Lifting {
		return ErrNoTakedown
	}
	return s.PutTakedown(ctx, t)
}

func (s shelf) DeleteTakedown(_ context.Context, id string) error {
	shelves.Lock()
	defer shelves.Unlock()
	delete(s.takedowns, id)
	return nil
}

// links is a holder with only one link, which the first order takes down.
type links struct {
	tenant.Holder
	made    tenant.Takedown
	ordered func() // called before an order takes effect; may be nil
}

func (l *links) Lift(_ context.Context, t tenant.Takedown) error {
	if t.ID == l.made.ID && t.RecordID == "lnk_1" && t.Kind == tenant.KindLink {
		l.made = tenant.Takedown{}
	}
	return nil
}

func (l *links) TakeDown(_ context.Context, o tenant.Order) (tenant.Takedown, error) {
	if l.ordered != nil {
		l.ordered()
	}
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
		t.Errorf("the log has %d audit lines, want 1:\n%s", n, &log)
	}
}

// The call that ordered the earlier takedown has not yet recorded it as in force, so the trail does
// not contain it either.
func TestARepeatedOrderFinishesTheEarlierOne(t *testing.T) {
	t.Parallel()
	kept := shelf{takedowns: map[string]Takedown{
		"tkd_1": {Takedown: tenant.Takedown{ID: "tkd_1"}, Target: tenant.Target{ID: "lnk_1"}, Kind: tenant.KindLink, Phase: Asked},
	}}
	holder := &links{made: tenant.Takedown{ID: "tkd_1", Kind: tenant.KindLink, RecordID: "lnk_1"}}
	s := NewService(kept, []Holder{{Kind: tenant.KindLink, Holder: holder}}, nil)
	made, err := s.TakeDown(t.Context(), tenant.Order{ID: "tkd_2", Target: tenant.Target{ID: "lnk_1"}}, tenant.KindLink)
	if err != nil || made.ID != "tkd_1" || made.Phase != InForce || len(kept.takedowns) != 1 || kept.takedowns["tkd_1"].Phase != InForce {
		t.Errorf("TakeDown returned %+v and error %v and left %+v, want only tkd_1, in force", made, err, kept.takedowns)
	}
}

// onLink returns a takedown of the fake holder's link.
func onLink(id string, phase Phase) Takedown {
	return Takedown{Takedown: tenant.Takedown{ID: id}, Target: tenant.Target{ID: "lnk_1"}, Kind: tenant.KindLink, Phase: phase}
}

// The earlier takedown is either being lifted, or unknown to auth, as after a restore. A new
// order must not rely on a takedown that is being lifted, and must adopt an unknown one, so
// that it can be lifted.
func TestAnOrderLeavesOneTakedownInForce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kept map[string]Takedown
		want string
	}{
		"earlier takedown is being lifted":                 {map[string]Takedown{"tkd_1": onLink("tkd_1", Lifting)}, "tkd_2"},
		"only the holder knows about the earlier takedown": {map[string]Takedown{}, "tkd_1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kept := shelf{takedowns: c.kept}
			holder := &links{made: tenant.Takedown{ID: "tkd_1", Kind: tenant.KindLink, RecordID: "lnk_1"}}
			s := NewService(kept, []Holder{{Kind: tenant.KindLink, Holder: holder}}, nil)
			made, err := s.TakeDown(t.Context(), tenant.Order{ID: "tkd_2", Target: tenant.Target{ID: "lnk_1"}}, tenant.KindLink)
			if err != nil || made.ID != c.want || holder.made.ID != c.want || len(kept.takedowns) != 1 || kept.takedowns[c.want].Phase != InForce {
				t.Errorf("TakeDown returned %+v and error %v and left %+v, and the holder has %q; want only %s, in force", made, err, kept.takedowns, holder.made.ID, c.want)
			}
		})
	}
}

// The operator lifts a takedown while the holder is processing its order. The order must not
// bring the takedown back.
func TestALiftDuringAnOrderCounts(t *testing.T) {
	t.Parallel()
	kept, holder := shelf{takedowns: map[string]Takedown{}}, &links{}
	s := NewService(kept, []Holder{{Kind: tenant.KindLink, Holder: holder}}, nil)
	holder.ordered = func() {
		if err := s.Lift(t.Context(), "tkd_1"); err != nil {
			t.Error(err)
		}
	}
	_, err := s.TakeDown(t.Context(), tenant.Order{ID: "tkd_1", Target: tenant.Target{ID: "lnk_1"}}, tenant.KindLink)
	if !errors.Is(err, ErrNoTakedown) || len(kept.takedowns) != 0 || holder.made.ID != "" {
		t.Errorf("TakeDown returned %v and left %+v, and the holder has %q; want ErrNoTakedown and no takedown", err, kept.takedowns, holder.made.ID)
	}
}

// One moderator's client repeats an order while another moderator lifts its takedown. The repeated
// order must not bring the takedown back.
func TestARepeatedOrderDoesNotUndoALift(t *testing.T) {
	t.Parallel()
	kept := shelf{takedowns: map[string]Takedown{"tkd_1": onLink("tkd_1", Lifting)}}
	holder := &links{}
	s := NewService(kept, []Holder{{Kind: tenant.KindLink, Holder: holder}}, nil)
	_, err := s.TakeDown(t.Context(), tenant.Order{ID: "tkd_1", Target: tenant.Target{ID: "lnk_1"}}, tenant.KindLink)
	if !errors.Is(err, ErrNoTakedown) || kept.takedowns["tkd_1"].Phase != Lifting || holder.made.ID != "" {
		t.Errorf("TakeDown returned %v and left %+v, and the holder has %q; want ErrNoTakedown and a takedown that is being lifted", err, kept.takedowns, holder.made.ID)
	}
}

// The holder has applied the takedown, but its response was lost.
func TestATakedownWithoutAnAnswerIsLifted(t *testing.T) {
	t.Parallel()
	kept := shelf{takedowns: map[string]Takedown{"tkd_1": onLink("tkd_1", Asked)}}
	holder := &links{made: tenant.Takedown{ID: "tkd_1", Kind: tenant.KindLink, RecordID: "lnk_1"}}
	s := NewService(kept, []Holder{{Kind: tenant.KindLink, Holder: holder}}, nil)
	if err := s.Lift(t.Context(), "tkd_1"); err != nil || len(kept.takedowns) != 0 || holder.made.ID != "" {
		t.Errorf("Lift returned %v and left %+v, and the holder has %q; want nil and no takedown", err, kept.takedowns, holder.made.ID)
	}
}

// stale is a shelf with a list that is older than its takedowns.
type stale struct {
	shelf
	listed []Takedown
}

func (s stale) UnsettledTakedowns(context.Context, string, int) ([]Takedown, string, error) {
	return s.listed, "", nil
}

func (s stale) Pending(context.Context, string, int) ([]account.Account, string, error) {
	return nil, "", nil
}

func TestRepeatTakesDownOnlyWhatIsStillAsked(t *testing.T) {
	t.Parallel()
	now := time.Now()
	of := func(phase Phase, age time.Duration) Takedown {
		return Takedown{Takedown: tenant.Takedown{ID: "tkd_1", At: now.Add(-age)}, Target: tenant.Target{ID: "lnk_1"}, Kind: tenant.KindLink, Phase: phase}
	}
	for name, c := range map[string]struct {
		there map[string]Takedown
		taken bool
	}{
		"asked long ago": {map[string]Takedown{"tkd_1": of(Asked, time.Minute)}, true},
		"asked just now": {map[string]Takedown{"tkd_1": of(Asked, time.Second)}, false},
		"asked in the future according to another clock": {map[string]Takedown{"tkd_1": of(Asked, -time.Hour)}, true},
		"lifted after it was listed":                     {map[string]Takedown{}, false},
		"settled after it was listed":                    {map[string]Takedown{"tkd_1": of(InForce, time.Minute)}, false},
		"being lifted since it was listed":               {map[string]Takedown{"tkd_1": of(Lifting, time.Minute)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holder := &links{}
			s := NewService(stale{shelf{takedowns: c.there}, []Takedown{of(Asked, time.Minute)}}, []Holder{{Kind: tenant.KindLink, Holder: holder}},
				func() time.Time { return now })
			if found, err := s.Repeat(t.Context()); err != nil || !found || (holder.made.ID != "") != c.taken {
				t.Errorf("Repeat returned %v and error %v, and the link is taken down by %q; want true, nil and taken down = %t", found, err, holder.made.ID, c.taken)
			}
		})
	}
}

// hanging is a holder that only responds to orders for link lnk_1. All other orders hang.
type hanging struct{ links }

func (h *hanging) TakeDown(ctx context.Context, o tenant.Order) (tenant.Takedown, error) {
	if o.Target.ID != "lnk_1" {
		<-ctx.Done()
		return tenant.Takedown{}, ctx.Err()
	}
	return tenant.Takedown{ID: o.ID, Kind: tenant.KindLink, RecordID: o.Target.ID}, nil
}

// Hanging takedowns fill every slot in a round. They must make way for the next one.
func TestTakedownsThatHangDelayNoOther(t *testing.T) {
	t.Parallel()
	kept := stale{shelf{takedowns: map[string]Takedown{}}, nil}
	for i := range together + 1 {
		down := onLink(fmt.Sprintf("tkd_%d", i), Asked)
		if i < together {
			down.Target.ID = "lnk_hangs"
		}
		kept.takedowns[down.ID], kept.listed = down, append(kept.listed, down)
	}
	s := NewService(kept, []Holder{{Kind: tenant.KindLink, Holder: &hanging{}}}, nil)
	s.patience = time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := s.Repeat(ctx); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		t.Errorf("Repeat returned %v with the context's error %v, want deadline errors only for the orders that hang", err, ctx.Err())
	}
	if last := kept.listed[together]; kept.takedowns[last.ID].Phase != InForce {
		t.Errorf("the takedown after those that hang is %+v, want it in force", kept.takedowns[last.ID])
	}
}
