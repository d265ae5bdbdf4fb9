// Package httpapi serves the HTTP APIs of all Linkreel services with the same server setup, order
// of checks, body format and error responses.
//
// Each request passes through these steps: recover, request id and span, access line and metric,
// deadline, CORS. On a route that needs a key, these steps follow: key (401), rate limit (429),
// suspension, scope and plan (403), queue for changes to the same record (429), Idempotency-Key on
// a POST. The handler runs last. libs/httpserver rejects requests that no route should handle, such
// as those with several Host headers or a compressed body. Handlers return errors and never choose
// the status for an error.
//
// Fiber reuses its buffers and never cancels its context. Handlers therefore pass on
// c.UserContext(), which has the deadline, the principal and the trace, but never c itself.
package httpapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/httpserver"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/turns"
)

// Authenticator verifies a bearer token, returns its principal and charges the account's rate
// limit, in one step. *apikey.Client implements it.
type Authenticator interface {
	Authenticate(ctx context.Context, bearer string, from netip.Addr) (apikey.Decision, error)
	Charge(ctx context.Context, p *identity.Principal, cost int) (apikey.Limit, error)
}

// Options configure an [API].
type Options struct {
	// Name is the service's name in spans, metrics and log lines.
	Name string
	// Auth verifies keys. It may be nil for an API without routes that require a key.
	Auth Authenticator
	// Idempotency stores the responses to POSTs. If it is nil, the Idempotency-Key header is
	// ignored.
	Idempotency *idempotency.Firestore
	// Proxies describes the proxies that are trusted to set X-Forwarded-For.
	Proxies httpserver.Proxies
	// BaseURL is the product's base URL. If it begins with https://, responses from its host tell
	// browsers to use only https.
	BaseURL string
	// CORSOrigins lists the origins whose pages may call the API, such as https://app.example.com;
	// "*" allows any origin. Requests do not carry cookies, so the caller's key is the only
	// credential.
	CORSOrigins []string
	// Peers means that only services in the installation call this API, so the API continues their
	// traces.
	Peers bool
	// Timeout bounds a request; 0 means ten seconds.
	Timeout time.Duration
	// Page writes error responses for public pages, which are all paths outside /api, /admin and
	// /internal. If it is nil, these errors are JSON too.
	Page func(c *fiber.Ctx, e *apierr.Error) error
	// Now returns the time; nil means the system clock.
	Now func() time.Time
	// Log receives access lines and errors; nil means slog.Default().
	Log *slog.Logger
	// Access selects the requests for which an access line is logged. The zero value means all.
	Access httpserver.AccessLog
}

// API is a set of routes that are protected by this package's checks.
type API struct {
	opt     Options
	app     *fiber.App
	tracer  trace.Tracer
	misses  *ratelimit.Misses // counts lookups with revoked keys that do not find an idempotency record
	changes *turns.Queue      // queues the changes to each record, by account and id
	turns   *turns.Queue      // queues requests to routes that are [Access.InTurn], by account
	routes  []Route
	finds   map[string]fiber.Handler // by method and path; see Finds
	sampled atomic.Uint64            // number of requests, for sampling by Options.Access
}

// Route is a method and a path in Fiber's syntax ("/api/v1/links/:id").
type Route struct{ Method, Path string }

// Access is what a route requires in addition to a valid key. The zero value does not require
// anything else.
type Access struct {
	Scope identity.ScopeSet
	Plan  identity.Plan // the lowest plan that may use the route
	// Repeatable is for a POST that may revoke the key it is called with. If its response is lost,
	// the caller has no valid key: the old key is revoked, and the new key has not arrived. A
	// revoked key may therefore repeat a request that it made while it was valid, with the same
	// Idempotency-Key.
	Repeatable bool
	// OneCommit is for a POST that does all its work in a single change made through package record
	// and writes its response ([Created]) before the change commits. The response is stored in the
	// same commit, so there is no need to write an idempotency record before the handler runs.
	OneCommit bool
	// InTurn is for a route with large requests. Each process runs only one such request per
	// account at a time. Others wait, but not past their deadline.
	InTurn bool
}

// New returns an API without routes.
func New(opt Options) *API {
	if opt.Timeout <= 0 {
		opt.Timeout = 10 * time.Second
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Log == nil {
		opt.Log = slog.Default()
	}
	declare(opt.Name)
	a := &API{
		opt: opt, tracer: otel.Tracer(opt.Name),
		// The burst is below the default because each miss costs a read from the store. Only
		// callers that rotated their key and lost the response cause these lookups.
		misses:  ratelimit.NewMisses(ratelimit.MissOptions{Burst: 60, Now: opt.Now}),
		turns:   turns.NewQueue(turns.QueueOptions{Name: "bulk", Each: 1}),
		changes: turns.NewQueue(turns.QueueOptions{Name: "record", Each: 1, Waiting: changesWaiting}),
	}
	a.app = fiber.New(fiber.Config{
		AppName:               opt.Name,
		DisableStartupMessage: true,
		Immutable:             true, // caches, goroutines and spans hold on to strings after the handler has returned
		CaseSensitive:         true,
		StrictRouting:         true,
		BodyLimit:             httpserver.MaxBody,
		ReadBufferSize:        httpserver.MaxHeaders,
	})
	a.app.Use(a.around)
	return a
}

// changesWaiting is the maximum number of changes to one record that can wait for the change in
// progress.
const changesWaiting = 16

// Handle adds a route that needs a key. Within a process, requests from one account that change the
// same record (the first parameter of path) run one after another because concurrent transactions
// would only cause each other to retry.
func (a *API) Handle(method, path string, access Access, h fiber.Handler) {
	h = a.strict(method, path, h)
	_, record, _ := strings.Cut(path, "/:")
	record, _, _ = strings.Cut(record, "/")
	guarded := func(c *fiber.Ctx) error {
		if err := a.admit(c, access); err != nil {
			return err
		}
		if record != "" && method != fiber.MethodGet || access.InTurn {
			line, name := a.changes, c.Params(record)
			if access.InTurn {
				line, name = a.turns, ""
			}
			done, err := changeOf(c, line, name)
			if err != nil {
				return err
			}
			defer done()
		}
		if method == fiber.MethodPost {
			return a.once(c, identity.FromContext(c.UserContext()).AccountID, access.OneCommit, h)
		}
		return h(c)
	}
	a.add(method, path, guarded)
}

// changeOf waits until no other request from the account is changing the record, for up to half of
// the request's remaining time. A change that started later might reach the deadline, and the
// caller would not know whether it was committed.
func changeOf(c *fiber.Ctx, line *turns.Queue, record string) (done func(), err error) {
	ctx := c.UserContext()
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	done, err = line.Enter(ctx, identity.FromContext(ctx).AccountID+" "+record)
	if errors.Is(err, turns.ErrFull) || errors.Is(err, context.DeadlineExceeded) {
		err = apierr.Contended(err)
	}
	return done, err
}

// HandleToken adds a route that requires a configured token, such as the operator's; see
// [OnlyBearer]. POST requests accept an Idempotency-Key. Their idempotency records are stored under
// account, which is not a real account's id. mark adds the actor to ctx.
func (a *API) HandleToken(method, path, token, message, account string, mark func(context.Context) context.Context, h fiber.Handler) {
	h = a.strict(method, path, h)
	a.add(method, path, OnlyBearer(token, message, func(c *fiber.Ctx) error {
		c.SetUserContext(mark(c.UserContext()))
		if method == fiber.MethodPost {
			return a.once(c, account, false, h)
		}
		return h(c)
	}))
}

// Public adds a route that does not require a key.
func (a *API) Public(method, path string, h fiber.Handler) {
	a.add(method, path, a.strict(method, path, h))
}

func (a *API) add(method, path string, h fiber.Handler) {
	a.routes = append(a.routes, Route{method, path})
	a.app.Add(method, path, h)
	if method == fiber.MethodGet {
		a.app.Add(fiber.MethodHead, path, h)
	}
}

// Finds sets the lookup for an operation without a JSON body. A 403 or a 404 takes precedence over
// a 400, so if a request contains an unknown name, find runs first, and its error is the response.
// find must not have side effects. Without find, such a request gets a 400, even if the record does
// not exist or the caller lacks the rights. A GET does not need find because its handler runs
// instead.
func (a *API) Finds(method, path string, find fiber.Handler) {
	if a.finds == nil {
		a.finds = map[string]fiber.Handler{}
	}
	a.finds[method+path] = find
}

type operationKey struct{}

var pathParam = regexp.MustCompile(`:(\w+)`)

// strict rejects unknown query parameters, and the fields in a body if the operation does not take
// one. The known names come from the API document. Routes outside the document (pages, redirects,
// callbacks) ignore unknown parameters.
func (a *API) strict(method, path string, h fiber.Handler) fiber.Handler {
	op := apispec.Load().Operation(method, pathParam.ReplaceAllString(path, "{$1}"))
	if op == nil {
		return h
	}
	return func(c *fiber.Ctx) error {
		if op.Schema != nil {
			// The handler decides which errors take precedence over a 400. Decode reports the
			// parameters together with the errors in the body.
			c.Locals(operationKey{}, op)
			return h(c)
		}
		query, body := c.Context().QueryArgs(), c.Request().Body()
		if query.Len() == 0 && (op.Body || len(body) == 0) {
			return h(c)
		}
		wrong := &Fields{}
		wrong.addQuery(query, op.Query)
		if !op.Body {
			wrong.addBody(body)
		}
		if len(wrong.details) == 0 {
			return h(c)
		}
		if err := a.first(c, method, path, h); err != nil && apierr.From(err).Status() != fiber.StatusBadRequest {
			return err
		}
		return wrong.Err()
	}
}

// first returns the error that takes precedence over a 400. For a GET, it runs the handler and
// discards the response.
func (a *API) first(c *fiber.Ctx, method, path string, h fiber.Handler) error {
	find := a.finds[method+path]
	if find == nil && method == fiber.MethodGet {
		find = h
	}
	if find == nil {
		return nil
	}
	err := find(c)
	c.Response().ResetBody()
	for _, name := range []string{fiber.HeaderETag, fiber.HeaderLink} {
		c.Response().Header.Del(name)
	}
	return err
}

// Routes returns the added routes, for the test that compares them with the API document.
func (a *API) Routes() []Route { return a.routes }

// Handler returns the API's handler. Call it after all routes have been added. If no route has
// the path "/", load balancers' health checks on "/" get a 200.
func (a *API) Handler() fasthttp.RequestHandler {
	// Fiber runs handlers in the order in which they were added, so this handler runs only if no
	// route matches.
	a.app.Use(func(c *fiber.Ctx) error {
		if allow := methodsOf(a.app, c.Path()); len(allow) > 0 {
			return &apierr.Error{Code: apierr.MethodNotAllowed, Message: "This address accepts only " + listed(allow) + ".", Allow: allow}
		}
		message := "There is nothing at this address."
		switch near := nearPath(c.Path()); {
		case near != "":
			message += " Did you mean " + near + "?"
		case strings.HasPrefix(c.Path(), "/api/"):
			message += " The page /docs lists all addresses."
		}
		return apierr.New(apierr.NotFound, message)
	})
	h := a.app.Handler()
	home := slices.ContainsFunc(a.routes, func(r Route) bool { return r.Path == "/" })
	return httpserver.StrictTransport(a.opt.BaseURL, func(ctx *fasthttp.RequestCtx) {
		if !home && len(ctx.Path()) == 1 && httpserver.AsksForHealth(ctx) {
			// Load balancers check every few seconds, so do not write a log line, span or metric.
			httpserver.Healthy(ctx)
			return
		}
		if !slices.Contains(knownMethods, string(ctx.Method())) {
			// For an unknown method, Fiber would respond in plain text. No route handles TRACE, so
			// treat every unknown method as TRACE.
			ctx.Request.Header.SetMethod(fiber.MethodTrace)
		}
		h(ctx)
	})
}

var knownMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// around is the outermost layer. It catches every error and panic.
func (a *API) around(c *fiber.Ctx) (err error) {
	started := time.Now() // real time, because a test's clock does not measure durations
	ctx, cancel := context.WithTimeout(c.UserContext(), a.opt.Timeout)
	defer cancel()
	// WithNewRoot must be last: follow cuts it off when it continues a peer's trace.
	start := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithNewRoot()}
	if c.Get("traceparent") != "" {
		ctx, start = a.follow(ctx, c, start)
	}
	ctx, span := a.tracer.Start(ctx, c.Method(), start...)
	defer span.End()
	r := &identity.Request{ID: span.SpanContext().TraceID().String(), Began: started}
	if !span.SpanContext().TraceID().IsValid() {
		r.ID = strings.ToLower(identity.NewNonce()) // there is no tracing SDK, as in unit tests
	}
	c.SetUserContext(identity.WithRequest(ctx, r))
	c.Set("X-Request-Id", r.ID)
	defer func() {
		if p := recover(); p != nil {
			a.opt.Log.ErrorContext(ctx, "panic", "service", a.opt.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = nil
			a.fail(c, apierr.From(fmt.Errorf("panic: %v", p)))
		}
		a.observe(c, r, span, started)
	}()
	if len(a.opt.CORSOrigins) > 0 && a.cors(c) {
		return nil
	}
	if err := c.Next(); err != nil {
		// The status must be final before the log line and the span are written.
		a.fail(c, apierr.From(err))
	}
	return nil
}

// follow connects the request's span to the caller's span. If the caller is a service in the
// installation, follow continues its trace. Otherwise it only links to the trace because external
// callers must not choose which requests are traced.
func (a *API) follow(ctx context.Context, c *fiber.Ctx, start []trace.SpanStartOption) (context.Context, []trace.SpanStartOption) {
	carrier := propagation.MapCarrier{"traceparent": c.Get("traceparent"), "tracestate": c.Get("tracestate")}
	remote := trace.SpanContextFromContext(otel.GetTextMapPropagator().Extract(context.Background(), carrier))
	switch {
	case !remote.IsValid():
		return ctx, start
	case a.opt.Peers:
		return trace.ContextWithRemoteSpanContext(ctx, remote), start[:1]
	}
	return ctx, append(start, trace.WithLinks(trace.Link{SpanContext: remote}))
}

// duration uses the name and labels from the OpenTelemetry conventions, which dashboards support.
var duration = promauto.NewHistogramVec(prometheus.HistogramOpts{
	Name: "http_server_request_duration_seconds", Help: "Time from the last byte of the request to the first byte of the response.",
	Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
}, []string{"otel_scope_name", "http_request_method", "http_route", "http_response_status_code"})

// declare creates the series for server errors before the first error. A route's series are created
// by its first response because there are many routes.
func declare(name string) {
	for _, status := range []string{"500", "503"} {
		duration.WithLabelValues(name, fiber.MethodGet, "(none)", status)
	}
}

func (a *API) observe(c *fiber.Ctx, r *identity.Request, span trace.Span, started time.Time) {
	res, method, route, took := c.Response(), c.Method(), c.Route().Path, time.Since(started)
	if method == fiber.MethodTrace {
		method = "_OTHER" // see Handler
	}
	if route == "/" && c.Path() != "/" {
		route = "(none)" // no route matched; labels with callers' paths would be unbounded
	}
	size := max(0, res.Header.ContentLength()) // for a stream; 0 if its length is unknown
	if !res.IsBodyStream() {
		size = len(res.Body()) // not for a stream, because Body would read all of it into memory
	}
	ctx, status := c.UserContext(), res.StatusCode()
	span.SetName(method + " " + route)
	span.SetAttributes(
		attribute.String("http.request.method", method), attribute.String("http.route", route),
		attribute.Int("http.response.status_code", status),
	)
	if status >= 500 {
		span.SetStatus(codes.Error, "")
	}
	duration.WithLabelValues(a.opt.Name, method, route, strconv.Itoa(status)).Observe(took.Seconds())
	level := slog.LevelInfo
	if strings.HasPrefix(route, "/internal/") {
		level = slog.LevelDebug // so each public request writes exactly one line
	}
	if !a.opt.Log.Enabled(ctx, level) {
		return
	}
	of := a.opt.Access.Line(status, took, &a.sampled)
	if of == 0 {
		return
	}
	account := ""
	if p := identity.FromContext(ctx); p != nil {
		account = p.AccountID
	}
	attrs := append(make([]slog.Attr, 0, 9),
		slog.String("service", a.opt.Name), slog.String("method", method), slog.String("route", route), slog.Int("status", status),
		slog.Float64("ms", float64(took.Microseconds())/1000), slog.Int("bytes", size), slog.String("account", account),
		slog.Float64("queued", float64(r.Queued.Load()/1000)/1000))
	if of > 1 {
		attrs = append(attrs, slog.Int("requests", of))
	}
	a.opt.Log.LogAttrs(ctx, level, "access", attrs...)
}

// admit makes these checks in order: key, rate limit, suspension, scope, plan.
func (a *API) admit(c *fiber.Ctx, access Access) error {
	bearer, err := bearerOf(c)
	if err != nil {
		return err
	}
	d, err := a.opt.Auth.Authenticate(c.UserContext(), bearer, a.opt.Proxies.Client(c.Context()))
	if err != nil && !(access.Repeatable && a.repeats(c, d.Principal, bearer, err)) {
		return err
	}
	if err != nil {
		// The key is revoked, and the request repeats an earlier request that passed all checks.
		c.SetUserContext(identity.WithPrincipal(c.UserContext(), d.Principal))
		return nil
	}
	p := d.Principal
	c.SetUserContext(identity.WithPrincipal(c.UserContext(), p)) // before the limit, so a 429's access line names the account
	setLimitHeaders(c, d.Limit, a.opt.Now())
	if !d.Limit.Allowed {
		return limited(d.Limit)
	}
	switch {
	case p.Suspended:
		return apierr.New(apierr.AccountSuspended, "This account is suspended.")
	case !p.Scopes.Has(access.Scope):
		return &apierr.Error{
			Code: apierr.InsufficientScope, Message: "This key lacks the scope " + access.Scope.String() + ". Use a key with this scope.",
			RequiredScope: access.Scope.String(),
		}
	case p.Plan < access.Plan:
		return PlanRequired(access.Plan, p.Plan)
	}
	return nil
}

// PlanRequired returns the error for an operation that needs a higher plan.
func PlanRequired(need, have identity.Plan) error {
	return &apierr.Error{Code: apierr.PlanRequired, RequiredPlan: need.String(), CurrentPlan: have.String(),
		Message: "This operation needs the " + need.String() + " plan or higher."}
}

// Charge takes n more tokens from the account's rate limit for a request that costs more than one.
// It returns an error if too few are left.
func (a *API) Charge(c *fiber.Ctx, n int) error {
	if n <= 0 {
		return nil
	}
	limit, err := a.opt.Auth.Charge(c.UserContext(), identity.FromContext(c.UserContext()), n)
	if err != nil {
		return err
	}
	setLimitHeaders(c, limit, a.opt.Now())
	if !limit.Allowed {
		return limited(limit)
	}
	return nil
}

func limited(l apikey.Limit) error {
	return &apierr.Error{
		Code: apierr.RateLimited, Message: "This account has sent too many requests. Try again after the time in Retry-After.", RetryAfter: l.RetryAfter,
	}
}

// setLimitHeaders sets the headers from the IETF draft and the older X- headers. Reset times are
// rounded up to whole seconds, so a caller that waits until then is not rejected.
func setLimitHeaders(c *fiber.Ctx, l apikey.Limit, now time.Time) {
	reset := int64(math.Ceil(l.ResetAfter.Seconds()))
	c.Set("RateLimit-Policy", `"default";q=`+strconv.Itoa(l.Limit)+`;w=60`)
	c.Set("RateLimit", `"default";r=`+strconv.Itoa(l.Remaining)+`;t=`+strconv.FormatInt(reset, 10))
	c.Set("X-RateLimit-Limit", strconv.Itoa(l.Limit))
	c.Set("X-RateLimit-Remaining", strconv.Itoa(l.Remaining))
	c.Set("X-RateLimit-Reset", strconv.FormatInt(now.Unix()+reset, 10))
}

// bearerOf returns the token from the Authorization header. It ignores keys in queries and cookies,
// and rejects a second header.
func bearerOf(c *fiber.Ctx) (string, error) {
	values := c.Request().Header.PeekAll(fiber.HeaderAuthorization)
	if len(values) == 0 || len(values) == 1 && len(values[0]) == 0 {
		return "", apierr.New(apierr.MissingAPIKey, "Send your API key as `Authorization: Bearer <key>`.")
	}
	scheme, token, ok := strings.Cut(string(values[0]), " ")
	if len(values) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", apierr.New(apierr.InvalidAPIKey, "Send your API key as `Authorization: Bearer <key>`.")
	}
	return token, nil
}

// OnlyBearer runs h only for requests with token. Other requests get an error with message. An
// empty token rejects all requests. It compares hashes, so response times reveal nothing about the
// token, not even its length.
func OnlyBearer(token, message string, h fiber.Handler) fiber.Handler {
	want := sha256.Sum256([]byte(token))
	return func(c *fiber.Ctx) error {
		given, err := bearerOf(c)
		if err != nil {
			return apierr.New(apierr.CodeOf(err), message)
		}
		got := sha256.Sum256([]byte(given))
		if token == "" || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			return apierr.New(apierr.InvalidAPIKey, message)
		}
		return h(c)
	}
}

// once runs a POST under its Idempotency-Key. If the key is repeated, the caller gets the first
// response again, and the action is not repeated.
func (a *API) once(c *fiber.Ctx, account string, oneCommit bool, h fiber.Handler) error {
	ctx, key := c.UserContext(), c.Get(idempotencyKey)
	if a.opt.Idempotency == nil || len(c.Request().Header.PeekAll(idempotencyKey)) == 0 {
		c.SetUserContext(identity.WithOrigin(ctx, identity.Origin{Nonce: identity.NewNonce(), At: a.opt.Now()}))
		return h(c)
	}
	if !validIdempotencyKey(key) {
		return apierr.Invalid(
			apierr.Detail{Field: idempotencyKey, Code: apierr.InvalidValue, Message: "Use 1 to 255 printable ASCII characters.", Max: 255},
		)
	}
	bearer, err := bearerOf(c)
	if err != nil {
		return err
	}
	request := beginRequest(c, account, key, bearer)
	if oneCommit {
		return a.inOneCommit(c, request, h)
	}
	rec, err := a.opt.Idempotency.Begin(ctx, request)
	if err != nil {
		return err
	}
	if rec.Replay != nil {
		return replay(c, rec.Replay)
	}
	c.SetUserContext(identity.WithOrigin(ctx, rec.Origin))
	if err := h(c); err != nil {
		a.fail(c, apierr.From(err)) // the error is the response to store
	}
	// Send the response even if it could not be stored: a retry derives the same response from the
	// same nonce.
	ctx, cancel := afterwards(ctx)
	defer cancel()
	if passing(c) {
		err = a.opt.Idempotency.Abandon(ctx, rec)
	} else {
		err = a.opt.Idempotency.Finish(ctx, rec, answerOf(c))
	}
	if err != nil {
		a.opt.Log.WarnContext(ctx, "cannot store the response for the Idempotency-Key; a repeated request will run again", "service", a.opt.Name, "error", err)
	}
	return nil
}
