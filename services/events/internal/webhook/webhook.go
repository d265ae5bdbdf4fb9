// Package webhook contains the rules for webhooks: subscriptions, URLs, signatures, the retry
// schedule, and the conditions for disabling a webhook. It depends on neither HTTP nor webhook
// storage.
//
// Messages follow Standard Webhooks (standardwebhooks.com). They are delivered at least once, and
// their order is not guaranteed.
package webhook

import (
	"net/url"
	"slices"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/services/events/internal/feed"
)

// MaxPerAccount is the maximum number of webhooks in an account.
const MaxPerAccount = 20

// All subscribes to every type, including types that later versions add.
const All = feed.All

// Webhook is a subscription.
type Webhook struct {
	ID          string
	AccountID   string
	URL         string   // as the caller sent it
	Target      string   // as the URL standard normalizes it; calls use this URL
	Events      []string // names of types, or All
	Description string
	Enabled     bool
	// DisabledReason is why the webhook was disabled automatically.
	DisabledReason Reason
	CreatedAt      time.Time
	UpdatedAt      time.Time
	Rev            int64

	Secrets []Secret // newest first

	// FailingSince is the time of the first failure since the last success. It is zero after a
	// success.
	FailingSince time.Time
	// Cause is why the last attempt failed, or "" after a success.
	Cause Cause
}

// Place returns the webhook's position in its account's list.
func (w *Webhook) Place() paging.Place { return paging.Place{At: w.CreatedAt, ID: w.ID} }

// Secret signs messages until it expires. Text is set only when signing a message or returning the
// secret, so all other operations work even if no key can decrypt the secret.
type Secret struct {
	Text   string    // whsec_…; "" while it is sealed
	Sealed []byte    // the encrypted secret in its stored form
	Until  time.Time // zero for the current secret
}

// Reason is why a webhook was disabled.
type Reason string

// The reasons for disabling a webhook.
const (
	ReasonGone    Reason = "gone"    // the receiver returned 410
	ReasonFailing Reason = "failing" // every attempt failed for five days
)

// Host returns the receiver's host and port, without the rest of its URL.
func (w *Webhook) Host() string {
	u, err := url.Parse(w.Target)
	if err != nil {
		return ""
	}
	return u.Host
}

// Wants reports whether the webhook receives events of type t.
func (w *Webhook) Wants(t events.Type) bool {
	return feed.Subscriber{Events: w.Events, Enabled: true}.Wants(t)
}

// Change is an edit. Nil fields are not changed.
type Change struct {
	URL         *Address
	Events      []string
	Description *string
	Enabled     *bool
}

// Address is a checked URL.
type Address struct{ Given, Target string }

// Apply applies the edit, and reports whether it changed anything that the API returns.
func (w *Webhook) Apply(c Change, now time.Time) bool {
	before := *w
	if c.URL != nil {
		w.URL, w.Target = c.URL.Given, c.URL.Target
	}
	if c.Events != nil {
		w.Events = c.Events
	}
	if c.Description != nil {
		w.Description = *c.Description
	}
	if c.Enabled != nil {
		w.Enabled = *c.Enabled
	}
	if w.Enabled && !before.Enabled {
		// The owner has presumably fixed the webhook, so restart the five days.
		w.DisabledReason, w.FailingSince, w.Cause = "", time.Time{}, ""
	}
	if w.URL == before.URL && w.Description == before.Description && w.Enabled == before.Enabled && slices.Equal(w.Events, before.Events) {
		return false
	}
	w.touch(now)
	return true
}

func (w *Webhook) touch(now time.Time) {
	w.UpdatedAt = now.UTC().Truncate(time.Millisecond)
	w.Rev++
}

// Roll puts a new secret before the current one, which also keeps signing until overlap has
// passed.
func (w *Webhook) Roll(secret string, overlap time.Duration, now time.Time) {
	kept := []Secret{{Text: secret}}
	for _, s := range w.Secrets {
		if s.Until.IsZero() || s.Until.After(now.Add(overlap)) {
			s.Until = now.Add(overlap)
		}
		if s.Until.After(now) {
			kept = append(kept, s)
		}
	}
	// Keep only a few of the newest secrets, no matter how many times the secret is rolled during
	// the overlap, because a receiver checks every signature in a message.
	w.Secrets = kept[:min(len(kept), 3)]
	w.touch(now)
}

// Signing lists the secrets that are in use at now.
func (w *Webhook) Signing(now time.Time) []Secret {
	var out []Secret
	for _, s := range w.Secrets {
		if s.Until.IsZero() || s.Until.After(now) {
			out = append(out, s)
		}
	}
	return out
}

// NotFound returns the error for a webhook that does not exist or belongs to another account.
func NotFound() error {
	return apierr.New(apierr.WebhookNotFound, "There is no webhook with this id.")
}

// Full returns the error for an account that already has the maximum number of webhooks.
func Full() error {
	return apierr.New(apierr.QuotaExceeded, "This account has 20 webhooks. Delete one first.")
}

// DeliveryNotFound returns the error for a delivery that does not exist, is too old, or belongs to
// another webhook.
func DeliveryNotFound() error {
	return apierr.New(apierr.DeliveryNotFound, "There is no delivery with this id. Deliveries are kept for 30 days.")
}

// Disabled returns the error for a call that would send a message to a disabled webhook.
func Disabled() error {
	return apierr.New(apierr.WebhookDisabled, "This webhook is disabled. Enable it first: PATCH it with {\"enabled\": true}.")
}

// GiveUp disables the webhook for the given reason.
func (w *Webhook) GiveUp(why Reason, now time.Time) {
	w.Enabled, w.DisabledReason = false, why
	w.touch(now)
}
