package move_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	gc "cloud.google.com/go/firestore"
	"google.golang.org/genproto/googleapis/type/latlng"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/standalone/internal/move"
)

// The test moves every type of value, at several depths, and checks what Google's server returns.
func TestRecordsMoveToGooglesEmulator(t *testing.T) {
	t.Parallel()
	var emulator cloudtest.Emulator
	t.Cleanup(func() { emulator.Stop(t.Failed()) })
	addr := emulator.Address(t, "The other tests move to localcloud through the same protocol")
	w := start(t)
	many := 2000
	if testing.Short() {
		many = 300
	}
	bulk := w.db.BulkWriter(t.Context())
	for i := range many {
		if _, err := bulk.Set(w.db.Doc(fmt.Sprintf("many/%d", i)), map[string]any{"n": i, "text": strings.Repeat("é", i%300)}); err != nil {
			t.Fatal(err)
		}
	}
	bulk.End()
	w.set("links/a", map[string]any{
		"null": nil, "true": true, "int": int64(math.MinInt64), "double": 0.1, "nan": math.NaN(), "inf": math.Inf(-1), "zero": math.Copysign(0, -1),
		"time": time.Unix(1e9, 123456000), "text": "\u0000 ä 🎬", "bytes": []byte{0, 255}, "ref": w.db.Doc("links/a/days/2026"),
		"point": &latlng.LatLng{Latitude: 1.5, Longitude: -2}, "array": []any{1, map[string]any{"a.b`": []byte("x")}, w.db.Doc("links/a")}, "empty": map[string]any{},
	})
	w.set("links/a/days/2026", map[string]any{"n": 1})
	w.set("nowhere/missing/under/__id7__", map[string]any{"n": 1})
	w.set("events/evt_2", map[string]any{"n": 1})
	w.set("events/evt_1", map[string]any{"n": 2})
	large := strings.Repeat("x", 900<<10)
	for i := range 8 { // several of them fill a request
		w.set(fmt.Sprintf("large/%d", i), map[string]any{"text": []any{large}})
	}

	there := func() *move.Move {
		m := w.move("m1")
		var err error
		m.Records, err = firestoredb.OpenDocuments(t.Context(), firestoredb.Config{Project: "there", Endpoint: addr, Token: cloudtest.EmulatorToken, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Records.Close() })
		return m
	}
	if c, totals := run(t, there()); c.Records != many+13 || totals.Records != many+13 {
		t.Errorf("the first pass = %+v with the totals %+v, want %d records", c, totals, many+13)
	}
	w.set("many/1", map[string]any{"n": -1})
	if _, err := w.db.Doc("many/2").Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := there()
	if c, totals := run(t, m); c.Records != 1 || c.Deleted != 1 || totals.Records != many+12 {
		t.Errorf("the second pass = %+v with the totals %+v, want one changed and one deleted record", c, totals)
	}
	if err := m.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: "there", Endpoint: addr, Token: cloudtest.EmulatorToken, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if id, err := db.Identity(t.Context()); err != nil || id != "projects/there/databases/(default)#db_1" {
		t.Errorf("the identity is %s (error %v), want projects/there/databases/(default)#db_1", id, err)
	}
	docs, err := db.Collection("events").OrderBy("n", gc.Asc).Documents(t.Context()).GetAll()
	if err != nil || len(docs) != 2 || !docs[0].CreateTime.Before(docs[1].CreateTime) {
		t.Errorf("the events are %v (error %v), want two in creation order", docs, err)
	}
}
