package videos_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/apikey/authtest"
	"github.com/linkreel/linkreel/libs/backing"
	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/tags"
	"github.com/linkreel/linkreel/libs/tenant/wire"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
	"github.com/linkreel/linkreel/services/localcloud/storage"
	"github.com/linkreel/linkreel/services/videos"
)

// world is the service with real servers for all its dependencies. The test acts as the
// worker.
type world struct {
	t       *testing.T
	base    string
	uploads string
	push    string // storage's JSON API, which also publishes the keys that verify push tokens
	client  *http.Client
	svc     *boot.Service
	store   *storage.Server
	fire    *firestore.Server
	jobs    *jobs.Store
	bucket  *objectstore.Store
	clock   *clock
	keys    map[string]string // account → key
	apikeys *authtest.Auth
	disk    string // storage's directory
	redis   string
	db      *firestoredb.DB
	auth    *wire.Client // the client that auth uses to call the service
	cfg     videos.Config
}

// TestMain discards the services' logs. In a process started by a test, it runs the service.
func TestMain(m *testing.M) {
	if os.Getenv("LINKREEL_TEST_PROCESS") != "" {
		cfg, err := env.ParseAs[videos.Config]()
		if err != nil {
			panic(err)
		}
		boot.Main("videos", cfg.Config.Config, func(ctx context.Context) (*boot.Service, error) { return videos.New(ctx, cfg) })
		return
	}
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// clock is the system clock plus however far a test has advanced it.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

const bucketName = "media"

type option func(*videos.Config, *storage.Options)

func newWorld(t *testing.T, options ...option) *world {
	t.Helper()
	w := &world{t: t, clock: &clock{}, keys: map[string]string{}, apikeys: authtest.Start(t), client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		return l
	}
	api, internal := listen(), listen()
	w.base = "http://" + api.Addr().String()
	var cfg videos.Config
	cloud := cloudtest.Start(t, cloudtest.Options{
		Indexes: [][]byte{videos.Indexes(), tags.Indexes, jobs.Indexes, idempotency.Indexes, outbox.Indexes}, Complete: true, Rare: []string{"installation.dataAt", "installation.restoredAt", "videoAccounts.lookAt"}, Clock: w.clock.Now, Buckets: []string{bucketName},
		Storage: func(objects *storage.Options) {
			objects.CORS = []storage.CORS{{Origin: []string{"*"}, Method: []string{"GET", "HEAD", "PUT"}, ResponseHeader: []string{"Content-Type", "Content-Range", "Range"}}}
			w.uploads, w.push, w.disk = objects.PublicURL, objects.APIURL, objects.Dir
			cfg = w.config()
			for _, o := range options {
				o(&cfg, objects)
			}
		},
	})
	w.fire, w.store = cloud.Firestore, cloud.Storage
	cfg.Firestore.Endpoint = cloud.Endpoint
	cfg.Storage = objectstore.Config{Bucket: bucketName, PublicURL: w.uploads, Endpoint: w.push, Key: cloud.Key, Clock: w.clock.Now}
	if cfg.Redis.URL == "" {
		cfg.Redis.URL = redistest.Start(t)
	}
	w.redis = cfg.Redis.URL
	for account, plan := range map[string]identity.Plan{"acc_a": identity.Creator, "acc_b": identity.Creator, "acc_free": identity.Free} {
		w.keys[account] = w.apikeys.Key(t, account, plan)
	}

	w.cfg = cfg
	var err error
	w.svc, err = videos.New(t.Context(), cfg)
	must(t, err)
	fast := httpapi.NewServer(w.svc.Handler("api"))
	go func() { _ = fast.Serve(api) }()
	inside := httpapi.NewServer(w.svc.Handler("internal"))
	go func() { _ = inside.Serve(internal) }()
	w.auth = wire.NewClient("http://"+internal.Addr().String(), authtest.Token)

	db, err := firestoredb.Open(t.Context(), cfg.Firestore)
	must(t, err)
	w.db, w.jobs = db, jobs.New(db, w.clock.Now)
	meet(t, w.svc)
	_, err = db.Identity(t.Context())
	must(t, err)
	w.bucket, err = objectstore.Open(t.Context(), cfg.Storage)
	must(t, err)
	t.Cleanup(func() {
		ctx := context.Background()
		w.auth.Close()
		_ = fast.Shutdown()
		_ = inside.Shutdown()
		_ = boot.CloseAll(ctx, w.svc)
		_ = w.bucket.Close()
		_ = db.Close()
	})
	return w
}

// meet makes the service's first calls to its database, as [boot.Warm] does, so that tests do not
// count them. If the database is down, the service will make these calls later.
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

// replica starts a second service replica on the same servers.
func (w *world) replica() *world {
	w.t.Helper()
	svc, err := videos.New(w.t.Context(), w.cfg)
	must(w.t, err)
	l, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	must(w.t, err)
	srv := httpapi.NewServer(svc.Handler("api"))
	go func() { _ = srv.Serve(l) }()
	w.t.Cleanup(func() {
		_ = srv.Shutdown()
		_ = boot.CloseAll(context.Background(), svc)
	})
	meet(w.t, svc)
	other := *w
	other.svc, other.base = svc, "http://"+l.Addr().String()
	return &other
}

// config returns a production-like configuration with limits that tests can reach.
func (w *world) config() videos.Config {
	return videos.Config{
		Config: backing.Config{
			Firestore: firestoredb.Config{Project: cloudtest.Project, Timeout: 10 * time.Second}, Now: w.clock.Now,
		},
		Public:       backing.Public{BaseURL: w.base},
		Auth:         backing.Auth{AuthURL: w.apikeys.URL, InternalToken: authtest.Token},
		TokenSecrets: []string{hex.EncodeToString(bytes.Repeat([]byte{7}, 32))},
		PushAudience: w.base + videos.StorageHookPath, PushCertsURL: w.push + "/oauth2/v3/certs",
		UploadTTL: 24 * time.Hour, UploadMaxAge: 48 * time.Hour, MaxBytes: 1 << 20, MaxDuration: time.Hour, MaxSide: 8192, MaxPixels: 36_000_000,
		WatchTTL: 10 * time.Minute, OwnerTTL: 6 * time.Hour, UnlockTTL: 12 * time.Hour, PasswordHashes: 2, PasswordQueue: 8,
		RecordingIdle: 5 * time.Minute, SweepEvery: time.Hour, JanitorEvery: time.Hour, JanitorMost: 100, SourceRetention: 168 * time.Hour,
	}
}

// loop runs one of the service's loops until the test ends.
func (w *world) loop(name string) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	for _, l := range w.svc.Loops {
		if l.Name == name {
			go func() { defer close(done); _ = l.Run(ctx) }()
			w.t.Cleanup(func() { cancel(); <-done })
			return
		}
	}
	w.t.Fatalf("the service does not have a loop named %q", name)
}

// answer is a response and its whole body.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   string
}

func (a answer) json() map[string]any {
	a.t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(a.body), &m); err != nil {
		a.t.Fatalf("response %d with body %q is not valid JSON: %v", a.status, a.body, err)
	}
	return m
}

func (a answer) want(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("got status %d, want %d; body %.600s", a.status, status, a.body)
	}
	return a
}

func (a answer) code() string {
	e, _ := a.json()["error"].(map[string]any)
	code, _ := e["code"].(string)
	return code
}

type setting func(*http.Request)

func header(k, v string) setting { return func(r *http.Request) { r.Header.Set(k, v) } }

func (w *world) send(method, url, body string, settings ...setting) answer {
	w.t.Helper()
	if strings.HasPrefix(url, "/") {
		url = w.base + url
	}
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	must(w.t, err)
	for _, s := range settings {
		s(req)
	}
	resp, err := w.client.Do(req)
	must(w.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(w.t, err)
	return answer{w.t, resp.StatusCode, resp.Header, string(b)}
}

// api sends a request as account acc_a.
func (w *world) api(method, path, body string, settings ...setting) answer {
	w.t.Helper()
	return w.as("acc_a", method, path, body, settings...)
}

func (w *world) as(account, method, path, body string, settings ...setting) answer {
	w.t.Helper()
	settings = append([]setting{header("Authorization", "Bearer "+w.keys[account]), header("Content-Type", "application/json")}, settings...)
	return w.send(method, "/api/v1/videos"+path, body, settings...)
}

// made is a video created through the API.
type made struct{ id, slug, upload, share, path string }

func (w *world) create(body string) made {
	w.t.Helper()
	m := w.api(http.MethodPost, "", body).want(201).json()
	v := made{id: m["videoId"].(string), slug: m["slug"].(string), upload: m["uploadUrl"].(string), share: m["shareUrl"].(string)}
	v.path = "/v/" + v.slug
	return v
}

func (w *world) get(id string) map[string]any {
	w.t.Helper()
	return w.api(http.MethodGet, "/"+id, "").want(200).json()
}

func (w *world) put(v made, content string) {
	w.t.Helper()
	w.send(http.MethodPut, v.upload, content, header("Content-Type", "video/mp4")).want(200)
}

// job waits for a video's job. A loop creates the job after it has stored status "processing".
func (w *world) job(id string) (r transcode.Record) {
	w.t.Helper()
	o, err := w.bucket.Stat(w.t.Context(), "uploads/"+id+"/source")
	must(w.t, err)
	eventually(w.t, "a job for "+id, func() bool {
		r, err = w.jobs.Get(w.t.Context(), transcode.JobID(id, o.Generation))
		return err == nil
	})
	return r
}

// work acts as a worker: it claims the job, writes objects and publishes the outcome.
func (w *world) work(id string, change func(*transcode.Outcome)) *transcode.Outcome {
	w.t.Helper()
	ctx := w.t.Context()
	job := w.job(id)
	r, err := w.jobs.Claim(ctx, job.ID, "hand", time.Minute)
	must(w.t, err)
	prefix := transcode.Prefix(id, job.Generation, r.Attempt)
	o := outcome(prefix)
	if change != nil {
		change(o)
	}
	for _, name := range o.Objects() {
		w.object(name, "bytes of "+name)
	}
	must(w.t, w.jobs.Publish(ctx, jobs.Token{JobID: job.ID, Attempt: r.Attempt}, o))
	return o
}

func (w *world) object(name, content string) {
	w.t.Helper()
	_, err := w.bucket.Upload(w.t.Context(), name, strings.NewReader(content), objectstore.UploadOptions{ContentType: "application/octet-stream"})
	must(w.t, err)
}

func outcome(prefix string) *transcode.Outcome {
	segments := transcode.Segments{
		{Range: transcode.Range{Offset: 1000, Size: 5000}, Duration: 6},
		{Range: transcode.Range{Offset: 6000, Size: 4000}, Duration: 4.5},
	}
	rendition := func(name string, width, height int) transcode.Rendition {
		return transcode.Rendition{
			Name: name, Object: prefix + name + ".mp4", Size: 10_000, Width: width, Height: height, FrameRate: 30, Codecs: "avc1.64001f",
			Bandwidth: 10 * width * height / 10, AverageBandwidth: 5 * width * height / 10, Init: transcode.Range{Size: 1000}, Segments: segments,
		}
	}
	sound := rendition("audio", 0, 0)
	sound.Codecs, sound.Bandwidth = "mp4a.40.2", 128_000
	return &transcode.Outcome{
		Version: 1, Final: true, Path: transcode.PathTranscode, Prefix: prefix, Duration: 10.5, Width: 1280, Height: 720, FrameRate: 30, HasAudio: true,
		Renditions: []transcode.Rendition{rendition("720p", 1280, 720), rendition("360p", 640, 360)}, Audio: &sound,
		Poster: prefix + "poster.jpg", PosterWidth: 1280, PosterHeight: 720, Download: prefix + "download.mp4",
		Storyboard: &transcode.Storyboard{Objects: []string{prefix + "storyboard-0.jpg"}, Columns: 5, Rows: 5, TileWidth: 160, TileHeight: 90, Interval: 1, Count: 11},
	}
}

// ready creates, uploads and transcodes a video.
func (w *world) ready(body string) made {
	w.t.Helper()
	v := w.create(body)
	w.put(v, "a film")
	if s := w.get(v.id)["status"]; s != "processing" {
		w.t.Fatalf("status after the upload = %v, want processing", s)
	}
	w.work(v.id, nil)
	if s := w.get(v.id)["status"]; s != "ready" {
		w.t.Fatalf("status after the job = %v, want ready", s)
	}
	return v
}

// objects returns the names of the objects in storage.
func (w *world) objects(prefix string) []string {
	w.t.Helper()
	var names []string
	for o, err := range w.bucket.List(w.t.Context(), prefix) {
		must(w.t, err)
		names = append(names, o.Name)
	}
	return names
}

// browser returns a copy of w with a client that keeps cookies.
func (w *world) browser() *world {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	must(w.t, err)
	b := *w
	b.client = &http.Client{Jar: jar, CheckRedirect: w.client.CheckRedirect}
	return &b
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("condition not met within a minute: %s", what)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// quota changes an account's quotas. Call it before the account's first request.
func (w *world) quota(account string, edit func(*identity.Quotas)) {
	w.apikeys.Change(account, func(r *apikey.Record) { edit(&r.Quotas) })
}
