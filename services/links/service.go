// Package links is the short-link service. It contains the API for links and domains, and the
// redirects.
//
// It has three listeners, which differ in who calls them and in what a request costs: "api" for
// callers with a key, "redirect" for visitors, and "internal" for the cluster.
package links

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/oschwald/maxminddb-golang/v2"
	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/backing"
	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/httpserver"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/password"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/libs/tags"
	"github.com/linkreel/linkreel/libs/tenant/keeper"
	"github.com/linkreel/linkreel/services/links/internal/api"
	"github.com/linkreel/linkreel/services/links/internal/clicks"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/invalidation"
	"github.com/linkreel/linkreel/services/links/internal/link"
	"github.com/linkreel/linkreel/services/links/internal/places"
	"github.com/linkreel/linkreel/services/links/internal/redirect"
	"github.com/linkreel/linkreel/services/links/internal/store"
	"github.com/linkreel/linkreel/services/links/internal/tenancy"
)

// Config is the service's configuration.
type Config struct {
	backing.Config
	backing.Public
	backing.Auth

	// RedirectAddr is the address to listen on for visitors: the short host and custom hosts.
	RedirectAddr string `env:"LINKREEL_REDIRECT_ADDR" envDefault:":8081"`
	// ShortBaseURL is the URL of the short host. The URL of a link is ShortBaseURL, a slash and the
	// slug.
	ShortBaseURL string `env:"LINKREEL_SHORT_BASE_URL" envDefault:"http://localhost:8081"`

	// ShortHomeURL, ShortNotFoundURL and ShortExpiredURL are where the default short host redirects
	// visits to "/", to URLs without a link, and to expired links. If a URL is empty, visitors get
	// one of our own pages.
	ShortHomeURL     string `env:"LINKREEL_SHORT_HOME_URL"`
	ShortNotFoundURL string `env:"LINKREEL_SHORT_NOT_FOUND_URL"`
	ShortExpiredURL  string `env:"LINKREEL_SHORT_EXPIRED_URL"`

	// ClicksRedisURL is a separate Redis for the click log and the log of changes. If it is empty,
	// both logs are in the main Redis.
	ClicksRedisURL string `env:"LINKREEL_CLICKS_REDIS_URL"`
	// ClicksRedisPassword is used if ClicksRedisURL does not contain a password.
	ClicksRedisPassword string `env:"LINKREEL_CLICKS_REDIS_PASSWORD"`
	// ClickPartitions is the number of partitions in the click log and in the log of changes, from
	// 1 to 64. With several partitions, the servers in a Redis Cluster share the work.
	ClickPartitions int `env:"LINKREEL_CLICK_PARTITIONS" envDefault:"1"`
	// ClickLogBytes limits the size of the pending clicks in Redis. Once it is reached, clicks are
	// written to each replica's spool.
	ClickLogBytes int64 `env:"LINKREEL_CLICK_LOG_BYTES" envDefault:"67108864"`
	// CacheBytes limits the memory that a replica uses to cache links.
	CacheBytes int64 `env:"LINKREEL_REDIRECT_CACHE_BYTES" envDefault:"134217728"`
	// SpoolDir is the directory where clicks are stored while Redis is down. It should survive
	// container restarts.
	SpoolDir string `env:"LINKREEL_SPOOL_DIR" envDefault:"/var/spool/linkreel"`
	// SpoolBytes limits the size of the spool. Clicks beyond that are lost, and a metric counts
	// them.
	SpoolBytes int64 `env:"LINKREEL_SPOOL_BYTES" envDefault:"67108864"`
	// ClickBudget is how long a redirect waits for Redis before its click is written to the spool.
	ClickBudget time.Duration `env:"LINKREEL_CLICK_BUDGET" envDefault:"50ms"`
	// Flush allows this replica to write click counts to Firestore. For each partition, the replicas
	// elect one writer.
	Flush bool `env:"LINKREEL_FLUSH" envDefault:"true"`
	// CountryHeader is the name of the header that a trusted proxy uses to send a visitor's
	// country, such as CF-IPCountry.
	CountryHeader string `env:"LINKREEL_COUNTRY_HEADER"`
	// GeoIPFile is a MaxMind country database for visits without such a header. The service looks
	// up the visitor's address in it but does not store the address.
	GeoIPFile string `env:"LINKREEL_GEOIP_FILE"`
	// DNSResolver is the host:port of the resolver that looks up the DNS records that prove domain
	// ownership. If it is empty, the system's resolver is used.
	DNSResolver string `env:"DNS_RESOLVER"`

	// TLSAddr is the address to listen on for visits to custom domains over TLS. If it is empty,
	// links does not serve TLS. A domain's certificate is ordered on its first visit.
	TLSAddr string `env:"LINKREEL_TLS_ADDR"`
	// ACMEDirectory is the directory URL of the certificate authority. By setting TLSAddr you agree
	// to the authority's terms.
	ACMEDirectory string `env:"LINKREEL_ACME_DIRECTORY" envDefault:"https://acme-v02.api.letsencrypt.org/directory"`
	// ACMEEmail is the contact e-mail address for the account at the authority. It may be empty.
	ACMEEmail string `env:"LINKREEL_ACME_EMAIL"`
	// ACMECAFile contains the root certificates that verify the authority's server. If it is empty,
	// the system's root certificates are used.
	ACMECAFile string `env:"LINKREEL_ACME_CA_FILE"`
	// ACMEOrdersPerHour limits the certificates that all replicas order per hour in total. One
	// account may use a fifth of them for new certificates and a fifth for renewals.
	ACMEOrdersPerHour int `env:"LINKREEL_ACME_ORDERS_PER_HOUR" envDefault:"100"`
	// CertificateKey encrypts the private keys of certificates. It consists of one or more keys of
	// at least 32 characters, separated by commas. The first key encrypts, and all keys can
	// decrypt.
	CertificateKey string `env:"LINKREEL_CERTIFICATE_KEY"`
	// CertificateSweep is the interval between searches for certificates that must be renewed.
	CertificateSweep time.Duration `env:"LINKREEL_CERTIFICATE_SWEEP" envDefault:"1m"`
	// SplitKey is an input to the hash that rules with a percentage use to divide visitors. If the
	// key changes, visitors may move to other shares. It may be empty.
	SplitKey string `env:"LINKREEL_SPLIT_KEY"`
	// PasswordHashes is how many link passwords are hashed concurrently. One account may use half
	// of these slots. Each hash needs 19 MiB of memory. PasswordQueue is how many of one account's
	// passwords may wait for a slot. Accounts take turns.
	PasswordHashes int `env:"LINKREEL_PASSWORD_HASHES" envDefault:"2"`
	PasswordQueue  int `env:"LINKREEL_PASSWORD_QUEUE" envDefault:"16"`
	// DomainTarget is the name or address that custom domains should point to. If it is empty, they
	// should point to the short host.
	DomainTarget string `env:"LINKREEL_DOMAIN_TARGET"`

	// BlockedDestinations is a file of host names, one per line. Links must not redirect to these
	// hosts or their subdomains. The file is reloaded when it changes.
	BlockedDestinations string `env:"LINKREEL_BLOCKED_DESTINATIONS"`
	// AbuseContact is a mailto: or https: URL, or a plain e-mail address, that public pages link to
	// as "Report".
	AbuseContact string `env:"LINKREEL_ABUSE_CONTACT"`
}

// New returns the service. The service connects lazily, so it starts even while Firestore, Redis or
// auth is down.
func New(ctx context.Context, cfg Config) (_ *boot.Service, err error) {
	svc := &boot.Service{Name: "links"}
	defer svc.Abandon(ctx, &err)
	b := &building{Config: cfg, svc: svc}
	for _, part := range []func(context.Context) error{
		b.openStores,  // Firestore, Redis, auth's keys
		b.openMemory,  // the cache of links and domains, and the log that notifies replicas of changes
		b.openClicks,  // the click log, and the loops that count its clicks
		b.openRecords, // links and domains
		b.makeServices,
		b.makeListeners,
		b.makeCertificates,
	} {
		if err := part(ctx); err != nil {
			return nil, err
		}
	}
	return svc, nil
}

// building is the service under construction. Each part uses fields that earlier parts set.
type building struct {
	Config
	svc         *boot.Service
	stores      *backing.Stores
	clicksRedis redisdb.Config
	patient     redis.UniversalClient
	auth        *apikey.Client

	own       link.Hosts
	routes    api.Options
	store     *store.Store
	memory    *invalidation.Memory
	announcer *invalidation.Announcer
	log       *clicks.Log

	places   *places.Gate
	links    *link.Service
	domains  *customdomain.Service
	accounts *keeper.Keeper
	blocked  *link.Blocklist
	misses   *ratelimit.Misses
	visitors fasthttp.RequestHandler
}

func (b *building) loop(name string, run func(context.Context) error) {
	b.svc.Loops = append(b.svc.Loops, boot.Loop{Name: name, Run: run})
}

func (b *building) openStores(ctx context.Context) (err error) {
	if b.ClickPartitions < 0 || b.ClickPartitions > invalidation.MaxPartitions {
		return fmt.Errorf("LINKREEL_CLICK_PARTITIONS is %d, want 1 to %d", b.ClickPartitions, invalidation.MaxPartitions)
	}
	if b.stores, err = backing.Open(ctx, b.svc, &b.Config.Config); err != nil {
		return err
	}
	b.stores.Await()
	if b.clicksRedis = b.Redis; b.ClicksRedisURL != "" {
		// Do not copy the main Redis's password: a Redis without a password rejects connections
		// that send one.
		b.clicksRedis.URL, b.clicksRedis.Password = b.ClicksRedisURL, b.ClicksRedisPassword
		b.clicksRedis.Calls = clicksCalls
	}
	b.auth, _, err = b.stores.Keys(b.Auth)
	return err
}

// clicksCalls measures the calls to the Redis at [Config.ClicksRedisURL].
var clicksCalls = redisdb.NewCalls("Redis for clicks")

func (b *building) openMemory(context.Context) (err error) {
	read := store.Lookups{DB: b.stores.DB}
	b.memory = invalidation.NewMemory(invalidation.Options{
		Target: read.Target, Host: read.Host, Suspended: read.Suspended, Capacity: b.CacheBytes, Partitions: b.ClickPartitions, Now: b.Now,
	})
	// Counting and announcing may wait longer for Redis than redirects do.
	if b.patient, err = clicks.OpenPatient(b.clicksRedis, b.memory.Partitions()); err != nil {
		return err
	}
	b.svc.CloseWith(b.patient.Close)
	b.announcer = invalidation.NewAnnouncer(b.patient, b.memory, identity.NewNonce())
	return nil
}

func (b *building) openClicks(context.Context) (err error) {
	b.log, err = clicks.Open(clicks.Config{
		Redis: b.clicksRedis, Bytes: b.ClickLogBytes, SpoolDir: b.SpoolDir, SpoolMax: b.SpoolBytes, Budget: b.ClickBudget, Now: b.Now,
	}, b.memory)
	if err != nil {
		return err
	}
	b.loop("click log", b.log.Run)
	// The service becomes ready even if this call fails, because redirects for cached links work
	// without Redis.
	b.svc.WarmUp = append(b.svc.WarmUp, boot.Call{To: "Redis, for clicks", Do: b.log.Ping})
	b.loop("announcer", b.announcer.Run)
	if !b.Flush {
		return nil
	}
	counts := func(part int) clicks.Counts { return b.store.Counts(part, b.memory.Partitions(), clicks.ErrOvertaken) }
	b.loop("click flusher", clicks.NewFlushers(b.patient, b.memory.Partitions(), counts, b.Now).Run)
	if b.ClicksRedisURL == "" {
		return nil
	}
	// The main Redis may still contain clicks from before ClicksRedisURL was set. Count these too.
	former, err := clicks.OpenPatient(b.Redis, 0)
	if err != nil {
		return err
	}
	b.svc.CloseWith(former.Close)
	b.loop("former click flusher", clicks.NewFlushers(former, 0, counts, b.Now).Run)
	return nil
}

// shortPages returns the pages for the default short host.
func (b *building) shortPages() (*link.Pages, error) {
	var p link.Pages
	for name, page := range map[string]struct {
		given string
		to    *string
	}{
		"LINKREEL_SHORT_HOME_URL":      {b.ShortHomeURL, &p.Home},
		"LINKREEL_SHORT_NOT_FOUND_URL": {b.ShortNotFoundURL, &p.NotFound},
		"LINKREEL_SHORT_EXPIRED_URL":   {b.ShortExpiredURL, &p.Expired},
	} {
		if page.given == "" {
			continue
		}
		u, problem := link.ParseURL(page.given, b.own)
		if problem != nil {
			return nil, fmt.Errorf("%s: %s", name, problem.Message)
		}
		*page.to = u.Location
	}
	if p == (link.Pages{}) {
		return nil, nil
	}
	return &p, nil
}

func (b *building) openRecords(context.Context) error {
	b.own = redirect.OwnHosts(b.ShortBaseURL)
	pages, err := b.shortPages()
	if err != nil {
		return err
	}
	b.routes = api.Options{
		ShortBaseURL: b.ShortBaseURL, Own: b.own, DomainTarget: b.DomainTarget, Certificates: b.TLSAddr != "", Now: b.Now,
		Passwords: password.New(b.PasswordHashes, b.PasswordQueue), Pages: pages, Countries: b.CountryHeader != "" || b.GeoIPFile != "",
		Tries: ratelimit.New(b.stores.Redis, b.Now),
	}
	records := record.Open(b.stores.DB, record.Options{Outbox: b.stores.Outbox(), Now: b.Now, Announce: b.announcer.Announce})
	shownLink, shownDomain := api.Shown(b.routes)
	b.store = store.New(records, store.Shown{Link: shownLink, Domain: shownDomain})
	return nil
}

func (b *building) makeServices(context.Context) error {
	dns, err := customdomain.NewDNS(b.DNSResolver)
	if err != nil {
		return err
	}
	if b.BlockedDestinations != "" {
		if b.blocked, err = link.OpenBlocklist(b.BlockedDestinations); err != nil {
			return err
		}
		b.svc.Loops = append(b.svc.Loops, boot.Every(2*time.Second, "blocked destinations", b.blocked.Refresh, nil))
	}
	b.domains = customdomain.NewService(customdomain.Options{
		Store: b.store.Domains(), Texts: dns.Texts, Own: b.own.Names(), Now: b.Now,
	})
	b.links = link.NewService(link.Options{Store: b.store, Blocked: b.blocked, Now: b.Now})
	b.accounts = tenancy.New(tenancy.Options{
		Standings: store.Standings(b.stores.DB), Store: b.store, Announce: b.announcer.Announce, Links: b.links, Domains: b.domains, Now: b.Now,
		Turns: b.stores.Turns(),
	})
	b.places = places.New(places.Options{
		Store: b.store, Forget: b.memory.Invalidate, Announce: b.announcer.Announce, Counted: func() func(context.Context) (bool, error) { return b.log.Counted(b.store.Marks) },
	})
	b.loop("places", b.places.Run)
	b.loop("accounts", b.accounts.Run)
	b.svc.Loops = append(b.svc.Loops,
		boot.Every(time.Minute, "domain proofs", b.domains.RecheckDue, nil),
		boot.Every(tags.SweepEvery, "unused tags", b.store.SweepTags, nil))
	return nil
}

func (b *building) makeListeners(context.Context) error {
	country, err := b.country()
	if err != nil {
		return err
	}
	public := httpapi.New(b.stores.API(b.Public, b.auth, b.InternalToken))
	api.Public(public, b.links, b.domains, b.routes)
	internal := httpapi.New(httpapi.Options{Name: "links-internal", Now: b.Now})
	api.Internal(internal, b.domains, b.InternalToken, api.Holder(b.accounts, b.links, b.domains, b.store.Records.Export, b.routes))
	b.misses = ratelimit.NewMisses(ratelimit.MissOptions{Now: b.Now})
	visitors := redirect.New(b.memory, b.log, redirect.Options{
		ShortBaseURL: b.ShortBaseURL, BaseURL: b.BaseURL, Country: country, Blocked: b.blocked, AbuseContact: b.AbuseContact, Now: b.Now,
		Misses: b.misses, Client: b.client, SplitKey: b.SplitKey, Pages: b.routes.Pages, Places: b.places,
		Passwords: b.routes.Passwords, Guesses: ratelimit.New(b.stores.Redis, b.Now),
		Trace: func() (context.Context, func(int)) { return httpapi.Trace("links-redirect", "GET /:slug") },
	})
	b.visitors = httpserver.StrictTransport(b.ShortBaseURL, visitors.Serve)
	b.svc.Servers = []boot.Server{
		{Name: "api", Addr: b.APIAddr, Handler: public.Handler()},
		{Name: "redirect", Addr: b.RedirectAddr, Handler: b.visitors},
		{Name: "internal", Addr: b.InternalAddr, Handler: internal.Handler()},
	}
	return nil
}

// makeCertificates adds the TLS listener, if it is enabled.
func (b *building) makeCertificates(context.Context) error {
	if b.TLSAddr == "" {
		return nil
	}
	certificates, err := b.certificates()
	if err != nil {
		return err
	}
	// Parts are closed in reverse order. Adding the certificates here ensures that open orders are
	// recorded before the database is closed.
	b.svc.Close = append(b.svc.Close, certificates.Close)
	b.stores.Watch(b.store.Certificates().Waits())
	b.svc.Loops = append(b.svc.Loops, boot.Every(b.CertificateSweep, "certificates", certificates.Sweep, nil))
	// Servers[1] is the listener for redirects (see makeListeners). The certificate authority fetches
	// its challenges there, over plain HTTP from the host name that it certifies.
	b.svc.Servers[1].Handler = b.challenges(certificates, b.visitors)
	b.svc.Servers = append(b.svc.Servers, boot.Server{Name: "tls", Addr: b.TLSAddr, Handler: b.visitors, TLS: certificates.TLS()})
	return nil
}

// country returns a function that looks up a visitor's country. The function uses the visitor's
// address but does not store it.
func (b *building) country() (lookup func(*fasthttp.RequestCtx) string, err error) {
	var db *maxminddb.Reader
	if b.GeoIPFile != "" {
		if db, err = maxminddb.Open(b.GeoIPFile); err != nil {
			return nil, fmt.Errorf("country database: %w", err)
		}
		b.svc.CloseWith(db.Close)
	}
	if db == nil && b.CountryHeader == "" {
		return nil, nil
	}
	header := []byte(b.CountryHeader)
	return func(ctx *fasthttp.RequestCtx) string {
		proxies := b.proxiesOf(ctx)
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
	}, nil
}

// client returns a visitor's address. The address is used only to limit requests for
// nonexistent links.
func (c Config) client(ctx *fasthttp.RequestCtx) netip.Addr { return c.proxiesOf(ctx).Client(ctx) }

// proxiesOf returns the proxies in front of the request's listener. Visitors reach the TLS listener
// directly, so their X-Forwarded-For headers must not be trusted.
func (c Config) proxiesOf(ctx *fasthttp.RequestCtx) httpserver.Proxies {
	if ctx.IsTLS() {
		return httpserver.Proxies{}
	}
	return c.Proxies()
}
