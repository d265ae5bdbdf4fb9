package redirect

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/design"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/httpserver"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/lograte"
	"github.com/linkreel/linkreel/libs/metrics"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

var (
	errPanic     = errors.New("panic in the redirect handler")
	errOvertaken = errors.New("the link kept changing")
	errNoPlaces  = errors.New("this process is not configured to serve links with maxClicks")
)

func notFound() *apierr.Error {
	return apierr.New(apierr.NotFound, "There is no link at this address.")
}

// notYet returns the error for a link before its startsAt. It reveals nothing about the link except
// that time.
func notYet(begins link.Moment) *apierr.Error {
	return &apierr.Error{Code: apierr.NotFound, Message: "This link is not active yet. It starts at the time in startsAt.", StartsAt: begins.MS}
}

// takenDown returns the error for links that the operator took down, and for destinations that the
// operator blocks. The reason is meant for the owner, not for visitors.
func takenDown() *apierr.Error {
	return apierr.New(apierr.TakenDown, "This link was taken down by the operator of this service.")
}

// suspended returns an error that only reveals that the link is out of service. The reason is meant
// only for the account and the operator.
func suspended() *apierr.Error {
	return &apierr.Error{Code: apierr.AccountSuspended, OnPage: true, Message: "This link is out of service."}
}

// refusalOf returns the error for a visit that is not redirected.
func refusalOf(d *link.Decision) *apierr.Error {
	switch d.Outcome {
	case link.OutOfService:
		return suspended()
	case link.TakenDown:
		return takenDown()
	case link.NotYet:
		return notYet(d.Reason.From)
	case link.Over, link.Exhausted:
		return apierr.New(apierr.Gone, "This link has expired.")
	}
	return notFound()
}

// refusal returns the error for a link that could not be looked up.
func refusal(err error) *apierr.Error {
	var e *apierr.Error
	if errors.As(err, &e) && e.Code == apierr.RateLimited {
		return e
	}
	return unavailable(err)
}

// unavailable hides the cause from the visitor.
func unavailable(err error) *apierr.Error {
	return &apierr.Error{
		Code:    apierr.Unavailable,
		Message: "This link cannot be looked up right now. Try again shortly.", RetryAfter: time.Second, Err: err,
	}
}

var (
	headerLocation     = []byte("Location")
	headerCacheControl = []byte("Cache-Control")
	neverCached        = []byte("private, no-store")
	neverStored        = []byte("no-store")
)

// redirect redirects the visitor to the decision's location. It does not set a Referrer-Policy, so
// the destination can see the referrer.
func (h *Handler) redirect(ctx *fasthttp.RequestCtx, d *link.Decision, prefetch bool) {
	res := &ctx.Response
	res.SetStatusCode(d.Status)
	res.Header.SetNoDefaultContentType(true)
	res.Header.SetBytesK(headerLocation, d.Location)
	if d.Status == fasthttp.StatusSeeOther { // after the password form
		res.Header.Set("Referrer-Policy", "no-referrer")
	}
	switch {
	case d.MaxAge < 0:
		res.Header.SetCanonical(headerCacheControl, neverCached)
	case prefetch: // the actual visit must send its own request, so it is counted
		res.Header.SetCanonical(headerCacheControl, neverStored)
	default:
		res.Header.Set("Cache-Control", "private, max-age="+strconv.Itoa(d.MaxAge))
	}
}

// fail responds with a small page, or with JSON if the client accepts it.
func (h *Handler) fail(ctx *fasthttp.RequestCtx, e *apierr.Error) {
	status := e.Status()
	if (status == fasthttp.StatusNotFound || status == fasthttp.StatusMethodNotAllowed) && h.callsAPI(ctx) {
		moved := *e // change a copy because the error may be shared
		moved.Message += " The API is at " + strings.TrimRight(h.opt.BaseURL, "/") + "/api/v1."
		e = &moved
	}
	if status >= fasthttp.StatusInternalServerError {
		h.failed.warn(status, e.Err)
	}
	ctx.Response.SetStatusCode(status)
	ctx.Response.Header.SetBytesKV(headerCacheControl, neverCached)
	if e.RetryAfter > 0 {
		ctx.Response.Header.Set("Retry-After", strconv.Itoa(max(1, int(e.RetryAfter.Seconds()))))
	}
	if httpserver.WantsJSON(&ctx.Request) {
		id := strings.ToLower(identity.NewNonce())
		ctx.Response.Header.Set("X-Request-Id", id)
		ctx.SetContentType("application/json")
		ctx.Response.SetBodyRaw(httpapi.ErrorBody(e, id))
		return
	}
	m := message{Title: titles[e.Code], Text: e.Message, Report: h.report()}
	if e.StartsAt != 0 {
		m.Title, m.Text, m.Begins = "Not yet", "This link is not active yet. It starts on", time.UnixMilli(e.StartsAt).UTC().Format(time.RFC3339)
	}
	page(ctx, status, "message.html", m)
}

// callsAPI reports whether a program has mistaken the default short host for the API, because it
// sent JSON or requested an API path. On a custom domain callsAPI returns false because responses
// there must not reveal anything about the deployment.
func (h *Handler) callsAPI(ctx *fasthttp.RequestCtx) bool {
	if _, isDefault, _ := h.hostOf(ctx); !isDefault || h.opt.BaseURL == "" {
		return false
	}
	return httpserver.SendsJSON(&ctx.Request) || bytes.HasPrefix(ctx.Path(), []byte("/api/"))
}

var titles = map[apierr.Code]string{
	apierr.NotFound: "No link here", apierr.TakenDown: "This link was taken down", apierr.AccountSuspended: "Out of service",
	apierr.Gone: "This link has expired", apierr.MethodNotAllowed: "Method not allowed",
	apierr.RateLimited: "Too many requests", apierr.Forbidden: "Not allowed", apierr.UnsupportedMediaType: "Not a form",
	apierr.Unavailable: "Just a moment", apierr.Internal: "Something went wrong",
}

// failures logs the causes of failed visits. Thousands of visits per second may fail for the same
// reason, so at most one line per second is written.
type failures struct{ lograte.Limit }

func (f *failures) warn(status int, cause error) {
	if visits := f.DueAfter(time.Second, time.Now(), 1); visits > 0 {
		slog.Warn("redirects fail", "service", "links-redirect", "status", status, "error", cause, "visits", visits)
	}
}

func (h *Handler) wellKnownName(folded string) bool {
	return folded == "robots.txt" || folded == "favicon.ico"
}

// wellKnown responds to paths that are not links. It serves the files that clients request from
// every host, and responds with 404 to all other paths. On a custom domain, a link whose slug is
// the name of such a file takes precedence.
func (h *Handler) wellKnown(ctx *fasthttp.RequestCtx, segment []byte) {
	switch string(segment) {
	case "robots.txt":
		ctx.SetContentType("text/plain; charset=utf-8")
		ctx.Response.Header.Set("Cache-Control", "public, max-age=3600")
		ctx.SetBodyString("User-agent: *\nDisallow: /\n")
	case "favicon.ico":
		ctx.Response.SetStatusCode(fasthttp.StatusNoContent)
		ctx.Response.Header.SetNoDefaultContentType(true)
		ctx.Response.Header.Set("Cache-Control", "public, max-age=86400")
	default:
		h.fail(ctx, notFound())
	}
}

//go:embed pages/*.html pages/style.css
var files embed.FS

var pages = template.Must(template.New("").
	Funcs(template.FuncMap{"style": func() template.CSS { return style }}).
	ParseFS(files, "pages/*.html"))

var style = func() template.CSS {
	raw, err := files.ReadFile("pages/style.css")
	if err != nil {
		panic(err)
	}
	return template.CSS(design.Tokens + string(raw)) //nolint:gosec // our own embedded file
}()

// policy allows a page to use its own style and nothing else. lockedPolicy is the password page's
// policy.
var policy, lockedPolicy = policyWith("'none'"), policyWith("*")

// policyWith returns a policy that allows forms to be submitted to certain URLs. Browsers also
// apply it to the redirect that follows a submission. The correct password can redirect to any
// destination, so the form's policy must allow all URLs.
func policyWith(forms string) string {
	sum := sha256.Sum256([]byte(style))
	return fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; base-uri 'none'; form-action %s; frame-ancestors 'none'",
		base64.StdEncoding.EncodeToString(sum[:]), forms)
}

type message struct {
	Title, Text, Report string
	Begins              string // the link's start (RFC 3339), or ""
}

// view contains the data for the pages about a link. It does not include the private title.
type view struct {
	ShortURL, Location, Host string
	Title, Description       string
	Image                    string
	Report                   string
}

// report returns the URL of the "Report" link. It converts a plain e-mail address to a mailto: URL.
func (h *Handler) report() string {
	if c := h.opt.AbuseContact; strings.Contains(c, "@") && !strings.Contains(c, ":") {
		return "mailto:" + c
	}
	return h.opt.AbuseContact
}

func (h *Handler) viewOf(ctx *fasthttp.RequestCtx, t *link.Target, location string) view {
	host, _, _ := h.hostOf(ctx)
	shown := link.Link{Host: host, Slug: t.Slug}
	v := view{ShortURL: shown.ShortURL(h.opt.ShortBaseURL), Location: location, Host: HostOf(location), Report: h.report()}
	if t.OpenGraph != nil {
		v.Title, v.Description, v.Image = t.OpenGraph.Title, t.OpenGraph.Description, t.OpenGraph.Image
	}
	return v
}

// inspectPage shows the destination of a link instead of redirecting.
func (h *Handler) inspectPage(ctx *fasthttp.RequestCtx, t *link.Target, location string) {
	page(ctx, fasthttp.StatusOK, "inspect.html", h.viewOf(ctx, t, location))
}

// limitedPage responds to visits that do not count as clicks, if the link has maxClicks. It does
// not reveal the destination. Otherwise anybody could use a robot's user agent to get the
// destination without using up a click.
func (h *Handler) limitedPage(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set("Vary", "User-Agent")
	page(ctx, fasthttp.StatusOK, "message.html", message{
		Title: "A link with a limit", Text: "This link can be opened only a limited number of times. Open it in a browser.", Report: h.report(),
	})
}

// openGraphPage sends the link's own tags to a social network's crawler. The page also contains a
// refresh and a link to the destination, for people who were mistaken for a crawler.
func (h *Handler) openGraphPage(ctx *fasthttp.RequestCtx, t *link.Target, location string) {
	ctx.Response.Header.Set("Vary", "User-Agent")
	page(ctx, fasthttp.StatusOK, "opengraph.html", h.viewOf(ctx, t, location))
}

func page(ctx *fasthttp.RequestCtx, status int, name string, data any) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		ctx.Error("", fasthttp.StatusInternalServerError)
		return
	}
	res := &ctx.Response
	res.SetStatusCode(status)
	res.SetBodyRaw(b.Bytes())
	res.Header.SetContentType("text/html; charset=utf-8")
	res.Header.SetBytesKV(headerCacheControl, neverCached)
	res.Header.Set("Content-Security-Policy", policy)
	res.Header.Set("X-Content-Type-Options", "nosniff")
	res.Header.Set("X-Robots-Tag", "noindex")
	// The destination of a page's link must not see the slug.
	res.Header.Set("Referrer-Policy", "strict-origin-when-cross-origin")
}

// latency starts out with a series for each status that an alert uses.
var latency = metrics.NewHistogram(prometheus.HistogramOpts{
	Name: "linkreel_redirect_duration_seconds", Help: "Time to respond to a request for a short URL, by status.",
	Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
}, []string{"status"}, metrics.Each("302", "404", "500", "503")...)

var found302 = latency.WithLabelValues("302")

func observe(status int, took time.Duration) {
	if status == fasthttp.StatusFound {
		found302.Observe(took.Seconds())
		return
	}
	latency.WithLabelValues(strconv.Itoa(status)).Observe(took.Seconds())
}
