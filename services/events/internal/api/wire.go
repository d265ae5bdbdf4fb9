package api

import (
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// Shown converts a webhook to its wire format in events. The format in the API also shows
// whether webhooks are paused.
func Shown(w *webhook.Webhook) any { return toWebhook(w) }

func toWebhook(w *webhook.Webhook) wire.Webhook {
	return wire.Webhook{
		ID: w.ID, URL: w.URL, Events: w.Events, Description: w.Description, Enabled: w.Enabled,
		DisabledReason: wire.OrNull(string(w.DisabledReason)), CreatedAt: w.CreatedAt.UnixMilli(), UpdatedAt: w.UpdatedAt.UnixMilli(),
	}
}

// shown converts a webhook to its wire format in the API.
func (h api) shown(w *webhook.Webhook) wire.Webhook {
	out := toWebhook(w)
	if h.Paused() {
		out.Paused = new(true)
	}
	return out
}

func (h api) withSecret(w *webhook.Webhook) wire.WebhookCreated {
	return wire.WebhookCreated{Webhook: h.shown(w), Secret: w.Secrets[0].Text}
}

func toDelivery(d *webhook.Delivery) wire.Delivery {
	b := wire.Delivery{
		ID: d.ID, WebhookID: d.WebhookID, Event: wire.DeliveryEvent{ID: d.EventID, Type: string(d.EventType)}, Status: string(d.Status),
		CreatedAt: d.CreatedAt.UnixMilli(), Attempts: make([]wire.Attempt, len(d.Attempts)),
	}
	if d.Status == webhook.Pending {
		next := d.NextTry
		if next.IsZero() {
			next = d.CreatedAt // the first attempt is still running
		}
		b.NextTryAt = wire.Millis(next)
	}
	for i, a := range d.Attempts {
		b.Attempts[i] = wire.Attempt{
			At: a.At.UnixMilli(), Duration: a.Duration.Milliseconds(), Status: wire.OrNull(a.Status), Error: wire.OrNull(a.Error), Response: a.Answer,
		}
	}
	return b
}
