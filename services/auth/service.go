// Package auth is the service for accounts, their members and API keys. It serves their public
// routes and the operator's routes, and verifies keys for the other services. It receives every
// request to the base URL that no other service handles, so it also serves the documentation
// and the 404 pages.
package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/apikey/remote"
	"github.com/linkreel/linkreel/libs/backing"
	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/dedup"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/peer"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/tenant/wire"
	"github.com/linkreel/linkreel/libs/trail"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/api"
	"github.com/linkreel/linkreel/services/auth/internal/member"
	proof "github.com/linkreel/linkreel/services/auth/internal/signin"
	"github.com/linkreel/linkreel/services/auth/internal/store"
	"github.com/linkreel/linkreel/services/auth/internal/tenancy"
)

// Config is the service's configuration.
type Config struct {
	backing.Config
	backing.Public

	// OperatorAddr is the address to listen on for the operator's routes. Do not expose it
	// through an ingress.
	OperatorAddr string `env:"LINKREEL_OPERATOR_ADDR" envDefault:":8082"`
	// AdminToken is the operator's bearer token. If it is empty, the operator's routes reject every
	// call.
	AdminToken string `env:"LINKREEL_ADMIN_TOKEN"`
	// LinksURL, VideosURL and EventsURL are the internal addresses of the services that hold
	// accounts' records. auth sends its decisions about accounts to them. An empty address means
	// that the deployment does not run that service.
	LinksURL  string `env:"LINKREEL_LINKS_URL"`
	VideosURL string `env:"LINKREEL_VIDEOS_URL"`
	EventsURL string `env:"LINKREEL_EVENTS_URL"`
	// InternalToken is auth's own secret. It seals unfinished sign-ins. It is also the token of
	// every service whose token is not set below.
	InternalToken string `env:"LINKREEL_INTERNAL_TOKEN,notEmpty"`
	// LinksToken and the others are the secrets that auth shares with each service, written as
	// "NEW,OLD" during a rotation. libs/peer documents what each service may access.
	LinksToken   string `env:"LINKREEL_LINKS_TOKEN"`
	VideosToken  string `env:"LINKREEL_VIDEOS_TOKEN"`
	EventsToken  string `env:"LINKREEL_EVENTS_TOKEN"`
	ConsoleToken string `env:"LINKREEL_CONSOLE_TOKEN"`
	Audit
	// RateLimits limits the requests per minute on each plan, such as "free:60,creator:600". The
	// four plans' defaults are 60, 600, 1,200 and 3,000.
	RateLimits map[string]int `env:"LINKREEL_RATE_LIMITS"`
	// QuotaLinks, QuotaVideos and QuotaDomains limit how many records an account may have on each
	// plan, in the same format. A plan that is not listed is unlimited.
	QuotaLinks   map[string]int `env:"LINKREEL_QUOTA_LINKS"`
	QuotaVideos  map[string]int `env:"LINKREEL_QUOTA_VIDEOS"`
	QuotaDomains map[string]int `env:"LINKREEL_QUOTA_DOMAINS"`
	// QuotaStoredBytes is how many bytes an account's videos may occupy on each plan.
	QuotaStoredBytes map[string]int `env:"LINKREEL_QUOTA_STORED_BYTES"`

	// One-time links start with BaseURL, and passkeys and the identity provider's responses are
	// bound to it.
	OIDC OIDC `envPrefix:"LINKREEL_OIDC_"`
}

// Audit configures the location of the revocation trail, which records revoked keys, removed
// members, suspended accounts and takedowns for restores. If neither location is set, there is
// no trail.
type Audit struct {
	// AuditDir is a folder that all replicas share.
	AuditDir string `env:"LINKREEL_AUDIT_DIR"`
	// AuditBucket is a bucket. The names of the trail's objects begin with audit/.
	AuditBucket string `env:"LINKREEL_AUDIT_BUCKET"`
	// Storage configures access to AuditBucket. Its own Bucket is not used.
	Storage objectstore.Config `envPrefix:"LINKREEL_"`
}

// Open returns the trail, or nil if there is none. It creates the folder. The caller closes it.
func (a Audit) Open(ctx context.Context) (trail.Store, func() error, error) {
	return a.open(ctx, trail.OpenFolder)
}

// OpenToRead is like [Audit.Open], but for a restore. The folder must exist, so an unmounted disk
// does not look like an empty trail.
func (a Audit) OpenToRead(ctx context.Context) (trail.Store, func() error, error) {
	return a.open(ctx, func(dir string) (trail.Folder, error) {
		if _, err := os.Stat(dir); err != nil {
			return "", fmt.Errorf("trail folder (is its disk mounted?): %w", err)
		}
		return trail.Folder(dir), nil
	})
}

func (a Audit) open(ctx context.Context, folder func(string) (trail.Folder, error)) (_ trail.Store, done func() error, err error) {
	done = func() error { return nil }
	switch {
	case a.AuditDir != "" && a.AuditBucket != "":
		return nil, done, errors.New("set LINKREEL_AUDIT_DIR or LINKREEL_AUDIT_BUCKET, not both")
	case a.AuditDir != "":
		dir, err := folder(a.AuditDir)
		if err != nil {
			return nil, done, fmt.Errorf("LINKREEL_AUDIT_DIR: %w", err)
		}
		return dir, done, nil
	case a.AuditBucket != "":
		a.Storage.Bucket = a.AuditBucket
		objects, err := objectstore.Open(ctx, a.Storage)
		if err != nil {
			return nil, done, fmt.Errorf("LINKREEL_AUDIT_BUCKET: %w", err)
		}
		return trail.OpenBucket(objects, a.AuditBucket), objects.Close, nil
	}
	return nil, done, nil
}

// OIDC configures the identity provider that people sign in with. Without an issuer, they sign
// in with passkeys and one-time links.
type OIDC struct {
	// Issuer is the provider's issuer URL, spelled exactly as the provider spells it.
	Issuer       string `env:"ISSUER"`
	ClientID     string `env:"CLIENT_ID"`
	ClientSecret string `env:"CLIENT_SECRET"`
	// Name is shown on the button "Continue with …". If it is empty, the issuer's host is shown.
	Name string `env:"NAME"`
	// Scopes are the scopes that a sign-in requests. openid is always requested.
	Scopes []string `env:"SCOPES" envDefault:"openid,profile,email"`
	// Roles maps the provider's groups to roles in Account, such as "staff:member,ops:admin". A
	// person in several groups gets the highest role. The map is applied at each sign-in.
	Roles       map[string]string `env:"ROLES"`
	Account     string            `env:"ACCOUNT"`
	GroupsClaim string            `env:"GROUPS_CLAIM" envDefault:"groups"`
	// MaxAge is how long a group-based membership lasts after the provider has confirmed it at
	// sign-in. After that, the member's sessions and passkeys are rejected, and the membership ends
	// along with the keys that the member created. The minimum is one minute.
	MaxAge time.Duration `env:"MAX_AGE" envDefault:"24h"`
}

// groups parses the group-to-role map.
func (o OIDC) groups() (member.GroupMap, error) {
	out := member.GroupMap{AccountID: o.Account, Roles: map[string]identity.Role{}}
	if (len(o.Roles) > 0) != (o.Account != "") {
		return out, errors.New("set both LINKREEL_OIDC_ROLES and LINKREEL_OIDC_ACCOUNT, or neither")
	}
	for group, name := range o.Roles {
		role, err := identity.ParseRole(name)
		if err != nil {
			return out, fmt.Errorf("LINKREEL_OIDC_ROLES: %q: %w", name, err)
		}
		out.Roles[group] = role
	}
	return out, nil
}

// New returns the service. It connects lazily, so the service starts even while Firestore or
// Redis is down.
func New(ctx context.Context, cfg Config) (_ *boot.Service, err error) {
	svc := &boot.Service{Name: "auth"}
	defer svc.Abandon(ctx, &err)
	plans, err := cfg.plans()
	if err != nil {
		return nil, err
	}
	if cfg.InternalToken == "" {
		return nil, errors.New("LINKREEL_INTERNAL_TOKEN is not set")
	}
	cfg.BaseURL = cmp.Or(cfg.BaseURL, "http://localhost:8080")
	stores, err := backing.Open(ctx, svc, &cfg.Config)
	if err != nil {
		return nil, err
	}
	stores.Await()
	records := record.Open(stores.DB, record.Options{Outbox: stores.Outbox(), Now: cfg.Now})
	kept := store.New(records, api.Shown)
	audit, done, err := cfg.Audit.Open(ctx)
	if err != nil {
		return nil, err
	}
	svc.CloseWith(done)
	kept.Trail = trail.Open(trail.Config{Store: audit, Installation: stores.DB.Installation, Now: cfg.Now})
	svc.Close = append(svc.Close, kept.Trail.Flush)
	source := api.NewSource(kept, plans, cfg.Now)
	client := apikey.New(apikey.Config{Now: cfg.Now}, source, stores.Redis)
	records.TellAuthority(client.InvalidateAccount)
	holders := cfg.holders()
	// The client's background calls use Redis, so they must stop before the connection to Redis is
	// closed.
	svc.CloseWith(func() error {
		for _, h := range holders {
			h.Close()
		}
		client.Close()
		return nil
	})
	svc.Close = append(svc.Close, source.Flush)
	tenants := tenancy.NewService(kept, holders, cfg.Now)
	accounts := account.NewService(kept, tenants.Settle, cfg.Now)
	people, signIn, err := cfg.people(kept, client, stores.Redis)
	if err != nil {
		return nil, err
	}

	options := stores.API(cfg.Public, client, cfg.InternalToken)
	options.Page = api.ErrorPage
	public := httpapi.New(options)
	api.Public(public, accounts, plans, domains(holders))
	api.Export(public, accounts, people.Members, tenants)
	people.Public(public)
	api.Site(public)
	operator := httpapi.New(httpapi.Options{
		Name: "auth-operator", Idempotency: options.Idempotency, Proxies: options.Proxies, Now: cfg.Now,
	})
	api.Operator(operator, accounts, cfg.AdminToken)
	api.Tenancy(operator, tenants, cfg.AdminToken)
	people.Operator(operator, cfg.AdminToken)
	api.Recovery(operator, stores.DB, cfg.AdminToken)
	internal := httpapi.New(httpapi.Options{Name: "auth-internal", Peers: true, Now: cfg.Now})
	door := peer.NewDoor(internal, cfg.tokens())
	signIn.Routes(door)
	remote.Routes(door, source, source)

	svc.Servers = []boot.Server{
		{Name: "api", Addr: cfg.APIAddr, Handler: public.Handler()},
		{Name: "admin", Addr: cfg.OperatorAddr, Handler: operator.Handler()},
		{Name: "internal", Addr: cfg.InternalAddr, Handler: internal.Handler()},
	}
	stores.Watch(kept.Erasing())
	svc.Loops = append(svc.Loops,
		boot.Every(5*time.Second, "key uses", source.Flush, nil),
		boot.Every(5*time.Second, "revocation trail", kept.Trail.Flush, nil),
		boot.Sweep(stores.Turns(), dedup.Pace{What: "account decisions", Every: tenancy.Every, Idle: tenancy.Idle}, tenants.Repeat, nil),
		boot.Every(member.LapseEvery, "group-based memberships", people.Members.EndLapsed, nil))
	return svc, nil
}

// tokens returns the tokens of the services that call auth or that auth calls.
func (c Config) tokens() map[peer.Service]string {
	return map[peer.Service]string{
		peer.Links: cmp.Or(c.LinksToken, c.InternalToken), peer.Videos: cmp.Or(c.VideosToken, c.InternalToken),
		peer.Events: cmp.Or(c.EventsToken, c.InternalToken), peer.Console: cmp.Or(c.ConsoleToken, c.InternalToken),
	}
}

// holders returns the services that hold accounts' records.
func (c Config) holders() []tenancy.Holder {
	var all []tenancy.Holder
	// events comes last: links and videos may still write events while they erase, and an
	// erasure asks the holders in this order whether they have finished.
	for _, at := range []struct {
		name      peer.Service
		kind, url string
	}{{peer.Links, tenant.KindLink, c.LinksURL}, {peer.Videos, tenant.KindVideo, c.VideosURL}, {peer.Events, "", c.EventsURL}} {
		if at.url != "" { // otherwise, the deployment does not run the service
			all = append(all, tenancy.Holder{Name: string(at.name), Kind: at.kind, Holder: wire.NewClient(at.url, c.tokens()[at.name])})
		}
	}
	return all
}

// domains returns the service that provides custom domains, or nil if there is none.
func domains(holders []tenancy.Holder) tenant.Domains {
	for _, h := range holders {
		if d, ok := h.Holder.(tenant.Domains); ok && h.Kind == tenant.KindLink {
			return d
		}
	}
	return nil
}

// people returns the routes for members and for signing in.
func (c Config) people(kept *store.Store, client *apikey.Client, rdb redis.UniversalClient) (api.People, api.SignIn, error) {
	now := c.Now
	groups, err := c.OIDC.groups()
	if err != nil {
		return api.People{}, api.SignIn{}, err
	}
	sealer, err := proof.NewSealer(c.InternalToken, now)
	if err != nil {
		return api.People{}, api.SignIn{}, err
	}
	passkeys, err := proof.NewPasskeys(c.BaseURL, sealer)
	if err != nil {
		return api.People{}, api.SignIn{}, err
	}
	if c.OIDC.MaxAge != 0 && c.OIDC.MaxAge < time.Minute {
		return api.People{}, api.SignIn{}, fmt.Errorf("LINKREEL_OIDC_MAX_AGE: %s is too short; use at least a minute", c.OIDC.MaxAge)
	}
	members := member.NewService(kept, member.Provider{Issuer: c.OIDC.Issuer, MaxAge: c.OIDC.MaxAge}, now)
	tries := ratelimit.New(rdb, now)
	signIn := api.SignIn{Members: members, Auth: client, Groups: groups, Passkeys: passkeys, PasskeysWork: proof.Work(c.BaseURL), Tries: tries}
	if c.OIDC.Issuer != "" {
		if c.OIDC.ClientID == "" {
			return api.People{}, api.SignIn{}, errors.New("LINKREEL_OIDC_ISSUER requires LINKREEL_OIDC_CLIENT_ID")
		}
		signIn.OIDC = proof.NewOIDC(proof.OIDCConfig{
			Issuer: c.OIDC.Issuer, ClientID: c.OIDC.ClientID, ClientSecret: c.OIDC.ClientSecret, Name: c.OIDC.Name,
			Scopes: c.OIDC.Scopes, GroupsClaim: c.OIDC.GroupsClaim, RedirectURL: strings.TrimRight(c.BaseURL, "/") + "/app/sign-in/callback",
		}, sealer, nil, now)
	}
	return api.People{Members: members, BaseURL: c.BaseURL, Tries: tries}, signIn, nil
}

func (c Config) plans() (api.Plans, error) {
	plans := api.UsualPlans()
	for _, setting := range []struct {
		name  string
		from  map[string]int
		least int // a quota of 0 means unlimited
		set   func(a *api.Allowance, n int)
	}{
		{"LINKREEL_RATE_LIMITS", c.RateLimits, 1, func(a *api.Allowance, n int) { a.PerMinute = n }},
		{"LINKREEL_QUOTA_LINKS", c.QuotaLinks, 0, func(a *api.Allowance, n int) { a.Quotas.Links = n }},
		{"LINKREEL_QUOTA_VIDEOS", c.QuotaVideos, 0, func(a *api.Allowance, n int) { a.Quotas.Videos = n }},
		{"LINKREEL_QUOTA_DOMAINS", c.QuotaDomains, 0, func(a *api.Allowance, n int) { a.Quotas.Domains = n }},
		{"LINKREEL_QUOTA_STORED_BYTES", c.QuotaStoredBytes, 0, func(a *api.Allowance, n int) { a.Quotas.StoredBytes = int64(n) }},
	} {
		for name, n := range setting.from {
			plan, err := identity.ParsePlan(name)
			if err != nil {
				return nil, fmt.Errorf("%s: %q: %w", setting.name, name, err)
			}
			if n < setting.least {
				return nil, fmt.Errorf("%s: %s: %d is too small", setting.name, name, n)
			}
			allowed := plans[plan]
			setting.set(&allowed, n)
			plans[plan] = allowed
		}
	}
	return plans, nil
}
