package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/client"
)

// TestWebhooksListen shows that a receiver on this machine gets what the feed
// says, signed with the secret that was printed.
func TestWebhooksListen(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	asked := 0
	feed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		page := map[string]any{"data": []any{}, "hasMore": false, "nextCursor": "place"}
		if asked == 1 {
			page["data"] = []any{map[string]any{"id": "evt_1", "type": "video.ready", "object": "vid_1", "createdAt": 1790000000000, "actor": map[string]string{"type": "system", "id": "system", "name": "Linkreel"}, "data": map[string]string{"id": "vid_1"}}}
			if r.URL.Query().Get("wait") == "" || r.URL.Query().Get("type") != "video.ready" || r.URL.Query().Has("after") {
				t.Errorf("asked with %s", r.URL.RawQuery)
			}
		} else if got := r.URL.Query().Get("after"); got != "place" {
			t.Errorf("went on after %q", got)
		}
		_ = json.NewEncoder(w).Encode(page)
	}))
	t.Cleanup(feed.Close)
	type received struct {
		header http.Header
		body   []byte
	}
	got := make(chan received, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- received{r.Header.Clone(), body}
	}))
	t.Cleanup(receiver.Close)
	var out, errs bytes.Buffer
	ended := make(chan int, 1)
	env := Env{Out: &out, Err: &errs, Getenv: func(string) string { return "" }, Now: time.Now}
	go func() {
		ended <- Run(ctx, []string{"webhooks", "listen", "--forward", receiver.URL, "--events", "video.ready", "--base-url", feed.URL, "--key", "k"}, env)
	}()
	m := <-got
	stop()
	if code := <-ended; code != ExitInterrupted {
		t.Errorf("exit code %d", code)
	}
	_, rest, _ := strings.Cut(errs.String(), "whsec_")
	secret, _, _ := strings.Cut(rest, "\n")
	if err := client.VerifyWebhook("whsec_"+secret, m.header, m.body); err != nil {
		t.Errorf("%v: %s", err, m.body)
	}
	if m.header.Get("webhook-id") != "evt_1" || string(m.body) != `{"type":"video.ready","timestamp":"2026-09-21T14:13:20.000Z","data":{"id":"vid_1"}}` {
		t.Errorf("message %s %s", m.header.Get("webhook-id"), m.body)
	}
}
