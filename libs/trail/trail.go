// Package trail notes decisions that end a right: revoked keys, removed members, changed
// roles, suspended and erased accounts, takedowns. A restore goes back in time; the notes
// say what must not come back with it.
//
// A note has kinds, ids and times, nothing else. It says what is so from then on. So notes
// may be applied twice, and the last one about a thing counts.
package trail

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
)

// Kind says what a note is about.
type Kind string

// The kinds.
const (
	KeyRevoked    Kind = "key.revoked"
	KeyExpires    Kind = "key.expires" // To is the time, as in RFC 3339
	MemberRemoved Kind = "member.removed"
	MemberRole    Kind = "member.role"   // To is the role
	AccountState  Kind = "account.state" // To is active, suspended or deleting
	TakenDown     Kind = "takedown"      // Record was taken down; To is its kind
	Lifted        Kind = "takedown.lifted"
)

// Note is one decision.
type Note struct {
	Kind    Kind      `json:"kind"`
	Account string    `json:"account,omitempty"`
	ID      string    `json:"id"` // of the key, member, account or takedown
	To      string    `json:"to,omitempty"`
	Record  string    `json:"record,omitempty"`
	At      time.Time `json:"at"`
}

// thing returns what the note is about. The last note about a thing counts.
func (n Note) thing() string {
	switch n.Kind {
	case MemberRole, MemberRemoved:
		return "member " + n.ID
	case TakenDown, Lifted:
		return "takedown " + n.ID
	}
	return string(n.Kind) + " " + n.ID
}

// Keep is how long notes are kept.
const Keep = 400 * 24 * time.Hour

const (
	dayForm  = "2006-01-02"
	timeForm = "150405.000000"
	ending   = ".jsonl"
)

// Log writes notes into a folder: DAY/TIME-ID.jsonl, a file for each decision. Its nil value
// writes nothing. It is safe for concurrent use.
type Log struct {
	dir string
	now func() time.Time

	mu      sync.Mutex
	waiting []Note          // that could not be written, at most one about each thing
	revoked map[string]bool // ids of keys that this log has noted as revoked; at most remembered
}

// remembered is how many revoked keys a [Log] remembers.
const remembered = 10_000

// Open returns a log that writes into dir, which it creates. If dir is empty, it returns
// nil. If now is nil, the system clock is used.
func Open(dir string, now func() time.Time) (*Log, error) {
	if dir == "" {
		return nil, nil
	}
	if now == nil {
		now = time.Now
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("folder of the trail: %w", err)
	}
	return &Log{dir: dir, now: now, revoked: map[string]bool{}}, nil
}

// Add makes notes durable before it returns, with the present time. If that fails, the error
// is UNAVAILABLE, and the next call writes the notes first. A call without notes only writes
// what waits, and never fails. A key that is revoked again is not noted again: a revoked key
// stays revoked, and a caller in a loop would fill the disk.
func (l *Log) Add(notes ...Note) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.now().UTC()
	for _, n := range notes {
		if n.Kind == KeyRevoked && l.revoked[n.ID] {
			continue
		}
		n.At = at
		l.waiting = slices.DeleteFunc(l.waiting, func(w Note) bool { return w.thing() == n.thing() })
		l.waiting = append(l.waiting, n)
	}
	if len(l.waiting) == 0 {
		return nil
	}
	if err := l.write(at); err != nil {
		if len(notes) == 0 {
			return nil // the change that this call is about needs no note
		}
		return &apierr.Error{
			Code: apierr.Unavailable, RetryAfter: 5 * time.Second, Err: fmt.Errorf("write the trail of what ended: %w", err),
			Message: "The change is made, but it cannot be noted for a restore yet. Send the same request again.",
		}
	}
	for _, n := range l.waiting {
		if n.Kind != KeyRevoked {
			continue
		}
		if len(l.revoked) >= remembered {
			clear(l.revoked)
		}
		l.revoked[n.ID] = true
	}
	l.waiting = nil
	return nil
}

func (l *Log) write(at time.Time) error {
	var text bytes.Buffer
	for _, n := range l.waiting {
		line, err := json.Marshal(n)
		if err != nil {
			return err
		}
		text.Write(append(line, '\n'))
	}
	day := filepath.Join(l.dir, at.Format(dayForm))
	switch err := os.Mkdir(day, 0o700); {
	case err == nil:
		if err := errors.Join(syncDir(l.dir), l.prune(at)); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	f, err := os.CreateTemp(day, ".new-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text.Bytes())
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(day, at.Format(timeForm)+"-"+rand.Text()+ending))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error below is the useful one
		return err
	}
	return syncDir(day)
}

// prune removes the days that are too old. It runs once a day.
func (l *Log) prune(at time.Time) error {
	days, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, d := range days {
		if day, err := time.Parse(dayForm, d.Name()); err == nil && at.Sub(day) > Keep {
			if err := os.RemoveAll(filepath.Join(l.dir, d.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Read returns the last note about each thing in the trail of a folder, oldest first.
// problems names what it could not read. Those files change nothing about the others.
func Read(dir string) (notes []Note, problems []string, err error) {
	days, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read the trail of what ended: %w", err)
	}
	for _, d := range days {
		day := filepath.Join(dir, d.Name())
		if !d.IsDir() {
			problems = append(problems, day+": is not a day of the trail")
			continue
		}
		files, err := os.ReadDir(day)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", day, err))
		}
		for _, f := range files {
			path := filepath.Join(day, f.Name())
			found, err := readFile(path)
			notes = append(notes, found...)
			if err != nil {
				problems = append(problems, fmt.Sprintf("%s: %v", path, err))
			}
		}
	}
	slices.SortStableFunc(notes, func(a, b Note) int { return a.At.Compare(b.At) })
	last := map[string]int{}
	for i, n := range notes {
		last[n.thing()] = i
	}
	var out []Note
	for i, n := range notes {
		if last[n.thing()] == i {
			out = append(out, n)
		}
	}
	return out, problems, nil
}

// readFile returns the notes before the first line that it cannot read.
func readFile(path string) (notes []Note, err error) {
	if filepath.Ext(path) != ending {
		return nil, errors.New("is not a note of the trail")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	lines := bufio.NewScanner(f)
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
