package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// domainDoc is domains/{id}, an account's claim.
type domainDoc struct {
	AccountID     string     `firestore:"accountId"`
	Hostname      string     `firestore:"hostname"`
	Token         string     `firestore:"token"`
	Nonce         string     `firestore:"nonce"`
	CreatedAt     time.Time  `firestore:"createdAt"`
	VerifiedAt    *time.Time `firestore:"verifiedAt"`
	LastCheckedAt *time.Time `firestore:"lastCheckedAt"`
	FailingSince  *time.Time `firestore:"failingSince"`
	NextCheckAt   *time.Time `firestore:"nextCheckAt"` // of verified ones
}

// hostDoc is hostnames/{host}: who owns the name. It is written when a claim is
// proven, which makes ownership unique.
type hostDoc struct {
	DomainID  string `firestore:"domainId"`
	AccountID string `firestore:"accountId"`
}

func (s *Store) domainRef(id string) *firestore.DocumentRef {
	return s.db.Collection("domains").Doc(id)
}
func (s *Store) hostRef(host string) *firestore.DocumentRef {
	return s.db.Collection("hostnames").Doc(host)
}

func domainOf(id string, d *domainDoc) *customdomain.Domain {
	at := func(t *time.Time) time.Time {
		if t == nil {
			return time.Time{}
		}
		return *t
	}
	return &customdomain.Domain{ID: id, AccountID: d.AccountID, Hostname: d.Hostname, Token: d.Token, CreatedAt: d.CreatedAt,
		VerifiedAt: at(d.VerifiedAt), LastCheckedAt: at(d.LastCheckedAt), FailingSince: at(d.FailingSince)}
}

func domainDocOf(d *customdomain.Domain, nonce string) *domainDoc {
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	doc := &domainDoc{AccountID: d.AccountID, Hostname: d.Hostname, Token: d.Token, Nonce: nonce, CreatedAt: d.CreatedAt,
		VerifiedAt: at(d.VerifiedAt), LastCheckedAt: at(d.LastCheckedAt), FailingSince: at(d.FailingSince)}
	if !d.VerifiedAt.IsZero() {
		doc.NextCheckAt = at(d.LastCheckedAt.Add(customdomain.Recheck))
	}
	return doc
}

// Claim makes an account's claim to a name. A name that is proven already, or
// that the account has claimed before, is DOMAIN_TAKEN.
func (s *Store) Claim(ctx context.Context, accountID, hostname, token string, o link.Origin) (*customdomain.Domain, error) {
	d := &customdomain.Domain{ID: domainID(accountID, hostname), AccountID: accountID, Hostname: hostname, Token: token, CreatedAt: o.At.UTC().Truncate(time.Millisecond)}
	err := s.db.Tx(ctx, "claim domain", func(_ context.Context, tx *firestore.Transaction) error {
		old, nonce, err := s.claimIn(tx, d.ID)
		if err != nil {
			return err
		}
		if old != nil {
			if nonce == o.Nonce {
				d = old
				return nil
			}
			return customdomain.Taken()
		}
		if _, err := s.ownerIn(tx, d); err != nil {
			return err
		}
		return tx.Create(s.domainRef(d.ID), domainDocOf(d, o.Nonce))
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (s *Store) claimIn(tx *firestore.Transaction, id string) (*customdomain.Domain, string, error) {
	var doc domainDoc
	snap, err := tx.Get(s.domainRef(id))
	if snap != nil && !snap.Exists() {
		return nil, "", nil
	}
	if err == nil {
		err = snap.DataTo(&doc)
	}
	if err != nil {
		return nil, "", err
	}
	return domainOf(id, &doc), doc.Nonce, nil
}

func (s *Store) domainIn(tx *firestore.Transaction, id string) (*customdomain.Domain, error) {
	if !validID(id) {
		return nil, nil
	}
	d, _, err := s.claimIn(tx, id)
	return d, err
}

// ownerIn finds out whether claim d may own its name: owned means that it does
// already; the error is DOMAIN_TAKEN while another claim holds it.
func (s *Store) ownerIn(tx *firestore.Transaction, d *customdomain.Domain) (owned bool, err error) {
	var host hostDoc
	snap, err := tx.Get(s.hostRef(d.Hostname))
	if snap != nil && !snap.Exists() {
		return false, nil
	}
	if err == nil {
		err = snap.DataTo(&host)
	}
	if err != nil {
		return false, err
	}
	if host.DomainID == d.ID {
		return true, nil
	}
	holder, err := s.domainIn(tx, host.DomainID)
	if err != nil {
		return false, err
	}
	if holder != nil && !holder.Lapsed(s.now()) {
		return false, customdomain.Taken()
	}
	return false, nil
}

// Domain reads a domain of the account.
func (s *Store) Domain(ctx context.Context, accountID, id string) (*customdomain.Domain, error) {
	if !validID(id) {
		return nil, customdomain.NotFound()
	}
	var d domainDoc
	found, err := s.get(ctx, "get domain", s.domainRef(id), &d)
	if err != nil {
		return nil, err
	}
	if !found || d.AccountID != accountID {
		return nil, customdomain.NotFound()
	}
	return domainOf(id, &d), nil
}

// Domains reads the account's domains, newest first.
func (s *Store) Domains(ctx context.Context, accountID string) ([]*customdomain.Domain, error) {
	out, err := s.domains(ctx, "list domains", s.db.Collection("domains").Where("accountId", "==", accountID))
	slices.SortFunc(out, func(a, b *customdomain.Domain) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return out, err
}

// DueDomains reads verified domains whose proof is to be looked at again.
func (s *Store) DueDomains(ctx context.Context, limit int) ([]*customdomain.Domain, error) {
	return s.domains(ctx, "list due domains", s.db.Collection("domains").Where("nextCheckAt", "<=", s.now()).OrderBy("nextCheckAt", firestore.Asc).Limit(limit))
}

func (s *Store) domains(ctx context.Context, what string, q firestore.Query) ([]*customdomain.Domain, error) {
	var out []*customdomain.Domain
	err := s.db.Do(ctx, what, func(ctx context.Context) error {
		snaps, err := q.Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		out = make([]*customdomain.Domain, 0, len(snaps))
		for _, snap := range snaps {
			var d domainDoc
			if err := snap.DataTo(&d); err != nil {
				return err
			}
			out = append(out, domainOf(snap.Ref.ID, &d))
		}
		return nil
	})
	return out, err
}

// Looked notes the result of a look at a claim's proof. The first proof makes
// the claim own its name, or is DOMAIN_TAKEN when another claim was faster.
// changed reports whether the name's owner is another one than before.
func (s *Store) Looked(ctx context.Context, accountID, id string, proven bool) (d *customdomain.Domain, changed bool, err error) {
	err = s.db.Tx(ctx, "note proof of domain", func(_ context.Context, tx *firestore.Transaction) error {
		changed = false
		var nonce string
		var err error
		d, nonce, err = s.claimIn(tx, id)
		if err != nil {
			return err
		}
		if d == nil || d.AccountID != accountID {
			return customdomain.NotFound()
		}
		owned, err := s.ownerIn(tx, d)
		if err != nil {
			if !proven && d.VerifiedAt.IsZero() {
				return err // the name is gone; a caller should know rather than wait
			}
			if proven {
				return err
			}
			owned = false
		}
		d.Looked(proven, s.now())
		if err := tx.Set(s.domainRef(id), domainDocOf(d, nonce)); err != nil {
			return err
		}
		if proven && !owned {
			changed = true
			return tx.Set(s.hostRef(d.Hostname), &hostDoc{DomainID: id, AccountID: accountID})
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	return d, changed, nil
}

// DeleteDomain removes a domain of the account that no link uses.
func (s *Store) DeleteDomain(ctx context.Context, accountID, id string) (*customdomain.Domain, error) {
	if !validID(id) {
		return nil, customdomain.NotFound()
	}
	var d *customdomain.Domain
	err := s.db.Tx(ctx, "delete domain", func(_ context.Context, tx *firestore.Transaction) error {
		var err error
		if d, err = s.domainIn(tx, id); err != nil {
			return err
		}
		if d == nil || d.AccountID != accountID {
			return customdomain.NotFound()
		}
		using, err := tx.Documents(s.db.Collection("links").Where("domainId", "==", id).Limit(1)).GetAll()
		if err != nil {
			return err
		}
		if len(using) > 0 {
			return customdomain.InUse()
		}
		var host hostDoc
		snap, err := tx.Get(s.hostRef(d.Hostname))
		switch {
		case snap != nil && !snap.Exists():
		case err != nil:
			return err
		default:
			if err := snap.DataTo(&host); err != nil {
				return err
			}
		}
		if host.DomainID == id {
			if err := tx.Delete(s.hostRef(d.Hostname)); err != nil {
				return err
			}
		}
		return tx.Delete(s.domainRef(id))
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Host reads which domain owns a host name in lower case.
func (s *Store) Host(ctx context.Context, host string) (domainID string, found bool, err error) {
	var d hostDoc
	found, err = s.get(ctx, "resolve host", s.hostRef(host), &d)
	return d.DomainID, found, err
}
