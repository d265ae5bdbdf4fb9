// Package videos is the videos service: the API, share pages and playlists, and the pipeline from
// upload to ready video. No other service changes a video's status.
//
// It starts and serves requests even while Redis is down. In that case, each replica applies
// stricter limits locally. While storage is down, it serves everything that does not need storage.
// Without Firestore, it can only return errors.
package videos

import (
	"context"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/backing"
	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/dedup"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/password"
	"github.com/linkreel/linkreel/libs/queue"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/libs/tags"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/tenant/keeper"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
	"github.com/linkreel/linkreel/libs/waiting"
	"github.com/linkreel/linkreel/services/videos/internal/api"
	"github.com/linkreel/linkreel/services/videos/internal/pipeline"
	"github.com/linkreel/linkreel/services/videos/internal/share"
	"github.com/linkreel/linkreel/services/videos/internal/store"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

//go:embed firestore.indexes.json
var indexes []byte

// Indexes returns the composite indexes and exemptions that the service's queries need,
// in the Firebase tools' format.
func Indexes() []byte {
	return store.New(record.Open(nil, record.Options{}), nil).Records.Indexes(indexes)
}

// StorageHookPath is the path that Pub/Sub pushes storage notifications to.
const StorageHookPath = api.StorageHookPath

// Config is the service's configuration.
type Config struct {
	backing.Config
	backing.Public
	backing.Auth
	Storage objectstore.Config `envPrefix:"LINKREEL_"`

	// TokenSecrets sign the tokens that give access to videos. Each is at least 32 bytes, in hex.
	// The first secret signs, and all secrets verify, so a secret can be replaced.
	TokenSecrets []string `env:"LINKREEL_TOKEN_SECRET,notEmpty"`

	// PushAudience is the audience of the identity tokens in storage notifications. If it is empty,
	// notifications are rejected and it is up to the sweep to find finished uploads.
	PushAudience string `env:"LINKREEL_PUSH_AUDIENCE"`
	// PushAccount is the service account for the push subscription. It must be set if Google issues
	// the tokens because anyone can get a token from Google.
	PushAccount string `env:"LINKREEL_PUSH_ACCOUNT"`
	// PushCertsURL is where the tokens' issuer publishes its keys.
	PushCertsURL string `env:"LINKREEL_PUSH_JWKS_URL" envDefault:"https://www.googleapis.com/oauth2/v3/certs"`

	// UploadTTL is how long an upload URL works.
	UploadTTL time.Duration `env:"LINKREEL_UPLOAD_TTL" envDefault:"24h"`
	// UploadMaxAge is how soon after creating a video its file must be uploaded.
	UploadMaxAge time.Duration `env:"LINKREEL_UPLOAD_MAX_AGE" envDefault:"48h"`
	// MaxBytes bounds the size of an uploaded file.
	MaxBytes int64 `env:"LINKREEL_VIDEO_MAX_BYTES" envDefault:"10737418240"`
	// MaxDuration bounds a video's length.
	MaxDuration time.Duration `env:"LINKREEL_VIDEO_MAX_DURATION" envDefault:"4h"`
	// MaxSide and MaxPixels bound the frame size of a video.
	MaxSide   int `env:"LINKREEL_VIDEO_MAX_SIDE" envDefault:"8192"`
	MaxPixels int `env:"LINKREEL_VIDEO_MAX_PIXELS" envDefault:"36000000"`
	// WatchTTL is how long the URLs in a share page's player work, at most 15 minutes. The
	// player renews them during playback.
	WatchTTL time.Duration `env:"LINKREEL_WATCH_TTL" envDefault:"10m"`
	// OwnerTTL is how long the playback and download URLs in API responses work.
	OwnerTTL time.Duration `env:"LINKREEL_OWNER_TTL" envDefault:"6h"`
	// UnlockTTL is how long a viewer's browser remembers a password.
	UnlockTTL time.Duration `env:"LINKREEL_UNLOCK_TTL" envDefault:"12h"`
	// PasswordHashes is how many passwords are hashed at the same time. One account may use
	// half of this number. Each hash needs 19 MiB of memory. PasswordQueue is how many of one
	// account's passwords may be waiting. Accounts take turns.
	PasswordHashes int `env:"LINKREEL_PASSWORD_HASHES" envDefault:"4"`
	PasswordQueue  int `env:"LINKREEL_PASSWORD_QUEUE" envDefault:"16"`

	// AbuseContact is the e-mail address or URL of the "Report" link on public pages. If it is
	// empty, the pages do not have that link.
	AbuseContact string `env:"LINKREEL_ABUSE_CONTACT"`

	// RecordingIdle is how long after the last byte a recording counts as abandoned, for example
	// because the browser tab crashed. When that happens, the video is made from the bytes that
	// have arrived.
	RecordingIdle time.Duration `env:"LINKREEL_RECORDING_IDLE" envDefault:"5m"`
	// SweepEvery is how often the service searches for due videos.
	SweepEvery time.Duration `env:"LINKREEL_SWEEP_EVERY" envDefault:"10s"`
	// JanitorEvery is how often the whole bucket is searched for objects that do not belong to any
	// record; 0 means never. A search reads each video's record once.
	JanitorEvery time.Duration `env:"LINKREEL_JANITOR_EVERY" envDefault:"24h"`
	// JanitorMost limits how many objects without a record one search may remove. If it finds more
	// than this and more than 1% of all objects, it does not remove any because this is probably
	// the wrong database.
	JanitorMost int `env:"LINKREEL_JANITOR_MOST" envDefault:"100"`
	// SourceRetention is how long an upload is kept after its video becomes ready or fails. 0 means
	// indefinitely.
	SourceRetention time.Duration `env:"LINKREEL_SOURCE_RETENTION" envDefault:"168h"`
}

// New returns the service. It connects lazily, so the service starts even if Firestore, storage or
// Redis is down.
func New(ctx context.Context, cfg Config) (_ *boot.Service, err error) {
	svc := &boot.Service{Name: "videos"}
	defer svc.Abandon(ctx, &err)
	cfg.BaseURL = strings.TrimRight(cfg.BaseURL, "/")
	keys, err := cfg.keyring()
	if err != nil {
		return nil, fmt.Errorf("LINKREEL_TOKEN_SECRET: %w", err)
	}
	mediaOrigin, err := origin(cfg.Storage.PublicURL)
	if err != nil {
		return nil, fmt.Errorf("LINKREEL_STORAGE_PUBLIC_URL: %w", err)
	}
	page, err := origin(cfg.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("LINKREEL_BASE_URL: %w", err)
	}
	stores, err := backing.Open(ctx, svc, &cfg.Config)
	if err != nil {
		return nil, err
	}
	push, err := cfg.verifier() // must follow Open, which sets the clock
	if err != nil {
		return nil, err
	}
	stores.Await()
	db, rdb := stores.DB, stores.Redis
	bucket, err := objectstore.Open(ctx, cfg.Storage)
	if err != nil {
		return nil, err
	}
	svc.CloseWith(bucket.Close)
	auth, source, err := stores.Keys(cfg.Auth)
	if err != nil {
		return nil, err
	}
	log := slog.Default()
	seen := dedup.New(rdb, cfg.Now)
	outbox := stores.Outbox()
	addresses := video.Addresses{Base: cfg.BaseURL}
	restore := stores.Restored()
	restoredAt := func() time.Time {
		r, _ := restore.Last()
		return r.RestoredAt
	}
	kept := store.New(record.Open(db, record.Options{Outbox: outbox, Now: cfg.Now}), api.Shown(addresses, restoredAt))
	passwords := password.New(cfg.PasswordHashes, cfg.PasswordQueue)

	work := &jobs.Sweeper{Jobs: jobs.New(db, cfg.Now), Queue: queue.New(rdb, queue.Options{Name: transcode.QueueName, Now: cfg.Now})}
	plan := video.Plan{
		Upload:        video.UploadLimits{MaxBytes: cfg.MaxBytes, MaxAge: cfg.UploadMaxAge},
		RecordingIdle: cfg.RecordingIdle, Replaced: share.ReplacedLife, Retention: cfg.SourceRetention,
	}
	pipe := pipeline.New(pipeline.Options{
		Store: kept, Bucket: bucket, Jobs: work.Jobs, Queue: work,
		Hint: hints{queue.New(rdb, queue.Options{Name: transcode.OutcomeQueueName}), identity.NewID("r")}.Next,
		Now:  cfg.Now, Log: log, Plan: plan,
		Job: transcode.Limits{MaxBytes: cfg.MaxBytes, MaxDuration: cfg.MaxDuration, MaxSide: cfg.MaxSide, MaxPixels: cfg.MaxPixels},

		SweepEvery: cfg.SweepEvery, JanitorEvery: cfg.JanitorEvery, JanitorMost: cfg.JanitorMost, Seen: seen,
		JanitorOff: func() bool {
			r, known := restore.Last()
			return !known || r.JanitorPaused()
		},
		Claim: func(ctx context.Context) error {
			database, err := db.Identity(ctx)
			if err != nil {
				return err
			}
			return bucket.Claim(ctx, database)
		},
	})
	standings := store.Standings(db)
	service := video.NewService(video.Options{
		Store: kept, Standing: standings.Standing, Bucket: bucket, Pipeline: pipe, Passwords: passwords, Rights: source.Scopes, Keys: keys, Addresses: addresses, Plan: plan, Page: page,
		Now: cfg.Now, Log: log, UploadTTL: cfg.UploadTTL, OwnerTTL: cfg.OwnerTTL, RestoredAt: restoredAt,
	})
	accounts := keeper.New(keeper.Options{
		Standings: standings, Now: cfg.Now, Turns: stores.Turns(), Remains: kept.Remains,
		// The new state is already stored. Wait for replicas that are still using the old state.
		Changed: func(ctx context.Context, _ string, _ tenant.State) error { return video.Settle(ctx) },
		Erase: func(ctx context.Context, account string) (more bool, err error) {
			defer pipe.Purge() // removes the videos' objects from storage
			return kept.EraseSome(ctx, account)
		},
	})
	var public *httpapi.API
	pages, err := share.New(share.Options{
		Videos: service, Views: kept, Bucket: bucket, Guard: guard{ratelimit.New(rdb, cfg.Now), seen}, Misses: ratelimit.NewMisses(ratelimit.MissOptions{Now: cfg.Now}),
		Passwords: passwords, Keys: keys, Addresses: addresses, MediaOrigin: mediaOrigin, AbuseContact: cfg.AbuseContact,
		ClientIP: func(c *fiber.Ctx) netip.Addr { return public.ClientIP(c) }, Now: cfg.Now, Log: log,
		WatchTTL: cfg.WatchTTL, UnlockTTL: cfg.UnlockTTL,
	})
	if err != nil {
		return nil, err
	}
	svc.Close = append(svc.Close, pages.Close)
	options := stores.API(cfg.Public, auth, cfg.InternalToken)
	options.Page = pages.ErrorPage
	public = httpapi.New(options)
	api.Public(public, service, addresses)
	api.Hooks(public, pipe.Uploaded, push, log)
	pages.Register(public)
	internal := httpapi.New(httpapi.Options{Name: "videos-internal", Now: cfg.Now})
	api.Internal(internal, cfg.InternalToken, accounts, service, addresses)

	svc.Servers = []boot.Server{
		{Name: "api", Addr: cfg.APIAddr, Handler: public.Handler()},
		{Name: "internal", Addr: cfg.InternalAddr, Handler: internal.Handler()},
	}
	stores.Watch(append(kept.Waits(), waiting.Look{Work: waiting.Work{Of: "videos", For: "worker"}, Depth: work.Jobs.Waiting()})...)
	svc.Loops = append(svc.Loops,
		boot.Loop{Name: "accounts", Run: accounts.Run},
		boot.Loop{Name: "sweep", Run: pipe.Run},
		boot.Loop{Name: "janitor", Run: pipe.RunJanitor},
		boot.Loop{Name: "hints", Run: pipe.RunHints},
		boot.Every(tags.SweepEvery, "tags", kept.SweepTags, nil),
		boot.Every(2*time.Second, "views", pages.StoreViews, nil))
	return svc, nil
}

// guard is the Guard for the share pages. It limits guesses and recognises viewers.
type guard struct {
	*ratelimit.Limiter
	*dedup.Seen
}

func (c Config) keyring() (*video.Keyring, error) {
	secrets := make([][]byte, len(c.TokenSecrets))
	for i, s := range c.TokenSecrets {
		secret, err := hex.DecodeString(strings.TrimSpace(s))
		if err != nil {
			return nil, errors.New("not hex")
		}
		secrets[i] = secret
	}
	return video.NewKeyring(secrets...)
}

// verifier returns nil if notifications are not configured.
func (c Config) verifier() (*api.Verifier, error) {
	if c.PushAudience == "" {
		return nil, nil
	}
	if c.PushAccount == "" && c.PushCertsURL == api.GoogleCerts {
		return nil, errors.New("LINKREEL_PUSH_AUDIENCE requires LINKREEL_PUSH_ACCOUNT, because anybody can get a token from Google")
	}
	return api.NewVerifier(c.PushAudience, c.PushAccount, c.PushCertsURL, c.Now), nil
}

// hints receives workers' hints from their queue. Each hint is delivered to one replica.
type hints struct {
	q       *queue.Queue
	replica string
}

func (h hints) Next(ctx context.Context) (context.Context, string, error) {
	m, err := h.q.Next(ctx, h.replica, 2*time.Second)
	if errors.Is(err, queue.ErrEmpty) {
		return ctx, "", nil
	}
	if err != nil {
		return ctx, "", err
	}
	// Mark the hint as done before it is handled. That way, a hint that arrives in the meantime
	// counts as new and is not merged with this one.
	if err := m.Done(ctx); err != nil && !errors.Is(err, queue.ErrLost) {
		return ctx, "", err
	}
	return otel.GetTextMapPropagator().Extract(ctx, propagation.MapCarrier(m.Trace)), m.ID, nil
}

func origin(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return "", fmt.Errorf("%q is not a URL with a scheme and a host", address)
	}
	return u.Scheme + "://" + u.Host, nil
}
