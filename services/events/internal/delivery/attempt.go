package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// attempt makes one attempt at a delivery. ok reports whether the receiver is working. before is
// the previous attempt's ok, and is returned again if this attempt reveals nothing about the
// receiver. next is when the delivery is due again.
func (e *Engine) attempt(j job, before bool) (ok bool, next time.Time) {
	d := j.delivery
	ctx, span := boot.Work(e.ctx, "webhook attempt")
	defer span.End()
	// If the delivery has been in memory for a long time, claim it again: its lease might end
	// before or during the call, allowing another replica to take the delivery.
	if now := e.opt.Now(); d.DueAt.Sub(now) < webhook.Lease/2 {
		d.Claim(now)
		if mine, err := e.store.Save(ctx, d); err != nil || !mine {
			return before, time.Time{}
		}
	}
	w, silent, err := e.store.Receiver(ctx, d.AccountID, d.WebhookID)
	if gone(err) {
		if err := e.store.Drop(ctx, d); err != nil {
			slog.DebugContext(ctx, "cannot drop a delivery for a deleted webhook yet", "error", err)
		}
		return true, time.Time{} // false would mark the lane as failing, and failing lanes are kept in memory
	}
	if err != nil {
		// The delivery becomes due again when its lease ends.
		slog.WarnContext(ctx, "cannot read a webhook; its delivery is retried later", "webhook", d.WebhookID, "error", err)
		return before, time.Time{}
	}
	if silent {
		d.PutOff(e.opt.Now().Add(silence))
		e.save(ctx, d)
		if e.resumed(d.AccountID, d.WebhookID) {
			e.Send(d.AccountID, d.WebhookID)
		}
		return before, time.Time{}
	}
	r, made := e.send(ctx, w, j)
	if !made {
		return before, time.Time{}
	}
	now := e.opt.Now()
	// Read Tries before Note increments it.
	first := d.Tries == 0
	d.Note(r, now)
	attempted(r, first, j, now)
	e.failures.tell(ctx, w, r, now)
	e.save(ctx, d)
	if !r.Final && !r.Ours {
		e.judge(ctx, w, r, now)
	}
	return r.OK() || r.Final, d.NextTry
}

// send creates the message and sends it. made is false if the engine stopped before the attempt
// ended. In that case, the result reveals nothing about the receiver.
func (e *Engine) send(ctx context.Context, w *webhook.Webhook, j job) (r webhook.Result, made bool) {
	d := j.delivery
	now := e.opt.Now()
	if !w.Enabled {
		return webhook.Result{Attempt: webhook.Attempt{At: now, Error: "The webhook is disabled."}, Final: true}, true
	}
	body, err := message(d.EventType, d.EventAt, d.Payload)
	if err != nil {
		// Do not retry, because every retry would fail with the same error.
		slog.ErrorContext(ctx, "cannot create a message; its delivery has failed", "event", d.EventID, "error", err)
		return webhook.Result{Attempt: webhook.Attempt{At: now, Error: "The message could not be created."}, Final: true}, true
	}
	secrets, err := e.store.Signing(w, now)
	if err != nil {
		e.failures.sealed(ctx, w, err, now)
	}
	if len(secrets) == 0 {
		return webhook.Unsigned(now), true
	}
	header, err := webhook.Headers(d.EventID, now, body, secrets)
	if err != nil {
		slog.ErrorContext(ctx, "cannot sign a message; its delivery has failed", "webhook", w.ID, "error", err)
		return webhook.Result{Attempt: webhook.Attempt{At: now, Error: "The message could not be signed."}, Final: true}, true
	}
	r = e.call(ctx, w.Target, header, body)
	r.At = now
	return r, ctx.Err() == nil
}

// save stores a result. It retries for a while because the receiver will get the message again if
// the result is not stored.
func (e *Engine) save(ctx context.Context, d *webhook.Delivery) {
	for wait := 100 * time.Millisecond; ; wait *= 2 {
		mine, err := e.store.Save(ctx, d)
		switch {
		case err == nil && !mine:
			slog.InfoContext(ctx, "another replica took over or retried the delivery; dropping this result", "delivery", d.ID)
			return
		case err == nil:
			return
		case wait > 5*time.Second || ctx.Err() != nil:
			slog.WarnContext(ctx, "cannot store the result of a delivery; the message will be sent again", "delivery", d.ID, "error", err)
			return
		}
		outage.Pause(ctx, wait)
	}
}

// judge updates the webhook's health. It disables a webhook that keeps failing.
func (e *Engine) judge(ctx context.Context, w *webhook.Webhook, r webhook.Result, now time.Time) {
	_, since := e.opt.Hold()
	health, reason := w.Judge(r, now, since)
	var err error
	switch health {
	case webhook.Unchanged:
	case webhook.Recovered:
		err = e.store.NoteHealth(ctx, w.ID, time.Time{}, "")
	case webhook.BeganToFail:
		err = e.store.NoteHealth(ctx, w.ID, now, r.Cause)
	case webhook.OtherCause:
		err = e.store.NoteHealth(ctx, w.ID, w.FailingSince, r.Cause)
	case webhook.GiveUp:
		_, err = e.store.Update(ctx, w.AccountID, w.ID, func(fresh *webhook.Webhook) (events.Type, error) {
			// Judge the stored webhook again because it may have recovered or changed. A response
			// from its previous URL reveals nothing about the current one.
			again, why := fresh.Judge(r, now, since)
			if again != webhook.GiveUp || !fresh.Enabled || fresh.Rev != w.Rev {
				return "", nil
			}
			fresh.GiveUp(why, now)
			return events.WebhookDisabled, nil
		})
		if err == nil {
			slog.InfoContext(ctx, "webhook disabled", "webhook", w.ID, "account", w.AccountID, "reason", reason)
		}
	}
	if err != nil && !gone(err) {
		slog.WarnContext(ctx, "cannot store a webhook's health", "webhook", w.ID, "error", err)
	}
}

func gone(err error) bool { return errors.Is(err, apierr.New(apierr.WebhookNotFound, "")) }

// message returns a body in the Standard Webhooks format. data is JSON and is inserted
// unchanged.
func message(t events.Type, at time.Time, data string) ([]byte, error) {
	return json.Marshal(struct {
		Type      events.Type     `json:"type"`
		Timestamp string          `json:"timestamp"`
		Data      json.RawMessage `json:"data"`
	}{t, at.UTC().Format("2006-01-02T15:04:05.000Z"), json.RawMessage(data)})
}
