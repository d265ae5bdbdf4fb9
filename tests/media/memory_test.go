package media

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/localcloud/procstat"
)

// gauge measures the memory of a worker and the programs that it has started. Every few
// milliseconds it reads their resident pages. It counts a shared page for each process.
type gauge struct {
	pid  int
	mu   sync.Mutex
	peak peaks
}

// peaks holds the largest values since the last call to take, in bytes.
type peaks struct{ all, tool int64 }

func (p peaks) String() string { return fmt.Sprintf("%d\t%d", p.all>>20, p.tool>>20) }

const lookEvery = 5 * time.Millisecond

func watch(t testing.TB, pid int) *gauge {
	g := &gauge{pid: pid}
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				g.look()
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
	return g
}

func (g *gauge) look() {
	var now peaks
	now.all, _ = procstat.Resident(g.pid) // 0 for a process that has exited
	for _, pid := range procstat.Descendants(g.pid) {
		size, _ := procstat.Resident(pid)
		now.all += size
		now.tool = max(now.tool, size)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.peak.all, g.peak.tool = max(g.peak.all, now.all), max(g.peak.tool, now.tool)
}

// take returns the peaks and resets them.
func (g *gauge) take() peaks {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.peak
	g.peak = peaks{}
	return p
}
