// Package client is the Go client of the Linkreel API. It retries calls that may
// succeed later, waits as long as the service asks, gives every POST an Idempotency-Key
// so that a retry never acts twice, walks pages, resumes broken uploads, and waits for
// videos.
//
// It needs only the standard library. A Client is safe for concurrent use.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config says where the API is and how often to retry. Only BaseURL and Key are
// required.
type Config struct {
	BaseURL string // such as https://linkreel.example
	Key     string // an API key, lr_live_…
	// HTTPClient sends requests. The default has no overall timeout, since uploads may take
	// long.
	HTTPClient *http.Client
	// Timeout bounds each attempt of an API call; 0 means 30 seconds.
	Timeout time.Duration
	// Attempts is how often a call is tried in total, the first attempt included; 0 means five.
	Attempts int
	// MaxWait is the longest single wait that the client accepts, whatever
	// Retry-After says; 0 means a minute.
	MaxWait time.Duration
	// UserAgent is sent with each call.
	UserAgent string
	// Sleep waits between attempts. Tests set it to control time.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Client calls the API for one account.
type Client struct{ cfg Config }

// New checks the address and fills in defaults.
func New(cfg Config) (*Client, error) {
	u, err := url.Parse(cfg.BaseURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("base URL %q must start with http:// or https://", cfg.BaseURL)
	}
	cfg.BaseURL = strings.TrimRight(cfg.BaseURL, "/")
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = &http.Client{}
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.Attempts <= 0 {
		cfg.Attempts = 5
	}
	if cfg.MaxWait <= 0 {
		cfg.MaxWait = time.Minute
	}
	if cfg.UserAgent == "" {
		cfg.UserAgent = "linkreel-go/1"
	}
	if cfg.Sleep == nil {
		cfg.Sleep = sleep
	}
	return &Client{cfg}, nil
}

// Error is an error response of the API. Branch on Code.
type Error struct {
	Status        int           `json:"-"`
	Code          string        `json:"code"`
	Message       string        `json:"message"`
	RequestID     string        `json:"requestId"`
	Details       []Detail      `json:"details"`
	RequiredPlan  string        `json:"requiredPlan"`
	CurrentPlan   string        `json:"currentPlan"`
	RequiredScope string        `json:"requiredScope"`
	RequiredRole  string        `json:"requiredRole"`
	RetryAfter    time.Duration `json:"-"`
}

// Detail names one rule that a request broke.
type Detail struct {
	Field   string `json:"field"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Min     *int64 `json:"min"`
	Max     *int64 `json:"max"`
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)", e.Message, e.Code)
	for _, d := range e.Details {
		fmt.Fprintf(&b, "; %s: %s", d.Field, d.Message)
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " [request %s]", e.RequestID)
	}
	return b.String()
}

// HasCode reports whether err is an error response of the API with one of the codes.
func HasCode(err error, codes ...string) bool {
	var e *Error
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}

// WithIdempotencyKey makes every POST with this context send this key instead of a new one.
// So a program that was stopped can safely repeat its last step.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, idempotencyKey{}, key)
}

type idempotencyKey struct{}

// Call is one call of the API, made by [Client.Do]. Common operations have methods of
// their own.
type Call struct {
	Method, Path string // Path begins with /api/v1 and is escaped
	In           any    // sent as JSON; nil sends Body
	Body         []byte
	ContentType  string // the content type of Body
	Out          any    // nil, a *[]byte, or the destination for the JSON of the response
	Header       http.Header
	// Answered, if set, is called with the headers of a successful answer.
	Answered func(http.Header)
}

// WithKey returns a copy of the client with another key.
func (c *Client) WithKey(key string) *Client {
	other := *c
	other.cfg.Key = key
	return &other
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	return c.Do(ctx, Call{Method: method, Path: path, In: in, Out: out})
}

// answer makes a call and decodes its response into a new T.
func answer[T any](ctx context.Context, c *Client, method, path string, in any) (*T, error) {
	out := new(T)
	return out, c.call(ctx, method, path, in, out)
}

// list reads a whole list, a page at a time.
func list[T any](ctx context.Context, c *Client, path string) (all []T, err error) {
	for query := (url.Values{"limit": {"100"}}); ; {
		var page struct {
			Data       []T
			NextCursor *string
		}
		if err := c.call(ctx, http.MethodGet, path+"?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		if all = append(all, page.Data...); page.NextCursor == nil {
			return all, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}

// Do makes a call, and retries it if that may help.
func (c *Client) Do(ctx context.Context, k Call) error {
	if err := undotted(k.Path); err != nil {
		return err
	}
	body := k.Body
	if k.In != nil {
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(k.In); err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		body, k.ContentType = bytes.TrimSuffix(buf.Bytes(), []byte("\n")), "application/json"
	}
	if k.Header == nil {
		k.Header = http.Header{}
	}
	if key, _ := ctx.Value(idempotencyKey{}).(string); k.Method == http.MethodPost && key != "" {
		k.Header.Set("Idempotency-Key", key)
	} else if k.Method == http.MethodPost && c.cfg.Attempts > 1 { // a call without retries needs no key
		k.Header.Set("Idempotency-Key", rand.Text())
	}
	unsure := false // an earlier attempt may have taken effect
	for attempt := 1; ; attempt++ {
		err := c.try(ctx, k, body)
		if err == nil {
			return nil
		}
		if unsure && k.Method == http.MethodDelete && HasCode(err, "LINK_NOT_FOUND", "VIDEO_NOT_FOUND", "DOMAIN_NOT_FOUND", "NOT_FOUND") {
			return nil // an earlier attempt, whose response was lost, has deleted it
		}
		wait, retry := c.wait(err, attempt)
		if !retry || attempt >= c.cfg.Attempts || ctx.Err() != nil {
			return err
		}
		unsure = true
		if serr := c.cfg.Sleep(ctx, wait); serr != nil {
			return err
		}
	}
}

// ErrPath matches the error of a call with an id that a path cannot contain.
var ErrPath = errors.New("the id cannot be part of a path")

// undotted refuses a path with the segment "." or "..", which may come from an id.
// Proxies resolve such paths: DELETE …/captions/.. would delete the video.
func undotted(path string) error {
	path, _, _ = strings.Cut(path, "?")
	if plain, err := url.PathUnescape(path); err == nil {
		path = plain
	}
	for segment := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if segment == "." || segment == ".." {
			return fmt.Errorf("%w: proxies resolve %q to another path", ErrPath, segment)
		}
	}
	return nil
}

func (c *Client) try(ctx context.Context, k Call, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, k.Method, c.cfg.BaseURL+k.Path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = k.Header.Clone()
	if c.cfg.Key != "" { // a client that has no key yet can still request one
		req.Header.Set("Authorization", "Bearer "+c.cfg.Key)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.cfg.UserAgent)
	if k.ContentType != "" {
		req.Header.Set("Content-Type", k.ContentType)
	}
	res, err := c.cfg.HTTPClient.Do(req)
	if err != nil {
		return &lost{fmt.Errorf("%s %s: %w", k.Method, k.Path, err)}
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err != nil {
		return &lost{fmt.Errorf("%s %s: read answer: %w", k.Method, k.Path, err)}
	}
	if res.StatusCode >= 300 {
		return refusal(res, answer)
	}
	if k.Answered != nil {
		k.Answered(res.Header)
	}
	if raw, ok := k.Out.(*[]byte); ok {
		*raw = answer
		return nil
	}
	if k.Out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, k.Out); err != nil {
		return fmt.Errorf("%s %s: the answer is not what the API documents: %w", k.Method, k.Path, err)
	}
	return nil
}

// ErrNoAnswer matches the error of a call whose last attempt got no response.
var ErrNoAnswer = errors.New("no answer")

// lost is the error of an attempt that got no response.
type lost struct{ err error }

func (l *lost) Error() string { return l.err.Error() }
func (l *lost) Unwrap() error { return l.err }

func (l *lost) Is(target error) bool { return target == ErrNoAnswer }

func refusal(res *http.Response, answer []byte) *Error {
	var body struct{ Error Error }
	e := &body.Error
	if err := json.Unmarshal(answer, &body); err != nil || e.Code == "" {
		// Not an error of the API: a proxy answered.
		*e = Error{Code: "HTTP_" + strconv.Itoa(res.StatusCode), Message: http.StatusText(res.StatusCode)}
	}
	e.Status = res.StatusCode
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s >= 0 {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	return e
}

// wait says whether to try again, and after how long. The wait is as long as the service
// asks, but never shorter than an exponential backoff. The backoff has jitter, so that
// many clients do not retry together.
func (c *Client) wait(err error, attempt int) (time.Duration, bool) {
	backoff := min(200*time.Millisecond<<(attempt-1), 10*time.Second)
	backoff = backoff/2 + mathrand.N(backoff/2+1)
	var e *Error
	if !errors.As(err, &e) {
		var l *lost
		return backoff, errors.As(err, &l)
	}
	switch {
	case e.Status == http.StatusTooManyRequests, e.Status >= 500, e.Code == "IDEMPOTENCY_IN_PROGRESS":
		if e.RetryAfter > c.cfg.MaxWait {
			return 0, false
		}
		return max(e.RetryAfter, backoff), true
	default:
		return 0, false
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Field is a field of an update: the zero value leaves the record's field as it
// is, [Set] replaces it, [Clear] empties it.
type Field[T any] struct {
	set, null bool
	value     T
}

// Set returns a field with a new value.
func Set[T any](v T) Field[T] { return Field[T]{set: true, value: v} }

// Clear returns a field that becomes empty.
func Clear[T any]() Field[T] { return Field[T]{set: true, null: true} }

// IsZero lets encoding/json omit a field that is not set.
func (f Field[T]) IsZero() bool { return !f.set }

// MarshalJSON writes the value, or null.
func (f Field[T]) MarshalJSON() ([]byte, error) {
	if f.null {
		return []byte("null"), nil
	}
	return json.Marshal(f.value)
}

// Moment is a point in time in a form that the API accepts.
type Moment struct{ v any }

// At returns t as a Moment.
func At(t time.Time) Moment { return Moment{t.UnixMilli()} }

// Text returns a Moment from text in any form that JavaScript's Date understands. The
// service parses it.
func Text(s string) Moment { return Moment{s} }

// IsZero reports whether m is empty.
func (m Moment) IsZero() bool { return m.v == nil }

// MarshalJSON writes a number of milliseconds, or the text.
func (m Moment) MarshalJSON() ([]byte, error) { return json.Marshal(m.v) }

// UnmarshalJSON reads what MarshalJSON writes.
func (m *Moment) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var text string
		err := json.Unmarshal(b, &text)
		m.v = text
		return err
	}
	var ms int64
	err := json.Unmarshal(b, &ms)
	m.v = ms
	return err
}

// Millis is a time in a record: milliseconds since 1970.
type Millis int64

// Time returns m as a time in UTC.
func (m Millis) Time() time.Time { return time.UnixMilli(int64(m)).UTC() }
