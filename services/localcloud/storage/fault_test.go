package storage_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gcs "cloud.google.com/go/storage"

	"github.com/linkreel/linkreel/services/localcloud/storage"
)

func TestAFaultHappensAsOftenAsAskedAndWhereAsked(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	e.put(t, "in/a", "x")
	e.put(t, "out/a", "x")
	f := e.srv.Faults()
	f.Inject(storage.Fault{Call: "objects.*", Bucket: "b-1", ObjectPrefix: "in/", Status: 503, Times: 2})
	for i, want := range []int{503, 503, 0} {
		if _, err := e.object("in/a").Attrs(t.Context()); status(err) != want {
			t.Errorf("call %d returned %v, want %d", i, err, want)
		}
		if _, err := e.object("out/a").Attrs(t.Context()); err != nil {
			t.Errorf("the call for another object returned %v, want no error", err)
		}
	}
	remove := f.Inject(storage.Fault{Call: "xml.get", Status: 503})
	u := e.sign(t, "GET", "in/a", nil)
	call(t, "GET", u, nil).want(t, 503, "ServiceUnavailable")
	remove()
	call(t, "GET", u, nil).want(t, 200, "")
}

func TestALostAnswerFollowsACommit(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	e.srv.Faults().Inject(storage.Fault{Call: "xml.put", LoseAnswer: true, Times: 1})
	if a, err := tryCall(t.Context(), "PUT", e.sign(t, "PUT", "a", nil), strings.NewReader("x")); err == nil {
		t.Fatalf("the call returned %+v, want an error", a)
	}
	if got := e.read(t, "a"); got != "x" {
		t.Errorf("the object is %q, want x", got)
	}
}

func TestACutRequestStoresNothingAndACutResponseIsShort(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	f := e.srv.Faults()
	f.Inject(storage.Fault{Call: "xml.put", CutRequest: 1000, Times: 1})
	if a, err := tryCall(t.Context(), "PUT", e.sign(t, "PUT", "a", nil), strings.NewReader(strings.Repeat("x", 5000))); err == nil {
		t.Fatalf("the call returned %+v, want an error", a)
	}
	if got := e.read(t, "a"); !strings.Contains(got, "doesn't exist") {
		t.Errorf("the object is %q, want none", got)
	}
	e.put(t, "b", strings.Repeat("y", 5000))
	f.Inject(storage.Fault{Call: "xml.get", CutResponse: 1000, Times: 1})
	resp, err := http.Get(e.sign(t, "GET", "b", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err == nil || len(b) != 1000 {
		t.Errorf("the reader got %d bytes and the error %v, want 1000 bytes and an error", len(b), err)
	}
}

func TestASlowCallIsSlowAndOthersAreNot(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	e.put(t, "a", "x")
	e.srv.Faults().Inject(storage.Fault{Call: "objects.get", Delay: 300 * time.Millisecond, Times: 1})
	begin := time.Now()
	if _, err := e.object("a").Attrs(t.Context()); err != nil || time.Since(begin) < 300*time.Millisecond {
		t.Errorf("the delayed call returned %v after %v, want no error after at least 300 ms", err, time.Since(begin))
	}
}

func TestAFullDiskRefusesUploadsAndHarmsNothing(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	e.put(t, "a", "old")
	f := e.srv.Faults()
	f.DiskFull(true)
	u := e.sign(t, "PUT", "a", nil)
	call(t, "PUT", u, []byte("new")).want(t, 507, "InsufficientStorage")
	if got := e.read(t, "a"); got != "old" {
		t.Errorf("the object is %q, want old", got)
	}
	if l, err := os.ReadDir(filepath.Join(e.dir, "tmp")); err != nil || len(l) != 0 {
		t.Errorf("tmp contains %v (error %v), want no files", l, err)
	}
	f.DiskFull(false)
	call(t, "PUT", u, []byte("new")).want(t, 200, "")
	if got := e.read(t, "a"); got != "new" {
		t.Errorf("the object is %q, want new", got)
	}
}

func TestCallsAreCountedByName(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	e.put(t, "a", "x")
	e.read(t, "a")
	e.object("a").Attrs(t.Context())
	list(t, e, &gcs.Query{Prefix: "a"}, 10)
	call(t, "GET", e.sign(t, "GET", "a", nil), nil)
	call(t, "PUT", e.startSession(t, "b"), []byte("x"))
	e.object("a").Delete(t.Context())
	got := e.srv.Faults().Calls()
	for _, name := range []string{"objects.insert", "objects.media", "objects.get", "objects.list", "objects.delete", "xml.get", "xml.start", "xml.session"} {
		if got[name] != 1 {
			t.Errorf("the count of %s is %d, want 1: %v", name, got[name], got)
		}
	}
	e.srv.Faults().Reset()
	if got := e.srv.Faults().Calls(); len(got) != 0 {
		t.Errorf("after Reset, the counts are %v, want none", got)
	}
}
