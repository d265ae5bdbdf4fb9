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
	Since     time.Time `firestore:"since"`
	Bucket    int       `firestore:"bucket"`
	DueAt     time.Time `firestore:"dueAt"`
	Until     time.Time `firestore:"until"`

	// JobID and Next are what releases up to 0.3 wrote in place of JobIDs and DueAt.
	JobID string     `firestore:"jobId,omitempty"`
	Next  *time.Time `firestore:"next,omitempty"`
}

// DuePurges lists tasks whose time has come, at most a page of each bucket.
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
		found, err := s.findPurges(ctx, "list purges", q)
		due, errs = append(due, found...), append(errs, err)
	}
	return due, errors.Join(errs...)
}

func (s *Store) findPurges(ctx context.Context, what string, q firestore.Query) ([]video.Purge, error) {
	snaps, err := s.snapshots(ctx, what, q)
	if err != nil {
		return nil, err
	}
	found := make([]video.Purge, 0, len(snaps))
	for _, snap := range snaps {
		var d purgeDocument
		if err := snap.DataTo(&d); err != nil {
			return nil, shape(snap.Ref.ID, err)
		}
		found = append(found, toPurge(video.ID(snap.Ref.ID), d))
	}
	return found, nil
}

// PutOffPurge sets when a task is due again.
func (s *Store) PutOffPurge(ctx context.Context, p video.Purge) error {
	return s.db.Do(ctx, "put purge off", func(ctx context.Context) error {
		_, err := s.purge(p.Video).Set(ctx, fromPurge(p))
		return err
	})
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
	return purgeDocument{AccountID: p.Account, JobIDs: p.JobIDs, Since: p.Since, Bucket: bucketOf(p.Video), DueAt: p.Due, Until: p.Until}
}

func toPurge(id video.ID, d purgeDocument) video.Purge {
	p := video.Purge{Video: id, Account: d.AccountID, JobIDs: d.JobIDs, Since: d.Since, Due: d.DueAt, Until: d.Until}
	if d.JobID != "" {
		p.JobIDs = append(p.JobIDs, d.JobID)
	}
	return p
}

func (s *Store) purge(id video.ID) *firestore.DocumentRef {
	return s.db.Collection(purges).Doc(string(id))
}
