package store

import (
	"context"
	"time"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/services/links/internal/certificate"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// domainDoc is the document domains/{id}, an account's claim.
type domainDoc struct {
	AccountID    string    `firestore:"accountId"`
	Hostname     string    `firestore:"hostname"`
	Token        string    `firestore:"token"`
	CreatedAt    time.Time `firestore:"createdAt"`
	VerifiedAt   time.Time `firestore:"verifiedAt,omitzero"`
	CheckedAt    time.Time `firestore:"checkedAt,omitzero"`
	FailingSince time.Time `firestore:"failingSince,omitzero"`
	Failures     int       `firestore:"failures"`
	Failure      string    `firestore:"failure"`
	// Certificate is absent until the host is first visited over TLS.
	Certificate shownCertificateDoc `firestore:"certificate,omitzero"`
	// Due is when a verified domain is next checked.
	Due   *record.Due `firestore:"due,omitempty"`
	Pages *pagesDoc   `firestore:"pages,omitempty"`
	// Visits are counted together with their days; see [Counts].
	Visits int64 `firestore:"visits,omitempty"`
}

// pagesDoc contains [customdomain.Pages] in the documents for a domain and its host.
type pagesDoc struct {
	Home     urlDoc `firestore:"home"`
	NotFound urlDoc `firestore:"notFound"`
	Expired  urlDoc `firestore:"expired"`
}

func pagesDocOf(p customdomain.Pages) *pagesDoc {
	if p == (customdomain.Pages{}) {
		return nil
	}
	return &pagesDoc{urlDoc(p.Home), urlDoc(p.NotFound), urlDoc(p.Expired)}
}

func pagesOf(d *pagesDoc) customdomain.Pages {
	if d == nil {
		return customdomain.Pages{}
	}
	return customdomain.Pages{Home: customdomain.Page(d.Home), NotFound: customdomain.Page(d.NotFound), Expired: customdomain.Page(d.Expired)}
}

// shownCertificateDoc has the same fields as [customdomain.Certificate], so Go can convert one to
// the other.
type shownCertificateDoc struct {
	Status    customdomain.CertificateStatus `firestore:"status"`
	ExpiresAt time.Time                      `firestore:"expiresAt,omitzero"`
	Error     string                         `firestore:"error"`
}

// hostDoc is the document hostnames/{host}. It contains the owner of the name and is written when a
// claim is proven. A name has one document and therefore one owner.
type hostDoc struct {
	DomainID  string    `firestore:"domainId"`
	AccountID string    `firestore:"accountId"`
	Pages     *pagesDoc `firestore:"pages,omitempty"`
}

func domainKind(shown func(*customdomain.Domain) any) record.Kind[customdomain.Domain] {
	return record.Kind[customdomain.Domain]{
		Collection: "domains", Object: "domain",
		Of:     func(d *customdomain.Domain) (id, account string) { return d.ID, d.AccountID },
		Doc:    func(d *customdomain.Domain) any { return domainDocOf(d) },
		From:   readDomain,
		Absent: customdomain.NotFound,
		Shown:  shown,
		Paged:  true,
		Order: func(a, b *customdomain.Domain) int {
			return paging.Newest(a.Place(), b.Place())
		},
		Limit: &record.Limit{Kind: "domains", Full: func(int64) error { return customdomain.Full() }},
	}
}

var readDomain = firestoredb.Reader(domainOf)

func domainOf(snap firestoredb.Snap, d *domainDoc) *customdomain.Domain {
	return &customdomain.Domain{
		ID: snap.Ref.ID, AccountID: d.AccountID, Hostname: d.Hostname, Token: d.Token, CreatedAt: d.CreatedAt,
		VerifiedAt: d.VerifiedAt, CheckedAt: d.CheckedAt, FailingSince: d.FailingSince, Failures: d.Failures, Failure: d.Failure,
		NextCheckAt: d.Due.Time(), Certificate: customdomain.Certificate(d.Certificate),
		Pages: pagesOf(d.Pages), Visits: d.Visits,
	}
}

func domainDocOf(d *customdomain.Domain) *domainDoc {
	return &domainDoc{
		AccountID: d.AccountID, Hostname: d.Hostname, Token: d.Token, CreatedAt: d.CreatedAt,
		VerifiedAt: d.VerifiedAt, CheckedAt: d.CheckedAt, FailingSince: d.FailingSince, Failures: d.Failures, Failure: d.Failure,
		Certificate: shownCertificateDoc(d.Certificate), Due: record.DueAt(d.ID, d.NextCheckAt),
		Pages: pagesDocOf(d.Pages), Visits: d.Visits,
	}
}

// Domains stores custom domains.
type Domains struct{ *Store }

// Domains returns the custom domain store.
func (s *Store) Domains() Domains { return Domains{s} }

// Domain implements [customdomain.Store].
func (s Domains) Domain(ctx context.Context, accountID, id string) (*customdomain.Domain, error) {
	return s.domains.Get(ctx, accountID, id)
}

// Page implements [customdomain.Store].
func (s Domains) Page(ctx context.Context, accountID string, p paging.Page) ([]*customdomain.Domain, bool, error) {
	return s.domains.Page(ctx, accountID, p)
}

// Domains implements [customdomain.Store].
func (s Domains) Domains(ctx context.Context, accountID string) ([]*customdomain.Domain, error) {
	return s.domains.All(ctx, accountID)
}

// dueAtOnce is the number of domains that one round checks.
const dueAtOnce = 10_000

// Due implements [customdomain.Store].
func (s Domains) Due(ctx context.Context) ([]*customdomain.Domain, error) {
	return s.domains.Due(ctx, dueAtOnce)
}

// Atomically implements [customdomain.Store].
func (s Domains) Atomically(ctx context.Context, what string, fn func(tx customdomain.Tx) error) error {
	return s.db.Tx(ctx, what, func(tx *record.Tx) error {
		return fn(domainTx{s.domains.In(tx), tx, s.Store, map[string]*certificateDoc{}})
	})
}

// domainTx implements [customdomain.Tx].
type domainTx struct {
	record.In[customdomain.Domain]
	tx    *record.Tx
	s     *Store
	certs map[string]*certificateDoc // certificate records for the hosts whose owner this transaction has read
}

// Domain implements [customdomain.Tx].
func (t domainTx) Domain(id string) (*customdomain.Domain, error) { return t.s.domain(t.tx, id) }

func (s *Store) domain(tx *record.Tx, id string) (*customdomain.Domain, error) {
	found, err := s.domains.In(tx).GetAll(id)
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// Owner implements [customdomain.Tx]. It also reads the certificate, which SetOwner and ClearOwner
// need but must not read themselves.
func (t domainTx) Owner(hostname string) (string, error) {
	snaps, err := t.tx.GetAll(t.s.hostRef(hostname), t.s.certificateRef(hostname))
	if err != nil {
		return "", err
	}
	if snaps[1] != nil {
		// An unreadable certificate must not block the name. It is deleted when the name's owner
		// next changes.
		if c, err := firestoredb.As[certificateDoc](snaps[1]); err == nil {
			t.certs[hostname] = &c
		}
	}
	if snaps[0] == nil {
		return "", nil
	}
	d, err := firestoredb.As[hostDoc](snaps[0])
	return d.DomainID, err
}

// HasLinks implements [customdomain.Tx].
func (t domainTx) HasLinks(d *customdomain.Domain) (bool, error) {
	using, err := t.tx.Query(t.s.anyLink(d.AccountID, link.DomainTerm+d.ID))
	return len(using) > 0, err
}

// ClearStats implements [customdomain.Tx]. A domain has about 400 days, each of them small.
func (t domainTx) ClearStats(d *customdomain.Domain) error {
	days, err := t.tx.Query(t.s.days(d.ID).Select())
	for _, day := range days {
		t.tx.Delete(day.Ref)
	}
	return err
}

// SetOwner implements [customdomain.Tx]. It removes the previous owner's certificate with its
// private key.
func (t domainTx) SetOwner(d *customdomain.Domain) {
	d.Certificate = certificate.Shown(t.handOver(d.Hostname, d.AccountID), t.s.db.Now())
	t.SetPages(d)
}

// SetPages implements [customdomain.Tx].
func (t domainTx) SetPages(d *customdomain.Domain) {
	t.tx.Announce(d.Hostname)
	t.tx.Set(t.s.hostRef(d.Hostname), &hostDoc{DomainID: d.ID, AccountID: d.AccountID, Pages: pagesDocOf(d.Pages)})
}

// ClearOwner implements [customdomain.Tx].
func (t domainTx) ClearOwner(d *customdomain.Domain) {
	t.tx.Announce(d.Hostname)
	t.handOver(d.Hostname, "")
	t.tx.Delete(t.s.hostRef(d.Hostname))
}

// handOver assigns a host's certificate record to account, or to "" if the host loses its
// owner. It returns the part of the record that is kept, which is nothing if this transaction has
// not read the owner.
func (t domainTx) handOver(host, account string) *certificate.Record {
	if d := t.certs[host]; d != nil {
		if r := recordOf(host, d); r.HandOver(account, t.s.db.Now()) {
			t.tx.Set(t.s.certificateRef(host), certificateDocOf(r))
			return r
		}
	}
	t.tx.Delete(t.s.certificateRef(host))
	return &certificate.Record{Host: host}
}
