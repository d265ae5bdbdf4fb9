package seal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// Rotation finds all records that were sealed with other keys and reseals them with the first key
// so that the other keys can be removed. A record that cannot be resealed does not block other
// records. Only one goroutine may call Round.
type Rotation struct {
	Keys *Keys
	What string // what the log calls the sealed records
	// List returns the ids of records that were sealed with one of the keys keyIDs, sorted and
	// starting after the id after. At the end, it does not return any ids.
	List func(ctx context.Context, keyIDs []string, after string) (ids []string, err error)
	// Reseal seals one record again. It returns ErrCurrent if the record is already sealed
	// with the first key.
	Reseal func(ctx context.Context, id string) error
	// Left is called after all records have been tried, with the number of failed records.
	Left func(records int)
	// Unopened, if set, counts records that none of the keys can open. The count is logged once.
	Unopened func(ctx context.Context) (int64, error)

	after  string // id of the last tried record
	left   int
	looked bool
}

// ErrCurrent means that a record is already sealed with the first key.
var ErrCurrent = errors.New("already sealed with the first key")

// inRound limits the number of records in a round because other work may be waiting for the round
// to end.
const inRound = 500

// Again opens a value that was sealed with another key, and reseals it with the first key.
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

// Round continues after the last record from the previous round.
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
				r.left++ // count it now because the next page may end the round
			}
		}
	}
	if again+failed > 0 {
		slog.InfoContext(ctx, "resealed records with the first key", "what", r.What, "records", again, "left", failed)
	}
	if failed > 0 {
		// Log one line for all failures. There may be hundreds in each round, and one error is
		// enough to show the reason.
		slog.WarnContext(ctx, "cannot reseal records with the first key; a later round retries", "what", r.What, "records", failed, "last", last)
	}
	if !ended {
		return nil
	}
	r.Left(r.left)
	r.after, r.left = "", 0
	return r.warn(ctx)
}

// warn logs once if a key was removed too early.
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
		slog.ErrorContext(ctx, "some sealed records cannot be opened with any key; add their key again, after the first key", "what", r.What, "records", n)
	}
	return nil
}

func (r *Rotation) page(ctx context.Context, older []string) ([]string, error) {
	if len(older) == 0 {
		return nil, nil
	}
	return r.List(ctx, older, r.after)
}
