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
	"github.com/linkreel/linkreel/libs/seal"
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
	// KeyIDs name the keys that seal Secrets, for sweeps.
	KeyIDs       []string   `firestore:"keyIds"`
	FailingSince *time.Time `firestore:"failingSince"`
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
		sealed := s.sealed(w.ID, secret)
		d.Secrets = append(d.Secrets, secretDoc{sealed, orNil(secret.Until)})
		if key := seal.IDOf(sealed); !slices.Contains(d.KeyIDs, key) {
			d.KeyIDs = append(d.KeyIDs, key)
		}
	}
	return d
}

// sealed is a secret as it is kept: by the first key, unless it does not open.
func (s *Store) sealed(id string, secret webhook.Secret) []byte {
	if secret.Text != "" {
		return s.seal.Seal(id, []byte(secret.Text))
	}
	if seal.IDOf(secret.Sealed) != s.seal.ID() {
		if text, err := s.seal.Open(id, secret.Sealed); err == nil {
			return s.seal.Seal(id, text)
		}
	}
	return secret.Sealed
}

// open reads a secret's text.
func (s *Store) open(id string, secret webhook.Secret) (string, error) {
	text, err := s.seal.Open(id, secret.Sealed)
	if err != nil {
		return "", fmt.Errorf("secret of webhook %s does not open with LINKREEL_WEBHOOK_SECRET_KEY: %w", id, err)
	}
	return string(text), nil
}

// Signing opens the secrets that sign at now. What does not open is left out, and
// err tells of it: a receiver needs one signature that it can check.
func (s *Store) Signing(w *webhook.Webhook, now time.Time) (texts []string, err error) {
	for _, secret := range w.Signing(now) {
		text, e := s.open(w.ID, secret)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		texts = append(texts, text)
	}
	return texts, err
}

func toWebhook(id string, d *webhookDoc) *webhook.Webhook {
	w := &webhook.Webhook{
		ID: id, AccountID: d.AccountID, URL: d.URL, Target: d.Target, Events: d.Events, Description: d.Description, Enabled: d.Enabled,
		DisabledReason: webhook.Reason(d.DisabledReason), CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt, Rev: d.Rev, FailingSince: orZero(d.FailingSince),
	}
	for _, secret := range d.Secrets {
		w.Secrets = append(w.Secrets, webhook.Secret{Sealed: secret.Sealed, Until: orZero(secret.Until)})
	}
	return w
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
	return toWebhook(id, &d), nil
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
			out[i] = toWebhook(snap.Ref.ID, &d)
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
			out = toWebhook(w.ID, &d)
			// The answer of the first try was lost; this one shows the secret.
			out.Secrets[0].Text, err = s.open(w.ID, out.Secrets[0])
			return cmp.Or(err, errNothing)
		case found:
			return fmt.Errorf("drew the id of webhook %s", w.ID)
		// Every create reads and writes the feed, so two of them cannot both take the last place.
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
	// Merge names the one entry, so that the account's other webhooks stay.
	return tx.Set(s.feedRef(w.AccountID), map[string]any{
		"subscribers": map[string]any{w.ID: subscriberDoc{w.Events, w.Enabled}},
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
	return toWebhook(id, &d), nil
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

// sealPage is how many webhooks Seals reads at a time.
const sealPage = 200

// Seals implements [webhook.Store].
func (s *Store) Seals(ctx context.Context, all bool, after string) (page []webhook.Sealed, err error) {
	q := s.db.Collection(webhooks).Query
	if !all {
		older := s.seal.OlderIDs()
		if len(older) == 0 {
			return nil, nil
		}
		q = q.Where("keyIds", "array-contains-any", older[:min(len(older), 30)]) // what Firestore takes
	}
	q = q.OrderBy(firestore.DocumentID, firestore.Asc).Limit(sealPage).Select("secrets", "keyIds")
	if after != "" {
		q = q.StartAfter(after)
	}
	err = s.db.Do(ctx, "list webhooks of older keys", func(ctx context.Context) error {
		snaps, err := q.Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		page = make([]webhook.Sealed, len(snaps))
		for i, snap := range snaps {
			page[i] = webhook.Sealed{ID: snap.Ref.ID, State: webhook.SealOlder} // one that cannot be read is told of by Reseal
			var d webhookDoc
			if snap.DataTo(&d) == nil {
				page[i].State = s.sealState(snap.Ref.ID, &d)
			}
		}
		return nil
	})
	return page, err
}

func (s *Store) sealState(id string, d *webhookDoc) webhook.SealState {
	w := toWebhook(id, d)
	if again := s.fromWebhook(w); !slices.Equal(again.KeyIDs, d.KeyIDs) {
		return webhook.SealOlder
	}
	if texts, _ := s.Signing(w, s.now()); len(texts) == 0 {
		return webhook.SealLost
	}
	return webhook.SealCurrent
}

// Reseal implements [webhook.Store].
func (s *Store) Reseal(ctx context.Context, id string) error {
	return s.db.Tx(ctx, "seal webhook's secrets again", func(_ context.Context, tx *firestore.Transaction) error {
		var d webhookDoc
		found, err := read(tx, s.webhookRef(id), &d)
		if err != nil || !found {
			return err
		}
		again := s.fromWebhook(toWebhook(id, &d))
		return tx.Update(s.webhookRef(id), []firestore.Update{{Path: "secrets", Value: again.Secrets}, {Path: "keyIds", Value: again.KeyIDs}})
	})
}
