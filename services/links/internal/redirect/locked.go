package redirect

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/password"
	"github.com/linkreel/linkreel/libs/unlock"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

const (
	maxPassword = 256 // in code points, like the limit in the API contract
	// checkTime limits how long a guess waits to be hashed.
	checkTime = 10 * time.Second
)

// locked is a link's password page. It reveals nothing about the link.
type locked struct{ Problem, Report string }

// lockedPage responds with the password page. Its form has no action, so the browser submits it to
// the page's own URL, including the path and the query.
func (h *Handler) lockedPage(ctx *fasthttp.RequestCtx, status int, problem string) {
	page(ctx, status, "locked.html", locked{problem, h.report()})
	ctx.Response.Header.Set("Content-Security-Policy", lockedPolicy)
	ctx.Response.Header.Set("Referrer-Policy", "no-referrer")
	ctx.Response.Header.Set("X-Frame-Options", "DENY")
}

// unlock checks the password submitted for a link. If the password is correct, unlock stores the
// matching hash in v and returns true. Otherwise unlock responds to the request and returns false.
func (h *Handler) unlock(ctx *fasthttp.RequestCtx, v *visit, target *link.Target) bool {
	if unlock.CrossSite(&ctx.Request, h.opt.ShortBaseURL) {
		h.fail(ctx, apierr.New(apierr.Forbidden, "Open this link and enter the password on its own page."))
		return false
	}
	given, err := unlock.FromForm(&ctx.Request)
	if err != nil {
		h.fail(ctx, apierr.From(err))
		return false
	}
	wait, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	// Count the guess before checking the password. Otherwise concurrent guesses could all pass the
	// limit.
	try, pause := unlock.Guess(wait, h.opt.Guesses, target.LinkID, h.opt.Client(ctx))
	if pause > 0 {
		h.tooMany(ctx, pause)
		return false
	}
	right := false
	// A guess of any other length cannot be the password. It counts as wrong and is not hashed.
	if n := utf8.RuneCountInString(given); n > 0 && n <= maxPassword {
		right, err = h.opt.Passwords.Check(wait, target.AccountID, target.Routing.Password, given)
	}
	// Refund a correct guess, and a guess that could not be checked.
	if right || err != nil {
		h.opt.Guesses.Refund(wait, try)
	}
	switch {
	case errors.Is(err, password.ErrBusy), errors.Is(err, context.DeadlineExceeded):
		h.tooMany(ctx, 2*time.Second)
	case err != nil:
		slog.Error("cannot check a link's password", "link", target.LinkID, "error", err)
		h.fail(ctx, unavailable(err))
	case !right:
		h.lockedPage(ctx, fasthttp.StatusForbidden, unlock.Wrong)
	default:
		v.fits = target.Routing.Password
		return true
	}
	return false
}

func (h *Handler) tooMany(ctx *fasthttp.RequestCtx, wait time.Duration) {
	after, text := unlock.TooMany(wait)
	h.lockedPage(ctx, fasthttp.StatusTooManyRequests, text)
	ctx.Response.Header.Set("Retry-After", strconv.Itoa(after))
}
