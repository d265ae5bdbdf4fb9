package client

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// WebhookTolerance is how far a message's time may differ from ours, in the past or
// in the future.
const WebhookTolerance = 5 * time.Minute

// ErrWebhook matches every error of [VerifyWebhook].
var ErrWebhook = errors.New("webhook not verified")

// VerifyWebhook checks that a message is recent and comes from the deployment that gave
// you secret (whsec_…). body is the unchanged body of the request: read it before
// anything parses it. A message that is sent again has the same webhook-id header.
func VerifyWebhook(secret string, header http.Header, body []byte) error {
	return verifyWebhook(secret, header, body, time.Now())
}

func verifyWebhook(secret string, header http.Header, body []byte, now time.Time) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return fmt.Errorf("%w: the secret is not base64", ErrWebhook)
	}
	id, stamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if id == "" || err != nil {
		return fmt.Errorf("%w: a header is missing", ErrWebhook)
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > WebhookTolerance || age < -WebhookTolerance {
		return fmt.Errorf("%w: its timestamp is too far from the current time", ErrWebhook)
	}
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, stamp, body) // never fails
	want := mac.Sum(nil)
	for part := range strings.FieldsSeq(header.Get("webhook-signature")) {
		version, text, _ := strings.Cut(part, ",")
		got, err := base64.StdEncoding.DecodeString(text)
		if version == "v1" && err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return fmt.Errorf("%w: no signature matches", ErrWebhook)
}

// EventQuery narrows a feed.
type EventQuery struct {
	Types  []string
	Object string
	Limit  int
	// Cursor is the place to read backwards from. If Forward is set, After is the place to
	// read forwards from.
	Cursor  string
	Forward bool
	After   string
	// Wait lets a Forward request wait for the next event, for up to 25 s. If After is
	// empty, the request returns only events that happen from now on.
	Wait time.Duration
}

// Events reads a page of the feed.
func (c *Client) Events(ctx context.Context, q EventQuery) (*EventPage, error) {
	v := url.Values{}
	for _, t := range q.Types {
		v.Add("type", t)
	}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("object", q.Object)
	set("cursor", q.Cursor)
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Forward && (q.After != "" || q.Wait <= 0) {
		v.Set("after", q.After)
	}
	if q.Wait > 0 {
		v.Set("wait", strconv.Itoa(int(q.Wait/time.Second)))
	}
	return answer[EventPage](ctx, c, http.MethodGet, "/api/v1/events?"+v.Encode(), nil)
}

// FollowEvents calls do with each new event, oldest first, until ctx ends or do returns
// an error. after is a cursor or an event's id; "" starts with the next event. It returns
// the value of after with which a later call resumes.
func (c *Client) FollowEvents(ctx context.Context, q EventQuery, after string, do func(Event) error) (string, error) {
	q.Forward, q.Wait = true, 25*time.Second
	for ctx.Err() == nil {
		q.After = after
		page, err := c.Events(ctx, q)
		if err != nil {
			return after, err
		}
		for _, e := range page.Data {
			if err := do(e); err != nil {
				return after, err
			}
			after = e.ID
		}
		// When reading forwards, every page has a cursor, even an empty page. So the first page
		// fixes the place to read from, and this loop misses no events between two requests.
		after = or(page.NextCursor, after)
		if len(page.Data) == 0 {
			// A server that is stopping does not hold the request. The pause is random, so that its
			// callers do not all return at once.
			if err := c.cfg.Sleep(ctx, mathrand.N(time.Second)); err != nil {
				return after, err
			}
		}
	}
	return after, ctx.Err()
}

// or returns the value of field, or the value of instead if field is nil.
func or[T any](field *T, instead T) T {
	if field == nil {
		return instead
	}
	return *field
}

func webhookPath(id string, more ...string) string {
	p := "/api/v1/webhooks/" + url.PathEscape(id)
	for _, m := range more {
		p += "/" + url.PathEscape(m)
	}
	return p
}

// CreateWebhook makes a webhook. Only this response contains its secret.
func (c *Client) CreateWebhook(ctx context.Context, in WebhookCreate) (*WebhookCreated, error) {
	return answer[WebhookCreated](ctx, c, http.MethodPost, "/api/v1/webhooks", in)
}

// Webhooks lists the account's webhooks, newest first.
func (c *Client) Webhooks(ctx context.Context) ([]Webhook, error) {
	return list[Webhook](ctx, c, "/api/v1/webhooks")
}

// UpdateWebhook changes a webhook.
func (c *Client) UpdateWebhook(ctx context.Context, id string, in WebhookUpdate) (*Webhook, error) {
	return answer[Webhook](ctx, c, http.MethodPatch, webhookPath(id), in)
}

// DeleteWebhook removes a webhook.
func (c *Client) DeleteWebhook(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, webhookPath(id), nil, nil)
}

// RollWebhookSecret gives a webhook a new secret. For overlapSeconds, messages are also
// signed with the old one.
func (c *Client) RollWebhookSecret(ctx context.Context, id string, overlapSeconds int) (*WebhookCreated, error) {
	return answer[WebhookCreated](ctx, c, http.MethodPost, webhookPath(id, "roll-secret"), map[string]int{"overlapSeconds": overlapSeconds})
}

// TestWebhook sends a webhook.test event.
func (c *Client) TestWebhook(ctx context.Context, id string) (*Delivery, error) {
	return answer[Delivery](ctx, c, http.MethodPost, webhookPath(id, "test"), nil)
}

// ReplayWebhook sends the events of a time range again.
func (c *Client) ReplayWebhook(ctx context.Context, id string, from, to Moment) error {
	return c.call(ctx, http.MethodPost, webhookPath(id, "replay"), WebhookReplay{from, to}, nil)
}

// Deliveries lists the newest deliveries of a webhook.
func (c *Client) Deliveries(ctx context.Context, id string, limit int) ([]Delivery, error) {
	page, err := answer[DeliveryPage](ctx, c, http.MethodGet, webhookPath(id, "deliveries")+"?limit="+strconv.Itoa(limit), nil)
	return page.Data, err
}

// RetryDelivery sends a delivery again.
func (c *Client) RetryDelivery(ctx context.Context, id, delivery string) (*Delivery, error) {
	return answer[Delivery](ctx, c, http.MethodPost, webhookPath(id, "deliveries", delivery, "retry"), nil)
}
