// Package client asks the public API on behalf of a person: each call carries the
// person's session as its key, so the API alone decides what they may see and do.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/linkreel/linkreel/libs/apierr"
)

// callTime bounds each call; a page makes one or two.
const callTime = 8 * time.Second

// Client is the way to the API. It is safe for concurrent use.
type Client struct {
	routes []route // the longest prefix first
	http   *http.Client
}

type route struct{ prefix, url string }

// New makes a client for addresses by path prefix. It dials nothing yet.
func New(routes map[string]string) (*Client, error) {
	dialer := &net.Dialer{Timeout: time.Second, KeepAlive: 15 * time.Second}
	c := &Client{http: &http.Client{
		Timeout: callTime,
		Transport: otelhttp.NewTransport(&http.Transport{ // no Proxy: internal traffic never takes one
			DialContext: dialer.DialContext, MaxIdleConnsPerHost: 64, IdleConnTimeout: 60 * time.Second, DisableCompression: true,
		}),
		// The API never redirects, so whoever does is not the API.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	for prefix, address := range routes {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || !strings.HasPrefix(prefix, "/") {
			return nil, fmt.Errorf("API route %q=%q is not a path and an address", prefix, address)
		}
		c.routes = append(c.routes, route{prefix, strings.TrimRight(address, "/")})
	}
	slices.SortFunc(c.routes, func(a, b route) int {
		return cmp.Or(-cmp.Compare(len(a.prefix), len(b.prefix)), cmp.Compare(a.prefix, b.prefix))
	})
	if len(c.routes) == 0 || c.routes[len(c.routes)-1].prefix != "/" {
		return nil, fmt.Errorf("no API route for /")
	}
	return c, nil
}

// Close frees idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func (c *Client) address(path string) string {
	for _, r := range c.routes {
		// A prefix ends where a part of the path does: /api/v1/links is not /api/v1/linksets.
		if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(r.prefix, "/")); ok && (rest == "" || rest[0] == '/' || rest[0] == '?') {
			return r.url + path
		}
	}
	return c.routes[len(c.routes)-1].url + path
}

// Body is sent as it is, where everything else is encoded as JSON.
type Body struct {
	ContentType string
	Bytes       []byte
}

// Raw is an answer that is no JSON.
type Raw struct {
	ContentType string
	Bytes       []byte
}

// Headed is an answer that has something to say in its headers too.
type Headed interface{ SetHeader(h http.Header) }

// Call is one question to the API.
type Call struct {
	Session string // of the person who asks
	Method  string
	Path    string // escaped already; it may have a query
	IfMatch string // the ETag that the record must still have; "" asks for none
	In      any    // nil, a [Body], or what is sent as JSON
	Out     any    // nil, or where the answer goes; it may be a [Headed]
}

// Do asks the API. The API's refusals come back as *apierr.Error, so that a page can show
// them; whatever else goes wrong is UNAVAILABLE.
func (c *Client) Do(ctx context.Context, call Call) error {
	method, path, in, out := call.Method, call.Path, call.In, call.Out
	var body io.Reader
	kind := "application/json"
	if whole, ok := in.(Body); ok {
		kind, body = whole.ContentType, bytes.NewReader(whole.Bytes)
	} else if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s %s: encode: %w", method, path, err)
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.address(path), body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	req.Header.Set("Authorization", "Bearer "+call.Session)
	if call.IfMatch != "" {
		req.Header.Set("If-Match", call.IfMatch)
	}
	if in != nil {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return apierr.Down(fmt.Errorf("%s %s: %w", method, path, err))
	}
	defer resp.Body.Close()
	// More than any answer of ours. What is cut off is no JSON, and so an error below.
	text, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return apierr.Down(fmt.Errorf("%s %s: %w", method, path, err))
	}
	if resp.StatusCode/100 != 2 {
		return refusal(method, path, resp, text)
	}
	if headed, ok := out.(Headed); ok {
		headed.SetHeader(resp.Header)
	}
	if raw, ok := out.(*Raw); ok {
		raw.ContentType, raw.Bytes = resp.Header.Get("Content-Type"), text
		return nil
	}
	if out == nil || len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return apierr.Down(fmt.Errorf("%s %s: read answer: %w", method, path, err))
	}
	return nil
}

func refusal(method, path string, resp *http.Response, text []byte) error {
	var body struct {
		Error struct {
			Code          apierr.Code     `json:"code"`
			Message       string          `json:"message"`
			Details       []apierr.Detail `json:"details"`
			RequiredPlan  string          `json:"requiredPlan"`
			CurrentPlan   string          `json:"currentPlan"`
			RequiredScope string          `json:"requiredScope"`
			RequiredRole  string          `json:"requiredRole"`
		} `json:"error"`
	}
	e := &body.Error
	// A code that does not fit the status came from a proxy in between.
	if err := json.Unmarshal(text, &body); err != nil || e.Code.Status() != resp.StatusCode || resp.StatusCode >= http.StatusInternalServerError {
		return apierr.Down(fmt.Errorf("%s %s: the API answered %d", method, path, resp.StatusCode))
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // absent: 0
	return &apierr.Error{
		Code: e.Code, Message: e.Message, Details: e.Details, RequiredPlan: e.RequiredPlan, CurrentPlan: e.CurrentPlan,
		RequiredScope: e.RequiredScope, RequiredRole: e.RequiredRole, RetryAfter: time.Duration(seconds) * time.Second,
	}
}
