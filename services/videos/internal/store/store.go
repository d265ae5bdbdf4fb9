// Package store remembers videos in Firestore.
//
// One document holds a video with everything a player's request needs, so that a
// playlist costs one read. A second collection maps slugs to videos; a slug stays
// taken after its video is gone, so that an old address never shows
// somebody else's video. A deleted video leaves a purge task in the same
// transaction, which lives until nothing of the video is left in storage.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/firestore"
	"cloud.google.com/go/firestore/apiv1/firestorepb"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

const (
	videos = "videos"
	slugs  = "videoSlugs"
	purges = "videoPurges"
)

// Store is safe for concurrent use.
type Store struct {
	db  *firestoredb.DB
	now func() time.Time
}

// New makes a store over an open database.
func New(db *firestoredb.DB, now func() time.Time) *Store { return &Store{db: db, now: now} }

// Create stores a new video and its slug, or nothing. Creating the same video
// again is a success and answers with the stored one; that is how a repeated
// request finds what its first try made.
func (s *Store) Create(ctx context.Context, v *video.Video) (*video.Video, error) {
	v.Rev = 1
	err := s.db.Commit(ctx, "create video", func(tx *firestore.Transaction) error {
		if err := tx.Create(s.ref(v.ID), fromVideo(v)); err != nil {
			return err
		}
		return tx.Create(s.db.Collection(slugs).Doc(string(v.Slug)), slugDocument{VideoID: string(v.ID)})
	})
	if !errors.Is(err, firestoredb.ErrExists) {
		return v, err
	}
	switch stored, err := s.Get(ctx, v.ID); {
	case err == nil && stored.AccountID == v.AccountID:
		return stored, nil
	case err == nil || apierr.CodeOf(err) == apierr.VideoNotFound:
		return nil, video.ErrSlugTaken
	default:
		return nil, err
	}
}

// Get reads a video, whosever it is.
func (s *Store) Get(ctx context.Context, id video.ID) (*video.Video, error) {
	if !validID(string(id)) {
		return nil, video.NotFound()
	}
	var v *video.Video
	err := s.db.Do(ctx, "get video", func(ctx context.Context) error {
		snap, err := s.ref(id).Get(ctx)
		if err != nil {
			return err
		}
		v, err = toVideo(snap)
		return err
	})
	if errors.Is(err, firestoredb.ErrNotFound) {
		return nil, video.NotFound()
	}
	return v, err
}

// Owned reads a video of an account; somebody else's is not there.
func (s *Store) Owned(ctx context.Context, account string, id video.ID) (*video.Video, error) {
	v, err := s.Get(ctx, id)
	if err == nil && v.AccountID != account {
		return nil, video.NotFound()
	}
	return v, err
}

// BySlug reads the video of a share address.
func (s *Store) BySlug(ctx context.Context, slug video.Slug) (*video.Video, error) {
	if !validID(string(slug)) {
		return nil, video.NotFound()
	}
	var d slugDocument
	err := s.db.Do(ctx, "get video slug", func(ctx context.Context) error {
		snap, err := s.db.Collection(slugs).Doc(string(slug)).Get(ctx)
		if err != nil {
			return err
		}
		return snap.DataTo(&d)
	})
	if errors.Is(err, firestoredb.ErrNotFound) {
		return nil, video.NotFound()
	}
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, video.ID(d.VideoID))
}

// List gives an account's newest videos. They are summaries: what only a single
// video's page or player needs is left out.
func (s *Store) List(ctx context.Context, account string, limit int) ([]*video.Video, error) {
	return s.find(ctx, "list videos", s.db.Collection(videos).
		Where("accountId", "==", account).
		OrderBy("createdAt", firestore.Desc).OrderBy(firestore.DocumentID, firestore.Desc).
		Limit(limit).Select("accountId", "title", "slug", "status", "privacy", "createdAt"))
}

// Count is how many videos an account has.
func (s *Store) Count(ctx context.Context, account string) (int, error) {
	var n int
	q := s.db.Collection(videos).Where("accountId", "==", account)
	err := s.db.Do(ctx, "count videos", func(ctx context.Context) error {
		found, err := q.NewAggregationQuery().WithCount("n").Get(ctx)
		if err != nil {
			return err
		}
		value, ok := found["n"].(*firestorepb.Value)
		if !ok {
			return fmt.Errorf("count answers %T", found["n"])
		}
		n = int(value.GetIntegerValue())
		return nil
	})
	return n, err
}

// Update changes a video in a transaction. fn decides on the video as it is and
// may run several times; its error ends the update and is returned, but for
// [video.ErrUnchanged], which is a success without a write. Rev moves on when UpdatedAt
// does.
func (s *Store) Update(ctx context.Context, id video.ID, fn func(*video.Video) error) (*video.Video, error) {
	if !validID(string(id)) {
		return nil, video.NotFound()
	}
	var v *video.Video
	err := s.db.Tx(ctx, "update video", func(_ context.Context, tx *firestore.Transaction) error {
		snap, err := tx.Get(s.ref(id))
		if err != nil {
			return err
		}
		if v, err = toVideo(snap); err != nil {
			return err
		}
		before := v.UpdatedAt
		if err := fn(v); err != nil {
			return err
		}
		if !v.UpdatedAt.Equal(before) {
			v.Rev++
		}
		return tx.Set(s.ref(id), fromVideo(v))
	})
	switch {
	case errors.Is(err, video.ErrUnchanged):
		return v, nil
	case errors.Is(err, firestoredb.ErrNotFound):
		return nil, video.NotFound()
	case err != nil:
		return nil, err
	}
	return v, nil
}

// Delete removes a video and leaves the task to remove what storage has of it.
// fn decides on the video as it is. From the moment Delete has answered the
// video is not there for anybody.
func (s *Store) Delete(ctx context.Context, id video.ID, fn func(*video.Video) error) (Purge, error) {
	if !validID(string(id)) {
		return Purge{}, video.NotFound()
	}
	var p Purge
	err := s.db.Tx(ctx, "delete video", func(_ context.Context, tx *firestore.Transaction) error {
		snap, err := tx.Get(s.ref(id))
		if err != nil {
			return err
		}
		v, err := toVideo(snap)
		if err != nil {
			return err
		}
		if err := fn(v); err != nil {
			return err
		}
		now := s.now()
		p = Purge{Video: id, JobID: v.Source.JobID, Since: now, Next: now, Until: purgeEnd(v, now)}
		if err := tx.Delete(s.ref(id)); err != nil {
			return err
		}
		return tx.Set(s.purge(id), fromPurge(p))
	})
	if errors.Is(err, firestoredb.ErrNotFound) {
		return Purge{}, video.NotFound()
	}
	return p, err
}

// AddViews counts views. A video that is gone meanwhile is no error.
func (s *Store) AddViews(ctx context.Context, id video.ID, n int64) error {
	err := s.db.Do(ctx, "count views", func(ctx context.Context) error {
		_, err := s.ref(id).Update(ctx, []firestore.Update{{Path: "views", Value: firestore.Increment(n)}})
		return err
	})
	if errors.Is(err, firestoredb.ErrNotFound) {
		return nil
	}
	return err
}

// pageSize bounds one read of a sweep.
const pageSize = 300

// Waiting lists the videos whose upload may arrive at any time, those that wait
// longest first.
func (s *Store) Waiting(ctx context.Context) ([]*video.Video, error) {
	return s.pages(ctx, "list waiting videos", "watchUntil", func() firestore.Query {
		return s.db.Collection(videos).Where("watchUntil", ">", s.now()).OrderBy("watchUntil", firestore.Asc).
			Select("accountId", "status", "uploadObject", "sourceGeneration", "createdAt", "watchUntil")
	})
}

// Overdue lists videos that still say uploading after their time.
func (s *Store) Overdue(ctx context.Context, created time.Time) ([]*video.Video, error) {
	return s.find(ctx, "list overdue videos", s.db.Collection(videos).
		Where("status", "==", string(video.Uploading)).Where("createdAt", "<=", created).
		OrderBy("createdAt", firestore.Asc).Limit(pageSize).Select("accountId", "status", "createdAt"))
}

// InWork lists the videos whose job may still change them.
func (s *Store) InWork(ctx context.Context) ([]*video.Video, error) {
	return s.pages(ctx, "list videos in work", firestore.DocumentID, func() firestore.Query {
		return s.db.Collection(videos).Where("inWork", "==", true).OrderBy(firestore.DocumentID, firestore.Asc).
			Select("accountId", "status", "jobId", "mediaVersion", "uploadObject", "sourceGeneration", "sourceSize", "createdAt")
	})
}

// Known tells which of ids are videos, with what the janitor needs to judge
// their objects.
func (s *Store) Known(ctx context.Context, ids []video.ID) (map[video.ID]*video.Video, error) {
	refs := make([]*firestore.DocumentRef, 0, len(ids))
	for _, id := range ids {
		if validID(string(id)) {
			refs = append(refs, s.ref(id))
		}
	}
	known := map[video.ID]*video.Video{}
	err := s.db.Do(ctx, "get videos", func(ctx context.Context) error {
		snaps, err := s.db.GetAll(ctx, refs)
		if err != nil {
			return err
		}
		for _, snap := range snaps {
			if !snap.Exists() {
				continue
			}
			v, err := toVideo(snap)
			if err != nil {
				return err
			}
			known[v.ID] = v
		}
		return nil
	})
	return known, err
}

func (s *Store) find(ctx context.Context, what string, q firestore.Query) ([]*video.Video, error) {
	var found []*video.Video
	err := s.db.Do(ctx, what, func(ctx context.Context) error {
		snaps, err := q.Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		found = make([]*video.Video, len(snaps))
		for i, snap := range snaps {
			if found[i], err = toVideo(snap); err != nil {
				return err
			}
		}
		return nil
	})
	return found, err
}

// pages reads a whole query, page by page; each page has its own deadline.
func (s *Store) pages(ctx context.Context, what, order string, query func() firestore.Query) ([]*video.Video, error) {
	var all []*video.Video
	q := query()
	for {
		var last *firestore.DocumentSnapshot
		n := 0
		err := s.db.Do(ctx, what, func(ctx context.Context) error {
			page := q.Limit(pageSize)
			snaps, err := page.Documents(ctx).GetAll()
			if err != nil {
				return err
			}
			for _, snap := range snaps {
				v, err := toVideo(snap)
				if err != nil {
					return err
				}
				all = append(all, v)
			}
			if n = len(snaps); n > 0 {
				last = snaps[n-1]
			}
			return nil
		})
		if err != nil || n < pageSize {
			return all, err
		}
		if order == firestore.DocumentID {
			q = query().StartAfter(last.Ref.ID)
		} else {
			q = query().StartAfter(last)
		}
	}
}

func (s *Store) ref(id video.ID) *firestore.DocumentRef {
	return s.db.Collection(videos).Doc(string(id))
}

// validID keeps what a caller typed from being read as a path.
func validID(id string) bool {
	if id == "" || len(id) > 100 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '_' {
			return false
		}
	}
	return id[0] != '_'
}

type slugDocument struct {
	VideoID string `firestore:"videoId"`
}

var errShape = errors.New("stored video cannot be read")

func shape(id string, err error) error { return fmt.Errorf("%w: %s: %w", errShape, id, err) }
