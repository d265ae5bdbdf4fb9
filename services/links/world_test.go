package links_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp/fasthttputil"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apikey/authtest"
	"github.com/linkreel/linkreel/libs/backing"
	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/libs/tags"
	"github.com/linkreel/linkreel/services/links"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

const (
	internalToken = authtest.Token
	shortBase     = "http://lrl.example"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// By default, the test ACME server randomly delays and rejects requests and reuses
	// authorizations.
	for name, value := range map[string]string{"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0", "PEBBLE_AUTHZREUSE": "0"} {
		_ = os.Setenv(name, value)
	}
	if !testing.Verbose() {
		slog.SetDefault(slog.New(slog.DiscardHandler))
	}
	os.Exit(m.Run())
}

// world contains everything that the replicas in a test share: the cloud, Redis, auth and the
// clock.
type world struct {
	*cloudtest.Cloud
	redis  string
	keys   *authtest.Auth
	offset *atomic.Int64
	dns    string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return &world{
		Cloud: cloudtest.Start(t, cloudtest.Options{
			Indexes: [][]byte{links.Indexes(), tags.Indexes, idempotency.Indexes, outbox.Indexes}, Complete: true,
			Rare: []string{"linkAccounts.lookAt"}, // changed only by operators
		}), redis: redistest.Start(t),
		keys: authtest.Start(t), offset: new(atomic.Int64),
	}
}

func (c *world) now() time.Time          { return time.Now().Add(time.Duration(c.offset.Load())) }
func (c *world) forward(d time.Duration) { c.offset.Add(int64(d)) }

func (c *world) config(t testing.TB) links.Config {
	return links.Config{
		Config: backing.Config{
			Firestore: firestoredb.Config{Project: "test", Endpoint: c.Endpoint, Timeout: 9 * time.Second},
			Redis:     redisdb.Config{URL: c.redis}, Now: c.now,
		},
		Auth: backing.Auth{AuthURL: c.keys.URL, InternalToken: internalToken}, ShortBaseURL: shortBase,
		SpoolDir: t.TempDir(), CacheBytes: 64 << 20, Flush: true, DNSResolver: c.dns, ClickBudget: 500 * time.Millisecond,
	}
}

// replica is a running service with a client for each of its listeners.
type replica struct {
	t       testing.TB
	service *boot.Service
	clients map[string]*http.Client
	stop    func()
}

// meet makes the service's first database calls, as [boot.Warm] does, so tests do not count them.
// If the database is down, the service makes these calls later.
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

func (c *world) replica(t testing.TB, edit ...func(*links.Config)) *replica {
	t.Helper()
	cfg := c.config(t)
	for _, e := range edit {
		e(&cfg)
	}
	svc, err := links.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	meet(t, svc)
	r := &replica{t: t, service: svc, clients: map[string]*http.Client{}}
	var stops []func()
	for _, s := range svc.Servers {
		l := fasthttputil.NewInmemoryListener()
		srv := httpapi.NewServer(s.Handler)
		go func() { _ = srv.Serve(l) }()
		tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return l.Dial() }, MaxIdleConnsPerHost: 64}
		r.clients[s.Name] = &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		stops = append(stops, func() { tr.CloseIdleConnections(); _ = srv.Shutdown() })
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	g, gctx := errgroup.WithContext(ctx)
	boot.StartLoops(gctx, g, svc)
	r.stop = sync.OnceFunc(func() {
		for _, s := range stops {
			s()
		}
		cancel()
		if err := g.Wait(); err != nil {
			t.Errorf("background loops: %v", err)
		}
		_ = boot.CloseAll(context.Background(), svc)
	})
	t.Cleanup(r.stop)
	return r
}

// answer is a response with its complete body.
type answer struct {
	status int
	header http.Header
	text   string
	json   map[string]any
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.text) }

// code returns the code in an error response.
func (a answer) code() string {
	e, _ := a.json["error"].(map[string]any)
	code, _ := e["code"].(string)
	return code
}

// fields maps the fields in a validation error to their codes.
func (a answer) fields() map[string]string {
	out := map[string]string{}
	e, _ := a.json["error"].(map[string]any)
	details, _ := e["details"].([]any)
	for _, d := range details {
		m, _ := d.(map[string]any)
		out[fmt.Sprint(m["field"])] = fmt.Sprint(m["code"])
	}
	return out
}

func (a answer) str(name string) string { s, _ := a.json[name].(string); return s }

func (r *replica) do(listener, method, url string, body any, header ...string) answer {
	r.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			r.t.Fatal(err)
		}
		reader = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, url, reader)
	if err != nil {
		r.t.Fatal(err)
	}
	if reader != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	res, err := r.clients[listener].Do(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, url, err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	a := answer{status: res.StatusCode, header: res.Header, text: string(raw)}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(raw, &a.json); err != nil {
			r.t.Fatalf("%s %s: %v in %s", method, url, err, raw)
		}
	}
	return a
}

// api calls the API with a key.
func (r *replica) api(key, method, path string, body any, header ...string) answer {
	r.t.Helper()
	return r.do("api", method, "http://api.example"+path, body, append([]string{"Authorization", "Bearer " + key}, header...)...)
}

// visit sends a GET request to the short host.
func (r *replica) visit(path string, header ...string) answer {
	r.t.Helper()
	return r.do("redirect", "GET", shortBase+path, nil, append([]string{"User-Agent", "Mozilla/5.0 (X11; Linux x86_64)"}, header...)...)
}

// create creates a link. An error fails the test.
func (r *replica) create(key string, body map[string]any) answer {
	r.t.Helper()
	a := r.api(key, "POST", "/api/v1/links", body)
	if a.status != 201 {
		r.t.Fatalf("create %v: %v", body, a)
	}
	return a
}

func want(t testing.TB, what string, got answer, status int, code string) {
	t.Helper()
	if got.status != status || got.code() != code {
		t.Errorf("%s: %v, want %d %s", what, got, status, code)
	}
}

// eventually waits until a condition is met.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("condition not met after a minute: %s", what)
		}
	}
}
