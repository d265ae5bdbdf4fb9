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

// flight is one in-flight verification. It outlives the request that began it,
// so that a slow answer still serves the next one.
type flight struct {
	incarnation string
	began       time.Time
	done        chan struct{}
	entry       *entry
	err         error
}

// demand is what a verification must satisfy to be of use.
type demand struct {
	incarnation string    // verified after this incarnation was seen; "" asks for nothing
	under       string    // or, asking for nothing, the incarnation that a new verification notes
	after       time.Time // and not begun before
	version     int64     // for a record that is there already: at least this one
}

func (f *flight) meets(d demand) bool {
	return !f.began.Before(d.after) && (d.incarnation == "" || f.incarnation == d.incarnation)
}

func (e *entry) meets(d demand) bool {
	return !e.asked.Before(d.after) && (d.incarnation == "" || e.incarnation == d.incarnation) && e.rec.Version >= d.version
}

// renew is verify, unless another request has just done it.
func (c *Client) renew(ctx context.Context, hash string, d demand, wait time.Duration) (*entry, error) {
	if e, ok := c.known.GetIfPresent(hash); ok && e.meets(d) {
		return e, nil
	}
	return c.verify(ctx, hash, nil, d, wait)
}

// current gives a record that is young enough to be used if Redis confirms it.
func (c *Client) current(ctx context.Context, hash string) (*entry, error) {
	now := c.cfg.Now()
	e, ok := c.known.GetIfPresent(hash)
	if !ok {
		if asked, ok := c.unknown.GetIfPresent(hash); ok && now.Sub(asked) < c.cfg.Negative {
			return nil, ErrUnknownKey
		}
		degraded.WithLabelValues("cold").Inc()
		return c.look(ctx, hash)
	}
	switch age := now.Sub(e.asked); {
	case e.rec.refused(now):
		return e, nil // final: nothing newer can change it
	case age < c.cfg.Fresh*4/5:
		return e, nil
	case age < c.cfg.Fresh:
		// Ask ahead, so that a key in steady use never waits.
		c.start(ctx, hash, e, demand{incarnation: e.incarnation})
		return e, nil
	}
	usable := now.Sub(e.asked) <= c.cfg.Stale
	fresh, err := c.verify(ctx, hash, e, demand{incarnation: e.incarnation}, c.patience(usable))
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
func (c *Client) look(ctx context.Context, hash string) (*entry, error) {
	client, named := ctx.Value(clientKey{}).(netip.Addr)
	if named {
		if wait := c.cfg.Misses.Wait(client); wait > 0 {
			return nil, &apierr.Error{Code: apierr.RateLimited, RetryAfter: wait,
				Message: "Too many requests with API keys that do not exist came from your network. Try again after the time in Retry-After."}
		}
	}
	e, err := c.verify(ctx, hash, nil, demand{}, c.patience(false))
	if named && errors.Is(err, ErrUnknownKey) {
		c.cfg.Misses.Miss(client)
	}
	return e, err
}

type clientKey struct{}

// WithClient names the address that a request comes from. Without it a request
// has no budget of misses.
func WithClient(ctx context.Context, addr netip.Addr) context.Context {
	return context.WithValue(ctx, clientKey{}, addr)
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

// verify waits for a verification that meets d, and joins one in flight if it does.
// old is the entry that will not do, nil if there was none.
func (c *Client) verify(ctx context.Context, hash string, old *entry, d demand, wait time.Duration) (*entry, error) {
	// Else steady traffic with known keys becomes a storm of connections.
	if wait <= 0 && !c.asking.Allow() {
		return nil, errSlow
	}
	f := c.start(ctx, hash, old, d)
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
// ask again.
func (c *Client) start(ctx context.Context, hash string, old *entry, d demand) *flight {
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
	if asked, ok := c.unknown.GetIfPresent(hash); ok && old == nil && d == (demand{}) && c.cfg.Now().Sub(asked) < c.cfg.Negative {
		return landed(&flight{err: ErrUnknownKey})
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
		f.entry = c.entry(rec, f)
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

func (c *Client) entry(rec *Record, f *flight) *entry {
	return &entry{
		rec: rec,
		principal: &identity.Principal{
			AccountID: rec.AccountID, AccountName: rec.AccountName, Plan: rec.Plan, Suspended: rec.Suspended,
			KeyID: rec.KeyID, KeyName: rec.KeyName, Scopes: rec.Scopes, Quotas: rec.Quotas,
			Session: rec.Session, MemberID: rec.MemberID, MemberName: rec.MemberName, Role: rec.Role,
		},
		bucket:      c.bucket(rec.AccountID, bucketOwner(rec.Session, rec.MemberID)),
		incarnation: f.incarnation,
		asked:       f.began,
	}
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

// adopt notes the incarnation under which Redis accepted e.
func (c *Client) adopt(hash string, e *entry, incarnation string) *entry {
	tagged := *e
	tagged.incarnation = incarnation
	c.known.Compute(hash, func(old *entry, found bool) (*entry, otter.ComputeOp) {
		if !found || old != e {
			return old, otter.CancelOp
		}
		return &tagged, otter.WriteOp
	})
	return &tagged
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
