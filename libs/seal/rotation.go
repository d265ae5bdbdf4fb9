package seal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// Rotation seals again, with the first key, what the other keys seal, so that those can
// be dropped. A record that cannot be sealed again keeps no other from its turn. One
// goroutine does the rounds.
type Rotation struct {
	Keys *Keys
	What string // is sealed, for the log
	// List gives the ids of some records that one of keyIDs seals, in order and behind
	// after; none at the end.
	List func(ctx context.Context, keyIDs []string, after string) (ids []string, err error)
	// Reseal seals one record again; ErrCurrent when that needs nothing.
	Reseal func(ctx context.Context, id string) error
	// Left is called when every record has had its turn, with how many failed.
	Left func(records int)
	// Unopened, if set, counts records that no key opens. The first look logs it.
	Unopened func(ctx context.Context) (int64, error)

	after  string // the record that was tried last
	left   int
	looked bool
}

// ErrCurrent says that the first key seals a record already.
var ErrCurrent = errors.New("the first key seals it already")

// inRound bounds how many records a round tries: other work may wait for its end.
const inRound = 500

// Again seals with the first key what another one seals.
func (k *Keys) Again(name string, sealed []byte) ([]byte, error) {
	if IDOf(sealed) == k.ID() {
		return nil, ErrCurrent
	}
	plain, err := k.Open(name, sealed)
	if err != nil {
		return nil, err
	}
	return k.Seal(name, plain), nil
}

// Round continues where the last round ended.
func (r *Rotation) Round(ctx context.Context) error {
	var last error
	tried, again, failed, ended := 0, 0, 0, false
	older := r.Keys.OlderIDs()
	for tried < inRound && !ended {
		page, err := r.page(ctx, older)
		if err != nil {
			return err
		}
		ended = len(page) == 0
		for _, id := range page {
			err := r.Reseal(ctx, id)
			if ctx.Err() != nil {
				return nil
			}
			r.after = id
			tried++
			switch {
			case err == nil:
				again++
			case !errors.Is(err, ErrCurrent):
				failed, last = failed+1, fmt.Errorf("%s: %w", id, err)
				r.left++ // now, since the next page may end the round
			}
		}
	}
	if again+failed > 0 {
		slog.InfoContext(ctx, "sealed again with the first key", "what", r.What, "records", again, "left", failed)
	}
	if failed > 0 {
		// Once for all of them: one is enough to see why, and there may be hundreds in each round.
		slog.WarnContext(ctx, "what an older key seals cannot be sealed again", "what", r.What, "records", failed, "last", last)
	}
	if !ended {
		return nil
	}
	r.Left(r.left)
	r.after, r.left = "", 0
	return r.warn(ctx)
}

// warn says, once, when a key was dropped too early.
func (r *Rotation) warn(ctx context.Context) error {
	if r.looked || r.Unopened == nil {
		return nil
	}
	n, err := r.Unopened(ctx)
	if err != nil {
		return err
	}
	r.looked = true
	if n > 0 {
		slog.ErrorContext(ctx, "no key opens what an earlier one sealed; put that back, behind the present one", "what", r.What, "records", n)
	}
	return nil
}

func (r *Rotation) page(ctx context.Context, older []string) ([]string, error) {
	if len(older) == 0 {
		return nil, nil
	}
	return r.List(ctx, older, r.after)
}
