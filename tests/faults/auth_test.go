package faults_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/apikey/remote"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/services/auth"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/redisproc"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

// The faults in this file prevent auth from looking up keys or from notifying the other services.
// The tests use real processes, real signals and a real Redis.

const (
	authAdminToken    = "operator-token"
	authInternalToken = "internal-token"
)

// authFull returns full if LINKREEL_FULL=1 requests the long form of a test. Otherwise it returns
// short.
func authFull(short, full int) int {
	if os.Getenv("LINKREEL_FULL") == "1" {
		return full
	}
	return short
}

// authBinary builds the service like a release build, without the race detector.
var authBinary = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "linkreel-tests", "auth")
	out, err := exec.Command("go", "build", "-o", path, "github.com/linkreel/linkreel/services/auth/cmd/auth").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cannot build auth: %w\n%s", err, out)
	}
	return path, nil
})

// authWorld holds the Firestore and the Redis that the auth processes share.
type authWorld struct {
	t         testing.TB
	firestore *firestore.Server
	endpoint  string
	redis     *redisproc.Server
}

func newAuthWorld(t testing.TB) *authWorld {
	t.Helper()
	cloud := cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{auth.Indexes(), idempotency.Indexes}})
	return &authWorld{t: t, firestore: cloud.Firestore, endpoint: cloud.Endpoint, redis: redistest.Server(t)}
}

// authProcess is one replica of auth.
type authProcess struct {
	world                *authWorld
	api, admin, internal string // base addresses
	cmd                  *exec.Cmd
	done                 chan struct{} // closed when cmd has exited
	log                  *bytes.Buffer
}

func (b *authWorld) start() *authProcess {
	b.t.Helper()
	p := &authProcess{world: b, api: authFreeAddr(b.t), admin: authFreeAddr(b.t), internal: authFreeAddr(b.t)}
	b.t.Cleanup(func() {
		p.kill()
		if b.t.Failed() {
			b.t.Logf("the auth log on %s:\n%.4000s", p.api, p.log)
		}
	})
	p.run()
	return p
}

func authFreeAddr(t testing.TB) string {
	t.Helper()
	addr, err := redisproc.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func (p *authProcess) run() {
	t := p.world.t
	t.Helper()
	binary, err := authBinary()
	if err != nil {
		t.Fatal(err)
	}
	p.log = &bytes.Buffer{}
	p.cmd = exec.Command(binary)
	p.cmd.Env = append(os.Environ(),
		"LINKREEL_API_ADDR="+p.api, "LINKREEL_OPERATOR_ADDR="+p.admin, "LINKREEL_INTERNAL_ADDR="+p.internal, "LINKREEL_ADMIN_ADDR=127.0.0.1:0",
		"LINKREEL_FIRESTORE_ENDPOINT="+p.world.endpoint, "LINKREEL_REDIS_URL="+p.world.redis.Addr(),
		"LINKREEL_ADMIN_TOKEN="+authAdminToken, "LINKREEL_INTERNAL_TOKEN="+authInternalToken,
		"LINKREEL_LOG_LEVEL=warn", "LINKREEL_DRAIN=0s",
		"LINKREEL_RATE_LIMITS=enterprise:600000",
	)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.done = make(chan struct{})
	started := make(chan error, 1)
	go func(cmd *exec.Cmd, done chan struct{}) {
		// The kernel sends the parent-death signal when the thread that forked exits. This
		// goroutine keeps its thread until the child has exited.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the tests kill the process, so an error is expected
		}
	}(p.cmd, p.done)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	authUntil(t, "auth accepts requests", time.Minute, func() bool {
		for _, addr := range []string{p.api, p.admin, p.internal} {
			c, err := net.DialTimeout("tcp", addr, time.Second)
			if err != nil {
				return false
			}
			_ = c.Close()
		}
		return true
	})
}

func (p *authProcess) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *authProcess) signal(s syscall.Signal) {
	p.world.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.world.t.Fatal(err)
	}
}

func authUntil(t testing.TB, what string, patience time.Duration, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("condition not met within %v: %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

type authAnswer struct {
	status int
	code   string
	body   []byte
	header http.Header
	err    error // the connection's error; the service may have processed the request
}

var authHTTP = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

func authCall(method, addr, path, token, body string, headers ...string) authAnswer {
	req, err := http.NewRequest(method, "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		return authAnswer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := authHTTP.Do(req)
	if err != nil {
		return authAnswer{err: err}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	var e struct{ Error struct{ Code string } }
	_ = json.Unmarshal(text, &e)
	return authAnswer{res.StatusCode, e.Error.Code, text, res.Header, err}
}

func (a authAnswer) field(t testing.TB, name string) string {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(a.body, &m); err != nil || m[name] == nil {
		t.Fatalf("the response %d %s does not contain %s (%v)", a.status, a.body, name, a.err)
	}
	return fmt.Sprint(m[name])
}

func (p *authProcess) operator(method, path, body string) authAnswer {
	p.world.t.Helper()
	a := authCall(method, p.admin, path, authAdminToken, body)
	if a.err != nil || a.status >= 300 {
		p.world.t.Fatalf("%s %s returned %d, want success: %s %v", method, path, a.status, a.body, a.err)
	}
	return a
}

// account creates an account and a key. [authProcess.key] creates more keys.
func (p *authProcess) account(plan string) (id, key string) {
	p.world.t.Helper()
	id = p.operator("POST", "/admin/v1/accounts", `{"name":"Test","plan":"`+plan+`"}`).field(p.world.t, "id")
	_, key = p.key(id)
	return id, key
}

func (p *authProcess) key(account string) (id, key string) {
	p.world.t.Helper()
	k := p.operator("POST", "/admin/v1/accounts/"+account+"/keys", `{"name":"k"}`)
	return k.field(p.world.t, "id"), k.field(p.world.t, "key")
}

func TestAuthNoReplicaAcceptsAKeyWhoseRevocationWasAnswered(t *testing.T) {
	t.Parallel()
	w := newAuthWorld(t)
	replicas := []*authProcess{w.start(), w.start()}
	trials := authFull(60, 1000)
	account, _ := replicas[0].account("enterprise")
	accepted := 0
	for i := range trials {
		id, key := replicas[i%2].key(account)
		for _, p := range replicas {
			if a := authCall("GET", p.api, "/api/v1/keys", key, ""); a.status != 200 {
				t.Fatalf("before the revocation, a request with the key returned %d, want 200: %s %v", a.status, a.body, a.err)
			}
		}
		replicas[i/2%2].operator("DELETE", "/admin/v1/keys/"+id, "")
		for n, p := range replicas {
			if a := authCall("GET", p.api, "/api/v1/keys", key, ""); a.code != "API_KEY_REVOKED" {
				accepted++
				t.Errorf("trial %d, replica %d: a request with the revoked key returned %d, want API_KEY_REVOKED: %s %v", i, n, a.status, a.body, a.err)
			}
		}
	}
	t.Logf("%d revocations on %d replicas: %d requests with a revoked key were accepted", trials, len(replicas), accepted)
}

func TestAuthKilledBetweenTheWriteAndTheAnswerMakesEachKeyOnce(t *testing.T) {
	t.Parallel()
	w := newAuthWorld(t)
	p := w.start()
	_, key := p.account("enterprise")
	rounds := authFull(5, 60)
	killed := 0
	secrets := map[string]bool{}
	for i := range rounds {
		idempotencyKey := fmt.Sprintf("round-%d", i)
		body := fmt.Sprintf(`{"name":"round %d","expiresAt":"2099-01-01T00:00:00Z"}`, i)
		post := func() authAnswer {
			return authCall("POST", p.api, "/api/v1/keys", key, body, "Idempotency-Key", idempotencyKey)
		}
		done := make(chan authAnswer, 1)
		go func() { done <- post() }()
		time.Sleep(time.Duration(rand.IntN(12_000)) * time.Microsecond) // the kill must be able to land at any point in the request
		p.kill()
		if a := <-done; a.err != nil {
			killed++
		}
		p.run()
		var last authAnswer
		authUntil(t, "the retry gets a response", time.Minute, func() bool {
			last = post()
			return last.err == nil && last.code != "IDEMPOTENCY_IN_PROGRESS" && last.status != 503
		})
		if last.status != 201 {
			t.Fatalf("round %d: the retry returned %d, want 201: %s", i, last.status, last.body)
		}
		secrets[last.field(t, "key")] = true
	}
	for secret := range secrets {
		if a := authCall("GET", p.api, "/api/v1/account", secret, ""); a.status != 200 {
			t.Errorf("the request with a created key returned %d, want 200: %s", a.status, a.body)
		}
	}
	var list struct{ Data []struct{ Name string } }
	if err := json.Unmarshal(authCall("GET", p.api, "/api/v1/keys", key, "").body, &list); err != nil {
		t.Fatal(err)
	}
	if len(secrets) != rounds || len(list.Data) != rounds+1 {
		t.Errorf("%d requests created %d keys and returned %d, want one key for each request", rounds, len(list.Data)-1, len(secrets))
	}
	t.Logf("%d requests, %d of them interrupted by SIGKILL, created %d keys, and each returned key works", rounds, killed, len(list.Data)-1)
}

// authLoad sends requests at a constant rate and counts the responses.
type authLoad struct {
	mu     sync.Mutex
	counts map[string]int
	took   []time.Duration
	bad    []string
}

func (l *authLoad) run(ctx context.Context, ask func() (string, bool)) {
	for ctx.Err() == nil {
		began := time.Now()
		kind, good := ask()
		l.mu.Lock()
		l.counts[kind]++
		l.took = append(l.took, time.Since(began))
		if !good && len(l.bad) < 5 {
			l.bad = append(l.bad, kind)
		}
		l.mu.Unlock()
		time.Sleep(2 * time.Millisecond)
	}
}

func (l *authLoad) percentile(q float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.took)
	return l.took[int(q*float64(len(l.took)-1))]
}

func TestAuthGoesOnWhileRedisIs(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]struct {
		fault, heal func(t *testing.T, b *authWorld)
	}{
		"killed": {
			func(t *testing.T, b *authWorld) { authOK(t, b.redis.Kill()) },
			func(t *testing.T, b *authWorld) { authOK(t, b.redis.Restart(t.Context())) },
		},
		"paused": {
			func(t *testing.T, b *authWorld) { authOK(t, b.redis.Signal(syscall.SIGSTOP)) },
			func(t *testing.T, b *authWorld) { authOK(t, b.redis.Signal(syscall.SIGCONT)) },
		},
		"read-only": {
			func(t *testing.T, b *authWorld) { authRedis(t, b, "replicaof", "127.0.0.1", "1") },
			func(t *testing.T, b *authWorld) { authRedis(t, b, "replicaof", "no", "one") },
		},
		"out of memory": {
			func(t *testing.T, b *authWorld) { authRedis(t, b, "config", "set", "maxmemory", "1") },
			func(t *testing.T, b *authWorld) { authRedis(t, b, "config", "set", "maxmemory", "0") },
		},
		"emptied": {
			func(t *testing.T, b *authWorld) { authRedis(t, b, "flushall") },
			func(*testing.T, *authWorld) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newAuthWorld(t)
			replicas := []*authProcess{w.start(), w.start()}
			account, key := replicas[0].account("enterprise")
			victimID, victim := replicas[0].key(account)
			for _, p := range replicas {
				if a := authCall("GET", p.api, "/api/v1/keys", victim, ""); a.status != 200 {
					t.Fatalf("before the fault, a request with the key returned %d, want 200: %s", a.status, a.body)
				}
			}
			load := &authLoad{counts: map[string]int{}}
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			for _, p := range replicas {
				running.Go(func() {
					load.run(ctx, func() (string, bool) {
						a := authCall("GET", p.api, "/api/v1/keys", key, "")
						return fmt.Sprint(a.status, a.code, a.err), a.status == 200 && a.header.Get("RateLimit") != ""
					})
				})
			}
			harm.fault(t, w)
			revoked := time.Now()
			replicas[0].operator("DELETE", "/admin/v1/keys/"+victimID, "")
			answered := time.Since(revoked)
			var until [2]time.Duration
			for n, p := range replicas {
				authUntil(t, "the replica rejects the revoked key", time.Minute, func() bool {
					return authCall("GET", p.api, "/api/v1/keys", victim, "").code == "API_KEY_REVOKED"
				})
				until[n] = time.Since(revoked) - answered
			}
			harm.heal(t, w)
			authUntil(t, "both replicas share one rate limit again", time.Minute, func() bool {
				// The replicas share one limit, so 200 requests to one replica also reduce the
				// number that the other replica allows.
				before := authRemaining(replicas[1], key)
				for range 3 {
					authCall("GET", replicas[0].api, "/api/v1/keys", key, "")
				}
				return before > 0 && authRedisHas(t, w, account)
			})
			stop()
			running.Wait()
			if len(load.bad) > 0 {
				t.Errorf("unexpected responses during the fault: %v", load.bad)
			}
			for n, d := range until {
				if d > 5*time.Second+500*time.Millisecond {
					t.Errorf("replica %d accepted the revoked key for %v, want at most 5.5 s", n, d)
				}
			}
			t.Logf("Redis %s: %v; p50 %v p99 %v; the revoke returned after %v and took effect after %v and %v",
				name, load.counts, load.percentile(.5), load.percentile(.99), answered, until[0], until[1])
		})
	}
}

func authOK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func authRedis(t testing.TB, b *authWorld, args ...string) string {
	t.Helper()
	rdb, err := redisdb.Open(redisdb.Config{URL: b.redis.Addr()})
	authOK(t, err)
	defer rdb.Close()
	command := make([]any, len(args))
	for i, a := range args {
		command[i] = a
	}
	// Retry. On a busy machine, Redis may need longer than our clients wait.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		out, err := rdb.Do(t.Context(), command...).Result()
		if err == nil {
			return fmt.Sprint(out)
		}
		if time.Now().After(deadline) {
			t.Fatalf("Redis did not execute %v: %v", args, err)
		}
	}
}

func authRedisHas(t testing.TB, b *authWorld, account string) bool {
	t.Helper()
	return authRedis(t, b, "exists", "lr:acct:{"+account+"}") == "1"
}

func authRemaining(p *authProcess, key string) int {
	var n int
	_, _ = fmt.Sscan(authCall("GET", p.api, "/api/v1/keys", key, "").header.Get("X-RateLimit-Remaining"), &n)
	return n
}

// The test checks the client in links and videos while auth is killed or frozen, and while auth is
// unreachable for longer than a cached record is valid.
func TestAuthAwayLeavesKnownKeysWorkingForThirtySeconds(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]struct{ fault, heal func(p *authProcess) }{
		"killed": {func(p *authProcess) { p.kill() }, func(p *authProcess) { p.run() }},
		"frozen": {func(p *authProcess) { p.signal(syscall.SIGSTOP) }, func(p *authProcess) { p.signal(syscall.SIGCONT) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newAuthWorld(t)
			p := w.start()
			account, key := p.account("enterprise")
			_, unseen := p.key(account)
			rdb, err := redisdb.Open(redisdb.Config{URL: w.redis.Addr()})
			authOK(t, err)
			source := remote.New("http://"+p.internal, authInternalToken)
			// The clock advances only in steps, so cached records do not expire early on a slow
			// machine.
			began := time.Now()
			var offset atomic.Int64
			client := apikey.New(apikey.Config{
				Now: func() time.Time { return began.Add(time.Duration(offset.Load())) },
				Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			}, source, rdb)
			t.Cleanup(func() { client.Close(); source.Close(); _ = rdb.Close() })
			if _, err := client.Authenticate(t.Context(), key, netip.Addr{}); err != nil {
				t.Fatal(err)
			}
			harm.fault(p)
			load := &authLoad{counts: map[string]int{}}
			ctx, stop := context.WithCancel(t.Context())
			load.run(ctx, func() (string, bool) {
				// Steps of 100 ms exceed how long a record stays fresh.
				if offset.Add(int64(100*time.Millisecond)) == int64(28*time.Second) {
					stop()
				}
				_, err := client.Authenticate(t.Context(), key, netip.Addr{})
				return fmt.Sprint(err), err == nil
			})
			if len(load.bad) > 0 {
				t.Errorf("unexpected responses for a known key with auth %s: %v", name, load.bad)
			}
			// Requests should not wait for auth. If the machine stalls, fewer than a tenth of the
			// 280 requests are delayed, so check the p90.
			if p90 := load.percentile(.9); p90 > 400*time.Millisecond {
				t.Errorf("the p90 is %v with auth %s, want at most 400 ms", p90, name)
			}
			if _, err := client.Authenticate(t.Context(), unseen, netip.Addr{}); apierr.CodeOf(err) != apierr.Unavailable {
				t.Errorf("a key that is new to the replica returned %v, want UNAVAILABLE, not a 401", err)
			}
			offset.Store(int64(31 * time.Second))
			if _, err := client.Authenticate(t.Context(), key, netip.Addr{}); apierr.CodeOf(err) != apierr.Unavailable {
				t.Errorf("after 31 s, a known key returned %v, want UNAVAILABLE", err)
			}
			harm.heal(p)
			authUntil(t, "both keys work", time.Minute, func() bool {
				offset.Add(int64(100 * time.Millisecond))
				_, one := client.Authenticate(t.Context(), key, netip.Addr{})
				_, two := client.Authenticate(t.Context(), unseen, netip.Addr{})
				return errors.Join(one, two) == nil
			})
			t.Logf("auth %s: %v; p50 %v p99 %v", name, load.counts, load.percentile(.5), load.percentile(.99))
		})
	}
}
