// Package api serves auth's HTTP routes: the public routes under /api/v1, such as
// /api/v1/account and /api/v1/keys, and the operator's routes under /admin/v1. It also verifies
// keys for the other services. auth receives every request to the base URL that no other
// service handles, so this package also serves the documentation, the start page and the 404
// pages.
package api

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/jsdate"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// Public adds the routes that callers with an API key use. domains is nil if no service in the
// deployment provides custom domains.
func Public(a *httpapi.API, accounts *account.Service, plans Plans, domains tenant.Domains) {
	h := public{accounts: accounts, plans: plans, domains: domains}
	a.Handle(fiber.MethodGet, "/api/v1/account", httpapi.Access{}, h.account)
	a.Handle(fiber.MethodPatch, "/api/v1/account", httpapi.Access{Scope: identity.AccountWrite}, h.changeAccount)
	a.Handle(fiber.MethodGet, "/api/v1/keys", httpapi.Access{Scope: identity.KeysRead}, h.keys)
	a.Handle(fiber.MethodPost, "/api/v1/keys", httpapi.Access{Scope: identity.KeysWrite}, h.createKey)
	a.Handle(fiber.MethodGet, "/api/v1/keys/:id", httpapi.Access{Scope: identity.KeysRead}, h.key)
	a.Handle(fiber.MethodDelete, "/api/v1/keys/:id", httpapi.Access{Scope: identity.KeysWrite}, h.revokeKey)
	a.Finds(fiber.MethodDelete, "/api/v1/keys/:id", h.key)
	a.Handle(fiber.MethodPost, "/api/v1/keys/:id/roll", httpapi.Access{Scope: identity.KeysWrite, Repeatable: true}, h.rollKey)
}

type public struct {
	accounts *account.Service
	plans    Plans
	domains  tenant.Domains
}

func (h public) account(c *fiber.Ctx) error {
	ctx := c.UserContext()
	p := identity.FromContext(ctx)
	a, err := h.accounts.Account(ctx, p.AccountID)
	if err != nil {
		return err
	}
	return h.show(c, a, nil)
}

// changeAccount changes the settings that the account's owners control.
func (h public) changeAccount(c *fiber.Ctx) error {
	ctx := c.UserContext()
	id := identity.FromContext(ctx).AccountID
	var body wire.AccountSettingsUpdate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	var change account.Change
	if body.Name.Set {
		notBlank(fields, body.Name.Value)
		change.Name = &body.Name.Value
	}
	if err := fields.Err(); err != nil {
		return err
	}
	if body.DefaultDomainID.Set {
		domain := body.DefaultDomainID.Value
		if body.DefaultDomainID.Null || domain == "default" {
			domain = ""
		} else if err := h.usable(ctx, id, domain); err != nil {
			return err
		}
		change.DefaultDomainID = &domain
	}
	match := httpapi.IfMatch(c)
	change.Match = func(a account.Account) error { return match.Check(settingsRev(a)) }
	after, err := h.accounts.Change(ctx, id, change)
	if err != nil {
		return err
	}
	return h.show(c, after, fields.Unknown)
}

// usable asks the domain service whether new links can use this domain.
//
// If the domain is deleted concurrently, the deletion may still read the previous default. In that
// case, the account has a default domain that no longer exists. Until an owner sets another
// default, new links without an explicit domain are rejected with that reason, and the console's
// settings show it.
func (h public) usable(ctx context.Context, accountID, domainID string) error {
	if h.domains == nil {
		return apierr.New(apierr.DomainNotFound, "This deployment has no custom domains.")
	}
	return h.domains.Usable(ctx, accountID, domainID)
}

// settingsRev returns the revision of the settings that changeAccount changes. Usage does not
// change the revision.
func settingsRev(a account.Account) int64 { return httpapi.Rev(a.Name, a.DefaultDomainID) }

func (h public) show(c *fiber.Ctx, a account.Account, ignored []string) error {
	u, err := h.accounts.Usage(c.UserContext(), a.ID)
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderETag, httpapi.ETag(settingsRev(a)))
	return httpapi.JSON(c, fiber.StatusOK, wire.Account{
		ID: a.ID, Name: a.Name, Plan: a.Plan.String(), DefaultDomainID: wire.OrNull(a.DefaultDomainID), CreatedAt: a.CreatedAt.UnixMilli(),
		Limits: toLimits(h.plans[a.Plan].PerMinute, a.Limits.Over(h.plans[a.Plan].Quotas)),
		Usage: wire.AccountUsage{
			Links: int64(u.Links), Videos: int64(u.Videos), Domains: int64(u.Domains), StoredBytes: u.StoredBytes,
		},
		IgnoredFields: ignored,
	})
}

func (h public) keys(c *fiber.Ctx) error {
	ctx := c.UserContext()
	accountID := identity.FromContext(ctx).AccountID
	page, err := httpapi.Page(c, "keys", accountID)
	if err != nil {
		return err
	}
	all, err := h.accounts.Keys(ctx, accountID)
	if err != nil {
		return err
	}
	found, next := paging.Cut(page, all, paging.Newest, account.Key.Place)
	return httpapi.JSON(c, fiber.StatusOK, wire.KeyList{Data: wire.List(found, toKey), HasMore: next != nil, NextCursor: next})
}

func (h public) createKey(c *fiber.Ctx) error {
	ctx := c.UserContext()
	p := identity.FromContext(ctx)
	var body wire.KeyCreate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	asked := newKey(fields, &body, identity.OriginFrom(ctx).At)
	// The transaction checks this again against the current key. This check only determines
	// which of several errors the caller gets.
	if !fields.HasError("scopes") {
		if err := account.MayGive(p.Scopes, asked.Scopes); err != nil {
			return err // 403 takes precedence over 400
		}
	}
	if err := fields.Err(); err != nil {
		return err
	}
	asked.AccountID, asked.By = p.AccountID, p
	if err := draw(c, &asked); err != nil {
		return err
	}
	made, err := h.accounts.CreateKey(ctx, asked)
	if err != nil {
		return err
	}
	return httpapi.Created(c, "/api/v1/keys/"+made.ID, toNewKey(made, asked.Key))
}

func (h public) key(c *fiber.Ctx) error {
	ctx := c.UserContext()
	k, err := h.accounts.Key(ctx, identity.FromContext(ctx).AccountID, c.Params("id"))
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, toKey(k))
}

func (h public) revokeKey(c *fiber.Ctx) error {
	ctx := c.UserContext()
	if err := h.accounts.Revoke(ctx, identity.FromContext(ctx).AccountID, c.Params("id")); err != nil {
		return err
	}
	return httpapi.NoContent(c)
}

func (h public) rollKey(c *fiber.Ctx) error {
	ctx := c.UserContext()
	p := identity.FromContext(ctx)
	old, err := h.accounts.Key(ctx, p.AccountID, c.Params("id")) // 404 takes precedence over 400
	if err != nil {
		return err
	}
	if err := account.MayGive(p.Scopes, old.Scopes); err != nil {
		return err
	}
	var body wire.KeyRoll
	fields, err := httpapi.DecodeOptional(c, &body)
	if err != nil {
		return err
	}
	if err := fields.Err(); err != nil {
		return err
	}
	asked := account.NewKey{AccountID: p.AccountID, By: p}
	if err := draw(c, &asked); err != nil {
		return err
	}
	made, err := h.accounts.Roll(ctx, old.ID, time.Duration(body.OverlapSeconds)*time.Second, asked)
	if err != nil {
		return err
	}
	return httpapi.Created(c, "/api/v1/keys/"+made.ID, toNewKey(made, asked.Key))
}

// newKey converts the body of a request to create a key. now is the creation time.
func newKey(fields *httpapi.Fields, in *wire.KeyCreate, now time.Time) account.NewKey {
	notBlank(fields, in.Name)
	out := account.NewKey{Name: in.Name, Scopes: identity.DefaultScopes}
	if in.Scopes != nil {
		out.Scopes = identity.ParseScopes(in.Scopes)
	}
	if in.ExpiresAt == nil {
		return out
	}
	ms, ok := fields.Instant("expiresAt", *in.ExpiresAt)
	out.ExpiresAt = time.UnixMilli(ms)
	if ok && !out.ExpiresAt.After(now) {
		fields.Add(apierr.Detail{
			Field: "expiresAt", Code: apierr.OutOfRange, Min: now.UnixMilli() + 1,
			Message: "This time is in the past. Use a time in the future, or leave the field out for a key that never expires." +
				jsdate.SecondsHint(ms),
		})
	}
	return out
}

// draw sets the new key's id, time and secret. See [secretOf].
func draw(c *fiber.Ctx, n *account.NewKey) error {
	// A repeated request with the same Idempotency-Key has the same origin, so it creates the
	// same key instead of a second one.
	origin := identity.OriginFrom(c.UserContext())
	n.ID, n.At = identity.IDFrom("key", origin.Nonce), origin.At
	random, err := secretOf(c, "api key")
	if err != nil {
		return err
	}
	n.Key = identity.NewKey(random)
	return nil
}
