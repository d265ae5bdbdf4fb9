package share

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

const unlockCookie = "lr_unlock"

// Guesses that are allowed. Wrong ones count, right ones are given back.
const (
	guessesPerAddress = 5 // a minute
	guessesPerVideo   = 60
)

// unlocked reports whether the request's cookie opens v.
func (s *Share) unlocked(c *fiber.Ctx, v *video.Video) bool {
	g, err := s.o.Keys.Verify(c.Cookies(unlockCookie))
	return err == nil && g.Kind == video.Unlocked && g.Allows(v, s.o.Now())
}

// unlock takes the password. A right one is remembered in a cookie of this
// video; a wrong one gets the form again.
func (s *Share) unlock(c *fiber.Ctx) error {
	v, err := s.find(c)
	if err != nil {
		return err
	}
	if s.crossSite(c) {
		return apierr.New(apierr.Forbidden, "The password has to be entered on this video's own page.")
	}
	if v.Privacy != video.Password {
		return s.backToPage(c)
	}
	ctx := c.UserContext()
	try, wait := s.o.Guard.Take(ctx,
		ratelimit.Rule{Key: "unlock-address:" + network(s.o.ClientIP(c)), Max: guessesPerAddress, Window: time.Minute},
		ratelimit.Rule{Key: "unlock-video:" + string(v.ID), Max: guessesPerVideo, Window: time.Hour})
	if wait > 0 {
		return s.tooMany(c, v, wait)
	}
	password := c.FormValue("password")
	right := false
	if n := utf8.RuneCountInString(password); n > 0 && n <= video.MaxPassword {
		right, err = s.o.Passwords.Check(ctx, v.PasswordHash, password)
	}
	if errors.Is(err, video.ErrBusy) {
		s.o.Guard.Refund(ctx, try)
		return s.tooMany(c, v, 2*time.Second)
	}
	if err != nil {
		return err
	}
	if !right {
		return s.message(c, fiber.StatusForbidden, s.lockedPage(v, "That is not the password. Check it and try again."))
	}
	s.o.Guard.Refund(ctx, try)
	grant := video.GrantFor(v, video.Unlocked, s.o.UnlockTTL, s.o.Now())
	c.Cookie(&fiber.Cookie{
		Name: unlockCookie, Value: s.o.Keys.Sign(grant), Path: "/v/" + string(v.Slug),
		MaxAge: seconds(s.o.UnlockTTL), HTTPOnly: true, Secure: s.secure, SameSite: fiber.CookieSameSiteLaxMode,
	})
	return s.backToPage(c)
}

func (s *Share) tooMany(c *fiber.Ctx, v *video.Video, wait time.Duration) error {
	after := max(1, seconds(wait+time.Second-1))
	c.Set(fiber.HeaderRetryAfter, strconv.Itoa(after))
	text := "Too many tries. Try again in " + plural(after, "second") + "."
	if after > 90 {
		text = "Too many tries. Try again in " + plural((after+59)/60, "minute") + "."
	}
	return s.message(c, fiber.StatusTooManyRequests, s.lockedPage(v, text))
}

func plural(n int, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return strconv.Itoa(n) + " " + unit + "s"
}

// crossSite reports whether a browser says that the form is not ours. Clients
// that are no browsers say nothing.
func (s *Share) crossSite(c *fiber.Ctx) bool {
	if site := c.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return true
	}
	origin := c.Get(fiber.HeaderOrigin)
	if origin == "" {
		return false
	}
	o, err := url.Parse(origin)
	base, _ := url.Parse(s.o.Addresses.Base)
	return err != nil || o.Host != base.Host && o.Host != string(c.Request().Host())
}

// network is what counts as one client address: for IPv6 the whole /64 that one
// person usually has.
func network(a netip.Addr) string {
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.String()
		}
	}
	return a.String()
}
