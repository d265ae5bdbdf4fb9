package links_test

import (
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/events/eventstest"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links"
)

// TestADomainsProofIsToldOf follows a domain through its proof, its loss over seven
// days, and its return.
func TestADomainsProofIsToldOf(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	z, addr := newZone(t)
	c.dns = addr
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	made := r.api(key, "POST", "/api/v1/domains", `{"hostname":"go.example.com"}`)
	record := made.json["records"].([]any)[0].(map[string]any)
	path := "/api/v1/domains/" + made.str("id")
	check := func(status string) {
		t.Helper()
		if a := r.api(key, "POST", path+"/verify", nil); a.status != 200 || a.str("status") != status {
			t.Errorf("verify: %v, want %s", a, status)
		}
	}
	check("pending")
	z.set(record["name"].(string), record["value"].(string))
	check("verified")
	check("verified")
	z.set(record["name"].(string))
	c.forward(time.Hour)
	check("verified") // still: it has seven days
	c.forward(6 * 24 * time.Hour)
	check("verified")
	c.forward(25 * time.Hour)
	check("pending")
	check("pending")
	z.set(record["name"].(string), record["value"].(string))
	check("verified")

	told := eventstest.All(t, c.Client(t))
	want := []string{"domain.created", "domain.verified", "domain.lapsed", "domain.verified"}
	if len(told) != len(want) {
		t.Fatalf("%d events, want %v", len(told), want)
	}
	for i, e := range told {
		if e.Type != want[i] || e.Object != made.str("id") || e.AccountID != "acc_a" || e.ActorType == "" {
			t.Errorf("event %d is %+v, want %s", i, e, want[i])
		}
	}
}

// TestWhatAChangeWrites counts the documents that a change writes: the link, its
// slug, its entry in the search where that changes, and one event, as
// docs/performance.md says.
func TestWhatAChangeWrites(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t, func(cfg *links.Config) { cfg.Flush = false })
	key := c.keys.Key(t, "acc_a", identity.Enterprise)
	made := r.create(key, map[string]any{"url": "https://example.com/"})
	path := "/api/v1/links/" + made.str("id")
	second := r.create(key, map[string]any{"url": "https://example.com/"}).str("id")
	client := c.Client(t)
	eventually(t, "the back-fill, which writes too, rests", func() bool {
		doc, err := client.Collection("backfills").Doc("linkSearch").Get(t.Context())
		return err == nil && doc.Data()["pass"] == int64(1)
	})
	items := strings.TrimSuffix(strings.Repeat(`{"url":"https://example.com/"},`, 100), ",")
	for _, step := range []struct {
		what, method, path, body string
		status                   int
		writes                   int64
	}{
		{"create", "POST", "/api/v1/links", `{"url":"https://example.com/"}`, 201, 4},
		{"change of the title", "PATCH", path, `{"title":"x"}`, 200, 3},
		{"change of the destination", "PATCH", path, `{"url":"https://example.com/elsewhere"}`, 200, 4},
		{"bulk of 100", "POST", "/api/v1/links/bulk", `{"urls":[` + items + `]}`, 201, 400},
		{"bulk change", "PATCH", "/api/v1/links/bulk", `{"ids":["` + made.str("id") + `","` + second + `"],"set":{"archived":true}}`, 200, 6},
		{"delete", "DELETE", path, "", 204, 4},
	} {
		c.Firestore.ResetStats()
		var body any
		if step.body != "" {
			body = step.body
		}
		if a := r.api(key, step.method, step.path, body); a.status != step.status {
			t.Fatalf("%s: %v", step.what, a)
		}
		if n := c.Firestore.Stats().Writes; n != step.writes {
			t.Errorf("%s writes %d documents, want %d", step.what, n, step.writes)
		}
	}
}
