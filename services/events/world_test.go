package events_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gcp "cloud.google.com/go/firestore"
	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/apikey/authtest"
	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/libs/backing"
	"github.com/linkreel/linkreel/libs/boot"
	libevents "github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/libs/tenant/wire"
	"github.com/linkreel/linkreel/services/events"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

// world holds what the service's replicas share: a database, Redis, a fake auth, and a clock
// that tests can move.
type world struct {
	t testing.TB
	*cloudtest.Cloud
	db     *firestoredb.DB
	cfg    events.Config
	keys   *authtest.Auth
	offset *atomic.Int64
	out    *outbox.Outbox
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{
		Cloud: cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{outbox.Indexes, events.Indexes(), idempotency.Indexes}, Complete: true,
			// Only operators and restores change the first four, and every replica executes
			// replays one after another.
			Rare: []string{"eventAccounts.lookAt", "installation.dataAt", "installation.restoredAt", "installation.webhooksResumedAt", "webhookReplays.dueAt"}}),
		t: t, keys: authtest.Start(t), offset: &atomic.Int64{},
	}
	w.cfg = events.Config{
		Config: backing.Config{
			Firestore: firestoredb.Config{Project: "test", Endpoint: w.Endpoint, Timeout: 10 * time.Second},
			Redis:     redisdb.Config{URL: redistest.Start(t)}, Now: w.now,
		},
		Auth:             backing.Auth{AuthURL: w.keys.URL, InternalToken: authtest.Token},
		WebhookSecretKey: strings.Repeat("k", 32), WebhookAllowHTTP: true, WebhookAllowPrivate: true,
		SweepEvery: 200 * time.Millisecond, CallTimeout: 2 * time.Second,
	}
	w.db = firestoredb.Use(w.Client(t), 10*time.Second)
	if _, err := w.db.Identity(t.Context()); err != nil { // as the first service to start does
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: w.cfg.Redis.URL})
	w.out = outbox.New(w.db, rdb, w.now)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = w.out.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended; _ = rdb.Close() })
	return w
}

func (w *world) now() time.Time          { return time.Now().Add(time.Duration(w.offset.Load())) }
func (w *world) forward(d time.Duration) { w.offset.Add(int64(d)) }

// change commits a change to a record in the account, as another service would.
func (w *world) change(account string, t libevents.Type, object string, data any) {
	w.t.Helper()
	if err := w.try(account, t, object, data); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) try(account string, t libevents.Type, object string, data any) error {
	ctx := identity.WithPrincipal(context.Background(), &identity.Principal{AccountID: account, KeyID: "key_1", KeyName: "Deploy"})
	err := w.db.Tx(identity.WithRequest(ctx, &identity.Request{ID: "req-1"}), "change", func(ctx context.Context, tx *gcp.Transaction) error {
		return w.out.Put(ctx, tx, libevents.Event{AccountID: account, Type: t, Object: object, Data: data})
	})
	if err == nil {
		w.out.Wake(account)
	}
	return err
}

// key creates a key for an account.
func (w *world) key(account string, plan identity.Plan, scopes ...identity.ScopeSet) string {
	w.t.Helper()
	return w.keys.Key(w.t, account, plan, func(r *apikey.Record) {
		if len(scopes) > 0 {
			r.Scopes = 0
		}
		for _, s := range scopes {
			r.Scopes |= s
		}
	})
}

// replica is a running service.
type replica struct {
	t      testing.TB
	client *http.Client
	holder *wire.Client // the client that auth uses
	stop   func()
}

// meet makes the service's first calls to its database, as [boot.Warm] does, so that tests do
// not count them. If the database is down, the service makes these calls later.
func meet(t testing.TB, svc *boot.Service) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for _, call := range svc.WarmUp {
		if call.To == "Firestore" {
			_ = call.Do(ctx)
		}
	}
}

func (w *world) start(edit ...func(*events.Config)) *replica {
	w.t.Helper()
	cfg := w.cfg
	for _, e := range edit {
		e(&cfg)
	}
	svc, err := events.New(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	meet(w.t, svc)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, loop := range svc.Loops {
		running.Go(func() { _ = loop.Run(ctx) })
	}
	l := fasthttputil.NewInmemoryListener()
	srv := httpapi.NewServer(svc.Servers[0].Handler)
	running.Go(func() { _ = srv.Serve(l) })
	internal, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	inside := httpapi.NewServer(svc.Servers[1].Handler)
	running.Go(func() { _ = inside.Serve(internal) })
	holder := wire.NewClient("http://"+internal.Addr().String(), authtest.Token)
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return l.Dial() }, MaxIdleConnsPerHost: 64}
	var once sync.Once
	stop := func() {
		once.Do(func() {
			for _, s := range svc.Stopping {
				s()
			}
			transport.CloseIdleConnections()
			_ = srv.Shutdown()
			_ = l.Close()
			holder.Close()
			_ = inside.Shutdown()
			_ = internal.Close() // needed if it is not being served yet
			cancel()
			running.Wait()
			_ = boot.CloseAll(context.Background(), svc)
		})
	}
	w.t.Cleanup(stop)
	return &replica{t: w.t, client: &http.Client{Transport: transport}, holder: holder, stop: stop}
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("cannot parse the body %s: %v", a.body, err)
	}
}

func (a answer) code() string {
	var e struct {
		Error struct{ Code string }
	}
	_ = json.Unmarshal(a.body, &e)
	return e.Error.Code
}

// call sends a request and checks the response against the API document.
func (r *replica) call(key, method, path string, body any, header ...string) answer {
	r.t.Helper()
	var reader io.Reader
	if body != nil {
		text, ok := body.(string)
		if !ok {
			b, err := json.Marshal(body)
			if err != nil {
				r.t.Fatal(err)
			}
			text = string(b)
		}
		reader = strings.NewReader(text)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://events"+path, reader)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := checkExchange(method, req.URL.Path, res, text); err != nil {
		r.t.Errorf("%s %s breaks the contract: %v: %s", method, path, err, text)
	}
	return answer{res.StatusCode, res.Header, text}
}

func (r *replica) want(status int, key, method, path string, body any, header ...string) answer {
	r.t.Helper()
	a := r.call(key, method, path, body, header...)
	if a.status != status {
		r.t.Fatalf("%s %s returned %d %s, want %d", method, path, a.status, a.body, status)
	}
	return a
}

// checkExchange checks a response against its operation's schema.
func checkExchange(method, path string, res *http.Response, body []byte) error {
	doc := apispec.Load()
	for _, name := range schemaOf(method, path, res.StatusCode) {
		var v any
		if err := json.Unmarshal(body, &v); err != nil {
			return err
		}
		if name == "EventPage" {
			complete(v)
		}
		if err := doc.Component(name).Validate(v); err != nil {
			return err
		}
	}
	return nil
}

// complete adds the fields that these tests leave out of links and videos. The feed returns
// data unchanged, and the tests write only the fields that they compare.
func complete(page any) {
	list, _ := page.(map[string]any)["data"].([]any)
	for _, e := range list {
		event := e.(map[string]any)
		kind, _, _ := strings.Cut(event["type"].(string), ".")
		if data, ok := event["data"].(map[string]any); ok {
			maps.Copy(data, examples()[kind])
		}
	}
}

// examples returns the link and the video from the contract's examples.
var examples = sync.OnceValue(func() map[string]map[string]any {
	type get struct {
		Responses map[string]struct {
			Content map[string]struct {
				Examples map[string]struct{ Value any }
			}
		}
	}
	var doc struct{ Paths map[string]struct{ Get get } }
	if err := json.Unmarshal(apispec.Load().JSON(), &doc); err != nil {
		panic(err)
	}
	of := func(path, name string) map[string]any {
		return doc.Paths[path].Get.Responses["200"].Content["application/json"].Examples[name].Value.(map[string]any)
	}
	return map[string]map[string]any{"link": of("/api/v1/links/{id}", "link"), "video": of("/api/v1/videos/{id}", "ready")}
})

func schemaOf(method, path string, status int) []string {
	if status >= 400 {
		return []string{"Error"}
	}
	switch parts := strings.Split(strings.TrimPrefix(path, "/api/v1/"), "/"); {
	case parts[0] == "events":
		return []string{"EventPage"}
	case status == 204:
		return nil
	case len(parts) == 1 && method == "GET":
		return []string{"WebhookList"}
	case len(parts) == 1 || parts[len(parts)-1] == "roll-secret":
		return []string{"WebhookCreated"}
	case len(parts) == 2:
		return []string{"Webhook"}
	case parts[2] == "deliveries" && len(parts) == 3:
		return []string{"DeliveryPage"}
	case parts[2] == "replay":
		return []string{"Replay"}
	}
	return []string{"Delivery"}
}

type feedPage struct {
	Data []struct {
		ID, Type, Object string
		CreatedAt        int64
		Actor            struct{ Type, ID, Name string }
		RequestID        string
		Data             json.RawMessage
	}
	HasMore    bool
	NextCursor *string
}

func (p feedPage) objects() string {
	var out []string
	for _, e := range p.Data {
		out = append(out, e.Object)
	}
	return strings.Join(out, " ")
}

func (r *replica) feed(key, query string) feedPage {
	r.t.Helper()
	var p feedPage
	r.want(200, key, "GET", "/api/v1/events?"+query, nil).into(r.t, &p)
	return p
}

type hook struct {
	ID, URL, Secret, Description string
	Events                       []string
	Enabled                      bool
	DisabledReason               *string
}

func (r *replica) hook(key, url string, types ...string) hook {
	r.t.Helper()
	if types == nil {
		types = []string{"*"}
	}
	var h hook
	r.want(201, key, "POST", "/api/v1/webhooks", map[string]any{"url": url, "events": types}).into(r.t, &h)
	return h
}

type deliveryPage struct {
	Data []struct {
		ID, Status string
		Event      struct{ ID, Type string }
		CreatedAt  int64
		NextTryAt  *int64
		Attempts   []struct {
			At       int64
			Status   *int
			Duration int64
			Error    *string
			Response string
		}
	}
	HasMore    bool
	NextCursor *string
}

func (r *replica) deliveries(key, id, query string) deliveryPage {
	r.t.Helper()
	var p deliveryPage
	r.want(200, key, "GET", "/api/v1/webhooks/"+id+"/deliveries?"+query, nil).into(r.t, &p)
	return p
}

// message is a message that a receiver got.
type message struct {
	header http.Header
	body   []byte
	at     time.Time
}

func (m message) id() string { return m.header.Get("webhook-id") }
func (m message) kind() string {
	var b struct{ Type string }
	_ = json.Unmarshal(m.body, &b)
	return b.Type
}

// receiver is a server that records messages.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	got []message
	// writes the response; nil responds with 204
	answer func(n int, w http.ResponseWriter, r *http.Request)
}

func newReceiver(t testing.TB, answer func(n int, w http.ResponseWriter, r *http.Request)) *receiver {
	t.Helper()
	rec := &receiver{answer: answer}
	rec.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		rec.mu.Lock()
		rec.got = append(rec.got, message{r.Header.Clone(), body, time.Now()})
		n := len(rec.got)
		rec.mu.Unlock()
		if rec.answer == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		rec.answer(n, w, r)
	}))
	t.Cleanup(func() { rec.CloseClientConnections(); rec.Close() })
	return rec
}

func (r *receiver) messages() []message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]message(nil), r.got...)
}

func status(code int) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// eventually waits until ok returns true. It waits longer than a minute because a loop on a busy
// machine may take a minute to retry failed work.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	within(t, 2*time.Minute, what, ok)
}

func within(t testing.TB, patience time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("condition not met: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
