package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Raw is the body of a request that is not JSON.
type Raw struct {
	Type string // media type
	Data []byte
}

// call describes one call to the API, which takes one or more attempts.
type call struct {
	method, path string   // in generated methods, path has placeholders such as {id}
	ids          []string // the values of the placeholders, in order
	query        url.Values
	in           any  // sent as JSON, or a Raw; nil sends nothing
	once         bool // a POST that does not accept an Idempotency-Key
}

// Request makes a call that the client has no method for. path begins with /api/v1, must be
// escaped, and may have a query. in is sent as JSON, or unchanged if it is a [Raw]. If in is nil,
// no body is sent. The response's JSON is decoded into out. If out is a *[]byte, it receives the
// body unchanged. If out is nil, the body is dropped.
func (c *Client) Request(ctx context.Context, method, path string, in, out any, opts ...Option) error {
	return send(ctx, c, call{method: method, path: path, in: in}, out, opts)
}

// answer makes a call and decodes its response into a new T.
func answer[T any](ctx context.Context, c *Client, k call, opts []Option) (*T, error) {
	out := new(T)
	if err := send(ctx, c, k, out, opts); err != nil {
		return nil, err
	}
	return out, nil
}

// plain makes a call and returns its response body.
func plain(ctx context.Context, c *Client, k call, opts []Option) ([]byte, error) {
	var out []byte
	err := send(ctx, c, k, &out, opts)
	return out, err
}

// Page is one page of a list.
type Page[T any] struct {
	Data       []T
	HasMore    bool
	NextCursor *string // the cursor for the next page; nil on the last page
}

// headerPage reads a page of a list that returns its cursor in the Link header.
func headerPage[T any](ctx context.Context, c *Client, k call, opts []Option) (*Page[T], error) {
	page, r := new(Page[T]), new(Response)
	// The caller's options come first, so this Response takes precedence.
	o := chosen(opts)
	theirs := o.response
	o.response = r
	err := c.try(ctx, k, page, o)
	if theirs != nil {
		*theirs = *r
	}
	if err != nil {
		return nil, err
	}
	if next := NextCursor(r.Header); next != "" {
		page.HasMore, page.NextCursor = true, &next
	}
	return page, nil
}

// NextCursor returns the cursor for the next page of a list of videos, from the Link header with
// rel="next". It returns "" if there is none. [Client.ListVideos] calls it. The host in the header
// is ignored, so the key is sent only to the configured deployment.
func NextCursor(h http.Header) string {
	for _, line := range h.Values("Link") {
		for part := range strings.SplitSeq(line, ",") {
			target, params, _ := strings.Cut(strings.TrimSpace(part), ";")
			if u, err := url.Parse(strings.Trim(target, "<> ")); err == nil && strings.Contains(strings.ReplaceAll(params, " ", ""), `rel="next"`) {
				return u.Query().Get("cursor")
			}
		}
	}
	return ""
}

// walk returns an iterator over all pages of a list.
func walk[T any](ctx context.Context, c *Client, k call, opts []Option) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		k := k
		k.query = maps.Clone(k.query) // the iterator may be used more than once
		for {
			o, r := chosen(opts), new(Response)
			if o.response == nil {
				o.response = r
			}
			var page struct {
				Data       []T
				NextCursor cursor
			}
			if err := c.try(ctx, k, &page, o); err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, v := range page.Data {
				if !yield(v, nil) {
					return
				}
			}
			if page.NextCursor == "" {
				page.NextCursor = cursor(NextCursor(o.response.Header))
			}
			if page.NextCursor == "" {
				return
			}
			if k.query == nil {
				k.query = url.Values{}
			}
			k.query.Set("cursor", string(page.NextCursor))
		}
	}
}

// All collects the items from an iterator, such as the one from [Client.Domains].
func All[T any](walk iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for v, err := range walk {
		if err != nil {
			return all, err
		}
		all = append(all, v)
	}
	return all, nil
}

// cursor is a cursor that the service sent as a number or a string. It is "" for null.
type cursor string

// UnmarshalJSON accepts a string, a number or null.
func (c *cursor) UnmarshalJSON(b []byte) error {
	if text := string(b); text != "null" {
		*c = cursor(strings.Trim(text, `"`))
	}
	return nil
}

// put adds a query parameter unless its value is zero.
func put(v url.Values, name string, value any) {
	switch x := value.(type) {
	case string:
		if x != "" {
			v.Set(name, x)
		}
	case *string:
		if x != nil {
			v.Set(name, *x)
		}
	case int:
		if x != 0 {
			v.Set(name, strconv.Itoa(x))
		}
	case *int:
		if x != nil {
			v.Set(name, strconv.Itoa(*x))
		}
	case *int64:
		if x != nil {
			v.Set(name, strconv.FormatInt(*x, 10))
		}
	case []string:
		if len(x) > 0 {
			v[name] = x
		}
	}
}

// send makes a call and retries it when a retry may help.
func send(ctx context.Context, c *Client, k call, out any, opts []Option) error {
	return c.try(ctx, k, out, chosen(opts))
}

// try is [send] with parsed options.
func (c *Client) try(ctx context.Context, k call, out any, o *options) error {
	if err := k.fill(); err != nil {
		return err
	}
	body, kind, err := encoded(k.in)
	if err != nil {
		return err
	}
	attempts := c.cfg.Attempts
	if o.attempts > 0 {
		attempts = o.attempts
	}
	if kind != "" {
		o.header.Set("Content-Type", kind)
	}
	if k.method == http.MethodPost && !k.once {
		if o.key == "" && attempts > 1 { // a call without retries does not need a key
			o.key = rand.Text()
		}
		if o.key != "" {
			o.header.Set("Idempotency-Key", o.key)
		}
	}
	var unsure error // the error from an earlier attempt that may have taken effect
	for attempt := 1; ; attempt++ {
		err := c.attempt(ctx, &k, body, out, o, attempt)
		if err == nil {
			return nil
		}
		if unsure != nil && k.method == http.MethodDelete && IsNotFound(err) {
			return nil // an earlier attempt has deleted the record, but its response was lost
		}
		// If an earlier DELETE had taken effect, the response would be 404 rather than 412.
		if unsure != nil && k.method != http.MethodDelete && hasStatus(err, http.StatusPreconditionFailed) {
			return perhapsOurs(&k, unsure)
		}
		wait, again := c.wait(err, attempt)
		if unsure == nil && !IsRateLimited(err) && !refused(err) {
			unsure = err
		}
		switch {
		case again && ctx.Err() != nil:
			return stopped(err, ctx.Err())
		case !again || attempt >= attempts || k.once && unsure != nil:
			return err
		}
		if why := c.cfg.Sleep(ctx, wait); why != nil {
			return stopped(err, why)
		}
	}
}

// perhapsOurs returns the error for a 412 that follows an attempt without a response. That attempt
// may have changed the record, so the 412 does not prove that another client changed it.
func perhapsOurs(k *call, unsure error) error {
	var broke *ConnectionError
	if errors.As(unsure, &broke) {
		unsure = broke.Err // otherwise the method and path would appear twice
	}
	return lost(k, fmt.Errorf("the change may have taken effect, so read the record; an attempt failed: %w", unsure))
}

// refused reports whether the connection was refused. In that case, the call cannot have had any
// effect.
func refused(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

// fill inserts the ids into the path. It rejects a path with a "." or ".." segment, which can come
// from an id: proxies resolve such segments, so DELETE …/captions/.. would delete the video.
func (k *call) fill() error {
	for _, id := range k.ids {
		before, rest, _ := strings.Cut(k.path, "{")
		name, after, _ := strings.Cut(rest, "}")
		if id == "" {
			return &ArgumentError{"the " + name + " is empty"}
		}
		// Ids are escaped, so a brace in an id is not mistaken for a later placeholder.
		k.path = before + url.PathEscape(id) + after
	}
	k.ids = nil
	path, _, _ := strings.Cut(k.path, "?")
	if unescaped, err := url.PathUnescape(path); err == nil {
		path = unescaped
	}
	for segment := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if segment == "." || segment == ".." {
			return &ArgumentError{fmt.Sprintf("the id cannot be part of a path: proxies resolve %q to another path", segment)}
		}
	}
	return nil
}

// encoded returns the body of a request and its media type.
func encoded(in any) (body []byte, kind string, err error) {
	switch x := in.(type) {
	case nil:
		return nil, "", nil
	case Raw:
		return x.Data, x.Type, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(in); err != nil {
		return nil, "", &ArgumentError{"the request cannot be encoded as JSON: " + err.Error()}
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), "application/json", nil
}

// maxAnswer limits how much of a response is read. All API responses are smaller.
const maxAnswer = 64 << 20

// attempt makes one request within its time limit.
func (c *Client) attempt(ctx context.Context, k *call, body []byte, out any, o *options, n int) error {
	timeout := c.cfg.Timeout
	if o.timeout > 0 {
		timeout = o.timeout
	}
	held, _ := strconv.Atoi(k.query.Get("wait"))                    // how long a long poll waits, in seconds, or 0
	timeout = max(timeout, timeout+time.Duration(held)*time.Second) // max, because the sum may overflow
	if to, streamed := out.(*io.ReadCloser); streamed {
		return begin(ctx, k, timeout, to, func(ctx context.Context) error { return c.exchange(ctx, k, body, out, o, n) })
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.exchange(ctx, k, body, out, o, n)
}

// exchange sends a request and reads its response.
func (c *Client) exchange(ctx context.Context, k *call, body []byte, out any, o *options, n int) error {
	res, err := c.do(ctx, k, body, o)
	if o.response != nil {
		*o.response = Response{Attempts: n}
	}
	if err != nil {
		return err
	}
	if o.response != nil {
		o.response.fill(res.StatusCode, res.Header, n)
	}
	if res.StatusCode < 300 && strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") {
		_ = res.Body.Close()
		return lost(k, errors.New("received a web page instead of an API response")) // e.g. a network's sign-in page
	}
	if to, streamed := out.(*io.ReadCloser); streamed && res.StatusCode < 300 {
		*to = res.Body
		return nil
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return lost(k, fmt.Errorf("the response was cut off: %w", err))
	}
	if res.StatusCode >= 300 {
		return refusal(res.StatusCode, res.Header, text)
	}
	return k.decode(text, out)
}

func (c *Client) do(ctx context.Context, k *call, body []byte, o *options) (*http.Response, error) {
	address := c.cfg.BaseURL + k.path
	if len(k.query) > 0 {
		address += "?" + k.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, k.method, address, bytes.NewReader(body))
	if err != nil {
		return nil, &ArgumentError{err.Error()}
	}
	if c.cfg.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Key)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.cfg.UserAgent)
	for name, values := range o.header {
		req.Header[name] = values
	}
	res, err := c.cfg.HTTPClient.Do(req)
	if err != nil {
		return nil, lost(k, withoutAddress(err)) // the ConnectionError already contains the path
	}
	return res, nil
}

func (k *call) decode(text []byte, out any) error {
	if to, as := out.(*[]byte); as {
		*to = text
		return nil
	}
	if out == nil && len(text) == 0 {
		return nil
	}
	if !json.Valid(text) { // the body was cut off without an error, or is not from the API
		return lost(k, errors.New("the response is not JSON"))
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return &AnswerError{k.method, k.path, err}
	}
	return nil
}

// withoutAddress removes the URL that net/http puts into its errors. A signed URL is a credential,
// and errors are often logged or shared.
func withoutAddress(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// wait reports whether to retry, and after how long. It returns the wait that the service asks for,
// or an exponential backoff if that is longer. The backoff has jitter, which keeps clients from all
// retrying at the same time.
func (c *Client) wait(err error, attempt int) (time.Duration, bool) {
	backoff := min(200*time.Millisecond<<(attempt-1), 10*time.Second)
	backoff = backoff/2 + mathrand.N(backoff/2+1)
	var e *APIError
	if !errors.As(err, &e) {
		return backoff, IsConnection(err)
	}
	if !IsRateLimited(err) && !IsServer(err) && e.Code != "IDEMPOTENCY_IN_PROGRESS" || e.RetryAfter > c.cfg.MaxWait {
		return 0, false
	}
	return max(e.RetryAfter, backoff), true
}
