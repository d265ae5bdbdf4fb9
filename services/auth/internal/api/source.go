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

// Plans maps each plan to its limits.
type Plans map[identity.Plan]Allowance

// Allowance holds a plan's limits.
type Allowance struct {
	PerMinute int // requests
	Quotas    identity.Quotas
}

// UsualPlans returns the plans' default limits.
func UsualPlans() Plans {
	return Plans{
		identity.Free: {PerMinute: 60}, identity.Creator: {PerMinute: 600},
		identity.Business: {PerMinute: 1200}, identity.Enterprise: {PerMinute: 3000},
	}
}

// Credentials is the store that verification uses.
type Credentials interface {
	// Credential looks up a key or session by hash, with the account and the member that limit
	// it. All of them are read at the same point in time, after the call began. It returns
	// account.ErrNoKey if there is none.
	Credential(ctx context.Context, hash string) (account.Credential, error)
	// CredentialByID is Credential for a key's public id. It returns account.ErrNoKey if the
	// account has no such key.
	CredentialByID(ctx context.Context, accountID, id string) (account.Credential, error)
	// Look returns lookups for members and their records.
	Look(ctx context.Context) member.Reads
	// Touch records when a key or a session was last used. It returns account.ErrNoKey if the key
	// or session has since been erased.
	Touch(ctx context.Context, hash string, session bool, at time.Time) error
}

// Source verifies keys for this process and the other services, and records when they are used.
// Verification never waits for these records to be written.
type Source struct {
	store Credentials
	plans Plans
	now   func() time.Time

	mu   sync.Mutex
	used map[string]use // uses not yet written, by key hash
}

// use is the time when a key or session was used, to the minute.
type use struct {
	at      time.Time
	session bool
}

var (
	_ apikey.Source = (*Source)(nil)
	_ apikey.Rights = (*Source)(nil)
)

// NewSource returns a source. If now is nil, the system clock is used.
func NewSource(store Credentials, plans Plans, now func() time.Time) *Source {
	if now == nil {
		now = time.Now
	}
	return &Source{store: store, plans: plans, now: now, used: map[string]use{}}
}

// Verify reads the key's record. It does not cache, because its callers do.
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

// Scopes reads a key's or a member's current scopes. They are never cached. The call does
// not count as a use of the key: an idle session must end even if other services regularly
// check its rights.
func (s *Source) Scopes(ctx context.Context, accountID, id string) (identity.ScopeSet, error) {
	if strings.HasPrefix(id, "mem_") {
		m, err := s.store.Look(ctx).Member(accountID, id)
		if errors.Is(err, member.ErrNoMember) || err == nil && m.Lapsed(s.now()) {
			return 0, nil
		}
		return m.Role.Scopes(), err
	}
	c, err := s.store.CredentialByID(ctx, accountID, id)
	if errors.Is(err, account.ErrNoKey) || err == nil && !c.Key.Active(s.now()) {
		return 0, nil
	}
	return c.Scopes(), err
}

// maxUsed bounds the pending writes while Firestore is down. Further uses are dropped, so the
// last use of those keys appears older than it is.
const maxUsed = 100_000

// sessionStep is the precision of a session's last use. The last use is needed only to end
// sessions after hours of inactivity, so minutes do not matter.
const sessionStep = 5 * time.Minute

// note marks a key as used in this minute, unless its record already says so. Clients verify an
// active key every few seconds, so its last use is accurate to the minute.
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

// Flush writes the recorded uses. If a write fails, Flush keeps the use for the next call and does
// not return an error. A key is written at most once a minute, regardless of how often it is used.
func (s *Source) Flush(ctx context.Context) error {
	s.mu.Lock()
	// Remove the uses under the lock but write them without it, because verification must not
	// wait for Firestore.
	used := s.used
	s.used = map[string]use{}
	s.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(8)
	for hash, use := range used {
		g.Go(func() error {
			err := s.store.Touch(ctx, hash, use.session, use.at)
			if err == nil || errors.Is(err, account.ErrNoKey) { // the key was erased
				return nil
			}
			slog.DebugContext(ctx, "cannot record the use of a key; retrying", "error", err)
			s.mu.Lock()
			defer s.mu.Unlock()
			// If a later use has since been recorded, keep that one.
			if _, newer := s.used[hash]; !newer && len(s.used) < maxUsed {
				s.used[hash] = use
			}
			return nil
		})
	}
	return g.Wait()
}
