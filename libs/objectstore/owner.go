package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// OwnerObject names the database whose records the bucket's objects belong to.
const OwnerObject = "linkreel/owner"

// ErrForeign says that the bucket belongs to another database. Whatever is in it is then unknown to ours, and nothing
// of it is ours to remove.
var ErrForeign = errors.New("the bucket belongs to another database")

// maxOwner bounds what is read of an owner's name.
const maxOwner = 4 << 10

// Owner reads which database the bucket belongs to, "" when it belongs to none yet. One whose object says nothing, as
// after a write by hand that went wrong, may be anybody's, so it is foreign to all.
func (s *Store) Owner(ctx context.Context) (string, error) {
	o, err := s.Stat(ctx, OwnerObject)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if o.Size == 0 || o.Size > maxOwner {
		return "", fmt.Errorf("%w, or nobody's: %s of bucket %s has %d bytes, which is no name of a database",
			ErrForeign, OwnerObject, s.bucketName, o.Size)
	}
	var name bytes.Buffer
	if _, err := s.Download(ctx, OwnerObject, o.Generation, &name); err != nil {
		return "", err
	}
	return name.String(), nil
}

// Claim makes database the bucket's owner if it has none, and answers ErrForeign when it has another. Of several that
// claim a bucket at once one succeeds.
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
		return fmt.Errorf("%w: bucket %s is that of %s, and this is %s", ErrForeign, s.bucketName, owner, database)
	}
	return nil
}
