package store

import (
	"context"
	"errors"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// Purge is the task of removing what storage has of a deleted video. It is done
// again and again until Until, since an upload that was under way, or a worker
// that had not heard yet, may still write.
type Purge struct {
	Video video.ID
	JobID string // of the job that may run
	Since time.Time
	Next  time.Time
	Until time.Time
}

type purgeDocument struct {
	JobID string    `firestore:"jobId,omitempty"`
	Since time.Time `firestore:"since"`
	Next  time.Time `firestore:"next"`
	Until time.Time `firestore:"until"`
}

// sessionLife is how long storage keeps a resumable session open.
const sessionLife = 7 * 24 * time.Hour

// purgeEnd is when nothing can be uploaded for v any more.
func purgeEnd(v *video.Video, now time.Time) time.Time {
	end := now.Add(time.Hour)
	if last := v.Upload.ExpiresAt.Add(uploadGrace); last.After(end) {
		end = last
	}
	if v.Upload.ResumableURL != "" {
		end = now.Add(sessionLife)
	}
	return end
}

// DuePurges lists tasks whose time has come.
func (s *Store) DuePurges(ctx context.Context) ([]Purge, error) {
	var due []Purge
	err := s.db.Do(ctx, "list purges", func(ctx context.Context) error {
		snaps, err := s.db.Collection(purges).Where("next", "<=", s.now()).OrderBy("next", firestore.Asc).Limit(pageSize).Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		due = due[:0]
		for _, snap := range snaps {
			var d purgeDocument
			if err := snap.DataTo(&d); err != nil {
				return shape(snap.Ref.ID, err)
			}
			due = append(due, Purge{Video: video.ID(snap.Ref.ID), JobID: d.JobID, Since: d.Since, Next: d.Next, Until: d.Until})
		}
		return nil
	})
	return due, err
}

// Repurge sets when a task is due again.
func (s *Store) Repurge(ctx context.Context, p Purge) error {
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

func fromPurge(p Purge) purgeDocument {
	return purgeDocument{JobID: p.JobID, Since: p.Since, Next: p.Next, Until: p.Until}
}

func (s *Store) purge(id video.ID) *firestore.DocumentRef {
	return s.db.Collection(purges).Doc(string(id))
}
