package videos_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// record creates a video that is uploaded while it is being recorded.
func (w *world) record() (id, session string) {
	w.t.Helper()
	m := w.api(http.MethodPost, "", `{"recording":true}`).want(201).json()
	if m["ignoredFields"] != nil {
		w.t.Fatalf("create ignored the fields %v, want none", m["ignoredFields"])
	}
	return m["videoId"].(string), m["resumableUploadUrl"].(string)
}

func TestARecordingWhoseTabDiesIsFinishedFiveMinutesAfterItsLastByte(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	id, session := w.record()
	left, _ := w.record()                                                                    // the tab crashed before the first byte
	file := w.api(http.MethodPost, "", `{}`).want(201).json()["resumableUploadUrl"].(string) // not a recording, so the client may resume it later
	part := strings.Repeat("0123456789abcdef", 256<<10/16)
	for _, s := range []string{session, file} {
		w.send(http.MethodPut, s, part, header("Content-Range", "bytes 0-262143/*")).want(308)
	}
	w.loop("sweep")
	// The recording does not count as finished while parts keep arriving, even if only one arrives
	// every four minutes.
	for n := range 3 {
		for range 8 {
			w.clock.Advance(30 * time.Second)
			time.Sleep(120 * time.Millisecond) // sweeps run every 50 ms; too few of them cannot make the test fail
		}
		first := (n + 1) * 262144
		w.send(http.MethodPut, session, part, header("Content-Range", "bytes "+strconv.Itoa(first)+"-"+strconv.Itoa(first+262143)+"/*")).want(308)
	}
	if s := w.status(id); s != "uploading" {
		t.Fatalf("the status while parts arrive is %s, want uploading", s)
	}
	var waited time.Duration
	eventually(t, "recording finished without its tab", func() bool {
		w.clock.Advance(10 * time.Second)
		waited += 10 * time.Second
		return w.status(id) == "processing"
	})
	if waited < 5*time.Minute {
		t.Errorf("the recording was finished %v after the last byte, want at least 5 minutes", waited)
	}
	o, err := w.bucket.Stat(t.Context(), "uploads/"+id+"/source")
	if err != nil || o.Size != 4*262144 {
		t.Errorf("Stat of the video's file returned %+v and error %v, want all received bytes", o, err)
	}
	if s := w.status(left); s != "uploading" {
		t.Errorf("the status of a recording without any bytes is %s, want uploading", s)
	}
	if a := w.send(http.MethodPut, file, "", header("Content-Range", "bytes */*")); a.status != 308 {
		t.Errorf("a request to the session for a plain upload returned %d, want 308 because the session is open", a.status)
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
		time.Sleep(60 * time.Millisecond) // see the previous test
	}
	if s := w.status(id); s != "uploading" {
		t.Fatalf("the status of the recording without its session is %s, want uploading", s)
	}
	v := w.get(id)
	w.send(http.MethodPut, v["uploadUrl"].(string), "a film").want(200)
	w.clock.Advance(2 * time.Second)
	if s := w.get(id)["status"]; s != "processing" {
		t.Errorf("status after an upload in one piece = %v, want processing", s)
	}
}
