package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/turns"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// Limits on the exports in one replica. Each export keeps the services that hold records busy until
// the client has read it to the end. An account may run two exports, so an export that nobody reads
// does not block the next one.
const (
	maxExportsOfAccount = 2
	maxExports          = 16
	// undisturbed is how long an export may run before it can be ended in favour of another
	// account.
	undisturbed = 5 * time.Minute
	exportLater = 30 * time.Second
)

// exports tracks the running exports.
type exports struct {
	slots *turns.Slots
	now   func() time.Time

	mu      sync.Mutex
	running []*export // the longest-running export first
}

type export struct {
	account string
	begun   time.Time
	end     context.CancelCauseFunc
}

// errPlaceTaken ends a long-running export to make room for another one.
var errPlaceTaken = &apierr.Error{
	Code: apierr.RateLimited, RetryAfter: exportLater,
	Message: "This export ran for a long time and was stopped to make room for another account. Try again, and read faster.",
}

// begin takes a slot for an export of an account. end releases it. If no slot is free, begin
// ends the longest-running export, so that the next attempt finds a free slot. Otherwise, slow
// clients from a few accounts could occupy all slots for an hour.
func (x *exports) begin(ctx context.Context, account string) (_ context.Context, end func(), err error) {
	release, ok := x.slots.Take(account)
	if !ok {
		x.makeRoom(account, 0)
		return nil, nil, &apierr.Error{
			Code: apierr.RateLimited, RetryAfter: exportLater,
			Message: "Too many exports are already running. Try again when one of them has finished.",
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	e := &export{account, x.now(), cancel}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.running = append(x.running, e)
	return ctx, func() {
		cancel(nil)
		x.mu.Lock()
		defer x.mu.Unlock()
		x.running = slices.DeleteFunc(x.running, func(o *export) bool { return o == e })
		release()
	}, nil
}

// makeRoom ends any other account's longest-running export, if it has run longer than undisturbed.
// It does nothing if account, which already has its share, runs more than own exports.
func (x *exports) makeRoom(account string, own int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var others []*export
	for _, e := range x.running {
		if e.account != account {
			others = append(others, e)
		}
	}
	if len(x.running)-len(others) > own {
		return
	}
	if len(others) > 0 && x.now().Sub(others[0].begun) > undisturbed {
		others[0].end(errPlaceTaken)
	}
}

// Line is one line in an export.
type Line struct {
	Type string `json:"type"`
	Data any    `json:"data"`
}

// Export records that an export was requested, and writes the lines in first followed by each
// holder's records. If too many exports are running, it returns RATE_LIMITED before it writes
// anything.
func (s *Service) Export(ctx context.Context, accountID string, first []Line, w io.Writer) error {
	ctx, end, err := s.exports.begin(ctx, accountID)
	if err != nil {
		return err
	}
	defer end()
	// Do this before the first byte, so that an interrupted export is also recorded.
	if err := s.exported(ctx, accountID); err != nil {
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, l := range first {
		if err := enc.Encode(l); err != nil {
			return fmt.Errorf("write export: %w", err)
		}
	}
	for _, h := range s.holders {
		err := h.Export(ctx, accountID, w)
		if apierr.CodeOf(err) == apierr.RateLimited {
			s.exports.makeRoom(accountID, 1) // the holder has no free slot
		}
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		if err != nil {
			return fmt.Errorf("export the records of %s: %w", h.Name, err)
		}
	}
	return nil
}

// exported writes an event for the requested export.
func (s *Service) exported(ctx context.Context, accountID string) error {
	return s.store.Atomically(ctx, "record export", func(tx account.Tx) error {
		a, err := tx.Account(accountID)
		if err == nil {
			tx.Tell(events.AccountExported, accountID, a)
		}
		return err
	})
}
