// Package api serves feeds and webhooks: the routes under /api/v1/events and /api/v1/webhooks.
package api

import (
	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/events/internal/caller"
	"github.com/linkreel/linkreel/services/events/internal/feed"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// Options configures the routes.
type Options struct {
	Feed     *feed.Service
	Webhooks *webhook.Service
	Policy   caller.Policy // which addresses webhooks may use
	// Paused reports whether all webhooks are paused after a restore until the operator resumes
	// them.
	Paused func() bool
}

type api struct{ Options }

// Routes adds the routes to the API.
func Routes(a *httpapi.API, opt Options) {
	h := api{opt}
	a.Handle(fiber.MethodGet, "/api/v1/events", httpapi.Access{Scope: identity.EventsRead}, h.listEvents)
	// This find does nothing because none of this route's errors take precedence over a 400.
	// Without a find, the handler would run instead, and it may keep the request waiting.
	a.Finds(fiber.MethodGet, "/api/v1/events", func(*fiber.Ctx) error { return nil })

	read := httpapi.Access{Scope: identity.WebhooksRead}
	write := httpapi.Access{Scope: identity.WebhooksWrite, Plan: identity.Creator}
	create := write
	create.OneCommit = true
	a.Handle(fiber.MethodGet, "/api/v1/webhooks", read, h.listWebhooks)
	a.Handle(fiber.MethodPost, "/api/v1/webhooks", create, h.createWebhook)
	a.Handle(fiber.MethodGet, "/api/v1/webhooks/:id", read, h.found(h.getWebhook))
	a.Handle(fiber.MethodPatch, "/api/v1/webhooks/:id", write, h.found(h.changeWebhook))
	a.Handle(fiber.MethodDelete, "/api/v1/webhooks/:id", write, h.deleteWebhook)
	a.Finds(fiber.MethodDelete, "/api/v1/webhooks/:id", h.found(h.getWebhook))
	a.Finds(fiber.MethodPost, "/api/v1/webhooks/:id/test", h.found(h.getWebhook))
	a.Handle(fiber.MethodPost, "/api/v1/webhooks/:id/roll-secret", write, h.found(h.rollSecret))
	a.Handle(fiber.MethodPost, "/api/v1/webhooks/:id/test", write, h.test)
	a.Handle(fiber.MethodPost, "/api/v1/webhooks/:id/replay", write, h.found(h.replay))
	a.Handle(fiber.MethodGet, "/api/v1/webhooks/:id/deliveries", read, h.found(h.listDeliveries))
	a.Handle(fiber.MethodPost, "/api/v1/webhooks/:id/deliveries/:delivery/retry", write, h.retry)
	a.Finds(fiber.MethodPost, "/api/v1/webhooks/:id/deliveries/:delivery/retry", h.findDelivery)
}
