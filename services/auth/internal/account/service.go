package account

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
)

// Store remembers accounts and keys.
type Store interface {
	// Account finds an account; ErrNoAccount if there is none.
	Account(ctx context.Context, id string) (Account, error)
	// Key finds a key of any account by its public id; ErrNoKey if there is none.
	Key(ctx context.Context, id string) (Key, error)
	// Keys lists an account's keys, newest first: all that are in use, and of
	// the others the newest.
	Keys(ctx context.Context, accountID string) ([]Key, error)
	// Untold lists up to limit accounts whose Untold is set.
	Untold(ctx context.Context, limit int) ([]Account, error)
	// Atomically runs fn so that what it read still holds when it commits. fn
	// reads first and then writes; it may run several times and has no other
	// effect.
	Atomically(ctx context.Context, what string, fn func(tx Tx) error) error
}

// Tx is one atomic change.
type Tx interface {
	Account(id string) (Account, error)
	Key(id string) (Key, error)
	KeyByHash(hash string) (Key, error)
	// InUse lists the account's keys that are not revoked. It may retire expired
	// ones, which it leaves out.
	InUse(accountID string, now time.Time) ([]Key, error)

	// Role is the role of a member of the account now; "" if there is no such
	// member.
	Role(accountID, memberID string) (identity.Role, error)

	AddAccount(a Account) error
	PutAccount(a Account) error
	AddKey(k Key) error
	PutKey(k Key) error
	// Note writes an event on a record, as it is after the change.
	Note(accountID string, what events.Type, object string, record any) error
}

// Notifier tells the replicas that an account's authority changed.
type Notifier interface {
	InvalidateAccount(ctx context.Context, accountID string, version int64)
}

// Holders are the services that hold accounts' records: links and videos.
type Holders interface {
	// Suspend returns once no replica of any of them serves the account's redirects
	// and pages otherwise than suspended says. It may be called again; a call with
	// a lower version than an earlier one changes nothing.
	Suspend(ctx context.Context, accountID string, suspended bool, version int64) error
}

// Service is what the APIs call.
type Service struct {
	holders Holders
	store   Store
	notify  Notifier
	now     func() time.Time
	log     *slog.Logger
}

// NewService makes a service. A nil now or log is the system's.
func NewService(store Store, notify Notifier, now func() time.Time, log *slog.Logger) *Service {
	if now == nil {
		now = time.Now
	}
	if log == nil {
		log = slog.Default()
	}
	return &Service{store: store, notify: notify, now: now, log: log}
}

// WithHolders makes changes of a suspension reach h before they return.
func (s *Service) WithHolders(h Holders) *Service {
	s.holders = h
	return s
}

// Create makes an account.
func (s *Service) Create(ctx context.Context, name string, plan identity.Plan) (Account, error) {
	a := Account{ID: identity.NewID("acc"), Name: name, Plan: plan, CreatedAt: s.now(), Version: 1}
	if err := s.store.Atomically(ctx, "create account", func(tx Tx) error { return tx.AddAccount(a) }); err != nil {
		return Account{}, err
	}
	// Nobody is notified: no replica can know an id that was just drawn.
	s.audit(ctx, "account.create", a.ID, "", "plan", plan.String())
	return a, nil
}

// Account finds an account.
func (s *Service) Account(ctx context.Context, id string) (Account, error) {
	return s.store.Account(ctx, id)
}

// Change edits an account. When it has returned, every replica judges by the new
// plan and suspension, and redirects and share pages follow the suspension. If a
// holder cannot be reached, the change is committed all the same, the error is
// UNAVAILABLE, and both a repeated call and [Service.Retell] finish the work.
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
			return nil
		}
		// In the same commit, so that a crash before the holders are told is noticed.
		after.Untold = after.Untold || after.Suspended != before.Suspended
		after.Version++
		return errors.Join(tx.PutAccount(after), tx.Note(id, events.AccountChanged, id, after))
	})
	if err != nil {
		return Account{}, err
	}
	// Unchanged accounts too: an earlier try may have died before it told anybody.
	s.notify.InvalidateAccount(ctx, id, after.Version)
	s.audit(ctx, "account.change", id, "", "plan", after.Plan.String(), "suspended", after.Suspended)
	// A stated suspension is told even when nothing changed: the operator who
	// repeats the call wants to know that it holds.
	if c.Suspended != nil || after.Untold {
		if err := s.tell(ctx, after); err != nil {
			return Account{}, &apierr.Error{
				Code: apierr.Unavailable, RetryAfter: 5 * time.Second, Err: err,
				Message: "The change is saved, but not every service has confirmed it yet. Send the same request again to wait for it.",
			}
		}
		after.Untold = false
	}
	return after, nil
}

// tell puts the account's records into the state that was decided and then notes
// that it has.
func (s *Service) tell(ctx context.Context, a Account) error {
	if s.holders == nil {
		return nil
	}
	if err := s.holders.Suspend(ctx, a.ID, a.Suspended, a.Version); err != nil {
		return err
	}
	if !a.Untold {
		return nil
	}
	// Only now. A crash before this leaves Untold set, and Retell tells the holders again.
	return s.store.Atomically(ctx, "note that holders were told", func(tx Tx) error {
		now, err := tx.Account(a.ID)
		// A newer change of the suspension has its own telling, which is not done yet.
		if err != nil || !now.Untold || now.Suspended != a.Suspended {
			return err
		}
		now.Untold = false
		return tx.PutAccount(now)
	})
}

// retellEvery is how long a suspension whose process died between its commit and
// its telling stays without effect on redirects and pages, at most.
const retellEvery = 15 * time.Second

// Retell finishes the telling of changes whose first try failed or died, until
// ctx ends. Replicas may do so at the same time: holders ignore what they know.
func (s *Service) Retell(ctx context.Context) error {
	tick := time.NewTicker(retellEvery)
	defer tick.Stop()
	for {
		if err := s.RetellDue(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "suspensions wait for a service that holds records", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// RetellDue tells the holders of all changes that wait now. One that fails keeps
// no other from its turn.
func (s *Service) RetellDue(ctx context.Context) error {
	// Confirmed changes leave this list, so the next round sees those behind them.
	waiting, err := s.store.Untold(ctx, 100)
	if err != nil {
		return err
	}
	var failed []error
	for _, a := range waiting {
		if err := s.tell(ctx, a); err != nil {
			failed = append(failed, fmt.Errorf("account %s: %w", a.ID, err))
		}
	}
	return errors.Join(failed...)
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
func (s *Service) CreateKey(ctx context.Context, n NewKey) (Key, error) {
	if n.At.IsZero() {
		n.At = s.now()
	}
	var made Key
	err := s.store.Atomically(ctx, "create key", func(tx Tx) error {
		acct, err := tx.Account(n.AccountID)
		if err != nil {
			return err
		}
		if acct.Deleting {
			return apierr.New(apierr.AccountDeleting, "The account is being erased.")
		}
		made = n.key()
		if n.By != nil {
			giver, err := s.giver(tx, n.By)
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
		return errors.Join(tx.AddKey(made), tx.Note(made.AccountID, events.KeyCreated, made.ID, made))
	})
	if err != nil {
		return Key{}, err
	}
	// No version is raised: a new key takes no authority away from anybody.
	s.audit(ctx, "key.create", made.AccountID, made.ID)
	return made, nil
}

// giver is what a calling key or session may hand on at the moment of the
// commit. The principal of the request is some seconds old, and a key that is
// made while its maker is being removed must not survive them.
type giver struct {
	scopes identity.ScopeSet
	end    time.Time // zero: none
	member string    // who answers for what is made; "": nobody
}

func (s *Service) giver(tx Tx, by *identity.Principal) (giver, error) {
	g := giver{scopes: by.Scopes, member: by.MemberID}
	if !by.Session {
		k, err := tx.Key(by.KeyID)
		if err != nil {
			return giver{}, err
		}
		if !k.Active(s.now()) {
			return giver{}, apierr.New(apierr.APIKeyRevoked, "This API key has been revoked.")
		}
		g = giver{scopes: k.Scopes, end: k.ExpiresAt, member: k.MadeBy}
	}
	if g.member != "" {
		role, err := tx.Role(by.AccountID, g.member)
		if err != nil {
			return giver{}, err
		}
		if role == "" {
			return giver{}, apierr.New(apierr.APIKeyRevoked, "The member behind this key was removed.")
		}
		g.scopes = g.scopes.And(role.Scopes())
		// The scopes of a session's principal are those of the role when it was read. Only the role
		// as it is now counts.
		if by.Session {
			g.scopes = role.Scopes()
		}
	}
	return g, nil
}

// bound keeps a key from having more scopes, or a longer life, than what made it.
// A session's own end is no bound: the member's role is, for as long as it lasts.
func (g giver) bound(k Key) (Key, error) {
	if err := MayGive(g.scopes, k.Scopes); err != nil {
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
	inUse, err := tx.InUse(k.AccountID, now)
	if err != nil {
		return err
	}
	if len(inUse)+n > MaxActiveKeys {
		return apierr.New(apierr.QuotaExceeded, "This account has 100 active keys. Revoke one first.")
	}
	return nil
}

// Key finds a key of the account. An empty accountID is the operator's, who sees
// any key.
func (s *Service) Key(ctx context.Context, accountID, id string) (Key, error) {
	k, err := s.store.Key(ctx, id)
	if err != nil {
		return Key{}, err
	}
	if accountID != "" && k.AccountID != accountID {
		return Key{}, ErrNoKey
	}
	return k, nil
}

// Keys lists the account's keys, newest first.
func (s *Service) Keys(ctx context.Context, accountID string) ([]Key, error) {
	return s.store.Keys(ctx, accountID)
}

// Revoke ends a key for good; twice is no error. An empty accountID is the
// operator's, who may revoke any key. When Revoke has returned, no replica
// accepts the key.
func (s *Service) Revoke(ctx context.Context, accountID, id string) error {
	var acct Account
	err := s.store.Atomically(ctx, "revoke key", func(tx Tx) error {
		k, a, err := owned(tx, accountID, id)
		if err != nil {
			return err
		}
		if acct = a; !k.RevokedAt.IsZero() {
			// Replicas are told again below: the first try may have died before it told them.
			return nil
		}
		k.RevokedAt = s.now()
		acct.Version++
		return errors.Join(tx.PutKey(k), tx.PutAccount(acct), tx.Note(acct.ID, events.KeyRevoked, k.ID, k))
	})
	if err != nil {
		return err
	}
	s.notify.InvalidateAccount(ctx, acct.ID, acct.Version)
	s.audit(ctx, "key.revoke", acct.ID, id)
	return nil
}

// Roll replaces the key id by n, which takes over its name, scopes and end. The
// old key goes on for overlap, or ends at once when that is zero.
func (s *Service) Roll(ctx context.Context, id string, overlap time.Duration, n NewKey) (Key, error) {
	var made Key
	var acct Account
	err := s.store.Atomically(ctx, "roll key", func(tx Tx) error {
		old, a, err := owned(tx, n.AccountID, id)
		if err != nil {
			return err
		}
		acct = a
		n.Name, n.Scopes, n.ExpiresAt = old.Name, old.Scopes, old.ExpiresAt
		made = n.key()
		made.MadeBy = old.MadeBy
		// Before the key that asks is judged: the first try of this request may have
		// revoked it.
		found, err := existing(tx, made)
		if err != nil || found != nil {
			if found != nil {
				made = *found
			}
			return err
		}
		if n.By != nil {
			g, err := s.giver(tx, n.By)
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
		acct.Version++
		return errors.Join(tx.AddKey(made), tx.PutKey(old), tx.PutAccount(acct), tx.Note(acct.ID, events.KeyRolled, old.ID, made))
	})
	if err != nil {
		return Key{}, err
	}
	s.notify.InvalidateAccount(ctx, acct.ID, acct.Version)
	s.audit(ctx, "key.roll", acct.ID, id, "successor", made.ID)
	return made, nil
}

// owned finds a key and its account; the operator's accountID is empty.
func owned(tx Tx, accountID, id string) (Key, Account, error) {
	k, err := tx.Key(id)
	if err != nil {
		return Key{}, Account{}, err
	}
	if accountID != "" && k.AccountID != accountID {
		return Key{}, Account{}, ErrNoKey
	}
	a, err := tx.Account(k.AccountID)
	return k, a, err
}

// audit notes who did what; the log handler adds the request's trace id.
func (s *Service) audit(ctx context.Context, action, account, key string, more ...any) {
	by := "operator"
	if p := identity.FromContext(ctx); p != nil {
		by = p.KeyID
	}
	s.log.InfoContext(ctx, "audit", append([]any{"action", action, "account", account, "key", key, "by", by}, more...)...)
}
