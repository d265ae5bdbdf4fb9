package api

import (
	"context"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

func (h public) listDomains(c *fiber.Ctx) error {
	ctx := c.UserContext()
	page, err := httpapi.Page(c, "domains", account(ctx))
	if err != nil {
		return err
	}
	found, more, err := h.domains.Page(ctx, account(ctx), page)
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, wire.DomainList{
		Data: wire.List(found, h.domainOf), HasMore: more, NextCursor: paging.Next(page, found, more, (*customdomain.Domain).Place),
	})
}

func (h public) claimDomain(c *fiber.Ctx) error {
	ctx := c.UserContext()
	p := identity.FromContext(ctx)
	hostname, ignored, err := h.readClaim(c)
	if err != nil {
		// A full account gets 403 for any request body because 403 takes precedence over 400.
		if full := h.domains.CheckRoom(ctx, p); full != nil {
			return full
		}
		return err
	}
	d := h.domains.New(p.AccountID, hostname)
	out := h.domainOf(d)
	out.IgnoredFields = ignored
	// Write the response before the commit, which stores it with the Idempotency-Key.
	c.Set(fiber.HeaderETag, httpapi.ETag(domainRev(d)))
	if err := httpapi.Created(c, "/api/v1/domains/"+d.ID, out); err != nil {
		return err
	}
	return h.domains.Claim(ctx, d, p.Quotas.Domains)
}

func (h public) readClaim(c *fiber.Ctx) (hostname string, ignored []string, err error) {
	var body wire.DomainCreate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return "", nil, err
	}
	hostname = validate(fields, "hostname", func() (string, *apierr.Detail) {
		return customdomain.CheckHostname(body.Hostname, h.domains.Own())
	})
	return hostname, fields.Unknown, fields.Err()
}

func (h public) getDomain(c *fiber.Ctx) error {
	ctx := c.UserContext()
	d, err := h.domains.Get(ctx, account(ctx), c.Params("id"))
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderETag, httpapi.ETag(domainRev(d)))
	return httpapi.JSON(c, fiber.StatusOK, h.domainOf(d))
}

func (h public) updateDomain(c *fiber.Ctx) error {
	ctx := c.UserContext()
	var body wire.DomainUpdate
	fields, bad := httpapi.Decode(c, &body)
	domains, match := &domainsOf{ctx: ctx, public: h}, httpapi.IfMatch(c)
	// 404 takes precedence over 400, as it does for links.
	d, err := h.domains.ChangePages(ctx, account(ctx), c.Params("id"), func(d *customdomain.Domain) (customdomain.Pages, error) {
		if bad != nil {
			return d.Pages, bad
		}
		own, err := domains.hosts()
		if err != nil {
			return d.Pages, err
		}
		pages := d.Pages
		for _, page := range []struct {
			field string
			given httpapi.Optional[string]
			to    *customdomain.Page
		}{{"homeUrl", body.HomeURL, &pages.Home}, {"notFoundUrl", body.NotFoundURL, &pages.NotFound}, {"expiredUrl", body.ExpiredURL, &pages.Expired}} {
			if b := page.given; b.Null {
				*page.to = customdomain.Page{}
			} else if b.Set {
				*page.to = customdomain.Page(validate(fields, page.field, func() (link.URL, *apierr.Detail) { return h.links.Destination(b.Value, own) }))
			}
		}
		if err := fields.Err(); err != nil {
			return pages, err
		}
		return pages, match.Check(domainRev(d))
	})
	if err != nil {
		return err
	}
	out := h.domainOf(d)
	out.IgnoredFields = fields.Unknown
	c.Set(fiber.HeaderETag, httpapi.ETag(domainRev(d)))
	return httpapi.JSON(c, fiber.StatusOK, out)
}

// domainRev returns a domain's revision. Checks and certificates do not change the revision.
func domainRev(d *customdomain.Domain) int64 {
	return httpapi.Rev(strconv.FormatInt(d.CreatedAt.UnixMilli(), 10), d.Pages.Home.Given, d.Pages.NotFound.Given, d.Pages.Expired.Given)
}

// domainStats returns the number of visits to a domain that were not served by a link.
func (h public) domainStats(c *fiber.Ctx) error {
	ctx := c.UserContext()
	d, err := h.domains.Get(ctx, account(ctx), c.Params("id"))
	if err != nil {
		return err
	}
	first, last, err := h.span(c)
	if err != nil {
		return err
	}
	n := int(last-first) + 1
	days, _, err := h.links.Days(ctx, d.ID, first-1, n) // a limit of n suffices because there is at most one record for each day
	if err != nil {
		return err
	}
	out := wire.DomainStats{From: first.String(), To: last.String(), Days: make([]wire.DomainDay, n)}
	for i := range out.Days {
		out.Days[i].Date = (first + link.Day(i)).String()
	}
	for _, day := range days {
		if day.Broken != nil {
			return day.Broken
		}
		if day.Day > last {
			break
		}
		shown := unserved(day)
		out.Days[day.Day-first] = shown
		out.Home, out.NotFound, out.Ended = out.Home+shown.Home, out.NotFound+shown.NotFound, out.Ended+shown.Ended
	}
	return httpapi.JSON(c, fiber.StatusOK, out)
}

// unserved converts the statistics for a domain's day. A link's day has counts by rule; a domain's
// day has counts by kind of visit.
func unserved(day link.DayStats) wire.DomainDay {
	out := wire.DomainDay{Date: day.Day.String()}
	for _, s := range day.Rules {
		switch s.Name {
		case link.VisitHome:
			out.Home = s.Clicks
		case link.VisitNotFound:
			out.NotFound = s.Clicks
		case link.VisitEnded:
			out.Ended = s.Clicks
		}
	}
	return out
}

func (h public) verifyDomain(c *fiber.Ctx) error {
	ctx := c.UserContext()
	d, err := h.domains.Verify(ctx, account(ctx), c.Params("id"))
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderETag, httpapi.ETag(domainRev(d)))
	return httpapi.JSON(c, fiber.StatusOK, h.domainOf(d))
}

func (h public) deleteDomain(c *fiber.Ctx) error {
	ctx := c.UserContext()
	// When the call that sets a new default returns, every replica already uses it.
	if c.Params("id") == identity.FromContext(ctx).DefaultDomainID {
		return customdomain.DefaultInUse()
	}
	match := httpapi.IfMatch(c)
	check := func(d *customdomain.Domain) error { return match.Check(domainRev(d)) }
	if err := h.domains.Delete(ctx, account(ctx), c.Params("id"), check); err != nil {
		return err
	}
	return httpapi.NoContent(c)
}

// domainsOf looks up domains in the account that sent a request. It reads each domain at most once.
type domainsOf struct {
	public
	ctx   context.Context // the request's context
	known map[string]found
	all   *hosts
}

type (
	found struct {
		domain *customdomain.Domain
		err    error
	}
	hosts struct {
		hosts link.Hosts
		err   error
	}
)

func (d *domainsOf) get(id string) (*customdomain.Domain, error) {
	f, ok := d.known[id]
	if !ok {
		if d.known == nil { // most requests do not name a domain
			d.known = map[string]found{}
		}
		f.domain, f.err = d.domains.Get(d.ctx, account(d.ctx), id)
		d.known[id] = f
	}
	return f.domain, f.err
}

// hosts returns the hosts that the account's pages and rules must not redirect to: the default
// short host and all of the account's domains. It includes unverified domains because URLs that
// redirect to each other would form a loop once the domains are verified.
func (d *domainsOf) hosts() (link.Hosts, error) {
	if d.all == nil {
		domains, err := d.domains.List(d.ctx, account(d.ctx))
		own := d.opt.Own[:len(d.opt.Own):len(d.opt.Own)] // capacity is clipped, so append copies the slice
		for _, domain := range domains {
			own = append(own, d.opt.Own.At(domain.Hostname)...)
		}
		d.all = &hosts{own, err}
	}
	return d.all.hosts, d.all.err
}

// leaves adds an error if a link on a custom domain redirects to one of the account's domains,
// which could redirect the visit back. Links on the default short host may redirect to domains
// because nothing on a domain can redirect to that host.
func (d *domainsOf) leaves(f *httpapi.Fields, to link.URL) error {
	if f.HasError("url") {
		return nil
	}
	_, err := d.get(customdomain.ID(account(d.ctx), to.Host().Name))
	if apierr.CodeOf(err) == apierr.DomainNotFound {
		return nil
	}
	if err == nil {
		problem := *link.LeadsBack()
		problem.Field = "url"
		f.Add(problem)
	}
	return err
}

// orDefault returns the domain in a request, or the account's default domain if the request does
// not specify one. nil means the default short host.
func (d *domainsOf) orDefault(named bool, id string) (*customdomain.Domain, error) {
	if !named {
		id = identity.FromContext(d.ctx).DefaultDomainID
	}
	if id == "" || id == defaultDomain {
		return nil, nil
	}
	domain, err := d.get(id)
	gone := apierr.CodeOf(err) == apierr.DomainNotFound
	if !named && (gone || err == nil && !domain.Verified(d.opt.Now())) {
		return nil, customdomain.DefaultUnusable(gone)
	}
	return domain, err
}
