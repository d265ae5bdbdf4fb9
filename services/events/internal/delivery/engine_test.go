package delivery

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/lograte"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/services/events/internal/feed"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// lanes is a store with one unreadable lane.
type lanes struct {
	Store
	begun chan struct{} // closed when the first lane beyond the initial eight is read

	mu   sync.Mutex
	read int
}

func (s *lanes) Waiters(context.Context, string) (map[string]time.Time, string, error) {
	return nil, "", nil
}

func (s *lanes) Expired(context.Context) ([]string, error) { return nil, nil }

func (s *lanes) Due(ctx context.Context, of []int, _ paging.Place) (list []*webhook.Delivery, next paging.Place, err error) {
	switch i := of[0]; {
	case i == 0:
		return nil, next, errors.New("not today")
	case i == 8:
		close(s.begun) // lane 8 has taken over lane 0's slot, so lane 0's error has been handled
	case i < 8:
		<-s.begun
	}
	if ctx.Err() != nil {
		return nil, next, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read++
	return nil, next, nil
}

func TestALaneThatCannotBeReadStopsNoOther(t *testing.T) {
	t.Parallel()
	s := &lanes{begun: make(chan struct{})}
	New(s, nil, nil, Options{Lanes: 20}).Sweep(t.Context())
	if s.read != 20 { // all lanes except lane 0, plus one former lane
		t.Errorf("the sweep read %d lanes, want 20", s.read)
	}
}

// emptyLanes is a store with no due deliveries.
type emptyLanes struct {
	lanes
	queries int
}

func (s *emptyLanes) Due(_ context.Context, of []int, _ paging.Place) (list []*webhook.Delivery, next paging.Place, err error) {
	s.queries++
	s.read += len(of)
	return nil, next, nil
}

func TestASweepOfEmptyLanesReadsManyAtOnce(t *testing.T) {
	t.Parallel()
	s := &emptyLanes{}
	New(s, nil, nil, Options{Lanes: 64}).Sweep(t.Context())
	if s.queries != 3 || s.read != 65 {
		t.Errorf("the sweep read %d lanes in %d queries, want 65 in 3", s.read, s.queries)
	}
}

// Sweeps must find deliveries in lanes that were in use under an earlier, higher setting. Each
// sweep reads one such lane.
func TestSweepsLookIntoFormerLanes(t *testing.T) {
	t.Parallel()
	e := New(nil, nil, nil, Options{Lanes: 250})
	seen := map[int]int{}
	for range 6 {
		for _, i := range e.dueLanes() {
			seen[i]++
		}
	}
	for i := range webhook.MaxLanes {
		if want := map[bool]int{true: 6, false: 1}[i < 250]; seen[i] != want {
			t.Errorf("lane %d was read %d times, want %d", i, seen[i], want)
		}
	}
	if n := len(New(nil, nil, nil, Options{Lanes: webhook.MaxLanes}).dueLanes()); n != webhook.MaxLanes {
		t.Errorf("dueLanes returned %d lanes, want %d", n, webhook.MaxLanes)
	}
}

// departed is a store that slowly takes over a dead replica's first attempts.
type departed struct {
	Store
	taken atomic.Int64
}

func (s *departed) TakeOver(context.Context, string, []*webhook.Delivery) error {
	time.Sleep(time.Second)
	s.taken.Add(1)
	return nil
}

func TestFirstTriesAreTakenOverSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, begun := &departed{}, time.Now()
		New(s, nil, nobody(), Options{}).takeOver(t.Context(), make([]feed.Sending, 100))
		if took := time.Since(begun); took != 13*time.Second || s.taken.Load() != 100 {
			t.Errorf("%d first attempts were taken over in %v, want 100 in 13 s, eight at a time", s.taken.Load(), took)
		}
	})
}

// turns is a store of replays with several steps each.
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

func (s *turns) Receiver(_ context.Context, accountID, id string) (*webhook.Webhook, bool, error) {
	return &webhook.Webhook{ID: id, AccountID: accountID}, false, nil
}

func (s *turns) DueOf(context.Context, string, int) ([]*webhook.Delivery, bool, error) {
	return nil, false, nil
}

func (s *turns) DeferredOf(context.Context, string, int) ([]*webhook.Delivery, bool, error) {
	return nil, false, nil
}

func (s *turns) CountDeferred(context.Context, string, int) (int64, error) { return 0, nil }

func (s *turns) PlaceAt(context.Context, string, time.Time) (int64, bool, error) {
	return 0, false, nil
}

func (s *turns) Advance(_ context.Context, r, _ *webhook.Replay, _ []*webhook.Delivery) error {
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
			t.Errorf("the steps were %v, want them to start with long, short, long", s.order)
		}
	})
}

// nobody returns a client for an unreachable Redis.
func nobody() redis.UniversalClient {
	return redis.NewClient(&redis.Options{MaxRetries: -1, DialerRetries: 1, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("away") }})
}

// claims is a store in which the first reads of due deliveries fail.
type claims struct {
	turns
	failures int
	asked    int
}

func (s *claims) DueOf(context.Context, string, int) ([]*webhook.Delivery, bool, error) {
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
			t.Errorf("the lane was read %d times and %d lanes remain, want 4 and 0", s.asked, len(e.lanes))
		}
	})
}

// changed is a store with a webhook that may have changed since it was read.
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
			t.Errorf("after a 410 for revision 1, revision %d has Enabled = %v, want the opposite", rev, s.now.Enabled)
		}
	}
}

// backlogs is a store of webhooks with backlogs, and the caller for their receivers. Accounts
// with slow receivers have names that begin with "slow".
type backlogs struct {
	Store
	mu      sync.Mutex
	now     map[string]int // attempts by account
	most    map[string]int
	waiting map[string]int // a webhook's deliveries; slow webhooks always have more
	sent    map[string]time.Time
}

func newBacklogs() *backlogs {
	return &backlogs{now: map[string]int{}, most: map[string]int{}, waiting: map[string]int{}, sent: map[string]time.Time{}}
}

func account(webhookID string) string { name, _, _ := strings.Cut(webhookID, "/"); return name }

func (s *backlogs) Receiver(_ context.Context, accountID, id string) (*webhook.Webhook, bool, error) {
	return &webhook.Webhook{ID: id, AccountID: accountID, Target: id, Enabled: true}, false, nil
}

func (s *backlogs) DeferredOf(context.Context, string, int) ([]*webhook.Delivery, bool, error) {
	return nil, false, nil
}

func (s *backlogs) DueOf(_ context.Context, id string, n int) (taken []*webhook.Delivery, full bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasPrefix(id, "slow") {
		s.waiting[id] = n + 1
	}
	n = min(n, s.waiting[id])
	s.waiting[id] -= n
	for range n {
		taken = append(taken, &webhook.Delivery{AccountID: account(id), WebhookID: id, EventID: "evt_1", Payload: "{}", DueAt: time.Now().Add(webhook.Lease)})
	}
	return taken, s.waiting[id] > 0, nil
}

func (s *backlogs) Signing(*webhook.Webhook, time.Time) ([]string, error) {
	return []string{"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))}, nil
}

func (s *backlogs) Save(context.Context, *webhook.Delivery) (bool, error) { return true, nil }

// Send is a [Caller].
func (s *backlogs) Send(_ context.Context, target string, _ map[string]string, _ []byte) webhook.Result {
	name := account(target)
	s.mu.Lock()
	s.now[name]++
	s.most[name] = max(s.most[name], s.now[name])
	s.sent[name] = time.Now()
	s.mu.Unlock()
	if strings.HasPrefix(target, "slow") {
		time.Sleep(10*time.Second + rand.N(5*time.Second)) // the call succeeds
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now[name]--
	return webhook.Result{Attempt: webhook.Attempt{Status: 200}}
}

// ended prevents new attempts and waits for those in progress.
func ended(e *Engine) {
	e.mu.Lock()
	e.stopped = true
	e.mu.Unlock()
	e.busy.Wait()
}

func TestReceiversThatAnswerSlowlyDelayNoOtherAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBacklogs()
		e := New(s, s.Send, nobody(), Options{})
		const noisy, hooks = 40, 20
		for a := range noisy {
			for h := range hooks {
				name := fmt.Sprintf("slow%d", a)
				e.Send(name, fmt.Sprintf("%s/%d", name, h))
			}
		}
		time.Sleep(time.Minute)
		begun := time.Now()
		s.mu.Lock()
		s.waiting["quiet/0"] = 1
		s.mu.Unlock()
		e.Send("quiet", "quiet/0")
		time.Sleep(10 * time.Second)
		defer ended(e)
		s.mu.Lock()
		defer s.mu.Unlock()
		sent, ok := s.sent["quiet"]
		if !ok || sent.Sub(begun) > 2*time.Second {
			t.Errorf("the quiet account's message was sent after %v (sent: %v), want within 2s", sent.Sub(begun), ok)
		}
		total := 0
		for _, n := range s.now {
			total += n
		}
		if total < maxGood*9/10 {
			t.Errorf("only %d attempts are running, want at least nine tenths of the slots in use", total)
		}
	})
}

func TestAnAccountHasATwentiethOfTheAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newBacklogs()
		e := New(s, s.Send, nobody(), Options{})
		for h := range 40 {
			e.Send("slow", fmt.Sprintf("slow/%d", h))
		}
		time.Sleep(time.Minute)
		ended(e)
		if want := maxGood / accounts; s.most["slow"] != want {
			t.Errorf("one account had %d concurrent attempts, want %d", s.most["slow"], want)
		}
	})
}

// A failing lane runs only one attempt at a time, so the test takes the slots directly.
func TestAnAccountHasATwentiethOfTheFailingAttempts(t *testing.T) {
	t.Parallel()
	p := newPool(maxBad)
	for range maxBad / accounts {
		if !p.take("acc_a") {
			t.Fatal("take returned false for a free slot, want true")
		}
	}
	if p.take("acc_a") {
		t.Error("take returned true for an account that has used up its share, want false")
	}
	p.wait(&lane{account: "acc_a", webhook: "whk_a"})
	if l := p.next(); l != nil {
		t.Errorf("next() = lane %s from an account that has used up its share, want nil", l.webhook)
	}
	p.wait(&lane{account: "acc_b", webhook: "whk_b"})
	if l := p.next(); l == nil || l.webhook != "whk_b" {
		t.Errorf("next() = %v, want the other account's lane", l)
	}
	p.give("acc_a")
	if l := p.next(); l == nil || l.webhook != "whk_a" {
		t.Errorf("next() = %v, want the lane from the account that has a free slot again", l)
	}
}

// Many accounts have endless backlogs of events without a position. An account with a single event
// must not wait for more than one commit by each of the others.
func TestBacklogsOfEventsDelayNoOtherAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		s := newSettler(func(_ context.Context, account string) (int, bool, error) {
			if account == "quiet" {
				return 1, false, nil
			}
			time.Sleep(time.Second)
			select {
			case <-stop:
				return 0, false, nil
			default:
				return 1, true, nil
			}
		})
		const noisy = 48
		for i := range noisy {
			s.ask(t.Context(), fmt.Sprint("noisy", i))
		}
		time.Sleep(5500 * time.Millisecond)
		begun := time.Now()
		<-s.ask(t.Context(), "quiet")
		if took := time.Since(begun); took > noisy/16*time.Second {
			t.Errorf("the quiet account's event was placed after %v, want within %ds", took, noisy/16)
		}
		close(stop)
		time.Sleep(time.Minute) // lets every round end
	})
}

// This test replaces the process's default logger, so it must not run in parallel.
func TestOneFailureOfEachCauseIsToldAMinute(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	defer slog.SetDefault(before)
	w := &webhook.Webhook{ID: "whk_a", AccountID: "acc_a", Target: "https://user:pass@hooks.example:8443/path-secret?key=query-secret"}
	now, f := time.Now(), &failures{}
	failed := func(cause webhook.Cause, n int) {
		for range n {
			f.tell(t.Context(), w, webhook.Result{Attempt: webhook.Attempt{Error: "no"}, Cause: cause}, now)
		}
	}
	told := func(want ...string) {
		t.Helper()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		out.Reset()
		if len(lines) != len(want) {
			t.Fatalf("the log has %d lines, want %d: %s", len(lines), len(want), lines)
		}
		for i, line := range lines {
			if !strings.Contains(line, want[i]) || !strings.Contains(line, "host=hooks.example:8443 webhook=whk_a account=acc_a") ||
				!strings.Contains(line, "level=WARN") || strings.Contains(line, "secret") || strings.Contains(line, "pass") {
				t.Errorf("the line is %q, want %q", line, want[i])
			}
		}
	}
	f.tell(t.Context(), w, webhook.Result{Attempt: webhook.Attempt{Status: 204}}, now)
	failed(webhook.CauseDNS, 1000)
	failed(webhook.CauseTLS, 1)
	told("reason=dns", "reason=tls")
	now = now.Add(lograte.Every)
	failed(webhook.CauseDNS, 1)
	told("attempts=1000")
	for range 100 {
		f.sealed(t.Context(), w, errors.New("no key opens it"), now)
	}
	now = now.Add(lograte.Every)
	f.sealed(t.Context(), w, errors.New("no key opens it"), now)
	if n := strings.Count(out.String(), "cannot decrypt a webhook's secret"); n != 2 || !strings.Contains(out.String(), "attempts=100 ") {
		t.Errorf("the log has %d lines, want 2: %s", n, &out)
	}
}

// A metric that stayed at 0 while the sweeps fail would hide the events that nobody sees.
func TestAnAgeGrowsWhileSweepsFail(t *testing.T) {
	t.Parallel()
	hours := func(n time.Duration) time.Time { return time.Now().Add(-n * time.Hour) }
	var a age
	a.unseen(hours(2))
	a.unseen(hours(1)) // fails again
	if s := a.seconds(); s < 7200 || s > 7300 {
		t.Errorf("after two failures, the age is %v s, want 2 hours: since the first", s)
	}
	a.of(time.Time{})
	if s := a.seconds(); s != 0 {
		t.Errorf("after a sweep that found nothing, the age is %v s, want 0", s)
	}
	a.of(hours(3))
	a.unseen(hours(1))
	if s := a.seconds(); s < 10800 || s > 10900 {
		t.Errorf("after a failure while something waits, the age is %v s, want 3 hours: of what waits", s)
	}
}
