package apikey_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

var perMinute = map[identity.Plan]int{identity.Free: 60, identity.Creator: 600, identity.Business: 1200, identity.Enterprise: 3000}

// keyring is the Source for all clients in these tests. A test can change its records.
type keyring struct {
	mu    sync.Mutex
	keys  map[string]apikey.Record
	down  error
	delay chan struct{} // if set, responses wait until it is closed
	asked atomic.Int64
}

func (k *keyring) Verify(ctx context.Context, hash string) (*apikey.Record, error) {
	k.asked.Add(1)
	k.mu.Lock()
	rec, ok := k.keys[hash]
	down, delay := k.down, k.delay
	k.mu.Unlock()
	if delay != nil {
		select {
		case <-delay:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	switch {
	case down != nil:
		return nil, down
	case !ok:
		return nil, apikey.ErrUnknownKey
	}
	return &rec, nil
}

func (k *keyring) set(down error) {
	k.mu.Lock()
	k.down = down
	k.mu.Unlock()
}

// change edits the account's records as one commit and returns the account's new version.
func (k *keyring) change(account string, edit func(*apikey.Record)) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	var version int64
	for h, r := range k.keys {
		if r.AccountID == account {
			r.Version++
			version = r.Version
			edit(&r)
			k.keys[h] = r
		}
	}
	return version
}

func (k *keyring) add(t testing.TB, account string, plan identity.Plan) string {
	t.Helper()
	key := identity.NewKey(rand.Reader)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == nil {
		k.keys = map[string]apikey.Record{}
	}
	k.keys[key.Hash()] = apikey.Record{
		Principal: identity.Principal{
			KeyID: identity.NewID("key"), Scopes: identity.AllScopes,
			AccountID: account, AccountName: "Test", Plan: plan, PerMinute: perMinute[plan],
		},
		ExpiresAt: apikey.Never, Version: 1,
	}
	return key.Secret()
}

// clock is a replica's time source. After freeze, only forward advances it, so records do not
// become stale on a slow machine.
type clock struct{ offset, frozen atomic.Int64 }

func (c *clock) now() time.Time {
	t := time.Now()
	if at := c.frozen.Load(); at != 0 {
		t = time.Unix(0, at)
	}
	return t.Add(time.Duration(c.offset.Load()))
}

func (c *clock) freeze()                 { c.frozen.Store(time.Now().UnixNano()) }
func (c *clock) forward(d time.Duration) { c.offset.Add(int64(d)) }

type replica struct {
	*apikey.Client
	clock *clock
	redis redis.UniversalClient
}

func newReplica(t testing.TB, source apikey.Source, addr string) replica {
	t.Helper()
	rdb, err := redisdb.Open(redisdb.Config{URL: addr})
	if err != nil {
		t.Fatal(err)
	}
	c := &clock{}
	// The budgets are generous because the test machine may stall, and a stall must not look like
	// an outage in tests of other behaviour.
	cl := apikey.New(apikey.Config{
		Now: c.now, RedisBudget: 2 * time.Second, Budget: 2 * time.Second, ColdBudget: 5 * time.Second,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}, source, rdb)
	t.Cleanup(func() { cl.Close(); _ = rdb.Close() })
	return replica{cl, c, rdb}
}

func code(err error) apierr.Code { return apierr.CodeOf(err) }

func accept(t testing.TB, r replica, key string) apikey.Decision {
	t.Helper()
	d, err := r.Authenticate(t.Context(), key, netip.Addr{})
	if err != nil {
		t.Fatalf("Authenticate: %v", err)
	}
	return d
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestAuthenticateRefusesWithoutAsking(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	good := ring.add(t, "acc_1", identity.Free)
	r := newReplica(t, ring, "127.0.0.1:1") // no server listens on this port
	for name, tc := range map[string]struct {
		bearer string
		want   apierr.Code
	}{
		"no token":           {"", apierr.MissingAPIKey},
		"not a key":          {"hunter2", apierr.InvalidAPIKey},
		"a wrong checksum":   {good[:len(good)-1] + "!", apierr.InvalidAPIKey},
		"a very long string": {strings.Repeat("a", 1<<16), apierr.InvalidAPIKey},
		"a key with a space": {good + " ", apierr.InvalidAPIKey},
	} {
		if _, err := r.Authenticate(t.Context(), tc.bearer, netip.Addr{}); code(err) != tc.want {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
	for i := range 10_000 {
		bad := fmt.Sprintf("lr_live_%038d", i)
		if _, err := r.Authenticate(t.Context(), bad, netip.Addr{}); code(err) != apierr.InvalidAPIKey {
			t.Fatalf("malformed key %q: got %v, want INVALID_API_KEY", bad, err)
		}
	}
	if n := ring.asked.Load(); n != 0 {
		t.Errorf("malformed keys made %d calls to the source, want 0", n)
	}
}

func TestAuthenticateKnowsThePrincipal(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	key := ring.add(t, "acc_1", identity.Business)
	r := newReplica(t, ring, redistest.Start(t))
	r.clock.freeze()
	d := accept(t, r, key)
	if d.Principal.AccountID != "acc_1" || d.Principal.Plan != identity.Business || !d.Principal.Scopes.Has(identity.KeysWrite) {
		t.Errorf("principal = %+v, want acc_1 with plan business and scope keys:write", d.Principal)
	}
	if want := (apikey.Limit{Limit: 1200, Remaining: 1199, ResetAfter: 50 * time.Millisecond, Allowed: true}); d.Limit != want {
		t.Errorf("limit = %+v, want %+v", d.Limit, want)
	}
	before := ring.asked.Load()
	for range 100 {
		accept(t, r, key)
	}
	if n := ring.asked.Load() - before; n != 0 {
		t.Errorf("100 requests with a fresh record made %d calls to the source, want 0", n)
	}
}

func TestUnknownKeysAreAskedForOnceInTenSeconds(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	r := newReplica(t, ring, redistest.Start(t))
	r.clock.freeze()
	key := identity.NewKey(rand.Reader)
	for range 50 {
		if _, err := r.Authenticate(t.Context(), key.Secret(), netip.Addr{}); code(err) != apierr.InvalidAPIKey {
			t.Fatalf("unknown key: got %v, want INVALID_API_KEY", err)
		}
	}
	if n := ring.asked.Load(); n != 1 {
		t.Errorf("%d calls to the source, want 1", n)
	}
	r.clock.forward(10 * time.Second)
	_, _ = r.Authenticate(t.Context(), key.Secret(), netip.Addr{})
	if n := ring.asked.Load(); n != 2 {
		t.Errorf("%d calls to the source after ten seconds, want 2", n)
	}
}

func TestManyRequestsWithOneNewKeyAskOnce(t *testing.T) {
	t.Parallel()
	ring := &keyring{delay: make(chan struct{})}
	key := identity.NewKey(rand.Reader)
	r := newReplica(t, ring, redistest.Start(t))
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() { _, _ = r.Authenticate(t.Context(), key.Secret(), netip.Addr{}) })
	}
	eventually(t, "the source has been called", func() bool { return ring.asked.Load() > 0 })
	close(ring.delay)
	wg.Wait()
	if n := ring.asked.Load(); n != 1 {
		t.Errorf("100 concurrent requests made %d calls to the source, want 1", n)
	}
}

func TestARevokedKeyIsRefusedEverywhereOnceTheRevokeReturned(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	addr := redistest.Start(t)
	replicas := []replica{newReplica(t, ring, addr), newReplica(t, ring, addr)}
	admin := newReplica(t, ring, addr)
	const trials = 1000
	accepted := 0
	for i := range trials {
		account := fmt.Sprintf("acc_%d", i)
		key := ring.add(t, account, identity.Enterprise)
		for _, r := range replicas {
			accept(t, r, key)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for _, r := range replicas { // This caller keeps using the key during the revocation.
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						_, _ = r.Authenticate(t.Context(), key, netip.Addr{})
					}
				}
			})
		}
		version := ring.change(account, func(r *apikey.Record) { r.Revoked = true })
		admin.InvalidateAccount(t.Context(), account, version)
		for _, r := range replicas {
			if _, err := r.Authenticate(t.Context(), key, netip.Addr{}); code(err) != apierr.APIKeyRevoked {
				accepted++
				t.Errorf("trial %d: got %v, want API_KEY_REVOKED", i, err)
			}
		}
		close(stop)
		wg.Wait()
	}
	t.Logf("%d trials × %d replicas: %d accepted after the revoke returned", trials, len(replicas), accepted)
}

func TestAChangedPlanAndASuspensionShowOnTheNextRequest(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	addr := redistest.Start(t)
	a, b := newReplica(t, ring, addr), newReplica(t, ring, addr)
	key := ring.add(t, "acc_1", identity.Business)
	accept(t, a, key)
	accept(t, b, key)
	a.InvalidateAccount(t.Context(), "acc_1", ring.change("acc_1", func(r *apikey.Record) { r.Plan, r.PerMinute = identity.Free, perMinute[identity.Free] }))
	for _, r := range []replica{a, b} {
		if d := accept(t, r, key); d.Principal.Plan != identity.Free || d.Limit.Limit != 60 {
			t.Errorf("after the downgrade: plan %v with limit %d, want free with 60", d.Principal.Plan, d.Limit.Limit)
		}
	}
	a.InvalidateAccount(t.Context(), "acc_1", ring.change("acc_1", func(r *apikey.Record) { r.Suspended = true }))
	for _, r := range []replica{a, b} {
		if d := accept(t, r, key); !d.Principal.Suspended {
			t.Error("after the suspension: Suspended = false, want true")
		}
	}
}

func TestARevocationIsToldThoughItsRequestHasNoTimeLeft(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	addr := redistest.Start(t)
	a, b := newReplica(t, ring, addr), newReplica(t, ring, addr)
	key := ring.add(t, "acc_1", identity.Enterprise)
	accept(t, b, key)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.InvalidateAccount(ctx, "acc_1", ring.change("acc_1", func(r *apikey.Record) { r.Revoked = true }))
	if _, err := b.Authenticate(t.Context(), key, netip.Addr{}); code(err) != apierr.APIKeyRevoked {
		t.Errorf("after the revocation was announced: got %v, want API_KEY_REVOKED", err)
	}
}

func TestAnEmptiedRedisDoesNotReviveARevokedKey(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	addr := redistest.Start(t)
	a, b := newReplica(t, ring, addr), newReplica(t, ring, addr)
	key := ring.add(t, "acc_1", identity.Enterprise)
	accept(t, a, key)
	accept(t, b, key)
	a.InvalidateAccount(t.Context(), "acc_1", ring.change("acc_1", func(r *apikey.Record) { r.Revoked = true }))
	if err := a.redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]replica{"a": a, "b": b} {
		if _, err := r.Authenticate(t.Context(), key, netip.Addr{}); code(err) != apierr.APIKeyRevoked {
			t.Errorf("replica %s after revocation and flush: got %v, want API_KEY_REVOKED", name, err)
		}
	}
}

func TestAnEmptiedRedisCausesNoStorm(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	r := newReplica(t, ring, redistest.Start(t))
	key := ring.add(t, "acc_1", identity.Enterprise)
	accept(t, r, key)
	before := ring.asked.Load()
	if err := r.redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 300 {
		wg.Go(func() { accept(t, r, key) })
	}
	wg.Wait()
	if n := ring.asked.Load() - before; n > 30 {
		t.Errorf("300 concurrent requests after a flush made %d verifications, want at most 30", n)
	}
}

func TestARedisThatWentBackInTimeIsBelievedForFiveSecondsAtMost(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	r := newReplica(t, ring, redistest.Start(t))
	key := ring.add(t, "acc_1", identity.Enterprise)
	accept(t, r, key)
	ring.change("acc_1", func(r *apikey.Record) { r.Revoked = true }) // simulates a failover that loses the version
	r.clock.forward(5 * time.Second)
	if _, err := r.Authenticate(t.Context(), key, netip.Addr{}); code(err) != apierr.APIKeyRevoked {
		t.Errorf("five seconds later: got %v, want API_KEY_REVOKED", err)
	}
}

func TestAStoreRestoredFromBackupWinsOverRedis(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	r := newReplica(t, ring, redistest.Start(t))
	r.clock.freeze()
	key := ring.add(t, "acc_1", identity.Enterprise)
	accept(t, r, key)
	r.InvalidateAccount(t.Context(), "acc_1", 100)
	accept(t, r, key)
	before := ring.asked.Load()
	for range 10 {
		accept(t, r, key)
	}
	if n := ring.asked.Load() - before; n != 0 {
		t.Errorf("%d more verifications, want 0 after the version in Redis was reset", n)
	}
}

func TestWithoutRedisKeysWorkAndAreVerifiedEveryFiveSeconds(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	server := redistest.Server(t)
	r := newReplica(t, ring, server.Addr())
	key := ring.add(t, "acc_1", identity.Creator)
	remaining := accept(t, r, key).Limit.Remaining
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	d := accept(t, r, key)
	if d.Limit.Limit != 600 || d.Limit.Remaining >= remaining+2 || d.Limit.Remaining < remaining-5 {
		t.Errorf("local bucket = %+v, want about the %d tokens that were left in Redis", d.Limit, remaining)
	}
	eventually(t, "the client has noticed the outage", func() bool {
		before := ring.asked.Load()
		accept(t, r, key)
		accept(t, r, key)
		return ring.asked.Load() == before
	})
	ring.change("acc_1", func(r *apikey.Record) { r.Revoked = true })
	r.clock.forward(5 * time.Second)
	if _, err := r.Authenticate(t.Context(), key, netip.Addr{}); code(err) != apierr.APIKeyRevoked {
		t.Errorf("five seconds after a revocation without Redis: got %v, want API_KEY_REVOKED", err)
	}
	other := ring.add(t, "acc_2", identity.Free)
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the client uses Redis again", func() bool {
		accept(t, r, other)
		n, _ := r.redis.Exists(t.Context(), "lr:acct:{acc_2}").Result()
		return n == 1
	})
}

func TestAChangeWithoutRedisIsToldWhenRedisIsBack(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	server := redistest.Server(t)
	a, b := newReplica(t, ring, server.Addr()), newReplica(t, ring, server.Addr())
	key := ring.add(t, "acc_1", identity.Creator)
	accept(t, b, key)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	a.InvalidateAccount(t.Context(), "acc_1", ring.change("acc_1", func(r *apikey.Record) { r.Revoked = true }))
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the version is in Redis", func() bool {
		v, _ := a.redis.HGet(t.Context(), "lr:acct:{acc_1}", "v").Result()
		return v == "2"
	})
	if _, err := b.Authenticate(t.Context(), key, netip.Addr{}); code(err) != apierr.APIKeyRevoked {
		t.Errorf("after the late announcement: got %v, want API_KEY_REVOKED", err)
	}
}

func TestAPausedRedisCostsABudgetUntilItIsKnownToBeAway(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	server := redistest.Server(t)
	rdb, err := redisdb.Open(redisdb.Config{URL: server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	c := apikey.New(apikey.Config{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, ring, rdb)
	t.Cleanup(func() { c.Close(); _ = rdb.Close() })
	key := ring.add(t, "acc_1", identity.Enterprise)
	if _, err := c.Authenticate(t.Context(), key, netip.Addr{}); err != nil {
		t.Fatal(err)
	}
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Signal(syscall.SIGCONT) })
	var slow int
	for range 200 {
		began := time.Now()
		if _, err := c.Authenticate(t.Context(), key, netip.Addr{}); err != nil {
			t.Fatalf("with Redis paused: got %v, want no error", err)
		}
		if time.Since(began) > 50*time.Millisecond {
			slow++
		}
	}
	if slow > 10 {
		t.Errorf("%d of 200 requests waited for a paused Redis, want at most 10", slow)
	}
}

func TestAKnownKeyOutlivesAuthForThirtySeconds(t *testing.T) {
	t.Parallel()
	for name, killRedis := range map[string]bool{"with Redis": false, "without Redis": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ring := &keyring{}
			server := redistest.Server(t)
			r := newReplica(t, ring, server.Addr())
			r.clock.freeze()
			key := ring.add(t, "acc_1", identity.Creator)
			unseen := ring.add(t, "acc_2", identity.Creator)
			accept(t, r, key)
			ring.set(errors.New("connection refused"))
			if killRedis {
				if err := server.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := r.Authenticate(t.Context(), unseen, netip.Addr{}); code(err) != apierr.Unavailable {
				t.Errorf("a key that is new to this replica: got %v, want UNAVAILABLE", err)
			}
			for range 5 {
				r.clock.forward(5 * time.Second)
				accept(t, r, key)
			}
			r.clock.forward(6 * time.Second)
			if _, err := r.Authenticate(t.Context(), key, netip.Addr{}); code(err) != apierr.Unavailable {
				t.Errorf("after 31 seconds: got %v, want UNAVAILABLE", err)
			}
			ring.set(nil)
			accept(t, r, key)
		})
	}
}

func TestARevocationThatRedisKnowsIsNotOverriddenByAnAuthThatIsDown(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	r := newReplica(t, ring, redistest.Start(t))
	r.clock.freeze()
	key := ring.add(t, "acc_1", identity.Creator)
	accept(t, r, key)
	r.InvalidateAccount(t.Context(), "acc_1", ring.change("acc_1", func(r *apikey.Record) { r.Revoked = true }))
	ring.set(errors.New("connection refused"))
	if _, err := r.Authenticate(t.Context(), key, netip.Addr{}); code(err) != apierr.Unavailable {
		t.Errorf("got %v, want UNAVAILABLE for a record that is known to be stale", err)
	}
}

func TestSteadyTrafficDoesNotStormAnAuthThatIsAway(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	r := newReplica(t, ring, redistest.Start(t))
	r.clock.freeze()
	key := ring.add(t, "acc_1", identity.Enterprise)
	accept(t, r, key)
	ring.set(errors.New("connection refused"))
	r.clock.forward(6 * time.Second)
	before := ring.asked.Load()
	for range 10 {
		for range 200 {
			accept(t, r, key)
		}
		r.clock.forward(100 * time.Millisecond)
	}
	// The request that finds auth unreachable makes one call. After that, the client makes at most
	// ten calls a second.
	if n := ring.asked.Load() - before; n > 12 {
		t.Errorf("2,000 requests in a second made %d calls to the source, want at most 12", n)
	}
}

func TestWhatSomebodyElseWroteIntoRedisIsIgnored(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	r := newReplica(t, ring, redistest.Start(t))
	for name, poison := range map[string][]any{
		"value of the wrong type":      {"set", "lr:acct:{%s}", strings.Repeat("x", 1<<20)},
		"version that is not a number": {"hset", "lr:acct:{%s}", "v", "latest"},
		"huge version":                 {"hset", "lr:acct:{%s}", "v", "1e308"},
		"future version":               {"hset", "lr:acct:{%s}", "v", "9007199254740991"},
		"negative version":             {"hset", "lr:acct:{%s}", "v", "-1"},
		"version that is NaN":          {"hset", "lr:acct:{%s}", "v", "nan"},
		"bucket with a huge time":      {"set", "lr:acct:{%s}:t", "9e300"},
		"bucket with a negative time":  {"set", "lr:acct:{%s}:t", "-9e300"},
		"bucket with NaN":              {"set", "lr:acct:{%s}:t", "nan"},
		"bucket of the wrong type":     {"hset", "lr:acct:{%s}:t", "x", "1"},
		"no incarnation":               {"hset", "lr:acct:{%s}", "e", ""},
	} {
		account := identity.NewID("acc")
		key := ring.add(t, account, identity.Enterprise)
		accept(t, r, key)
		poison[1] = fmt.Sprintf(poison[1].(string), account)
		if err := r.redis.Del(t.Context(), poison[1].(string)).Err(); err != nil {
			t.Fatal(err)
		}
		if err := r.redis.Do(t.Context(), poison...).Err(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			d, err := r.Authenticate(t.Context(), key, netip.Addr{})
			if err != nil || d.Limit.ResetAfter < 0 || d.Limit.ResetAfter > time.Minute || d.Limit.Remaining > 3000 {
				t.Errorf("%s: limit %+v, error %v; want a valid limit and no error", name, d.Limit, err)
			}
		}
		if name == "value of the wrong type" {
			r.redis.Set(t.Context(), poison[1].(string), "x", 0)
		}
		r.InvalidateAccount(t.Context(), account, ring.change(account, func(r *apikey.Record) { r.Revoked = true }))
		if _, err := r.Authenticate(t.Context(), key, netip.Addr{}); code(err) != apierr.APIKeyRevoked {
			t.Errorf("%s, then revoked: got %v, want API_KEY_REVOKED", name, err)
		}
	}
}

func TestExpiryIsJudgedAtEachRequest(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	r := newReplica(t, ring, redistest.Start(t))
	r.clock.freeze()
	key := ring.add(t, "acc_1", identity.Creator)
	ring.change("acc_1", func(rec *apikey.Record) { rec.ExpiresAt = r.clock.now().Add(2 * time.Second).UnixMilli() })
	accept(t, r, key)
	r.clock.forward(2 * time.Second)
	before := ring.asked.Load()
	if _, err := r.Authenticate(t.Context(), key, netip.Addr{}); code(err) != apierr.APIKeyExpired {
		t.Errorf("got %v, want API_KEY_EXPIRED", err)
	}
	if ring.asked.Load() != before {
		t.Error("the source was called for an expired key")
	}
}

func TestTheBucketIsExact(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]string{"in Redis": redistest.Start(t), "locally": "127.0.0.1:1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ring := &keyring{}
			r := newReplica(t, ring, server)
			key := ring.add(t, "acc_1", identity.Free)
			second := ring.add(t, "acc_1", identity.Free) // a second key of the account does not raise its rate
			began := time.Now()
			allowed := 0
			var last apikey.Limit
			for i := range 200 {
				k := key
				if i%2 == 1 {
					k = second
				}
				if last = accept(t, r, k).Limit; last.Allowed {
					allowed++
					if want := 60 - allowed; last.Remaining < want {
						t.Fatalf("request %d: %d tokens left, want at least %d", allowed, last.Remaining, want)
					}
				}
			}
			back := int(time.Since(began)/time.Second) + 1
			if allowed < 60 || allowed > 60+back {
				t.Errorf("%d of 200 requests allowed in %v, want 60 plus one per second", allowed, time.Since(began))
			}
			if last.Allowed || last.Remaining != 0 || last.RetryAfter <= 0 || last.RetryAfter > time.Second || last.ResetAfter > time.Minute {
				t.Errorf("limit for a refused request = %+v, want no tokens left and RetryAfter of at most a second", last)
			}
		})
	}
}

func TestChargeTakesAllOrNothing(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]string{"in Redis": redistest.Start(t), "locally": "127.0.0.1:1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ring := &keyring{}
			r := newReplica(t, ring, server)
			d := accept(t, r, ring.add(t, "acc_1", identity.Free))
			l, err := r.Charge(t.Context(), d.Principal, 50)
			if err != nil || !l.Allowed || l.Remaining < 9 || l.Remaining > 10 {
				t.Errorf("Charge(50) with 59 left = %+v, %v, want it allowed with 9 left", l, err)
			}
			if l, err = r.Charge(t.Context(), d.Principal, 20); err != nil || l.Allowed || l.Remaining < 9 || l.RetryAfter <= 0 {
				t.Errorf("Charge(20) with 9 left = %+v, %v, want it refused with RetryAfter", l, err)
			}
			if l, err = r.Charge(t.Context(), d.Principal, 9); err != nil || !l.Allowed {
				t.Errorf("Charge(9) with 9 left = %+v, %v, want it allowed", l, err)
			}
		})
	}
}

func TestAnAccountLeavesRedisMinutesAfterItsLastRequest(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	r := newReplica(t, ring, redistest.Start(t))
	key := ring.add(t, "acc_1", identity.Enterprise)
	const hash = "lr:acct:{acc_1}"
	accept(t, r, key)
	if life := r.redis.PTTL(t.Context(), hash).Val(); life <= 0 || life > 5*time.Minute {
		t.Errorf("the hash expires in %s, want at most 5m", life)
	}
	// Each use of the hash renews its expiry.
	r.redis.PExpire(t.Context(), hash, time.Minute)
	accept(t, r, key)
	if life := r.redis.PTTL(t.Context(), hash).Val(); life <= time.Minute {
		t.Errorf("after a request the hash expires in %s, want more than 1m", life)
	}
	// The first request after the hash expires makes one call to auth. Later requests make none.
	r.redis.Del(t.Context(), hash)
	before := ring.asked.Load()
	for range 5 {
		accept(t, r, key)
	}
	if n := ring.asked.Load() - before; n != 1 {
		t.Errorf("%d calls to auth after a pause, want 1", n)
	}
	eventually(t, "the bucket is full and its key has expired", func() bool { return r.redis.Exists(t.Context(), hash+":t").Val() == 0 })
}

func TestRedisAndReplicasCountAlikeAtEveryRate(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	redis, alone := newReplica(t, ring, redistest.Start(t)), newReplica(t, ring, "127.0.0.1:1")
	redis.clock.freeze()
	alone.clock.freeze()
	for i, rate := range []int{1, 7, 60, 999, 3000, 7_000_000, 60_000_000, 100_000_000} {
		account := fmt.Sprint("acc_", i)
		key := ring.add(t, account, identity.Free)
		ring.change(account, func(r *apikey.Record) { r.PerMinute = rate })
		if a, b := accept(t, redis, key).Limit, accept(t, alone, key).Limit; a != b || !a.Allowed {
			t.Errorf("%d a minute: limit with Redis = %+v, without = %+v, want equal limits", rate, a, b)
		}
		p := &identity.Principal{AccountID: account, PerMinute: rate}
		a, err := redis.Charge(t.Context(), p, rate+1)
		if b, alike := alone.Charge(t.Context(), p, rate+1); err != nil || alike != nil || a.Allowed || b.Allowed || a.Limit != b.Limit {
			t.Errorf("a charge above %d a minute: %+v, %v with Redis and %+v, %v without; want both refused with equal limits", rate, a, err, b, alike)
		}
	}
}

func TestTheSessionOfSomebodyWhoWasRemovedHasEnded(t *testing.T) {
	t.Parallel()
	ring := &keyring{}
	r := newReplica(t, ring, redistest.Start(t))
	session := ring.addSession(t, "acc_1", "mem_ada", identity.Free)
	ring.change("acc_1", func(r *apikey.Record) { r.Role, r.Scopes = "", 0 })
	if _, err := r.Authenticate(t.Context(), session, netip.Addr{}); code(err) != apierr.Unavailable {
		t.Errorf("a session without a role: got %v, want UNAVAILABLE because only revoked sessions have no role", err)
	}
	r.InvalidateAccount(t.Context(), "acc_1", ring.change("acc_1", func(r *apikey.Record) { r.Revoked = true }))
	if _, err := r.Authenticate(t.Context(), session, netip.Addr{}); code(err) != apierr.APIKeyRevoked {
		t.Errorf("after the session was revoked: got %v, want API_KEY_REVOKED", err)
	}
}
