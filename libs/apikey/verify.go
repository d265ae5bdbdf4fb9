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

// ErrUnknownKey is the answer of a [Source] that has looked and found no key.
// Any other error means that it could not look.
var ErrUnknownKey = errors.New("unknown API key")

// Source knows the keys.
type Source interface {
	// Verify finds the key with the hash that [identity.Key.Hash] gives, with
	// its account. The record must hold every change that was committed before
	// the call began, and its parts must fit together: a version belongs to all
	// changes up to it. Revoked and expired keys and suspended accounts are
	// records too. A key that does not exist is ErrUnknownKey.
	Verify(ctx context.Context, hash string) (*Record, error)
}

// Record is what is known of a key and its account. It is shared between
// requests and never changed.
type Record struct {
	identity.Principal
	Revoked bool
	// ExpiresAt is in milliseconds since 1970, or [Never]. Callers may name the end of a
	// key in a year that JSON's form of a time cannot hold.
	ExpiresAt int64

	// Version grows with each change of what the account or any of its keys may do.
	Version int64
}

// Never is the ExpiresAt of a key without an end: what [time.Time.UnixMilli] gives for the
// zero time.
const Never = -62135596800000

// refusal is why a known key is not accepted at now; nil if it is. Both reasons
// are final: a revoked or expired key never comes back, so nothing newer has to
// be asked to refuse it.
func (r *Record) refusal(now time.Time) error {
	switch {
	case r.Revoked:
		if r.Session {
			return apierr.New(apierr.APIKeyRevoked, "This session has ended. Sign in again.")
		}
		return apierr.New(apierr.APIKeyRevoked, "This API key has been revoked.")
	case r.ExpiresAt != Never && now.UnixMilli() >= r.ExpiresAt:
		if r.Session {
			return apierr.New(apierr.APIKeyExpired, "This session has expired. Sign in again.")
		}
		return apierr.New(apierr.APIKeyExpired, "This API key has expired.")
	}
	return nil
}

func (r *Record) check() error {
	if r.KeyID == "" || r.AccountID == "" || r.Version < 1 || r.PerMinute < 1 || r.Plan < identity.Free || r.Plan > identity.Enterprise {
		return errors.New("incomplete key record")
	}
	// The session of somebody who was removed is revoked, and has no role any more.
	if r.Session && (r.MemberID == "" || !r.Revoked && !r.Role.AtLeast(identity.Viewer)) {
		return errors.New("session record without a member")
	}
	return nil
}

// Rights knows what keys and members may do now, by their public ids. It is for
// what was given out on somebody's behalf and must end with their right to it.
type Rights interface {
	// Scopes are what the key or the member with this id may do in the account. A
	// key that was revoked or has expired, a member who was removed, and an id that
	// is not of this account have none. The answer holds every change that was
	// committed before the call began.
	Scopes(ctx context.Context, accountID, id string) (identity.ScopeSet, error)
}

// flight is one in-flight verification. It outlives the request that began it,
// so that a slow answer still serves the next one.
type flight struct {
	incarnation int64
	began       time.Time
	done        chan struct{}
	entry       *entry
	err         error
}

// demand is what a verification must satisfy to be of use.
type demand struct {
	incarnation int64     // verified after this incarnation was seen; 0 asks for nothing
	under       int64     // or, asking for nothing, the incarnation that a new verification notes
	after       time.Time // and not begun before
	version     int64     // for a record that is there already: at least this one
}

func (f *flight) meets(d demand) bool {
	return !f.began.Before(d.after) && (d.incarnation == 0 || f.incarnation == d.incarnation)
}

func (e *entry) meets(d demand) bool {
	return !e.asked.Before(d.after) && (d.incarnation == 0 || e.incarnation.Load() == d.incarnation) && e.rec.Version >= d.version
}

// current gives a record that is young enough to be used if Redis confirms it.
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
		return e, nil // final: nothing newer can change it
	case age < freshFor*4/5:
		return e, nil
	case age < freshFor:
		// Ask ahead, so that a key in steady use never waits.
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

// look verifies a key that this replica knows nothing of, within the budget of
// misses of the client's network.
func (c *Client) look(ctx context.Context, hash string, from netip.Addr) (*entry, error) {
	if from.IsValid() {
		if wait := c.misses.Wait(from); wait > 0 {
			return nil, &apierr.Error{Code: apierr.RateLimited, RetryAfter: wait,
				Message: "Too many requests with API keys that do not exist came from your network. Try again after the time in Retry-After."}
		}
	}
	e, err := c.verify(ctx, hash, nil, demand{}, c.patience(false))
	if from.IsValid() && errors.Is(err, ErrUnknownKey) {
		c.misses.Miss(from)
	}
	return e, err
}

// lasting is how long auth must have been away before it counts for a key that is new
// here. One verification that fails says little, and another account's may be at fault.
const lasting = time.Second

// patience is how long to wait for auth. While it is away, requests that have
// something to fall back on do not wait at all, and of the others, once that lasts, one
// a rest waits long enough to see it come back.
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

// verify waits for a verification that meets d, unless another request has just made one.
// It joins one in flight. old is the entry that will not do, nil if there was none.
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

// start begins a verification unless one that meets d is in flight, or has ended
// since the caller found old. Otherwise each caller that waited for the lock would
// ask again. A caller that will not wait begins one only as often as the breaker allows:
// otherwise steady traffic with known keys becomes a storm of connections.
func (c *Client) start(ctx context.Context, hash string, old *entry, d demand, waits bool) *flight {
	c.flightsMu.Lock()
	defer c.flightsMu.Unlock()
	if f := c.flights[hash]; f != nil && f.meets(d) {
		return f
	}
	if e, ok := c.known.GetIfPresent(hash); ok && e != old && e.meets(d) {
		return landed(&flight{entry: e})
	}
	// A remembered "no such key" answers only callers without a demand. A demand comes from a later
	// change, which may have made the key.
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

// landed is a flight whose answer was there already.
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
			c.cfg.Log.WarnContext(ctx, "cannot verify API keys; known ones keep working for a while", "error", err)
		}
		f.err = fmt.Errorf("ask auth: %w", err)
	}
	c.flightsMu.Lock()
	if c.flights[hash] == f {
		delete(c.flights, hash)
	}
	c.flightsMu.Unlock()
	close(f.done)
}

// keep stores e unless something newer is there: flights may land out of order.
func (c *Client) keep(hash string, e *entry) {
	// It may have been looked for just before it was made.
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
