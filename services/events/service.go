// Package events is the service that reports changes in each account's event feed and through
// webhooks. No other service calls URLs that users supply.
package events

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/linkreel/linkreel/libs/backing"
	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/seal"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/tenant/keeper"
	"github.com/linkreel/linkreel/libs/tenant/wire"
	"github.com/linkreel/linkreel/services/events/internal/api"
	"github.com/linkreel/linkreel/services/events/internal/caller"
	"github.com/linkreel/linkreel/services/events/internal/delivery"
	"github.com/linkreel/linkreel/services/events/internal/feed"
	"github.com/linkreel/linkreel/services/events/internal/store"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// Config is the service's configuration.
type Config struct {
	backing.Config
	backing.Public
	backing.Auth

	// WebhookSecretKey seals webhooks' secrets. It contains one or more keys, separated by
	// commas, of at least 32 random characters each. The first key seals, and all keys can
	// decrypt.
	WebhookSecretKey string `env:"LINKREEL_WEBHOOK_SECRET_KEY,notEmpty"`
	// WebhookAllowHTTP lets webhooks use plain http.
	WebhookAllowHTTP bool `env:"LINKREEL_WEBHOOK_ALLOW_HTTP"`
	// WebhookAllowPrivate lets webhooks reach loopback and private networks.
	WebhookAllowPrivate bool `env:"LINKREEL_WEBHOOK_ALLOW_PRIVATE"`
	// WebhookResolver is the host:port of the DNS server for receivers' names. If it is
	// empty, the service uses the system's resolver.
	WebhookResolver string `env:"LINKREEL_WEBHOOK_RESOLVER"`
	// EgressProxy is the http:// URL of a CONNECT proxy for webhooks. If it is empty, the service
	// calls receivers directly.
	EgressProxy string `env:"LINKREEL_EGRESS_PROXY"`

	// WebhookLanes is the number of ranges in the index of due deliveries, up to 256. 0 means
	// 32. Each range can take about 250 deliveries per second that fail their first attempt.
	WebhookLanes int `env:"LINKREEL_WEBHOOK_LANES" envDefault:"32"`

	// SweepEvery is the interval at which the service looks for events and deliveries that lost
	// their wake-up.
	SweepEvery time.Duration `env:"LINKREEL_EVENTS_SWEEP" envDefault:"10s"`

	// OwnPorts are the ports on which Linkreel listens on this machine, if it runs as a single
	// process. Webhooks can never reach them. In a cluster, the NetworkPolicy keeps this service
	// from calling other pods' ports.
	OwnPorts []uint16 `env:"-"`
	// Roots are the root certificates for receivers. If Roots is nil, the service uses the
	// system's.
	Roots *x509.CertPool `env:"-"`
	// CallTimeout replaces the 15-second limit on a receiver's response, so that tests can
	// use a shorter one.
	CallTimeout time.Duration `env:"-"`
}

// sealPurpose distinguishes the seals on webhooks' secrets from other services' seals.
const sealPurpose = "linkreel webhook secret 1"

// KeyIDs returns the IDs of the keys in webhookSecretKey, a value of
// LINKREEL_WEBHOOK_SECRET_KEY. Backups use them to identify keys.
func KeyIDs(webhookSecretKey string) ([]string, error) {
	keys, err := seal.New(sealPurpose, webhookSecretKey)
	if err != nil {
		return nil, fmt.Errorf("LINKREEL_WEBHOOK_SECRET_KEY: %w", err)
	}
	return keys.IDs(), nil
}

// New returns the service. It connects lazily, so the service starts even while Firestore,
// Redis or auth is down.
func New(ctx context.Context, cfg Config) (_ *boot.Service, err error) {
	svc := &boot.Service{Name: "events"}
	defer svc.Abandon(ctx, &err)
	if cfg.WebhookLanes < 0 || cfg.WebhookLanes > webhook.MaxLanes {
		return nil, fmt.Errorf("LINKREEL_WEBHOOK_LANES is %d; use a number from 1 to %d", cfg.WebhookLanes, webhook.MaxLanes)
	}
	cfg.WebhookLanes = cmp.Or(cfg.WebhookLanes, 32)
	cfg.SweepEvery = cmp.Or(cfg.SweepEvery, 10*time.Second)
	keys, err := seal.New(sealPurpose, cfg.WebhookSecretKey)
	if err != nil {
		return nil, fmt.Errorf("LINKREEL_WEBHOOK_SECRET_KEY: %w", err)
	}
	stores, err := backing.Open(ctx, svc, &cfg.Config)
	if err != nil {
		return nil, err
	}
	stores.Await()
	auth, _, err := stores.Keys(cfg.Auth)
	if err != nil {
		return nil, err
	}
	policy := caller.Policy{AllowHTTP: cfg.WebhookAllowHTTP, AllowPrivate: cfg.WebhookAllowPrivate, Own: cfg.OwnPorts}
	call, err := caller.New(caller.Config{
		Policy: policy, Resolver: cfg.WebhookResolver, Proxy: cfg.EgressProxy, Roots: cfg.Roots, Timeout: cfg.CallTimeout,
	})
	if err != nil {
		return nil, err
	}
	svc.CloseWith(func() error { call.Close(); return nil })

	kept := store.New(stores.DB, keys, stores.Outbox(), cfg.Now, api.Shown, cfg.WebhookLanes)
	restore := stores.Restored()
	engine := delivery.New(kept, call.Send, stores.Redis, delivery.Options{
		Now: cfg.Now, Sweep: cfg.SweepEvery, Lanes: cfg.WebhookLanes,
		Hold: func() (held bool, since time.Time) {
			r, known := restore.Last()
			return !known || r.WebhooksPaused(), r.WebhooksResumedAt
		},
		Restore: func(ctx context.Context) (string, error) {
			r, err := restore.Get(ctx)
			return r.ID, err
		},
	})
	restore.OnChange(engine.Released)
	reader := feed.NewService(kept, feed.Settler{Settle: engine.Settle, News: engine.News}, func() string {
		r, _ := restore.Last()
		if cfg.Now().Sub(r.RestoredAt) > events.Kept {
			return ""
		}
		return r.ID
	})
	hooks := webhook.NewService(kept, engine, cfg.Now, api.Shown)

	options := stores.API(cfg.Public, auth, cfg.InternalToken)
	options.Timeout = 40 * time.Second // a reader may keep its request open for 25 seconds
	public := httpapi.New(options)
	api.Routes(public, api.Options{Feed: reader, Webhooks: hooks, Policy: policy, Paused: func() bool {
		r, _ := restore.Last()
		return r.WebhooksPaused()
	}})
	// Each attempt reads the account's state together with the webhook. Once a new state is stored,
	// replicas no longer start attempts under the old one.
	accounts := keeper.New(keeper.Options{
		Standings: store.Standings(stores.DB), Now: cfg.Now, Turns: stores.Turns(), Erase: kept.EraseSome, Remains: kept.Remains, Resume: engine.Resume,
		Changed: func(ctx context.Context, account string, s tenant.State) (err error) {
			if s == tenant.Active {
				// The keeper's loop does the same a few seconds later, in case this replica is killed
				// first.
				_, err = engine.Resume(ctx, account)
			}
			return err
		},
	})
	internal := httpapi.New(httpapi.Options{Name: "events-internal", Now: cfg.Now})
	wire.Routes(internal, cfg.InternalToken, api.Holder(accounts, hooks, reader))

	svc.Servers = []boot.Server{
		{Name: "api", Addr: cfg.APIAddr, Handler: public.Handler()},
		{Name: "internal", Addr: cfg.InternalAddr, Handler: internal.Handler()},
	}
	stores.Watch(kept.Waits()...)
	svc.Loops = append(svc.Loops,
		boot.Loop{Name: "webhooks", Run: engine.Run},
		boot.Loop{Name: "accounts", Run: accounts.Run},
		boot.Every(6*cfg.SweepEvery, "webhook secrets", kept.Rotation().Round, nil))
	// End held requests before the listener waits for open requests.
	svc.Stopping = []func(){reader.Stop}
	return svc, nil
}
