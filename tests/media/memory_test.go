package media

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// gauge watches how much memory a worker and the programs it started have, by
// looking at their resident pages every few milliseconds. Pages that processes
// share are counted for each.
type gauge struct {
	pid  int
	mu   sync.Mutex
	peak peaks
}

// peaks are the largest values since the last look, in bytes.
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
	now := peaks{all: resident(g.pid)}
	for _, pid := range descendants(g.pid) {
		size := resident(pid)
		now.all += size
		now.tool = max(now.tool, size)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.peak.all, g.peak.tool = max(g.peak.all, now.all), max(g.peak.tool, now.tool)
}

// take answers the peaks and begins anew.
func (g *gauge) take() peaks {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.peak
	g.peak = peaks{}
	return p
}

func resident(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0 // it has ended
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize())
}

func descendants(pid int) (all []int) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil
	}
	for _, task := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		if err != nil {
			continue
		}
		for _, f := range bytes.Fields(text) {
			if child, err := strconv.Atoi(string(f)); err == nil {
				all = append(append(all, child), descendants(child)...)
			}
		}
	}
	return all
}
