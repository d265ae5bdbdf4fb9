package video

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
)

// Rights returns the current scopes of a key or an account member. See apikey.Rights.
type Rights func(ctx context.Context, accountID, id string) (identity.ScopeSet, error)

// rightsStale is how long auth's last response is used while auth is unreachable. The same limit
// applies to API keys. This way, restarting auth does not interrupt any players.
const rightsStale = 30 * time.Second

// rights checks whether the key or member that an owner's URL was created for may still read the
// account's videos. It asks auth once per principal per lease, so a revocation takes effect within
// about a second.
type rights struct {
	ask Rights
	*leases[bool]

	mu   sync.Mutex
	last map[string]leased[bool] // auth's last response
}

func newRights(ask Rights) *rights {
	r := &rights{ask: ask, last: map[string]leased[bool]{}}
	r.leases = newLeases(r.look)
	return r
}

// may reports whether the key or member may read videos in the account.
func (r *rights) may(ctx context.Context, account, id string) (bool, error) {
	return r.of(ctx, account+"/"+id)
}

func (r *rights) look(ctx context.Context, name string) (bool, error) {
	account, id, _ := strings.Cut(name, "/")
	now := leased[bool]{began: time.Now()}
	scopes, err := r.ask(ctx, account, id)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		// Use the last response for another lease so that requests do not all wait while auth is
		// down.
		if old, ok := r.last[name]; ok && time.Since(old.began) < rightsStale {
			return old.value, nil
		}
		return false, apierr.Down(err)
	}
	if len(r.last) >= maxKnown {
		clear(r.last)
	}
	now.value = scopes.Has(identity.VideosRead)
	r.last[name] = now
	return now.value, nil
}

// principalOf returns the ID of the key or member that an owner's URL is created for. For a session
// it returns the member, so signing out does not interrupt any players.
func principalOf(p *identity.Principal) string {
	if p.Session {
		return p.MemberID
	}
	return p.KeyID
}
