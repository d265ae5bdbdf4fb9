package trail

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Found is what was read of a trail.
type Found struct {
	// Problems has a sentence about each file or day that could not be read. They change nothing
	// about the others.
	Problems []string
	notes    map[string]map[string]Note // by installation and thing
	count    map[string]int             // by installation, with notes that others replaced
}

// readAtOnce is how many files are read at the same time.
const readAtOnce = 16

// Read reads a trail. If since is set, it reads only days that can have decisions from then
// on: it reads two more, because clocks differ, and notes may wait. It fails if the trail
// cannot be listed to its end.
func Read(ctx context.Context, from Store, since time.Time) (*Found, error) {
	found := &Found{notes: map[string]map[string]Note{}, count: map[string]int{}}
	first := ""
	if !since.IsZero() {
		first = since.UTC().AddDate(0, 0, -2).Format(dayForm)
	}
	var mu sync.Mutex
	problem := func(name string, err error) {
		mu.Lock()
		defer mu.Unlock()
		found.Problems = append(found.Problems, fmt.Sprintf("%s: %v", name, err))
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readAtOnce)
	for name, err := range from.List(ctx, first) {
		if _, ok := dayOf(name); err != nil && (name == from.String() || ctx.Err() != nil) {
			g.Go(func() error { return err })
			break
		} else if err == nil && !ok {
			err = errors.New("is not a day of the trail")
		}
		if err != nil {
			problem(name, err)
			continue
		}
		g.Go(func() error {
			notes, err := readFile(ctx, from, name)
			if err != nil {
				problem(name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			found.add(notes)
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("read the trail of what ended: %w", err)
	}
	slices.Sort(found.Problems)
	return found, nil
}

// Count returns the number of notes, whoever wrote them.
func (f *Found) Count() (n int) {
	for _, c := range f.count {
		n += c
	}
	return n
}

func (f *Found) add(notes []Note) {
	for _, n := range notes {
		if f.notes[n.Of] == nil {
			f.notes[n.Of] = map[string]Note{}
		}
		keep(f.notes[n.Of], n)
		f.count[n.Of]++
	}
}

// Of returns the note of an installation about each thing that counts, oldest first. others
// has a sentence about each other installation whose notes are in the same place.
func (f *Found) Of(installation string) (notes []Note, others []string) {
	notes = slices.SortedFunc(maps.Values(f.notes[installation]), func(a, b Note) int {
		if c := a.At.Compare(b.At); c != 0 {
			return c
		}
		return strings.Compare(a.thing(), b.thing())
	})
	for _, of := range slices.Sorted(maps.Keys(f.notes)) {
		if of != installation {
			others = append(others, fmt.Sprintf("%d notes are of another installation (%q, and this one is %q). They are not applied.", f.count[of], of, installation))
		}
	}
	return notes, others
}

// readFile returns the notes before the first line that it cannot read.
func readFile(ctx context.Context, from Store, name string) (notes []Note, err error) {
	if path.Ext(name) != ending {
		return nil, errors.New("is not a note of the trail")
	}
	text, err := from.Read(ctx, name)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		var n Note
		if err := json.Unmarshal(lines.Bytes(), &n); err != nil {
			return notes, errors.New("is damaged or half written")
		}
		if n.ID == "" || n.At.IsZero() {
			return notes, errors.New("has a note without an id or a time")
		}
		notes = append(notes, n)
	}
	if err := lines.Err(); err != nil {
		return notes, fmt.Errorf("cannot be read to its end: %w", err)
	}
	return notes, nil
}
