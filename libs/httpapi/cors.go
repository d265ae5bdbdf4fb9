package httpapi

import (
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// The headers that pages from other origins may send and read.
const (
	corsHeaders = "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match"
	corsExposed = "ETag, Idempotent-Replayed, Link, Location, RateLimit, RateLimit-Policy, Retry-After, " +
		"X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-Request-Id"
)

// cors allows pages from the configured origins to call /api/. It answers preflight requests, and
// reports whether it did. Preflight requests do not need a key, because browsers do not send one.
func (a *API) cors(c *fiber.Ctx) (answered bool) {
	if len(a.opt.CORSOrigins) == 0 || !strings.HasPrefix(c.Path(), "/api/") {
		return false
	}
	c.Vary(fiber.HeaderOrigin)
	origin := c.Get(fiber.HeaderOrigin)
	anyOrigin := slices.Contains(a.opt.CORSOrigins, "*")
	if origin == "" || !anyOrigin && !slices.Contains(a.opt.CORSOrigins, origin) {
		return false
	}
	if anyOrigin {
		origin = "*"
	}
	c.Set(fiber.HeaderAccessControlAllowOrigin, origin)
	if c.Method() != fiber.MethodOptions || c.Get(fiber.HeaderAccessControlRequestMethod) == "" {
		c.Set(fiber.HeaderAccessControlExposeHeaders, corsExposed)
		return false
	}
	methods := methodsOf(a.app, c.Path())
	if len(methods) == 0 {
		return false // no such route, so send the usual 404
	}
	c.Set(fiber.HeaderAccessControlAllowMethods, strings.Join(methods, ", "))
	c.Set(fiber.HeaderAccessControlAllowHeaders, corsHeaders)
	c.Set(fiber.HeaderAccessControlMaxAge, "600")
	c.Status(fiber.StatusNoContent)
	return true
}
