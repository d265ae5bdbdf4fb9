// Package wire carries the contract of package [tenant] over HTTP: [Client] is a
// holder in another service, and [Routes] is its other end.
package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tenant"
)

// callTime bounds each call but Export, which lasts as long as its caller reads.
const callTime = 6 * time.Second

// Client is a [tenant.Holder] in another service, reached over its internal listener.
type Client struct {
	url, token string
	http       *http.Client
}

var _ tenant.Holder = (*Client)(nil)

// NewClient makes a client for a service's internal address, such as
// http://links:8090. It dials nothing yet.
func NewClient(baseURL, token string) *Client {
	dialer := &net.Dialer{Timeout: time.Second, KeepAlive: 15 * time.Second}
	return &Client{
		url: strings.TrimRight(baseURL, "/"), token: token,
		http: &http.Client{
			Transport: otelhttp.NewTransport(&http.Transport{ // no Proxy: internal traffic never takes one
				DialContext: dialer.DialContext, MaxIdleConnsPerHost: 16, IdleConnTimeout: 60 * time.Second,
				ResponseHeaderTimeout: callTime, DisableCompression: true,
			}),
			// A holder never redirects, and the token must reach nobody else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close frees idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// SetState is [tenant.Holder].SetState.
func (c *Client) SetState(ctx context.Context, accountID string, s tenant.Standing) error {
	return c.call(ctx, http.MethodPut, at(statePath, accountID), s, nil)
}

// Erased is [tenant.Holder].Erased.
func (c *Client) Erased(ctx context.Context, accountID string) (bool, error) {
	var e erasure
	if err := c.call(ctx, http.MethodGet, at(erasurePath, accountID), nil, &e); err != nil {
		return false, err
	}
	if e.Erased == nil {
		return false, errors.New("answer does not say whether the account is erased")
	}
	return *e.Erased, nil
}

// TakeDown is [tenant.Holder].TakeDown.
func (c *Client) TakeDown(ctx context.Context, o tenant.Order) (t tenant.Takedown, err error) {
	if err := c.call(ctx, http.MethodPost, takePath, o, &t); err != nil {
		return tenant.Takedown{}, err
	}
	if t.ID == "" || t.RecordID == "" {
		return tenant.Takedown{}, errors.New("answer is no takedown")
	}
	return t, nil
}

// Lift is [tenant.Holder].Lift.
func (c *Client) Lift(ctx context.Context, t tenant.Takedown) error {
	return c.call(ctx, http.MethodPost, liftPath, t, nil)
}

// Export is [tenant.Holder].Export. An answer that breaks off is an error, never a
// shorter export.
func (c *Client) Export(ctx context.Context, accountID string, w io.Writer) error {
	resp, err := c.send(ctx, http.MethodGet, at(exportPath, accountID), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("copy export: %w", err)
	}
	return nil
}

func at(path, accountID string) string {
	return strings.Replace(path, ":account", url.PathEscape(accountID), 1)
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	resp, err := c.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(out); err != nil {
		return fmt.Errorf("%s %s: read answer: %w", method, path, err)
	}
	return nil
}

// send returns answers of 2xx; see refusal for the others.
func (c *Client) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if p := identity.FromContext(ctx); p != nil {
		setPrincipal(req.Header, p)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, apierr.Down(fmt.Errorf("%s %s: %w", method, path, err))
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, fmt.Errorf("%s %s: %w", method, path, refusal(resp))
}

// refusal reads a holder's refusal. Only "this target is not here" is an answer. A
// wrong token or a missing route (a plain NOT_FOUND) is a deployment mistake, and
// auth retries as if the holder were down. A holder that is busy says for how long.
func refusal(resp *http.Response) error {
	var body struct {
		Error struct {
			Code    apierr.Code `json:"code"`
			Message string      `json:"message"`
		} `json:"error"`
	}
	err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&body)
	switch code := body.Error.Code; {
	case err == nil && resp.StatusCode == http.StatusNotFound && (code == apierr.LinkNotFound || code == apierr.VideoNotFound):
		return apierr.New(code, body.Error.Message)
	default:
		refused := apierr.Down(fmt.Errorf("answered %d %s", resp.StatusCode, code))
		if err == nil && resp.StatusCode == http.StatusTooManyRequests && code == apierr.RateLimited {
			refused = apierr.New(code, body.Error.Message)
		}
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
			refused.RetryAfter = time.Duration(s) * time.Second
		}
		return refused
	}
}
