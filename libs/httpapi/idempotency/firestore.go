package idempotency

import (
	"cmp"
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
)

// Collection holds all services' records.
const Collection = "idempotency"

// OwnerField is the field that holds the [Owner] hash of a record's account. Account erasure uses
// this field to find the account's records.
const OwnerField = "owner"

// Owner returns the hash that identifies an account in its records. Because it is a hash, the
// collection alone does not reveal which account made a request.
func Owner(accountID string) string {
	sum := sha256.Sum256([]byte("linkreel idempotency owner\x00" + accountID))
	return hex.EncodeToString(sum[:])
}

const (
	// keep is how long a response is replayed.
	keep = 24 * time.Hour
	// turn is how long an attempt has exclusive use of the record. It is short, so a retry after a
	// crash need not wait long. If a slow attempt loses its turn, the request runs twice, which is
	// harmless.
	turn = 3 * time.Second
	// maxSealed bounds the size of a sealed response, so the whole document stays under Firestore's
	// limit of 1 MiB.
	maxSealed = 1<<20 - 8<<10
)

func (d *document) origin() identity.Origin { return identity.Origin{Nonce: d.Nonce, At: d.At} }

// errExpired means that a record exists but has expired.
var errExpired = fmt.Errorf("%w: it has expired", firestoredb.ErrNotFound)

// Indexes lists the exemptions and the TTL field for the collection, in the format that the
// Firebase tools deploy.
//
//go:embed firestore.indexes.json
var Indexes []byte

// document is a record as stored. It does not contain the Idempotency-Key, and it contains the
// response only in encrypted form.
type document struct {
	Owner string `firestore:"owner"`
	// BodyMAC is a keyed hash of the body. A body may contain a password, and with a plain hash
	// anyone who can read the database could guess it from a dictionary.
	BodyMAC  string    `firestore:"bodyMac"`
	Nonce    string    `firestore:"nonce"`
	At       time.Time `firestore:"at"`
	Until    time.Time `firestore:"until"` // when the current attempt's turn ends
	Done     bool      `firestore:"done"`
	Bound    bool      `firestore:"bound"` // also sealed with the caller's API key
	Sealed   []byte    `firestore:"sealed"`
	ExpireAt time.Time `firestore:"expireAt"` // TTL policy
}

// Firestore is a store that keeps records for 24 hours. Records for different accounts or routes
// are separate.
type Firestore struct {
	db     *firestoredb.DB
	macKey []byte
	now    func() time.Time
}

// NewFirestore returns a store backed by db. secret is the same on all replicas and is not stored
// in the database. If it changes between a request and its retry, the retry fails with
// IDEMPOTENCY_KEY_REUSED. If now is nil, the store uses the system clock.
func NewFirestore(db *firestoredb.DB, secret string, now func() time.Time) *Firestore {
	if now == nil {
		now = time.Now
	}
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "linkreel idempotency body 1", sha256.Size)
	if err != nil {
		panic(err) // cannot fail, because 32 bytes are within HKDF's limit
	}
	return &Firestore{db: db, macKey: key, now: now}
}

// mac returns the keyed hash of r's body. The hash includes the account, so identical bodies from
// two accounts have different hashes.
func (s *Firestore) mac(r Request) string {
	h := hmac.New(sha256.New, s.macKey)
	fmt.Fprintf(h, "%d:%s", len(r.Account), r.Account)
	h.Write(r.Body)
	return hex.EncodeToString(h.Sum(nil))
}

// Known reports whether there is a record for a request with the same key and body. It costs one
// read.
func (s *Firestore) Known(ctx context.Context, r Request) (bool, error) {
	found, _, err := s.find(ctx, r)
	if errors.Is(err, firestoredb.ErrNotFound) {
		return false, nil
	}
	return err == nil && s.sameBody(found, r) == nil, err
}

func (s *Firestore) sameBody(d *document, r Request) error {
	if hmac.Equal([]byte(d.BodyMAC), []byte(s.mac(r))) {
		return nil
	}
	return apierr.New(apierr.IdempotencyKeyReused, "This Idempotency-Key was already used with another body. Use a new key for a new request.")
}

// Begin opens the record for a request, or finds it. If the request has finished, Replay is set.
// The errors are IDEMPOTENCY_IN_PROGRESS (the first attempt is still running) and
// IDEMPOTENCY_KEY_REUSED (the key was used with a different body). If the first attempt died, the
// next attempt takes over its record, with the same Nonce and At. A new key costs one write. A
// known key also costs a read.
func (s *Firestore) Begin(ctx context.Context, r Request) (Record, error) {
	fresh := s.opened(r)
	// A record can expire, be taken over or be removed between the read and the write. In each
	// case, the loop tries again. All four tries fail only if another request wins each time.
	for range 4 {
		written, err := s.create(ctx, r, fresh)
		if err == nil {
			return Record{Origin: fresh.origin(), r: r, written: written}, nil
		}
		if !errors.Is(err, firestoredb.ErrExists) {
			return Record{}, err
		}
		found, written, err := s.find(ctx, r)
		if errors.Is(err, firestoredb.ErrNotFound) {
			continue
		}
		if err != nil {
			return Record{}, err
		}
		rec := Record{Origin: found.origin(), r: r, written: written}
		if found.Nonce == fresh.Nonce {
			return rec, nil // this attempt's own write, repeated after a lost response
		}
		if err := s.sameBody(found, r); err != nil {
			return Record{}, err
		}
		if found.Done {
			rec.Replay, err = found.replay(r)
			return rec, err
		}
		now := s.now()
		if now.Before(found.Until) {
			return Record{}, inProgress()
		}
		rec.written, err = s.update(ctx, "take over idempotency record", rec, firestore.Update{Path: "until", Value: now.Add(turn)})
		if err == nil || firestoredb.IgnoreMoved(err) != nil {
			return rec, err
		}
	}
	return Record{}, inProgress()
}

func inProgress() error {
	return &apierr.Error{
		Code: apierr.IdempotencyInProgress, Message: "A request with this Idempotency-Key is still running.", RetryAfter: time.Second,
	}
}

func (s *Firestore) opened(r Request) *document {
	now := s.now().Truncate(time.Microsecond) // Firestore's precision, so a later attempt reads the same time
	return &document{
		Owner: Owner(r.Account), BodyMAC: s.mac(r), Nonce: identity.NewNonce(), At: now, Until: now.Add(turn), ExpireAt: now.Add(keep),
	}
}

// Finish stores the response unless another attempt has taken over, in which case that attempt
// creates the same response. A response that is too large for a document is not stored: a retry
// creates it again from the same nonce.
func (s *Firestore) Finish(ctx context.Context, rec Record, answer *Response) error {
	var d document
	if err := d.close(rec.r, answer); err != nil {
		return err
	}
	if len(d.Sealed) > maxSealed {
		return s.Abandon(ctx, rec)
	}
	_, err := s.update(ctx, "store response", rec, firestore.Update{Path: "done", Value: true},
		firestore.Update{Path: "bound", Value: d.Bound}, firestore.Update{Path: "sealed", Value: d.Sealed})
	return firestoredb.IgnoreMoved(err) // another attempt took over, or a successful write was repeated
}

// Abandon ends the attempt's turn, so the next attempt can run immediately, with the same Nonce and
// At.
func (s *Firestore) Abandon(ctx context.Context, rec Record) error {
	_, err := s.update(ctx, "abandon attempt", rec, firestore.Update{Path: "until", Value: time.Unix(0, 0).UTC()})
	return firestoredb.IgnoreMoved(err)
}

// update changes a record, unless the record has changed since this attempt wrote it.
func (s *Firestore) update(ctx context.Context, what string, rec Record, updates ...firestore.Update) (time.Time, error) {
	return s.write(ctx, what, func(ctx context.Context) (*firestore.WriteResult, error) {
		return s.ref(rec.r).Update(ctx, updates, firestore.LastUpdateTime(rec.written))
	})
}

func (s *Firestore) create(ctx context.Context, r Request, d *document) (time.Time, error) {
	return s.write(ctx, "open idempotency record", func(ctx context.Context) (*firestore.WriteResult, error) {
		return s.ref(r).Create(ctx, d)
	})
}

type write func(ctx context.Context) (*firestore.WriteResult, error)

func (s *Firestore) write(ctx context.Context, what string, do write) (at time.Time, err error) {
	err = s.db.Do(ctx, what, func(ctx context.Context) error {
		res, err := do(ctx)
		if err == nil {
			at = res.UpdateTime
		}
		return err
	})
	return at, err
}

// find reads the record for a request. If the record has expired, find deletes it and returns
// errExpired: the TTL policy may take a day to delete expired records.
func (s *Firestore) find(ctx context.Context, r Request) (d *document, written time.Time, err error) {
	read := firestoredb.Reader(func(snap firestoredb.Snap, d *document) *document {
		written = snap.UpdateTime
		return d
	})
	d, err = firestoredb.Get(ctx, s.db, "get idempotency record", s.ref(r), read)
	if err != nil || s.now().Before(d.ExpireAt) {
		return d, written, err
	}
	_, err = s.write(ctx, "remove idempotency record", func(ctx context.Context) (*firestore.WriteResult, error) {
		return s.ref(r).Delete(ctx, firestore.LastUpdateTime(written))
	})
	return nil, written, cmp.Or(firestoredb.IgnoreMoved(err), errExpired)
}

func (s *Firestore) ref(r Request) *firestore.DocumentRef {
	return s.db.Collection(Collection).Doc(r.id())
}
