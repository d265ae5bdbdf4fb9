package api

import (
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
)

// Shown returns a record's wire format for events. The result never contains secrets.
func Shown(record any) any {
	switch r := record.(type) {
	case account.Account:
		return toOperatorAccount(r, nil)
	case account.Key:
		return toKey(r)
	case member.Member:
		return toMember(r, nil)
	case member.Link:
		if r.Kind == member.SignIn {
			return wire.EventSignInLink{
				ID: r.ID, MemberID: r.MemberID, Name: r.Name, Role: r.Role, MadeBy: madeBy(r),
				CreatedAt: r.CreatedAt.UnixMilli(), ExpiresAt: r.ExpiresAt.UnixMilli(),
			}
		}
		return toInvitation(r)
	case member.Session:
		return wire.Session{
			ID: r.ID, MemberID: r.MemberID, How: r.How, Client: r.Client, CreatedAt: r.CreatedAt.UnixMilli(), EndedAt: wire.Millis(r.EndedAt),
		}
	}
	return nil // the outbox rejects an event without data, so records of other types must not have events
}

func toMember(m member.Member, ignored []string) wire.Member {
	return wire.Member{
		ID: m.ID, Name: m.Name, Email: wire.OrNull(m.Email), Role: m.Role,
		CreatedAt: m.CreatedAt.UnixMilli(), UpdatedAt: m.UpdatedAt.UnixMilli(), IgnoredFields: ignored,
	}
}

func toInvitation(l member.Link) wire.Invitation {
	return wire.Invitation{
		ID: l.ID, Name: l.Name, Role: l.Role, InvitedBy: madeBy(l),
		CreatedAt: l.CreatedAt.UnixMilli(), ExpiresAt: l.ExpiresAt.UnixMilli(),
	}
}

func madeBy(l member.Link) wire.Actor {
	return wire.Actor{Type: string(l.By.Type), ID: l.By.ID, Name: l.By.Name}
}

func toOperatorAccount(a account.Account, ignored []string) wire.OperatorAccount {
	return wire.OperatorAccount{
		ID: a.ID, Name: a.Name, Plan: a.Plan.String(), State: string(a.State()), Suspended: a.Suspended,
		DefaultDomainID: wire.OrNull(a.DefaultDomainID),
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

// bulkItems is the maximum number of items in a bulk request. The links service enforces it.
const bulkItems = 100
