package videos_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// record makes a video that is sent while it is recorded.
func (w *world) record() (id, session string) {
	w.t.Helper()
	m := w.api(http.MethodPost, "", `{"recording":true}`).want(201).json()
	if m["ignoredFields"] != nil {
		w.t.Fatalf("ignored %v", m["ignoredFields"])
	}
	return m["videoId"].(string), m["resumableUploadUrl"].(string)
}

func TestARecordingWhoseTabDiesIsFinishedFiveMinutesAfterItsLastByte(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	id, session := w.record()
	left, _ := w.record()                                                                    // its tab died before the first byte
	file := w.api(http.MethodPost, "", `{}`).want(201).json()["resumableUploadUrl"].(string) // not a recording: it may be resumed tomorrow
	part := strings.Repeat("0123456789abcdef", 256<<10/16)
	for _, s := range []string{session, file} {
		w.send(http.MethodPut, s, part, header("Content-Range", "bytes 0-262143/*")).want(308)
	}
	w.loop("sweep")
	// The recording stays open as long as parts arrive, even if only one every four minutes.
	for n := range 3 {
		for range 8 {
			w.clock.Advance(30 * time.Second)
			time.Sleep(120 * time.Millisecond) // sweeps run every 50 ms of real time; too few of them make the test pass, not fail
		}
		first := (n + 1) * 262144
		w.send(http.MethodPut, session, part, header("Content-Range", "bytes "+strconv.Itoa(first)+"-"+strconv.Itoa(first+262143)+"/*")).want(308)
	}
	if s := w.status(id); s != "uploading" {
		t.Fatalf("status %s while parts come", s)
	}
	var waited time.Duration
	eventually(t, "finished without its tab", func() bool {
		w.clock.Advance(10 * time.Second)
		waited += 10 * time.Second
		return w.status(id) == "processing"
	})
	if waited < 5*time.Minute {
		t.Errorf("finished %v after the last byte", waited)
	}
	o, err := w.bucket.Stat(t.Context(), "uploads/"+id+"/source")
	if err != nil || o.Size != 4*262144 {
		t.Errorf("the video's file is %+v, %v; want all that arrived", o, err)
	}
	if s := w.status(left); s != "uploading" {
		t.Errorf("a recording without a byte is %s", s)
	}
	if a := w.send(http.MethodPut, file, "", header("Content-Range", "bytes */*")); a.status != 308 {
		t.Errorf("an upload that is no recording was finished: %d", a.status)
	}
}

func TestARecordingWithoutItsSessionWaitsLikeAnUpload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	id, session := w.record()
	w.send(http.MethodPut, session, strings.Repeat("x", 262144), header("Content-Range", "bytes 0-262143/*")).want(308)
	w.send(http.MethodDelete, session, "").want(499)
	w.loop("sweep")
	for range 12 {
		w.clock.Advance(time.Minute)
		time.Sleep(60 * time.Millisecond) // as above
	}
	if s := w.status(id); s != "uploading" {
		t.Fatalf("status %s", s)
	}
	v := w.get(id)
	w.send(http.MethodPut, v["uploadUrl"].(string), "a film").want(200)
	w.clock.Advance(2 * time.Second)
	if s := w.get(id)["status"]; s != "processing" {
		t.Errorf("status %v after a whole file", s)
	}
}
