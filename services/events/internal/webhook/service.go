package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/libs/tenant"
)

// Store stores webhooks and deliveries. If a webhook or a delivery belongs to another account, it
// returns NotFound or DeliveryNotFound, as if the record did not exist.
type Store interface {
	Webhook(ctx context.Context, accountID, id string) (*Webhook, error)
	Webhooks(ctx context.Context, accountID string) ([]*Webhook, error)
	// Create adds a webhook and writes its event. It returns QUOTA_EXCEEDED if the account has
	// MaxPerAccount webhooks.
	Create(ctx context.Context, w *Webhook) error
	// Update changes a webhook and writes its event in the same commit. fn returns the type of
	// the event, or "" to write nothing. fn may run several times.
	Update(ctx context.Context, accountID, id string, fn func(*Webhook) (events.Type, error)) (*Webhook, error)
	// Delete removes a webhook and writes its event. Waiting deliveries are dropped when their
	// attempt is due.
	Delete(ctx context.Context, accountID, id string, check func(rev int64) error) error

	// Failing lists the enabled webhooks with a failed last attempt, across all accounts and
	// ordered by ID, starting after the ID after. next is "" at the end.
	Failing(ctx context.Context, after string, limit int) (page []*Webhook, next string, err error)
	// CountPending counts a webhook's pending deliveries, up to the limit most.
	CountPending(ctx context.Context, webhookID string, most int) (int64, error)

	// Deliveries lists a webhook's deliveries, newest first.
	Deliveries(ctx context.Context, webhookID string, p paging.Page) (page []*Delivery, more bool, err error)
	Delivery(ctx context.Context, webhookID, id string) (*Delivery, error)
	// Flying lists a webhook's deliveries that are in their first attempt. Deliveries and
	// Delivery do not find them. Flying may include deliveries that have only just been stored.
	Flying(ctx context.Context, accountID, webhookID string) ([]*Delivery, error)
	// AddDelivery stores a new delivery.
	AddDelivery(ctx context.Context, d *Delivery) error
	// PutDelivery stores a delivery, and overwrites it if it already exists.
	PutDelivery(ctx context.Context, d *Delivery) error
	// OpenReplays counts a webhook's unfinished replays, up to the limit most.
	OpenReplays(ctx context.Context, webhookID string, most int) (int64, error)
	// AddReplay stores a requested replay.
	AddReplay(ctx context.Context, r *Replay) error
}

// Courier sends deliveries. The service calls it when there is new work.
type Courier interface {
	// Send makes the webhook's lane look for due deliveries soon.
	Send(accountID, webhookID string)
	// Replay makes the courier continue its work on replays soon.
	Replay()
}

// Service implements the API's operations.
type Service struct {
	store   Store
	courier Courier
	now     func() time.Time
	shown   func(*Webhook) any
}

// NewService returns a service. shown converts a webhook to its wire format in the API, without
// its secret.
func NewService(store Store, courier Courier, now func() time.Time, shown func(*Webhook) any) *Service {
	return &Service{store: store, courier: courier, now: now, shown: shown}
}

// Draft describes a webhook to create.
type Draft struct {
	Address     Address
	Events      []string
	Description string
}

// New returns a webhook with its secret. It does not store the webhook.
func (s *Service) New(accountID string, d Draft) (*Webhook, error) {
	secret, err := NewSecret()
	if err != nil {
		return nil, err
	}
	at := s.now().UTC().Truncate(time.Millisecond)
	return &Webhook{
		ID: identity.NewID("whk"), AccountID: accountID, URL: d.Address.Given, Target: d.Address.Target,
		Events: d.Events, Description: d.Description, Enabled: true,
		CreatedAt: at, UpdatedAt: at, Rev: 1, Secrets: []Secret{{Text: secret}},
	}, nil
}

// Create stores a new webhook.
func (s *Service) Create(ctx context.Context, w *Webhook) error { return s.store.Create(ctx, w) }

// Failing is a failing webhook and how many of its deliveries are pending.
type Failing struct {
	*Webhook
	Pending int64
}

// Failing lists the enabled webhooks with a failed last attempt, across all accounts, for the
// operator. See [Store].
func (s *Service) Failing(ctx context.Context, after string, limit int) (page []Failing, next string, err error) {
	found, next, err := s.store.Failing(ctx, after, limit)
	if err != nil {
		return nil, "", err
	}
	page = make([]Failing, len(found))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, w := range found {
		g.Go(func() (err error) {
			page[i].Webhook = w
			page[i].Pending, err = s.store.CountPending(ctx, w.ID, tenant.MaxWaiting)
			return err
		})
	}
	return page, next, g.Wait()
}

// Get reads a webhook.
func (s *Service) Get(ctx context.Context, accountID, id string) (*Webhook, error) {
	return s.store.Webhook(ctx, accountID, id)
}

// List lists an account's webhooks, newest first.
func (s *Service) List(ctx context.Context, accountID string) ([]*Webhook, error) {
	return s.store.Webhooks(ctx, accountID)
}

// Change edits a webhook. It first calls check with the webhook's revision. If check returns an
// error, nothing is changed.
func (s *Service) Change(ctx context.Context, accountID, id string, check func(rev int64) error, c Change) (*Webhook, error) {
	return s.store.Update(ctx, accountID, id, func(w *Webhook) (events.Type, error) {
		if err := check(w.Rev); err != nil {
			return "", err
		}
		if !w.Apply(c, s.now()) {
			return "", nil
		}
		return events.WebhookUpdated, nil
	})
}

// Delete removes a webhook. Attempts in progress finish normally, but no further messages are sent to
// the receiver.
func (s *Service) Delete(ctx context.Context, accountID, id string, check func(rev int64) error) error {
	return s.store.Delete(ctx, accountID, id, check)
}

// Roll gives a webhook a new secret. The old secret also keeps signing until overlap has passed. If
// a request is retried because its response was lost, it may safely roll the secret again because
// no caller has seen the first new secret.
func (s *Service) Roll(ctx context.Context, accountID, id string, overlap time.Duration) (*Webhook, error) {
	secret, err := NewSecret()
	if err != nil {
		return nil, err
	}
	return s.store.Update(ctx, accountID, id, func(w *Webhook) (events.Type, error) {
		w.Roll(secret, overlap, s.now())
		return events.WebhookUpdated, nil
	})
}

// Test sends a message of type webhook.test.
func (s *Service) Test(ctx context.Context, accountID, id string, o identity.Origin) (*Delivery, error) {
	w, err := s.enabled(ctx, accountID, id)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(s.shown(w))
	if err != nil {
		return nil, fmt.Errorf("test webhook: %w", err)
	}
	now := s.now()
	d := &Delivery{
		ID: identity.IDFrom("whd", o.Nonce), AccountID: accountID, WebhookID: id,
		EventID: identity.IDFrom("evt", o.Nonce), EventType: events.WebhookTest, Payload: string(data), EventAt: now,
		CreatedAt: now, Status: Pending, DueAt: now,
	}
	if err := s.store.AddDelivery(ctx, d); err != nil {
		return nil, err
	}
	s.courier.Send(accountID, id)
	return d, nil
}

func (s *Service) enabled(ctx context.Context, accountID, id string) (*Webhook, error) {
	w, err := s.store.Webhook(ctx, accountID, id)
	if err == nil && !w.Enabled {
		return nil, Disabled()
	}
	return w, err
}

// Deliveries lists a page of a webhook's deliveries, newest first, and reports whether there are
// more.
func (s *Service) Deliveries(ctx context.Context, w *Webhook, p paging.Page) (page []*Delivery, more bool, err error) {
	// Read the flying deliveries before the stored ones. If a first attempt ends in between,
	// its delivery is found twice. In the reverse order, it could be missed.
	flying, err := s.store.Flying(ctx, w.AccountID, w.ID)
	if err != nil {
		return nil, false, err
	}
	page, more, err = s.store.Deliveries(ctx, w.ID, p)
	if err != nil {
		return nil, false, err
	}
	all := page
	for _, d := range flying {
		below := more && paging.Newest(d.Place(), page[len(page)-1].Place()) > 0 // the delivery belongs to a later page
		if !below && !slices.ContainsFunc(page, func(o *Delivery) bool { return o.ID == d.ID }) {
			all = append(all, d)
		}
	}
	page, next := paging.Cut(p, all, paging.Newest, (*Delivery).Place)
	return page, more || next != nil, nil
}

// Delivery reads one of a webhook's deliveries, with the webhook.
func (s *Service) Delivery(ctx context.Context, accountID, id, deliveryID string) (*Webhook, *Delivery, error) {
	w, err := s.store.Webhook(ctx, accountID, id)
	if err != nil {
		return nil, nil, err
	}
	flying, err := s.store.Flying(ctx, accountID, id)
	if err != nil {
		return nil, nil, err
	}
	d, err := s.store.Delivery(ctx, id, deliveryID)
	if i := slices.IndexFunc(flying, func(d *Delivery) bool { return d.ID == deliveryID }); i >= 0 && errors.Is(err, DeliveryNotFound()) {
		return w, flying[i], nil
	}
	return w, d, err
}

// Retry sends a delivery again immediately. If the attempt fails, more attempts follow
// according to the schedule.
func (s *Service) Retry(ctx context.Context, accountID, id, deliveryID string) (*Delivery, error) {
	w, d, err := s.Delivery(ctx, accountID, id, deliveryID) // 404 takes precedence over 409
	if err != nil {
		return nil, err
	}
	if !w.Enabled {
		return nil, Disabled()
	}
	d.Again(s.now())
	// Overwrite the stored delivery because a running attempt's result no longer counts.
	if err := s.store.PutDelivery(ctx, d); err != nil {
		return nil, err
	}
	s.courier.Send(accountID, id)
	return d, nil
}

// Replay sends the events between from and to again, including both times. It sends only events
// that the webhook is currently subscribed to. Events are kept for 30 days. Replay returns
// RATE_LIMITED while the webhook has maxReplays unfinished replays.
func (s *Service) Replay(ctx context.Context, accountID, id string, from, to time.Time, o identity.Origin) (*Replay, error) {
	if _, err := s.enabled(ctx, accountID, id); err != nil {
		return nil, err
	}
	if to.Before(from) {
		return nil, apierr.Invalid(apierr.Detail{Field: "to", Code: apierr.OutOfRange, Message: "`to` is before `from`."})
	}
	open, err := s.store.OpenReplays(ctx, id, maxReplays)
	if err != nil {
		return nil, err
	}
	if open >= maxReplays {
		return nil, &apierr.Error{Code: apierr.RateLimited, RetryAfter: 30 * time.Second,
			Message: fmt.Sprintf("This webhook has %d unfinished replays. Try again when one of them has finished.", maxReplays)}
	}
	r := &Replay{ID: identity.IDFrom("whr", o.Nonce), AccountID: accountID, WebhookID: id, From: from, To: to, DueAt: s.now()}
	if err := s.store.AddReplay(ctx, r); err != nil {
		return nil, err
	}
	s.courier.Replay()
	return r, nil
}
