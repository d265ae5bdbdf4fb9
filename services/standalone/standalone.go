// Package standalone is all of Linkreel in one process: the four services, the
// embedded Firestore and object storage, a Redis child process, and a gateway
// with the ingress's route table. It is `make run`, the system under test of the
// end-to-end stories, and a small real deployment.
//
// Everything that it acknowledges is in its data directory and survives kill -9.
// One process at a time holds a data directory.
package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/localcloud/firestore"
	"github.com/linkreel/linkreel/libs/localcloud/redisproc"
	"github.com/linkreel/linkreel/libs/localcloud/storage"
	"github.com/linkreel/linkreel/services/auth"
	"github.com/linkreel/linkreel/services/links"
	"github.com/linkreel/linkreel/services/standalone/internal/gateway"
	worker "github.com/linkreel/linkreel/services/transcoding-worker"
	"github.com/linkreel/linkreel/services/videos"
)

// Config says where a stack lives. Everything else that the services can be told
// is read from the environment under its usual name.
type Config struct {
	// PortBase is the first of four ports in a row: base address, short address,
	// operator, uploads. 0 takes any four free ones.
	PortBase int `env:"LINKREEL_PORT_BASE" envDefault:"8080"`
	// DataDir holds all data.
	DataDir string `env:"LINKREEL_DATA_DIR" envDefault:".local/data"`
	// StackFile tells scripts where the stack is; it is there exactly while the
	// stack serves. Empty writes none.
	StackFile string `env:"-"`
	// Log takes the services' JSON lines; nil is a file in DataDir.
	Log io.Writer `env:"-"`
	// LogLevel is debug, info, warn or error.
	LogLevel slog.Level `env:"LINKREEL_LOG_LEVEL" envDefault:"info"`
	// Env adds or replaces settings of the services, by variable name.
	Env map[string]string `env:"-"`
}

// Stack is a running system.
type Stack struct {
	BaseURL      string            `json:"baseUrl"`
	ShortBaseURL string            `json:"shortBaseUrl"`
	AdminURL     string            `json:"adminUrl"`
	AdminToken   string            `json:"adminToken"`
	UploadURL    string            `json:"uploadUrl"`
	Keys         map[string]string `json:"keys"` // a demo key for each plan

	// Firestore, Storage and Redis are the running servers, for tests that look
	// behind the services or make a dependency fail.
	Firestore *firestore.Server `json:"-"`
	Storage   *storage.Server   `json:"-"`
	Redis     *redisproc.Server `json:"-"`

	ctx     context.Context // ends when the stack stops
	stop    context.CancelFunc
	group   *errgroup.Group
	closers []func(context.Context) error // in the order of closing
	once    sync.Once
	err     error
}

// project names the local Google Cloud project; bucket its bucket.
const (
	project = "linkreel-local"
	bucket  = "linkreel-media"
)

// Start brings a stack up and returns when it serves. It stops when ctx ends;
// Close waits for that.
func Start(ctx context.Context, cfg Config) (_ *Stack, err error) {
	dir, err := openDataDir(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	group, gctx := errgroup.WithContext(ctx)
	s := &Stack{ctx: gctx, stop: stop, group: group}
	// A start that fails half way closes what it opened, the last first.
	var opened []func()
	defer func() {
		if err != nil && len(s.closers) == 0 { // later, Close does it
			stop()
			for i := len(opened) - 1; i >= 0; i-- {
				opened[i]()
			}
			dir.close()
		}
	}()
	ports, err := listenAll(ctx, cfg.PortBase)
	if err != nil {
		return nil, err
	}
	base, short, admin, upload := ports[0], ports[1], ports[2], ports[3]
	for _, p := range ports {
		opened = append(opened, p.close)
	}
	// The data directory and the ports are ours, so a file that is there was left
	// by a killed stack and would mislead.
	if err := removeStackFile(cfg.StackFile); err != nil {
		return nil, err
	}
	secrets, err := dir.loadSecrets()
	if err != nil {
		return nil, err
	}
	s.BaseURL, s.ShortBaseURL, s.AdminURL, s.UploadURL, s.AdminToken = base.url(), short.url(), admin.url(), upload.url(), secrets.AdminToken
	if err := setLog(cfg, dir); err != nil {
		return nil, err
	}
	flush, err := boot.Telemetry(ctx, "linkreel")
	if err != nil {
		return nil, err
	}

	s.Redis, err = redisproc.Start(ctx, redisproc.Options{Dir: dir.join("redis")})
	if err != nil {
		return nil, err
	}
	opened = append(opened, func() { _ = s.Redis.Stop() })
	indexes, err := firestore.ParseIndexes(auth.Indexes, links.Indexes, videos.Indexes, worker.Indexes)
	if err != nil {
		return nil, fmt.Errorf("indexes: %w", err)
	}
	s.Firestore, err = firestore.Open(firestore.Options{Path: dir.join("firestore.db"), Indexes: indexes})
	if err != nil {
		return nil, err
	}
	opened = append(opened, func() { _ = s.Firestore.Close() })
	firestoreAddr, err := s.Firestore.Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	api, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	opened = append(opened, func() { _ = api.Close() })
	apiURL := "http://" + api.Addr().String()
	s.Storage, err = storage.Open(storage.Options{
		Dir: dir.join("objects"), Buckets: []string{bucket}, PublicURL: s.UploadURL, APIURL: apiURL,
		// Any page may play and upload by a signed address, which is its own
		// credential; embeds live on other people's hosts.
		CORS: []storage.CORS{{Origin: []string{"*"}, Method: []string{"GET", "HEAD", "PUT", "POST"},
			ResponseHeader: []string{"Content-Type", "Content-Range", "Content-Length", "Range", "ETag", "Location", "x-goog-resumable"}, MaxAgeSeconds: 3600}},
		Notify: &storage.Notify{URL: s.BaseURL + videos.StorageHookPath, Events: []string{"OBJECT_FINALIZE"}, Subscription: "projects/" + project + "/subscriptions/uploads"},
	})
	if err != nil {
		return nil, err
	}
	opened = append(opened, func() { _ = s.Storage.Close() })
	keyFile := dir.join("storage-key.json")
	if err := os.WriteFile(keyFile, s.Storage.ServiceAccountKey(), 0o600); err != nil {
		return nil, fmt.Errorf("storage key: %w", err)
	}
	internal := map[string]net.Listener{} // by service
	for _, name := range []string{"auth", "links", "videos"} {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		opened = append(opened, func() { _ = l.Close() })
		internal[name] = l
	}

	settings := environment(cfg.Env, map[string]string{
		"LINKREEL_FIRESTORE_PROJECT":  project,
		"LINKREEL_FIRESTORE_ENDPOINT": firestoreAddr.String(),
		"LINKREEL_STORAGE_BUCKET":     bucket,
		"LINKREEL_STORAGE_PUBLIC_URL": s.UploadURL,
		"LINKREEL_STORAGE_ENDPOINT":   apiURL,
		"LINKREEL_STORAGE_KEY_FILE":   keyFile,
		"LINKREEL_REDIS_URL":          s.Redis.Addr(),
		"LINKREEL_BASE_URL":           s.BaseURL,
		"LINKREEL_SHORT_BASE_URL":     s.ShortBaseURL,
		"LINKREEL_AUTH_URL":           "http://" + internal["auth"].Addr().String(),
		"LINKREEL_LINKS_URL":          "http://" + internal["links"].Addr().String(),
		"LINKREEL_VIDEOS_URL":         "http://" + internal["videos"].Addr().String(),
		"LINKREEL_ADMIN_TOKEN":        secrets.AdminToken,
		"LINKREEL_INTERNAL_TOKEN":     secrets.InternalToken,
		"LINKREEL_TOKEN_SECRET":       secrets.PlaybackKey,
		"LINKREEL_SPOOL_DIR":          dir.join("spool"),
		"LINKREEL_SCRATCH_DIR":        dir.join("scratch"),
		"LINKREEL_PUSH_JWKS_URL":      apiURL + "/oauth2/v3/certs",
		"LINKREEL_PUSH_AUDIENCE":      s.BaseURL + videos.StorageHookPath,
		"LINKREEL_ADMIN_ADDR":         "",
	})
	services := map[string]*boot.Service{}
	for _, part := range []struct {
		name string
		make func() (*boot.Service, error)
	}{
		{"auth", func() (*boot.Service, error) { return build(gctx, settings, auth.New) }},
		{"links", func() (*boot.Service, error) { return build(gctx, settings, links.New) }},
		{"videos", func() (*boot.Service, error) { return build(gctx, settings, videos.New) }},
		{"transcoding-worker", func() (*boot.Service, error) { return build(gctx, settings, worker.New) }},
	} {
		svc, err := part.make()
		if err != nil {
			return nil, err
		}
		services[part.name] = svc
		opened = append(opened, func() { _ = boot.CloseAll(context.Background(), svc) })
	}

	s.serveFast(gateway.New(map[string]fasthttp.RequestHandler{
		"auth": services["auth"].Handler("api"), "links": services["links"].Handler("api"), "videos": services["videos"].Handler("api"),
	}), base.listeners...)
	s.serveFast(services["links"].Handler("redirect"), short.listeners...)
	s.serveFast(withHealth(services["auth"].Handler("admin"), services), admin.listeners...)
	for name, l := range internal {
		s.serveFast(services[name].Handler("internal"), l)
	}
	s.serveHTTP(s.Storage.PublicHandler(), upload.listeners...)
	s.serveHTTP(s.Storage.APIHandler(), api)
	s.group.Go(func() error { return s.superviseRedis() })
	loops, endLoops := context.WithCancel(context.WithoutCancel(gctx))
	loopGroup, loopCtx := errgroup.WithContext(loops)
	for _, svc := range services {
		boot.StartLoops(loopCtx, loopGroup, svc)
		boot.Warm(loopCtx, svc)
	}
	s.group.Go(func() error { // a loop that fails stops the stack
		select {
		case <-loopCtx.Done():
			return loopGroup.Wait()
		case <-gctx.Done():
			return nil
		}
	})
	// After the listeners: loops hand back and flush, then the services' clients,
	// then what they were clients of.
	s.closers = append(s.closers,
		func(context.Context) error { endLoops(); return loopGroup.Wait() },
		func(ctx context.Context) error {
			var errs []error
			for _, name := range []string{"transcoding-worker", "videos", "links", "auth"} {
				errs = append(errs, boot.CloseAll(ctx, services[name]))
			}
			return errors.Join(errs...)
		},
		func(context.Context) error { return s.Storage.Close() },
		func(context.Context) error { return s.Firestore.Close() },
		func(context.Context) error { return s.Redis.Stop() },
		flush,
		func(context.Context) error { dir.close(); return nil },
	)
	if err := s.demo(ctx, firestoredb.Config{Project: project, Endpoint: settings["LINKREEL_FIRESTORE_ENDPOINT"]}, dir, secrets); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if cfg.StackFile != "" {
		if err := writeStackFile(cfg.StackFile, s); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.closers = append([]func(context.Context) error{func(context.Context) error { return removeStackFile(cfg.StackFile) }}, s.closers...)
	}
	return s, nil
}

func writeStackFile(path string, s *Stack) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("stack file: %w", err)
	}
	return writeJSON(path, s)
}

func removeStackFile(path string) error {
	if path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("stack file: %w", err)
	}
	return nil
}

// build makes a service from settings, as its own main makes it from the
// environment.
func build[C any](ctx context.Context, settings map[string]string, make func(context.Context, C) (*boot.Service, error)) (*boot.Service, error) {
	var cfg C
	if err := env.ParseWithOptions(&cfg, env.Options{Environment: settings}); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return make(ctx, cfg)
}

// environment is the process's, under extra, under the wiring of the stack.
func environment(extra, wiring map[string]string) map[string]string {
	out := env.ToMap(os.Environ())
	for _, m := range []map[string]string{wiring, extra} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

func setLog(cfg Config, dir *dataDir) error {
	w := cfg.Log
	if w == nil {
		f, err := os.OpenFile(dir.join("linkreel.log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return fmt.Errorf("log: %w", err)
		}
		w = f
	}
	slog.SetDefault(boot.NewLogger(w, cfg.LogLevel))
	return nil
}

func (s *Stack) serveFast(h fasthttp.RequestHandler, listeners ...net.Listener) {
	srv := httpapi.NewServer("", h)
	for _, l := range listeners {
		s.group.Go(func() error { return srv.Serve(l) })
	}
	s.closers = append(s.closers, srv.ShutdownWithContext)
}

func (s *Stack) serveHTTP(h http.Handler, listeners ...net.Listener) {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 75 * time.Second}
	for _, l := range listeners {
		s.group.Go(func() error {
			if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	s.closers = append(s.closers, func(ctx context.Context) error {
		if err := srv.Shutdown(ctx); err != nil {
			return srv.Close() // a long upload does not hold the stop; its client repeats it
		}
		return nil
	})
}

// superviseRedis starts Redis again when it dies, as a cluster would.
func (s *Stack) superviseRedis() error {
	for {
		select {
		case <-s.ctx.Done():
			return nil
		case <-s.Redis.Done():
		}
		slog.Warn("redis ended; starting it again")
		select {
		case <-s.ctx.Done():
			return nil
		case <-time.After(500 * time.Millisecond):
		}
		if err := s.Redis.Restart(s.ctx); err != nil && s.ctx.Err() == nil {
			slog.Warn("redis does not start", "error", err)
		}
	}
}

// Done is closed when the stack stops, by itself or by its context.
func (s *Stack) Done() <-chan struct{} { return s.ctx.Done() }

// Close stops the stack in order and returns what went wrong, now or earlier.
func (s *Stack) Close() error {
	s.once.Do(func() {
		failed := context.Cause(s.ctx)
		s.stop()
		ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
		defer cancel()
		var errs []error
		if failed != nil && !errors.Is(failed, context.Canceled) {
			errs = append(errs, failed)
		}
		for _, c := range s.closers {
			errs = append(errs, c(ctx))
		}
		s.err = errors.Join(append(errs, s.group.Wait())...)
	})
	return s.err
}

// withHealth adds health and metrics to the operator's listener.
func withHealth(operator fasthttp.RequestHandler, services map[string]*boot.Service) fasthttp.RequestHandler {
	health := fasthttpadaptor.NewFastHTTPHandler(boot.AdminHandler(func() error {
		var errs []error
		for _, svc := range services {
			errs = append(errs, svc.NotReady())
		}
		return errors.Join(errs...)
	}))
	return func(ctx *fasthttp.RequestCtx) {
		switch path := string(ctx.Path()); {
		case path == "/livez", path == "/readyz", path == "/metrics", path == "/version", strings.HasPrefix(path, "/debug/pprof/"):
			health(ctx)
		default:
			operator(ctx)
		}
	}
}
