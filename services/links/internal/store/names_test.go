package store

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/services/links/internal/link"
	"github.com/linkreel/linkreel/services/localcloud/procstat"
)

// Visitors choose the names and the number of referring hosts. Owners choose rule names. The test
// is not parallel because it measures the heap.
func TestMemoryOfNamesIsBoundedInBytes(t *testing.T) {
	for name, c := range map[string]struct{ days, hosts, rules int }{
		"many_long_names_a_day":     {6000, 110, 0},
		"many_names_of_both_kinds":  {6000, 110, 60},
		"many_days_with_one_name":   {300_000, 1, 0},
		"many_days_with_some_names": {50_000, 9, 0},
	} {
		t.Run(name, func(t *testing.T) {
			long, before, most := strings.Repeat("a", 235), procstat.Heap(), int64(0)
			m := newNameMemory(namesMemory / 4)
			for day := range c.days {
				m.makeRoom()
				tally := &link.Tally{LinkID: fmt.Sprintf("lnk_%022d", day), Day: 20000, Referrers: map[string]int64{}, Rules: map[string]int64{}}
				for h := range c.hosts {
					tally.Referrers[fmt.Sprintf("%d-%d-%s.example", day, h, long)] = 1
				}
				for r := range c.rules {
					tally.Rules[fmt.Sprint("rule ", r)] = 1
				}
				m.learn(tally, &dayDoc{})
				m.bound(tally)
				if len(tally.Referrers) > maxReferrers+1 || len(tally.Rules) > maxRuleNames+1 {
					t.Fatalf("a day has %d hosts and %d rules, want at most %d and %d", len(tally.Referrers), len(tally.Rules), maxReferrers+1, maxRuleNames+1)
				}
				if day%(c.days/20) == 0 {
					most = max(most, procstat.Heap()-before)
				}
			}
			if most > namesMemory/4 {
				t.Errorf("the names take %d KiB, want at most %d", most>>10, namesMemory/4>>10)
			}
			runtime.KeepAlive(m)
		})
	}
}

// If the memory is always full, every cycle reads the days' hosts again. The counts must still be
// correct.
func TestCountWithAFullMemoryKeepsTheBoundOfADay(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	day := link.DayOf(b.clock())
	c := b.Counts(0, 1, errOvertaken)
	c.names = newNameMemory(0)
	links := b.create(t, "acc", daysAtOnce+20) // more days than one call can read
	for round := range 3 {
		p, err := c.Progress(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var tallies []*link.Tally
		for _, l := range links {
			sum := &link.Tally{LinkID: l.ID, Day: day}
			for i := range 70 {
				sum.Add(link.Click{Referrer: fmt.Sprintf("h%d.example", round*50+i)}, 1)
			}
			tallies = append(tallies, sum)
		}
		if _, refused, err := c.Count(t.Context(), p, map[string]link.Mark{"p": {Batch: int64(round + 1)}}, tallies); err != nil || refused > 0 {
			t.Fatal(refused, err)
		}
	}
	if len(c.names.days) > daysAtOnce {
		t.Errorf("%d days are in memory, want at most %d", len(c.names.days), daysAtOnce)
	}
	for _, l := range links {
		total, referrers := counted(t, b, l.ID, day)
		sum := int64(0)
		for _, n := range referrers {
			sum += n
		}
		if total != 210 || sum != 210 || len(referrers) != maxReferrers+1 {
			t.Fatalf("link %s: %d clicks, %d of them from %d hosts; want 210, all with a host", l.ID, total, sum, len(referrers))
		}
	}
}

// A day in memory is not read again.
func TestCountReadsADayOnce(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	c, day := b.Counts(0, 1, errOvertaken), link.DayOf(b.clock())
	id := b.create(t, "acc", 1)[0].ID
	var reads int64
	for round := range 5 {
		p, err := c.Progress(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before := b.cloud.Firestore.Stats().Reads
		if _, _, err := c.Count(t.Context(), p, map[string]link.Mark{"p": {Batch: int64(round + 1)}}, []*link.Tally{tally(id, day, link.Click{Referrer: fmt.Sprint("h", round)})}); err != nil {
			t.Fatal(err)
		}
		if round > 0 {
			reads += b.cloud.Firestore.Stats().Reads - before
		}
	}
	if reads > 4 { // the progress reads
		t.Errorf("got %d documents read in four cycles, want at most 4", reads)
	}
}
