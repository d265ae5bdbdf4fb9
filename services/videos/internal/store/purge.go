package store

import (
	"context"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

type purgeDocument struct {
	AccountID string      `firestore:"accountId,omitempty"`
	JobIDs    []string    `firestore:"jobIds,omitempty"`
	Sessions  []string    `firestore:"sessions,omitempty"`
	Since     time.Time   `firestore:"since"`
	Due       *record.Due `firestore:"due"`
	Until     time.Time   `firestore:"until"`
	Late      time.Time   `firestore:"late"`
}

func fromPurge(p *video.Purge) any {
	return purgeDocument{
		AccountID: p.Account, JobIDs: p.JobIDs, Sessions: p.Sessions, Since: p.Since,
		Due: record.DueAt(string(p.Video), p.Due), Until: p.Until, Late: p.Late,
	}
}

func toPurge(snap firestoredb.Snap, d *purgeDocument) *video.Purge {
	return &video.Purge{
		Video: video.ID(snap.Ref.ID), Stored: snap.UpdateTime, Account: d.AccountID, JobIDs: d.JobIDs, Sessions: d.Sessions,
		Since: d.Since, Due: d.Due.Time(), Until: d.Until, Late: d.Late,
	}
}

// DuePurges lists the tasks that are due. See [record.Kept.Due].
func (s *Store) DuePurges(ctx context.Context) ([]*video.Purge, error) {
	return s.purges.Due(ctx, dueAtOnce)
}

// PutOffPurge sets when a task is due again, unless the task was changed or has ended since it was
// read. Otherwise, a replica that was suspended could restore a task that refers to an account that
// has since been erased.
func (s *Store) PutOffPurge(ctx context.Context, p *video.Purge) error {
	optional := func(path string, v any, there bool) firestore.Update {
		if !there {
			v = firestore.Delete
		}
		return firestore.Update{Path: path, Value: v}
	}
	return s.purges.UpdateStored(ctx, string(p.Video), p.Stored,
		optional("accountId", p.Account, p.Account != ""),
		optional("jobIds", p.JobIDs, len(p.JobIDs) > 0), optional("sessions", p.Sessions, len(p.Sessions) > 0),
		firestore.Update{Path: "since", Value: p.Since}, firestore.Update{Path: "due", Value: record.DueAt(string(p.Video), p.Due)},
		firestore.Update{Path: "until", Value: p.Until}, firestore.Update{Path: "late", Value: p.Late})
}

// Deleted reports whether id is a deleted video. The result is reliable for as long as anyone can
// still write to the video's objects.
func (s *Store) Deleted(ctx context.Context, id video.ID) (bool, error) {
	return s.db.Exists(ctx, "look up purge", s.purges.Ref(string(id)))
}

// Purged removes a completed task.
func (s *Store) Purged(ctx context.Context, id video.ID) error {
	return s.db.DeleteAll(ctx, "end purge", s.purges.Ref(string(id)))
}
