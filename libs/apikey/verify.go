package apikey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
)

// ErrUnknownKey means that a [Source] has looked up a key that does not exist. Any other error
// means that the lookup failed.
var ErrUnknownKey = errors.New("unknown API key")

// Source looks up keys.
type Source interface {
	// Verify finds a key and its account by the hash that [identity.Key.Hash] returns. The record
	// must include every change that was committed before the call began, and every change up to
	// the record's version. Revoked keys, expired keys and suspended accounts have records too. If
	// the key does not exist, the error is ErrUnknownKey.
	Verify(ctx context.Context, hash string) (*Record, error)
}

// Record is the state of a key and its account. It is shared between requests and never
// changed.
type Record struct {
	identity.Principal
	Revoked bool
	// ExpiresAt is in milliseconds since 1970, or [Never]. It is a number because callers may
	// choose a year that JSON's time format cannot represent.
	ExpiresAt int64

	// Version increases with each change to what the account or any of its keys may do.
	Version int64
}

// Never is the ExpiresAt of a key that does not expire: the [time.Time.UnixMilli] of the
// zero time.
const Never = -62135596800000

// refusal returns the reason to reject a known key at now, or nil if it is accepted. Both reasons
// are final: a revoked or expired key never works again, so it can be refused without another
// verification.
func (r *Record) refusal(now time.Time) error {
	switch {
	case r.Revoked:
		if r.Session {
			return apierr.New(apierr.APIKeyRevoked, "This session has ended. Sign in again.")
		}
		return apierr.New(apierr.APIKeyRevoked, "This API key has been revoked. Use another key.")
	case r.ExpiresAt != Never && now.UnixMilli() >= r.ExpiresAt:
		if r.Session {
			return apierr.New(apierr.APIKeyExpired, "This session has expired. Sign in again.")
		}
		return apierr.New(apierr.APIKeyExpired, "This API key has expired. Use another key.")
	}
	return nil
}

func (r *Record) check() error {
	if r.KeyID == "" || r.AccountID == "" || r.Version < 1 || r.PerMinute < 1 || r.Plan < identity.Free || r.Plan > identity.Enterprise {
		return errors.New("incomplete key record")
	}
	// A removed member's session is revoked and has no role.
	if r.Session && (r.MemberID == "" || !r.Revoked && !r.Role.AtLeast(identity.Viewer)) {
		return errors.New("session record without a member")
	}
	return nil
}

// Rights looks up the current rights of a key or member by public id. It is used for grants, such
// as download URLs, that must end when the key or member that requested them loses its rights.
type Rights interface {
	// Scopes returns the rights of the key or member with this id in the account. It does not
	// return any scopes for a revoked or expired key, a removed member, or an id from another
	// account. The result includes every change that was committed before the call began.
	Scopes(ctx context.Context, accountID, id string) (identity.ScopeSet, error)
}

// flight is one in-flight verification. It is not cancelled when the request that started it is, so
// the next request can use even a late response.
type flight struct {
	incarnation int64
	began       time.Time
	done        chan struct{}
	entry       *entry
	err         error
}

// demand lists what a caller requires of a verification.
type demand struct {
	incarnation int64     // the record must be verified under this incarnation; 0 accepts any
	under       int64     // if incarnation is 0, a new verification stores this one instead
	after       time.Time // the verification must not begin before this time
	version     int64     // a cached record must have at least this version
}

func (f *flight) meets(d demand) bool {
	return !f.began.Before(d.after) && (d.incarnation == 0 || f.incarnation == d.incarnation)
}

func (e *entry) meets(d demand) bool {
	return !e.asked.Before(d.after) && (d.incarnation == 0 || e.incarnation.Load() == d.incarnation) && e.rec.Version >= d.version
}

// current returns a record that is recent enough to be used if Redis confirms it.
func (c *Client) current(ctx context.Context, hash string, from netip.Addr) (*entry, error) {
	now := c.cfg.Now()
	e, ok := c.known.GetIfPresent(hash)
	if !ok {
		if asked, ok := c.unknown.GetIfPresent(hash); ok && now.Sub(asked) < unknownFor {
			return nil, ErrUnknownKey
		}
		degraded.WithLabelValues("cold").Inc()
		return c.look(ctx, hash, from)
	}
	switch age := now.Sub(e.asked); {
	case e.rec.refusal(now) != nil:
		return e, nil // final: a newer record cannot change it
	case age < freshFor*4/5:
		return e, nil
	case age < freshFor:
		// Verify in advance, so requests with a key in steady use never wait.
		c.start(ctx, hash, e, demand{incarnation: e.incarnation.Load()}, true)
		return e, nil
	}
	usable := now.Sub(e.asked) <= usableFor
	fresh, err := c.verify(ctx, hash, e, demand{incarnation: e.incarnation.Load()}, c.patience(usable))
	switch {
	case err == nil, errors.Is(err, ErrUnknownKey):
		return fresh, err
	case usable && ctx.Err() == nil:
		degraded.WithLabelValues("stale").Inc()
		return e, nil
	}
	return nil, err
}

// look verifies a key that is not in memory. It returns RATE_LIMITED if the client's network has
// sent too many unknown keys.
func (c *Client) look(ctx context.Context, hash string, from netip.Addr) (*entry, error) {
	if from.IsValid() {
		if wait := c.misses.Wait(from); wait > 0 {
			return nil, &apierr.Error{Code: apierr.RateLimited, RetryAfter: wait,
				Message: "Your network has sent too many requests with API keys that do not exist. Try again after the time in Retry-After."}
		}
	}
	e, err := c.verify(ctx, hash, nil, demand{}, c.patience(false))
	if from.IsValid() && errors.Is(err, ErrUnknownKey) {
		c.misses.Miss(from)
	}
	return e, err
}

// lasting is how long auth must have been unreachable before requests with a new key wait less. A
// single failed verification is not enough: another account's record may have caused it.
const lasting = time.Second

// patience returns how long to wait for auth. While auth is unreachable, requests with a fallback
// do not wait. After auth has been unreachable for [lasting], the other requests wait only a short
// time. Each time the breaker allows an attempt, one request waits long enough to notice that auth
// has recovered.
func (c *Client) patience(fallback bool) time.Duration {
	since, away := c.asking.Away()
	switch {
	case fallback && away:
		return 0
	case fallback, away && c.cfg.Now().Sub(since) >= lasting && !c.asking.Allow():
		return c.cfg.Budget
	default:
		return c.cfg.ColdBudget
	}
}

var errSlow = errors.New("auth did not answer in time")

// verify waits for a verification that meets d. It joins one that is in flight, or uses the result
// that another request has just obtained. old is the entry that the caller rejected, or nil if it
// had none.
func (c *Client) verify(ctx context.Context, hash string, old *entry, d demand, wait time.Duration) (*entry, error) {
	f := c.start(ctx, hash, old, d, wait > 0)
	if wait <= 0 {
		select {
		case <-f.done:
			return f.entry, f.err
		default:
			return nil, errSlow
		}
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-f.done:
		return f.entry, f.err
	case <-t.C:
		return nil, errSlow
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// start starts a verification unless one that meets d is in flight or has finished since the caller
// read old. Without this check, each caller that waited for the lock would call auth again. If the
// caller does not wait, start asks the breaker first. Otherwise, steady traffic with known keys
// would flood auth with connections while it is unreachable.
func (c *Client) start(ctx context.Context, hash string, old *entry, d demand, waits bool) *flight {
	c.flightsMu.Lock()
	defer c.flightsMu.Unlock()
	if f := c.flights[hash]; f != nil && f.meets(d) {
		return f
	}
	if e, ok := c.known.GetIfPresent(hash); ok && e != old && e.meets(d) {
		return landed(&flight{entry: e})
	}
	// A cached "no such key" is used only for callers without a demand. A demand follows a later
	// change, which may have created the key.
	if asked, ok := c.unknown.GetIfPresent(hash); ok && old == nil && d == (demand{}) && c.cfg.Now().Sub(asked) < unknownFor {
		return landed(&flight{err: ErrUnknownKey})
	}
	if !waits && !c.asking.Allow() {
		return landed(&flight{err: errSlow})
	}
	f := &flight{incarnation: cmp.Or(d.incarnation, d.under), began: c.cfg.Now(), done: make(chan struct{})}
	c.flights[hash] = f
	c.running.Add(1)
	go c.fly(context.WithoutCancel(ctx), hash, f)
	return f
}

// landed returns f as a finished flight. It is used for results that are already known.
func landed(f *flight) *flight {
	f.done = make(chan struct{})
	close(f.done)
	return f
}

func (c *Client) fly(ctx context.Context, hash string, f *flight) {
	defer c.running.Done()
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ColdBudget)
	defer cancel()
	rec, err := c.source.Verify(ctx, hash)
	if err == nil {
		err = rec.check()
	}
	switch {
	case err == nil:
		c.asking.OK()
		f.entry = &entry{rec: rec, bucket: c.bucket(&rec.Principal), asked: f.began}
		f.entry.incarnation.Store(f.incarnation)
		c.keep(hash, f.entry)
	case errors.Is(err, ErrUnknownKey):
		c.asking.OK()
		f.err = ErrUnknownKey
		c.forget(hash, f.began)
	default:
		if c.asking.Fail() {
			c.cfg.Log.WarnContext(ctx, "cannot verify API keys; known keys keep working for 30 seconds", "error", err)
		}
		f.err = fmt.Errorf("call auth: %w", err)
	}
	c.flightsMu.Lock()
	// A caller with a different demand may have replaced this flight.
	if c.flights[hash] == f {
		delete(c.flights, hash)
	}
	c.flightsMu.Unlock()
	close(f.done)
}

// keep stores e unless a newer entry is stored: flights may finish out of order.
func (c *Client) keep(hash string, e *entry) {
	// The key may have been looked up just before it was created.
	c.unknown.Invalidate(hash)
	c.known.Compute(hash, func(old *entry, found bool) (*entry, otter.ComputeOp) {
		if found && old.asked.After(e.asked) {
			return old, otter.CancelOp
		}
		return e, otter.WriteOp
	})
}

func (c *Client) forget(hash string, asked time.Time) {
	c.unknown.Set(hash, asked)
	c.known.ComputeIfPresent(hash, func(old *entry) (*entry, otter.ComputeOp) {
		if old.asked.After(asked) {
			return old, otter.CancelOp
		}
		return nil, otter.InvalidateOp
	})
}
