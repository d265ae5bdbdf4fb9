package store_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
	"github.com/linkreel/linkreel/services/auth/internal/tenancy"
)

// told records the accounts that replicas have been notified about since the last call to take.
type told struct {
	mu       sync.Mutex
	accounts []string
}

func (n *told) InvalidateAccount(_ context.Context, accountID string, version int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.accounts = append(n.accounts, fmt.Sprint(accountID, "@", version))
}

func (n *told) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := n.accounts
	n.accounts = nil
	return a
}

func newSecret(t *testing.T) identity.Key {
	t.Helper()
	k := identity.NewSession(rand.Reader)
	return k
}

// A replica that is not notified keeps applying the old rights for a few seconds. Each step
// below fails if its notification is missing.
func TestEveryLossOfAuthorityIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.told
	accounts := account.NewService(w.Store, nil, nil)
	people := member.NewService(w.Store, member.Provider{}, nil)
	tenants := tenancy.NewService(w.Store, nil, nil)
	ctx := t.Context()
	acc := newAccount(t, w).ID
	version := func() int64 {
		t.Helper()
		a, err := w.Account(ctx, acc)
		if err != nil {
			t.Fatal(err)
		}
		return a.Version
	}
	before := version()
	// lost checks that the account's version has increased and that replicas were notified of
	// the new version.
	lost := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s returned %v, want nil", what, err)
		}
		now := version()
		if now <= before {
			t.Errorf("after the %s, the account has version %d, want a higher version than before", what, now)
		}
		before = now
		if diff := cmp.Diff([]string{fmt.Sprint(acc, "@", now)}, n.take()); diff != "" {
			t.Errorf("notifications about the %s (-want +got):\n%s", what, diff)
		}
	}
	// A repeated call does not change anything but still notifies the replicas: the first attempt
	// may have crashed before notifying them.
	again := func(what string, err error) {
		t.Helper()
		if got := n.take(); err != nil || len(got) != 1 {
			t.Errorf("the repeated %s sent notifications %v (error %v), want exactly one", what, got, err)
		}
	}

	free := identity.Free
	_, err := accounts.Change(ctx, acc, account.Change{Plan: &free})
	lost("plan change", err)
	_, err = accounts.Change(ctx, acc, account.Change{Plan: &free})
	again("plan change", err)

	key := newKey(t, w, account.Account{ID: acc}, time.Now())
	lost("revocation", accounts.Revoke(ctx, acc, key.ID))
	again("revocation", accounts.Revoke(ctx, acc, key.ID))
	rolled := newKey(t, w, account.Account{ID: acc}, time.Now())
	successor := identity.NewKey(rand.Reader)
	_, err = accounts.Roll(ctx, rolled.ID, 0, account.NewKey{ID: identity.NewID("key"), Key: successor, AccountID: acc, At: time.Now()})
	lost("roll", err)

	join := func(name string, role identity.Role) (member.Link, identity.Key) {
		t.Helper()
		token := newSecret(t)
		l, err := people.SignInLink(ctx, acc, "", name, role, token)
		if err != nil {
			t.Fatal(err)
		}
		return l, token
	}
	_, _ = join("Owner", identity.Owner)
	m, token := join("Member", identity.Admin)
	session := newSecret(t)
	if _, err := people.UseLink(ctx, token, "", nil, "", member.Browser{Key: session}); err != nil {
		t.Fatal(err)
	}
	n.take()
	viewer := identity.Viewer
	_, err = people.Change(ctx, nil, acc, m.MemberID, member.Change{Role: &viewer})
	lost("role change", err)

	next := newSecret(t)
	token = newSecret(t)
	if _, err := people.SignInLink(ctx, acc, m.MemberID, "", "", token); err != nil {
		t.Fatal(err)
	}
	_, err = people.UseLink(ctx, token, "", nil, "", member.Browser{Key: next, Replaces: session.Hash()})
	lost("sign-in that replaces a session", err)
	other := newSecret(t)
	token = newSecret(t)
	if _, err := people.SignInLink(ctx, acc, m.MemberID, "", "", token); err != nil {
		t.Fatal(err)
	}
	opened, err := people.UseLink(ctx, token, "", nil, "", member.Browser{Key: other})
	if err != nil {
		t.Fatal(err)
	}
	n.take()
	lost("end of another session", people.End(ctx, next.Hash(), opened.ID))
	if err := people.End(ctx, next.Hash(), opened.ID); !errors.Is(err, member.ErrNoSession) {
		t.Errorf("ending a session again returned %v, want %v", err, member.ErrNoSession)
	}
	again("end of another session", nil)
	lost("session end", people.End(ctx, next.Hash(), ""))

	groups := member.GroupMap{AccountID: acc, Roles: map[string]identity.Role{"staff": identity.Admin, "guests": identity.Viewer}}
	signIn := func(group string) error {
		_, err := people.SignIn(ctx, member.Proof{Issuer: "https://idp.example", Subject: "s", Name: "G", Groups: []string{group}}, groups, member.Browser{Key: newSecret(t)})
		return err
	}
	if err := signIn("staff"); err != nil {
		t.Fatal(err)
	}
	n.take()
	lost("group change", signIn("guests"))

	lost("removal", people.Remove(ctx, nil, acc, m.MemberID))

	suspended := true
	_, err = accounts.Change(ctx, acc, account.Change{Suspended: &suspended})
	lost("suspension", err)
	_, err = tenants.Delete(ctx, acc)
	lost("erasure", err)
	if _, err := tenants.Repeat(ctx); err != nil {
		t.Error(err)
	}
	if got := n.take(); len(got) != 1 {
		t.Errorf("finishing the erasure sent notifications %v, want exactly one", got)
	}
}
