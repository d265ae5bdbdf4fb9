package redirect

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/linkreel/linkreel/services/links/internal/link"
)

const (
	// agentsKept is the maximum number of user agents in a generation of the cache. The two
	// generations together take about half a megabyte.
	agentsKept = 1 << 13
	// newAgents is how many new user agents a process parses per second, and agentsAtOnce is
	// how many it parses in a burst, such as after a start. There must be a limit: anybody can
	// send any text, and parsing one costs more than the rest of a warm redirect.
	newAgents    = 500
	agentsAtOnce = 4096
)

// agents caches parsed user agents, because few of them account for nearly all requests. Its
// keys are hashes of their texts, so its memory does not depend on what strangers send. The
// hash has a secret seed, so that nobody can find two texts with the same hash.
//
// The cache has two generations. When the young one is full, it becomes the old one. An
// agent of the old one that is used again moves to the young one. So a flood of texts that
// are sent only once does not evict the agents of real visitors.
type agents struct {
	seed   maphash.Seed
	second atomic.Int64 // the second in which left was last increased
	left   atomic.Int64 // how many new agents may still be parsed

	mu         sync.RWMutex
	young, old map[uint64]link.Agent
}

func newAgentCache() *agents {
	return &agents{seed: maphash.MakeSeed(), young: map[uint64]link.Agent{}}
}

// read returns the parsed user agent. When the budget for new agents is spent, it reports
// nothing about a new agent, except whether the agent calls itself a robot.
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

// mayRead takes one from the budget for new agents and reports whether one was left. Unlike
// a rate.Limiter with its lock, it costs next to nothing when the budget is spent. Around
// the change of a second, a few more agents than the budget may be parsed.
func (a *agents) mayRead(now time.Time) bool {
	second := now.Unix()
	if last := a.second.Load(); second != last && a.second.CompareAndSwap(last, second) {
		left := max(a.left.Load(), 0) + newAgents*max(second-last, 0) // a clock may step back
		a.left.Store(min(left, agentsAtOnce))
	}
	return a.left.Load() > 0 && a.left.Add(-1) >= 0
}
