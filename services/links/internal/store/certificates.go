package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/seal"
	"github.com/linkreel/linkreel/libs/tenant/keeper"
	"github.com/linkreel/linkreel/services/links/internal/certificate"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
)

// certificateDoc is certificates/{host}: the certificate and the state of its order.
type certificateDoc struct {
	// AccountID is whose domain it was last ordered for. It outlives the domain for
	// as long as the pause after failed orders lasts.
	AccountID string `firestore:"accountId,omitempty"`

	Chain     []byte     `firestore:"chain"`
	Key       []byte     `firestore:"key"` // sealed
	KeyID     string     `firestore:"keyId"`
	NotBefore *time.Time `firestore:"notBefore"`
	NotAfter  *time.Time `firestore:"notAfter"`
	RenewAt   *time.Time `firestore:"renewAt"`

	Holder string     `firestore:"holder"`
	Token  int64      `firestore:"token"`
	Until  *time.Time `firestore:"until"`

	Failures int        `firestore:"failures"`
	Failure  string     `firestore:"failure"`
	NextAt   *time.Time `firestore:"nextAt"`
	// Due is the place in the schedule of renewals.
	Due *checkDoc `firestore:"due"`
}

// acmeFileDoc is acmeFiles/{hash of name}: the account at the authority, and
// challenges that wait to be asked for.
type acmeFileDoc struct {
	Name     string     `firestore:"name"`
	Value    []byte     `firestore:"value"` // sealed
	KeyID    string     `firestore:"keyId"`
	Modified time.Time  `firestore:"modified"`
	ExpireAt *time.Time `firestore:"expireAt"`
}

// acmeLockDoc is acmeLocks/{hash of name}.
type acmeLockDoc struct {
	Name   string    `firestore:"name"`
	Holder string    `firestore:"holder"`
	Token  int64     `firestore:"token"`
	Until  time.Time `firestore:"until"`
}

// Certificates is the store of certificates.
type Certificates struct{ *Store }

// Certificates keeps the certificates beside the domains.
func (s *Store) Certificates() Certificates { return Certificates{s} }

var (
	_ certificate.Store = Certificates{}
	_ certificate.Files = Certificates{}
)

func (s *Store) certificateRef(host string) *firestore.DocumentRef {
	return s.db.Collection("certificates").Doc(host)
}

// hashed names a document for a name that Firestore may not allow as an id.
func hashed(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:20])
}

func (s *Store) fileRef(name string) *firestore.DocumentRef {
	return s.db.Collection("acmeFiles").Doc(hashed(name))
}
func (s *Store) lockRef(name string) *firestore.DocumentRef {
	return s.db.Collection("acmeLocks").Doc(hashed(name))
}

func recordOf(host string, d *certificateDoc) *certificate.Record {
	r := &certificate.Record{
		Host: host, Account: d.AccountID, Holder: d.Holder, Token: d.Token, Until: timeOrZero(d.Until),
		Failures: d.Failures, Failure: d.Failure, NextAt: timeOrZero(d.NextAt),
	}
	if d.NotAfter != nil {
		r.Certificate = &certificate.Certificate{Chain: d.Chain, Key: d.Key, NotBefore: timeOrZero(d.NotBefore), NotAfter: *d.NotAfter, RenewAt: timeOrZero(d.RenewAt)}
	}
	if d.Due != nil {
		r.DueAt = d.Due.At
	}
	return r
}

func certificateDocOf(r *certificate.Record) *certificateDoc {
	d := &certificateDoc{AccountID: r.Account, Holder: r.Holder, Token: r.Token, Until: timeOrNil(r.Until), Failures: r.Failures, Failure: r.Failure, NextAt: timeOrNil(r.NextAt)}
	if c := r.Certificate; c != nil {
		d.Chain, d.Key, d.KeyID = c.Chain, c.Key, seal.IDOf(c.Key)
		d.NotBefore, d.NotAfter, d.RenewAt = timeOrNil(c.NotBefore), timeOrNil(c.NotAfter), timeOrNil(c.RenewAt)
	}
	if !r.DueAt.IsZero() {
		d.Due = &checkDoc{certificate.Bucket(r.Host), r.DueAt}
	}
	return d
}

// Certificate implements [certificate.Store].
func (s Certificates) Certificate(ctx context.Context, host string) (*certificate.Record, bool, error) {
	var d certificateDoc
	found, err := s.get(ctx, "get certificate", s.certificateRef(host), &d)
	if err != nil || !found {
		return nil, false, err
	}
	return recordOf(host, &d), true, nil
}

// ChangeCertificate implements [certificate.Store].
func (s Certificates) ChangeCertificate(ctx context.Context, host string, fn func(r *certificate.Record, o certificate.Owner) error) error {
	var forget bool
	err := s.atomically(ctx, s.db.Tx, "change certificate", func(t *tx) error {
		forget = false
		// Owner and record in one transaction: if the name changes hands meanwhile, it starts again.
		var h hostDoc
		owned, err := t.load(s.hostRef(host), &h)
		if err != nil {
			return err
		}
		var d certificateDoc
		found, err := t.load(s.certificateRef(host), &d)
		if err != nil {
			return err
		}
		var domain *customdomain.Domain
		if owned {
			if domain, err = t.Domain(h.DomainID); err != nil {
				return err
			}
		}
		var owner certificate.Owner
		if domain != nil {
			if owner, err = t.certificateOwner(domain.AccountID); err != nil {
				return err
			}
		}
		r := recordOf(host, &d)
		if err := fn(r, owner); err != nil {
			if !errors.Is(err, certificate.ErrForget) {
				return err
			}
			if forget = true; !found {
				return nil
			}
			return t.ft.Delete(s.certificateRef(host))
		}
		if domain != nil {
			// Most changes, such as the extension of a lease, do not show and leave the domain alone.
			if shown := certificate.Shown(r, s.now()); shown != domain.Certificate {
				domain.Certificate = shown
				if err := (domainTx{t}).PutDomain(domain); err != nil {
					return err
				}
			}
		}
		return t.ft.Set(s.certificateRef(host), certificateDocOf(r))
	})
	if err == nil && forget {
		return certificate.ErrForget
	}
	return err
}

func (t *tx) certificateOwner(accountID string) (certificate.Owner, error) {
	snaps, err := t.read(Standings(t.s.db).Ref(accountID))
	if err != nil {
		return certificate.Owner{}, err
	}
	standing, err := keeper.Of(snaps[0])
	return certificate.Owner{Account: accountID, Suspended: !standing.State.Serves()}, err
}

// handOver gives a host's record to account, "" for none, and returns what is kept of
// it. Without having read the owner, in the same transaction, it keeps nothing.
func (t *tx) handOver(host, account string) (kept *certificate.Record, err error) {
	if d := t.certs[host]; d != nil {
		if r := recordOf(host, d); r.HandOver(account, t.s.now()) {
			return r, t.ft.Set(t.s.certificateRef(host), certificateDocOf(r))
		}
	}
	return &certificate.Record{Host: host}, t.ft.Delete(t.s.certificateRef(host))
}

// DueCertificates implements [certificate.Store].
func (s Certificates) DueCertificates(ctx context.Context, bucket int, at time.Time, limit int) ([]string, error) {
	return s.db.IDs(ctx, "list due certificates", s.db.Collection("certificates").
		Where("due.bucket", "==", bucket).Where("due.at", "<=", at).OrderBy("due.at", firestore.Asc).Limit(limit))
}

// PutOffCertificate implements [certificate.Store].
func (s Certificates) PutOffCertificate(ctx context.Context, host string, at time.Time) error {
	return s.db.Do(ctx, "put off certificate", func(ctx context.Context) error {
		_, err := s.certificateRef(host).Update(ctx, []firestore.Update{{Path: "due.at", Value: at}})
		if errors.Is(err, firestoredb.ErrNotFound) {
			return nil
		}
		return err
	})
}

// SealedBy implements [certificate.Store].
func (s Certificates) SealedBy(ctx context.Context, keyIDs []string, after string, limit int) ([]string, error) {
	return s.sealedBy(ctx, "list certificates of older keys", "certificates", keyIDs, after, limit)
}

func (s Certificates) sealedBy(ctx context.Context, what, collection string, keyIDs []string, after string, limit int) ([]string, error) {
	keyIDs = keyIDs[:min(len(keyIDs), 30)] // what Firestore takes
	q := s.db.Collection(collection).Where("keyId", "in", keyIDs).OrderBy(firestore.DocumentID, firestore.Asc).Limit(limit)
	if after != "" {
		q = q.StartAfter(after)
	}
	return s.db.IDs(ctx, what, q)
}

// File implements [certificate.Files].
func (s Certificates) File(ctx context.Context, name string) (certificate.File, bool, error) {
	var d acmeFileDoc
	found, err := s.get(ctx, "read ACME file", s.fileRef(name), &d)
	return fileOf(&d), found, err
}

func fileOf(d *acmeFileDoc) certificate.File {
	return certificate.File{Name: d.Name, Value: d.Value, Modified: d.Modified, ExpireAt: timeOrZero(d.ExpireAt)}
}

// mostFiles bounds a listing: an account is two files, and challenges are few.
const mostFiles = 500

// Files implements [certificate.Files].
func (s Certificates) Files(ctx context.Context, prefix string) ([]string, error) {
	files, err := s.fileQuery(ctx, s.db.Collection("acmeFiles").Where("name", ">=", prefix).Where("name", "<", prefix+"\uffff").Limit(mostFiles))
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	return names, err
}

// FilesSealedBy implements [certificate.Files].
func (s Certificates) FilesSealedBy(ctx context.Context, keyIDs []string, after string, limit int) ([]string, error) {
	return s.sealedBy(ctx, "list ACME files of older keys", "acmeFiles", keyIDs, after, limit)
}

// ChangeFile implements [certificate.Files].
func (s Certificates) ChangeFile(ctx context.Context, id string, fn func(f *certificate.File) error) error {
	ref := s.db.Collection("acmeFiles").Doc(id)
	return s.db.Tx(ctx, "change ACME file", func(_ context.Context, ft *firestore.Transaction) error {
		var d acmeFileDoc
		if found, err := (&tx{s: s.Store, ft: ft}).load(ref, &d); err != nil || !found {
			return err
		}
		f := fileOf(&d)
		if err := fn(&f); err != nil {
			return err
		}
		return ft.Set(ref, fileDocOf(f))
	})
}

func fileDocOf(f certificate.File) *acmeFileDoc {
	return &acmeFileDoc{Name: f.Name, Value: f.Value, KeyID: seal.IDOf(f.Value), Modified: f.Modified, ExpireAt: timeOrNil(f.ExpireAt)}
}

func (s Certificates) fileQuery(ctx context.Context, q firestore.Query) ([]certificate.File, error) {
	var out []certificate.File
	err := s.db.Do(ctx, "list ACME files", func(ctx context.Context) error {
		snaps, err := q.Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		out = make([]certificate.File, 0, len(snaps))
		for _, snap := range snaps {
			var d acmeFileDoc
			if err := snap.DataTo(&d); err != nil {
				return err
			}
			out = append(out, fileOf(&d))
		}
		return nil
	})
	return out, err
}

// PutFile implements [certificate.Files].
func (s Certificates) PutFile(ctx context.Context, f certificate.File, locks ...certificate.Lock) error {
	return s.db.Tx(ctx, "write ACME file", func(_ context.Context, ft *firestore.Transaction) error {
		t := &tx{s: s.Store, ft: ft}
		for _, l := range locks {
			var d acmeLockDoc
			if _, err := t.load(s.lockRef(l.Name), &d); err != nil {
				return err
			}
			if d.Holder != l.Holder || d.Token != l.Token {
				return certificate.ErrOvertaken
			}
		}
		return ft.Set(s.fileRef(f.Name), fileDocOf(f))
	})
}

// DeleteFiles implements [certificate.Files].
func (s Certificates) DeleteFiles(ctx context.Context, name string) error {
	names, err := s.Files(ctx, name+"/")
	if err != nil {
		return err
	}
	refs := []*firestore.DocumentRef{s.fileRef(name)}
	for _, n := range names {
		refs = append(refs, s.fileRef(n))
	}
	return s.db.DeleteAll(ctx, "delete ACME files", refs...)
}

// TakeLock implements [certificate.Files].
func (s Certificates) TakeLock(ctx context.Context, l certificate.Lock, now time.Time) (token int64, taken bool, err error) {
	err = s.db.Tx(ctx, "take ACME lock", func(_ context.Context, ft *firestore.Transaction) error {
		token, taken = 0, false
		t := &tx{s: s.Store, ft: ft}
		var d acmeLockDoc
		if _, err := t.load(s.lockRef(l.Name), &d); err != nil {
			return err
		}
		mine := d.Holder == l.Holder && d.Token == l.Token
		// Who names a token had the lock before, and has lost it for good even if it is free now.
		if !mine && (l.Token != 0 || d.Holder != "" && now.Before(d.Until)) {
			return nil
		}
		if !mine {
			d.Token++
		}
		token, taken = d.Token, true
		return ft.Set(s.lockRef(l.Name), &acmeLockDoc{Name: l.Name, Holder: l.Holder, Token: d.Token, Until: l.Until})
	})
	return token, taken, err
}

// DropLock implements [certificate.Files]. The document stays, since the next
// token has to be higher.
func (s Certificates) DropLock(ctx context.Context, l certificate.Lock) error {
	return s.db.Tx(ctx, "drop ACME lock", func(_ context.Context, ft *firestore.Transaction) error {
		t := &tx{s: s.Store, ft: ft}
		var d acmeLockDoc
		if _, err := t.load(s.lockRef(l.Name), &d); err != nil {
			return err
		}
		if d.Holder != l.Holder || d.Token != l.Token {
			return nil
		}
		d.Holder = ""
		return ft.Set(s.lockRef(l.Name), &d)
	})
}
