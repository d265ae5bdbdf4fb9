package seal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/linkreel/linkreel/libs/seal"
)

// Records that cannot be resealed do not block other records, no matter how many there are. Their
// count is reported after all records have been tried.
func TestARotationSealsAllThatItCan(t *testing.T) {
	t.Parallel()
	first, old, both := keys(t, "p", two), keys(t, "p", one), keys(t, "p", two+","+one)
	records, broken := map[string][]byte{}, map[string]bool{}
	for i := range 700 {
		id := fmt.Sprintf("%03d", i)
		records[id] = old.Seal(id, []byte(id))
		broken[id] = i < 600
	}
	records["damaged"] = append(old.Seal("damaged", []byte("x"))[:20:20], "damaged"...)
	records["current"] = first.Seal("current", []byte("current"))
	tried, left, unopened := 0, -1, 0
	rotation := &seal.Rotation{
		Keys: both,
		List: func(_ context.Context, keyIDs []string, after string) (ids []string, err error) {
			for id, sealed := range records {
				if id > after && slices.Contains(keyIDs, seal.IDOf(sealed)) {
					ids = append(ids, id)
				}
			}
			slices.Sort(ids)
			return ids[:min(len(ids), 100)], nil
		},
		Reseal: func(_ context.Context, id string) error {
			tried++
			if broken[id] {
				return errors.New("not today")
			}
			again, err := both.Again(id, records[id])
			if err == nil {
				records[id] = again
			}
			return err
		},
		Left:     func(n int) { left = n },
		Unopened: func(context.Context) (int64, error) { unopened++; return 1, nil },
	}
	round := func() {
		t.Helper()
		if err := rotation.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	round()
	if tried != 500 || left != -1 {
		t.Errorf("a round tried %d records and reported %d remaining, want 500 and no report", tried, left)
	}
	round()
	if left != 601 {
		t.Errorf("%d records are left, want 601", left)
	}
	for id, sealed := range records {
		plain, err := first.Open(id, sealed)
		if again := !broken[id] && id != "damaged"; again != (err == nil) || again && string(plain) != id {
			t.Errorf("Open of %s with the first key = %q, %v, want its id, or an error if it cannot be resealed", id, plain, err)
		}
	}
	clear(broken)
	delete(records, "damaged")
	round()
	round()
	if left != 0 || unopened != 1 {
		t.Errorf("at the end %d records are left and Unopened was called %d times, want 0 and 1", left, unopened)
	}
}

func TestARotationPassesOnThatNothingCanBeListed(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	rotation := &seal.Rotation{
		Keys: keys(t, "p", two+","+one),
		List: func(context.Context, []string, string) ([]string, error) { return nil, away },
		Left: func(n int) { t.Errorf("Left was called with %d, want no call", n) },
	}
	if err := rotation.Round(t.Context()); !errors.Is(err, away) {
		t.Errorf("Round = %v, want the error from List", err)
	}
}

// A record that failed before List stopped working counts as tried, and later rounds of the same
// pass do not try it again. If the failure were forgotten, the older keys would appear unused.
func TestARotationRemembersWhatFailedBeforeAnOutage(t *testing.T) {
	t.Parallel()
	both := keys(t, "p", two+","+one)
	away, left := true, -1
	rotation := &seal.Rotation{
		Keys: both,
		List: func(_ context.Context, _ []string, after string) ([]string, error) {
			switch {
			case after == "":
				return []string{"a"}, nil
			case away:
				away = false
				return nil, errors.New("away")
			}
			return nil, nil
		},
		Reseal: func(context.Context, string) error { return errors.New("a secret does not open") },
		Left:   func(n int) { left = n },
	}
	if err := rotation.Round(t.Context()); err == nil || left != -1 {
		t.Fatalf("Round = %v with %d reported, want an error and no report", err, left)
	}
	if err := rotation.Round(t.Context()); err != nil || left != 1 {
		t.Errorf("Round = %v with %d records reported as left, want 1", err, left)
	}
}
