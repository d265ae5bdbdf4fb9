package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// BulkMax is how many links one bulk request takes.
const BulkMax = 100

// CreateLink makes a short link.
func (c *Client) CreateLink(ctx context.Context, in LinkCreate) (*LinkCreated, error) {
	return answer[LinkCreated](ctx, c, http.MethodPost, "/api/v1/links", in)
}

// Link reads one link.
func (c *Client) Link(ctx context.Context, id string) (*Link, error) {
	return answer[Link](ctx, c, http.MethodGet, "/api/v1/links/"+url.PathEscape(id), nil)
}

// UpdateLink changes a link and returns its slug.
func (c *Client) UpdateLink(ctx context.Context, id string, in LinkUpdate) (slug string, err error) {
	out, err := answer[LinkUpdated](ctx, c, http.MethodPatch, "/api/v1/links/"+url.PathEscape(id), in)
	return out.Slug, err
}

// DeleteLink removes a link. If a retry after a lost response finds no link, the delete
// counts as done.
func (c *Client) DeleteLink(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/api/v1/links/"+url.PathEscape(id), nil, nil)
}

// LinkFilter narrows a list of links. A link must match all fields that are not empty.
type LinkFilter struct {
	Query      string   // prefixes of words in slug, title, tags or destination
	Tags       []string // a link must have all of them; up to five
	DomainID   string   // "default" is the default host
	Slug       string   // the whole slug, in upper or lower case
	ExternalID string
	Archived   string // "true", "false" or "all", which is the service's default
}

func (f LinkFilter) values() url.Values {
	return filter(f.Tags, map[string]string{
		"q": f.Query, "domainId": f.DomainID, "slug": f.Slug, "externalId": f.ExternalID, "archived": f.Archived,
	})
}

// filter makes a query from the fields that are not empty.
func filter(tags []string, fields map[string]string) url.Values {
	q := url.Values{}
	for name, v := range fields {
		if v != "" {
			q.Set(name, v)
		}
	}
	if len(tags) > 0 {
		q["tag"] = tags
	}
	return q
}

// LinksPage reads one page. A nil cursor means the first page, and a limit of 0 means
// the service's default.
func (c *Client) LinksPage(ctx context.Context, cursor *int64, limit int) (*LinkPage, error) {
	return c.LinksPageWhere(ctx, LinkFilter{}, cursor, limit)
}

// LinksPageWhere reads one page of the links that match a filter.
func (c *Client) LinksPageWhere(ctx context.Context, f LinkFilter, cursor *int64, limit int) (*LinkPage, error) {
	q := f.values()
	if cursor != nil {
		q.Set("cursor", strconv.FormatInt(*cursor, 10))
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return answer[LinkPage](ctx, c, http.MethodGet, "/api/v1/links"+query(q), nil)
}

// Links walks all links, newest first, and reads pages as it goes. It ends after
// the first error.
func (c *Client) Links(ctx context.Context) iter.Seq2[LinkSummary, error] {
	return c.LinksWhere(ctx, LinkFilter{})
}

// LinksWhere walks the links that match a filter, newest first.
func (c *Client) LinksWhere(ctx context.Context, f LinkFilter) iter.Seq2[LinkSummary, error] {
	return pages[LinkSummary](ctx, c, "/api/v1/links", f.values())
}

// Tags walks the account's tags that begin with prefix, in alphabetical order.
func (c *Client) Tags(ctx context.Context, prefix string) iter.Seq2[string, error] {
	q := filter(nil, map[string]string{"q": prefix})
	return func(yield func(string, error) bool) {
		for t, err := range pages[Tag](ctx, c, "/api/v1/tags", q) {
			if !yield(t.Name, err) || err != nil {
				return
			}
		}
	}
}

// BulkItem is a new link in a bulk request.
type BulkItem = LinkCreate

// BulkCreate makes up to [BulkMax] links and returns one result per item, in order. A
// refused item does not fail the call.
func (c *Client) BulkCreate(ctx context.Context, items []BulkItem) ([]BulkResult, error) {
	return c.bulk(ctx, http.MethodPost, "/api/v1/links/bulk", BulkCreate{items}, len(items))
}

// BulkChange changes up to [BulkMax] links and returns one result per id, in order. A
// link that cannot be changed does not fail the call.
func (c *Client) BulkChange(ctx context.Context, ids []string, set BulkSet) ([]BulkResult, error) {
	return c.bulk(ctx, http.MethodPatch, "/api/v1/links/bulk", BulkUpdate{ids, set}, len(ids))
}

// BulkDelete removes up to [BulkMax] links and returns one result per id.
func (c *Client) BulkDelete(ctx context.Context, ids []string) ([]BulkResult, error) {
	return c.bulk(ctx, http.MethodPost, "/api/v1/links/bulk-delete", BulkDelete{ids}, len(ids))
}

func (c *Client) bulk(ctx context.Context, method, path string, in any, n int) ([]BulkResult, error) {
	out, err := answer[BulkResults](ctx, c, method, path, in)
	if err != nil {
		return nil, err
	}
	if len(out.Results) != n {
		return nil, fmt.Errorf("bulk: %d results for %d items", len(out.Results), n)
	}
	return out.Results, nil
}

// LinkStats reads the clicks from one UTC day to another, written as 2026-11-20. If from
// or to is empty, the service uses its default.
func (c *Client) LinkStats(ctx context.Context, id, from, to string) (*LinkStats, error) {
	q := filter(nil, map[string]string{"from": from, "to": to})
	return answer[LinkStats](ctx, c, http.MethodGet, "/api/v1/links/"+url.PathEscape(id)+"/stats"+query(q), nil)
}

// Visit describes a visit for [Client.ExplainLink]. The value of an empty field is unknown, so
// no condition on it is met.
type Visit struct {
	Country  string // two letters
	Device   string // desktop, phone or tablet
	System   string // windows, macos, linux, ios, android, chromeos or other
	Language string // as in the header Accept-Language
	Query    string // the whole query, such as a=1&b=2
	Path     string // what follows the slug, with its slash
	At       Moment // now if it is empty
	// Percent is the visitor's number, 0 to 99. Rules with a percentage divide visitors by
	// this number.
	Percent *int
}

// ExplainLink says what a link would decide about a visit. Nothing is counted.
func (c *Client) ExplainLink(ctx context.Context, id string, v Visit) (*LinkExplained, error) {
	q := filter(nil, map[string]string{
		"country": v.Country, "device": v.Device, "system": v.System, "language": v.Language, "query": v.Query, "path": v.Path,
	})
	if !v.At.IsZero() {
		q.Set("at", fmt.Sprint(v.At.v))
	}
	if v.Percent != nil {
		q.Set("percent", strconv.Itoa(*v.Percent))
	}
	return answer[LinkExplained](ctx, c, http.MethodGet, "/api/v1/links/"+url.PathEscape(id)+"/explain"+query(q), nil)
}

// SlugAvailable reports whether a create could take a slug now. domainID is
// "default" for the default host, and empty for the account's default domain. Nothing is
// reserved.
func (c *Client) SlugAvailable(ctx context.Context, slug, domainID string) (*SlugAvailable, error) {
	q := filter(nil, map[string]string{"slug": slug, "domainId": domainID})
	return answer[SlugAvailable](ctx, c, http.MethodGet, "/api/v1/links/available"+query(q), nil)
}

// CreateDomain claims a host name.
func (c *Client) CreateDomain(ctx context.Context, hostname string) (*Domain, error) {
	return answer[Domain](ctx, c, http.MethodPost, "/api/v1/domains", map[string]string{"hostname": hostname})
}

// Domains lists all domains.
func (c *Client) Domains(ctx context.Context) ([]Domain, error) {
	return list[Domain](ctx, c, "/api/v1/domains")
}

// Domain reads one domain.
func (c *Client) Domain(ctx context.Context, id string) (*Domain, error) {
	return answer[Domain](ctx, c, http.MethodGet, "/api/v1/domains/"+url.PathEscape(id), nil)
}

// VerifyDomain checks the proof of ownership now. The response's Status says whether the
// service found it.
func (c *Client) VerifyDomain(ctx context.Context, id string) (*Domain, error) {
	return answer[Domain](ctx, c, http.MethodPost, "/api/v1/domains/"+url.PathEscape(id)+"/verify", nil)
}

// DomainStats reads the visits of a domain that no link served, by day; see
// [Client.LinkStats] for from and to.
func (c *Client) DomainStats(ctx context.Context, id, from, to string) (*DomainStats, error) {
	q := filter(nil, map[string]string{"from": from, "to": to})
	return answer[DomainStats](ctx, c, http.MethodGet, "/api/v1/domains/"+url.PathEscape(id)+"/stats"+query(q), nil)
}

// UpdateDomain changes a domain's pages.
func (c *Client) UpdateDomain(ctx context.Context, id string, in DomainUpdate) (*Domain, error) {
	return answer[Domain](ctx, c, http.MethodPatch, "/api/v1/domains/"+url.PathEscape(id), in)
}

// DeleteDomain removes a domain.
func (c *Client) DeleteDomain(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/api/v1/domains/"+url.PathEscape(id), nil, nil)
}

func query(q url.Values) string {
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}
