package paging_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/paging"
)

var start = time.UnixMilli(1_790_000_000_000).UTC()

type item struct {
	id string
	at time.Time
}

func place(i item) paging.Place { return paging.Place{At: i.at, ID: i.id} }

// Records are added and removed between the pages. Records that exist throughout appear exactly
// once.
func TestEveryRecordThatStaysIsListedOnceWhileOthersComeAndGo(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]func(a, b paging.Place) int{"newest": paging.Newest, "oldest": paging.Oldest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(1, 2))
			draw := func(id string) item { return item{id, start.Add(time.Duration(r.IntN(20)) * time.Millisecond)} }
			var stay, others []item
			for i := range 57 {
				stay = append(stay, draw(fmt.Sprintf("stay%02d", i)))
			}
			seen := map[string]int{}
			var last paging.Place
			page := paging.First(5, "things", "acc")
			for n := 0; ; n++ {
				for i := range 4 {
					others = append(others, draw(fmt.Sprintf("other%d-%d", n, i)))
				}
				others = others[r.IntN(len(others)):]
				records, next := paging.Cut(page, slices.Concat(stay, others), order, place)
				for _, rec := range records {
					if last.ID != "" && order(last, place(rec)) >= 0 {
						t.Fatalf("%v is listed after %v, want it earlier", rec, last)
					}
					last = place(rec)
					seen[rec.id]++
				}
				if next == nil {
					break
				}
				if len(records) != 5 {
					t.Fatalf("a page before the last has %d records, want 5", len(records))
				}
				var ok bool
				if page, ok = paging.First(5, "things", "acc").From(*next); !ok {
					t.Fatalf("From(%q) = false, want true", *next)
				}
			}
			for _, s := range stay {
				if seen[s.id] != 1 {
					t.Errorf("%s was listed %d times, want once", s.id, seen[s.id])
				}
			}
		})
	}
}

func TestTheLastPageHasNoCursor(t *testing.T) {
	t.Parallel()
	all := []item{{"a", start}, {"b", start}}
	for limit, want := range map[int]bool{1: true, 2: false, 3: false} {
		if _, next := paging.Cut(paging.First(limit, "x"), all, paging.Newest, place); (next != nil) != want {
			t.Errorf("Cut with a limit of %d on two records returned the cursor %v, want a cursor = %v", limit, next, want)
		}
	}
	if page, next := paging.Cut(paging.First(1, "x"), nil, paging.Newest, place); len(page) != 0 || next != nil {
		t.Errorf("Cut on an empty list = %v with the cursor %v, want no records and no cursor", page, next)
	}
}

func TestACursorIsGoodForItsListAlone(t *testing.T) {
	t.Parallel()
	mine := paging.First(1, "keys", "acc_1")
	_, next := paging.Cut(mine, []item{{"a", start}, {"b", start}}, paging.Newest, place)
	raw, _ := base64.RawURLEncoding.DecodeString(*next)
	far := append(slices.Clone(raw[:8]), append([]byte{0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, "a"...)...)
	for _, tt := range []struct {
		name, cursor string
		of           paging.Page
		want         bool
	}{
		{"cursor from the list", *next, mine, true},
		{"cursor from the list with a different limit", *next, paging.First(50, "keys", "acc_1"), true},
		{"cursor from another account", *next, paging.First(1, "keys", "acc_2"), false},
		{"cursor from another list", *next, paging.First(1, "domains", "acc_1"), false},
		{"empty", "", mine, false},
		{"cursor without a position", base64.RawURLEncoding.EncodeToString(raw[:16]), mine, false},
		{"cursor with padding", *next + "=", mine, false},
		{"not base64", "?", mine, false},
		{"invalid UTF-8", base64.RawURLEncoding.EncodeToString(append(slices.Clone(raw), 0xff)), mine, false},
		{"time out of Firestore's range", base64.RawURLEncoding.EncodeToString(far), mine, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, ok := tt.of.From(tt.cursor); ok != tt.want {
				t.Errorf("From returned %t, want %t", ok, tt.want)
			}
		})
	}
}
