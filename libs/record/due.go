package record

import (
	"context"
	"errors"
	"hash/fnv"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
)

// Buckets is the number of ranges into which the index of due times is split. Due times keep
// increasing, and Firestore accepts only about 500 writes a second to one range of increasing
// values. One query searches all buckets, and Firestore allows at most 30 values in a comparison.
const Buckets = 8

// AllBuckets returns the numbers of all buckets, for a query with "in".
func AllBuckets() []int {
	all := make([]int, Buckets)
	for b := range all {
		all[b] = b
	}
	return all
}

// Due is the "due" field in the document for a record that must be processed at a given time. Other
// records do not have it. Queries need the composite index due.bucket, due.at.
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

// Time returns a record's due time, or zero if it has none.
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

// DueIn returns the query for a collection's documents that are due at now, in all buckets,
// sorted by due time.
func DueIn(collection *firestore.CollectionRef, now time.Time) firestore.Query {
	return collection.Where("due.bucket", "in", AllBuckets()).Where("due.at", "<=", now).OrderBy("due.at", firestore.Asc)
}

// duePage is the maximum number of records that one query in Due reads.
const duePage = 1000

// Due returns up to limit due records, sorted by due time. If fields is empty, all fields are read;
// otherwise they must include "due". A record that cannot be decoded is set aside for an hour so
// that it does not block other records. In that case, the error reports it, and the other records
// are still returned.
//
// One query searches all buckets because Firestore charges for each query, and usually nothing is
// due.
func (k *Kept[T]) Due(ctx context.Context, limit int, fields ...firestore.FieldPath) (due []*T, err error) {
	now := k.db.Now()
	q := DueIn(k.db.Collection(k.k.Collection), now).OrderBy(firestore.DocumentID, firestore.Asc)
	if len(fields) > 0 {
		q = q.SelectPaths(fields...)
	}
	for next := q; len(due) < limit; {
		size := min(limit-len(due), duePage)
		snaps, failed := k.db.Query(ctx, "list due "+k.k.Collection, next.Limit(size))
		if failed != nil {
			return due, errors.Join(err, failed)
		}
		found, broken := firestoredb.Sift(snaps, k.k.From)
		due = append(due, found...)
		for _, b := range broken {
			err = errors.Join(err, b.Err, k.db.SetAside(ctx, b, "due.at", now))
		}
		if len(snaps) < size {
			break
		}
		last := snaps[size-1]
		at, missing := last.DataAt("due.at")
		if missing != nil {
			return due, errors.Join(err, missing)
		}
		next = q.StartAfter(at, last.Ref.ID)
	}
	return due, err
}

// PutOff sets a record's next due time. A zero time means never. PutOff has no effect if the record
// has changed since it was read, because that change has set the due time for a newer state, which
// the caller does not know about.
func (k *Kept[T]) PutOff(ctx context.Context, id string, at, stored time.Time) error {
	due := any(firestore.Delete)
	if d := DueAt(id, at); d != nil {
		due = d
	}
	return k.UpdateStored(ctx, id, stored, firestore.Update{Path: "due", Value: due})
}

// UpdateStored writes fields in a record unless the record has been changed or removed since it was
// read. Use it only for fields that affect neither events nor tags.
func (k *Kept[T]) UpdateStored(ctx context.Context, id string, stored time.Time, updates ...firestore.Update) error {
	ref := k.db.Collection(k.k.Collection).Doc(id)
	return firestoredb.IgnoreMoved(k.db.Update(ctx, "postpone "+k.k.Object, ref, updates, firestore.LastUpdateTime(stored)))
}
