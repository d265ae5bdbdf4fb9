package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/firestore"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Counts stores the click counts of one partition: each link's total and its counts per day. In the
// same transaction, it stores the last counted batch of each producer.
type Counts struct {
	s    *Store
	part int
	// overtaken is the error for a writer whose progress differs from the stored progress.
	overtaken error

	mu    sync.Mutex
	names *nameMemory
}

// Counts returns the store for one partition's counts. overtaken is the error for a writer if
// another writer got there first.
func (s *Store) Counts(part, parts int, overtaken error) *Counts {
	return &Counts{s: s, part: part, overtaken: overtaken, names: newNameMemory(namesMemory / max(parts, 1))}
}

const (
	// linksPerCommit and bytesPerCommit keep commits small. A commit has at most 400 writes, and
	// takes up well under 1 MiB when it is first stored as one pending document. The writes
	// themselves take about three times that because each repeats its document's name and the paths
	// of its fields. Firestore accepts 10 MiB.
	linksPerCommit = 200
	bytesPerCommit = 700 << 10
	// commitsAtOnce is the number of concurrent commits.
	commitsAtOnce = 8
	// producerMemory is how many days a producer without new batches is kept. No spool is older
	// than that. producersMax limits the number of producers, and therefore the size of the
	// document.
	producerMemory = 14
	producersMax   = 5000
	// maxReferrers and maxRuleNames limit the names in a day document. All other names share one
	// entry because visitors can send any host, and owners can rename a link's rules as often as
	// they like. Firestore accepts 500 changed counts per document in one commit, and countries
	// need nearly 300 of them.
	maxReferrers = 100
	maxRuleNames = 50
	// OtherNames is the name of the entry that all other names share.
	OtherNames = "(other)"
	// daysAtOnce is the number of days read in one call. Each day may contain 50 kB of names.
	daysAtOnce = 100
	// dayMemory is how long days are stored.
	dayMemory = 400 * 24 * time.Hour
)

// partitionDoc is the document clickPartitions/{n}.
type partitionDoc struct {
	Cycle     int64              `firestore:"cycle"`
	Producers map[string]markDoc `firestore:"producers"`
	Pending   []string           `firestore:"pending"` // IDs of clickPending documents that have not been added to their links yet
}

type markDoc struct {
	Batch int64 `firestore:"b"`
	Total int64 `firestore:"t"`
	Day   int64 `firestore:"d"`
}

type dayKey struct {
	linkID string
	day    link.Day
}

// dayDoc is the document links/{id}/days/{yyyy-mm-dd}, or the same document under a domain.
type dayDoc struct {
	Clicks    int64            `firestore:"clicks"`
	Referrers map[string]int64 `firestore:"referrers"`
	Countries map[string]int64 `firestore:"countries"`
	Devices   map[string]int64 `firestore:"devices"`
	Rules     map[string]int64 `firestore:"rules,omitempty"` // does not include clicks that no rule redirected
	ExpireAt  time.Time        `firestore:"expireAt"`
}

func (c *Counts) partition() firestoredb.Ref { return c.s.partitionRef(c.part) }

func (s *Store) partitionRef(part int) firestoredb.Ref {
	return s.db.Collection("clickPartitions").Doc(strconv.Itoa(part))
}

func (c *Counts) pendingRef(id string) firestoredb.Ref {
	return c.s.db.Collection("clickPending").Doc(id)
}

// Progress implements clicks.Counts.
func (c *Counts) Progress(ctx context.Context) (link.Progress, error) {
	d, _, err := firestoredb.Lookup(ctx, c.s.db.DB, "read click progress", c.partition(), firestoredb.As[partitionDoc])
	if err != nil {
		return link.Progress{}, err
	}
	// A flusher left these behind when it died. Progress already covers them, so they only have to
	// be added to their links.
	pending := make([]part, len(d.Pending))
	for i, id := range d.Pending {
		pending[i].id = id
	}
	if _, err := c.finish(ctx, pending); err != nil {
		return link.Progress{}, err
	}
	return d.progress(), nil
}

func (d *partitionDoc) progress() link.Progress {
	p := link.Progress{Cycle: d.Cycle, Producers: map[string]link.Mark{}}
	for name, m := range d.Producers {
		p.Producers[name] = link.Mark{Batch: m.Batch, Total: m.Total, Day: link.Day(m.Day)}
	}
	return p
}

// Marks implements [clicks.Marks].
func (s *Store) Marks(ctx context.Context, part int) (marks map[string]link.Mark, done bool, err error) {
	d, _, err := firestoredb.Lookup(ctx, s.db.DB, "read click progress", s.partitionRef(part), firestoredb.As[partitionDoc])
	return d.progress().Producers, len(d.Pending) == 0, err
}

// Count implements clicks.Counts.
func (c *Counts) Count(
	ctx context.Context, from link.Progress, marks map[string]link.Mark, tallies []*link.Tally,
) (next link.Progress, refused int64, err error) {
	next = advance(from, marks)
	if err := c.boundNames(ctx, tallies); err != nil {
		return from, 0, err
	}
	chunks := inCommits(tallies)
	if len(chunks) <= 1 {
		err := c.countAtOnce(ctx, from, next, tallies)
		if !errors.Is(err, firestoredb.ErrInvalid) {
			return next, 0, err
		}
		// Firestore rejects one of the tallies. Store all of them as pending first, so the progress
		// does not have to wait until finish has found the rejected one.
	}
	pending, names := make([]part, len(chunks)), make([]string, len(chunks))
	for i, chunk := range chunks {
		names[i] = fmt.Sprintf("%d-%d-%d", c.part, next.Cycle, i)
		pending[i] = part{id: names[i], tallies: chunk}
	}
	// After this write, the clicks are counted but not yet added to their links.
	var written firestore.CommitResponse
	err = c.s.db.DB.Tx(ctx, "note click counts", func(_ context.Context, tx *firestore.Transaction) error {
		if err := c.check(tx, from); err != nil {
			return err
		}
		for i, chunk := range chunks {
			doc, err := pendingDocOf(chunk)
			if err != nil {
				return err
			}
			if err := tx.Set(c.pendingRef(names[i]), doc); err != nil {
				return err
			}
		}
		return tx.Set(c.partition(), partitionDocOf(next, names))
	}, firestore.WithCommitResponseTo(&written))
	if err != nil {
		return from, 0, err
	}
	for i := range pending {
		pending[i].written = written.CommitTime()
	}
	refused, err = c.finish(ctx, pending)
	return next, refused, err
}

// pendingDoc is the document clickPending/{partition-cycle-i}. It contains tallies that progress
// already covers but that have not been added to their links yet.
type pendingDoc struct {
	Counts []byte `firestore:"counts"` // JSON
}

func pendingDocOf(tallies []*link.Tally) (*pendingDoc, error) {
	raw, err := json.Marshal(tallies)
	return &pendingDoc{raw}, err
}

// refusedDoc is the document clickRefused/{id}. It contains a tally that Firestore rejected, for an
// operator to examine.
type refusedDoc struct {
	Tally []byte    `firestore:"tally"` // JSON
	Error string    `firestore:"error"`
	At    time.Time `firestore:"at"`
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
	// If this document became too large for Firestore, counting would stop permanently, so when
	// there are very many producers, the oldest are removed sooner.
	for keep := link.Day(producerMemory); keep >= 0; keep-- {
		maps.DeleteFunc(next.Producers, func(_ string, m link.Mark) bool { return today-m.Day > keep })
		if len(next.Producers) <= producersMax {
			break
		}
	}
	return next
}

func partitionDocOf(p link.Progress, pending []string) *partitionDoc {
	d := &partitionDoc{Cycle: p.Cycle, Producers: map[string]markDoc{}, Pending: pending}
	for name, m := range p.Producers {
		d.Producers[name] = markDoc{m.Batch, m.Total, int64(m.Day)}
	}
	return d
}

// check rejects a writer if from does not match the stored progress.
func (c *Counts) check(tx *firestore.Transaction, from link.Progress) error {
	var d partitionDoc
	snap, err := tx.Get(c.partition())
	switch {
	// For a missing document, Get returns a snapshot together with NotFound, so check the snapshot
	// before the error. A missing document means that nothing has been counted yet, which is cycle
	// 0.
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
		return c.s.db.DB.Tx(ctx, "count clicks", func(_ context.Context, tx *firestore.Transaction) error {
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

// part is a pendingDoc, identified by its ID.
type part struct {
	id string
	// tallies contains the contents of the document, unless another flusher has changed it since it
	// was written. If tallies is nil, the contents are unknown.
	tallies []*link.Tally
	written time.Time
}

// finish adds pending parts to their links, several parts concurrently.
func (c *Counts) finish(ctx context.Context, pending []part) (refused int64, err error) {
	var g errgroup.Group
	g.SetLimit(commitsAtOnce)
	var sum atomic.Int64
	for _, p := range pending {
		g.Go(func() error {
			n, err := c.finishOne(ctx, p)
			sum.Add(n)
			return err
		})
	}
	err = g.Wait()
	return sum.Load(), err
}

// finishOne adds a pending part to its links and removes the part in the same commit, so any
// flusher may do this and may retry it. If Firestore rejects the commit, finishOne tries smaller
// pieces until it finds the rejected tally.
func (c *Counts) finishOne(ctx context.Context, p part) (refused int64, err error) {
	if p.tallies != nil {
		err := c.finishUnread(ctx, p)
		if err == nil ||
			!errors.Is(err, firestoredb.ErrNotFound) && !errors.Is(err, firestoredb.ErrStale) && !errors.Is(err, firestoredb.ErrInvalid) {
			return 0, err
		}
		// Either a link was deleted, Firestore rejects a tally, or another flusher got there first.
		// Read the pending document to find the remaining tallies.
	}
	id := p.id
	for size := 1 << 30; ; {
		rest, err := c.finishPiece(ctx, id, size, nil)
		switch {
		case errors.Is(err, firestoredb.ErrInvalid) && size > 1:
			// Halve the last piece, which may have been smaller than size.
			size = max(min(size, rest)/2, 1)
		case errors.Is(err, firestoredb.ErrInvalid):
			n, err := c.setAside(ctx, id, err)
			if err != nil {
				return refused, err
			}
			refused += n
			size = 1 << 30 // the others may succeed
		case err != nil || rest == 0:
			return refused, err
		}
	}
}

// finishUnread adds a part that this process has just written, without reading it back. It fails if
// another flusher has already counted some of the part.
func (c *Counts) finishUnread(ctx context.Context, p part) error {
	return c.s.db.DB.Commit(ctx, "count pending clicks", func(_ context.Context, tx *firestore.Transaction) error {
		if err := c.add(tx, p.tallies); err != nil {
			return err
		}
		return tx.Delete(c.pendingRef(p.id), firestore.LastUpdateTime(p.written))
	})
}

// finishPiece adds the first size tallies of a pending part to their links and leaves the others
// pending. It returns the number of remaining tallies, or the size of the piece if Firestore
// rejects it. If the part does not exist, another flusher has counted it.
func (c *Counts) finishPiece(ctx context.Context, id string, size int, gone map[string]bool) (left int, err error) {
	var piece []*link.Tally
	err = c.s.db.DB.Tx(ctx, "count pending clicks", func(_ context.Context, tx *firestore.Transaction) error {
		tallies, found, err := c.pendingIn(tx, id)
		if left = len(tallies); err != nil || !found {
			return err
		}
		n := min(size, len(tallies))
		var rest []*link.Tally
		piece, rest = tallies[:n], tallies[n:]
		if err := c.add(tx, slices.DeleteFunc(slices.Clone(piece), func(t *link.Tally) bool { return gone[t.LinkID] })); err != nil {
			return err
		}
		left = len(rest)
		return c.putRest(tx, id, rest)
	})
	switch {
	// A deleted link makes the whole commit fail. Find the deleted links and retry without them.
	case errors.Is(err, firestoredb.ErrNotFound) && len(gone) < len(piece):
		missing, lookErr := c.missing(ctx, piece)
		if lookErr != nil {
			return left, lookErr
		}
		if len(missing) > len(gone) {
			return c.finishPiece(ctx, id, size, missing)
		}
		return left, err
	case err != nil:
		return len(piece), err
	}
	return left, nil
}

// setAside moves the first tally of a pending part to clickRefused, for an operator.
func (c *Counts) setAside(ctx context.Context, id string, why error) (clicks int64, err error) {
	err = c.s.db.DB.Tx(ctx, "set clicks aside", func(_ context.Context, tx *firestore.Transaction) error {
		clicks = 0
		tallies, found, err := c.pendingIn(tx, id)
		if err != nil || !found || len(tallies) == 0 {
			return err
		}
		raw, err := json.Marshal(tallies[0])
		if err != nil {
			return err
		}
		doc := &refusedDoc{Tally: raw, Error: strings.ToValidUTF8(fmt.Sprintf("%.1000s", why), ""), At: c.s.db.Now()}
		// The name is the same in every attempt, but different for each tally in the part.
		name := fmt.Sprintf("%s-%d", id, len(tallies))
		if err := tx.Set(c.s.db.Collection("clickRefused").Doc(name), doc); err != nil {
			return err
		}
		clicks = tallies[0].Clicks
		return c.putRest(tx, id, tallies[1:])
	})
	return clicks, err
}

func (c *Counts) pendingIn(tx *firestore.Transaction, id string) (tallies []*link.Tally, found bool, err error) {
	snap, err := tx.Get(c.pendingRef(id))
	if snap != nil && !snap.Exists() {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	var d pendingDoc
	if err := snap.DataTo(&d); err != nil {
		return nil, false, err
	}
	if err := json.Unmarshal(d.Counts, &tallies); err != nil {
		return nil, false, fmt.Errorf("read pending clicks %s: %w", id, err)
	}
	return tallies, true, nil
}

func (c *Counts) putRest(tx *firestore.Transaction, id string, rest []*link.Tally) error {
	if len(rest) == 0 {
		return tx.Delete(c.pendingRef(id))
	}
	doc, err := pendingDocOf(rest)
	if err != nil {
		return err
	}
	return tx.Set(c.pendingRef(id), doc)
}

// skippingGone writes tallies. If a deleted link makes the whole commit fail, skippingGone finds
// the deleted links and writes the other tallies.
func (c *Counts) skippingGone(ctx context.Context, tallies []*link.Tally, write func([]*link.Tally) error) error {
	for range 3 {
		err := write(tallies)
		if !errors.Is(err, firestoredb.ErrNotFound) {
			return err
		}
		gone, err := c.missing(ctx, tallies)
		if err != nil {
			return err
		}
		tallies = slices.DeleteFunc(slices.Clone(tallies), func(t *link.Tally) bool { return gone[t.LinkID] })
	}
	return write(tallies)
}

// missing returns the tallies' links that no longer exist.
func (c *Counts) missing(ctx context.Context, tallies []*link.Tally) (map[string]bool, error) {
	var refs []*firestore.DocumentRef
	for _, t := range tallies {
		ref, _ := c.s.countedRef(t.LinkID)
		refs = append(refs, ref)
	}
	// Tallies are sorted by link, so equal references are adjacent.
	refs = slices.CompactFunc(refs, func(a, b *firestore.DocumentRef) bool { return a.ID == b.ID })
	gone := map[string]bool{}
	err := c.s.db.Do(ctx, "look for links", func(ctx context.Context) error {
		snaps, err := c.s.db.GetAll(ctx, refs)
		for _, snap := range snaps {
			if !snap.Exists() {
				gone[snap.Ref.ID] = true
			}
		}
		return err
	})
	return gone, err
}

// add increments the counts for links or domains, and for their days.
func (c *Counts) add(tx *firestore.Transaction, tallies []*link.Tally) error {
	for i := 0; i < len(tallies); {
		id, clicks := tallies[i].LinkID, int64(0)
		ref, total := c.s.countedRef(id)
		days := ref.Collection("days")
		for ; i < len(tallies) && tallies[i].LinkID == id; i++ {
			t := tallies[i]
			clicks += t.Clicks
			if err := tx.Set(days.Doc(t.Day.String()), dayIncrements(t), firestore.MergeAll); err != nil {
				return err
			}
		}
		// If the document does not exist, Update and its commit fail, and none of its days are
		// written.
		if err := tx.Update(ref, []firestore.Update{{Path: total, Value: firestore.Increment(clicks)}}); err != nil {
			return err
		}
	}
	return nil
}

// countedRef returns the document of the link or domain with the given ID, and the name of the
// field that contains its total.
func (s *Store) countedRef(id string) (ref *firestore.DocumentRef, total string) {
	if customdomain.IsID(id) {
		return s.db.Collection("domains").Doc(id), "visits"
	}
	return s.linkRef(id), "clicks"
}

// days returns the days for a link or domain.
func (s *Store) days(id string) *firestore.CollectionRef {
	ref, _ := s.countedRef(id)
	return ref.Collection("days")
}

func (s *Store) dayRef(id string, day link.Day) *firestore.DocumentRef {
	return s.days(id).Doc(day.String())
}

func dayIncrements(t *link.Tally) map[string]any {
	each := func(m map[string]int64) map[string]any {
		out := make(map[string]any, len(m))
		for k, n := range m {
			out[keyOf(k)] = firestore.Increment(n)
		}
		return out
	}
	fields := map[string]any{
		"clicks": firestore.Increment(t.Clicks), "referrers": each(t.Referrers), "countries": each(t.Countries), "devices": each(t.Devices),
		"expireAt": time.Unix(int64(t.Day)*86400, 0).Add(dayMemory),
	}
	if len(t.Rules) > 0 {
		fields["rules"] = each(t.Rules)
	}
	return fields
}

// keyOf converts a name to a field name. Firestore requires at least one character and reserves
// names like __this__, but visitors can send any host name, and rules can have any name. "-" stands
// for no name. A percent sign is added in front of names that are "-" or reserved, or that start
// with a percent sign.
func keyOf(name string) string {
	switch {
	case name == "":
		return "-"
	case name == "-", name[0] == '_', name[0] == '%':
		return "%" + name
	}
	return name
}

func nameOf(key string) string {
	if key == "-" {
		return ""
	}
	return strings.TrimPrefix(key, "%")
}

// inCommits splits tallies, which are sorted by link, into parts that each fit into one commit. All
// days of a link are in the same part.
func inCommits(tallies []*link.Tally) [][]*link.Tally {
	var out [][]*link.Tally
	start, links, size := 0, 0, 0
	for i, t := range tallies {
		if i == 0 || t.LinkID != tallies[i-1].LinkID {
			links++
			if links > linksPerCommit || size > bytesPerCommit {
				out = append(out, tallies[start:i])
				start, links, size = i, 1, 0
			}
		}
		size += t.Size()
	}
	if start < len(tallies) {
		out = append(out, tallies[start:])
	}
	return out
}

// boundNames counts hosts and rules that exceed a day's limits under [OtherNames]. Any client
// can send any Referer header, so without a limit, a document could grow until Firestore rejects
// all writes to it. A day's names are read once and then cached.
func (c *Counts) boundNames(ctx context.Context, tallies []*link.Tally) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names.makeRoom()
	var unknown []*link.Tally
	for _, t := range tallies {
		switch {
		case !named(t):
		case c.names.knows(t):
			c.names.bound(t)
		default:
			unknown = append(unknown, t)
		}
	}
	for some := range slices.Chunk(unknown, daysAtOnce) {
		c.names.makeRoom()
		if err := c.readNames(ctx, some); err != nil {
			return err
		}
		for _, t := range some {
			c.names.bound(t)
		}
	}
	return nil
}

// readNames reads the hosts and rules already contained in the tallies' days.
func (c *Counts) readNames(ctx context.Context, tallies []*link.Tally) error {
	refs := make([]*firestore.DocumentRef, len(tallies))
	for i, t := range tallies {
		refs[i] = c.s.dayRef(t.LinkID, t.Day)
	}
	return c.s.db.Do(ctx, "read click days", func(ctx context.Context) error {
		snaps, err := c.s.db.GetAll(ctx, refs) // in the same order as refs
		if err != nil {
			return err
		}
		for i, snap := range snaps {
			var d dayDoc
			if snap.Exists() {
				if err := snap.DataTo(&d); err != nil {
					return err
				}
			}
			c.names.learn(tallies[i], &d)
		}
		return nil
	})
}

// named reports whether a tally has referring hosts or rules, which are limited in number.
func named(t *link.Tally) bool {
	_, unnamed := t.Referrers[""]
	return len(t.Referrers) > 1 || len(t.Referrers) == 1 && !unnamed || len(t.Rules) > 0
}

// Stats returns the days from first to last, inclusive.
func (s *Store) Stats(ctx context.Context, linkID string, first, last link.Day) (link.Stats, error) {
	st, sum := link.Stats{Days: make([]int64, last-first+1)}, dayDoc{}
	q := s.days(linkID).OrderBy(firestore.DocumentID, firestore.Asc).StartAt(first.String()).EndAt(last.String())
	snaps, err := s.db.Query(ctx, "read click days", q)
	if err != nil {
		return link.Stats{}, err
	}
	for _, snap := range snaps {
		d, err := firestoredb.As[dayDoc](snap)
		if err != nil {
			return link.Stats{}, err
		}
		// The query compares IDs as text, so it may also match documents that are not days. Skip
		// those.
		day, ok := link.ParseDay(snap.Ref.ID)
		if !ok || day < first || day > last {
			continue
		}
		st.Days[day-first] = d.Clicks
		sum.add(&d)
	}
	st.Total, st.Shares = sum.Clicks, sum.shares()
	return st, nil
}

// add adds the clicks from another day.
func (d *dayDoc) add(other *dayDoc) {
	d.Clicks += other.Clicks
	for _, m := range []struct {
		to   *map[string]int64
		from map[string]int64
	}{{&d.Referrers, other.Referrers}, {&d.Countries, other.Countries}, {&d.Devices, other.Devices}, {&d.Rules, other.Rules}} {
		if *m.to == nil {
			*m.to = map[string]int64{}
		}
		for key, n := range m.from {
			(*m.to)[key] += n
		}
	}
}

// shares returns the shares of the day's clicks. Clicks without a rule are not stored but computed
// as the remainder, so the days of plain links store nothing about rules.
func (d *dayDoc) shares() link.Shares {
	rules, left := map[string]int64{}, d.Clicks
	for key, n := range d.Rules {
		rules[key] = n
		left -= n
	}
	if left != 0 {
		rules[keyOf("")] = left
	}
	return link.Shares{Referrers: ranked(d.Referrers), Countries: ranked(d.Countries), Devices: ranked(d.Devices), Rules: ranked(rules)}
}

// ranked returns the counts in a day document by name, most clicks first.
func ranked(stored map[string]int64) []link.Share {
	out := make([]link.Share, 0, len(stored))
	for key, n := range stored {
		out = append(out, link.Share{Name: nameOf(key), Clicks: n})
	}
	slices.SortFunc(out, func(a, b link.Share) int { return cmp.Or(cmp.Compare(b.Clicks, a.Clicks), cmp.Compare(a.Name, b.Name)) })
	return out
}
