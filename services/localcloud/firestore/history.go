package firestore

import (
	"sort"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// These constants bound the past states that can be read. Production keeps them for an hour. This
// server keeps them for a minute, or less if many large documents change.
const (
	historyWindow   = int64(60e6)
	historyMaxBytes = 64 << 20
)

// history stores the previous states of recently changed documents. Together with the current
// state, it provides the state at an earlier time for transactions, read times and resumed
// listeners.
type history struct {
	mu      sync.RWMutex
	entries []pastVersion // by time
	floor   int64         // states before this time are no longer available
	bytes   int
}

type pastVersion struct {
	at     int64
	name   string
	before []byte // nil if the document did not exist
}

func newHistory(floor int64) *history { return &history{floor: floor} }

// add must be called before the commit becomes visible, so a reader that sees the commit also finds
// the previous state.
func (h *history) add(v pastVersion) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, v)
	h.bytes += len(v.before) + len(v.name) + 48
}

// retract removes all commits after a given time, because they have failed. If one of them was a
// Wipe, the states before that time remain unavailable.
func (h *history) retract(after int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.after(after)
	for _, v := range h.entries[n:] {
		h.bytes -= len(v.before) + len(v.name) + 48
	}
	clear(h.entries[n:])
	h.entries, h.floor = h.entries[:n], min(h.floor, after)
}

func (h *history) prune(now int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for n < len(h.entries) && (h.entries[n].at < now-historyWindow || h.bytes > historyMaxBytes) {
		h.bytes -= len(h.entries[n].before) + len(h.entries[n].name) + 48
		h.floor = h.entries[n].at
		n++
	}
	if n == 0 {
		return
	}
	if n > len(h.entries)/2 { // copy the rest, to release the memory
		h.entries = append([]pastVersion(nil), h.entries[n:]...)
		return
	}
	clear(h.entries[:n])
	h.entries = h.entries[n:]
}

// forget makes every earlier state unreadable.
func (h *history) forget(at int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries, h.bytes, h.floor = nil, 0, at
}

// after returns the index of the first entry later than at. The caller holds mu.
func (h *history) after(at int64) int {
	return sort.Search(len(h.entries), func(i int) bool { return h.entries[i].at > at })
}

// before returns the documents that changed after at, up to and including upTo, as they were at
// time at.
func (h *history) before(at, upTo int64) (map[string][]byte, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if at < h.floor {
		return nil, status.Error(codes.FailedPrecondition, "The requested snapshot version is too old.")
	}
	out := map[string][]byte{}
	for _, v := range h.entries[h.after(at):] {
		if v.at > upTo {
			break
		}
		if _, ok := out[v.name]; !ok {
			out[v.name] = v.before
		}
	}
	return out, nil
}

// touched reports whether a document for which match returns true may have changed after the time
// at.
func (h *history) touched(at int64, match func(name string) bool) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if at < h.floor {
		return true
	}
	for _, v := range h.entries[h.after(at):] {
		if match(v.name) {
			return true
		}
	}
	return false
}
