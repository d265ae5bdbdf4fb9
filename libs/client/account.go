package client

import (
	"context"
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
