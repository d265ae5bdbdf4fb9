// Package share is the part of a video that everybody with its address sees: the
// share page, the page for frames, the password form, playlists, captions and
// link previews.
//
// It promises that nothing of a video with a password shows before the password,
// that nothing plays once a video has expired or is deleted, that bytes of media
// never pass through here (playlists carry short-lived signed addresses), and that
// its pages run no script and load no style but their own: the
// Content-Security-Policy has no unsafe part, and every text goes through
// html/template.
package share

import (
	"context"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// Store finds videos; [video.NotFound] when there is none.
type Store interface {
	Get(ctx context.Context, id video.ID) (*video.Video, error)
	BySlug(ctx context.Context, slug video.Slug) (*video.Video, error)
	AddViews(ctx context.Context, id video.ID, n int64) error
}

// Pipeline brings a video up to date before it is shown; it never fails.
type Pipeline interface {
	Look(ctx context.Context, v *video.Video) *video.Video
}

// Bucket signs read addresses and reads small objects.
type Bucket interface {
	SignGet(ctx context.Context, object string, ttl time.Duration, o objectstore.GetOptions) (string, time.Time, error)
	Download(ctx context.Context, object string, generation int64, w io.Writer) (objectstore.Object, error)
}

// Guard limits guessing and recognises viewers of today.
type Guard interface {
	Take(ctx context.Context, rules ...ratelimit.Rule) (ratelimit.Try, time.Duration)
	Refund(ctx context.Context, t ratelimit.Try)
	First(ctx context.Context, name string, life time.Duration) bool
}

// Options are what the share side works with.
type Options struct {
	Store     Store
	Pipeline  Pipeline
	Bucket    Bucket
	Guard     Guard
	Passwords *video.Passwords
	Keys      *video.Keyring
	Addresses video.Addresses
	// MediaOrigin is the origin of signed addresses, which the pages' policy
	// allows beside their own.
	MediaOrigin string
	ClientIP    func(c *fiber.Ctx) netip.Addr
	Now         func() time.Time
	Log         *slog.Logger

	WatchTTL  time.Duration // life of what a page's player is given; it renews it
	UnlockTTL time.Duration // how long a password is remembered
}

// Share has the handlers.
type Share struct {
	o       Options
	assets  assets
	pages   *template.Template
	secure  bool
	policy  string // without frame-ancestors
	views   *views
	signed  *kept[string]
	posters *kept[[]byte]
}

// New reads the embedded pages.
func New(o Options) (*Share, error) {
	files, err := loadAssets()
	if err != nil {
		return nil, fmt.Errorf("share: assets: %w", err)
	}
	s := &Share{o: o, assets: files, views: newViews(o.Store, o.Log), signed: newKept[string](20_000), posters: newKept[[]byte](200)}
	base, err := url.Parse(o.Addresses.Base)
	if err != nil {
		return nil, fmt.Errorf("share: base address: %w", err)
	}
	s.secure = base.Scheme == "https"
	s.pages, err = template.New("pages").Funcs(template.FuncMap{"asset": func(name string) (string, error) {
		u, ok := files.urlOf[name]
		if !ok {
			return "", fmt.Errorf("no asset %q", name)
		}
		return u, nil
	}}).ParseFS(web, "web/pages.html")
	if err != nil {
		return nil, fmt.Errorf("share: pages: %w", err)
	}
	s.policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' " + o.MediaOrigin +
		"; media-src 'self' blob: " + o.MediaOrigin + "; connect-src 'self' " + o.MediaOrigin +
		"; form-action 'self'; base-uri 'none'; frame-ancestors "
	return s, nil
}

// Register adds the routes.
func (s *Share) Register(api *httpapi.API) {
	get := func(path string, h fiber.Handler) { api.Public(fiber.MethodGet, path, h) }
	get("/v/-/:asset", s.asset)
	get("/v/:slug", s.page)
	api.Public(fiber.MethodPost, "/v/:slug/unlock", s.unlock)
	get("/v/:slug/unlock", s.backToPage)
	get("/v/:slug/status", s.status)
	get("/v/:slug/session", s.session)
	get("/v/:slug/thumbnail.jpg", s.thumbnail)
	get("/v/:slug/video.mp4", s.file)
	get("/v/:slug/hls/:token/:file", s.play)
	api.Public(fiber.MethodPost, "/v/:slug/hls/:token/view", s.view)
	get("/embed/:slug", s.embed)
	get("/oembed", s.oembed)
}

// Run stores counted views until ctx ends, and then those that are left.
func (s *Share) Run(ctx context.Context) error { return s.views.run(ctx) }

// gone is the answer for a video whose time is over; it says nothing else of it.
func gone() error { return apierr.New(apierr.Gone, "This video has expired.") }

// locked is the answer for a video whose password was not given.
func locked() error { return apierr.New(apierr.Forbidden, "This video needs its password.") }

// find reads the video of a page and refuses it when its time is over.
func (s *Share) find(c *fiber.Ctx) (*video.Video, error) {
	v, err := s.o.Store.BySlug(c.UserContext(), video.Slug(c.Params("slug")))
	if err != nil {
		return nil, err
	}
	if v.Expired(s.o.Now()) {
		return nil, gone()
	}
	return v, nil
}

// findOpen is find for what needs the password where there is one.
func (s *Share) findOpen(c *fiber.Ctx) (*video.Video, error) {
	v, err := s.find(c)
	if err != nil {
		return nil, err
	}
	if v.Privacy == video.Password && !s.unlocked(c, v) {
		return nil, locked()
	}
	return v, nil
}

// kept is a small cache of things that are made again when they are missing.
type kept[T any] struct {
	mu    sync.Mutex
	most  int
	items map[string]keptItem[T]
}

type keptItem[T any] struct {
	value T
	until time.Time
}

func newKept[T any](most int) *kept[T] {
	return &kept[T]{most: most, items: map[string]keptItem[T]{}}
}

func (k *kept[T]) get(key string, now time.Time) (value T, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	item, found := k.items[key]
	if !found || !now.Before(item.until) {
		return value, false
	}
	return item.value, true
}

func (k *kept[T]) put(key string, value T, until, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.items) >= k.most {
		for old, item := range k.items {
			if !now.Before(item.until) || len(k.items) >= k.most {
				delete(k.items, old)
			}
		}
	}
	k.items[key] = keptItem[T]{value, until}
}
