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

	ImportedClicks *int64 `json:"importedClicks,omitempty"` // of imported links only
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
	out.Tags, out.Archived, out.ImportedClicks = append([]string{}, l.Tags...), l.Archived, l.ImportedClicks
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

// linkMade is a link in a bulk result, which has the specification's four fields
// and no more.
type linkMade struct {
	ID             string `json:"id"`
	ShortURL       string `json:"shortUrl"`
	Slug           string `json:"slug"`
	DestinationURL string `json:"destinationUrl"`
}

// linkCreated is a link that was just made by itself.
type linkCreated struct {
	linkMade
	CreatedAt  string   `json:"createdAt"`
	Tags       []string `json:"tags"`
	ExternalID *string  `json:"externalId"`
	Archived   bool     `json:"archived"`

	ImportedClicks *int64   `json:"importedClicks,omitempty"`
	Ignored        []string `json:"ignoredFields,omitempty"`
}

func (h public) createdOf(l *link.Link, ignored []string) linkCreated {
	item := h.itemOf(l)
	return linkCreated{
		linkMade: h.madeOf(l), CreatedAt: l.CreatedAt.UTC().Format(isoTime), Tags: item.Tags, ExternalID: item.ExternalID, Archived: item.Archived,
		ImportedClicks: l.ImportedClicks, Ignored: ignored,
	}
}

func (h public) madeOf(l *link.Link) linkMade {
	return linkMade{ID: l.ID, ShortURL: h.shortURL(l), Slug: l.Slug.String(), DestinationURL: l.Destination.Given}
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

	Certificate certificateRecord `json:"certificate"`
}

type certificateRecord struct {
	Status    string  `json:"status"`
	ExpiresAt *int64  `json:"expiresAt"`
	Error     *string `json:"error"`
}

// certificateOf is "none" where this installation orders no certificates, whatever
// was noted while it did.
func (h public) certificateOf(d *customdomain.Domain) certificateRecord {
	c := d.Certificate.Shown(h.opt.Now())
	if !h.opt.Certificates || c.Status == customdomain.NoCertificate {
		return certificateRecord{Status: "none"}
	}
	out := certificateRecord{Status: string(c.Status), ExpiresAt: millisOrNil(c.ExpiresAt)}
	if c.Error != "" {
		out.Error = &c.Error
	}
	return out
}

func (h public) domainOf(d *customdomain.Domain) domainRecord {
	name, value := d.Record()
	out := domainRecord{
		ID: d.ID, Hostname: d.Hostname, Status: "pending", Records: append([]dnsRecord{{"TXT", name, value}}, h.addressRecords(d.Hostname)...),
		CreatedAt: millis(d.CreatedAt), VerifiedAt: millisOrNil(d.VerifiedAt), CheckedAt: millisOrNil(d.CheckedAt), LastCheckedAt: millisOrNil(d.CheckedAt),
		Certificate: h.certificateOf(d),
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
// where we have a name of our own, and an A or AAAA record where we have an
// address. On a local run it is this machine's, so that a name of a hosts file or
// of a resolver of one's own can be tried.
func (h public) addressRecords(hostname string) []dnsRecord {
	target := h.opt.Own[0].Name
	if h.opt.DomainTarget != "" {
		target = h.opt.DomainTarget
	}
	if target == "localhost" {
		target = "127.0.0.1"
	}
	switch addr, err := netip.ParseAddr(strings.Trim(target, "[]")); {
	case err == nil && addr.Is4():
		return []dnsRecord{{"A", hostname, addr.String()}}
	case err == nil:
		return []dnsRecord{{"AAAA", hostname, addr.String()}}
	case strings.Contains(target, "."):
		return []dnsRecord{{"CNAME", hostname, target}}
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
