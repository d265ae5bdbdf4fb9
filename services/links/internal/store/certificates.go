package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"cloud.google.com/go/firestore"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/libs/seal"
	"github.com/linkreel/linkreel/libs/tenant/keeper"
	"github.com/linkreel/linkreel/libs/waiting"
	"github.com/linkreel/linkreel/services/links/internal/certificate"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
)

// certificateDoc is the document certificates/{host}. It contains the certificate and the state of
// its order.
type certificateDoc struct {
	// AccountID is the account that placed the last order. It is kept after the domain is deleted,
	// until the pause after failed orders ends.
	AccountID string `firestore:"accountId,omitempty"`

	Chain     []byte    `firestore:"chain"`
	Key       []byte    `firestore:"key"` // sealed
	KeyID     string    `firestore:"keyId"`
	NotBefore time.Time `firestore:"notBefore,omitzero"`
	NotAfter  time.Time `firestore:"notAfter,omitzero"`
	RenewAt   time.Time `firestore:"renewAt,omitzero"`

	Holder string    `firestore:"holder"`
	Token  int64     `firestore:"token"`
	Until  time.Time `firestore:"until,omitzero"`

	Challenge *challengeDoc `firestore:"challenge"`

	Failures int       `firestore:"failures"`
	Failure  string    `firestore:"failure"`
	NextAt   time.Time `firestore:"nextAt,omitzero"`
	// Due is the certificate's due time in the renewal schedule.
	Due *record.Due `firestore:"due,omitempty"`
}

// challengeDoc is the authority's challenge for an in-flight order. It has the same fields as
// [certificate.Challenge], so Go can convert one to the other.
type challengeDoc struct {
	Token  string `firestore:"token"`
	Answer string `firestore:"answer"`
}

// acmeAccountDoc is the document acmeAccounts/{hash of the authority and the e-mail address}.
type acmeAccountDoc struct {
	Key       []byte    `firestore:"key"` // sealed
	ChangedAt time.Time `firestore:"changedAt"`
}

// Certificates stores certificates.
type Certificates struct{ *Store }

// Certificates returns the certificate store.
func (s *Store) Certificates() Certificates { return Certificates{s} }

var _ certificate.Store = Certificates{}

func (s *Store) certificateRef(host string) firestoredb.Ref {
	return s.db.Collection("certificates").Doc(host)
}

func recordOf(host string, d *certificateDoc) *certificate.Record {
	r := &certificate.Record{
		Host: host, Account: d.AccountID, Holder: d.Holder, Token: d.Token, Until: d.Until,
		Failures: d.Failures, Failure: d.Failure, NextAt: d.NextAt, DueAt: d.Due.Time(), Challenge: (*certificate.Challenge)(d.Challenge),
	}
	if !d.NotAfter.IsZero() {
		r.Certificate = &certificate.Certificate{Chain: d.Chain, Key: d.Key, NotBefore: d.NotBefore, NotAfter: d.NotAfter, RenewAt: d.RenewAt}
	}
	return r
}

func certificateDocOf(r *certificate.Record) *certificateDoc {
	d := &certificateDoc{
		AccountID: r.Account, Holder: r.Holder, Token: r.Token, Until: r.Until,
		Failures: r.Failures, Failure: r.Failure, NextAt: r.NextAt, Challenge: (*challengeDoc)(r.Challenge),
		Due: record.DueAt(r.Host, r.DueAt),
	}
	if c := r.Certificate; c != nil {
		d.Chain, d.Key, d.KeyID = c.Chain, c.Key, seal.IDOf(c.Key)
		d.NotBefore, d.NotAfter, d.RenewAt = c.NotBefore, c.NotAfter, c.RenewAt
	}
	return d
}

// Certificate implements [certificate.Store].
func (s Certificates) Certificate(ctx context.Context, host string) (*certificate.Record, bool, error) {
	d, found, err := firestoredb.Lookup(ctx, s.db.DB, "get certificate", s.certificateRef(host), firestoredb.As[certificateDoc])
	if err != nil || !found {
		return nil, false, err
	}
	return recordOf(host, &d), true, nil
}

// ChangeCertificate implements [certificate.Store].
func (s Certificates) ChangeCertificate(
	ctx context.Context, host string, fn func(r *certificate.Record, o *certificate.Owner) error,
) error {
	var forget bool
	err := s.db.Tx(ctx, "change certificate", func(t *record.Tx) error {
		forget = false
		// Read the owner and the record in one transaction, which is retried if the name changes
		// owner concurrently.
		var h hostDoc
		owned, err := t.Load(s.hostRef(host), &h)
		if err != nil {
			return err
		}
		var d certificateDoc
		found, err := t.Load(s.certificateRef(host), &d)
		if err != nil {
			return err
		}
		var domain *customdomain.Domain
		if owned {
			if domain, err = s.domain(t, h.DomainID); err != nil {
				return err
			}
		}
		var owner certificate.Owner
		if domain != nil {
			if owner, err = s.owner(t, domain); err != nil {
				return err
			}
		}
		r := recordOf(host, &d)
		if err := fn(r, &owner); err != nil {
			if !errors.Is(err, certificate.ErrForget) {
				return err
			}
			if forget = true; found {
				t.Delete(s.certificateRef(host))
			}
			return nil
		}
		// Most changes, such as extending a lease, do not affect the certificate state that the
		// owner sees.
		if domain != nil && owner.Shown != domain.Certificate {
			after := *domain
			after.Certificate = owner.Shown
			if err := s.domains.In(t).Put(domain, &after, events.Quiet); err != nil {
				return err
			}
		}
		t.Set(s.certificateRef(host), certificateDocOf(r))
		return nil
	})
	if err == nil && forget {
		return certificate.ErrForget
	}
	return err
}

func (s Certificates) owner(t *record.Tx, d *customdomain.Domain) (certificate.Owner, error) {
	snaps, err := t.GetAll(Standings(s.db.DB).Ref(d.AccountID))
	if err != nil {
		return certificate.Owner{}, err
	}
	standing, err := keeper.Of(snaps[0])
	return certificate.Owner{Account: d.AccountID, Suspended: !standing.State.Serves(), Shown: d.Certificate}, err
}

// DueCertificates implements [certificate.Store].
func (s Certificates) DueCertificates(ctx context.Context, at time.Time, limit int) (hosts []string, err error) {
	return s.db.IDs(ctx, "list due certificates", s.db.Collection("certificates").
		Where("due.bucket", "in", record.AllBuckets()).Where("due.at", "<=", at).OrderBy("due.at", firestore.Asc).Limit(limit))
}

// Waits looks for certificates that are due to be ordered or renewed. It also reports the earliest
// expiry. Expired certificates are ignored because either their hosts do not get any visits or the
// owner has moved the domain to another service.
func (s Certificates) Waits() waiting.Look {
	all := s.db.Collection("certificates")
	due := waiting.Query(s.db.DB, "due certificates", "due.at", func() []firestore.Query {
		return []firestore.Query{record.DueIn(all, s.db.Now())}
	})
	depth := func(ctx context.Context) (waiting.Depth, error) {
		snaps, err := s.db.Query(ctx, "find the earliest expiry of a certificate",
			all.Where("due.bucket", "in", record.AllBuckets()).Where("notAfter", ">", s.db.Now()).
				OrderBy("notAfter", firestore.Asc).Limit(1).Select("notAfter"))
		if err != nil {
			return waiting.Depth{}, err
		}
		earliestEnd.Reset()
		for _, snap := range snaps {
			if end, ok := snap.Data()["notAfter"].(time.Time); ok {
				earliestEnd.WithLabelValues().Set(float64(end.Unix()))
			}
		}
		return due(ctx)
	}
	return waiting.Look{Work: waiting.Work{Of: "certificates", For: "order"}, Depth: depth, Lost: earliestEnd.Reset}
}

// earliestEnd has a value only on the replica that last ran [Certificates.Waits], and only if there
// are valid certificates.
var earliestEnd = promauto.NewGaugeVec(prometheus.GaugeOpts{
	Name: "linkreel_certificates_earliest_expiry_timestamp_seconds",
	Help: "Earliest expiry of all valid certificates of custom domains, in seconds since 1970.",
}, nil)

// PutOffCertificate implements [certificate.Store].
func (s Certificates) PutOffCertificate(ctx context.Context, host string, at time.Time) error {
	due := []firestore.Update{{Path: "due.at", Value: at}}
	return firestoredb.IgnoreMoved(s.db.Update(ctx, "postpone certificate", s.certificateRef(host), due))
}

// SealedBy implements [certificate.Store].
func (s Certificates) SealedBy(ctx context.Context, keyIDs []string, after string, limit int) ([]string, error) {
	keyIDs = keyIDs[:min(len(keyIDs), 30)] // Firestore accepts at most 30 values
	q := s.db.Collection("certificates").Where("keyId", "in", keyIDs).OrderBy(firestore.DocumentID, firestore.Asc).Limit(limit)
	if after != "" {
		q = q.StartAfter(after)
	}
	return s.db.IDs(ctx, "list certificates with older keys", q)
}

// ChangeAccount implements [certificate.Account]'s store.
func (s Certificates) ChangeAccount(ctx context.Context, id string, fn func(sealed []byte, since time.Time) ([]byte, error)) error {
	sum := sha256.Sum256([]byte(id)) // hashed because the ID contains a URL, which cannot be part of a document's name
	ref := s.db.Collection("acmeAccounts").Doc(hex.EncodeToString(sum[:20]))
	return s.db.Tx(ctx, "change account at the authority", func(t *record.Tx) error {
		var d acmeAccountDoc
		if _, err := t.Load(ref, &d); err != nil {
			return err
		}
		key, err := fn(d.Key, d.ChangedAt)
		if err != nil || bytes.Equal(key, d.Key) {
			return err
		}
		t.Set(ref, &acmeAccountDoc{Key: key, ChangedAt: s.db.Now()})
		return nil
	})
}
