package share

import (
	"context"
	"errors"
	"mime"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

const unlockCookie = "lr_unlock"

// Guesses that are allowed. Wrong ones count, right ones are given back.
const (
	guessesPerAddress = 5 // a minute
	// guessesPerVideo is the hourly budget that networks share.
	guessesPerVideo = 60
	// firstGuesses is an hourly reserve for networks that have not failed at this
	// video within the hour. Without it, whoever spends the shared budget locks
	// every viewer out. It lets an attacker guess once more per network, at most so
	// many times, so their number stays small beside any password worth the name.
	firstGuesses = 600
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
	password, err := passwordOf(c)
	if err != nil {
		return err
	}
	ctx := c.UserContext()
	// Counted before the password is checked: guesses that run at once must not all pass.
	tries, wait := s.guess(ctx, v.ID, ratelimit.Network(s.o.ClientIP(c)).String())
	if wait > 0 {
		return s.tooMany(c, v, wait)
	}
	right := false
	// No password has another length, so such a guess is wrong without a hash, and counts.
	if n := utf8.RuneCountInString(password); n > 0 && n <= video.MaxPassword {
		right, err = s.o.Passwords.Check(ctx, v.PasswordHash, password)
	}
	// A right guess costs nothing, nor does one that was never checked.
	if right || errors.Is(err, video.ErrBusy) {
		for _, t := range tries {
			s.o.Guard.Refund(ctx, t)
		}
	}
	if errors.Is(err, video.ErrBusy) {
		return s.tooMany(c, v, 2*time.Second)
	}
	if err != nil {
		return err
	}
	if !right {
		return s.message(c, fiber.StatusForbidden, s.lockedPage(v, "That is not the password. Check it and try again.")) //nolint:forbidigo // the form again, not an error body
	}
	grant := video.GrantFor(v, video.Unlocked, s.o.UnlockTTL, s.o.Now())
	c.Cookie(&fiber.Cookie{
		Name: unlockCookie, Value: s.o.Keys.Sign(grant), Path: "/v/" + string(v.Slug),
		MaxAge: seconds(s.o.UnlockTTL), HTTPOnly: true, Secure: s.secure, SameSite: fiber.CookieSameSiteLaxMode,
	})
	return s.backToPage(c)
}

// guess counts a guess of a network, or says how long it has to wait. A network
// that has failed at this video within the hour shares a budget with the others
// that have; one that has not may use the reserve when that is spent.
func (s *Share) guess(ctx context.Context, id video.ID, network string) (tries []ratelimit.Try, wait time.Duration) {
	perAddress := ratelimit.Rule{Key: "unlock-address:" + network, Max: guessesPerAddress, Window: time.Minute}
	shared := ratelimit.Rule{Key: "unlock-video:" + string(id), Max: guessesPerVideo, Window: time.Hour}
	first := ratelimit.Rule{Key: "unlock-first:" + string(id) + ":" + network, Max: 1, Window: time.Hour}
	mark, failedBefore := s.o.Guard.Take(ctx, first)
	try, wait := s.o.Guard.Take(ctx, perAddress, shared)
	if wait > 0 && failedBefore == 0 {
		reserve := ratelimit.Rule{Key: "unlock-reserve:" + string(id), Max: firstGuesses, Window: time.Hour}
		try, wait = s.o.Guard.Take(ctx, perAddress, reserve)
	}
	if failedBefore == 0 {
		if wait > 0 {
			s.o.Guard.Refund(ctx, mark) // refused, so it has not failed
			return nil, wait
		}
		return []ratelimit.Try{mark, try}, 0
	}
	return []ratelimit.Try{try}, wait
}

// passwordOf reads the form field from the raw body and nowhere else. The usual
// helpers would look into the query, which proxies log, and unpack a compressed
// body of any size.
func passwordOf(c *fiber.Ctx) (string, error) {
	media, _, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	if coding := c.Get(fiber.HeaderContentEncoding); err != nil || media != fiber.MIMEApplicationForm || coding != "" && !strings.EqualFold(coding, "identity") {
		return "", apierr.New(apierr.UnsupportedMediaType, "Send the password as a form (application/x-www-form-urlencoded), without a Content-Encoding.")
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
