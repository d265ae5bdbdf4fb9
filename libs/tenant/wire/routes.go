package wire

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tenant"
)

// The routes, in Fiber's form. Client and Routes share them.
const (
	statePath   = "/internal/v1/accounts/:account/state"
	erasurePath = "/internal/v1/accounts/:account/erasure"
	exportPath  = "/internal/v1/accounts/:account/export"
	takePath    = "/internal/v1/takedowns"
	liftPath    = "/internal/v1/takedowns/lift"
)

type erasure struct {
	Erased *bool `json:"erased"` // a pointer, so that an answer from elsewhere does not read as "no"
}

// Routes mounts holder on a service's internal API. token is the secret that
// services share; without one nobody may call.
func Routes(h *httpapi.API, token string, holder tenant.Holder) {
	add := func(method, path string, handler fiber.Handler) {
		h.Public(method, path, httpapi.OnlyBearer(token, "This is not the internal token.", handler))
	}
	add(fiber.MethodPut, statePath, func(c *fiber.Ctx) error {
		var s tenant.Standing
		if err := decode(c, &s); err != nil {
			return err
		}
		if s.State != tenant.Active && s.State != tenant.Suspended && s.State != tenant.Deleting || s.Version < 1 {
			return apierr.Invalid(apierr.Detail{Field: "state", Code: apierr.InvalidValue, Message: "Give a known state and a positive version."})
		}
		if err := holder.SetState(c.UserContext(), c.Params("account"), s); err != nil {
			return err
		}
		return httpapi.NoContent(c)
	})
	add(fiber.MethodGet, erasurePath, func(c *fiber.Ctx) error {
		done, err := holder.Erased(c.UserContext(), c.Params("account"))
		if err != nil {
			return err
		}
		return httpapi.JSON(c, fiber.StatusOK, erasure{&done})
	})
	add(fiber.MethodGet, exportPath, func(c *fiber.Ctx) error {
		// Copies: both are used when the request's own buffers are not there any more.
		account := strings.Clone(c.Params("account"))
		if p := principal(c, account); p != nil {
			c.SetUserContext(identity.WithPrincipal(c.UserContext(), p))
		}
		return httpapi.Stream(c, httpapi.JSONLines, func(ctx context.Context, w io.Writer) error {
			return holder.Export(ctx, account, w)
		})
	})
	add(fiber.MethodPost, takePath, func(c *fiber.Ctx) error {
		var o tenant.Order
		if err := decode(c, &o); err != nil {
			return err
		}
		if o.ID == "" || (o.Target.URL == "") == (o.Target.ID == "") {
			return apierr.Invalid(apierr.Detail{Field: "target", Code: apierr.Required, Message: "Give an id, and either an address or a record's id."})
		}
		t, err := holder.TakeDown(events.AsOperator(c.UserContext()), o)
		if err != nil {
			return err
		}
		return httpapi.JSON(c, fiber.StatusOK, t)
	})
	add(fiber.MethodPost, liftPath, func(c *fiber.Ctx) error {
		var t tenant.Takedown
		if err := decode(c, &t); err != nil {
			return err
		}
		if err := holder.Lift(events.AsOperator(c.UserContext()), t); err != nil {
			return err
		}
		return httpapi.NoContent(c)
	})
}

// For whom an export is made, so that addresses in it can end with their right.
const (
	keyHeader    = "Linkreel-Key"
	memberHeader = "Linkreel-Member"
)

func setPrincipal(h http.Header, p *identity.Principal) {
	h.Set(keyHeader, p.KeyID)
	if p.Session {
		h.Set(memberHeader, p.MemberID)
	}
}

// principal is for whom the caller acts, as far as setPrincipal tells; nil for
// nobody.
func principal(c *fiber.Ctx, account string) *identity.Principal {
	key, member := strings.Clone(c.Get(keyHeader)), strings.Clone(c.Get(memberHeader))
	if key == "" {
		return nil
	}
	return &identity.Principal{AccountID: account, KeyID: key, Session: member != "", MemberID: member}
}

func decode(c *fiber.Ctx, dst any) error {
	fields, err := httpapi.Decode(c, dst)
	if err != nil {
		return err
	}
	return fields.Err()
}
