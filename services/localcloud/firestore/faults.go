package firestore

import (
	"context"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Fault describes a failure and when it occurs. Without Code, Delay, LoseAnswer or DiskFull, it has
// no effect.
type Fault struct {
	// Methods lists the affected methods, such as Commit or RunQuery. An empty list means every
	// method.
	Methods []string
	// Every makes the fault hit every n-th call. 0 and 1 mean every call. Counting starts when the
	// fault is added, so tests are repeatable.
	Every int
	// Times is the number of hits after which the fault ends. 0 means that it never ends.
	Times int
	// Delay is how long the call waits before it is processed.
	Delay time.Duration
	// Code is returned instead of processing the call, for example codes.Aborted or
	// codes.Unavailable.
	Code codes.Code
	// LoseAnswer makes the server process the call, including a commit, and then return Code, or
	// Unavailable if Code is not set. The caller cannot tell whether the call took effect.
	LoseAnswer bool
	// DiskFull makes the disk reject a commit's writes. Methods does not apply to DiskFull,
	// and Every counts batches, which may contain several commits.
	DiskFull bool
}

// Faults is a set of failures to inject. The zero value injects none. It is safe for concurrent
// use.
type Faults struct {
	mu     sync.Mutex
	active []*activeFault
}

type activeFault struct {
	Fault
	seen, hits int
}

// Add activates a fault and returns a function that removes it.
func (f *Faults) Add(x Fault) (remove func()) {
	a := &activeFault{Fault: x}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = append(f.active, a)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.active = slices.DeleteFunc(f.active, func(o *activeFault) bool { return o == a })
	}
}

// Clear removes all faults.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = nil
}

// strike counts a call for each fault for which concerns returns true, and returns the faults that
// hit the call.
func (f *Faults) strike(concerns func(*Fault) bool) []Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Fault
	for _, a := range f.active {
		if !concerns(&a.Fault) || a.Times > 0 && a.hits >= a.Times {
			continue
		}
		if a.seen++; a.Every <= 1 || a.seen%a.Every == 0 {
			a.hits++
			out = append(out, a.Fault)
		}
	}
	return out
}

// around makes a call with the faults that hit it. A fault may replace the call.
func (f *Faults) around(ctx context.Context, method string, call func() error) error {
	var lost error
	hits := f.strike(func(x *Fault) bool {
		return !x.DiskFull && (len(x.Methods) == 0 || slices.Contains(x.Methods, method))
	})
	for _, x := range hits {
		if x.Delay > 0 {
			if err := sleep(ctx, x.Delay); err != nil {
				return err
			}
		}
		switch {
		case x.LoseAnswer && x.Code != codes.OK:
			lost = status.Error(x.Code, "injected fault: the response was lost")
		case x.LoseAnswer:
			lost = status.Error(codes.Unavailable, "injected fault: the response was lost")
		case x.Code != codes.OK:
			return status.Errorf(x.Code, "injected fault: %v", x.Code)
		}
	}
	if err := call(); err != nil || lost == nil {
		return err
	}
	return lost
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-t.C:
		return nil
	}
}

// diskError returns the error that the faults inject into a batch, if any.
func (f *Faults) diskError() error {
	if len(f.strike(func(x *Fault) bool { return x.DiskFull })) > 0 {
		return syscall.ENOSPC
	}
	return nil
}
