package events_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	libevents "github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/tenant/keeper/keepertest"
)

// state sends the replica one of auth's decisions about an account.
func (r *replica) state(account string, s tenant.State, version int64) {
	r.t.Helper()
	if err := r.holder.SetState(r.t.Context(), account, tenant.Standing{State: s, Version: version}); err != nil {
		r.t.Fatalf("SetState(%s, %s) returned %v, want no error", account, s, err)
	}
}

func TestASuspendedAccountIsSentNothingUntilItIsLifted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start()
	key, otherKey := w.key("acc_a", identity.Creator), w.key("acc_b", identity.Creator)
	mine, others := newReceiver(t, nil), newReceiver(t, nil)
	h := r.hook(key, mine.URL, "link.created")
	r.hook(otherKey, others.URL, "link.created")
	w.change("acc_a", libevents.LinkCreated, "lnk_0", map[string]any{"id": "lnk_0"})
	eventually(t, "the first event arrives", func() bool { return len(mine.messages()) == 1 })

	r.state("acc_a", tenant.Suspended, 2)
	for i := range 50 { // more than fit in a lane
		w.change("acc_a", libevents.LinkCreated, fmt.Sprint("lnk_", i+1), map[string]any{"id": i})
	}
	w.change("acc_b", libevents.LinkCreated, "lnk_b", map[string]any{"id": "lnk_b"})
	eventually(t, "the other account's event arrives", func() bool { return len(others.messages()) == 1 })
	eventually(t, "all deliveries are deferred", func() bool {
		p := r.deliveries(key, h.ID, "limit=100")
		return len(p.Data) == 51 && len(w.due(t)) == 0
	})
	r.state("acc_a", tenant.Active, 1) // an older decision arrives late
	// The deliveries are due again, but the account is still suspended.
	w.forward(7 * time.Hour)
	eventually(t, "all deliveries are deferred again", func() bool { return len(w.due(t)) == 0 })
	if n := len(mine.messages()); n != 1 {
		t.Fatalf("the suspended account got %d messages, want 0", n-1)
	}
	for _, d := range r.deliveries(key, h.ID, "limit=100").Data {
		if len(d.Attempts) > 0 && d.Status == "pending" {
			t.Errorf("pending delivery %s has attempts %v, want none", d.ID, d.Attempts)
		}
	}

	r.state("acc_a", tenant.Active, 3)
	eventually(t, "the waiting events arrive", func() bool { return len(ids(mine.messages())) == 51 })
}

// The replica that stores the end of a suspension dies before sending anything. Another replica
// must send the waiting deliveries long before they would otherwise become due.
func TestALiftWhoseReplicaIsKilledIsMadeGood(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start()
	mine := newReceiver(t, nil)
	h := r.hook(w.key("acc_a", identity.Creator), mine.URL, "link.created")
	r.state("acc_a", tenant.Suspended, 2)
	const changes = 50 // more than fit in a lane
	for i := range changes {
		w.change("acc_a", libevents.LinkCreated, fmt.Sprint("lnk_", i), map[string]any{"id": i})
	}
	eventually(t, "all deliveries are deferred", func() bool {
		return len(r.deliveries(w.key("acc_a", identity.Creator), h.ID, "limit=100").Data) == changes && len(w.due(t)) == 0
	})
	r.stop()
	now := w.now()
	if _, err := w.db.Collection("eventAccounts").Doc("acc_a").Set(t.Context(), map[string]any{"state": "active", "version": 3, "since": now, "lookAt": now}); err != nil {
		t.Fatal(err)
	}
	w.start()
	eventually(t, "the waiting events arrive", func() bool { return len(ids(mine.messages())) == changes })
	eventually(t, "the replica stops checking the account once no deliveries are waiting", func() bool {
		w.forward(time.Minute)
		snap, err := w.db.Collection("eventAccounts").Doc("acc_a").Get(t.Context())
		return err == nil && snap.Data()["lookAt"] == nil
	})
}

// The end of a suspension may be reported before the suspension itself.
func TestALateSuspensionIsIgnoredAfterItsLift(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start()
	mine := newReceiver(t, nil)
	r.hook(w.key("acc_a", identity.Creator), mine.URL, "link.created")
	r.state("acc_a", tenant.Active, 6)
	r.state("acc_a", tenant.Suspended, 5)
	w.change("acc_a", libevents.LinkCreated, "lnk_0", map[string]any{"id": "lnk_0"})
	eventually(t, "the event arrives", func() bool { return len(mine.messages()) == 1 })
}

// due returns the deliveries that are due within five minutes.
func (w *world) due(t *testing.T) []string {
	t.Helper()
	snaps, err := w.db.Collection("webhookDeliveries").Documents(t.Context()).GetAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range snaps {
		if at, ok := s.Data()["dueAt"].(time.Time); ok && !at.After(w.now().Add(5*time.Minute)) {
			out = append(out, s.Ref.ID)
		}
	}
	return out
}

func ids(list []message) map[string]int {
	out := map[string]int{}
	for _, m := range list {
		out[m.id()]++
	}
	return out
}

func TestErasureLeavesNothingButTheTombstone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start()
	key, otherKey := w.key("acc_a", identity.Creator), w.key("acc_b", identity.Creator)
	hangs := newReceiver(t, status(500))
	h := r.hook(key, hangs.URL)
	r.hook(otherKey, hangs.URL)
	for i := range 900 { // more than two commits can erase
		w.change("acc_a", libevents.LinkCreated, fmt.Sprint("lnk_", i), map[string]any{"id": i})
	}
	w.change("acc_b", libevents.LinkCreated, "lnk_b", map[string]any{"id": "lnk_b"})
	r.want(202, key, "POST", "/api/v1/webhooks/"+h.ID+"/replay", map[string]any{"from": 0, "to": time.Now().UnixMilli()})
	r.feed(otherKey, "")
	var before []string
	eventually(t, "the other account's first attempts are recorded", func() bool {
		before = w.documents(t, "acc_b")
		return !slices.ContainsFunc(before, func(d string) bool { return strings.HasPrefix(d, "events/") })
	})

	r.state("acc_a", tenant.Suspended, 2)
	if erased, err := r.holder.Erased(t.Context(), "acc_a"); err != nil || erased {
		t.Errorf("Erased returned %v, %v for a suspended account; want false and no error", erased, err)
	}
	r.state("acc_a", tenant.Deleting, 3)
	w.forward(time.Minute)
	called := len(hangs.messages())
	erased := func() bool {
		done, err := r.holder.Erased(t.Context(), "acc_a")
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	eventually(t, "none of the account's data remains", erased)
	// While the links service erases its own records, an in-flight request commits another
	// event.
	w.change("acc_a", libevents.DomainDeleted, "dom_1", map[string]any{"id": "dom_1"})
	if erased() {
		t.Error("Erased returned true after a late event, want false")
	}
	r.state("acc_a", tenant.Deleting, 3) // as auth does, repeat the call
	eventually(t, "none of the account's data remains after the late event", erased)
	if got := w.documents(t, "acc_a"); len(got) != 1 || !strings.HasPrefix(got[0], "eventAccounts/acc_a ") {
		t.Errorf("after the erasure, the documents are %q, want only the tombstone", got)
	}
	if got := w.documents(t, "acc_b"); len(got) != len(before) {
		t.Errorf("the other account has %d documents after the erasure, want %d", len(got), len(before))
	}
	if n := len(hangs.messages()); n > called+1+8 { // one call for acc_b, and at most eight that were in flight
		t.Errorf("%d calls were made after the erasure started, want at most 9", n-called)
	}
}

// Each event for a link with long fields is 30 kB, and deleted data counts towards the limit of 10
// MiB per commit.
func TestErasureOfLongEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start()
	long := strings.Repeat("a", 30<<10)
	for i := range 450 {
		w.change("acc_a", libevents.LinkCreated, fmt.Sprint("lnk_", i), map[string]any{"id": i, "title": long})
	}
	r.state("acc_a", tenant.Deleting, 3)
	w.forward(time.Minute)
	eventually(t, "none of the account's data remains", func() bool {
		done, err := r.holder.Erased(t.Context(), "acc_a")
		return err == nil && done
	})
}

// documents returns the documents that contain the account's ID.
func (w *world) documents(t *testing.T, account string) (out []string) {
	t.Helper()
	for _, name := range []string{"events", "feeds", "feedPages", "webhooks", "webhookDeliveries", "webhookReplays", "eventAccounts"} {
		snaps, err := w.db.Collection(name).Documents(t.Context()).GetAll()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range snaps {
			if text := fmt.Sprintf("%s/%s %v", name, s.Ref.ID, s.Data()); strings.Contains(text, account) {
				out = append(out, text)
			}
		}
	}
	return out
}

func TestExport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start()
	key := w.key("acc_a", identity.Creator)
	h := r.hook(key, "https://receiver.example/hook", "link.created")
	w.key("acc_b", identity.Creator)
	for i := range 250 { // more than an export reads at a time
		w.change("acc_a", libevents.LinkCreated, fmt.Sprint("lnk_", i), map[string]any{"id": i})
	}
	w.change("acc_b", libevents.LinkCreated, "lnk_b", map[string]any{"id": "lnk_b"})
	var text bytes.Buffer
	if err := r.holder.Export(t.Context(), "acc_a", &text); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text.String(), h.Secret) || strings.Contains(text.String(), "lnk_b") {
		t.Error("the export contains a secret or another account's event, want neither")
	}
	var webhooks int
	var objects []string
	for lines := bufio.NewScanner(&text); lines.Scan(); {
		var l struct {
			Type string
			Data struct{ ID, Object, URL string }
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatalf("cannot parse the line %s: %v", lines.Text(), err)
		}
		switch {
		case l.Type == "webhook" && l.Data.ID == h.ID:
			webhooks++
		case l.Type == "event":
			objects = append(objects, l.Data.Object)
		}
	}
	if webhooks != 1 || len(objects) != 251 || objects[0] != h.ID || objects[250] != "lnk_249" {
		t.Errorf("the export has %d webhooks and %d events %v, want 1 webhook and 251 events from %s to lnk_249", webhooks, len(objects), objects, h.ID)
	}
}

func TestWhatIsCommittedAfterAnErasureIsErasedToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start()
	keepertest.TakesWhatIsCommittedLate(t, keepertest.Service{
		Holder: r.holder, Account: "acc_a", Forward: w.forward,
		Commit: func() { w.change("acc_a", libevents.LinkCreated, "lnk_1", map[string]any{"id": "lnk_1"}) },
		Left: func() int {
			tombstone := func(d string) bool { return strings.HasPrefix(d, "eventAccounts/") }
			return len(slices.DeleteFunc(w.documents(t, "acc_a"), tombstone))
		},
	})
}
