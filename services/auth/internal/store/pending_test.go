package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/tenancy"
)

// keeper is a fake service that holds accounts' records. It records the calls from auth.
type keeper struct {
	tenant.Holder
	down, erased bool

	mu   sync.Mutex
	told []string
}

func (k *keeper) SetState(_ context.Context, id string, s tenant.Standing) error {
	if k.down {
		return errors.New("unreachable")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = append(k.told, fmt.Sprintf("%s %s", id, s.State))
	return nil
}

func (k *keeper) Erased(context.Context, string) (bool, error) { return k.erased, nil }

func TestADecisionIsToldUntilEveryServiceGoesByIt(t *testing.T) {
	t.Parallel()
	w, links := newWorld(t), &keeper{down: true}
	tenants := tenancy.NewService(w.Store, []tenancy.Holder{{Name: "links", Kind: tenant.KindLink, Holder: links}}, nil)
	accounts := account.NewService(w.Store, tenants.Settle, nil)
	ctx, acc, yes := t.Context(), newAccount(t, w).ID, true
	pending := func() bool {
		t.Helper()
		a, err := w.Account(ctx, acc)
		if err != nil {
			t.Fatal(err)
		}
		return a.Pending
	}
	if _, err := accounts.Change(ctx, acc, account.Change{Suspended: &yes}); apierr.CodeOf(err) != apierr.Unavailable || !pending() {
		t.Errorf("Change while links is down returned %v, want UNAVAILABLE and a pending account", err)
	}
	if _, err := tenants.Repeat(ctx); err == nil {
		t.Error("Repeat while links is down returned nil, want an error")
	}
	links.down = false
	for range 2 { // the second iteration must not call links again
		if _, err := tenants.Repeat(ctx); err != nil || pending() || !slices.Equal(links.told, []string{acc + " suspended"}) {
			t.Errorf("Repeat after the outage returned %v and links was called with %v, want nil and one suspension", err, links.told)
		}
	}
	links.told = nil
	if _, err := tenants.Delete(ctx, acc); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := tenants.Repeat(ctx); err != nil || !pending() {
			t.Errorf("Repeat during an incomplete erasure returned %v, want nil and a pending account", err)
		}
	}
	links.erased = true
	if _, err := tenants.Repeat(ctx); err != nil || len(links.told) != 4 {
		t.Errorf("Repeat after the erasure returned %v and links was called with %v, want nil and four calls", err, links.told)
	}
	if _, err := w.Account(ctx, acc); !errors.Is(err, account.ErrNoAccount) {
		t.Errorf("Account after the erasure returned %v, want %v", err, account.ErrNoAccount)
	}
}

// A suspension is settled even if more erasures are pending than one read returns and none of
// them can complete.
func TestManyErasuresHideNoSuspension(t *testing.T) {
	t.Parallel()
	w, links := newWorld(t), &keeper{}
	tenants := tenancy.NewService(w.Store, []tenancy.Holder{{Name: "links", Holder: links}}, nil)
	for i := range 102 {
		a := account.Account{ID: fmt.Sprintf("acc_%03d", i), CreatedAt: start, Version: 1, Suspended: true, Deleting: i < 101, Pending: true}
		w.do(t, func(tx account.Tx) error { tx.AddAccount(a); return nil })
	}
	if _, err := tenants.Repeat(t.Context()); err != nil || !slices.Contains(links.told, "acc_101 suspended") {
		t.Errorf("Repeat returned %v after %d calls to links, want nil and a call that suspends acc_101", err, len(links.told))
	}
	first, err := w.db.Read(t.Context(), "get account", w.db.Ref("accounts", "acc_000"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := w.Erasing().Depth(t.Context())
	if err != nil || d.N != 101 || !d.Oldest.Equal(first[0].UpdateTime) {
		t.Errorf("got %d erasures, the oldest from %v (error %v); want 101, the oldest from %v", d.N, d.Oldest, err, first[0].UpdateTime)
	}
}

// TakeDown succeeds only for link lnk_101.
func (k *keeper) TakeDown(_ context.Context, o tenant.Order) (tenant.Takedown, error) {
	if o.Target.ID != "lnk_101" {
		return tenant.Takedown{}, errors.New("this link cannot be taken down")
	}
	return tenant.Takedown{ID: o.ID, Kind: tenant.KindLink, RecordID: o.Target.ID, Reason: o.Reason, At: o.At}, nil
}

// A takedown is settled even if those that cannot be settled fill more than one page.
func TestTakedownsThatFailHideNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenants := tenancy.NewService(w.Store, []tenancy.Holder{{Name: "links", Kind: tenant.KindLink, Holder: &keeper{}}}, nil)
	for i := range 102 {
		err := w.PutTakedown(t.Context(), tenancy.Takedown{
			Takedown: tenant.Takedown{ID: fmt.Sprintf("tkd_%03d", i), Reason: "phishing", At: start},
			Target:   tenant.Target{ID: fmt.Sprintf("lnk_%03d", i)}, Kind: tenant.KindLink, Phase: tenancy.Asked,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found, err := tenants.Repeat(t.Context()); err == nil || !found {
		t.Errorf("Repeat returned %v and error %v, want true and an error for the 101 takedowns that fail", found, err)
	}
	if got, err := w.Takedown(t.Context(), "tkd_101"); err != nil || got.Phase != tenancy.InForce {
		t.Errorf("the last takedown is %+v (error %v), want it in force", got, err)
	}
}

// Unreadable records do not hide the records after them, even those on later pages. Only some
// of their errors are listed; the others are counted.
func TestUnreadableRecordsHideNoOther(t *testing.T) {
	t.Parallel()
	w, links := newWorld(t), &keeper{}
	tenants := tenancy.NewService(w.Store, []tenancy.Holder{{Name: "links", Kind: tenant.KindLink, Holder: links}}, nil)
	for i := range 101 {
		for collection, id := range map[string]string{"accounts": "acc_%03d", "operatorTakedowns": "tkd_%03d"} {
			err := w.db.Create(t.Context(), "create unreadable", w.db.Ref(collection, fmt.Sprintf(id, i)), map[string]any{"pending": true, "version": "x", "reason": 5})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	a := account.Account{ID: "acc_101", CreatedAt: start, Version: 1, Suspended: true, Pending: true}
	w.do(t, func(tx account.Tx) error { tx.AddAccount(a); return nil })
	down := tenancy.Takedown{
		Takedown: tenant.Takedown{ID: "tkd_101", Reason: "phishing", At: start}, Target: tenant.Target{ID: "lnk_101"}, Kind: tenant.KindLink, Phase: tenancy.Asked,
	}
	if err := w.PutTakedown(t.Context(), down); err != nil {
		t.Fatal(err)
	}
	found, err := tenants.Repeat(t.Context())
	if !found || err == nil || len(err.Error()) > 50_000 {
		t.Errorf("Repeat returned %v and error %v, want true and an error of bounded length about unreadable records", found, err)
	}
	if !slices.Contains(links.told, "acc_101 suspended") {
		t.Errorf("links was called with %v, want the suspension of acc_101", links.told)
	}
	if got, err := w.Takedown(t.Context(), "tkd_101"); err != nil || got.Phase != tenancy.InForce {
		t.Errorf("the last takedown is %+v (error %v), want it in force", got, err)
	}
}

// suspended is a holder that completes a takedown only after it has been notified of a
// suspension.
type suspended struct {
	tenant.Holder
	told chan struct{}
}

func (s *suspended) SetState(context.Context, string, tenant.Standing) error {
	close(s.told)
	return nil
}

func (s *suspended) TakeDown(ctx context.Context, o tenant.Order) (tenant.Takedown, error) {
	select {
	case <-s.told:
	case <-ctx.Done():
		return tenant.Takedown{}, ctx.Err()
	}
	return tenant.Takedown{ID: o.ID, Kind: tenant.KindLink, RecordID: o.Target.ID}, nil
}

// settles checks that one Repeat settles everything that is pending. It fails if the holders wait for
// each other.
func settles(t *testing.T, tenants *tenancy.Service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if found, err := tenants.Repeat(ctx); err != nil || !found {
		t.Errorf("Repeat returned %v and error %v, want true and nil", found, err)
	}
}

// A takedown that hangs at its holder must not delay a suspension.
func TestASuspensionWaitsForNoTakedown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := account.Account{ID: "acc_1", CreatedAt: start, Version: 1, Suspended: true, Pending: true}
	w.do(t, func(tx account.Tx) error { tx.AddAccount(a); return nil })
	for i := range 20 {
		err := w.PutTakedown(t.Context(), tenancy.Takedown{
			Takedown: tenant.Takedown{ID: fmt.Sprintf("tkd_%d", i), At: start}, Target: tenant.Target{ID: "lnk_1"}, Kind: tenant.KindLink, Phase: tenancy.Asked,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	tenants := tenancy.NewService(w.Store, []tenancy.Holder{{Name: "links", Kind: tenant.KindLink, Holder: &suspended{told: make(chan struct{})}}}, nil)
	settles(t, tenants)
}

func TestATakedownIsConfirmedUnlessItIsLifted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, c := range map[string]struct {
		there tenancy.Phase // "" if it does not exist
		want  error
	}{
		"tkd_asked":   {tenancy.Asked, nil},
		"tkd_force":   {tenancy.InForce, nil},
		"tkd_lifting": {tenancy.Lifting, tenancy.ErrNoTakedown},
		"tkd_lifted":  {"", tenancy.ErrNoTakedown},
	} {
		made := tenancy.Takedown{Takedown: tenant.Takedown{ID: name, Reason: "phishing", At: start}, Phase: c.there}
		if c.there != "" {
			if err := w.PutTakedown(t.Context(), made); err != nil {
				t.Fatal(err)
			}
		}
		made.Phase = tenancy.InForce
		if err := w.ConfirmTakedown(t.Context(), made); !errors.Is(err, c.want) {
			t.Errorf("ConfirmTakedown for %s returned %v, want %v", name, err, c.want)
		}
		want := c.there
		if c.want == nil {
			want = tenancy.InForce
		}
		if now, err := w.Takedown(t.Context(), name); now.Phase != want || (err == nil) != (want != "") {
			t.Errorf("after ConfirmTakedown, %s is %q (error %v), want %q", name, now.Phase, err, want)
		}
	}
}

// Several moderators act on the same takedown at once. One change must not undo another, or lose
// the holder's response.
func TestTakedownsKeepTheChangesOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, phase := range map[string]tenancy.Phase{"tkd_asked": tenancy.Asked, "tkd_force": tenancy.InForce, "tkd_lifting": tenancy.Lifting} {
		made := tenancy.Takedown{
			Takedown: tenant.Takedown{ID: name, Kind: tenant.KindLink, RecordID: "lnk_1", AccountID: "acc_1", Reason: "phishing", At: start}, Phase: phase,
		}
		if err := w.PutTakedown(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		again := tenancy.Takedown{Takedown: tenant.Takedown{ID: name, Reason: "other", At: start}, Phase: tenancy.Asked}
		if got, err := w.OrderTakedown(t.Context(), again); err != nil || got != made {
			t.Errorf("OrderTakedown for %s returned %+v and error %v, want %+v", name, got, err, made)
		}
		if got, err := w.Takedown(t.Context(), name); err != nil || got != made {
			t.Errorf("after OrderTakedown, %s is %+v (error %v), want %+v", name, got, err, made)
		}
		made.Phase = tenancy.Lifting
		if got, err := w.LiftTakedown(t.Context(), name); err != nil || got != made {
			t.Errorf("LiftTakedown for %s returned %+v and error %v, want %+v", name, got, err, made)
		}
		if got, err := w.Takedown(t.Context(), name); err != nil || got != made {
			t.Errorf("after LiftTakedown, %s is %+v (error %v), want %+v", name, got, err, made)
		}
	}
	if _, err := w.LiftTakedown(t.Context(), "tkd_gone"); !errors.Is(err, tenancy.ErrNoTakedown) {
		t.Errorf("LiftTakedown for a lifted takedown returned %v, want %v", err, tenancy.ErrNoTakedown)
	}
	if _, err := w.Takedown(t.Context(), "tkd_gone"); !errors.Is(err, tenancy.ErrNoTakedown) {
		t.Errorf("after LiftTakedown, a lifted takedown returned %v, want %v", err, tenancy.ErrNoTakedown)
	}
	fresh := tenancy.Takedown{Takedown: tenant.Takedown{ID: "tkd_new", Reason: "phishing", At: start}, Phase: tenancy.Asked}
	if got, err := w.OrderTakedown(t.Context(), fresh); err != nil || got != fresh {
		t.Errorf("OrderTakedown returned %+v and error %v, want %+v", got, err, fresh)
	}
	if got, err := w.Takedown(t.Context(), "tkd_new"); err != nil || got != fresh {
		t.Errorf("after OrderTakedown, tkd_new is %+v (error %v), want %+v", got, err, fresh)
	}
}

// eraser is a holder that has no records. It notes which takedowns auth lifts.
type eraser struct {
	keeper
	lifted []tenant.Takedown
}

func (e *eraser) Lift(_ context.Context, t tenant.Takedown) error {
	e.lifted = append(e.lifted, t)
	return nil
}

// An account's takedowns fill more than one page, and one of them cannot be read. The account is
// still erased, and the holder lifts all of them so that their slugs do not stay reserved.
func TestAnUnreadableTakedownKeepsNoErasureOpen(t *testing.T) {
	t.Parallel()
	w, links := newWorld(t), &eraser{keeper: keeper{erased: true}}
	tenants := tenancy.NewService(w.Store, []tenancy.Holder{{Name: "links", Kind: tenant.KindLink, Holder: links}}, nil)
	w.do(t, func(tx account.Tx) error {
		tx.AddAccount(account.Account{ID: "acc_1", CreatedAt: start, Version: 1, Suspended: true, Deleting: true, Pending: true})
		return nil
	})
	broken := map[string]any{"accountId": "acc_1", "kind": tenant.KindLink, "recordId": "lnk_1", "url": "http://localhost/one", "reason": 5}
	if err := w.db.Create(t.Context(), "create unreadable", w.db.Ref("operatorTakedowns", "tkd_000"), broken); err != nil {
		t.Fatal(err)
	}
	const others = 101
	for i := range others {
		made := tenancy.Takedown{
			Takedown: tenant.Takedown{ID: fmt.Sprintf("tkd_%03d", i+1), Kind: tenant.KindLink, RecordID: "lnk_2", AccountID: "acc_1", At: start}, Phase: tenancy.InForce,
		}
		if err := w.PutTakedown(t.Context(), made); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tenants.Repeat(t.Context()); err != nil {
		t.Errorf("Repeat returned %v, want nil", err)
	}
	if _, err := w.Account(t.Context(), "acc_1"); !errors.Is(err, account.ErrNoAccount) {
		t.Errorf("Account after the erasure returned %v, want %v", err, account.ErrNoAccount)
	}
	want := tenant.Takedown{ID: "tkd_000", Kind: tenant.KindLink, RecordID: "lnk_1", AccountID: "acc_1", URL: "http://localhost/one"}
	if !slices.Contains(links.lifted, want) || len(links.lifted) != others+1 {
		t.Errorf("links lifted %d takedowns, %v; want %d with %v", len(links.lifted), links.lifted, others+1, want)
	}
	if left, err := w.db.Find(t.Context(), "list takedowns", w.db.Collection("operatorTakedowns").Query); err != nil || len(left) != 0 {
		t.Errorf("%d takedowns are left (error %v), want none", len(left), err)
	}
}

// meeting is a holder that does not answer a call until a second call has arrived.
type meeting struct {
	tenant.Holder
	arrived chan struct{}
}

func (m *meeting) SetState(ctx context.Context, _ string, _ tenant.Standing) error {
	select {
	case m.arrived <- struct{}{}:
	case <-m.arrived:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// After a restore, hundreds of decisions are pending. A slow decision must not delay the
// others.
func TestPendingAccountsAreSettledTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 2 {
		a := account.Account{ID: fmt.Sprintf("acc_%d", i), CreatedAt: start, Version: 1, Suspended: true, Pending: true}
		w.do(t, func(tx account.Tx) error { tx.AddAccount(a); return nil })
	}
	tenants := tenancy.NewService(w.Store, []tenancy.Holder{{Name: "links", Holder: &meeting{arrived: make(chan struct{})}}}, nil)
	settles(t, tenants)
}

func TestAnAccountIsRaisedOnceInAChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := newAccount(t, w)
	w.do(t, func(tx account.Tx) error {
		if err := errors.Join(tx.Authority(a.ID), tx.Authority(a.ID)); err != nil {
			return err
		}
		now, err := tx.Account(a.ID)
		now.Name = "Renamed"
		tx.PutAccount(&now, events.Quiet)
		if now.Version != 2 {
			t.Errorf("PutAccount set version %d, want 2", now.Version)
		}
		return errors.Join(err, tx.Authority(a.ID), tx.Again(a.ID))
	})
	if got, err := w.Account(t.Context(), a.ID); err != nil || got.Version != 2 || got.Name != "Renamed" {
		t.Errorf("got account %+v and error %v, want version 2 and the new name", got, err)
	}
	if told := w.told.take(); !slices.Equal(told, []string{a.ID + "@2"}) {
		t.Errorf("replicas were notified of %v, want one notification of version 2", told)
	}
}
