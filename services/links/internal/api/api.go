// Package api is how links and domains are asked for over HTTP: it decodes and
// judges requests, calls the store, and writes answers. Whatever changes what a
// redirect answers is announced to all replicas before the caller hears of it.
package api

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/jsdate"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Store remembers links and domains. A record of another account is one that is
// not there: LINK_NOT_FOUND, DOMAIN_NOT_FOUND. The check of an edit gets the
// record's revision and its error is the edit's.
type Store interface {
	Get(ctx context.Context, accountID, id string) (*link.Link, error)
	List(ctx context.Context, accountID string, before int64, limit int) (page []*link.Link, more bool, err error)
	Create(ctx context.Context, accountID string, o link.Origin, drafts []link.Draft) ([]link.Result, error)
	Update(ctx context.Context, accountID, id string, check func(rev int64) error, p link.Patch) (*link.Link, error)
	Delete(ctx context.Context, accountID, id string, check func(rev int64) error) (*link.Link, error)
	CountLinks(ctx context.Context, accountID string) (int, error)
	Stats(ctx context.Context, linkID string, first, last link.Day) (link.Stats, error)

	Claim(ctx context.Context, accountID, hostname, token string, o link.Origin) (*customdomain.Domain, error)
	Domain(ctx context.Context, accountID, id string) (*customdomain.Domain, error)
	Domains(ctx context.Context, accountID string) ([]*customdomain.Domain, error)
	// DueDomains are verified ones that have not been looked at for a day.
	DueDomains(ctx context.Context, limit int) ([]*customdomain.Domain, error)
	// Looked notes the outcome of a look-up of the proof.
	Looked(ctx context.Context, accountID, id string, proven bool) (d *customdomain.Domain, changed bool, err error)
	DeleteDomain(ctx context.Context, accountID, id string) (*customdomain.Domain, error)
	Host(ctx context.Context, host string) (domainID string, found bool, err error)
}

// Announcer tells every replica that slugs ([link.SlugKey]) or host names have
// changed, before it returns.
type Announcer interface {
	Announce(ctx context.Context, keys ...string)
}

// Prover looks for a claim's DNS record; see [customdomain.DNS.Proves].
type Prover interface {
	Proves(ctx context.Context, claim *customdomain.Domain) (bool, error)
}

// Options configure the [API].
type Options struct {
	Store     Store
	Announcer Announcer
	Prover    Prover
	// ShortBaseURL is where links on the default host are.
	ShortBaseURL string
	// Own are the hosts that no link may lead to.
	Own link.Hosts
	Now func() time.Time
}

// API has the handlers.
type API struct {
	opt  Options
	http *httpapi.API
}

// Routes adds the public routes to h.
func Routes(h *httpapi.API, opt Options) *API {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	a := &API{opt, h}
	read, write := httpapi.Access{Scope: identity.LinksRead}, httpapi.Access{Scope: identity.LinksWrite, Plan: identity.Creator}
	h.Handle("GET", "/api/v1/links", read, a.list)
	h.Handle("POST", "/api/v1/links", write, a.create)
	h.Handle("POST", "/api/v1/links/bulk", httpapi.Access{Scope: identity.LinksWrite, Plan: identity.Business}, a.bulk)
	h.Handle("GET", "/api/v1/links/:id", read, a.get)
	h.Handle("PATCH", "/api/v1/links/:id", write, a.update)
	h.Handle("DELETE", "/api/v1/links/:id", write, a.remove)
	h.Handle("GET", "/api/v1/links/:id/stats", read, a.stats)

	read, write = httpapi.Access{Scope: identity.DomainsRead}, httpapi.Access{Scope: identity.DomainsWrite, Plan: identity.Creator}
	h.Handle("GET", "/api/v1/domains", read, a.listDomains)
	h.Handle("POST", "/api/v1/domains", write, a.claimDomain)
	h.Handle("GET", "/api/v1/domains/:id", read, a.getDomain)
	h.Handle("POST", "/api/v1/domains/:id/verify", write, a.verifyDomain)
	h.Handle("DELETE", "/api/v1/domains/:id", write, a.deleteDomain)
	return a
}

func account(ctx context.Context) string { return identity.FromContext(ctx).AccountID }

func originOf(ctx context.Context) link.Origin {
	o := httpapi.OriginOf(ctx)
	return link.Origin{Nonce: o.Nonce, At: o.At, Replay: o.Replay}
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
		return link.Expiry{}, &apierr.Detail{Code: apierr.OutOfRange, Message: "This number of milliseconds is beyond what a date can hold."}
	}
	if ms, ok := jsdate.Parse(m.text); ok {
		return link.ExpiresAt(ms), nil
	}
	return link.Expiry{}, &apierr.Detail{Code: apierr.InvalidFormat, Message: "This is no date for JavaScript. Use ISO 8601, such as 2027-04-01T00:00:00Z, or a number of milliseconds."}
}

// judge runs a rule on a field that has no broken rule yet, and notes what the
// rule says.
func judge[T any](f *httpapi.Fields, field string, parse func() (T, *apierr.Detail)) (value T) {
	if f.Bad(field) {
		return value
	}
	value, problem := parse()
	if problem != nil {
		problem.Field = field
		f.Add(*problem)
	}
	return value
}

func judgeText(f *httpapi.Fields, field, text string, limit int) {
	judge(f, field, func() (struct{}, *apierr.Detail) { return struct{}{}, link.CheckText(text, limit) })
}

func millis(t time.Time) int64 { return t.UnixMilli() }

func millisOrNil(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}
