package store

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/quota"
	"github.com/linkreel/linkreel/libs/tenant"
)

// accountDocument is what was decided about an account. An account without one is
// active. That of an erased account stays: it is the tombstone.
type accountDocument struct {
	State   string    `firestore:"state"`
	Version int64     `firestore:"version"`
	At      time.Time `firestore:"at"`
	// EraseAt is there while there may be something left to erase.
	EraseAt *time.Time `firestore:"eraseAt,omitempty"`
}

// Standing is what was decided about an account; the zero value for one that
// nothing was decided about.
func (s *Store) Standing(ctx context.Context, account string) (tenant.Standing, error) {
	if !identity.ValidID(account) {
		return tenant.Standing{}, nil
	}
	var d accountDocument
	err := s.db.Do(ctx, "get account's standing", func(ctx context.Context) error {
		snap, err := s.account(account).Get(ctx)
		if err != nil {
			return err
		}
		return snap.DataTo(&d)
	})
	if errors.Is(err, firestoredb.ErrNotFound) {
		return tenant.Standing{}, nil
	}
	return tenant.Standing{State: tenant.State(d.State), Version: d.Version}, err
}

// SetStanding keeps a decision, unless a later one is known.
func (s *Store) SetStanding(ctx context.Context, account string, standing tenant.Standing) error {
	if !identity.ValidID(account) {
		return errors.New("not an account's id")
	}
	return s.db.DB.Tx(ctx, "set account's standing", func(_ context.Context, tx *firestore.Transaction) error {
		var d accountDocument
		snap, err := tx.Get(s.account(account))
		switch {
		case err == nil:
			if err := snap.DataTo(&d); err != nil {
				return err
			}
		case !errors.Is(firestoredb.Map(err), firestoredb.ErrNotFound):
			return err
		}
		// The same decision told again must not begin an erasure anew that has ended.
		if standing.Version < d.Version || standing.Version == d.Version && tenant.State(d.State) == standing.State {
			return nil
		}
		now := s.db.Now()
		d = accountDocument{State: string(standing.State), Version: standing.Version, At: now}
		if standing.State == tenant.Deleting {
			d.EraseAt = &now
		}
		return tx.Set(s.account(account), d)
	})
}

// Erasing lists accounts that may have something left to erase.
func (s *Store) Erasing(ctx context.Context) ([]string, error) {
	return s.db.IDs(ctx, "list accounts to erase", s.db.Collection(accounts).Where("eraseAt", "<=", s.db.Now()).OrderBy("eraseAt", firestore.Asc).Limit(pageSize))
}

// EraseSome removes some of an account's records and reports whether there are more.
// Calling it again resumes where the last call stopped.
func (s *Store) EraseSome(ctx context.Context, account string) (more bool, err error) {
	return s.Records.Erase(ctx, account, eraseSize)
}

// eraseSize is how many records one round removes; each takes a transaction.
const eraseSize = 50

// Remains reports whether there is anything left of an account but its tombstone.
func (s *Store) Remains(ctx context.Context, account string) (bool, error) {
	return s.Records.Remains(ctx, account)
}

// EndErase notes that nothing is left. A video that was created while the account
// was being erased is found by looking again a day later, which the first call asks
// for; the second ends it.
func (s *Store) EndErase(ctx context.Context, account string) error {
	if err := quota.Forget(ctx, s.db.DB, account); err != nil {
		return err
	}
	return s.db.DB.Tx(ctx, "end erasure", func(_ context.Context, tx *firestore.Transaction) error {
		snap, err := tx.Get(s.account(account))
		if err != nil {
			return err
		}
		var d accountDocument
		if err := snap.DataTo(&d); err != nil {
			return err
		}
		again := d.At.Add(24 * time.Hour)
		d.EraseAt = &again
		if !s.db.Now().Before(again) {
			d.EraseAt = nil
		}
		return tx.Set(s.account(account), d)
	})
}

func (s *Store) account(id string) *firestore.DocumentRef { return s.db.Collection(accounts).Doc(id) }
