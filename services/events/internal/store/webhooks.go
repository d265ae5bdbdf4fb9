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
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/libs/seal"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
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
	// KeyIDs lists the keys that seal Secrets. Rotation uses it to find webhooks.
	KeyIDs       []string  `firestore:"keyIds"`
	FailingSince time.Time `firestore:"failingSince,omitzero"`
	Cause        string    `firestore:"cause,omitempty"`
	// Failing marks the webhooks that the operator can list. It is absent from all others.
	Failing bool `firestore:"failing,omitempty"`
}

type secretDoc struct {
	Sealed []byte    `firestore:"sealed"`
	Until  time.Time `firestore:"until,omitzero"`
}

func (s *Store) webhookRef(id string) *firestore.DocumentRef {
	return s.db.Collection(webhooks).Doc(id)
}

func (s *Store) fromWebhook(w *webhook.Webhook) *webhookDoc {
	d := &webhookDoc{
		AccountID: w.AccountID, URL: w.URL, Target: w.Target, Events: w.Events, Description: w.Description, Enabled: w.Enabled,
		DisabledReason: string(w.DisabledReason), CreatedAt: w.CreatedAt, UpdatedAt: w.UpdatedAt, Rev: w.Rev,
		FailingSince: w.FailingSince, Cause: string(w.Cause), Failing: w.Enabled && !w.FailingSince.IsZero(),
	}
	for _, secret := range w.Secrets {
		sealed := s.sealed(w.ID, secret)
		d.Secrets = append(d.Secrets, secretDoc{sealed, secret.Until})
		if key := seal.IDOf(sealed); !slices.Contains(d.KeyIDs, key) {
			d.KeyIDs = append(d.KeyIDs, key)
		}
	}
	return d
}

// sealed returns the secret in its stored form, sealed with the first key. If no key can
// decrypt the secret, it returns the old form unchanged.
func (s *Store) sealed(id string, secret webhook.Secret) []byte {
	if secret.Text != "" {
		return s.seal.Seal(id, []byte(secret.Text))
	}
	if again, err := s.seal.Again(id, secret.Sealed); err == nil {
		return again
	}
	return secret.Sealed
}

// open returns a secret's text.
func (s *Store) open(id string, secret webhook.Secret) (string, error) {
	text, err := s.seal.Open(id, secret.Sealed)
	if err != nil {
		return "", fmt.Errorf("no key of LINKREEL_WEBHOOK_SECRET_KEY decrypts the secret of webhook %s: %w", id, err)
	}
	return string(text), nil
}

// Signing decrypts the secrets that are in use at now. It omits secrets that no key can decrypt,
// and err names them. This is enough because a receiver needs only one signature that it can
// verify.
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

var readWebhook = firestoredb.Reader(func(snap firestoredb.Snap, d *webhookDoc) *webhook.Webhook {
	w := &webhook.Webhook{
		ID: snap.Ref.ID, AccountID: d.AccountID, URL: d.URL, Target: d.Target, Events: d.Events, Description: d.Description,
		Enabled: d.Enabled, DisabledReason: webhook.Reason(d.DisabledReason), CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt,
		Rev: d.Rev, FailingSince: d.FailingSince, Cause: webhook.Cause(d.Cause),
	}
	for _, secret := range d.Secrets {
		w.Secrets = append(w.Secrets, webhook.Secret{Sealed: secret.Sealed, Until: secret.Until})
	}
	return w
})

// webhooksOf returns the store of webhooks. Each change also updates the webhook's subscription
// in the feed.
func (s *Store) webhooksOf(db *record.DB, shown func(*webhook.Webhook) any) *record.Kept[webhook.Webhook] {
	return record.Keep(db, record.Kind[webhook.Webhook]{
		Collection: webhooks, Object: "webhook", Of: func(w *webhook.Webhook) (id, account string) { return w.ID, w.AccountID },
		Doc: func(w *webhook.Webhook) any { return s.fromWebhook(w) }, From: readWebhook, Absent: webhook.NotFound, Shown: shown,
		Order: func(a, b *webhook.Webhook) int { return paging.Newest(a.Place(), b.Place()) },
		Beside: func(tx *record.Tx, before, after *webhook.Webhook) {
			w, wants := after, any(firestore.Delete)
			if w == nil {
				w = before
			} else {
				wants = subscriberDoc{w.Events, w.Enabled}
			}
			// Merge only this entry, so that the account's other webhooks are kept.
			tx.Set(s.feedRef(w.AccountID), map[string]any{"subscribers": map[string]any{w.ID: wants}},
				firestore.Merge([]string{"subscribers", w.ID}))
		},
	})
}

// Webhook reads a webhook in the account. An empty accountID means any account.
func (s *Store) Webhook(ctx context.Context, accountID, id string) (*webhook.Webhook, error) {
	return s.hooks.Get(ctx, accountID, id)
}

// Webhooks reads an account's webhooks, newest first.
func (s *Store) Webhooks(ctx context.Context, accountID string) ([]*webhook.Webhook, error) {
	return s.hooks.All(ctx, accountID)
}

// Create implements [webhook.Store].
func (s *Store) Create(ctx context.Context, w *webhook.Webhook) error {
	return s.records.Tx(ctx, "create webhook", func(tx *record.Tx) error {
		// Every creation reads and writes the feed, so two concurrent creations cannot both
		// take the last free slot.
		var d feedDoc
		if _, err := tx.Load(s.feedRef(w.AccountID), &d); err != nil {
			return err
		}
		if len(d.Subscribers) >= webhook.MaxPerAccount {
			return webhook.Full()
		}
		return s.hooks.In(tx).Add(w, events.WebhookCreated)
	})
}

// Update implements [webhook.Store].
func (s *Store) Update(
	ctx context.Context, accountID, id string, fn func(*webhook.Webhook) (events.Type, error),
) (*webhook.Webhook, error) {
	return s.hooks.Change(ctx, accountID, id, fn)
}

// Delete implements [webhook.Store].
func (s *Store) Delete(ctx context.Context, accountID, id string, check func(rev int64) error) error {
	return s.hooks.Delete(ctx, accountID, id, func(w *webhook.Webhook) error { return check(w.Rev) })
}

// NoteHealth stores when a webhook started failing, and the current cause. The zero time means that
// the webhook is working. The accounts' API doesn't return either value, so NoteHealth doesn't
// write an event or change the revision.
func (s *Store) NoteHealth(ctx context.Context, id string, failingSince time.Time, cause webhook.Cause) error {
	health := []firestore.Update{
		{Path: "failingSince", Value: failingSince}, {Path: "cause", Value: string(cause)}, {Path: "failing", Value: true},
	}
	if failingSince.IsZero() {
		for i := range health {
			health[i].Value = firestore.Delete
		}
	}
	return s.db.Update(ctx, "record webhook health", s.webhookRef(id), health)
}

// Failing lists the enabled webhooks with a failed last attempt, across all accounts and
// ordered by ID. It starts after the webhook with the ID after. next is "" at the end.
func (s *Store) Failing(ctx context.Context, after string, limit int) (page []*webhook.Webhook, next string, err error) {
	q := s.db.Collection(webhooks).Where("failing", "==", true).OrderBy(firestore.DocumentID, firestore.Asc).Limit(limit + 1)
	if after != "" {
		q = q.StartAfter(after)
	}
	page, err = s.hooks.Find(ctx, q)
	if len(page) > limit {
		page = page[:limit]
		next = page[limit-1].ID
	}
	return page, next, err
}

// CountPending counts a webhook's pending deliveries, up to the limit most.
func (s *Store) CountPending(ctx context.Context, webhookID string, most int) (int64, error) {
	return s.db.Count(ctx, "count pending deliveries", s.db.Collection(deliveries).Where("webhookId", "==", webhookID).
		Where("dueAt", ">", time.Time{}).OrderBy("dueAt", firestore.Asc).Limit(most))
}

// Rotation returns the task that reseals all webhooks' secrets with the first key. It does not
// write events.
func (s *Store) Rotation() *seal.Rotation {
	return &seal.Rotation{
		Keys: s.seal, What: "webhooks' secrets (LINKREEL_WEBHOOK_SECRET_KEY)", List: s.sealedBy, Reseal: s.reseal, Unopened: s.unopened,
		Left: func(n int) { sealedByOlderKeys.WithLabelValues().Set(float64(n)) },
	}
}

// sealedByOlderKeys has no value until all webhooks have been checked.
var sealedByOlderKeys = promauto.NewGaugeVec(prometheus.GaugeOpts{
	Name: "linkreel_webhooks_sealed_by_older_keys",
	Help: "Webhooks with a secret that an older key of LINKREEL_WEBHOOK_SECRET_KEY seals, at the last check. " +
		"If it is 0 on every replica, the older keys can be dropped.",
}, nil)

const sealPage = 200

func (s *Store) sealedBy(ctx context.Context, keyIDs []string, after string) ([]string, error) {
	q := s.withKeys(keyIDs).OrderBy(firestore.DocumentID, firestore.Asc).Limit(sealPage)
	if after != "" {
		q = q.StartAfter(after)
	}
	return s.db.IDs(ctx, "list webhooks sealed with older keys", q)
}

// unopened counts the webhooks with secrets that no key can decrypt.
func (s *Store) unopened(ctx context.Context) (int64, error) {
	known, err := s.db.Count(ctx, "count webhooks sealed with the keys", s.withKeys(s.seal.IDs()))
	if err != nil {
		return 0, err
	}
	all, err := s.db.Count(ctx, "count webhooks", s.db.Collection(webhooks).Query)
	return all - known, err
}

func (s *Store) withKeys(keyIDs []string) firestore.Query {
	return s.db.Collection(webhooks).Where("keyIds", "array-contains-any", keyIDs[:min(len(keyIDs), 30)]) // Firestore accepts at most 30 values
}

// reseal seals a webhook's secrets with the first key. It does not change a secret that no key
// can decrypt. In that case, it still seals the others, and then returns an error.
func (s *Store) reseal(ctx context.Context, id string) (stuck error) {
	err := s.records.Tx(ctx, "seal webhook's secrets again", func(tx *record.Tx) error {
		stored, err := s.hooks.In(tx).GetAll(id)
		if err != nil || stored[0] == nil {
			return err
		}
		again := s.fromWebhook(stored[0])
		stuck = nil
		if slices.ContainsFunc(again.KeyIDs, func(key string) bool { return slices.Contains(s.seal.OlderIDs(), key) }) {
			stuck = errors.New("no key decrypts one of its secrets")
		}
		tx.Update(s.hooks.Ref(id), firestore.Update{Path: "secrets", Value: again.Secrets}, firestore.Update{Path: "keyIds", Value: again.KeyIDs})
		return nil
	})
	return cmp.Or(err, stuck)
}
