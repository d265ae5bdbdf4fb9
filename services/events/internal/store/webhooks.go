package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

type webhookDoc struct {
	AccountID      string      `firestore:"accountId"`
	URL            string      `firestore:"url"`
	Target         string      `firestore:"target"`
	Events         []string    `firestore:"events"`
	Description    string      `firestore:"description"`
	Enabled        bool        `firestore:"enabled"`
	DisabledReason string      `firestore:"disabledReason"`
	CreatedAt      time.Time   `firestore:"createdAt"`
	UpdatedAt      time.Time   `firestore:"updatedAt"`
	Rev            int64       `firestore:"rev"`
	Secrets        []secretDoc `firestore:"secrets"`
	FailingSince   *time.Time  `firestore:"failingSince"`
}

type secretDoc struct {
	Sealed []byte     `firestore:"sealed"`
	Until  *time.Time `firestore:"until"`
}

func (s *Store) webhookRef(id string) *firestore.DocumentRef {
	return s.db.Collection(webhooks).Doc(id)
}

func (s *Store) fromWebhook(w *webhook.Webhook) *webhookDoc {
	d := &webhookDoc{
		AccountID: w.AccountID, URL: w.URL, Target: w.Target, Events: w.Events, Description: w.Description, Enabled: w.Enabled,
		DisabledReason: string(w.DisabledReason), CreatedAt: w.CreatedAt, UpdatedAt: w.UpdatedAt, Rev: w.Rev, FailingSince: orNil(w.FailingSince),
	}
	for _, secret := range w.Secrets {
		d.Secrets = append(d.Secrets, secretDoc{s.seal.Seal(w.ID, []byte(secret.Text)), orNil(secret.Until)})
	}
	return d
}

func (s *Store) toWebhook(id string, d *webhookDoc) (*webhook.Webhook, error) {
	w := &webhook.Webhook{
		ID: id, AccountID: d.AccountID, URL: d.URL, Target: d.Target, Events: d.Events, Description: d.Description, Enabled: d.Enabled,
		DisabledReason: webhook.Reason(d.DisabledReason), CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt, Rev: d.Rev, FailingSince: orZero(d.FailingSince),
	}
	for _, secret := range d.Secrets {
		text, err := s.seal.Open(id, secret.Sealed)
		if err != nil {
			return nil, fmt.Errorf("webhook %s: %w", id, err)
		}
		w.Secrets = append(w.Secrets, webhook.Secret{Text: string(text), Until: orZero(secret.Until)})
	}
	return w, nil
}

// Webhook reads a webhook; "" as the account reads it whosever it is.
func (s *Store) Webhook(ctx context.Context, accountID, id string) (*webhook.Webhook, error) {
	if !validID(id, "whk_") {
		return nil, webhook.NotFound()
	}
	var d webhookDoc
	found, err := s.get(ctx, "get webhook", s.webhookRef(id), &d)
	if err != nil {
		return nil, err
	}
	if !found || accountID != "" && d.AccountID != accountID {
		return nil, webhook.NotFound()
	}
	return s.toWebhook(id, &d)
}

// Webhooks reads an account's, newest first.
func (s *Store) Webhooks(ctx context.Context, accountID string) (out []*webhook.Webhook, err error) {
	err = s.db.Do(ctx, "list webhooks", func(ctx context.Context) error {
		snaps, err := s.db.Collection(webhooks).Where("accountId", "==", accountID).Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		out = make([]*webhook.Webhook, len(snaps))
		for i, snap := range snaps {
			var d webhookDoc
			if err := snap.DataTo(&d); err != nil {
				return err
			}
			if out[i], err = s.toWebhook(snap.Ref.ID, &d); err != nil {
				return err
			}
		}
		return nil
	})
	slices.SortFunc(out, func(a, b *webhook.Webhook) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return out, err
}

// Create adds a webhook with its event.
func (s *Store) Create(ctx context.Context, w *webhook.Webhook) (*webhook.Webhook, error) {
	var out *webhook.Webhook
	err := s.db.Tx(ctx, "create webhook", func(ctx context.Context, tx *firestore.Transaction) error {
		out = w
		var feed feedDoc
		if _, err := read(tx, s.feedRef(w.AccountID), &feed); err != nil {
			return err
		}
		var d webhookDoc
		found, err := read(tx, s.webhookRef(w.ID), &d)
		switch {
		case err != nil:
			return err
		case found && d.AccountID == w.AccountID:
			out, err = s.toWebhook(w.ID, &d)
			return errors.Join(err, errNothing)
		case found:
			return fmt.Errorf("drew the id of webhook %s", w.ID)
		case len(feed.Subscribers) >= webhook.MaxPerAccount:
			return webhook.Full()
		}
		if err := tx.Create(s.webhookRef(w.ID), s.fromWebhook(w)); err != nil {
			return err
		}
		if err := s.subscribe(tx, w); err != nil {
			return err
		}
		return s.put(ctx, tx, events.WebhookCreated, w)
	})
	if errors.Is(err, errNothing) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// errNothing ends a transaction that has nothing to write.
var errNothing = errors.New("nothing to write")

// subscribe notes in the feed what the webhook wants from now on.
func (s *Store) subscribe(tx *firestore.Transaction, w *webhook.Webhook) error {
	return tx.Set(s.feedRef(w.AccountID), map[string]any{
		"subscribers": map[string]any{w.ID: map[string]any{"events": w.Events, "enabled": w.Enabled}},
	}, firestore.Merge([]string{"subscribers", w.ID}))
}

func (s *Store) put(ctx context.Context, tx *firestore.Transaction, t events.Type, w *webhook.Webhook) error {
	return s.outbox.Put(ctx, tx, events.Event{AccountID: w.AccountID, Type: t, Object: w.ID, Data: s.shown(w)})
}

// Update changes a webhook with its event.
func (s *Store) Update(ctx context.Context, accountID, id string, fn func(*webhook.Webhook) (events.Type, error)) (*webhook.Webhook, error) {
	if !validID(id, "whk_") {
		return nil, webhook.NotFound()
	}
	var w *webhook.Webhook
	err := s.db.Tx(ctx, "update webhook", func(ctx context.Context, tx *firestore.Transaction) (err error) {
		if w, err = s.owned(tx, accountID, id); err != nil {
			return err
		}
		t, err := fn(w)
		if err != nil {
			return err
		}
		if t == "" {
			return errNothing
		}
		if err := tx.Set(s.webhookRef(id), s.fromWebhook(w)); err != nil {
			return err
		}
		if err := s.subscribe(tx, w); err != nil {
			return err
		}
		return s.put(ctx, tx, t, w)
	})
	if err != nil && !errors.Is(err, errNothing) {
		return nil, err
	}
	return w, nil
}

// owned reads a webhook within a transaction; "" as the account is anybody's.
func (s *Store) owned(tx *firestore.Transaction, accountID, id string) (*webhook.Webhook, error) {
	var d webhookDoc
	found, err := read(tx, s.webhookRef(id), &d)
	if err != nil {
		return nil, err
	}
	if !found || accountID != "" && d.AccountID != accountID {
		return nil, webhook.NotFound()
	}
	return s.toWebhook(id, &d)
}

// Delete removes a webhook with its event.
func (s *Store) Delete(ctx context.Context, accountID, id string, check func(rev int64) error) error {
	if !validID(id, "whk_") {
		return webhook.NotFound()
	}
	return s.db.Tx(ctx, "delete webhook", func(ctx context.Context, tx *firestore.Transaction) error {
		w, err := s.owned(tx, accountID, id)
		if err != nil {
			return err
		}
		if err := check(w.Rev); err != nil {
			return err
		}
		if err := tx.Delete(s.webhookRef(id)); err != nil {
			return err
		}
		err = tx.Set(s.feedRef(accountID), map[string]any{"subscribers": map[string]any{id: firestore.Delete}}, firestore.Merge([]string{"subscribers", id}))
		if err != nil {
			return err
		}
		return s.put(ctx, tx, events.WebhookDeleted, w)
	})
}

// NoteHealth keeps since when a webhook fails; the zero time is a success. It is
// not shown, so it has no event and leaves the revision alone.
func (s *Store) NoteHealth(ctx context.Context, id string, failingSince time.Time) error {
	return s.db.Do(ctx, "note health of webhook", func(ctx context.Context) error {
		_, err := s.webhookRef(id).Update(ctx, []firestore.Update{{Path: "failingSince", Value: orNil(failingSince)}})
		return err
	})
}
