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

// Format is the version of this build's record format. It increases with every change that makes
// records from older and newer builds incompatible. docs/versioning.md has the rules that apply
// from release 1.0 onwards.
const Format = 1

// ErrFormat means that the database contains records in a different format. In that case, [DB.Do]
// rejects every call, so the records are neither read nor changed.
var ErrFormat = errors.New("the database was written by another version of Linkreel")

// identityDocument holds a database's id and format number.
type identityDocument struct {
	ID     string `firestore:"id"`
	Format int    `firestore:"format"`
}

// firstContact is the context of [DB.Identity], which runs before all other calls. It hides two
// values that the context of the first call may have: the account, because Identity must not wait
// for that account's turn, and the mark set by [DB.Commit], because Identity also reads.
type firstContact struct{ context.Context }

type firstContactKey struct{}

func (firstContact) Value(key any) any {
	if key == (firstContactKey{}) {
		return true
	}
	return nil
}

// Identity returns a string that is unique among all databases that exist at the same time. It
// consists of the database's name and a random id that was generated when the database was first
// used. A backup that is restored under a different name has the same id as the original. A new
// empty database with the same name has a different id. If a backup replaces a database with the
// same name, the identity does not change. To tell such restores apart, use the ID in package
// restored's record.
//
// It fails with [ErrFormat] for a database in a different format.
func (db *DB) Identity(ctx context.Context) (string, error) {
	name, id, err := db.identify(ctx, db.drawIdentity)
	if err != nil {
		return "", err
	}
	return name + "#" + id, nil
}

// Peek is [DB.Identity] for a program that only reads: it writes nothing. An empty database's
// identity is "".
func (db *DB) Peek(ctx context.Context) (string, error) {
	name, id, err := db.identify(ctx, db.nothingStored)
	if errors.Is(err, errEmpty) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return name + "#" + id, nil
}

// errEmpty means that a database has no documents.
var errEmpty = errors.New("the database is empty")

// nothingStored returns [errEmpty] if the database is empty, the identity if another process has
// just written it, or [ErrNotFound] if there are records but no identity.
func (db *DB) nothingStored(ctx context.Context, ref *firestore.DocumentRef) (identityDocument, error) {
	err := db.Do(ctx, "look for records", func(ctx context.Context) error {
		_, err := db.Collections(ctx).Next()
		if errors.Is(err, iterator.Done) {
			return errEmpty
		}
		return err
	})
	if err != nil {
		return identityDocument{}, err
	}
	return db.readIdentity(ctx, ref)
}

// Installation returns only the random id of [DB.Identity], such as "db_x". A restored copy of the
// database has the same id, even under a different name.
func (db *DB) Installation(ctx context.Context) (string, error) {
	_, id, err := db.identify(ctx, db.drawIdentity)
	return id, err
}

// identify reads the identity. If there is none, it calls absent.
func (db *DB) identify(ctx context.Context, absent func(context.Context, *firestore.DocumentRef) (identityDocument, error)) (name, id string, err error) {
	ctx = firstContact{ctx}
	ref := db.Collection("installation").Doc("database")
	d, err := db.readIdentity(ctx, ref)
	if errors.Is(err, ErrNotFound) {
		if d, err = absent(ctx, ref); errors.Is(err, ErrNotFound) {
			err = nil // the database has records but no id
		}
	}
	if err != nil {
		return "", "", err
	}
	if d.Format != Format {
		return "", "", fmt.Errorf("%w: its records are in format %d, and this build needs format %d. Nothing was read or changed. "+
			"Give this release its own database and bucket, and import the links (docs/operations.md, Data of another version)",
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

// drawIdentity generates the id for an empty database. If several processes do this at the same
// time, all of them use the id that was written first. The id is written before the first record.
func (db *DB) drawIdentity(ctx context.Context, ref *firestore.DocumentRef) (identityDocument, error) {
	err := db.Do(ctx, "create the database's id", func(ctx context.Context) error {
		_, err := db.Collections(ctx).Next()
		if !errors.Is(err, iterator.Done) {
			return err // another process got there first
		}
		_, err = ref.Create(ctx, identityDocument{ID: identity.NewID("db"), Format: Format})
		return err
	})
	if err != nil && !errors.Is(err, ErrExists) {
		return identityDocument{}, err
	}
	return db.readIdentity(ctx, ref)
}

// AwaitFormat waits until the database has answered. If the database has a different format,
// AwaitFormat returns an error, which stops the service.
func (db *DB) AwaitFormat(ctx context.Context) error {
	for !db.known.Load() {
		_, err := db.Identity(ctx)
		if err == nil || errors.Is(err, ErrFormat) || !outage.Pause(ctx, time.Second) {
			return err
		}
	}
	return nil
}
