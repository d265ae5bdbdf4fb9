package faults_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/standalone"
)

// The tests watch the neighbours of a noisy account. For every write operation, the noisy account
// sends requests for one record at the highest possible rate, over many connections, while
// Firestore is as slow as Google's. Other accounts must not be affected. With LINKREEL_FULL=1 there
// are 120 connections and three seconds for each operation. By default there are 40 connections and
// a fraction of a second, and each connection sends at least one request.

// quarter is a complete Linkreel installation with a slow Firestore.
type quarter struct {
	t     testing.TB
	stack *standalone.Stack
	log   *accessLog
	http  *http.Client
}

func newQuarter(t *testing.T, env map[string]string) *quarter {
	t.Helper()
	q := &quarter{t: t, log: &accessLog{reasons: map[string]string{}}, http: &http.Client{
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{MaxIdleConnsPerHost: 256},
	}}
	settings := map[string]string{"DNS_RESOLVER": "127.0.0.1:9"} // DNS queries must not leave this machine
	for name, value := range env {
		settings[name] = value
	}
	stack, err := standalone.Start(context.WithoutCancel(t.Context()), standalone.Config{DataDir: t.TempDir(), Log: q.log, Env: settings})
	if err != nil {
		t.Fatal(err)
	}
	q.stack = stack
	t.Cleanup(func() {
		q.http.CloseIdleConnections()
		if err := stack.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

// slow adds the latency of Google's Firestore.
func (q *quarter) slow() {
	q.stack.Firestore.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, Delay: 30 * time.Millisecond})
	q.stack.Firestore.Faults().Add(firestore.Fault{Methods: []string{"BeginTransaction", "BatchGetDocuments", "RunQuery"}, Delay: 8 * time.Millisecond})
}

// say sends one request. The status is 0 if there was no response.
func (q *quarter) say(ctx context.Context, key, method, address string, body any) (int, []byte) {
	var data []byte
	contentType := "application/json"
	switch b := body.(type) {
	case nil:
	case string:
		data, contentType = []byte(b), "text/vtt"
	default:
		data, _ = json.Marshal(b) // these are maps of strings and numbers
	}
	if strings.HasPrefix(address, "/") {
		address = q.stack.BaseURL + address
	}
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(data))
	if err != nil {
		return 0, []byte(err.Error())
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if data != nil {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := q.http.Do(req)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, []byte(err.Error())
	}
	return res.StatusCode, answer
}

// made sends a request that must succeed.
func (q *quarter) made(key, method, address string, body any) map[string]any {
	q.t.Helper()
	status, answer := q.say(q.t.Context(), key, method, address, body)
	if status < 200 || status > 299 {
		q.t.Fatalf("%s %s returned %d, want success: %.300s", method, address, status, answer)
	}
	var out map[string]any
	_ = json.Unmarshal(answer, &out) // some responses are empty
	return out
}

// resident is an account with a key that has every scope.
type resident struct {
	q       *quarter
	id, key string
}

func (q *quarter) resident(name string, limits map[string]any) *resident {
	q.t.Helper()
	admin := q.stack.AdminURL + "/admin/v1/accounts"
	r := &resident{q: q}
	r.id, _ = q.made(q.stack.AdminToken, "POST", admin, map[string]any{"name": name, "plan": "enterprise"})["id"].(string)
	if limits != nil {
		q.made(q.stack.AdminToken, "PATCH", admin+"/"+r.id, map[string]any{"limits": limits})
	}
	r.key, _ = q.made(q.stack.AdminToken, "POST", admin+"/"+r.id+"/keys", map[string]any{"name": "k", "scopes": identity.AllScopes.Names()})["key"].(string)
	return r
}

// make creates a record and returns the value of one of its fields.
func (r *resident) make(path string, body any, name string) string {
	r.q.t.Helper()
	value, _ := r.q.made(r.key, "POST", path, body)[name].(string)
	if value == "" {
		r.q.t.Fatalf("the response to POST %s has no %s", path, name)
	}
	return value
}

func (r *resident) link() string {
	return r.make("/api/v1/links", map[string]any{"url": "https://example.com/"}, "id")
}

func (r *resident) links(n int) (ids, slugs []string) {
	r.q.t.Helper()
	items := make([]any, n)
	for i := range items {
		items[i] = map[string]any{"url": "https://example.com/"}
	}
	results, _ := r.q.made(r.key, "POST", "/api/v1/links/bulk", map[string]any{"urls": items})["results"].([]any)
	for _, result := range results {
		item, _ := result.(map[string]any)
		data, _ := item["data"].(map[string]any)
		id, _ := data["id"].(string)
		slug, _ := data["slug"].(string)
		ids, slugs = append(ids, id), append(slugs, slug)
	}
	return ids, slugs
}

func (r *resident) video() string {
	return r.make("/api/v1/videos", map[string]any{"title": "V", "privacy": "public"}, "videoId")
}

func (r *resident) webhook(receiver string) string {
	return r.make("/api/v1/webhooks", map[string]any{"url": receiver, "events": []string{"video.failed"}}, "id")
}

func (r *resident) member() string {
	r.q.t.Helper()
	link := r.q.made(r.q.stack.AdminToken, "POST", r.q.stack.AdminURL+"/admin/v1/accounts/"+r.id+"/sign-in-links", map[string]any{"name": "M", "role": "member"})
	id, _ := link["memberId"].(string)
	return id
}

// act builds a repeated request. n is different on every call.
type act func(n int) (path string, body any)

func on(path string, body any) act { return func(int) (string, any) { return path, body } }

func titled(path string) act {
	return func(n int) (string, any) { return path, map[string]any{"title": fmt.Sprint("Title ", n)} }
}

// writes returns a recipe for each write operation in the contract. A recipe first creates a record
// in the account and then returns the requests that change it.
func writes(receiver string) map[string]func(r *resident) act {
	const links, videos, hooks = "/api/v1/links", "/api/v1/videos/", "/api/v1/webhooks/"
	return map[string]func(r *resident) act{
		"createLink": func(*resident) act {
			return on(links, map[string]any{"url": "https://example.com/", "tags": []string{"noise"}})
		},
		"bulkCreateLinks": func(*resident) act {
			return on(links+"/bulk", map[string]any{"urls": []any{map[string]any{"url": "https://example.com/"}}})
		},
		"bulkUpdateLinks": func(r *resident) act {
			ids, _ := r.links(100)
			return func(n int) (string, any) {
				return links + "/bulk", map[string]any{"ids": ids, "set": map[string]any{"archived": n%2 == 0}}
			}
		},
		"bulkDeleteLinks": func(r *resident) act {
			ids, _ := r.links(100)
			return on(links+"/bulk-delete", map[string]any{"ids": ids})
		},
		"updateLink": func(r *resident) act { return titled(links + "/" + r.link()) },
		"deleteLink": func(r *resident) act { return on(links+"/"+r.link(), nil) },

		"createDomain": func(*resident) act {
			return func(n int) (string, any) {
				return "/api/v1/domains", map[string]any{"hostname": fmt.Sprintf("n%d.neighbours.example.net", n)}
			}
		},
		"deleteDomain": func(r *resident) act {
			return on("/api/v1/domains/"+r.make("/api/v1/domains", map[string]any{"hostname": "delete.neighbours.example.net"}, "id"), nil)
		},
		"updateDomain": func(r *resident) act {
			path := "/api/v1/domains/" + r.make("/api/v1/domains", map[string]any{"hostname": "update.neighbours.example.net"}, "id")
			return func(n int) (string, any) {
				return path, map[string]any{"homeUrl": fmt.Sprintf("https://example.com/%d", n)}
			}
		},
		"verifyDomain": func(r *resident) act {
			return on("/api/v1/domains/"+r.make("/api/v1/domains", map[string]any{"hostname": "verify.neighbours.example.net"}, "id")+"/verify", nil)
		},

		"updateAccount": func(*resident) act {
			return func(n int) (string, any) {
				return "/api/v1/account", map[string]any{"name": fmt.Sprint("Name ", n)}
			}
		},

		"createVideo":       func(*resident) act { return on("/api/v1/videos", map[string]any{"title": "V"}) },
		"updateVideo":       func(r *resident) act { return titled(videos + r.video()) },
		"deleteVideo":       func(r *resident) act { return on(videos+r.video(), nil) },
		"setVideoThumbnail": func(r *resident) act { return on(videos+r.video()+"/thumbnail", map[string]any{"time": 1}) },
		"setVideoAccess": func(r *resident) act {
			path := videos + r.video() + "/access"
			return func(n int) (string, any) {
				return path, map[string]any{"privacy": "public", "allowDownload": n%2 == 0}
			}
		},
		"putCaptions": func(r *resident) act {
			path := videos + r.video() + "/captions/en"
			return func(n int) (string, any) {
				return path, fmt.Sprintf("WEBVTT\n\n00:00:00.000 --> 00:00:01.000\nLine %d\n", n)
			}
		},
		"deleteCaptions": func(r *resident) act {
			path := videos + r.video() + "/captions/en"
			r.q.made(r.key, "PUT", path, "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\nLine\n")
			return on(path, nil)
		},

		"createWebhook": func(*resident) act {
			return on("/api/v1/webhooks", map[string]any{"url": receiver, "events": []string{"video.failed"}})
		},
		"updateWebhook": func(r *resident) act {
			path := hooks + r.webhook(receiver)
			return func(n int) (string, any) { return path, map[string]any{"description": fmt.Sprint("Number ", n)} }
		},
		"deleteWebhook": func(r *resident) act { return on(hooks+r.webhook(receiver), nil) },
		"rollWebhookSecret": func(r *resident) act {
			return on(hooks+r.webhook(receiver)+"/roll-secret", map[string]any{"overlapSeconds": 10})
		},
		"testWebhook": func(r *resident) act { return on(hooks+r.webhook(receiver)+"/test", nil) },
		"replayWebhook": func(r *resident) act {
			now := time.Now()
			return on(hooks+r.webhook(receiver)+"/replay", map[string]any{"from": now.Add(-time.Hour).UnixMilli(), "to": now.UnixMilli()})
		},
		"retryDelivery": func(r *resident) act {
			hook := hooks + r.webhook(receiver)
			r.q.made(r.key, "POST", hook+"/test", nil)
			list, _ := r.q.made(r.key, "GET", hook+"/deliveries", nil)["data"].([]any)
			delivery, _ := list[0].(map[string]any)
			return on(fmt.Sprintf("%s/deliveries/%s/retry", hook, delivery["id"]), nil)
		},

		"createKey": func(*resident) act { return on("/api/v1/keys", map[string]any{"name": "n"}) },
		"revokeKey": func(r *resident) act {
			return on("/api/v1/keys/"+r.make("/api/v1/keys", map[string]any{"name": "n"}, "id"), nil)
		},
		"rollKey": func(r *resident) act {
			return on("/api/v1/keys/"+r.make("/api/v1/keys", map[string]any{"name": "n"}, "id")+"/roll", map[string]any{"overlapSeconds": 60})
		},

		"updateMember": func(r *resident) act {
			path := "/api/v1/members/" + r.member()
			return func(n int) (string, any) { return path, map[string]any{"name": fmt.Sprint("M ", n)} }
		},
		"removeMember": func(r *resident) act { return on("/api/v1/members/"+r.member(), nil) },
		// The API rejects keys here, but checking a key's permissions is work too.
		"createMemberSignInLink": func(r *resident) act { return on("/api/v1/members/"+r.member()+"/sign-in-links", nil) },
		"createInvitation":       func(*resident) act { return on("/api/v1/invitations", map[string]any{"role": "viewer"}) },
		"revokeInvitation": func(r *resident) act {
			return on("/api/v1/invitations/"+r.make("/api/v1/invitations", map[string]any{"role": "viewer"}, "id"), nil)
		},
		"createDeviceCode": func(*resident) act { return on("/api/v1/device-codes", map[string]any{"name": "D"}) },
		"collectDeviceKey": func(r *resident) act {
			return on("/api/v1/device-codes/token", map[string]any{"deviceCode": r.make("/api/v1/device-codes", map[string]any{"name": "D"}, "deviceCode")})
		},
	}
}

// hit is a failed request from a neighbour.
type hit struct {
	during, what string
	status       int
	answer       string
}

// watch sends the neighbours' requests without a pause.
type watch struct {
	q      *quarter
	during atomic.Pointer[string]
	calls  atomic.Int64
	mu     sync.Mutex
	hits   []hit
	ids    map[string]bool // the neighbours' account IDs
}

// ask sends requests named what until ctx is done. next returns the next request, or false if there
// is none.
func (w *watch) ask(ctx context.Context, wg *sync.WaitGroup, what string, pause time.Duration, next func(i int) (key, method, address string, body any, more bool)) {
	wg.Go(func() {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			key, method, address, body, more := next(i)
			if !more {
				return
			}
			during := *w.during.Load()
			status, answer := w.q.say(context.WithoutCancel(ctx), key, method, address, body)
			w.calls.Add(1)
			if status >= 200 && status < 400 {
				continue
			}
			w.mu.Lock()
			w.hits = append(w.hits, hit{during, what, status, fmt.Sprintf("%.300s", answer)})
			w.mu.Unlock()
		}
	})
}

func TestNeighboursDoNotNoticeANoisyAccount(t *testing.T) {
	full := os.Getenv("LINKREEL_FULL") == "1"
	connections, spell, atOnce := 40, 200*time.Millisecond, 3
	if full {
		connections, spell, atOnce = 120, 3*time.Second, 1
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(receiver.Close)
	recipes := writes(receiver.URL)
	var operations []apispec.Route
	for _, r := range apispec.Load().Routes() {
		// The operator is not a neighbour.
		if r.Method == "GET" || r.Tag == "Operator" || !strings.HasPrefix(r.Path, "/api/") {
			continue
		}
		if recipes[r.OperationID] == nil {
			t.Errorf("%s: add a recipe for this operation to writes", r.OperationID)
			continue
		}
		operations = append(operations, r)
	}
	if len(operations) != len(recipes) {
		t.Errorf("there are %d recipes for %d operations, want one for each", len(recipes), len(operations))
	}

	q := newQuarter(t, nil)
	w := &watch{q: q, ids: map[string]bool{}}
	neighbour := func(name string) *resident {
		r := q.resident(name, nil)
		w.ids[r.id] = true
		return r
	}
	reader, creator := neighbour("Reader"), neighbour("Creator")
	link, video := reader.link(), reader.video()
	page, _ := q.made(reader.key, "GET", "/api/v1/videos/"+video, nil)["shareUrl"].(string)
	seconds := int(time.Duration(len(operations)/atOnce)*(spell+500*time.Millisecond)/time.Second) + 10
	var cold, keys []string
	for len(cold) < 20*seconds {
		_, slugs := neighbour("Cold").links(100)
		cold = append(cold, slugs...)
	}
	for len(keys) < 8*seconds {
		r := neighbour("Keys")
		for range 90 {
			key, _ := q.made(q.stack.AdminToken, "POST", q.stack.AdminURL+"/admin/v1/accounts/"+r.id+"/keys", map[string]any{"name": "k"})["key"].(string)
			keys = append(keys, key)
		}
	}
	type noise struct {
		operation apispec.Route
		who       *resident
		act       act
	}
	var noises []noise
	for _, operation := range operations {
		who := q.resident("Noisy "+operation.OperationID, nil)
		noises = append(noises, noise{operation, who, recipes[operation.OperationID](who)})
	}
	q.slow()
	q.log.reset()

	quiet := "nothing"
	w.during.Store(&quiet)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	w.ask(ctx, &wg, "read", 50*time.Millisecond, func(int) (string, string, string, any, bool) {
		return reader.key, "GET", "/api/v1/links/" + link, nil, true
	})
	w.ask(ctx, &wg, "create", 100*time.Millisecond, func(i int) (string, string, string, any, bool) {
		if i%2 == 0 {
			return creator.key, "POST", "/api/v1/videos", map[string]any{"title": "V"}, true
		}
		return creator.key, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/"}, true
	})
	w.ask(ctx, &wg, "cold redirect", 50*time.Millisecond, func(i int) (string, string, string, any, bool) {
		if i >= len(cold) {
			return "", "", "", nil, false
		}
		return "", "GET", q.stack.ShortBaseURL + "/" + cold[i], nil, true
	})
	w.ask(ctx, &wg, "first key check", 125*time.Millisecond, func(i int) (string, string, string, any, bool) {
		if i >= len(keys) {
			return "", "", "", nil, false
		}
		return keys[i], "GET", "/api/v1/links?limit=1", nil, true
	})
	w.ask(ctx, &wg, "share page", 50*time.Millisecond, func(int) (string, string, string, any, bool) {
		return "", "GET", page, nil, true
	})

	lanes := make(chan struct{}, atOnce)
	var storms sync.WaitGroup
	for _, n := range noises {
		lanes <- struct{}{}
		name := n.operation.OperationID
		w.during.Store(&name)
		storms.Go(func() {
			defer func() { <-lanes }()
			began := time.Now()
			answers := n.who.storm(n.operation.Method, n.act, connections, spell)
			t.Logf("%-18s %v in %v", name, answers, time.Since(began).Round(time.Millisecond))
			for status := range answers {
				// At the highest rate, the noisy account may get errors because the machine is too
				// slow.
				if status == 0 || status >= 500 && (!full || status == 500) {
					t.Errorf("%s: the noisy account got status %d", name, status)
				}
			}
		})
	}
	storms.Wait()
	stop()
	wg.Wait()

	if w.calls.Load() < int64(len(operations)) {
		t.Errorf("the neighbours sent only %d requests, want at least one for each operation", w.calls.Load())
	}
	for i, h := range w.hits {
		if i == 20 {
			t.Errorf("and %d more failed requests from neighbours", len(w.hits)-i)
			break
		}
		t.Errorf("during %s, a %s from another account failed: %d %s %s", h.during, h.what, h.status, h.answer, q.log.reason(h.answer))
	}
	queued := q.log.queued(w.ids)
	if len(queued) == 0 {
		t.Fatal("the log does not contain any access lines for neighbours")
	}
	p99 := queued[len(queued)*99/100]
	t.Logf("%d requests from neighbours; %d access lines; the p99 of the time in our queues is %v ms", w.calls.Load(), len(queued), p99)
	if p99 > 20 {
		t.Errorf("the p99 of the neighbours' time in our queues is %v ms, want at most 20", p99)
	}
}

// storm sends requests over several connections for the duration of spell, and at least one over
// each connection. It counts the responses by status.
func (r *resident) storm(method string, a act, connections int, spell time.Duration) map[int]int {
	began := time.Now()
	var n atomic.Int64
	var mu sync.Mutex
	answers := map[int]int{}
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			for first := true; first || time.Since(began) < spell; first = false {
				path, body := a(int(n.Add(1)))
				status, _ := r.q.say(r.q.t.Context(), r.key, method, path, body)
				mu.Lock()
				answers[status]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return answers
}

// accessLog collects the access lines and the log's reasons for failed requests.
type accessLog struct {
	mu      sync.Mutex
	rest    []byte
	lines   []accessLine
	reasons map[string]string // by request ID
}

type accessLine struct {
	Msg, Account, Error string
	Queued              float64
	Request             string `json:"trace_id"`
}

func (l *accessLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.rest = rest
		var a accessLine
		switch err := json.Unmarshal(line, &a); {
		case err != nil:
		case a.Msg == "access":
			l.lines = append(l.lines, a)
		case a.Msg == "request refused" || a.Msg == "request failed":
			l.reasons[a.Request] = a.Error
		}
	}
}

// reason returns the log's reason for the failed request with the ID in answer.
func (l *accessLog) reason(answer string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for request, reason := range l.reasons {
		if request != "" && strings.Contains(answer, request) {
			return reason
		}
	}
	return ""
}

func (l *accessLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = nil
}

// queued returns the sorted queueing times of these accounts' requests and of requests without an
// account.
func (l *accessLog) queued(accounts map[string]bool) []float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []float64
	for _, a := range l.lines {
		if a.Account == "" || accounts[a.Account] {
			out = append(out, a.Queued)
		}
	}
	slices.Sort(out)
	return out
}

// The threads in an import contend for a tag, for the account's quota, and for the account. The
// import may take a long time, but every request must succeed.
func TestParallelWritesOfOneAccountAreNeverRefused(t *testing.T) {
	const threads = 60
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(receiver.Close)
	q := newQuarter(t, map[string]string{"LINKREEL_FIRESTORE_TIMEOUT": "9s"})
	limits := map[string]any{"links": 5000, "videos": 500}
	type load struct {
		what, path string
		limits     map[string]any
		threads    int
		body       any
	}
	loads := []load{
		{"links", "/api/v1/links", nil, threads, map[string]any{"url": "https://example.com/"}},
		{"links with a tag", "/api/v1/links", nil, threads, map[string]any{"url": "https://example.com/", "tags": []string{"import"}}},
		{"links under a limit", "/api/v1/links", limits, threads, map[string]any{"url": "https://example.com/"}},
		{"bulk items under a limit", "/api/v1/links/bulk", limits, threads, map[string]any{"urls": []any{map[string]any{"url": "https://example.com/"}, map[string]any{"url": "https://example.com/"}}}},
		{"keys", "/api/v1/keys", nil, threads, map[string]any{"name": "n"}},
		{"videos", "/api/v1/videos", nil, threads, map[string]any{"title": "V"}},
		{"videos under a limit", "/api/v1/videos", limits, threads, map[string]any{"title": "V"}},
		{"webhooks", "/api/v1/webhooks", nil, 20, map[string]any{"url": receiver.URL, "events": []string{"video.failed"}}},
	}
	who := make([]*resident, len(loads))
	for i, l := range loads {
		who[i] = q.resident(l.what, l.limits)
	}
	q.slow()
	for i, l := range loads {
		began := time.Now()
		var mu sync.Mutex
		answers, sample := map[int]int{}, ""
		var wg sync.WaitGroup
		for range l.threads {
			wg.Go(func() {
				status, answer := q.say(t.Context(), who[i].key, "POST", l.path, l.body)
				mu.Lock()
				defer mu.Unlock()
				if answers[status]++; status != 201 && status != 207 {
					sample = fmt.Sprintf("%.300s", answer)
				}
			})
		}
		wg.Wait()
		t.Logf("%d × %s in parallel: %v in %v", l.threads, l.what, answers, time.Since(began).Round(time.Millisecond))
		if sample != "" {
			t.Errorf("%s: a request failed: %s", l.what, sample)
		}
	}
}
