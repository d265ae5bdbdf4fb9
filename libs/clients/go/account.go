package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
)

// Account is the account of the key.
type Account struct {
	ID        string           `json:"id"`
	Name      string           `json:"name"`
	Plan      string           `json:"plan"`
	CreatedAt Millis           `json:"createdAt"`
	Limits    map[string]*int  `json:"limits"` // nil: no limit
	Usage     map[string]int64 `json:"usage"`
}

// Account reads the account of the key.
func (c *Client) Account(ctx context.Context) (*Account, error) {
	out := new(Account)
	return out, c.call(ctx, http.MethodGet, "/api/v1/account", nil, out)
}

// Export streams everything that the account has, as JSON Lines of type and data.
// It is not retried: read it to its end, and close it.
func (c *Client) Export(ctx context.Context) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cfg.BaseURL+"/api/v1/account/export", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.cfg.Key)
	req.Header.Set("User-Agent", c.cfg.UserAgent)
	res, err := c.cfg.HTTPClient.Do(req)
	if err != nil {
		return nil, &lost{err}
	}
	if res.StatusCode == http.StatusOK {
		return res.Body, nil
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return nil, &lost{err}
	}
	return nil, refusal(res, answer)
}

// Key is an API key without its secret.
type Key struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	Prefix     string   `json:"prefix"`
	Last4      string   `json:"last4"`
	Scopes     []string `json:"scopes"`
	CreatedAt  Millis   `json:"createdAt"`
	LastUsedAt *Millis  `json:"lastUsedAt"`
	ExpiresAt  *Millis  `json:"expiresAt"`
	RevokedAt  *Millis  `json:"revokedAt"`
}

// KeyCreated is a new key with its secret, which is never shown again.
type KeyCreated struct {
	Key
	Secret string `json:"key"`
}

// KeyCreate is a key to be. Without scopes it gets all.
type KeyCreate struct {
	Name      string   `json:"name"`
	Scopes    []string `json:"scopes,omitempty"`
	ExpiresAt Moment   `json:"expiresAt,omitzero"`
}

// Keys lists all keys.
func (c *Client) Keys(ctx context.Context) ([]Key, error) {
	var out struct{ Data []Key }
	err := c.call(ctx, http.MethodGet, "/api/v1/keys", nil, &out)
	return out.Data, err
}

// CreateKey makes a key.
func (c *Client) CreateKey(ctx context.Context, in KeyCreate) (*KeyCreated, error) {
	out := new(KeyCreated)
	return out, c.call(ctx, http.MethodPost, "/api/v1/keys", in, out)
}

// RollKey makes a successor; the old key goes on for overlapSeconds.
func (c *Client) RollKey(ctx context.Context, id string, overlapSeconds int) (*KeyCreated, error) {
	out := new(KeyCreated)
	in := map[string]int{"overlapSeconds": overlapSeconds}
	return out, c.call(ctx, http.MethodPost, "/api/v1/keys/"+url.PathEscape(id)+"/roll", in, out)
}

// RevokeKey ends a key at once.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/api/v1/keys/"+url.PathEscape(id), nil, nil)
}

// DeviceCode is a question to a person for a key. Show UserCode, open
// VerificationURL in their browser, and ask for the key every Interval.
type DeviceCode struct {
	Code            string `json:"deviceCode"`
	UserCode        string `json:"userCode"`
	VerificationURL string `json:"verificationUrl"`
	ExpiresAt       Millis `json:"expiresAt"`
	Interval        int    `json:"interval"` // seconds
}

// DeviceCode begins to ask a person for a key called name. It needs no key.
func (c *Client) DeviceCode(ctx context.Context, name string) (*DeviceCode, error) {
	out := new(DeviceCode)
	return out, c.call(ctx, http.MethodPost, "/api/v1/device-codes", map[string]string{"name": name}, out)
}

// DeviceKey collects the key, once. The error's code is AUTHORIZATION_PENDING until
// the person has decided.
func (c *Client) DeviceKey(ctx context.Context, code string) (*KeyCreated, error) {
	out := new(KeyCreated)
	return out, c.call(ctx, http.MethodPost, "/api/v1/device-codes/token", map[string]string{"deviceCode": code}, out)
}
