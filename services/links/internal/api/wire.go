package api

import (
	"net/netip"
	"strings"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/jsdate"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Shown returns the functions that convert records to the API format that events use.
func Shown(opt Options) (oneLink func(*link.Link) any, domain func(*customdomain.Domain) any) {
	h := public{opt: opt}
	return func(l *link.Link) any { return h.recordOf(l) }, func(d *customdomain.Domain) any { return h.domainOf(d) }
}

func (h public) itemOf(l *link.Link) wire.LinkSummary {
	out := wire.LinkSummary{
		UnderscoreID: l.ID, ID: l.ID, Slug: string(l.Slug), DestinationURL: l.Destination.Given, Title: l.Title, Clicks: l.Clicks,
		CreatedAt: l.CreatedAt.UnixMilli(), ShortURL: l.ShortURL(h.opt.ShortBaseURL), Status: string(l.Status(h.opt.Now())),
		Tags: append([]string{}, l.Tags...), Archived: l.Archived, ImportedClicks: l.ImportedClicks,
	}
	if l.DomainID != "" {
		out.DomainID = &l.DomainID
	}
	if l.ExternalID != "" {
		out.ExternalID = &l.ExternalID
	}
	if l.Expiry.Set {
		out.ExpiresAt = &l.Expiry.MS
	}
	if out.RedirectType = link.DefaultRedirect; l.Routing != nil {
		addRouting(&out, l.Routing)
	}
	return out
}

func (h public) recordOf(l *link.Link) wire.Link {
	out := wire.Link{
		LinkSummary: h.itemOf(l), UpdatedAt: l.UpdatedAt.UnixMilli(),
		OGTitle: l.OpenGraph.Title, OGDescription: l.OpenGraph.Description, Rules: []wire.LinkRule{},
	}
	if l.Routing != nil {
		out.Rules = wire.List(l.Routing.Rules, ruleOf)
	}
	if l.OpenGraph.Image != nil {
		out.OGImage = &l.OpenGraph.Image.Given
	}
	if t := l.Takedown; t != nil {
		out.TakenDown = &wire.TakenDown{At: t.At.UnixMilli(), Reason: t.Reason}
	}
	return out
}

func (h public) createdOf(l *link.Link, record wire.Link, ignored []string) wire.LinkCreated {
	return wire.LinkCreated{
		BulkLink: h.madeOf(l), CreatedAt: l.CreatedAt.UTC().Format(isoTime), Tags: record.Tags, ExternalID: record.ExternalID,
		Archived: record.Archived, ImportedClicks: record.ImportedClicks, Link: record, IgnoredFields: ignored,
	}
}

func (h public) madeOf(l *link.Link) wire.BulkLink {
	return wire.BulkLink{ID: l.ID, ShortURL: l.ShortURL(h.opt.ShortBaseURL), Slug: string(l.Slug), DestinationURL: l.Destination.Given}
}

func hostShares(in []link.Share) []wire.HostClicks {
	return wire.List(in, func(s link.Share) wire.HostClicks { return wire.HostClicks{Host: s.Name, Clicks: s.Clicks} })
}

func countryShares(in []link.Share) []wire.CountryClicks {
	return wire.List(in, func(s link.Share) wire.CountryClicks { return wire.CountryClicks{Country: s.Name, Clicks: s.Clicks} })
}

func deviceShares(in []link.Share) []wire.DeviceClicks {
	return wire.List(in, func(s link.Share) wire.DeviceClicks { return wire.DeviceClicks{Device: s.Name, Clicks: s.Clicks} })
}

func ruleShares(in []link.Share) []wire.RuleClicks {
	return wire.List(in, func(s link.Share) wire.RuleClicks { return wire.RuleClicks{Rule: s.Name, Clicks: s.Clicks} })
}

// isoTime is the format of JavaScript's Date.toISOString.
const isoTime = "2006-01-02T15:04:05.000Z"

// certificateOf returns status "none" if this installation does not order certificates, even if it
// used to.
func (h public) certificateOf(d *customdomain.Domain) wire.Certificate {
	c := d.Certificate.Shown(h.opt.Now())
	if !h.opt.Certificates || c.Status == customdomain.NoCertificate {
		return wire.Certificate{Status: "none"}
	}
	return wire.Certificate{Status: string(c.Status), ExpiresAt: wire.Millis(c.ExpiresAt), Error: wire.OrNull(c.Error)}
}

func (h public) domainOf(d *customdomain.Domain) wire.Domain {
	name, value := d.Record()
	out := wire.Domain{
		ID: d.ID, Hostname: d.Hostname, Status: "pending", CreatedAt: d.CreatedAt.UnixMilli(), VerifiedAt: wire.Millis(d.VerifiedAt),
		CheckedAt: wire.Millis(d.CheckedAt), Reason: wire.OrNull(d.Failure), Certificate: h.certificateOf(d),
		HomeURL: wire.OrNull(d.Pages.Home.Given), NotFoundURL: wire.OrNull(d.Pages.NotFound.Given), ExpiredURL: wire.OrNull(d.Pages.Expired.Given),
		Records: append([]wire.DNSRecord{{Type: "TXT", Name: name, Value: value}}, h.addressRecords(d.Hostname)...),
	}
	if d.Verified(h.opt.Now()) {
		out.Status = "verified"
	}
	return out
}

// addressRecords returns the DNS records that point a custom host name to this installation: a
// CNAME if the target is a name, an A or AAAA record if it is an address. In a local setup, the
// target is this machine's address, so you can test a host name by pointing it to this machine in a
// hosts file or a local resolver.
func (h public) addressRecords(hostname string) []wire.DNSRecord {
	target := h.opt.Own[0].Name
	if h.opt.DomainTarget != "" {
		target = h.opt.DomainTarget
	}
	if target == "localhost" {
		target = "127.0.0.1"
	}
	switch addr, err := netip.ParseAddr(strings.Trim(target, "[]")); {
	case err == nil && addr.Is4():
		return []wire.DNSRecord{{Type: "A", Name: hostname, Value: addr.String()}}
	case err == nil:
		return []wire.DNSRecord{{Type: "AAAA", Name: hostname, Value: addr.String()}}
	case strings.Contains(target, "."):
		return []wire.DNSRecord{{Type: "CNAME", Name: hostname, Value: target}}
	}
	return nil
}

// instant converts an optional time.
func instant(f *httpapi.Fields, field string, given *jsdate.Moment) (at link.Moment) {
	if given == nil {
		return at
	}
	if ms, ok := f.Instant(field, *given); ok {
		at = link.At(ms)
	}
	return at
}

// expiry parses a moment in the same way as `new Date(x)`.
func expiry(m jsdate.Moment) func() (link.Moment, *apierr.Detail) {
	return func() (link.Moment, *apierr.Detail) {
		ms, ok := m.Date()
		switch {
		case ok:
			return link.At(ms), nil
		case m.IsText():
			return link.Moment{}, &apierr.Detail{
				Code:    apierr.InvalidFormat,
				Message: "This is not a date that JavaScript can read. Use ISO 8601, such as 2027-04-01T00:00:00Z, or a number of milliseconds.",
			}
		}
		return link.Moment{}, &apierr.Detail{
			Code: apierr.OutOfRange, Message: "This number of milliseconds is out of range for a date. Use -8640000000000000 to 8640000000000000.",
		}
	}
}

// expiryOrNever is [expiry] for a field that may be null, which means never.
func expiryOrNever(f *httpapi.Fields, field string, m httpapi.Optional[jsdate.Moment]) link.Moment {
	if m.Null {
		return link.Moment{}
	}
	return validate(f, field, expiry(m.Value))
}

// validate parses a field, unless f already contains an error for it. If parse returns an error,
// validate adds it to f.
func validate[T any](f *httpapi.Fields, field string, parse func() (T, *apierr.Detail)) (value T) {
	if f.HasError(field) {
		return value
	}
	value, problem := parse()
	if problem != nil {
		problem.Field = field
		f.Add(*problem)
	}
	return value
}
