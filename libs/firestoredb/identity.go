package firestoredb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/api/iterator"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/outage"
)

// Format is the number of the format in which this build keeps records. It grows with
// every change after which older and newer builds cannot read each other's records.
// From 1.0 on there are rules for that (docs/versioning.md).
const Format = 1

// ErrFormat means that the database holds records of another format. [DB.Do] then refuses
// every call, so the records are neither read nor changed.
var ErrFormat = errors.New("the database was written by another version of Linkreel")

// identityDocument holds a database's id and the number of its format.
type identityDocument struct {
	ID     string `firestore:"id"`
	Format int    `firestore:"format"`
}

// firstContact is the context of [DB.Identity], which runs before all other calls. It
// hides two values of the call that happened to be first: the account, because Identity
// must not wait for that account's turn, and the mark of a call that only writes, because
// Identity also reads.
type firstContact struct{ context.Context }

type firstContactKey struct{}

func (firstContact) Value(key any) any {
	if key == (firstContactKey{}) {
		return true
	}
	return nil
}

// Identity returns a text that distinguishes this database from every other one: its name
// and a random id that was generated when it was first used. A backup that is restored
// under another name has the same id but not the same name. An empty database under the
// same name has the same name but not the same id.
//
// It fails with [ErrFormat] for a database of another format.
func (db *DB) Identity(ctx context.Context) (string, error) {
	name, id, err := db.identify(ctx)
	if err != nil {
		return "", err
	}
	return name + "#" + id, nil
}

// Installation returns the random id of [DB.Identity] alone: a text such as "db_x" that a
// restored copy of the database shares, whatever its name.
func (db *DB) Installation(ctx context.Context) (string, error) {
	_, id, err := db.identify(ctx)
	return id, err
}

func (db *DB) identify(ctx context.Context) (name, id string, err error) {
	ctx = firstContact{ctx}
	ref := db.Collection("installation").Doc("database")
	d, err := db.readIdentity(ctx, ref)
	if errors.Is(err, ErrNotFound) {
		if d, err = db.drawIdentity(ctx, ref); errors.Is(err, ErrNotFound) {
			err = nil // there are records, but no id
		}
	}
	if err != nil {
		return "", "", err
	}
	if d.Format != Format {
		return "", "", fmt.Errorf("%w: its records have the format %d, and this build needs %d. Nothing was read or changed. "+
			"Give this release a database and a bucket of its own, and import the links (docs/operations.md, Data of another version)",
			ErrFormat, d.Format, Format)
	}
	db.known.Store(true)
	name, _, _ = strings.Cut(ref.Path, "/documents/")
	return name, d.ID, nil
}

func (db *DB) readIdentity(ctx context.Context, ref *firestore.DocumentRef) (d identityDocument, err error) {
	err = db.Do(ctx, "read the database's id", func(ctx context.Context) error {
		snap, err := ref.Get(ctx)
		if err != nil {
			return err
		}
		if err := snap.DataTo(&d); err != nil {
			return fmt.Errorf("%w: %w", ErrFormat, err)
		}
		return nil
	})
	return d, err
}

// drawIdentity generates the id of an empty database. If several processes do so at once,
// all of them use the id of the first. The id is written before the first record.
func (db *DB) drawIdentity(ctx context.Context, ref *firestore.DocumentRef) (identityDocument, error) {
	err := db.Do(ctx, "create the database's id", func(ctx context.Context) error {
		_, err := db.Collections(ctx).Next()
		if !errors.Is(err, iterator.Done) {
			return err // another process was faster
		}
		_, err = ref.Create(ctx, identityDocument{ID: identity.NewID("db"), Format: Format})
		return err
	})
	if err != nil && !errors.Is(err, ErrExists) {
		return identityDocument{}, err
	}
	return db.readIdentity(ctx, ref)
}

// AwaitFormat returns once the database has answered. If the database has another format,
// it returns an error, which stops the service.
func (db *DB) AwaitFormat(ctx context.Context) error {
	for !db.known.Load() {
		_, err := db.Identity(ctx)
		if err == nil || errors.Is(err, ErrFormat) || !outage.Pause(ctx, time.Second) {
			return err
		}
	}
	return nil
}
