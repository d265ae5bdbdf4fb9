// Package trail records decisions that end a right: revoked keys, removed members, changed
// roles, suspended and erased accounts, and takedowns. After a restore from a backup, the notes
// say which rights must be ended again.
//
// A note contains only kinds, ids and times. It states the new state, not the change, so applying a
// note twice is harmless, and only the last note about a record counts. A note that a right has
// ended permanently always counts, regardless of the times, because clocks may jump.
//
// A trail is stored in a folder or a bucket ([Store]). Its notes identify the installation that
// wrote them, so a restore does not apply another installation's notes.
package trail

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/linkreel/linkreel/libs/apierr"
)

// Kind is a kind of decision.
type Kind string

// The kinds.
const (
	KeyRevoked    Kind = "key.revoked"
	KeyExpires    Kind = "key.expires" // To is the time in RFC 3339 format
	MemberRemoved Kind = "member.removed"
	MemberRole    Kind = "member.role"   // To is the role
	AccountState  Kind = "account.state" // To is active, suspended or deleting
	TakenDown     Kind = "takedown"      // Record was taken down; To is its kind
	Lifted        Kind = "takedown.lifted"
)

// erasing is an account's state from the decision to erase it until it is gone.
const erasing = "deleting"

// Note is one decision.
type Note struct {
	Kind    Kind   `json:"kind"`
	Account string `json:"account,omitempty"`
	ID      string `json:"id"` // of the key, member, account or takedown
	To      string `json:"to,omitempty"`
	Record  string `json:"record,omitempty"`
	// Of is the installation that made the decision. [Log] sets it.
	Of string `json:"of"`
	// At is the time of the decision by the database's clock so that notes from several processes
	// share one order. If it is zero, [Log.Add] sets it from its own clock.
	At time.Time `json:"at"`
}

// thing identifies the subject of the note. Only the last note about a thing counts.
func (n Note) thing() string {
	switch n.Kind {
	case MemberRole, MemberRemoved:
		return "member " + n.ID
	case TakenDown, Lifted:
		return "takedown " + n.ID
	}
	return string(n.Kind) + " " + n.ID
}

// final reports whether the note's decision can never be undone.
func (n Note) final() bool {
	return n.Kind == KeyRevoked || n.Kind == MemberRemoved || n.Kind == AccountState && n.To == erasing
}

// keep adds a note to the notes by thing, unless the existing note takes precedence.
func keep(notes map[string]Note, n Note) {
	there, ok := notes[n.thing()]
	if !ok || n.final() && !there.final() || n.final() == there.final() && !n.At.Before(there.At) {
		notes[n.thing()] = n
	}
}

// Keep is how long notes are kept. The first note of a new day removes at most [removedAtOnce]
// older days.
const Keep = 400 * 24 * time.Hour

// removedAtOnce bounds how many days are removed at a time. A clock that is years ahead looks
// the same as a trail that received no notes for years. With this bound, such a clock takes months
// to empty the trail.
const removedAtOnce = 2

const (
	// patience is how long [Log.Add] waits for the disk or the bucket, and attempt is how long one
	// write to a bucket may take. A caller may have to wait for an earlier write to finish.
	patience, attempt = 5 * time.Second, 3 * time.Second
	// remembered is how many revoked keys a [Log] remembers.
	remembered = 10_000
	// mostWaiting bounds the notes that wait in memory, and mostTogether those in one file.
	mostWaiting, mostTogether = 100_000, 1_000
)

// Config configures a [Log].
type Config struct {
	// Store keeps the notes. If it is nil, there is no trail.
	Store Store
	// Installation returns the installation's id; see firestoredb.DB.Installation.
	Installation func(context.Context) (string, error)
	// Now is the clock. If it is nil, the system clock is used.
	Now func() time.Time
}

// Log writes notes. A nil Log writes nothing. It is safe for concurrent use.
//
// At most one goroutine writes to the store, and only while there are notes to write. If the
// store hangs, each caller waits for a few seconds and gets an error.
type Log struct {
	store        Store
	installation func(context.Context) (string, error)
	now          func() time.Time

	mu      sync.Mutex
	waiting map[string]Note // not written yet, by thing
	next    *round          // the write that will include the waiting notes
	writing bool            // a goroutine is writing
	last    time.Time       // the time that this log last assigned to a note
	revoked map[string]bool // ids of keys that this log has noted as revoked; at most remembered
	of      string          // the installation; used only by the goroutine that writes

	running sync.WaitGroup // goroutines that write, and then remove old days
	pruning sync.Mutex     // prevents two goroutines from removing the same days
}

// waitingSince is set when the first note starts to wait, and moves forward with each successful
// write. It is therefore old only if writes fail or hang.
var waitingSince = promauto.NewGauge(prometheus.GaugeOpts{
	Name: "linkreel_trail_waiting_since_timestamp_seconds",
	Help: "Time (Unix) since which the oldest note of the revocation trail has been waiting to be written. 0 if no note is waiting.",
})

// round is one write. Its error is set before done is closed.
type round struct {
	asked bool // a caller is waiting for it
	done  chan struct{}
	err   error
}

func newRound() *round { return &round{done: make(chan struct{})} }

// Open returns a log, or nil if c has no store.
func Open(c Config) *Log {
	if c.Store == nil {
		return nil
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Log{
		store: c.Store, installation: c.Installation, now: c.Now, waiting: map[string]Note{}, next: newRound(), revoked: map[string]bool{},
	}
}

// Add makes notes durable before it returns. If that fails or takes more than a few seconds, the
// error is UNAVAILABLE, and the notes are kept in memory until the next call or [Log.Flush] writes
// them. A call without notes only starts writing the waiting notes and never fails. A key that is
// revoked again does not get a second note: it is already revoked, and a caller in a loop would
// fill the disk.
func (l *Log) Add(ctx context.Context, notes ...Note) error {
	if l == nil {
		return nil
	}
	r, err := l.enqueue(notes)
	if r == nil {
		return err
	}
	if err := l.await(ctx, r); err != nil {
		return unavailable(err)
	}
	return nil
}

func unavailable(err error) error {
	return &apierr.Error{
		Code: apierr.Unavailable, RetryAfter: 5 * time.Second, Err: fmt.Errorf("write the revocation trail: %w", err),
		Message: "The change was made, but it could not yet be recorded for a restore from a backup. Send the same request again.",
	}
}

// enqueue adds notes to the waiting notes and starts a write. It returns the write to wait for, or
// nil if there is none.
func (l *Log) enqueue(notes []Note) (*round, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	idle, added := !l.writing && len(l.waiting) == 0, false
	for _, n := range notes {
		if n.Kind == KeyRevoked && l.revoked[n.ID] {
			continue
		}
		if len(l.waiting) >= mostWaiting {
			return nil, unavailable(errors.New("too many notes are waiting"))
		}
		if n.At = n.At.UTC(); n.At.IsZero() {
			n.At = l.time()
		}
		keep(l.waiting, n)
		added = true
	}
	if idle && added {
		waitingSince.SetToCurrentTime()
	}
	l.start()
	if !added {
		return nil, nil
	}
	l.next.asked = true
	return l.next, nil
}

// time returns the current time. Each result is later than the previous one, even if the clock is
// set back.
func (l *Log) time() time.Time {
	at := l.now().UTC()
	if !at.After(l.last) {
		at = l.last.Add(time.Microsecond)
	}
	l.last = at
	return at
}

func (l *Log) start() {
	if !l.writing && len(l.waiting) > 0 {
		l.writing = true
		l.running.Go(l.write)
	}
}

func (l *Log) await(ctx context.Context, r *round) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("the write is taking too long: %w", ctx.Err())
	}
}

// Flush writes the waiting notes. It returns when they are durable, when ctx is done, or after a
// few seconds.
func (l *Log) Flush(ctx context.Context) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	if !l.writing && len(l.waiting) == 0 {
		l.mu.Unlock()
		return nil
	}
	l.start()
	r := l.next
	r.asked = true
	l.mu.Unlock()
	if err := l.await(ctx, r); err != nil {
		return fmt.Errorf("write the revocation trail: %w", err)
	}
	return nil
}

// write writes the waiting notes until there are none, or until a write fails and no caller is
// waiting.
func (l *Log) write() {
	var clean time.Time
	for {
		l.mu.Lock()
		r := l.next
		l.next = newRound()
		batch := l.waiting
		l.waiting = map[string]Note{}
		l.mu.Unlock()
		rest, olderThan, err := l.put(slices.Collect(maps.Values(batch)))
		l.mu.Lock()
		for _, n := range rest {
			delete(batch, n.thing())
			keep(l.waiting, n) // a newer note may have been added since then
		}
		l.remember(batch)
		switch {
		case len(l.waiting) == 0:
			waitingSince.Set(0)
		case err == nil: // the waiting notes were added during the write
			waitingSince.SetToCurrentTime()
		}
		again := l.next.asked || err == nil && len(l.waiting) > 0
		l.writing = again
		l.mu.Unlock()
		r.err = err
		close(r.done)
		if olderThan.After(clean) {
			clean = olderThan
		}
		if !again {
			break
		}
	}
	if !clean.IsZero() { // after the last write, so that callers do not wait for it
		l.prune(clean)
	}
}

// remember stores which keys do not need any further notes. The caller holds l.mu.
func (l *Log) remember(written map[string]Note) {
	for _, n := range written {
		if n.Kind != KeyRevoked {
			continue
		}
		if len(l.revoked) >= remembered {
			clear(l.revoked)
		}
		l.revoked[n.ID] = true
	}
}

// put writes notes to new files. A file's name contains the time of its newest note, which comes
// from the database: if the name came from this process's clock and that clock were wrong, a later
// [Read] could miss the file. rest contains the notes that put could not write. If olderThan is
// set, days that are older than [Keep] at that time should be removed.
func (l *Log) put(notes []Note) (rest []Note, olderThan time.Time, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), attempt)
	defer cancel()
	if l.of == "" && l.installation != nil {
		if l.of, err = l.installation(ctx); err != nil {
			return notes, olderThan, err
		}
	}
	slices.SortFunc(notes, func(a, b Note) int { return a.At.Compare(b.At) })
	for len(notes) > 0 {
		var text bytes.Buffer
		n := min(len(notes), mostTogether)
		for _, note := range notes[:n] {
			note.Of = l.of
			line, err := json.Marshal(note)
			if err != nil {
				return notes, olderThan, err
			}
			text.Write(append(line, '\n'))
		}
		clean, err := l.store.Create(ctx, notes[n-1].At.UTC(), text.Bytes())
		if clean.After(olderThan) { // a folder reports this only once a day, even if the write then fails
			olderThan = clean
		}
		if err != nil {
			return notes, olderThan, err
		}
		notes = notes[n:]
	}
	return nil, olderThan, nil
}

// prune removes the oldest days if they are older than [Keep] at the given time. A failure only
// delays the removal.
func (l *Log) prune(at time.Time) {
	l.pruning.Lock()
	defer l.pruning.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var old []string
	for name, err := range l.store.List(ctx, "") {
		day, ok := dayOf(name)
		if err == nil && !ok || len(old) > 0 && old[len(old)-1] == name[:min(len(dayForm), len(name))] {
			continue
		}
		if err != nil || at.Sub(day) <= Keep || len(old) == removedAtOnce {
			break
		}
		old = append(old, day.Format(dayForm))
	}
	for _, day := range old {
		if err := l.store.RemoveDay(ctx, day); err != nil {
			slog.WarnContext(ctx, "cannot remove an old day of the revocation trail; retrying on another day", "day", day, "error", err)
		}
	}
}
