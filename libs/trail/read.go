package trail

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/outage"
)

// Found is the result of reading a trail.
type Found struct {
	// Problems contains a sentence about each file that is damaged, or that was removed after it
	// was listed because it was older than [Keep]. The other files are not affected.
	Problems []string
	notes    map[string]map[string]Note // by installation and thing
	count    map[string]int             // by installation, including notes that were replaced by later notes
}

// readAtOnce is how many files are read at the same time.
const readAtOnce = 16

// readTries is how many times a read is attempted. The pause doubles after each attempt.
const readTries = 5

var readPause = 200 * time.Millisecond

// Read reads a trail. If since is set, it reads only the days that may contain later decisions.
// It starts two days early because clocks differ and notes may have waited before they were
// written. Read fails if it cannot list the whole trail, or if a file remains unreadable: without
// its content, Read cannot tell whether the file is damaged or records the end of a right. A listed
// file that is missing counts as unreadable too because the disk may have been unmounted.
func Read(ctx context.Context, from Store, since time.Time) (*Found, error) {
	found := &Found{notes: map[string]map[string]Note{}, count: map[string]int{}}
	first := ""
	if !since.IsZero() {
		first = since.UTC().AddDate(0, 0, -2).Format(dayForm)
	}
	var names []string
	err := patiently(ctx, func() (err error) {
		names, found.Problems, err = list(ctx, from, first)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the revocation trail: %w", err)
	}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readAtOnce)
	for _, name := range names {
		g.Go(func() error {
			var text []byte
			err := patiently(ctx, func() (err error) {
				text, err = from.Read(ctx, name)
				return pruned(name, err)
			})
			if err != nil && !useless(err) {
				return fmt.Errorf("%s: %w", name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			var notes []Note
			if err == nil {
				notes, err = parse(text)
			}
			if err != nil {
				found.Problems = append(found.Problems, fmt.Sprintf("%s: %v", name, err))
			}
			found.add(notes)
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("read the revocation trail: %w", err)
	}
	slices.Sort(found.Problems)
	return found, nil
}

// list returns the names of a trail's files, and a sentence about every other entry.
func list(ctx context.Context, from Store, first string) (names, problems []string, err error) {
	for name, err := range from.List(ctx, first) {
		err = pruned(name, err)
		_, day := dayOf(name)
		switch {
		case err != nil && (name == from.String() || !useless(err)):
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		case err != nil: // the day has since been removed
		case !day:
			err = errors.New("is not a day in the trail")
		case path.Ext(name) != ending:
			err = errors.New("is not a file in the trail")
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		names = append(names, name)
	}
	return names, problems, nil
}

// patiently retries a read if the disk or the bucket temporarily fails.
func patiently(ctx context.Context, read func() error) error {
	pause := readPause
	for try := 1; ; try++ {
		err := read()
		if err == nil || useless(err) || try == readTries || !outage.Pause(ctx, pause) {
			return err
		}
		pause *= 2
	}
}

// useless reports whether an error means that a file contains no notes. Any other error says
// nothing about the file's content.
func useless(err error) bool {
	for _, known := range []error{errPruned, objectstore.ErrEncoded, errTooLarge, errNoFile} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

var errPruned = errors.New("was removed because its notes were too old to keep")

// pruned returns [errPruned] if err means that a file or a day older than [Keep] is missing. Nothing
// else is ever removed from a trail, so any other missing file may reappear.
func pruned(name string, err error) error {
	day, ok := dayOf(name + "/")
	if ok && time.Since(day) > Keep && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, objectstore.ErrNotFound)) {
		return fmt.Errorf("%w (%w)", errPruned, err)
	}
	return err
}

// Count returns the number of notes from all installations.
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

// Of returns the note that counts for each thing in an installation, oldest first. others contains
// a sentence about every other installation that has notes in the same trail.
func (f *Found) Of(installation string) (notes []Note, others []string) {
	notes = slices.SortedFunc(maps.Values(f.notes[installation]), func(a, b Note) int {
		if c := a.At.Compare(b.At); c != 0 {
			return c
		}
		return strings.Compare(a.thing(), b.thing())
	})
	for _, of := range slices.Sorted(maps.Keys(f.notes)) {
		if of != installation {
			others = append(others, fmt.Sprintf("%d notes were written by another installation (%q; this one is %q). They are not applied.", f.count[of], of, installation))
		}
	}
	return notes, others
}

// parse returns the notes from all readable lines. err describes the other lines.
func parse(text []byte) (notes []Note, err error) {
	line, damaged, first := 0, 0, 0
	for text := range bytes.Lines(text) {
		line++
		var n Note
		if json.Unmarshal(text, &n) != nil || n.ID == "" || n.At.IsZero() {
			if damaged++; damaged == 1 {
				first = line
			}
			continue
		}
		notes = append(notes, n)
	}
	if damaged > 0 {
		return notes, fmt.Errorf("is damaged or incomplete: cannot read %d of its %d lines, the first of which is line %d", damaged, line, first)
	}
	return notes, nil
}
