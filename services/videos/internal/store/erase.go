package store

import (
	"context"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// eraseVideos removes some of an account's videos.
func (s *Store) eraseVideos(ctx context.Context, account string, limit int) (int, error) {
	mine, err := s.db.Find(ctx, "list videos to erase", s.videos.Of(account).Limit(limit))
	if err != nil {
		return 0, err
	}
	for _, ref := range mine {
		if err := s.Erase(ctx, video.ID(ref.ID)); err != nil {
			return 0, err
		}
	}
	return len(mine), nil
}

// Erase removes a video from an account that is being erased, even if its record is unreadable. It
// does not write an event because the account has no receivers left. The slug stays reserved for a
// while, without any reference to the account.
func (s *Store) Erase(ctx context.Context, id video.ID) error {
	return s.db.Tx(ctx, "erase video", func(tx *record.Tx) error {
		ref, now := s.videos.Ref(string(id)), s.db.Now()
		snaps, err := tx.GetAll(ref)
		// The record is absent if its owner deleted it or another replica has just erased it.
		if err != nil || snaps[0] == nil {
			return err
		}
		v, err := firestoredb.Reader(toVideo)(snaps[0])
		if err != nil {
			// Erase the record anyway. The erasure's other pages remove everything that salvaged
			// does not find.
			v = salvaged(snaps[0], now)
		}
		tx.Delete(ref)
		if v.ExternalID != "" {
			tx.Delete(s.externalID(v.AccountID, v.ExternalID))
		}
		if slug := s.slug(v.Slug); slug != nil {
			tx.Set(slug, heldSlug(now))
		}
		p := video.PurgeOf(v, true, now)
		tx.Set(s.purges.Ref(string(id)), fromPurge(&p))
		return nil
	})
}

// holdSlugs converts up to limit slugs of an account's deleted videos to held slugs. A held slug
// no longer refers to the account, so [Store.Remains] does not count it.
func (s *Store) holdSlugs(ctx context.Context, account string, limit int) (int, error) {
	// The erasure repeats this until no slugs are left, so it may be interrupted after any commit.
	held, err := s.db.Find(ctx, "list slugs to hold", s.db.Collection(slugs).Where("accountId", "==", account).Limit(limit))
	if err != nil {
		return 0, err
	}
	return len(held), s.db.Commit(ctx, "hold slugs", func(tx *record.Tx) error {
		for _, ref := range held {
			tx.Set(ref, heldSlug(s.db.Now()))
		}
		return nil
	})
}

// shortenPurges makes some of an account's purge tasks end soon. Otherwise, they could remain for
// days.
func (s *Store) shortenPurges(ctx context.Context, account string, limit int) (n int, err error) {
	now := s.db.Now()
	end := video.ErasedBy(now)
	mine := s.purges.Of(account)
	for what, q := range map[string]firestore.Query{
		// A task that ends sooner is left unchanged because a task that is extended in each round
		// would never end. The query does not return shortened tasks again, so the next call finds
		// others.
		"list purges to shorten": mine.Where("until", ">", end).OrderBy("until", firestore.Asc).Limit(limit),
		// Otherwise, a task whose end time cannot be read would never be removed. This query
		// reaches it once the readable tasks before it have ended.
		"list unreadable purges": mine.Limit(limit),
	} {
		snaps, err := s.db.Query(ctx, what, q)
		if err != nil {
			return n, err
		}
		tasks, broken := firestoredb.Sift(snaps, firestoredb.Reader(toPurge))
		for _, b := range broken {
			tasks = append(tasks, salvagedPurge(b.Snap, account, now))
		}
		for _, p := range tasks {
			if p.Until.After(end) || p.Until.IsZero() {
				p.Until, p.Since, p.Due = end, now, now
				if err := s.PutOffPurge(ctx, p); err != nil {
					return n, err
				}
				n++
			}
		}
	}
	return min(n, limit), nil
}

// salvaged reads as many as it can of the fields that an erasure needs from an unreadable record.
func salvaged(snap firestoredb.Snap, now time.Time) *video.Video {
	return &video.Video{
		ID: video.ID(snap.Ref.ID), AccountID: field[string](snap, "accountId"), Slug: video.Slug(field[string](snap, "slug")),
		ExternalID: field[string](snap, "externalId"), Source: video.Source{JobID: field[string](snap, "jobId")},
		Upload: video.Upload{
			ResumableURL: field[string](snap, "resumableUrl"), Ended: texts(snap, "endedSessions"),
			ExpiresAt: salvagedTime(snap, "uploadExpiresAt", now),
		},
	}
}

// salvagedPurge returns a task that replaces an unreadable one. The new task finds the video's
// objects because the task's name is the video's ID.
func salvagedPurge(snap firestoredb.Snap, account string, now time.Time) *video.Purge {
	return &video.Purge{
		Video: video.ID(snap.Ref.ID), Stored: snap.UpdateTime, Account: account, Late: salvagedTime(snap, "late", now),
		JobIDs: texts(snap, "jobIds"), Sessions: texts(snap, "sessions"),
	}
}

// field reads one field from a document that cannot be decoded. It returns the zero value if the
// field has a different type.
func field[T any](snap firestoredb.Snap, path string) T {
	v, _ := snap.DataAt(path)
	t, _ := v.(T)
	return t
}

// salvagedTime returns the expiry of an upload URL, or the latest possible expiry if the
// field cannot be read.
func salvagedTime(snap firestoredb.Snap, path string, now time.Time) time.Time {
	if at := field[time.Time](snap, path); !at.IsZero() {
		return at
	}
	return now.Add(video.LongestAddress)
}

func texts(snap firestoredb.Snap, path string) (found []string) {
	for _, v := range field[[]any](snap, path) {
		if text, ok := v.(string); ok {
			found = append(found, text)
		}
	}
	return found
}
