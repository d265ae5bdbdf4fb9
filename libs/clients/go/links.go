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

// LinkCreate is a link to be. Only URL is needed.
type LinkCreate struct {
	URL           string `json:"url"`
	Slug          string `json:"slug,omitempty"`
	Title         string `json:"title,omitempty"`
	DomainID      string `json:"domainId,omitempty"`
	ExpiresAt     Moment `json:"expiresAt,omitzero"`
	OGTitle       string `json:"ogTitle,omitempty"`
	OGDescription string `json:"ogDescription,omitempty"`
	OGImage       string `json:"ogImage,omitempty"`

	Tags       []string `json:"tags,omitempty"`
	ExternalID string   `json:"externalId,omitempty"`
	Archived   bool     `json:"archived,omitempty"`
	// ImportedClicks says that the link comes from another service, where it had so
	// many; CreatedAt is when it was made there, and counts only together with
	// ImportedClicks. A deployment that does not keep them names them in IgnoredFields.
	ImportedClicks *int64 `json:"importedClicks,omitempty"`
	CreatedAt      Moment `json:"createdAt,omitzero"`
}

// LinkCreated is the receipt for a new link.
type LinkCreated struct {
	ID             string `json:"id"`
	ShortURL       string `json:"shortUrl"`
	Slug           string `json:"slug"`
	DestinationURL string `json:"destinationUrl"`
	CreatedAt      string `json:"createdAt"`

	Tags           []string `json:"tags"`
	ExternalID     *string  `json:"externalId"`
	Archived       bool     `json:"archived"`
	ImportedClicks int64    `json:"importedClicks,omitempty"`
	// IgnoredFields are fields of the request that the service did not take.
	IgnoredFields []string `json:"ignoredFields,omitempty"`
}

// LinkSummary is a link in a list.
type LinkSummary struct {
	ID             string `json:"_id"`
	Slug           string `json:"slug"`
	DestinationURL string `json:"destinationUrl"`
	Title          string `json:"title"`
	Clicks         int64  `json:"clicks"`
	CreatedAt      Millis `json:"createdAt"`

	ShortURL       string   `json:"shortUrl"`
	DomainID       *string  `json:"domainId"`
	ExpiresAt      *Millis  `json:"expiresAt"`
	Status         string   `json:"status"` // active, expired or taken_down
	Tags           []string `json:"tags"`
	Archived       bool     `json:"archived"`
	ExternalID     *string  `json:"externalId"`
	ImportedClicks int64    `json:"importedClicks,omitempty"`
}

// Link is everything known about a link.
type Link struct {
	ID             string  `json:"id"`
	Slug           string  `json:"slug"`
	ShortURL       string  `json:"shortUrl"`
	DestinationURL string  `json:"destinationUrl"`
	Title          string  `json:"title"`
	Clicks         int64   `json:"clicks"`
	Status         string  `json:"status"` // active or expired
	DomainID       *string `json:"domainId"`
	ExpiresAt      *Millis `json:"expiresAt"`
	OGTitle        *string `json:"ogTitle"`
	OGDescription  *string `json:"ogDescription"`
	OGImage        *string `json:"ogImage"`
	CreatedAt      Millis  `json:"createdAt"`
	UpdatedAt      Millis  `json:"updatedAt"`

	Tags           []string   `json:"tags"`
	Archived       bool       `json:"archived"`
	ExternalID     *string    `json:"externalId"`
	ImportedClicks int64      `json:"importedClicks,omitempty"`
	TakenDown      *TakenDown `json:"takenDown,omitempty"`
}

// TakenDown says when and why the operator took a record off the air.
type TakenDown struct {
	At     Millis `json:"at"`
	Reason string `json:"reason"`
}

// LinkUpdate changes a link; untouched fields stay.
type LinkUpdate struct {
	URL           Field[string] `json:"url,omitzero"`
	Title         Field[string] `json:"title,omitzero"`
	ExpiresAt     Field[Moment] `json:"expiresAt,omitzero"`
	OGTitle       Field[string] `json:"ogTitle,omitzero"`
	OGDescription Field[string] `json:"ogDescription,omitzero"`
	OGImage       Field[string] `json:"ogImage,omitzero"`

	Tags       Field[[]string] `json:"tags,omitzero"`
	ExternalID Field[string]   `json:"externalId,omitzero"`
	Archived   Field[bool]     `json:"archived,omitzero"`
}

// CreateLink makes a short link.
func (c *Client) CreateLink(ctx context.Context, in LinkCreate) (*LinkCreated, error) {
	out := new(LinkCreated)
	return out, c.call(ctx, http.MethodPost, "/api/v1/links", in, out)
}

// Link reads one link.
func (c *Client) Link(ctx context.Context, id string) (*Link, error) {
	out := new(Link)
	return out, c.call(ctx, http.MethodGet, "/api/v1/links/"+url.PathEscape(id), nil, out)
}

// UpdateLink changes a link and gives its slug.
func (c *Client) UpdateLink(ctx context.Context, id string, in LinkUpdate) (slug string, err error) {
	var out struct{ Slug string }
	err = c.call(ctx, http.MethodPatch, "/api/v1/links/"+url.PathEscape(id), in, &out)
	return out.Slug, err
}

// DeleteLink removes a link. A delete whose answer was lost and that then finds
// nothing counts as done.
func (c *Client) DeleteLink(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/api/v1/links/"+url.PathEscape(id), nil, nil)
}

// LinkPage is one page of the list.
type LinkPage struct {
	Data       []LinkSummary `json:"data"`
	HasMore    bool          `json:"hasMore"`
	NextCursor *int64        `json:"nextCursor"`
}

// LinkFilter narrows a list of links. Its fields combine; empty ones do not count.
type LinkFilter struct {
	Query      string   // words that begin a word of slug, title, tags or destination
	Tags       []string // all of them, up to five
	DomainID   string   // "default" is the default host
	Slug       string   // the whole slug, in any case of letters
	ExternalID string
	Archived   string // "true", "false" or "all", which is the service's default
}

func (f LinkFilter) values() url.Values {
	q := url.Values{}
	for name, v := range map[string]string{"q": f.Query, "domainId": f.DomainID, "slug": f.Slug, "externalId": f.ExternalID, "archived": f.Archived} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if len(f.Tags) > 0 {
		q["tag"] = f.Tags
	}
	return q
}

// LinksPage reads one page; a nil cursor is the first, limit 0 the service's
// default.
func (c *Client) LinksPage(ctx context.Context, cursor *int64, limit int) (*LinkPage, error) {
	return c.LinksPageWhere(ctx, LinkFilter{}, cursor, limit)
}

// LinksPageWhere reads one page of the links that fit a filter.
func (c *Client) LinksPageWhere(ctx context.Context, f LinkFilter, cursor *int64, limit int) (*LinkPage, error) {
	q := f.values()
	if cursor != nil {
		q.Set("cursor", strconv.FormatInt(*cursor, 10))
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	out := new(LinkPage)
	return out, c.call(ctx, http.MethodGet, "/api/v1/links"+query(q), nil, out)
}

// Links walks all links, newest first, and reads pages as it goes. It ends after
// the first error.
func (c *Client) Links(ctx context.Context) iter.Seq2[LinkSummary, error] {
	return c.LinksWhere(ctx, LinkFilter{})
}

// LinksWhere walks the links that fit a filter, newest first.
func (c *Client) LinksWhere(ctx context.Context, f LinkFilter) iter.Seq2[LinkSummary, error] {
	return func(yield func(LinkSummary, error) bool) {
		var cursor *int64
		for {
			page, err := c.LinksPageWhere(ctx, f, cursor, 100)
			if err != nil {
				yield(LinkSummary{}, err)
				return
			}
			for _, l := range page.Data {
				if !yield(l, nil) {
					return
				}
			}
			if !page.HasMore || page.NextCursor == nil {
				return
			}
			cursor = page.NextCursor
		}
	}
}

// Tags walks the account's tags in alphabetical order, those that begin with
// prefix if there is one.
func (c *Client) Tags(ctx context.Context, prefix string) iter.Seq2[string, error] {
	q := url.Values{}
	if prefix != "" {
		q.Set("q", prefix)
	}
	return func(yield func(string, error) bool) {
		for t, err := range pages[struct{ Name string }](ctx, c, "/api/v1/tags", q) {
			if !yield(t.Name, err) || err != nil {
				return
			}
		}
	}
}

// BulkItem is a link to be in a bulk request.
type BulkItem = LinkCreate

// BulkResult is what became of an item: Data when Status is 201, else Error.
type BulkResult struct {
	Status int           `json:"status"`
	Data   *BulkLink     `json:"data,omitempty"`
	Error  *BulkItemFail `json:"error,omitempty"`
	// IgnoredFields are fields of the item that the service did not take.
	IgnoredFields []string `json:"ignoredFields,omitempty"`
}

// BulkLink is a link that a bulk request made.
type BulkLink struct {
	ID             string `json:"id"`
	ShortURL       string `json:"shortUrl"`
	Slug           string `json:"slug"`
	DestinationURL string `json:"destinationUrl"`
}

// BulkItemFail says why an item was refused.
type BulkItemFail struct {
	Code    string   `json:"code"`
	Message string   `json:"message"`
	URL     string   `json:"url"`
	Details []Detail `json:"details,omitempty"`
}

// BulkCreate makes up to [BulkMax] links and answers one result per item, in
// order. Refused items are no error.
func (c *Client) BulkCreate(ctx context.Context, items []BulkItem) ([]BulkResult, error) {
	in := struct {
		URLs []BulkItem `json:"urls"`
	}{items}
	return c.bulk(ctx, http.MethodPost, "/api/v1/links/bulk", in, len(items))
}

// BulkSet is what a bulk change sets. Tags replaces all tags and cannot be
// combined with AddTags or RemoveTags.
type BulkSet struct {
	Tags       Field[[]string] `json:"tags,omitzero"`
	AddTags    []string        `json:"addTags,omitempty"`
	RemoveTags []string        `json:"removeTags,omitempty"`
	Archived   Field[bool]     `json:"archived,omitzero"`
	ExpiresAt  Field[Moment]   `json:"expiresAt,omitzero"`
}

// BulkChange changes up to [BulkMax] links and answers one result per id, in
// order. A link that cannot be changed is no error of the call.
func (c *Client) BulkChange(ctx context.Context, ids []string, set BulkSet) ([]BulkResult, error) {
	in := struct {
		IDs []string `json:"ids"`
		Set BulkSet  `json:"set"`
	}{ids, set}
	return c.bulk(ctx, http.MethodPatch, "/api/v1/links/bulk", in, len(ids))
}

// BulkDelete removes up to [BulkMax] links and answers one result per id.
func (c *Client) BulkDelete(ctx context.Context, ids []string) ([]BulkResult, error) {
	return c.bulk(ctx, http.MethodPost, "/api/v1/links/bulk-delete", map[string][]string{"ids": ids}, len(ids))
}

func (c *Client) bulk(ctx context.Context, method, path string, in any, n int) ([]BulkResult, error) {
	var out struct{ Results []BulkResult }
	if err := c.call(ctx, method, path, in, &out); err != nil {
		return nil, err
	}
	if len(out.Results) != n {
		return nil, fmt.Errorf("bulk: %d results for %d items", len(out.Results), n)
	}
	return out.Results, nil
}

// LinkStats are clicks over days.
type LinkStats struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Total int64  `json:"total"`
	Days  []struct {
		Date   string `json:"date"`
		Clicks int64  `json:"clicks"`
	} `json:"days"`
	Referrers []struct {
		Host   string `json:"host"`
		Clicks int64  `json:"clicks"`
	} `json:"referrers"`
	Countries []struct {
		Country string `json:"country"`
		Clicks  int64  `json:"clicks"`
	} `json:"countries"`
	Devices []struct {
		Device string `json:"device"`
		Clicks int64  `json:"clicks"`
	} `json:"devices"`
}

// LinkStats reads the clicks from one UTC day to another, both as 2026-11-20;
// empty for the service's default.
func (c *Client) LinkStats(ctx context.Context, id, from, to string) (*LinkStats, error) {
	q := url.Values{}
	if from != "" {
		q.Set("from", from)
	}
	if to != "" {
		q.Set("to", to)
	}
	out := new(LinkStats)
	return out, c.call(ctx, http.MethodGet, "/api/v1/links/"+url.PathEscape(id)+"/stats"+query(q), nil, out)
}

// Domain is a custom host name.
type Domain struct {
	ID            string      `json:"id"`
	Hostname      string      `json:"hostname"`
	Status        string      `json:"status"` // pending or verified
	Records       []DNSRecord `json:"records"`
	CreatedAt     Millis      `json:"createdAt"`
	VerifiedAt    *Millis     `json:"verifiedAt"`
	LastCheckedAt *Millis     `json:"lastCheckedAt,omitempty"`
	CheckedAt     *Millis     `json:"checkedAt,omitempty"`
	// Reason says in words why the last check failed.
	Reason      *string      `json:"reason,omitempty"`
	Certificate *Certificate `json:"certificate,omitempty"`
	// IgnoredFields are fields of the request that the service did not take.
	IgnoredFields []string `json:"ignoredFields,omitempty"`
}

// Certificate is the state of a domain's TLS certificate.
type Certificate struct {
	Status    string  `json:"status"` // none, pending, issued or failed
	ExpiresAt *Millis `json:"expiresAt"`
	Error     *string `json:"error"`
}

// DNSRecord is a record to set.
type DNSRecord struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

// CreateDomain claims a host name.
func (c *Client) CreateDomain(ctx context.Context, hostname string) (*Domain, error) {
	out := new(Domain)
	return out, c.call(ctx, http.MethodPost, "/api/v1/domains", map[string]string{"hostname": hostname}, out)
}

// Domains lists all domains.
func (c *Client) Domains(ctx context.Context) ([]Domain, error) {
	var out struct{ Data []Domain }
	err := c.call(ctx, http.MethodGet, "/api/v1/domains", nil, &out)
	return out.Data, err
}

// Domain reads one domain.
func (c *Client) Domain(ctx context.Context, id string) (*Domain, error) {
	out := new(Domain)
	return out, c.call(ctx, http.MethodGet, "/api/v1/domains/"+url.PathEscape(id), nil, out)
}

// VerifyDomain looks for the proof now; see Status of the answer.
func (c *Client) VerifyDomain(ctx context.Context, id string) (*Domain, error) {
	out := new(Domain)
	return out, c.call(ctx, http.MethodPost, "/api/v1/domains/"+url.PathEscape(id)+"/verify", nil, out)
}

// DeleteDomain gives a domain up.
func (c *Client) DeleteDomain(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/api/v1/domains/"+url.PathEscape(id), nil, nil)
}

func query(q url.Values) string {
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}
