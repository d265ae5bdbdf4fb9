package apikey_test

import (
	"crypto/rand"
	"net/netip"
	"testing"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

func (k *keyring) addSession(t testing.TB, account, member string, plan identity.Plan) string {
	t.Helper()
	key := identity.NewSession(rand.Reader)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == nil {
		k.keys = map[string]apikey.Record{}
	}
	k.keys[key.Hash()] = apikey.Record{
		Principal: identity.Principal{
			KeyID: identity.NewID("ses"), Session: true, MemberID: member, MemberName: "Ada", Role: identity.Admin, Scopes: identity.Admin.Scopes(),
			AccountID: account, AccountName: "Test", Plan: plan, PerMinute: perMinute[plan],
		},
		ExpiresAt: apikey.Never, Version: 1,
	}
	return key.Secret()
}

// A busy script takes from the account's bucket, not from the members' buckets. All sessions of a
// member share one bucket. This is the case with and without Redis.
func TestEachMembersSessionsHaveABucketOfTheirOwn(t *testing.T) {
	t.Parallel()
	for name, addr := range map[string]string{"with Redis": redistest.Start(t), "without Redis": "127.0.0.1:1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ring := &keyring{}
			key := ring.add(t, "acc_1", identity.Free)
			ada, adaToo := ring.addSession(t, "acc_1", "mem_ada", identity.Free), ring.addSession(t, "acc_1", "mem_ada", identity.Free)
			bob := ring.addSession(t, "acc_1", "mem_bob", identity.Free)
			r := newReplica(t, ring, addr)
			r.clock.freeze()
			for range 100 {
				accept(t, r, key)
			}
			if d := accept(t, r, key); d.Limit.Allowed && addr != "127.0.0.1:1" {
				// Redis uses its own clock, which the test cannot stop. 100 calls take less than a
				// second.
				t.Errorf("limit after 101 calls with a key limited to 60 requests a minute = %+v, want no tokens left", d.Limit)
			}
			d := accept(t, r, ada)
			if !d.Limit.Allowed || d.Limit.Remaining != 59 {
				t.Errorf("Ada's first call: limit %+v, want 59 left", d.Limit)
			}
			if p := d.Principal; !p.Session || p.MemberID != "mem_ada" || p.MemberName != "Ada" || p.Role != identity.Admin {
				t.Errorf("principal = %+v, want Ada's session (mem_ada) with role admin", p)
			}
			if d := accept(t, r, adaToo); d.Limit.Remaining > 58 {
				t.Errorf("first call from Ada's second session: limit %+v, want at most 58 left", d.Limit)
			}
			if l, err := r.Charge(t.Context(), d.Principal, 50); err != nil || l.Remaining > 9 {
				t.Errorf("Charge(50) = %+v, %v, want at most 9 left", l, err)
			}
			if d := accept(t, r, bob); d.Limit.Remaining != 59 {
				t.Errorf("Bob's first call: limit %+v, want 59 left", d.Limit)
			}
		})
	}
}

func TestASessionEndsWithTheAccountsVersion(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	session := ring.addSession(t, "acc_1", "mem_ada", identity.Free)
	addr := redistest.Start(t)
	one, other := newReplica(t, ring, addr), newReplica(t, ring, addr)
	accept(t, one, session)
	accept(t, other, session)
	v := ring.change("acc_1", func(r *apikey.Record) { r.Revoked = true })
	one.InvalidateAccount(t.Context(), "acc_1", v)
	if _, err := other.Authenticate(t.Context(), session, netip.Addr{}); code(err) != apierr.APIKeyRevoked {
		t.Errorf("after the session ended: got %v, want API_KEY_REVOKED", err)
	}
}
