// Package store keeps videos in Firestore.
//
// One document stores a video with everything that a player's request needs, so a playlist costs
// one read. A second collection maps slugs to videos. A slug remains reserved after its video is
// deleted, so an old URL never shows somebody else's video. A third collection keeps external ids
// unique within an account. Deleting a video creates a purge task in the same transaction. The task
// is kept until storage has no objects left for the video. The operator's decisions about accounts
// are in a separate collection.
//
// Every change to a video is one transaction, and each method that changes a video takes the
// request's context. The package makes no decisions itself. Its callers pass in functions that
// decide.
package store

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/quota"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/libs/tags"
	"github.com/linkreel/linkreel/libs/waiting"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

const (
	videos      = "videos"
	slugs       = "videoSlugs"
	externalIDs = "videoExternalIds"
	purges      = "videoPurges"
)

// Store is safe for concurrent use.
type Store struct {
	db     *record.DB
	videos *record.Kept[video.Video]
	purges *record.Kept[video.Purge]
	tags   *tags.Store

	// Records covers all of an account's records in this service.
	Records *record.Set
}

// New returns a store. shown returns a video's wire format without the URLs that give
// access.
func New(db *record.DB, shown func(*video.Video) any) *Store {
	s := &Store{db: db, tags: tags.New(db.DB, tags.Videos, db.Now)}
	s.videos = record.Keep(db, record.Kind[video.Video]{
		Collection: videos, Object: "video",
		Of:  func(v *video.Video) (id, account string) { return string(v.ID), v.AccountID },
		Doc: fromVideo, From: firestoredb.Reader(toVideo), Absent: video.NotFound, Shown: shown,
		Limit: &record.Limit{Kind: "videos", Full: func(limit int64) error {
			return video.Usage{Videos: int(limit)}.Room(identity.Quotas{Videos: int(limit)})
		}},
		Labels: &record.Labels[video.Video]{Store: s.tags, Of: func(v *video.Video) []string { return v.Tags }},
		Beside: s.beside, Erase: s.eraseVideos,
	})
	s.purges = record.Keep(db, record.Kind[video.Purge]{
		Collection: purges, Object: "purge",
		Of:  func(p *video.Purge) (id, account string) { return string(p.Video), p.Account },
		Doc: fromPurge, From: firestoredb.Reader(toPurge), Absent: video.NotFound, Erase: s.shortenPurges,
	})
	s.Records = db.Set(s.videos,
		// Deleting a video also deletes its external id. An external id remains only if the
		// record of its video could not be read.
		record.Traces{DB: db, Collection: externalIDs},
		record.Traces{DB: db, Collection: slugs, Erase: s.holdSlugs}, s.purges)
	return s
}

// beside writes the other documents that a change to a video affects.
func (s *Store) beside(tx *record.Tx, before, after *video.Video) {
	switch had, has := externalIDOf(before), externalIDOf(after); {
	case had == has:
	case has == "":
		tx.Delete(s.externalID(before.AccountID, had))
	default:
		if had != "" {
			tx.Delete(s.externalID(before.AccountID, had))
		}
		tx.Create(s.externalID(after.AccountID, has), externalDocument{VideoID: string(after.ID), AccountID: after.AccountID})
	}
	switch {
	case before == nil:
		tx.Create(s.slug(after.Slug), slugDocument{VideoID: string(after.ID), AccountID: after.AccountID})
	case after == nil:
		// Keep the slug's document: the slug must never refer to another video.
		p := video.PurgeOf(before, false, s.db.Now())
		tx.Set(s.purges.Ref(string(p.Video)), fromPurge(&p))
	}
}

func externalIDOf(v *video.Video) string {
	if v == nil {
		return ""
	}
	return v.ExternalID
}

// Create stores a new video with its slug and external id in one transaction. Creating the same
// video again succeeds and returns the stored video, so clients can safely retry a create. A video
// does not use any storage until its file arrives, which is when Update checks the account's limit.
func (s *Store) Create(ctx context.Context, v *video.Video, limits identity.Quotas) (*video.Video, error) {
	v.Rev = 1
	stored, err := s.videos.Create(ctx, v, int64(limits.Videos))
	if !errors.Is(err, firestoredb.ErrExists) {
		return stored, err
	}
	// The error does not say which of the documents already exists.
	if v.ExternalID != "" {
		taken, err := s.db.Exists(ctx, "look up external id", s.externalID(v.AccountID, v.ExternalID))
		switch {
		case err != nil:
			return nil, err
		case taken:
			return nil, video.ExternalIDTaken()
		}
	}
	return nil, video.ErrSlugTaken
}

// Get reads a video in any account.
func (s *Store) Get(ctx context.Context, id video.ID) (*video.Video, error) {
	return s.videos.Get(ctx, "", string(id))
}

// BySlug reads the video with the slug in a share URL.
func (s *Store) BySlug(ctx context.Context, slug video.Slug) (*video.Video, error) {
	return s.led(ctx, s.slug(slug))
}

// led reads the video that a slug or an external id points to.
func (s *Store) led(ctx context.Context, ref firestoredb.Ref) (*video.Video, error) {
	d, found, err := firestoredb.Lookup(ctx, s.db.DB, "look up video", ref, firestoredb.As[slugDocument])
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, video.NotFound()
	}
	return s.Get(ctx, video.ID(d.VideoID))
}

// summary lists the fields that a list reads. It leaves out fields that are only needed on a
// video's page or in its player.
var summary = []firestore.FieldPath{
	{"accountId"}, {"title"}, {"slug"}, {"status"}, {"privacy"}, {"createdAt"}, {"expiresAt"}, {"progress"}, {"tags"}, {"externalId"},
	{"mediaVersion"}, {"media", "duration"},
}

// listReads limits the records that one page of a filtered list reads. A page that reaches this
// limit has fewer videos than requested, but it has a next page.
const listReads = 1000

// List returns an account's videos, newest first, as summaries.
func (s *Store) List(
	ctx context.Context, account string, f video.Filter, after *video.Position, limit int,
) ([]*video.Video, *video.Position, error) {
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
	q := s.videos.Of(account)
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
		// Read one more record than requested to find out whether there is a next page.
		n := limit - len(found) + 1
		if !f.Empty() {
			// A filter may drop most of the records, so small reads would cost many round
			// trips.
			n = max(n, 50)
		}
		got, err := s.videos.Find(ctx, page.Limit(n))
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

// Usage returns how many videos and how much storage an account uses.
func (s *Store) Usage(ctx context.Context, account string) (u video.Usage, err error) {
	err = s.db.Do(ctx, "count videos", func(ctx context.Context) error {
		u, err = s.usage(ctx, account)
		return err
	})
	return u, err
}

func (s *Store) usage(ctx context.Context, account string) (video.Usage, error) {
	q := s.videos.Of(account)
	found, err := q.NewAggregationQuery().WithCount("n").WithSum("bytes", "bytes").Get(ctx)
	return video.Usage{Videos: int(firestoredb.Number(found, "n")), StoredBytes: firestoredb.Number(found, "bytes")}, err
}

// Reserved returns the total storage that an account's open sessions may still use. It only reads
// videos that have a session.
func (s *Store) Reserved(ctx context.Context, account string) (n int64, err error) {
	q := s.videos.Of(account).Where("reserved", ">", 0)
	err = s.db.Do(ctx, "sum up sessions", func(ctx context.Context) error {
		found, err := q.NewAggregationQuery().WithSum("reserved", "reserved").Get(ctx)
		n = firestoredb.Number(found, "reserved")
		return err
	})
	return n, err
}

// Update changes a video in a transaction. fn gets the current video and may run several
// times. If fn returns an error, Update does not change anything and returns that error. The
// exception is [video.ErrUnchanged], which makes Update succeed without writing.
func (s *Store) Update(ctx context.Context, id video.ID, fn func(*video.Video) error) (v *video.Video, err error) {
	err = s.db.Tx(ctx, "update video", func(tx *record.Tx) error {
		in := s.videos.In(tx)
		if v, err = in.Get("", string(id)); err != nil {
			return err
		}
		// Look up the limit before calling fn, which relies on it.
		if err := s.storage(tx, v); err != nil {
			return err
		}
		before := *v
		if err := fn(v); err != nil {
			if errors.Is(err, video.ErrUnchanged) {
				return nil
			}
			return err
		}
		// Only a new file uses more storage. Other changes must not contend for the account's
		// ledger.
		if v.Bytes() > before.Bytes() {
			if err := tx.Grow(); err != nil {
				return err
			}
		}
		return in.Put(&before, v, v.Changed(&before))
	})
	if errors.Is(err, firestoredb.ErrExists) { // an update does not create any other documents
		err = video.ExternalIDTaken()
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// storage sets v.StorageRoom to how many more bytes the account may store, if the video awaits
// its file. Accounts without a limit do not cost a read.
func (s *Store) storage(tx *record.Tx, v *video.Video) error {
	if v.StorageLimit <= 0 || !v.AwaitsUpload() {
		return nil
	}
	// Watch the ledger before computing the sum. If another file is added afterwards, this
	// transaction is retried.
	if err := tx.Watch(quota.Limit{Account: v.AccountID, Kind: "storedBytes", Max: v.StorageLimit}); err != nil {
		return err
	}
	u, err := s.usage(tx.Context(), v.AccountID)
	// The new file replaces the video's current file, so add the size of the current file. An
	// account that would still exceed its limit cannot store anything more.
	v.StorageRoom = max(0, v.StorageLimit-u.StoredBytes+v.Bytes())
	return err
}

// Delete removes a video and creates a task that removes its objects from storage. fn gets the
// current video and may reject the deletion. After Delete has returned, the video can no longer
// be found.
func (s *Store) Delete(ctx context.Context, id video.ID, fn func(*video.Video) error) error {
	return s.videos.Delete(ctx, "", string(id), fn)
}

// SweepTags removes tags that are no longer used by any video from the account's list.
func (s *Store) SweepTags(ctx context.Context) error {
	return s.tags.Sweep(ctx, func(ctx context.Context, tx *firestore.Transaction, account, key string) (bool, error) {
		q := s.db.Collection(videos).Where("accountId", "==", account).Where("terms", "array-contains", "t:"+key).
			OrderBy("createdAt", firestore.Desc).Limit(1).Select()
		found, err := tx.Documents(q).GetAll()
		return len(found) > 0, err
	})
}

// AddViews adds to videos' view counts. It ignores deleted videos.
func (s *Store) AddViews(ctx context.Context, id video.ID, n int64) error {
	views := []firestore.Update{{Path: "views", Value: firestore.Increment(n)}}
	return firestoredb.IgnoreMoved(s.db.Update(ctx, "count views", s.db.Collection(videos).Doc(string(id)), views))
}

// Known returns the videos with the given ids, with the fields that the janitor needs to judge
// their objects. unreadable contains the ids of records that exist but cannot be read.
func (s *Store) Known(ctx context.Context, ids []video.ID) (known map[video.ID]*video.Video, unreadable map[video.ID]error, err error) {
	refs := make([]firestoredb.Ref, len(ids))
	for i, id := range ids {
		refs[i] = s.videos.Ref(string(id))
	}
	snaps, err := s.db.Read(ctx, "get videos", refs...)
	if err != nil {
		return nil, nil, err
	}
	found, broken := firestoredb.Sift(snaps, firestoredb.Reader(toVideo))
	known, unreadable = map[video.ID]*video.Video{}, map[video.ID]error{}
	for _, v := range found {
		known[v.ID] = v
	}
	for _, b := range broken {
		unreadable[video.ID(b.Ref.ID)] = b.Err
	}
	return known, unreadable, nil
}

// dueAtOnce limits how many records one sweep reads.
const dueAtOnce = 2400

// sweepFields are the fields that a sweep uses to choose a video's next step. The step itself reads
// the whole record in a transaction and decides again.
var sweepFields = []firestore.FieldPath{
	{"accountId"}, {"status"}, {"uploadObject"}, {"uploadExpiresAt"}, {"resumableUrl"}, {"recording"}, {"received"}, {"receivedAt"},
	{"endedSessions"}, {"storageLimit"}, {"sourceGeneration"}, {"sourceSize"}, {"jobId"}, {"mediaVersion"}, {"media", "final"},
	{"still"}, {"createdAt"}, {"updatedAt"}, {"readyAt"}, {"publishedAt"}, {"due"},
}

// Due lists the videos that are due. See [record.Kept.Due].
func (s *Store) Due(ctx context.Context) ([]*video.Video, error) {
	return s.videos.Due(ctx, dueAtOnce, sweepFields...)
}

// Waits returns the depth of three backlogs: videos waiting for the pipeline's next step, videos
// waiting for their file, and deleted videos with objects that have yet to be removed.
func (s *Store) Waits() []waiting.Look {
	due := func(collection string) func() []firestore.Query {
		return func() []firestore.Query {
			return []firestore.Query{record.DueIn(s.db.Collection(collection), s.db.Now())}
		}
	}
	uploading := []firestore.Query{s.db.Collection(videos).Where("status", "==", string(video.Uploading))}
	return []waiting.Look{
		{Work: waiting.Work{Of: "videos", For: "sweep"}, Depth: waiting.Query(s.db.DB, "due videos", "due.at", due(videos))},
		{Work: waiting.Work{Of: "videos", For: "removal"}, Depth: waiting.Query(s.db.DB, "due purges", "due.at", due(purges))},
		{Work: waiting.Work{Of: "videos", For: "upload"}, Depth: waiting.Ageless(
			waiting.Count(s.db.DB, "videos without a file", func() []firestore.Query { return uploading }))},
	}
}

// PutOff sets when v is due again, unless v was changed after it was read.
func (s *Store) PutOff(ctx context.Context, v *video.Video) error {
	return s.videos.PutOff(ctx, string(v.ID), v.DueAt, v.Stored)
}

func (s *Store) slug(slug video.Slug) firestoredb.Ref { return s.db.Ref(slugs, string(slug)) }

// externalID derives the document name from a hash because callers choose the external id, and not
// every external id is a valid document name.
func (s *Store) externalID(account, id string) *firestore.DocumentRef {
	sum := sha256.Sum256([]byte(account + "\x00" + id))
	return s.db.Collection(externalIDs).Doc(base64.RawURLEncoding.EncodeToString(sum[:]))
}

type slugDocument struct {
	VideoID   string `firestore:"videoId"`
	AccountID string `firestore:"accountId,omitempty"`
	// HeldUntil is set when the account is erased. At that time, Firestore removes the document and
	// the slug becomes available again.
	HeldUntil time.Time `firestore:"heldUntil,omitzero"`
}

// slugHold is how long the slugs of an erased account remain reserved.
const slugHold = 30 * 24 * time.Hour

func heldSlug(now time.Time) slugDocument { return slugDocument{HeldUntil: now.Add(slugHold)} }

type externalDocument struct {
	VideoID   string `firestore:"videoId"`
	AccountID string `firestore:"accountId"`
}
