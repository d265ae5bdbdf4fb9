// Package links is the service of short links: the API for links and domains,
// and the redirects themselves.
//
// The three listeners differ in who may reach them and in what they cost: "api"
// for callers with a key, "redirect" for visitors, "internal" for the cluster.
package links

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/oschwald/maxminddb-golang/v2"
	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/apikey/remote"
	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/httpserver"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/peer"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/libs/tags"
	"github.com/linkreel/linkreel/services/links/internal/api"
	"github.com/linkreel/linkreel/services/links/internal/clicks"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/invalidation"
	"github.com/linkreel/linkreel/services/links/internal/link"
	"github.com/linkreel/linkreel/services/links/internal/redirect"
	"github.com/linkreel/linkreel/services/links/internal/store"
	"github.com/linkreel/linkreel/services/links/internal/tenancy"
)

// Config is all that the service can be told.
type Config struct {
	boot.Config
	Firestore firestoredb.Config `envPrefix:"LINKREEL_"`

	// APIAddr is the listener for the API of links and domains.
	APIAddr string `env:"LINKREEL_API_ADDR" envDefault:":8080"`
	// RedirectAddr is the listener for visitors: the short host and custom hosts.
	RedirectAddr string `env:"LINKREEL_REDIRECT_ADDR" envDefault:":8081"`
	// InternalAddr is the listener for the cluster: on-demand TLS asks here.
	InternalAddr string `env:"LINKREEL_INTERNAL_ADDR" envDefault:":8090"`
	// BaseURL is the product's base address, at which the API is.
	BaseURL string `env:"LINKREEL_BASE_URL" envDefault:"http://localhost:8080"`
	// ShortBaseURL is the address of the short host; a link is at it, a slash, and its slug.
	ShortBaseURL string `env:"LINKREEL_SHORT_BASE_URL" envDefault:"http://localhost:8081"`

	// RedisURL is host:port or a redis:// or rediss:// address, also of a Cluster or of Sentinels (libs/redisdb).
	RedisURL string `env:"LINKREEL_REDIS_URL" envDefault:"localhost:6379"`
	// RedisPassword is used when RedisURL has none; it needs no percent-encoding.
	RedisPassword string `env:"LINKREEL_REDIS_PASSWORD"`
	// RedisCAFile has the certificates that rediss addresses are checked with; empty means the system's.
	RedisCAFile string `env:"LINKREEL_REDIS_CA_FILE"`
	// ClicksRedisURL is a Redis of its own for the click log and the log of changes; empty means RedisURL.
	ClicksRedisURL string `env:"LINKREEL_CLICKS_REDIS_URL"`
	// ClicksRedisPassword is used when ClicksRedisURL has none.
	ClicksRedisPassword string `env:"LINKREEL_CLICKS_REDIS_PASSWORD"`
	// ClickPartitions splits the click log and the log of changes, 1 to 64, so that several servers of a Cluster share the work.
	ClickPartitions int `env:"LINKREEL_CLICK_PARTITIONS" envDefault:"1"`
	// ClickLogBytes bounds the clicks that wait in Redis. Beyond it they wait in the spool of each replica.
	ClickLogBytes int64 `env:"LINKREEL_CLICK_LOG_BYTES" envDefault:"67108864"`
	// AuthURL is where auth verifies keys.
	AuthURL string `env:"LINKREEL_AUTH_URL" envDefault:"http://localhost:8090"`
	// InternalToken is what this service and auth show each other: "NEW,OLD" while it is replaced.
	InternalToken string `env:"LINKREEL_INTERNAL_TOKEN,notEmpty"`
	// TrustedProxies are the networks whose X-Forwarded-For and country header are believed.
	TrustedProxies []netip.Prefix `env:"LINKREEL_TRUSTED_PROXIES"`
	// TrustedProxyHops is how many addresses the proxies append to X-Forwarded-For;
	// when set, it takes the place of TrustedProxies. Google's balancers append two.
	TrustedProxyHops int `env:"LINKREEL_TRUSTED_PROXY_HOPS"`
	// CORSOrigins are the origins whose pages may call the API; "*" is any.
	CORSOrigins []string `env:"LINKREEL_CORS_ORIGINS"`

	// CacheBytes bounds the links that a replica keeps in memory.
	CacheBytes int64 `env:"LINKREEL_REDIRECT_CACHE_BYTES" envDefault:"134217728"`
	// SpoolDir keeps clicks on local disk while Redis is away. It should outlive a restart of the container.
	SpoolDir string `env:"LINKREEL_SPOOL_DIR" envDefault:"/var/spool/linkreel"`
	// SpoolBytes bounds the spool; clicks beyond it are lost and metered.
	SpoolBytes int64 `env:"LINKREEL_SPOOL_BYTES" envDefault:"67108864"`
	// ClickBudget is how long a redirect waits for Redis before its click is spooled.
	ClickBudget time.Duration `env:"LINKREEL_CLICK_BUDGET" envDefault:"50ms"`
	// Flush turns the counting of clicks into Firestore on. Replicas agree among themselves which one does it.
	Flush bool `env:"LINKREEL_FLUSH" envDefault:"true"`
	// CountryHeader names the header in which a trusted proxy gives a visitor's country, such as CF-IPCountry.
	CountryHeader string `env:"LINKREEL_COUNTRY_HEADER"`
	// GeoIPFile is a MaxMind country database, for countries without such a header. Addresses are looked up and forgotten.
	GeoIPFile string `env:"LINKREEL_GEOIP_FILE"`
	// DNSResolver is host:port of the resolver that domain proofs are looked up with; empty means the system's.
	DNSResolver string `env:"DNS_RESOLVER"`

	// TLSAddr is the listener that serves visitors of custom domains by TLS, with
	// certificates that are ordered at a domain's first visit; empty serves none.
	TLSAddr string `env:"LINKREEL_TLS_ADDR"`
	// ACMEDirectory is the certificate authority. Whoever sets TLSAddr agrees to its terms.
	ACMEDirectory string `env:"LINKREEL_ACME_DIRECTORY" envDefault:"https://acme-v02.api.letsencrypt.org/directory"`
	// ACMEEmail is where the authority writes to about the account; empty gives none.
	ACMEEmail string `env:"LINKREEL_ACME_EMAIL"`
	// ACMECAFile has the certificates that the authority's own is checked with; empty means the system's.
	ACMECAFile string `env:"LINKREEL_ACME_CA_FILE"`
	// ACMEOrdersPerHour bounds how many certificates all replicas order in an hour. One account gets at most a
	// fifth of them for new certificates, and a fifth for renewals.
	ACMEOrdersPerHour int `env:"LINKREEL_ACME_ORDERS_PER_HOUR" envDefault:"100"`
	// CertificateKey seals private keys: one or more keys of 32 characters or more, separated by commas. The first seals, all open.
	CertificateKey string `env:"LINKREEL_CERTIFICATE_KEY"`
	// CertificateSweep is the time between two looks at which certificates are to be renewed.
	CertificateSweep time.Duration `env:"LINKREEL_CERTIFICATE_SWEEP" envDefault:"1m"`
	// DomainTarget is the name or address that custom domains are to point at; empty is the short host.
	DomainTarget string `env:"LINKREEL_DOMAIN_TARGET"`

	// BlockedDestinations names a file of host names, one a line, each with its
	// subdomains, to which no link may lead. It is read again when it changes.
	BlockedDestinations string `env:"LINKREEL_BLOCKED_DESTINATIONS"`
	// AbuseContact is an address (mailto:, https:, or a plain e-mail address) to which
	// public pages link as "Report".
	AbuseContact string `env:"LINKREEL_ABUSE_CONTACT"`

	// Now is the clock; nil is the system's.
	Now func() time.Time `env:"-"`
}

// New makes the service. It connects lazily, so it starts while Firestore, Redis
// or auth is down.
func New(ctx context.Context, cfg Config) (_ *boot.Service, err error) {
	if cfg.InternalToken == "" {
		return nil, errors.New("links: LINKREEL_INTERNAL_TOKEN is not set")
	}
	if cfg.ClickPartitions < 0 || cfg.ClickPartitions > invalidation.MaxPartitions {
		return nil, fmt.Errorf("links: LINKREEL_CLICK_PARTITIONS is %d, want 1 to %d", cfg.ClickPartitions, invalidation.MaxPartitions)
	}
	var closers []func(context.Context) error
	defer func() {
		if err == nil {
			return
		}
		for _, c := range closers {
			err = errors.Join(err, c(ctx))
		}
	}()
	db, err := firestoredb.Open(ctx, cfg.Firestore)
	if err != nil {
		return nil, fmt.Errorf("links: %w", err)
	}
	closers = append(closers, func(context.Context) error { return db.Close() })
	mainRedis := redisdb.Config{URL: cfg.RedisURL, Password: cfg.RedisPassword, CAFile: cfg.RedisCAFile}
	rdb, err := redisdb.Open(mainRedis)
	if err != nil {
		return nil, fmt.Errorf("links: %w", err)
	}
	source := remote.New(cfg.AuthURL, cfg.InternalToken)
	auth := apikey.New(apikey.Config{Now: cfg.Now}, source, rdb)
	closers = append(closers, func(context.Context) error { auth.Close(); source.Close(); return rdb.Close() })
	country, closeCountry, err := cfg.country()
	if err != nil {
		return nil, fmt.Errorf("links: %w", err)
	}
	closers = append(closers, closeCountry)
	dns, err := customdomain.NewDNS(cfg.DNSResolver)
	if err != nil {
		return nil, fmt.Errorf("links: %w", err)
	}

	var blocked *link.Blocklist
	if cfg.BlockedDestinations != "" {
		if blocked, err = link.OpenBlocklist(cfg.BlockedDestinations); err != nil {
			return nil, fmt.Errorf("links: %w", err)
		}
	}

	own := redirect.OwnHosts(cfg.ShortBaseURL)
	routes := api.Options{ShortBaseURL: cfg.ShortBaseURL, Own: own, DomainTarget: cfg.DomainTarget, Certificates: cfg.TLSAddr != "", Now: cfg.Now}
	outbox := outbox.New(db, rdb, cfg.Now)
	shownLink, shownDomain := api.Shown(routes)
	kept := store.New(db, cfg.Now).Tell(store.Teller{Outbox: outbox, Link: shownLink, Domain: shownDomain})
	memory := invalidation.NewMemory(invalidation.Options{Store: kept, Suspended: kept.Suspended, Capacity: cfg.CacheBytes, Partitions: cfg.ClickPartitions, Now: cfg.Now})
	clicksRedis := mainRedis
	if cfg.ClicksRedisURL != "" {
		// A Redis without a password refuses to be given another one's.
		clicksRedis.URL, clicksRedis.Password = cfg.ClicksRedisURL, cfg.ClicksRedisPassword
	}
	log, err := clicks.Open(clicks.Config{Redis: clicksRedis, Bytes: cfg.ClickLogBytes, SpoolDir: cfg.SpoolDir, SpoolMax: cfg.SpoolBytes, Budget: cfg.ClickBudget, Now: cfg.Now}, memory)
	if err != nil {
		return nil, fmt.Errorf("links: %w", err)
	}
	// Counting and announcing wait longer for Redis than redirects do.
	patient, err := clicks.OpenPatient(clicksRedis, memory.Partitions())
	if err != nil {
		return nil, fmt.Errorf("links: %w", err)
	}
	closers = append(closers, func(context.Context) error { return patient.Close() })
	announcer := invalidation.NewAnnouncer(patient, memory, identity.NewNonce())
	loops := []boot.Loop{{Name: "event wake-ups", Run: outbox.Run}, {Name: "click log", Run: log.Run}, {Name: "announcer", Run: announcer.Run}}
	if cfg.Flush {
		counts := func(part int) clicks.Counts { return kept.Counts(part, memory.Partitions(), clicks.ErrOvertaken) }
		loops = append(loops, boot.Loop{Name: "click flusher", Run: clicks.NewFlushers(patient, memory.Partitions(), counts, cfg.Now).Run})
		if cfg.ClicksRedisURL != "" {
			// What waits where clicks were before they had a Redis of their own.
			former, err := clicks.OpenPatient(mainRedis, 0)
			if err != nil {
				return nil, fmt.Errorf("links: %w", err)
			}
			closers = append(closers, func(context.Context) error { return former.Close() })
			loops = append(loops, boot.Loop{Name: "former click flusher", Run: clicks.NewFlushers(former, 0, counts, cfg.Now).Run})
		}
	}

	public := httpapi.New(httpapi.Options{Name: "links", Auth: auth, Idempotency: idempotency.NewFirestore(db, peer.Shown(cfg.InternalToken), cfg.Now), Proxies: cfg.proxies(), BaseURL: cfg.BaseURL, CORSOrigins: cfg.CORSOrigins, Now: cfg.Now})
	domains := customdomain.NewService(customdomain.Options{Store: kept.Domains(), Announcer: announcer, Resolver: dns, Own: own.Names(), Now: cfg.Now})
	shortLinks := link.NewService(link.Options{Store: kept, Announcer: announcer, Blocked: blocked, Now: cfg.Now})
	accounts := tenancy.NewService(tenancy.Options{Store: kept, Announcer: announcer, Links: shortLinks, Domains: domains, Now: cfg.Now})
	api.Public(public, shortLinks, domains, routes)
	internal := httpapi.New(httpapi.Options{Name: "links-internal", Now: cfg.Now})
	api.Internal(internal, domains, cfg.InternalToken, api.Holder(accounts, shortLinks, domains, routes))
	misses := ratelimit.NewMisses(ratelimit.MissOptions{Now: cfg.Now})
	visitors := redirect.New(memory, log, redirect.Options{ShortBaseURL: cfg.ShortBaseURL, Country: country, Blocked: blocked.Has, AbuseContact: cfg.AbuseContact, Now: cfg.Now,
		Misses: misses, Client: cfg.client,
		Trace: func() (context.Context, func(int)) { return httpapi.Trace("links-redirect", "GET /:slug") }})
	serve := httpserver.StrictTransport(cfg.ShortBaseURL, visitors.Serve)
	servers := []boot.Server{
		{Name: "api", Addr: cfg.APIAddr, Handler: public.Handler()},
		{Name: "redirect", Addr: cfg.RedirectAddr, Handler: serve},
		{Name: "internal", Addr: cfg.InternalAddr, Handler: internal.Handler()},
	}
	if cfg.TLSAddr != "" {
		certificates, err := cfg.certificates(kept.Certificates(), memory, own, misses, ratelimit.New(rdb, cmpNow(cfg.Now)))
		if err != nil {
			return nil, fmt.Errorf("links: %w", err)
		}
		// First: open orders must be noted before the database closes.
		closers = append([]func(context.Context) error{certificates.Close}, closers...)
		loops = append(loops, boot.Every(cfg.CertificateSweep, "certificates", certificates.Sweep, nil))
		servers[1].Handler = cfg.challenges(certificates, serve)
		servers = append(servers, boot.Server{Name: "tls", Addr: cfg.TLSAddr, Handler: serve, TLS: certificates.TLS()})
	}
	return &boot.Service{
		Name:    "links",
		Servers: servers,
		Loops: append(loops,
			boot.Every(time.Minute, "domain proofs", domains.RecheckDue, nil),
			boot.Every(tags.SweepEvery, "unused tags", kept.SweepTags, nil),
			boot.Loop{Name: "account purge", Run: accounts.Purge},
			boot.Every(2*time.Second, "blocked destinations", blocked.Refresh, nil)),
		// Nothing else decides on readiness, and these for half a minute at most: warm
		// redirects work without Firestore, Redis and auth.
		WarmUp: []boot.Call{{To: "Firestore", Do: db.Ping}, {To: "Redis", Do: log.Ping}, {To: "Redis, for limits", Do: func(ctx context.Context) error { return rdb.Ping(ctx).Err() }}, boot.Reach("auth", cfg.AuthURL)},
		Close:  closers,
	}, nil
}

// country builds the lookup of a visitor's country. The address is used for the
// lookup and kept nowhere.
func (c Config) country() (lookup func(*fasthttp.RequestCtx) string, closeIt func(context.Context) error, err error) {
	closeIt = func(context.Context) error { return nil }
	var db *maxminddb.Reader
	if c.GeoIPFile != "" {
		if db, err = maxminddb.Open(c.GeoIPFile); err != nil {
			return nil, nil, fmt.Errorf("country database: %w", err)
		}
		closeIt = func(context.Context) error { return db.Close() }
	}
	if db == nil && c.CountryHeader == "" {
		return nil, closeIt, nil
	}
	header := []byte(c.CountryHeader)
	return func(ctx *fasthttp.RequestCtx) string {
		proxies := c.proxiesOf(ctx)
		if len(header) > 0 && proxies.Believed(ctx) {
			if code := link.Country(string(ctx.Request.Header.PeekBytes(header))); code != "" {
				return code
			}
		}
		if db == nil {
			return ""
		}
		var code string
		addr := proxies.Client(ctx)
		if !addr.IsValid() || db.Lookup(addr).DecodePath(&code, "country", "iso_code") != nil {
			return ""
		}
		return link.Country(code)
	}, closeIt, nil
}

// client is the address of a visitor, for the budget of misses only.
func (c Config) client(ctx *fasthttp.RequestCtx) netip.Addr { return c.proxiesOf(ctx).Client(ctx) }

// proxiesOf are the proxies in front of the request's listener. Visitors reach the
// TLS listener by themselves: what they write in X-Forwarded-For is their own.
func (c Config) proxiesOf(ctx *fasthttp.RequestCtx) httpserver.Proxies {
	if ctx.IsTLS() {
		return httpserver.Proxies{}
	}
	return c.proxies()
}

func (c Config) proxies() httpserver.Proxies {
	return httpserver.Proxies{Trusted: c.TrustedProxies, Hops: c.TrustedProxyHops}
}
