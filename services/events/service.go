// Package events is the service that tells what happened: each account's feed
// of events, and the webhooks that are sent them. It is the only service that calls
// addresses which users gave.
package events

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/apikey/remote"
	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/httpserver"
	"github.com/linkreel/linkreel/libs/peer"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/libs/seal"
	"github.com/linkreel/linkreel/libs/tenant/wire"
	"github.com/linkreel/linkreel/services/events/internal/api"
	"github.com/linkreel/linkreel/services/events/internal/caller"
	"github.com/linkreel/linkreel/services/events/internal/delivery"
	"github.com/linkreel/linkreel/services/events/internal/feed"
	"github.com/linkreel/linkreel/services/events/internal/store"
	"github.com/linkreel/linkreel/services/events/internal/tenancy"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// Config is all that the service can be told.
type Config struct {
	boot.Config
	Firestore firestoredb.Config `envPrefix:"LINKREEL_"`

	// APIAddr is the listener for the API of events and webhooks.
	APIAddr string `env:"LINKREEL_API_ADDR" envDefault:":8080"`
	// InternalAddr is the listener on which auth hands on what it decides about
	// accounts.
	InternalAddr string `env:"LINKREEL_INTERNAL_ADDR" envDefault:":8090"`

	// RedisURL is host:port or a redis:// or rediss:// address. Redis wakes the
	// service when something has happened; without it that takes seconds.
	RedisURL string `env:"LINKREEL_REDIS_URL" envDefault:"localhost:6379"`
	// RedisPassword is used when RedisURL has none; it needs no percent-encoding.
	RedisPassword string `env:"LINKREEL_REDIS_PASSWORD"`
	// RedisCAFile has the certificates that rediss addresses are checked with; empty means the system's.
	RedisCAFile string `env:"LINKREEL_REDIS_CA_FILE"`
	// AuthURL is where auth verifies keys.
	AuthURL string `env:"LINKREEL_AUTH_URL" envDefault:"http://localhost:8090"`
	// InternalToken is what this service and auth show each other: "NEW,OLD" while it is replaced.
	InternalToken string `env:"LINKREEL_INTERNAL_TOKEN,notEmpty"`
	// TrustedProxies are the networks whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix `env:"LINKREEL_TRUSTED_PROXIES"`
	// TrustedProxyHops is how many addresses the proxies append to X-Forwarded-For;
	// when set, it takes the place of TrustedProxies. Google's balancers append two.
	TrustedProxyHops int `env:"LINKREEL_TRUSTED_PROXY_HOPS"`
	// BaseURL is the product's base address.
	BaseURL string `env:"LINKREEL_BASE_URL" envDefault:"http://localhost:8080"`
	// CORSOrigins are the origins whose pages may call the API; "*" is any.
	CORSOrigins []string `env:"LINKREEL_CORS_ORIGINS"`

	// WebhookSecretKey seals webhooks' secrets: one or more keys of 32 random characters
	// or more, separated by commas. The first seals, all open.
	WebhookSecretKey string `env:"LINKREEL_WEBHOOK_SECRET_KEY,notEmpty"`
	// WebhookAllowHTTP lets webhooks use plain http.
	WebhookAllowHTTP bool `env:"LINKREEL_WEBHOOK_ALLOW_HTTP"`
	// WebhookAllowPrivate lets webhooks reach loopback and private networks.
	WebhookAllowPrivate bool `env:"LINKREEL_WEBHOOK_ALLOW_PRIVATE"`
	// WebhookResolver is host:port of the DNS server that receivers are looked up
	// with; empty means the system's.
	WebhookResolver string `env:"LINKREEL_WEBHOOK_RESOLVER"`
	// EgressProxy is the http:// address of a proxy (CONNECT) that webhooks go
	// through; empty calls receivers directly.
	EgressProxy string `env:"LINKREEL_EGRESS_PROXY"`

	// WebhookLanes is into how many ranges the index of due deliveries is split, up to
	// 256; 0 is 32. Each takes some 250 deliveries a second.
	WebhookLanes int `env:"LINKREEL_WEBHOOK_LANES" envDefault:"32"`

	// SweepEvery is how often the service looks for events and deliveries whose wake-up was lost.
	SweepEvery time.Duration `env:"LINKREEL_EVENTS_SWEEP" envDefault:"10s"`

	// OwnPorts are the ports of this machine that Linkreel itself listens on, where all
	// of it is one process. Webhooks never reach them. In a cluster the NetworkPolicy
	// keeps events from what the other pods listen on.
	OwnPorts []uint16 `env:"-"`
	// Now is the clock; nil is the system's.
	Now func() time.Time `env:"-"`
	// Roots verify receivers' certificates; nil is the system's.
	Roots *x509.CertPool `env:"-"`
	// CallTimeout replaces the fifteen seconds a receiver has; tests shorten it.
	CallTimeout time.Duration `env:"-"`
}

// New makes the service. It connects lazily, so it starts while Firestore, Redis
// or auth is down.
func New(ctx context.Context, cfg Config) (_ *boot.Service, err error) {
	if cfg.InternalToken == "" {
		return nil, errors.New("events: LINKREEL_INTERNAL_TOKEN is not set")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.WebhookLanes < 0 || cfg.WebhookLanes > webhook.MaxLanes {
		return nil, fmt.Errorf("events: LINKREEL_WEBHOOK_LANES is %d; use a number from 1 to %d", cfg.WebhookLanes, webhook.MaxLanes)
	}
	if cfg.WebhookLanes == 0 {
		cfg.WebhookLanes = 32
	}
	if cfg.SweepEvery <= 0 {
		cfg.SweepEvery = 10 * time.Second
	}
	keys, err := seal.New("linkreel webhook secret 1", cfg.WebhookSecretKey)
	if err != nil {
		return nil, fmt.Errorf("events: LINKREEL_WEBHOOK_SECRET_KEY: %w", err)
	}
	policy := caller.Policy{AllowHTTP: cfg.WebhookAllowHTTP, AllowPrivate: cfg.WebhookAllowPrivate, Own: cfg.OwnPorts}
	call, err := caller.New(caller.Config{Policy: policy, Resolver: cfg.WebhookResolver, Proxy: cfg.EgressProxy, Roots: cfg.Roots, Timeout: cfg.CallTimeout})
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	db, err := firestoredb.Open(ctx, cfg.Firestore)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	rdb, err := redisdb.Open(redisdb.Config{URL: cfg.RedisURL, Password: cfg.RedisPassword, CAFile: cfg.RedisCAFile})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("events: %w", err), db.Close())
	}
	source := remote.New(cfg.AuthURL, cfg.InternalToken)
	auth := apikey.New(apikey.Config{Now: cfg.Now}, source, rdb)

	outbox := outbox.New(db, rdb, cfg.Now)
	kept := store.New(db, keys, outbox, cfg.Now, api.Shown, cfg.WebhookLanes)
	engine := delivery.New(kept, call.Send, rdb, delivery.Options{Now: cfg.Now, Sweep: cfg.SweepEvery, Lanes: cfg.WebhookLanes})
	reader := feed.NewService(kept, feed.Settler{Settle: engine.Settle, News: engine.News})
	hooks := webhook.NewService(kept, engine, cfg.Now, api.Shown)

	public := httpapi.New(httpapi.Options{
		Name: "events", Auth: auth, Idempotency: idempotency.NewFirestore(db, peer.Shown(cfg.InternalToken), cfg.Now),
		Proxies: httpserver.Proxies{Trusted: cfg.TrustedProxies, Hops: cfg.TrustedProxyHops}, BaseURL: cfg.BaseURL, CORSOrigins: cfg.CORSOrigins,
		// A reader may hold its request for 25 seconds.
		Timeout: 40 * time.Second, Now: cfg.Now,
	})
	api.Routes(public, api.Options{Feed: reader, Webhooks: hooks, Policy: policy})
	accounts := tenancy.New(store.Standings(db), kept, engine, cfg.Now)
	internal := httpapi.New(httpapi.Options{Name: "events-internal", Now: cfg.Now})
	wire.Routes(internal, cfg.InternalToken, api.Holder(accounts, hooks, reader))
	return &boot.Service{
		Name: "events",
		Servers: []boot.Server{
			{Name: "api", Addr: cfg.APIAddr, Handler: public.Handler()},
			{Name: "internal", Addr: cfg.InternalAddr, Handler: internal.Handler()},
		},
		Loops: []boot.Loop{
			{Name: "event wake-ups", Run: outbox.Run},
			{Name: "webhooks", Run: engine.Run},
			{Name: "accounts", Run: accounts.Run},
			boot.Every(6*cfg.SweepEvery, "webhook secrets", hooks.Reseal, nil),
		},
		// Held requests end before the listener waits for them.
		Stopping: []func(){reader.Stop},
		WarmUp:   []boot.Call{{To: "Firestore", Do: db.Ping}, {To: "Redis", Do: func(ctx context.Context) error { return rdb.Ping(ctx).Err() }}, boot.Reach("auth", cfg.AuthURL)},
		Close: []func(context.Context) error{
			func(context.Context) error { call.Close(); auth.Close(); source.Close(); return rdb.Close() },
			func(context.Context) error { return db.Close() },
		},
	}, nil
}
