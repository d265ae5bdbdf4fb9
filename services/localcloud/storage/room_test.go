package storage_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	gcs "cloud.google.com/go/storage"

	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// A signed URL must accept uploads only up to the server's limit, whether or not the request states
// its length.
func TestUploadsOfStrangersEndAtTheLargestSize(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	e := start(t, storage.Options{MaxUpload: most})
	put := func(name string) string { return e.sign(t, "PUT", name, nil) }
	call(t, "PUT", put("fits"), make([]byte, most)).want(t, 200, "")
	call(t, "PUT", put("over"), make([]byte, most+1), "Expect", "100-continue").want(t, 400, "EntityTooLarge")

	// Without a length, a body above the limit must not be stored.
	req, err := http.NewRequestWithContext(t.Context(), "PUT", put("endless"), &endless{})
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(req); err == nil { // Do may fail because the server may close the connection while the client is still sending
		defer resp.Body.Close()
		if resp.StatusCode != 400 {
			t.Errorf("an endless body returned %s, want 400", resp.Status)
		}
	}
	// A client states the length of a session when it starts the session or with the first bytes.
	start := e.sign(t, "POST", "session", func(o *gcs.SignedURLOptions) { o.Headers = []string{"x-goog-resumable:start"} })
	call(t, "POST", start, nil, "x-goog-resumable", "start", "X-Upload-Content-Length", fmt.Sprint(most+1)).want(t, 400, "EntityTooLarge")
	session := e.startSession(t, "session")
	call(t, "PUT", session, make([]byte, 10), "Content-Range", fmt.Sprintf("bytes 0-9/%d", most+1)).want(t, 400, "EntityTooLarge")
	call(t, "PUT", session, nil, "Content-Range", "bytes */*").want(t, 404, "NoSuchUpload")

	for _, name := range []string{"over", "endless", "session"} {
		if _, err := e.object(name).Attrs(t.Context()); !errors.Is(err, gcs.ErrObjectNotExist) {
			t.Errorf("reading %s returned %v, want no object", name, err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(e.dir, "tmp")); err != nil || len(left) != 0 {
		t.Errorf("tmp contains %v (error %v), want no files", left, err)
	}
	// Objects from our own services are limited only by production's maximum.
	e.put(t, "own", strings.Repeat("x", most+1))
}

// endless is a body of unlimited and undeclared length.
type endless struct{}

func (*endless) Read(p []byte) (int, error) { return len(p), nil }

// Uploads through signed URLs must not use the reserve, and stored objects must remain readable.
// Our own programs may use half of the reserve to process existing uploads.
func TestUploadsLeaveTheReserveAlone(t *testing.T) {
	t.Parallel()
	const reserve = 100 << 20
	var free atomic.Int64
	free.Store(reserve + 1000)
	e := start(t, storage.Options{Reserve: reserve, FreeSpace: func() (int64, error) { return free.Load(), nil }})
	put := func(name string) string { return e.sign(t, "PUT", name, nil) }
	call(t, "PUT", put("a"), make([]byte, 1000)).want(t, 200, "")
	r := call(t, "PUT", put("b"), make([]byte, 1001), "Expect", "100-continue")
	r.want(t, 507, "InsufficientStorage")
	if !strings.Contains(r.body, fmt.Sprintf("%d bytes free", reserve+1000)) {
		t.Errorf("the response does not contain the free space: %s", r.body)
	}

	// Space runs out during an upload. The server must detect this and keep the received bytes.
	session := e.startSession(t, "s")
	chunk := make([]byte, 8<<20)
	free.Store(reserve + int64(len(chunk)))
	call(t, "PUT", session, chunk, "Content-Range", fmt.Sprintf("bytes 0-%d/*", len(chunk)-1)).want(t, 308, "")
	free.Store(reserve)
	call(t, "PUT", session, chunk, "Content-Range", fmt.Sprintf("bytes %d-%d/%d", len(chunk), 2*len(chunk)-1, 2*len(chunk)), "Expect", "100-continue").want(t, 507, "InsufficientStorage")
	if got := e.read(t, "a"); len(got) != 1000 {
		t.Errorf("the object has %d bytes, want 1000", len(got))
	}
	e.put(t, "own", "from the worker")
	free.Store(reserve/2 - 1)
	w := e.object("own2").NewWriter(t.Context())
	_, _ = w.Write([]byte("x"))
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "507") {
		t.Errorf("an object of our own beyond half of the reserve returned %v, want 507", err)
	}
	free.Store(reserve + int64(len(chunk)))
	call(t, "PUT", session, chunk, "Content-Range", fmt.Sprintf("bytes %d-%d/%d", len(chunk), 2*len(chunk)-1, 2*len(chunk))).want(t, 200, "")
	if a, err := e.object("s").Attrs(t.Context()); err != nil || a.Size != int64(2*len(chunk)) {
		t.Errorf("after space was freed, the object is %+v (error %v), want both chunks", a, err)
	}
}

// Moving the objects to a separate volume must keep all of them, including unfinished uploads.
func TestObjectsMoveToADirectoryOfTheirOwn(t *testing.T) {
	t.Parallel()
	dir, objects := t.TempDir(), t.TempDir()
	e := start(t, storage.Options{Dir: dir})
	e.put(t, "a", "kept")
	session := e.startSession(t, "s")
	half := make([]byte, 256<<10)
	call(t, "PUT", session, half, "Content-Range", fmt.Sprintf("bytes 0-%d/*", len(half)-1)).want(t, 308, "")
	e.stop()

	moved := start(t, storage.Options{Dir: dir, ObjectsDir: objects})
	if got := moved.read(t, "a"); got != "kept" {
		t.Errorf("after the move, the object is %q, want kept", got)
	}
	_, path, _ := strings.Cut(strings.TrimPrefix(session, "http://"), "/")
	call(t, "PUT", moved.public.URL+"/"+path, half, "Content-Range", fmt.Sprintf("bytes %d-%d/%d", len(half), 2*len(half)-1, 2*len(half))).want(t, 200, "")
	if left, err := os.ReadDir(filepath.Join(dir, "data")); err != nil || len(left) != 0 {
		t.Errorf("the old directory contains %v (error %v), want no files", left, err)
	}
	if files, err := os.ReadDir(filepath.Join(objects, "data")); err != nil || len(files) != 2 {
		t.Errorf("the new directory contains %v (error %v), want 2 files", files, err)
	}
}

// A web page can make its own host name resolve to this machine, but it cannot do so for an IP
// address or a name without a dot. It must not be able to read or change anything.
func TestTheAPIAnswersNoNameOfStrangers(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{APIHosts: []string{"localcloud.example.internal"}})
	e.put(t, "a", "secret")
	for _, tt := range []struct {
		host, site string
		want       int
	}{
		{"127.0.0.1:8084", "", 200}, {"[::1]:8084", "", 200}, {"localhost:8084", "", 200}, {"localhost", "none", 200}, {"linkreel-localcloud:8086", "", 200},
		{"LocalCloud.example.internal:80", "", 200}, {"localcloud.example.internal.", "", 200},
		{"rebind.attacker.example:8084", "", 421}, {"127.0.0.1.attacker.example", "", 421}, {"localhost.attacker.example", "", 421},
		{"127.0.0.1:8084", "cross-site", 403}, {"127.0.0.1:8084", "same-origin", 200},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", e.api.URL+"/storage/v1/b/b-1/o/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = tt.host
		if tt.site != "" {
			req.Header.Set("Sec-Fetch-Site", tt.site)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != tt.want {
			t.Errorf("a request with the host %s and the site %q returned %s, want %d", tt.host, tt.site, resp.Status, tt.want)
		}
	}
}

func TestReadyIsMoreThanAlive(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{ObjectsDir: filepath.Join(t.TempDir(), "objects")})
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200} {
		call(t, "GET", e.api.URL+path, nil).want(t, want, "")
	}
	bare := start(t, storage.Options{Dir: t.TempDir()})
	if err := os.RemoveAll(filepath.Join(bare.dir, "data")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/livez": 200, "/readyz": 503} {
		call(t, "GET", bare.api.URL+path, nil).want(t, want, "")
	}
}
