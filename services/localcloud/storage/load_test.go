package storage_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// zeros is a body of zeros that uses no memory.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), z.left))
	z.left -= int64(n)
	clear(p[:n])
	return n, nil
}

func TestSlowAndManyUploadsDoNotBlockAMetadataRead(t *testing.T) {
	e := start(t, storage.Options{})
	e.put(t, "meta", "x")
	body := random(256 << 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var stored sync.Map
	for w := range 100 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				// A slow body simulates a real upload
				r, pw := io.Pipe()
				go func() {
					for at := 0; at < len(body); at += 32 << 10 {
						if _, err := pw.Write(body[at : at+32<<10]); err != nil {
							return
						}
						select {
						case <-time.After(20 * time.Millisecond):
						case <-ctx.Done():
						}
					}
					pw.Close()
				}()
				name := fmt.Sprintf("up/%d-%d", w, i)
				a, err := tryCall(ctx, "POST", e.api.URL+"/upload/storage/v1/b/b-1/o?uploadType=media&name="+name, r)
				r.Close()
				if err == nil && a.status == 200 {
					stored.Store(name, true)
				}
			}
		})
	}
	eventually(t, "the uploads are running", func() bool { return e.srv.Faults().Calls()["objects.insert"] > 100 })
	var took []time.Duration
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
		begin := time.Now()
		a, err := tryCall(t.Context(), "GET", e.api.URL+"/storage/v1/b/b-1/o/meta", nil)
		if err != nil || a.status != 200 {
			t.Fatalf("the metadata read returned %+v, %v; want 200", a, err)
		}
		took = append(took, time.Since(begin))
	}
	cancel()
	wg.Wait()
	n := 0
	stored.Range(func(any, any) bool { n++; return true })
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	t.Logf("%d reads during 100 uploads (%d objects stored, %d CPUs): p50 %v, p99 %v, max %v", len(took), n, runtime.NumCPU(), took[len(took)/2], p99, took[len(took)-1])
	if p99 > 2*time.Second { // a read that waited for an upload would take much longer
		t.Errorf("the p99 of metadata reads is %v, want at most 2 s", p99)
	}
}

// BenchmarkCreate shows the effect of group commit. It creates objects one at a time and
// concurrently. Each object is synced to disk.
func BenchmarkCreate(b *testing.B) {
	for _, parallel := range []int{1, 16} {
		b.Run(fmt.Sprintf("parallel-%d", parallel), func(b *testing.B) {
			e := start(b, storage.Options{})
			b.SetParallelism((parallel + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
			if parallel == 1 {
				b.SetParallelism(1)
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			}
			var n sync.Mutex
			i := 0
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					n.Lock()
					i++
					name := fmt.Sprint(i)
					n.Unlock()
					a, err := tryCall(b.Context(), "POST", e.api.URL+"/upload/storage/v1/b/b-1/o?uploadType=media&name="+name, strings.NewReader("body"))
					if err != nil || a.status != 200 {
						b.Fatalf("the upload returned %+v, %v; want 200", a, err)
					}
				}
			})
		})
	}
}

// BenchmarkList shows that the cost of a page does not depend on how many other objects the bucket
// contains.
func BenchmarkList(b *testing.B) {
	for _, n := range []int{1_000, 20_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			e := start(b, storage.Options{})
			var wg sync.WaitGroup
			for w := range 32 {
				wg.Go(func() {
					for i := w; i < n; i += 32 {
						tryCall(b.Context(), "POST", e.api.URL+fmt.Sprintf("/upload/storage/v1/b/b-1/o?uploadType=media&name=%06d/x", i), strings.NewReader("b"))
					}
				})
			}
			wg.Wait()
			b.ResetTimer()
			for b.Loop() {
				a, err := tryCall(b.Context(), "GET", e.api.URL+"/storage/v1/b/b-1/o?maxResults=20&prefix=0005", nil)
				if err != nil || a.status != 200 {
					b.Fatalf("the list returned %+v, %v; want 200", a, err)
				}
			}
		})
	}
}
