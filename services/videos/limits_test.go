package videos_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/linkreel/linkreel/libs/localcloud/firestore"
	"github.com/linkreel/linkreel/libs/localcloud/storage"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/videos"
)

func TestAPlaylistCostsOneRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{}`)
	playlist := w.get(v.id)["playbackUrl"].(string)
	for _, file := range []string{"master.m3u8", "720p.m3u8", "audio.m3u8"} {
		w.fire.ResetStats()
		w.send(http.MethodGet, strings.Replace(playlist, "master.m3u8", file, 1), "").want(200)
		if s := w.fire.Stats(); s.Reads > 1 || s.Writes > 0 {
			t.Errorf("%s: %d reads, %d writes", file, s.Reads, s.Writes)
		}
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
		t.Fatalf("a film of four hours: %v", got)
	}
	media := w.send(http.MethodGet, strings.Replace(got["playbackUrl"].(string), "master", "720p", 1), "").want(200)
	if n := strings.Count(media.body, "#EXTINF"); n != 7200 {
		t.Errorf("%d segments, want 7200", n)
	}
}

func TestAVideosQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(`{}`)
	w.records["acc_b"].Quotas.Videos = 2
	key := header("Idempotency-Key", "second")
	w.as("acc_b", http.MethodPost, "", `{}`).want(201)
	w.as("acc_b", http.MethodPost, "", `{}`, key).want(201)
	if a := w.as("acc_b", http.MethodPost, "", `{}`).want(403); a.code() != "QUOTA_EXCEEDED" {
		t.Error(a.body)
	}
	w.as("acc_b", http.MethodPost, "", `{}`, key).want(201)
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
		t.Errorf("job %+v", r)
	}
	if w.get(v.id)["status"] != "processing" {
		t.Error("the status moved on")
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
			t.Errorf("while Firestore is down: %d %.200s", call.status, call.body)
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
		t.Errorf("%d videos, want 5", n)
	}
}

// longFilm makes an outcome of four hours in segments of two seconds.
func longFilm(o *transcode.Outcome) {
	o.Duration = 14_400
	for _, r := range []*transcode.Rendition{&o.Renditions[0], &o.Renditions[1], o.Audio} {
		r.Segments = nil
		for i := range 7200 {
			r.Segments = append(r.Segments, transcode.Segment{Range: transcode.Range{Offset: int64(1000 + 500_000*i), Size: int64(500_000 - i%777)}, Duration: 2})
		}
	}
}
