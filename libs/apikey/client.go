package apikey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/metrics"
	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/redisdb"
)

// The bounds promised in the package comment.
const (
	freshFor   = 5 * time.Second  // how long a record is used before auth is asked again
	usableFor  = 30 * time.Second // how long a record is used while auth is unreachable
	unknownFor = 10 * time.Second // how long an unknown key is cached as unknown

	maxKeys    = 100_000 // known keys in memory
	maxUnknown = 10_000  // unknown keys in memory
)

// Config tunes a [Client].
type Config struct {
	Budget      time.Duration // maximum wait for auth if a cached record is usable; default 200 ms
	ColdBudget  time.Duration // maximum wait for auth if no cached record is usable; default 1.5 s
	RedisBudget time.Duration // maximum wait for Redis; default 100 ms

	Now func() time.Time
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Budget = cmp.Or(c.Budget, 200*time.Millisecond)
	c.ColdBudget = cmp.Or(c.ColdBudget, 1500*time.Millisecond)
	c.RedisBudget = cmp.Or(c.RedisBudget, 100*time.Millisecond)
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}

// Decision is the outcome for a request whose key was accepted. The caller must still reject the
// request if Limit.Allowed is false, or if the principal is suspended or lacks the required plan or
// scope.
type Decision struct {
	Principal *identity.Principal // shared between requests; never changed
	Limit     Limit
}

// Only unusual outcomes are counted, so the common path has no overhead.
var (
	degraded = metrics.NewCounter(prometheus.CounterOpts{
		Name: "linkreel_auth_checks_degraded_total",
		Help: "Key checks that did not take the usual path: cold, local (without Redis), stale (without auth), unavailable.",
	}, []string{"how"}, metrics.Each("cold", "local", "stale", "unavailable")...)
	redisFailures = promauto.NewCounter(prometheus.CounterOpts{
		Name: "linkreel_auth_redis_failures_total", Help: "Failed calls to Redis for limits and account versions.",
	})
)

// Client authenticates requests and limits their rate. It is safe for concurrent use.
type Client struct {
	cfg     Config
	source  Source
	redis   redis.UniversalClient
	breaker *outage.Breaker // for calls to Redis
	asking  *outage.Breaker // for calls to the source
	misses  *ratelimit.Misses

	known   *otter.Cache[string, *entry]    // by key hash
	unknown *otter.Cache[string, time.Time] // by key hash: the time of the last lookup
	buckets *otter.Cache[string, *bucket]   // by account, and by account and member for sessions

	flightsMu sync.Mutex
	flights   map[string]*flight
	running   sync.WaitGroup

	ctx       context.Context // for background work
	stop      context.CancelFunc
	pendingMu sync.Mutex
	pending   map[string]int64 // account → version that is not in Redis yet
}

// New returns a client. It does not open any connections, so it succeeds even while Redis or auth
// is down.
func New(cfg Config, source Source, rdb redis.UniversalClient) *Client {
	cfg = cfg.withDefaults()
	c := &Client{
		cfg: cfg, source: source, redis: rdb,
		flights: map[string]*flight{}, pending: map[string]int64{}, misses: ratelimit.NewMisses(ratelimit.MissOptions{Now: cfg.Now}),
		// An entry's own timestamps and cfg.Now decide whether it is valid. The cache's expiry only
		// frees memory.
		known: otter.Must(
			&otter.Options[string, *entry]{MaximumSize: maxKeys, ExpiryCalculator: otter.ExpiryWriting[string, *entry](2 * usableFor)},
		),
		unknown: otter.Must(
			&otter.Options[string, time.Time]{MaximumSize: maxUnknown, ExpiryCalculator: otter.ExpiryWriting[string, time.Time](unknownFor)},
		),
		buckets: otter.Must(
			&otter.Options[string, *bucket]{MaximumSize: maxKeys, ExpiryCalculator: otter.ExpiryAccessing[string, *bucket](2 * time.Minute)},
		),
	}
	// A few simultaneous failures are not an outage: a busy machine can stall for 100 ms. A false
	// alarm has a cost: until it ends, a revocation may take up to 5 seconds to apply.
	c.breaker = outage.New(
		outage.Config{Failures: 5, Over: 300 * time.Millisecond, Rest: time.Second, Down: redisdb.Away, Probe: c.probe, Now: cfg.Now,
			Opened: func(err error) {
				cfg.Log.Warn("Redis is unreachable or refuses writes; until it recovers, rate limits are local and keys are verified every few seconds", "error", err)
			}},
	)
	c.asking = outage.New(outage.Config{Rest: 100 * time.Millisecond, Now: cfg.Now})
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Close stops the background work and waits for it.
func (c *Client) Close() {
	c.breaker.Close()
	c.pendingMu.Lock()
	c.stop() // under the lock, so c.later cannot start a goroutine after Wait
	c.pendingMu.Unlock()
	c.running.Wait()
	c.known.StopAllGoroutines()
	c.unknown.StopAllGoroutines()
	c.buckets.StopAllGoroutines()
}

// entry is a verified key in this replica's memory. An entry is immutable, except that its
// incarnation may be set later if it was 0. A new verification replaces the entry.
type entry struct {
	rec         *Record
	bucket      *bucket
	incarnation atomic.Int64 // the incarnation of the hash before verification began; 0 if unknown
	asked       time.Time    // when verification began; the record is at least that recent
}

// Authenticate checks a request's API key and takes one token from the account's bucket. It returns
// the errors MISSING_API_KEY, INVALID_API_KEY, API_KEY_EXPIRED, API_KEY_REVOKED and UNAVAILABLE,
// and RATE_LIMITED for a client that tries many unknown keys. from is the client's IP address. If
// from is the zero value, unknown keys are not limited. With API_KEY_EXPIRED and API_KEY_REVOKED,
// only the decision's Principal is valid: the last known principal of the key.
func (c *Client) Authenticate(ctx context.Context, bearer string, from netip.Addr) (Decision, error) {
	if bearer == "" {
		return Decision{}, apierr.New(apierr.MissingAPIKey, "Send your API key in the header Authorization: Bearer <key>.")
	}
	key, err := identity.ParseKey(bearer, identity.KeyPrefix, identity.SessionPrefix)
	if err != nil {
		return Decision{}, errInvalidKey()
	}
	hash := key.Hash()
	e, err := c.current(ctx, hash, from)
	if err != nil {
		return Decision{}, c.refuse(err)
	}
	d, err := c.decide(ctx, hash, e)
	if err != nil {
		return d, c.refuse(err)
	}
	return d, nil
}

func errInvalidKey() error {
	return apierr.New(apierr.InvalidAPIKey, "This is not a valid API key. Check that it is complete, and that it belongs to this deployment.")
}

// refuse converts an internal error into the error that the caller sees.
func (c *Client) refuse(err error) error {
	if errors.Is(err, ErrUnknownKey) {
		return errInvalidKey()
	}
	var known *apierr.Error
	if errors.As(err, &known) && known.Code != apierr.Unavailable {
		return known
	}
	degraded.WithLabelValues("unavailable").Inc()
	return apierr.Down(fmt.Errorf("verify API key: %w", err))
}

// decide confirms e with Redis and takes a token. If Redis does not confirm the record, decide
// verifies it and tries again. Two rounds are enough unless the account keeps changing.
func (c *Client) decide(ctx context.Context, hash string, e *entry) (Decision, error) {
	began := c.cfg.Now()
	var disproved int64
	for range 5 {
		if err := e.rec.refusal(c.cfg.Now()); err != nil {
			return Decision{Principal: &e.rec.Principal}, err
		}
		if _, away := c.breaker.Away(); away {
			return c.decideAlone(ctx, hash, e, began)
		}
		got, err := c.take(ctx, e.bucket, ask{
			incarnation: e.incarnation.Load(), version: e.rec.Version, disproved: disproved, rate: e.rec.PerMinute, n: 1,
		})
		if err != nil {
			if ctx.Err() != nil {
				return Decision{}, ctx.Err()
			}
			redisFailures.Inc()
			return c.decideAlone(ctx, hash, e, began)
		}
		if got.standing == holds {
			// If the key was new to this replica, keep the incarnation under which Redis accepted
			// it. Later calls compare against that incarnation.
			e.incarnation.CompareAndSwap(0, got.incarnation)
			return Decision{&e.rec.Principal, got.limit}, nil
		}
		seen := c.cfg.Now()
		fresh, err := c.verify(ctx, hash, nil, demand{incarnation: got.incarnation, version: got.version}, c.patience(false))
		if err == nil && fresh.rec.Version < got.version && fresh.asked.Before(seen) {
			// The last verification began before the change, so it may have missed the
			// change.
			fresh, err = c.verify(ctx, hash, nil, demand{incarnation: got.incarnation, after: seen}, c.patience(false))
		}
		switch {
		case err == nil:
			// The store was read after Redis returned a version. If the version in the store
			// is lower, the store was restored from a backup, and Redis must follow it.
			if fresh.rec.Version < got.version {
				disproved = got.version
				c.cfg.Log.WarnContext(ctx, "account version in Redis is ahead of the store; resetting it", "account", e.rec.AccountID)
			}
			e = fresh
		case errors.Is(err, ErrUnknownKey):
			return Decision{}, err
		case got.standing == unconfirmed && c.cfg.Now().Sub(e.asked) <= usableFor && ctx.Err() == nil:
			// Redis has lost its data and auth is unreachable. Act as if both were unreachable.
			degraded.WithLabelValues("stale").Inc()
			return Decision{&e.rec.Principal, e.bucket.take(1, e.rec.PerMinute, c.cfg.Now())}, nil
		default:
			return Decision{}, err
		}
	}
	return Decision{}, errors.New("account changes faster than it can be verified")
}

// decideAlone decides without Redis, so it cannot detect changes in authority. The record must have
// been verified since Redis failed. If only this call to Redis failed, the record must have been
// verified since the decision began.
func (c *Client) decideAlone(ctx context.Context, hash string, e *entry, began time.Time) (Decision, error) {
	since, away := c.breaker.Away()
	if !away {
		since = began
	}
	if e.asked.Before(since) {
		usable := c.cfg.Now().Sub(e.asked) <= usableFor
		// If only this call to Redis failed, Redis may know about a revocation, so wait for auth
		// before using the record unconfirmed. Accept a verification under any incarnation:
		// otherwise two requests with different incarnations would each replace the other's
		// verification, and every request would start a new one.
		fresh, err := c.verify(ctx, hash, nil, demand{under: e.incarnation.Load(), after: since}, c.patience(usable && away))
		switch {
		case err == nil:
			e = fresh
		case !usable, errors.Is(err, ErrUnknownKey):
			return Decision{}, err
		default:
			degraded.WithLabelValues("stale").Inc()
		}
		// decide has checked the old record, but the fresh one may be revoked, and the old one may
		// have expired during the wait. Check the fresh record too.
		if err := e.rec.refusal(c.cfg.Now()); err != nil {
			return Decision{Principal: &e.rec.Principal}, err
		}
	}
	degraded.WithLabelValues("local").Inc()
	return Decision{&e.rec.Principal, e.bucket.take(1, e.rec.PerMinute, c.cfg.Now())}, nil
}

// Charge takes n more tokens for a request that costs more than one. It takes none if n is not
// positive or fewer than n are left.
func (c *Client) Charge(ctx context.Context, p *identity.Principal, n int) (Limit, error) {
	n = max(n, 0)
	b := c.bucket(p)
	if _, away := c.breaker.Away(); !away {
		got, err := c.take(ctx, b, ask{incarnation: anyRecord, rate: p.PerMinute, n: n})
		if err == nil {
			return got.limit, nil
		}
		if ctx.Err() != nil {
			return Limit{}, apierr.Down(ctx.Err())
		}
		redisFailures.Inc()
	}
	return b.take(n, p.PerMinute, c.cfg.Now()), nil
}

func (c *Client) probe(ctx context.Context) error {
	// The probe writes because this package needs to write. During a failover, or when it is out of
	// memory, Redis still serves reads.
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RedisBudget)
	defer cancel()
	return c.redis.Set(ctx, "lr:probe", 1, time.Minute).Err()
}

// bucket returns the principal's bucket. All of an account's keys share one bucket. Each member's
// sessions share a separate bucket, so a busy script does not lock people out of the console.
func (c *Client) bucket(p *identity.Principal) *bucket {
	member := ""
	if p.Session {
		member = ":" + p.MemberID
	}
	b, _ := c.buckets.ComputeIfAbsent(p.AccountID+member, func() (*bucket, bool) {
		state := stateKey(p.AccountID)
		return &bucket{state: state, tokens: state + ":t" + member}, false
	})
	return b
}
