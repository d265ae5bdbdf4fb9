// Package backing opens what services depend on: Firestore, Redis, the outbox for their events,
// and the client that verifies API keys with auth. The service closes them in reverse order
// ([boot.Service.CloseWith]), even if opening a later one fails.
package backing

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/apikey/remote"
	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/dedup"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/httpserver"
	"github.com/linkreel/linkreel/libs/peer"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/libs/restored"
	"github.com/linkreel/linkreel/libs/waiting"
)

// Config is the configuration for every service that stores records. Services embed it in their
// own.
type Config struct {
	boot.Config
	Firestore firestoredb.Config `envPrefix:"LINKREEL_"`
	// Redis holds rate limits, wake-ups and account versions. Losing all of this data is harmless.
	Redis redisdb.Config `envPrefix:"LINKREEL_REDIS_"`

	// Now returns the time; nil means the system clock.
	Now func() time.Time `env:"-"`
}

// Public is the additional configuration for a service with a public API.
type Public struct {
	// APIAddr is the address to listen on for the public routes.
	APIAddr string `env:"LINKREEL_API_ADDR" envDefault:":8080"`
	// InternalAddr is the address to listen on for the other services.
	InternalAddr string `env:"LINKREEL_INTERNAL_ADDR" envDefault:":8090"`
	// BaseURL is the product's base URL.
	BaseURL string `env:"LINKREEL_BASE_URL" envDefault:"http://localhost:8080"`
	// TrustedProxies lists the networks that are trusted to set X-Forwarded-For and the country
	// header.
	TrustedProxies []netip.Prefix `env:"LINKREEL_TRUSTED_PROXIES"`
	// TrustedProxyHops is how many addresses the proxies append to X-Forwarded-For. If it is
	// set, TrustedProxies is ignored. Google's load balancers append two.
	TrustedProxyHops int `env:"LINKREEL_TRUSTED_PROXY_HOPS"`
	// CORSOrigins lists the origins whose pages may call the API; "*" allows any origin.
	CORSOrigins []string `env:"LINKREEL_CORS_ORIGINS"`
}

// Proxies returns the proxies in front of the public listener.
func (p Public) Proxies() httpserver.Proxies {
	return httpserver.Proxies{Trusted: p.TrustedProxies, Hops: p.TrustedProxyHops}
}

// Auth configures how a service connects to auth, and how the two authenticate to each other.
type Auth struct {
	// AuthURL is the URL at which auth verifies keys.
	AuthURL string `env:"LINKREEL_AUTH_URL" envDefault:"http://localhost:8090"`
	// InternalToken is the secret that this service and auth share, "NEW,OLD" during a rotation.
	InternalToken string `env:"LINKREEL_INTERNAL_TOKEN,notEmpty"`
}

// Stores holds the open stores. They connect on the first call, so a service starts even while they
// are down.
type Stores struct {
	DB    *firestoredb.DB
	Redis redis.UniversalClient

	svc    *boot.Service
	now    func() time.Time
	access httpserver.AccessLog
}

// Open opens the stores for svc. It sets cfg.Now if it is nil.
func Open(ctx context.Context, svc *boot.Service, cfg *Config) (*Stores, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	db, err := firestoredb.Open(ctx, cfg.Firestore)
	if err != nil {
		return nil, err
	}
	svc.CloseWith(db.Close)
	svc.Loops = append(svc.Loops, boot.Loop{Name: "database format", Run: db.AwaitFormat})
	rdb, err := redisdb.Open(cfg.Redis)
	if err != nil {
		return nil, err
	}
	svc.CloseWith(rdb.Close)
	return &Stores{db, rdb, svc, cfg.Now, cfg.LogAccess}, nil
}

// Outbox returns the outbox for the service's events. Its loop notifies the events service of new
// events.
func (s *Stores) Outbox() *outbox.Outbox {
	o := outbox.New(s.DB, s.Redis, s.now)
	s.svc.Loops = append(s.svc.Loops, boot.Loop{Name: "event wake-ups", Run: o.Run})
	return o
}

// Watch reports the amount of pending work while the service is running. See [waiting.Loop].
func (s *Stores) Watch(looks ...waiting.Look) {
	s.svc.Loops = append(s.svc.Loops, waiting.Loop(s.svc.Name, s.Turns(), s.now, looks...))
}

// Restored keeps the record of the last restore up to date while the service is running. It also
// delays readiness until the record has been read.
func (s *Stores) Restored() *restored.Watch {
	w := restored.NewWatch(s.DB)
	s.svc.Loops = append(s.svc.Loops, boot.Loop{Name: "record of the last restore", Run: w.Run})
	s.svc.WarmUp = append(s.svc.WarmUp, boot.Call{To: "Firestore", Do: w.Look})
	return w
}

// Turns returns a [dedup.Seen] that lets one replica run a sweep on behalf of all replicas. It uses
// the system clock because Redis does.
func (s *Stores) Turns() *dedup.Seen { return dedup.New(s.Redis, time.Now) }

// Await delays readiness until the service has reached the stores, for up to half a minute. A store
// outage after that does not affect readiness, because the service keeps working.
func (s *Stores) Await() {
	s.svc.WarmUp = append(s.svc.WarmUp, boot.Call{To: "Firestore", Do: s.DB.AwaitFormat},
		boot.Call{To: "Redis", Do: func(ctx context.Context) error { return s.Redis.Ping(ctx).Err() }})
}

// Keys returns a client that verifies API keys with auth. It also delays readiness until the
// service has reached auth.
func (s *Stores) Keys(a Auth) (*apikey.Client, remote.Source, error) {
	if a.InternalToken == "" {
		return nil, remote.Source{}, errors.New("LINKREEL_INTERNAL_TOKEN is not set")
	}
	source := remote.New(a.AuthURL, a.InternalToken)
	// The client's background calls use Redis, so the client is closed before Redis is.
	keys := apikey.New(apikey.Config{Now: s.now}, source, s.Redis)
	s.svc.CloseWith(func() error { keys.Close(); source.Close(); return nil })
	s.svc.WarmUp = append(s.svc.WarmUp, boot.Reach("auth", a.AuthURL))
	return keys, source, nil
}

// API returns the options for the service's public routes. To compare the bodies of repeated
// requests, the service stores keyed hashes of them. secret is the key for the hashes.
func (s *Stores) API(p Public, keys *apikey.Client, secret string) httpapi.Options {
	return httpapi.Options{
		Name: s.svc.Name, Auth: keys, Idempotency: idempotency.NewFirestore(s.DB, peer.Shown(secret), s.now),
		Proxies: p.Proxies(), BaseURL: p.BaseURL, CORSOrigins: p.CORSOrigins, Now: s.now, Access: s.access,
	}
}
