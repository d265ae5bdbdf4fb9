package account

import (
	"context"
	"errors"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
)

// Store stores accounts and keys.
type Store interface {
	// Account looks up an account. It returns ErrNoAccount if there is none.
	Account(ctx context.Context, id string) (Account, error)
	// Key looks up a key in an account by its public id. It returns ErrNoKey if there is
	// none. An empty accountID means any account.
	Key(ctx context.Context, accountID, id string) (Key, error)
	// Keys lists an account's keys, newest first. The list contains every active key and the
	// 200 newest keys, active or not.
	Keys(ctx context.Context, accountID string) ([]Key, error)
	// Usage returns the account's usage in all services.
	Usage(ctx context.Context, accountID string) (Usage, error)
	// Atomically makes one change. It commits only if no record that fn read has changed. fn
	// may run several times, so it must act only through tx. When Atomically returns, every
	// replica applies the change.
	Atomically(ctx context.Context, what string, fn func(tx Tx) error) error
}

// Tx is one atomic change. It writes only on commit, so its own reads do not see its writes. Each
// write takes an event type, or [events.Quiet] for no event. The event is written in the same
// commit and logged.
type Tx interface {
	Account(id string) (Account, error)
	Key(accountID, id string) (Key, error)
	KeyByHash(hash string) (Key, error)
	// InUse lists the account's keys that are neither revoked nor expired. It may retire
	// expired keys.
	InUse(accountID string, now time.Time) ([]Key, error)
	// Room returns how many of n additional records of a kind fit within the limit most. count
	// returns the current number of records. Call Room at most once per change. See libs/quota.
	Room(kind, accountID string, most, n int, count func() (int, error)) (int, error)
	// Role returns the current role of a member of the account, or "" if there is no such
	// member.
	Role(accountID, memberID string) (identity.Role, error)

	AddAccount(a Account)
	// PutAccount writes an account that this change has read. It increments the version in
	// the document and in a.
	PutAccount(a *Account, what events.Type)
	// Add, Put and Remove write a record: a [Key] or a record type of package member. For a key
	// or a session, Put writes only the time at which it ends.
	Add(record any, what events.Type)
	Put(record any, what events.Type)
	Remove(record any, what events.Type)
	// Tell writes an event about an object without writing a record.
	Tell(what events.Type, object string, record any)

	// Authority records that a key or a member of the account has lost rights. It increments the
	// account's version and notifies every replica. Creating a key does not require this call
	// because it does not remove any rights.
	Authority(accountID string) error
	// Again notifies every replica of the current version. Call it if the change has already been
	// made: an earlier attempt may have crashed after its commit but before notifying the replicas.
	Again(accountID string) error
	// Note writes a record's state to the trail for restores. Ending a record or changing an
	// account's state does this automatically. Call Note after changing a role. Also call it
	// together with Again because the earlier attempt may not have reached the trail either.
	Note(r any)
}

// Service implements the operations that the APIs call.
type Service struct {
	store  Store
	settle func(context.Context, Account) error
	now    func() time.Time
}

// NewService returns a service. settle returns once every service that holds records of the
// account has applied the account's state. A nil settle means that there are no such services. If
// now is nil, the system clock is used.
func NewService(store Store, settle func(context.Context, Account) error, now func() time.Time) *Service {
	if now == nil {
		now = time.Now
	}
	if settle == nil {
		settle = func(context.Context, Account) error { return nil }
	}
	return &Service{store: store, settle: settle, now: now}
}

// Create creates an account.
func (s *Service) Create(ctx context.Context, name string, plan identity.Plan) (Account, error) {
	a := Account{ID: identity.NewID("acc"), Name: name, Plan: plan, CreatedAt: s.now(), Version: 1}
	return a, s.store.Atomically(ctx, "create account", func(tx Tx) error {
		tx.AddAccount(a)
		return nil
	})
}

// Account looks up an account.
func (s *Service) Account(ctx context.Context, id string) (Account, error) {
	return s.store.Account(ctx, id)
}

// Usage returns the account's usage.
func (s *Service) Usage(ctx context.Context, id string) (Usage, error) { return s.store.Usage(ctx, id) }

// Change edits an account. When it returns, every replica applies the new plan and suspension,
// and the suspension is effective for redirects and share pages. If a service that holds the
// account's records is unreachable, the change is committed, but Change returns UNAVAILABLE.
// Repeating the call finishes the work. Otherwise, a background loop finishes it.
func (s *Service) Change(ctx context.Context, id string, c Change) (Account, error) {
	var after Account
	err := s.store.Atomically(ctx, "change account", func(tx Tx) error {
		before, err := tx.Account(id)
		if err != nil {
			return err
		}
		if before.Deleting {
			return apierr.New(apierr.AccountDeleting, "The account is being erased. This cannot be stopped.")
		}
		if c.Match != nil {
			if err := c.Match(before); err != nil {
				return err
			}
		}
		if after = before.with(c); after == before {
			if c.Suspended != nil {
				tx.Note(before)
			}
			return tx.Again(id)
		}
		// Set Pending in the same commit so that the other services are notified even after a
		// crash.
		after.Pending = after.Pending || after.Suspended != before.Suspended
		tx.PutAccount(&after, events.AccountChanged)
		return nil
	})
	if err != nil {
		return Account{}, err
	}
	// Settle even if Suspended did not change: an operator who repeats the call needs to know
	// whether every service has applied it.
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

// NewKey is a request for a key. The caller generates the secret, so a repeated request can use the
// same one.
type NewKey struct {
	ID        string
	Key       identity.Key
	AccountID string
	Name      string
	Scopes    identity.ScopeSet
	ExpiresAt time.Time
	At        time.Time // creation time; zero means now

	// By is the calling key or session, or nil for the operator. It limits the new key's scopes and
	// lifetime.
	By *identity.Principal
}

func (n NewKey) key() Key {
	return Key{
		ID: n.ID, AccountID: n.AccountID, Hash: n.Key.Hash(), Name: n.Name, Prefix: n.Key.Prefix(), Last4: n.Key.Last4(),
		Scopes: n.Scopes, CreatedAt: n.At, ExpiresAt: n.ExpiresAt,
	}
}

// CreateKey creates a key. A repeated call with the same ID and secret returns the key that the
// first call created.
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
		// Look up the key before checking the limit: a repeated request must find its key even
		// if the account has since reached its limit.
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

// Giver holds the rights that a calling key or session may grant at the time of the commit. The
// request's principal may be a few seconds old, and a key created while its creator is being
// removed must not outlive the removal.
type Giver struct {
	Scopes identity.ScopeSet
	Role   identity.Role // the member's role; "" if there is no member
	member string        // recorded as the creator
	end    time.Time     // when the calling key expires; zero if never
}

// GiverNow returns the rights that the caller may currently grant. It rejects a revoked key,
// and a removed member's key or session.
func GiverNow(tx Tx, by *identity.Principal, now time.Time) (Giver, error) {
	g := Giver{member: by.MemberID}
	if !by.Session {
		k, err := tx.Key(by.AccountID, by.KeyID)
		if err != nil {
			return Giver{}, err
		}
		if !k.Active(now) {
			return Giver{}, apierr.New(apierr.APIKeyRevoked, "This API key has been revoked. Use another key.")
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
		return Giver{}, apierr.New(apierr.APIKeyRevoked, "The member that this key or session belongs to was removed.")
	}
	// A session's principal has the role's scopes as they were when the principal was loaded.
	// Only the current role counts.
	if by.Session {
		g.Scopes = g.Role.Scopes()
	} else {
		g.Scopes &= g.Role.Scopes()
	}
	return g, nil
}

// bound prevents a new key from having more scopes than the calling key or session, or a longer
// lifetime than the calling key. A session's expiry does not limit the key, because the
// member's current role always does.
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
			Message: "A key must not expire later than the key that creates it.",
		})
	}
	return k.endsBy(g.end), nil
}

// ErrErasing is returned for an account that is being erased.
var ErrErasing = apierr.New(apierr.AccountDeleting, "The account is being erased.")

// Staying returns an error for an account that is being erased. Erasure removes keys and people
// before the account, so a record added in the meantime would be left behind.
func Staying(tx Tx, id string) error {
	a, err := tx.Account(id)
	if err == nil && a.Deleting {
		err = ErrErasing
	}
	return err
}

// existing looks up the key that an earlier attempt at the same request created.
func existing(tx Tx, k Key) (*Key, error) {
	found, err := tx.KeyByHash(k.Hash)
	switch {
	case errors.Is(err, ErrNoKey):
		return nil, nil
	case err != nil:
		return nil, err
	case found.ID != k.ID || found.AccountID != k.AccountID:
		return nil, errors.New("generated a key that already exists")
	}
	return &found, nil
}

// Room returns an error if n more active keys would exceed the account's limit.
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

// Key looks up a key in the account. An empty accountID means any account. Only operator calls
// use it.
func (s *Service) Key(ctx context.Context, accountID, id string) (Key, error) {
	return s.store.Key(ctx, accountID, id)
}

// Keys lists the account's keys, newest first.
func (s *Service) Keys(ctx context.Context, accountID string) ([]Key, error) {
	return s.store.Keys(ctx, accountID)
}

// Revoke ends a key permanently. Revoking it again is not an error. An empty accountID means
// any account. Only operator calls use it. When Revoke returns, no replica accepts the key.
func (s *Service) Revoke(ctx context.Context, accountID, id string) error {
	return s.store.Atomically(ctx, "revoke key", func(tx Tx) error {
		k, err := tx.Key(accountID, id)
		if err != nil {
			return err
		}
		if !k.RevokedAt.IsZero() {
			// An earlier attempt may have crashed after its commit but before notifying the
			// replicas.
			tx.Note(k)
			return tx.Again(k.AccountID)
		}
		k.RevokedAt = s.now()
		tx.Put(k, events.KeyRevoked)
		return tx.Authority(k.AccountID)
	})
}

// EndBy makes a key expire at the given time, unless it already ends earlier.
func (s *Service) EndBy(ctx context.Context, accountID, id string, at time.Time) error {
	return s.store.Atomically(ctx, "end key", func(tx Tx) error {
		k, err := tx.Key(accountID, id)
		if err != nil {
			return err
		}
		sooner := k.endsBy(at)
		if !k.RevokedAt.IsZero() || sooner.ExpiresAt.Equal(k.ExpiresAt) {
			return tx.Again(k.AccountID)
		}
		tx.Put(sooner, events.Quiet)
		return tx.Authority(k.AccountID)
	})
}

// Roll replaces the key id with n, which takes over the old key's name, scopes and expiry. The
// old key keeps working for the duration of overlap. If overlap is zero, it ends immediately.
func (s *Service) Roll(ctx context.Context, id string, overlap time.Duration, n NewKey) (made Key, err error) {
	err = s.store.Atomically(ctx, "roll key", func(tx Tx) error {
		old, err := tx.Key(n.AccountID, id)
		if err != nil {
			return err
		}
		n.Name, n.Scopes, n.ExpiresAt = old.Name, old.Scopes, old.ExpiresAt
		made = n.key()
		made.MadeBy = old.MadeBy
		// Look up the new key before checking the calling key because the first attempt at this
		// request may have revoked the calling key.
		found, err := existing(tx, made)
		if err != nil {
			return err
		}
		if found != nil {
			made = *found
			tx.Note(old)
			return tx.Again(made.AccountID)
		}
		if n.By != nil {
			g, err := GiverNow(tx, n.By, s.now())
			if err != nil {
				return err
			}
			// The caller gets the new secret, so the new key expires no later than the caller's
			// own key, even if the old key would have expired later.
			if !g.end.IsZero() {
				made = made.endsBy(g.end)
			}
			if made, err = g.bound(made); err != nil {
				return err
			}
		}
		now := s.now()
		// A roll must not reactivate a key that was revoked or has expired.
		if !old.Active(now) {
			return ErrNoKey
		}
		// During the overlap, both keys count towards the limit.
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
		tx.Tell(events.KeyRolled, old.ID, made) // one event for both keys
		return tx.Authority(made.AccountID)
	})
	return made, err
}
