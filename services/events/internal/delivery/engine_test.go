package delivery

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/services/events/internal/store"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
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

func (s *lanes) Due(ctx context.Context, i int, _ store.DuePlace) (store.Due, error) {
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

// turns is a store of replays, each of which takes some steps.
type turns struct {
	Store
	mu    sync.Mutex
	open  []*webhook.Replay
	steps map[string]int
	order []string
}

func (s *turns) Replays(context.Context) ([]*webhook.Replay, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.open), nil
}

func (s *turns) Webhook(_ context.Context, accountID, id string) (*webhook.Webhook, error) {
	return &webhook.Webhook{ID: id, AccountID: accountID}, nil
}

func (s *turns) Receiver(context.Context, string, string) (*webhook.Webhook, bool, error) {
	return nil, false, nil
}

func (s *turns) Claim(context.Context, string, int) ([]*webhook.Delivery, bool, error) {
	return nil, false, nil
}

func (s *turns) Advance(_ context.Context, r *webhook.Replay, _ *webhook.Webhook) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order = append(s.order, r.ID)
	if s.steps[r.ID]--; s.steps[r.ID] == 0 {
		s.open = slices.DeleteFunc(s.open, func(o *webhook.Replay) bool { return o.ID == r.ID })
	}
	return nil
}

func TestALongReplayHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &turns{open: []*webhook.Replay{{ID: "long", WebhookID: "a"}, {ID: "short", WebhookID: "b"}}, steps: map[string]int{"long": 1000, "short": 1}}
		e := New(s, nil, nobody(), Options{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); e.replays(ctx) }()
		e.Replay()
		time.Sleep(time.Second)
		stop()
		<-ended
		if len(s.order) < 4 || s.order[0] != "long" || s.order[1] != "short" || s.order[2] != "long" {
			t.Errorf("steps were %v", s.order)
		}
	})
}

// nobody is a Redis that is away.
func nobody() redis.UniversalClient {
	return redis.NewClient(&redis.Options{MaxRetries: -1, DialerRetries: 1, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("away") }})
}

// claims is a store whose first claims fail.
type claims struct {
	turns
	failures int
	asked    int
}

func (s *claims) Claim(context.Context, string, int) ([]*webhook.Delivery, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked++; s.asked <= s.failures {
		return nil, false, errors.New("not today")
	}
	return nil, false, nil
}

func TestALaneThatCouldNotBeReadIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &claims{failures: 3}
		e := New(s, nil, nobody(), Options{})
		e.Send("acc_a", "whk_a")
		time.Sleep(time.Minute)
		synctest.Wait()
		e.mu.Lock()
		defer e.mu.Unlock()
		if s.asked != 4 || len(e.lanes) != 0 {
			t.Errorf("asked %d times, want 4; %d lanes are left", s.asked, len(e.lanes))
		}
	})
}

// changed is a store in which a webhook is another one by now.
type changed struct {
	Store
	now webhook.Webhook
}

func (s *changed) Update(_ context.Context, _, _ string, fn func(*webhook.Webhook) (events.Type, error)) (*webhook.Webhook, error) {
	_, err := fn(&s.now)
	return &s.now, err
}

func TestALateAnswerDoesNotDisableWhatWasMended(t *testing.T) {
	t.Parallel()
	for rev, enabled := range map[int64]bool{1: false, 2: true} {
		s := &changed{now: webhook.Webhook{ID: "whk_a", Enabled: true, Rev: rev}}
		e := New(s, nil, nobody(), Options{})
		e.judge(t.Context(), &webhook.Webhook{ID: "whk_a", Enabled: true, Rev: 1}, webhook.Result{Attempt: webhook.Attempt{Status: 410}}, time.Now())
		if s.now.Enabled != enabled {
			t.Errorf("after 410 to revision 1, revision %d is enabled: %v", rev, s.now.Enabled)
		}
	}
}

func TestAReplicaThatRedisDidNotAnswerKeepsItsTurn(t *testing.T) {
	t.Parallel()
	h := newHub(nobody(), "a")
	if !h.mine(t.Context(), "acc_a", time.Minute) || !h.holds("acc_a") {
		t.Error("Redis may have noted the turn, so nobody else takes the next hint; this replica has to")
	}
}
