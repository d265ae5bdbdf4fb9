package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// OwnerObject is the object that contains the name of the database that owns the bucket.
const OwnerObject = "linkreel/owner"

// ErrForeign means that the bucket belongs to another database. This service's database has no
// record of its objects, so the service must not delete any of them.
var ErrForeign = errors.New("the bucket belongs to another database")

// maxOwner is the maximum length of an owner's name.
const maxOwner = 4 << 10

// Owner returns the name of the database that owns the bucket, or "" if the bucket has no owner
// yet. If [OwnerObject] does not contain a valid name, for example after a bad edit, the owner is
// unknown and the bucket counts as foreign.
func (s *Store) Owner(ctx context.Context) (string, error) {
	o, err := s.Stat(ctx, OwnerObject)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if o.Size == 0 || o.Size > maxOwner {
		return "", fmt.Errorf("%w, or its owner is unknown: the object %s in bucket %s is %d bytes long, so it does not contain the name of a database",
			ErrForeign, OwnerObject, s.bucketName, o.Size)
	}
	var name bytes.Buffer
	if _, err := s.Download(ctx, OwnerObject, o.Generation, &name); err != nil {
		return "", err
	}
	return name.String(), nil
}

// Claim makes database the bucket's owner if the bucket has no owner. It returns ErrForeign if the
// bucket has a different owner. If several databases claim a bucket at the same time, only one
// succeeds.
func (s *Store) Claim(ctx context.Context, database string) error {
	owner, err := s.Owner(ctx)
	if err == nil && owner == "" {
		absent := int64(0)
		_, err = s.Upload(ctx, OwnerObject, bytes.NewReader([]byte(database)), UploadOptions{ContentType: "text/plain", IfGeneration: &absent})
		if errors.Is(err, ErrStale) {
			owner, err = s.Owner(ctx)
		} else {
			owner = database
		}
	}
	if err != nil {
		return fmt.Errorf("claim the bucket: %w", err)
	}
	if owner != database {
		return fmt.Errorf("%w: bucket %s belongs to %s, and this database is %s", ErrForeign, s.bucketName, owner, database)
	}
	return nil
}
