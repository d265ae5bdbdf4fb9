package feed_test

import (
	"fmt"
	"testing"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/services/events/internal/feed"
)

// A commit takes two hundred events, and fewer when each has many deliveries.
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
			waiting[i] = &feed.Event{Type: events.LinkCreated}
		}
		placed := f.Place(waiting)
		if len(placed) != want || placed[0].Seq != 8 || placed[want-1].Seq != f.Head || f.Head != int64(7+want) {
			t.Errorf("%d webhooks: %d places up to %d, want %d", webhooks, len(placed), f.Head, want)
		}
		if n := len(f.Wanting(events.LinkCreated)); n != webhooks {
			t.Errorf("%d want it, want %d", n, webhooks)
		}
	}
}
