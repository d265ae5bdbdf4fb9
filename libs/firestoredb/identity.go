package firestoredb

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/identity"
)

// identityDocument is where a database keeps its number.
type identityDocument struct {
	ID        string    `firestore:"id"`
	CreatedAt time.Time `firestore:"createdAt"`
}

// Identity tells this database apart from every other one. It is the database's
// name and a number that was drawn when it was first used: a backup that is restored
// under another name has the number but not the name, an empty database under the
// same name has the name but not the number.
func (db *DB) Identity(ctx context.Context) (string, error) {
	ref := db.Collection("installation").Doc("database")
	var d identityDocument
	read := func(ctx context.Context) error {
		snap, err := ref.Get(ctx)
		if err == nil {
			err = snap.DataTo(&d)
		}
		return err
	}
	err := db.Do(ctx, "read the database's number", read)
	if errors.Is(err, ErrNotFound) {
		drawn := identityDocument{ID: identity.NewID("db"), CreatedAt: time.Now().UTC()}
		err = db.Do(ctx, "draw the database's number", func(ctx context.Context) error {
			_, err := ref.Create(ctx, drawn)
			return err
		})
		// Of several processes that draw at once one is first; all of them take its number.
		if err == nil || errors.Is(err, ErrExists) {
			err = db.Do(ctx, "read the database's number", read)
		}
	}
	if err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(ref.Path, "/documents/")
	return name + "#" + d.ID, nil
}
