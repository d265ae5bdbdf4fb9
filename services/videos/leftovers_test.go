package videos_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// bytes returns how many bytes of video data storage has on disk, including unfinished uploads.
func (w *world) bytes() (n int64) {
	w.t.Helper()
	for _, dir := range []string{"data", "tmp"} {
		must(w.t, filepath.WalkDir(filepath.Join(w.disk, dir), func(_ string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if info, err := d.Info(); err == nil { // on error, the file has just been removed
				n += info.Size()
			}
			return nil
		}))
	}
	// Do not count the object that names the database that owns the bucket.
	for o, err := range w.bucket.List(w.t.Context(), "") {
		must(w.t, err)
		if !strings.HasPrefix(o.Name, "videos/") && !strings.HasPrefix(o.Name, "uploads/") {
			n -= o.Size
		}
	}
	return n
}

// hoarder is an account that may store 1,000 bytes and 2 videos, and tries to store more.
type hoarder struct {
	*world
	account string
	mu      sync.Mutex
	puts    []string // all its upload URLs; mu guards against concurrent creates
}

func (w *world) hoarder(name string) *hoarder {
	w.t.Helper()
	h := &hoarder{world: w, account: "acc_" + name}
	w.keys[h.account] = w.apikeys.Key(w.t, h.account, identity.Creator, func(r *apikey.Record) {
		r.Quotas = identity.Quotas{Videos: 2, StoredBytes: 1000}
	})
	return h
}

type waiting struct{ id, put, session string }

func (h *hoarder) make(body string) waiting {
	h.t.Helper()
	m := h.as(h.account, http.MethodPost, "", body).want(201).json()
	v := waiting{id: m["videoId"].(string), put: m["uploadUrl"].(string)}
	v.session, _ = m["resumableUploadUrl"].(string) // "" if other sessions have reserved the rest of the storage limit
	h.mu.Lock()
	defer h.mu.Unlock()
	h.puts = append(h.puts, v.put)
	return v
}

func (h *hoarder) look(v waiting) map[string]any {
	h.t.Helper()
	h.clock.Advance(2 * time.Second)
	return h.as(h.account, http.MethodGet, "/"+v.id, "").want(200).json()
}

func (h *hoarder) remove(v waiting) { h.as(h.account, http.MethodDelete, "/"+v.id, "").want(204) }

// ready uploads and transcodes v.
func (h *hoarder) ready(v waiting) {
	h.t.Helper()
	h.send(http.MethodPut, v.put, "a film").want(200)
	if s := h.look(v)["status"]; s != "processing" {
		h.t.Fatalf("status after the upload = %v, want processing", s)
	}
	h.work(v.id, nil)
	if s := h.look(v)["status"]; s != "ready" {
		h.t.Fatalf("status after the job = %v, want ready", s)
	}
}

// cut sends 500 of 900 bytes to a session and then disconnects. Storage keeps the bytes so that
// the upload can be resumed.
func (h *hoarder) cut(session string) {
	h.t.Helper()
	rest := h.begin(session, "Content-Range: bytes 0-899/900\r\n")
	rest(0)
}

// begin sends 500 of 900 bytes. It returns a function that sends n more bytes and then disconnects.
func (h *hoarder) begin(address, headers string) (rest func(n int)) {
	h.t.Helper()
	u, err := url.Parse(address)
	must(h.t, err)
	conn, err := (&net.Dialer{}).DialContext(h.t.Context(), "tcp", u.Host)
	must(h.t, err)
	_, err = fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 900\r\n%s\r\n%s", u.RequestURI(), u.Host, headers, strings.Repeat("x", 500))
	must(h.t, err)
	eventually(h.t, "storage has received the first bytes", func() bool { return h.bytes() >= 500 || h.ended(address) })
	return func(n int) {
		_, _ = io.WriteString(conn, strings.Repeat("y", n)) // storage may have closed the connection already
		_ = conn.Close()
	}
}

// ended reports whether a session has stopped accepting bytes.
func (h *hoarder) ended(address string) bool {
	return strings.Contains(address, "upload_id=") && h.send(http.MethodPut, address, "", header("Content-Range", "bytes */*")).status == 404
}

// ways are attempts to leave bytes in storage.
var ways = []struct {
	name string
	do   func(h *hoarder)
}{
	{"unfinished session", func(h *hoarder) { h.cut(h.make(`{}`).session) }},
	{"session finished after the deletion", func(h *hoarder) {
		v := h.make(`{}`)
		h.cut(v.session)
		h.remove(v)
		h.send(http.MethodPut, v.session, strings.Repeat("y", 900), header("Content-Range", "bytes 0-899/900"))
	}},
	{"session in use during the deletion", func(h *hoarder) {
		v := h.make(`{}`)
		rest := h.begin(v.session, "Content-Range: bytes 0-899/900\r\n")
		h.remove(v)
		rest(400)
	}},
	{"many sessions in sequence", func(h *hoarder) {
		for range 8 {
			v := h.make(`{}`)
			h.cut(v.session)
			h.remove(v)
		}
	}},
	{"session over the storage limit", func(h *hoarder) {
		v := h.make(`{}`)
		h.send(http.MethodPut, v.session, strings.Repeat("x", 256<<10), header("Content-Range", "bytes 0-262143/*")).want(400)
	}},
	{"sessions before and after a failure", func(h *hoarder) {
		v := h.make(`{}`)
		h.cut(v.session)
		h.send(http.MethodPut, v.put, "").want(200)
		failed := h.look(v)
		next, _ := failed["resumableUploadUrl"].(string)
		if failed["status"] != "failed" || next == "" || next == v.session {
			h.t.Fatalf("got %v after an empty file, want status failed and a new session", failed)
		}
		h.send(http.MethodPut, v.session, "x", header("Content-Range", "bytes 500-500/900"))
		h.cut(next)
	}},
	{"file in one piece alongside a session", func(h *hoarder) {
		v := h.make(`{}`)
		h.cut(v.session)
		h.send(http.MethodPut, v.put, "a film").want(200)
		h.look(v)
	}},
	{"expired upload", func(h *hoarder) {
		v := h.make(`{}`)
		h.cut(v.session)
		h.clock.Advance(49 * time.Hour)
		eventually(h.t, "the session has ended with its upload", func() bool { h.clock.Advance(10 * time.Second); return h.ended(v.session) })
		h.puts = append(h.puts, h.look(v)["uploadUrl"].(string))
	}},
	{"recording", func(h *hoarder) { h.cut(h.make(`{"recording":true}`).session) }},
	{"two files that are too large", func(h *hoarder) {
		v := h.make(`{}`)
		for range 2 {
			h.send(http.MethodPut, v.put, strings.Repeat("x", 5000)).want(200)
			if got := h.look(v); got["status"] != "failed" {
				h.t.Errorf("status after 5,000 bytes in an account of 1,000 = %v, want failed", got["status"])
			}
		}
	}},
	{"upload after the deletion", func(h *hoarder) {
		v := h.make(`{}`)
		h.remove(v)
		h.send(http.MethodPut, v.put, strings.Repeat("x", 5000)).want(200)
	}},
	{"upload during the deletion", func(h *hoarder) {
		v := h.make(`{}`)
		rest := h.begin(v.put, "")
		h.remove(v)
		rest(400)
	}},
	{"four uploads during the deletion", func(h *hoarder) {
		v := h.make(`{}`)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { h.send(http.MethodPut, v.put, strings.Repeat("x", 900)) })
		}
		h.remove(v)
		all.Wait()
	}},
	{"captions", func(h *hoarder) {
		v := h.make(`{}`)
		h.ready(v)
		for _, lang := range []string{"en", "de", "en"} {
			h.as(h.account, http.MethodPut, "/"+v.id+"/captions/"+lang, "WEBVTT\n"+strings.Repeat("\nNOTE x\n", 100), header("Content-Type", "text/vtt")).want(200)
		}
	}},
	{"upload to a ready video", func(h *hoarder) {
		v := h.make(`{}`)
		h.ready(v)
		h.send(http.MethodPut, v.put, strings.Repeat("x", 5000)).want(200)
	}},
	{"object written by a worker after the deletion", func(h *hoarder) {
		v := h.make(`{}`)
		h.ready(v)
		h.remove(v)
		h.object("videos/"+v.id+"/1-1/late.mp4", "late")
	}},
	{"storage down during the deletion", func(h *hoarder) {
		v := h.make(`{}`)
		h.cut(v.session)
		undo := h.store.Faults().Inject(storage.Fault{Status: 503})
		h.remove(v)
		h.clock.Advance(time.Minute)
		undo()
	}},
	{"crash between the commit and the end of the session", func(h *hoarder) {
		v := h.make(`{}`)
		h.cut(v.session)
		other := h.replica() // a replica without loops that would remove the objects
		other.as(h.account, http.MethodDelete, "/"+v.id, "").want(204)
	}},
}

func TestADeletedVideoLeavesNoByteWhateverItsOwnerTried(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.loop("sweep")
	for i, way := range ways {
		h := w.hoarder(fmt.Sprint("deleting", i))
		way.do(h)
		if n := w.bytes(); n > 25_000 { // enough for a ready video, not enough for many leftovers
			t.Errorf("%s: storage has %d bytes on disk, want at most 25,000", way.name, n)
		}
		for _, item := range h.as(h.account, http.MethodGet, "", "").want(200).json()["data"].([]any) {
			h.remove(waiting{id: item.(map[string]any)["_id"].(string)})
		}
		for _, put := range h.puts {
			h.send(http.MethodPut, put, "too late") // rejected after the URL has expired
		}
		left := int64(0)
		eventually(t, way.name+": nothing on disk", func() bool {
			w.clock.Advance(10 * time.Second)
			left = w.bytes()
			return left == 0
		})
		w.clock.Advance(2 * time.Hour) // every purge task is a tombstone now
		w.sendLate(way.name, h)
		// The whole quota is available again.
		for range 2 {
			w.send(http.MethodPut, h.make(`{}`).put, "").want(200)
		}
		for _, item := range h.as(h.account, http.MethodGet, "", "").want(200).json()["data"].([]any) {
			h.remove(waiting{id: item.(map[string]any)["_id"].(string)})
		}
	}
}

func TestAnErasedAccountLeavesNoByteWhateverItTried(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.loop("sweep")
	w.loop("accounts")
	all := make([]*hoarder, len(ways))
	for i, way := range ways {
		all[i] = w.hoarder(fmt.Sprint("erased", i))
		way.do(all[i])
	}
	var told sync.WaitGroup
	for _, h := range all {
		told.Go(func() {
			if err := w.auth.SetState(t.Context(), h.account, tenant.Standing{State: tenant.Deleting, Version: 2}); err != nil {
				t.Error(err)
			}
			for _, put := range h.puts {
				h.send(http.MethodPut, put, "after the erasure began")
			}
		})
	}
	told.Wait()
	for i, h := range all {
		eventually(t, ways[i].name+": erased", func() bool {
			w.clock.Advance(30 * time.Second)
			erased, err := w.auth.Erased(t.Context(), h.account)
			must(t, err)
			return erased
		})
	}
	if n := w.bytes(); n != 0 {
		t.Errorf("storage has %d bytes on disk, want none: %v", n, w.objects(""))
	}
	for id, d := range w.purges() {
		for _, field := range []string{"accountId", "sessions", "jobIds"} {
			if d[field] != nil {
				t.Errorf("the tombstone of %s has the %s field: %v; want it absent", id, field, d[field])
			}
		}
	}
	w.sendLate("after the erasure", all...)
	w.clock.Advance(48 * time.Hour) // all upload URLs have expired, including their grace periods
	eventually(t, "no tombstones left", func() bool { return len(w.purges()) == 0 })
}

// purges returns the tasks for deleted videos, including tombstones.
func (w *world) purges() map[string]map[string]any {
	w.t.Helper()
	snaps, err := w.db.Collection("videoPurges").Documents(w.t.Context()).GetAll()
	must(w.t, err)
	found := map[string]map[string]any{}
	for _, snap := range snaps {
		found[snap.Ref.ID] = snap.Data()
	}
	return found
}

// sendLate sends a file to every upload URL that still works, long after the videos were deleted.
// All of these files must be removed within an hour, even though storage does not send
// notifications in this test.
func (w *world) sendLate(what string, all ...*hoarder) {
	w.t.Helper()
	taken := 0
	for _, h := range all {
		for _, put := range h.puts {
			if h.send(http.MethodPut, put, "long after expiry").status == 200 {
				taken++
			}
		}
	}
	for id, d := range w.purges() {
		if pause := d["due"].(map[string]any)["at"].(time.Time).Sub(w.clock.Now()); pause > time.Hour {
			w.t.Errorf("%s: the next search for late files of %s is in %v, want at most an hour", what, id, pause)
		}
	}
	eventually(w.t, what+": late files removed", func() bool {
		w.clock.Advance(time.Minute)
		return w.bytes() == 0
	})
	if len(all) > 1 && taken == 0 {
		w.t.Error("storage did not accept any late files, want at least one working upload URL")
	}
}

// We do not know the size of a file sent in one piece until it has arrived, so the file may use
// storage that was reserved for a session.
func TestWhatSessionsHoldCountsAsStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	h := w.hoarder("counted")
	sent, whole := h.make(`{}`), h.make(`{}`)
	h.send(http.MethodPut, whole.put, strings.Repeat("z", 600)).want(200)
	if s := h.look(whole)["status"]; s != "processing" {
		t.Fatalf("status after a file within the storage limit = %v, want processing", s)
	}
	rest := h.begin(sent.session, "Content-Range: bytes 0-899/900\r\n")
	rest(200) // 700 bytes in total, even though 600 of 1,000 are already used
	w.loop("sweep")
	eventually(t, "session over the storage limit ended", func() bool {
		w.clock.Advance(time.Minute)
		return h.ended(sent.session)
	})
	eventually(t, "at most 1,000 bytes on disk", func() bool { return w.bytes() <= 1000 })
	if e, _ := h.look(sent)["error"].(map[string]any); e == nil || e["code"] != "FILE_TOO_LARGE" {
		t.Errorf("the video with the session over the storage limit has the error %v, want FILE_TOO_LARGE", e)
	}
}

// tenVideos returns a hoarder that may create at least ten videos.
func (w *world) tenVideos(name string) *hoarder {
	h := w.hoarder(name)
	w.quota(h.account, func(q *identity.Quotas) { q.Videos, q.StoredBytes = 20, 1000 })
	return h
}

// fill sends n bytes to each of the sessions and returns the number of bytes on disk.
func (h *hoarder) fill(n int, sessions ...string) int64 {
	var all sync.WaitGroup
	for _, session := range sessions {
		all.Go(func() {
			h.send(http.MethodPut, session, strings.Repeat("x", n), header("Content-Range", fmt.Sprintf("bytes 0-%d/%d", n-1, n)))
		})
	}
	all.Wait()
	return h.bytes() // count only now: while a finished file is being renamed, its bytes count twice
}

func TestSessionsThatBeginTogetherShareTheRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	h := w.tenVideos("together")
	all := make([]waiting, 10)
	var begun sync.WaitGroup
	for i := range all {
		begun.Go(func() { all[i] = h.make(`{}`) })
	}
	begun.Wait()
	var sessions []string
	for _, v := range all {
		// A video that does not have a session may get one now.
		if s, _ := h.look(v)["resumableUploadUrl"].(string); s != "" {
			sessions = append(sessions, s)
		}
	}
	if len(sessions) == 0 {
		t.Fatal("none of the videos have a session, want one because the account has storage left")
	}
	for _, v := range all {
		if v.session != "" && !slices.Contains(sessions, v.session) {
			t.Errorf("create of %s returned a session that is not open, want an open session or none", v.id)
		}
	}
	if most := h.fill(1000, sessions...); most == 0 || most > 1000 {
		t.Errorf("storage has %d bytes in %d sessions, want 1 to 1,000", most, len(sessions))
	}
}

func TestTheRoomOfASessionComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	h := w.tenVideos("comes back")
	has := func(what string, v waiting, want bool) {
		t.Helper()
		if s, _ := h.look(v)["resumableUploadUrl"].(string); (s != "") != want {
			t.Errorf("%s: video has a session = %v, want %v", what, s != "", want)
		}
	}
	first, second := h.make(`{}`), h.make(`{}`)
	has("all storage reserved for the first session", second, false)
	h.remove(first)
	has("first video deleted", second, true)
	h.send(http.MethodPut, second.put, strings.Repeat("x", 400)).want(200)
	if s := h.look(second)["status"]; s != "processing" {
		t.Fatalf("the second video is %v after its upload, want processing", s)
	}
	third := h.make(`{}`)
	has("second video uploaded", third, true)
	if most := h.fill(600, third.session); most > 1000 || most <= 400 {
		t.Errorf("storage has %d bytes on disk, want 401 to 1,000", most)
	}
	h.remove(third)
	fourth, fifth := h.make(`{}`), h.make(`{}`)
	has("rest reserved for the fourth session", fifth, false)
	w.loop("sweep")
	eventually(t, "unused session ended", func() bool { w.clock.Advance(2 * time.Minute); return h.ended(fourth.session) })
	eventually(t, "reserved storage of the unused session available", func() bool {
		w.clock.Advance(10 * time.Second)
		s, _ := h.look(fifth)["resumableUploadUrl"].(string)
		return s != ""
	})
	has("rest reserved for the fifth session", fourth, false)
}
