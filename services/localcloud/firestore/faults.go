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

// Fault is one kind of failure and when it strikes. Without Code, Delay,
// LoseAnswer or DiskFull it does nothing.
type Fault struct {
	// Methods are names such as Commit or RunQuery. None means every method.
	Methods []string
	// Every n-th call is hit; 0 and 1 mean each one. Calls are counted from
	// when the fault was added, therefore tests are repeatable.
	Every int
	// Times is after how many hits the fault is over. 0 means never.
	Times int
	// Delay is waited before the call is worked on.
	Delay time.Duration
	// Code is answered instead of working on the call, for instance
	// codes.Aborted or codes.Unavailable.
	Code codes.Code
	// LoseAnswer does the work, a commit included, and then answers Code, or
	// Unavailable. The caller cannot know what happened.
	LoseAnswer bool
	// DiskFull lets the disk refuse what a commit writes. Methods does not
	// count for it; Every counts batches, which may hold several commits.
	DiskFull bool
}

// Faults is a set of failures to inject. The zero value injects none. It is
// safe for concurrent use.
type Faults struct {
	mu     sync.Mutex
	active []*activeFault
}

type activeFault struct {
	Fault
	seen, hits int
}

// Add puts a fault into force and answers how to lift it again.
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

// Clear lifts all faults.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active = nil
}

// strike counts a call for the faults that concern it and answers those that hit.
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

// around lets a call pass through the faults that hit it.
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
			lost = status.Error(x.Code, "injected fault: the answer was lost")
		case x.LoseAnswer:
			lost = status.Error(codes.Unavailable, "injected fault: the answer was lost")
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

// diskError is what the disk says to a batch.
func (f *Faults) diskError() error {
	if len(f.strike(func(x *Fault) bool { return x.DiskFull })) > 0 {
		return syscall.ENOSPC
	}
	return nil
}
