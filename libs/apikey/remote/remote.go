// Package remote contains the client that services use to verify keys, and the auth routes that it
// calls.
package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/libs/peer"
)

// Auth's routes. The table in libs/peer lists all internal routes.
const (
	verifyPath = "/internal/v1/keys/verify"
	rightsPath = "/internal/v1/rights"
)

// The client and the routes share these types, so they cannot drift apart.
type (
	verifyAsk struct {
		Hash string `json:"hash"`
	}
	verifyAnswer struct {
		Record *apikey.Record `json:"record"` // null if the key does not exist
	}
	rightsAsk struct {
		AccountID string `json:"accountId"`
		ID        string `json:"id"`
	}
	rightsAnswer struct {
		Scopes identity.ScopeSet `json:"scopes"`
	}
)

// late is the time after which a call counts as late. Auth makes at most one round trip to
// Firestore per call.
const late = 700 * time.Millisecond

// Source verifies keys through auth's internal listener.
type Source struct{ auth *peer.Client }

var (
	_ apikey.Source = Source{}
	_ apikey.Rights = Source{}
)

// New returns a source for auth's internal URL, such as http://auth:8090, with the token that this
// service and auth share.
func New(baseURL, token string) Source { return Source{peer.NewClient(baseURL, token, 2*late)} }

// Close closes idle connections.
func (s Source) Close() { s.auth.Close() }

// Verify implements [apikey.Source].
func (s Source) Verify(ctx context.Context, hash string) (*apikey.Record, error) {
	a, err := twice(ctx, func(ctx context.Context) (a verifyAnswer, err error) {
		err = s.auth.Call(ctx, verifyPath, verifyAsk{hash}, &a)
		return a, err
	})
	if err != nil {
		return nil, err
	}
	if a.Record == nil {
		return nil, apikey.ErrUnknownKey
	}
	return a.Record, nil
}

// Scopes implements [apikey.Rights].
func (s Source) Scopes(ctx context.Context, accountID, id string) (identity.ScopeSet, error) {
	a, err := twice(ctx, func(ctx context.Context) (a rightsAnswer, err error) {
		err = s.auth.Call(ctx, rightsPath, rightsAsk{accountID, id}, &a)
		return a, err
	})
	return a.Scopes, err
}

// twice makes a call. If the call fails or is late, twice makes a second one because a connection
// to a replica that has just stopped may still look open. It returns the first successful response.
// The first call continues in parallel with the second. If it were cancelled, an auth that is
// merely busy would do the work twice, and its first response would be lost.
func twice[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*late)
	defer cancel()
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 2)
	begin := func() {
		go func() {
			value, err := ask(ctx)
			answers <- answer{value, err}
		}()
	}
	begin()
	again := time.After(late)
	for heard := 0; ; {
		select {
		case a := <-answers:
			heard++
			if a.err == nil || heard == 2 || again != nil && !outage.Pause(ctx, 20*time.Millisecond) {
				return a.value, a.err
			}
		case <-again:
		}
		if again != nil {
			again = nil // no third call
			begin()
		}
	}
}

// Routes adds auth's handlers for both routes to d.
func Routes(d *peer.Door, keys apikey.Source, rights apikey.Rights) {
	peer.Answer(d, verifyPath, func(ctx context.Context, q verifyAsk) (verifyAnswer, error) {
		if len(q.Hash) != 64 || strings.Trim(q.Hash, "0123456789abcdef") != "" {
			return verifyAnswer{}, apierr.Invalid(
				apierr.Detail{Field: "hash", Code: apierr.InvalidFormat, Message: "Send a SHA-256 in lower-case hex."},
			)
		}
		// No caller waits longer than this.
		ctx, cancel := context.WithTimeout(ctx, 2*late)
		defer cancel()
		r, err := keys.Verify(ctx, q.Hash)
		if err != nil && !errors.Is(err, apikey.ErrUnknownKey) {
			return verifyAnswer{}, apierr.Down(fmt.Errorf("verify key: %w", err))
		}
		return verifyAnswer{r}, nil
	})
	peer.Answer(d, rightsPath, func(ctx context.Context, q rightsAsk) (rightsAnswer, error) {
		if !identity.ValidID(q.AccountID) || !identity.ValidID(q.ID) {
			return rightsAnswer{}, apierr.Invalid(apierr.Detail{Field: "id", Code: apierr.InvalidFormat, Message: "Send the ids of an account and of a key or member."})
		}
		ctx, cancel := context.WithTimeout(ctx, 2*late)
		defer cancel()
		scopes, err := rights.Scopes(ctx, q.AccountID, q.ID)
		if err != nil {
			err = apierr.Down(fmt.Errorf("look up rights: %w", err))
		}
		return rightsAnswer{scopes}, err
	})
}
