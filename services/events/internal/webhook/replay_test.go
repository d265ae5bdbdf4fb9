package webhook_test

import (
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/services/events/internal/feed"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

func TestAReplaySendsWhatItsWebhookWantsOfItsTimes(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 9, 21, 6, 0, 0, 0, time.UTC)
	r := &webhook.Replay{ID: "whr_1", WebhookID: "whk_1", From: from, To: from.Add(time.Hour), Next: 3}
	w := &webhook.Webhook{ID: "whk_1", Events: []string{string(events.LinkCreated)}}
	event := func(seq int64, id string, kind events.Type, after time.Duration) *feed.Event {
		return &feed.Event{ID: id, Type: kind, At: from.Add(after), Seq: seq}
	}
	page := feed.Page{More: true, Events: []*feed.Event{
		event(4, "evt_before", events.LinkCreated, -time.Second), event(5, "evt_1", events.LinkCreated, 0),
		event(6, "evt_other", events.LinkDeleted, time.Minute), event(7, "evt_2", events.LinkCreated, time.Hour),
		event(8, "evt_moments_later", events.LinkCreated, time.Hour+time.Second),
	}}
	now := from.Add(24 * time.Hour)
	list, next := r.Step(w, page, now)
	if len(list) != 2 || list[0].EventID != "evt_1" || list[1].EventID != "evt_2" || !list[0].Deferred || list[0].DueAt != now.Add(webhook.Defer) {
		t.Errorf("Step created %+v, want deferred deliveries of evt_1 and evt_2", list)
	}
	if next == nil || next.Next != 8 || next.DueAt != now {
		t.Errorf("the replay's next state is %+v, want it due now after position 8", next)
	}
	if again, _ := r.Step(w, page, now.Add(time.Hour)); again[0].ID != list[0].ID || again[1].ID == list[0].ID {
		t.Errorf("two identical steps created the IDs %s and %s, want the same ID, and not the other event's %s", list[0].ID, again[0].ID, again[1].ID)
	}
	page.Events[4].At = r.To.Add(2 * time.Minute)
	if _, next := r.Step(w, page, now); next != nil {
		t.Errorf("after the end of the time range, the next state is %+v, want nil", next)
	}
}

func TestOnlyReplaysAreRepeated(t *testing.T) {
	t.Parallel()
	e := &feed.Event{ID: "evt_1", AccountID: "acc_a"}
	if webhook.Send("whk_1", "whk_1", e, true, time.Now()).Repeated() || !webhook.Send("whr_1", "whk_1", e, true, time.Now()).Repeated() {
		t.Error("Repeated() is wrong, want false for an event's delivery and true for a replay's delivery")
	}
}
