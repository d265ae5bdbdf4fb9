// Package client is the Go client of the Linkreel API. Each operation has a method with the name
// that the API's document gives it: createLink is [Client.CreateLink]. Lists also have a walk over
// all pages, such as [Client.Links], and longer work has functions of its own: bulk requests of any
// size, uploads that resume, waiting for a video, and following events.
//
// Calls that may succeed later are retried for as long as the service asks. A retry never acts twice:
// a POST carries an Idempotency-Key over all its attempts, and the few that take none are not sent
// again once they may have acted. Redirects are not followed. Errors have types: see [APIError] and
// [ConnectionError].
//
// It needs only the standard library. A Client is safe for concurrent use.
package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config says where the API is and how often to retry. Only BaseURL and Key are required.
type Config struct {
	BaseURL string // such as https://linkreel.example
	// Key is an API key, lr_live_… Line ends around it, as in a file, are removed.
	Key string
	// WithoutKey allows an empty Key, for the operations that need none: CreateDeviceCode and
	// CollectDeviceKey, and for a client of which only copies with a key are used.
	WithoutKey bool
	// HTTPClient sends requests. The default has no overall timeout, since uploads may take long. Its
	// CheckRedirect is not used: a redirect is an [APIError] that says where it points to.
	HTTPClient *http.Client
	// Timeout bounds each attempt of an API call; 0 means 30 seconds. See [Timeout].
	Timeout time.Duration
	// Attempts is how often a call is tried in total, the first attempt included; 0 means five.
	Attempts int
	// MaxWait is the longest single wait that the client accepts, whatever Retry-After says; 0
	// means a minute.
	MaxWait time.Duration
	// UserAgent is sent with each call.
	UserAgent string
	// Sleep waits between attempts. Tests set it to control time.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Client calls the API for one account.
type Client struct{ cfg Config }

// New checks address and key, and fills in defaults.
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
	// A followed redirect would turn a POST, PATCH or DELETE into a GET that succeeds and does nothing.
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

// checkedKey removes line ends around a key. Its errors do not contain the key, since they end up
// in logs.
func checkedKey(key string, emptyIsFine bool) (string, error) {
	key = strings.Trim(key, "\r\n")
	if key == "" && !emptyIsFine {
		return "", &ArgumentError{"the key is empty: set Config.Key to an API key, lr_live_…"}
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", &ArgumentError{"the key has a space, a control character or a letter that no key has: copy it again"}
	}
	return key, nil
}

// WithKey returns a copy of the client with another key.
func (c *Client) WithKey(key string) *Client {
	other := *c
	other.cfg.Key = strings.Trim(key, "\r\n")
	return &other
}

// Operator calls the operator's API, which has its own address and takes the operator's token.
type Operator struct{ c *Client }

// NewOperator is like [New]. BaseURL is the admin address, and Key is the admin token.
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
