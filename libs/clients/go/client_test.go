package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

// script is a server that returns canned responses and records the calls.
type script struct {
	mu      sync.Mutex
	answers []func(w http.ResponseWriter, r *http.Request)
	calls   []string
	keys    []string
	bodies  []string
	waits   []time.Duration
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.calls = append(s.calls, r.Method+" "+r.URL.RequestURI())
	s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
	s.bodies = append(s.bodies, string(body))
	n := min(len(s.calls), len(s.answers)) - 1
	s.mu.Unlock()
	s.answers[n](w, r)
}

// noted holds the calls that a script has recorded.
type noted struct{ calls, keys, bodies []string }

// seen returns a copy because a call with a lost response may be recorded later.
func (s *script) seen() noted {
	s.mu.Lock()
	defer s.mu.Unlock()
	return noted{slices.Clone(s.calls), slices.Clone(s.keys), slices.Clone(s.bodies)}
}

func say(status int, body string, headers ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func refuse(status int, code string, headers ...string) func(http.ResponseWriter, *http.Request) {
	return say(status, fmt.Sprintf(`{"error":{"code":%q,"message":"m","requestId":"r"}}`, code), headers...)
}

// hangUp closes the connection before the response.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func start(t *testing.T, answers ...func(http.ResponseWriter, *http.Request)) (*client.Client, *script) {
	t.Helper()
	s := &script{answers: answers}
	srv := httptest.NewUnstartedServer(s)
	srv.Config.ErrorLog = nil
	srv.Start()
	t.Cleanup(srv.Close)
	c, err := client.New(client.Config{BaseURL: srv.URL + "/", Key: "k", Sleep: func(_ context.Context, d time.Duration) error {
		s.waits = append(s.waits, d)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

const created = `{"id":"lnk_1","shortUrl":"http://s/a","slug":"a","destinationUrl":"https://example.com","createdAt":"2026-11-20T00:00:00.000Z"}`

func TestRetries(t *testing.T) {
	t.Parallel()
	create := func(c *client.Client) error {
		_, err := c.CreateLink(t.Context(), client.LinkCreate{URL: "https://example.com"})
		return err
	}
	del := func(c *client.Client) error { return c.DeleteLink(t.Context(), "lnk_1") }
	tests := []struct {
		name    string
		call    func(*client.Client) error
		answers []func(http.ResponseWriter, *http.Request)
		tries   int
		code    string
	}{
		{"success on the first attempt", create, []func(http.ResponseWriter, *http.Request){say(201, created)}, 1, ""},
		{"lost response", create, []func(http.ResponseWriter, *http.Request){hangUp, hangUp, say(201, created)}, 3, ""},
		{"unavailable", create, []func(http.ResponseWriter, *http.Request){refuse(503, "UNAVAILABLE", "Retry-After", "2"), say(201, created)}, 2, ""},
		{"first attempt still in progress", create, []func(http.ResponseWriter, *http.Request){refuse(409, "IDEMPOTENCY_IN_PROGRESS"), say(201, created)}, 2, ""},
		{"error page from a proxy", create, []func(http.ResponseWriter, *http.Request){say(502, "<html>"), say(201, created)}, 2, ""},
		{"conflict is final", create, []func(http.ResponseWriter, *http.Request){refuse(409, "SLUG_TAKEN")}, 1, "SLUG_TAKEN"},
		{"bad request is final", create, []func(http.ResponseWriter, *http.Request){refuse(400, "VALIDATION_ERROR")}, 1, "VALIDATION_ERROR"},
		{"Retry-After above MaxWait", create, []func(http.ResponseWriter, *http.Request){refuse(429, "RATE_LIMITED", "Retry-After", "3600")}, 1, "RATE_LIMITED"},
		{"all attempts fail", create, []func(http.ResponseWriter, *http.Request){refuse(500, "INTERNAL")}, 5, "INTERNAL"},
		{"delete with a lost response", del, []func(http.ResponseWriter, *http.Request){hangUp, refuse(404, "LINK_NOT_FOUND")}, 2, ""},
		{"unconditional delete with a lost response", func(c *client.Client) error { return c.DeleteWebhook(t.Context(), "whk_1") }, []func(http.ResponseWriter, *http.Request){hangUp, refuse(404, "WEBHOOK_NOT_FOUND")}, 2, ""},
		{"deleting a missing record after a 429", del, []func(http.ResponseWriter, *http.Request){refuse(429, "RATE_LIMITED"), refuse(404, "LINK_NOT_FOUND")}, 2, "LINK_NOT_FOUND"},
		{"deleting a missing record", del, []func(http.ResponseWriter, *http.Request){refuse(404, "LINK_NOT_FOUND")}, 1, "LINK_NOT_FOUND"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, s := start(t, tt.answers...)
			err := tt.call(c)
			if got := client.HasCode(err, tt.code); (err == nil) != (tt.code == "") || tt.code != "" && !got {
				t.Errorf("err = %v, want code %q", err, tt.code)
			}
			if len(s.seen().calls) != tt.tries {
				t.Errorf("got %d attempts, want %d", len(s.seen().calls), tt.tries)
			}
			for i, k := range s.seen().keys {
				if strings.HasPrefix(s.seen().calls[i], "POST") && (k == "" || k != s.seen().keys[0]) {
					t.Errorf("attempt %d has Idempotency-Key %q, want %q as in the first attempt", i, k, s.seen().keys[0])
				}
			}
		})
	}
}

func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	c, s := start(t, refuse(429, "RATE_LIMITED", "Retry-After", "7"), say(201, created))
	if _, err := c.CreateLink(t.Context(), client.LinkCreate{URL: "https://example.com"}); err != nil {
		t.Fatal(err)
	}
	if len(s.waits) != 1 || s.waits[0] < 7*time.Second {
		t.Errorf("waited %v, want 7s or more", s.waits)
	}
}

func TestEachIntendedEffectHasItsOwnKey(t *testing.T) {
	t.Parallel()
	c, s := start(t, say(201, created))
	for range 2 {
		if _, err := c.CreateLink(t.Context(), client.LinkCreate{URL: "https://example.com"}); err != nil {
			t.Fatal(err)
		}
	}
	if s.seen().keys[0] == s.seen().keys[1] || s.seen().keys[0] == "" {
		t.Errorf("Idempotency-Keys in two calls = %q, want two different keys", s.seen().keys)
	}
	if _, err := c.CreateLink(t.Context(), client.LinkCreate{URL: "https://example.com"}, client.IdempotencyKey("mine")); err != nil || s.seen().keys[2] != "mine" {
		t.Errorf("Idempotency-Key = %q, error %v, want mine", s.seen().keys[2], err)
	}
}

func TestLinksWalksPagesAndStopsWhenTold(t *testing.T) {
	t.Parallel()
	c, s := start(t,
		say(200, `{"data":[{"_id":"c","id":"c"},{"_id":"b","id":"b"}],"hasMore":true,"nextCursor":77}`),
		say(200, `{"data":[{"_id":"a","id":"a"}],"hasMore":false,"nextCursor":null}`))
	var ids []string
	for l, err := range c.Links(t.Context(), client.ListLinksQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, l.ID)
	}
	if want, got := []string{"c", "b", "a"}, ids; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if want, got := []string{"GET /api/v1/links?limit=100", "GET /api/v1/links?cursor=77&limit=100"}, s.seen().calls; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for range c.Links(t.Context(), client.ListLinksQuery{}) {
		break
	}
	if len(s.seen().calls) != 3 {
		t.Errorf("got %d calls after an early stop, want 3", len(s.seen().calls))
	}
}

func TestUpdatesSayKeepSetAndClear(t *testing.T) {
	t.Parallel()
	c, s := start(t, say(200, `{"success":true,"slug":"a"}`))
	end := time.UnixMilli(1790000000000)
	for _, in := range []client.LinkUpdate{
		{},
		{URL: client.Set("https://example.com"), Title: client.Clear[string](), ExpiresAt: client.Set(client.At(end))},
		{ExpiresAt: client.Clear[client.Time](), OGTitle: client.Set("")},
		{ExpiresAt: client.Set(client.Text("Nov 20 2027"))},
	} {
		if _, err := c.UpdateLink(t.Context(), "lnk_1", in); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"{}", `{"url":"https://example.com","title":null,"expiresAt":1790000000000}`, `{"expiresAt":null,"ogTitle":""}`, `{"expiresAt":"Nov 20 2027"}`}
	if got := s.seen().bodies; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWaitVideo(t *testing.T) {
	t.Parallel()
	// The first response denies access to the feed, so WaitVideo polls the video.
	c, s := start(t, say(403, `{"error":{"code":"INSUFFICIENT_SCOPE"}}`), say(200, `{"id":"v","status":"uploading"}`), say(200, `{"id":"v","status":"processing","progress":40}`), say(200, `{"id":"v","status":"ready","progress":100}`))
	var seen []string
	v, err := c.WaitVideo(t.Context(), "v", func(v *client.Video) { seen = append(seen, v.Status) })
	if err != nil || v.Status != "ready" || len(s.waits) != 2 {
		t.Errorf("WaitVideo = %+v, %v with waits %v, want a ready video after two waits", v, err, s.waits)
	}
	if want, got := []string{"uploading", "processing", "ready"}, seen; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	c, _ = start(t, say(200, `{"id":"v","status":"failed","error":{"code":"NOT_A_VIDEO","message":"m"}}`))
	var why *client.VideoError
	if _, err := c.WaitVideo(t.Context(), "v", nil); !errors.As(err, &why) || why.Code != "NOT_A_VIDEO" {
		t.Errorf("WaitVideo for a failed video = %v, want NOT_A_VIDEO", err)
	}
}

// storage is an upload session that drops each connection after a given number of bytes.
type storage struct {
	mu    sync.Mutex
	got   []byte
	size  int
	cut   int // drop the connection after this many bytes of a part; 0 means never
	tries int
}

func (s *storage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	var from, to, size int
	cr := r.Header.Get("Content-Range")
	if n, _ := fmt.Sscanf(cr, "bytes %d-%d/%d", &from, &to, &size); n == 3 {
		if from != len(s.got) {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		limit := int64(to - from + 1)
		if s.cut > 0 {
			limit = min(limit, int64(s.cut))
		}
		part, _ := io.ReadAll(io.LimitReader(r.Body, limit))
		s.got = append(s.got, part...)
		if s.cut > 0 && len(part) == s.cut {
			panic(http.ErrAbortHandler)
		}
	}
	if len(s.got) == s.size {
		w.WriteHeader(http.StatusOK)
		return
	}
	if len(s.got) > 0 {
		w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", len(s.got)-1))
	}
	w.WriteHeader(http.StatusPermanentRedirect)
}

func TestSessionUploadGoesOnAfterEveryBreak(t *testing.T) {
	t.Parallel()
	file := bytes.Repeat([]byte("0123456789abcdef"), 40_000) // 640 kB
	for _, cut := range []int{0, 200_000, 50_000} {
		s := &storage{size: len(file), cut: cut}
		srv := httptest.NewServer(s)
		c, _ := start(t, say(200, "{}"))
		var last int64
		err := c.Upload(t.Context(), client.Upload{File: bytes.NewReader(file), Size: int64(len(file)), Session: srv.URL, Part: 256 << 10, Progress: func(n int64) { last = n }})
		srv.Close()
		if err != nil || !bytes.Equal(s.got, file) || last != int64(len(file)) {
			t.Errorf("cut after %d bytes: error %v, %d of %d bytes stored, progress %d; want no error and all bytes", cut, err, len(s.got), len(file), last)
		}
	}
}

func TestSessionUploadThatGetsNowhereEnds(t *testing.T) {
	t.Parallel()
	c, s := start(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Content-Range"), "*/") {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusPermanentRedirect)
	})
	srv := httptest.NewServer(s)
	defer srv.Close()
	if err := c.Upload(t.Context(), client.Upload{File: strings.NewReader("a file"), Size: 6, Session: srv.URL}); err == nil || len(s.seen().calls) > 20 {
		t.Errorf("Upload to a broken session = %v after %d calls, want an error after at most 20 calls", err, len(s.seen().calls))
	}
}

func TestPlainUploadRetriesAndKnowsADeadAddress(t *testing.T) {
	t.Parallel()
	file := []byte("a file")
	c, s := start(t, hangUp, say(503, ""), say(200, ""))
	srv := httptest.NewServer(s)
	defer srv.Close()
	if err := c.Upload(t.Context(), client.Upload{File: bytes.NewReader(file), Size: 6, URL: srv.URL + "/o", ContentType: "video/mp4"}); err != nil || s.seen().bodies[2] != "a file" {
		t.Errorf("Upload = %v with bodies %q, want no error and the file in the third body", err, s.seen().bodies)
	}
	c, s = start(t, say(403, "<Code>ExpiredToken</Code>"))
	srv2 := httptest.NewServer(s)
	defer srv2.Close()
	if err := c.Upload(t.Context(), client.Upload{File: bytes.NewReader(file), Size: 6, URL: srv2.URL}); !errors.Is(err, client.ErrUploadGone) {
		t.Errorf("Upload to an expired URL = %v, want ErrUploadGone", err)
	}
	c, s = start(t, say(408, ""), say(400, "bad"))
	srv3 := httptest.NewServer(s)
	defer srv3.Close()
	var failed *client.UploadError
	if err := c.Upload(t.Context(), client.Upload{File: bytes.NewReader(file), Size: 6, URL: srv3.URL}); !errors.As(err, &failed) || len(s.seen().calls) != 2 {
		t.Errorf("Upload = %T %v after %d calls, want an UploadError after two calls", err, err, len(s.seen().calls))
	}
}

func TestUploadErrorsDoNotCarryTheSignedAddress(t *testing.T) {
	t.Parallel()
	c, _ := start(t, hangUp)
	err := c.Upload(t.Context(), client.Upload{File: strings.NewReader("x"), Size: 1, URL: "http://127.0.0.1:1/o?X-Goog-Signature=secret"})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want an error without the signature", err)
	}
}

func TestAFollowerPausesAfterAnEmptyPage(t *testing.T) {
	t.Parallel()
	c, s := start(t, say(200, `{"data":[],"nextCursor":"c1"}`), say(200, `{"data":[{"id":"evt_1"}],"nextCursor":"c2"}`))
	enough := errors.New("enough")
	_, err := c.FollowEvents(t.Context(), client.ListEventsQuery{After: new("c0")}, func(client.Event) error { return enough })
	if !errors.Is(err, enough) || len(s.waits) != 1 || !strings.Contains(s.seen().calls[1], "after=c1") {
		t.Errorf("FollowEvents = %v with waits %v and calls %q, want it to retry once and resume after c1", err, s.waits, s.seen().calls)
	}
}

// Proxies resolve dot segments, so DELETE …/captions/.. would delete the video.
func TestAnIDThatIsADotSegmentIsNotSent(t *testing.T) {
	t.Parallel()
	c, s := start(t, say(204, ""))
	for _, id := range []string{"", ".", "..", "x/..", `..\x`, "../x"} {
		_, put := c.PutCaptions(t.Context(), "vid_1", id, []byte("WEBVTT"))
		for name, err := range map[string]error{
			"DeleteCaptions": c.DeleteCaptions(t.Context(), "vid_1", id),
			"PutCaptions":    put,
			"DeleteVideo":    c.DeleteVideo(t.Context(), id),
			"DeleteWebhook":  c.DeleteWebhook(t.Context(), id),
		} {
			var argument *client.ArgumentError
			if !errors.As(err, &argument) {
				t.Errorf("%s(%q) = %v, want an ArgumentError", name, id, err)
			}
		}
	}
	if calls := s.seen().calls; len(calls) != 0 {
		t.Errorf("sent %q, want no requests", calls)
	}
	if err := c.DeleteCaptions(t.Context(), "vid_1", "..."); err != nil {
		t.Errorf("DeleteCaptions(...) = %v, want no error, because three dots are not a dot segment", err)
	}
}

func TestNewRefusesWhatIsNoAddress(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "linkreel.example", "ftp://x", "http://", ":"} {
		if _, err := client.New(client.Config{BaseURL: bad, Key: "k"}); err == nil {
			t.Errorf("New(%q) succeeded, want an error", bad)
		}
	}
}

// Keys are often read from a file, so a final line break is accepted. Errors leave out the key
// because they are logged.
func TestNewTakesAKeyWithALineEndAndRefusesWhatIsNoKey(t *testing.T) {
	t.Parallel()
	c, s := start(t, say(200, `{}`))
	for _, good := range []string{"lr_live_a\n", "lr_live_a\r\n", "lr_live_a"} {
		var got string
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = r.Header.Get("Authorization")
			_, _ = io.WriteString(w, "{}")
		}))
		c, err := client.New(client.Config{BaseURL: srv.URL, Key: good})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.GetAccount(t.Context()); err != nil || got != "Bearer lr_live_a" {
			t.Errorf("key %q was sent as %q with error %v, want Bearer lr_live_a and no error", good, got, err)
		}
		srv.Close()
	}
	for _, bad := range []string{"", "\n", "lr_live_a b", "lr_live_a\nb", "lr_live_…", "lr_live_\x00"} {
		_, err := client.New(client.Config{BaseURL: "http://a.example", Key: bad})
		if err == nil || len(bad) > 1 && strings.Contains(err.Error(), strings.TrimSpace(bad)) {
			t.Errorf("New with the key %q = %v, want an error that does not contain the key", bad, err)
		}
	}
	if _, err := c.WithKey("other\n").GetAccount(t.Context()); err != nil || len(s.seen().calls) != 1 {
		t.Errorf("GetAccount with WithKey(other) = %v, want one call without error", err)
	}
}

func TestOptionsChangeOneCall(t *testing.T) {
	t.Parallel()
	var head http.Header
	c, s := start(t, func(w http.ResponseWriter, r *http.Request) {
		head = r.Header.Clone()
		say(200, `{"success":true,"slug":"a"}`, "ETag", `"r2"`, "X-Request-Id", "req1", "X-RateLimit-Limit", "600", "X-RateLimit-Remaining", "599", "X-RateLimit-Reset", "1790000060")(w, r)
	}, refuse(412, "PRECONDITION_FAILED", "X-Request-Id", "req2", "ETag", `"r3"`), refuse(503, "UNAVAILABLE"))
	var r client.Response
	if _, err := c.UpdateLink(t.Context(), "lnk_1", client.LinkUpdate{}, client.IfMatch(`"r1"`), client.WithHeader("X-Mine", "1"), client.WithResponse(&r)); err != nil {
		t.Fatal(err)
	}
	if head.Get("If-Match") != `"r1"` || head.Get("X-Mine") != "1" || head.Get("User-Agent") != "linkreel-go/"+client.ContractVersion {
		t.Errorf("request headers = %v, want If-Match, X-Mine and the User-Agent", head)
	}
	if r.Status != 200 || r.ETag != `"r2"` || r.RequestID != "req1" || r.Limit == nil || r.Limit.Remaining != 599 || r.Limit.Reset.Unix() != 1790000060 || r.Attempts != 1 {
		t.Errorf("Response = %+v with limit %+v, want the values of the headers", r, r.Limit)
	}
	_, err := c.UpdateLink(t.Context(), "lnk_1", client.LinkUpdate{}, client.WithResponse(&r))
	if !client.IsConflict(err) || client.IsNotFound(err) || r.Status != 412 || r.RequestID != "req2" {
		t.Errorf("got error %v with Response %+v, want a conflict with status 412", err, r)
	}
	var refused *client.APIError
	if !errors.As(err, &refused) || refused.ETag != `"r3"` || r.ETag != `"r3"` {
		t.Errorf("got error %+v with Response %+v, want the current ETag \"r3\" in both", refused, r)
	}
	if _, err := c.GetLink(t.Context(), "lnk_1", client.Attempts(1)); !client.IsServer(err) || len(s.seen().calls) != 3 {
		t.Errorf("got error %v after the calls %q, want a server error after one attempt at this call", err, s.seen().calls)
	}
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer slow.Close()
	c, err = client.New(client.Config{BaseURL: slow.URL, Key: "k", Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	var lost *client.ConnectionError
	if _, err := c.GetLink(t.Context(), "lnk_1", client.Timeout(time.Millisecond)); !errors.As(err, &lost) || !lost.Timeout() {
		t.Errorf("got %v, want a timeout", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.GetLink(ctx, "lnk_1"); !errors.Is(err, context.Canceled) || !client.IsConnection(err) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestARecordThatHasNotChangedIsNotAnAnswer(t *testing.T) {
	t.Parallel()
	c, _ := start(t, say(304, ""))
	if _, err := c.GetLink(t.Context(), "lnk_1", client.IfNoneMatch(`"r1"`)); !client.IsNotModified(err) {
		t.Errorf("GetLink = %v, want an error for which IsNotModified is true", err)
	}
}

func TestAnErrorSaysAllThatTheServiceSays(t *testing.T) {
	t.Parallel()
	c, _ := start(t, say(429, `{"error":{"code":"RATE_LIMITED","message":"Too many.","requestId":"r1","docUrl":"/docs/guides/errors#rate_limited"}}`, "Retry-After", "90"))
	_, err := c.GetLink(t.Context(), "lnk_1")
	var e *client.APIError
	if !errors.As(err, &e) || e.DocURL != "/docs/guides/errors#rate_limited" || e.RetryAfter != 90*time.Second || !client.IsRateLimited(err) {
		t.Errorf("GetLink = %+v, want RATE_LIMITED with its docUrl and RetryAfter", e)
	}
}

// The API returns the cursor for a list of videos in a header. The client copies it to NextCursor.
func TestAPageOfVideosHasItsCursor(t *testing.T) {
	t.Parallel()
	c, s := start(t,
		say(200, `{"data":[{"_id":"b"}]}`, "Link", `<https://elsewhere.example/api/v1/videos?cursor=x%2By&limit=1>; rel="next"`),
		say(200, `{"data":[{"_id":"a"}]}`))
	page, err := c.ListVideos(t.Context(), client.ListVideosQuery{Limit: 1})
	if err != nil || !page.HasMore || page.NextCursor == nil || *page.NextCursor != "x+y" {
		t.Fatalf("first page = %+v, %v, want the cursor x+y", page, err)
	}
	if page, err = c.ListVideos(t.Context(), client.ListVideosQuery{Cursor: page.NextCursor}); err != nil || page.HasMore || page.NextCursor != nil {
		t.Errorf("second page = %+v, %v, want the last page", page, err)
	}
	if want, got := []string{"GET /api/v1/videos?limit=1", "GET /api/v1/videos?cursor=x%2By"}, s.seen().calls; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	c, _ = start(t, say(200, `{"data":[{"_id":"b"}]}`, "Link", `</api/v1/videos?cursor=2>; rel="next"`), say(200, `{"data":[{"_id":"a"}]}`))
	if all, err := client.All(c.Videos(t.Context(), client.ListVideosQuery{})); err != nil || len(all) != 2 {
		t.Errorf("All = %+v, %v, want two videos", all, err)
	}
}

// A call is retried with the same key after any kind of incomplete response.
func TestAnswersThatBreakOffAreAskedForAgain(t *testing.T) {
	t.Parallel()
	half := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, created[:50])
		panic(http.ErrAbortHandler)
	}
	for name, bad := range map[string]func(http.ResponseWriter, *http.Request){
		"cut off": half, "shorter": say(201, created[:50]), "web page": say(200, "<html>sign in</html>", "Content-Type", "text/html"),
	} {
		c, s := start(t, bad, say(201, created))
		l, err := c.CreateLink(t.Context(), client.LinkCreate{URL: "https://example.com"})
		if keys := s.seen().keys; err != nil || l.ID != "lnk_1" || len(keys) != 2 || keys[0] != keys[1] || keys[0] == "" {
			t.Errorf("%s: link %+v, error %v, keys %q; want success after two attempts with the same key", name, l, err, keys)
		}
		c, _ = start(t, bad)
		if _, err := c.GetLink(t.Context(), "lnk_1"); !client.IsConnection(err) {
			t.Errorf("%s on every attempt: got %T %v, want a ConnectionError", name, err, err)
		}
		if name != "shorter" { // a response without a body cannot be cut off
			c, _ = start(t, bad, say(204, ""))
			if err := c.DeleteLink(t.Context(), "lnk_1"); err != nil {
				t.Errorf("delete, %s: got %v, want no error", name, err)
			}
		}
	}
}

// A POST without an Idempotency-Key is not sent again if it may have taken effect.
func TestAPostWithoutAKeyIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := &script{answers: []func(http.ResponseWriter, *http.Request){refuse(429, "RATE_LIMITED"), hangUp, say(201, `{}`)}}
	srv := httptest.NewServer(s)
	defer srv.Close()
	o, err := client.NewOperator(client.Config{BaseURL: srv.URL, Key: "k", Sleep: func(context.Context, time.Duration) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.AdminCreateSignInLink(t.Context(), "acc_1", client.SignInLinkCreate{Name: "Ada", Role: "owner"}); !client.IsConnection(err) || len(s.seen().calls) != 2 {
		t.Errorf("got error %v after %d calls, want a ConnectionError after two calls", err, len(s.seen().calls))
	}
}

func TestBulkCallsOfAnySizeKeepWhatWasDone(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var sizes []int
	var keys []string
	fail := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var in struct{ URLs []client.LinkCreate }
		mu.Lock()
		defer mu.Unlock()
		if err := json.Unmarshal(body, &in); err != nil || len(body) > 1<<20 {
			w.WriteHeader(413)
			return
		}
		if sizes, keys = append(sizes, len(in.URLs)), append(keys, r.Header.Get("Idempotency-Key")); len(sizes) == fail {
			refuse(403, "PLAN_REQUIRED")(w, r)
			return
		}
		out := client.BulkResults{Results: make([]client.BulkResult, len(in.URLs))}
		for i, item := range in.URLs {
			out.Results[i] = client.BulkResult{Status: 201, Data: &client.BulkLink{ID: "lnk_" + item.Slug}}
		}
		b, _ := json.Marshal(out)
		_, _ = w.Write(b)
	}))
	defer srv.Close()
	c, err := client.New(client.Config{BaseURL: srv.URL, Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	items := make([]client.LinkCreate, 250)
	for i := range items {
		items[i] = client.LinkCreate{URL: "https://example.com", Slug: fmt.Sprint(i)}
	}
	got, err := c.CreateLinks(t.Context(), items, client.IdempotencyKey("run"))
	if err != nil || len(got) != 250 || got[249].Data.ID != "lnk_249" || !slices.Equal(sizes, []int{100, 100, 50}) {
		t.Errorf("got %d results, error %v, requests with %v items; want 250 results from requests with 100, 100 and 50 items", len(got), err, sizes)
	}
	if !slices.Equal(keys, []string{"run-0", "run-1", "run-2"}) {
		t.Errorf("Idempotency-Keys = %q, want run-0, run-1 and run-2", keys)
	}
	sizes, fail = nil, 2
	got, err = c.CreateLinks(t.Context(), items)
	var part *client.BulkError
	if !errors.As(err, &part) || len(got) != 100 || part.Unsure != 100 || part.Unsent != 50 || part.Key+"-1" != keys[4] || !client.IsPermission(err) {
		t.Errorf("got %d results, error %v; want 100 results and a BulkError with 100 unsure and 50 unsent items", len(got), err)
	}
	sizes, fail = nil, 0
	for i := range items[:120] {
		items[i].OGDescription = strings.Repeat("x", 20_000)
	}
	if got, err = c.CreateLinks(t.Context(), items[:120]); err != nil || len(got) != 120 || sizes[0] >= 100 {
		t.Errorf("large items: got %d results, error %v, requests with %v items; want 120 results from smaller requests", len(got), err, sizes)
	}
}

func TestTimesAreOneType(t *testing.T) {
	t.Parallel()
	at := time.Date(2027, 1, 31, 12, 0, 0, 5_000_000, time.UTC)
	for text, want := range map[string]time.Time{"1801396800005": at, `"2027-01-31T12:00:00.005Z"`: at, `"2027-01-31T13:00:00.005+01:00"`: at, "null": time.UnixMilli(0).UTC()} {
		var got client.Time
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Time() != want || got.IsZero() != (text == "null") {
			t.Errorf("%s decodes to %v, %v, want %v", text, got.Time(), err, want)
		}
		if again, err := json.Marshal(got); err != nil || string(again) != text {
			t.Errorf("%s is encoded as %s, %v, want no change", text, again, err)
		}
	}
	if client.At(at) != client.At(at.In(time.FixedZone("", 3600))) || client.At(at).String() != "2027-01-31T12:00:00.005Z" {
		t.Errorf("At = %s, want 2027-01-31T12:00:00.005Z in any zone", client.At(at))
	}
}

func TestAFollowerWaitsForAServiceThatRestarts(t *testing.T) {
	t.Parallel()
	away := slices.Repeat([]func(http.ResponseWriter, *http.Request){hangUp, refuse(503, "UNAVAILABLE")}, 6)
	answers := slices.Concat([]func(http.ResponseWriter, *http.Request){say(200, `{"data":[{"id":"evt_1"}],"nextCursor":"c1"}`)}, away, []func(http.ResponseWriter, *http.Request){
		say(200, `{"data":[{"id":"evt_2"}],"nextCursor":"c2"}`), refuse(410, "CURSOR_EXPIRED"),
	})
	c, s := start(t, answers...)
	var seen []string
	after, err := c.FollowEvents(t.Context(), client.ListEventsQuery{}, func(e client.Event) error { seen = append(seen, e.ID); return nil })
	if !client.IsGone(err) || after == nil || *after != "c2" || !slices.Equal(seen, []string{"evt_1", "evt_2"}) {
		t.Errorf("FollowEvents = %v at cursor %v after events %q, want a 410 at c2 after evt_1 and evt_2", err, after, seen)
	}
	if calls := s.seen().calls; !strings.Contains(calls[len(calls)-2], "after=c1") {
		t.Errorf("got calls %q, want the second-to-last call to resume after c1", calls)
	}
	c, s = start(t, hangUp)
	if _, err := c.FollowEvents(t.Context(), client.ListEventsQuery{}, func(client.Event) error { return nil }); !client.IsConnection(err) || len(s.seen().calls) != 5 {
		t.Errorf("FollowEvents without a service = %v after %d calls, want a ConnectionError after five calls", err, len(s.seen().calls))
	}
}

// If a long poll without a cursor were retried, it would start at a later position and miss the
// events in between.
func TestAFollowerFixesItsPlaceBeforeItIsHeld(t *testing.T) {
	t.Parallel()
	c, s := start(t, say(200, `{"data":[],"nextCursor":"c1"}`), say(200, `{"data":[{"id":"evt_1"}],"nextCursor":"c2"}`))
	enough := errors.New("enough")
	_, err := c.FollowEvents(t.Context(), client.ListEventsQuery{}, func(client.Event) error { return enough })
	want := []string{"GET /api/v1/events?limit=100&wait=0", "GET /api/v1/events?after=c1&limit=100&wait=25"}
	if got := s.seen().calls; !errors.Is(err, enough) || len(s.waits) != 0 || !slices.Equal(got, want) {
		t.Errorf("FollowEvents = %v after waiting %v with calls %q, want %q", err, s.waits, got, want)
	}
}

// roundTripper is a function that implements [http.RoundTripper].
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTheTimeOfAHeldRequestIsOnTopOfTheTimeout(t *testing.T) {
	t.Parallel()
	var left []time.Duration
	c, err := client.New(client.Config{BaseURL: "http://a.example", Key: "k", Timeout: 3 * time.Second, HTTPClient: &http.Client{
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			end, _ := r.Context().Deadline()
			left = append(left, time.Until(end))
			body := io.NopCloser(strings.NewReader(`{"data":[{"id":"evt_1"}],"nextCursor":"c1"}`))
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body, Request: r}, nil
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	for _, opts := range [][]client.Option{nil, {client.Timeout(time.Hour)}, {client.Timeout(1<<63 - 1)}} {
		if _, err := c.FollowEvents(t.Context(), client.ListEventsQuery{After: new("c0")}, func(client.Event) error { return enough }, opts...); !errors.Is(err, enough) {
			t.Fatal(err)
		}
	}
	if left[0] <= 25*time.Second || left[0] > 28*time.Second || left[1] <= time.Hour+20*time.Second || left[2] < time.Hour {
		t.Errorf("time limits on long polls = %v, want 25 to 28 s, more than 1 h 20 s, and at least 1 h", left)
	}
}

// Following a 301 turns a PATCH or DELETE into a GET, and the caller would believe that the change
// succeeded.
func TestARedirectIsToldAndNotFollowed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		c, s := start(t, say(status, "", "Location", "https://other.example/api"), say(200, created))
		_, create := c.CreateLink(t.Context(), client.LinkCreate{URL: "https://example.com"})
		s.mu.Lock()
		s.calls = nil
		s.mu.Unlock()
		err := c.DeleteLink(t.Context(), "lnk_1")
		for _, err := range []error{create, err} {
			if !client.HasCode(err, fmt.Sprint("HTTP_", status)) || !strings.Contains(err.Error(), "https://other.example/api") {
				t.Errorf("redirect %d: got %v, want HTTP_%[1]d and the target", status, err)
			}
		}
		if calls := s.seen().calls; len(calls) != 1 {
			t.Errorf("redirect %d: sent %q, want one request", status, calls)
		}
	}
	led := false
	given := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { led = true; return nil }}
	srv := httptest.NewServer(http.HandlerFunc(say(302, "", "Location", "/elsewhere")))
	defer srv.Close()
	c, err := client.New(client.Config{BaseURL: srv.URL, Key: "k", HTTPClient: given})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteLink(t.Context(), "lnk_1"); !client.HasCode(err, "HTTP_302") || led {
		t.Errorf("with the caller's HTTPClient: got %v, want HTTP_302 without following the redirect", err)
	}
}

// Google Cloud Storage returns 499 for a cancelled session.
func TestACancelledSessionIsGone(t *testing.T) {
	t.Parallel()
	c, s := start(t, say(499, ""))
	srv := httptest.NewServer(s)
	defer srv.Close()
	if err := c.Upload(t.Context(), client.Upload{File: strings.NewReader("x"), Size: 1, Session: srv.URL}); !errors.Is(err, client.ErrUploadGone) {
		t.Errorf("got %v, want ErrUploadGone", err)
	}
}

func TestA412AfterALostAnswerMayBeOfTheCallItself(t *testing.T) {
	t.Parallel()
	update := func(answers ...func(http.ResponseWriter, *http.Request)) error {
		c, _ := start(t, answers...)
		_, err := c.UpdateLink(t.Context(), "lnk_1", client.LinkUpdate{}, client.IfMatch(`"r1"`))
		return err
	}
	changed := refuse(412, "PRECONDITION_FAILED")
	for name, first := range map[string]func(http.ResponseWriter, *http.Request){"lost": hangUp, "failed": refuse(500, "INTERNAL")} {
		if err := update(first, changed); !client.IsConnection(err) || client.IsConflict(err) || !strings.Contains(err.Error(), "may have taken effect, so read the record") {
			t.Errorf("first response %s: got %v, want a ConnectionError that tells the caller to read the record", name, err)
		}
	}
	if err := update(refuse(429, "RATE_LIMITED"), changed); client.IsConnection(err) || !client.IsConflict(err) {
		t.Errorf("412 after a 429, which changes nothing: got %v, want a conflict", err)
	}
	c, _ := start(t, hangUp, changed) // if the first attempt had deleted the record, the second would get a 404
	if err := c.DeleteLink(t.Context(), "lnk_1", client.IfMatch(`"r1"`)); client.IsConnection(err) || !client.IsConflict(err) {
		t.Errorf("412 for a delete: got %v, want a conflict", err)
	}
}

func TestAStreamEndsWhenNothingMoreComes(t *testing.T) {
	t.Parallel()
	hold := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	line := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "{}\n")
		_ = http.NewResponseController(w).Flush()
		hold(w, r)
	}
	isLate := func(err error) bool {
		var broke *client.ConnectionError
		return errors.As(err, &broke) && broke.Timeout()
	}
	c, _ := start(t, hold)
	if _, err := c.ExportAccount(t.Context(), client.Timeout(time.Millisecond), client.Attempts(1)); !isLate(err) {
		t.Errorf("response without headers: got %v, want a timeout", err)
	}
	c, s := start(t, refuse(503, "UNAVAILABLE"), line)
	r, err := c.ExportAccount(t.Context(), client.Timeout(2*time.Second))
	if err != nil || len(s.seen().calls) != 2 {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(r); string(text) != "{}\n" || !isLate(err) {
		t.Errorf("read %q and then %v, want {} and a timeout", text, err)
	}
	_ = r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	if r, err = c.ExportAccount(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	cancel()
	if _, err := io.ReadAll(r); !errors.Is(err, context.Canceled) || !client.IsConnection(err) || isLate(err) {
		t.Errorf("after cancellation: got %v, want a ConnectionError with context.Canceled", err)
	}
	c, _ = start(t, say(200, "{}\n"))
	if r, err = c.ExportAccount(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(r); err != nil || string(text) != "{}\n" || r.Close() != nil {
		t.Errorf("export = %q, %v, want {}", text, err)
	}
}

func TestACallThatIsStoppedBetweenAttemptsSaysSo(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){"lost": hangUp, "refused": refuse(503, "UNAVAILABLE")} {
		srv := httptest.NewServer(http.HandlerFunc(answer))
		ctx, cancel := context.WithCancel(t.Context())
		c, err := client.New(client.Config{BaseURL: srv.URL, Key: "k", Sleep: func(context.Context, time.Duration) error { cancel(); return ctx.Err() }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.GetLink(ctx, "lnk_1"); !errors.Is(err, ctx.Err()) || client.IsServer(err) != (name == "refused") {
			t.Errorf("first response %s: got %v, want context.Canceled together with the error from the attempt", name, err)
		}
		srv.Close()
	}
}

func TestARetryAfterOfAgesIsNotTaken(t *testing.T) {
	t.Parallel()
	for _, ages := range []string{"9223372037", "18446744074", strings.Repeat("9", 300)} {
		c, s := start(t, refuse(429, "RATE_LIMITED", "Retry-After", ages), say(201, created))
		_, err := c.GetLink(t.Context(), "lnk_1")
		var e *client.APIError
		if !errors.As(err, &e) || e.RetryAfter < 200*365*24*time.Hour || len(s.seen().calls) != 1 {
			t.Errorf("Retry-After %s: got %v after %d calls, want one call and the largest RetryAfter", ages, err, len(s.seen().calls))
		}
	}
}
