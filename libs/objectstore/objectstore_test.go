package objectstore_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gcs "cloud.google.com/go/storage"
	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// world is local storage with both of its listeners, and a store that uses it.
type world struct {
	*objectstore.Store
	srv    *storage.Server
	public string
	cfg    objectstore.Config
}

func open(t testing.TB, edit func(*objectstore.Config)) *world {
	t.Helper()
	// The server accepts the store's token and a second token, as during a token rotation.
	token := strings.Repeat("n", 32)
	local := cloudtest.Start(t, cloudtest.Options{Buckets: []string{"media"}, Token: strings.Repeat("x", 32) + "," + token})
	cfg := objectstore.Config{Bucket: "media", PublicURL: local.PublicURL, Endpoint: local.APIURL, Key: local.Key, Token: token + "," + strings.Repeat("o", 32), Timeout: 20 * time.Second}
	if edit != nil {
		edit(&cfg)
	}
	st, err := objectstore.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return &world{Store: st, srv: local.Storage, public: local.PublicURL, cfg: cfg}
}

func send(t testing.TB, method, address string, body []byte, headers ...string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func TestAnUploadBySignedAddressIsSeenWithItsOwnContentType(t *testing.T) {
	t.Parallel()
	c := open(t, nil)
	address, expires, err := c.SignPut(t.Context(), "uploads/ä b/raw", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Until(expires); d < 59*time.Minute || d > time.Hour {
		t.Errorf("the URL expires in %v, want an hour", d)
	}
	if status, body := send(t, "PUT", address, []byte("film"), "Content-Type", "video/quicktime"); status != 200 {
		t.Fatalf("PUT = %d %s, want 200", status, body)
	}
	o, err := c.Stat(t.Context(), "uploads/ä b/raw")
	if err != nil {
		t.Fatal(err)
	}
	if o.Size != 4 || o.ContentType != "video/quicktime" || o.Generation == 0 || time.Since(o.Created) > time.Minute {
		t.Errorf("Stat = %+v, want the object that was sent", o)
	}
	if status, _ := send(t, "DELETE", address, nil); status != 403 {
		t.Errorf("DELETE on the URL signed for PUT = %d, want 403", status)
	}
}

func TestASignedReadServesRangesUnderTheGivenType(t *testing.T) {
	t.Parallel()
	c := open(t, nil)
	o, err := c.Upload(t.Context(), "v/720.mp4", strings.NewReader("0123456789"), objectstore.UploadOptions{ContentType: "video/mp4", CacheControl: "private, max-age=60"})
	if err != nil {
		t.Fatal(err)
	}
	address, _, err := c.SignGet(t.Context(), "v/720.mp4", time.Hour, objectstore.GetOptions{ContentType: "text/x-test", ContentDisposition: "attachment", Generation: o.Generation})
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	req.Header.Set("Range", "bytes=2-4")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	got := []string{resp.Status, string(b), resp.Header.Get("Content-Type"), resp.Header.Get("Content-Disposition"), resp.Header.Get("Content-Range"), resp.Header.Get("Cache-Control")}
	want := []string{"206 Partial Content", "234", "text/x-test", "attachment", "bytes 2-4/10", "private, max-age=60"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := c.Upload(t.Context(), "v/720.mp4", strings.NewReader("other"), objectstore.UploadOptions{}); err != nil {
		t.Fatal(err)
	}
	if status, _ := send(t, "GET", address, nil); status != 404 {
		t.Errorf("GET for an old generation = %d, want 404", status)
	}
}

// This package must return the same signed URLs as Google's client. The signature is deterministic.
func TestSignaturesAreThoseOfGooglesClient(t *testing.T) {
	t.Parallel()
	for _, object := range []string{"plain", "a/b c/ä+~!*'();:@&=$,?#[]%", "x/../y"} {
		for _, base := range []string{"https://storage.googleapis.com", "http://localhost:8083"} {
			u, _ := url.Parse(base)
			for {
				now := time.Now()
				st, err := objectstore.Open(t.Context(), objectstore.Config{Bucket: "media", PublicURL: base, Endpoint: "http://127.0.0.1:1", Key: cloudtest.ServiceAccountKey(), Clock: func() time.Time { return now }})
				if err != nil {
					t.Fatal(err)
				}
				ours, expires, err := st.SignGet(t.Context(), object, time.Hour, objectstore.GetOptions{ContentDisposition: "inline; filename=\"a b.mp4\""})
				if err != nil {
					t.Fatal(err)
				}
				email, key := objectstore.KeyForTest(st)
				theirs, err := gcs.SignedURL("media", object, &gcs.SignedURLOptions{GoogleAccessID: email, PrivateKey: key, Method: "GET", Expires: expires.Add(time.Second),
					Scheme: gcs.SigningSchemeV4, Insecure: u.Scheme == "http", Hostname: u.Host,
					QueryParameters: url.Values{"response-content-disposition": {"inline; filename=\"a b.mp4\""}}})
				if err != nil {
					t.Fatal(err)
				}
				a, _ := url.Parse(ours)
				b, _ := url.Parse(theirs)
				if a.Query().Get("X-Goog-Date") != b.Query().Get("X-Goog-Date") || a.Query().Get("X-Goog-Expires") != b.Query().Get("X-Goog-Expires") {
					continue // a second has passed between the two signatures
				}
				if d := cmp.Diff(theirs, ours); d != "" {
					t.Errorf("signed URL for %q (-want +got):\n%s", object, d)
				}
				st.Close()
				break
			}
		}
	}
}

func TestAMissingObjectIsErrNotFoundAndDeletingItASuccess(t *testing.T) {
	t.Parallel()
	c := open(t, nil)
	if _, err := c.Stat(t.Context(), "no"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("Stat = %v, want ErrNotFound", err)
	}
	if _, err := c.Download(t.Context(), "no", 0, io.Discard); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("Download = %v, want ErrNotFound", err)
	}
	if err := c.Delete(t.Context(), "no", 0); err != nil {
		t.Errorf("Delete = %v, want success", err)
	}
	o, err := c.Upload(t.Context(), "yes", strings.NewReader("1"), objectstore.UploadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), "yes", o.Generation-1); err != nil {
		t.Errorf("Delete for a missing generation = %v, want success", err)
	}
	if _, err := c.Stat(t.Context(), "yes"); err != nil {
		t.Errorf("Stat after deleting a different generation: got %v, want the live object", err)
	}
	if err := c.Delete(t.Context(), "yes", o.Generation); err != nil {
		t.Fatal(err)
	}
}

func TestStorageThatIsDownIsUnavailable(t *testing.T) {
	t.Parallel()
	c := open(t, func(cfg *objectstore.Config) {
		cfg.Timeout = 300 * time.Millisecond
		cfg.StallTimeout = 300 * time.Millisecond
	})
	c.srv.Faults().Inject(storage.Fault{Status: 503})
	for name, f := range map[string]func() error{
		"Stat":     func() error { _, err := c.Stat(t.Context(), "a"); return err },
		"Delete":   func() error { return c.Delete(t.Context(), "a", 0) },
		"Download": func() error { _, err := c.Download(t.Context(), "a", 0, io.Discard); return err },
		"Upload": func() error {
			_, err := c.Upload(t.Context(), "a", strings.NewReader("x"), objectstore.UploadOptions{})
			return err
		},
		"StartResumable": func() error { _, err := c.StartResumable(t.Context(), "a", "", 0); return err },
		"DeletePrefix": func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			return c.DeletePrefix(ctx, "a/")
		},
	} {
		if err := f(); apierr.CodeOf(err) != apierr.Unavailable {
			t.Errorf("%s = %v, want UNAVAILABLE", name, err)
		}
	}
}

// The client retries a refused connection until the call's deadline. The reason is still that the
// port is gone, and not that it answers late.
func TestARefusedConnectionIsUnreachable(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c := open(t, func(cfg *objectstore.Config) { cfg.Timeout, cfg.Endpoint = 300*time.Millisecond, endpoint })
	if _, err := c.Stat(t.Context(), "a"); objectstore.ReasonOf(err) != "unreachable" {
		t.Errorf("the reason of %v is %q, want unreachable", err, objectstore.ReasonOf(err))
	}
}

// After one call has found storage unreachable, the other calls are refused without waiting.
func TestStorageThatIsAwayIsAskedByOneCallASecond(t *testing.T) {
	t.Parallel()
	c := open(t, func(cfg *objectstore.Config) { cfg.Timeout = 50 * time.Millisecond })
	session, err := c.StartResumable(t.Context(), "a", "", 0)
	for err != nil { // on a busy machine a call can take longer than the 50 ms that this store allows
		session, err = c.StartResumable(t.Context(), "a", "", 0)
	}
	for name, f := range map[string]func() error{
		"Stat":           func() error { _, err := c.Stat(t.Context(), "a"); return err },
		"StartResumable": func() error { _, err := c.StartResumable(t.Context(), "a", "", 0); return err },
		"Received":       func() error { _, _, err := c.Received(t.Context(), session); return err },
	} {
		c.srv.Faults().Inject(storage.Fault{Status: 503})
		refused := func() bool {
			err := f()
			if apierr.CodeOf(err) != apierr.Unavailable {
				t.Fatalf("%s = %v, want UNAVAILABLE", name, err)
			}
			return strings.Contains(err.Error(), "storage does not answer")
		}
		for begun := time.Now(); !refused(); {
			if time.Since(begun) > 10*time.Second {
				t.Fatalf("%s: calls are still waiting after 10 s, want them refused immediately", name)
			}
		}
		atOnce := 0
		for range 20 {
			if refused() {
				atOnce++
			}
		}
		if atOnce < 10 {
			t.Errorf("%s: %d of 20 calls were refused immediately, want at least 10", name, atOnce)
		}
		c.srv.Faults().Reset()
		for c.Delete(t.Context(), "nothing", 0) != nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func TestADownloadSurvivesCutConnections(t *testing.T) {
	t.Parallel()
	c := open(t, nil)
	want := random(3 << 20)
	if _, err := c.Upload(t.Context(), "big", bytes.NewReader(want), objectstore.UploadOptions{}); err != nil {
		t.Fatal(err)
	}
	c.srv.Faults().Inject(storage.Fault{Call: "objects.media", CutResponse: 700_000, Times: 4})
	path := filepath.Join(t.TempDir(), "big")
	o, err := c.DownloadFile(t.Context(), "big", 0, path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) || o.Size != int64(len(want)) {
		t.Errorf("downloaded %d bytes with error %v, equal = %v, want the whole object", len(got), err, bytes.Equal(got, want))
	}
	if n := c.srv.Faults().Calls()["objects.media"]; n < 5 {
		t.Errorf("%d reads, want at least 5 because of the fault", n)
	}
}

func TestADownloadOfAGenerationThatIsGoneLeavesNoFile(t *testing.T) {
	t.Parallel()
	c := open(t, nil)
	o, err := c.Upload(t.Context(), "a", strings.NewReader("one"), objectstore.UploadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Upload(t.Context(), "a", strings.NewReader("two"), objectstore.UploadOptions{}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := c.DownloadFile(t.Context(), "a", o.Generation, filepath.Join(dir, "a")); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("DownloadFile = %v, want ErrNotFound", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("files after the failed download = %v, want none", left)
	}
}

// generous is storage that reports a size of ten bytes for every object, but sends 64 MiB for it,
// from its start and regardless of the requested range. Google does this for a gzip-encoded object
// that is small only when compressed.
func generous(t *testing.T, encoding string) (st *objectstore.Store, reads *atomic.Int64) {
	t.Helper()
	reads = new(atomic.Int64)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("alt") != "media" {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"kind": "storage#object", "name": "a", "bucket": "media", "generation": "7", "size": "10", "contentEncoding": encoding, "crc32c": "AAAAAA=="})
			return
		}
		reads.Add(1)
		w.Header().Set("X-Goog-Stored-Content-Encoding", "gzip")
		w.Header().Set("X-Goog-Stored-Content-Length", "10")
		w.Header().Set("X-Goog-Generation", "7")
		w.Header().Set("Warning", "214 UploadServer gunzipped")
		mib := make([]byte, 1<<20)
		for range 64 {
			if _, err := w.Write(mib); err != nil {
				return
			}
		}
	}))
	t.Cleanup(srv.Close)
	st, err := objectstore.Open(t.Context(), objectstore.Config{Bucket: "media", PublicURL: srv.URL, Endpoint: srv.URL, Key: cloudtest.ServiceAccountKey(), StallTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st, reads
}

func TestAnObjectWithAContentEncodingIsNotRead(t *testing.T) {
	t.Parallel()
	st, reads := generous(t, "gzip")
	path := filepath.Join(t.TempDir(), "a")
	if _, err := st.DownloadFile(t.Context(), "a", 7, path); !errors.Is(err, objectstore.ErrEncoded) {
		t.Errorf("DownloadFile = %v, want ErrEncoded", err)
	}
	if n := reads.Load(); n != 0 {
		t.Errorf("the object was read %d times, want 0", n)
	}
	if o, err := st.Stat(t.Context(), "a"); err != nil || o.ContentEncoding != "gzip" || !o.Encoded() {
		t.Errorf("Stat = %+v, %v, want an object with gzip encoding", o, err)
	}
}

// The storage in this test sends more bytes than requested, without a Content-Encoding.
func TestADownloadIsNeverLargerThanItsObject(t *testing.T) {
	t.Parallel()
	st, _ := generous(t, "")
	for name, download := range map[string]func(io.Writer) error{
		"Download":      func(w io.Writer) error { _, err := st.Download(t.Context(), "a", 7, w); return err },
		"DownloadRange": func(w io.Writer) error { return st.DownloadRange(t.Context(), "a", 0, 10, w) },
	} {
		w := &capped{most: 1 << 20}
		if err := download(w); w.n > 10 {
			t.Errorf("%s of 10 bytes wrote at least %d bytes, want at most 10; error %v", name, w.n, err)
		}
	}
}

// capped is a writer that fails at a limit so that a broken download cannot fill the disk.
type capped struct{ n, most int }

func (c *capped) Write(p []byte) (int, error) {
	c.n += len(p)
	if c.n > c.most {
		return 0, errors.New("full")
	}
	return len(p), nil
}

func TestAStalledDownloadIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	c := open(t, nil)
	want := random(1 << 20)
	if _, err := c.Upload(t.Context(), "slow", bytes.NewReader(want), objectstore.UploadOptions{}); err != nil {
		t.Fatal(err)
	}
	cfg := c.cfg
	cfg.StallTimeout = 500 * time.Millisecond
	impatient, err := objectstore.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer impatient.Close()
	c.srv.Faults().Inject(storage.Fault{Call: "objects.media", Delay: time.Hour, Times: 2})
	var got bytes.Buffer
	if _, err := impatient.Download(t.Context(), "slow", 0, &got); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("Download = %v with equal = %v, want the whole object", err, bytes.Equal(got.Bytes(), want))
	}
}

func TestAnUploadOfManyChunksIsWholeThroughFaults(t *testing.T) {
	t.Parallel()
	c := open(t, nil)
	want := random(20 << 20)
	c.srv.Faults().Inject(storage.Fault{Call: "objects.session", CutRequest: 1 << 20, Times: 1})
	c.srv.Faults().Inject(storage.Fault{Call: "objects.session", Status: 503, Times: 1})
	c.srv.Faults().Inject(storage.Fault{Call: "objects.session", LoseAnswer: true, Times: 1})
	if _, err := c.Upload(t.Context(), "up", bytes.NewReader(want), objectstore.UploadOptions{}); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if _, err := c.Download(t.Context(), "up", 0, &got); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("Download = %v with equal = %v, want the whole object", err, bytes.Equal(got.Bytes(), want))
	}
}

func TestACreateOnlyUploadMayBeRepeatedButReplacesNothing(t *testing.T) {
	t.Parallel()
	c := open(t, nil)
	absent := objectstore.UploadOptions{IfGeneration: new(int64)}
	c.srv.Faults().Inject(storage.Fault{Call: "objects.insert", LoseAnswer: true, Times: 1})
	first, err := c.Upload(t.Context(), "once", strings.NewReader("same"), absent)
	if err != nil {
		t.Fatalf("Upload = %v after a lost response to its first attempt, want success", err)
	}
	again, err := c.Upload(t.Context(), "once", strings.NewReader("same"), absent)
	if err != nil || again.Generation != first.Generation {
		t.Errorf("repeated upload = %+v, %v, want generation %d", again, err, first.Generation)
	}
	if _, err := c.Upload(t.Context(), "once", strings.NewReader("else"), absent); !errors.Is(err, objectstore.ErrStale) {
		t.Errorf("Upload with different bytes = %v, want ErrStale", err)
	}
	if _, err := c.Upload(t.Context(), "once", strings.NewReader("else"), objectstore.UploadOptions{IfGeneration: &first.Generation}); err != nil {
		t.Errorf("Upload with the current generation = %v, want success", err)
	}
}

type failing struct{ r io.Reader }

var errSource = errors.New("source failed")

func (f failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err == io.EOF {
		err = errSource
	}
	return n, err
}

func TestAnUploadWhoseSourceFailsLeavesNoObject(t *testing.T) {
	t.Parallel()
	c := open(t, nil)
	for _, size := range []int{100, 9 << 20} {
		if _, err := c.Upload(t.Context(), "half", failing{bytes.NewReader(random(size))}, objectstore.UploadOptions{}); !errors.Is(err, errSource) {
			t.Errorf("Upload = %v, want the source's error", err)
		}
		if _, err := c.Stat(t.Context(), "half"); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("Stat after %d bytes = %v, want ErrNotFound", size, err)
		}
	}
}

func TestListAndDeletePrefixSeeExactlyTheirObjects(t *testing.T) {
	t.Parallel()
	c := open(t, nil)
	for _, n := range []string{"a/1", "a/2", "a/3/x", "ab", "b/1"} {
		if _, err := c.Upload(t.Context(), n, strings.NewReader(n), objectstore.UploadOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list := func(prefix string) (names []string) {
		for o, err := range c.List(t.Context(), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, o.Name)
		}
		return names
	}
	if d := cmp.Diff([]string{"a/1", "a/2", "a/3/x"}, list("a/")); d != "" {
		t.Error(d)
	}
	if err := c.DeletePrefix(t.Context(), "a/"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"ab", "b/1"}, list("")); d != "" {
		t.Error(d)
	}
	if err := c.DeletePrefix(t.Context(), ""); err == nil {
		t.Error("DeletePrefix with an empty prefix succeeded, want an error")
	}
}

func TestAResumableSessionTakesChunks(t *testing.T) {
	t.Parallel()
	c := open(t, nil)
	session, err := c.StartResumable(t.Context(), "res", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	body := random(300 << 10)
	if status, _ := send(t, "PUT", session, body[:256<<10], "Content-Range", "bytes 0-262143/*"); status != 308 {
		t.Fatalf("PUT of the first chunk = %d, want 308", status)
	}
	if status, b := send(t, "PUT", session, body[256<<10:], "Content-Range", fmt.Sprintf("bytes 262144-%d/%d", len(body)-1, len(body))); status != 200 {
		t.Fatalf("PUT of the last chunk = %d %s, want 200", status, b)
	}
	if o, err := c.Stat(t.Context(), "res"); err != nil || o.Size != int64(len(body)) {
		t.Errorf("Stat = %+v, %v, want the whole object", o, err)
	}
}

func TestAResumableSessionSaysHowFarItIsAndCanBeFinishedWithoutItsSender(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var origins []string
	c := open(t, nil)
	front, err := url.Parse(c.public)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(front)
	edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		origins = append(origins, r.Method+" "+r.Header.Get("Origin"))
		mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(edge.Close)
	cfg := c.cfg
	cfg.PublicDial = strings.TrimPrefix(edge.URL, "http://")
	st, err := objectstore.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	session, err := st.StartResumable(t.Context(), "left", "https://app.example.com", 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(origins) != 1 || origins[0] != "POST https://app.example.com" {
		t.Errorf("origin of the session = %q, want POST https://app.example.com", origins)
	}
	if n, whole, err := st.Received(t.Context(), session); n != 0 || whole || err != nil {
		t.Fatalf("Received for a new session = %d, %v, %v, want 0, false", n, whole, err)
	}
	body := random(512 << 10)
	if status, _ := send(t, "PUT", session, body, "Content-Range", "bytes 0-524287/*"); status != 308 {
		t.Fatalf("PUT of a chunk = %d, want 308", status)
	}
	if n, whole, err := st.Received(t.Context(), session); n != 512<<10 || whole || err != nil {
		t.Fatalf("Received after a chunk = %d, %v, %v, want 512 KiB, false", n, whole, err)
	}
	if whole, err := st.FinishResumable(t.Context(), session, 256<<10); whole || err == nil && whole {
		t.Errorf("FinishResumable with a different size = %v, %v, want false", whole, err)
	}
	if whole, err := st.FinishResumable(t.Context(), session, 512<<10); !whole || err != nil {
		t.Fatalf("FinishResumable = %v, %v, want true", whole, err)
	}
	if o, err := c.Stat(t.Context(), "left"); err != nil || o.Size != 512<<10 {
		t.Errorf("Stat = %+v, %v, want a 512 KiB object", o, err)
	}
	if _, whole, err := st.Received(t.Context(), session); !whole || err != nil {
		t.Errorf("Received after FinishResumable = %v, %v, want the whole object", whole, err)
	}
	if _, _, err := st.Received(t.Context(), session+"0"); !errors.Is(err, objectstore.ErrNotFound) || strings.Contains(err.Error(), "upload_id") {
		t.Errorf("Received for an unknown session: got %v, want ErrNotFound without the session's URL", err)
	}
}

func TestAnEndedSessionTakesNothingAndMayBeEndedAgain(t *testing.T) {
	t.Parallel()
	c := open(t, nil)
	session, err := c.StartResumable(t.Context(), "ended", "", 600<<10)
	if err != nil {
		t.Fatal(err)
	}
	body := random(900 << 10)
	if status, _ := send(t, "PUT", session, body[:256<<10], "Content-Range", "bytes 0-262143/*"); status != 308 {
		t.Fatalf("PUT of a chunk = %d, want 308", status)
	}
	for range 2 {
		if err := c.EndResumable(t.Context(), session); err != nil {
			t.Errorf("EndResumable = %v, want no error", err)
		}
		if status, _ := send(t, "PUT", session, body[256<<10:512<<10], "Content-Range", "bytes 262144-524287/524288"); status != 404 {
			t.Errorf("PUT of a chunk after EndResumable = %d, want 404", status)
		}
	}
	// EndResumable on a finished session changes neither the session nor the object.
	if session, err = c.StartResumable(t.Context(), "whole", "", 600<<10); err != nil {
		t.Fatal(err)
	}
	if status, _ := send(t, "PUT", session, body[:9]); status != 200 {
		t.Fatalf("PUT = %d, want 200", status)
	}
	if err := c.EndResumable(t.Context(), session); err != nil {
		t.Errorf("EndResumable on a finished session = %v, want no error", err)
	}
	if _, whole, err := c.Received(t.Context(), session); !whole || err != nil {
		t.Errorf("Received for a finished session = %v, %v, want the whole object", whole, err)
	}
	if o, err := c.Stat(t.Context(), "whole"); err != nil || o.Size != 9 {
		t.Errorf("Stat = %+v, %v, want a 9-byte object", o, err)
	}
}

func TestASessionTakesNoMoreThanItWasStartedFor(t *testing.T) {
	t.Parallel()
	c := open(t, nil)
	session, err := c.StartResumable(t.Context(), "bounded", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := send(t, "PUT", session, random(1001)); status != 400 {
		t.Errorf("PUT with one byte too many = %d, want 400", status)
	}
	if _, err := c.Stat(t.Context(), "bounded"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("Stat = %v, want no object", err)
	}
}

func TestTheClocksOfBothSidesDecideExpiry(t *testing.T) {
	t.Parallel()
	c := open(t, func(cfg *objectstore.Config) { cfg.Clock = func() time.Time { return time.Now().Add(-2 * time.Hour) } })
	address, expires, err := c.SignPut(t.Context(), "late", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if time.Until(expires) > -59*time.Minute {
		t.Errorf("expiry = %v, want an hour ago", expires)
	}
	if status, _ := send(t, "PUT", address, []byte("x")); status != 400 {
		t.Errorf("PUT to an expired URL = %d, want 400", status)
	}
}

func TestNoErrorRevealsASignature(t *testing.T) {
	t.Parallel()
	st, err := objectstore.Open(t.Context(), objectstore.Config{Bucket: "media", PublicURL: "http://127.0.0.1:1", Endpoint: "http://127.0.0.1:1", Key: cloudtest.ServiceAccountKey(), Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if _, err := st.StartResumable(t.Context(), "x", "", 0); err == nil || strings.Contains(err.Error(), "Signature") || apierr.CodeOf(err) != apierr.Unavailable {
		t.Errorf("StartResumable = %v, want UNAVAILABLE without the signature", err)
	}
}

func TestIAMSignsWhereThereIsNoKey(t *testing.T) {
	t.Parallel()
	c, key := open(t, nil), open(t, nil)
	email, _ := objectstore.KeyForTest(c.Store)
	hang := make(chan struct{})
	var asked []string
	iam := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		var req struct{ Payload []byte }
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || len(asked) > 1 {
			<-hang
			return
		}
		signature, err := objectstore.SignBytesForTest(key.Store, req.Payload)
		if err != nil {
			t.Error(err)
		}
		json.NewEncoder(w).Encode(map[string]any{"keyId": "k", "signedBlob": signature})
	}))
	t.Cleanup(iam.Close)
	t.Cleanup(func() { close(hang) })
	objectstore.SignByIAM(c.Store, email, iam.URL, 300*time.Millisecond)
	address, _, err := c.SignPut(t.Context(), "by-iam", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := send(t, "PUT", address, []byte("x")); status != 200 {
		t.Errorf("PUT = %d %s, want 200", status, body)
	}
	if d := cmp.Diff([]string{"/v1/projects/-/serviceAccounts/" + email + ":signBlob"}, asked); d != "" {
		t.Error(d)
	}
	begin := time.Now()
	if _, _, err := c.SignPut(t.Context(), "by-iam", time.Hour); apierr.CodeOf(err) != apierr.Unavailable || time.Since(begin) > 10*time.Second {
		t.Errorf("SignPut with an unresponsive IAM = %v after %v, want UNAVAILABLE at the deadline", err, time.Since(begin))
	}
}

func TestNoErrorRevealsASession(t *testing.T) {
	t.Parallel()
	c := open(t, func(cfg *objectstore.Config) { cfg.StallTimeout = 500 * time.Millisecond })
	c.srv.Faults().Inject(storage.Fault{Call: "objects.session", LoseAnswer: true})
	_, err := c.Upload(t.Context(), "x", bytes.NewReader(random(9<<20)), objectstore.UploadOptions{})
	if err == nil || strings.Contains(err.Error(), "upload_id") || apierr.CodeOf(err) != apierr.Unavailable {
		t.Errorf("Upload = %v, want UNAVAILABLE without the session's URL", err)
	}
}

func BenchmarkSignGet(b *testing.B) {
	st, err := objectstore.Open(b.Context(), objectstore.Config{Bucket: "media", PublicURL: "http://localhost:8083", Endpoint: "http://127.0.0.1:1", Key: cloudtest.ServiceAccountKey()})
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	for b.Loop() {
		if _, _, err := st.SignGet(b.Context(), "videos/x/720.mp4", time.Hour, objectstore.GetOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// The token is sent only to the local API. Signed URLs are credentials themselves, and their host
// may belong to a different organisation.
func TestTheTokenIsSentToTheLocalAPIAlone(t *testing.T) {
	t.Parallel()
	var api, public atomic.Int64
	seen := func(n *atomic.Int64) *httptest.Server {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(fmt.Sprint(r.Header, r.URL), strings.Repeat("n", 32)) {
				n.Add(1)
			}
			w.WriteHeader(http.StatusNotFound)
		}))
		t.Cleanup(srv.Close)
		return srv
	}
	cfg := objectstore.Config{Bucket: "media", PublicURL: seen(&public).URL, Endpoint: seen(&api).URL, Key: cloudtest.ServiceAccountKey(), Token: strings.Repeat("n", 32), Timeout: 20 * time.Second}
	st, err := objectstore.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	_, _ = st.StartResumable(t.Context(), "a", "", 0)
	_, _, _ = st.Received(t.Context(), cfg.PublicURL+"/media/a?upload_id=1")
	_, _ = st.Stat(t.Context(), "a")
	if api.Load() == 0 || public.Load() != 0 {
		t.Errorf("the local API received the token %d times and the public URL %d times, want at least 1 and 0", api.Load(), public.Load())
	}
}
