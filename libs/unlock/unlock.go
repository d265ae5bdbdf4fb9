// Package unlock contains the shared parts of the password pages of links and videos: the budget
// for guesses, the form, and the messages to visitors. Package password checks the password.
package unlock

import (
	"context"
	"mime"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/ratelimit"
)

// Wrong is the message for a wrong password.
const Wrong = "That is not the password. Check it and try again."

// Limits on guesses for one record's password. Only wrong guesses count, because the caller
// refunds correct guesses. Together the limits allow 660 wrong guesses per hour from any number of
// networks, which is too few to guess a reasonable password.
const (
	guessesPerAddress = 5 // per minute
	// SharedGuesses is the hourly budget that networks share.
	SharedGuesses = 60
	// FirstGuesses is an hourly reserve for neighbourhoods that have not made a wrong guess for
	// this record within the hour. Each neighbourhood gets one guess. Without this reserve, an
	// attacker who uses up the shared budget would lock out everyone else. A neighbourhood is an
	// address range that one customer of a provider can have (an IPv6 /48 is 65,536 networks), so
	// that one attacker's networks count as one. A region is a provider's address range.
	FirstGuesses     = 600
	firstOfRegion    = 60
	neighbourhoodOf4 = 24
	neighbourhoodOf6 = 48
	regionOf4        = 16
	regionOf6        = 32
)

// Limiter counts guesses; see [ratelimit.Limiter].
type Limiter interface {
	Take(ctx context.Context, rules ...ratelimit.Rule) (try ratelimit.Try, wait time.Duration)
	Refund(ctx context.Context, t ratelimit.Try)
}

// HourlyRule returns the rule for a record's hourly budget for guesses.
func HourlyRule(record, name string, most int) ratelimit.Rule {
	return ratelimit.Rule{Key: "unlock:" + record + ":" + name, Max: most, Window: time.Hour}
}

// Guess counts a guess from addr for a record's password, or returns how long the visitor must
// wait. Count a guess before checking it so that concurrent guesses do not all get through. The
// guess is taken from the first of these budgets that is not used up:
//
//	reserve  if addr's neighbourhood has no wrong guess for this record within the hour
//	shared
//
// A wrong guess remains counted in its budget, so the sum of the budgets is the overall limit.
func Guess(ctx context.Context, l Limiter, record string, addr netip.Addr) (try ratelimit.Try, wait time.Duration) {
	perAddress := ratelimit.Rule{Key: "unlock-address:" + ratelimit.Network(addr).String(), Max: guessesPerAddress, Window: time.Minute}
	near, region := wide(addr, neighbourhoodOf4, neighbourhoodOf6), wide(addr, regionOf4, regionOf6)
	if try, wait = l.Take(
		ctx, perAddress, HourlyRule(record, "near:"+near, 1), HourlyRule(record, "region:"+region, firstOfRegion),
		HourlyRule(record, "reserve", FirstGuesses),
	); wait == 0 {
		return try, 0
	}
	return l.Take(ctx, perAddress, HourlyRule(record, "shared", SharedGuesses))
}

// wide returns addr's network with the given prefix length, or "" if there is
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

// TooMany returns how many seconds a visitor must wait before trying again, and a message for the
// visitor.
func TooMany(wait time.Duration) (seconds int, text string) {
	seconds = max(1, int((wait+time.Second-1)/time.Second))
	if seconds > 90 {
		return seconds, "Too many attempts. Try again in " + plural((seconds+59)/60, "minute") + "."
	}
	return seconds, "Too many attempts. Try again in " + plural(seconds, "second") + "."
}

func plural(n int, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return strconv.Itoa(n) + " " + unit + "s"
}

// FromForm returns the "password" field from a form. It reads only the raw body. The usual helpers
// would also read the query, which proxies log, and would decompress a body of any size.
func FromForm(req *fasthttp.Request) (string, error) {
	media, _, err := mime.ParseMediaType(string(req.Header.ContentType()))
	coding := string(req.Header.ContentEncoding())
	if err != nil || media != "application/x-www-form-urlencoded" || coding != "" && !strings.EqualFold(coding, "identity") {
		return "", apierr.New(
			apierr.UnsupportedMediaType,
			"Send the password as a form (application/x-www-form-urlencoded), without a Content-Encoding.",
		)
	}
	var form fasthttp.Args
	form.ParseBytes(req.Body())
	return string(form.Peek("password")), nil
}

// CrossSite reports whether the browser's headers name a site other than base or the requested host
// as the source of a form. Clients other than browsers do not send these headers.
func CrossSite(req *fasthttp.Request, base string) bool {
	site := string(req.Header.Peek("Sec-Fetch-Site"))
	if site != "" {
		return site != "same-origin" && site != "none"
	}
	origin := string(req.Header.Peek("Origin"))
	if origin == "" {
		return false
	}
	o, err := url.Parse(origin)
	own, _ := url.Parse(base)
	return err != nil || o.Host != own.Host && o.Host != string(req.Host())
}
