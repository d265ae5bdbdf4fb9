package videos_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apikey/authtest"
	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/queue"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/libs/tags"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
	"github.com/linkreel/linkreel/services/localcloud/storage"
	"github.com/linkreel/linkreel/services/videos"
)

func tokenOf(r transcode.Record) jobs.Token {
	return jobs.Token{JobID: r.ID, Attempt: r.Attempt}
}

func failure(code, message string) transcode.Failure {
	return transcode.Failure{Code: transcode.Code(code), Message: message}
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func unlockValue(a answer) string {
	return strings.TrimPrefix(strings.SplitN(a.header.Get("Set-Cookie"), ";", 2)[0], "lr_unlock=")
}

// quick makes sweeps and the janitor run every few milliseconds.
func quick(c *videos.Config, _ *storage.Options) {
	c.SweepEvery, c.JanitorEvery = 50*time.Millisecond, 50*time.Millisecond
}

// status reads a video's status from the list because getting the video itself would make the
// service check storage.
func (w *world) status(id string) string {
	w.t.Helper()
	for _, item := range w.api(http.MethodGet, "?limit=100", "").want(200).json()["data"].([]any) {
		if m := item.(map[string]any); m["_id"] == id {
			return m["status"].(string)
		}
	}
	return "gone"
}

func TestASweepAloneSuffices(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.loop("sweep")
	v := w.create(`{}`)
	w.put(v, "a film")
	soon := func(status string) func() bool { // a new video is due after ten seconds
		return func() bool { w.clock.Advance(5 * time.Second); return w.status(v.id) == status }
	}
	eventually(t, "processing by a sweep", soon("processing"))
	w.work(v.id, nil)
	eventually(t, "ready by a sweep", soon("ready"))
}

func TestAWorkersHintAloneSuffices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.loop("hints")
	client, err := redisdb.Open(redisdb.Config{URL: w.redis})
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	hints := queue.New(client, queue.Options{Name: transcode.OutcomeQueueName})
	v := w.create(`{}`)
	w.put(v, "a film")
	w.get(v.id)
	w.work(v.id, nil)
	for _, stray := range []string{"", "vid_gone-7", "not a job", v.id + "-1"} {
		_, err := hints.Add(t.Context(), queue.Item{ID: stray})
		must(t, err)
	}
	_, err = hints.Add(t.Context(), queue.Item{ID: w.job(v.id).ID})
	must(t, err)
	eventually(t, "ready by a hint", func() bool { return w.status(v.id) == "ready" })
}

func TestANotificationAloneSuffices(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *videos.Config, o *storage.Options) {
		o.Notify = &storage.Notify{URL: c.BaseURL + videos.StorageHookPath, MinBackoff: 20 * time.Millisecond}
	})
	v := w.create(`{}`)
	w.put(v, "a film")
	eventually(t, "processing by a notification", func() bool { return w.status(v.id) == "processing" })
}

func TestForgedNotificationsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, s := range map[string]setting{
		"missing token":   header("X-Nothing", ""),
		"malformed token": header("Authorization", "Bearer a.b.c"),
		"API key":         header("Authorization", "Bearer "+w.keys["acc_a"]),
		"unsigned token":  header("Authorization", "Bearer eyJhbGciOiJub25lIn0.e30."),
		"wrong scheme":    header("Authorization", "Basic abc"),
	} {
		if a := w.send(http.MethodPost, videos.StorageHookPath, `{}`, s); a.status != 401 {
			t.Errorf("notification with %s returned %d %s, want 401", name, a.status, a.body)
		}
	}
}

// Google Cloud Storage decompresses such a file when it is read, so one megabyte could fill a
// worker's disk.
func TestAFileWithAContentEncodingIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.create(`{}`)
	w.send(http.MethodPut, v.upload, "packed", header("Content-Type", "video/mp4"), header("Content-Encoding", "gzip")).want(200)
	o, err := w.bucket.Stat(t.Context(), "uploads/"+v.id+"/source")
	must(t, err)
	got := w.get(v.id)
	if e, _ := got["error"].(map[string]any); got["status"] != "failed" || e["code"] != "UNSUPPORTED_FORMAT" || !strings.Contains(e["message"].(string), "Content-Encoding") {
		t.Fatalf("got %v, want a failed video with UNSUPPORTED_FORMAT", got)
	}
	if _, err := w.jobs.Get(t.Context(), transcode.JobID(v.id, o.Generation)); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("looking up the job returned %v, want not found", err)
	}
	if _, err := w.bucket.Stat(t.Context(), "uploads/"+v.id+"/source"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("Stat of the rejected file returned %v, want it removed", err)
	}
	w.send(http.MethodPut, v.upload, "a film", header("Content-Type", "video/mp4"), header("Content-Encoding", "identity")).want(200)
	w.clock.Advance(2 * time.Second)
	if got := w.get(v.id); got["status"] != "processing" || got["error"] != nil {
		t.Errorf("got %v after a plain file, want status processing and no error", got)
	}
}

func TestANewFileAfterAFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.create(`{}`)
	w.put(v, "no film")
	w.get(v.id)
	first := w.job(v.id)
	r, err := w.jobs.Claim(t.Context(), first.ID, "hand", time.Minute)
	must(t, err)
	must(t, w.jobs.Fail(t.Context(), tokenOf(r), failure("NOT_A_VIDEO", "The file has no moving picture in it.")))
	got := w.get(v.id)
	if e, _ := got["error"].(map[string]any); got["status"] != "failed" || e["code"] != "NOT_A_VIDEO" || e["message"] == "" || e["docUrl"] != "/docs/guides/errors#not_a_video" || got["uploadUrl"] != v.upload {
		t.Fatalf("got %v, want a failed video with NOT_A_VIDEO, a message and a docUrl", got)
	}
	if got["resumableUploadUrl"] == nil {
		t.Error("the failed video does not have a resumable session, want a new one")
	}
	w.clock.Advance(2 * time.Second)
	if s := w.get(v.id)["status"]; s != "failed" {
		t.Fatalf("status after a notification about the same file = %v, want failed", s)
	}
	w.put(v, "a film")
	w.clock.Advance(2 * time.Second)
	if got = w.get(v.id); got["status"] != "processing" || got["error"] != nil {
		t.Fatalf("got %v after the new file, want status processing and no error", got)
	}
	if _, err := w.jobs.Get(t.Context(), first.ID); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("looking up the previous job returned %v, want it deleted", err)
	}
	w.work(v.id, nil)
	if s := w.get(v.id)["status"]; s != "ready" {
		t.Errorf("status after the second job = %v, want ready", s)
	}
}

func TestFilesRefusedByTheirSize(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for content, code := range map[string]string{"": "EMPTY_FILE", strings.Repeat("x", 1<<20+1): "FILE_TOO_LARGE"} {
		v := w.create(`{}`)
		w.put(v, content)
		got := w.get(v.id)
		if e, _ := got["error"].(map[string]any); got["status"] != "failed" || e["code"] != code {
			t.Errorf("after a file of %d bytes, got %v, want a failure with the expected code", len(content), got)
		}
		if left := w.objects("uploads/" + v.id); len(left) != 0 {
			t.Errorf("after a file of %d bytes, storage has %v, want no objects", len(content), left)
		}
		w.put(v, "a film")
		w.clock.Advance(2 * time.Second)
		if s := w.get(v.id)["status"]; s != "processing" {
			t.Errorf("status after a valid file = %v, want processing", s)
		}
	}
}

func TestAnUploadThatNeverComes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	v := w.create(`{}`)
	w.loop("sweep")
	w.clock.Advance(49 * time.Hour)
	eventually(t, "failed by a sweep", func() bool { return w.status(v.id) == "failed" })
	got := w.get(v.id)
	if e, _ := got["error"].(map[string]any); e["code"] != "UPLOAD_EXPIRED" || got["uploadUrl"] == nil || got["uploadUrl"] == v.upload {
		t.Fatalf("got %v, want UPLOAD_EXPIRED and a new upload URL", got)
	}
	w.send(http.MethodPut, got["uploadUrl"].(string), "a film").want(200)
	eventually(t, "processing after a late upload", func() bool { return w.status(v.id) == "processing" })
}

func TestLaterVersionsAddRenditions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	v := w.create(`{}`)
	w.put(v, "a film")
	w.get(v.id)
	var tall transcode.Rendition
	o := w.work(v.id, func(o *transcode.Outcome) {
		tall = o.Renditions[0]
		o.Final, o.Renditions = false, o.Renditions[1:]
	})
	got := w.get(v.id)
	if got["status"] != "ready" || len(got["renditions"].([]any)) != 1 {
		t.Fatalf("got %v after the first version, want a ready video with one rendition", got)
	}
	readAt := got["updatedAt"]
	next := *o
	next.Version, next.Final, next.Renditions = 2, true, append([]transcode.Rendition{tall}, o.Renditions...)
	must(t, w.jobs.Publish(t.Context(), tokenOf(w.job(v.id)), &next))
	w.loop("sweep")
	eventually(t, "the second version", func() bool { return len(w.get(v.id)["renditions"].([]any)) == 2 })
	if w.get(v.id)["updatedAt"] == readAt {
		t.Error("the second version did not change updatedAt, want a later time")
	}
}

func TestDeleteInEveryState(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"uploading", "processing", "ready", "failed"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, quick)
			v := w.create(`{}`)
			if state != "uploading" {
				w.put(v, "a film")
				w.get(v.id)
			}
			var running transcode.Record
			switch state {
			case "processing":
				r, err := w.jobs.Claim(t.Context(), w.job(v.id).ID, "hand", time.Minute)
				must(t, err)
				running = r
				w.object(transcode.Prefix(v.id, r.Generation, 1)+"720p.mp4", "half")
			case "ready":
				w.work(v.id, nil)
			case "failed":
				r, err := w.jobs.Claim(t.Context(), w.job(v.id).ID, "hand", time.Minute)
				must(t, err)
				must(t, w.jobs.Fail(t.Context(), tokenOf(r), failure("CORRUPT_FILE", "The file is damaged.")))
			}
			if s := w.get(v.id)["status"]; s != state {
				t.Fatalf("got status %v, want %s", s, state)
			}
			w.api(http.MethodDelete, "/"+v.id, "").want(204)
			w.api(http.MethodGet, "/"+v.id, "").want(404)
			w.api(http.MethodDelete, "/"+v.id, "").want(404)
			w.send(http.MethodGet, v.path, "").want(404)
			w.loop("sweep")
			gone := func() bool { return len(w.objects("uploads/"+v.id))+len(w.objects("videos/"+v.id)) == 0 }
			eventually(t, "storage is empty", gone)
			if state == "processing" {
				if err := w.jobs.Heartbeat(t.Context(), tokenOf(running), time.Minute, 50); err == nil {
					t.Error("the worker's Heartbeat returned nil after the deletion, want an error")
				}
				w.object(transcode.Prefix(v.id, running.Generation, 1)+"360p.mp4", "written before the worker knew")
			}
			w.put(v, "a late film")
			w.clock.Advance(10 * time.Second)
			eventually(t, "no objects in storage after late writes", gone)
			w.clock.Advance(8 * 24 * time.Hour)
			w.api(http.MethodGet, "/"+v.id, "").want(404)
		})
	}
}

func TestDeleteWhileStorageIsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	v := w.ready(`{}`)
	w.loop("sweep")
	undo := w.store.Faults().Inject(storage.Fault{Status: 503})
	w.api(http.MethodDelete, "/"+v.id, "").want(204)
	w.api(http.MethodGet, "/"+v.id, "").want(404)
	undo()
	eventually(t, "storage is empty", func() bool {
		w.clock.Advance(5 * time.Second)
		return len(w.objects("uploads/"+v.id))+len(w.objects("videos/"+v.id)) == 0
	})
}

func TestTheJanitorRemovesOrphansOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	v := w.ready(`{}`)
	w.api(http.MethodPut, "/"+v.id+"/captions/en", "WEBVTT\n", header("Content-Type", "text/vtt")).want(200)
	busy := w.create(`{}`)
	w.put(busy, "a film")
	w.get(busy.id)
	keep := append(w.objects("videos/"), w.objects("uploads/")...)
	generation := w.job(busy.id).Generation
	unfinished := transcode.Prefix(busy.id, generation, 1) + "chunk-3.mp4"
	w.object(unfinished, "a finished chunk from a dead worker")
	part := transcode.PartsPrefix(busy.id, generation) + "3-1/part.mp4"
	w.object(part, "a finished part, which a worker that takes over the job reuses")
	replaced := transcode.Prefix(v.id, w.job(v.id).Generation, 7) + "720p.mp4"
	w.object(replaced, "replaced media with URLs that are still valid")
	keep = append(keep, unfinished, part, replaced)
	orphans := []string{
		transcode.Prefix(v.id, 12345, 1) + "x.mp4",
		transcode.Prefix(busy.id, generation-1, 1) + "720p.mp4",
		"videos/vid_0000000000000000000000/1-1/720p.mp4", "uploads/vid_0000000000000000000000/source",
	}
	for _, name := range orphans {
		w.object(name, "orphan")
	}
	w.loop("janitor")
	noted := func(names ...string) bool {
		var list bytes.Buffer
		_, _ = w.bucket.Download(t.Context(), "linkreel/strays.json", 0, &list)
		return !slices.ContainsFunc(names, func(name string) bool { return !strings.Contains(list.String(), name) })
	}
	eventually(t, "every orphan seen once", func() bool { return noted(orphans...) })
	for _, name := range append(keep, orphans...) {
		if _, err := w.bucket.Stat(t.Context(), name); err != nil {
			t.Errorf("Stat of %s after its first sighting returned %v, want the object", name, err)
		}
	}
	for _, name := range keep {
		if _, err := w.bucket.Stat(t.Context(), name); err != nil {
			t.Errorf("Stat of %s, which is in use, returned %v, want the object", name, err)
		}
	}
	w.clock.Advance(7*24*time.Hour + time.Minute)
	eventually(t, "orphans removed after their second sighting, and the source after its retention period", func() bool {
		for _, name := range orphans {
			if _, err := w.bucket.Stat(t.Context(), name); err == nil {
				return false
			}
		}
		return len(w.objects("uploads/"+v.id)) == 0
	})
	// The search that removed the orphans may have judged this object before the clock advanced, in
	// which case it did not record the object.
	eventually(t, "replaced media seen once", func() bool { return noted(replaced) })
	w.clock.Advance(7*24*time.Hour + time.Minute)
	eventually(t, "replaced media removed", func() bool { _, err := w.bucket.Stat(t.Context(), replaced); return err != nil })
	for _, name := range []string{unfinished, part} {
		if _, err := w.bucket.Stat(t.Context(), name); err != nil {
			t.Errorf("Stat of %s, an object from a running job, returned %v, want the object", name, err)
		}
	}
}

// Because of a typo or copied settings, a second installation uses the first installation's
// bucket.
func TestTwoInstallationsOnOneBucketLoseNothing(t *testing.T) {
	t.Parallel()
	first := newWorld(t, quick)
	first.loop("janitor")
	v := first.ready(`{}`)
	eventually(t, "the bucket is claimed", func() bool { _, err := first.bucket.Stat(t.Context(), objectstore.OwnerObject); return err == nil })
	before := first.objects("")
	cfg := first.cfg
	cfg.Firestore.Endpoint = cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{videos.Indexes(), tags.Indexes, jobs.Indexes, idempotency.Indexes}}).Endpoint
	cfg.Redis.URL = redistest.Start(t)
	second, err := videos.New(t.Context(), cfg)
	must(t, err)
	t.Cleanup(func() { _ = boot.CloseAll(context.Background(), second) })
	first.clock.Advance(3 * 24 * time.Hour) // shorter than the first installation's retention period
	for _, l := range second.Loops {
		if l.Name == "sweep" || l.Name == "janitor" {
			if err := l.Run(t.Context()); !errors.Is(err, objectstore.ErrForeign) || !strings.Contains(err.Error(), objectstore.OwnerObject) {
				t.Errorf("the second installation's %s loop returned %v, want an error about another database's bucket", l.Name, err)
			}
		}
	}
	if after := first.objects(""); !slices.Equal(before, after) || first.status(v.id) != "ready" {
		t.Errorf("storage contained %v and now contains %v, want no change and a ready video", before, after)
	}
}

// process starts the service in a separate process that uses the world's storage.
func (w *world) process(firestore string) (p *exec.Cmd, log *bytes.Buffer) {
	w.t.Helper()
	key := filepath.Join(w.t.TempDir(), "key.json")
	must(w.t, os.WriteFile(key, w.cfg.Storage.Key, 0o600))
	p, log = exec.CommandContext(w.t.Context(), os.Args[0]), &bytes.Buffer{}
	p.Stdout, p.Stderr = log, log
	p.Env = append(os.Environ(), "LINKREEL_TEST_PROCESS=1", "LINKREEL_INTERNAL_TOKEN="+authtest.Token, "LINKREEL_ADMIN_ADDR=127.0.0.1:0", "LINKREEL_API_ADDR=127.0.0.1:0", "LINKREEL_INTERNAL_ADDR=127.0.0.1:0", "LINKREEL_DRAIN=0s",
		"LINKREEL_FIRESTORE_PROJECT="+cloudtest.Project, "LINKREEL_FIRESTORE_ENDPOINT="+firestore, "LINKREEL_STORAGE_BUCKET="+bucketName, "LINKREEL_STORAGE_PUBLIC_URL="+w.uploads,
		"LINKREEL_STORAGE_ENDPOINT="+w.push, "LINKREEL_STORAGE_KEY_FILE="+key, "LINKREEL_REDIS_URL="+w.redis, "LINKREEL_TOKEN_SECRET="+w.cfg.TokenSecrets[0],
		"LINKREEL_SWEEP_EVERY=50ms", "LINKREEL_JANITOR_EVERY=50ms")
	must(w.t, p.Start())
	w.t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	return p, log
}

func TestAProcessOfAnotherDatabaseEndsAtItsStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, _ := w.process(w.cfg.Firestore.Endpoint)
	eventually(t, "the bucket is claimed", func() bool { _, err := w.bucket.Stat(t.Context(), objectstore.OwnerObject); return err == nil })
	v := w.ready(`{}`)
	before := append(w.objects("videos/"+v.id), w.objects("uploads/"+v.id)...)
	other := cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{videos.Indexes(), tags.Indexes, jobs.Indexes, idempotency.Indexes, outbox.Indexes}}).Endpoint
	second, log := w.process(other)
	if err := second.Wait(); err == nil || !strings.Contains(log.String(), "stop the other installation, delete the bucket's object "+objectstore.OwnerObject) {
		t.Errorf("the second installation exited with %v and log %s, want an error that names the owner object", err, log)
	}
	for turn := range 10 { // each search finds a stray that the previous search has not seen
		name := fmt.Sprintf("videos/vid_%d/1-1/720p.mp4", turn)
		w.object(name, "an object that is not in any of the first installation's records")
		before = append(before, name)
		eventually(t, "search by the first installation's janitor", func() bool {
			var list bytes.Buffer
			_, _ = w.bucket.Download(t.Context(), "linkreel/strays.json", 0, &list)
			return strings.Contains(list.String(), name)
		})
	}
	if after := append(w.objects("videos/"), w.objects("uploads/")...); len(after) != len(before) || first.ProcessState != nil {
		t.Errorf("storage contained %v and now contains %v, want all objects and a running process", before, after)
	}
}

func TestALostJobIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.create(`{}`)
	w.put(v, "a film")
	w.get(v.id)
	must(t, w.jobs.Delete(t.Context(), w.job(v.id).ID)) // as after a crash between writing the record and writing the job
	w.get(v.id)
	if r := w.job(v.id); r.State != transcode.Queued {
		t.Errorf("the job is %s, want queued", r.State)
	}
}

func TestOnlyThePinnedGenerationCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.create(`{}`)
	w.put(v, "a film")
	w.get(v.id)
	first := w.job(v.id)
	w.put(v, "another film, uploaded during processing")
	w.clock.Advance(2 * time.Second)
	w.get(v.id)
	if _, err := w.jobs.Get(t.Context(), w.generation(v)); err == nil {
		t.Error("an upload during processing started a job, want none")
	}
	r, err := w.jobs.Claim(t.Context(), first.ID, "hand", time.Minute)
	must(t, err)
	must(t, w.jobs.Fail(t.Context(), tokenOf(r), failure("INTERNAL", "The upload changed.")))
	w.get(v.id)
	w.clock.Advance(2 * time.Second)
	if got := w.get(v.id); got["status"] != "processing" {
		t.Errorf("status after the older upload failed = %v, want processing of the newer upload", got["status"])
	}
}

func (w *world) generation(v made) string {
	w.t.Helper()
	var o objectstore.Object
	o, err := w.bucket.Stat(w.t.Context(), "uploads/"+v.id+"/source")
	must(w.t, err)
	return transcode.JobID(v.id, o.Generation)
}

func TestWithoutRedisEverythingStillWorks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *videos.Config, _ *storage.Options) { c.Redis.URL = "127.0.0.1:1" })
	v := w.ready(`{"privacy":"password","password":"p"}`)
	w.guess(v, "p").want(303)
	wrong := 0
	for range 10 {
		if w.guess(v, "x").status == 403 {
			wrong++
		}
	}
	if wrong != 2 {
		t.Errorf("got %d guesses a minute without Redis, want 2 (half of 5, rounded down)", wrong)
	}
}

// If such files were not removed, anyone with a ready video's upload URL could store files that do
// not count towards any limit or quota.
func TestAFileForAReadyVideoIsRemoved(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*videos.Config, *storage.Options){
		"by a notification": func(c *videos.Config, o *storage.Options) {
			o.Notify = &storage.Notify{URL: c.BaseURL + videos.StorageHookPath, MinBackoff: 20 * time.Millisecond}
		},
		"by the janitor": quick,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, edit)
			v := w.ready(`{}`)
			other := w.ready(`{}`)
			w.put(v, "another file after the video was ready")
			w.loop("janitor") // runs once an hour unless the config is made quick
			eventually(t, "late file removed", func() bool { return len(w.objects("uploads/"+v.id)) == 0 })
			if len(w.objects("uploads/"+other.id)) != 1 || w.status(v.id) != "ready" {
				t.Error("the source of the other video was removed or the status changed, want only the late file removed")
			}
		})
	}
}
