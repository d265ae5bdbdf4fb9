package api

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

type summary struct {
	ID             string `json:"_id"`
	Slug           string `json:"slug"`
	DestinationURL string `json:"destinationUrl"`
	Title          string `json:"title"`
	Clicks         int64  `json:"clicks"`
	CreatedAt      int64  `json:"createdAt"`
}

func summaryOf(l *link.Link) summary {
	return summary{l.ID, l.Slug.String(), l.Destination.Given, l.Title, l.Clicks, millis(l.CreatedAt)}
}

type full struct {
	summary
	PlainID       string      `json:"id"`
	ShortURL      string      `json:"shortUrl"`
	DomainID      *string     `json:"domainId"`
	ExpiresAt     *int64      `json:"expiresAt"`
	OGTitle       *string     `json:"ogTitle"`
	OGDescription *string     `json:"ogDescription"`
	OGImage       *string     `json:"ogImage"`
	Status        link.Status `json:"status"`
	UpdatedAt     int64       `json:"updatedAt"`
}

type created struct {
	ID             string `json:"id"`
	ShortURL       string `json:"shortUrl"`
	Slug           string `json:"slug"`
	DestinationURL string `json:"destinationUrl"`
	CreatedAt      string `json:"createdAt,omitempty"` // not in bulk results
}

func (a *API) createdOf(l *link.Link) created {
	return created{ID: l.ID, ShortURL: link.ShortURL(a.opt.ShortBaseURL, l.Host, l.Slug.String()), Slug: l.Slug.String(), DestinationURL: l.Destination.Given}
}

// isoTime is how JavaScript writes a date.
const isoTime = "2006-01-02T15:04:05.000Z"

func (a *API) list(c *fiber.Ctx) error {
	limit, details := httpapi.Limit(c)
	if len(details) > 0 {
		return apierr.Invalid(details...)
	}
	before, err := cursorOf(c)
	if err != nil {
		return err
	}
	ctx := c.UserContext()
	page, more, err := a.opt.Store.List(ctx, account(ctx), before, limit)
	if err != nil {
		return err
	}
	out := struct {
		Data       []summary `json:"data"`
		HasMore    bool      `json:"hasMore"`
		NextCursor *int64    `json:"nextCursor"`
	}{Data: make([]summary, 0, len(page)), HasMore: more}
	for _, l := range page {
		out.Data = append(out.Data, summaryOf(l))
	}
	if more {
		out.NextCursor = &page[len(page)-1].Seq
	}
	return httpapi.JSON(c, fiber.StatusOK, out)
}

// cursorOf reads the query "cursor"; without it the list starts at its top.
func cursorOf(c *fiber.Ctx) (int64, error) {
	if !c.Context().QueryArgs().Has("cursor") {
		return link.Top, nil
	}
	n, ok := parseCursor(c.Query("cursor"))
	if !ok {
		return 0, apierr.New(apierr.InvalidCursor, "Pass the nextCursor of the page before, unchanged.")
	}
	return n, nil
}

const maxCursor = 1<<53 - 1

func parseCursor(text string) (int64, bool) {
	if text == "" || len(text) > 16 || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n <= maxCursor
}

func (a *API) get(c *fiber.Ctx) error {
	ctx := c.UserContext()
	l, err := a.opt.Store.Get(ctx, account(ctx), c.Params("id"))
	if err != nil {
		return err
	}
	// Clicks and expiry move without an edit, so the tag of the revision cannot
	// answer "not modified"; it only guards writes.
	c.Set(fiber.HeaderETag, httpapi.ETag(l.Rev))
	out := full{
		summary: summaryOf(l), PlainID: l.ID, ShortURL: link.ShortURL(a.opt.ShortBaseURL, l.Host, l.Slug.String()),
		OGTitle: l.Preview.Title, OGDescription: l.Preview.Description, Status: l.Status(a.opt.Now()), UpdatedAt: millis(l.UpdatedAt),
	}
	if l.DomainID != "" {
		out.DomainID = &l.DomainID
	}
	if l.Expiry.Set {
		out.ExpiresAt = &l.Expiry.MS
	}
	if l.Preview.Image != nil {
		out.OGImage = &l.Preview.Image.Given
	}
	return httpapi.JSON(c, fiber.StatusOK, out)
}

type createBody struct {
	URL           string  `json:"url"`
	Slug          *string `json:"slug"`
	Title         string  `json:"title"`
	DomainID      *string `json:"domainId"`
	ExpiresAt     *moment `json:"expiresAt"`
	OGTitle       *string `json:"ogTitle"`
	OGDescription *string `json:"ogDescription"`
	OGImage       *string `json:"ogImage"`
}

func (a *API) create(c *fiber.Ctx) error {
	ctx := c.UserContext()
	if err := a.quota(c, 1); err != nil {
		return err
	}
	var body createBody
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	var on *customdomain.Domain
	if body.DomainID != nil {
		if on, err = a.opt.Store.Domain(ctx, account(ctx), *body.DomainID); err != nil {
			return err
		}
	}
	draft := a.draft(fields, &body, on)
	if err := fields.Err(); err != nil {
		return err
	}
	results, err := a.opt.Store.Create(ctx, account(ctx), originOf(ctx), []link.Draft{draft})
	if err != nil {
		return err
	}
	if results[0].Err != nil {
		return results[0].Err
	}
	l := results[0].Link
	a.opt.Announcer.Announce(ctx, link.SlugKey(l.DomainID, l.Slug.Folded()))
	out := a.createdOf(l)
	out.CreatedAt = l.CreatedAt.UTC().Format(isoTime)
	c.Set(fiber.HeaderETag, httpapi.ETag(l.Rev))
	return httpapi.Created(c, "/api/v1/links/"+l.ID, out)
}

// draft judges every field of a create and notes all that is wrong.
func (a *API) draft(f *httpapi.Fields, body *createBody, on *customdomain.Domain) link.Draft {
	own := a.opt.Own
	d := link.Draft{Title: body.Title}
	if on != nil {
		d.DomainID = on.ID
		own = append(own[:len(own):len(own)], link.ParseHost(on.Hostname)) // a link to its own host goes in circles as well
	}
	d.Destination = judge(f, "url", func() (link.URL, *apierr.Detail) { return link.ParseURL(body.URL, own) })
	if body.Slug != nil {
		d.Slug = judge(f, "slug", func() (link.Slug, *apierr.Detail) { return link.ParseSlug(*body.Slug, on == nil) })
	}
	judgeText(f, "title", body.Title, link.MaxTitle)
	if body.ExpiresAt != nil {
		d.Expiry = judge(f, "expiresAt", body.ExpiresAt.expiry)
	}
	if body.OGTitle != nil {
		judgeText(f, "ogTitle", *body.OGTitle, link.MaxPreview)
	}
	if body.OGDescription != nil {
		judgeText(f, "ogDescription", *body.OGDescription, link.MaxDescription)
	}
	d.Preview = link.Preview{Title: body.OGTitle, Description: body.OGDescription}
	if body.OGImage != nil {
		image := judge(f, "ogImage", func() (link.URL, *apierr.Detail) { return link.ParseImage(*body.OGImage, own) })
		d.Preview.Image = &image
	}
	return d
}

// quota refuses n more links than the account may have.
func (a *API) quota(c *fiber.Ctx, n int) error {
	left, err := a.left(c)
	if err != nil || left < 0 || n <= left {
		return err
	}
	return quotaExceeded()
}

func quotaExceeded() error {
	return apierr.New(apierr.QuotaExceeded, "The account has as many links as its plan allows.")
}

// left is how many more links the account may have, below zero for any number.
func (a *API) left(c *fiber.Ctx) (int, error) {
	p := identity.FromContext(c.UserContext())
	if p.Quotas.Links <= 0 {
		return -1, nil
	}
	have, err := a.opt.Store.CountLinks(c.UserContext(), p.AccountID)
	return max(0, p.Quotas.Links-have), err
}

type updateBody struct {
	URL           httpapi.Optional[string] `json:"url"`
	Title         httpapi.Optional[string] `json:"title"`
	ExpiresAt     httpapi.Optional[moment] `json:"expiresAt"`
	OGTitle       httpapi.Optional[string] `json:"ogTitle"`
	OGDescription httpapi.Optional[string] `json:"ogDescription"`
	OGImage       httpapi.Optional[string] `json:"ogImage"`
}

func (a *API) update(c *fiber.Ctx) error {
	ctx, id := c.UserContext(), c.Params("id")
	// Whose link it is comes before what is wrong with the body.
	before, err := a.opt.Store.Get(ctx, account(ctx), id)
	if err != nil {
		return err
	}
	var body updateBody
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	patch := a.patch(fields, &body, before)
	if err := fields.Err(); err != nil {
		return err
	}
	l, err := a.opt.Store.Update(ctx, account(ctx), id, httpapi.IfMatch(c).Check, patch)
	if err != nil {
		return err
	}
	a.opt.Announcer.Announce(ctx, link.SlugKey(l.DomainID, l.Slug.Folded()))
	c.Set(fiber.HeaderETag, httpapi.ETag(l.Rev))
	return httpapi.JSON(c, fiber.StatusOK, struct {
		Success bool     `json:"success"`
		Slug    string   `json:"slug"`
		Ignored []string `json:"ignoredFields,omitempty"`
	}{true, l.Slug.String(), fields.Unknown})
}

// patch judges every field of an update. Null clears, but for the destination,
// which no link can be without.
func (a *API) patch(f *httpapi.Fields, body *updateBody, before *link.Link) link.Patch {
	own := a.opt.Own
	if before.Host != "" {
		own = append(own[:len(own):len(own)], link.ParseHost(before.Host))
	}
	var p link.Patch
	if b := body.URL; b.Null {
		f.Add(apierr.Detail{Field: "url", Code: apierr.InvalidType, Message: "A link cannot be without a destination."})
	} else if b.Set {
		p.Destination = link.To(judge(f, "url", func() (link.URL, *apierr.Detail) { return link.ParseURL(b.Value, own) }))
	}
	if b := body.Title; b.Set {
		judgeText(f, "title", b.Value, link.MaxTitle)
		p.Title = link.To(b.Value)
	}
	if b := body.ExpiresAt; b.Null {
		p.Expiry = link.To(link.Expiry{})
	} else if b.Set {
		p.Expiry = link.To(judge(f, "expiresAt", b.Value.expiry))
	}
	text := func(field string, b httpapi.Optional[string], limit int) link.Change[*string] {
		switch {
		case !b.Set:
			return link.Change[*string]{}
		case b.Null:
			return link.To[*string](nil)
		}
		judgeText(f, field, b.Value, limit)
		return link.To(&b.Value)
	}
	p.PreviewTitle = text("ogTitle", body.OGTitle, link.MaxPreview)
	p.PreviewDescription = text("ogDescription", body.OGDescription, link.MaxDescription)
	if b := body.OGImage; b.Null {
		p.PreviewImage = link.To[*link.URL](nil)
	} else if b.Set {
		image := judge(f, "ogImage", func() (link.URL, *apierr.Detail) { return link.ParseImage(b.Value, own) })
		p.PreviewImage = link.To(&image)
	}
	return p
}

func (a *API) remove(c *fiber.Ctx) error {
	ctx := c.UserContext()
	l, err := a.opt.Store.Delete(ctx, account(ctx), c.Params("id"), httpapi.IfMatch(c).Check)
	if err != nil {
		return err
	}
	a.opt.Announcer.Announce(ctx, link.SlugKey(l.DomainID, l.Slug.Folded()))
	return httpapi.NoContent(c)
}

type bulkBody struct {
	URLs []json.RawMessage `json:"urls"`
}

type bulkItem struct {
	URL   string  `json:"url"`
	Slug  *string `json:"slug"`
	Title string  `json:"title"`
}

type bulkResult struct {
	Status int        `json:"status"`
	Data   *created   `json:"data,omitempty"`
	Error  *bulkError `json:"error,omitempty"`
}

type bulkError struct {
	Code    apierr.Code     `json:"code"`
	Message string          `json:"message"`
	URL     string          `json:"url"`
	Details []apierr.Detail `json:"details,omitempty"`
}

func (a *API) bulk(c *fiber.Ctx) error {
	ctx := c.UserContext()
	var body bulkBody
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	if err := fields.Err(); err != nil {
		return err
	}
	// One per ten items, of which the request itself was the first.
	if err := a.http.Charge(c, (len(body.URLs)+9)/10-1); err != nil {
		return err
	}
	left, err := a.left(c)
	if err != nil {
		return err
	}
	results := make([]bulkResult, len(body.URLs))
	var drafts []link.Draft
	var places []int // of the drafts among the items
	texts := make([]string, len(body.URLs))
	for i, raw := range body.URLs {
		texts[i] = urlText(raw)
		draft, err := a.bulkDraft(raw)
		switch {
		case err != nil:
			results[i] = failed(err, texts[i])
		case left == 0:
			results[i] = failed(quotaExceeded(), texts[i])
		default:
			left-- // below zero there is no bound
			drafts, places = append(drafts, draft), append(places, i)
		}
	}
	if len(drafts) > 0 {
		made, err := a.opt.Store.Create(ctx, account(ctx), originOf(ctx), drafts)
		if err != nil {
			return err
		}
		var keys []string
		for n, r := range made {
			i := places[n]
			if r.Err != nil {
				results[i] = failed(r.Err, texts[i])
				continue
			}
			data := a.createdOf(r.Link)
			results[i] = bulkResult{Status: fiber.StatusCreated, Data: &data}
			keys = append(keys, link.SlugKey("", r.Link.Slug.Folded()))
		}
		a.opt.Announcer.Announce(ctx, keys...)
	}
	status := fiber.StatusCreated
	for _, r := range results {
		if r.Error != nil {
			status = fiber.StatusMultiStatus
		}
	}
	return httpapi.JSON(c, status, struct {
		Results []bulkResult `json:"results"`
	}{results})
}

func (a *API) bulkDraft(raw json.RawMessage) (link.Draft, error) {
	var item bulkItem
	fields, err := httpapi.DecodeObject(raw, apispec.Load().Component("BulkItem"), &item)
	if err != nil {
		return link.Draft{}, apierr.Invalid(apierr.Detail{Field: "", Code: apierr.InvalidType, Message: "Each item is an object with url, slug and title."})
	}
	draft := a.draft(fields, &createBody{URL: item.URL, Slug: item.Slug, Title: item.Title}, nil)
	return draft, fields.Err()
}

// urlText is the item's url as far as it is a text.
func urlText(raw json.RawMessage) string {
	var item map[string]json.RawMessage
	var text string
	if json.Unmarshal(raw, &item) != nil || json.Unmarshal(item["url"], &text) != nil {
		return ""
	}
	return text
}

func failed(err error, url string) bulkResult {
	e := apierr.From(err)
	return bulkResult{Status: e.Code.Status(), Error: &bulkError{e.Code, e.Message, url, e.Details}}
}

// maxStatsDays is the longest span of one statistics call.
const maxStatsDays = 366

func (a *API) stats(c *fiber.Ctx) error {
	ctx := c.UserContext()
	l, err := a.opt.Store.Get(ctx, account(ctx), c.Params("id"))
	if err != nil {
		return err
	}
	first, last, err := a.span(c)
	if err != nil {
		return err
	}
	st, err := a.opt.Store.Stats(ctx, l.ID, first, last)
	if err != nil {
		return err
	}
	type day struct {
		Date   string `json:"date"`
		Clicks int64  `json:"clicks"`
	}
	type host struct {
		Host   string `json:"host"`
		Clicks int64  `json:"clicks"`
	}
	type country struct {
		Country string `json:"country"`
		Clicks  int64  `json:"clicks"`
	}
	type device struct {
		Device string `json:"device"`
		Clicks int64  `json:"clicks"`
	}
	out := struct {
		From      string    `json:"from"`
		To        string    `json:"to"`
		Total     int64     `json:"total"`
		Days      []day     `json:"days"`
		Referrers []host    `json:"referrers"`
		Countries []country `json:"countries"`
		Devices   []device  `json:"devices"`
	}{first.String(), last.String(), st.Total, make([]day, 0, len(st.Days)), make([]host, 0), make([]country, 0), make([]device, 0)}
	for i, n := range st.Days {
		out.Days = append(out.Days, day{(first + link.Day(i)).String(), n})
	}
	for _, s := range st.Referrers {
		out.Referrers = append(out.Referrers, host{s.Name, s.Clicks})
	}
	for _, s := range st.Countries {
		out.Countries = append(out.Countries, country{s.Name, s.Clicks})
	}
	for _, s := range st.Devices {
		out.Devices = append(out.Devices, device{s.Name, s.Clicks})
	}
	return httpapi.JSON(c, fiber.StatusOK, out)
}

// span reads the queries "from" and "to": by default the thirty days up to today.
func (a *API) span(c *fiber.Ctx) (first, last link.Day, err error) {
	var f httpapi.Fields
	read := func(name string, def link.Day) link.Day {
		if !c.Context().QueryArgs().Has(name) {
			return def
		}
		return judge(&f, name, func() (link.Day, *apierr.Detail) {
			if d, ok := link.ParseDay(c.Query(name)); ok {
				return d, nil
			}
			return 0, &apierr.Detail{Code: apierr.InvalidFormat, Message: "Use a day such as 2026-11-20."}
		})
	}
	last = read("to", link.DayOf(a.opt.Now()))
	first = read("from", last-29)
	if f.Err() == nil && (first > last || last-first >= maxStatsDays) {
		f.Add(apierr.Detail{Field: "from", Code: apierr.OutOfRange, Message: fmt.Sprintf("Ask for 1 to %d days.", maxStatsDays), Min: 1, Max: maxStatsDays})
	}
	return first, last, f.Err()
}
