package signin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/linkreel/linkreel/libs/apierr"
)

// callTime bounds each call. It is above the patience that auth has with an
// identity provider.
const callTime = 9 * time.Second

// Client asks auth over its internal listener.
type Client struct {
	url, token string
	http       *http.Client
}

// NewClient makes a client for auth's internal address, such as
// http://auth:8090. It dials nothing yet.
func NewClient(baseURL, token string) *Client {
	dialer := &net.Dialer{Timeout: time.Second, KeepAlive: 15 * time.Second}
	return &Client{
		url: strings.TrimRight(baseURL, "/") + Prefix, token: token,
		http: &http.Client{
			Timeout: callTime,
			Transport: otelhttp.NewTransport(&http.Transport{ // no Proxy: internal traffic never takes one
				DialContext: dialer.DialContext, MaxIdleConnsPerHost: 32, IdleConnTimeout: 60 * time.Second, DisableCompression: true,
			}),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close frees idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Do asks one operation. Auth's refusals come back as *apierr.Error; whatever
// else goes wrong is UNAVAILABLE. out may be nil.
func (c *Client) Do(ctx context.Context, op string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("sign-in %s: encode: %w", op, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+op, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("sign-in %s: %w", op, err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return apierr.Down(fmt.Errorf("sign-in %s: %w", op, err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return apierr.Down(fmt.Errorf("sign-in %s: %w", op, err))
	}
	if resp.StatusCode/100 != 2 {
		return refusal(op, resp, text)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return apierr.Down(fmt.Errorf("sign-in %s: read answer: %w", op, err))
	}
	return nil
}

// refusal reads auth's error. One that is not for a person, such as a wrong
// internal token, is ours to see in the log.
func refusal(op string, resp *http.Response, text []byte) error {
	var body struct {
		Error struct {
			Code          apierr.Code     `json:"code"`
			Message       string          `json:"message"`
			Details       []apierr.Detail `json:"details"`
			RequiredScope string          `json:"requiredScope"`
			RequiredRole  string          `json:"requiredRole"`
		} `json:"error"`
	}
	err := json.Unmarshal(text, &body)
	if err != nil || body.Error.Code.Status() != resp.StatusCode || resp.StatusCode >= http.StatusInternalServerError {
		return apierr.Down(fmt.Errorf("sign-in %s: auth answered %d", op, resp.StatusCode))
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // absent: 0
	return &apierr.Error{
		Code: body.Error.Code, Message: body.Error.Message, Details: body.Error.Details,
		RequiredScope: body.Error.RequiredScope, RequiredRole: body.Error.RequiredRole, RetryAfter: time.Duration(seconds) * time.Second,
	}
}
