package client_test

import (
	"bytes"
	"context"
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

// script answers calls one after the other and notes them.
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

// noted is what a script has seen so far.
type noted struct{ calls, keys, bodies []string }

// seen takes a copy: a call whose answer was lost may still be noted.
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

// hangUp loses the answer on the way.
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
		{"success at once", create, []func(http.ResponseWriter, *http.Request){say(201, created)}, 1, ""},
		{"lost answer", create, []func(http.ResponseWriter, *http.Request){hangUp, hangUp, say(201, created)}, 3, ""},
		{"unavailable", create, []func(http.ResponseWriter, *http.Request){refuse(503, "UNAVAILABLE", "Retry-After", "2"), say(201, created)}, 2, ""},
		{"still running", create, []func(http.ResponseWriter, *http.Request){refuse(409, "IDEMPOTENCY_IN_PROGRESS"), say(201, created)}, 2, ""},
		{"a proxy's page", create, []func(http.ResponseWriter, *http.Request){say(502, "<html>"), say(201, created)}, 2, ""},
		{"a conflict is final", create, []func(http.ResponseWriter, *http.Request){refuse(409, "SLUG_TAKEN")}, 1, "SLUG_TAKEN"},
		{"a bad request is final", create, []func(http.ResponseWriter, *http.Request){refuse(400, "VALIDATION_ERROR")}, 1, "VALIDATION_ERROR"},
		{"too long a wait is not taken", create, []func(http.ResponseWriter, *http.Request){refuse(429, "RATE_LIMITED", "Retry-After", "3600")}, 1, "RATE_LIMITED"},
		{"tries end", create, []func(http.ResponseWriter, *http.Request){refuse(500, "INTERNAL")}, 5, "INTERNAL"},
		{"delete whose answer was lost", del, []func(http.ResponseWriter, *http.Request){hangUp, refuse(404, "LINK_NOT_FOUND")}, 2, ""},
		{"delete of nothing", del, []func(http.ResponseWriter, *http.Request){refuse(404, "LINK_NOT_FOUND")}, 1, "LINK_NOT_FOUND"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, s := start(t, tt.answers...)
			err := tt.call(c)
			if got := client.HasCode(err, tt.code); (err == nil) != (tt.code == "") || tt.code != "" && !got {
				t.Errorf("error %v, want code %q", err, tt.code)
			}
			if len(s.seen().calls) != tt.tries {
				t.Errorf("%d tries, want %d", len(s.seen().calls), tt.tries)
			}
			for i, k := range s.seen().keys {
				if strings.HasPrefix(s.seen().calls[i], "POST") && (k == "" || k != s.seen().keys[0]) {
					t.Errorf("try %d has Idempotency-Key %q, first %q", i, k, s.seen().keys[0])
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
		t.Errorf("keys %q", s.seen().keys)
	}
	if _, err := c.CreateLink(client.WithIdempotencyKey(t.Context(), "mine"), client.LinkCreate{URL: "https://example.com"}); err != nil || s.seen().keys[2] != "mine" {
		t.Errorf("key %q, %v; want mine", s.seen().keys[2], err)
	}
}

func TestLinksWalksPagesAndStopsWhenTold(t *testing.T) {
	t.Parallel()
	c, s := start(t,
		say(200, `{"data":[{"_id":"c","id":"c"},{"_id":"b","id":"b"}],"hasMore":true,"nextCursor":77}`),
		say(200, `{"data":[{"_id":"a","id":"a"}],"hasMore":false,"nextCursor":null}`))
	var ids []string
	for l, err := range c.Links(t.Context()) {
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
	for range c.Links(t.Context()) {
		break
	}
	if len(s.seen().calls) != 3 {
		t.Errorf("%d calls after an early stop, want 3", len(s.seen().calls))
	}
}

func TestUpdatesSayKeepSetAndClear(t *testing.T) {
	t.Parallel()
	c, s := start(t, say(200, `{"success":true,"slug":"a"}`))
	end := time.UnixMilli(1790000000000)
	for _, in := range []client.LinkUpdate{
		{},
		{URL: client.Set("https://example.com"), Title: client.Clear[string](), ExpiresAt: client.Set(client.At(end))},
		{ExpiresAt: client.Clear[client.Moment](), OGTitle: client.Set("")},
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

func TestWaitUntilReady(t *testing.T) {
	t.Parallel()
	// The first answer is to the question for the feed, which this key may not read.
	c, s := start(t, say(403, `{"error":{"code":"INSUFFICIENT_SCOPE"}}`), say(200, `{"id":"v","status":"uploading"}`), say(200, `{"id":"v","status":"processing","progress":40}`), say(200, `{"id":"v","status":"ready","progress":100}`))
	var seen []string
	v, err := c.WaitUntilReady(t.Context(), "v", func(v *client.Video) { seen = append(seen, v.Status) })
	if err != nil || v.Status != "ready" || len(s.waits) != 2 {
		t.Errorf("%+v, %v, waits %v", v, err, s.waits)
	}
	if want, got := []string{"uploading", "processing", "ready"}, seen; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	c, _ = start(t, say(200, `{"id":"v","status":"failed","error":{"code":"NOT_A_VIDEO","message":"m"}}`))
	var why *client.VideoError
	if _, err := c.WaitUntilReady(t.Context(), "v", nil); !errors.As(err, &why) || why.Code != "NOT_A_VIDEO" {
		t.Errorf("error %v, want NOT_A_VIDEO", err)
	}
}

// storage is an upload session that loses every connection after some bytes.
type storage struct {
	mu    sync.Mutex
	got   []byte
	size  int
	cut   int // lose the connection after so many bytes of a part; 0 never
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
			t.Errorf("cut %d: %v, %d bytes of %d, progress %d", cut, err, len(s.got), len(file), last)
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
		t.Errorf("%v after %d calls", err, len(s.seen().calls))
	}
}

func TestPlainUploadRetriesAndKnowsADeadAddress(t *testing.T) {
	t.Parallel()
	file := []byte("a file")
	c, s := start(t, hangUp, say(503, ""), say(200, ""))
	srv := httptest.NewServer(s)
	defer srv.Close()
	if err := c.Upload(t.Context(), client.Upload{File: bytes.NewReader(file), Size: 6, URL: srv.URL + "/o", ContentType: "video/mp4"}); err != nil || s.seen().bodies[2] != "a file" {
		t.Errorf("%v, bodies %q", err, s.seen().bodies)
	}
	c, s = start(t, say(403, "<Code>ExpiredToken</Code>"))
	srv2 := httptest.NewServer(s)
	defer srv2.Close()
	if err := c.Upload(t.Context(), client.Upload{File: bytes.NewReader(file), Size: 6, URL: srv2.URL}); !errors.Is(err, client.ErrUploadGone) {
		t.Errorf("error %v, want ErrUploadGone", err)
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
	_, err := c.FollowEvents(t.Context(), client.EventQuery{}, "", func(client.Event) error { return enough })
	if !errors.Is(err, enough) || len(s.waits) != 1 || !strings.Contains(s.seen().calls[1], "after=c1") {
		t.Errorf("%v after pauses of %v and calls %q", err, s.waits, s.seen().calls)
	}
}

// Proxies resolve such a path: DELETE …/captions/.. would delete the video.
func TestAnIDThatIsADotSegmentIsNotSent(t *testing.T) {
	t.Parallel()
	c, s := start(t, say(204, ""))
	for _, id := range []string{".", "..", "x/..", `..\x`, "../x"} {
		for name, err := range map[string]error{
			"DeleteCaptions": c.DeleteCaptions(t.Context(), "vid_1", id),
			"PutCaptions":    c.PutCaptions(t.Context(), "vid_1", id, []byte("WEBVTT")),
			"DeleteVideo":    c.DeleteVideo(t.Context(), id),
			"DeleteWebhook":  c.DeleteWebhook(t.Context(), id),
		} {
			if err == nil || errors.Is(err, client.ErrNoAnswer) {
				t.Errorf("%s(%q) = %v, want a refusal", name, id, err)
			}
		}
	}
	if calls := s.seen().calls; len(calls) != 0 {
		t.Errorf("sent %q", calls)
	}
	if err := c.DeleteCaptions(t.Context(), "vid_1", "..."); err != nil {
		t.Errorf("three dots are no dot segment: %v", err)
	}
}

func TestNewRefusesWhatIsNoAddress(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "linkreel.example", "ftp://x", "http://", ":"} {
		if _, err := client.New(client.Config{BaseURL: bad}); err == nil {
			t.Errorf("New(%q) succeeded", bad)
		}
	}
}
