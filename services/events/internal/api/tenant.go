package api

import (
	"context"
	"encoding/json"
	"io"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/tenant/keeper"
	"github.com/linkreel/linkreel/services/events/internal/feed"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// Holder returns the [tenant.Holder] through which auth manages accounts' webhooks and events.
func Holder(accounts *keeper.Keeper, webhooks *webhook.Service, events *feed.Service) tenant.Holder {
	return &holder{accounts, webhooks, events}
}

type holder struct {
	*keeper.Keeper
	webhooks *webhook.Service
	events   *feed.Service
}

// TakeDown implements [tenant.Holder]. This service has no public URLs.
func (h *holder) TakeDown(context.Context, tenant.Order) (tenant.Takedown, error) {
	return tenant.Takedown{}, apierr.New(apierr.LinkNotFound, "There is no link with this address.")
}

// Lift implements [tenant.Holder].
func (h *holder) Lift(context.Context, tenant.Takedown) error { return nil }

// Failing implements [tenant.Webhooks].
func (h *holder) Failing(ctx context.Context, after string, limit int) (tenant.FailingPage, error) {
	found, next, err := h.webhooks.Failing(ctx, after, limit)
	page := tenant.FailingPage{Webhooks: make([]tenant.FailingWebhook, len(found)), Next: next}
	for i, f := range found {
		page.Webhooks[i] = tenant.FailingWebhook{
			ID: f.ID, AccountID: f.AccountID, Host: f.Host(), Since: f.FailingSince, Reason: string(f.Cause), Waiting: f.Pending,
		}
	}
	return page, err
}

// exportPage is the number of events that an export reads and keeps in memory at a time.
const exportPage = 200

// Export implements [tenant.Holder]. It writes the webhooks without their secrets, and the events,
// oldest first. It omits deliveries because everything in them is also in the webhooks and events.
func (h *holder) Export(ctx context.Context, accountID string, w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	type line struct {
		Type string `json:"type"`
		Data any    `json:"data"`
	}
	hooks, err := h.webhooks.List(ctx, accountID)
	if err != nil {
		return err
	}
	for _, hook := range hooks {
		if err := out.Encode(line{"webhook", toWebhook(hook)}); err != nil {
			return err
		}
	}
	// Export only events up to the head at the start. Otherwise, a stream of new events could
	// keep the export from ever ending.
	head, err := h.events.Head(ctx, accountID)
	if err != nil {
		return err
	}
	q := feed.Query{AccountID: accountID, Limit: exportPage, Forward: true}
	for q.After < head {
		page, err := h.events.Page(ctx, q)
		if err != nil {
			return err
		}
		for _, e := range page.Events {
			q.After = e.Seq
			if err := out.Encode(line{"event", toEvent(e)}); err != nil {
				return err
			}
		}
		if !page.More {
			return nil
		}
	}
	return nil
}
