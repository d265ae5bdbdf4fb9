package storage_test

import (
	"bytes"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gcs "cloud.google.com/go/storage"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"

	"github.com/linkreel/linkreel/services/localcloud/storage"
)

const unit = 256 << 10

// behaviours lists documented behaviours of production. All of them use the same server, but each
// uses its own objects.
var behaviours = []struct {
	name string
	test func(t *testing.T, e *env)
}{
	// These behaviours concern signed URLs.
	{"a signed PUT stores the body and returns its generation and hashes", func(t *testing.T, e *env) {
		a := call(t, "PUT", e.sign(t, "PUT", "s/put", nil), []byte("hello"))
		a.want(t, 200, "")
		if a.header.Get("X-Goog-Generation") == "" || !slices.Contains(a.header["X-Goog-Hash"], "crc32c=mnG7TA==") {
			t.Errorf("the headers are %v, want the generation and hashes", a.header)
		}
		if got := e.read(t, "s/put"); got != "hello" {
			t.Errorf("the object is %q, want hello", got)
		}
	}},
	{"a request may add an unsigned Content-Type", func(t *testing.T, e *env) {
		call(t, "PUT", e.sign(t, "PUT", "s/type", nil), []byte("x"), "Content-Type", "video/quicktime").want(t, 200, "")
		if a, err := e.object("s/type").Attrs(t.Context()); err != nil || a.ContentType != "video/quicktime" {
			t.Errorf("the attributes are %+v (error %v), want the sent type", a, err)
		}
	}},
	{"a signed Content-Type must be sent unchanged", func(t *testing.T, e *env) {
		u := e.sign(t, "PUT", "s/type2", func(o *gcs.SignedURLOptions) { o.ContentType = "video/mp4" })
		call(t, "PUT", u, []byte("x"), "Content-Type", "text/html").want(t, 403, "SignatureDoesNotMatch")
		call(t, "PUT", u, []byte("x"), "Content-Type", "video/mp4").want(t, 200, "")
	}},
	{"an upload without a type is stored as application/octet-stream", func(t *testing.T, e *env) {
		call(t, "PUT", e.sign(t, "PUT", "s/notype", nil), []byte("x")).want(t, 200, "")
		if a, err := e.object("s/notype").Attrs(t.Context()); err != nil || a.ContentType != "application/octet-stream" {
			t.Errorf("the attributes are %+v (error %v), want application/octet-stream", a, err)
		}
	}},
	{"a request without a signature is rejected", func(t *testing.T, e *env) {
		e.put(t, "s/private", "secret")
		for _, m := range []string{"GET", "HEAD", "PUT", "POST", "DELETE"} {
			call(t, m, e.public.URL+"/b-1/s/private", nil).want(t, 403, "")
		}
	}},
	{"a forged signature is rejected", func(t *testing.T, e *env) {
		u, _ := url.Parse(e.sign(t, "PUT", "s/forged", nil))
		q := u.Query()
		good := q.Get("X-Goog-Signature")
		for _, forged := range []string{strings.Repeat("00", 256), good[:len(good)-2], strings.ToUpper(good) + "00", "", "zz"} {
			q.Set("X-Goog-Signature", forged)
			u.RawQuery = q.Encode()
			call(t, "PUT", u.String(), []byte("x")).want(t, 403, "SignatureDoesNotMatch")
		}
	}},
	{"a signature from an unknown account is rejected", func(t *testing.T, e *env) {
		u := e.sign(t, "GET", "s/private", func(o *gcs.SignedURLOptions) { o.GoogleAccessID = "other@local.iam.gserviceaccount.com" })
		call(t, "GET", u, nil).want(t, 403, "SignatureDoesNotMatch")
	}},
	{"a signed URL changed to another object is rejected", func(t *testing.T, e *env) {
		u := strings.Replace(e.sign(t, "PUT", "s/moved", nil), "s/moved", "s/other", 1)
		call(t, "PUT", u, []byte("x")).want(t, 403, "SignatureDoesNotMatch")
	}},
	{"a signed URL changed to another bucket is rejected", func(t *testing.T, e *env) {
		u := strings.Replace(e.sign(t, "PUT", "s/moved", nil), "/b-1/", "/b-2/", 1)
		call(t, "PUT", u, []byte("x")).want(t, 403, "SignatureDoesNotMatch")
	}},
	{"a signed URL with a different method is rejected", func(t *testing.T, e *env) {
		for _, m := range []string{"GET", "DELETE", "POST", "HEAD"} {
			call(t, m, e.sign(t, "PUT", "s/method", nil), nil).want(t, 403, "")
		}
		call(t, "PUT", e.sign(t, "GET", "s/method", nil), []byte("x")).want(t, 403, "SignatureDoesNotMatch")
	}},
	{"a signed URL with a different host is rejected", func(t *testing.T, e *env) {
		u, _ := url.Parse(e.sign(t, "GET", "s/put", nil))
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), nil)
		req.Host = "elsewhere.example"
		resp, err := plainClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("the status is %d, want 403", resp.StatusCode)
		}
	}},
	{"a signed URL with a changed date or lifetime is rejected", func(t *testing.T, e *env) {
		u, _ := url.Parse(e.sign(t, "PUT", "s/dated", nil))
		for k, v := range map[string]string{"X-Goog-Date": time.Now().UTC().Add(time.Minute).Format("20060102T150405Z"), "X-Goog-Expires": "604800"} {
			q := u.Query()
			q.Set(k, v)
			c := *u
			c.RawQuery = q.Encode()
			if a := call(t, "PUT", c.String(), []byte("x")); a.status != 403 && a.status != 400 {
				t.Errorf("with a changed %s, the status is %d, want 400 or 403", k, a.status)
			}
		}
	}},
	{"a lifetime of more than seven days is rejected", func(t *testing.T, e *env) {
		u, _ := url.Parse(e.sign(t, "PUT", "s/long", nil))
		q := u.Query()
		q.Set("X-Goog-Expires", "604801")
		u.RawQuery = q.Encode()
		call(t, "PUT", u.String(), []byte("x")).want(t, 400, "")
	}},
	{"an unsigned query parameter is rejected", func(t *testing.T, e *env) {
		u := e.sign(t, "GET", "s/private", nil) + "&response-content-type=text%2Fhtml"
		call(t, "GET", u, nil).want(t, 403, "SignatureDoesNotMatch")
	}},
	{"an unsigned x-goog header is rejected", func(t *testing.T, e *env) {
		call(t, "PUT", e.sign(t, "PUT", "s/hdr", nil), []byte("x"), "x-goog-meta-a", "1").want(t, 400, "MalformedSecurityHeader")
	}},
	{"a missing signed header is rejected", func(t *testing.T, e *env) {
		u := e.sign(t, "PUT", "s/hdr", func(o *gcs.SignedURLOptions) { o.Headers = []string{"x-goog-if-generation-match:0"} })
		call(t, "PUT", u, []byte("x")).want(t, 400, "MalformedSecurityHeader")
	}},
	{"signed metadata headers become metadata", func(t *testing.T, e *env) {
		u := e.sign(t, "PUT", "s/meta", func(o *gcs.SignedURLOptions) { o.Headers = []string{"x-goog-meta-owner:me"} })
		call(t, "PUT", u, []byte("x"), "x-goog-meta-owner", "me").want(t, 200, "")
		if a, err := e.object("s/meta").Attrs(t.Context()); err != nil || a.Metadata["owner"] != "me" {
			t.Errorf("the attributes are %+v (error %v), want the metadata", a, err)
		}
	}},
	{"a signed GET also serves HEAD", func(t *testing.T, e *env) {
		e.put(t, "s/head", "12345")
		a := call(t, "HEAD", e.sign(t, "GET", "s/head", nil), nil)
		if a.status != 200 || a.header.Get("Content-Length") != "5" || a.body != "" {
			t.Errorf("HEAD returned %+v, want 200 with a length of 5 and no body", a)
		}
	}},
	{"a signed DELETE removes the object", func(t *testing.T, e *env) {
		e.put(t, "s/del", "x")
		u := e.sign(t, "DELETE", "s/del", nil)
		call(t, "DELETE", u, nil).want(t, 204, "")
		call(t, "DELETE", u, nil).want(t, 404, "NoSuchKey")
	}},
	{"object names may contain spaces, accents and reserved characters", func(t *testing.T, e *env) {
		for _, name := range []string{"n/ä ö.mp4", "n/a+b&c=d?e#f%20g", "n//double", "n/日本", "n/a;b,c:d@e!$'()*[]"} {
			call(t, "PUT", e.sign(t, "PUT", name, nil), []byte(name)).want(t, 200, "")
			if got := e.read(t, name); got != name {
				t.Errorf("the object %q contains %q, want its name", name, got)
			}
		}
	}},
	{"an object name that looks like a path stays inside the bucket", func(t *testing.T, e *env) {
		w := e.object("../../../escape").NewWriter(t.Context())
		io.WriteString(w, "x")
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got := e.read(t, "../../../escape"); got != "x" {
			t.Errorf("the object is %q, want x", got)
		}
	}},
	{"a valid signature for a missing object returns 404", func(t *testing.T, e *env) {
		call(t, "GET", e.sign(t, "GET", "s/nothing", nil), nil).want(t, 404, "NoSuchKey")
	}},
	{"Content-MD5 and x-goog-hash are checked", func(t *testing.T, e *env) {
		u := e.sign(t, "PUT", "s/md5", nil)
		call(t, "PUT", u, []byte("hello"), "Content-MD5", "AAAAAAAAAAAAAAAAAAAAAA==").want(t, 400, "BadDigest")
		call(t, "PUT", u, []byte("hello"), "Content-MD5", "XUFAKrxLKna5cZ2REBfFkg==").want(t, 200, "")
		u = e.sign(t, "PUT", "s/crc", func(o *gcs.SignedURLOptions) { o.Headers = []string{"x-goog-hash:crc32c=AAAAAA=="} })
		call(t, "PUT", u, []byte("hello"), "x-goog-hash", "crc32c=AAAAAA==").want(t, 400, "BadDigest")
		if got := e.read(t, "s/crc"); !strings.Contains(got, "doesn't exist") {
			t.Errorf("the rejected upload was stored: %q", got)
		}
	}},
	{"x-goog-content-length-range bounds a PUT", func(t *testing.T, e *env) {
		u := e.sign(t, "PUT", "s/range", func(o *gcs.SignedURLOptions) { o.Headers = []string{"x-goog-content-length-range:2,4"} })
		h := []string{"x-goog-content-length-range", "2,4"}
		call(t, "PUT", u, []byte("12345"), h...).want(t, 400, "EntityTooLarge")
		call(t, "PUT", u, []byte("1"), h...).want(t, 400, "EntityTooSmall")
		call(t, "PUT", u, []byte("1234"), h...).want(t, 200, "")
		if a, err := tryCall(t.Context(), "PUT", u, struct{ io.Reader }{strings.NewReader("12345")}, h...); err != nil || a.status != 400 {
			t.Errorf("a chunked body longer than the range allows returned %+v, %v; want 400", a, err)
		}
	}},
	{"x-goog-if-generation-match:0 allows only the first write", func(t *testing.T, e *env) {
		u := e.sign(t, "PUT", "s/once", func(o *gcs.SignedURLOptions) { o.Headers = []string{"x-goog-if-generation-match:0"} })
		call(t, "PUT", u, []byte("first"), "x-goog-if-generation-match", "0").want(t, 200, "")
		call(t, "PUT", u, []byte("second"), "x-goog-if-generation-match", "0").want(t, 412, "PreconditionFailed")
		if got := e.read(t, "s/once"); got != "first" {
			t.Errorf("the object is %q, want first", got)
		}
	}},
	{"a truncated body is not stored", func(t *testing.T, e *env) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, e.sign(t, "PUT", "s/cut", nil), io.MultiReader(strings.NewReader("half"), brokenReader{}))
		req.ContentLength = 100
		if resp, err := plainClient.Do(req); err == nil {
			resp.Body.Close()
			t.Errorf("the status is %d, want 400", resp.StatusCode)
		}
		if got := e.read(t, "s/cut"); !strings.Contains(got, "doesn't exist") {
			t.Errorf("the object is %q, want none", got)
		}
	}},

	// These behaviours concern reads.
	{"Range selects a part, a suffix or an open-ended part", func(t *testing.T, e *env) {
		e.put(t, "r/range", "0123456789")
		u := e.sign(t, "GET", "r/range", nil)
		for rng, want := range map[string]string{"bytes=2-4": "234", "bytes=-3": "789", "bytes=7-": "789", "bytes=8-99": "89"} {
			if a := call(t, "GET", u, nil, "Range", rng); a.status != 206 || a.body != want {
				t.Errorf("the range %s returned %d %q, want 206 %q", rng, a.status, a.body, want)
			}
		}
	}},
	{"a range beyond the end returns 416", func(t *testing.T, e *env) {
		e.put(t, "r/short", "0123456789")
		a := call(t, "GET", e.sign(t, "GET", "r/short", nil), nil, "Range", "bytes=10-")
		if a.status != 416 || a.header.Get("Content-Range") != "bytes */10" {
			t.Errorf("the response is %+v, want 416 with bytes */10", a)
		}
	}},
	{"If-None-Match with the ETag returns 304", func(t *testing.T, e *env) {
		e.put(t, "r/etag", "x")
		u := e.sign(t, "GET", "r/etag", nil)
		tag := call(t, "GET", u, nil).header.Get("ETag")
		call(t, "GET", u, nil, "If-None-Match", tag).want(t, 304, "")
	}},
	{"signed response-content-type and -disposition override the stored headers", func(t *testing.T, e *env) {
		e.put(t, "r/over", "x")
		u := e.sign(t, "GET", "r/over", func(o *gcs.SignedURLOptions) {
			o.QueryParameters = url.Values{"response-content-type": {"video/mp4"}, "response-content-disposition": {`attachment; filename="a b"`}}
		})
		a := call(t, "GET", u, nil)
		if a.header.Get("Content-Type") != "video/mp4" || a.header.Get("Content-Disposition") != `attachment; filename="a b"` {
			t.Errorf("the headers are %v, want the overridden ones", a.header)
		}
	}},
	{"a signed generation serves only that generation", func(t *testing.T, e *env) {
		first := e.put(t, "r/gen", "one")
		u := e.sign(t, "GET", "r/gen", func(o *gcs.SignedURLOptions) {
			o.QueryParameters = url.Values{"generation": {strconv.FormatInt(first.Generation, 10)}}
		})
		call(t, "GET", u, nil).want(t, 200, "one")
		e.put(t, "r/gen", "two")
		call(t, "GET", u, nil).want(t, 404, "NoSuchKey")
	}},
	{"an upload's Content-Encoding is stored", func(t *testing.T, e *env) {
		call(t, "PUT", e.sign(t, "PUT", "r/packed", nil), []byte("x"), "Content-Encoding", "gzip").want(t, 200, "")
		call(t, "PUT", e.startSession(t, "r/packed2", "Content-Encoding", "gzip"), []byte("x")).want(t, 200, "")
		for _, name := range []string{"r/packed", "r/packed2"} {
			if a, err := e.object(name).Attrs(t.Context()); err != nil || a.ContentEncoding != "gzip" {
				t.Errorf("the attributes of %s are %+v (error %v), want gzip", name, a, err)
			}
		}
	}},
	{"stored Cache-Control and Content-Language are returned", func(t *testing.T, e *env) {
		call(t, "PUT", e.sign(t, "PUT", "r/head", nil), []byte("x"), "Cache-Control", "private, max-age=5", "Content-Language", "de", "Content-Disposition", "inline").want(t, 200, "")
		a := call(t, "GET", e.sign(t, "GET", "r/head", nil), nil)
		if d := cmp.Diff([]string{"private, max-age=5", "de", "inline"}, []string{a.header.Get("Cache-Control"), a.header.Get("Content-Language"), a.header.Get("Content-Disposition")}); d != "" {
			t.Error(d)
		}
	}},
	{"a reader of an overwritten object reads all of the old bytes", func(t *testing.T, e *env) {
		old := strings.Repeat("old", 2<<20)
		e.put(t, "r/over2", old)
		r, err := e.object("r/over2").NewReader(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		e.put(t, "r/over2", "new")
		if b, err := io.ReadAll(r); err != nil || string(b) != old {
			t.Errorf("the reader got %d bytes (error %v), want the old content", len(b), err)
		}
	}},
	{"the client's range reader reads a part", func(t *testing.T, e *env) {
		e.put(t, "r/rr", "0123456789")
		r, err := e.object("r/rr").NewRangeReader(t.Context(), 3, 4)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if b, err := io.ReadAll(r); err != nil || string(b) != "3456" {
			t.Errorf("the reader got %q (error %v), want 3456", b, err)
		}
	}},

	// These behaviours concern resumable sessions.
	{"a signed POST starts a session that accepts the whole object", func(t *testing.T, e *env) {
		s := e.startSession(t, "u/whole", "Content-Type", "video/mp4")
		call(t, "PUT", s, []byte("hello")).want(t, 200, "")
		if a, err := e.object("u/whole").Attrs(t.Context()); err != nil || a.Size != 5 || a.ContentType != "video/mp4" {
			t.Errorf("the attributes are %+v (error %v), want a size of 5 and video/mp4", a, err)
		}
	}},
	{"a chunk returns 308 with the stored range", func(t *testing.T, e *env) {
		body := random(2*unit + 100)
		s := e.startSession(t, "u/chunks")
		a := call(t, "PUT", s, body[:unit], "Content-Range", span(0, unit-1, "*"))
		if a.status != 308 || a.header.Get("Range") != fmt.Sprintf("bytes=0-%d", unit-1) {
			t.Fatalf("the first chunk returned %+v, want 308 with its range", a)
		}
		call(t, "PUT", s, body[unit:2*unit], "Content-Range", span(unit, 2*unit-1, strconv.Itoa(len(body)))).want(t, 308, "")
		call(t, "PUT", s, body[2*unit:], "Content-Range", span(2*unit, len(body)-1, strconv.Itoa(len(body)))).want(t, 200, "")
		if e.read(t, "u/chunks") != string(body) {
			t.Error("the object's bytes differ from the uploaded ones")
		}
	}},
	{"a new session has no range yet", func(t *testing.T, e *env) {
		a := call(t, "PUT", e.startSession(t, "u/new"), nil, "Content-Range", "bytes */*")
		if a.status != 308 || a.header.Get("Range") != "" {
			t.Errorf("the response is %+v, want 308 without a range", a)
		}
	}},
	{"bytes */* returns the stored range", func(t *testing.T, e *env) {
		s := e.startSession(t, "u/status")
		call(t, "PUT", s, random(unit), "Content-Range", span(0, unit-1, "*")).want(t, 308, "")
		a := call(t, "PUT", s, nil, "Content-Range", "bytes */*")
		if a.status != 308 || a.header.Get("Range") != fmt.Sprintf("bytes=0-%d", unit-1) {
			t.Errorf("the response is %+v, want 308 with one unit", a)
		}
	}},
	{"bytes */N completes the object when all N bytes are stored", func(t *testing.T, e *env) {
		s := e.startSession(t, "u/fin")
		call(t, "PUT", s, random(unit), "Content-Range", span(0, unit-1, "*")).want(t, 308, "")
		call(t, "PUT", s, nil, "Content-Range", fmt.Sprintf("bytes */%d", 2*unit)).want(t, 308, "")
		call(t, "PUT", s, nil, "Content-Range", fmt.Sprintf("bytes */%d", unit)).want(t, 200, "")
	}},
	{"bytes */0 creates an empty object", func(t *testing.T, e *env) {
		call(t, "PUT", e.startSession(t, "u/empty"), nil, "Content-Range", "bytes */0").want(t, 200, "")
		if a, err := e.object("u/empty").Attrs(t.Context()); err != nil || a.Size != 0 {
			t.Errorf("the attributes are %+v (error %v), want a size of 0", a, err)
		}
	}},
	{"only whole units of 256 KiB of a non-final chunk are stored", func(t *testing.T, e *env) {
		s := e.startSession(t, "u/units")
		a := call(t, "PUT", s, random(unit+1000), "Content-Range", span(0, unit+999, "*"))
		if a.status != 308 || a.header.Get("Range") != fmt.Sprintf("bytes=0-%d", unit-1) {
			t.Errorf("the response is %+v, want 308 with one unit", a)
		}
	}},
	{"repeated bytes are skipped", func(t *testing.T, e *env) {
		body := random(unit + 500)
		s := e.startSession(t, "u/again")
		call(t, "PUT", s, body[:unit], "Content-Range", span(0, unit-1, "*")).want(t, 308, "")
		call(t, "PUT", s, body, "Content-Range", span(0, len(body)-1, strconv.Itoa(len(body)))).want(t, 200, "")
		if e.read(t, "u/again") != string(body) {
			t.Error("the object's bytes differ from the uploaded ones")
		}
	}},
	{"a repeated chunk has no effect", func(t *testing.T, e *env) {
		body := random(2 * unit)
		s := e.startSession(t, "u/old")
		call(t, "PUT", s, body, "Content-Range", span(0, 2*unit-1, "*")).want(t, 308, "")
		a := call(t, "PUT", s, body[:unit], "Content-Range", span(0, unit-1, "*"))
		if a.status != 308 || a.header.Get("Range") != fmt.Sprintf("bytes=0-%d", 2*unit-1) {
			t.Errorf("the response is %+v, want 308 with two units", a)
		}
		call(t, "PUT", s, body[:unit], "Content-Range", span(0, unit-1, strconv.Itoa(unit))).want(t, 400, "InvalidArgument")
	}},
	{"a gap returns the range from which to resume", func(t *testing.T, e *env) {
		s := e.startSession(t, "u/gap")
		a := call(t, "PUT", s, random(100), "Content-Range", span(unit, unit+99, "*"))
		if a.status != 308 || a.header.Get("Range") != "" {
			t.Errorf("the response is %+v, want 308 without a range", a)
		}
	}},
	{"an open-ended Content-Range ends with the body", func(t *testing.T, e *env) {
		call(t, "PUT", e.startSession(t, "u/open"), []byte("hello"), "Content-Range", "bytes 0-*/5").want(t, 200, "")
		call(t, "PUT", e.startSession(t, "u/open2"), []byte("hello"), "Content-Range", "bytes 0-*/*").want(t, 200, "")
		if got := e.read(t, "u/open2"); got != "hello" {
			t.Errorf("the object is %q, want hello", got)
		}
	}},
	{"a malformed Content-Range is rejected", func(t *testing.T, e *env) {
		s := e.startSession(t, "u/bad")
		for _, v := range []string{"bytes", "bytes 5-4/10", "bytes 0-9/5", "bytes a-b/c", "items 0-1/2", "bytes 0-1", "bytes -1-5/9", "bytes 0-1/99999999999999999999"} {
			if a := call(t, "PUT", s, []byte("xx"), "Content-Range", v); a.status != 400 {
				t.Errorf("the Content-Range %q returned %d, want 400", v, a.status)
			}
		}
	}},
	{"a finished session still returns the object", func(t *testing.T, e *env) {
		s := e.startSession(t, "u/done")
		g := call(t, "PUT", s, []byte("hello")).header.Get("X-Goog-Generation")
		a := call(t, "PUT", s, nil, "Content-Range", "bytes */5")
		if a.status != 200 || a.header.Get("X-Goog-Generation") != g {
			t.Errorf("the response is %+v, want 200 with generation %s", a, g)
		}
	}},
	{"DELETE cancels a session", func(t *testing.T, e *env) {
		s := e.startSession(t, "u/cancel")
		call(t, "PUT", s, random(unit), "Content-Range", span(0, unit-1, "*")).want(t, 308, "")
		call(t, "DELETE", s, nil).want(t, 499, "")
		call(t, "PUT", s, nil, "Content-Range", "bytes */*").want(t, 404, "")
	}},
	{"a session's precondition is checked on completion", func(t *testing.T, e *env) {
		s := e.startSession(t, "u/cond", "x-goog-if-generation-match", "0")
		e.put(t, "u/cond", "other")
		call(t, "PUT", s, []byte("late")).want(t, 412, "PreconditionFailed")
		if got := e.read(t, "u/cond"); got != "other" {
			t.Errorf("the object is %q, want other", got)
		}
	}},
	{"a session's length range is checked", func(t *testing.T, e *env) {
		s := e.startSession(t, "u/len", "x-goog-content-length-range", "0,4")
		call(t, "PUT", s, []byte("12345")).want(t, 400, "EntityTooLarge")
	}},
	{"a session URI changed to another object or ID is rejected", func(t *testing.T, e *env) {
		s := e.startSession(t, "u/mine")
		call(t, "PUT", strings.Replace(s, "u/mine", "u/yours", 1), []byte("x")).want(t, 404, "")
		call(t, "PUT", e.public.URL+"/b-1/u/mine?upload_id=0123456789abcdef", []byte("x")).want(t, 404, "")
	}},
	{"an object is visible only after its last byte", func(t *testing.T, e *env) {
		s := e.startSession(t, "u/late")
		call(t, "PUT", s, random(unit), "Content-Range", span(0, unit-1, "*")).want(t, 308, "")
		if got := e.read(t, "u/late"); !strings.Contains(got, "doesn't exist") {
			t.Errorf("the object is %q, want none", got)
		}
	}},

	// These behaviours concern the client's writer and the JSON API.
	{"the client's writer uploads in one request or in chunks", func(t *testing.T, e *env) {
		body := random(3*unit + 77)
		for _, chunk := range []int{0, unit, 1 << 20} {
			name := fmt.Sprintf("w/%d", chunk)
			w := e.object(name).NewWriter(t.Context())
			w.ChunkSize, w.ContentType, w.CacheControl, w.Metadata = chunk, "video/mp4", "no-store", map[string]string{"K": "v"}
			if _, err := w.Write(body); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			a, err := e.object(name).Attrs(t.Context())
			if err != nil || a.ContentType != "video/mp4" || a.CacheControl != "no-store" || a.Metadata["K"] != "v" || a.Size != int64(len(body)) || e.read(t, name) != string(body) {
				t.Errorf("with a chunk size of %d, the attributes are %+v (error %v), want those of the upload", chunk, a, err)
			}
		}
	}},
	{"a wrong CRC32C from the client's writer is rejected", func(t *testing.T, e *env) {
		w := e.object("w/crc").NewWriter(t.Context())
		w.CRC32C, w.SendCRC32C = 1, true
		io.WriteString(w, "hello")
		if err := w.Close(); status(err) != 400 {
			t.Errorf("Close returned %v, want 400", err)
		}
	}},
	{"DoesNotExist allows only the first write", func(t *testing.T, e *env) {
		write := func() error {
			w := e.object("c/once").If(gcs.Conditions{DoesNotExist: true}).NewWriter(t.Context())
			io.WriteString(w, "x")
			return w.Close()
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
		if err := write(); status(err) != 412 {
			t.Errorf("the second write returned %v, want 412", err)
		}
	}},
	{"GenerationMatch protects writes, reads, deletes and updates", func(t *testing.T, e *env) {
		a := e.put(t, "c/gen", "one")
		stale := e.object("c/gen").If(gcs.Conditions{GenerationMatch: a.Generation - 1})
		w := stale.NewWriter(t.Context())
		io.WriteString(w, "two")
		if err := w.Close(); status(err) != 412 {
			t.Errorf("the write returned %v, want 412", err)
		}
		if _, err := stale.NewReader(t.Context()); status(err) != 412 {
			t.Errorf("the read returned %v, want 412", err)
		}
		if _, err := stale.Attrs(t.Context()); status(err) != 412 {
			t.Errorf("reading the attributes returned %v, want 412", err)
		}
		if _, err := stale.Update(t.Context(), gcs.ObjectAttrsToUpdate{ContentType: "a/b"}); status(err) != 412 {
			t.Errorf("the update returned %v, want 412", err)
		}
		if err := stale.Delete(t.Context()); status(err) != 412 {
			t.Errorf("the delete returned %v, want 412", err)
		}
		if err := e.object("c/gen").If(gcs.Conditions{GenerationMatch: a.Generation}).Delete(t.Context()); err != nil {
			t.Errorf("deleting the current generation returned %v, want no error", err)
		}
	}},
	{"GenerationNotMatch returns a changed object, and otherwise 304", func(t *testing.T, e *env) {
		a := e.put(t, "c/not", "one")
		if _, err := e.object("c/not").If(gcs.Conditions{GenerationNotMatch: a.Generation}).Attrs(t.Context()); status(err) != 304 {
			t.Errorf("reading the unchanged object returned %v, want 304", err)
		}
		e.put(t, "c/not", "two")
		if _, err := e.object("c/not").If(gcs.Conditions{GenerationNotMatch: a.Generation}).Attrs(t.Context()); err != nil {
			t.Errorf("reading the changed object returned %v, want no error", err)
		}
	}},
	{"MetagenerationMatch protects metadata updates", func(t *testing.T, e *env) {
		a := e.put(t, "c/meta", "x")
		h := e.object("c/meta").If(gcs.Conditions{MetagenerationMatch: a.Metageneration})
		if _, err := h.Update(t.Context(), gcs.ObjectAttrsToUpdate{ContentType: "a/b"}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Update(t.Context(), gcs.ObjectAttrsToUpdate{ContentType: "c/d"}); status(err) != 412 {
			t.Errorf("the second update returned %v, want 412", err)
		}
	}},
	{"a metadata update increments only the metageneration", func(t *testing.T, e *env) {
		a := e.put(t, "m/a", "x")
		b, err := e.object("m/a").Update(t.Context(), gcs.ObjectAttrsToUpdate{ContentType: "text/plain", CacheControl: "no-cache", Metadata: map[string]string{"a": "1", "b": "2"}})
		if err != nil {
			t.Fatal(err)
		}
		if b.Generation != a.Generation || b.Metageneration != a.Metageneration+1 || b.ContentType != "text/plain" || b.Metadata["b"] != "2" {
			t.Errorf("the updated object is %+v, want the new values and the next metageneration", b)
		}
		b, err = e.object("m/a").Update(t.Context(), gcs.ObjectAttrsToUpdate{CacheControl: "", Metadata: map[string]string{"a": "3"}})
		if err != nil || b.CacheControl != "" || b.Metadata["a"] != "3" {
			t.Errorf("the object with cleared fields is %+v (error %v), want no Cache-Control and only the metadata a=3", b, err)
		}
	}},
	{"every write has a greater generation", func(t *testing.T, e *env) {
		last := int64(0)
		for range 5 {
			a := e.put(t, "m/grow", "x")
			if a.Generation <= last {
				t.Errorf("the generation %d follows %d, want a greater one", a.Generation, last)
			}
			last = a.Generation
		}
	}},
	{"attributes contain size, hashes and times", func(t *testing.T, e *env) {
		e.put(t, "m/attrs", "hello")
		a, err := e.object("m/attrs").Attrs(t.Context())
		if err != nil || a.Size != 5 || a.CRC32C != 0x9a71bb4c || fmt.Sprintf("%x", a.MD5) != "5d41402abc4b2a76b9719d911017c592" || time.Since(a.Created) > time.Minute || a.StorageClass != "STANDARD" || a.Etag == "" {
			t.Errorf("the attributes are %+v (error %v), want those of the content hello", a, err)
		}
	}},
	{"deleting a missing object returns ErrObjectNotExist", func(t *testing.T, e *env) {
		if err := e.object("m/none").Delete(t.Context()); !errors.Is(err, gcs.ErrObjectNotExist) {
			t.Errorf("Delete returned %v, want ErrObjectNotExist", err)
		}
	}},
	{"deleting a different generation returns ErrObjectNotExist and keeps the live object", func(t *testing.T, e *env) {
		a := e.put(t, "m/keep", "x")
		if err := e.object("m/keep").Generation(a.Generation - 1).Delete(t.Context()); !errors.Is(err, gcs.ErrObjectNotExist) {
			t.Errorf("Delete returned %v, want ErrObjectNotExist", err)
		}
		if got := e.read(t, "m/keep"); got != "x" {
			t.Errorf("the object is %q, want x", got)
		}
	}},
	{"a missing bucket returns ErrBucketNotExist", func(t *testing.T, e *env) {
		if _, err := e.client.Bucket("no-such-bucket").Attrs(t.Context()); !errors.Is(err, gcs.ErrBucketNotExist) {
			t.Errorf("Attrs returned %v, want ErrBucketNotExist", err)
		}
		if _, err := e.client.Bucket("no-such-bucket").Objects(t.Context(), nil).Next(); !errors.Is(err, gcs.ErrBucketNotExist) {
			t.Errorf("Next returned %v, want ErrBucketNotExist", err)
		}
	}},
	{"invalid object names are rejected", func(t *testing.T, e *env) {
		for _, name := range []string{"a\nb", "a\rb", strings.Repeat("x", 1025), ".", ".."} {
			w := e.object(name).NewWriter(t.Context())
			io.WriteString(w, "x")
			if err := w.Close(); status(err) != 400 && err == nil {
				t.Errorf("the name %q was accepted, want an error", name)
			}
		}
	}},
	{"a bucket can contain both a and a/b", func(t *testing.T, e *env) {
		e.put(t, "t/a", "1")
		e.put(t, "t/a/b", "2")
		if e.read(t, "t/a") != "1" || e.read(t, "t/a/b") != "2" {
			t.Error("the content of a or of a/b is wrong")
		}
	}},

	// These behaviours concern copies and compositions.
	{"a copy has its source's bytes and metadata and a new generation", func(t *testing.T, e *env) {
		a := e.put(t, "k/src", "bytes")
		if _, err := e.object("k/src").Update(t.Context(), gcs.ObjectAttrsToUpdate{ContentType: "a/b", Metadata: map[string]string{"k": "v"}}); err != nil {
			t.Fatal(err)
		}
		b, err := e.object("k/dst").CopierFrom(e.object("k/src")).Run(t.Context())
		if err != nil || b.Generation == a.Generation || b.ContentType != "a/b" || b.Metadata["k"] != "v" || e.read(t, "k/dst") != "bytes" {
			t.Errorf("the copy is %+v (error %v), want a new generation with the same content and metadata", b, err)
		}
		if err := e.object("k/src").Delete(t.Context()); err != nil || e.read(t, "k/dst") != "bytes" {
			t.Error("the copy is not readable after its source was deleted")
		}
	}},
	{"metadata in a copy request replaces the source's metadata", func(t *testing.T, e *env) {
		e.put(t, "k/m", "x")
		c := e.object("k/m2").CopierFrom(e.object("k/m"))
		c.ContentType, c.Metadata = "video/mp4", map[string]string{"only": "this"}
		if b, err := c.Run(t.Context()); err != nil || b.ContentType != "video/mp4" || b.Metadata["only"] != "this" {
			t.Errorf("the copy is %+v (error %v), want the given metadata", b, err)
		}
	}},
	{"preconditions apply to the source and the destination of a copy", func(t *testing.T, e *env) {
		a := e.put(t, "k/p", "x")
		if _, err := e.object("k/p2").CopierFrom(e.object("k/p").If(gcs.Conditions{GenerationMatch: a.Generation + 1})).Run(t.Context()); status(err) != 412 {
			t.Errorf("a stale source returned %v, want 412", err)
		}
		if _, err := e.object("k/p").If(gcs.Conditions{DoesNotExist: true}).CopierFrom(e.object("k/p")).Run(t.Context()); status(err) != 412 {
			t.Errorf("an existing destination returned %v, want 412", err)
		}
	}},
	{"compose concatenates in order, with a CRC32C and a component count but no MD5", func(t *testing.T, e *env) {
		e.put(t, "o/1", "hel")
		e.put(t, "o/2", "lo")
		c := e.object("o/all").ComposerFrom(e.object("o/1"), e.object("o/2"))
		c.ContentType = "text/plain"
		a, err := c.Run(t.Context())
		if err != nil || a.Size != 5 || a.CRC32C != 0x9a71bb4c || len(a.MD5) != 0 || a.ComponentCount != 2 || e.read(t, "o/all") != "hello" {
			t.Errorf("the composed object is %+v (error %v), want hello, two components and no MD5", a, err)
		}
	}},
	{"compose can append to one of its sources", func(t *testing.T, e *env) {
		e.put(t, "o/log", "a")
		e.put(t, "o/more", "b")
		if _, err := e.object("o/log").ComposerFrom(e.object("o/log"), e.object("o/more")).Run(t.Context()); err != nil || e.read(t, "o/log") != "ab" {
			t.Errorf("compose returned %v and the object is %q, want ab", err, e.read(t, "o/log"))
		}
	}},
	{"compose rejects a missing source, a stale source and more than 32 sources", func(t *testing.T, e *env) {
		a := e.put(t, "o/x", "x")
		if _, err := e.object("o/y").ComposerFrom(e.object("o/x"), e.object("o/none")).Run(t.Context()); status(err) != 404 {
			t.Errorf("a missing source returned %v, want 404", err)
		}
		if _, err := e.object("o/y").ComposerFrom(e.object("o/x").If(gcs.Conditions{GenerationMatch: a.Generation + 1})).Run(t.Context()); status(err) != 412 {
			t.Errorf("a stale source returned %v, want 412", err)
		}
		body := fmt.Sprintf(`{"sourceObjects":[%s{"name":"o/x"}]}`, strings.Repeat(`{"name":"o/x"},`, 32))
		call(t, "POST", e.api.URL+"/storage/v1/b/b-1/o/o%2Fy/compose", []byte(body)).want(t, 400, "")
	}},

	// These behaviours concern listing.
	{"listing returns pages of names in byte order", func(t *testing.T, e *env) {
		names := []string{"l/A", "l/a", "l/a!", "l/a/", "l/a/b", "l/b", "l/ä", "l/日"}
		for _, n := range slices.Backward(names) {
			e.put(t, n, "x")
		}
		for _, size := range []int{1, 2, 3, 100} {
			if got := list(t, e, &gcs.Query{Prefix: "l/"}, size); !slices.Equal(got, names) {
				t.Errorf("pages of %d list %q, want all names in order", size, got)
			}
		}
	}},
	{"a delimiter groups names into prefixes, even across pages", func(t *testing.T, e *env) {
		for _, n := range []string{"f/a", "f/b/1", "f/b/2", "f/b/3", "f/c", "f/d/1", "f/b"} {
			e.put(t, n, "x")
		}
		want := []string{"f/a", "f/b", "f/b/", "f/c", "f/d/"}
		for _, size := range []int{1, 2, 100} {
			got := list(t, e, &gcs.Query{Prefix: "f/", Delimiter: "/"}, size)
			slices.Sort(got) // within a page, the client returns objects before prefixes
			if !slices.Equal(got, want) {
				t.Errorf("pages of %d list %q, want %q", size, got, want)
			}
		}
	}},
	{"includeTrailingDelimiter lists the folder object and its prefix", func(t *testing.T, e *env) {
		e.put(t, "g/d/", "")
		e.put(t, "g/d/1", "x")
		got := list(t, e, &gcs.Query{Prefix: "g/", Delimiter: "/", IncludeTrailingDelimiter: true}, 100)
		if d := cmp.Diff([]string{"g/d/", "g/d/"}, got); d != "" {
			t.Error(d)
		}
	}},
	{"startOffset is inclusive, endOffset is exclusive", func(t *testing.T, e *env) {
		for _, n := range []string{"h/1", "h/2", "h/3", "h/4"} {
			e.put(t, n, "x")
		}
		got := list(t, e, &gcs.Query{Prefix: "h/", StartOffset: "h/2", EndOffset: "h/4"}, 100)
		if d := cmp.Diff([]string{"h/2", "h/3"}, got); d != "" {
			t.Error(d)
		}
	}},
	{"unsupported listing parameters are rejected, not ignored", func(t *testing.T, e *env) {
		call(t, "GET", e.api.URL+"/storage/v1/b/b-1/o?matchGlob=*", nil).want(t, 501, "")
		call(t, "GET", e.api.URL+"/storage/v1/b/b-1/o?versions=true", nil).want(t, 501, "")
	}},

	// These behaviours concern buckets and CORS.
	{"buckets are created once, listed, and deleted when empty", func(t *testing.T, e *env) {
		b := e.client.Bucket("fresh-bucket")
		if err := b.Create(t.Context(), "p", nil); err != nil {
			t.Fatal(err)
		}
		if err := b.Create(t.Context(), "p", nil); status(err) != 409 {
			t.Errorf("creating the bucket again returned %v, want 409", err)
		}
		w := b.Object("x").NewWriter(t.Context())
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := b.Delete(t.Context()); status(err) != 409 {
			t.Errorf("deleting a bucket with objects returned %v, want 409", err)
		}
		if err := b.Object("x").Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.Delete(t.Context()); err != nil {
			t.Errorf("deleting the empty bucket returned %v, want no error", err)
		}
		if err := e.client.Bucket("Not_Valid!").Create(t.Context(), "p", nil); status(err) != 400 {
			t.Errorf("an invalid name returned %v, want 400", err)
		}
	}},
	{"a bucket without rules sends no CORS headers", func(t *testing.T, e *env) {
		a := call(t, "OPTIONS", e.public.URL+"/b-1/x", nil, "Origin", "https://app.example", "Access-Control-Request-Method", "PUT")
		if a.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("the headers are %v, want no CORS headers", a.header)
		}
	}},
	{"a bucket's rule allows preflights and exposes headers", func(t *testing.T, e *env) {
		b := e.client.Bucket("cors-bucket")
		if err := b.Create(t.Context(), "p", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Update(t.Context(), gcs.BucketAttrsToUpdate{CORS: []gcs.CORS{{MaxAge: time.Hour, Methods: []string{"PUT"}, Origins: []string{"https://app.example"}, ResponseHeaders: []string{"Content-Type", "x-goog-resumable"}}}}); err != nil {
			t.Fatal(err)
		}
		ask := func(origin, method, headers string) http.Header {
			return call(t, "OPTIONS", e.public.URL+"/cors-bucket/x", nil, "Origin", origin, "Access-Control-Request-Method", method, "Access-Control-Request-Headers", headers).header
		}
		h := ask("https://app.example", "PUT", "content-type")
		if d := cmp.Diff([]string{"https://app.example", "PUT", "3600"}, []string{h.Get("Access-Control-Allow-Origin"), h.Get("Access-Control-Allow-Methods"), h.Get("Access-Control-Max-Age")}); d != "" {
			t.Error(d)
		}
		for _, refused := range [][3]string{{"https://evil.example", "PUT", ""}, {"https://app.example", "DELETE", ""}, {"https://app.example", "PUT", "x-other"}} {
			if h := ask(refused[0], refused[1], refused[2]); h.Get("Access-Control-Allow-Origin") != "" || h.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("the preflight %v is allowed, want it rejected", refused)
			}
		}
		h = call(t, "PUT", e.public.URL+"/cors-bucket/x", nil, "Origin", "https://app.example").header
		if h.Get("Access-Control-Allow-Origin") != "https://app.example" || !strings.Contains(h.Get("Access-Control-Expose-Headers"), "x-goog-resumable") {
			t.Errorf("the error response has the headers %v, want CORS headers so that a page can read the response", h)
		}
	}},

	// These are other behaviours.
	{"errors from the JSON API have Google's format", func(t *testing.T, e *env) {
		var b struct {
			Error struct {
				Code   int
				Errors []struct{ Reason string }
			}
		}
		a := call(t, "GET", e.api.URL+"/storage/v1/b/b-1/o/none", nil)
		if err := json.Unmarshal([]byte(a.body), &b); err != nil || b.Error.Code != 404 || len(b.Error.Errors) != 1 || b.Error.Errors[0].Reason != "notFound" {
			t.Errorf("the body is %s (error %v), want one error with the reason notFound", a.body, err)
		}
	}},
	{"the public side does not serve the JSON API", func(t *testing.T, e *env) {
		for _, p := range []string{"/storage/v1/b", "/storage/v1/b/b-1/o", "/upload/storage/v1/b/b-1/o?uploadType=media&name=x", "/token", "/oauth2/v3/certs"} {
			if a := call(t, "GET", e.public.URL+p, nil); a.status != 403 {
				t.Errorf("%s returned %d, want 403", p, a.status)
			}
		}
	}},
	{"the public side rejects sessions from the JSON API", func(t *testing.T, e *env) {
		a := call(t, "POST", e.api.URL+"/upload/storage/v1/b/b-1/o?uploadType=resumable&name=j", nil)
		u, err := url.Parse(a.header.Get("Location"))
		if err != nil || a.status != 200 {
			t.Fatalf("starting a session returned %+v, %v; want 200", a, err)
		}
		call(t, "PUT", e.public.URL+"/b-1/j?upload_id="+u.Query().Get("upload_id"), []byte("x")).want(t, 404, "")
		call(t, "PUT", u.String(), []byte("x")).want(t, 200, "storage#object")
	}},
	{"unsupported requests return 501", func(t *testing.T, e *env) {
		call(t, "GET", e.api.URL+"/storage/v1/b/b-1/iam", nil).want(t, 501, "")
		call(t, "POST", e.sign(t, "POST", "x", func(o *gcs.SignedURLOptions) { o.QueryParameters = url.Values{"uploads": {""}} }), nil).want(t, 501, "")
	}},
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("cut") }

func status(err error) int {
	if e := (*googleapi.Error)(nil); errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// list collects names and prefixes through the client, with pages of the given size.
func list(t *testing.T, e *env, q *gcs.Query, size int) (names []string) {
	t.Helper()
	it := e.client.Bucket("b-1").Objects(t.Context(), q)
	it.PageInfo().MaxSize = size
	for {
		a, err := it.Next()
		if errors.Is(err, iterator.Done) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, a.Name+a.Prefix)
	}
}

func TestBehaviourOfProduction(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{Buckets: []string{"b-1", "b-2"}})
	for _, b := range behaviours {
		t.Run(b.name, func(t *testing.T) { b.test(t, e) })
	}
	t.Logf("%d behaviours", len(behaviours))
}

func TestAnAddressEndsToTheSecond(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	u := e.sign(t, "PUT", "x", nil)
	for _, c := range []struct {
		ahead time.Duration
		want  int
	}{{time.Hour - 5*time.Second, 200}, {time.Hour + 2*time.Second, 400}, {-10 * time.Minute, 200}, {-16 * time.Minute, 403}} {
		e.ahead.Store(int64(c.ahead))
		if a := call(t, "PUT", u, []byte("x")); a.status != c.want {
			t.Errorf("with the clock %v ahead, the response is %d %s, want %d", c.ahead, a.status, a.body, c.want)
		}
	}
}

func TestFurtherKeysMaySign(t *testing.T) {
	t.Parallel()
	other := start(t, storage.Options{Key: otherKey(t)})
	key := parsePublic(t, other.pem)
	e := start(t, storage.Options{Keys: map[string]*rsa.PublicKey{"second@x": key}})
	sign := func(account string) string {
		return e.sign(t, "PUT", "x", func(o *gcs.SignedURLOptions) { o.GoogleAccessID, o.PrivateKey = account, []byte(other.pem) })
	}
	call(t, "PUT", sign("second@x"), []byte("x")).want(t, 200, "")
	call(t, "PUT", sign(e.email), []byte("x")).want(t, 403, "SignatureDoesNotMatch")
}

func TestGoogleClientsReadThroughTheXMLAPIOfThePrivateSide(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	e.put(t, "a b", "x")
	if a := call(t, "GET", e.api.URL+"/b-1/a%20b", nil); a.status != 200 || a.body != "x" {
		t.Errorf("the response is %+v, want 200 with x", a)
	}
	if a := call(t, "PUT", e.api.URL+"/b-1/c", []byte("x")); a.status != 405 {
		t.Errorf("a write returned %d, want 405", a.status)
	}
	if a := call(t, "GET", e.api.URL+"/healthz", nil); a.status != 200 || !bytes.Contains([]byte(a.body), []byte("ok")) {
		t.Errorf("the health check returned %+v, want 200 ok", a)
	}
}
