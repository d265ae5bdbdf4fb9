// Package client is the Go client for the Linkreel API. Each operation has a method named after its
// operationId: createLink is [Client.CreateLink]. List methods also have an iterator over all
// pages, such as [Client.Links]. Other methods cover longer tasks: bulk requests of any size,
// resumable uploads, waiting for a video, and following events.
//
// Calls that may succeed later are retried after the delay that the service asks for. A retried
// call never takes effect twice: a POST carries the same Idempotency-Key in all its attempts. If a
// POST does not accept a key and may have taken effect, it is not sent again. Redirects are not
// followed. Errors are typed: see [APIError] and [ConnectionError].
//
// The package uses only the standard library. A Client is safe for concurrent use.
package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config sets the API's base URL, the key and the retries. Only BaseURL and Key are required.
type Config struct {
	BaseURL string // such as https://linkreel.example
	// Key is an API key, lr_live_… Leading and trailing line breaks are removed, so a key can be
	// read from a file.
	Key string
	// WithoutKey allows an empty Key. Use it for operations that do not require a key
	// (CreateDeviceCode and CollectDeviceKey), and for a client that is used only to make copies
	// with a key ([Client.WithKey]).
	WithoutKey bool
	// HTTPClient sends requests. The default has no overall timeout, because uploads may take a
	// long time. Its CheckRedirect is not used: a redirect becomes an [APIError] that names its
	// target.
	HTTPClient *http.Client
	// Timeout bounds each attempt at an API call; 0 means 30 seconds. See [Timeout].
	Timeout time.Duration
	// Attempts is the maximum number of attempts per call, including the first; 0 means five.
	Attempts int
	// MaxWait is the longest single wait that the client accepts, even if Retry-After asks for
	// more; 0 means a minute.
	MaxWait time.Duration
	// UserAgent is sent with each call.
	UserAgent string
	// Sleep waits between attempts. Tests set it to control time.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Client calls the API for one account.
type Client struct{ cfg Config }

// New returns a client. It checks the base URL and the key, and fills in defaults.
func New(cfg Config) (*Client, error) {
	u, err := url.Parse(cfg.BaseURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, &ArgumentError{fmt.Sprintf("base URL %q must start with http:// or https://", cfg.BaseURL)}
	}
	cfg.BaseURL = strings.TrimRight(cfg.BaseURL, "/")
	if cfg.Key, err = checkedKey(cfg.Key, cfg.WithoutKey); err != nil {
		return nil, err
	}
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = &http.Client{}
	}
	// Following a redirect would turn a POST, PATCH or DELETE into a GET, which succeeds but has no
	// effect.
	unled := *cfg.HTTPClient
	unled.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	cfg.HTTPClient = &unled
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
		cfg.UserAgent = "linkreel-go/" + ContractVersion
	}
	if cfg.Sleep == nil {
		cfg.Sleep = sleep
	}
	return &Client{cfg}, nil
}

// checkedKey removes leading and trailing line breaks from a key. Its errors leave out the key
// because errors are logged.
func checkedKey(key string, emptyIsFine bool) (string, error) {
	key = strings.Trim(key, "\r\n")
	if key == "" && !emptyIsFine {
		return "", &ArgumentError{"the key is empty: set Config.Key to an API key, lr_live_…"}
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", &ArgumentError{"the key contains a space, a control character or a letter that is not used in keys: copy it again"}
	}
	return key, nil
}

// WithKey returns a copy of the client with a different key.
func (c *Client) WithKey(key string) *Client {
	other := *c
	other.cfg.Key = strings.Trim(key, "\r\n")
	return &other
}

// Operator calls the operator's API, which has its own base URL and requires the admin token.
type Operator struct{ c *Client }

// NewOperator is like [New]. BaseURL is the admin URL, and Key is the admin token.
func NewOperator(cfg Config) (*Operator, error) {
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return &Operator{c}, nil
}

// Request is [Client.Request] for the operator's API.
func (o *Operator) Request(ctx context.Context, method, path string, in, out any, opts ...Option) error {
	return o.c.Request(ctx, method, path, in, out, opts...)
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
