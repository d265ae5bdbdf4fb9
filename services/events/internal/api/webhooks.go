package api

import (
	"slices"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/jsdate"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

func (h api) listWebhooks(c *fiber.Ctx) error {
	page, err := httpapi.Page(c, "webhooks", account(c))
	if err != nil {
		return err
	}
	all, err := h.Webhooks.List(c.UserContext(), account(c))
	if err != nil {
		return err
	}
	found, next := paging.Cut(page, all, paging.Newest, (*webhook.Webhook).Place)
	return httpapi.JSON(c, fiber.StatusOK, wire.WebhookList{Data: wire.List(found, h.shown), HasMore: next != nil, NextCursor: next})
}

func (h api) createWebhook(c *fiber.Ctx) error {
	var body wire.WebhookCreate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	draft := webhook.Draft{Address: h.address(fields, body.URL), Events: subscribed(fields, body.Events)}
	if body.Description != nil {
		draft.Description = *body.Description
	}
	if err := fields.Err(); err != nil {
		return err
	}
	w, err := h.Webhooks.New(account(c), draft)
	if err != nil {
		return err
	}
	// Write the response first because the commit stores it under the Idempotency-Key.
	c.Set(fiber.HeaderETag, httpapi.ETag(w.Rev))
	if err := httpapi.Created(c, "/api/v1/webhooks/"+w.ID, h.withSecret(w)); err != nil {
		return err
	}
	return h.Webhooks.Create(c.UserContext(), w)
}

// found looks up the webhook in the path first, so that 404 takes precedence over 400.
func (h api) found(do func(*fiber.Ctx, *webhook.Webhook) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		w, err := h.Webhooks.Get(c.UserContext(), account(c), c.Params("id"))
		if err != nil {
			return err
		}
		return do(c, w)
	}
}

func (h api) getWebhook(c *fiber.Ctx, w *webhook.Webhook) error {
	c.Set(fiber.HeaderETag, httpapi.ETag(w.Rev))
	return httpapi.JSON(c, fiber.StatusOK, h.shown(w))
}

func (h api) changeWebhook(c *fiber.Ctx, found *webhook.Webhook) error {
	ctx := c.UserContext()
	var body wire.WebhookUpdate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	var change webhook.Change
	if body.URL.Set {
		a := h.address(fields, body.URL.Value)
		change.URL = &a
	}
	if body.Events != nil { // nil means absent because the contract allows neither null nor an empty list
		change.Events = subscribed(fields, body.Events)
	}
	if body.Description.Set {
		change.Description = &body.Description.Value // null clears the description
	}
	if body.Enabled.Set {
		change.Enabled = &body.Enabled.Value
	}
	if err := fields.Err(); err != nil {
		return err
	}
	w, err := h.Webhooks.Change(ctx, account(c), found.ID, httpapi.IfMatch(c).Check, change)
	if err != nil {
		return err
	}
	out := h.shown(w)
	out.IgnoredFields = fields.Unknown
	c.Set(fiber.HeaderETag, httpapi.ETag(w.Rev))
	return httpapi.JSON(c, fiber.StatusOK, out)
}

func (h api) deleteWebhook(c *fiber.Ctx) error {
	if err := h.Webhooks.Delete(c.UserContext(), account(c), c.Params("id"), httpapi.IfMatch(c).Check); err != nil {
		return err
	}
	return httpapi.NoContent(c)
}

func (h api) rollSecret(c *fiber.Ctx, found *webhook.Webhook) error {
	ctx := c.UserContext()
	var body wire.KeyRoll
	fields, err := httpapi.DecodeOptional(c, &body)
	if err != nil {
		return err
	}
	if err := fields.Err(); err != nil {
		return err
	}
	w, err := h.Webhooks.Roll(ctx, account(c), found.ID, time.Duration(body.OverlapSeconds)*time.Second)
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderETag, httpapi.ETag(w.Rev))
	return httpapi.JSON(c, fiber.StatusOK, h.withSecret(w))
}

func (h api) test(c *fiber.Ctx) error {
	ctx := c.UserContext()
	d, err := h.Webhooks.Test(ctx, account(c), c.Params("id"), identity.OriginFrom(ctx))
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusAccepted, toDelivery(d))
}

func (h api) replay(c *fiber.Ctx, found *webhook.Webhook) error {
	ctx := c.UserContext()
	var body wire.WebhookReplay
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	from, to := instant(fields, "from", body.From), instant(fields, "to", body.To)
	if err := fields.Err(); err != nil {
		return err
	}
	r, err := h.Webhooks.Replay(ctx, account(c), found.ID, from, to, identity.OriginFrom(ctx))
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusAccepted, wire.Replay{ID: r.ID, WebhookID: r.WebhookID, From: r.From.UnixMilli(), To: r.To.UnixMilli()})
}

func (h api) listDeliveries(c *fiber.Ctx, w *webhook.Webhook) error {
	page, err := httpapi.Page(c, "deliveries", w.ID)
	if err != nil {
		return err
	}
	found, more, err := h.Webhooks.Deliveries(c.UserContext(), w, page)
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, wire.DeliveryPage{
		Data: wire.List(found, toDelivery), HasMore: more, NextCursor: paging.Next(page, found, more, (*webhook.Delivery).Place),
	})
}

func (h api) findDelivery(c *fiber.Ctx) error {
	_, _, err := h.Webhooks.Delivery(c.UserContext(), account(c), c.Params("id"), c.Params("delivery"))
	return err
}

func (h api) retry(c *fiber.Ctx) error {
	d, err := h.Webhooks.Retry(c.UserContext(), account(c), c.Params("id"), c.Params("delivery"))
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusAccepted, toDelivery(d))
}

func account(c *fiber.Ctx) string { return identity.FromContext(c.UserContext()).AccountID }

// address validates a receiver's URL.
func (h api) address(fields *httpapi.Fields, text string) webhook.Address {
	if fields.HasError("url") {
		return webhook.Address{}
	}
	a, bad := h.Policy.Parse(text)
	if bad != nil {
		bad.Field = "url"
		fields.Add(*bad)
	}
	return a
}

// subscribed validates event names and drops duplicates.
func subscribed(fields *httpapi.Fields, names []string) []string {
	if fields.HasError("events") {
		return nil
	}
	out := []string{}
	for i, name := range names {
		if name != webhook.All && !events.Type(name).Known() {
			fields.Add(apierr.Detail{Field: "events." + strconv.Itoa(i), Code: apierr.Unknown,
				Message: "There is no event type with this name. Use the names in the documentation, or \"*\" for all."})
		} else if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if slices.Contains(out, webhook.All) {
		return []string{webhook.All}
	}
	return out
}

// instant parses a time.
func instant(fields *httpapi.Fields, field string, value jsdate.Moment) time.Time {
	ms, ok := fields.Instant(field, value)
	t := time.UnixMilli(ms)
	if ok && (t.Year() < 1 || t.Year() > 9999) { // Firestore supports only these years
		fields.Add(apierr.Detail{Field: field, Code: apierr.OutOfRange, Message: "Use a time between the years 1 and 9999."})
	}
	return t
}
