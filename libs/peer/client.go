package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/linkreel/linkreel/libs/apierr"
)

// maxAnswer is the maximum size of a response that is read into memory.
const maxAnswer = 1 << 20

// Client calls one service over its internal listener.
type Client struct {
	url, token string
	patience   time.Duration
	http       *http.Client
}

// NewClient returns a client for a service's internal URL, such as http://auth:8090. It does
// not open a connection. token is the calling service's token setting. patience bounds each call.
func NewClient(baseURL, token string, patience time.Duration) *Client {
	dialer := &net.Dialer{Timeout: 500 * time.Millisecond, KeepAlive: 15 * time.Second}
	return &Client{
		url: strings.TrimRight(baseURL, "/"), token: Shown(token), patience: patience,
		http: &http.Client{
			Transport: otelhttp.NewTransport(&http.Transport{ // no Proxy because internal traffic must not go through one
				// By default, Go keeps only two idle connections per host, so every burst of calls
				// would open new ones.
				DialContext: dialer.DialContext, MaxIdleConns: 128, MaxIdleConnsPerHost: 128, IdleConnTimeout: 60 * time.Second,
				TLSHandshakeTimeout: 500 * time.Millisecond, ResponseHeaderTimeout: patience, DisableCompression: true,
			}),
			// Services never redirect, and the token must not be sent anywhere else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Call sends in to path and decodes the response into out, which may be nil. If the service returns
// an error, Call returns an *apierr.Error with the same code. Any other failure is UNAVAILABLE,
// with the cause only in the log.
func (c *Client) Call(ctx context.Context, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	body, err := c.send(ctx, path, in)
	if err != nil {
		return err
	}
	defer body.Close()
	// Read the response to the end even if out is nil: otherwise the connection cannot be reused.
	text, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return apierr.Down(fmt.Errorf("%s: read response: %w", path, err))
	}
	return nil
}

// Copy calls path and writes a response of any length to w. If the response is cut off, Copy
// returns an error. Copy does not set a deadline, because w may be slow.
func (c *Client) Copy(ctx context.Context, path string, in any, w io.Writer) error {
	body, err := c.send(ctx, path, in)
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err := io.Copy(w, body); err != nil {
		return fmt.Errorf("%s: copy response: %w", path, err)
	}
	return nil
}

// send makes the request and returns the body of a 2xx response.
func (c *Client) send(ctx context.Context, path string, in any) (io.ReadCloser, error) {
	text, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("%s: encode: %w", path, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	call := strconv.FormatUint(rand.Uint64(), 36)
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(callHeader, call)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, apierr.Down(fmt.Errorf("%s: %w", path, err))
	}
	ours := resp.Header.Get(callHeader) == call
	if ours && resp.StatusCode/100 == 2 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	if !ours {
		return nil, apierr.Down(fmt.Errorf("%s: got status %d, but not from this call's handler", path, resp.StatusCode))
	}
	return nil, fmt.Errorf("%s: %w", path, refusal(resp))
}

// refusal returns the error in a response's body.
func refusal(resp *http.Response) error {
	var body struct {
		Error struct {
			Code          apierr.Code     `json:"code"`
			Message       string          `json:"message"`
			Details       []apierr.Detail `json:"details"`
			RequiredScope string          `json:"requiredScope"`
			RequiredRole  string          `json:"requiredRole"`
		} `json:"error"`
	}
	err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&body)
	e := &apierr.Error{
		Code: body.Error.Code, Message: body.Error.Message, Details: body.Error.Details,
		RequiredScope: body.Error.RequiredScope, RequiredRole: body.Error.RequiredRole,
	}
	// Do not return an internal error from the other service to the caller.
	if err != nil || e.Code.Status() != resp.StatusCode || resp.StatusCode >= http.StatusInternalServerError {
		e = apierr.Down(fmt.Errorf("returned %d %s", resp.StatusCode, body.Error.Code))
	}
	// A busy service may send Retry-After with any code.
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	return e
}
