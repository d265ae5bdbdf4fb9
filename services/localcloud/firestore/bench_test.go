package firestore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gc "cloud.google.com/go/firestore"
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

const benchIndexes = `{"indexes": [
	{"collectionGroup": "links", "queryScope": "COLLECTION", "fields": [
		{"fieldPath": "accountId", "order": "ASCENDING"}, {"fieldPath": "seq", "order": "DESCENDING"}]}
]}`

// BenchmarkCreate creates documents. Each response waits for an fsync.
func BenchmarkCreate(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("%d_callers", callers), func(b *testing.B) {
			s := open(b, firestore.Options{Path: filepath.Join(b.TempDir(), "data.db"), Indexes: indexes(b, benchIndexes)})
			c := client(b, s)
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for range callers {
				wg.Go(func() {
					for {
						i := next.Add(1)
						if i > int64(b.N) {
							return
						}
						if _, err := c.Doc(fmt.Sprintf("links/lnk%09x", i*7919)).Create(b.Context(), linkDocument(int(i))); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
			b.ReportMetric(float64(b.N)/float64(max(1, s.Stats().Batches)), "creates/fsync")
		})
	}
}

func linkDocument(i int) map[string]any {
	return map[string]any{
		"accountId": "acc" + strconv.Itoa(i%10), "seq": i, "slug": fmt.Sprintf("s%07d", i),
		"url": fmt.Sprintf("https://example.com/some/path/%d?utm_source=mail", i), "title": "A link among many",
		"created": time.Unix(1_700_000_000+int64(i), 0), "clicks": 0, "active": true, "tags": []string{"a", "b"},
	}
}

// BenchmarkNewest20 reads one account's newest 20 documents as the number of documents grows. The
// time must not grow with it. LINKREEL_BENCH_DOCUMENTS adds another document count to measure.
func BenchmarkNewest20(b *testing.B) {
	sizes := []int{10_000, 100_000}
	if n, err := strconv.Atoi(os.Getenv("LINKREEL_BENCH_DOCUMENTS")); err == nil {
		sizes = append(sizes, n)
	}
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%d_documents", size), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "data.db")
			s := open(b, firestore.Options{Path: path, Indexes: indexes(b, benchIndexes)})
			start := time.Now()
			load(b, s, size)
			b.Logf("loaded %d documents in %v", size, time.Since(start))
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			start = time.Now()
			s = open(b, firestore.Options{Path: path, Indexes: indexes(b, benchIndexes)})
			opened := time.Since(start)
			c := client(b, s)
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				start := time.Now()
				docs, err := c.Collection("links").Where("accountId", "==", "acc"+strconv.Itoa(i%10)).
					OrderBy("seq", gc.Desc).Limit(20).Documents(b.Context()).GetAll()
				if err != nil || len(docs) != 20 {
					b.Fatalf("the query returned %d documents, %v; want 20", len(docs), err)
				}
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64(opened.Milliseconds()), "open-ms")
			if info, err := os.Stat(path); err == nil {
				b.ReportMetric(float64(info.Size())/(1<<20), "file-MiB")
			}
		})
	}
}

// load writes documents in batches of 1,000. It bypasses the network because the benchmarks do not
// measure loading.
func load(tb testing.TB, s *firestore.Server, n int) {
	tb.Helper()
	for from := 0; from < n; from += 1000 {
		var writes []*pb.Write
		for i := from; i < min(from+1000, n); i++ {
			writes = append(writes, &pb.Write{Operation: &pb.Write_Update{Update: linkProto(i)}})
		}
		must(tb, firestore.Write(s, writes...))
	}
}

func linkProto(i int) *pb.Document {
	return &pb.Document{
		Name: fmt.Sprintf("projects/linkreel/databases/(default)/documents/links/lnk%09x", uint32(i)*2654435761),
		Fields: map[string]*pb.Value{
			"accountId": text("acc" + strconv.Itoa(i%10)), "seq": integer(int64(i)), "slug": text(fmt.Sprintf("s%07d", i)),
			"url": text(fmt.Sprintf("https://example.com/some/path/%d?utm_source=mail", i)), "title": text("A link among many"),
			"created": stamp(1_700_000_000+int64(i), 0), "clicks": integer(0),
			"active": {ValueType: &pb.Value_BooleanValue{BooleanValue: true}}, "tags": array(text("a"), text("b")),
		},
	}
}
