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

// Limits on password guesses in addition to those in [unlock.Guess]. Together, they allow 720
// wrong guesses per video per hour, no matter how many networks are used. That is too few to find
// a reasonable password.
const (
	// returningGuesses is an hourly budget for browsers that have unlocked this video before.
	// guessesPerCookie is the share of this budget that one such browser may use.
	returningGuesses = 60
	guessesPerCookie = 10
)

// unlocked reports whether the request's cookie unlocks v.
func (s *Share) unlocked(c *fiber.Ctx, v *video.Video) bool {
	g, err := s.o.Keys.Verify(c.Cookies(unlockCookie))
	return err == nil && g.Kind == video.Unlocked && g.Allows(v, s.o.Now())
}

// unlock checks the password. If it is correct, unlock sets a cookie for this video. If it is
// wrong, unlock shows the form again.
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
	// Count the guess before checking the password so that concurrent guesses cannot exceed the
	// limit.
	try, wait := s.guess(ctx, v.ID, s.o.ClientIP(c), s.returning(c, v))
	if wait > 0 {
		return s.tooMany(c, v, wait)
	}
	right := false
	// Hash only a guess whose length is valid for a password. Any other guess counts as wrong.
	if n := utf8.RuneCountInString(given); n > 0 && n <= video.MaxPassword {
		right, err = s.o.Passwords.Check(ctx, v.AccountID, v.PasswordHash, given)
	}
	// Refund correct guesses and guesses that could not be checked.
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

// returning identifies a browser that has unlocked v before. It returns "" for any other browser.
// The cookie remains valid after the password changes. Otherwise, an owner who changes the password
// to stop an attack would lock out the viewers who know the new password. The cookie only grants a
// share of the budget, so somebody who knows an old password does not gain more than that.
func (s *Share) returning(c *fiber.Ctx, v *video.Video) string {
	g, err := s.o.Keys.Verify(c.Cookies(returnCookie))
	if err != nil || g.Kind != video.Returning || g.Video != v.ID || !s.o.Now().Before(g.Expires) {
		return ""
	}
	// The cookie's creation time is enough to tell browsers apart.
	return strconv.FormatInt(g.Expires.UnixMilli(), 36)
}

// guess counts a guess from addr, or returns how long the viewer must wait. It counts the guess
// against the first of these budgets that is not used up:
//
//	returning  if the browser has unlocked this video before
//	reserve    if nobody in addr's neighbourhood has entered a wrong password within the hour
//	shared
//
// A wrong guess is not refunded, so the sum of the budgets is the overall limit.
func (s *Share) guess(ctx context.Context, id video.ID, addr netip.Addr, returning string) (try ratelimit.Try, wait time.Duration) {
	rule := func(most int, name string) ratelimit.Rule { return unlock.HourlyRule(string(id), name, most) }
	if returning != "" {
		// Do not track this budget by address: guesses from the same neighbourhood must not use it
		// up.
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

// crossSite reports whether the browser says that the form was submitted from another site.
func (s *Share) crossSite(c *fiber.Ctx) bool {
	return unlock.CrossSite(c.Request(), s.o.Addresses.Base)
}
