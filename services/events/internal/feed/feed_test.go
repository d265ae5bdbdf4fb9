package feed_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/services/events/internal/feed"
)

var now = time.Date(2026, 9, 21, 12, 0, 0, 0, time.UTC)

// A commit takes two hundred events, or fewer if each of them has many deliveries.
func TestPlacesFollowTheOrderOfWhatWaits(t *testing.T) {
	t.Parallel()
	for webhooks, want := range map[int]int{0: 200, 1: 200, 20: 21} {
		f := &feed.Feed{Head: 7, Subscribers: map[string]feed.Subscriber{
			"off": {Events: []string{feed.All}}, "other": {Events: []string{string(events.KeyRolled)}, Enabled: true},
		}}
		for i := range webhooks {
			f.Subscribers[fmt.Sprint("whk_", i)] = feed.Subscriber{Events: []string{string(events.LinkCreated)}, Enabled: true}
		}
		waiting := make([]*feed.Event, 250)
		for i := range waiting {
			waiting[i] = &feed.Event{Type: events.LinkCreated, At: now}
		}
		p := f.Place(waiting)
		if head := p.After.Head; len(p.Placed) != want || p.Placed[0].Seq != 8 || p.Placed[want-1].Seq != head || head != int64(7+want) || f.Head != 7 {
			t.Errorf("with %d webhooks, Place assigned %d positions up to %d, want %d", webhooks, len(p.Placed), head, want)
		}
		if n := len(f.Wanting(events.LinkCreated)); n != webhooks {
			t.Errorf("Wanting returned %d webhooks, want %d", n, webhooks)
		}
	}
}

// A few events are stored in the feed's document. Many events become pages, and no page should
// be too long.
func TestEventsBecomePages(t *testing.T) {
	t.Parallel()
	list := func(n, size int) (out []*feed.Event) {
		for range n {
			out = append(out, &feed.Event{Type: events.LinkCreated, At: now, Data: strings.Repeat("x", size)})
		}
		return out
	}
	for name, c := range map[string]struct {
		recent, waiting []*feed.Event
		placed          int
		pages           []int
	}{
		"a few":                {list(10, 100), list(40, 100), 40, nil},
		"one event too many":   {list(50, 100), list(1, 100), 1, []int{51}},
		"more than a page":     {list(50, 100), list(180, 100), 180, []int{200, 30}},
		"long events":          {nil, list(20, 70_000), 20, []int{7, 7, 6}},
		"more than one commit": {nil, list(200, 70_000), 29, []int{7, 7, 7, 7, 1}},
	} {
		p := (&feed.Feed{Recent: c.recent, Head: int64(len(c.recent))}).Place(c.waiting)
		var pages []int
		for _, page := range p.Pages {
			pages = append(pages, len(page))
		}
		left := 0
		if pages == nil {
			left = len(c.recent) + c.placed
		}
		if len(p.Placed) != c.placed || !slices.Equal(pages, c.pages) || len(p.After.Recent) != left {
			t.Errorf("%s: got %d placed events, pages of %v and %d recent events; want %d, %v and %d", name, len(p.Placed), pages, len(p.After.Recent), c.placed, c.pages, left)
		}
	}
}

func TestWhatHasExpiredLeavesTheFeed(t *testing.T) {
	t.Parallel()
	old := &feed.Event{At: now.Add(-events.Kept), Seq: 7}
	young := &feed.Event{At: now.Add(-events.Kept + time.Second), Seq: 8}
	p := (&feed.Feed{Head: 8, Recent: []*feed.Event{old, young}, ReadAt: now}).Place(nil)
	if p == nil || len(p.After.Recent) != 1 || p.After.Recent[0] != young || p.After.Head != 8 || len(p.Placed) != 0 {
		t.Fatalf("Place returned %+v, want only the young event and no new positions", p)
	}
	if p := p.After.Place(nil); p != nil {
		t.Errorf("Place returned %+v with nothing to write, want nil", p)
	}
}

// An event in its first attempts is still in the outbox and must keep its position.
func TestWhatIsAtItsFirstTriesGetsNoSecondPlace(t *testing.T) {
	t.Parallel()
	event := func(id string, after time.Duration) *feed.Event { return &feed.Event{ID: id, At: now.Add(after)} }
	sending := func(id string, at, since time.Duration) feed.Sending {
		return feed.Sending{EventID: id, At: now.Add(at), Since: now.Add(since), Webhooks: []string{"whk_1"}}
	}
	f := &feed.Feed{Sending: []feed.Sending{
		sending("evt_left", 0, 0), sending("evt_dead", 1, 0), sending("evt_tried", 2, time.Minute), sending("evt_behind", 9, time.Minute),
	}}
	waiting := []*feed.Event{event("evt_dead", 1), event("evt_tried", 2), event("evt_new", 3)}
	fresh, lapsed := f.Apart(waiting, true, now.Add(time.Second))
	if len(fresh) != 1 || fresh[0].ID != "evt_new" {
		t.Errorf("the fresh events are %+v, want evt_new", fresh)
	}
	if len(lapsed) != 1 || lapsed[0].EventID != "evt_dead" || lapsed[0].Event == nil || len(lapsed[0].Webhooks) != 1 {
		t.Errorf("the lapsed events are %+v, want evt_dead", lapsed)
	}
	var left []string
	for _, s := range f.Sending {
		left = append(left, s.EventID)
	}
	// The outbox may contain more events after those that were read.
	if want := []string{"evt_dead", "evt_tried", "evt_behind"}; !slices.Equal(left, want) {
		t.Errorf("the events in their first attempts are %v, want %v", left, want)
	}
	p := f.Place(fresh)
	if !p.Send(fresh[0], []string{"whk_1"}, now) || len(p.Leaving()) != 0 || len(p.After.Sending) != 4 || len(f.Sending) != 3 {
		t.Errorf("the placing is %+v, want the fresh event in its first attempts", p)
	}
	for range feed.MaxSending {
		p.Send(event("evt_more", 4), []string{"whk_1"}, now)
	}
	if len(p.After.Sending) != feed.MaxSending {
		t.Errorf("got %d events in their first attempts, want %d", len(p.After.Sending), feed.MaxSending)
	}
	if f.Apart(nil, false, now); len(f.Sending) != 0 {
		t.Errorf("with an empty outbox, the events in their first attempts are %+v, want none", f.Sending)
	}
}
