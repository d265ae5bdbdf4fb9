package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
)

// Account reads the account of the key.
func (c *Client) Account(ctx context.Context) (*Account, error) {
	return answer[Account](ctx, c, http.MethodGet, "/api/v1/account", nil)
}

// UpdateAccount changes the account's name or default domain.
func (c *Client) UpdateAccount(ctx context.Context, in AccountSettingsUpdate) (*Account, error) {
	return answer[Account](ctx, c, http.MethodPatch, "/api/v1/account", in)
}

// Export streams all data of the account as JSON Lines. Each line has a type and its data.
// Export does not retry. Read the stream to its end, and close it.
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

// Keys lists all keys.
func (c *Client) Keys(ctx context.Context) ([]Key, error) {
	return list[Key](ctx, c, "/api/v1/keys")
}

// CreateKey makes a key.
func (c *Client) CreateKey(ctx context.Context, in KeyCreate) (*KeyCreated, error) {
	return answer[KeyCreated](ctx, c, http.MethodPost, "/api/v1/keys", in)
}

// RollKey makes a key that replaces this one. The old key keeps working for
// overlapSeconds.
func (c *Client) RollKey(ctx context.Context, id string, overlapSeconds int) (*KeyCreated, error) {
	return answer[KeyCreated](
		ctx, c, http.MethodPost, "/api/v1/keys/"+url.PathEscape(id)+"/roll", map[string]int{"overlapSeconds": overlapSeconds},
	)
}

// RevokeKey ends a key at once.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/api/v1/keys/"+url.PathEscape(id), nil, nil)
}

// DeviceCode asks a person to approve a key with this name. It needs no key.
func (c *Client) DeviceCode(ctx context.Context, name string) (*DeviceCode, error) {
	return answer[DeviceCode](ctx, c, http.MethodPost, "/api/v1/device-codes", map[string]string{"name": name})
}

// DeviceKey fetches the approved key. This works only once. The error's code is
// AUTHORIZATION_PENDING until the person has decided.
func (c *Client) DeviceKey(ctx context.Context, code string) (*KeyCreated, error) {
	return answer[KeyCreated](ctx, c, http.MethodPost, "/api/v1/device-codes/token", map[string]string{"deviceCode": code})
}
