// Package api has the HTTP routes of auth: the public ones under /api/v1/account and
// /api/v1/keys, the operator's under /admin/v1, and the source behind key
// verification. auth also gets every request to the base address that belongs to no
// other service, so the documentation, the start page and the 404s are here too.
package api

import (
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// Public adds the routes that callers with an API key use.
func Public(a *httpapi.API, accounts *account.Service, plans Plans) {
	h := public{accounts: accounts, plans: plans}
	a.Handle(fiber.MethodGet, "/api/v1/account", httpapi.Access{}, h.account)
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
}

func (h public) account(c *fiber.Ctx) error {
	ctx := c.UserContext()
	p := identity.FromContext(ctx)
	a, err := h.accounts.Account(ctx, p.AccountID)
	if err != nil {
		return err
	}
	u, err := h.accounts.Usage(ctx, a.ID)
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, wire.Account{
		ID: a.ID, Name: a.Name, Plan: a.Plan.String(), CreatedAt: a.CreatedAt.UnixMilli(),
		Limits: toLimits(h.plans[a.Plan].PerMinute, a.Limits.Over(h.plans[a.Plan].Quotas)),
		Usage: wire.AccountUsage{
			Links: int64(u.Links), Videos: int64(u.Videos), Domains: int64(u.Domains), StoredBytes: u.StoredBytes,
		},
	})
}

func (h public) keys(c *fiber.Ctx) error {
	ctx := c.UserContext()
	found, err := h.accounts.Keys(ctx, identity.FromContext(ctx).AccountID)
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, wire.KeyList{Data: wire.List(found, toKey)})
}

func (h public) createKey(c *fiber.Ctx) error {
	ctx := c.UserContext()
	p := identity.FromContext(ctx)
	var body wire.KeyCreate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	asked := newKey(fields, &body)
	// The transaction checks this again, on the key as it is then. Here it only decides which
	// of several errors the caller sees.
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

// newKey converts the body of a request for a key.
func newKey(fields *httpapi.Fields, in *wire.KeyCreate) account.NewKey {
	notBlank(fields, in.Name)
	out := account.NewKey{Name: in.Name, Scopes: identity.DefaultScopes}
	if in.Scopes != nil {
		out.Scopes = identity.ParseScopes(in.Scopes)
	}
	if in.ExpiresAt == nil {
		return out
	}
	ms, ok := in.ExpiresAt.Date()
	if !ok {
		fields.Add(apierr.Detail{Field: "expiresAt", Code: apierr.InvalidFormat, Message: "Use an ISO 8601 date or milliseconds since 1970."})
	}
	if out.ExpiresAt = time.UnixMilli(ms); out.ExpiresAt.IsZero() {
		out.ExpiresAt = time.UnixMilli(ms + 1) // the date may be Go's zero time, which means "never" here
	}
	return out
}

// draw gives the new key its id, time and secret; see [secretOf].
func draw(c *fiber.Ctx, n *account.NewKey) error {
	// A repeat with the same Idempotency-Key has the same origin, so it makes the same key and
	// not a second one.
	origin := identity.OriginFrom(c.UserContext())
	n.ID, n.At = identity.IDFrom("key", origin.Nonce), origin.At
	random, err := secretOf(c, "api key")
	if err != nil {
		return err
	}
	n.Key = identity.NewKey(random)
	return nil
}
