package api

import (
	"fmt"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// Operator adds the routes that require the operator's token. They must be served on a separate
// listener that is not public.
func Operator(a *httpapi.API, accounts *account.Service, token string) {
	h := operator{accounts: accounts}
	add := forOperator(a, token)
	add(fiber.MethodPost, "/admin/v1/accounts", h.createAccount)
	add(fiber.MethodGet, "/admin/v1/accounts/:id", h.account)
	add(fiber.MethodPatch, "/admin/v1/accounts/:id", h.changeAccount)
	add(fiber.MethodPost, "/admin/v1/accounts/:id/keys", h.createKey)
	add(fiber.MethodDelete, "/admin/v1/keys/:id", h.revokeKey)
	a.Finds(fiber.MethodDelete, "/admin/v1/accounts/:id", h.account)
	a.Finds(fiber.MethodDelete, "/admin/v1/keys/:id", func(c *fiber.Ctx) error {
		_, err := h.accounts.Key(c.UserContext(), "", c.Params("id"))
		return err
	})
}

// operatorAccount is the account id under which the operator's idempotency records are stored.
// No real account has this id.
const operatorAccount = "operator"

// forOperator adds routes that require the operator's token.
func forOperator(a *httpapi.API, token string) func(method, path string, handler fiber.Handler) {
	const message = "Send the operator's token as `Authorization: Bearer <token>`."
	return func(method, path string, handler fiber.Handler) {
		a.HandleToken(method, path, token, message, operatorAccount, events.AsOperator, handler)
	}
}

// onlyOperator makes a public route require token. Unlike [forOperator], it does not store any
// idempotency records.
func onlyOperator(token string, handler fiber.Handler) fiber.Handler {
	return httpapi.OnlyBearer(token, "Send the token as `Authorization: Bearer <token>`.", handler)
}

type operator struct{ accounts *account.Service }

func (h operator) createAccount(c *fiber.Ctx) error {
	var body wire.AccountCreate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	notBlank(fields, body.Name)
	if err := fields.Err(); err != nil {
		return err
	}
	plan, err := identity.ParsePlan(body.Plan)
	if err != nil {
		return fmt.Errorf("the schema accepted an invalid plan: %w", err)
	}
	made, err := h.accounts.Create(c.UserContext(), body.Name, plan)
	if err != nil {
		return err
	}
	return httpapi.Created(c, "/admin/v1/accounts/"+made.ID, toOperatorAccount(made, nil))
}

func (h operator) account(c *fiber.Ctx) error {
	a, err := h.accounts.Account(c.UserContext(), c.Params("id"))
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, toOperatorAccount(a, nil))
}

func (h operator) changeAccount(c *fiber.Ctx) error {
	ctx := c.UserContext()
	found, err := h.accounts.Account(ctx, c.Params("id")) // 404 takes precedence over 400
	if err != nil {
		return err
	}
	var body wire.AccountUpdate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	var change account.Change
	if body.Name.Set {
		notBlank(fields, body.Name.Value)
		change.Name = &body.Name.Value
	}
	if body.Limits.Set && !fields.HasError("limits") {
		change.Limits = edit(body.Limits.Value)
		if body.Limits.Null {
			change.Limits = func(account.Limits) account.Limits { return account.Limits{} }
		}
	}
	if body.Suspended.Set {
		change.Suspended = &body.Suspended.Value
	}
	if body.Plan.Set && !fields.HasError("plan") {
		plan, err := identity.ParsePlan(body.Plan.Value)
		if err != nil {
			return fmt.Errorf("the schema accepted an invalid plan: %w", err)
		}
		change.Plan = &plan
	}
	if err := fields.Err(); err != nil {
		return err
	}
	after, err := h.accounts.Change(ctx, found.ID, change)
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, toOperatorAccount(after, fields.Unknown))
}

// edit changes limits. An absent limit is not changed, and null restores the plan's limit.
func edit(in wire.OwnLimitsUpdate) func(account.Limits) account.Limits {
	return func(l account.Limits) account.Limits {
		for _, one := range []struct {
			asked httpapi.Optional[float64]
			to    *int64
		}{{in.Links, &l.Links}, {in.Videos, &l.Videos}, {in.Domains, &l.Domains}, {in.StoredBytes, &l.StoredBytes}} {
			if one.asked.Set {
				*one.to = int64(one.asked.Value) // 0 for null
			}
		}
		return l
	}
}

func (h operator) createKey(c *fiber.Ctx) error {
	ctx := c.UserContext()
	a, err := h.accounts.Account(ctx, c.Params("id")) // 404 takes precedence over 400
	if err != nil {
		return err
	}
	var body wire.KeyCreate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	asked := newKey(fields, &body, identity.OriginFrom(ctx).At)
	if err := fields.Err(); err != nil {
		return err
	}
	asked.AccountID = a.ID
	if err := draw(c, &asked); err != nil {
		return err
	}
	made, err := h.accounts.CreateKey(ctx, asked)
	if err != nil {
		return err
	}
	return httpapi.Created(c, "/admin/v1/keys/"+made.ID, toNewKey(made, asked.Key))
}

func (h operator) revokeKey(c *fiber.Ctx) error {
	if err := h.accounts.Revoke(c.UserContext(), "", c.Params("id")); err != nil {
		return err
	}
	return httpapi.NoContent(c)
}

// notBlank rejects a name that consists only of white space.
func notBlank(fields *httpapi.Fields, name string) {
	if strings.TrimSpace(name) == "" {
		fields.Add(apierr.Detail{Field: "name", Code: apierr.TooShort, Message: "Give a name.", Min: 1})
	}
}
