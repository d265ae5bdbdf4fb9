package api

import (
	"context"
	"errors"
	"io"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
	"github.com/linkreel/linkreel/services/auth/internal/tenancy"
)

func toTakedown(t tenancy.Takedown) wire.Takedown {
	out := wire.Takedown{ID: t.ID, URL: t.URL, AccountID: t.AccountID, Reason: t.Reason, CreatedAt: t.At.UnixMilli()}
	if t.URL == "" {
		out.URL = t.Target.URL // requested, but the target has not been found yet
	}
	switch t.Takedown.Kind {
	case tenant.KindLink:
		out.LinkID = t.RecordID
	case tenant.KindVideo:
		out.VideoID = t.RecordID
	}
	return out
}

// Tenancy adds the operator's routes for accounts and takedowns.
func Tenancy(a *httpapi.API, tenants *tenancy.Service, token string) {
	h := tenantRoutes{tenants}
	add := forOperator(a, token)
	add(fiber.MethodGet, "/admin/v1/accounts", h.accounts)
	add(fiber.MethodDelete, "/admin/v1/accounts/:id", h.deleteAccount)
	add(fiber.MethodGet, "/admin/v1/webhooks", h.failingWebhooks)
	add(fiber.MethodPost, "/admin/v1/takedowns", h.takeDown)
	add(fiber.MethodGet, "/admin/v1/takedowns", h.takedowns)
	add(fiber.MethodDelete, "/admin/v1/takedowns/:id", h.lift)
	a.Finds(fiber.MethodDelete, "/admin/v1/takedowns/:id", func(c *fiber.Ctx) error {
		_, err := tenants.Takedown(c.UserContext(), c.Params("id"))
		return err
	})
}

type tenantRoutes struct{ tenants *tenancy.Service }

func (h tenantRoutes) accounts(c *fiber.Ctx) error {
	limit, wrong := httpapi.Limit(c)
	if len(c.Query("q")) > 500 || !utf8.ValidString(c.Query("q")) {
		wrong = append(wrong, apierr.Detail{Field: "q", Code: apierr.TooLong, Message: "Search for at most 500 bytes of text.", Max: 500})
	}
	if len(wrong) > 0 {
		return apierr.Invalid(wrong...)
	}
	if cursor := c.Query("cursor"); cursor != "" && !isID("acc_", cursor) {
		return apierr.New(apierr.InvalidCursor, "Pass the nextCursor from an earlier response.")
	}
	found, next, err := h.tenants.Accounts(c.UserContext(), c.Query("cursor"), limit, c.Query("q"))
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, wire.OperatorAccountPage{
		Data:    wire.List(found, func(a account.Account) wire.OperatorAccount { return toOperatorAccount(a, nil) }),
		HasMore: next != "", NextCursor: wire.OrNull(next),
	})
}

func (h tenantRoutes) deleteAccount(c *fiber.Ctx) error {
	a, err := h.tenants.Delete(c.UserContext(), c.Params("id"))
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusAccepted, toOperatorAccount(a, nil))
}

func (h tenantRoutes) takeDown(c *fiber.Ctx) error {
	var body wire.TakedownCreate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	named := 0
	for _, v := range []string{body.URL, body.LinkID, body.VideoID} {
		if v != "" {
			named++
		}
	}
	if named != 1 && fields.Err() == nil {
		fields.Add(apierr.Detail{Field: "url", Code: apierr.Required, Message: "Specify what to take down: url, linkId or videoId."})
	}
	if strings.TrimSpace(body.Reason) == "" {
		fields.Add(apierr.Detail{Field: "reason", Code: apierr.Required, Message: "Give a reason. The owner sees it."})
	}
	if at, err := url.Parse(body.URL); body.URL != "" && (err != nil || at.Host == "") {
		fields.Add(
			apierr.Detail{Field: "url", Code: apierr.InvalidFormat, Message: "Give the full short or share URL, including the host."},
		)
	}
	if err := fields.Err(); err != nil {
		return err
	}
	origin := identity.OriginFrom(c.UserContext())
	order := tenant.Order{
		ID: identity.IDFrom("tkd", origin.Nonce), Target: tenant.Target{URL: body.URL, ID: body.LinkID + body.VideoID},
		Reason: body.Reason, At: origin.At,
	}
	kind := ""
	switch {
	case body.LinkID != "":
		kind = tenant.KindLink
	case body.VideoID != "":
		kind = tenant.KindVideo
	}
	made, err := h.tenants.TakeDown(c.UserContext(), order, kind)
	if err != nil {
		return err
	}
	return httpapi.Created(c, "/admin/v1/takedowns/"+made.ID, toTakedown(made))
}

func (h tenantRoutes) takedowns(c *fiber.Ctx) error {
	limit, wrong := httpapi.Limit(c)
	if len(wrong) > 0 {
		return apierr.Invalid(wrong...)
	}
	found, next, err := h.tenants.Takedowns(c.UserContext(), c.Query("cursor"), limit)
	if err != nil {
		if errors.Is(err, tenancy.ErrNoTakedown) {
			return apierr.New(apierr.InvalidCursor, "The takedown that this cursor points to no longer exists. Start from the first page.")
		}
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, wire.TakedownPage{
		Data: wire.List(found, toTakedown), HasMore: next != "", NextCursor: wire.OrNull(next),
	})
}

func (h tenantRoutes) failingWebhooks(c *fiber.Ctx) error {
	limit, wrong := httpapi.Limit(c)
	if c.Query("failing") != "true" {
		wrong = append(wrong, apierr.Detail{Field: "failing", Code: apierr.InvalidValue, Message: "Only failing webhooks can be listed: use failing=true."})
	}
	if len(wrong) > 0 {
		return apierr.Invalid(wrong...)
	}
	if cursor := c.Query("cursor"); cursor != "" && !isID("whk_", cursor) {
		return apierr.New(apierr.InvalidCursor, "Pass the nextCursor from an earlier response.")
	}
	page, err := h.tenants.Failing(c.UserContext(), c.Query("cursor"), limit)
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, wire.FailingWebhookPage{
		Data: wire.List(page.Webhooks, func(w tenant.FailingWebhook) wire.FailingWebhook {
			return wire.FailingWebhook{
				ID: w.ID, AccountID: w.AccountID, Host: w.Host, FailingSince: w.Since.UnixMilli(), Reason: w.Reason, Waiting: int(w.Waiting),
			}
		}),
		HasMore: page.Next != "", NextCursor: wire.OrNull(page.Next),
	})
}

// isID reports whether a cursor could be a document's name.
func isID(prefix, cursor string) bool {
	return strings.HasPrefix(cursor, prefix) && len(cursor) <= 64 && !strings.Contains(cursor, "/") && utf8.ValidString(cursor)
}

func (h tenantRoutes) lift(c *fiber.Ctx) error {
	if err := h.tenants.Lift(c.UserContext(), c.Params("id")); err != nil {
		return err
	}
	return httpapi.NoContent(c)
}

// mayExport rejects callers who lack a read scope or are not owners.
func mayExport(c *fiber.Ctx) error {
	p := identity.FromContext(c.UserContext())
	for _, lacks := range (identity.AllScopes &^ p.Scopes).Names() {
		if strings.HasSuffix(lacks, ":read") {
			return apierr.ScopeRequired(lacks, "An export needs every read scope. This key lacks "+lacks+".")
		}
	}
	if !p.Owns() {
		return member.OwnerRequired("Only an owner may export the account.")
	}
	return nil
}

// Export adds the route for downloading all of an account's data. It needs every read scope.
func Export(a *httpapi.API, accounts *account.Service, members *member.Service, tenants *tenancy.Service) {
	a.Finds(fiber.MethodGet, "/api/v1/account/export", mayExport) // only checks permissions, without starting the export
	a.Handle(fiber.MethodGet, "/api/v1/account/export", httpapi.Access{}, func(c *fiber.Ctx) error {
		ctx := c.UserContext()
		p := identity.FromContext(ctx)
		if err := mayExport(c); err != nil {
			return err
		}
		acct, err := accounts.Account(ctx, p.AccountID)
		if err != nil {
			return err
		}
		keys, err := accounts.Keys(ctx, p.AccountID)
		if err != nil {
			return err
		}
		people, err := members.Members(ctx, p.AccountID)
		if err != nil {
			return err
		}
		invited, err := members.Invitations(ctx, p.AccountID)
		if err != nil {
			return err
		}
		first := []tenancy.Line{
			{
				Type: "account",
				Data: map[string]any{"id": acct.ID, "name": acct.Name, "plan": acct.Plan.String(), "createdAt": acct.CreatedAt.UnixMilli()},
			},
		}
		for _, k := range keys {
			first = append(first, tenancy.Line{Type: "key", Data: toKey(k)})
		}
		for _, m := range people {
			first = append(first, tenancy.Line{Type: "member", Data: toMember(m, nil)})
		}
		for _, l := range invited {
			first = append(first, tenancy.Line{Type: "invitation", Data: toInvitation(l)})
		}
		return httpapi.Stream(c, httpapi.JSONLines, func(ctx context.Context, w io.Writer) error {
			return tenants.Export(ctx, p.AccountID, first, w)
		})
	})
}
