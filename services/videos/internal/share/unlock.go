package share

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/password"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/unlock"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

const (
	unlockCookie = "lr_unlock"
	// returnCookie marks a browser that has unlocked this video before. It does not unlock the
	// video.
	returnCookie = "lr_known"
	returnLife   = 90 * 24 * time.Hour
)

// Limits of password guesses, besides those of [unlock.Guess]. Together they allow 720
// wrong guesses per hour and video, however many networks guess: too few to find a
// reasonable password.
const (
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
		return apierr.New(apierr.Forbidden, "Enter the password on this video's own page.")
	}
	if v.Privacy != video.Password {
		return s.backToPage(c)
	}
	given, err := unlock.FromForm(c.Request())
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
		page := s.lockedPage(v, unlock.Wrong)
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
//	reserve    if nobody in addr's neighbourhood has entered a wrong password within the hour
//	shared
//
// A wrong guess stays counted in its budget, so the sum of the budgets is the overall
// limit.
func (s *Share) guess(ctx context.Context, id video.ID, addr netip.Addr, returning string) (try ratelimit.Try, wait time.Duration) {
	rule := func(most int, name string) ratelimit.Rule { return unlock.HourlyRule(string(id), name, most) }
	if returning != "" {
		// Do not count this budget by address: a neighbour's guesses must not use it up.
		if try, wait = s.o.Guard.Take(ctx, rule(guessesPerCookie, "returning:"+returning), rule(returningGuesses, "returning")); wait == 0 {
			return try, 0
		}
	}
	return unlock.Guess(ctx, s.o.Guard, string(id), addr)
}

func (s *Share) tooMany(c *fiber.Ctx, v *video.Video, wait time.Duration) error {
	after, text := unlock.TooMany(wait)
	c.Set(fiber.HeaderRetryAfter, strconv.Itoa(after))
	return s.message(c, fiber.StatusTooManyRequests, s.lockedPage(v, text)) //nolint:forbidigo // the form again, not an error body
}

// crossSite reports whether the browser says that the form came from another site.
func (s *Share) crossSite(c *fiber.Ctx) bool {
	return unlock.CrossSite(c.Request(), s.o.Addresses.Base)
}
