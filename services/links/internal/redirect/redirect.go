// Package redirect responds to visits to short URLs.
//
// In the common case, host and slug are cached (package invalidation), and the only call to another
// process is one round trip, shared by many visits. During this round trip, the click log confirms
// that the response is not stale and that the click is durable (package clicks). Hosts and slugs
// that are not cached are read from Firestore. If that read fails, the response is a 503, never a
// 404, and cached links are still served.
//
// This package never fetches a URL from a user.
package redirect

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpserver"
	"github.com/linkreel/linkreel/libs/password"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/unlock"
	"github.com/linkreel/linkreel/services/links/internal/clicks"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/invalidation"
	"github.com/linkreel/linkreel/services/links/internal/link"
	"github.com/linkreel/linkreel/services/links/internal/places"
)

// Confirmer makes clicks durable and confirms that responses are current; see [clicks.Log].
type Confirmer interface {
	Confirm(answer clicks.Answer, click *link.Click) clicks.Outcome
	Undo(answer clicks.Answer, click link.Click)
}

// Places assigns slots to visits to links with maxClicks; see [places.Gate].
type Places interface {
	Take(accountID, linkID, slugKey string) error
	Back(accountID, linkID, slugKey string)
}

// Options configure a [Handler].
type Options struct {
	// ShortBaseURL is the URL of the default short host.
	ShortBaseURL string
	// BaseURL is the product's base URL. Programs that call the API at the default short host by
	// mistake get BaseURL in the error message, unless it is empty.
	BaseURL string
	// Country returns a request's country, or "" if the country is unknown. If Country is nil, all
	// countries are unknown.
	Country func(ctx *fasthttp.RequestCtx) string
	// Blocked lists the destinations that the operator blocks. If it is nil, none are blocked.
	Blocked *link.Blocklist
	// AbuseContact is the target of the "Report" link. If it is empty, pages do not have this link.
	AbuseContact string
	// Trace starts a trace for a visit that has to wait for a store, and returns a function that
	// ends the trace. If Trace is nil, nothing is traced. Visits to cached links are not traced,
	// because there are too many of them and their traces would all be alike.
	Trace func() (ctx context.Context, end func(status int))
	// Places provides a slot for each visit to a link with maxClicks. If it is nil, such links do
	// not redirect.
	Places Places
	// SplitKey is an input to the hash that assigns visitors to buckets. If the operator changes
	// it, visitors to any link may move to another bucket.
	SplitKey string
	// Pages contains the pages for the default short host, or is nil if there are none.
	Pages *link.Pages
	// Passwords checks link passwords, and Guesses limits the guesses.
	Passwords *password.Hasher
	Guesses   unlock.Limiter
	// Misses limits how many nonexistent links each network may request. If it is nil, there is no
	// limit. Client returns the address of a request's client.
	Misses *ratelimit.Misses
	Client func(ctx *fasthttp.RequestCtx) netip.Addr
	Now    func() time.Time
}

// Handler responds to requests to short hosts.
type Handler struct {
	memory *invalidation.Memory
	log    Confirmer
	opt    Options
	host   []byte // the default short host as browsers send it
	names  map[string]bool
	own    link.Hosts
	agents *agents
	visits sync.Pool
	failed failures
}

// New returns a handler.
func New(m *invalidation.Memory, log Confirmer, opt Options) *Handler {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Country == nil {
		opt.Country = func(*fasthttp.RequestCtx) string { return "" }
	}
	if opt.Client == nil {
		opt.Client = func(*fasthttp.RequestCtx) netip.Addr { return netip.Addr{} }
	}
	if opt.Trace == nil {
		opt.Trace = func() (context.Context, func(int)) { return context.Background(), func(int) {} }
	}
	hostport := HostOf(opt.ShortBaseURL)
	h := &Handler{memory: m, log: log, opt: opt, host: []byte(hostport), names: map[string]bool{}, own: OwnHosts(opt.ShortBaseURL),
		agents: newAgentCache()}
	for _, own := range h.own {
		h.names[own.Name] = true
	}
	h.visits.New = func() any {
		v := &visit{h: h}
		v.wait, v.place = v.waits, v.placeOf
		return v
	}
	return h
}

// HostOf returns the host:port of a URL.
func HostOf(baseURL string) string {
	_, rest, _ := strings.Cut(baseURL, "://")
	host, _, _ := strings.Cut(rest, "/")
	return strings.ToLower(host)
}

// OwnHosts returns the default short host's names. If that host is this machine, they include
// the machine's loopback names and addresses.
func OwnHosts(shortBaseURL string) link.Hosts {
	host := link.ParseHost(HostOf(shortBaseURL))
	own := link.Hosts{host}
	if host.Name == "localhost" || host.Name == "127.0.0.1" {
		for _, name := range []string{"localhost", "127.0.0.1", "[::1]"} {
			if name != host.Name {
				own = append(own, link.Host{Name: name, Port: host.Port})
			}
		}
	}
	return own
}

// visit is a request in progress.
type visit struct {
	h       *Handler
	answer  invalidation.Answer
	click   link.Click
	counted link.Click // click counted before a change made the response stale, or zero
	placed  place      // the visit's slot, or zero
	request *fasthttp.RequestCtx
	client  netip.Addr      // set once the visit has to read the store
	asked   bool            // the visit had to read a record that was not cached
	ctx     context.Context // the trace's context; nil while all records are cached
	end     func(status int)
	seen    link.Visit
	fits    string // hash that the visitor's password matches, or ""
	// wait and place are the method values v.waits and v.placeOf, created once for each pooled
	// visit.
	wait  func(known bool) (context.Context, error)
	place func(splitKey string) int
}

// waits returns the context for reads that the visit has to wait for. It rejects a network that has
// requested too many nonexistent links, but only if the record is not cached. Cached links are
// served to everybody.
func (v *visit) waits(known bool) (context.Context, error) {
	if !known && !v.asked && v.h.opt.Misses != nil {
		v.client = v.h.opt.Client(v.request)
		if wait := v.h.opt.Misses.Wait(v.client); wait > 0 {
			return nil, &apierr.Error{
				Code:    apierr.RateLimited,
				Message: "Your network has requested too many addresses that do not exist. Try again shortly.", RetryAfter: wait,
			}
		}
		v.asked = true
	}
	if v.ctx == nil {
		v.ctx, v.end = v.h.opt.Trace()
	}
	return v.ctx, nil
}

// place is a slot on a link with maxClicks.
type place struct{ account, link, key string }

// tries limits how many times a visit is restarted because a change made its response stale.
const tries = 10

// Serve is the fasthttp handler.
func (h *Handler) Serve(ctx *fasthttp.RequestCtx) {
	started := time.Now() // real time, regardless of the clock that the links use
	visit := true
	defer func() {
		if p := recover(); p != nil {
			slog.Error("panic", "service", "links-redirect", "panic", p)
			h.fail(ctx, apierr.From(errPanic))
		}
		if visit {
			observe(ctx.Response.StatusCode(), time.Since(started))
		}
	}()
	if !ctx.IsGet() && !ctx.IsHead() && !ctx.IsPost() {
		h.wrongMethod(ctx)
		return
	}
	segment, rest, home := segmentOf(ctx)
	host, isDefault, ok := h.hostOf(ctx)
	if !ok && httpserver.AsksForHealth(ctx) {
		visit = false // a health check, with an IP address or a load balancer's name as the host
		httpserver.Healthy(ctx)
		return
	}
	if !ok {
		h.fail(ctx, notFound())
		return
	}
	if ctx.IsPost() && (home || h.opt.Guesses == nil) {
		h.wrongMethod(ctx)
		return
	}
	if home {
		h.serve(ctx, started, host, "", "", false)
		return
	}
	inspect := false
	if n := len(segment); n > 1 && segment[n-1] == '+' {
		segment, inspect = segment[:n-1], true
	}
	folded, ok := link.LookupSlug(segment)
	if ctx.IsPost() && (!ok || isDefault && h.wellKnownName(folded)) {
		h.wrongMethod(ctx)
		return
	}
	if !ok && (!isDefault || h.opt.Pages != nil) && !h.wellKnownName(string(segment)) {
		h.serve(ctx, started, host, "", nowhere, false)
		return
	}
	if !ok && rest != "" {
		h.fail(ctx, notFound())
		return
	}
	if !ok {
		h.wellKnown(ctx, segment)
		return
	}
	if isDefault && h.wellKnownName(folded) && rest == "" {
		h.wellKnown(ctx, segment)
		return
	}
	h.serve(ctx, started, host, folded, rest, inspect)
}

// wrongMethod responds to a request with a method that the URL does not accept. Only links with a
// password accept POST.
func (h *Handler) wrongMethod(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set("Allow", "GET, HEAD")
	h.fail(ctx, &apierr.Error{Code: apierr.MethodNotAllowed, Message: "This address accepts only GET and HEAD."})
}

// nowhere represents any path that no link can have.
const nowhere = "/?"

// serve responds to a visit to a slug on a host, or to the host's home page if the slug is "".
func (h *Handler) serve(ctx *fasthttp.RequestCtx, now time.Time, host, folded, path string, inspect bool) {
	v := h.visits.Get().(*visit)
	v.request, v.seen.Path = ctx, path
	h.visit(ctx, v, h.agents.read(ctx.Request.Header.UserAgent(), now), host, folded, inspect)
	if v.end != nil {
		v.end(ctx.Response.StatusCode())
	}
	*v = visit{h: h, wait: v.wait, place: v.place}
	h.visits.Put(v)
}

// visit looks up the link for a request and responds to the request.
func (h *Handler) visit(ctx *fasthttp.RequestCtx, v *visit, agent link.Agent, host, folded string, inspect bool) {
	prefetch := isPrefetch(ctx)
	counts := !ctx.IsHead() && !inspect && !agent.Robot && !prefetch
	for range tries {
		if host == "" && folded == "" {
			v.answer = invalidation.Answer{} // the home page of the default host does not depend on any record
		} else if err := h.memory.Resolve(&v.answer, v.wait, host, folded); err != nil {
			h.fallBack(v, refusal(err))
			return
		}
		target := v.answer.Target()
		var click *link.Click
		now := v.answer.At()
		d := h.decide(v, target, host, folded, agent)
		if ctx.IsPost() {
			// Check a guess against the current link. The cached link may be older than an edit and
			// contain the previous password, in which case a correct guess would count as wrong.
			if h.log.Confirm(&v.answer, nil).Again {
				continue
			}
			if target == nil || target.Routing == nil || target.Routing.Password == "" {
				if target == nil && v.asked {
					h.opt.Misses.Miss(v.client)
				}
				h.uncount(v)
				h.unplace(v)
				h.wrongMethod(ctx)
				return
			}
			if d.Outcome == link.Locked {
				if !h.unlock(ctx, v, target) {
					h.uncount(v)
					h.unplace(v)
					return
				}
				d = h.decide(v, target, host, folded, agent)
			}
		}
		if counts && d.Outcome == link.Led {
			v.click = link.Click{LinkID: target.LinkID, Day: link.DayOf(now), Device: agent.Device, Referrer: h.referrer(ctx)}
			if target.Routing == nil {
				v.click.Country = h.opt.Country(ctx)
			} else {
				v.click.Country = v.seen.Country // a second lookup may cost as much as the decision itself
			}
			if d.Rule != nil {
				v.click.Rule = d.Rule.Name
			}
			click = &v.click
		} else if kind := h.unserved(v, d.Outcome, folded); counts && kind != "" {
			v.click = link.Click{LinkID: v.answer.DomainID(), Day: link.DayOf(now), Rule: kind}
			click = &v.click
		}
		// The visit may already have been counted before a change made its response stale.
		if v.counted.LinkID != "" {
			if click != nil && click.LinkID == v.counted.LinkID && click.Rule == v.counted.Rule {
				click = nil
			} else {
				h.uncount(v)
			}
		}
		if led := counts && d.Outcome == link.Led && target.Routing != nil && target.Routing.MaxClicks > 0; led || v.placed != (place{}) {
			err := h.takePlace(v, target, led)
			if errors.Is(err, places.ErrChanged) {
				continue
			}
			if err != nil {
				h.fallBack(v, unavailable(err))
				return
			}
		}
		out := h.log.Confirm(&v.answer, click)
		if out.Again {
			if out.Counted && click != nil {
				v.counted = *click
			}
			continue
		}
		if target == nil && v.asked && (folded != "" || !v.answer.KnowsHost()) {
			h.opt.Misses.Miss(v.client)
		}
		switch {
		case d.Outcome == link.Missing && v.seen.Path == "" && (d.Location == "" || h.wellKnownName(folded)):
			h.wellKnown(ctx, []byte(folded))
		case d.Outcome != link.Led && d.Location != "":
			h.redirect(ctx, &d, prefetch)
		case d.Outcome == link.Locked:
			h.lockedPage(ctx, fasthttp.StatusOK, "")
		case d.Outcome != link.Led:
			h.fail(ctx, refusalOf(&d))
		case !counts && target.Routing != nil && target.Routing.MaxClicks > 0:
			h.limitedPage(ctx)
		case inspect:
			h.inspectPage(ctx, target, d.Location)
		case agent.Crawler && target.OpenGraph != nil:
			h.openGraphPage(ctx, target, d.Location)
		default:
			h.redirect(ctx, &d, prefetch)
		}
		return
	}
	h.fallBack(v, unavailable(errOvertaken))
}

// unserved returns the name, such as [link.VisitHome], under which the visited domain counts a
// visit that no link serves. It returns "" if a link serves the visit or if the visit is not
// counted.
func (h *Handler) unserved(v *visit, o link.Outcome, folded string) string {
	switch {
	case o == link.Led || v.answer.DomainID() == "" || v.answer.Suspended() || v.request.IsPost():
		return ""
	case o == link.Over || o == link.Exhausted:
		return link.VisitEnded
	case o != link.Missing || v.seen.Path == "" && h.wellKnownName(folded):
		return ""
	case folded == "" && v.seen.Path != nowhere:
		return link.VisitHome
	}
	return link.VisitNotFound
}

// fallBack responds to a visit with an error, undoes its click and returns its slot.
func (h *Handler) fallBack(v *visit, e *apierr.Error) {
	h.uncount(v)
	h.unplace(v)
	h.fail(v.request, e)
}

// takePlace takes a slot for a visit that is to be redirected, unless the visit already has one. It
// returns any other slot that the visit holds. The slot must be taken before the click is counted.
// Otherwise a visit without a slot would count as a click over the limit.
func (h *Handler) takePlace(v *visit, target *link.Target, led bool) error {
	if led && v.placed.link == target.LinkID {
		return nil
	}
	h.unplace(v)
	if !led {
		return nil
	}
	if h.opt.Places == nil {
		return errNoPlaces
	}
	want := place{target.AccountID, target.LinkID, v.answer.Key()}
	err := h.opt.Places.Take(want.account, want.link, want.key)
	if err == nil {
		v.placed = want
	}
	return err
}

// unplace returns the slot that was taken for a response that was never sent.
func (h *Handler) unplace(v *visit) {
	if v.placed != (place{}) {
		h.opt.Places.Back(v.placed.account, v.placed.link, v.placed.key)
		v.placed = place{}
	}
}

// decide determines the response to the visit.
func (h *Handler) decide(v *visit, target *link.Target, host, folded string, agent link.Agent) link.Decision {
	s := &v.seen
	s.At, s.Host = v.answer.At(), host
	if target != nil && target.Routing != nil {
		s.Query = string(v.request.URI().QueryString())
		s.Country, s.Device, s.System, s.Place = h.opt.Country(v.request), agent.Device, agent.System, v.place
		s.Language = string(v.request.Request.Header.Peek("Accept-Language"))
	}
	around := link.Surroundings{
		Suspended: v.answer.Suspended(), Own: h.own, Blocked: h.opt.Blocked, Pages: h.opt.Pages,
		Exhausted: target != nil && target.UsedUp && v.placed.link != target.LinkID, // the visit's own slot may be the last
	}
	if host != "" {
		around.Pages = v.answer.Pages()
	}
	if v.fits != "" { // the password may have changed since it was checked
		around.Unlocked = target != nil && target.Routing != nil && target.Routing.Password == v.fits
	}
	if folded == "" && s.Path != nowhere {
		return link.DecideHome(s, &around)
	}
	return link.Decide(target, s, &around)
}

// placeOf returns the visitor's bucket, from 0 to 99, computed from a hash of the link's key, the
// operator's key, and the visitor's address and user agent. The hash is never stored. An IPv6
// network counts as one address because devices often change their IPv6 address.
func (v *visit) placeOf(splitKey string) int {
	client := v.h.opt.Client(v.request)
	if !client.IsValid() {
		return -1
	}
	network := ratelimit.Network(client)
	hash := sha256.New()
	for _, part := range []string{splitKey, v.h.opt.SplitKey, network.String(), string(v.request.Request.Header.UserAgent())} {
		_, _ = hash.Write([]byte(part)) // never fails
		_, _ = hash.Write([]byte{0})
	}
	return int(binary.BigEndian.Uint64(hash.Sum(nil)) % 100)
}

// uncount undoes the click for a response that was never sent.
func (h *Handler) uncount(v *visit) {
	if v.counted.LinkID != "" {
		h.log.Undo(&v.answer, v.counted)
		v.counted = link.Click{}
	}
}

// hostOf reports whether a request is for the default short host or for a custom host. If the host
// cannot be a custom domain, ok is false, and the caller does not look it up.
func (h *Handler) hostOf(ctx *fasthttp.RequestCtx) (host string, isDefault, ok bool) {
	raw := ctx.Request.Header.Host()
	// Nearly all requests contain the host in this form. The comparison does not allocate.
	if bytes.Equal(raw, h.host) || h.names[string(raw)] {
		return "", true, true
	}
	name := link.ParseHost(string(raw)).Name
	if h.names[name] {
		return "", true, true
	}
	host, problem := customdomain.CheckHostname(name, nil)
	return host, false, problem == nil
}

// segmentOf returns the first segment of the path, decoded once, and the rest of the path as the
// visitor sent it. The segment is nil if it is empty, too long or badly encoded. home is true for
// the path "/".
func segmentOf(ctx *fasthttp.RequestCtx) (segment []byte, rest string, home bool) {
	path := ctx.Request.Header.RequestURI()
	if len(path) == 0 || path[0] != '/' { // absolute form, as sent to proxies
		path = ctx.URI().PathOriginal()
	}
	for i, c := range path { // faster than bytes.IndexAny, which builds a table first
		if c == '?' || c == '#' {
			path = path[:i]
			break
		}
	}
	if len(path) < 2 || path[0] != '/' {
		return nil, "", len(path) == 1 && path[0] == '/'
	}
	path = path[1:]
	if i := bytes.IndexByte(path, '/'); i >= 0 {
		if len(path)-i > link.MaxForwardedPath {
			return nil, "", false
		}
		path, rest = path[:i], string(path[i:])
	}
	if len(path) > 3*link.MaxSlug+8 {
		return nil, "", false
	}
	if bytes.IndexByte(path, '%') >= 0 {
		text, err := url.PathUnescape(string(path))
		if err != nil {
			return nil, "", false
		}
		path = []byte(text)
	}
	return path, rest, false
}

// isPrefetch reports whether a browser is prefetching the page. It scans the headers once. Looking
// up the four relevant headers by name would scan all headers four times.
func isPrefetch(ctx *fasthttp.RequestCtx) bool {
	for name, value := range ctx.Request.Header.All() {
		switch string(name) {
		case "Sec-Purpose", "Purpose", "X-Purpose", "X-Moz":
			if link.IsPrefetch(string(value)) {
				return true
			}
		}
	}
	return false
}

func (h *Handler) referrer(ctx *fasthttp.RequestCtx) string {
	referer := ctx.Request.Header.Referer()
	if len(referer) == 0 {
		return ""
	}
	return link.ReferrerHost(string(referer), h.own)
}
