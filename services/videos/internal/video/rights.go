package video

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
)

// Rights tells what a key or a member of an account may do now; see apikey.Rights.
type Rights func(ctx context.Context, accountID, id string) (identity.ScopeSet, error)

// rightsStale is how long auth's last answer counts while it gives none, as for API
// keys. A restart of auth stops no player.
const rightsStale = 30 * time.Second

// rights answers whether whoever an owner's address was made for may still read the
// account's videos. It asks auth once per principal and lease, so a right that was
// taken away ends within about a second.
type rights struct {
	ask Rights
	*leases[bool]

	mu   sync.Mutex
	last map[string]leased[bool] // what auth said last
}

func newRights(ask Rights) *rights {
	r := &rights{ask: ask, last: map[string]leased[bool]{}}
	r.leases = newLeases(r.look)
	return r
}

// may reports whether the key or member may read videos of the account.
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
		// Counted for a lease as if it were new, so that not every request waits for an auth that is away.
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

// principalOf is who an owner's address is made for: the key, or the member of a
// session, so that signing out stops no player.
func principalOf(p *identity.Principal) string {
	if p.Session {
		return p.MemberID
	}
	return p.KeyID
}
