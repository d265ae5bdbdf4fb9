package account

import (
	"context"
	"errors"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
)

// Store remembers accounts and keys.
type Store interface {
	// Account finds an account; ErrNoAccount if there is none.
	Account(ctx context.Context, id string) (Account, error)
	// Key finds a key of an account by its public id; ErrNoKey if there is none. "" as
	// the account is any.
	Key(ctx context.Context, accountID, id string) (Key, error)
	// Keys lists an account's keys, newest first: all that are in use, and of
	// the others the newest.
	Keys(ctx context.Context, accountID string) ([]Key, error)
	// Usage counts an account's records in all services.
	Usage(ctx context.Context, accountID string) (Usage, error)
	// Atomically makes one change: what fn read still holds when it commits. fn may run
	// several times, and has no other effect than by tx. Once Atomically has returned,
	// every replica goes by the change.
	Atomically(ctx context.Context, what string, fn func(tx Tx) error) error
}

// Tx is one atomic change. Its writes come at the end, and no read sees one. Each write
// takes the event that it is, or [events.Quiet]; the event is in the same commit, and in
// the log.
type Tx interface {
	Account(id string) (Account, error)
	Key(accountID, id string) (Key, error)
	KeyByHash(hash string) (Key, error)
	// InUse lists the account's keys that are not revoked. It may retire expired
	// ones, which it leaves out.
	InUse(accountID string, now time.Time) ([]Key, error)
	// Room is for how many of n more records of a kind the account has room below most,
	// where count counts what it has. It is asked once in a change; see libs/quota.
	Room(kind, accountID string, most, n int, count func() (int, error)) (int, error)
	// Role is the role of a member of the account now; "" if there is no such
	// member.
	Role(accountID, memberID string) (identity.Role, error)

	AddAccount(a Account)
	// PutAccount writes an account that this change has read, under a higher version,
	// which it sets in a too.
	PutAccount(a *Account, what events.Type)
	// Add, Put and Remove write a record: a [Key], or one of package member. Of a key, and
	// of a session, Put writes only when it ends.
	Add(record any, what events.Type)
	Put(record any, what events.Type)
	Remove(record any, what events.Type)
	// Tell writes an event on an object without writing a record.
	Tell(what events.Type, object string, record any)

	// Authority says that a key or a member of the account may do less from now on: the
	// account's version rises, and every replica is told. A new key needs it not: it
	// takes nothing away from anybody.
	Authority(accountID string) error
	// Again tells every replica the version as it is. It is for a change that is in place
	// already: the try that made it may have died before it told them.
	Again(accountID string) error
}

// Service is what the APIs call.
type Service struct {
	store  Store
	settle func(context.Context, Account) error
	now    func() time.Time
}

// NewService makes a service. settle returns once every service that keeps records of
// an account goes by its state; nil: there is none. A nil now is the system's clock.
func NewService(store Store, settle func(context.Context, Account) error, now func() time.Time) *Service {
	if now == nil {
		now = time.Now
	}
	if settle == nil {
		settle = func(context.Context, Account) error { return nil }
	}
	return &Service{store: store, settle: settle, now: now}
}

// Create makes an account.
func (s *Service) Create(ctx context.Context, name string, plan identity.Plan) (Account, error) {
	a := Account{ID: identity.NewID("acc"), Name: name, Plan: plan, CreatedAt: s.now(), Version: 1}
	return a, s.store.Atomically(ctx, "create account", func(tx Tx) error {
		tx.AddAccount(a)
		return nil
	})
}

// Account finds an account.
func (s *Service) Account(ctx context.Context, id string) (Account, error) {
	return s.store.Account(ctx, id)
}

// Usage counts an account's records.
func (s *Service) Usage(ctx context.Context, id string) (Usage, error) { return s.store.Usage(ctx, id) }

// Change edits an account. When it has returned, every replica judges by the new
// plan and suspension, and redirects and share pages follow the suspension. If a
// service that keeps records cannot be reached, the change is committed all the same,
// and the error is UNAVAILABLE. A repeated call finishes the work, and so does time.
func (s *Service) Change(ctx context.Context, id string, c Change) (Account, error) {
	var after Account
	err := s.store.Atomically(ctx, "change account", func(tx Tx) error {
		before, err := tx.Account(id)
		if err != nil {
			return err
		}
		if before.Deleting {
			return apierr.New(apierr.AccountDeleting, "The account is being erased, which cannot be stopped.")
		}
		if after = before.with(c); after == before {
			return tx.Again(id)
		}
		// In the same commit, so that a crash before the other services are told is noticed.
		after.Pending = after.Pending || after.Suspended != before.Suspended
		tx.PutAccount(&after, events.AccountChanged)
		return nil
	})
	if err != nil {
		return Account{}, err
	}
	// A stated suspension is told even when nothing changed: the operator who
	// repeats the call wants to know that it holds.
	if c.Suspended != nil || after.Pending {
		if err := s.settle(ctx, after); err != nil {
			return Account{}, &apierr.Error{
				Code: apierr.Unavailable, RetryAfter: 5 * time.Second, Err: err,
				Message: "The change is saved, but not every service has confirmed it yet. Send the same request again to wait for it.",
			}
		}
		after.Pending = false
	}
	return after, nil
}

// NewKey asks for a key. The caller draws its secret, so that a repeated request
// can draw the same one.
type NewKey struct {
	ID        string
	Key       identity.Key
	AccountID string
	Name      string
	Scopes    identity.ScopeSet
	ExpiresAt time.Time
	At        time.Time // creation time; zero: now

	// By is the key that asks; nil when the operator does. Its authority bounds
	// the new key's: in scopes, and in time.
	By *identity.Principal
}

func (n NewKey) key() Key {
	return Key{
		ID: n.ID, AccountID: n.AccountID, Hash: n.Key.Hash(), Name: n.Name, Prefix: n.Key.Prefix(), Last4: n.Key.Last4(),
		Scopes: n.Scopes, CreatedAt: n.At, ExpiresAt: n.ExpiresAt,
	}
}

// CreateKey makes a key. Asked again with the same ID and secret it finds the
// key it made.
func (s *Service) CreateKey(ctx context.Context, n NewKey) (made Key, err error) {
	if n.At.IsZero() {
		n.At = s.now()
	}
	err = s.store.Atomically(ctx, "create key", func(tx Tx) error {
		if err := Staying(tx, n.AccountID); err != nil {
			return err
		}
		made = n.key()
		if n.By != nil {
			giver, err := GiverNow(tx, n.By, s.now())
			if err != nil {
				return err
			}
			if made, err = giver.bound(made); err != nil {
				return err
			}
		}
		// Before the limit: a repeated request finds its key even when the account is full by now.
		found, err := existing(tx, made)
		if err != nil || found != nil {
			if found != nil {
				made = *found
			}
			return err
		}
		if err := Room(tx, made, 1, s.now()); err != nil {
			return err
		}
		tx.Add(made, events.KeyCreated)
		return nil
	})
	return made, err
}

// Giver is what a calling key or session may hand on at the moment of the commit. The
// principal of the request is some seconds old, and what is made while its maker is
// being removed must not survive them.
type Giver struct {
	Scopes identity.ScopeSet
	Role   identity.Role // of the member; "" where there is none
	member string        // who answers for what is made
	end    time.Time     // of the key; zero: none
}

// GiverNow finds what the caller may hand on now. It refuses a key that was revoked, and
// what a member who is gone has left.
func GiverNow(tx Tx, by *identity.Principal, now time.Time) (Giver, error) {
	g := Giver{member: by.MemberID}
	if !by.Session {
		k, err := tx.Key(by.AccountID, by.KeyID)
		if err != nil {
			return Giver{}, err
		}
		if !k.Active(now) {
			return Giver{}, apierr.New(apierr.APIKeyRevoked, "This API key has been revoked.")
		}
		g = Giver{Scopes: k.Scopes, end: k.ExpiresAt, member: k.MadeBy}
	}
	if g.member == "" {
		return g, nil
	}
	var err error
	if g.Role, err = tx.Role(by.AccountID, g.member); err != nil {
		return Giver{}, err
	}
	if g.Role == "" {
		return Giver{}, apierr.New(apierr.APIKeyRevoked, "The member behind this key or session was removed.")
	}
	// The scopes of a session's principal are those of the role when it was read. Only the role
	// as it is now counts.
	if by.Session {
		g.Scopes = g.Role.Scopes()
	} else {
		g.Scopes &= g.Role.Scopes()
	}
	return g, nil
}

// bound keeps a key from having more scopes, or a longer life, than what made it.
// A session's own end is no bound: the member's role is, for as long as it lasts.
func (g Giver) bound(k Key) (Key, error) {
	if err := MayGive(g.Scopes, k.Scopes); err != nil {
		return Key{}, err
	}
	if g.member != "" {
		k.MadeBy = g.member
	}
	if g.end.IsZero() {
		return k, nil
	}
	if k.ExpiresAt.After(g.end) {
		return Key{}, apierr.Invalid(apierr.Detail{
			Field: "expiresAt", Code: apierr.OutOfRange, Max: g.end.UnixMilli(),
			Message: "A key cannot outlive the key that makes it.",
		})
	}
	return k.endsBy(g.end), nil
}

// ErrErasing is the answer for an account that is being erased.
var ErrErasing = apierr.New(apierr.AccountDeleting, "The account is being erased.")

// Staying refuses an account that is being erased. Erasure removes keys and people before
// the account itself, so what is added meanwhile could be left.
func Staying(tx Tx, id string) error {
	a, err := tx.Account(id)
	if err == nil && a.Deleting {
		err = ErrErasing
	}
	return err
}

// existing finds the key that an earlier try of the same request made.
func existing(tx Tx, k Key) (*Key, error) {
	found, err := tx.KeyByHash(k.Hash)
	switch {
	case errors.Is(err, ErrNoKey):
		return nil, nil
	case err != nil:
		return nil, err
	case found.ID != k.ID || found.AccountID != k.AccountID:
		return nil, errors.New("drew a key that exists")
	}
	return &found, nil
}

// Room refuses n more keys in use when the account has no room for them.
func Room(tx Tx, k Key, n int, now time.Time) error {
	if !k.Active(now) {
		return nil
	}
	room, err := tx.Room("keys", k.AccountID, MaxActiveKeys, n, func() (int, error) {
		inUse, err := tx.InUse(k.AccountID, now)
		return len(inUse), err
	})
	if err != nil {
		return err
	}
	if room < n {
		return apierr.New(apierr.QuotaExceeded, "This account has 100 active keys. Revoke one first.")
	}
	return nil
}

// Key finds a key of the account. An empty accountID is the operator's, who sees
// any key.
func (s *Service) Key(ctx context.Context, accountID, id string) (Key, error) {
	return s.store.Key(ctx, accountID, id)
}

// Keys lists the account's keys, newest first.
func (s *Service) Keys(ctx context.Context, accountID string) ([]Key, error) {
	return s.store.Keys(ctx, accountID)
}

// Revoke ends a key for good; twice is no error. An empty accountID is the
// operator's, who may revoke any key. When Revoke has returned, no replica
// accepts the key.
func (s *Service) Revoke(ctx context.Context, accountID, id string) error {
	return s.store.Atomically(ctx, "revoke key", func(tx Tx) error {
		k, err := tx.Key(accountID, id)
		if err != nil {
			return err
		}
		if !k.RevokedAt.IsZero() {
			return tx.Again(k.AccountID)
		}
		k.RevokedAt = s.now()
		tx.Put(k, events.KeyRevoked)
		return tx.Authority(k.AccountID)
	})
}

// Roll replaces the key id by n, which takes over its name, scopes and end. The
// old key goes on for overlap, or ends at once when that is zero.
func (s *Service) Roll(ctx context.Context, id string, overlap time.Duration, n NewKey) (made Key, err error) {
	err = s.store.Atomically(ctx, "roll key", func(tx Tx) error {
		old, err := tx.Key(n.AccountID, id)
		if err != nil {
			return err
		}
		n.Name, n.Scopes, n.ExpiresAt = old.Name, old.Scopes, old.ExpiresAt
		made = n.key()
		made.MadeBy = old.MadeBy
		// Before the key that asks is judged: the first try of this request may have
		// revoked it.
		found, err := existing(tx, made)
		if err != nil {
			return err
		}
		if found != nil {
			made = *found
			return tx.Again(made.AccountID)
		}
		if n.By != nil {
			g, err := GiverNow(tx, n.By, s.now())
			if err != nil {
				return err
			}
			// The caller learns the successor's secret, so it ends when the caller's
			// own key does, though the old one would have lived longer.
			if !g.end.IsZero() {
				made = made.endsBy(g.end)
			}
			if made, err = g.bound(made); err != nil {
				return err
			}
		}
		now := s.now()
		// A roll must not bring back a key that was revoked or has expired.
		if !old.Active(now) {
			return ErrNoKey
		}
		// During an overlap both keys count towards the limit.
		added := 1
		if overlap <= 0 {
			old.RevokedAt, added = now, 0
		} else {
			old = old.endsBy(now.Add(overlap))
		}
		if err := Room(tx, made, added, now); err != nil {
			return err
		}
		tx.Put(old, events.Quiet)
		tx.Add(made, events.Quiet)
		tx.Tell(events.KeyRolled, old.ID, made) // one event for both
		return tx.Authority(made.AccountID)
	})
	return made, err
}
