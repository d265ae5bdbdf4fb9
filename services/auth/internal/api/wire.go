package api

import (
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

func toOperatorAccount(a account.Account, ignored []string) wire.OperatorAccount {
	return wire.OperatorAccount{
		ID: a.ID, Name: a.Name, Plan: a.Plan.String(), State: string(a.State()), Suspended: a.Suspended,
		Limits: wire.OwnLimits{
			Links: wire.OrNull(a.Limits.Links), Videos: wire.OrNull(a.Limits.Videos),
			Domains: wire.OrNull(a.Limits.Domains), StoredBytes: wire.OrNull(a.Limits.StoredBytes),
		},
		CreatedAt: a.CreatedAt.UnixMilli(), IgnoredFields: ignored,
	}
}

func toKey(k account.Key) wire.Key {
	return wire.Key{
		ID: k.ID, Name: k.Name, Prefix: k.Prefix, Last4: k.Last4, Scopes: k.Scopes.Names(), CreatedAt: k.CreatedAt.UnixMilli(),
		LastUsedAt: wire.Millis(k.LastUsedAt), ExpiresAt: wire.Millis(k.ExpiresAt), RevokedAt: wire.Millis(k.RevokedAt),
	}
}

func toNewKey(k account.Key, secret identity.Key) wire.KeyCreated {
	return wire.KeyCreated{Key: toKey(k), Secret: secret.Secret()}
}

func toLimits(rate int, q identity.Quotas) wire.AccountLimits {
	return wire.AccountLimits{
		RequestsPerMinute: rate, BulkItems: bulkItems,
		Links: wire.OrNull(max(0, int64(q.Links))), Videos: wire.OrNull(max(0, int64(q.Videos))),
		Domains: wire.OrNull(max(0, int64(q.Domains))), StoredBytes: wire.OrNull(max(0, q.StoredBytes)),
	}
}

// bulkItems is the size of a bulk request; links enforces it.
const bulkItems = 100
