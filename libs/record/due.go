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

// Buckets is the number of ranges into which the index of due times is split. Due times
// keep rising, and Firestore accepts only some 500 writes a second to one range of rising
// values. A search for due records queries every bucket, so more buckets would cost more
// when nothing is due.
const Buckets = 8

// Due is the field "due" of a document whose record waits for a time. Other records do
// not have it. Queries need the composite index due.bucket, due.at.
type Due struct {
	Bucket int       `firestore:"bucket"`
	At     time.Time `firestore:"at"`
}

// DueAt returns the due field for the record with this id, or nil for a zero time.
func DueAt(id string, at time.Time) *Due {
	if at.IsZero() {
		return nil
	}
	return &Due{bucketOf(id), at}
}

// Time returns the time that a record waits for, or zero if it waits for none.
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

// Scheduled finds the documents of a collection that wait for a time, in all buckets.
func Scheduled(collection *firestore.CollectionRef) firestore.Query {
	buckets := make([]int, Buckets)
	for b := range buckets {
		buckets[b] = b
	}
	return collection.Where("due.bucket", "in", buckets)
}

// DueIn finds the documents of a collection that are due at now, in all buckets, the one
// that has been due longest first.
func DueIn(collection *firestore.CollectionRef, now time.Time) firestore.Query {
	return Scheduled(collection).Where("due.at", "<=", now).OrderBy("due.at", firestore.Asc)
}

// Due lists the records that are due, at most limit of each bucket. Within a bucket, the
// record that has been due longest comes first. If fields is empty, all fields are read. A
// record that cannot be decoded is set aside for an hour, so that it does not hide others.
// The error then reports it, and the other records are still returned.
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
	// Query again while records are being set aside, because they took places on the
	// page.
	for {
		snaps, err := k.db.Query(ctx, "list due "+k.k.Collection, q)
		if err != nil {
			return nil, aside, err
		}
		due, broken := firestoredb.Sift(snaps, k.k.From)
		stuck := false
		for _, b := range broken {
			failed := k.db.SetAside(ctx, b, "due.at", now)
			stuck = stuck || failed != nil // the next query would return the same page
			aside = errors.Join(aside, b.Err, failed)
		}
		if len(broken) == 0 || len(snaps) < limit || stuck {
			return due, aside, nil
		}
	}
}

// PutOff sets when a record is due again. A zero time means never. PutOff does nothing if
// the record was changed since it was read: that change has set the time for a newer state,
// which the caller does not know.
func (k *Kept[T]) PutOff(ctx context.Context, id string, at, stored time.Time) error {
	due := any(firestore.Delete)
	if d := DueAt(id, at); d != nil {
		due = d
	}
	return k.UpdateStored(ctx, id, stored, firestore.Update{Path: "due", Value: due})
}

// UpdateStored writes fields of a record unless the record was changed or removed since
// it was read. It is for fields that affect neither events nor tags.
func (k *Kept[T]) UpdateStored(ctx context.Context, id string, stored time.Time, updates ...firestore.Update) error {
	ref := k.db.Collection(k.k.Collection).Doc(id)
	return firestoredb.IgnoreMoved(k.db.Update(ctx, "put off "+k.k.Object, ref, updates, firestore.LastUpdateTime(stored)))
}
