// Package api serves the HTTP API for videos: it reads requests, leaves decisions to package
// video, and writes responses as the API document defines them. It also receives decisions about
// accounts from auth and notifications from storage. The notification route is public, so the
// service verifies each notification and uses it only as a hint to check storage.
package api

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/jsdate"
	"github.com/linkreel/linkreel/libs/label"
	"github.com/linkreel/linkreel/libs/search"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// Public adds the routes that require an API key.
func Public(a *httpapi.API, videos *video.Service, addresses video.Addresses) {
	h := public{videos: videos, shown: presenter{videos, addresses, videos.RestoredAt}}
	read := httpapi.Access{Scope: identity.VideosRead}
	write := httpapi.Access{Scope: identity.VideosWrite, Plan: identity.Creator}
	a.Handle(fiber.MethodGet, "/api/v1/videos", read, h.list)
	a.Handle(fiber.MethodPost, "/api/v1/videos", write, h.create)
	a.Handle(fiber.MethodGet, "/api/v1/videos/:id", read, h.get)
	a.Handle(fiber.MethodPatch, "/api/v1/videos/:id", write, h.owned(h.update))
	a.Handle(fiber.MethodDelete, "/api/v1/videos/:id", write, h.remove)
	a.Finds(fiber.MethodDelete, "/api/v1/videos/:id", h.owned(access))
	a.Handle(fiber.MethodGet, "/api/v1/videos/:id/access", read, h.owned(access))
	a.Handle(fiber.MethodPut, "/api/v1/videos/:id/access", write, h.owned(h.setAccess))
	a.Handle(fiber.MethodPut, "/api/v1/videos/:id/thumbnail", write, h.owned(h.setThumbnail))
	a.Handle(fiber.MethodGet, "/api/v1/videos/:id/captions", read, h.owned(captions))
	a.Handle(fiber.MethodPut, "/api/v1/videos/:id/captions/:lang", write, h.owned(h.putCaptions))
	a.Handle(fiber.MethodDelete, "/api/v1/videos/:id/captions/:lang", write, h.owned(h.deleteCaptions))
	a.Finds(fiber.MethodPut, "/api/v1/videos/:id/captions/:lang", h.owned(nothing))
	a.Finds(fiber.MethodDelete, "/api/v1/videos/:id/captions/:lang", h.owned(track))
}

type public struct {
	videos *video.Service
	shown  presenter
}

// owned looks up the video in the path before anything else, so 404 takes precedence over 400.
func (h public) owned(do func(*fiber.Ctx, *video.Video) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		v, err := h.videos.Owned(c.UserContext(), account(c), id(c))
		if err != nil {
			return err
		}
		return do(c, v)
	}
}

func (h public) list(c *fiber.Ctx) error {
	limit, bad := httpapi.Limit(c)
	f, details := filterOf(c)
	if bad = append(bad, details...); len(bad) > 0 {
		return apierr.Invalid(bad...)
	}
	cursor := c.Query("cursor")
	// An empty cursor is a bug in the caller's loop. Returning the first page would make the loop
	// endless.
	if cursor == "" && c.Context().QueryArgs().Has("cursor") {
		return apierr.New(apierr.InvalidCursor, "This cursor does not come from a list of videos. Start again without a cursor.")
	}
	found, next, err := h.videos.List(c.UserContext(), account(c), f, cursor, limit)
	if err != nil {
		return err
	}
	data := make([]wire.VideoSummary, len(found))
	for i, v := range found {
		data[i] = h.shown.summary(v)
	}
	if next != "" {
		c.Set(fiber.HeaderLink, h.nextLink(c, next))
	}
	return httpapi.JSON(c, fiber.StatusOK, wire.VideoList{Data: data})
}

// nextLink returns the Link header for the next page: the current request with a different cursor.
// It uses the base URL and the recognised query parameters, never the Host header.
func (h public) nextLink(c *fiber.Ctx, cursor string) string {
	args := c.Context().QueryArgs()
	next := fiber.AcquireArgs()
	defer fiber.ReleaseArgs(next)
	for _, name := range []string{"limit", "q", "tag", "status", "privacy", "externalId"} {
		for _, value := range args.PeekMulti(name) {
			next.AddBytesV(name, value)
		}
	}
	next.Add("cursor", cursor)
	return fmt.Sprintf(`<%s/api/v1/videos?%s>; rel="next"`, h.shown.addresses.Base, next.QueryString())
}

// maxQuery is the maximum length of a search string in bytes. A search uses only the first few
// words of the text.
const maxQuery = 500

// maxTagFilters is the maximum number of tags in a filter.
const maxTagFilters = 5

func filterOf(c *fiber.Ctx) (f video.Filter, bad []apierr.Detail) {
	args := c.Context().QueryArgs()
	if q := c.Query("q"); len(q) > maxQuery {
		bad = append(bad, apierr.Detail{Field: "q", Code: apierr.TooLong, Message: "Use at most 500 bytes.", Max: maxQuery})
	} else {
		f.Query = search.Parse(q)
	}
	tags := args.PeekMulti("tag")
	if len(tags) > maxTagFilters {
		bad = append(bad, apierr.Detail{Field: "tag", Code: apierr.TooLong, Message: "Use at most 5 tags.", Max: maxTagFilters})
		tags = nil
	}
	for _, t := range tags {
		bad = append(bad, label.Tag("tag", string(t))...)
		f.Tags = append(f.Tags, string(t))
	}
	if args.Has("status") {
		f.Status = video.Status(c.Query("status"))
		switch f.Status {
		case video.Uploading, video.Processing, video.Ready, video.Failed:
		default:
			bad = append(bad, apierr.Detail{Field: "status", Code: apierr.InvalidValue, Message: "Use one of uploading, processing, ready, failed."})
		}
	}
	if args.Has("privacy") {
		f.Privacy = video.Privacy(c.Query("privacy"))
		switch f.Privacy {
		case video.Public, video.Unlisted, video.Password, video.Expiring:
		default:
			bad = append(bad, apierr.Detail{Field: "privacy", Code: apierr.InvalidValue, Message: "Use one of public, unlisted, password, expiring."})
		}
	}
	if args.Has("externalId") {
		f.ExternalID = c.Query("externalId")
		bad = append(bad, label.ExternalID("externalId", f.ExternalID)...)
	}
	return f, bad
}

func (h public) create(c *fiber.Ctx) error {
	ctx := c.UserContext()
	p, origin := identity.FromContext(ctx), identity.OriginFrom(ctx)
	left, err := h.videos.Room(ctx, p.AccountID, p.Quotas, origin)
	if err != nil {
		return err // 403 takes precedence over 400
	}
	var body wire.VideoCreate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	draft := video.Draft{
		Title: body.Title, Tags: body.Tags, ExternalID: body.ExternalID, Recording: body.Recording,
		Rule: video.Rule{Privacy: body.Privacy, Password: body.Password, ExpiresAt: instant(fields, "expiresAt", body.ExpiresAt)},
	}
	if fields.HasError("privacy") {
		draft.Privacy = new(string) // unknown, so the fields that depend on it are not checked
	}
	checked, bad := draft.Check(origin.At)
	fields.Add(bad...)
	if err := fields.Err(); err != nil {
		return err
	}
	v, err := h.videos.Create(ctx, video.NewVideo{Account: p.AccountID, Limits: p.Quotas, Draft: checked, Origin: origin, Page: pageOf(c), Left: left})
	if err != nil {
		return err
	}
	return httpapi.Created(c, "/api/v1/videos/"+string(v.ID), h.shown.created(v, p, fields.Unknown))
}

// pageOf returns the Origin header, or "" if it is not an origin. The header identifies the page
// that sent the request, or the page for which a server sent it.
func pageOf(c *fiber.Ctx) string {
	origin := c.Get(fiber.HeaderOrigin)
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.Scheme+"://"+u.Host != origin {
		return ""
	}
	// Fiber reuses the string's memory after the handler returns.
	return strings.Clone(origin)
}

func (h public) get(c *fiber.Ctx) error {
	by := identity.FromContext(c.UserContext())
	// Only callers that may write get the upload URL, so Get renews one that expires soon only for
	// these callers.
	v, err := h.videos.Get(c.UserContext(), by.AccountID, id(c), by.Scopes.Has(identity.VideosWrite))
	if err != nil {
		return err
	}
	// The ETag includes the views and the progress, which do not change the revision. It also
	// includes whether the caller may write because other callers get fewer fields.
	variant := fmt.Sprintf("%d-%d", v.Views, v.Progress)
	if !by.Scopes.Has(identity.VideosWrite) {
		variant += "-r"
	}
	if httpapi.NotModified(c, httpapi.VariantETag(v.Rev, variant)) {
		return nil
	}
	return httpapi.JSON(c, fiber.StatusOK, h.shown.full(v, by))
}

func (h public) update(c *fiber.Ctx, _ *video.Video) error {
	var body wire.VideoUpdate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	patch := video.Patch{Title: changeOf(body.Title), Description: changeOf(body.Description), ExternalID: changeOf(body.ExternalID)}
	if body.Tags.Set {
		patch.Tags = &body.Tags.Value
	}
	patch, bad := patch.Check()
	fields.Add(bad...)
	if body.ExternalID.Set && !body.ExternalID.Null && body.ExternalID.Value == "" && !fields.HasError("externalId") {
		fields.Add(label.ExternalID("externalId", "")...)
	}
	if err := fields.Err(); err != nil {
		return err
	}
	v, err := h.videos.Change(c.UserContext(), account(c), id(c), httpapi.IfMatch(c), patch)
	if err != nil {
		return err
	}
	return h.changed(c, v, fields.Unknown)
}

func (h public) remove(c *fiber.Ctx) error {
	if err := h.videos.Delete(c.UserContext(), account(c), id(c), httpapi.IfMatch(c)); err != nil {
		return err
	}
	return httpapi.NoContent(c)
}

func access(c *fiber.Ctx, v *video.Video) error {
	c.Set(fiber.HeaderETag, httpapi.ETag(v.Rev))
	return httpapi.JSON(c, fiber.StatusOK, accessOf(v, nil))
}

func (h public) setAccess(c *fiber.Ctx, present *video.Video) error {
	ctx := c.UserContext()
	var body wire.VideoAccessUpdate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	rule := video.Rule{
		Privacy: &body.Privacy, Password: body.Password.Ptr(), ExpiresAt: instant(fields, "expiresAt", body.ExpiresAt.Ptr()),
		AllowDownload: body.AllowDownload.Ptr(), EmbedOrigins: body.EmbedOrigins.Value,
	}
	judged := rule
	if fields.HasError("privacy") {
		judged.Privacy = new(string) // unknown, so the fields that depend on it are not checked
	}
	_, bad := judged.Check(present, h.videos.Now())
	for _, d := range bad {
		if !fields.HasError(d.Field) {
			fields.Add(d)
		}
	}
	if err := fields.Err(); err != nil {
		return err
	}
	v, err := h.videos.SetAccess(ctx, account(c), id(c), httpapi.IfMatch(c), rule)
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderETag, httpapi.ETag(v.Rev))
	return httpapi.JSON(c, fiber.StatusOK, accessOf(v, fields.Unknown))
}

func (h public) setThumbnail(c *fiber.Ctx, _ *video.Video) error {
	var body wire.VideoThumbnail
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	if err := fields.Err(); err != nil {
		return err
	}
	v, err := h.videos.SetThumbnail(c.UserContext(), account(c), id(c), httpapi.IfMatch(c), body.Time)
	if err != nil {
		return err
	}
	return h.changed(c, v, fields.Unknown)
}

// changed sends the updated video after a successful change.
func (h public) changed(c *fiber.Ctx, v *video.Video, ignored []string) error {
	by := identity.FromContext(c.UserContext())
	if v.AwaitsUpload() && by.Scopes.Has(identity.VideosWrite) { // renew an upload URL that expires soon, as GET does
		if fresh, err := h.videos.Get(c.UserContext(), by.AccountID, v.ID, true); err == nil {
			v = fresh
		}
	}
	c.Set(fiber.HeaderETag, httpapi.ETag(v.Rev))
	shown := h.shown.full(v, by)
	return httpapi.JSON(c, fiber.StatusOK, wire.VideoUpdated{Success: true, Video: shown, IgnoredFields: ignored})
}

func account(c *fiber.Ctx) string { return identity.FromContext(c.UserContext()).AccountID }

func id(c *fiber.Ctx) video.ID { return video.ID(c.Params("id")) }

func changeOf(o httpapi.Optional[string]) video.Change {
	return video.Change{Set: o.Set, Value: o.Value}
}

// instant parses a time that may be absent or null.
func instant(fields *httpapi.Fields, field string, given *jsdate.Moment) *int64 {
	if given == nil {
		return nil
	}
	ms, ok := fields.Instant(field, *given)
	if !ok {
		return nil
	}
	return &ms
}
