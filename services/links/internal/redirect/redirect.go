// Package redirect answers short addresses.
//
// In the common case the only call to another process is one shared round trip: host
// and slug are found in memory (package invalidation), and the click log confirms that
// the answer is not stale and that the click is durable (package clicks). Other hosts and
// slugs are read from Firestore. If that read fails, the answer is a 503, never a 404;
// links in memory are still served.
//
// This package never fetches an address that a user gave.
package redirect

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/services/links/internal/clicks"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/invalidation"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Confirmer makes clicks durable and confirms that answers are current; see [clicks.Log].
type Confirmer interface {
	Confirm(answer clicks.Answer, click *link.Click) clicks.Outcome
	Undo(answer clicks.Answer, click link.Click)
}

// Options configure a [Handler].
type Options struct {
	// ShortBaseURL is the address of the default short host.
	ShortBaseURL string
	// Country returns a request's country, "" if unknown; nil means always unknown.
	Country func(ctx *fasthttp.RequestCtx) string
	// Blocked are the destinations that the operator blocks. If it is nil, none is
	// blocked.
	Blocked *link.Blocklist
	// AbuseContact is the address of the "Report" link. If it is empty, pages have no such
	// link.
	AbuseContact string
	// Trace starts a trace for a visit that has to wait for a store, and returns a function
	// that ends it. If Trace is nil, nothing is traced. Warm visits are not traced: there
	// are too many of them, and they are all alike.
	Trace func() (ctx context.Context, end func(status int))
	// Misses limits how many missing links each network may ask for. If it is nil, there
	// is no limit. Client returns the address of a request's client.
	Misses *ratelimit.Misses
	Client func(ctx *fasthttp.RequestCtx) netip.Addr
	Now    func() time.Time
}

// Handler answers requests to short hosts.
type Handler struct {
	memory *invalidation.Memory
	log    Confirmer
	opt    Options
	host   []byte // the default short host as browsers write it
	names  map[string]bool
	own    link.Hosts
	agents agents
	visits sync.Pool
}

// New makes a handler.
func New(m *invalidation.Memory, log Confirmer, opt Options) *Handler {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Country == nil {
		opt.Country = func(*fasthttp.RequestCtx) string { return "" }
	}
	if opt.Trace == nil {
		opt.Trace = func() (context.Context, func(int)) { return context.Background(), func(int) {} }
	}
	hostport := HostOf(opt.ShortBaseURL)
	h := &Handler{memory: m, log: log, opt: opt, host: []byte(hostport), names: map[string]bool{}, own: OwnHosts(opt.ShortBaseURL)}
	for _, own := range h.own {
		h.names[own.Name] = true
	}
	h.visits.New = func() any {
		v := &visit{h: h}
		v.wait = v.waits
		return v
	}
	return h
}

// HostOf returns the host:port of an address.
func HostOf(baseURL string) string {
	_, rest, _ := strings.Cut(baseURL, "://")
	host, _, _ := strings.Cut(rest, "/")
	return strings.ToLower(host)
}

// OwnHosts returns the names under which the default short host answers. If that host
// is this machine, they include its loopback names and addresses.
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

// visit is one request on its way through memory and the click log.
type visit struct {
	h       *Handler
	answer  invalidation.Answer
	click   link.Click
	counted link.Click // the click counted for this visit, or zero
	request *fasthttp.RequestCtx
	client  netip.Addr      // known once the visit asks the store
	asked   bool            // the visit had to read something that is not in memory
	ctx     context.Context // the trace's context; nil while the visit is warm
	end     func(status int)
	wait    func(known bool) (context.Context, error) // v.waits, made once for each pooled visit
}

// waits returns the context for reads that the visit has to wait for. It refuses a
// network that asked for too many missing links, but only before a read of something that
// is not in memory: links in memory are served to everybody.
func (v *visit) waits(known bool) (context.Context, error) {
	if !known && !v.asked && v.h.opt.Misses != nil {
		v.client = v.h.opt.Client(v.request)
		if wait := v.h.opt.Misses.Wait(v.client); wait > 0 {
			return nil, &apierr.Error{
				Code:    apierr.RateLimited,
				Message: "Your network has asked for too many addresses that do not exist. Try again shortly.", RetryAfter: wait,
			}
		}
		v.asked = true
	}
	if v.ctx == nil {
		v.ctx, v.end = v.h.opt.Trace()
	}
	return v.ctx, nil
}

// tries bounds how often changes may overtake an answer.
const tries = 10

// Serve is the fasthttp handler.
func (h *Handler) Serve(ctx *fasthttp.RequestCtx) {
	started := time.Now() // work is measured in real time, whatever clock the links use
	defer func() {
		if p := recover(); p != nil {
			slog.Error("panic", "service", "links-redirect", "panic", p)
			h.fail(ctx, apierr.From(errPanic))
		}
		observe(ctx.Response.StatusCode(), time.Since(started))
	}()
	if !ctx.IsGet() && !ctx.IsHead() {
		ctx.Response.Header.Set("Allow", "GET, HEAD")
		h.fail(ctx, &apierr.Error{Code: apierr.MethodNotAllowed, Message: "This address accepts only GET and HEAD."})
		return
	}
	segment := segmentOf(ctx)
	host, isDefault, ok := h.hostOf(ctx)
	if !ok {
		h.fail(ctx, notFound())
		return
	}
	inspect := false
	if n := len(segment); n > 1 && segment[n-1] == '+' {
		segment, inspect = segment[:n-1], true
	}
	folded, ok := link.LookupSlug(segment)
	if !ok {
		h.wellKnown(ctx, segment)
		return
	}
	if isDefault && h.wellKnownName(folded) {
		h.wellKnown(ctx, segment)
		return
	}
	v := h.visits.Get().(*visit)
	v.request = ctx
	h.visit(ctx, v, host, folded, inspect)
	if v.end != nil {
		v.end(ctx.Response.StatusCode())
	}
	*v = visit{h: h, wait: v.wait}
	h.visits.Put(v)
}

// visit looks up the link of a request and answers the request.
func (h *Handler) visit(ctx *fasthttp.RequestCtx, v *visit, host, folded string, inspect bool) {
	agent := h.agents.read(ctx.Request.Header.UserAgent())
	counts := ctx.IsGet() && !inspect && !agent.Crawler && !isPrefetch(ctx)
	for range tries {
		if err := h.memory.Resolve(&v.answer, v.wait, host, folded); err != nil {
			h.uncount(v)
			h.fail(ctx, refusal(err))
			return
		}
		target := v.answer.Target()
		var click *link.Click
		now := v.answer.At()
		status := link.Active
		if target != nil {
			if status = target.Status(now); h.opt.Blocked != nil && h.opt.Blocked.Has(target.Location) {
				status = link.Taken
			}
		}
		if target != nil && counts && status == link.Active && !v.answer.Suspended() {
			v.click = link.Click{LinkID: target.LinkID, Day: link.DayOf(now), Device: agent.Device,
				Referrer: h.referrer(ctx), Country: h.opt.Country(ctx)}
			click = &v.click
		}
		// The visit may be counted already, for an answer that a change overtook.
		if v.counted != (link.Click{}) {
			if click != nil && click.LinkID == v.counted.LinkID {
				click = nil
			} else {
				h.uncount(v)
			}
		}
		out := h.log.Confirm(&v.answer, click)
		if out.Counted && click != nil {
			v.counted = *click
		}
		if out.Again {
			continue
		}
		switch {
		case target == nil:
			if v.asked {
				h.opt.Misses.Miss(v.client)
			}
			h.wellKnown(ctx, []byte(folded))
		case v.answer.Suspended():
			h.fail(ctx, suspended())
		case status == link.Taken:
			h.fail(ctx, takenDown())
		case status == link.Expired:
			h.fail(ctx, apierr.New(apierr.Gone, "This link has expired."))
		case inspect:
			h.inspectPage(ctx, target)
		case agent.Crawler && target.OpenGraph != nil:
			h.openGraphPage(ctx, target)
		default:
			h.redirect(ctx, target.Location)
		}
		return
	}
	h.uncount(v)
	h.fail(ctx, unavailable(errOvertaken))
}

// uncount takes back the click of an answer that is not sent.
func (h *Handler) uncount(v *visit) {
	if v.counted != (link.Click{}) {
		h.log.Undo(&v.answer, v.counted)
		v.counted = link.Click{}
	}
}

// hostOf reports whether a request is for the default short host or for a custom one. ok
// is false for a host that cannot be a custom domain, so that it causes no read.
func (h *Handler) hostOf(ctx *fasthttp.RequestCtx) (host string, isDefault, ok bool) {
	raw := ctx.Request.Header.Host()
	// Nearly all requests spell the host like this. The comparison allocates no string.
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

// segmentOf returns the path without its slash, decoded once. It returns nil if the path
// is empty, too long or badly encoded.
func segmentOf(ctx *fasthttp.RequestCtx) []byte {
	path := ctx.Request.Header.RequestURI()
	if len(path) == 0 || path[0] != '/' { // absolute form, as sent to proxies
		path = ctx.URI().PathOriginal()
	}
	for i, c := range path { // faster than bytes.IndexAny, which makes a table first
		if c == '?' || c == '#' {
			path = path[:i]
			break
		}
	}
	if len(path) < 2 || len(path) > 3*link.MaxSlug+8 || path[0] != '/' {
		return nil
	}
	path = path[1:]
	if bytes.IndexByte(path, '%') >= 0 {
		text, err := url.PathUnescape(string(path))
		if err != nil {
			return nil
		}
		path = []byte(text)
	}
	return path
}

// isPrefetch goes through the headers once. Looking up each of the four by name would go
// through all of them each time.
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

// agents caches the classification of user agents: few of them account for many requests.
type agents struct {
	mu    sync.RWMutex
	known map[string]link.Agent
}

const maxAgents = 4096

func (a *agents) read(userAgent []byte) link.Agent {
	a.mu.RLock()
	agent, ok := a.known[string(userAgent)]
	a.mu.RUnlock()
	if ok {
		return agent
	}
	text := string(userAgent)
	agent = link.ReadAgent(text)
	if len(text) > 1024 {
		return agent
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) >= maxAgents || a.known == nil {
		a.known = map[string]link.Agent{}
	}
	a.known[text] = agent
	return agent
}
