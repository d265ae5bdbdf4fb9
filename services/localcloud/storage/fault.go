package storage

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Fault makes matching calls fail in a certain way, until it is removed or has hit Times calls. An
// empty Call, Bucket or ObjectPrefix matches every call. A failure field with the zero value has no
// effect.
type Fault struct {
	// Call is a call's name ("objects.insert", "xml.put", …, see Faults.Calls), or the prefix of a
	// name followed by "*".
	Call string
	// Bucket and ObjectPrefix restrict the fault to certain objects.
	Bucket, ObjectPrefix string
	// Times is the number of calls that the fault hits before it ends. 0 means every matching call.
	Times int

	// Delay is how long the call waits before it is processed. Reset ends the wait early.
	Delay time.Duration
	// Status is returned immediately as an error, for example 503, and the call is not processed.
	Status int
	// CutRequest closes the connection after reading this many bytes of the request's body.
	CutRequest int64
	// CutResponse closes the connection after sending this many bytes of the response's body.
	CutResponse int64
	// LoseAnswer makes the server process the call, including the commit, and then close the
	// connection without a response.
	LoseAnswer bool

	lifted <-chan struct{} // closed by Reset; set when the fault has hit a call
}

// Faults injects failures into calls and counts the calls. It is safe for concurrent use.
type Faults struct {
	mu     sync.Mutex
	active []*Fault
	calls  map[string]int64
	lifted chan struct{} // closed by Reset
	any    atomic.Bool
	full   atomic.Bool
}

func newFaults() *Faults { return &Faults{calls: map[string]int64{}, lifted: make(chan struct{})} }

// Faults returns the failures that the server injects.
func (s *Server) Faults() *Faults { return s.faults }

// Inject adds a fault and returns a function that removes it. If several faults match a call, the
// first one that was injected applies.
func (f *Faults) Inject(x Fault) (remove func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &x
	f.active = append(f.active, p)
	f.any.Store(true)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.remove(p)
	}
}

func (f *Faults) remove(p *Fault) {
	for i, x := range f.active {
		if x == p {
			f.active = append(f.active[:i], f.active[i+1:]...)
			break
		}
	}
	f.any.Store(len(f.active) > 0)
}

// Reset ends all faults and resets the counts.
func (f *Faults) Reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active, f.calls = nil, map[string]int64{}
	close(f.lifted)
	f.lifted = make(chan struct{})
	f.any.Store(false)
	f.full.Store(false)
}

// DiskFull makes every write of bytes fail as if the disk were full, until it is called with false.
func (f *Faults) DiskFull(on bool) { f.full.Store(on) }

func (f *Faults) disk() error {
	if f.full.Load() {
		return syscall.ENOSPC
	}
	return nil
}

// Calls returns the number of calls by name: "objects.insert", "objects.get", "objects.media",
// "objects.list", "objects.delete", "objects.session", "xml.put", "xml.get", "xml.head",
// "xml.start", "xml.session", "xml.preflight" and others.
func (f *Faults) Calls() map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.calls)
}

// note counts a call and returns the fault that hits it, or nil.
func (f *Faults) note(call, bucket, object string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[call]++
	for _, x := range f.active {
		prefix, wild := strings.CutSuffix(x.Call, "*")
		if x.Call != "" && x.Call != call && !(wild && strings.HasPrefix(call, prefix)) ||
			x.Bucket != "" && x.Bucket != bucket || !strings.HasPrefix(object, x.ObjectPrefix) {
			continue
		}
		hit := *x
		hit.lifted = f.lifted
		if x.Times == 1 {
			f.remove(x)
		} else if x.Times > 1 {
			x.Times--
		}
		return &hit
	}
	return nil
}

// wrap runs next and applies the fault that hits the call, if any.
func (f *Faults) wrap(call, bucket, object string, w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	if call == "" {
		call = "unknown"
	}
	x := f.note(call, bucket, object)
	if x == nil {
		next(w, r)
		return
	}
	if x.Delay > 0 {
		select {
		case <-time.After(x.Delay):
		case <-x.lifted:
		case <-r.Context().Done():
			return
		}
	}
	if x.Status != 0 {
		e := fail(x.Status, "ServiceUnavailable", "Injected fault.")
		if strings.HasPrefix(call, "xml.") {
			writeXMLError(w, r, e)
		} else {
			writeJSONError(w, e)
		}
		return
	}
	if x.CutRequest > 0 {
		r.Body = &cutBody{ReadCloser: r.Body, left: x.CutRequest}
		defer panic(http.ErrAbortHandler)
	}
	if x.CutResponse > 0 {
		w = &cutWriter{ResponseWriter: w, left: x.CutResponse}
	}
	if x.LoseAnswer {
		w = &muteWriter{header: http.Header{}}
		defer panic(http.ErrAbortHandler)
	}
	next(w, r)
}

type cutBody struct {
	io.ReadCloser
	left int64
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

type cutWriter struct {
	http.ResponseWriter
	left int64
}

func (w *cutWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p[:min(int64(len(p)), w.left)])
	w.left -= int64(n)
	if err == nil && w.left <= 0 {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

func (w *cutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// muteWriter discards the response to a call with LoseAnswer.
type muteWriter struct{ header http.Header }

func (w *muteWriter) Header() http.Header         { return w.header }
func (w *muteWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *muteWriter) WriteHeader(int)             {}
