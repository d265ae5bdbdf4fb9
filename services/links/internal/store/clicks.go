package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Counts keeps click counts: the total on the link, days below it, and, in the
// same transaction, how far producers' click logs are counted.
type Counts struct {
	s *Store
	// ErrOvertaken is returned to a writer whose progress is not the stored one.
	overtaken error

	mu    sync.Mutex
	hosts map[string]map[string]bool // day document → referring hosts in it
}

// Counts keeps the counts beside the links. overtaken is the error for a writer
// that another was faster than.
func (s *Store) Counts(overtaken error) *Counts {
	return &Counts{s: s, overtaken: overtaken, hosts: map[string]map[string]bool{}}
}

const (
	// linksPerCommit keeps a commit small. More links in one cycle are written
	// down first and counted commit by commit.
	linksPerCommit = 200
	// producerMemory is how many days a silent producer is remembered: longer than
	// a spool waits anywhere.
	producerMemory = 14
	// maxReferrers bounds a day document; later hosts share one entry.
	maxReferrers = 100
	// OtherReferrers is the host under which they are counted.
	OtherReferrers = "(other)"
	// dayMemory is how long days are kept.
	dayMemory = 400 * 24 * time.Hour
)

// partitionDoc is clickPartitions/{n}. There is one partition.
type partitionDoc struct {
	Cycle     int64              `firestore:"cycle"`
	Producers map[string]markDoc `firestore:"producers"`
	Pending   []string           `firestore:"pending"` // clickPending documents still to be counted
}

type markDoc struct {
	Batch int64 `firestore:"b"`
	Total int64 `firestore:"t"`
	Day   int64 `firestore:"d"`
}

// dayDoc is links/{id}/days/{yyyy-mm-dd}.
type dayDoc struct {
	Clicks    int64            `firestore:"clicks"`
	Referrers map[string]int64 `firestore:"referrers"`
	Countries map[string]int64 `firestore:"countries"`
	Devices   map[string]int64 `firestore:"devices"`
	ExpireAt  time.Time        `firestore:"expireAt"`
}

func (c *Counts) partition() *firestore.DocumentRef {
	return c.s.db.Collection("clickPartitions").Doc("0")
}

func (c *Counts) pendingRef(id string) *firestore.DocumentRef {
	return c.s.db.Collection("clickPending").Doc(id)
}

// Progress implements clicks.Counts.
func (c *Counts) Progress(ctx context.Context) (link.Progress, error) {
	var d partitionDoc
	if _, err := c.s.get(ctx, "read click progress", c.partition(), &d); err != nil {
		return link.Progress{}, err
	}
	if err := c.finish(ctx, d.Pending); err != nil {
		return link.Progress{}, err
	}
	p := link.Progress{Cycle: d.Cycle, Producers: map[string]link.Mark{}}
	for name, m := range d.Producers {
		p.Producers[name] = link.Mark{Batch: m.Batch, Total: m.Total, Day: link.Day(m.Day)}
	}
	return p, nil
}

// Count implements clicks.Counts.
func (c *Counts) Count(ctx context.Context, from link.Progress, marks map[string]link.Mark, tallies []*link.Tally) (link.Progress, error) {
	next := advance(from, marks)
	if err := c.boundReferrers(ctx, tallies); err != nil {
		return from, err
	}
	chunks := byLinks(tallies, linksPerCommit)
	if len(chunks) <= 1 {
		return next, c.countAtOnce(ctx, from, next, tallies)
	}
	pending := make([]string, len(chunks))
	for i := range chunks {
		pending[i] = fmt.Sprintf("0-%d-%d", next.Cycle, i)
	}
	// Once this is written the clicks are counted, though not yet where they show.
	err := c.s.db.Tx(ctx, "note click counts", func(_ context.Context, tx *firestore.Transaction) error {
		if err := c.check(tx, from); err != nil {
			return err
		}
		for i, chunk := range chunks {
			raw, err := json.Marshal(chunk)
			if err != nil {
				return err
			}
			if err := tx.Set(c.pendingRef(pending[i]), map[string]any{"counts": raw}); err != nil {
				return err
			}
		}
		return tx.Set(c.partition(), partitionDocOf(next, pending))
	})
	if err != nil {
		return from, err
	}
	for i, chunk := range chunks {
		if err := c.countPending(ctx, pending[i], chunk); err != nil {
			return next, err
		}
	}
	return next, nil
}

func advance(from link.Progress, marks map[string]link.Mark) link.Progress {
	next := link.Progress{Cycle: from.Cycle + 1, Producers: maps.Clone(from.Producers)}
	if next.Producers == nil {
		next.Producers = map[string]link.Mark{}
	}
	maps.Copy(next.Producers, marks)
	var today link.Day
	for _, m := range next.Producers {
		today = max(today, m.Day)
	}
	maps.DeleteFunc(next.Producers, func(_ string, m link.Mark) bool { return today-m.Day > producerMemory })
	return next
}

func partitionDocOf(p link.Progress, pending []string) *partitionDoc {
	d := &partitionDoc{Cycle: p.Cycle, Producers: map[string]markDoc{}, Pending: pending}
	for name, m := range p.Producers {
		d.Producers[name] = markDoc{m.Batch, m.Total, int64(m.Day)}
	}
	return d
}

// check holds a writer to the stored progress.
func (c *Counts) check(tx *firestore.Transaction, from link.Progress) error {
	var d partitionDoc
	snap, err := tx.Get(c.partition())
	switch {
	case snap != nil && !snap.Exists():
	case err != nil:
		return err
	default:
		if err := snap.DataTo(&d); err != nil {
			return err
		}
	}
	if d.Cycle != from.Cycle {
		return c.overtaken
	}
	return nil
}

func (c *Counts) countAtOnce(ctx context.Context, from, next link.Progress, tallies []*link.Tally) error {
	write := func(tallies []*link.Tally) error {
		return c.s.db.Tx(ctx, "count clicks", func(_ context.Context, tx *firestore.Transaction) error {
			if err := c.check(tx, from); err != nil {
				return err
			}
			if err := c.add(tx, tallies); err != nil {
				return err
			}
			return tx.Set(c.partition(), partitionDocOf(next, nil))
		})
	}
	return c.skippingGone(ctx, tallies, write)
}

// finish counts what an interrupted writer left written down as pending.
func (c *Counts) finish(ctx context.Context, pending []string) error {
	for _, id := range pending {
		var d struct {
			Counts []byte `firestore:"counts"`
		}
		found, err := c.s.get(ctx, "read pending clicks", c.pendingRef(id), &d)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		var tallies []*link.Tally
		if err := json.Unmarshal(d.Counts, &tallies); err != nil {
			return fmt.Errorf("read pending clicks %s: %w", id, err)
		}
		if err := c.countPending(ctx, id, tallies); err != nil {
			return err
		}
	}
	return nil
}

// countPending counts one part of what is written down. The commit that counts
// it removes it, so it does not matter who does it or how often it is tried.
func (c *Counts) countPending(ctx context.Context, id string, tallies []*link.Tally) error {
	err := c.skippingGone(ctx, tallies, func(tallies []*link.Tally) error {
		return c.s.db.Commit(ctx, "count pending clicks", func(tx *firestore.Transaction) error {
			if err := c.add(tx, tallies); err != nil {
				return err
			}
			return tx.Delete(c.pendingRef(id), firestore.Exists)
		})
	})
	if errors.Is(err, firestoredb.ErrNotFound) || errors.Is(err, firestoredb.ErrStale) {
		return nil // counted by somebody else meanwhile
	}
	return err
}

// skippingGone writes tallies; when a link is gone, which fails the whole
// commit, it looks for those that are and writes the rest.
func (c *Counts) skippingGone(ctx context.Context, tallies []*link.Tally, write func([]*link.Tally) error) error {
	for range 3 {
		err := write(tallies)
		if !errors.Is(err, firestoredb.ErrNotFound) {
			return err
		}
		if tallies, err = c.living(ctx, tallies); err != nil {
			return err
		}
	}
	return write(tallies)
}

func (c *Counts) living(ctx context.Context, tallies []*link.Tally) ([]*link.Tally, error) {
	var refs []*firestore.DocumentRef
	for _, t := range tallies {
		refs = append(refs, c.s.linkRef(t.LinkID))
	}
	refs = slices.CompactFunc(refs, func(a, b *firestore.DocumentRef) bool { return a.ID == b.ID })
	alive := map[string]bool{}
	err := c.s.db.Do(ctx, "look for links", func(ctx context.Context) error {
		snaps, err := c.s.db.GetAll(ctx, refs)
		for _, snap := range snaps {
			alive[snap.Ref.ID] = snap.Exists()
		}
		return err
	})
	return slices.DeleteFunc(slices.Clone(tallies), func(t *link.Tally) bool { return !alive[t.LinkID] }), err
}

// add increments links and their days.
func (c *Counts) add(tx *firestore.Transaction, tallies []*link.Tally) error {
	for i := 0; i < len(tallies); {
		id, clicks := tallies[i].LinkID, int64(0)
		for ; i < len(tallies) && tallies[i].LinkID == id; i++ {
			t := tallies[i]
			clicks += t.Clicks
			if err := tx.Set(c.s.dayRef(id, t.Day), dayIncrements(t), firestore.MergeAll); err != nil {
				return err
			}
		}
		if err := tx.Update(c.s.linkRef(id), []firestore.Update{{Path: "clicks", Value: firestore.Increment(clicks)}}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) dayRef(linkID string, day link.Day) *firestore.DocumentRef {
	return s.linkRef(linkID).Collection("days").Doc(day.String())
}

func dayIncrements(t *link.Tally) map[string]any {
	each := func(m map[string]int64) map[string]any {
		out := make(map[string]any, len(m))
		for k, n := range m {
			out[keyOf(k)] = firestore.Increment(n)
		}
		return out
	}
	return map[string]any{
		"clicks": firestore.Increment(t.Clicks), "referrers": each(t.Referrers), "countries": each(t.Countries), "devices": each(t.Devices),
		"expireAt": time.Unix(int64(t.Day)*86400, 0).Add(dayMemory),
	}
}

// keyOf writes "" as a field name, which Firestore needs to have characters.
func keyOf(k string) string {
	if k == "" {
		return "-"
	}
	return k
}

func nameOf(key string) string {
	if key == "-" {
		return ""
	}
	return key
}

// byLinks cuts tallies, which are in order of links, into parts of at most n
// links.
func byLinks(tallies []*link.Tally, n int) [][]*link.Tally {
	var out [][]*link.Tally
	start, links := 0, 0
	for i, t := range tallies {
		if i > 0 && t.LinkID == tallies[i-1].LinkID {
			continue
		}
		if links++; links > n {
			out = append(out, tallies[start:i])
			start, links = i, 1
		}
	}
	if start < len(tallies) {
		out = append(out, tallies[start:])
	}
	return out
}

// boundReferrers moves hosts beyond the bound of a day to one common entry. The
// Referer header is anybody's text; without a bound a document could be grown
// until nothing can be written to it any more. Days are read once and then
// remembered.
func (c *Counts) boundReferrers(ctx context.Context, tallies []*link.Tally) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.hosts) > 20_000 {
		clear(c.hosts)
	}
	var refs []*firestore.DocumentRef
	for _, t := range tallies {
		ref := c.s.dayRef(t.LinkID, t.Day)
		if known := c.hosts[ref.Path]; known == nil && named(t.Referrers) {
			refs = append(refs, ref)
		}
	}
	for part := range slices.Chunk(refs, 300) {
		err := c.s.db.Do(ctx, "read click days", func(ctx context.Context) error {
			snaps, err := c.s.db.GetAll(ctx, part)
			if err != nil {
				return err
			}
			for _, snap := range snaps {
				var d dayDoc
				if snap.Exists() {
					if err := snap.DataTo(&d); err != nil {
						return err
					}
				}
				known := map[string]bool{}
				for host := range d.Referrers {
					known[nameOf(host)] = true
				}
				c.hosts[snap.Ref.Path] = known
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, t := range tallies {
		known := c.hosts[c.s.dayRef(t.LinkID, t.Day).Path]
		if known == nil {
			continue
		}
		for host, n := range t.Referrers {
			switch {
			case host == "" || known[host]:
			case len(known) < maxReferrers:
				known[host] = true
			default:
				delete(t.Referrers, host)
				t.Referrers[OtherReferrers] += n
			}
		}
	}
	return nil
}

func named(referrers map[string]int64) bool {
	_, unnamed := referrers[""]
	return len(referrers) > 1 || len(referrers) == 1 && !unnamed
}

// Stats reads the days from first to last, both included.
func (s *Store) Stats(ctx context.Context, linkID string, first, last link.Day) (link.Stats, error) {
	st := link.Stats{Days: make([]int64, last-first+1)}
	referrers, countries, devices := map[string]int64{}, map[string]int64{}, map[string]int64{}
	q := s.linkRef(linkID).Collection("days").OrderBy(firestore.DocumentID, firestore.Asc).StartAt(first.String()).EndAt(last.String())
	err := s.db.Do(ctx, "read click days", func(ctx context.Context) error {
		snaps, err := q.Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		for _, snap := range snaps {
			var d dayDoc
			if err := snap.DataTo(&d); err != nil {
				return err
			}
			day, ok := link.ParseDay(snap.Ref.ID)
			if !ok || day < first || day > last {
				continue
			}
			st.Days[day-first] = d.Clicks
			st.Total += d.Clicks
			for _, m := range []struct{ to, from map[string]int64 }{{referrers, d.Referrers}, {countries, d.Countries}, {devices, d.Devices}} {
				for k, n := range m.from {
					m.to[nameOf(k)] += n
				}
			}
		}
		return nil
	})
	st.Referrers, st.Countries, st.Devices = ranked(referrers), ranked(countries), ranked(devices)
	return st, err
}

func ranked(m map[string]int64) []link.Share {
	out := make([]link.Share, 0, len(m))
	for name, n := range m {
		out = append(out, link.Share{Name: name, Clicks: n})
	}
	slices.SortFunc(out, func(a, b link.Share) int { return cmp.Or(cmp.Compare(b.Clicks, a.Clicks), cmp.Compare(a.Name, b.Name)) })
	return out
}
