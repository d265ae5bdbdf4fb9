package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/links/internal/link"
)

// counted returns a link's clicks and referrers. It also checks that the link and its day have the
// same number of clicks.
func counted(t *testing.T, b world, id string, day link.Day) (total int64, referrers map[string]int64) {
	t.Helper()
	l, err := b.Link(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	st, err := b.Stats(t.Context(), id, day, day)
	if err != nil || st.Total != l.Clicks {
		t.Errorf("the day has %d clicks, the link %d, %v; want them equal", st.Total, l.Clicks, err)
	}
	referrers = map[string]int64{}
	for _, r := range st.Referrers {
		referrers[r.Name] = r.Clicks
	}
	return l.Clicks, referrers
}

// Visitors choose referring hosts, and owners choose rule names. Clicks must be counted
// whatever the name is.
func TestCountTakesEveryNameThatAStrangerCanChoose(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	id, day := b.create(t, "acc", 1)[0].ID, link.DayOf(time.Now())
	c := b.Counts(0, 1, errOvertaken)
	names := []string{"__x__", "__", "-", "_", "%", "%-", "a.b", "...", "`", "__name__", "0", "(other)", ""}
	var visits []link.Click
	for _, name := range names {
		visits = append(visits, link.Click{Referrer: name, Rule: name})
	}
	ofOwners := []string{"a\\b\"c", "€/[*]~", strings.Repeat("\U0001F984", 100), strings.Repeat("<", 100)}
	for _, name := range ofOwners {
		visits = append(visits, link.Click{Rule: name})
	}
	p, err := c.Progress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, refused, err := c.Count(t.Context(), p, map[string]link.Mark{"p": {Batch: 1, Day: day}}, []*link.Tally{tally(id, day, visits...)}); err != nil || refused > 0 {
		t.Fatalf("Count: %d rejected, %v; want none", refused, err)
	}
	total, referrers := counted(t, b, id, day)
	if total != int64(len(visits)) {
		t.Errorf("counted %d clicks, want %d", total, len(visits))
	}
	for _, name := range names {
		if want := map[bool]int64{true: int64(1 + len(ofOwners)), false: 1}[name == ""]; referrers[name] != want {
			t.Errorf("referrer %q has %d clicks, want %d; all referrers: %v", name, referrers[name], want, referrers)
		}
	}
	days, _, err := b.Days(t.Context(), id, 0, 2)
	if err != nil || len(days) != 1 || len(days[0].Rules) != len(names)+len(ofOwners) {
		t.Fatalf("days = %+v, %v; want one day with all rules", days, err)
	}
	for _, share := range days[0].Rules {
		if share.Clicks != 1 || !slices.Contains(append(names, ofOwners...), share.Name) {
			t.Errorf("rule %q has %d clicks, want a rule from the test with 1", share.Name, share.Clicks)
		}
	}
}

func TestCountSetsAsideWhatIsRefusedAndCountsTheRest(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, linksPerCommit + 50} {
		b := newWorld(t)
		links, day := b.create(t, "acc", n), link.DayOf(time.Now())
		c := b.Counts(0, 1, errOvertaken)
		var tallies []*link.Tally
		for _, l := range links {
			tallies = append(tallies, tally(l.ID, day, link.Click{Referrer: "good.example"}))
		}
		// The database rejects a reserved document name, just as it may reject other data.
		tallies = slices.Insert(tallies, 1, tally("__reserved__", day, link.Click{}, link.Click{}))
		p, err := c.Progress(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next, refused, err := c.Count(t.Context(), p, map[string]link.Mark{"p": {Batch: 1, Day: day}}, tallies)
		if err != nil || refused != 2 || next.Producers["p"].Batch != 1 {
			t.Fatalf("Count of %d links: %d rejected, %v; want 2 rejected and the batch recorded", n, refused, err)
		}
		for i, l := range links {
			if total, _ := counted(t, b, l.ID, day); total != 1 {
				t.Errorf("link %d has %d clicks, want 1", i, total)
			}
		}
		aside, err := b.db.Collection("clickRefused").Documents(t.Context()).GetAll()
		if err != nil || len(aside) != 1 {
			t.Fatalf("got %d rejected tallies in the store, %v; want 1", len(aside), err)
		}
		raw, _ := aside[0].Data()["tally"].([]byte)
		if !strings.Contains(string(raw), "__reserved__") {
			t.Errorf("stored tally = %s, want the rejected one", raw)
		}
		if rest, err := b.db.Collection("clickPending").Documents(t.Context()).GetAll(); err != nil || len(rest) > 0 {
			t.Errorf("got %d pending parts, %v; want none", len(rest), err)
		}
	}
}

func TestCountKeepsEveryRequestSmall(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	links, day := b.create(t, "acc", 250), link.DayOf(time.Now())
	c := b.Counts(0, 1, errOvertaken)
	var tallies []*link.Tally
	for _, l := range links {
		sum := &link.Tally{LinkID: l.ID, Day: day}
		for i := range 60 {
			sum.Add(link.Click{Referrer: fmt.Sprintf("%s%d.example", strings.Repeat("long-", 45), i)}, 1)
		}
		tallies = append(tallies, sum)
	}
	p, err := c.Progress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, refused, err := c.Count(t.Context(), p, map[string]link.Mark{"p": {Batch: 1, Day: day}}, tallies); err != nil || refused > 0 {
		t.Fatalf("Count: %d rejected, %v; want none", refused, err)
	}
	for _, l := range []int{0, 100, 249} {
		if total, _ := counted(t, b, links[l].ID, day); total != 60 {
			t.Errorf("link %d has %d clicks, want 60", l, total)
		}
	}
}

// A link without rules does not store anything about rules, either in its days or in its pending
// clicks.
func TestPlainLinksStoreNothingAboutRules(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	id, day := b.create(t, "acc", 1)[0].ID, link.DayOf(time.Now())
	plain := tally(id, day, link.Click{}, link.Click{Referrer: "a.example"})
	pending, err := pendingDocOf([]*link.Tally{plain})
	if err != nil || strings.Contains(string(pending.Counts), "Rules") {
		t.Errorf("pending clicks = %s, %v; want no rules", pending.Counts, err)
	}
	c := b.Counts(0, 1, errOvertaken)
	if _, _, err := c.Count(t.Context(), link.Progress{}, map[string]link.Mark{"p": {Batch: 1, Day: day}}, []*link.Tally{plain}); err != nil {
		t.Fatal(err)
	}
	snap, err := b.dayRef(id, day).Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, stored := snap.Data()["rules"]; stored || snap.Data()["clicks"] != int64(2) {
		t.Errorf("day = %v, want 2 clicks and no rules", snap.Data())
	}
	st, err := b.Stats(t.Context(), id, day, day)
	if err != nil || len(st.Rules) != 1 || st.Rules[0] != (link.Share{Clicks: 2}) {
		t.Errorf("clicks by rule = %v, %v; want 2 without a rule", st.Rules, err)
	}
}

// Counting many links takes several commits. The flusher knows the data that it wrote for these
// commits and must not read it back.
func TestCountOfManyLinksReadsOnlyWhereCountingStands(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	c, day := b.Counts(0, 1, errOvertaken), link.DayOf(time.Now())
	var tallies []*link.Tally
	for _, l := range b.create(t, "acc", linksPerCommit+50) {
		tallies = append(tallies, tally(l.ID, day, link.Click{}))
	}
	p, err := c.Progress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := b.cloud.Firestore.Stats().Reads
	if _, refused, err := c.Count(t.Context(), p, map[string]link.Mark{"p": {Batch: 1, Day: day}}, tallies); err != nil || refused > 0 {
		t.Fatalf("Count: %d rejected, %v; want none", refused, err)
	}
	// The flusher only reads the progress, which does not exist yet.
	if got := b.cloud.Firestore.Stats().Reads - before; got > 1 {
		t.Errorf("got %d documents read, want at most 1", got)
	}
	if total, _ := counted(t, b, tallies[0].LinkID, day); total != 1 {
		t.Errorf("counted %d clicks, want 1", total)
	}
}

// A slow flusher may find that another flusher has already counted some of the part that it has
// just written.
func TestCountAddsWhatAnotherFlusherHasLeftOfAPart(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	c, day := b.Counts(0, 1, errOvertaken), link.DayOf(time.Now())
	var tallies []*link.Tally
	for _, l := range b.create(t, "acc", 3) {
		tallies = append(tallies, tally(l.ID, day, link.Click{}))
	}
	doc, err := pendingDocOf(tallies)
	if err != nil {
		t.Fatal(err)
	}
	written, err := c.pendingRef("part").Create(t.Context(), doc)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := b.Counts(0, 1, errOvertaken).finishPiece(t.Context(), "part", 1, nil); left != 2 || err != nil {
		t.Fatalf("the other flusher left %d links, %v; want 2", left, err)
	}
	for range 2 { // in the second round, the part no longer exists
		if refused, err := c.finishOne(t.Context(), part{"part", tallies, written.UpdateTime}); refused > 0 || err != nil {
			t.Fatalf("finishOne: %d rejected, %v; want none", refused, err)
		}
	}
	for _, x := range tallies {
		if total, _ := counted(t, b, x.LinkID, day); total != 1 {
			t.Errorf("%s has %d clicks, want 1", x.LinkID, total)
		}
	}
}
