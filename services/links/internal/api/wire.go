package api

import (
	"encoding/json"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/jsdate"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// linkItem is a link in a list. The first six fields are the specification's.
type linkItem struct {
	ID             string `json:"_id"`
	Slug           string `json:"slug"`
	DestinationURL string `json:"destinationUrl"`
	Title          string `json:"title"`
	Clicks         int64  `json:"clicks"`
	CreatedAt      int64  `json:"createdAt"`

	ShortURL  string      `json:"shortUrl"`
	DomainID  *string     `json:"domainId"`
	ExpiresAt *int64      `json:"expiresAt"`
	Status    link.Status `json:"status"`

	Tags       []string `json:"tags"`
	ExternalID *string  `json:"externalId"`
	Archived   bool     `json:"archived"`
}

func (h public) itemOf(l *link.Link) linkItem {
	out := linkItem{
		ID: l.ID, Slug: l.Slug.String(), DestinationURL: l.Destination.Given, Title: l.Title, Clicks: l.Clicks, CreatedAt: millis(l.CreatedAt),
		ShortURL: h.shortURL(l), Status: l.Status(h.opt.Now()),
	}
	if l.DomainID != "" {
		out.DomainID = &l.DomainID
	}
	if l.Expiry.Set {
		out.ExpiresAt = &l.Expiry.MS
	}
	out.Tags, out.Archived = append([]string{}, l.Tags...), l.Archived
	if l.ExternalID != "" {
		out.ExternalID = &l.ExternalID
	}
	return out
}

// linkRecord is a link that is asked for by its id.
type linkRecord struct {
	linkItem
	PlainID       string  `json:"id"`
	OGTitle       *string `json:"ogTitle"`
	OGDescription *string `json:"ogDescription"`
	OGImage       *string `json:"ogImage"`
	UpdatedAt     int64   `json:"updatedAt"`

	TakenDown *takenDown `json:"takenDown"`
}

type takenDown struct {
	At     int64  `json:"at"`
	Reason string `json:"reason"`
}

func (h public) recordOf(l *link.Link) linkRecord {
	out := linkRecord{linkItem: h.itemOf(l), PlainID: l.ID, OGTitle: l.OpenGraph.Title, OGDescription: l.OpenGraph.Description, UpdatedAt: millis(l.UpdatedAt)}
	if l.OpenGraph.Image != nil {
		out.OGImage = &l.OpenGraph.Image.Given
	}
	if t := l.Takedown; t != nil {
		out.TakenDown = &takenDown{millis(t.At), t.Reason}
	}
	return out
}

// linkCreated is a link that was just made.
type linkCreated struct {
	ID             string   `json:"id"`
	ShortURL       string   `json:"shortUrl"`
	Slug           string   `json:"slug"`
	DestinationURL string   `json:"destinationUrl"`
	CreatedAt      string   `json:"createdAt,omitempty"` // not in bulk results
	Ignored        []string `json:"ignoredFields,omitempty"`
}

func (h public) createdOf(l *link.Link) linkCreated {
	return linkCreated{ID: l.ID, ShortURL: h.shortURL(l), Slug: l.Slug.String(), DestinationURL: l.Destination.Given}
}

func (h public) shortURL(l *link.Link) string {
	return link.ShortURL(h.opt.ShortBaseURL, l.Host, l.Slug.String())
}

type dayClicks struct {
	Date   string `json:"date"`
	Clicks int64  `json:"clicks"`
}

type hostShare struct {
	Host   string `json:"host"`
	Clicks int64  `json:"clicks"`
}

type countryShare struct {
	Country string `json:"country"`
	Clicks  int64  `json:"clicks"`
}

type deviceShare struct {
	Device string `json:"device"`
	Clicks int64  `json:"clicks"`
}

type statsRecord struct {
	From      string         `json:"from"`
	To        string         `json:"to"`
	Total     int64          `json:"total"`
	Days      []dayClicks    `json:"days"`
	Referrers []hostShare    `json:"referrers"`
	Countries []countryShare `json:"countries"`
	Devices   []deviceShare  `json:"devices"`
}

func hostShares(in []link.Share) []hostShare {
	out := make([]hostShare, len(in))
	for i, s := range in {
		out[i] = hostShare{s.Name, s.Clicks}
	}
	return out
}

func countryShares(in []link.Share) []countryShare {
	out := make([]countryShare, len(in))
	for i, s := range in {
		out[i] = countryShare{s.Name, s.Clicks}
	}
	return out
}

func deviceShares(in []link.Share) []deviceShare {
	out := make([]deviceShare, len(in))
	for i, s := range in {
		out[i] = deviceShare{s.Name, s.Clicks}
	}
	return out
}

// isoTime is how JavaScript writes a date.
const isoTime = "2006-01-02T15:04:05.000Z"

type dnsRecord struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

type domainRecord struct {
	ID            string      `json:"id"`
	Hostname      string      `json:"hostname"`
	Status        string      `json:"status"`
	Records       []dnsRecord `json:"records"`
	CreatedAt     int64       `json:"createdAt"`
	VerifiedAt    *int64      `json:"verifiedAt"`
	CheckedAt     *int64      `json:"checkedAt"`
	LastCheckedAt *int64      `json:"lastCheckedAt"` // the name of checkedAt in 0.3, kept for callers who know it
	Reason        *string     `json:"reason"`        // why the last check failed
}

func (h public) domainOf(d *customdomain.Domain) domainRecord {
	name, value := d.Record()
	out := domainRecord{
		ID: d.ID, Hostname: d.Hostname, Status: "pending", Records: append([]dnsRecord{{"TXT", name, value}}, h.addressRecords(d.Hostname)...),
		CreatedAt: millis(d.CreatedAt), VerifiedAt: millisOrNil(d.VerifiedAt), CheckedAt: millisOrNil(d.CheckedAt), LastCheckedAt: millisOrNil(d.CheckedAt),
	}
	if d.Verified(h.opt.Now()) {
		out.Status = "verified"
	}
	if d.Failure != "" {
		out.Reason = &d.Failure
	}
	return out
}

// addressRecords send visitors of a custom host name to us. A name needs a CNAME
// where our host has a name of its own, and an A or AAAA record where it is an
// address. A local run has neither.
func (h public) addressRecords(hostname string) []dnsRecord {
	own := h.opt.Own[0].Name
	switch addr, err := netip.ParseAddr(strings.Trim(own, "[]")); {
	case err == nil && addr.Is4() && !addr.IsLoopback():
		return []dnsRecord{{"A", hostname, addr.String()}}
	case err == nil && !addr.IsLoopback():
		return []dnsRecord{{"AAAA", hostname, addr.String()}}
	case err != nil && strings.Contains(own, "."):
		return []dnsRecord{{"CNAME", hostname, own}}
	}
	return nil
}

// moment is a JSON string or number that JavaScript's Date may read.
type moment struct {
	text   string
	number float64
	isText bool
}

func (m *moment) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		m.isText = true
		return json.Unmarshal(b, &m.text)
	}
	n, err := strconv.ParseFloat(string(b), 64)
	if err != nil && !math.IsInf(n, 0) { // 1e999 is infinite in JavaScript as well
		return err
	}
	m.number = n
	return nil
}

// expiry reads the moment as `new Date(x)` does.
func (m moment) expiry() (link.Expiry, *apierr.Detail) {
	if !m.isText {
		if ms, ok := jsdate.FromNumber(m.number); ok {
			return link.ExpiresAt(ms), nil
		}
		return link.Expiry{}, &apierr.Detail{Code: apierr.OutOfRange, Message: "This number of milliseconds is beyond what a date can hold. Use at most 8640000000000000."}
	}
	if ms, ok := jsdate.Parse(m.text); ok {
		return link.ExpiresAt(ms), nil
	}
	return link.Expiry{}, &apierr.Detail{Code: apierr.InvalidFormat, Message: "JavaScript cannot read this as a date. Use ISO 8601, such as 2027-04-01T00:00:00Z, or a number of milliseconds."}
}

// validate runs a rule on a field that has no broken rule yet, and notes what the
// rule says.
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

func validateText(f *httpapi.Fields, field, text string, limit int) {
	validate(f, field, func() (struct{}, *apierr.Detail) { return struct{}{}, link.CheckText(text, limit) })
}

func millis(t time.Time) int64 { return t.UnixMilli() }

func millisOrNil(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}
