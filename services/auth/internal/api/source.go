package api

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
)

// Plans says what each plan allows.
type Plans map[identity.Plan]Allowance

// Allowance has the limits of a plan.
type Allowance struct {
	PerMinute int // requests
	Quotas    identity.Quotas
}

// UsualPlans returns the limits of the plans if the deployment sets none.
func UsualPlans() Plans {
	return Plans{
		identity.Free: {PerMinute: 60}, identity.Creator: {PerMinute: 600},
		identity.Business: {PerMinute: 1200}, identity.Enterprise: {PerMinute: 3000},
	}
}

// Credentials is the store that verification uses.
type Credentials interface {
	// Credential finds a key or session by hash, with the account and the member that limit it,
	// as of one instant after the call began. It returns account.ErrNoKey if there is none.
	Credential(ctx context.Context, hash string) (account.Credential, error)
	// Key finds a key of an account by its public id. It returns account.ErrNoKey if there is none.
	Key(ctx context.Context, accountID, id string) (account.Key, error)
	// Look finds members.
	Look(ctx context.Context) member.Reads
	// Touch records when a key or a session was last used. It returns account.ErrNoKey if it was
	// erased meanwhile.
	Touch(ctx context.Context, hash string, session bool, at time.Time) error
}

// Source verifies keys for this process and for the other services, and records their use.
// Verification never waits for the write of such a record.
type Source struct {
	store Credentials
	plans Plans
	now   func() time.Time

	mu   sync.Mutex
	used map[string]use // uses that are not yet written, by key hash
}

// use records when a key or session was used, to the minute.
type use struct {
	at      time.Time
	session bool
}

var (
	_ apikey.Source = (*Source)(nil)
	_ apikey.Rights = (*Source)(nil)
)

// NewSource makes a source. If now is nil, the system clock is used.
func NewSource(store Credentials, plans Plans, now func() time.Time) *Source {
	if now == nil {
		now = time.Now
	}
	return &Source{store: store, plans: plans, now: now, used: map[string]use{}}
}

// Verify reads the key's record. It has no cache, since its callers have one.
func (s *Source) Verify(ctx context.Context, hash string) (*apikey.Record, error) {
	c, err := s.store.Credential(ctx, hash)
	if errors.Is(err, account.ErrNoKey) {
		return nil, apikey.ErrUnknownKey
	}
	if err != nil {
		return nil, err
	}
	s.note(c)
	k, a, plan := c.Key, c.Account, s.plans[c.Account.Plan]
	if a.Limits != (account.Limits{}) {
		plan.Quotas = a.Limits.Over(plan.Quotas)
	}
	return &apikey.Record{
		Principal: identity.Principal{
			AccountID: a.ID, AccountName: a.Name, Plan: a.Plan, Suspended: a.Suspended, DefaultDomainID: a.DefaultDomainID,
			PerMinute: plan.PerMinute, Quotas: plan.Quotas,
			KeyID: k.ID, KeyName: k.Name, Scopes: c.Scopes(),
			Session: c.Session, MemberID: c.Member.ID, MemberName: c.Member.Name, Role: c.Member.Role,
		},
		Revoked: !k.RevokedAt.IsZero(), ExpiresAt: k.ExpiresAt.UnixMilli(), Version: a.Version,
	}, nil
}

// Scopes returns the scopes that a key or a member has now, without a cache. The call
// does not count as a use of the key: a session must still end when idle, even while
// other services keep checking what it was granted.
func (s *Source) Scopes(ctx context.Context, accountID, id string) (identity.ScopeSet, error) {
	if strings.HasPrefix(id, "mem_") {
		m, err := s.store.Look(ctx).Member(accountID, id)
		if errors.Is(err, member.ErrNoMember) || err == nil && m.Lapsed(s.now()) {
			return 0, nil
		}
		return m.Role.Scopes(), err
	}
	k, err := s.store.Key(ctx, accountID, id)
	if err == nil {
		var c account.Credential
		if c, err = s.store.Credential(ctx, k.Hash); err == nil && c.Key.Active(s.now()) {
			return c.Scopes(), nil
		}
	}
	if errors.Is(err, account.ErrNoKey) {
		return 0, nil
	}
	return 0, err
}

// maxUsed bounds the unwritten uses while Firestore is down. Further uses are dropped, and the last
// use of those keys then looks older than it is.
const maxUsed = 100_000

// sessionStep is the precision of a session's last use. It only serves to end sessions
// that were idle for hours, so minutes do not matter.
const sessionStep = 5 * time.Minute

// note marks a key as used in this minute, unless the record says so already. Clients verify a key
// in use every few seconds, so its last use is accurate to the minute.
func (s *Source) note(c account.Credential) {
	now, step := s.now(), time.Minute
	if c.Session {
		step = sessionStep
	}
	minute := now.Truncate(time.Minute)
	if !c.Key.Active(now) || minute.Before(c.Key.LastUsedAt.Truncate(time.Minute).Add(step)) {
		return
	}
	s.mu.Lock()
	if len(s.used) < maxUsed {
		s.used[c.Key.Hash] = use{minute, c.Session}
	}
	s.mu.Unlock()
}

// Flush writes the recorded uses. If a write fails, it keeps the use for the next call and returns
// no error. A key is written at most once a minute, however often it is used.
func (s *Source) Flush(ctx context.Context) error {
	s.mu.Lock()
	// Take the uses out under the lock but write them without it: verification must not wait for
	// Firestore.
	used := s.used
	s.used = map[string]use{}
	s.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(8)
	for hash, use := range used {
		g.Go(func() error {
			err := s.store.Touch(ctx, hash, use.session, use.at)
			if err == nil || errors.Is(err, account.ErrNoKey) { // the key is gone
				return nil
			}
			slog.DebugContext(ctx, "key use not written yet", "error", err)
			s.mu.Lock()
			defer s.mu.Unlock()
			// If a later use was recorded meanwhile, keep that one instead of this older one.
			if _, newer := s.used[hash]; !newer && len(s.used) < maxUsed {
				s.used[hash] = use
			}
			return nil
		})
	}
	return g.Wait()
}
