package api

import (
	"time"

	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

func toOperatorAccount(a account.Account, ignored []string) wire.OperatorAccount {
	return wire.OperatorAccount{
		ID: a.ID, Name: a.Name, Plan: a.Plan.String(), State: string(a.State()), Suspended: a.Suspended,
		Limits: wire.OwnLimits{
			Links: orNull(
				a.Limits.Links,
			), Videos: orNull(a.Limits.Videos), Domains: orNull(a.Limits.Domains), StoredBytes: orNull(a.Limits.StoredBytes),
		},
		CreatedAt: a.CreatedAt.UnixMilli(), IgnoredFields: ignored,
	}
}

func toKey(k account.Key) wire.Key {
	scopes := k.Scopes
	if scopes == nil {
		scopes = identity.ScopeSet{}
	}
	return wire.Key{
		ID: k.ID, Name: k.Name, Prefix: k.Prefix, Last4: k.Last4, Scopes: scopes, CreatedAt: k.CreatedAt.UnixMilli(),
		LastUsedAt: millis(k.LastUsedAt), ExpiresAt: millis(k.ExpiresAt), RevokedAt: millis(k.RevokedAt),
	}
}

func toNewKey(k account.Key, secret identity.Key) wire.KeyCreated {
	return wire.KeyCreated{Key: toKey(k), Secret: secret.Secret()}
}

func toLimits(rate int, q identity.Quotas) wire.AccountLimits {
	return wire.AccountLimits{
		RequestsPerMinute: rate, BulkItems: bulkItems,
		Links: orNull(
			int64(q.Links),
		), Videos: orNull(int64(q.Videos)), Domains: orNull(int64(q.Domains)), StoredBytes: orNull(q.StoredBytes),
	}
}

func orNull(n int64) *int64 {
	if n <= 0 {
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
