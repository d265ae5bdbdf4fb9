package store

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
)

// domainDoc is domains/{id}, an account's claim.
type domainDoc struct {
	AccountID    string     `firestore:"accountId"`
	Hostname     string     `firestore:"hostname"`
	Token        string     `firestore:"token"`
	Nonce        string     `firestore:"nonce"`
	CreatedAt    time.Time  `firestore:"createdAt"`
	VerifiedAt   *time.Time `firestore:"verifiedAt"`
	CheckedAt    *time.Time `firestore:"lastCheckedAt"`
	FailingSince *time.Time `firestore:"failingSince"`
	Failures     int        `firestore:"failures"`
	Failure      string     `firestore:"failure"`
	// Certificate is absent until somebody visits the host by TLS.
	Certificate *shownCertificateDoc `firestore:"certificate,omitempty"`
	// Check is the place of a verified domain in the schedule of checks.
	Check *checkDoc `firestore:"check"`
	// LegacyCheckAt is the place that releases up to 0.3 gave it, without a bucket.
	// The first check by this release replaces it.
	LegacyCheckAt *time.Time `firestore:"nextCheckAt,omitempty"`
}

// shownCertificateDoc is what the domain's owner sees of the certificate.
type shownCertificateDoc struct {
	Status    string     `firestore:"status"`
	ExpiresAt *time.Time `firestore:"expiresAt"`
	Error     string     `firestore:"error"`
}

type checkDoc struct {
	Bucket int       `firestore:"bucket"`
	At     time.Time `firestore:"at"`
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
	out := &customdomain.Domain{
		ID: id, AccountID: d.AccountID, Hostname: d.Hostname, Token: d.Token, Nonce: d.Nonce, CreatedAt: d.CreatedAt,
		VerifiedAt: timeOrZero(d.VerifiedAt), CheckedAt: timeOrZero(d.CheckedAt), FailingSince: timeOrZero(d.FailingSince),
		Failures: d.Failures, Failure: d.Failure, NextCheckAt: timeOrZero(d.LegacyCheckAt),
	}
	if d.Check != nil {
		out.NextCheckAt = d.Check.At
	}
	if c := d.Certificate; c != nil {
		out.Certificate = customdomain.Certificate{Status: customdomain.CertificateStatus(c.Status), ExpiresAt: timeOrZero(c.ExpiresAt), Error: c.Error}
	}
	return out
}

func domainDocOf(d *customdomain.Domain) *domainDoc {
	doc := &domainDoc{
		AccountID: d.AccountID, Hostname: d.Hostname, Token: d.Token, Nonce: d.Nonce, CreatedAt: d.CreatedAt,
		VerifiedAt: timeOrNil(d.VerifiedAt), CheckedAt: timeOrNil(d.CheckedAt), FailingSince: timeOrNil(d.FailingSince),
		Failures: d.Failures, Failure: d.Failure,
	}
	if !d.NextCheckAt.IsZero() {
		doc.Check = &checkDoc{customdomain.Bucket(d.ID), d.NextCheckAt}
	}
	if c := d.Certificate; c.Status != customdomain.NoCertificate {
		doc.Certificate = &shownCertificateDoc{string(c.Status), timeOrNil(c.ExpiresAt), c.Error}
	}
	return doc
}

// Domain implements [customdomain.Store].
func (s *Store) Domain(ctx context.Context, id string) (*customdomain.Domain, error) {
	if !validID(id) {
		return nil, customdomain.NotFound()
	}
	var d domainDoc
	found, err := s.get(ctx, "get domain", s.domainRef(id), &d)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, customdomain.NotFound()
	}
	return domainOf(id, &d), nil
}

// Domains implements [customdomain.Store].
func (s Domains) Domains(ctx context.Context, accountID string) ([]*customdomain.Domain, error) {
	out, err := s.query(ctx, "list domains", s.db.Collection("domains").Where("accountId", "==", accountID))
	slices.SortFunc(out, func(a, b *customdomain.Domain) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return out, err
}

// DueDomains implements [customdomain.Store]. The first page of the first bucket
// also has the domains that an older release left in its own schedule.
func (s Domains) DueDomains(ctx context.Context, bucket int, at time.Time, after *customdomain.Domain, limit int) ([]*customdomain.Domain, error) {
	domains := s.db.Collection("domains")
	q := domains.Where("check.bucket", "==", bucket).Where("check.at", "<=", at).
		OrderBy("check.at", firestore.Asc).OrderBy(firestore.DocumentID, firestore.Asc).Limit(limit)
	if after != nil {
		q = q.StartAfter(after.NextCheckAt, after.ID)
	}
	due, err := s.due(ctx, "list due domains", q, "check.at")
	if err != nil || bucket != 0 || after != nil || len(due) == limit {
		return due, err
	}
	legacy, err := s.due(ctx, "list due domains of older releases",
		domains.Where("nextCheckAt", "<=", at).OrderBy("nextCheckAt", firestore.Asc).Limit(limit-len(due)), "nextCheckAt")
	// They come first: the page after this one begins behind its last domain, which
	// has to be one of the bucket.
	return append(legacy, due...), err
}

// due is query for domains whose time, at a path, has come. One that cannot be read
// is put off for an hour, so that it keeps nothing behind it from being checked.
func (s *Store) due(ctx context.Context, what string, q firestore.Query, path string) (out []*customdomain.Domain, err error) {
	// Again for as long as some were put off: a page that is not full is taken for the last.
	for broken := true; broken; {
		var snaps []*firestore.DocumentSnapshot
		err := s.db.Do(ctx, what, func(ctx context.Context) (err error) {
			snaps, err = q.Documents(ctx).GetAll()
			return err
		})
		if err != nil {
			return nil, err
		}
		out, broken = out[:0], false
		for _, snap := range snaps {
			var d domainDoc
			why := snap.DataTo(&d)
			if why == nil {
				out = append(out, domainOf(snap.Ref.ID, &d))
				continue
			}
			slog.ErrorContext(ctx, "a domain cannot be read; its check is put off for an hour", "domain", snap.Ref.ID, "error", why)
			broken = true
			err := s.db.Do(ctx, "put domain off", func(ctx context.Context) error {
				later := []firestore.Update{{Path: path, Value: s.now().Add(time.Hour)}}
				_, err := snap.Ref.Update(ctx, later, firestore.LastUpdateTime(snap.UpdateTime))
				return err
			})
			// Changed or removed since: the next look shows how it is now.
			if err != nil && !errors.Is(err, firestoredb.ErrStale) && !errors.Is(err, firestoredb.ErrNotFound) {
				return nil, err
			}
		}
	}
	return out, nil
}

func (s *Store) query(ctx context.Context, what string, q firestore.Query) ([]*customdomain.Domain, error) {
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

// Host reads which domain owns a host name in lower case.
func (s *Store) Host(ctx context.Context, host string) (domainID string, found bool, err error) {
	var d hostDoc
	found, err = s.get(ctx, "resolve host", s.hostRef(host), &d)
	return d.DomainID, found, err
}
