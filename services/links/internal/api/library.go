package api

import (
	"fmt"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/label"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/libs/search"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

const (
	maxQuery      = 500 // maximum code points in q, the same as in a title
	maxTagFilters = 5
	defaultDomain = "default" // stands for the default host
)

// filters parses a list's filters. httpapi rejects unknown filters.
func filters(c *fiber.Ctx, f *httpapi.Fields, q *link.Query) {
	args := c.Context().QueryArgs()
	if args.Has("q") {
		text := c.Query("q")
		checkQuery(f, text)
		q.Words = search.Words(text)
	}
	tags := args.PeekMulti("tag")
	if len(tags) > maxTagFilters {
		f.Add(apierr.Detail{
			Field: "tag", Code: apierr.TooLong,
			Message: fmt.Sprintf("Filter by at most %d tags.", maxTagFilters), Max: maxTagFilters,
		})
		tags = nil
	}
	for _, t := range tags {
		f.Add(label.Tag("tag", string(t))...)
		q.Tags = append(q.Tags, string(t))
	}
	if args.Has("domainId") {
		id := c.Query("domainId")
		if !identity.ValidID(id) {
			f.Add(apierr.Detail{Field: "domainId", Code: apierr.InvalidFormat, Message: "Use the id of a domain, or default for the default host."})
		}
		if id == defaultDomain {
			id = ""
		}
		q.DomainID = &id
	}
	if args.Has("slug") {
		folded, ok := link.LookupSlug([]byte(c.Query("slug")))
		if !ok {
			f.Add(apierr.Detail{
				Field: "slug", Code: apierr.InvalidFormat,
				Message: "No link can have this slug. Use at most 100 letters, digits, '_', '.' and '-'.",
			})
		}
		q.Slug = folded
	}
	if args.Has("externalId") {
		f.Add(label.ExternalID("externalId", c.Query("externalId"))...)
		q.ExternalID = c.Query("externalId")
	}
	if args.Has("archived") {
		switch text := c.Query("archived"); text {
		case "all":
		case "true", "false":
			archived := text == "true"
			q.Archived = &archived
		default:
			f.Add(apierr.Detail{Field: "archived", Code: apierr.InvalidValue, Message: "Use all, true or false."})
		}
	}
}

func checkQuery(f *httpapi.Fields, text string) {
	switch {
	case !utf8.ValidString(text):
		f.Add(apierr.Detail{Field: "q", Code: apierr.InvalidValue, Message: "Send the text as UTF-8."})
	case utf8.RuneCountInString(text) > maxQuery:
		f.Add(apierr.Detail{
			Field: "q", Code: apierr.TooLong,
			Message: fmt.Sprintf("Search for at most %d characters of text.", maxQuery), Max: maxQuery,
		})
	}
}

func readTags(f *httpapi.Fields, field string, given []string) []string {
	if f.HasError(field) {
		return nil
	}
	tags, bad := label.Tags(field, given)
	f.Add(bad...)
	return tags
}

func checkExternalID(f *httpapi.Fields, id string) {
	if !f.HasError("externalId") {
		f.Add(label.ExternalID("externalId", id)...)
	}
}

// listTags returns the tags on links and videos to callers that may read links or videos.
func (h public) listTags(c *fiber.Ctx) error {
	ctx := c.UserContext()
	if scopes := identity.FromContext(ctx).Scopes; !scopes.Has(identity.LinksRead) && !scopes.Has(identity.VideosRead) {
		return &apierr.Error{
			Code: apierr.InsufficientScope, RequiredScope: identity.LinksRead.String(),
			Message: "This key cannot list tags. Use a key with the links:read or videos:read scope.",
		}
	}
	limit, details := httpapi.Limit(c)
	var f httpapi.Fields
	f.Add(details...)
	checkQuery(&f, c.Query("q"))
	if err := f.Err(); err != nil {
		return err
	}
	page, err := httpapi.PageOf(c, limit, "tags", account(ctx))
	if err != nil {
		return err
	}
	found, next, err := h.links.Tags(ctx, account(ctx), c.Query("q"), page.After.ID, limit)
	if err != nil {
		return err
	}
	out := wire.TagPage{Data: wire.List(found, func(name string) wire.Tag { return wire.Tag{Name: name} }), HasMore: next != ""}
	if out.HasMore { // a page of search results may be empty even if it is not the last
		cursor := page.Cursor(paging.Place{ID: next})
		out.NextCursor = &cursor
	}
	return httpapi.JSON(c, fiber.StatusOK, out)
}

// bulkUpdate applies one change to several links.
func (h public) bulkUpdate(c *fiber.Ctx) error {
	var body wire.BulkUpdate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	var set link.Set
	in := body.Set
	if in.Tags.Set {
		tags := readTags(fields, "set.tags", in.Tags.Value)
		set.Patch = append(set.Patch, func(l *link.Link) { l.Tags = tags })
		if len(in.AddTags)+len(in.RemoveTags) > 0 {
			fields.Add(apierr.Detail{
				Field: "set.tags", Code: apierr.NotAllowed,
				Message: "Use tags to replace all tags, or addTags and removeTags to change some, not both.",
			})
		}
	}
	set.AddTags, set.RemoveTags = readTags(fields, "set.addTags", in.AddTags), readTags(fields, "set.removeTags", in.RemoveTags)
	if in.Archived.Set {
		set.Patch = append(set.Patch, func(l *link.Link) { l.Archived = in.Archived.Value })
	}
	if b := in.ExpiresAt; b.Set {
		to := expiryOrNever(fields, "set.expiresAt", b)
		set.Patch = append(set.Patch, func(l *link.Link) { l.Expiry = to })
	}
	if err := fields.Err(); err != nil {
		return err
	}
	if err := h.charge(c, len(body.IDs)); err != nil {
		return err
	}
	ctx := c.UserContext()
	results, err := h.links.UpdateAll(ctx, account(ctx), body.IDs, set)
	if err != nil {
		return err
	}
	return h.bulkAnswer(c, body.IDs, results, fields.Unknown)
}

// bulkDelete removes several links.
func (h public) bulkDelete(c *fiber.Ctx) error {
	var body wire.BulkDelete
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	if err := fields.Err(); err != nil {
		return err
	}
	if err := h.charge(c, len(body.IDs)); err != nil {
		return err
	}
	ctx := c.UserContext()
	results, err := h.links.DeleteAll(ctx, account(ctx), body.IDs)
	if err != nil {
		return err
	}
	return h.bulkAnswer(c, body.IDs, results, fields.Unknown)
}

// bulkAnswer writes the results of a change to several links, in the format for a bulk create.
func (h public) bulkAnswer(c *fiber.Ctx, ids []string, results []link.Result, ignored []string) error {
	status := fiber.StatusOK
	out := make([]wire.BulkChange, len(results))
	for i, r := range results {
		if out[i].ID = ids[i]; len(ids[i]) > cutURL { // no valid ID is this long
			out[i].ID = cut(ids[i])
		}
		if r.Err != nil {
			out[i].Status, out[i].Error = failure(c.UserContext(), r.Err, "")
			status = fiber.StatusMultiStatus
			continue
		}
		data := h.madeOf(r.Link)
		out[i].Status, out[i].Data = fiber.StatusOK, &data
	}
	return httpapi.JSON(c, status, wire.BulkChanged{Results: out, IgnoredFields: ignored})
}
