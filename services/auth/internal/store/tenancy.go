package store

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/quota"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/trail"
	"github.com/linkreel/linkreel/libs/waiting"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/tenancy"
)

const (
	tombstones = "tombstones"
	// scan limits how many accounts one list request reads, and scanPage how many one query
	// reads.
	scan, scanPage = 2000, 200
)

var takedowns = kind[tenancy.Takedown]{"operatorTakedowns", firestoredb.Reader(toTakedown), tenancy.ErrNoTakedown, nil}

// Accounts lists accounts by id. Only operators search, so a text index is not worth it: a search
// reads the accounts in order and compares each one.
func (s *Store) Accounts(
	ctx context.Context,
	after string,
	limit int,
	match func(account.Account) bool,
) (page []account.Account, next string, err error) {
	for read := 0; read < scan; read += scanPage {
		found, err := behind(s.look(ctx), accounts, s.db.Collection(accounts.collection).Query, after, scanPage)
		if err != nil {
			return nil, "", err
		}
		for _, a := range found {
			if match(a) {
				if len(page) == limit {
					return page, after, nil // there are more accounts
				}
				page = append(page, a)
			}
			// Advance past every account that was read, even if it does not match. The next page
			// starts there.
			after = a.ID
		}
		if len(found) < scanPage {
			return page, "", nil
		}
	}
	return page, after, nil
}

// behind lists the results of a query by id, starting after the id after. If after is empty, it
// starts with the first result.
func behind[T any](r reads, k kind[T], q firestore.Query, after string, limit int) ([]T, error) {
	return many(r, k, byID(q, after, limit))
}

func byID(q firestore.Query, after string, limit int) firestore.Query {
	if q = q.OrderBy(firestore.DocumentID, firestore.Asc).Limit(limit); after != "" {
		q = q.StartAfter(after)
	}
	return q
}

// sifted is like [behind], but returns unreadable records in broken, so they do not hide those
// after them. next is "" at the end.
func sifted[T any](r reads, k kind[T], q firestore.Query, after string, limit int) (page []T, next string, broken []firestoredb.Broken, err error) {
	snaps, err := r.s.db.Query(r.ctx, "list "+k.collection, byID(q, after, limit))
	if len(snaps) == limit {
		next = snaps[limit-1].Ref.ID
	}
	page, broken = firestoredb.Sift(snaps, k.read)
	return page, next, broken, err
}

// pendingBehind is like [sifted], but lists only pending records. It returns the errors for
// unreadable records.
func pendingBehind[T any](r reads, k kind[T], after string, limit int) (page []T, next string, err error) {
	page, next, broken, err := sifted(r, k, r.s.where(k.collection, "pending", true), after, limit)
	for _, b := range broken {
		err = errors.Join(err, b.Err)
	}
	return page, next, err
}

// Pending lists, by id, the accounts with a decision that has not yet taken effect at every
// holder.
func (s *Store) Pending(ctx context.Context, after string, limit int) (page []account.Account, next string, err error) {
	return pendingBehind(s.look(ctx), accounts, after, limit)
}

// erasingPage limits how many erasures are read to determine the age of the oldest.
const erasingPage = 1000

// Erasing returns the backlog of accounts that are being erased.
func (s *Store) Erasing() waiting.Look {
	q := s.where(accounts.collection, "pending", true).Where("deleting", "==", true)
	oldest := func(ctx context.Context) (since time.Time, err error) {
		snaps, err := s.db.Query(ctx, "list erasures", q.Limit(erasingPage).Select("version"))
		for _, snap := range snaps {
			// The last change to an account is the start of its erasure.
			if since.IsZero() || snap.UpdateTime.Before(since) {
				since = snap.UpdateTime
			}
		}
		return since, err
	}
	return waiting.Look{
		Work:  waiting.Work{Of: "erasures", For: "services"},
		Depth: waiting.First(oldest, waiting.Count(s.db.DB, "erasures", func() []firestore.Query { return []firestore.Query{q} })),
	}
}

// traces returns the documents that no other service erases. They include the outbox, which all
// services share. Members are erased after the other documents about people because people are
// found through their memberships.
func traces(db *record.DB) *record.Set {
	return db.Set(
		record.Traces{DB: db, Collection: sessions.collection}, record.Traces{DB: db, Collection: links.collection},
		record.Traces{DB: db, Collection: devices.collection}, record.Traces{DB: db, Collection: members.collection},
		record.Traces{DB: db, Collection: keys.collection}, record.Traces{DB: db, Collection: takedowns.collection},
		record.Traces{DB: db, Collection: outbox.Collection},
		record.Traces{DB: db, Collection: quota.Collection},
	)
}

// Erase removes all of auth's records about an account except a tombstone. After a crash, the
// account is still marked as deleting, and the erasure starts again. Erase also notifies the
// replicas, so that they look up cached keys again.
func (s *Store) Erase(ctx context.Context, id string, at time.Time) error {
	if err := s.forgetPeople(ctx, id); err != nil {
		return err
	}
	for more := true; more; {
		var err error
		if more, err = s.traces.Erase(ctx, id, purgeBatch); err != nil {
			return err
		}
	}
	answers := s.where(idempotency.Collection, idempotency.OwnerField, idempotency.Owner(id))
	if err := s.db.EraseAll(ctx, "erase idempotency records", answers, purgeBatch); err != nil {
		return err
	}
	// Do this last and in one commit, so that an erased account always has either its document
	// or a tombstone.
	return s.db.Tx(ctx, "erase account", func(tx *record.Tx) error {
		a, err := reads{s: s, tx: tx}.Account(id)
		if errors.Is(err, account.ErrNoAccount) {
			return nil // another replica has already finished
		}
		if err != nil {
			return err
		}
		tx.Set(s.db.Ref(tombstones, id), map[string]any{"erasedAt": at})
		tx.Delete(s.db.Ref(accounts.collection, id))
		tx.Authority(id, a.Version+1)
		return nil
	})
}

// purgeBatch is how many documents one pass deletes. A commit is limited to 500 writes.
const purgeBatch = 400

// forgetPeople erases the passkeys and identities of an account's people: its members, and removed
// members who were signed in recently. It skips people who also belong to another account.
func (s *Store) forgetPeople(ctx context.Context, accountID string) error {
	mine, err := s.look(ctx).Members(accountID)
	if err != nil {
		return err
	}
	signedIn, err := many(s.look(ctx), sessions, s.where(sessions.collection, "accountId", accountID))
	if err != nil {
		return err
	}
	var people []string
	for _, m := range mine {
		people = append(people, m.PersonID)
	}
	for _, x := range signedIn {
		people = append(people, x.PersonID)
	}
	slices.Sort(people)
	for _, person := range slices.Compact(people) {
		if err := s.forgetPerson(ctx, accountID, person); err != nil {
			return err
		}
	}
	return nil
}

// forgetPerson erases a person's ways to sign in, unless the person belongs to another account.
// An account that is itself being erased does not count. Otherwise, two concurrent erasures
// would each leave the person to the other.
func (s *Store) forgetPerson(ctx context.Context, accountID, personID string) error {
	in, err := s.look(ctx).Memberships(personID)
	if err != nil || personID == "" {
		return err
	}
	for _, x := range in {
		if x.AccountID == accountID {
			continue
		}
		other, err := s.Account(ctx, x.AccountID)
		if err != nil && !errors.Is(err, account.ErrNoAccount) {
			return err
		}
		if err == nil && !other.Deleting {
			return nil
		}
	}
	for _, collection := range []string{identities.collection, passkeys.collection} { // far fewer than a batch
		if _, err := s.db.ErasePage(ctx, "forget a person", s.where(collection, "personId", personID), purgeBatch); err != nil {
			return err
		}
	}
	return nil
}

type takedownDoc struct {
	Kind       string    `firestore:"kind"`
	RecordID   string    `firestore:"recordId"`
	AccountID  string    `firestore:"accountId"`
	URL        string    `firestore:"url"`
	Reason     string    `firestore:"reason"`
	At         time.Time `firestore:"at"`
	TargetURL  string    `firestore:"targetUrl"`
	TargetID   string    `firestore:"targetId"`
	TargetKind string    `firestore:"targetKind"`
	Phase      string    `firestore:"phase"`
	Pending    bool      `firestore:"pending"`
}

func toTakedown(snap firestoredb.Snap, d *takedownDoc) tenancy.Takedown {
	return tenancy.Takedown{
		Takedown: tenant.Takedown{
			ID: snap.Ref.ID, Kind: d.Kind, RecordID: d.RecordID, AccountID: d.AccountID, URL: d.URL, Reason: d.Reason, At: d.At,
		},
		Target: tenant.Target{URL: d.TargetURL, ID: d.TargetID}, Kind: d.TargetKind, Phase: tenancy.Phase(d.Phase),
	}
}

// Takedown looks up a takedown.
func (s *Store) Takedown(ctx context.Context, id string) (tenancy.Takedown, error) {
	return one(s.look(ctx), takedowns, id)
}

// Takedowns lists takedowns, newest first. The cursor is the id of the last takedown.
func (s *Store) Takedowns(ctx context.Context, after string, limit int) (page []tenancy.Takedown, next string, err error) {
	q := s.db.Collection(takedowns.collection).OrderBy("at", firestore.Desc).Limit(limit + 1)
	if after != "" {
		snap, found, err := firestoredb.Lookup(ctx, s.db.DB, "read cursor", s.db.Ref(takedowns.collection, after),
			func(snap firestoredb.Snap) (firestoredb.Snap, error) { return snap, nil })
		if err != nil {
			return nil, "", err
		}
		if !found {
			return nil, "", tenancy.ErrNoTakedown
		}
		q = q.StartAfter(snap)
	}
	page, err = many(s.look(ctx), takedowns, q)
	if len(page) > limit {
		page = page[:limit]
		next = page[limit-1].ID
	}
	return page, next, err
}

// UnsettledTakedowns lists, by id, the takedowns with a change that the holder may not have
// applied.
func (s *Store) UnsettledTakedowns(ctx context.Context, after string, limit int) (page []tenancy.Takedown, next string, err error) {
	return pendingBehind(s.look(ctx), takedowns, after, limit)
}

// TakedownsOf lists an account's takedowns by id, starting after the id after. next is "" at the
// end. If a takedown cannot be read, it returns as much as it can of the data needed to lift it.
func (s *Store) TakedownsOf(ctx context.Context, accountID, after string, limit int) (page []tenancy.Takedown, next string, err error) {
	page, next, broken, err := sifted(s.look(ctx), takedowns, s.where(takedowns.collection, "accountId", accountID), after, limit)
	for _, b := range broken {
		slog.ErrorContext(ctx, "cannot decode a takedown for an account that is being erased; lifting it based on its readable fields", "account", accountID, "error", b.Err)
		page = append(page, salvagedTakedown(b.Snap, accountID))
	}
	return page, next, err
}

// salvagedTakedown reads the fields of an unreadable takedown that identify its record.
func salvagedTakedown(snap firestoredb.Snap, accountID string) tenancy.Takedown {
	text := func(field string) string {
		v, _ := snap.DataAt(field)
		s, _ := v.(string)
		return s
	}
	return toTakedown(snap, &takedownDoc{
		Kind: text("kind"), RecordID: text("recordId"), AccountID: accountID, URL: text("url"),
		TargetURL: text("targetUrl"), TargetID: text("targetId"), TargetKind: text("targetKind"), Phase: string(tenancy.Lifting),
	})
}

// PutTakedown writes a takedown. It also writes the start or the end of a takedown to the
// trail.
func (s *Store) PutTakedown(ctx context.Context, t tenancy.Takedown) error {
	var change *record.Tx
	err := s.db.Commit(ctx, "put takedown", func(tx *record.Tx) error {
		change = tx
		tx.Set(s.db.Ref(takedowns.collection, t.ID), fromTakedown(t))
		return nil
	})
	if err != nil {
		return err
	}
	return s.addNote(ctx, t, change.At())
}

// OrderTakedown stores a takedown unless one with its id exists, and returns the stored one. A
// repeated order must not undo what has happened to the takedown since.
func (s *Store) OrderTakedown(ctx context.Context, t tenancy.Takedown) (stored tenancy.Takedown, err error) {
	err = s.db.Tx(ctx, "order takedown", func(tx *record.Tx) (err error) {
		stored, err = one(reads{s: s, tx: tx}, takedowns, t.ID)
		if errors.Is(err, tenancy.ErrNoTakedown) {
			stored, err = t, nil
			tx.Set(s.db.Ref(takedowns.collection, t.ID), fromTakedown(t))
		}
		return err
	})
	return stored, err
}

// LiftTakedown sets a takedown's phase to Lifting and writes that to the trail. It changes the
// stored takedown because a holder may confirm it at the same time. If it does not exist, the error
// is ErrNoTakedown.
func (s *Store) LiftTakedown(ctx context.Context, id string) (t tenancy.Takedown, err error) {
	var change *record.Tx
	err = s.db.Tx(ctx, "lift takedown", func(tx *record.Tx) (err error) {
		change = tx
		if t, err = one(reads{s: s, tx: tx}, takedowns, id); err != nil || t.Phase == tenancy.Lifting {
			return err
		}
		t.Phase = tenancy.Lifting
		tx.Set(s.db.Ref(takedowns.collection, id), fromTakedown(t))
		return nil
	})
	if err != nil {
		return t, err
	}
	return t, s.addNote(ctx, t, change.At())
}

// ConfirmTakedown writes a takedown that is in force. If the stored takedown is being lifted or
// no longer exists, it returns ErrNoTakedown instead.
func (s *Store) ConfirmTakedown(ctx context.Context, t tenancy.Takedown) error {
	var change *record.Tx
	err := s.db.Tx(ctx, "confirm takedown", func(tx *record.Tx) error {
		change = tx
		now, err := one(reads{s: s, tx: tx}, takedowns, t.ID)
		if err == nil && now.Phase == tenancy.Lifting {
			err = tenancy.ErrNoTakedown
		}
		if err != nil {
			return err
		}
		tx.Set(s.db.Ref(takedowns.collection, t.ID), fromTakedown(t))
		return nil
	})
	if err != nil {
		return err
	}
	return s.addNote(ctx, t, change.At())
}

func fromTakedown(t tenancy.Takedown) takedownDoc {
	return takedownDoc{
		Kind: t.Takedown.Kind, RecordID: t.RecordID, AccountID: t.AccountID, URL: t.URL, Reason: t.Reason, At: t.At,
		TargetURL: t.Target.URL, TargetID: t.Target.ID, TargetKind: t.Kind, Phase: string(t.Phase), Pending: t.Phase != tenancy.InForce,
	}
}

// NoteTakedown writes the start or the end of a takedown to the trail again. A call that finds an
// existing takedown needs this because the earlier call may have failed to write the note.
func (s *Store) NoteTakedown(ctx context.Context, id string) (t tenancy.Takedown, err error) {
	var change *record.Tx
	// Use a transaction because its time orders this note relative to those of concurrent changes.
	err = s.db.Tx(ctx, "note takedown", func(tx *record.Tx) (err error) {
		change = tx
		t, err = one(reads{s: s, tx: tx}, takedowns, id)
		return err
	})
	if err != nil {
		return t, err
	}
	return t, s.addNote(ctx, t, change.At())
}

func (s *Store) addNote(ctx context.Context, t tenancy.Takedown, at time.Time) error {
	switch t.Phase {
	case tenancy.InForce:
		return s.Trail.Add(ctx, trail.Note{
			Kind: trail.TakenDown, Account: t.AccountID, ID: t.ID, Record: t.RecordID, To: t.Takedown.Kind, At: at,
		})
	case tenancy.Lifting:
		return s.Trail.Add(ctx, trail.Note{Kind: trail.Lifted, Account: t.AccountID, ID: t.ID, At: at})
	}
	return nil
}

// DeleteTakedown deletes a takedown, if it exists.
func (s *Store) DeleteTakedown(ctx context.Context, id string) error {
	return s.db.Commit(ctx, "delete takedown", func(tx *record.Tx) error {
		tx.Delete(s.db.Ref(takedowns.collection, id))
		return nil
	})
}
