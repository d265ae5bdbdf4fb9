package api

import (
	"time"

	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

type (
	listBody[T any] struct {
		Data []T `json:"data"`
	}
	pageBody[T any] struct {
		Data       []T     `json:"data"`
		HasMore    bool    `json:"hasMore"`
		NextCursor *string `json:"nextCursor"`
	}
	webhookBody struct {
		ID             string   `json:"id"`
		URL            string   `json:"url"`
		Events         []string `json:"events"`
		Description    string   `json:"description"`
		Enabled        bool     `json:"enabled"`
		DisabledReason *string  `json:"disabledReason"`
		CreatedAt      int64    `json:"createdAt"`
		UpdatedAt      int64    `json:"updatedAt"`
		IgnoredFields  []string `json:"ignoredFields,omitempty"`
	}
	newWebhookBody struct {
		webhookBody
		Secret string `json:"secret"` // shown here and never again
	}
	deliveryBody struct {
		ID        string        `json:"id"`
		WebhookID string        `json:"webhookId"`
		Event     deliveryEvent `json:"event"`
		Status    string        `json:"status"`
		CreatedAt int64         `json:"createdAt"`
		NextTryAt *int64        `json:"nextTryAt"`
		Attempts  []attemptBody `json:"attempts"`
	}
	deliveryEvent struct {
		ID   string `json:"id"`
		Type string `json:"type"`
	}
	attemptBody struct {
		At       int64   `json:"at"`
		Status   *int    `json:"status"`   // null: no answer
		Duration int64   `json:"duration"` // ms
		Error    *string `json:"error"`
		Response string  `json:"response"`
	}
	replayBody struct {
		ID        string `json:"id"`
		WebhookID string `json:"webhookId"`
		From      int64  `json:"from"`
		To        int64  `json:"to"`
	}
)

// Shown is a webhook as the API and its events show it.
func Shown(w *webhook.Webhook) any { return toWebhook(w) }

func toWebhook(w *webhook.Webhook) webhookBody {
	return webhookBody{
		ID: w.ID, URL: w.URL, Events: w.Events, Description: w.Description, Enabled: w.Enabled,
		DisabledReason: orNull(string(w.DisabledReason)), CreatedAt: w.CreatedAt.UnixMilli(), UpdatedAt: w.UpdatedAt.UnixMilli(),
	}
}

func withSecret(w *webhook.Webhook) newWebhookBody {
	return newWebhookBody{webhookBody: toWebhook(w), Secret: w.Secrets[0].Text}
}

func toDelivery(d *webhook.Delivery) deliveryBody {
	b := deliveryBody{
		ID: d.ID, WebhookID: d.WebhookID, Event: deliveryEvent{d.EventID, string(d.EventType)}, Status: string(d.Status),
		CreatedAt: d.CreatedAt.UnixMilli(), Attempts: make([]attemptBody, len(d.Attempts)),
	}
	if d.Status == webhook.Pending {
		next := d.NextTry
		if next.IsZero() {
			next = d.CreatedAt // its first try is on its way
		}
		b.NextTryAt = millis(next)
	}
	for i, a := range d.Attempts {
		b.Attempts[i] = attemptBody{At: a.At.UnixMilli(), Duration: a.Duration.Milliseconds(), Error: orNull(a.Error), Response: a.Answer}
		if a.Status != 0 {
			b.Attempts[i].Status = &a.Status
		}
	}
	return b
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func millis(t time.Time) *int64 {
	ms := t.UnixMilli()
	return &ms
}
