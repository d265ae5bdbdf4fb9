package events_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	libevents "github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/restored"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

// restore records a restore, as `linkreel restore` does before a service starts.
func (w *world) restore() restored.Record {
	w.t.Helper()
	r, err := restored.Write(w.t.Context(), w.db, w.now())
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func TestWebhooksWaitAfterARestoreUntilTheyAreResumed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rec := newReceiver(t, nil)
	key := w.key("acc_a", identity.Creator)
	r := w.start()
	h := r.hook(key, rec.URL, "link.created")
	w.change("acc_a", libevents.LinkCreated, "lnk_1", map[string]any{})
	eventually(t, "an event is delivered before the restore", func() bool { return len(rec.messages()) == 1 })
	r.stop()
	record := w.restore()

	r = w.start()
	w.change("acc_a", libevents.LinkCreated, "lnk_2", map[string]any{})
	eventually(t, "the event is placed", func() bool { return r.feed(key, "limit=1").objects() == "lnk_2" })
	r.want(202, key, "POST", "/api/v1/webhooks/"+h.ID+"/test", nil)
	w.forward(8 * time.Hour) // later than any time at which a deferred delivery becomes due
	w.change("acc_a", libevents.LinkCreated, "lnk_3", map[string]any{})
	eventually(t, "the next event is placed", func() bool { return r.feed(key, "limit=1").objects() == "lnk_3" })
	var shown struct{ Enabled, Paused bool }
	r.want(200, key, "GET", "/api/v1/webhooks/"+h.ID, nil).into(t, &shown)
	if !shown.Enabled || !shown.Paused {
		t.Errorf("the API returned %+v, want an enabled webhook that is paused", shown)
	}
	r.stop() // waits for attempts in progress
	if n := len(rec.messages()); n != 1 {
		t.Fatalf("the receiver got %d messages during the pause, want 0", n-1)
	}

	replicas := []*replica{w.start(), w.start()}
	waiting := 0
	for _, d := range replicas[0].deliveries(key, h.ID, "").Data {
		if d.Status == "pending" && len(d.Attempts) == 0 {
			waiting++
		}
	}
	if waiting != 3 {
		t.Errorf("got %d waiting deliveries, want 3: two events and the test message", waiting)
	}
	if _, err := restored.Resume(t.Context(), w.db, record.ID, restored.Pauses{Webhooks: true}); err != nil {
		t.Fatal(err)
	}
	ids := func() map[string]int {
		out := map[string]int{}
		for _, m := range rec.messages() {
			out[m.id()]++
		}
		return out
	}
	eventually(t, "all waiting deliveries are sent", func() bool { return len(ids()) == 4 })
	for i, r := range replicas {
		eventually(t, fmt.Sprintf("replica %d detects the end of the pause", i), func() bool {
			var shown struct{ Paused bool }
			r.want(200, key, "GET", "/api/v1/webhooks/"+h.ID, nil).into(t, &shown)
			return !shown.Paused
		})
	}
	w.change("acc_a", libevents.LinkCreated, "lnk_4", map[string]any{})
	eventually(t, "an event after the pause is delivered", func() bool { return len(ids()) == 5 })
}

// TestACursorOfALostTimeIsAhead resets a feed to an earlier state, as a restore does.
func TestACursorOfALostTimeIsAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key("acc_a", identity.Free)
	at := func(r *replica, after string) string {
		t.Helper()
		return r.feed(key, "after="+after).objects()
	}
	// grow writes an event. It returns the event's ID and the cursor after it.
	grow := func(r *replica, object string) (id, cursor string) {
		t.Helper()
		w.change("acc_a", libevents.LinkCreated, object, map[string]any{})
		p := r.feed(key, "after=")
		for p.HasMore {
			p = r.feed(key, "after="+*p.NextCursor)
		}
		last := p.Data[len(p.Data)-1]
		if last.Object != object {
			t.Fatalf("the last event in the feed is %s, want %s", last.Object, object)
		}
		return last.ID, *p.NextCursor
	}
	ahead := func(r *replica, query string) (restart string) {
		t.Helper()
		a := r.want(410, key, "GET", "/api/v1/events?"+query, nil)
		var e struct {
			Error struct{ Code, RestartAfter string }
		}
		if a.into(t, &e); e.Error.Code != "CURSOR_AHEAD" || e.Error.RestartAfter == "" {
			t.Fatalf("%s returned %s, want CURSOR_AHEAD with restartAfter", query, a.body)
		}
		return e.Error.RestartAfter
	}
	ref := w.db.Collection("feeds").Doc("acc_a")
	var kept map[string]any
	again := func(r *replica, note bool) *replica {
		t.Helper()
		r.stop()
		if _, err := ref.Set(context.Background(), kept); err != nil {
			t.Fatal(err)
		}
		if note {
			w.restore()
		}
		return w.start()
	}

	r := w.start()
	_, first := grow(r, "lnk_1")
	_, second := grow(r, "lnk_2")
	snap, err := ref.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kept = snap.Data()
	lostID, lost := grow(r, "lnk_lost")

	r = again(r, false) // a restore that was not recorded, such as one by Google
	if restart := ahead(r, "after="+lost); at(r, restart) != "" || at(r, second) != "" {
		t.Errorf("the events after %s are %q, want none: positions up to the backup are still valid", restart, at(r, restart))
	}
	ahead(r, "cursor="+lost)
	r.want(400, key, "GET", "/api/v1/events?after="+lostID, nil) // there is no record of the restore

	r = again(r, true)
	ahead(r, "after="+lost)
	if restart := ahead(r, "after="+lostID); at(r, restart) != "" {
		t.Errorf("the events after the lost one are %q, want none", at(r, restart))
	}
	_, third := grow(r, "lnk_3") // this event is assigned the lost event's position
	_, fourth := grow(r, "lnk_4")
	for name, query := range map[string]string{"lost event's cursor": "after=" + lost, "lost event's id": "after=" + lostID, "wait after its cursor": "wait=1&after=" + lost} {
		if restart := ahead(r, query); at(r, restart) != "lnk_3 lnk_4" {
			t.Errorf("%s: the events after restartAfter are %q, want lnk_3 lnk_4", name, at(r, restart))
		}
	}
	for after, want := range map[string]string{first: "lnk_2 lnk_3 lnk_4", second: "lnk_3 lnk_4", third: "lnk_4", fourth: ""} {
		if got := at(r, after); got != want {
			t.Errorf("the events after %s are %q, want %q", after, got, want)
		}
	}

	// Another restore of the same backup does not know about the first restore.
	r = again(r, true)
	_, other := grow(r, "lnk_5")
	if restart := ahead(r, "after="+third); at(r, restart) != "lnk_1 lnk_2 lnk_5" {
		t.Errorf("the events after restartAfter are %q, want the whole feed", at(r, restart))
	}
	ahead(r, "after="+lost)
	// A restore of a later backup knows about the earlier restore.
	r.stop()
	w.restore()
	r = w.start()
	grow(r, "lnk_6")
	if at(r, second) != "lnk_5 lnk_6" || at(r, other) != "lnk_6" {
		t.Errorf("after restoring the later backup, the events after the two cursors are %q and %q, want lnk_5 lnk_6 and lnk_6", at(r, second), at(r, other))
	}
	ahead(r, "after="+lost)
	w.forward(libevents.Kept + time.Hour)
	r.want(400, key, "GET", "/api/v1/events?after="+lostID, nil) // the event would have expired by now
}

// The service must also wait if the database is restored while it is running. It must notice this
// even before it next checks the record, which may be a minute later.
func TestAServiceThatRunsDuringARestoreWaitsToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Firestore.Timeout = time.Second
	rec := newReceiver(t, nil)
	key := w.key("acc_a", identity.Creator)
	r := w.start()
	h := r.hook(key, rec.URL, "link.created")
	w.change("acc_a", libevents.LinkCreated, "lnk_1", map[string]any{})
	eventually(t, "an event is delivered before the restore", func() bool { return len(rec.messages()) == 1 })
	w.restore()
	w.Firestore.Faults().Add(firestore.Fault{Code: codes.Unavailable})
	// The service notices an outage once at least five calls have failed, over at least a
	// second.
	var failing time.Time
	failed := 0
	eventually(t, "calls have failed for long enough", func() bool {
		began := time.Now()
		if r.call(key, "GET", "/api/v1/webhooks/"+h.ID, nil).status != 503 {
			failed = 0
			return false
		}
		if failed++; failed == 1 {
			failing = began
		}
		return failed >= 10 && time.Since(failing) > 2*time.Second
	})
	w.Firestore.Faults().Clear()
	w.change("acc_a", libevents.LinkCreated, "lnk_2", map[string]any{})
	eventually(t, "the service notices the restore", func() bool {
		a := r.call(key, "GET", "/api/v1/webhooks/"+h.ID, nil)
		var shown struct{ Paused bool }
		return a.status == 200 && json.Unmarshal(a.body, &shown) == nil && shown.Paused
	})
	eventually(t, "the event is in the feed", func() bool {
		a := r.call(key, "GET", "/api/v1/events?limit=1", nil)
		return a.status == 200 && strings.Contains(string(a.body), "lnk_2")
	})
	r.stop() // waits for attempts in progress
	if n := len(rec.messages()); n != 1 {
		t.Errorf("the receiver got %d messages during the pause, want none", n-1)
	}
}
