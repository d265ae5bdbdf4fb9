// Package store remembers videos in Firestore.
//
// One document holds a video with everything a player's request needs, so that a
// playlist costs one read. A second collection maps slugs to videos; a slug stays
// taken after its video is gone, so that an old address never shows somebody
// else's video. A third keeps external ids unique within an account. A deleted
// video leaves a purge task in the same transaction, which lives until nothing of
// the video is left in storage. What the operator decided about an account is in
// a collection of its own.
//
// Every change of a video is one transaction, and each method that makes one gets
// the request's context. The package decides nothing: callers pass the decision in.
package store

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/firestore"
	"cloud.google.com/go/firestore/apiv1/firestorepb"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/label"
	quota "github.com/linkreel/linkreel/libs/quota/old"
	"github.com/linkreel/linkreel/libs/tags"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

const (
	videos      = "videos"
	slugs       = "videoSlugs"
	externalIDs = "videoExternalIds"
	purges      = "videoPurges"
	accounts    = "videoAccounts"
	backfills   = "videoBackfills"
)

// Store is safe for concurrent use.
type Store struct {
	db    *firestoredb.DB
	now   func() time.Time
	quota *quota.Gate
	tags  *tags.Store

	teller Teller
}

// New makes a store over an open database.
func New(db *firestoredb.DB, now func() time.Time) *Store {
	return &Store{db: db, now: now, quota: quota.New(db, now), tags: tags.New(db, tags.Videos, now)}
}

// Create stores a new video with its slug and external id, or nothing. Creating
// the same video again is a success and answers with the stored one; that is how
// a repeated request finds what its first try made.
func (s *Store) Create(ctx context.Context, v *video.Video, limits identity.Quotas) (*video.Video, error) {
	v.Rev = 1
	write := func(ctx context.Context, tx *firestore.Transaction) error {
		if err := tx.Create(s.ref(v.ID), fromVideo(v)); err != nil {
			return err
		}
		if v.ExternalID != "" {
			if err := tx.Create(s.externalID(v.AccountID, v.ExternalID), externalDocument{VideoID: string(v.ID), AccountID: v.AccountID}); err != nil {
				return err
			}
		}
		if err := tx.Create(s.slug(v.Slug), slugDocument{VideoID: string(v.ID), AccountID: v.AccountID}); err != nil {
			return err
		}
		return s.tell(ctx, tx, events.VideoCreated, v)
	}
	var err error
	// Without a limit or tags there is nothing to read, so the transaction is a plain commit.
	// A video takes no storage before its file comes; Update asks for that room.
	if limits.Videos <= 0 && len(v.Tags) == 0 {
		err = s.db.Tx(ctx, "create video", write)
	} else {
		err = s.db.Tx(ctx, "create video", func(ctx context.Context, tx *firestore.Transaction) error {
			claim, err := s.room(ctx, tx, v, limits)
			if err != nil {
				return err
			}
			noteTags, err := s.tags.Change(tx, v.AccountID, v.Tags, nil)
			if err != nil {
				return err
			}
			return errors.Join(write(ctx, tx), noteTags(), claim.Take(tx))
		})
	}
	if !errors.Is(err, firestoredb.ErrExists) {
		return v, err
	}
	// The error does not tell which of the documents exists, so what is stored decides.
	stored, err := s.present(ctx, v)
	if apierr.CodeOf(err) == apierr.RateLimited {
		err = apierr.Down(err) // Nobody has looked, and what is in the way may be the same video.
	}
	return stored, err
}

// quotaMargin is how far below the limit creates of an account run side by side.
const quotaMargin = 50

// room finds room for one more video.
func (s *Store) room(ctx context.Context, tx *firestore.Transaction, v *video.Video, limits identity.Quotas) (quota.Claim, error) {
	// A repeated request finds its own video and needs no room for a second.
	switch _, err := tx.Get(s.ref(v.ID)); {
	case err == nil:
		return quota.Claim{}, firestoredb.ErrExists
	case !errors.Is(firestoredb.Map(err), firestoredb.ErrNotFound):
		return quota.Claim{}, err
	}
	l := quota.Limit{Account: v.AccountID, Kind: "videos", Max: int64(limits.Videos), Margin: quotaMargin}
	claim, err := s.quota.Room(ctx, tx, l, 1, func(ctx context.Context) (int64, error) {
		used, err := s.usage(ctx, v.AccountID)
		return int64(used.Videos), err
	})
	if err == nil && !claim.Allows(1) {
		err = video.Usage{Videos: limits.Videos}.Room(limits)
	}
	return claim, err
}

// present is the answer to a create of something that is there already: the very
// same video, or the reason why it cannot be made.
func (s *Store) present(ctx context.Context, v *video.Video) (*video.Video, error) {
	switch stored, err := s.Get(ctx, v.ID); {
	case err == nil && stored.AccountID == v.AccountID:
		return stored, nil
	case err != nil && apierr.CodeOf(err) != apierr.VideoNotFound:
		return nil, err
	}
	if v.ExternalID != "" {
		switch taken, err := s.exists(ctx, s.externalID(v.AccountID, v.ExternalID)); {
		case err != nil:
			return nil, err
		case taken:
			return nil, video.ExternalIDTaken()
		}
	}
	return nil, video.ErrSlugTaken
}

func (s *Store) exists(ctx context.Context, ref *firestore.DocumentRef) (bool, error) {
	err := s.db.Do(ctx, "look up "+ref.Parent.ID, func(ctx context.Context) error {
		_, err := ref.Get(ctx)
		return err
	})
	if errors.Is(err, firestoredb.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
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

// BySlug reads the video of a share address.
func (s *Store) BySlug(ctx context.Context, slug video.Slug) (*video.Video, error) {
	if !validID(string(slug)) {
		return nil, video.NotFound()
	}
	return s.led(ctx, s.slug(slug))
}

// led reads the video that a slug or an external id leads to.
func (s *Store) led(ctx context.Context, ref *firestore.DocumentRef) (*video.Video, error) {
	var d slugDocument
	err := s.db.Do(ctx, "get "+ref.Parent.ID, func(ctx context.Context) error {
		snap, err := ref.Get(ctx)
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

// summary are the fields of a list; what only a single video's page or player
// needs is left out.
var summary = []firestore.FieldPath{
	{"accountId"}, {"title"}, {"slug"}, {"status"}, {"privacy"}, {"createdAt"}, {"expiresAt"}, {"progress"}, {"tags"}, {"externalId"},
	{"mediaVersion"}, {"media", "duration"},
}

// listReads bounds the records that one page of a filtered list looks at. A page
// whose bound is reached has fewer videos than asked for, and a next one.
const listReads = 1000

// List gives an account's videos, newest first, as summaries.
func (s *Store) List(ctx context.Context, account string, f video.Filter, after *video.Position, limit int) ([]*video.Video, *video.Position, error) {
	if f.ExternalID != "" {
		v, err := s.led(ctx, s.externalID(account, f.ExternalID))
		switch {
		case apierr.CodeOf(err) == apierr.VideoNotFound:
			return nil, nil, nil
		case err != nil:
			return nil, nil, err
		case v.AccountID != account || !f.Matches(v) || after != nil:
			return nil, nil, nil
		}
		return []*video.Video{v}, nil, nil
	}
	q := s.db.Collection(videos).Where("accountId", "==", account)
	fields := summary
	if !f.Empty() {
		q = q.Where("terms", "array-contains", rarestTerm(f))
		fields = append(fields[:len(fields):len(fields)], firestore.FieldPath{"description"})
	}
	q = q.OrderBy("createdAt", firestore.Desc).OrderBy(firestore.DocumentID, firestore.Desc).SelectPaths(fields...)
	var found []*video.Video
	for read := 0; read < listReads; {
		page := q
		if after != nil {
			page = q.StartAfter(after.Created, string(after.ID))
		}
		// One more than wanted tells whether there is a next page.
		n := limit - len(found) + 1
		if !f.Empty() {
			// A filter may drop most of what is read. Small pages would cost many round trips.
			n = max(n, 50)
		}
		got, err := s.find(ctx, "list videos", page.Limit(n))
		if err != nil {
			return nil, nil, err
		}
		for _, v := range got {
			if f.Matches(v) {
				if len(found) == limit {
					return found, after, nil
				}
				found = append(found, v)
			}
			after = &video.Position{Created: v.CreatedAt, ID: v.ID}
		}
		if len(got) < n {
			return found, nil, nil
		}
		read += n
	}
	return found, after, nil
}

// Usage counts what an account has.
func (s *Store) Usage(ctx context.Context, account string) (u video.Usage, err error) {
	err = s.db.Do(ctx, "count videos", func(ctx context.Context) error {
		u, err = s.usage(ctx, account)
		return err
	})
	return u, err
}

func (s *Store) usage(ctx context.Context, account string) (video.Usage, error) {
	q := s.db.Collection(videos).Where("accountId", "==", account)
	found, err := q.NewAggregationQuery().WithCount("n").WithSum("bytes", "bytes").Get(ctx)
	if err != nil {
		return video.Usage{}, err
	}
	return video.Usage{Videos: int(number(found, "n")), StoredBytes: number(found, "bytes")}, nil
}

// Reserved sums up what an account's sessions may take beside what they hold. It reads
// only videos that have one.
func (s *Store) Reserved(ctx context.Context, account string) (n int64, err error) {
	err = s.db.Do(ctx, "sum up sessions", func(ctx context.Context) error {
		q := s.db.Collection(videos).Where("accountId", "==", account).Where("reserved", ">", 0)
		found, err := q.NewAggregationQuery().WithSum("reserved", "reserved").Get(ctx)
		n = number(found, "reserved")
		return err
	})
	return n, err
}

// number reads an aggregate. A large sum comes as a float.
func number(found firestore.AggregationResult, name string) int64 {
	v, _ := found[name].(*firestorepb.Value)
	return v.GetIntegerValue() + int64(v.GetDoubleValue())
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
	err := s.db.Tx(ctx, "update video", func(ctx context.Context, tx *firestore.Transaction) error {
		snap, err := tx.Get(s.ref(id))
		if err != nil {
			return err
		}
		if v, err = toVideo(snap); err != nil {
			return err
		}
		// Before fn, which goes by the room that this finds.
		claim, err := s.storage(ctx, tx, v)
		if err != nil {
			return err
		}
		before := *v
		if err := fn(v); err != nil {
			return err
		}
		what := changeOf(&before, v)
		if what != "" {
			v.Rev++ // in step with the event, which says what the revision holds
		}
		noteTags, err := s.tags.Change(tx, v.AccountID, without(v.Tags, before.Tags), without(before.Tags, v.Tags))
		if err != nil {
			return err
		}
		if err := noteTags(); err != nil {
			return err
		}
		if err := s.moveExternalID(tx, &before, v); err != nil {
			return err
		}
		// Only a file takes room. Other changes must not conflict over the account's quota document.
		if v.Bytes() > before.Bytes() {
			if err := claim.Take(tx); err != nil {
				return err
			}
		}
		if err := tx.Set(s.ref(id), fromVideo(v)); err != nil {
			return err
		}
		if what != "" {
			return s.tell(ctx, tx, what, v)
		}
		return nil
	})
	switch {
	case errors.Is(err, video.ErrUnchanged):
		return v, nil
	case errors.Is(err, firestoredb.ErrNotFound):
		return nil, video.NotFound()
	case errors.Is(err, firestoredb.ErrExists): // the only document that an update creates
		return nil, video.ExternalIDTaken()
	case err != nil:
		return nil, err
	}
	return v, nil
}

// storage finds out how much the account of a video that awaits its file may
// still store. Accounts without a limit pay nothing.
func (s *Store) storage(ctx context.Context, tx *firestore.Transaction, v *video.Video) (quota.Claim, error) {
	if v.StorageLimit <= 0 || !v.AwaitsUpload() {
		return quota.Claim{}, nil
	}
	l := quota.Limit{Account: v.AccountID, Kind: "storedBytes", Max: v.StorageLimit}
	var u video.Usage
	claim, err := s.quota.Room(ctx, tx, l, 1, func(ctx context.Context) (n int64, err error) {
		u, err = s.usage(ctx, v.AccountID)
		return u.StoredBytes, err
	})
	// What it holds now is given back. Not to claim.Room, which is never below zero:
	// an account that is over its limit would get room by it.
	v.StorageRoom = max(0, v.StorageLimit-u.StoredBytes+v.Bytes())
	return claim, err
}

// moveExternalID keeps external ids unique: the new one must not exist.
func (s *Store) moveExternalID(tx *firestore.Transaction, before, after *video.Video) error {
	if before.ExternalID == after.ExternalID {
		return nil
	}
	if before.ExternalID != "" {
		if err := tx.Delete(s.externalID(before.AccountID, before.ExternalID)); err != nil {
			return err
		}
	}
	if after.ExternalID == "" {
		return nil
	}
	return tx.Create(s.externalID(after.AccountID, after.ExternalID), externalDocument{VideoID: string(after.ID), AccountID: after.AccountID})
}

// Delete removes a video and leaves the task to remove what storage has of it.
// fn decides on the video as it is. From the moment Delete has answered the
// video is not there for anybody.
func (s *Store) Delete(ctx context.Context, id video.ID, fn func(*video.Video) error) error {
	return s.remove(ctx, id, false, fn)
}

// Erase is Delete for a video of an account that is erased whole: its slug is
// held for a while without a word on whose it was.
func (s *Store) Erase(ctx context.Context, id video.ID) error {
	return s.remove(ctx, id, true, func(*video.Video) error { return nil })
}

func (s *Store) remove(ctx context.Context, id video.ID, erase bool, fn func(*video.Video) error) error {
	if !validID(string(id)) {
		return video.NotFound()
	}
	err := s.db.Tx(ctx, "delete video", func(ctx context.Context, tx *firestore.Transaction) error {
		snap, err := tx.Get(s.ref(id))
		if err != nil {
			return err
		}
		v, err := toVideo(snap)
		if err != nil && erase {
			// It has to go all the same. EraseSome removes what this does not know of.
			v, err = salvaged(snap, s.now()), nil
		}
		if err != nil {
			return err
		}
		if err := fn(v); err != nil {
			return err
		}
		noteTags, err := s.tags.Change(tx, v.AccountID, nil, v.Tags)
		if err != nil {
			return err
		}
		if err := noteTags(); err != nil {
			return err
		}
		now := s.now()
		if err := tx.Delete(s.ref(id)); err != nil {
			return err
		}
		if v.ExternalID != "" {
			if err := tx.Delete(s.externalID(v.AccountID, v.ExternalID)); err != nil {
				return err
			}
		}
		if erase && v.Slug != "" {
			// A plain deletion leaves the slug's document: the address must never lead to another video.
			if err := tx.Set(s.slug(v.Slug), heldSlug(now)); err != nil {
				return err
			}
		}
		if err := tx.Set(s.purge(id), fromPurge(video.PurgeOf(v, erase, now))); err != nil || erase {
			return err // nobody is left to be told of an erasure
		}
		return s.tell(ctx, tx, events.VideoDeleted, v)
	})
	if errors.Is(err, firestoredb.ErrNotFound) {
		return video.NotFound()
	}
	return err
}

// salvaged is what an erasure needs of a record that cannot be read, as far as it
// has that.
func salvaged(snap *firestore.DocumentSnapshot, now time.Time) *video.Video {
	text := func(field string) string {
		value, _ := snap.DataAt(field)
		s, _ := value.(string)
		return s
	}
	v := &video.Video{ID: video.ID(snap.Ref.ID), AccountID: text("accountId"), ExternalID: text("externalId"), Source: video.Source{JobID: text("jobId")},
		Upload: video.Upload{ResumableURL: text("resumableUrl"), Ended: texts(snap, "endedSessions"), ExpiresAt: salvagedTime(snap, "uploadExpiresAt", now.Add(video.LongestAddress))}}
	if slug := text("slug"); validID(slug) {
		v.Slug = video.Slug(slug)
	}
	return v
}

// without lists the tags of some that others does not have.
func without(some, others []string) []string {
	return slices.DeleteFunc(slices.Clone(some), func(tag string) bool {
		return slices.ContainsFunc(others, func(o string) bool { return label.Key(o) == label.Key(tag) })
	})
}

// SweepTags removes tags that no video carries any more from the account's list.
func (s *Store) SweepTags(ctx context.Context) error {
	return s.tags.Sweep(ctx, func(ctx context.Context, tx *firestore.Transaction, account, key string) (bool, error) {
		q := s.db.Collection(videos).Where("accountId", "==", account).Where("terms", "array-contains", "t:"+key).
			OrderBy("createdAt", firestore.Desc).Limit(1).Select()
		found, err := tx.Documents(q).GetAll()
		return len(found) > 0, err
	})
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

// Known tells which of ids are videos, with what the janitor needs to judge
// their objects. Those of unreadable are videos too, of which nothing else is known.
func (s *Store) Known(ctx context.Context, ids []video.ID) (known map[video.ID]*video.Video, unreadable map[video.ID]error, err error) {
	refs := make([]*firestore.DocumentRef, 0, len(ids))
	for _, id := range ids {
		if validID(string(id)) {
			refs = append(refs, s.ref(id))
		}
	}
	err = s.db.Do(ctx, "get videos", func(ctx context.Context) error {
		snaps, err := s.db.GetAll(ctx, refs)
		if err != nil {
			return err
		}
		known, unreadable = map[video.ID]*video.Video{}, map[video.ID]error{}
		for _, snap := range snaps {
			if !snap.Exists() {
				continue
			}
			v, err := toVideo(snap)
			if err != nil {
				unreadable[video.ID(snap.Ref.ID)] = err
				continue
			}
			known[v.ID] = v
		}
		return nil
	})
	return known, unreadable, err
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

func (s *Store) ref(id video.ID) *firestore.DocumentRef {
	return s.db.Collection(videos).Doc(string(id))
}

func (s *Store) slug(slug video.Slug) *firestore.DocumentRef {
	return s.db.Collection(slugs).Doc(string(slug))
}

// externalID names an id by its hash: callers choose it, and a document's name
// may hold less than an external id.
func (s *Store) externalID(account, id string) *firestore.DocumentRef {
	sum := sha256.Sum256([]byte(account + "\x00" + id))
	return s.db.Collection(externalIDs).Doc(base64.RawURLEncoding.EncodeToString(sum[:]))
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
	VideoID   string `firestore:"videoId"`
	AccountID string `firestore:"accountId,omitempty"`
	// HeldUntil is set once the account was erased: Firestore removes the document
	// then, and the slug is free.
	HeldUntil *time.Time `firestore:"heldUntil,omitempty"`
}

// slugHold is how long the slugs of an erased account stay taken.
const slugHold = 30 * 24 * time.Hour

func heldSlug(now time.Time) slugDocument {
	until := now.Add(slugHold)
	return slugDocument{HeldUntil: &until}
}

type externalDocument struct {
	VideoID   string `firestore:"videoId"`
	AccountID string `firestore:"accountId"`
}

var errShape = errors.New("stored video cannot be read")

func shape(id string, err error) error { return fmt.Errorf("%w: %s: %w", errShape, id, err) }
