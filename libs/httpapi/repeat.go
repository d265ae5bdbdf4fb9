package httpapi

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/record"
)

const idempotencyKey = "Idempotency-Key"

func beginRequest(c *fiber.Ctx, account, key, bearer string) idempotency.Request {
	return idempotency.Request{Account: account, Route: c.Method() + " " + c.Path(), Key: key, Body: c.Request().Body(), Secret: bearer}
}

// repeats reports whether a request that was rejected with err repeats a request that the key made
// while it was valid: the key must be revoked, the account must not be suspended, and a record with
// the same Idempotency-Key and body must exist. Such a request does not take a token from the
// account's bucket. Instead, the limit on misses bounds how often a network can guess records.
func (a *API) repeats(c *fiber.Ctx, p *identity.Principal, bearer string, err error) bool {
	key := c.Get(idempotencyKey)
	if apierr.CodeOf(err) != apierr.APIKeyRevoked || p == nil || p.Suspended || a.opt.Idempotency == nil || !validIdempotencyKey(key) {
		return false
	}
	client := a.ClientIP(c)
	if a.misses.Wait(client) > 0 {
		return false
	}
	known, err := a.opt.Idempotency.Known(c.UserContext(), beginRequest(c, p.AccountID, key, bearer))
	if err != nil {
		a.opt.Log.WarnContext(c.UserContext(), "cannot read idempotency record; rejecting the revoked key", "service", a.opt.Name, "error", err)
	}
	if !known {
		a.misses.Miss(client)
	}
	return known
}

// inOneCommit runs a POST on a route with [Access.OneCommit].
func (a *API) inOneCommit(c *fiber.Ctx, r idempotency.Request, h fiber.Handler) error {
	receipt := a.opt.Idempotency.Receipt(r, func() *idempotency.Response {
		if c.Response().StatusCode() != fiber.StatusCreated {
			return nil // this is not the create's commit
		}
		return answerOf(c)
	})
	ctx := record.WithReceipt(c.UserContext(), receipt)
	c.SetUserContext(identity.WithOrigin(ctx, receipt.Origin()))
	err := h(c)
	var repeated *idempotency.Repeated
	if !errors.As(err, &repeated) {
		if err != nil {
			a.fail(c, apierr.From(err))
		}
		if passing(c) {
			return nil
		}
		// The error may be wrong because an earlier attempt at the same request may have used up
		// the quota or taken the name.
		later, cancel := afterwards(ctx)
		defer cancel()
		err = receipt.Keep(later, answerOf(c))
	}
	if errors.As(err, &repeated) {
		return replay(c, &repeated.Response)
	}
	return err
}

// afterwards returns a context for storing a response even if the request's deadline has passed.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
}

// replay sends a stored response.
func replay(c *fiber.Ctx, r *idempotency.Response) error {
	for _, name := range []string{fiber.HeaderETag, fiber.HeaderLocation} {
		c.Response().Header.Del(name) // these were set for the response that is being replaced
	}
	c.Set("Idempotent-Replayed", "true")
	for name, value := range r.Header {
		c.Set(name, value)
	}
	return c.Status(r.Status).Send(r.Body)
}

// passing reports whether the response is temporary and therefore must not be stored.
func passing(c *fiber.Ctx) bool {
	status := c.Response().StatusCode()
	return status >= 500 || status == fiber.StatusTooManyRequests
}

func answerOf(c *fiber.Ctx) *idempotency.Response {
	res := c.Response()
	return &idempotency.Response{Status: res.StatusCode(), Header: lasting(&res.Header), Body: bytes.Clone(res.Body())}
}

// lasting returns the headers that a replay repeats. The other headers belong to a single exchange,
// and a replay gets new ones. The number and size of the repeated headers are bounded because they
// come from handlers, not from callers.
func lasting(h *fasthttp.ResponseHeader) map[string]string {
	out := map[string]string{}
	for k, v := range h.All() {
		name := strings.ToLower(string(k))
		switch name {
		case "x-request-id", "date", "server", "connection", "vary", "content-length", "transfer-encoding",
			"ratelimit", "ratelimit-policy", "retry-after":
			continue
		}
		if !strings.HasPrefix(name, "x-ratelimit-") && !strings.HasPrefix(name, "access-control-") {
			out[string(k)] = string(v)
		}
	}
	return out
}

func validIdempotencyKey(s string) bool {
	return s != "" && len(s) <= 255 && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e })
}
