package firestoredb_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/firestore"
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"

	"github.com/linkreel/linkreel/libs/firestoredb"
	local "github.com/linkreel/linkreel/services/localcloud/firestore"
)

// metered returns a function that reports how much a series has grown since metered was called.
func metered(t *testing.T) func(series string) int {
	t.Helper()
	scrape := func() map[string]int {
		rec, found := httptest.NewRecorder(), map[string]int{}
		promhttp.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
		for line := range strings.Lines(rec.Body.String()) {
			if i := strings.LastIndexByte(line, ' '); i > 0 {
				found[line[:i]], _ = strconv.Atoi(strings.TrimSpace(line[i:]))
			}
		}
		return found
	}
	before := scrape()
	return func(series string) int { return scrape()[series] - before[series] }
}

// Not parallel, because the whole process shares the metrics.
func TestCallsAndDocumentsAreMeasured(t *testing.T) {
	db, server := openTest(t)
	ctx, grew := t.Context(), metered(t)
	a, b := db.Doc("k/a"), db.Doc("k/b")
	steps := []error{
		db.Commit(ctx, "create", create(a, b)),
		db.Tx(ctx, "change", func(_ context.Context, tx *firestore.Transaction) error {
			if _, err := tx.Get(a); err != nil {
				return err
			}
			return tx.Set(a, map[string]any{"n": 2})
		}),
	}
	_, err := db.Query(ctx, "list", db.Collection("k").Query)
	steps = append(steps, err)
	_, err = db.Query(ctx, "list", db.Collection("none").Query)
	steps = append(steps, err)
	_, err = db.Count(ctx, "count", db.Collection("k").Query)
	steps = append(steps, err, db.DeleteAll(ctx, "delete", b))
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	server.Faults().Add(local.Fault{Methods: []string{"Commit"}, Times: 1, Code: codes.Aborted})
	if err := db.Create(ctx, "create", b, map[string]any{}); err != nil {
		t.Fatal(err)
	}
	for series, want := range map[string]int{
		`linkreel_dependency_call_seconds_count{dependency="Firestore",operation="get"}`:    1,
		`linkreel_dependency_call_seconds_count{dependency="Firestore",operation="query"}`:  2,
		`linkreel_dependency_call_seconds_count{dependency="Firestore",operation="count"}`:  1,
		`linkreel_dependency_call_seconds_count{dependency="Firestore",operation="begin"}`:  1,
		`linkreel_dependency_call_seconds_count{dependency="Firestore",operation="commit"}`: 5,
		`linkreel_dependency_failures_total{dependency="Firestore",reason="contended"}`:     1,
		`linkreel_dependency_failures_total{dependency="Firestore",reason="index"}`:         0,
		`linkreel_firestore_documents_total{operation="read"}`:                              1 + 2 + 1 + 1,
		`linkreel_firestore_documents_total{operation="write"}`:                             2 + 1 + 1,
		`linkreel_firestore_documents_total{operation="delete"}`:                            1,
	} {
		if got := grew(series); got != want {
			t.Errorf("%s grew by %d, want %d", series, got, want)
		}
	}
}

// A failed precondition on a write is expected, so it does not count as a failure. A query's only
// precondition is that its index exists.
func TestAMissingIndexIsAReasonOfItsOwn(t *testing.T) {
	db, server := openWithin(t, 20*time.Second, []byte(`{"indexes": []}`))
	ctx, grew := t.Context(), metered(t)
	server.Faults().Add(local.Fault{Methods: []string{"Commit"}, Times: 1, Code: codes.FailedPrecondition})
	unindexed := db.Collection("k").Where("a", "==", 1).OrderBy("b", firestore.Asc)
	_, err := db.Query(ctx, "list", unindexed)
	if err == nil || errors.Is(err, firestoredb.ErrStale) || !strings.Contains(err.Error(), "k [COLLECTION] a ASCENDING") {
		t.Errorf("query without an index: got %v, want an error that names the index", err)
	}
	if err := db.Create(ctx, "create", db.Doc("k/a"), map[string]any{}); !errors.Is(err, firestoredb.ErrStale) {
		t.Errorf("write with a failed precondition: got %v, want ErrStale", err)
	}
	if got := grew(`linkreel_dependency_failures_total{dependency="Firestore",reason="index"}`); got != 1 {
		t.Errorf("failures with the reason index grew by %d, want 1", got)
	}
}

// BenchmarkMeasure measures what the metrics add to a create, which reads two documents and commits
// four.
func BenchmarkMeasure(b *testing.B) {
	writes := make([]*pb.Write, 4)
	found := &pb.BatchGetDocumentsResponse{Result: &pb.BatchGetDocumentsResponse_Missing{Missing: "k/a"}}
	b.ReportAllocs()
	for b.Loop() {
		firestoredb.MeasureForTest(writes, found, found)
	}
}
