package videos_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/storage"
	"github.com/linkreel/linkreel/services/videos"
)

// counting returns a function that reads a counter, summed over its labels. Tests that call it must
// not run in parallel because all tests in the process share the counters.
func counting(t *testing.T, name string) func() int64 {
	t.Helper()
	read := func() (n int64) {
		families, err := prometheus.DefaultGatherer.Gather()
		must(t, err)
		for _, f := range families {
			if f.GetName() == name {
				for _, m := range f.GetMetric() {
					n += int64(m.GetCounter().GetValue())
				}
			}
		}
		return n
	}
	before := read()
	return func() int64 { return read() - before }
}

func TestAMoveIsCountedOnceWhoeverSeesIt(t *testing.T) {
	moves := counting(t, "linkreel_videos_moves_total")
	w := newWorld(t)
	v := w.create(`{}`)
	ask := func() {
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() { w.api(http.MethodGet, "/"+v.id, "") })
		}
		all.Wait()
		w.get(v.id)
	}
	w.put(v, "a film")
	ask()
	if n := moves(); n != 1 {
		t.Errorf("got %d status changes after the upload, want 1", n)
	}
	w.work(v.id, nil)
	ask()
	if n := moves(); n != 2 {
		t.Errorf("got %d status changes after the job, want 2", n)
	}
}

func TestAPlaylistCostsOneReadAndFewSignatures(t *testing.T) {
	signed := counting(t, "linkreel_storage_signatures_total")
	w := newWorld(t)
	v := w.create(`{}`)
	w.put(v, "a film")
	w.get(v.id)
	w.work(v.id, func(o *transcode.Outcome) { // publish three renditions
		for _, name := range []string{"1080p", "480p"} {
			r := o.Renditions[0]
			r.Name, r.Object = name, strings.Replace(r.Object, "720p", name, 1)
			o.Renditions = append(o.Renditions, r)
		}
	})
	playlist := w.get(v.id)["playbackUrl"].(string)
	made := int64(0)
	for _, tt := range []struct {
		address          string
		reads, atOnce    int64 // upper bounds
		needed, notAgain bool
	}{
		{playlist, 2, 0, false, true}, // the video and, once a second, the standing of its account
		{strings.Replace(playlist, "master.m3u8", "720p.m3u8", 1), 2, 1, true, true},
		{strings.Replace(playlist, "master.m3u8", "audio.m3u8", 1), 2, 1, true, true},
		{w.base + v.path + "/session", 3, 5, true, true}, // the look-up by slug, and signed URLs for all renditions
	} {
		for round := range 2 {
			w.fire.ResetStats()
			from := signed()
			w.send(http.MethodGet, tt.address, "").want(200)
			n := signed() - from
			made += n
			if s := w.fire.Stats(); s.Reads > tt.reads || s.Writes > 0 || n > tt.atOnce || tt.needed && round == 0 && n == 0 || tt.notAgain && round > 0 && n > 0 {
				t.Errorf("%s, request %d: got %d reads, %d writes and %d signatures, want at most %d, 0 and %d", tt.address[strings.LastIndex(tt.address, "/"):], round+1, s.Reads, s.Writes, n, tt.reads, tt.atOnce)
			}
		}
	}
	if made > 8 { // two for the owner, five for the page, and one spare
		t.Errorf("one play by the owner and one on the page needed %d signatures, want at most 8", made)
	}
}

func TestALongVideoFitsIntoItsRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.create(`{}`)
	w.put(v, "a film of four hours")
	w.get(v.id)
	w.work(v.id, longFilm)
	got := w.get(v.id)
	if got["status"] != "ready" || got["duration"] != 14_400.0 {
		t.Fatalf("got %v after the job, want a ready video of 14,400 s", got)
	}
	media := w.send(http.MethodGet, strings.Replace(got["playbackUrl"].(string), "master", "720p", 1), "").want(200)
	if n := strings.Count(media.body, "#EXTINF"); n != 7200 {
		t.Errorf("the playlist has %d segments, want 7200", n)
	}
}

func TestAVideosQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(`{}`)
	w.quota("acc_b", func(q *identity.Quotas) { q.Videos = 2 })
	key := header("Idempotency-Key", "second")
	w.as("acc_b", http.MethodPost, "", `{}`).want(201)
	w.as("acc_b", http.MethodPost, "", `{}`, key).want(201)
	if a := w.as("acc_b", http.MethodPost, "", `{}`).want(403); a.code() != "QUOTA_EXCEEDED" {
		t.Error(a.body)
	}
	w.as("acc_b", http.MethodPost, "", `{}`, key).want(201)
	// 403 takes precedence over 400: a full account gets 403 even if its request is invalid.
	if a := w.as("acc_b", http.MethodPost, "", `{"title":5}`).want(403); a.code() != "QUOTA_EXCEEDED" {
		t.Error(a.body)
	}
}

func TestAVideosQuotaHoldsUnderARace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.quota("acc_b", func(q *identity.Quotas) { q.Videos = 5 })
	var made, refused atomic.Int64
	var all sync.WaitGroup
	for range 24 {
		all.Go(func() {
			switch a := w.as("acc_b", http.MethodPost, "", `{}`); a.status {
			case 201:
				made.Add(1)
			case 403:
				refused.Add(1)
			case 503: // the request lost too many races for the rest of the quota
			default:
				t.Errorf("create returned %d %s, want 201, 403 or 503", a.status, a.body)
			}
		})
	}
	all.Wait()
	if made.Load() > 5 || made.Load()+refused.Load() == 0 {
		t.Errorf("%d videos were created and %d rejected, want at most 5 created", made.Load(), refused.Load())
	}
}

func TestAStorageQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.quota("acc_a", func(q *identity.Quotas) { q.StoredBytes = 100 })
	first, second := w.create(`{}`), w.create(`{}`)
	w.put(first, strings.Repeat("x", 60))
	if s := w.get(first.id)["status"]; s != "processing" {
		t.Fatalf("status after a file within the quota = %v, want processing", s)
	}
	w.put(second, strings.Repeat("x", 41))
	got := w.get(second.id)
	if e, _ := got["error"].(map[string]any); got["status"] != "failed" || e["code"] != "FILE_TOO_LARGE" || !strings.Contains(e["message"].(string), "storage") {
		t.Fatalf("got %v after a file over the quota, want a failure that mentions storage", got)
	}
	w.put(second, strings.Repeat("x", 40))
	w.clock.Advance(2 * time.Second)
	if s := w.get(second.id)["status"]; s != "processing" {
		t.Errorf("status after a file that exactly fits = %v, want processing", s)
	}
	if a := w.api(http.MethodPost, "", `{}`).want(403); a.code() != "QUOTA_EXCEEDED" {
		t.Error(a.body)
	}
}

func TestManyLookAtOnceAndOneJobIsMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.loop("sweep")
	v := w.create(`{}`)
	w.put(v, "a film")
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { w.api(http.MethodGet, "/"+v.id, "") })
	}
	wg.Wait()
	eventually(t, "processing", func() bool { return w.status(v.id) == "processing" })
	if r := w.job(v.id); r.Attempt != 0 {
		t.Errorf("got job %+v, want a job with no attempts", r)
	}
	if w.get(v.id)["status"] != "processing" {
		t.Error("the status has changed from processing, want no change")
	}
}

func TestFaultsOfFirestoreAreUnavailableNotWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *videos.Config, _ *storage.Options) { c.Firestore.Timeout = time.Second })
	v := w.ready(`{}`)
	undo := w.fire.Faults().Add(firestore.Fault{Code: codes.Unavailable})
	for _, call := range []answer{
		w.api(http.MethodGet, "/"+v.id, ""), w.api(http.MethodPost, "", `{}`), w.api(http.MethodDelete, "/"+v.id, ""), w.send(http.MethodGet, v.path, ""),
	} {
		if call.status != 503 || call.header.Get("Retry-After") == "" {
			t.Errorf("got %d %.200s while Firestore is down, want 503 with Retry-After", call.status, call.body)
		}
	}
	undo()
	eventually(t, "back", func() bool { return w.api(http.MethodGet, "/"+v.id, "").status == 200 })
}

func TestAnAnswerLostByFirestoreIsNoSecondVideo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 5 {
		undo := w.fire.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, LoseAnswer: true, Times: 1})
		w.api(http.MethodPost, "", `{}`, header("Idempotency-Key", fmt.Sprint("k", i)))
		undo()
		w.api(http.MethodPost, "", `{}`, header("Idempotency-Key", fmt.Sprint("k", i))).want(201)
	}
	if n := len(w.api(http.MethodGet, "", "").json()["data"].([]any)); n != 5 {
		t.Errorf("the list has %d videos, want 5", n)
	}
}

func TestAnAnswerLostByFirestoreKeepsTheCaptionsThatTheRecordNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{}`)
	vtt := header("Content-Type", "text/vtt")
	for i := range 3 {
		undo := w.fire.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, LoseAnswer: true, Times: 1})
		a := w.api(http.MethodPut, "/"+v.id+"/captions/en", fmt.Sprintf("WEBVTT %d\n", i), vtt)
		undo()
		snap, err := w.db.Collection("videos").Doc(v.id).Get(t.Context())
		must(t, err)
		named, err := snap.DataAt("captions")
		must(t, err)
		object := named.([]any)[0].(map[string]any)["object"].(string)
		if !slices.Contains(w.objects("videos/"+v.id+"/captions/"), object) {
			t.Errorf("after status %d, the record refers to %s, which is not in storage; want an existing object", a.status, object)
		}
	}
	// A rejected upload does not leave an object in storage.
	n := len(w.objects("videos/" + v.id + "/captions/"))
	for i := range 60 {
		w.api(http.MethodPut, fmt.Sprintf("/%s/captions/en-%c%c", v.id, 'a'+i/26, 'a'+i%26), "WEBVTT\n", vtt)
	}
	if got := len(w.objects("videos/" + v.id + "/captions/")); got != n+49 {
		t.Errorf("storage has %d additional files after 60 uploads, want 49", got-n)
	}
}

func TestCaptionsThatLoseToOtherWritersLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *videos.Config, _ *storage.Options) { c.Firestore.Timeout = time.Second })
	v := w.ready(`{}`)
	before := w.objects("videos/" + v.id + "/captions/")
	undo := w.fire.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, Code: codes.Aborted})
	w.api(http.MethodPut, "/"+v.id+"/captions/en", "WEBVTT\n", header("Content-Type", "text/vtt")).want(429)
	undo()
	if got := w.objects("videos/" + v.id + "/captions/"); !slices.Equal(got, before) {
		t.Errorf("storage has the files %v, want %v", got, before)
	}
}

// longFilm changes an outcome to four hours in segments of two seconds.
func longFilm(o *transcode.Outcome) {
	o.Duration = 14_400
	for _, r := range []*transcode.Rendition{&o.Renditions[0], &o.Renditions[1], o.Audio} {
		r.Segments = nil
		for i := range 7200 {
			r.Segments = append(r.Segments, transcode.Segment{Range: transcode.Range{Offset: int64(1000 + 500_000*i), Size: int64(500_000 - i%777)}, Duration: 2})
		}
	}
}
