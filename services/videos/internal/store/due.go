package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/firestore"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// pageSize bounds one read of a sweep.
const pageSize = 300

// sweepFields are what a sweep needs to decide on a video's next step. Decisions
// themselves are made on the whole record, in a transaction.
var sweepFields = []firestore.FieldPath{
	{"accountId"}, {"status"}, {"uploadObject"}, {"uploadExpiresAt"}, {"resumableUrl"}, {"recording"}, {"received"}, {"receivedAt"}, {"endedSessions"}, {"storageLimit"}, {"sourceGeneration"}, {"sourceSize"}, {"jobId"}, {"mediaVersion"}, {"media", "final"},
	{"still"}, {"createdAt"}, {"updatedAt"}, {"readyAt"}, {"publishedAt"}, {"dueAt"},
}

// Due lists videos whose time has come, the longest due first, at most a page of
// each bucket. A record that cannot be read is set aside for an hour, so that it
// keeps nothing behind it from being seen; err then tells of it, beside the others.
func (s *Store) Due(ctx context.Context) (due []*video.Video, err error) {
	now := s.now()
	found, broken := make([][]*video.Video, buckets), make([]error, buckets)
	g, gctx := errgroup.WithContext(ctx)
	for b := range buckets {
		g.Go(func() error {
			q := s.db.Collection(videos).Where("dueBucket", "==", b).Where("dueAt", "<=", now).
				OrderBy("dueAt", firestore.Asc).Limit(pageSize).SelectPaths(sweepFields...)
			snaps, err := s.snapshots(gctx, "list due videos", q)
			if err != nil {
				return err
			}
			for _, snap := range snaps {
				v, err := toVideo(snap)
				if err != nil {
					broken[b] = errors.Join(broken[b], err, s.setDue(gctx, snap.Ref, now.Add(time.Hour), snap.UpdateTime))
					continue
				}
				found[b] = append(found[b], v)
			}
			return nil
		})
	}
	err = g.Wait()
	for b := range buckets {
		due, err = append(due, found[b]...), errors.Join(err, broken[b])
	}
	return due, err
}

// PutOff sets when v is due again, unless somebody has changed it since it was
// read: then they have set that, for a state which they know and the caller does not.
func (s *Store) PutOff(ctx context.Context, v *video.Video) error {
	return s.setDue(ctx, s.ref(v.ID), v.DueAt, v.Stored)
}

func (s *Store) setDue(ctx context.Context, ref *firestore.DocumentRef, at, stored time.Time) error {
	bucket, due := any(bucketOf(video.ID(ref.ID))), any(at)
	if at.IsZero() {
		bucket, due = firestore.Delete, firestore.Delete
	}
	err := s.db.Do(ctx, "put video off", func(ctx context.Context) error {
		_, err := ref.Update(ctx, []firestore.Update{{Path: "dueBucket", Value: bucket}, {Path: "dueAt", Value: due}}, firestore.LastUpdateTime(stored))
		return err
	})
	if errors.Is(err, firestoredb.ErrStale) || errors.Is(err, firestoredb.ErrNotFound) {
		return nil
	}
	return err
}

// DueOfOld lists records of releases up to 0.3 that wait for something. They have
// no due time until they are written again, which the caller does.
func (s *Store) DueOfOld(ctx context.Context) ([]*video.Video, error) {
	inWork, err := s.find(ctx, "list old videos in work", s.db.Collection(videos).Where("inWork", "==", true).Limit(pageSize).SelectPaths(sweepFields...))
	if err != nil {
		return nil, err
	}
	waiting, err := s.find(ctx, "list old waiting videos", s.db.Collection(videos).Where("watchUntil", ">", s.now()).
		OrderBy("watchUntil", firestore.Asc).Limit(pageSize).SelectPaths(sweepFields...))
	return append(inWork, waiting...), err
}

// Backfill hands records that an older release wrote to fix, a page at a time; it
// reports whether there may be more. Where it stands is stored, so that it goes on
// after a restart. A pass that changed nothing is the last one: while old replicas
// still run, they write old records behind it, which the next pass finds.
func (s *Store) Backfill(ctx context.Context, fix func(context.Context, video.ID) error) (more bool, err error) {
	var at backfillDocument
	ref := s.db.Collection(backfills).Doc("terms")
	err = s.db.Do(ctx, "get backfill", func(ctx context.Context) error {
		snap, err := ref.Get(ctx)
		if err != nil {
			return err
		}
		return snap.DataTo(&at)
	})
	if err != nil && !errors.Is(err, firestoredb.ErrNotFound) || at.Done {
		return false, err
	}
	q := s.db.Collection(videos).OrderBy(firestore.DocumentID, firestore.Asc).Limit(pageSize).SelectPaths(firestore.FieldPath{"terms"})
	if at.After != "" {
		q = q.StartAfter(at.After)
	}
	snaps, err := s.snapshots(ctx, "list videos to fill in", q)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, snap := range snaps {
		at.After = snap.Ref.ID
		if _, err := snap.DataAt("terms"); err == nil {
			continue
		}
		// Before it is fixed: a record that fails makes another pass necessary too.
		at.Fixed++
		if err := fix(ctx, video.ID(snap.Ref.ID)); err != nil {
			errs = append(errs, fmt.Errorf("fill in video %s: %w", snap.Ref.ID, err))
		}
	}
	if len(snaps) < pageSize {
		at = backfillDocument{Done: at.Fixed == 0 && len(errs) == 0}
	}
	errs = append(errs, s.db.Do(ctx, "put backfill", func(ctx context.Context) error {
		_, err := ref.Set(ctx, at)
		return err
	}))
	return len(snaps) == pageSize, errors.Join(errs...)
}

type backfillDocument struct {
	After string `firestore:"after"`
	Fixed int    `firestore:"fixed"` // in this pass
	Done  bool   `firestore:"done"`
}

func (s *Store) snapshots(ctx context.Context, what string, q firestore.Query) (snaps []*firestore.DocumentSnapshot, err error) {
	err = s.db.Do(ctx, what, func(ctx context.Context) error {
		snaps, err = q.Documents(ctx).GetAll()
		return err
	})
	return snaps, err
}
