package api

import (
	"time"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

type (
	accountBody struct {
		ID        string     `json:"id"`
		Name      string     `json:"name"`
		Plan      string     `json:"plan"`
		CreatedAt int64      `json:"createdAt"`
		Limits    limitsBody `json:"limits"`
		Usage     usageBody  `json:"usage"`
	}
	limitsBody struct {
		RequestsPerMinute int  `json:"requestsPerMinute"`
		BulkItems         int  `json:"bulkItems"`
		Links             *int `json:"links"` // null: no limit
		Videos            *int `json:"videos"`
		Domains           *int `json:"domains"`
		StoredBytes       *int `json:"storedBytes"`
	}
	usageBody struct {
		Links   int `json:"links"`
		Videos  int `json:"videos"`
		Domains int `json:"domains"`

		StoredBytes int64 `json:"storedBytes"`
	}
	// ownLimitsBody is the operator's exceptions from the plan; null is the plan's.
	ownLimitsBody struct {
		Links       *int64 `json:"links"`
		Videos      *int64 `json:"videos"`
		Domains     *int64 `json:"domains"`
		StoredBytes *int64 `json:"storedBytes"`
	}
	operatorAccountBody struct {
		ID            string        `json:"id"`
		Name          string        `json:"name"`
		Plan          string        `json:"plan"`
		State         string        `json:"state"`
		Suspended     bool          `json:"suspended"`
		Limits        ownLimitsBody `json:"limits"`
		CreatedAt     int64         `json:"createdAt"`
		IgnoredFields []string      `json:"ignoredFields,omitempty"`
	}
	keyBody struct {
		ID         string           `json:"id"`
		Name       string           `json:"name"`
		Prefix     string           `json:"prefix"`
		Last4      string           `json:"last4"`
		Scopes     []identity.Scope `json:"scopes"`
		CreatedAt  int64            `json:"createdAt"`
		LastUsedAt *int64           `json:"lastUsedAt"`
		ExpiresAt  *int64           `json:"expiresAt"`
		RevokedAt  *int64           `json:"revokedAt"`
	}
	newKeyBody struct {
		Key string `json:"key"` // shown here and never again
		keyBody
	}
	keyListBody struct {
		Data []keyBody `json:"data"`
	}
)

func toOperatorAccount(a account.Account, ignored []string) operatorAccountBody {
	return operatorAccountBody{
		ID: a.ID, Name: a.Name, Plan: a.Plan.String(), State: string(a.State()), Suspended: a.Suspended,
		Limits:    ownLimitsBody{orNull(a.Limits.Links), orNull(a.Limits.Videos), orNull(a.Limits.Domains), orNull(a.Limits.StoredBytes)},
		CreatedAt: a.CreatedAt.UnixMilli(), IgnoredFields: ignored,
	}
}

func toKey(k account.Key) keyBody {
	scopes := k.Scopes
	if scopes == nil {
		scopes = identity.ScopeSet{}
	}
	return keyBody{
		ID: k.ID, Name: k.Name, Prefix: k.Prefix, Last4: k.Last4, Scopes: scopes, CreatedAt: k.CreatedAt.UnixMilli(),
		LastUsedAt: millis(k.LastUsedAt), ExpiresAt: millis(k.ExpiresAt), RevokedAt: millis(k.RevokedAt),
	}
}

func toNewKey(k account.Key, secret identity.Key) newKeyBody {
	return newKeyBody{Key: secret.Secret(), keyBody: toKey(k)}
}

func toLimits(rate int, q identity.Quotas) limitsBody {
	bound := func(n int) *int {
		if n <= 0 {
			return nil
		}
		return &n
	}
	return limitsBody{RequestsPerMinute: rate, BulkItems: bulkItems, Links: bound(q.Links), Videos: bound(q.Videos), Domains: bound(q.Domains), StoredBytes: bound(int(q.StoredBytes))}
}

func orNull(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// bulkItems is the size of a bulk request; links enforces it.
const bulkItems = 100

func millis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}
