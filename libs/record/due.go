package record

import (
	"context"
	"errors"
	"hash/fnv"
	"time"

	"cloud.google.com/go/firestore"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/firestoredb"
)

// Buckets is into how many ranges the index of due times is split. Times rise, and one
// range of rising values takes some 500 writes a second. Whoever looks for what is due
// asks for each of them, so more would cost more where nothing is due.
const Buckets = 8

// Due is the field "due" of a document whose record waits for a time. A record that
// waits for nothing has none. Queries need the composite index due.bucket, due.at.
type Due struct {
	Bucket int       `firestore:"bucket"`
	At     time.Time `firestore:"at"`
}

// DueAt is the due field of the record with an id; nil for no time.
func DueAt(id string, at time.Time) *Due {
	if at.IsZero() {
		return nil
	}
	return &Due{bucketOf(id), at}
}

// Time is the time that a record waits for; zero for none.
func (d *Due) Time() time.Time {
	if d == nil {
		return time.Time{}
	}
	return d.At
}

func bucketOf(id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // a hash never fails
	return int(h.Sum32() % Buckets)
}

// Due lists records whose time has come, at most limit of each bucket, the longest due
// of each first; fields are what to read of them, none for all. A record that cannot be
// read is set aside for an hour, so that it hides nothing behind it; the error then says
// so, beside the records that can.
func (k *Kept[T]) Due(ctx context.Context, limit int, fields ...firestore.FieldPath) ([]*T, error) {
	found, broken := make([][]*T, Buckets), make([]error, Buckets)
	g, gctx := errgroup.WithContext(ctx)
	for b := range Buckets {
		g.Go(func() (err error) {
			found[b], broken[b], err = k.due(gctx, b, limit, fields)
			return err
		})
	}
	err := g.Wait()
	var due []*T
	for b := range Buckets {
		due, err = append(due, found[b]...), errors.Join(err, broken[b])
	}
	return due, err
}

func (k *Kept[T]) due(ctx context.Context, bucket, limit int, fields []firestore.FieldPath) (due []*T, aside, err error) {
	now := k.db.Now()
	q := k.db.Collection(k.k.Collection).Where("due.bucket", "==", bucket).Where("due.at", "<=", now).
		OrderBy("due.at", firestore.Asc).Limit(limit)
	if len(fields) > 0 {
		q = q.SelectPaths(fields...)
	}
	// Again for as long as some were set aside: they took places of the page.
	for {
		snaps, err := k.db.Query(ctx, "list due "+k.k.Collection, q)
		if err != nil {
			return nil, aside, err
		}
		due, broken := firestoredb.Sift(snaps, k.k.From)
		stuck := false
		for _, b := range broken {
			failed := k.db.SetAside(ctx, b, "due.at", now)
			stuck = stuck || failed != nil // the same page would come again
			aside = errors.Join(aside, b.Err, failed)
		}
		if len(broken) == 0 || len(snaps) < limit || stuck {
			return due, aside, nil
		}
	}
}

// PutOff sets when a record is due again, zero for never, unless it was changed since
// it was read: whoever did that has set the time for a state that they know and the
// caller does not.
func (k *Kept[T]) PutOff(ctx context.Context, id string, at, stored time.Time) error {
	due := any(firestore.Delete)
	if d := DueAt(id, at); d != nil {
		due = d
	}
	return k.UpdateStored(ctx, id, stored, firestore.Update{Path: "due", Value: due})
}

// UpdateStored writes fields of a record unless it was changed or removed since it was
// read. It is for what no event and no label has to do with.
func (k *Kept[T]) UpdateStored(ctx context.Context, id string, stored time.Time, updates ...firestore.Update) error {
	ref := k.db.Collection(k.k.Collection).Doc(id)
	return firestoredb.IgnoreMoved(k.db.Update(ctx, "put off "+k.k.Object, ref, updates, firestore.LastUpdateTime(stored)))
}
