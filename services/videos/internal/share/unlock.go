package share

import (
	"context"
	"errors"
	"mime"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/password"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

const (
	unlockCookie = "lr_unlock"
	// returnCookie marks a browser that has unlocked this video before. It does not unlock the
	// video.
	returnCookie = "lr_known"
	returnLife   = 90 * 24 * time.Hour
)

// Limits of password guesses. Wrong guesses count, right ones are refunded. The limits
// together allow 720 wrong guesses per hour and video, however many networks guess: too
// few to find a reasonable password.
const (
	guessesPerAddress = 5 // a minute
	// guessesPerVideo is the hourly budget that networks share.
	guessesPerVideo = 60
	// firstGuesses is an hourly reserve for neighbourhoods that have not failed at this video
	// within the hour. Each neighbourhood gets one guess. Without this reserve, an attacker who
	// spends the shared budget would lock out every viewer. A neighbourhood is a range that one
	// customer of a provider can hold (a /48 of IPv6 is 65,536 networks), so that many networks
	// of one attacker count as one. A region is a range that a provider holds.
	firstGuesses     = 600
	firstOfRegion    = 60
	neighbourhoodOf4 = 24
	neighbourhoodOf6 = 48
	regionOf4        = 16
	regionOf6        = 32
	// returningGuesses is an hourly budget for browsers that have unlocked this video before.
	// guessesPerCookie is how many of these one such browser gets.
	returningGuesses = 60
	guessesPerCookie = 10
)

// unlocked reports whether the request's cookie opens v.
func (s *Share) unlocked(c *fiber.Ctx, v *video.Video) bool {
	g, err := s.o.Keys.Verify(c.Cookies(unlockCookie))
	return err == nil && g.Kind == video.Unlocked && g.Allows(v, s.o.Now())
}

// unlock checks the password. It remembers a right one in a cookie of this video, and
// answers a wrong one with the form again.
func (s *Share) unlock(c *fiber.Ctx) error {
	v, err := s.ofPath(c)
	if err != nil {
		return err
	}
	if s.crossSite(c) {
		return apierr.New(apierr.Forbidden, "The password has to be entered on this video's own page.")
	}
	if v.Privacy != video.Password {
		return s.backToPage(c)
	}
	given, err := passwordOf(c)
	if err != nil {
		return err
	}
	ctx := c.UserContext()
	// Count the guess before checking the password: concurrent guesses must not all pass.
	try, wait := s.guess(ctx, v.ID, s.o.ClientIP(c), s.returning(c, v))
	if wait > 0 {
		return s.tooMany(c, v, wait)
	}
	right := false
	// A guess of any other length cannot be a password, so it counts as wrong and needs no
	// hash.
	if n := utf8.RuneCountInString(given); n > 0 && n <= video.MaxPassword {
		right, err = s.o.Passwords.Check(ctx, v.AccountID, v.PasswordHash, given)
	}
	// Refund a right guess, and a guess that could not be checked.
	if right || err != nil {
		s.o.Guard.Refund(ctx, try)
	}
	if errors.Is(err, password.ErrBusy) {
		return s.tooMany(c, v, 2*time.Second)
	}
	if err != nil {
		return err
	}
	if !right {
		page := s.lockedPage(v, "That is not the password. Check it and try again.")
		return s.message(c, fiber.StatusForbidden, page) //nolint:forbidigo // the form again, not an error body
	}
	grant := video.GrantFor(v, video.Unlocked, s.o.UnlockTTL, s.o.Now())
	c.Cookie(&fiber.Cookie{
		Name: unlockCookie, Value: s.o.Keys.Sign(grant), Path: "/v/" + string(v.Slug),
		MaxAge: seconds(s.o.UnlockTTL), HTTPOnly: true, Secure: s.secure, SameSite: fiber.CookieSameSiteLaxMode,
	})
	known := video.Grant{Kind: video.Returning, Video: v.ID, Access: v.Access, Expires: s.o.Now().Add(returnLife)}
	c.Cookie(&fiber.Cookie{
		Name: returnCookie, Value: s.o.Keys.Sign(known), Path: "/v/" + string(v.Slug),
		MaxAge: seconds(returnLife), HTTPOnly: true, Secure: s.secure, SameSite: fiber.CookieSameSiteLaxMode,
	})
	return s.backToPage(c)
}

// returning identifies a browser that has unlocked v before, and returns "" for any
// other. The cookie still works after a change of the password: otherwise an owner who
// changes it because of guesses would lock out the viewers who are told the new one.
// The cookie gives only a share of the budget, so somebody who once had the password
// gets no more than that.
func (s *Share) returning(c *fiber.Ctx, v *video.Video) string {
	g, err := s.o.Keys.Verify(c.Cookies(returnCookie))
	if err != nil || g.Kind != video.Returning || g.Video != v.ID || !s.o.Now().Before(g.Expires) {
		return ""
	}
	// The time when the cookie was made is enough to tell browsers apart.
	return strconv.FormatInt(g.Expires.UnixMilli(), 36)
}

// guess counts a guess from addr, or says how long the viewer has to wait. The guess is
// taken from the first of these budgets that has room:
//
//	returning  if the browser has unlocked this video before
//	reserve    if nobody of addr's neighbourhood has failed at this video within the hour
//	shared
//
// A wrong guess stays counted in its budget, so the sum of the budgets is the overall
// limit.
func (s *Share) guess(ctx context.Context, id video.ID, addr netip.Addr, returning string) (try ratelimit.Try, wait time.Duration) {
	rule := func(most int, name string) ratelimit.Rule {
		return ratelimit.Rule{Key: "unlock:" + string(id) + ":" + name, Max: most, Window: time.Hour}
	}
	if returning != "" {
		// Do not count this budget by address: a neighbour's guesses must not use it up.
		if try, wait = s.o.Guard.Take(ctx, rule(guessesPerCookie, "returning:"+returning), rule(returningGuesses, "returning")); wait == 0 {
			return try, 0
		}
	}
	perAddress := ratelimit.Rule{Key: "unlock-address:" + ratelimit.Network(addr).String(), Max: guessesPerAddress, Window: time.Minute}
	near, region := wide(addr, neighbourhoodOf4, neighbourhoodOf6), wide(addr, regionOf4, regionOf6)
	if try, wait = s.o.Guard.Take(
		ctx, perAddress, rule(1, "near:"+near), rule(firstOfRegion, "region:"+region), rule(firstGuesses, "reserve"),
	); wait == 0 {
		return try, 0
	}
	return s.o.Guard.Take(ctx, perAddress, rule(guessesPerVideo, "shared"))
}

// wide returns the network of addr with the given prefix length, or "" if there is
// none.
func wide(addr netip.Addr, bits4, bits6 int) string {
	addr = addr.Unmap().WithZone("")
	bits := bits4
	if addr.Is6() {
		bits = bits6
	}
	p, err := addr.Prefix(bits)
	if err != nil {
		return ""
	}
	return p.String()
}

// passwordOf reads the form field from the raw body and nowhere else. The usual
// helpers would look into the query, which proxies log, and unpack a compressed
// body of any size.
func passwordOf(c *fiber.Ctx) (string, error) {
	media, _, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	if coding := c.Get(fiber.HeaderContentEncoding); err != nil || media != fiber.MIMEApplicationForm ||
		coding != "" && !strings.EqualFold(coding, "identity") {
		return "", apierr.New(
			apierr.UnsupportedMediaType,
			"Send the password as a form (application/x-www-form-urlencoded), without a Content-Encoding.",
		)
	}
	var form fasthttp.Args
	form.ParseBytes(c.Request().Body())
	return string(form.Peek("password")), nil
}

func (s *Share) tooMany(c *fiber.Ctx, v *video.Video, wait time.Duration) error {
	after := max(1, seconds(wait+time.Second-1))
	c.Set(fiber.HeaderRetryAfter, strconv.Itoa(after))
	text := "Too many tries. Try again in " + plural(after, "second") + "."
	if after > 90 {
		text = "Too many tries. Try again in " + plural((after+59)/60, "minute") + "."
	}
	return s.message(c, fiber.StatusTooManyRequests, s.lockedPage(v, text)) //nolint:forbidigo // the form again, not an error body
}

func plural(n int, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return strconv.Itoa(n) + " " + unit + "s"
}

// crossSite reports whether the browser says that the form came from another site.
// Clients other than browsers send no such headers.
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
