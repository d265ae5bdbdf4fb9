package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpserver"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/paging"
)

// JSON sends a response with this status and v as JSON.
func JSON(c *fiber.Ctx, status int, v any) error {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // keep <, > and & in text
	if err := enc.Encode(v); err != nil {
		return err
	}
	c.Status(status)
	c.Response().SetBodyRaw(bytes.TrimSuffix(body.Bytes(), []byte("\n")))
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	if len(c.Response().Header.Peek(fiber.HeaderCacheControl)) == 0 {
		c.Set(fiber.HeaderCacheControl, "private, no-store")
	}
	return nil
}

// Created sends a 201 with the record's URL in Location.
func Created(c *fiber.Ctx, location string, v any) error {
	c.Set(fiber.HeaderLocation, location)
	return JSON(c, fiber.StatusCreated, v)
}

// NoContent sends a 204.
func NoContent(c *fiber.Ctx) error {
	c.Status(fiber.StatusNoContent)
	c.Response().ResetBody()
	return nil
}

// ErrorBody returns the response body for e.
func ErrorBody(e *apierr.Error, requestID string) []byte { return httpserver.ErrorBody(e, requestID) }

// ETag returns the strong tag for a record's revision.
func ETag(rev int64) string { return fmt.Sprintf(`"r%d"`, rev) }

// Rev returns the revision for a record that does not store a revision number. It derives the
// number from the fields that callers can edit. If an edit restores earlier values, the earlier
// revision becomes valid again. This is safe because an edit with that revision only overwrites
// values that its caller has seen.
func Rev(fields ...string) int64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q", fields) // never returns an error
	return int64(h.Sum64() >> 1)
}

// VariantETag returns the tag of a representation that changes without an edit to the record, such
// as one with a click count. If-Match compares only the tag's revision, so a click does not make an
// edit fail. If-None-Match compares the whole tag.
func VariantETag(rev int64, variant string) string { return fmt.Sprintf(`"r%d-%s"`, rev, variant) }

// Match holds the If-Match tags from a request. The zero value matches every record.
type Match struct{ tags []string }

// IfMatch reads the If-Match header.
func IfMatch(c *fiber.Ctx) Match {
	value := c.Get(fiber.HeaderIfMatch)
	if value == "" {
		return Match{}
	}
	m := Match{tags: []string{}}
	for tag := range strings.SplitSeq(value, ",") {
		m.tags = append(m.tags, strings.TrimSpace(tag))
	}
	return m
}

// Check returns an error unless If-Match contains the record's current tag. The error response's
// ETag is the tag for rev. Weak tags never match: RFC 9110 §13.1.1 requires the strong comparison.
func (m Match) Check(rev int64) error {
	if m.tags == nil {
		return nil
	}
	want := ETag(rev)
	variant := strings.TrimSuffix(want, `"`) + "-"
	for _, tag := range m.tags {
		if tag == "*" || tag == want || strings.HasPrefix(tag, variant) {
			return nil
		}
	}
	return &apierr.Error{
		Code: apierr.PreconditionFailed, ETag: want,
		Message: "The record has changed since you read it. Read it again, and send the new ETag.",
	}
}

// NotModified reports whether the caller's If-None-Match contains tag, and sends a 304 if it does.
// It always sets the ETag header.
func NotModified(c *fiber.Ctx, tag string) bool {
	c.Set(fiber.HeaderETag, tag)
	// If-None-Match uses weak comparison: a proxy may have added W/ to the tag.
	for given := range strings.SplitSeq(c.Get(fiber.HeaderIfNoneMatch), ",") {
		if given = strings.TrimSpace(given); given == "*" || strings.TrimPrefix(given, "W/") == tag {
			c.Status(fiber.StatusNotModified)
			return true
		}
	}
	return false
}

// Limit reads the query parameter "limit" of a list: 1 to 100, or 20 if absent. Other values are
// rejected, not clamped, so callers notice their mistakes.
func Limit(c *fiber.Ctx) (int, []apierr.Detail) {
	if !c.Context().QueryArgs().Has("limit") {
		return 20, nil
	}
	n, err := strconv.Atoi(c.Query("limit"))
	if err != nil || n < 1 || n > 100 || !isDigits(c.Query("limit")) {
		return 0, []apierr.Detail{{Field: "limit", Code: apierr.OutOfRange, Message: "Use a whole number from 1 to 100.", Min: 1, Max: 100}}
	}
	return n, nil
}

// Page reads the query parameters "limit" and "cursor" of a list. of distinguishes the list from
// all other lists; see [paging.First].
func Page(c *fiber.Ctx, of ...string) (paging.Page, error) {
	limit, wrong := Limit(c)
	if len(wrong) > 0 {
		return paging.Page{}, apierr.Invalid(wrong...)
	}
	return PageOf(c, limit, of...)
}

// PageOf is [Page] for a handler that has already read the limit.
func PageOf(c *fiber.Ctx, limit int, of ...string) (paging.Page, error) {
	first := paging.First(limit, of...)
	// An empty cursor is a bug in the caller's loop, which would never end if the response were the
	// first page.
	if !c.Context().QueryArgs().Has("cursor") {
		return first, nil
	}
	p, ok := first.From(c.Query("cursor"))
	if !ok {
		return p, apierr.New(apierr.InvalidCursor, "This cursor does not come from this list. Pass the nextCursor from the previous page, unchanged.")
	}
	return p, nil
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// ClientIP returns the client's address; see [httpserver.Proxies].
func (a *API) ClientIP(c *fiber.Ctx) netip.Addr { return a.opt.Proxies.Client(c.Context()) }

// NewServer returns a server for h; see [httpserver.New].
func NewServer(h fasthttp.RequestHandler) *fasthttp.Server { return httpserver.New(h) }

// AcceptsGzip reports whether the caller accepts a gzip response. It follows RFC 9110 §12.5.3: q=0
// excludes a coding, and * stands for all codings that the header does not list. Without the header
// it returns false, because many programs cannot decompress.
func AcceptsGzip(c *fiber.Ctx) bool {
	accepted, named := false, false
	for part := range strings.SplitSeq(c.Get(fiber.HeaderAcceptEncoding), ",") {
		coding, params, _ := strings.Cut(part, ";")
		_, q, weighted := strings.Cut(params, "=")
		weight, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
		wanted := !weighted || err == nil && weight > 0
		switch strings.ToLower(strings.TrimSpace(coding)) {
		case "gzip", "x-gzip":
			accepted, named = wanted, true
		case "*":
			if !named {
				accepted = wanted
			}
		}
	}
	return accepted
}

// methodsOf returns the methods of the routes that match path.
func methodsOf(app *fiber.App, path string) (out []string) {
	for _, stack := range app.Stack() {
		for _, r := range stack {
			if r.Path != "/" && fiber.RoutePatternMatch(path, r.Path, fiber.Config{CaseSensitive: true, StrictRouting: true}) {
				out = append(out, r.Method)
				break
			}
		}
	}
	return out
}

// fail writes the response for e. No other code writes error responses.
func (a *API) fail(c *fiber.Ctx, e *apierr.Error) {
	ctx := c.UserContext()
	switch {
	case e.Code == apierr.Internal:
		a.opt.Log.ErrorContext(ctx, "request failed", "service", a.opt.Name, "route", c.Route().Path, "error", e.Err)
	case e.Status() >= 500:
		a.opt.Log.WarnContext(ctx, "request refused", "service", a.opt.Name, "route", c.Route().Path, "error", e)
	}
	res := c.Response()
	// The handler may have set these headers before it failed.
	res.Header.Del(fiber.HeaderLocation)
	res.Header.Del(fiber.HeaderETag)
	if e.RetryAfter > 0 || e.Code == apierr.RateLimited || e.Code == apierr.Unavailable {
		c.Set(fiber.HeaderRetryAfter, strconv.FormatInt(max(1, int64(math.Ceil(e.RetryAfter.Seconds()))), 10))
	}
	if e.Status() == fiber.StatusUnauthorized {
		challenge := `Bearer realm="linkreel"`
		if e.Code != apierr.MissingAPIKey {
			challenge += `, error="invalid_token"`
		}
		c.Set(fiber.HeaderWWWAuthenticate, challenge)
	}
	if e.ETag != "" {
		c.Set(fiber.HeaderETag, e.ETag)
	}
	if len(e.Allow) > 0 {
		c.Set(fiber.HeaderAllow, strings.Join(e.Allow, ", "))
	}
	c.Status(e.Status())
	c.Set(fiber.HeaderCacheControl, "no-store")
	if a.opt.Page != nil && !machinePath(c.Path()) && !httpserver.WantsJSON(c.Request()) {
		if err := a.opt.Page(c, e); err == nil {
			return
		}
	}
	res.SetBodyRaw(ErrorBody(e, identity.RequestOf(ctx).ID))
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
}

func machinePath(p string) bool {
	return strings.HasPrefix(p, "/api/") || p == "/api" || strings.HasPrefix(p, "/admin/") || strings.HasPrefix(p, "/internal/")
}
