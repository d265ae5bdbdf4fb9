package links_test

import (
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/events/eventstest"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links"
)

// TestADomainsProofIsToldOf checks the events for a domain that is verified, lapses after its
// record has been missing for seven days, and is verified again.
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
	check("verified") // a domain lapses only after seven days
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
		t.Fatalf("got %d events, want %v", len(told), want)
	}
	for i, e := range told {
		if e.Type != want[i] || e.Object != made.str("id") || e.AccountID != "acc_a" || e.ActorType == "" {
			t.Errorf("event %d = %+v, want %s for acc_a with the domain's ID and an actor", i, e, want[i])
		}
	}
}

// TestWhatAChangeWrites counts the documents that a change writes: the link, the slug if the
// redirect changes, and one event, as docs/performance.md promises.
func TestWhatAChangeWrites(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t, func(cfg *links.Config) { cfg.Flush = false })
	key := c.keys.Key(t, "acc_a", identity.Enterprise)
	made := r.create(key, map[string]any{"url": "https://example.com/"})
	path := "/api/v1/links/" + made.str("id")
	second := r.create(key, map[string]any{"url": "https://example.com/"}).str("id")
	items := strings.TrimSuffix(strings.Repeat(`{"url":"https://example.com/"},`, 100), ",")
	for _, step := range []struct {
		what, method, path, body string
		status                   int
		writes                   int64
	}{
		{"create", "POST", "/api/v1/links", `{"url":"https://example.com/"}`, 201, 3},
		{"create with an Idempotency-Key", "POST", "/api/v1/links", `{"url":"https://example.com/"}`, 201, 4},
		{"repeated create", "POST", "/api/v1/links", `{"url":"https://example.com/"}`, 201, 0},
		{"title edit", "PATCH", path, `{"title":"x"}`, 200, 2},
		{"destination edit", "PATCH", path, `{"url":"https://example.com/elsewhere"}`, 200, 3},
		{"bulk create with 100 links", "POST", "/api/v1/links/bulk", `{"urls":[` + items + `]}`, 201, 300},
		{"bulk edit", "PATCH", "/api/v1/links/bulk", `{"ids":["` + made.str("id") + `","` + second + `"],"set":{"archived":true}}`, 200, 4},
		{"delete", "DELETE", path, "", 204, 3},
		{"domain claim", "POST", "/api/v1/domains", `{"hostname":"one.example.com"}`, 201, 2},
		{"domain claim with an Idempotency-Key", "POST", "/api/v1/domains", `{"hostname":"two.example.com"}`, 201, 3},
	} {
		c.Firestore.ResetStats()
		var body any
		if step.body != "" {
			body = step.body
		}
		var headers []string
		if strings.Contains(step.what, "Idempotency-Key") || step.what == "repeated create" {
			headers = []string{"Idempotency-Key", "one"}
		}
		if a := r.api(key, step.method, step.path, body, headers...); a.status != step.status {
			t.Fatalf("%s: %v, want %d", step.what, a, step.status)
		}
		// The commit that writes the change also stores the response.
		if n := c.Firestore.Stats(); strings.Contains(step.what, "Idempotency-Key") && n.Calls["Commit"] != 1 {
			t.Errorf("%s: %d commits, want 1", step.what, n.Calls["Commit"])
		}
		if n := c.Firestore.Stats().Reads; step.what == "create with an Idempotency-Key" && n != 0 {
			t.Errorf("%s: %d documents read, want 0", step.what, n)
		}
		if n := c.Firestore.Stats().Writes; n != step.writes {
			t.Errorf("%s: %d documents written, want %d", step.what, n, step.writes)
		}
	}
}

// TestALinkTakesAtMost7500Bytes calculates the size of a link, its slug and their index entries
// according to Firestore's documentation.
func TestALinkTakesAtMost7500Bytes(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_0123456789abcdefghijkl", identity.Enterprise)
	r.create(key, map[string]any{
		"url": "https://www.example.com/shop/summer-2026?utm_source=newsletter", "title": "Spring sale for our readers",
		"tags": []string{"spring", "newsletter"},
	})
	// A document name takes 16 bytes, plus the length of each segment and one byte. A field takes
	// the length of its name, one byte, and its value. An index entry takes the names of the
	// document and its parent, the field, and 32 bytes.
	total, entries := 0, 0
	for collection, indexed := range map[string][]string{"links": {"w", "accountId"}, "slugs": nil} {
		docs, err := c.Client(t).Collection(collection).Documents(t.Context()).GetAll()
		if err != nil || len(docs) != 1 {
			t.Fatalf("got %d documents in %s, %v; want 1", len(docs), collection, err)
		}
		name := 16 + len(collection) + 1 + len(docs[0].Ref.ID) + 1
		total += name + 32 + sizeOf(docs[0].Data())
		for _, field := range indexed {
			members, isMap := docs[0].Data()[field].(map[string]any)
			if !isMap {
				members = map[string]any{"": docs[0].Data()[field]}
			}
			for member, value := range members {
				total += name + 16 + len(field+"."+member) + 1 + sizeOf(value) + 32
				entries++
			}
		}
	}
	t.Logf("%d bytes, including %d index entries", total, entries)
	if total > 7500 {
		t.Errorf("a link takes %d bytes, including %d index entries; want at most 7500 bytes", total, entries)
	}
}

func sizeOf(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			n += len(name) + 1 + sizeOf(value)
		}
	case []any:
		for _, value := range v {
			n += sizeOf(value)
		}
	case string:
		n = len(v) + 1
	case bool, nil:
		n = 1
	default:
		n = 8 // numbers and times
	}
	return n
}
