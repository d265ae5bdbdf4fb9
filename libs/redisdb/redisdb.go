// Package redisdb opens all of the services' connections to Redis.
//
// It supports a single server, a Redis Cluster and a primary with Sentinels, with passwords, TLS
// and a private certificate authority. Clients fail fast because requests must not wait for a
// Redis that is down. They never retry a call, because only the caller knows whether a call that
// may have succeeded can be repeated.
//
// All calls are measured. For each Redis, the process tracks whether it answers and accepts writes.
// Changes appear in the linkreel_dependency_away metric and in one log line.
package redisdb

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/linkreel/linkreel/libs/metrics"
)

// Config selects the Redis to open and its client's time limits.
type Config struct {
	// URL is host:port, or a URL in one of these forms:
	//
	//	redis://user:password@host:port/db
	//	rediss://host:port                       with TLS
	//	redis://host:port,host:port              a Cluster, given by some of its servers
	//	redis://host:port?cluster=true           a Cluster, given by its endpoint
	//	redis://host:port,host:port?master=name  Sentinels that watch a primary
	//
	// With Sentinels, user and password are for the primary, and sentinel_password is for
	// the Sentinels.
	URL string `env:"URL" envDefault:"localhost:6379"`
	// Password is used if URL does not contain a password. It may contain any character. A password
	// in URL must be percent-encoded.
	Password string `env:"PASSWORD"`
	// CAFile is a PEM file with the certificate authorities for a rediss URL. If it is empty,
	// the system's authorities are used.
	CAFile string `env:"CA_FILE"`

	Timeout     time.Duration // limit for each dial, write and read; 250 ms
	PoolTimeout time.Duration // how long a caller waits for a free connection; 100 ms
	PoolSize    int           // connections to each server; 64
	MinIdle     int           // connections that are kept open; 0
	Untraced    bool          // do not trace calls; for a client that is used for every redirect

	// Calls measures the calls to a service's second Redis; see [NewCalls]. If it is nil, the
	// calls are measured under "Redis".
	Calls *metrics.Calls
}

// ErrAddress is the error for a URL that does not match any of the forms in [Config].
var ErrAddress = errors.New("invalid redis address")

// Open returns a client. It does not open a connection, so a service starts even while Redis is
// down.
func Open(cfg Config) (redis.UniversalClient, error) {
	quiet.Do(func() { redis.SetLogger(noLog{}) })
	opt, err := cfg.options()
	if err != nil {
		return nil, err
	}
	var client redis.UniversalClient
	switch {
	case opt.MasterName != "":
		client = redis.NewFailoverClient(opt.Failover())
	case opt.IsClusterMode:
		c := opt.Cluster()
		// Following a redirect does not execute the call twice, because the server that sent the
		// redirect has not executed it.
		c.MaxRedirects = 3
		// The default is a minute. Calls to a dead primary would fail for that long because a dead
		// server cannot redirect to its successor.
		c.ClusterStateReloadInterval = time.Second
		client = redis.NewClusterClient(c)
	default:
		client = redis.NewClient(opt.Simple())
	}
	client.AddHook(watch{healthOf(cfg.URL, client), cmp.Or(cfg.Calls, measured)})
	if cfg.Untraced {
		return client, nil
	}
	// Omit statements from spans because they contain keys and values.
	err = redisotel.InstrumentTracing(client, redisotel.WithDBStatement(false), redisotel.WithCallerEnabled(false), redisotel.WithDialFilter(true))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("redis tracing: %w", err), client.Close())
	}
	return client, nil
}

// Away is the [outage.Config.Down] for Redis. Every error except a missing key counts as an outage,
// including rejected writes.
func Away(err error) bool { return err != nil && !errors.Is(err, redis.Nil) }

func (cfg Config) options() (*redis.UniversalOptions, error) {
	opt, err := parse(cfg.URL)
	if err != nil {
		return nil, err
	}
	opt.Password = cmp.Or(opt.Password, cfg.Password)
	def := func(d *time.Duration, v, fallback time.Duration) {
		if *d = v; v <= 0 {
			*d = fallback
		}
	}
	def(&opt.DialTimeout, cfg.Timeout, 250*time.Millisecond)
	def(&opt.PoolTimeout, cfg.PoolTimeout, 100*time.Millisecond)
	opt.ReadTimeout, opt.WriteTimeout = opt.DialTimeout, opt.DialTimeout
	opt.PoolSize, opt.MinIdleConns = cfg.PoolSize, cfg.MinIdle
	if opt.PoolSize <= 0 {
		opt.PoolSize = 64
	}
	// Pipelines use the same connections. A pool of their own would exceed PoolSize, and the first
	// pipeline would have to wait for a connection even after the warm-up call.
	opt.PipelinePoolSize = -1
	opt.Protocol = 2
	opt.DisableIdentity = true
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	// Never retry a call, and stop it when its context is done; see the package comment.
	opt.MaxRetries, opt.DialerRetries = -1, 1
	opt.ContextTimeoutEnabled = true
	if cfg.CAFile != "" && opt.TLSConfig != nil {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("redis certificates: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("redis certificates: %s has no certificate", cfg.CAFile)
		}
		opt.TLSConfig.RootCAs = roots
	}
	return opt, nil
}

func parse(addr string) (*redis.UniversalOptions, error) {
	if !strings.Contains(addr, "://") {
		addr = "redis://" + addr
	}
	scheme, rest, _ := strings.Cut(addr, "://")
	// net/url accepts only one host, so split the list here and parse the URL with the first one.
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	userinfo, hosts := "", authority
	// Split at the last @ because a password may contain an @.
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		userinfo, hosts = authority[:i+1], authority[i+1:]
	}
	addrs := strings.Split(hosts, ",")
	u, err := url.Parse(scheme + "://" + userinfo + addrs[0] + tail)
	if err != nil {
		// The error's text would contain the password.
		return nil, fmt.Errorf("%w: it is not a URL", ErrAddress)
	}
	opt := &redis.UniversalOptions{}
	for _, a := range addrs {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			host, port = strings.Trim(a, "[]"), "6379"
		}
		if host == "" || port == "" {
			return nil, fmt.Errorf("%w: %q is not host:port", ErrAddress, a)
		}
		opt.Addrs = append(opt.Addrs, net.JoinHostPort(host, port))
	}
	switch scheme {
	case "redis":
	case "rediss":
		opt.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	default:
		return nil, fmt.Errorf("%w: starts with %q, not redis or rediss", ErrAddress, scheme)
	}
	opt.Username = u.User.Username()
	opt.Password, _ = u.User.Password()
	if db := strings.Trim(u.Path, "/"); db != "" {
		if _, err := fmt.Sscanf(db, "%d", &opt.DB); err != nil {
			return nil, fmt.Errorf("%w: %q is not the number of a database", ErrAddress, db)
		}
	}
	query := u.Query()
	opt.MasterName, opt.SentinelPassword = query.Get("master"), query.Get("sentinel_password")
	opt.IsClusterMode = opt.MasterName == "" && (query.Get("cluster") == "true" || len(addrs) > 1)
	if opt.IsClusterMode && opt.DB != 0 {
		return nil, fmt.Errorf("%w: a Cluster has no database %d", ErrAddress, opt.DB)
	}
	return opt, nil
}

// The client library logs a line for each failed dial. Callers receive these errors anyway, and
// during an outage the lines would fill the log.
var quiet sync.Once

type noLog struct{}

func (noLog) Printf(context.Context, string, ...any) {}
