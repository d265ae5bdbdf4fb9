package video

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/label"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/password"
	"github.com/linkreel/linkreel/libs/search"
	"github.com/linkreel/linkreel/libs/tenant"
)

// Store keeps videos.
type Store interface {
	// Create stores a video, or returns the stored video if the same create has already succeeded.
	// It returns ErrSlugTaken if the caller must choose another slug, EXTERNAL_ID_TAKEN if another
	// video in the account has the external id, and QUOTA_EXCEEDED if the account already has as
	// many videos as its limits allow.
	Create(ctx context.Context, v *Video, limits identity.Quotas) (*Video, error)
	// Get looks up a video in any account. It returns NotFound if the video does not exist.
	Get(ctx context.Context, id ID) (*Video, error)
	// BySlug looks up the video with the slug in a share URL.
	BySlug(ctx context.Context, slug Slug) (*Video, error)
	// List returns an account's videos, newest first, as summaries without the fields that are only
	// needed on a video's page or in its player. next is nil on the last page.
	List(ctx context.Context, account string, f Filter, after *Position, limit int) (found []*Video, next *Position, err error)
	// Reserved returns the total storage that an account's open sessions may still use.
	Reserved(ctx context.Context, account string) (int64, error)
	// Usage returns how many videos and how much storage an account uses.
	Usage(ctx context.Context, account string) (Usage, error)
	// Update changes a video in a transaction. fn gets the current video and may run several
	// times. If fn returns an error, Update does not change anything and returns that error. The
	// exception is ErrUnchanged, which makes Update succeed without writing. Rev increases whenever
	// UpdatedAt changes.
	Update(ctx context.Context, id ID, fn func(*Video) error) (*Video, error)
	// Delete removes a video and creates a task that removes its objects from storage. fn gets
	// the current video and may reject the deletion. After Delete has returned, the video can no
	// longer be found.
	Delete(ctx context.Context, id ID, fn func(*Video) error) error
}

// Bucket creates upload URLs and stores caption files.
type Bucket interface {
	SignPut(ctx context.Context, object string, ttl time.Duration) (string, time.Time, error)
	StartResumable(ctx context.Context, object, origin string, most int64) (string, error)
	EndResumable(ctx context.Context, session string) error
	Upload(ctx context.Context, object string, r io.Reader, o objectstore.UploadOptions) (objectstore.Object, error)
	Delete(ctx context.Context, object string, generation int64) error
}

// Pipeline does the background work on videos.
type Pipeline interface {
	// Refresh picks up a finished upload or transcode before the video is returned. It never
	// fails.
	Refresh(ctx context.Context, v *Video) *Video
	// TakeStill has a worker take the poster that v requests, and waits briefly for it. If the
	// worker takes longer, the poster will appear later.
	TakeStill(ctx context.Context, v *Video) (*Video, error)
	// Purge starts removing objects once a deletion has been committed.
	Purge()
}

// Options configures a [Service].
type Options struct {
	Store     Store
	Standing  func(ctx context.Context, account string) (tenant.Standing, error) // auth's decisions about accounts
	Bucket    Bucket
	Pipeline  Pipeline
	Passwords *password.Hasher
	Rights    Rights
	Keys      *Keyring
	Addresses Addresses
	Plan      Plan
	// Page is the origin of our own pages, which upload to resumable sessions.
	Page string
	Now  func() time.Time
	Log  *slog.Logger

	UploadTTL time.Duration // lifetime of an upload URL
	OwnerTTL  time.Duration // lifetime of the owner's playback and download URLs
	// RestoredAt returns when the installation was last restored from a backup, or zero if it
	// never was. RestoredAt may be nil, which means never.
	RestoredAt func() time.Time
}

// Service implements the operations that the API and the share pages call.
type Service struct {
	o         Options
	standings *standings
	rights    *rights
}

// NewService returns a service.
func NewService(o Options) *Service {
	return &Service{o: o, standings: newStandings(o.Standing), rights: newRights(o.Rights)}
}

// Usage is the number of videos and the storage that an account uses.
type Usage struct {
	Videos      int
	StoredBytes int64
	Reserved    int64 // how many more bytes open sessions may store
}

// Filter narrows a list. The zero value matches every video.
type Filter struct {
	Query      search.Query
	Tags       []string // a video must have all of them; see [label.Key]
	Status     Status
	Privacy    Privacy
	ExternalID string
}

// Empty reports whether f matches every video.
func (f Filter) Empty() bool {
	return len(f.Query.Words()) == 0 && len(f.Tags) == 0 && f.Status == "" && f.Privacy == "" && f.ExternalID == ""
}

// Matches reports whether v matches f.
func (f Filter) Matches(v *Video) bool {
	if f.Status != "" && v.Status != f.Status || f.Privacy != "" && v.Privacy != f.Privacy || f.ExternalID != "" && v.ExternalID != f.ExternalID {
		return false
	}
	have := map[string]bool{}
	for _, t := range v.Tags {
		have[label.Key(t)] = true
	}
	for _, t := range f.Tags {
		if !have[label.Key(t)] {
			return false
		}
	}
	return f.Query.Matches(v.Words())
}

// Words returns the words that a search can find a video by.
func (v *Video) Words() []string {
	return search.Words(append([]string{string(v.Slug), v.Title, v.Description}, v.Tags...)...)
}

// Position is a point in an account's list, immediately after a video.
type Position struct {
	Created time.Time
	ID      ID
}

// List returns an account's videos, newest first, and the cursor for the next page. On the
// last page the cursor is "".
func (s *Service) List(ctx context.Context, account string, f Filter, cursor string, limit int) ([]*Video, string, error) {
	var after *Position
	if cursor != "" {
		p, ok := s.o.Keys.Position(account, cursor)
		if !ok {
			return nil, "", apierr.New(apierr.InvalidCursor, "This cursor does not come from a list of videos. Start again without a cursor.")
		}
		after = &p
	}
	found, next, err := s.o.Store.List(ctx, account, f, after, limit)
	if err != nil || next == nil {
		return found, "", err
	}
	return found, s.o.Keys.Cursor(account, *next), nil
}

// Each calls fn with the summary of each video in an account, newest first. It reads one page at a
// time.
func (s *Service) Each(ctx context.Context, account string, page int, fn func(*Video) error) error {
	var after *Position
	for {
		found, next, err := s.o.Store.List(ctx, account, Filter{}, after, page)
		if err != nil {
			return err
		}
		for _, v := range found {
			if err := fn(v); err != nil {
				return err
			}
		}
		if next == nil {
			return nil
		}
		after = next
	}
}

// NewVideo is a request to create a video. A repeated request has the Origin of the first
// attempt.
type NewVideo struct {
	Account string
	Limits  identity.Quotas
	Draft   Checked
	Origin  identity.Origin
	// Page is the origin of the page that will upload the file. "" means our own page.
	Page string
	// Left is how many bytes a session may store, as returned by [Service.Room].
	Left int64
}

// idOf derives a video's ID from its request, so a repeated request finds the video that the
// first attempt created.
func idOf(origin identity.Origin) ID { return ID(identity.IDFrom("vid", origin.Nonce)) }

// Room returns an error if the account has reached its limits. Call it before validating the
// request's fields so that its error takes precedence over errors in the fields. Room does not need
// a transaction. [Service.Create] checks the number of videos again in its transaction. The storage
// limit is checked when a file arrives because a video does not use any storage until then (see
// [Video.FileArrived]). A repeated request succeeds if the first attempt created the video. left is
// how many bytes a session in the account may store. It is negative if there is no limit.
func (s *Service) Room(ctx context.Context, account string, limits identity.Quotas, origin identity.Origin) (left int64, err error) {
	if limits.Videos <= 0 && limits.StoredBytes <= 0 {
		return -1, nil
	}
	have, err := s.usage(ctx, account, limits.StoredBytes)
	if err != nil {
		return 0, err
	}
	left = have.Left(limits.StoredBytes)
	err = have.Room(limits)
	if err == nil {
		return left, nil
	}
	if v, getErr := s.o.Store.Get(ctx, idOf(origin)); getErr == nil && v.AccountID == account {
		return left, nil
	}
	return 0, err
}

// Left returns how many bytes of a limit remain after the stored bytes and the bytes reserved
// for sessions. The result is negative if there is no limit.
func (u Usage) Left(limit int64) int64 {
	if limit <= 0 {
		return -1
	}
	return max(0, limit-u.StoredBytes-u.Reserved)
}

// usage returns an account's usage. It includes the account's sessions only if there is
// a storage limit.
func (s *Service) usage(ctx context.Context, account string, limit int64) (have Usage, err error) {
	reserved := int64(0)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { have, err = s.o.Store.Usage(ctx, account); return err })
	if limit > 0 {
		g.Go(func() (err error) { reserved, err = s.o.Store.Reserved(ctx, account); return err })
	}
	err = g.Wait()
	have.Reserved = reserved
	return have, err
}

// Room returns an error if the limits do not allow another video.
func (u Usage) Room(limits identity.Quotas) error {
	switch {
	case limits.Videos > 0 && u.Videos >= limits.Videos:
		return quotaExceeded("reached its limit for videos")
	case limits.StoredBytes > 0 && u.StoredBytes >= limits.StoredBytes:
		return quotaExceeded("used all of its storage")
	}
	return nil
}

// Create creates a video that awaits its file.
func (s *Service) Create(ctx context.Context, n NewVideo) (*Video, error) {
	id := Identity{ID: idOf(n.Origin), AccountID: n.Account}
	id.UploadObject = UploadObject(id.ID)
	// Hashing and signing are slow. They run in parallel and outside the transaction because the
	// transaction may run several times.
	var hash string
	var upload Upload
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { hash, err = s.hash(gctx, n.Account, n.Draft.Password); return err })
	g.Go(func() (err error) {
		upload, err = s.newUpload(gctx, id.UploadObject, cmp.Or(n.Page, s.o.Page), n.Left)
		return err
	})
	if err := g.Wait(); err != nil {
		s.unused(ctx, upload.ResumableURL)
		return nil, err
	}
	for try := range slugTries {
		// The slug is derived from the request too, so a repeated request tries the same
		// slugs in the same order.
		id.Slug = Slug(identity.SlugFrom(n.Origin.Nonce+"/"+strconv.Itoa(try), n.Draft.Privacy.slugLength()))
		// Firestore stores microseconds. A more precise time would differ from what is stored.
		v := New(id, n.Draft, hash, n.Origin.At.Truncate(time.Microsecond))
		v.Upload, v.StorageLimit = upload, n.Limits.StoredBytes
		v.Upload.Recording = n.Draft.Recording && upload.ResumableURL != ""
		v.Schedule(s.o.Plan, v.CreatedAt)
		stored, err := s.o.Store.Create(ctx, v, n.Limits)
		if errors.Is(err, ErrSlugTaken) {
			continue
		}
		s.settleUpload(ctx, upload, stored, err)
		if err != nil {
			return nil, err
		}
		return s.reserve(ctx, stored), nil
	}
	s.unused(ctx, upload.ResumableURL)
	return nil, apierr.Down(ErrSlugTaken)
}

// settleUpload ends fresh's session if the record does not have this session, which happens if the
// request was repeated, was rejected or lost a race. If we cannot tell whether the record was
// stored, settleUpload keeps the session: nobody has its URL, so the session will not receive any
// bytes.
func (s *Service) settleUpload(ctx context.Context, fresh Upload, stored *Video, err error) {
	switch {
	case maybeStored(err):
	case err != nil || stored.Upload.ResumableURL != fresh.ResumableURL:
		s.unused(ctx, fresh.ResumableURL)
	}
}

// maybeStored reports whether a write that returned an error may have been stored, with only the
// response to the commit lost. Any other error means that nothing was stored. This includes
// RATE_LIMITED, the error for a transaction that lost out to other writers.
func maybeStored(err error) bool {
	code := apierr.CodeOf(err)
	return code == apierr.Unavailable || code == apierr.Internal
}

// reserve keeps v's session only if the account has enough storage for it. It checks after the
// record has been committed and before any caller gets the session's URL. So even if several
// sessions start at the same time, each check sees every session whose URL has already been
// returned. As a result, two sessions never count on the same storage, even though there is no
// document that they all write. If there is not enough storage, reserve ends the session, and the
// file can still be uploaded in one piece.
func (s *Service) reserve(ctx context.Context, v *Video) *Video {
	session := v.Upload.ResumableURL
	// The session may already be in use if a repeated create finds it.
	if v.StorageLimit <= 0 || session == "" || v.Upload.Received > 0 {
		return v
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	have, err := s.usage(ctx, v.AccountID, v.StorageLimit)
	if err == nil && have.StoredBytes+have.Reserved <= v.StorageLimit {
		return v
	}
	s.unused(ctx, session)
	stored, err := s.o.Store.Update(ctx, v.ID, func(v *Video) error {
		if v.Upload.ResumableURL != session {
			return ErrUnchanged
		}
		v.SessionGone(session)
		v.Schedule(s.o.Plan, s.o.Now())
		return nil
	})
	if err != nil {
		// The sweep will detect that the session has ended. The caller does not get its URL.
		s.o.Log.DebugContext(ctx, "cannot remove an ended session from its record; the next sweep retries", "error", err)
		v.SessionGone(session)
		return v
	}
	return stored
}

// unused ends a session whose URL was never returned to a caller. If that fails, the session does
// not receive any bytes, and storage will remove it later.
func (s *Service) unused(ctx context.Context, session string) {
	if session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.o.Bucket.EndResumable(ctx, session); err != nil {
		s.o.Log.DebugContext(ctx, "cannot end an unused session; it will expire", "error", err)
	}
}

// slugTries is the maximum number of slugs that a create tries. There are 31^7 slugs, so even a
// second attempt is rarely needed.
const slugTries = 5

// slugLength returns the length of a generated slug. An unlisted video is protected only by its
// slug: 13 characters from an alphabet of 31 have 64 bits of entropy, too many to guess.
func (p Privacy) slugLength() int {
	if p == Unlisted {
		return 13
	}
	return 7
}

func (s *Service) hash(ctx context.Context, accountID, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	hash, err := s.o.Passwords.Hash(ctx, accountID, text)
	if errors.Is(err, password.ErrBusy) {
		return "", &apierr.Error{Code: apierr.RateLimited, RetryAfter: time.Second, Err: err,
			Message: "Your account is setting or checking too many passwords at once. Try again after the time in Retry-After."}
	}
	return hash, err
}

// newUpload returns the upload URLs. The resumable URL is optional: if storage does not respond in
// time, newUpload leaves out only that URL. left is how many bytes its session may store. A
// negative value means no limit, and 0 means no session.
func (s *Service) newUpload(ctx context.Context, object, page string, left int64) (Upload, error) {
	u := Upload{Object: object}
	limited := left >= 0
	var g errgroup.Group
	g.Go(func() (err error) {
		u.URL, u.ExpiresAt, err = s.o.Bucket.SignPut(ctx, object, s.o.UploadTTL)
		return err
	})
	g.Go(func() error {
		most := s.o.Plan.Upload.MaxBytes
		if left == 0 {
			return nil
		}
		if left > 0 && (most <= 0 || left < most) {
			most = left
		}
		// The timeout is short because the caller is waiting and the plain URL is enough for an
		// upload.
		ctx, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
		defer cancel()
		session, err := s.o.Bucket.StartResumable(ctx, object, page, most)
		if err != nil {
			s.o.Log.DebugContext(ctx, "cannot start a resumable session; the video has only its plain upload URL", "error", err)
			return nil
		}
		u.ResumableURL = session
		// Most is reserved from the account's storage limit. If there is no limit, nothing is
		// reserved, but the plan may still limit the session.
		if limited {
			u.Most = most
		}
		return nil
	})
	return u, g.Wait()
}

// Owned looks up a video in the account. It returns NotFound for another account's video.
func (s *Service) Owned(ctx context.Context, account string, id ID) (*Video, error) {
	v, err := s.o.Store.Get(ctx, id)
	if err == nil && v.AccountID != account {
		return nil, NotFound()
	}
	return v, err
}

// Get looks up a video in the account and refreshes it. If the video awaits a file and
// uploads is true, Get renews an upload URL that expires soon.
func (s *Service) Get(ctx context.Context, account string, id ID, uploads bool) (*Video, error) {
	v, err := s.Owned(ctx, account, id)
	if err != nil {
		return nil, err
	}
	v = s.o.Pipeline.Refresh(ctx, v)
	if !uploads {
		return v, nil
	}
	return s.renewUpload(ctx, v)
}

// renewUpload renews an upload URL that expires within an hour. It starts a session for a failed
// video because the video's session has ended, and for a video that does not have one because its
// account had no storage left. A video that is still uploading keeps its session because a client
// may be sending to it.
func (s *Service) renewUpload(ctx context.Context, v *Video) (*Video, error) {
	left := v.Upload.ExpiresAt.Sub(s.o.Now())
	wanted := v.Upload.ResumableURL == "" && (v.Status == Failed || v.StorageLimit > 0)
	if !v.AwaitsUpload() || left > time.Hour && !wanted {
		return v, nil
	}
	room, err := int64(0), error(nil)
	if wanted {
		room, err = s.sessionRoom(ctx, v)
	}
	if left > time.Hour && (err != nil || room == 0) {
		return v, nil
	}
	var fresh Upload
	if err == nil {
		fresh, err = s.newUpload(ctx, v.Upload.Object, s.o.Page, room)
	}
	if err != nil {
		// Even if storage or the signer is down, the current URL may still work.
		if left > 0 {
			return v, nil
		}
		return nil, err
	}
	// If only the session was missing, the upload URL does not change.
	if left > time.Hour {
		fresh.URL, fresh.ExpiresAt = v.Upload.URL, v.Upload.ExpiresAt
		if fresh.ResumableURL == "" {
			return v, nil
		}
	}
	before := v.Upload
	stored, err := s.o.Store.Update(ctx, v.ID, func(v *Video) error {
		// If the URLs differ, another request got there first and returned the URLs in the record.
		if !v.AwaitsUpload() || v.Upload.URL != before.URL || v.Upload.ResumableURL != before.ResumableURL {
			return ErrUnchanged
		}
		v.Upload.URL, v.Upload.ExpiresAt = fresh.URL, fresh.ExpiresAt
		if fresh.ResumableURL != "" {
			for _, session := range before.Ended {
				v.SessionGone(session)
			}
			v.Upload.ResumableURL, v.Upload.Most, v.Upload.ReceivedAt = fresh.ResumableURL, fresh.Most, s.o.Now()
		}
		v.Schedule(s.o.Plan, s.o.Now())
		return nil
	})
	if !wanted {
		return stored, err
	}
	s.settleUpload(ctx, fresh, stored, err)
	if err != nil {
		return nil, err
	}
	return s.reserve(ctx, stored), nil
}

// sessionRoom returns how many bytes a new session for v may store, for [Service.newUpload]. It
// ends the previous sessions first because they use storage until they have ended.
func (s *Service) sessionRoom(ctx context.Context, v *Video) (int64, error) {
	for _, session := range v.Upload.Ended {
		if err := s.o.Bucket.EndResumable(ctx, session); err != nil {
			return 0, err
		}
	}
	if v.StorageLimit <= 0 {
		return -1, nil
	}
	have, err := s.usage(ctx, v.AccountID, v.StorageLimit)
	// v's reservation is for the session that the new one replaces.
	have.Reserved -= v.Reserved()
	return have.Left(v.StorageLimit), err
}

// Condition is a caller's precondition on a video's revision, such as an If-Match
// header.
type Condition interface{ Check(rev int64) error }

// change updates a video in the account under a condition.
func (s *Service) change(ctx context.Context, account string, id ID, c Condition, fn func(v *Video, now time.Time) error) (*Video, error) {
	return s.o.Store.Update(ctx, id, func(v *Video) error {
		if v.AccountID != account {
			return NotFound()
		}
		if err := c.Check(v.Rev); err != nil {
			return err
		}
		now := s.o.Now()
		if err := fn(v, now); err != nil {
			return err
		}
		v.Schedule(s.o.Plan, now)
		return nil
	})
}

// Change applies an owner's patch.
func (s *Service) Change(ctx context.Context, account string, id ID, c Condition, p Patch) (*Video, error) {
	return s.change(ctx, account, id, c, func(v *Video, now time.Time) error {
		if !p.Apply(v, now) {
			return ErrUnchanged
		}
		return nil
	})
}

// RestoredAt returns when the installation was last restored from a backup, or zero if it
// never was.
func (s *Service) RestoredAt() time.Time {
	if s.o.RestoredAt == nil {
		return time.Time{}
	}
	return s.o.RestoredAt()
}

// SetAccess replaces the access rule. When it returns, none of the replicas grant access under the
// old rule: every page and playlist reads the record, and every token contains the access revision
// that it was signed for.
func (s *Service) SetAccess(ctx context.Context, account string, id ID, c Condition, r Rule) (*Video, error) {
	given := ""
	if r.Password != nil && len(*r.Password) <= 4*MaxPassword {
		given = *r.Password
	}
	v, err := s.Owned(ctx, account, id)
	if err != nil {
		return nil, err
	}
	if _, bad := r.Check(v, s.o.Now()); len(bad) > 0 {
		return nil, apierr.Invalid(bad...)
	}
	// Hash before the transaction, which may run several times: each hash takes 19 MiB.
	hash, err := s.hash(ctx, account, given)
	if err != nil {
		return nil, err
	}
	return s.change(ctx, account, id, c, func(v *Video, now time.Time) error {
		// Check again against the current record because a concurrent request may have removed the
		// password.
		a, bad := r.Check(v, now)
		if len(bad) > 0 {
			return apierr.Invalid(bad...)
		}
		if !v.SetAccess(a, hash, now) {
			if !v.AccessRestored(s.RestoredAt()) {
				return ErrUnchanged
			}
			v.AccessSetAt, v.UpdatedAt = now, now // the owner has confirmed the restored rule
		}
		return nil
	})
}

// Delete removes a video in any status. When it returns, the record has been deleted and
// nobody has access. The objects are removed immediately afterwards, or once storage is available
// again.
func (s *Service) Delete(ctx context.Context, account string, id ID, c Condition) error {
	err := s.o.Store.Delete(ctx, id, func(v *Video) error {
		if v.AccountID != account {
			return NotFound()
		}
		return c.Check(v.Rev)
	})
	if err != nil {
		return err
	}
	s.o.Pipeline.Purge()
	return nil
}

// SetCaptions stores a WebVTT file as the captions for a language. It stores the file under a new
// name before the video refers to it, so a player never gets an incomplete file.
func (s *Service) SetCaptions(ctx context.Context, account string, id ID, lang string, file []byte) error {
	object := CaptionObject(id, lang, identity.NewNonce())
	if _, err := s.o.Bucket.Upload(ctx, object, bytes.NewReader(file), objectstore.UploadOptions{ContentType: "text/vtt; charset=utf-8"}); err != nil {
		return err
	}
	former := ""
	_, err := s.change(ctx, account, id, always{}, func(v *Video, now time.Time) error {
		old, _ := v.Caption(lang)
		former = old.Object
		if !v.SetCaption(Caption{Lang: lang, Label: lang, Object: object, At: now}, now) {
			return apierr.Invalid(apierr.Detail{Field: "lang", Code: apierr.OutOfRange, Max: MaxCaptions,
				Message: fmt.Sprintf("A video can have captions in at most %d languages. Delete one first.", MaxCaptions)})
		}
		return nil
	})
	switch {
	case err == nil:
		s.drop(ctx, former)
	case !maybeStored(err):
		s.drop(ctx, object)
	}
	// Otherwise, we cannot tell whether the record refers to the new file or the previous one. The
	// janitor will remove the other one.
	return err
}

// DeleteCaptions removes the captions for a language.
func (s *Service) DeleteCaptions(ctx context.Context, account string, id ID, lang string) error {
	former := ""
	_, err := s.change(ctx, account, id, always{}, func(v *Video, now time.Time) error {
		old, ok := v.Caption(lang)
		// The transaction only runs this function again if its last attempt did not write anything.
		// So if there are no captions, they were not removed by this call.
		if !ok {
			return NoCaptions()
		}
		former = old.Object
		v.RemoveCaption(lang, now)
		return nil
	})
	if err != nil {
		return err
	}
	s.drop(ctx, former)
	return nil
}

// drop removes an object that no record refers to any more. If that fails, the janitor will remove
// it.
func (s *Service) drop(ctx context.Context, object string) {
	if object == "" {
		return
	}
	if err := s.o.Bucket.Delete(ctx, object, 0); err != nil {
		s.o.Log.DebugContext(ctx, "cannot remove an object; the janitor retries", "error", err)
	}
}

// SetThumbnail sets a video's poster to its frame at seconds. If seconds is nil,
// SetThumbnail restores the automatic poster.
func (s *Service) SetThumbnail(ctx context.Context, account string, id ID, c Condition, seconds *float64) (*Video, error) {
	if seconds == nil {
		return s.change(ctx, account, id, c, func(v *Video, now time.Time) error {
			if !v.DropStill(now) {
				return ErrUnchanged
			}
			return nil
		})
	}
	v, err := s.change(ctx, account, id, c, func(v *Video, now time.Time) error {
		if bad := v.CheckStill(*seconds); len(bad) > 0 {
			return apierr.Invalid(bad...)
		}
		// If the same poster has already been requested and a worker is still taking it, the caller
		// waits for it below.
		if v.Still != nil && v.Still.Time == *seconds {
			return ErrUnchanged
		}
		v.AskStill(*seconds, NewStillJob(v.ID), now)
		return nil
	})
	if err != nil || v.Still == nil || v.Still.JobID == "" {
		return v, err
	}
	return s.o.Pipeline.TakeStill(ctx, v)
}

// Now returns the time on the service's clock.
func (s *Service) Now() time.Time { return s.o.Now() }

// Own returns a token that lets an owner watch and download v. The token stops being valid once its
// caller, by, is no longer allowed to read videos.
func (s *Service) Own(v *Video, by *identity.Principal) string {
	g := GrantFor(v, Own, s.o.OwnerTTL, s.o.Now())
	g.By = principalOf(by)
	return s.o.Keys.Sign(g)
}

// Visit looks up the video for a share URL on behalf of a visitor who only has the URL. It rejects
// videos that nobody may see: expired videos, videos that were taken down, and videos in suspended
// accounts.
func (s *Service) Visit(ctx context.Context, slug Slug) (*Video, error) {
	v, err := s.o.Store.BySlug(ctx, slug)
	if err != nil {
		return nil, err
	}
	if err := s.showable(ctx, v); err != nil {
		return nil, err
	}
	if v.Expired(s.o.Now()) {
		return nil, expired()
	}
	return v, nil
}

// Redeem looks up the video that a token is valid for, in one read.
func (s *Service) Redeem(ctx context.Context, slug Slug, token string) (*Video, Grant, error) {
	g, err := s.o.Keys.Verify(token)
	// A cookie's grant is only for the page. It is not valid in URLs, which people share.
	if err != nil || g.Kind == Unlocked || g.Kind == Returning {
		return nil, g, refusedGrant()
	}
	v, err := s.o.Store.Get(ctx, g.Video)
	if err != nil {
		return nil, g, err
	}
	if v.Slug != slug {
		return nil, g, refusedGrant()
	}
	if err := s.showable(ctx, v); err != nil {
		return nil, g, err
	}
	if g.Kind == Own {
		may, err := s.rights.may(ctx, v.AccountID, g.By)
		if err != nil {
			return nil, g, err
		}
		if !may {
			return nil, g, refusedGrant()
		}
	}
	now := s.o.Now()
	switch {
	case g.Kind != Own && v.Expired(now):
		return nil, g, expired()
	case !g.Allows(v, now):
		return nil, g, refusedGrant()
	case !v.Playable():
		return nil, g, apierr.New(apierr.NotFound, "This video is not ready.")
	}
	return v, g, nil
}

// showable rejects videos that the operator has blocked, regardless of the caller's
// permissions.
func (s *Service) showable(ctx context.Context, v *Video) error {
	if v.TakenDown != nil {
		return takenDown()
	}
	state, err := s.standings.of(ctx, v.AccountID)
	if err != nil {
		return err
	}
	if state != tenant.Active {
		return accountSuspended()
	}
	return nil
}

// Refresh picks up a finished upload or transcode before the video is shown.
func (s *Service) Refresh(ctx context.Context, v *Video) *Video { return s.o.Pipeline.Refresh(ctx, v) }

// always is a condition that always holds.
type always struct{}

func (always) Check(int64) error { return nil }
