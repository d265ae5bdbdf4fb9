// Package links is the service of short links: the API for links and domains,
// and the redirects themselves.
//
// The three listeners differ in who may reach them and in what they cost: "api"
// for callers with a key, "redirect" for visitors, "internal" for the cluster.
package links

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/oschwald/maxminddb-golang/v2"
	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/backing"
	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/httpserver"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/ratelimit"
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
	backing.Config
	backing.Public
	backing.Auth

	// RedirectAddr is the listener for visitors: the short host and custom hosts.
	RedirectAddr string `env:"LINKREEL_REDIRECT_ADDR" envDefault:":8081"`
	// ShortBaseURL is the address of the short host; a link is at it, a slash, and its slug.
	ShortBaseURL string `env:"LINKREEL_SHORT_BASE_URL" envDefault:"http://localhost:8081"`

	// ClicksRedisURL is a Redis of its own for the click log and the log of changes; empty means Redis.
	ClicksRedisURL string `env:"LINKREEL_CLICKS_REDIS_URL"`
	// ClicksRedisPassword is used when ClicksRedisURL has none.
	ClicksRedisPassword string `env:"LINKREEL_CLICKS_REDIS_PASSWORD"`
	// ClickPartitions splits the click log and the log of changes, 1 to 64, so that several servers of a Cluster share the work.
	ClickPartitions int `env:"LINKREEL_CLICK_PARTITIONS" envDefault:"1"`
	// ClickLogBytes bounds the clicks that wait in Redis. Beyond it they wait in the spool of each replica.
	ClickLogBytes int64 `env:"LINKREEL_CLICK_LOG_BYTES" envDefault:"67108864"`
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
}

// New makes the service. It connects lazily, so it starts while Firestore, Redis
// or auth is down.
func New(ctx context.Context, cfg Config) (_ *boot.Service, err error) {
	svc := &boot.Service{Name: "links"}
	defer svc.Abandon(ctx, &err)
	if cfg.ClickPartitions < 0 || cfg.ClickPartitions > invalidation.MaxPartitions {
		return nil, fmt.Errorf("LINKREEL_CLICK_PARTITIONS is %d, want 1 to %d", cfg.ClickPartitions, invalidation.MaxPartitions)
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
	db, rdb := stores.DB, stores.Redis
	country, closeCountry, err := cfg.country()
	if err != nil {
		return nil, err
	}
	svc.CloseWith(closeCountry)
	dns, err := customdomain.NewDNS(cfg.DNSResolver)
	if err != nil {
		return nil, err
	}

	var blocked *link.Blocklist
	if cfg.BlockedDestinations != "" {
		if blocked, err = link.OpenBlocklist(cfg.BlockedDestinations); err != nil {
			return nil, err
		}
	}

	own := redirect.OwnHosts(cfg.ShortBaseURL)
	routes := api.Options{ShortBaseURL: cfg.ShortBaseURL, Own: own, DomainTarget: cfg.DomainTarget, Certificates: cfg.TLSAddr != "", Now: cfg.Now}
	outbox := stores.Outbox()
	shownLink, shownDomain := api.Shown(routes)
	kept := store.New(db, cfg.Now).Tell(store.Teller{Outbox: outbox, Link: shownLink, Domain: shownDomain})
	memory := invalidation.NewMemory(invalidation.Options{Store: kept, Suspended: kept.Suspended, Capacity: cfg.CacheBytes, Partitions: cfg.ClickPartitions, Now: cfg.Now})
	clicksRedis := cfg.Redis
	if cfg.ClicksRedisURL != "" {
		// A Redis without a password refuses to be given another one's.
		clicksRedis.URL, clicksRedis.Password = cfg.ClicksRedisURL, cfg.ClicksRedisPassword
	}
	log, err := clicks.Open(clicks.Config{Redis: clicksRedis, Bytes: cfg.ClickLogBytes, SpoolDir: cfg.SpoolDir, SpoolMax: cfg.SpoolBytes, Budget: cfg.ClickBudget, Now: cfg.Now}, memory)
	if err != nil {
		return nil, err
	}
	// Counting and announcing wait longer for Redis than redirects do.
	patient, err := clicks.OpenPatient(clicksRedis, memory.Partitions())
	if err != nil {
		return nil, err
	}
	svc.CloseWith(patient.Close)
	announcer := invalidation.NewAnnouncer(patient, memory, identity.NewNonce())
	svc.Loops = append(svc.Loops,
		boot.Loop{Name: "click log", Run: log.Run},
		boot.Loop{Name: "announcer", Run: announcer.Run})
	if cfg.Flush {
		counts := func(part int) clicks.Counts { return kept.Counts(part, memory.Partitions(), clicks.ErrOvertaken) }
		svc.Loops = append(svc.Loops, boot.Loop{Name: "click flusher", Run: clicks.NewFlushers(patient, memory.Partitions(), counts, cfg.Now).Run})
		if cfg.ClicksRedisURL != "" {
			// What waits where clicks were before they had a Redis of their own.
			former, err := clicks.OpenPatient(cfg.Redis, 0)
			if err != nil {
				return nil, err
			}
			svc.CloseWith(former.Close)
			svc.Loops = append(svc.Loops, boot.Loop{Name: "former click flusher", Run: clicks.NewFlushers(former, 0, counts, cfg.Now).Run})
		}
	}

	public := httpapi.New(stores.API(cfg.Public, auth, cfg.InternalToken))
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
		certificates, err := cfg.certificates(kept.Certificates(), memory, own, misses, ratelimit.New(rdb, cfg.Now))
		if err != nil {
			return nil, err
		}
		// Open orders must be noted before the database closes.
		svc.Close = append(svc.Close, certificates.Close)
		svc.Loops = append(svc.Loops, boot.Every(cfg.CertificateSweep, "certificates", certificates.Sweep, nil))
		servers[1].Handler = cfg.challenges(certificates, serve)
		servers = append(servers, boot.Server{Name: "tls", Addr: cfg.TLSAddr, Handler: serve, TLS: certificates.TLS()})
	}
	svc.Servers = servers
	svc.Loops = append(svc.Loops,
		boot.Every(time.Minute, "domain proofs", domains.RecheckDue, nil),
		boot.Every(tags.SweepEvery, "unused tags", kept.SweepTags, nil),
		boot.Loop{Name: "account purge", Run: accounts.Purge},
		boot.Every(2*time.Second, "blocked destinations", blocked.Refresh, nil))
	// Warm redirects work without any of these.
	svc.WarmUp = append(svc.WarmUp, boot.Call{To: "Redis, for clicks", Do: log.Ping})
	return svc, nil
}

// country builds the lookup of a visitor's country. The address is used for the
// lookup and kept nowhere.
func (c Config) country() (lookup func(*fasthttp.RequestCtx) string, closeIt func() error, err error) {
	closeIt = func() error { return nil }
	var db *maxminddb.Reader
	if c.GeoIPFile != "" {
		if db, err = maxminddb.Open(c.GeoIPFile); err != nil {
			return nil, nil, fmt.Errorf("country database: %w", err)
		}
		closeIt = db.Close
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
	return c.Proxies()
}
