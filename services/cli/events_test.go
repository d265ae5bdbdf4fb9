package cli

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

// oneEvent serves a feed that has one event. After that, it holds every request until the caller
// disconnects.
func oneEvent(t *testing.T) *httptest.Server {
	t.Helper()
	feed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("after") {
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, `{"data":[{"id":"evt_1","type":"link.created","object":"lnk_1","createdAt":1790000000000,"actor":{"type":"key","id":"key_1","name":"k"},"data":{}}],"hasMore":false,"nextCursor":"place"}`)
	}))
	t.Cleanup(feed.Close)
	return feed
}

// seen collects a command's output and reports the first write.
type seen struct {
	bytes.Buffer
	first func()
}

func (s *seen) Write(p []byte) (int, error) {
	defer s.first()
	return s.Buffer.Write(p)
}

func TestCtrlCEndsWhatFollowsWithoutWords(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"events", "--follow"}, {"webhooks", "listen", "--quiet", "--forward", "http://localhost:1/"}} {
		t.Run(strings.Join(args[:2], " "), func(t *testing.T) {
			t.Parallel()
			ctx, stop := context.WithCancel(t.Context())
			out, errs := seen{first: stop}, bytes.Buffer{}
			env := Env{Out: &out, Err: &errs, Getenv: func(string) string { return "" }, Now: time.Now}
			code := Run(ctx, append(args, "--base-url", oneEvent(t).URL, "--key", "k"), env)
			if code != ExitInterrupted || errs.Len() > 0 || strings.Count(out.String(), "\n") != 1 {
				t.Errorf("exit code %d with output %q and errors %q, want 130 with one line and no errors", code, out.String(), errs.String())
			}
		})
	}
}

// longFeed serves a feed of 250 events, evt_1 to evt_250. A cursor is the ID of an event.
func longFeed(t *testing.T) *httptest.Server {
	t.Helper()
	feed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		limit, err := strconv.Atoi(q.Get("limit"))
		if err != nil || limit < 1 || limit > 100 {
			t.Errorf("the request has query %s, want a limit from 1 to 100", r.URL.RawQuery)
		}
		first, step, left := 250, -1, 250
		switch after := q.Get("after"); {
		case q.Has("after"):
			n, _ := strconv.Atoi(strings.TrimPrefix(after, "evt_"))
			first, step, left = n+1, 1, 250-n
			if left == 0 && q.Has("wait") {
				<-r.Context().Done()
				return
			}
		case q.Has("cursor"):
			n, _ := strconv.Atoi(strings.TrimPrefix(q.Get("cursor"), "evt_"))
			first, left = n-1, n-1
		}
		page := client.EventPage{Data: []client.Event{}, HasMore: left > limit}
		for i := range min(left, limit) {
			page.Data = append(page.Data, client.Event{ID: "evt_" + strconv.Itoa(first+i*step), Type: "link.created"})
		}
		if n := len(page.Data); n > 0 {
			page.NextCursor = &page.Data[n-1].ID
		}
		_ = json.NewEncoder(w).Encode(page)
	}))
	t.Cleanup(feed.Close)
	return feed
}

func TestEventsEndAtTheirLimitAndFollowOnlyWithTheFlag(t *testing.T) {
	t.Parallel()
	feed := longFeed(t)
	for args, want := range map[string]struct {
		events      int
		first, last string
	}{
		"":                                    {20, "evt_250", "evt_231"},
		"--limit 120":                         {120, "evt_250", "evt_131"},
		"--limit 1000":                        {250, "evt_250", "evt_1"},
		"--after evt_30":                      {220, "evt_31", "evt_250"},
		"--after evt_250":                     {},
		"--after evt_30 --limit 101":          {101, "evt_31", "evt_131"},
		"--follow --after evt_30 --limit 3":   {3, "evt_31", "evt_33"},
		"--follow --after evt_30 --limit 150": {150, "evt_31", "evt_180"},
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			env := Env{Out: &out, Err: &errs, Getenv: func(string) string { return "" }, Now: time.Now}
			code := Run(t.Context(), append(strings.Fields("events --json --key k --base-url "+feed.URL), strings.Fields(args)...), env)
			var ids []string
			for line := range strings.Lines(out.String()) {
				var e client.Event
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatal(err)
				}
				ids = append(ids, e.ID)
			}
			if code != ExitOK || errs.Len() > 0 || len(ids) != want.events {
				t.Fatalf("exit code %d with %d events %v and errors %q, want 0, the expected number of events and no errors", code, len(ids), ids, errs.String())
			}
			if want.events > 0 && (ids[0] != want.first || ids[want.events-1] != want.last) {
				t.Errorf("the events are %s to %s, want %s to %s", ids[0], ids[want.events-1], want.first, want.last)
			}
		})
	}
}

// The user stops the command while the receiver is responding. The receiver did not fail.
func TestCtrlCWhileAMessageIsForwardedPrintsNothing(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server does not detect a disconnect until it has read the body
		stop()
		<-r.Context().Done()
	}))
	t.Cleanup(receiver.Close)
	var out, errs bytes.Buffer
	env := Env{Out: &out, Err: &errs, Getenv: func(string) string { return "" }, Now: time.Now}
	code := Run(ctx, []string{"webhooks", "listen", "--quiet", "--forward", receiver.URL, "--base-url", oneEvent(t).URL, "--key", "k"}, env)
	if code != ExitInterrupted || out.Len()+errs.Len() > 0 {
		t.Errorf("exit code %d with output %q and errors %q, want 130 with no output", code, out.String(), errs.String())
	}
}

func TestWebhooksListenSaysWhyAMessageWasNotTaken(t *testing.T) {
	t.Parallel()
	hangsUp := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(hangsUp.Close)
	refuses := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(refuses.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, tt := range map[string]struct{ forward, want string }{
		"an unused port":      {gone.URL + "/hooks", "nothing is listening on " + strings.TrimPrefix(gone.URL, "http://") + "; the message is not sent again"},
		"a closed connection": {hangsUp.URL, "EOF; the message is not sent again"},
		"a 404 status":        {refuses.URL, "404 Not Found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, stop := context.WithCancel(t.Context())
			out := seen{first: stop}
			env := Env{Out: &out, Err: io.Discard, Getenv: func(string) string { return "" }, Now: time.Now}
			Run(ctx, []string{"webhooks", "listen", "--forward", tt.forward, "--base-url", oneEvent(t).URL, "--key", "k"}, env)
			_, answer, _ := strings.Cut(strings.TrimSpace(out.String()), "→ ")
			if answer != tt.want {
				t.Errorf("the command printed %q, want %q", answer, tt.want)
			}
		})
	}
}

func TestAHostWithoutAddressIsNotTakenForOneWhereNobodyListens(t *testing.T) {
	t.Parallel()
	err := &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "receiver.example", IsNotFound: true}}
	if got := unanswered(&url.URL{Host: "receiver.example:3000"}, err); got != "cannot find the host receiver.example" {
		t.Error(got)
	}
}

func TestWebhooksListenKeepsTheSecretThatItIsGiven(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZg=="
	var verified error
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		verified = client.VerifyWebhook(secret, r.Header, body)
	}))
	t.Cleanup(receiver.Close)
	ctx, stop := context.WithCancel(t.Context())
	out, errs := seen{first: stop}, bytes.Buffer{}
	env := Env{Out: &out, Err: &errs, Getenv: func(string) string { return "" }, Now: time.Now}
	listen := []string{"webhooks", "listen", "--forward", receiver.URL, "--base-url", oneEvent(t).URL, "--key", "k", "--secret"}
	Run(ctx, append(listen, secret), env)
	if verified != nil || !strings.Contains(out.String(), "200 OK") || strings.Contains(errs.String(), "whsec_") {
		t.Errorf("the verification error is %v, and the command printed %q and %q; want a verified message and no new secret", verified, out.String(), errs.String())
	}
	for _, wrong := range []string{"secret", "whsec_", "whsec_?", "MDEyMw=="} {
		if code := Run(t.Context(), append(listen, wrong), env); code != ExitUsage {
			t.Errorf("--secret %q returned exit code %d, want 2", wrong, code)
		}
	}
}

func TestWebhooksVerify(t *testing.T) {
	t.Parallel()
	const secret, other = "whsec_MDEyMzQ1Njc4OWFiY2RlZg==", "whsec_ZmVkY2JhOTg3NjU0MzIxMA=="
	const body = `{"type":"link.created"}`
	sign := func(at time.Time) (stamp, signature string) {
		stamp = strconv.FormatInt(at.Unix(), 10)
		mac := hmac.New(sha256.New, []byte("0123456789abcdef"))
		_, _ = io.WriteString(mac, "evt_1."+stamp+"."+body)
		return stamp, "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	stamp, signature := sign(time.Now())
	old, oldSignature := sign(time.Now().Add(-time.Hour))
	flags := []string{"--id", "evt_1", "--timestamp", stamp, "--signature", signature}
	saved := file(t, "body", body)
	headers := file(t, "headers", "POST /hooks HTTP/1.1\r\nWebhook-Id: evt_1\r\nwebhook-timestamp: "+stamp+"\r\nWEBHOOK-SIGNATURE: "+signature+"\r\n\r\nwebhook-id: body\r\n")
	incomplete := file(t, "incomplete", "webhook-id: evt_1\nwebhook-timestamp: "+stamp+"\n")
	for name, tt := range map[string]struct {
		secret, in string
		args       []string
		code       int
		want       string // the output, or a part of the error
	}{
		"a body in a file":                    {secret, "", append([]string{saved}, flags...), ExitOK, "verified evt_1\n"},
		"a body on standard input":            {secret, body, append([]string{"-"}, flags...), ExitOK, "verified evt_1\n"},
		"headers in a file":                   {secret, "", []string{saved, "--headers", headers}, ExitOK, "verified evt_1\n"},
		"a flag before the file":              {secret, "", []string{saved, "--headers", incomplete, "--signature", signature}, ExitOK, "verified evt_1\n"},
		"json":                                {secret, "", append([]string{saved, "--json"}, flags...), ExitOK, `{"id":"evt_1","verified":true}` + "\n"},
		"an older secret in a file":           {"", "", append([]string{saved, "--secret-file", file(t, "secrets", other+"\n"+secret+"\n")}, flags...), ExitOK, "verified evt_1\n"},
		"a secret file that takes precedence": {secret, "", append([]string{saved, "--secret-file", file(t, "other", other)}, flags...), ExitRefused, "(reason: signature)"},
		"a changed body":                      {secret, body + "\n", append([]string{"-"}, flags...), ExitRefused, "(reason: signature)"},
		"a different secret":                  {other, body, append([]string{"-"}, flags...), ExitRefused, "(reason: signature)"},
		"an old message":                      {secret, "", []string{saved, "--id", "evt_1", "--timestamp", old, "--signature", oldSignature}, ExitRefused, "(reason: timestamp)"},
		"a missing header":                    {secret, "", []string{saved, "--headers", incomplete}, ExitRefused, "webhook-signature is missing (reason: header)"},
		"a secret that is not valid":          {"whsec_?", "", append([]string{saved}, flags...), ExitRefused, "(reason: secret)"},
		"no secret":                           {"", "", append([]string{saved}, flags...), ExitUsage, "LINKREEL_WEBHOOK_SECRET"},
		"no headers":                          {secret, "", []string{saved, "--id", "evt_1"}, ExitUsage, "needs --headers"},
		"no body":                             {secret, "", flags, ExitUsage, "give the FILE"},
		"a body that is no message":           {secret, strings.Repeat("x", maxMessage+1), append([]string{"-"}, flags...), ExitUsage, "larger than 8 MiB"},
		"a file that does not exist":          {secret, "", append([]string{saved + "x"}, flags...), ExitFailed, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			env := Env{In: strings.NewReader(tt.in), Out: &out, Err: &errs, Now: time.Now, Getenv: func(name string) string {
				return map[string]string{"LINKREEL_WEBHOOK_SECRET": tt.secret}[name]
			}}
			code := Run(t.Context(), append([]string{"webhooks", "verify"}, tt.args...), env)
			switch {
			case code != tt.code:
				t.Errorf("exit code %d, want %d: %s%s", code, tt.code, out.String(), errs.String())
			case code == ExitOK && (out.String() != tt.want || errs.Len() > 0):
				t.Errorf("output %q with errors %q, want %q and no errors", out.String(), errs.String(), tt.want)
			case code != ExitOK && (!strings.Contains(errs.String(), tt.want) || out.Len() > 0):
				t.Errorf("error %q with output %q, want %q and no output", errs.String(), out.String(), tt.want)
			}
			if strings.Contains(out.String()+errs.String(), "whsec_MD") {
				t.Errorf("the command printed the secret: %s%s", out.String(), errs.String())
			}
		})
	}
}

// TestWebhooksListen checks that a receiver on this machine gets the feed's events, signed with the
// printed secret.
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
				t.Errorf("the request has query %s, want wait and type=video.ready, but not after", r.URL.RawQuery)
			}
		} else if got := r.URL.Query().Get("after"); got != "place" {
			t.Errorf("the next request has cursor after=%q, want place", got)
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
		t.Errorf("exit code %d, want 130", code)
	}
	_, rest, _ := strings.Cut(errs.String(), "whsec_")
	secret, _, _ := strings.Cut(rest, "\n")
	if err := client.VerifyWebhook("whsec_"+secret, m.header, m.body); err != nil {
		t.Errorf("the signature is invalid: %v: %s", err, m.body)
	}
	if m.header.Get("webhook-id") != "evt_1" || string(m.body) != `{"type":"video.ready","timestamp":"2026-09-21T14:13:20.000Z","data":{"id":"vid_1"}}` {
		t.Errorf("the message is %s with body %s, want evt_1 and its data", m.header.Get("webhook-id"), m.body)
	}
}

func TestALostPlaceInTheFeedIsToldWithWhereToReadOn(t *testing.T) {
	t.Parallel()
	lost := &client.APIError{Status: 410, Code: "CURSOR_AHEAD", Message: "Restored from a backup.", RestartAfter: "AAAAAAAAAAOD78FP"}
	if text := explain(lost); !strings.HasSuffix(text, "; continue with --after AAAAAAAAAAOD78FP") {
		t.Errorf("%q does not contain the cursor from which to resume", text)
	}
}
