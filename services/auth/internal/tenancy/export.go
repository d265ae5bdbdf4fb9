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

// Limits of the exports of one replica: each keeps the services that hold records
// busy until its reader has read it all. An account may have two, so that one
// whose reader has gone away does not keep it from the next.
const (
	maxExportsOfAccount = 2
	maxExports          = 16
	// undisturbed is how long an export runs before it may be ended because another
	// account finds no place.
	undisturbed = 5 * time.Minute
	exportLater = 30 * time.Second
)

// exports are the ones that run, each with the account it is of.
type exports struct {
	slots *turns.Slots
	now   func() time.Time

	mu      sync.Mutex
	running []*export // the longest running first
}

type export struct {
	account string
	begun   time.Time
	end     context.CancelCauseFunc
}

// errPlaceTaken ends an export that has run for long.
var errPlaceTaken = &apierr.Error{
	Code: apierr.RateLimited, RetryAfter: exportLater,
	Message: "Another account needed the place of this export, which has run for long. Try again, and read faster.",
}

// begin finds a place for an export of an account. end gives it back. If there is no
// place, the one that has run longest is ended, so that the next try finds one: slow
// readers of a few accounts would hold all places for an hour.
func (x *exports) begin(ctx context.Context, account string) (_ context.Context, end func(), err error) {
	release, ok := x.slots.Take(account)
	if !ok {
		x.makeRoom(account, 0)
		return nil, nil, &apierr.Error{
			Code: apierr.RateLimited, RetryAfter: exportLater,
			Message: "Too many exports are running already. Try again when one of them has ended.",
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

// makeRoom ends the longest running export of another account, if it has run for
// long. An account that has more than own of them running has its share already.
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

// Line is a line of an export.
type Line struct {
	Type string `json:"type"`
	Data any    `json:"data"`
}

// Export notes that an export was asked for, and writes first, then what each
// holder has. RATE_LIMITED, before anything is written, when too many are running.
func (s *Service) Export(ctx context.Context, accountID string, first []Line, w io.Writer) error {
	ctx, end, err := s.exports.begin(ctx, accountID)
	if err != nil {
		return err
	}
	defer end()
	// Before the first byte, so that an export that breaks off is on record as well.
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
			s.exports.makeRoom(accountID, 1) // the holder has no place for it
		}
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		if err != nil {
			return fmt.Errorf("export what %s holds: %w", h.Name, err)
		}
	}
	return nil
}

// exported notes that an export was asked for, before it begins.
func (s *Service) exported(ctx context.Context, accountID string) error {
	return s.store.Atomically(ctx, "note export", func(tx account.Tx) error {
		a, err := tx.Account(accountID)
		if err == nil {
			tx.Tell(events.AccountExported, accountID, a)
		}
		return err
	})
}
