package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/quota"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/tenancy"
)

const (
	takedowns  = "operatorTakedowns"
	tombstones = "tombstones"
	// scan bounds the accounts that one list request reads.
	scan = 2000
)

var _ tenancy.Store = (*Store)(nil)

// Accounts reads accounts by id. Old records have no index of their words, and
// only operators search, so a search reads accounts in order and compares.
func (s *Store) Accounts(ctx context.Context, after string, limit int, match func(account.Account) bool) (page []account.Account, next string, err error) {
	for read := 0; read < scan; {
		q := s.db.Collection(accounts).OrderBy(firestore.DocumentID, firestore.Asc).Limit(200)
		if after != "" {
			q = q.StartAfter(after)
		}
		var snaps []*firestore.DocumentSnapshot
		err := s.db.Do(ctx, "list accounts", func(ctx context.Context) (err error) {
			snaps, err = q.Documents(ctx).GetAll()
			return err
		})
		if err != nil {
			return nil, "", err
		}
		for _, snap := range snaps {
			a, err := toAccount(snap)
			if err != nil {
				return nil, "", err
			}
			if match(a) {
				if len(page) == limit {
					return page, after, nil // there is one more
				}
				page = append(page, a)
			}
			// Past every account that was read, matching or not: a short page still continues behind it.
			after = a.ID
		}
		if len(snaps) < 200 {
			return page, "", nil
		}
		read += len(snaps)
	}
	return page, after, nil
}

// Deleting lists accounts whose erasure has begun.
func (s *Store) Deleting(ctx context.Context, limit int) (out []account.Account, err error) {
	err = s.db.Do(ctx, "list deleting accounts", func(ctx context.Context) error {
		snaps, err := s.db.Collection(accounts).Where("deleting", "==", true).Limit(limit).Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		for _, snap := range snaps {
			a, err := toAccount(snap)
			if err != nil {
				return err
			}
			out = append(out, a)
		}
		return nil
	})
	return out, err
}

// erased are the documents, beside those of people, that no other service erases.
// Every service writes events and idempotency records into collections that they
// share. The account's own document goes last: until then a crash leaves it
// deleting, and the erasure begins again.
func (s *Store) erased(accountID string) map[string]firestore.Query {
	of := map[string]firestore.Query{
		idempotency.Collection: s.db.Collection(idempotency.Collection).Where(idempotency.OwnerField, "==", idempotency.Owner(accountID)),
	}
	for _, collection := range []string{keys, takedowns, outbox.Collection, quota.Collection} {
		of[collection] = s.db.Collection(collection).Where("accountId", "==", accountID)
	}
	return of
}

// Erase removes documents in batches that fit a commit.
func (s *Store) Erase(ctx context.Context, id string, at time.Time) error {
	for done := false; !done; {
		var err error
		if done, err = s.PurgePeople(ctx, id); err != nil {
			return err
		}
	}
	for collection, of := range s.erased(id) {
		for more := true; more; {
			found, err := s.db.Find(ctx, "find "+collection, of.Limit(purgeBatch))
			if err != nil {
				return err
			}
			if err := s.db.DeleteAll(ctx, "erase "+collection, found...); err != nil {
				return err
			}
			more = len(found) == purgeBatch
		}
	}
	ref, err := s.account(id)
	if err != nil {
		return err
	}
	// In one commit: an account that is gone always has its tombstone.
	return s.db.Commit(ctx, "erase account", func(_ context.Context, tx *firestore.Transaction) error {
		if err := tx.Set(s.db.Collection(tombstones).Doc(id), map[string]any{"erasedAt": at}); err != nil {
			return err
		}
		return tx.Delete(ref)
	})
}

type takedownDoc struct {
	Kind       string    `firestore:"kind"`
	RecordID   string    `firestore:"recordId"`
	AccountID  string    `firestore:"accountId"`
	URL        string    `firestore:"url"`
	Reason     string    `firestore:"reason"`
	At         time.Time `firestore:"at"`
	TargetURL  string    `firestore:"targetUrl"`
	TargetID   string    `firestore:"targetId"`
	TargetKind string    `firestore:"targetKind"`
	Phase      string    `firestore:"phase"`
	Pending    bool      `firestore:"pending"`
}

func toTakedown(snap *firestore.DocumentSnapshot) (tenancy.Takedown, error) {
	var d takedownDoc
	if err := snap.DataTo(&d); err != nil {
		return tenancy.Takedown{}, fmt.Errorf("read takedown %s: %w", snap.Ref.ID, err)
	}
	return tenancy.Takedown{
		Takedown: tenant.Takedown{ID: snap.Ref.ID, Kind: d.Kind, RecordID: d.RecordID, AccountID: d.AccountID, URL: d.URL, Reason: d.Reason, At: d.At},
		Target:   tenant.Target{URL: d.TargetURL, ID: d.TargetID}, Kind: d.TargetKind, Phase: tenancy.Phase(d.Phase),
	}, nil
}

// takedown refuses ids that are not ours before they become a document path.
func (s *Store) takedown(id string) (*firestore.DocumentRef, error) {
	if len(id) > 64 || strings.Contains(id, "/") || !strings.HasPrefix(id, "tkd_") {
		return nil, tenancy.ErrNoTakedown
	}
	return s.db.Collection(takedowns).Doc(id), nil
}

// Takedown finds a takedown.
func (s *Store) Takedown(ctx context.Context, id string) (t tenancy.Takedown, err error) {
	ref, err := s.takedown(id)
	if err != nil {
		return t, err
	}
	err = s.db.Do(ctx, "get takedown", func(ctx context.Context) error {
		snap, err := ref.Get(ctx)
		if err != nil {
			return err
		}
		t, err = toTakedown(snap)
		return err
	})
	if errors.Is(err, firestoredb.ErrNotFound) {
		return t, tenancy.ErrNoTakedown
	}
	return t, err
}

// Takedowns lists takedowns, newest first. The cursor is the last one's id.
func (s *Store) Takedowns(ctx context.Context, after string, limit int) (page []tenancy.Takedown, next string, err error) {
	err = s.db.Do(ctx, "list takedowns", func(ctx context.Context) error {
		q := s.db.Collection(takedowns).OrderBy("at", firestore.Desc).Limit(limit + 1)
		if after != "" {
			ref, err := s.takedown(after)
			if err != nil {
				return err
			}
			snap, err := ref.Get(ctx)
			if err != nil {
				return orNone(err, tenancy.ErrNoTakedown)
			}
			q = q.StartAfter(snap)
		}
		snaps, err := q.Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		for _, snap := range snaps {
			t, err := toTakedown(snap)
			if err != nil {
				return err
			}
			page = append(page, t)
		}
		return nil
	})
	if len(page) > limit {
		page = page[:limit]
		next = page[limit-1].ID
	}
	return page, next, err
}

// UnsettledTakedowns lists those that the holder may not know of.
func (s *Store) UnsettledTakedowns(ctx context.Context, limit int) ([]tenancy.Takedown, error) {
	return s.takedowns(ctx, "list pending takedowns", s.db.Collection(takedowns).Where("pending", "==", true).Limit(limit))
}

// TakedownsOf lists some of an account's.
func (s *Store) TakedownsOf(ctx context.Context, accountID string, limit int) ([]tenancy.Takedown, error) {
	return s.takedowns(ctx, "list takedowns of an account", s.db.Collection(takedowns).Where("accountId", "==", accountID).Limit(limit))
}

func (s *Store) takedowns(ctx context.Context, what string, q firestore.Query) (out []tenancy.Takedown, err error) {
	err = s.db.Do(ctx, what, func(ctx context.Context) error {
		out = nil
		snaps, err := q.Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		for _, snap := range snaps {
			t, err := toTakedown(snap)
			if err != nil {
				return err
			}
			out = append(out, t)
		}
		return nil
	})
	return out, err
}

// PutTakedown writes a takedown.
func (s *Store) PutTakedown(ctx context.Context, t tenancy.Takedown) error {
	ref, err := s.takedown(t.ID)
	if err != nil {
		return err
	}
	return s.db.Do(ctx, "put takedown", func(ctx context.Context) error {
		_, err := ref.Set(ctx, takedownDoc{
			Kind: t.Takedown.Kind, RecordID: t.RecordID, AccountID: t.AccountID, URL: t.URL, Reason: t.Reason, At: t.At,
			TargetURL: t.Target.URL, TargetID: t.Target.ID, TargetKind: t.Kind, Phase: string(t.Phase), Pending: t.Phase != tenancy.InForce,
		})
		return err
	})
}

// DeleteTakedown forgets a takedown; twice is no error.
func (s *Store) DeleteTakedown(ctx context.Context, id string) error {
	ref, err := s.takedown(id)
	if err != nil {
		return err
	}
	return s.db.Do(ctx, "delete takedown", func(ctx context.Context) error {
		_, err := ref.Delete(ctx)
		return err
	})
}
