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

// quick makes sweeps and the janitor run at once instead of every few seconds.
func quick(c *videos.Config, _ *storage.Options) {
	c.SweepEvery, c.JanitorEvery = 50*time.Millisecond, 50*time.Millisecond
}

// status reads a video from a list, since reading it alone would make the service check
// storage.
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
	soon := func(status string) func() bool { // a new video is due every ten seconds
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
	for _, stray := range []string{"", "vid_gone-7", "no job at all", v.id + "-1"} {
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
		"no token":       header("X-Nothing", ""),
		"no real token":  header("Authorization", "Bearer a.b.c"),
		"an API key":     header("Authorization", "Bearer "+w.keys["acc_a"]),
		"an unsigned":    header("Authorization", "Bearer eyJhbGciOiJub25lIn0.e30."),
		"a wrong scheme": header("Authorization", "Basic abc"),
	} {
		if a := w.send(http.MethodPost, videos.StorageHookPath, `{}`, s); a.status != 401 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
}

// TestAFileWithAContentEncodingIsRefused: Google's storage decompresses such a file while a worker
// reads it, so one megabyte could fill the worker's disk.
func TestAFileWithAContentEncodingIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.create(`{}`)
	w.send(http.MethodPut, v.upload, "packed", header("Content-Type", "video/mp4"), header("Content-Encoding", "gzip")).want(200)
	o, err := w.bucket.Stat(t.Context(), "uploads/"+v.id+"/source")
	must(t, err)
	got := w.get(v.id)
	if e, _ := got["error"].(map[string]any); got["status"] != "failed" || e["code"] != "UNSUPPORTED_FORMAT" || !strings.Contains(e["message"].(string), "Content-Encoding") {
		t.Fatalf("video: %v", got)
	}
	if _, err := w.jobs.Get(t.Context(), transcode.JobID(v.id, o.Generation)); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("a worker was asked to prepare it: %v", err)
	}
	if _, err := w.bucket.Stat(t.Context(), "uploads/"+v.id+"/source"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("the file stays: %v", err)
	}
	w.send(http.MethodPut, v.upload, "a film", header("Content-Type", "video/mp4"), header("Content-Encoding", "identity")).want(200)
	w.clock.Advance(2 * time.Second)
	if got := w.get(v.id); got["status"] != "processing" || got["error"] != nil {
		t.Errorf("after a plain file: %v", got)
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
		t.Fatalf("failed video: %v", got)
	}
	if got["resumableUploadUrl"] == nil {
		t.Error("no new resumable session")
	}
	w.clock.Advance(2 * time.Second)
	if s := w.get(v.id)["status"]; s != "failed" {
		t.Fatalf("the same file was taken again: %v", s)
	}
	w.put(v, "a film")
	w.clock.Advance(2 * time.Second)
	if got = w.get(v.id); got["status"] != "processing" || got["error"] != nil {
		t.Fatalf("after the new file: %v", got)
	}
	if _, err := w.jobs.Get(t.Context(), first.ID); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("the former job stays: %v", err)
	}
	w.work(v.id, nil)
	if s := w.get(v.id)["status"]; s != "ready" {
		t.Errorf("status %v", s)
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
			t.Errorf("%d bytes: %v", len(content), got)
		}
		if left := w.objects("uploads/" + v.id); len(left) != 0 {
			t.Errorf("%d bytes: %v stays in storage", len(content), left)
		}
		w.put(v, "a film")
		w.clock.Advance(2 * time.Second)
		if s := w.get(v.id)["status"]; s != "processing" {
			t.Errorf("then a good file: %v", s)
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
		t.Fatalf("expired upload: %v", got)
	}
	w.send(http.MethodPut, got["uploadUrl"].(string), "a film").want(200)
	eventually(t, "processing after all", func() bool { return w.status(v.id) == "processing" })
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
		t.Fatalf("after the first version: %v", got)
	}
	readAt := got["updatedAt"]
	next := *o
	next.Version, next.Final, next.Renditions = 2, true, append([]transcode.Rendition{tall}, o.Renditions...)
	must(t, w.jobs.Publish(t.Context(), tokenOf(w.job(v.id)), &next))
	w.loop("sweep")
	eventually(t, "the second version", func() bool { return len(w.get(v.id)["renditions"].([]any)) == 2 })
	if w.get(v.id)["updatedAt"] == readAt {
		t.Error("the record does not say that it changed")
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
				t.Fatalf("status %v, want %s", s, state)
			}
			w.api(http.MethodDelete, "/"+v.id, "").want(204)
			w.api(http.MethodGet, "/"+v.id, "").want(404)
			w.api(http.MethodDelete, "/"+v.id, "").want(404)
			w.send(http.MethodGet, v.path, "").want(404)
			w.loop("sweep")
			gone := func() bool { return len(w.objects("uploads/"+v.id))+len(w.objects("videos/"+v.id)) == 0 }
			eventually(t, "an empty storage", gone)
			if state == "processing" {
				if err := w.jobs.Heartbeat(t.Context(), tokenOf(running), time.Minute, 50); err == nil {
					t.Error("the worker was not told")
				}
				w.object(transcode.Prefix(v.id, running.Generation, 1)+"360p.mp4", "written before the worker knew")
			}
			w.put(v, "a late film")
			w.clock.Advance(10 * time.Second)
			eventually(t, "an empty storage after the late ones", gone)
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
	eventually(t, "an empty storage", func() bool {
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
	w.object(unfinished, "a finished chunk of a dead worker")
	part := transcode.PartsPrefix(busy.id, generation) + "3-1/part.mp4"
	w.object(part, "a finished part, which whoever takes the job over relies on")
	replaced := transcode.Prefix(v.id, w.job(v.id).Generation, 7) + "720p.mp4"
	w.object(replaced, "media that was replaced: addresses of it are still valid")
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
			t.Errorf("%s was removed at its first sighting: %v", name, err)
		}
	}
	for _, name := range keep {
		if _, err := w.bucket.Stat(t.Context(), name); err != nil {
			t.Errorf("%s was removed: %v", name, err)
		}
	}
	w.clock.Advance(7*24*time.Hour + time.Minute)
	eventually(t, "orphans gone after their second sighting, and the source after its retention", func() bool {
		for _, name := range orphans {
			if _, err := w.bucket.Stat(t.Context(), name); err == nil {
				return false
			}
		}
		return len(w.objects("uploads/"+v.id)) == 0
	})
	// A turn that judged the object before the clock moved has removed the orphans without
	// noting this one.
	eventually(t, "replaced media seen once", func() bool { return noted(replaced) })
	w.clock.Advance(7*24*time.Hour + time.Minute)
	eventually(t, "replaced media gone", func() bool { _, err := w.bucket.Stat(t.Context(), replaced); return err != nil })
	for _, name := range []string{unfinished, part} {
		if _, err := w.bucket.Stat(t.Context(), name); err != nil {
			t.Errorf("%s of a job in work was removed: %v", name, err)
		}
	}
}

// A second installation uses the first one's bucket, because of a mistyped name or copied settings.
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
	first.clock.Advance(3 * 24 * time.Hour) // less than the time for which the first one keeps sources
	for _, l := range second.Loops {
		if l.Name == "sweep" || l.Name == "janitor" {
			if err := l.Run(t.Context()); !errors.Is(err, objectstore.ErrForeign) || !strings.Contains(err.Error(), objectstore.OwnerObject) {
				t.Errorf("the second installation's %s ends with %v, want that the bucket is another's", l.Name, err)
			}
		}
	}
	if after := first.objects(""); !slices.Equal(before, after) || first.status(v.id) != "ready" {
		t.Errorf("objects before %v, after %v", before, after)
	}
}

// process starts the service as a process of its own, on the world's storage.
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
		t.Errorf("the second installation ended with %v and says %s", err, log)
	}
	for turn := range 10 { // each turn finds a stray that the turn before has not seen
		name := fmt.Sprintf("videos/vid_%d/1-1/720p.mp4", turn)
		w.object(name, "of no record that the first installation has")
		before = append(before, name)
		eventually(t, "the first installation's janitor keeps working", func() bool {
			var list bytes.Buffer
			_, _ = w.bucket.Download(t.Context(), "linkreel/strays.json", 0, &list)
			return strings.Contains(list.String(), name)
		})
	}
	if after := append(w.objects("videos/"), w.objects("uploads/")...); len(after) != len(before) || first.ProcessState != nil {
		t.Errorf("objects before %v, after %v", before, after)
	}
}

func TestALostJobIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.create(`{}`)
	w.put(v, "a film")
	w.get(v.id)
	must(t, w.jobs.Delete(t.Context(), w.job(v.id).ID)) // as if the service had died between record and job
	w.get(v.id)
	if r := w.job(v.id); r.State != transcode.Queued {
		t.Errorf("job is %s", r.State)
	}
}

func TestOnlyThePinnedGenerationCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.create(`{}`)
	w.put(v, "a film")
	w.get(v.id)
	first := w.job(v.id)
	w.put(v, "another film, sent while the first is processed")
	w.clock.Advance(2 * time.Second)
	w.get(v.id)
	if _, err := w.jobs.Get(t.Context(), w.generation(v)); err == nil {
		t.Error("an upload while processing started a job")
	}
	r, err := w.jobs.Claim(t.Context(), first.ID, "hand", time.Minute)
	must(t, err)
	must(t, w.jobs.Fail(t.Context(), tokenOf(r), failure("INTERNAL", "The upload changed.")))
	w.get(v.id)
	w.clock.Advance(2 * time.Second)
	if got := w.get(v.id); got["status"] != "processing" {
		t.Errorf("the newer upload was not taken after the failure: %v", got["status"])
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
		t.Errorf("%d guesses a minute without Redis, want half of 5", wrong)
	}
}

// Without the check, somebody with the upload address of a ready video could store
// files there that no limit or quota counts.
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
			w.put(v, "another file, which nobody asked for")
			w.loop("janitor") // runs once an hour unless the config is quick
			eventually(t, "the late file is gone", func() bool { return len(w.objects("uploads/"+v.id)) == 0 })
			if len(w.objects("uploads/"+other.id)) != 1 || w.status(v.id) != "ready" {
				t.Error("more is gone than the late file")
			}
		})
	}
}
