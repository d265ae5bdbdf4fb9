package redirect

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/linkreel/linkreel/services/links/internal/link"
)

const (
	// agentsKept is the maximum number of user agents in a cache generation. Together, the two
	// generations take up about half a megabyte.
	agentsKept = 1 << 13
	// newAgents is the number of new user agents that a process parses per second, and agentsAtOnce
	// is the number in a burst, such as after startup. The limit is necessary because clients can
	// send any string, and parsing an agent costs more than the rest of a redirect.
	newAgents    = 500
	agentsAtOnce = 4096
)

// agents caches parsed user agents because a few agents account for nearly all requests. Its keys
// are hashes of the user agents, so its size does not depend on what clients send. The hash uses a
// secret seed, so clients cannot find two strings with the same hash.
//
// The cache has two generations. When the young generation is full, it becomes the old generation.
// An agent in the old generation that is used again moves to the young one. User agents that are
// sent only once therefore never evict the agents of real visitors, no matter how many there are.
type agents struct {
	seed   maphash.Seed
	second atomic.Int64 // the second when left was last increased
	left   atomic.Int64 // number of new agents that may still be parsed

	mu         sync.RWMutex
	young, old map[uint64]link.Agent
}

func newAgentCache() *agents {
	return &agents{seed: maphash.MakeSeed(), young: map[uint64]link.Agent{}}
}

// read returns the parsed user agent. When the budget for new agents is used up, the result for a
// new agent only reports whether the agent calls itself a robot.
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

// mayRead takes one agent from the budget for new agents and reports whether there was one left.
// Unlike rate.Limiter, which has a lock, it costs almost nothing when the budget is used up. At the
// start of a new second, slightly more agents may be parsed than the budget allows.
func (a *agents) mayRead(now time.Time) bool {
	second := now.Unix()
	if last := a.second.Load(); second != last && a.second.CompareAndSwap(last, second) {
		left := max(a.left.Load(), 0) + newAgents*max(second-last, 0) // the clock may be set back
		a.left.Store(min(left, agentsAtOnce))
	}
	return a.left.Load() > 0 && a.left.Add(-1) >= 0
}
