package store

import (
	"context"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/tenant/keeper"
)

// Standings stores auth's decisions about accounts.
func Standings(db *firestoredb.DB) keeper.Standings {
	return keeper.Standings{DB: db, Collection: "videoAccounts"}
}

// eraseSize is the number of records that one page removes, each in its own transaction.
const eraseSize = 20

// EraseSome removes at most one page of an account's records and reports whether there are more.
// Calling it again resumes where the last call stopped.
func (s *Store) EraseSome(ctx context.Context, account string) (more bool, err error) {
	return s.Records.Erase(ctx, account, eraseSize)
}

// Remains reports whether the store still has any records for an account other than the tombstone.
func (s *Store) Remains(ctx context.Context, account string) (bool, error) {
	return s.Records.Remains(ctx, account)
}
