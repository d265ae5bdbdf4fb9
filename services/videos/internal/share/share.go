// Package share serves the public side of videos: the share page, the embed page, the password
// form, playlists, captions and link previews.
//
// It makes these guarantees. No part of a password-protected video is shown before a visitor enters
// the password. Nothing plays after a video has expired or has been deleted. Media bytes are never
// sent through this service: playlists contain short-lived signed URLs. The pages run only their
// own scripts and load only their own styles: the Content-Security-Policy does not have any unsafe
// directives, and html/template escapes all text.
package share

import (
	"context"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/password"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/turns"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// Videos looks up videos by slug or token, and rejects those that nobody may see.
// *video.Service implements it.
type Videos interface {
	Visit(ctx context.Context, slug video.Slug) (*video.Video, error)
	Redeem(ctx context.Context, slug video.Slug, token string) (*video.Video, video.Grant, error)
	// Refresh picks up a finished upload or transcode before the video is shown. It never
	// fails.
	Refresh(ctx context.Context, v *video.Video) *video.Video
}

// Views stores videos' view counts.
type Views interface {
	AddViews(ctx context.Context, id video.ID, n int64) error
}

// Misses limits how often a network may request videos that do not exist. *ratelimit.Misses
// implements it.
type Misses interface {
	Wait(addr netip.Addr) time.Duration
	Miss(addr netip.Addr)
}

// Bucket signs URLs for reading and reads small objects.
type Bucket interface {
	SignGet(ctx context.Context, object string, ttl time.Duration, o objectstore.GetOptions) (string, time.Time, error)
	Download(ctx context.Context, object string, generation int64, w io.Writer) (objectstore.Object, error)
}

// Guard limits password guesses and recognises viewers who have already been counted today.
type Guard interface {
	Take(ctx context.Context, rules ...ratelimit.Rule) (ratelimit.Try, time.Duration)
	Refund(ctx context.Context, t ratelimit.Try)
	First(ctx context.Context, name string, life time.Duration) bool
	Count(ctx context.Context, set, member string, life time.Duration) (grown int64, repeat bool)
}

// Options configures a [Share].
type Options struct {
	Videos    Videos
	Views     Views
	Bucket    Bucket
	Guard     Guard
	Misses    Misses
	Passwords *password.Hasher
	Keys      *video.Keyring
	Addresses video.Addresses
	// MediaOrigin is the origin of signed URLs. The pages' Content-Security-Policy allows it
	// in addition to their own origin.
	MediaOrigin string
	ClientIP    func(c *fiber.Ctx) netip.Addr
	// AbuseContact is the e-mail address or URL where visitors can report a video. If it is "",
	// pages omit that link.
	AbuseContact string
	Now          func() time.Time
	Log          *slog.Logger

	WatchTTL  time.Duration // lifetime of the access that a page's player gets and renews
	UnlockTTL time.Duration // how long a browser remains unlocked after entering the password
}

// Share contains the handlers for the public pages.
type Share struct {
	o       Options
	assets  assets
	pages   *template.Template
	secure  bool
	policy  string // without frame-ancestors
	views   *views
	viewers *ratelimit.Misses // a miss is a viewer who was not yet counted today
	report  string            // the link to AbuseContact
	signed  kept[string]
	small   kept[[]byte] // pictures and captions
	whole   *turns.Slots
	found   kept[struct{}] // slugs that were found recently
}

// New returns a Share. It parses the embedded pages.
func New(o Options) (*Share, error) {
	files, err := loadAssets()
	if err != nil {
		return nil, fmt.Errorf("share: assets: %w", err)
	}
	o.WatchTTL = min(o.WatchTTL, maxSigned)
	s := &Share{
		o: o, assets: files, views: &views{store: o.Views, counts: map[video.ID]int64{}}, report: reportLink(o.AbuseContact),
		viewers: ratelimit.NewMisses(ratelimit.MissOptions{Burst: newViewers, Every: time.Hour / newViewers, Now: o.Now}),
		signed:  newKept(8<<20, func(address string) int { return len(address) }),
		small:   newKept(32<<20, func(body []byte) int { return cap(body) }),
		whole:   turns.NewSlots(wholeOfAccount, wholeBodies),
		found:   newKept(4<<20, func(struct{}) int { return 0 }),
	}
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

// StoreViews stores the view counts of the videos that this replica gets a turn for.
func (s *Share) StoreViews(ctx context.Context) error { return s.views.flush(ctx, s.o.Guard.First) }

// Close stores the remaining views. The process is stopping, so Close does not wait for turns.
func (s *Share) Close(ctx context.Context) error {
	return s.views.flush(ctx, func(context.Context, string, time.Duration) bool { return true })
}

// locked returns the error for a video that needs a password.
func locked() error { return apierr.New(apierr.Forbidden, "This video requires a password.") }

// foundFor is how long the slug of an existing video is exempt from the limit on misses, so
// viewers on a scanner's network can keep watching.
const foundFor = 10 * time.Minute

// find looks up the video for a page. A network that requests too many missing videos has to wait
// because an unlisted video is protected only by its slug and each look-up is a paid read.
func (s *Share) find(c *fiber.Ctx, slug video.Slug) (*video.Video, error) {
	now, ip := s.o.Now(), s.o.ClientIP(c)
	if _, known := s.found.get(string(slug), now); !known {
		if wait := s.o.Misses.Wait(ip); wait > 0 {
			return nil, &apierr.Error{Code: apierr.RateLimited, RetryAfter: wait,
				Message: "Your network has requested too many videos that do not exist. Try again after the time in Retry-After."}
		}
	}
	v, err := s.o.Videos.Visit(c.UserContext(), slug)
	if video.IsNotFound(err) {
		s.o.Misses.Miss(ip)
	}
	if err == nil {
		s.found.put(string(slug), struct{}{}, now.Add(foundFor))
	}
	return v, err
}

// ofPath looks up the video with the slug in the path.
func (s *Share) ofPath(c *fiber.Ctx) (*video.Video, error) {
	return s.find(c, video.Slug(c.Params("slug")))
}

// open looks up the video like ofPath, but requires the password if the video has one.
func (s *Share) open(c *fiber.Ctx) (*video.Video, error) {
	v, err := s.ofPath(c)
	if err != nil {
		return nil, err
	}
	if v.Privacy == video.Password && !s.unlocked(c, v) {
		return nil, locked()
	}
	return v, nil
}

// reportLink returns the link to a contact, which may be an e-mail address without "mailto:".
func reportLink(contact string) string {
	if strings.Contains(contact, "@") && !strings.Contains(contact, ":") {
		return "mailto:" + contact
	}
	return contact
}
