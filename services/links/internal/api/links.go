package api

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

func account(ctx context.Context) string { return identity.FromContext(ctx).AccountID }

func (h public) list(c *fiber.Ctx) error {
	ctx := c.UserContext()
	q := link.Query{AccountID: account(ctx)}
	var f httpapi.Fields
	var details []apierr.Detail
	q.Limit, details = httpapi.Limit(c)
	f.Add(details...)
	filters(c, &f, &q)
	err := f.Err()
	if err == nil {
		q.Before, err = cursorOf(c)
	}
	if err != nil {
		return err
	}
	page, more, err := h.links.List(ctx, q)
	if err != nil {
		return err
	}
	out := wire.LinkPage{Data: wire.List(page, h.itemOf), HasMore: more}
	if more {
		out.NextCursor = &page[len(page)-1].Seq
	}
	return httpapi.JSON(c, fiber.StatusOK, out)
}

// cursorOf parses the query parameter "cursor". Without a cursor, the list starts with the newest
// record.
func cursorOf(c *fiber.Ctx) (int64, error) {
	if !c.Context().QueryArgs().Has("cursor") {
		return link.Top, nil
	}
	n, ok := parseCursor(c.Query("cursor"))
	if !ok {
		return 0, apierr.New(apierr.InvalidCursor,
			"This cursor does not come from a list. Pass the nextCursor from the previous page, unchanged.")
	}
	return n, nil
}

// parseCursor parses a whole number that JavaScript can represent.
func parseCursor(text string) (int64, bool) {
	n, err := strconv.ParseUint(text, 10, 53)
	return int64(n), err == nil && len(text) <= 16
}

func (h public) get(c *fiber.Ctx) error {
	ctx := c.UserContext()
	l, err := h.links.Get(ctx, account(ctx), c.Params("id"))
	if err != nil {
		return err
	}
	out := h.recordOf(l)
	// Clicks and status change without an edit, so the ETag includes them. Otherwise a caller would
	// get 304 and keep stale values.
	if httpapi.NotModified(c, httpapi.VariantETag(l.Rev, fmt.Sprintf("%d%s", l.Clicks, out.Status))) {
		return nil
	}
	return httpapi.JSON(c, fiber.StatusOK, out)
}

func (h public) create(c *fiber.Ctx) error {
	ctx := c.UserContext()
	p := identity.FromContext(ctx)
	draft, ignored, err := h.readCreate(c)
	if err != nil {
		// A full account gets 403 for any request body because 403 takes precedence over 404 and
		// 400.
		if full := h.links.CheckRoom(ctx, p); full != nil {
			return full
		}
		return err
	}
	// Ready writes the response before the commit, which stores it with the Idempotency-Key. If the
	// commit is retried, perhaps with a different slug, Ready runs again and replaces the response.
	// The event contains the same record.
	draft.Ready = func(l *link.Link) error {
		record := h.recordOf(l)
		l.Shown = record
		c.Set(fiber.HeaderETag, httpapi.ETag(l.Rev))
		return httpapi.Created(c, "/api/v1/links/"+l.ID, h.createdOf(l, record, ignored))
	}
	return h.links.Create(ctx, p, identity.OriginFrom(ctx), draft)
}

// readCreate parses a create's body.
func (h public) readCreate(c *fiber.Ctx) (d link.Draft, ignored []string, err error) {
	var body wire.LinkCreate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return d, nil, err
	}
	return h.draft(fields, &body, &domainsOf{ctx: c.UserContext(), public: h})
}

// draft parses every field in a create and reports errors that the contract cannot express. httpapi
// has already checked types and lengths against the contract.
func (h public) draft(f *httpapi.Fields, body *wire.LinkCreate, domains *domainsOf) (d link.Draft, ignored []string, err error) {
	own := h.opt.Own
	if b := body.DomainID; b.Set && !b.Null && b.Value == "" { // unlike null, an empty ID does not mean the default host
		return d, f.Unknown, customdomain.NotFound()
	}
	on, err := domains.orDefault(body.DomainID.Set, body.DomainID.Value)
	if err != nil {
		return d, f.Unknown, err
	}
	onDefaultHost := on == nil
	if !onDefaultHost {
		d.DomainID = on.ID
		own = append(own[:len(own):len(own)], link.ParseHost(on.Hostname)) // a link to its own host could redirect to itself
	}
	d.Destination = validate(f, "url", func() (link.URL, *apierr.Detail) { return h.links.Destination(body.URL, own) })
	if !onDefaultHost {
		if err := domains.leaves(f, d.Destination); err != nil {
			return d, f.Unknown, err
		}
	}
	if body.Slug != nil {
		d.Slug = validate(f, "slug", func() (link.Slug, *apierr.Detail) { return link.ParseSlug(*body.Slug, onDefaultHost) })
	}
	if body.Title != nil {
		d.Title = *body.Title
	}
	if body.ExpiresAt != nil {
		d.Expiry = validate(f, "expiresAt", expiry(*body.ExpiresAt))
	}
	d.OpenGraph = link.OpenGraph{Title: body.OGTitle, Description: body.OGDescription}
	if body.OGImage != nil {
		image := validate(f, "ogImage", func() (link.URL, *apierr.Detail) { return link.ParseURL(*body.OGImage, own) })
		d.OpenGraph.Image = &image
	}
	if d.Archived = body.Archived; len(body.Tags) > 0 {
		d.Tags = readTags(f, "tags", body.Tags)
	}
	if body.ExternalID != nil {
		d.ExternalID = *body.ExternalID
		checkExternalID(f, d.ExternalID)
	}
	if body.ImportedClicks != nil || body.CreatedAt != nil {
		h.imported(f, body, &d)
	}
	in := &body.LinkRouting
	changes, err := h.changes(f, in, domains.hosts)
	if err != nil {
		return d, f.Unknown, err
	}
	for _, change := range changes {
		change(&d.Link)
	}
	if in.Password.Set { // placeholder, so that no hash is computed for a rejected request
		hashed{true, in.Password.Value}.change(&d.Link)
	}
	if body.HasPassword && in.Password.Ptr() == nil {
		f.Add(apierr.Detail{
			Field: "password", Code: apierr.Required,
			Message: "This link had a password (hasPassword), and passwords are never shown. Send a new one, or hasPassword false.",
		})
	}
	if d.Routing != nil { // a plain link has no fields that can conflict
		checkTogether(f, &d.Link, in)
	}
	if err := f.Err(); err != nil {
		return d, f.Unknown, err
	}
	if in.Password.Set {
		var secret hashed
		secret, err = h.hash(domains.ctx, in.Password)
		secret.change(&d.Link)
	}
	return d, f.Unknown, err
}

// imported parses the clicks and the creation time of a link from another system. Only
// importedClicks marks an import. If a record from this API is sent back without importedClicks,
// its createdAt is ignored, like every read-only field.
func (h public) imported(f *httpapi.Fields, body *wire.LinkCreate, d *link.Draft) {
	if body.ImportedClicks == nil {
		f.Unknown = append(f.Unknown, "createdAt")
		return
	}
	clicks := int64(*body.ImportedClicks)
	d.ImportedClicks = &clicks
	if body.CreatedAt == nil {
		return
	}
	at := instant(f, "createdAt", body.CreatedAt)
	if now := h.opt.Now(); at.Set && (at.MS < 0 || at.MS > now.UnixMilli()) {
		f.Add(apierr.Detail{Field: "createdAt", Code: apierr.OutOfRange, Message: "Use a time from 1970 until now.", Max: now.UnixMilli()})
	} else if at.Set {
		d.CreatedAt = time.UnixMilli(at.MS).UTC()
	}
}

func (h public) update(c *fiber.Ctx) error {
	ctx, id := c.UserContext(), c.Params("id")
	var body wire.LinkUpdate
	fields, bad := httpapi.Decode(c, &body)
	domains := &domainsOf{ctx: ctx, public: h}
	var secret hashed
	if body.Password.Set { // hash before the transaction, which may run several times
		var err error
		if secret, err = h.newPassword(ctx, id, fields, bad, &body); err != nil {
			return err
		}
	}
	// 404 takes precedence over 400 because the response for another account's link must not depend
	// on the body. Errors in the body are therefore reported only if the link is found.
	l, err := h.links.Update(ctx, account(ctx), id, httpapi.IfMatch(c).Check, func(l *link.Link) (link.Patch, error) {
		if bad != nil {
			return link.Patch{}, bad
		}
		return h.patch(fields, &body, l, secret, domains)
	})
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderETag, httpapi.ETag(l.Rev))
	return httpapi.JSON(c, fiber.StatusOK, wire.LinkUpdated{
		Success: true, Slug: string(l.Slug), Link: h.recordOf(l), IgnoredFields: fields.Unknown,
	})
}

// newPassword hashes the password in an update, if the link exists and no error has been found in
// the body.
func (h public) newPassword(ctx context.Context, id string, f *httpapi.Fields, bad error, body *wire.LinkUpdate) (hashed, error) {
	if bad != nil || body.Password.Ptr() == nil || f.Err() != nil {
		return hashed{set: true}, nil
	}
	if _, err := h.links.Get(ctx, account(ctx), id); err != nil {
		return hashed{}, err
	}
	return h.hash(ctx, body.Password)
}

// patch parses every field in an update. Null clears a field, except the destination, which every
// link must have.
func (h public) patch(
	f *httpapi.Fields, body *wire.LinkUpdate, before *link.Link, secret hashed, domains *domainsOf,
) (link.Patch, error) {
	own := h.opt.Own
	if before.Host != "" {
		// Cap the slice so that append copies it because all requests share Own.
		own = append(own[:len(own):len(own)], link.ParseHost(before.Host))
	}
	var p link.Patch
	set := func(change func(*link.Link)) { p = append(p, change) }
	if b := body.URL; b.Null {
		f.Add(apierr.Detail{
			Field: "url", Code: apierr.InvalidType,
			Message: "A link must have a destination. Send a URL, or leave the field out.",
		})
	} else if b.Set {
		to := validate(f, "url", func() (link.URL, *apierr.Detail) { return h.links.Destination(b.Value, own) })
		// The link may keep its current destination.
		if before.Host != "" && to != before.Destination {
			if err := domains.leaves(f, to); err != nil {
				return nil, err
			}
		}
		set(func(l *link.Link) { l.Destination = to })
	}
	if b := body.Title; b.Set {
		set(func(l *link.Link) { l.Title = b.Value })
	}
	if b := body.ExpiresAt; b.Set {
		to := expiryOrNever(f, "expiresAt", b)
		set(func(l *link.Link) { l.Expiry = to })
	}
	if b := body.OGTitle; b.Set {
		set(func(l *link.Link) { l.OpenGraph.Title = orNil(b) })
	}
	if b := body.OGDescription; b.Set {
		set(func(l *link.Link) { l.OpenGraph.Description = orNil(b) })
	}
	if b := body.OGImage; b.Null {
		set(func(l *link.Link) { l.OpenGraph.Image = nil })
	} else if b.Set {
		image := validate(f, "ogImage", func() (link.URL, *apierr.Detail) { return link.ParseURL(b.Value, own) })
		set(func(l *link.Link) { l.OpenGraph.Image = &image })
	}
	// Null removes the tags, removes the ID or unarchives the link.
	if b := body.Tags; b.Set {
		tags := readTags(f, "tags", b.Value)
		set(func(l *link.Link) { l.Tags = tags })
	}
	if b := body.ExternalID; b.Set {
		if !b.Null {
			checkExternalID(f, b.Value)
		}
		set(func(l *link.Link) { l.ExternalID = b.Value })
	}
	if b := body.Archived; b.Set {
		set(func(l *link.Link) { l.Archived = b.Value })
	}
	changes, err := h.changes(f, &body.LinkRouting, domains.hosts)
	if err != nil {
		return nil, err
	}
	if p = append(p, changes...); secret.set {
		p = append(p, secret.change)
	}
	after := *before
	for _, change := range p {
		change(&after)
	}
	if after.Routing != nil {
		checkTogether(f, &after, &body.LinkRouting)
	}
	return p, f.Err()
}

func orNil(b httpapi.Optional[string]) *string {
	if b.Null {
		return nil
	}
	return &b.Value
}

func (h public) remove(c *fiber.Ctx) error {
	ctx := c.UserContext()
	if err := h.links.Delete(ctx, account(ctx), c.Params("id"), httpapi.IfMatch(c).Check); err != nil {
		return err
	}
	return httpapi.NoContent(c)
}

// maxStatsDays is the maximum number of days in one statistics call.
const maxStatsDays = 366

func (h public) stats(c *fiber.Ctx) error {
	ctx := c.UserContext()
	l, err := h.links.Get(ctx, account(ctx), c.Params("id"))
	if err != nil {
		return err
	}
	first, last, err := h.span(c)
	if err != nil {
		return err
	}
	st, err := h.links.Stats(ctx, l.ID, first, last)
	if err != nil {
		return err
	}
	out := wire.LinkStats{
		From: first.String(), To: last.String(), Total: st.Total, Days: make([]wire.DayClicks, 0, len(st.Days)),
		Referrers: hostShares(st.Referrers), Countries: countryShares(st.Countries), Devices: deviceShares(st.Devices), Rules: ruleShares(st.Rules),
	}
	for i, n := range st.Days {
		out.Days = append(out.Days, wire.DayClicks{Date: (first + link.Day(i)).String(), Clicks: n})
	}
	return httpapi.JSON(c, fiber.StatusOK, out)
}

// span parses the query parameters "from" and "to". The default is the last thirty days, including
// today.
func (h public) span(c *fiber.Ctx) (first, last link.Day, err error) {
	var f httpapi.Fields
	read := func(name string, def link.Day) link.Day {
		if !c.Context().QueryArgs().Has(name) {
			return def
		}
		return validate(&f, name, func() (link.Day, *apierr.Detail) {
			if d, ok := link.ParseDay(c.Query(name)); ok {
				return d, nil
			}
			return 0, &apierr.Detail{Code: apierr.InvalidFormat, Message: "Use a day such as 2026-11-20."}
		})
	}
	last = read("to", link.DayOf(h.opt.Now()))
	first = read("from", last-29)
	if f.Err() == nil && (first > last || last-first >= maxStatsDays) {
		f.Add(apierr.Detail{
			Field: "from", Code: apierr.OutOfRange,
			Message: fmt.Sprintf("Request 1 to %d days.", maxStatsDays), Min: 1, Max: maxStatsDays,
		})
	}
	return first, last, f.Err()
}
