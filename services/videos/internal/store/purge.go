package store

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

type purgeDocument struct {
	AccountID string    `firestore:"accountId,omitempty"`
	JobIDs    []string  `firestore:"jobIds,omitempty"`
	Sessions  []string  `firestore:"sessions,omitempty"`
	Since     time.Time `firestore:"since"`
	Bucket    int       `firestore:"bucket"`
	DueAt     time.Time `firestore:"dueAt"`
	Until     time.Time `firestore:"until"`
	Late      time.Time `firestore:"late"`

	// JobID and Next are what releases up to 0.3 wrote in place of JobIDs and DueAt.
	JobID string     `firestore:"jobId,omitempty"`
	Next  *time.Time `firestore:"next,omitempty"`
}

// DuePurges lists tasks whose time has come, at most a page of each bucket. A task
// that cannot be read is set aside for an hour, so that it keeps nothing behind it
// from being seen; the error then tells of it, beside the others.
func (s *Store) DuePurges(ctx context.Context) ([]video.Purge, error) {
	now := s.now()
	// Tasks of an older release have no bucket; they get one when they are put off.
	queries := []firestore.Query{s.db.Collection(purges).Where("next", "<=", now).OrderBy("next", firestore.Asc).Limit(pageSize)}
	for b := range buckets {
		queries = append(queries, s.db.Collection(purges).Where("bucket", "==", b).Where("dueAt", "<=", now).OrderBy("dueAt", firestore.Asc).Limit(pageSize))
	}
	var due []video.Purge
	var errs []error
	for _, q := range queries {
		found, broken, err := s.findPurges(ctx, "list purges", q)
		due, errs = append(due, found...), append(errs, err)
		for _, snap := range broken {
			var d purgeDocument
			errs = append(errs, shape(snap.Ref.ID, snap.DataTo(&d)), s.setPurgeAside(ctx, snap, now.Add(time.Hour)))
		}
	}
	return due, errors.Join(errs...)
}

// findPurges lists tasks, and apart from them those that cannot be read.
func (s *Store) findPurges(ctx context.Context, what string, q firestore.Query) (found []video.Purge, broken []*firestore.DocumentSnapshot, err error) {
	snaps, err := s.snapshots(ctx, what, q)
	for _, snap := range snaps {
		var d purgeDocument
		if err := snap.DataTo(&d); err != nil {
			broken = append(broken, snap)
			continue
		}
		found = append(found, toPurge(snap, d))
	}
	return found, broken, err
}

func (s *Store) setPurgeAside(ctx context.Context, snap *firestore.DocumentSnapshot, until time.Time) error {
	field := "dueAt"
	if _, err := snap.DataAt("next"); err == nil {
		field = "next" // of an older release, which has no other
	}
	err := s.db.Do(ctx, "set purge aside", func(ctx context.Context) error {
		_, err := snap.Ref.Update(ctx, []firestore.Update{{Path: field, Value: until}}, firestore.LastUpdateTime(snap.UpdateTime))
		return err
	})
	if errors.Is(err, firestoredb.ErrStale) || errors.Is(err, firestoredb.ErrNotFound) {
		return nil
	}
	return err
}

// salvagedPurge is a task in place of one that cannot be read. It finds the video's
// objects all the same, since their names begin with the task's.
func salvagedPurge(snap *firestore.DocumentSnapshot, account string, now time.Time) video.Purge {
	p := video.Purge{Video: video.ID(snap.Ref.ID), Stored: snap.UpdateTime, Account: account, Late: salvagedTime(snap, "late", now.Add(video.LongestAddress))}
	p.JobIDs, p.Sessions = texts(snap, "jobIds"), texts(snap, "sessions")
	return p
}

// salvagedTime is a time in a document that cannot be read whole, else the one that
// is safe to assume.
func salvagedTime(snap *firestore.DocumentSnapshot, field string, otherwise time.Time) time.Time {
	if value, err := snap.DataAt(field); err == nil {
		if at, ok := value.(time.Time); ok {
			return at
		}
	}
	return otherwise
}

// texts are the texts in a field of a document that cannot be read whole.
func texts(snap *firestore.DocumentSnapshot, field string) (found []string) {
	value, _ := snap.DataAt(field)
	list, _ := value.([]any)
	for _, v := range list {
		if text, ok := v.(string); ok {
			found = append(found, text)
		}
	}
	return found
}

// PutOffPurge sets when a task is due again, unless it was changed or ended since it
// was read: a replica that slept must not bring back a task that names an account which
// was erased meanwhile.
func (s *Store) PutOffPurge(ctx context.Context, p video.Purge) error {
	err := s.db.Do(ctx, "put purge off", func(ctx context.Context) error {
		_, err := s.purge(p.Video).Update(ctx, updatesOf(fromPurge(p)), firestore.LastUpdateTime(p.Stored))
		return err
	})
	if errors.Is(err, firestoredb.ErrStale) || errors.Is(err, firestoredb.ErrNotFound) {
		return nil
	}
	return err
}

func updatesOf(d purgeDocument) []firestore.Update {
	optional := func(v any, there bool) any {
		if there {
			return v
		}
		return firestore.Delete
	}
	return []firestore.Update{
		{Path: "accountId", Value: optional(d.AccountID, d.AccountID != "")},
		{Path: "jobIds", Value: optional(d.JobIDs, len(d.JobIDs) > 0)}, {Path: "sessions", Value: optional(d.Sessions, len(d.Sessions) > 0)},
		{Path: "since", Value: d.Since}, {Path: "bucket", Value: d.Bucket}, {Path: "dueAt", Value: d.DueAt}, {Path: "until", Value: d.Until}, {Path: "late", Value: d.Late},
		{Path: "jobId", Value: firestore.Delete}, {Path: "next", Value: firestore.Delete},
	}
}

// Deleted reports whether id was a video that was deleted, as long as anybody may
// still write to its objects.
func (s *Store) Deleted(ctx context.Context, id video.ID) (bool, error) {
	if !validID(string(id)) {
		return false, nil
	}
	return s.exists(ctx, s.purge(id))
}

// Purged removes a task that is done for good.
func (s *Store) Purged(ctx context.Context, id video.ID) error {
	err := s.db.Do(ctx, "end purge", func(ctx context.Context) error {
		_, err := s.purge(id).Delete(ctx)
		return err
	})
	if errors.Is(err, firestoredb.ErrNotFound) {
		return nil
	}
	return err
}

func fromPurge(p video.Purge) purgeDocument {
	return purgeDocument{AccountID: p.Account, JobIDs: p.JobIDs, Sessions: p.Sessions, Since: p.Since, Bucket: bucketOf(p.Video), DueAt: p.Due, Until: p.Until, Late: p.Late}
}

func toPurge(snap *firestore.DocumentSnapshot, d purgeDocument) video.Purge {
	p := video.Purge{Video: video.ID(snap.Ref.ID), Stored: snap.UpdateTime, Account: d.AccountID, JobIDs: d.JobIDs, Sessions: d.Sessions, Since: d.Since, Due: d.DueAt, Until: d.Until, Late: d.Late}
	if d.JobID != "" {
		p.JobIDs = append(p.JobIDs, d.JobID)
	}
	return p
}

func (s *Store) purge(id video.ID) *firestore.DocumentRef {
	return s.db.Collection(purges).Doc(string(id))
}
