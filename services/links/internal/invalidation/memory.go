package invalidation

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/linkreel/linkreel/libs/cache"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Options configure a [Memory].
type Options struct {
	// Target reads the link for a slug key.
	Target func(ctx context.Context, key string) (t link.Target, found bool, err error)
	// Host reads a host name's record. The name must be in lower case.
	Host func(ctx context.Context, host string) (s link.Site, found bool, err error)
	// Suspended looks up whether an account's links are out of service.
	Suspended func(ctx context.Context, accountID string) (bool, error)
	// Capacity limits the memory for cached links, in bytes.
	Capacity int64
	// Partitions is the number of log partitions; 0 means 1.
	Partitions int
	Now        func() time.Time
}

// Memory caches links, hosts and accounts for a process.
type Memory struct {
	targets  []*cache.Cache[link.Target] // by partition
	hosts    *cache.Cache[link.Site]
	accounts *cache.Cache[bool]
	now      func() time.Time

	mu     sync.Mutex
	silent map[int]bool // number of partitions that are not synced
}

// NewMemory returns an empty memory.
func NewMemory(opt Options) *Memory {
	n := max(opt.Partitions, 1)
	if opt.Now == nil {
		opt.Now = time.Now
	}
	m := &Memory{now: opt.Now, silent: map[int]bool{}}
	for range n {
		m.targets = append(m.targets, cache.New(cache.Options[link.Target]{
			Load: opt.Target, Capacity: opt.Capacity / int64(n), Now: opt.Now, Weigh: weigh,
		}))
	}
	m.hosts = cache.New(cache.Options[link.Site]{Load: opt.Host, Capacity: 8 << 20, Now: opt.Now, Weigh: weighSite})
	// Nearly all accounts are in good standing and have no document. load reports them as found, so
	// the cache keeps them for as long as existing records.
	load := func(ctx context.Context, id string) (bool, bool, error) {
		suspended, err := opt.Suspended(ctx, id)
		return suspended, true, err
	}
	m.accounts = cache.New(cache.Options[bool]{Load: load, Capacity: 16 << 20, Now: opt.Now})
	return m
}

func weigh(t link.Target) int {
	n := 96 + len(t.LinkID) + len(t.AccountID) + len(t.Slug) + len(t.Location)
	if p := t.OpenGraph; p != nil {
		n += 48 + len(p.Title) + len(p.Description) + len(p.Image)
	}
	return n + t.Routing.Size()
}

func weighSite(s link.Site) int {
	n := 64 + len(s.DomainID) + len(s.AccountID)
	if p := s.Pages; p != nil {
		n += 64 + len(p.Home) + len(p.NotFound) + len(p.Expired)
	}
	return n
}

// Partition returns which of n partitions a slug key belongs to.
func Partition(slugKey string, n int) int {
	if n <= 1 {
		return 0
	}
	h := uint32(2166136261) // FNV-1a; must never change, because stored data depends on it
	for i := range len(slugKey) {
		h = (h ^ uint32(slugKey[i])) * 16777619
	}
	return int(h % uint32(n))
}

// Partitions returns the number of partitions.
func (m *Memory) Partitions() int { return len(m.targets) }

// Len returns the approximate number of cached links.
func (m *Memory) Len() (n int) {
	for _, t := range m.targets {
		n += t.Len()
	}
	return n
}

// Invalidate drops the entries for keys.
func (m *Memory) Invalidate(keys ...string) {
	var hosts, accounts []string
	slugs := make([][]string, len(m.targets))
	for _, k := range keys {
		switch {
		case strings.Contains(k, "|"):
			part := Partition(k, len(m.targets))
			slugs[part] = append(slugs[part], k)
		case k == everything:
			for p := range m.targets {
				m.invalidateAll(p)
			}
		case strings.HasPrefix(k, "@"):
			accounts = append(accounts, k[1:])
		default:
			hosts = append(hosts, k)
		}
	}
	for p, keys := range slugs {
		m.targets[p].Invalidate(keys...)
	}
	m.hosts.Invalidate(hosts...)
	m.accounts.Invalidate(accounts...)
}

// invalidateAll drops all links in a partition after log entries were missed. It also drops all
// hosts and accounts because the missed entries may have contained their keys.
func (m *Memory) invalidateAll(part int) {
	m.targets[part].InvalidateAll()
	m.hosts.InvalidateAll()
	m.accounts.InvalidateAll()
}

func (m *Memory) setSynced(part int, synced bool) {
	m.targets[part].SetSynced(synced)
	m.mu.Lock()
	defer m.mu.Unlock()
	if synced {
		delete(m.silent, part)
	} else {
		m.silent[part] = true
	}
	// All partitions share hosts and accounts, so hosts and accounts are synced only if all
	// partitions are.
	m.hosts.SetSynced(len(m.silent) == 0)
	m.accounts.SetSynced(len(m.silent) == 0)
}

func (m *Memory) markUncertain(part int) {
	m.targets[part].MarkUncertain()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent[part] = true
	m.hosts.MarkUncertain()
	m.accounts.MarkUncertain()
}

// Answer is the result of resolving a short URL, together with everything that the result depends
// on. The zero Answer does not depend on anything.
type Answer struct {
	memory  *Memory
	at      time.Time
	key     string
	part    int
	target  cache.Lookup[link.Target]
	host    cache.Lookup[link.Site]
	account cache.Lookup[bool]
}

// Target returns the link, or nil if there is none.
func (a *Answer) Target() *link.Target {
	if a.target.Entry == nil || !a.target.Found {
		return nil
	}
	return &a.target.Value
}

// Pages returns the visited custom host's pages, or nil.
func (a *Answer) Pages() *link.Pages {
	if a.host.Entry == nil || !a.host.Found {
		return nil
	}
	return a.host.Value.Pages
}

// DomainID returns the ID of the domain that owns the visited custom host, or "".
func (a *Answer) DomainID() string {
	if !a.KnowsHost() {
		return ""
	}
	return a.host.Value.DomainID
}

// KnowsHost reports whether the visited host is a custom host with an owner.
func (a *Answer) KnowsHost() bool { return a.host.Entry != nil && a.host.Found }

// Suspended reports whether the account that owns the link or the host's pages is out of service.
func (a *Answer) Suspended() bool { return a.account.Entry != nil && a.account.Value }

// Key returns the slug's key; see [link.SlugKey]. It is "" if the host is unknown.
func (a *Answer) Key() string { return a.key }

// At returns when the response was resolved.
func (a *Answer) At() time.Time { return a.at }

// Partition returns the partition whose log confirms the response.
func (a *Answer) Partition() int { return a.part }

// Current returns false if anything that the response depends on has been invalidated since it was
// resolved.
func (a *Answer) Current() bool {
	m := a.memory
	return (a.target.Entry == nil || m.targets[a.part].Current(a.target)) &&
		(a.host.Entry == nil || m.hosts.Current(a.host)) &&
		(a.account.Entry == nil || m.accounts.Current(a.account))
}

// Expired reports whether the response is too old to be sent unconfirmed.
func (a *Answer) Expired() bool {
	m := a.memory
	return a.target.Entry != nil && m.targets[a.part].Expired(a.target) ||
		a.host.Entry != nil && m.hosts.Expired(a.host) ||
		a.account.Entry != nil && m.accounts.Expired(a.account)
}

// Resolve finds the link with a folded slug on host. An empty host means the default short host.
// With an empty slug, Resolve looks up only the host. Resolve calls wait before it reads the store.
// wait returns the context for the read, or an error to prevent it. known reports whether an older
// value is cached.
func (m *Memory) Resolve(a *Answer, wait func(known bool) (context.Context, error), host, folded string) (err error) {
	*a = Answer{memory: m, at: m.now()}
	domainID := ""
	if host != "" {
		if a.host, err = lookUp(m, m.hosts, &a.at, wait, host); err != nil {
			return err
		}
		if !a.host.Found {
			// No slug is involved. Hosts are announced to every partition, so any partition can
			// confirm that the host is unknown.
			a.part = Partition(host, len(m.targets))
			return nil
		}
		domainID = a.host.Value.DomainID
		if folded == "" {
			a.part = Partition(host, len(m.targets))
			return m.standing(a, wait)
		}
	}
	key := link.SlugKey(domainID, folded)
	a.key, a.part = key, Partition(key, len(m.targets))
	if a.target, err = lookUp(m, m.targets[a.part], &a.at, wait, key); err != nil {
		return err
	}
	if !a.target.Found {
		return m.standing(a, wait)
	}
	return m.accountOf(a, wait, a.target.Value.AccountID)
}

// standing looks up the account of a host that has pages.
func (m *Memory) standing(a *Answer, wait func(known bool) (context.Context, error)) error {
	if a.Pages() == nil {
		return nil
	}
	return m.accountOf(a, wait, a.host.Value.AccountID)
}

// accountOf looks up an account. Its link or host exists, so reading the account must not count as
// a miss.
func (m *Memory) accountOf(a *Answer, wait func(known bool) (context.Context, error), id string) (err error) {
	a.account, err = lookUp(m, m.accounts, &a.at, func(bool) (context.Context, error) { return wait(true) }, id)
	return err
}

// Owner reports whether a domain owns a host name. The name must be in lower case. For wait, see
// [Memory.Resolve].
func (m *Memory) Owner(wait func(known bool) (context.Context, error), host string) (found bool, err error) {
	now := m.now()
	l, err := lookUp(m, m.hosts, &now, wait, host)
	return err == nil && l.Found, err
}

// lookUp returns a value that is valid at the time in now. If it has to read the store, it updates
// now afterwards. Reading the clock for every lookup would be a large part of the cost of serving a
// visit from the cache.
func lookUp[V any](
	m *Memory, c *cache.Cache[V], now *time.Time, wait func(known bool) (context.Context, error), key string,
) (cache.Lookup[V], error) {
	if l, ok := c.Peek(key, *now); ok {
		return l, nil
	}
	ctx, err := wait(c.Holds(key))
	if err != nil {
		return cache.Lookup[V]{}, err
	}
	l, err := c.Get(ctx, key)
	*now = m.now()
	return l, err
}
