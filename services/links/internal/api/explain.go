package api

import (
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/jsdate"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// explain returns the response that a visit to the link would get. It uses the same decision
// function as redirects, but does not count a click.
func (h public) explain(c *fiber.Ctx) error {
	ctx := c.UserContext()
	l, err := h.links.Get(ctx, account(ctx), c.Params("id"))
	if err != nil {
		return err
	}
	visit, err := h.readVisit(c)
	if err != nil {
		return err
	}
	pages := h.opt.Pages
	if visit.Host = l.Host; l.DomainID != "" {
		domain, err := h.domains.Get(ctx, l.AccountID, l.DomainID)
		if err != nil {
			return err
		}
		pages = link.PagesOf(domain.Pages)
		// The host name of a lapsed domain may now belong to another account. In that case, the
		// host serves that account's links.
		owner, _, err := h.domains.Owner(ctx, l.Host)
		if err != nil {
			return err
		}
		if owner != l.DomainID {
			d, why := link.Decide(nil, visit, &link.Surroundings{}), "The host name now belongs to another domain, so it does not serve this link."
			if owner == "" {
				why = "No verified domain has this host name, so it does not serve this link."
			}
			return httpapi.JSON(c, fiber.StatusOK, wire.LinkExplained{Status: d.Status, Why: why})
		}
	}
	d := h.links.Explain(l, visit, h.opt.Own, pages)
	out := wire.LinkExplained{Status: d.Status, Location: wire.OrNull(d.Location), Why: d.Why()}
	if d.Rule != nil {
		out.Rule = &d.Rule.Name
	}
	return httpapi.JSON(c, fiber.StatusOK, out)
}

// readVisit parses the visit that the query describes.
func (h public) readVisit(c *fiber.Ctx) (*link.Visit, error) {
	var f httpapi.Fields
	refuse := func(field, message string) {
		f.Add(apierr.Detail{Field: field, Code: apierr.InvalidValue, Message: message})
	}
	v := &link.Visit{At: h.opt.Now(), Query: strings.TrimPrefix(c.Query("query"), "?"), Language: c.Query("language"), Path: c.Query("path")}
	if v.Path != "" && v.Path[0] != '/' {
		refuse("path", "Start the path with a slash, such as /a/b.")
	}
	if given := c.Query("country"); given != "" {
		if v.Country = link.Country(given); v.Country == "" {
			refuse("country", "Use a two-letter country code (ISO 3166-1), such as DE.")
		}
	}
	given := c.Context().QueryArgs().Has
	if given("device") {
		var ok bool
		if v.Device, ok = link.ParseDevice(c.Query("device")); !ok {
			refuse("device", "Use desktop, phone or tablet.")
		}
	}
	if given("system") {
		if v.System = link.Systems[c.Query("system")]; v.System == link.UnknownSystem {
			refuse("system", "Use windows, macos, linux, ios, android, chromeos or other.")
		}
	}
	if given("percent") {
		place, err := strconv.ParseUint(c.Query("percent"), 10, 7)
		if err != nil || place > 99 {
			f.Add(apierr.Detail{Field: "percent", Code: apierr.OutOfRange, Message: "Use a whole number from 0 to 99.", Min: 0, Max: 99})
		}
		v.Place = func(string) int { return int(place) }
	}
	if given := c.Query("at"); given != "" {
		ms, ok := jsdate.Parse(given)
		if n, err := strconv.ParseFloat(given, 64); err == nil {
			ms, ok = jsdate.FromNumber(n)
		}
		if !ok {
			refuse("at", "Use ISO 8601, such as 2027-04-01T00:00:00Z, or a number of milliseconds.")
		}
		v.At = time.UnixMilli(ms)
	}
	return v, f.Err()
}
