// Package authtest provides a fake auth service for tests of services that accept API keys. It
// creates keys, verifies them, and lets a test change their rights.
package authtest

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/apikey/remote"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/peer"
	"github.com/linkreel/linkreel/libs/peer/peertest"
	"github.com/valyala/fasthttp"
)

// Token is the internal token that services must send to [Auth].
const Token = "internal-token"

// Auth is a fake auth service that holds the keys for one test.
type Auth struct {
	// URL is the base URL for the services under test.
	URL string

	away atomic.Bool

	mu      sync.Mutex
	records map[string]*apikey.Record // by the key's hash
}

// Start runs an auth service until the test ends.
func Start(tb testing.TB) *Auth {
	tb.Helper()
	a := &Auth{records: map[string]*apikey.Record{}}
	api := httpapi.New(httpapi.Options{Name: "auth", Peers: true})
	remote.Routes(peer.NewDoor(api, map[peer.Service]string{peer.Links: Token, peer.Videos: Token, peer.Events: Token}), a, a)
	handler := api.Handler()
	a.URL = peertest.Serve(tb, func(ctx *fasthttp.RequestCtx) {
		if a.away.Load() {
			ctx.SetStatusCode(fasthttp.StatusServiceUnavailable)
			return
		}
		handler(ctx)
	})
	return a
}

// Key creates a key for an account, with every scope and a rate limit too high for any test to
// reach. It returns the key's secret.
func (a *Auth) Key(tb testing.TB, account string, plan identity.Plan, edit ...func(*apikey.Record)) string {
	tb.Helper()
	key := identity.NewKey(rand.Reader)
	r := &apikey.Record{
		Principal: identity.Principal{
			KeyID: "key_" + account, KeyName: "Deploy", Scopes: identity.AllScopes,
			AccountID: account, AccountName: account, Plan: plan, PerMinute: 10_000_000,
		},
		ExpiresAt: apikey.Never, Version: 1,
	}
	for _, e := range edit {
		e(r)
	}
	a.Put(key, r)
	return key.Secret()
}

// Put stores r as the record for a key or session.
func (a *Auth) Put(key identity.Key, r *apikey.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records[key.Hash()] = r
}

// Change edits every key of an account. A service that has cached a record sees the
// change once its copy is five seconds old.
func (a *Auth) Change(account string, edit func(*apikey.Record)) {
	a.Edit(func(r *apikey.Record) bool { return r.AccountID == account }, edit)
}

// Edit is like [Auth.Change], but edits all keys that match the filter.
func (a *Auth) Edit(which func(*apikey.Record) bool, edit func(*apikey.Record)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for hash, r := range a.records {
		if which(r) {
			changed := *r
			edit(&changed)
			a.records[hash] = &changed
		}
	}
}

// Away sets whether Auth responds to every call with a 503.
func (a *Auth) Away(away bool) { a.away.Store(away) }

// Scopes implements [apikey.Rights]. It finds keys by their ids and members by their
// sessions.
func (a *Auth) Scopes(_ context.Context, accountID, id string) (identity.ScopeSet, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.records {
		mine := r.KeyID == id || r.Session && r.MemberID == id
		if r.AccountID == accountID && mine && !r.Revoked && r.ExpiresAt == apikey.Never {
			return r.Scopes, nil
		}
	}
	return 0, nil
}

// Verify implements [apikey.Source].
func (a *Auth) Verify(_ context.Context, hash string) (*apikey.Record, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r, ok := a.records[hash]; ok {
		return r, nil
	}
	return nil, apikey.ErrUnknownKey
}
