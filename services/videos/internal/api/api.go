// Package api is the videos' part of the HTTP API: it reads requests, lets the
// domain decide, and writes what the API document promises. It also takes
// storage's notifications, which are public but verified and only ever make the
// service look for itself.
package api

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// Store is the memory of videos. An account sees its own only: any other id is
// [video.NotFound].
type Store interface {
	// Create stores a video, or finds that the very same was stored before;
	// [video.ErrSlugTaken] asks for another slug.
	Create(ctx context.Context, v *video.Video) (*video.Video, error)
	Owned(ctx context.Context, account string, id video.ID) (*video.Video, error)
	// List gives the newest first, as summaries.
	List(ctx context.Context, account string, limit int) ([]*video.Video, error)
	Count(ctx context.Context, account string) (int, error)
	// Update runs fn on the video, possibly several times, and stores the result.
	Update(ctx context.Context, id video.ID, fn func(*video.Video) error) (*video.Video, error)
}

// Pipeline is what happens to videos by itself.
type Pipeline interface {
	// Look brings a video up to date; it never fails.
	Look(ctx context.Context, v *video.Video) *video.Video
	// Remove deletes a video if fn, seeing it, agrees.
	Remove(ctx context.Context, id video.ID, fn func(*video.Video) error) error
	// Uploaded says that something was put at an object name.
	Uploaded(ctx context.Context, object string) error
}

// Bucket signs addresses and keeps caption files.
type Bucket interface {
	SignPut(ctx context.Context, object string, ttl time.Duration) (string, time.Time, error)
	SignGet(ctx context.Context, object string, ttl time.Duration, o objectstore.GetOptions) (string, time.Time, error)
	StartResumable(ctx context.Context, object string) (string, error)
	Upload(ctx context.Context, object string, r io.Reader, o objectstore.UploadOptions) (objectstore.Object, error)
	Delete(ctx context.Context, object string, generation int64) error
}

// Options are what the API works with.
type Options struct {
	Store     Store
	Pipeline  Pipeline
	Bucket    Bucket
	Passwords *video.Passwords
	Keys      *video.Keyring
	Addresses video.Addresses
	Push      *Verifier // nil: notifications are refused
	Now       func() time.Time
	Log       *slog.Logger

	UploadTTL time.Duration // life of an upload address
	OwnerTTL  time.Duration // life of the owner's playback and download addresses

	UploadObject  func(id video.ID) string
	CaptionObject func(id video.ID, lang, nonce string) string
}

// StorageHookPath takes the pushes of storage's notifications.
const StorageHookPath = "/hooks/storage"

// API has the handlers.
type API struct{ o Options }

// Register adds the routes.
func Register(s *httpapi.API, o Options) {
	a := &API{o}
	read := httpapi.Access{Scope: identity.VideosRead}
	write := httpapi.Access{Scope: identity.VideosWrite, Plan: identity.Creator}
	s.Handle(fiber.MethodGet, "/api/v1/videos", read, a.list)
	s.Handle(fiber.MethodPost, "/api/v1/videos", write, a.create)
	s.Handle(fiber.MethodGet, "/api/v1/videos/:id", read, a.get)
	s.Handle(fiber.MethodPatch, "/api/v1/videos/:id", write, a.update)
	s.Handle(fiber.MethodDelete, "/api/v1/videos/:id", write, a.remove)
	s.Handle(fiber.MethodPut, "/api/v1/videos/:id/captions/:lang", write, a.putCaptions)
	s.Public(fiber.MethodPost, StorageHookPath, a.storageEvent)
}

func (a *API) list(c *fiber.Ctx) error {
	limit, bad := httpapi.Limit(c)
	if len(bad) > 0 {
		return apierr.Invalid(bad...)
	}
	found, err := a.o.Store.List(c.UserContext(), account(c), limit)
	if err != nil {
		return err
	}
	data := make([]summary, len(found))
	for i, v := range found {
		data[i] = summaryOf(v)
	}
	return httpapi.JSON(c, fiber.StatusOK, struct {
		Data []summary `json:"data"`
	}{data})
}

func (a *API) create(c *fiber.Ctx) error {
	var body struct {
		Title     *string  `json:"title"`
		Privacy   *string  `json:"privacy"`
		Password  *string  `json:"password"`
		ExpiresAt *float64 `json:"expiresAt"`
	}
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	ctx := c.UserContext()
	origin := httpapi.OriginOf(ctx)
	draft := video.Draft{Title: body.Title, Privacy: body.Privacy, Password: body.Password, ExpiresAt: milliseconds(body.ExpiresAt)}
	if fields.Bad("privacy") {
		draft.Privacy = new(string) // unknown: what depends on it is not judged
	}
	checked, bad := draft.Check(origin.At)
	fields.Add(bad...)
	if err := fields.Err(); err != nil {
		return err
	}

	id := video.Identity{ID: video.ID(identity.IDFrom("vid", origin.Nonce)), AccountID: account(c)}
	id.UploadObject = a.o.UploadObject(id.ID)
	if err := a.quota(ctx, id.ID); err != nil {
		return err
	}
	var hash string
	var upload video.Upload
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { hash, err = a.hash(gctx, checked.Password); return err })
	g.Go(func() (err error) { upload, err = a.upload(gctx, id.UploadObject); return err })
	if err := g.Wait(); err != nil {
		return err
	}
	stored, err := a.store(ctx, origin, func(slug video.Slug) *video.Video {
		id.Slug = slug
		v := video.New(id, checked, hash, origin.At.Truncate(time.Microsecond))
		v.Upload = upload
		return v
	})
	if err != nil {
		return err
	}
	return httpapi.Created(c, "/api/v1/videos/"+string(stored.ID), created{
		VideoID: string(stored.ID), Slug: string(stored.Slug), UploadURL: stored.Upload.URL, ShareURL: a.o.Addresses.Page(stored.Slug),
		UploadURLExpiresAt: stored.Upload.ExpiresAt.UnixMilli(), ResumableUploadURL: stored.Upload.ResumableURL,
	})
}

// quota refuses a video more than the account may have. A repeated request whose
// first try made the video is not refused.
func (a *API) quota(ctx context.Context, id video.ID) error {
	p := identity.FromContext(ctx)
	if p.Quotas.Videos <= 0 {
		return nil
	}
	have, err := a.o.Store.Count(ctx, p.AccountID)
	if err != nil || have < p.Quotas.Videos {
		return err
	}
	if _, err := a.o.Store.Owned(ctx, p.AccountID, id); err == nil {
		return nil
	}
	return apierr.New(apierr.QuotaExceeded, "The account has as many videos as its plan allows.")
}

// slugTries is how many slugs are tried; with 30^7 of them a second try is rare
// already.
const slugTries = 5

func (a *API) store(ctx context.Context, origin httpapi.Origin, build func(video.Slug) *video.Video) (*video.Video, error) {
	for try := range slugTries {
		slug := video.Slug(identity.SlugFrom(origin.Nonce+"/"+strconv.Itoa(try), 7))
		stored, err := a.o.Store.Create(ctx, build(slug))
		if !errors.Is(err, video.ErrSlugTaken) {
			return stored, err
		}
	}
	return nil, apierr.Down(video.ErrSlugTaken)
}

func (a *API) hash(ctx context.Context, password string) (string, error) {
	if password == "" {
		return "", nil
	}
	hash, err := a.o.Passwords.Hash(ctx, password)
	if errors.Is(err, video.ErrBusy) {
		return "", apierr.Down(err)
	}
	return hash, err
}

// upload makes the addresses to send a file to. The resumable one is a bonus:
// a storage that does not answer in time costs only that.
func (a *API) upload(ctx context.Context, object string) (video.Upload, error) {
	u := video.Upload{Object: object}
	var g errgroup.Group
	g.Go(func() (err error) {
		u.URL, u.ExpiresAt, err = a.o.Bucket.SignPut(ctx, object, a.o.UploadTTL)
		return err
	})
	g.Go(func() error {
		ctx, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
		defer cancel()
		session, err := a.o.Bucket.StartResumable(ctx, object)
		if err != nil {
			a.o.Log.DebugContext(ctx, "no resumable session", "error", err)
			return nil
		}
		u.ResumableURL = session
		return nil
	})
	return u, g.Wait()
}

func (a *API) get(c *fiber.Ctx) error {
	ctx := c.UserContext()
	v, err := a.owned(c)
	if err != nil {
		return err
	}
	v = a.o.Pipeline.Look(ctx, v)
	if v, err = a.refresh(ctx, v); err != nil {
		return err
	}
	body, err := a.full(ctx, v)
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderETag, httpapi.ETag(v.Rev))
	return httpapi.JSON(c, fiber.StatusOK, body)
}

// refresh renews an upload address that has less than an hour left, and a
// resumable session that was used up.
func (a *API) refresh(ctx context.Context, v *video.Video) (*video.Video, error) {
	left := v.Upload.ExpiresAt.Sub(a.o.Now())
	if !v.AwaitsUpload() || left > time.Hour && (v.Upload.ResumableURL != "" || v.Status == video.Uploading) {
		return v, nil
	}
	fresh, err := a.upload(ctx, v.Upload.Object)
	if err != nil {
		if left > 0 {
			return v, nil
		}
		return nil, err
	}
	if left > time.Hour {
		fresh.URL, fresh.ExpiresAt = v.Upload.URL, v.Upload.ExpiresAt
		if fresh.ResumableURL == "" {
			return v, nil
		}
	}
	return a.o.Store.Update(ctx, v.ID, func(v *video.Video) error {
		if !v.AwaitsUpload() {
			return video.ErrUnchanged
		}
		v.Upload = fresh
		return nil
	})
}

func (a *API) update(c *fiber.Ctx) error {
	v, err := a.owned(c)
	if err != nil {
		return err
	}
	var body struct {
		Title       httpapi.Optional[string] `json:"title"`
		Description httpapi.Optional[string] `json:"description"`
	}
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	patch := video.Patch{
		Title:       video.Change{Set: body.Title.Set, Value: body.Title.Value},
		Description: video.Change{Set: body.Description.Set, Value: body.Description.Value},
	}
	fields.Add(patch.Check()...)
	if err := fields.Err(); err != nil {
		return err
	}
	match, owner := httpapi.IfMatch(c), account(c)
	v, err = a.o.Store.Update(c.UserContext(), v.ID, func(v *video.Video) error {
		if v.AccountID != owner {
			return video.NotFound()
		}
		if err := match.Check(v.Rev); err != nil {
			return err
		}
		if !patch.Apply(v, a.o.Now()) {
			return video.ErrUnchanged
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderETag, httpapi.ETag(v.Rev))
	return httpapi.JSON(c, fiber.StatusOK, struct {
		Success       bool     `json:"success"`
		IgnoredFields []string `json:"ignoredFields,omitempty"`
	}{true, fields.Unknown})
}

func (a *API) remove(c *fiber.Ctx) error {
	match, owner := httpapi.IfMatch(c), account(c)
	err := a.o.Pipeline.Remove(c.UserContext(), video.ID(c.Params("id")), func(v *video.Video) error {
		if v.AccountID != owner {
			return video.NotFound()
		}
		return match.Check(v.Rev)
	})
	if err != nil {
		return err
	}
	return httpapi.NoContent(c)
}

func (a *API) owned(c *fiber.Ctx) (*video.Video, error) {
	return a.o.Store.Owned(c.UserContext(), account(c), video.ID(c.Params("id")))
}

func account(c *fiber.Ctx) string { return identity.FromContext(c.UserContext()).AccountID }

// milliseconds reads a whole JSON number, written in any way; what is too large
// to be a time stays too large.
func milliseconds(f *float64) *int64 {
	if f == nil {
		return nil
	}
	n := int64(math.MaxInt64)
	if *f < math.MaxInt64 {
		n = int64(math.Max(*f, math.MinInt64))
	}
	return &n
}
