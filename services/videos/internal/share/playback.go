package share

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/videos/internal/hls"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// maxLongLife limits how long players that cannot renew their access may play.
const maxLongLife = 6 * time.Hour

// maxSigned limits the lifetime of every signed media URL. After any access change, including
// a takedown, playback ends within this time.
const maxSigned = 15 * time.Minute

// ReplacedLife is how long replaced media may still be watched. A player that got its playlist
// just before the replacement may use our media URLs until its token expires, and its last signed
// URL until that URL expires.
const ReplacedLife = maxLongLife + 2*maxSigned

// longLife returns how long access must last for a viewer to watch a whole video with pauses.
// It returns at most maxLongLife.
func longLife(v *video.Video) time.Duration {
	return min(maxLongLife, 10*time.Minute+time.Duration(2*v.Media.Duration*float64(time.Second)))
}

// life returns how long access granted now may last: most, or the time until the video
// expires if that is shorter.
func (s *Share) life(v *video.Video, most time.Duration) time.Duration {
	if v.ExpiresAt.IsZero() {
		return most
	}
	return max(0, min(most, v.ExpiresAt.Sub(s.o.Now())))
}

// redeem looks up the video that the token in the path is valid for.
func (s *Share) redeem(c *fiber.Ctx) (*video.Video, video.Grant, error) {
	return s.o.Videos.Redeem(c.UserContext(), video.Slug(c.Params("slug")), c.Params("token"))
}

// play handles every request with a token in its path.
func (s *Share) play(c *fiber.Ctx) error {
	v, g, err := s.redeem(c)
	if err != nil {
		return err
	}
	// The token grants access, so players on other sites may read the response.
	c.Set(fiber.HeaderAccessControlAllowOrigin, "*")
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set(fiber.HeaderCacheControl, "private, no-store")
	c.Set(fiber.HeaderReferrerPolicy, "no-referrer")
	c.Set("X-Robots-Tag", "noindex")
	file := c.Params("file")
	switch {
	case file == "poster.jpg":
		return s.poster(c, v)
	case strings.HasPrefix(file, "captions-"):
		return s.captions(c, v, strings.TrimPrefix(file, "captions-"))
	case strings.HasPrefix(file, mediaFile):
		return s.media(c, v, g, file)
	case file == "download.mp4":
		return s.download(c, v, g)
	}
	outcome, err := transcode.UnmarshalOutcome(v.Media.Outcome)
	if err != nil {
		return err
	}
	if file == "storyboard.vtt" {
		return s.storyboard(c, v, g, outcome)
	}
	name, ok := strings.CutSuffix(file, ".m3u8")
	if !ok {
		return apierr.New(apierr.NotFound, "There is nothing at this address.")
	}
	if name == "master" {
		return text(c, playlistType, s.master(v, g, outcome))
	}
	r, ok := outcome.Rendition(name)
	if !ok {
		return apierr.New(apierr.NotFound, "There is nothing at this address.")
	}
	address := s.mediaName(v, r.Object)
	if !s.viaUs(v, g) {
		if address, _, err = s.sign(c.UserContext(), v, g, r.Object); err != nil {
			return err
		}
	}
	c.Set(fiber.HeaderContentType, playlistType)
	playlist, size := hls.MediaPlaylist(r, address)
	return c.SendStream(playlist, size)
}

// viaUs reports whether a player gets our own media URLs, which check access on each request
// and redirect to a signed URL. The page's player renews its URLs, so it gets signed URLs
// directly. An owner also gets signed URLs if the whole video can be watched before they
// expire.
func (s *Share) viaUs(v *video.Video, g video.Grant) bool {
	return g.Kind == video.WatchLong || g.Kind == video.Own && longLife(v) > maxSigned
}

// mediaFile is the prefix of file names in our media URLs. The rest of the name is the object's
// path within its video, not just the rendition's name, because the byte ranges in a player's
// playlist would not match newer media with the same name.
const mediaFile = "media~"

func (s *Share) mediaName(v *video.Video, object string) string {
	return mediaFile + strings.ReplaceAll(strings.TrimPrefix(object, transcode.VideoPrefix(string(v.ID))), "/", "~")
}

// media redirects to a signed URL for a rendition's object.
func (s *Share) media(c *fiber.Ctx, v *video.Video, g video.Grant, file string) error {
	object := transcode.VideoPrefix(string(v.ID)) + strings.ReplaceAll(strings.TrimPrefix(file, mediaFile), "~", "/")
	made, err := wasMade(v, object)
	if err != nil {
		return err
	}
	if !made {
		return apierr.New(apierr.NotFound, "There is nothing at this address.")
	}
	address, _, err := s.sign(c.UserContext(), v, g, object)
	if err != nil {
		return err
	}
	return c.Redirect(address, fiber.StatusFound)
}

// wasMade reports whether a playlist of the current source may have contained object. The caller
// chooses the name, and each accepted name costs a signature and a cache entry. So wasMade only
// accepts a few names: the video's renditions from every attempt up to the current one. A player
// may still use the playlist from an earlier attempt. Later versions of an outcome still have every
// rendition from the earlier ones. The download file is not accepted because visitors may not be
// allowed to download it.
func wasMade(v *video.Video, object string) (bool, error) {
	made, ok := transcode.ParseRendition(string(v.ID), object)
	if !ok || made.Generation != v.Source.Generation || made.Attempt < 1 {
		return false, nil
	}
	known := slices.ContainsFunc(v.Media.Renditions, func(r video.Rendition) bool { return r.Name == made.Name })
	if !known && !(v.Media.HasAudio && made.Name == transcode.AudioName) {
		return false, nil
	}
	prefix, err := transcode.PrefixOf(v.Media.Outcome)
	if err != nil {
		return false, err
	}
	_, present, ok := transcode.ParsePrefix(string(v.ID), prefix)
	return ok && made.Attempt <= present, nil
}

// download redirects the owner to the download file.
func (s *Share) download(c *fiber.Ctx, v *video.Video, g video.Grant) error {
	if g.Kind != video.Own || v.Media.Download == "" {
		return apierr.New(apierr.NotFound, "There is nothing at this address.")
	}
	address, _, err := s.o.Bucket.SignGet(c.UserContext(), v.Media.Download, maxSigned, objectstore.GetOptions{
		ContentType: "video/mp4", ContentDisposition: `attachment; filename="` + fileName(v) + `"`,
	})
	if err != nil {
		return err
	}
	return c.Redirect(address, fiber.StatusFound)
}

// fileName converts the title to a file name that every operating system accepts. It falls
// back to the slug.
func fileName(v *video.Video) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_'):
			return r
		case unicode.IsSpace(r) || unicode.IsPunct(r):
			return '-'
		}
		return -1
	}, v.Title)
	name = strings.Trim(name[:min(len(name), 80)], "-")
	if name == "" {
		name = string(v.Slug)
	}
	return name + ".mp4"
}

const playlistType = "application/vnd.apple.mpegurl; charset=utf-8"

func text(c *fiber.Ctx, media, body string) error {
	c.Set(fiber.HeaderContentType, media)
	return c.SendString(body)
}

// master sends the master playlist. It lists captions only for players outside our pages. Our own
// pages add the tracks themselves, so each track would appear twice.
func (s *Share) master(v *video.Video, g video.Grant, o *transcode.Outcome) string {
	var captions []hls.Caption
	if g.Kind == video.Own {
		for _, t := range v.Captions {
			captions = append(captions, hls.Caption{Lang: t.Lang, Name: t.Name(), URI: "captions-" + t.Lang + ".m3u8"})
		}
	}
	return hls.MasterPlaylist(o, func(r transcode.Rendition) string { return r.Name + ".m3u8" }, captions...)
}

// sign returns a signed URL for reading an object. The URL is valid for at most maxSigned. A
// viewer's URL also expires when the video does. URLs are reused as long as most of their lifetime
// remains.
func (s *Share) sign(ctx context.Context, v *video.Video, g video.Grant, object string) (string, time.Duration, error) {
	now := s.o.Now()
	most := s.o.WatchTTL
	if g.Kind != video.Watch {
		most = maxSigned
	}
	life := most
	if g.Kind != video.Own {
		life = s.life(v, most)
	}
	key := fmt.Sprintf("%s %s", object, most)
	if life == most {
		if address, ok := s.signed.get(key, now); ok {
			return address, most * 3 / 4, nil
		}
	}
	// Storage counts whole seconds. Round down, so the URL does not outlive the video.
	whole := max(time.Second, life.Truncate(time.Second))
	address, _, err := s.o.Bucket.SignGet(ctx, object, whole, objectstore.GetOptions{})
	if err != nil {
		return "", 0, err
	}
	if life == most {
		// Cache the URL for a quarter of its lifetime, so every caller has at least three
		// quarters left.
		s.signed.put(key, address, now.Add(most/4))
	}
	return address, whole, nil
}

// session renews access for a page's player. It sends a token and the signed URLs for all
// renditions.
func (s *Share) session(c *fiber.Ctx) error {
	v, err := s.open(c)
	if err != nil {
		return err
	}
	if !v.Playable() {
		return apierr.New(apierr.NotFound, "This video is not ready.")
	}
	outcome, err := transcode.UnmarshalOutcome(v.Media.Outcome)
	if err != nil {
		return err
	}
	grant := video.GrantFor(v, video.Watch, s.o.WatchTTL, s.o.Now())
	objects := make([]string, 0, len(outcome.Renditions)+1)
	for _, r := range outcome.Renditions {
		objects = append(objects, r.Object)
	}
	if outcome.Audio != nil {
		objects = append(objects, outcome.Audio.Object)
	}
	answer := struct {
		Playlist string   `json:"playlist"`
		TTL      int      `json:"ttl"`
		Media    []string `json:"media"`
	}{video.Addresses{}.Playlist(v.Slug, s.o.Keys.Sign(grant)), 0, make([]string, len(objects))}
	lives := make([]time.Duration, len(objects))
	g, ctx := errgroup.WithContext(c.UserContext())
	for i, object := range objects {
		g.Go(func() (err error) {
			answer.Media[i], lives[i], err = s.sign(ctx, v, grant, object)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// The player will renew its access when the first URL expires.
	ttl := s.life(v, s.o.WatchTTL)
	for _, l := range lives {
		ttl = min(ttl, l)
	}
	answer.TTL = max(1, seconds(ttl))
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	return httpapi.JSON(c, fiber.StatusOK, answer)
}

func (s *Share) storyboard(c *fiber.Ctx, v *video.Video, g video.Grant, o *transcode.Outcome) error {
	if o.Storyboard == nil {
		return apierr.New(apierr.NotFound, "This video has no storyboard.")
	}
	var failed error
	vtt := hls.StoryboardVTT(o, func(object string) string {
		address, _, err := s.sign(c.UserContext(), v, g, object)
		failed = errors.Join(failed, err)
		return address
	})
	if failed != nil {
		return failed
	}
	return text(c, "text/vtt; charset=utf-8", vtt)
}

// captions serves a track as WebVTT, and as the one-segment playlist that HLS requires.
// Owners upload these files, so captions reads them and serves them with our own content
// type. The files are small.
func (s *Share) captions(c *fiber.Ctx, v *video.Video, file string) error {
	lang, ext, _ := strings.Cut(file, ".")
	track, ok := v.Caption(lang)
	if !ok {
		return apierr.New(apierr.NotFound, "This video has no captions in this language.")
	}
	switch ext {
	case "m3u8":
		return text(c, playlistType, hls.CaptionPlaylist(v.Media.Duration, "captions-"+lang+".vtt"))
	case "vtt":
		return s.send(c, v.AccountID, track.Object, "text/vtt; charset=utf-8")
	}
	return apierr.New(apierr.NotFound, "There is nothing at this address.")
}

func (s *Share) poster(c *fiber.Ctx, v *video.Video) error {
	picture := v.Poster()
	if picture == "" {
		return apierr.New(apierr.NotFound, "This video has no picture.")
	}
	return s.send(c, v.AccountID, picture, "image/jpeg")
}

// thumbnail serves the poster for link previews.
func (s *Share) thumbnail(c *fiber.Ctx) error {
	v, err := s.previewable(c)
	if err != nil {
		return err
	}
	if err := s.poster(c, v); err != nil {
		return err
	}
	// Caches may keep the picture for this long after the video becomes private or is
	// deleted. docs/api/playback.md documents the limit.
	c.Set(fiber.HeaderCacheControl, fmt.Sprintf("public, max-age=%d", seconds(s.life(v, 5*time.Minute))))
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set("Cross-Origin-Resource-Policy", "cross-origin") // other sites show the picture in link previews
	return nil
}

// file redirects link previews that can play a video to the video's file.
func (s *Share) file(c *fiber.Ctx) error {
	v, err := s.previewable(c)
	if err != nil {
		return err
	}
	if v.Media.Download == "" || v.NoDownload {
		return apierr.New(apierr.NotFound, "This video has no file.")
	}
	// sign uses only the grant's kind. With WatchLong, the URL expires after maxSigned or when the
	// video does, whichever comes first.
	address, _, err := s.sign(c.UserContext(), v, video.Grant{Kind: video.WatchLong}, v.Media.Download)
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderCacheControl, "private, no-store")
	return c.Redirect(address, fiber.StatusFound)
}

// previewable looks up a ready video that anybody may see. For a video with a password it
// returns the same error as for a missing video.
func (s *Share) previewable(c *fiber.Ctx) (*video.Video, error) {
	v, err := s.ofPath(c)
	if err != nil {
		return nil, err
	}
	if !v.Previewable(s.o.Now()) || !v.Playable() {
		return nil, video.NotFound()
	}
	return v, nil
}
