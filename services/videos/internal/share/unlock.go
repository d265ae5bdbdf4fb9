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
	// returnCookie tells that its browser has unlocked this video before. It opens nothing.
	returnCookie = "lr_known"
	returnLife   = 90 * 24 * time.Hour
)

// Guesses that are allowed. Wrong ones count, right ones are given back. All of them
// together allow 720 wrong guesses an hour and video, however many networks guess:
// too few for any password worth the name.
const (
	guessesPerAddress = 5 // a minute
	// guessesPerVideo is the hourly budget that networks share.
	guessesPerVideo = 60
	// firstGuesses is an hourly reserve for neighbourhoods that have not failed at
	// this video within the hour; each gets one guess of it. Without it, whoever
	// spends the shared budget locks every viewer out. A neighbourhood is what one
	// customer of a provider can hold (a /48 of IPv6 is 65,536 networks), so that
	// many networks of one attacker count as one. A region is what a provider holds.
	firstGuesses     = 600
	firstOfRegion    = 60
	neighbourhoodOf4 = 24
	neighbourhoodOf6 = 48
	regionOf4        = 16
	regionOf6        = 32
	// returningGuesses is an hourly part for browsers that have unlocked this video
	// before, guessesPerCookie what one of them gets of it.
	returningGuesses = 60
	guessesPerCookie = 10
)

// unlocked reports whether the request's cookie opens v.
func (s *Share) unlocked(c *fiber.Ctx, v *video.Video) bool {
	g, err := s.o.Keys.Verify(c.Cookies(unlockCookie))
	return err == nil && g.Kind == video.Unlocked && g.Allows(v, s.o.Now())
}

// unlock takes the password. A right one is remembered in a cookie of this
// video; a wrong one gets the form again.
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
	// Counted before the password is checked: guesses that run at once must not all pass.
	try, wait := s.guess(ctx, v.ID, s.o.ClientIP(c), s.returning(c, v))
	if wait > 0 {
		return s.tooMany(c, v, wait)
	}
	right := false
	// No password has another length, so such a guess is wrong without a hash, and counts.
	if n := utf8.RuneCountInString(given); n > 0 && n <= video.MaxPassword {
		right, err = s.o.Passwords.Check(ctx, v.AccountID, v.PasswordHash, given)
	}
	// A right guess costs nothing, nor does one that was never checked.
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

// returning names the browser if it has unlocked v before, "" if not. A changed
// password does not end that: whoever changes it because of guesses would lock out the
// very viewers who are told the new one. All that the cookie gives is a part of the
// budget, and who once had the password gets no more of it than anybody.
func (s *Share) returning(c *fiber.Ctx, v *video.Video) string {
	g, err := s.o.Keys.Verify(c.Cookies(returnCookie))
	if err != nil || g.Kind != video.Returning || g.Video != v.ID || !s.o.Now().Before(g.Expires) {
		return ""
	}
	// When the cookie was made is enough to tell browsers apart.
	return strconv.FormatInt(g.Expires.UnixMilli(), 36)
}

// guess counts a guess from addr, or says how long it has to wait. It is taken from
// the first of these that has room:
//
//	returning  if the browser has unlocked this video before
//	reserve    if nobody of addr's neighbourhood has failed at this video within the hour
//	shared
//
// A wrong guess stays counted where it was taken from, so their sum is the bound.
func (s *Share) guess(ctx context.Context, id video.ID, addr netip.Addr, returning string) (try ratelimit.Try, wait time.Duration) {
	rule := func(most int, name string) ratelimit.Rule {
		return ratelimit.Rule{Key: "unlock:" + string(id) + ":" + name, Max: most, Window: time.Hour}
	}
	if returning != "" {
		// Not by address: a neighbour who guesses must not spend it.
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

// wide is the network of so many bits that an address belongs to; "" for none.
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
