package idempotency

import (
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

// Collection holds the records of all services.
const Collection = "idempotency"

// OwnerField holds [Owner] of a record's account, by which the erasure of an account
// finds its records.
const OwnerField = "owner"

// Owner names an account in its records by hash: whoever reads the collection
// alone does not learn whose request a record is of.
func Owner(accountID string) string {
	sum := sha256.Sum256([]byte("linkreel idempotency owner\x00" + accountID))
	return hex.EncodeToString(sum[:])
}

const (
	// keep is how long an answer is replayed.
	keep = 24 * time.Hour
	// turn is how long a try has the record for itself. It is short, so that a
	// retry after a crash does not wait long; running twice does no harm.
	turn = 3 * time.Second
	// maxSealed is below Firestore's 1 MiB for a document, with room for the rest.
	maxSealed = 1<<20 - 8<<10
)

// Indexes are the exemptions and the TTL field of the collection, in the form the
// Firebase tools deploy.
//
//go:embed firestore.indexes.json
var Indexes []byte

// document is a record at rest. It holds neither the Idempotency-Key nor, in the
// clear, the answer.
type document struct {
	Owner string `firestore:"owner,omitempty"` // absent in records of earlier releases, which expire in a day
	// BodyHash is the plain SHA-256 of the body, in records from before BodyMAC.
	BodyHash string `firestore:"bodyHash,omitempty"`
	// BodyMAC is a keyed hash. A body may hold a password, and a plain hash can be
	// tried against a dictionary by whoever reads the database.
	BodyMAC  string    `firestore:"bodyMac"`
	Nonce    string    `firestore:"nonce"`
	At       time.Time `firestore:"at"`
	Until    time.Time `firestore:"until"` // end of the present try's turn
	Done     bool      `firestore:"done"`
	Bound    bool      `firestore:"bound"` // sealed with the caller's API key too
	Sealed   []byte    `firestore:"sealed"`
	ExpireAt time.Time `firestore:"expireAt"` // TTL policy
}

// Firestore is the [Store] in use.
type Firestore struct {
	db     *firestoredb.DB
	macKey []byte
	now    func() time.Time
}

// NewFirestore makes a store on db. secret is known to all replicas and not in the
// database; after it has changed, a request that is repeated across the change is
// refused as IDEMPOTENCY_KEY_REUSED. A nil now is the system's clock.
func NewFirestore(db *firestoredb.DB, secret string, now func() time.Time) *Firestore {
	if now == nil {
		now = time.Now
	}
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "linkreel idempotency body 1", sha256.Size)
	if err != nil {
		panic(err) // 32 bytes are within HKDF's bounds
	}
	return &Firestore{db: db, macKey: key, now: now}
}

// mac is the keyed hash of r's body. The account is part of it, so that equal
// bodies of two accounts do not show as equal.
func (s *Firestore) mac(r BeginRequest) string {
	h := hmac.New(sha256.New, s.macKey)
	fmt.Fprintf(h, "%d:%s", len(r.Account), r.Account)
	h.Write(r.Body)
	return hex.EncodeToString(h.Sum(nil))
}

// sameBody compares in the way that the record was made.
func (s *Firestore) sameBody(d document, r BeginRequest) bool {
	if d.BodyMAC != "" {
		return hmac.Equal([]byte(d.BodyMAC), []byte(s.mac(r)))
	}
	sum := sha256.Sum256(r.Body)
	return d.BodyHash == hex.EncodeToString(sum[:])
}

// Known costs one read.
func (s *Firestore) Known(ctx context.Context, r BeginRequest) (bool, error) {
	found, _, err := s.get(ctx, documentID(r))
	if errors.Is(err, firestoredb.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return s.now().Before(found.ExpireAt) && s.sameBody(found, r), nil
}

// Begin costs one write for a new key and one read more for a known one.
func (s *Firestore) Begin(ctx context.Context, r BeginRequest) (Record, error) {
	id := documentID(r)
	seals, err := newSeals(r, id)
	if err != nil {
		return Record{}, err
	}
	rec := Record{id: id, seals: seals}
	fresh := s.opened(r)
	// A record can expire, be taken over or be removed between the read and the
	// write; each is another round, and a third party would have to win them all.
	for range 4 {
		rec.written, err = s.create(ctx, id, fresh)
		if err == nil {
			rec.Nonce, rec.At = fresh.Nonce, fresh.At
			return rec, nil
		}
		if !errors.Is(err, firestoredb.ErrExists) {
			return Record{}, err
		}
		found, written, err := s.get(ctx, id)
		if errors.Is(err, firestoredb.ErrNotFound) {
			continue
		}
		if err != nil {
			return Record{}, err
		}
		next := found
		switch now := s.now(); {
		case found.Nonce == fresh.Nonce:
			// Our own write, which the client repeated because its answer was lost.
			rec.Nonce, rec.At, rec.written = found.Nonce, found.At, written
			return rec, nil
		case !now.Before(found.ExpireAt):
			next = fresh // the TTL policy deletes late
		case !s.sameBody(found, r):
			return Record{}, apierr.New(apierr.IdempotencyKeyReused, "This Idempotency-Key was used with another body.")
		case found.Done:
			return s.replay(rec, found)
		case now.Before(found.Until):
			return Record{}, inProgress()
		default:
			next.Until = now.Add(turn)
		}
		rec.written, err = s.replace(ctx, id, next, written)
		if err == nil {
			rec.Nonce, rec.At = next.Nonce, next.At
			return rec, nil
		}
		if !errors.Is(err, firestoredb.ErrStale) && !errors.Is(err, firestoredb.ErrNotFound) {
			return Record{}, err
		}
	}
	return Record{}, inProgress()
}

func inProgress() error {
	return &apierr.Error{Code: apierr.IdempotencyInProgress, Message: "A request with this Idempotency-Key is still running.", RetryAfter: time.Second}
}

func (s *Firestore) opened(r BeginRequest) document {
	now := s.now().Truncate(time.Microsecond) // Firestore's precision, so that a later try reads the same time
	return document{
		Owner: Owner(r.Account), BodyMAC: s.mac(r), Nonce: identity.NewNonce(), At: now, Until: now.Add(turn), ExpireAt: now.Add(keep),
	}
}

func (s *Firestore) replay(rec Record, found document) (Record, error) {
	answer, err := rec.seals.open(rec.id, found.Sealed, found.Bound)
	if errors.Is(err, errOtherSecret) {
		return Record{}, apierr.Wrap(apierr.IdempotencyKeyReused, "This Idempotency-Key was used with another API key, which alone may see the answer again.", err)
	}
	if err != nil {
		return Record{}, fmt.Errorf("replay answer: %w", err)
	}
	rec.Nonce, rec.At, rec.Replay = found.Nonce, found.At, answer
	return rec, nil
}

// Finish keeps the answer unless another try has taken over; that one's answer
// is the same. An answer too large for a document is not kept: it is made again
// from the same nonce.
func (s *Firestore) Finish(ctx context.Context, rec Record, answer Response) error {
	text, bound, err := rec.seals.close(rec.id, answer)
	if err != nil {
		return err
	}
	if len(text) > maxSealed {
		return s.Abandon(ctx, rec)
	}
	return s.amend(ctx, "keep answer", rec, []firestore.Update{
		{Path: "done", Value: true}, {Path: "bound", Value: bound}, {Path: "sealed", Value: text},
	})
}

// Abandon ends the try's turn.
func (s *Firestore) Abandon(ctx context.Context, rec Record) error {
	return s.amend(ctx, "abandon try", rec, []firestore.Update{{Path: "until", Value: time.Unix(0, 0).UTC()}})
}

func (s *Firestore) amend(ctx context.Context, what string, rec Record, updates []firestore.Update) error {
	err := s.db.Do(ctx, what, func(ctx context.Context) error {
		_, err := s.db.Collection(Collection).Doc(rec.id).Update(ctx, updates, firestore.LastUpdateTime(rec.written))
		return err
	})
	if errors.Is(err, firestoredb.ErrStale) || errors.Is(err, firestoredb.ErrNotFound) {
		return nil // another try took over, or the client repeated a write that had arrived
	}
	return err
}

func (s *Firestore) create(ctx context.Context, id string, d document) (written time.Time, err error) {
	err = s.db.Do(ctx, "open idempotency record", func(ctx context.Context) error {
		res, err := s.db.Collection(Collection).Doc(id).Create(ctx, d)
		if err != nil {
			return err
		}
		written = res.UpdateTime
		return nil
	})
	return written, err
}

func (s *Firestore) get(ctx context.Context, id string) (d document, written time.Time, err error) {
	err = s.db.Do(ctx, "get idempotency record", func(ctx context.Context) error {
		snap, err := s.db.Collection(Collection).Doc(id).Get(ctx)
		if err != nil {
			return err
		}
		written = snap.UpdateTime
		return snap.DataTo(&d)
	})
	return d, written, err
}

// replace writes d if the document is still as it was read.
func (s *Firestore) replace(ctx context.Context, id string, d document, as time.Time) (written time.Time, err error) {
	err = s.db.Do(ctx, "take over idempotency record", func(ctx context.Context) error {
		res, err := s.db.Collection(Collection).Doc(id).Update(ctx, []firestore.Update{
			{Path: OwnerField, Value: d.Owner}, {Path: "bodyHash", Value: d.BodyHash}, {Path: "bodyMac", Value: d.BodyMAC}, {Path: "nonce", Value: d.Nonce}, {Path: "at", Value: d.At},
			{Path: "until", Value: d.Until}, {Path: "done", Value: d.Done}, {Path: "bound", Value: d.Bound},
			{Path: "sealed", Value: d.Sealed}, {Path: "expireAt", Value: d.ExpireAt},
		}, firestore.LastUpdateTime(as))
		if err != nil {
			return err
		}
		written = res.UpdateTime
		return nil
	})
	return written, err
}
