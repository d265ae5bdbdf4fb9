package share

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/design"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// head is the data for a page's <head>.
type head struct {
	Title   string
	NoIndex bool
	Script  bool
	Player  bool
	Again   bool // show a reload link in browsers without JavaScript
	Report  string
	Preview *preview
}

type preview struct {
	Page, OEmbed, Image, Embed, File string
	Title, Description               string
	Width, Height                    int
	Seconds                          int
}

type watchPage struct {
	Head        head
	Player      player
	Page        string
	Title       string
	Description string
	Date        string
	DateISO     string
	Length      string
	Views       string
	Until       string
	UntilISO    string
}

type player struct {
	Playlist, Native, Session, View, Storyboard, Poster, Page string
	TTL                                                       int
	Width, Height                                             int
	Label                                                     string
	Captions                                                  []track
	Overlay                                                   *overlay
}

type overlay struct{ Href, Title string }

type track struct{ Src, Lang, Label string }

type messagePage struct {
	Head    head
	Glyph   string
	Title   string
	Lines   []string
	Waiting *waiting
	Unlock  *unlockForm
	Link    string
	Embed   bool
}

type waiting struct {
	Status   string
	URL      string
	Bar      bool
	Progress int
}

type unlockForm struct{ Action, Error string }

func (s *Share) page(c *fiber.Ctx) error {
	v, err := s.ofPath(c)
	if err != nil {
		return err
	}
	if v.Privacy == video.Password && !s.unlocked(c, v) {
		return s.message(c, fiber.StatusOK, s.lockedPage(v, ""))
	}
	// Refresh only after the password check because visitors without the password must not cause
	// look-ups.
	v = s.o.Videos.Refresh(c.UserContext(), v)
	if !v.Playable() {
		return s.message(c, fiber.StatusOK, s.unready(v, false))
	}
	return s.render(c, fiber.StatusOK, "watch", nowhere, v.Indexable(), s.watch(v))
}

func (s *Share) embed(c *fiber.Ctx) error {
	v, err := s.ofPath(c)
	if err != nil {
		return err
	}
	ancestors := framers(v)
	if v.Privacy == video.Password {
		// Visitors should not enter a password on another site's page.
		return s.framed(c, ancestors, messagePage{
			Head: head{Title: "Protected video", NoIndex: true}, Glyph: "lock", Title: "This video is protected",
			Lines: []string{"Open its page to enter the password."}, Link: s.o.Addresses.Page(v.Slug),
		})
	}
	v = s.o.Videos.Refresh(c.UserContext(), v)
	if !v.Playable() {
		return s.framed(c, ancestors, s.unready(v, true))
	}
	p := s.watch(v)
	p.Head.Preview, p.Head.NoIndex = nil, true
	p.Player.Overlay = &overlay{Href: p.Page, Title: p.Title}
	return s.render(c, fiber.StatusOK, "embed", ancestors, false, p)
}

// The possible values of frame-ancestors in the Content-Security-Policy.
const (
	nowhere  = "'none'"
	anywhere = "*"
)

// framers returns the sites that may embed v in a frame. Only the browser can enforce this list
// because a server cannot reliably determine which site embeds a page.
func framers(v *video.Video) string {
	if len(v.EmbedOrigins) == 0 {
		return anywhere
	}
	return strings.Join(v.EmbedOrigins, " ")
}

// framed sends a message page that other sites may show in a frame.
func (s *Share) framed(c *fiber.Ctx, ancestors string, m messagePage) error {
	m.Embed, m.Head.Report = true, s.report
	return s.render(c, fiber.StatusOK, "message", ancestors, false, m)
}

// backToPage redirects to the video's page. It also handles reloads after a wrong password.
func (s *Share) backToPage(c *fiber.Ctx) error {
	c.Set(fiber.HeaderCacheControl, "no-store")
	return c.Redirect("/v/"+c.Params("slug"), fiber.StatusSeeOther)
}

func titleOf(v *video.Video) string {
	if t := strings.TrimSpace(v.Title); t != "" {
		return t
	}
	return "Untitled video"
}

func (s *Share) watch(v *video.Video) watchPage {
	now := s.o.Now()
	token := s.o.Keys.Sign(video.GrantFor(v, video.Watch, s.o.WatchTTL, now))
	// A browser's built-in player cannot renew its token, so it gets a long-lived one.
	long := s.o.Keys.Sign(video.GrantFor(v, video.WatchLong, longLife(v), now))
	here := video.Addresses{} // Use only paths, so the page works under every host name.
	m := v.Media
	p := watchPage{
		Head:  head{Title: design.TabTitle(titleOf(v)), NoIndex: !v.Indexable(), Script: true, Player: true, Report: s.report},
		Page:  s.o.Addresses.Page(v.Slug),
		Title: titleOf(v), Description: strings.TrimSpace(v.Description),
		Date: v.CreatedAt.UTC().Format("2 January 2006"), DateISO: v.CreatedAt.UTC().Format(time.RFC3339), Length: clock(m.Duration),
		Player: player{
			Playlist: here.Playlist(v.Slug, token), Native: here.Playlist(v.Slug, long), Session: here.Page(v.Slug) + "/session",
			View: here.Playback(v.Slug, token) + "view", TTL: seconds(s.life(v, s.o.WatchTTL*3/4)), Page: here.Page(v.Slug),
			Width: m.Width, Height: m.Height, Label: titleOf(v),
		},
	}
	if m.Storyboard {
		p.Player.Storyboard = here.Playback(v.Slug, token) + "storyboard.vtt"
	}
	if v.Poster() != "" {
		p.Player.Poster = here.Playback(v.Slug, token) + "poster.jpg"
		// Browsers and proxies may cache the public URL, but not a URL with a token.
		if v.Previewable(now) {
			p.Player.Poster = here.Thumbnail(v.Slug)
		}
	}
	for _, t := range v.Captions {
		p.Player.Captions = append(p.Player.Captions, track{Src: here.Playback(v.Slug, token) + "captions-" + t.Lang + ".vtt", Lang: t.Lang, Label: t.Name()})
	}
	switch {
	case v.Views == 1:
		p.Views = "1 view"
	case v.Views > 1:
		p.Views = thousands(v.Views) + " views"
	}
	if !v.ExpiresAt.IsZero() {
		p.Until, p.UntilISO = v.ExpiresAt.UTC().Format("2 January 2006, 15:04 UTC"), v.ExpiresAt.UTC().Format(time.RFC3339)
	}
	if v.Previewable(now) {
		p.Head.Preview = s.preview(v)
	}
	return p
}

func (s *Share) preview(v *video.Video) *preview {
	a := s.o.Addresses
	p := &preview{
		Page: a.Page(v.Slug), OEmbed: a.OEmbed(v.Slug), Image: a.Thumbnail(v.Slug), Embed: a.Embed(v.Slug),
		Title: titleOf(v), Description: short(v.Description), Width: v.Media.Width, Height: v.Media.Height,
		Seconds: int(math.Ceil(v.Media.Duration)),
	}
	if p.Description == "" {
		p.Description = "A " + clock(v.Media.Duration) + " video shared with Linkreel."
	}
	if v.Media.Download != "" && !v.NoDownload {
		p.File = a.File(v.Slug)
	}
	return p
}

// unready returns the page for a video that is not ready or has failed.
func (s *Share) unready(v *video.Video, embed bool) messagePage {
	p := messagePage{Head: head{Title: design.TabTitle(titleOf(v)), NoIndex: true, Script: true, Again: true}, Embed: embed, Glyph: "wait", Title: titleOf(v)}
	p.Waiting = &waiting{Status: string(v.Status), URL: "/v/" + string(v.Slug) + "/status"}
	switch v.Status {
	case video.Uploading:
		p.Lines = []string{"This video has not been uploaded yet. It will appear here as soon as it is uploaded."}
	case video.Processing:
		p.Lines = []string{"This video is being prepared. It will start here automatically in a moment."}
		p.Waiting.Bar, p.Waiting.Progress = true, v.Progress
	default:
		// Only the owner sees the reason. The owner may still upload another file.
		p.Glyph, p.Head.Again = "broken", false
		p.Lines = []string{"This video could not be prepared for playback. Ask the person who shared it to upload it again."}
	}
	return p
}

func (s *Share) lockedPage(v *video.Video, problem string) messagePage {
	return messagePage{
		Head: head{Title: "Protected video · Linkreel", NoIndex: true, Script: true}, Glyph: "lock", Title: "This video is protected",
		Lines:  []string{"Enter the password that you were given with the link."},
		Unlock: &unlockForm{Action: "/v/" + string(v.Slug) + "/unlock", Error: problem},
	}
}

// ErrorPage sends an error page. For a path that programs request, such as a playlist, ErrorPage
// only returns an error and the caller sends JSON.
func (s *Share) ErrorPage(c *fiber.Ctx, e *apierr.Error) error {
	p := c.Path()
	if strings.HasPrefix(p, "/hooks/") {
		return errors.New("not a page")
	}
	for _, end := range []string{"/status", "/session", "/oembed", ".jpg", ".mp4", ".m3u8", ".vtt", "/view"} {
		if strings.HasSuffix(p, end) {
			c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
			c.Set(fiber.HeaderAccessControlAllowOrigin, "*")
			return errors.New("not a page")
		}
	}
	m := messagePage{Head: head{NoIndex: true}, Embed: strings.HasPrefix(p, "/embed/"), Glyph: "broken"}
	switch e.Code {
	case apierr.NotFound, apierr.VideoNotFound:
		m.Title, m.Lines = "Nothing here", []string{"There is no video at this address. It may have been deleted, or the link may be incomplete."}
	case apierr.Gone:
		m.Glyph, m.Title, m.Lines = "gone", "This video has expired", []string{"The person who shared it set a time limit."}
	case apierr.TakenDown:
		m.Glyph, m.Title, m.Lines = "gone", "This video was taken down", []string{"The operator of this service removed it."}
	case apierr.AccountSuspended:
		m.Glyph, m.Title, m.Lines = "gone", "This video is not available", []string{"The account that shared it is suspended."}
	case apierr.RateLimited:
		m.Glyph, m.Title, m.Lines = "gone", "Too many attempts", []string{"Wait a moment, then try again."}
	case apierr.MethodNotAllowed:
		m.Title, m.Lines = "Not possible", []string{"This address does not accept this kind of request."}
	case apierr.Forbidden:
		m.Glyph, m.Title, m.Lines = "lock", "Not allowed", []string{e.Message}
	default:
		m.Title, m.Lines = "Something went wrong", []string{"It is not your fault. Try again in a moment."}
		if e.Code == apierr.Unavailable {
			m.Head.Again = true
		}
	}
	m.Head.Title = m.Title + " · Linkreel"
	return s.message(c, e.Status(), m)
}

func (s *Share) message(c *fiber.Ctx, status int, m messagePage) error {
	ancestors := nowhere
	if m.Embed {
		ancestors = anywhere
	}
	m.Head.Report = s.report
	return s.render(c, status, "message", ancestors, false, m)
}

func (s *Share) render(c *fiber.Ctx, status int, name, ancestors string, index bool, data any) error {
	var b bytes.Buffer
	if err := s.pages.ExecuteTemplate(&b, name, data); err != nil {
		return fmt.Errorf("render %s: %w", name, err)
	}
	if !index {
		c.Set("X-Robots-Tag", "noindex, nofollow")
	}
	c.Set(fiber.HeaderContentSecurityPolicy, s.policy+ancestors)
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	// Do not use no-referrer because it makes browsers submit forms with "Origin: null".
	c.Set(fiber.HeaderReferrerPolicy, "same-origin")
	c.Set("Cross-Origin-Opener-Policy", "same-origin")
	c.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), payment=(), usb=()")
	if ancestors == nowhere {
		c.Set(fiber.HeaderXFrameOptions, "DENY")
	}
	c.Set(fiber.HeaderCacheControl, "private, no-store")
	c.Set(fiber.HeaderContentType, "text/html; charset=utf-8")
	c.Status(status)
	return compressed(c, b.Bytes())
}

// status sends a video's status and progress to a waiting page.
func (s *Share) status(c *fiber.Ctx) error {
	v, err := s.open(c)
	if err != nil {
		return err
	}
	v = s.o.Videos.Refresh(c.UserContext(), v)
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	return httpapi.JSON(c, fiber.StatusOK, struct {
		Status   string `json:"status"`
		Progress int    `json:"progress"`
	}{string(v.Status), v.Progress})
}

// clock formats a duration for display: 1:03, 1:02:03.
func clock(s float64) string {
	t := int(math.Round(s))
	if t >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", t/3600, t/60%60, t%60)
	}
	return fmt.Sprintf("%d:%02d", t/60, t%60)
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// short shortens a description to one line for previews. The line ends with a whole word.
func short(s string) string {
	words := strings.Fields(s)
	line := strings.Join(words, " ")
	if len([]rune(line)) <= 200 {
		return line
	}
	n := 0
	for i, w := range words {
		if n += len([]rune(w)) + 1; n > 199 {
			return strings.TrimSpace(strings.Join(words[:i], " ") + "…")
		}
	}
	return line
}

func seconds(d time.Duration) int { return int(d / time.Second) }
