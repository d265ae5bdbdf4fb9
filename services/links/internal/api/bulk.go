package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// bulk parses the request body item by item, so one invalid item does not fail the others.
func (h public) bulk(c *fiber.Ctx) error {
	ctx := c.UserContext()
	var body wire.BulkCreate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	if err := fields.Err(); err != nil {
		return err
	}
	// Charge before parsing the items because even invalid items take time to parse.
	if err := h.charge(c, len(body.URLs)); err != nil {
		return err
	}
	results := make([]wire.BulkResult, len(body.URLs))
	texts := make([]string, len(body.URLs))
	var drafts []link.Draft
	var places []int // index of the item that each draft was parsed from
	domains := &domainsOf{ctx: ctx, public: h}
	for i, raw := range body.URLs {
		texts[i] = urlText(raw)
		draft, ignored, err := h.bulkDraft(raw, domains)
		results[i].IgnoredFields = ignored
		if err != nil {
			results[i].Status, results[i].Error = failure(ctx, err, texts[i])
			continue
		}
		drafts, places = append(drafts, draft), append(places, i)
	}
	if len(drafts) > 0 {
		made, err := h.links.CreateAll(ctx, identity.FromContext(ctx), identity.OriginFrom(ctx), drafts)
		if err != nil {
			return err
		}
		for n, r := range made {
			i := places[n]
			if r.Err != nil {
				results[i].Status, results[i].Error = failure(ctx, r.Err, texts[i])
				continue
			}
			data := h.madeOf(r.Link)
			results[i].Status, results[i].Data = fiber.StatusCreated, &data
		}
	}
	bound(results)
	status := fiber.StatusCreated
	for _, r := range results {
		if r.Error != nil {
			status = fiber.StatusMultiStatus
		}
	}
	return httpapi.JSON(c, status, wire.BulkResults{Results: results, IgnoredFields: fields.Unknown})
}

// Limits on the request data that a response echoes. A request can contain a megabyte of invalid
// fields. These limits keep a response with a hundred failures below 64 kB.
const (
	repeatedURLs    = 12 << 10 // total bytes of URLs; after that, URLs are cut to cutURL
	cutURL          = 64       // bytes to keep when a URL is cut
	repeatedDetails = 10 << 10 // total bytes of details, excluding each item's first detail
	repeatedNames   = 6 << 10  // total bytes of ignored field names
)

// bound limits how much request data the results echo.
func bound(results []wire.BulkResult) {
	urls, details, names := repeatedURLs, repeatedDetails, repeatedNames
	// All items share these budgets. Once a budget is used up, data from later items is cut.
	for i := range results {
		r := &results[i]
		for n, name := range r.IgnoredFields {
			if names -= encoded(name); names < 0 {
				r.IgnoredFields = r.IgnoredFields[:n]
				break
			}
		}
		if r.Error == nil {
			continue
		}
		if size := encoded(r.Error.URL); size > cutURL {
			if urls -= size; urls < 0 {
				r.Error.URL = cut(r.Error.URL)
			}
		}
		for n := 1; n < len(r.Error.Details); n++ {
			if details -= encoded(r.Error.Details[n]); details < 0 {
				keep(r.Error, n) // shortens Details to n, which ends the loop
			}
		}
	}
}

// keep keeps an item's first n details and records how many it dropped.
func keep(e *wire.BulkItemFail, n int) {
	some := apierr.InvalidSome(e.MoreDetails+len(e.Details)-n, e.Details[:n]...)
	e.Message, e.Details, e.MoreDetails = some.Message, some.Details, some.MoreDetails
}

// encoded returns v's size in a response, in bytes.
func encoded(v any) int {
	text, err := json.Marshal(v)
	if err != nil {
		return repeatedURLs // unreachable because v contains only strings and numbers
	}
	return len(text) + 1
}

func cut(text string) string {
	for encoded(text) > cutURL {
		text = strings.ToValidUTF8(text[:len(text)/2], "")
	}
	return text + "…"
}

// charge counts a request with n items against the rate limit, as one request per ten items. The
// first of these requests has already been counted.
func (h public) charge(c *fiber.Ctx, n int) error { return h.http.Charge(c, (n+9)/10-1) }

func (h public) bulkDraft(raw json.RawMessage, domains *domainsOf) (link.Draft, []string, error) {
	var item wire.LinkCreate
	fields, err := httpapi.DecodeObject(raw, apispec.Load().Component("BulkItem"), &item)
	if err != nil {
		return link.Draft{}, nil, apierr.Invalid(apierr.Detail{
			Field: "", Code: apierr.InvalidType,
			Message: "Each item must be an object with the fields of a link. The url field is required.",
		})
	}
	return h.draft(fields, &item, domains)
}

// urlText returns the item's url, or "" if the url is not a string.
func urlText(raw json.RawMessage) string {
	var item map[string]json.RawMessage
	var text string
	if json.Unmarshal(raw, &item) != nil || json.Unmarshal(item["url"], &text) != nil {
		return ""
	}
	return text
}

// failure returns the error response that the item would get in its own request.
func failure(ctx context.Context, err error, url string) (status int, fail *wire.BulkItemFail) {
	e := apierr.From(err)
	if e.Code == apierr.Internal { // log it like a failed request
		slog.ErrorContext(ctx, "an item in a bulk request failed", "error", e.Err)
	}
	return e.Code.Status(), &wire.BulkItemFail{
		Code: e.Code, Message: e.Message, DocURL: e.Code.DocURL(), URL: url, Details: e.Details, MoreDetails: e.MoreDetails,
	}
}
