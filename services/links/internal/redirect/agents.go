package redirect

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/linkreel/linkreel/services/links/internal/link"
)

const (
	// agentsKept is how many user agents a generation of the cache has at most. The two
	// generations together take about half a megabyte.
	agentsKept = 1 << 13
	// newAgents is how many new user agents a process reads in a second, and agentsAtOnce how
	// many in a burst, such as after a start. Anybody can send any text, and reading one
	// costs more than the rest of a warm redirect.
	newAgents    = 500
	agentsAtOnce = 4096
)

// agents caches what user agents tell: few of them account for nearly all requests. It
// knows them by a hash of their text, so its memory does not depend on what strangers send.
// The hash has a secret seed: nobody can find texts that are mistaken for each other.
//
// The cache has two generations. When the young one is full it becomes the old one, and
// what is asked for again moves back. So a flood of texts that come once does not push out
// the agents of real visitors.
type agents struct {
	seed   maphash.Seed
	second atomic.Int64 // when left was last added to
	left   atomic.Int64 // new agents that may still be read

	mu         sync.RWMutex
	young, old map[uint64]link.Agent
}

func newAgentCache() *agents {
	return &agents{seed: maphash.MakeSeed(), young: map[uint64]link.Agent{}}
}

// read returns what a user agent tells. Beyond the budget for new agents it tells nothing,
// except that robots are still recognized by the words that they use for themselves.
func (a *agents) read(userAgent []byte, now time.Time) link.Agent {
	key := maphash.Bytes(a.seed, userAgent)
	a.mu.RLock()
	agent, young := a.young[key]
	old := false
	if !young {
		agent, old = a.old[key]
	}
	a.mu.RUnlock()
	switch {
	case young:
		return agent
	case !old && !a.mayRead(now):
		return link.Agent{Robot: link.IsRobot(userAgent)}
	case !old:
		agent = link.ReadAgent(string(userAgent))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.young) >= agentsKept {
		a.young, a.old = make(map[uint64]link.Agent, agentsKept), a.young
	}
	a.young[key] = agent
	return agent
}

// mayRead takes one from the budget for new agents. It costs next to nothing when the budget
// is spent, unlike a rate.Limiter with its lock. When the second changes, a few agents more
// may be read.
func (a *agents) mayRead(now time.Time) bool {
	second := now.Unix()
	if last := a.second.Load(); second != last && a.second.CompareAndSwap(last, second) {
		left := max(a.left.Load(), 0) + newAgents*max(second-last, 0) // a clock may step back
		a.left.Store(min(left, agentsAtOnce))
	}
	return a.left.Load() > 0 && a.left.Add(-1) >= 0
}
