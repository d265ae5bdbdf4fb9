package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
)

// ledger is a store with one key. It records each write of the key's last use.
type ledger struct {
	mu      sync.Mutex
	key     account.Key
	session bool
	member  account.Member
	touched []time.Time
	fail    error
}

func (l *ledger) Credential(_ context.Context, hash string) (account.Credential, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if hash != l.key.Hash {
		return account.Credential{}, account.ErrNoKey
	}
	return account.Credential{Key: l.key, Account: account.Account{ID: "acc_1", Plan: identity.Creator, Version: 3}, Session: l.session, Member: l.member}, nil
}

func (l *ledger) CredentialByID(ctx context.Context, accountID, id string) (account.Credential, error) {
	if id != l.key.ID || accountID != "acc_1" {
		return account.Credential{}, account.ErrNoKey
	}
	return l.Credential(ctx, l.key.Hash)
}

// Look returns a store with one member, which is all that the tests read through it.
func (l *ledger) Look(context.Context) member.Reads { return people{nil, l.member} }

type people struct {
	member.Reads
	one account.Member
}

func (p people) Member(accountID, id string) (member.Member, error) {
	if id != p.one.ID || accountID != "acc_1" {
		return member.Member{}, member.ErrNoMember
	}
	return member.Member{ID: id, AccountID: "acc_1", Role: p.one.Role}, nil
}

func (l *ledger) Touch(_ context.Context, _ string, session bool, at time.Time) error {
	if session != l.session {
		return errors.New("Touch got the wrong value of session")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return l.fail
	}
	l.key.LastUsedAt = at
	l.touched = append(l.touched, at)
	return nil
}

func TestAKeyInUseIsWrittenOnceAMinute(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	now := start
	l := &ledger{key: account.Key{ID: "key_1", Hash: "h", AccountID: "acc_1"}}
	s := NewSource(l, UsualPlans(), func() time.Time { return now })
	for range 3 * 60 { // for three minutes, verify and flush every second
		if _, err := s.Verify(t.Context(), "h"); err != nil {
			t.Fatal(err)
		}
		_ = s.Flush(t.Context())
		now = now.Add(time.Second)
	}
	want := []time.Time{start, start.Add(time.Minute), start.Add(2 * time.Minute)}
	if d := cmp.Diff(want, l.touched); d != "" {
		t.Errorf("write times (-want +got):\n%s", d)
	}
}

func TestAUseThatCouldNotBeWrittenIsWrittenLater(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 10, 0, 30, 0, time.UTC)
	l := &ledger{key: account.Key{Hash: "h"}, fail: errors.New("down")}
	s := NewSource(l, UsualPlans(), func() time.Time { return now })
	if _, err := s.Verify(t.Context(), "h"); err != nil {
		t.Fatal(err)
	}
	_ = s.Flush(t.Context())
	l.fail = nil
	_ = s.Flush(t.Context())
	_ = s.Flush(t.Context())
	if want := []time.Time{now.Truncate(time.Minute)}; !cmp.Equal(want, l.touched) {
		t.Errorf("got writes at %v, want %v", l.touched, want)
	}
}

func TestAUseOfAnErasedKeyIsForgotten(t *testing.T) {
	t.Parallel()
	l := &ledger{key: account.Key{Hash: "h"}, fail: fmt.Errorf("note key use: %w", account.ErrNoKey)}
	s := NewSource(l, UsualPlans(), nil)
	if _, err := s.Verify(t.Context(), "h"); err != nil {
		t.Fatal(err)
	}
	_ = s.Flush(t.Context())
	if len(s.used) > 0 {
		t.Errorf("the pending writes are %v, want none for an erased key", s.used)
	}
}

func TestARefusedKeyIsNotInUse(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	l := &ledger{key: account.Key{Hash: "h", RevokedAt: now}}
	s := NewSource(l, UsualPlans(), func() time.Time { return now })
	rec, err := s.Verify(t.Context(), "h")
	if err != nil || !rec.Revoked || rec.ExpiresAt != apikey.Never || rec.Version != 3 || rec.PerMinute != 600 {
		t.Errorf("Verify returned %+v and error %v, want the revoked key with version 3 and 600 requests per minute", rec, err)
	}
	l.key.ExpiresAt = time.UnixMilli(0) // a valid expiry, even though it is 0 in JSON
	if rec, err = s.Verify(t.Context(), "h"); err != nil || rec.ExpiresAt != 0 {
		t.Errorf("Verify for a key that expired in 1970 returned %+v and error %v, want the expiry 0", rec, err)
	}
	_ = s.Flush(t.Context())
	if len(l.touched) > 0 {
		t.Errorf("got uses of a rejected key written at %v, want none", l.touched)
	}
	if _, err := s.Verify(t.Context(), "other"); !errors.Is(err, apikey.ErrUnknownKey) {
		t.Errorf("Verify for an unknown key returned %v, want %v", err, apikey.ErrUnknownKey)
	}
}

func TestASessionInUseIsWrittenEveryFiveMinutes(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 21, 10, 0, 30, 0, time.UTC)
	now := start
	l := &ledger{
		key: account.Key{ID: "ses_1", Hash: "h", AccountID: "acc_1", LastUsedAt: start}, session: true,
		member: account.Member{ID: "mem_1", Name: "Ada", Role: identity.Admin},
	}
	s := NewSource(l, UsualPlans(), func() time.Time { return now })
	for range 11 * 6 { // eleven minutes
		r, err := s.Verify(t.Context(), "h")
		if err != nil {
			t.Fatal(err)
		}
		if !r.Session || r.MemberID != "mem_1" || r.MemberName != "Ada" || r.Role != identity.Admin {
			t.Fatalf("Verify returned %+v, want the admin Ada's session", r)
		}
		_ = s.Flush(t.Context())
		now = now.Add(10 * time.Second)
	}
	minute := start.Truncate(time.Minute)
	if d := cmp.Diff([]time.Time{minute.Add(5 * time.Minute), minute.Add(10 * time.Minute)}, l.touched); d != "" {
		t.Errorf("write times (-want +got):\n%s", d)
	}
}

func TestScopesEndWithTheKeyAndTheMember(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	key := func(edit func(*account.Key)) account.Key {
		k := account.Key{ID: "key_1", Hash: "h", AccountID: "acc_1", Scopes: identity.DefaultScopes}
		edit(&k)
		return k
	}
	whole := key(func(*account.Key) {})
	for name, tt := range map[string]struct {
		ledger      *ledger
		account, id string
		reads       bool
	}{
		"key":                             {&ledger{key: whole}, "acc_1", "key_1", true},
		"key from another account":        {&ledger{key: whole}, "acc_2", "key_1", false},
		"unknown key":                     {&ledger{key: whole}, "acc_1", "key_2", false},
		"revoked key":                     {&ledger{key: key(func(k *account.Key) { k.RevokedAt = now.Add(-time.Second) })}, "acc_1", "key_1", false},
		"expired key":                     {&ledger{key: key(func(k *account.Key) { k.ExpiresAt = now })}, "acc_1", "key_1", false},
		"key created by a viewer":         {&ledger{key: whole, member: account.Member{ID: "mem_1", Role: identity.Viewer}}, "acc_1", "key_1", true},
		"key created by a removed member": {&ledger{key: whole, member: account.Member{ID: "mem_1"}}, "acc_1", "key_1", false},
		"member":                          {&ledger{member: account.Member{ID: "mem_1", Role: identity.Viewer}}, "acc_1", "mem_1", true},
		"member of another account":       {&ledger{member: account.Member{ID: "mem_1", Role: identity.Viewer}}, "acc_2", "mem_1", false},
		"removed member":                  {&ledger{}, "acc_1", "mem_1", false},
	} {
		s := NewSource(tt.ledger, UsualPlans(), func() time.Time { return now })
		scopes, err := s.Scopes(t.Context(), tt.account, tt.id)
		if err != nil || scopes.Has(identity.VideosRead) != tt.reads {
			t.Errorf("%s: Scopes returned %v and error %v, want videos:read included = %v", name, scopes, err, tt.reads)
		}
		_ = s.Flush(t.Context())
		if len(tt.ledger.touched) != 0 {
			t.Errorf("%s: the call to Scopes was recorded as a use, want no write", name)
		}
	}
}
