package standalone

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/services/auth"
	"github.com/linkreel/linkreel/services/console"
	"github.com/linkreel/linkreel/services/events"
	"github.com/linkreel/linkreel/services/links"
	"github.com/linkreel/linkreel/services/localcloud/guard"
	"github.com/linkreel/linkreel/services/standalone/internal/gateway"
	worker "github.com/linkreel/linkreel/services/transcoding-worker"
	"github.com/linkreel/linkreel/services/videos"
)

// buildServices creates the services from the environment and the stack's own settings.
func (s *Stack) buildServices(ctx context.Context) error {
	settings := environment(s.cfg.Env, s.wiring())
	s.openWebhooks(settings)
	s.services = map[string]*boot.Service{}
	for _, part := range []struct {
		name string
		make func() (*boot.Service, error)
	}{
		{"auth", func() (*boot.Service, error) { return build(ctx, settings, auth.New) }},
		{"links", func() (*boot.Service, error) { return build(ctx, settings, links.New) }},
		{"videos", func() (*boot.Service, error) { return build(ctx, settings, videos.New) }},
		{"events", func() (*boot.Service, error) { return build(ctx, settings, s.newEvents) }},
		{"console", func() (*boot.Service, error) { return build(ctx, settings, console.New) }},
		{"transcoding-worker", func() (*boot.Service, error) { return build(ctx, settings, s.newWorker) }},
	} {
		svc, err := part.make()
		if err != nil {
			return err
		}
		s.services[part.name] = svc
		s.onClose(func(ctx context.Context) error { return boot.CloseAll(ctx, svc) })
	}
	return nil
}

// newWorker creates the worker. The worker also runs on a machine without Landlock, but in that
// case the user gets a warning.
func (s *Stack) newWorker(ctx context.Context, cfg worker.Config) (*boot.Service, error) {
	cfg.ReducedJail = func(reason error) {
		s.notices = append(
			s.notices,
			fmt.Sprintf("uploads are decoded in a reduced jail (%v). Upload only files that you trust, or use a kernel with Landlock.", reason),
		)
	}
	return worker.New(ctx, cfg)
}

// wiring returns the settings that tell the services how to reach each other and the stores.
func (s *Stack) wiring() map[string]string {
	internal := func(service string) string { return "http://" + s.internal[service].Addr().String() }
	return map[string]string{
		"LINKREEL_FIRESTORE_PROJECT":  project,
		"LINKREEL_FIRESTORE_ENDPOINT": s.firestore,
		"LINKREEL_LOCALCLOUD_TOKEN":   s.cloudToken,
		"LINKREEL_STORAGE_BUCKET":     bucket,
		"LINKREEL_STORAGE_PUBLIC_URL": s.UploadURL,
		"LINKREEL_STORAGE_ENDPOINT":   s.storageURL(),
		"LINKREEL_STORAGE_KEY_FILE":   s.storageKeyFile(),
		"LINKREEL_REDIS_URL":          s.Redis.Addr(),
		"LINKREEL_REDIS_PASSWORD":     "", // The local Redis has no password and would reject one from the environment.
		"LINKREEL_BASE_URL":           s.BaseURL,
		"LINKREEL_SHORT_BASE_URL":     s.ShortBaseURL,
		"LINKREEL_AUTH_URL":           internal("auth"),
		"LINKREEL_LINKS_URL":          internal("links"),
		"LINKREEL_VIDEOS_URL":         internal("videos"),
		"LINKREEL_EVENTS_URL":         internal("events"),
		"LINKREEL_ADMIN_TOKEN":        s.secrets.AdminToken,
		"LINKREEL_INTERNAL_TOKEN":     s.secrets.InternalToken,
		"LINKREEL_TOKEN_SECRET":       s.secrets.PlaybackKey,
		"LINKREEL_WEBHOOK_SECRET_KEY": s.secrets.WebhookKey,
		"LINKREEL_AUDIT_DIR":          s.cfg.auditDir(s.dir),
		"LINKREEL_SPOOL_DIR":          s.dir.join("spool"),
		"LINKREEL_SCRATCH_DIR":        s.dir.join("scratch"),
		"LINKREEL_PUSH_JWKS_URL":      s.storageURL() + "/oauth2/v3/certs",
		"LINKREEL_PUSH_AUDIENCE":      s.BaseURL + videos.StorageHookPath,
		"LINKREEL_ADMIN_ADDR":         "",
	}
}

// openWebhooks lets webhooks reach receivers on this machine, which local runs need, unless the
// settings forbid it. If other machines can reach the stack, its users could make it call anything
// on this machine and its networks. In that case, webhooks are as restricted as in a cluster,
// unless the settings allow more.
func (s *Stack) openWebhooks(settings map[string]string) {
	if !s.onlyHere(settings) {
		return
	}
	for _, name := range []string{"LINKREEL_WEBHOOK_ALLOW_HTTP", "LINKREEL_WEBHOOK_ALLOW_PRIVATE"} {
		if _, set := settings[name]; !set {
			settings[name] = "true"
		}
	}
}

// onlyHere reports whether only this machine can reach the stack. That is the case if its listeners
// are on loopback and the host in its base URL is localhost or a loopback address.
func (s *Stack) onlyHere(settings map[string]string) bool {
	for _, l := range s.public.base.listeners {
		if a, ok := l.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
			return false
		}
	}
	// Other machines may reach the stack through a proxy on this machine. In that case, the base
	// URL contains a host that they can reach.
	base, err := url.Parse(settings["LINKREEL_BASE_URL"])
	return err == nil && (base.Hostname() == "localhost" || net.ParseIP(base.Hostname()).IsLoopback())
}

// newEvents creates the events service and prevents its webhooks from calling the stack's own
// listeners.
func (s *Stack) newEvents(ctx context.Context, cfg events.Config) (*boot.Service, error) {
	ports, err := s.ownPorts()
	if err != nil {
		return nil, err
	}
	cfg.OwnPorts = ports
	return events.New(ctx, cfg)
}

// ownPorts returns all ports that the stack listens on.
func (s *Stack) ownPorts() (ports []uint16, err error) {
	addrs := []string{s.firestore, s.Redis.Addr(), s.storage.Addr().String()}
	for _, l := range s.internal {
		addrs = append(addrs, l.Addr().String())
	}
	for _, p := range []port{s.public.base, s.public.short, s.public.admin, s.public.upload} {
		for _, l := range p.listeners {
			addrs = append(addrs, l.Addr().String())
		}
	}
	for _, text := range addrs {
		addr, err := netip.ParseAddrPort(text)
		if err != nil {
			return nil, fmt.Errorf("ports of the stack: %w", err)
		}
		ports = append(ports, addr.Port())
	}
	return ports, nil
}

// build creates a service from settings, the way the service's own main does from the environment.
func build[C any](
	ctx context.Context, settings map[string]string, make func(context.Context, C) (*boot.Service, error),
) (*boot.Service, error) {
	var cfg C
	if err := env.ParseWithOptions(&cfg, env.Options{Environment: settings}); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return make(ctx, cfg)
}

// environment returns the settings from the process's environment. wiring overrides the
// environment, and extra overrides both.
func environment(extra, wiring map[string]string) map[string]string {
	out := env.ToMap(os.Environ())
	for _, m := range []map[string]string{wiring, extra} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

// runLoops runs the services' background loops. When the stack stops, the loops stop after the
// listeners because the last requests may need them, and before the stores because the loops flush
// to the stores.
func (s *Stack) runLoops(ctx context.Context) error {
	loops, end := context.WithCancel(context.WithoutCancel(ctx))
	group, loopCtx := errgroup.WithContext(loops)
	for _, svc := range s.services {
		boot.StartLoops(loopCtx, group, svc)
		boot.Warm(loopCtx, svc)
	}
	s.group.Go(func() error { // a failed loop stops the stack
		select {
		case <-loopCtx.Done():
			return group.Wait()
		case <-ctx.Done():
			return nil
		}
	})
	s.onClose(func(context.Context) error { end(); return group.Wait() })
	return nil
}

// serve opens the listeners. It opens the public ones last, so they are the first to close.
func (s *Stack) serve(context.Context) error {
	cloud, err := s.operatorHandler(s.ctx)
	if err != nil {
		return err
	}
	cloud.Handle("/", s.Storage.APIHandler())
	s.serveHTTP(cloud, s.storage)
	s.serveHTTP(s.Storage.PublicHandler(), s.public.upload.listeners...)
	for name, l := range s.internal {
		s.serveFast(s.services[name].Handler("internal"), l)
	}
	s.serveFast(ownCallers(s.withHealth(s.readOnly.fence(s.services["auth"].Handler("admin")))), s.public.admin.listeners...)
	s.serveFast(s.services["links"].Handler("redirect"), s.public.short.listeners...)
	s.serveFast(s.readOnly.fence(gateway.New(map[string]fasthttp.RequestHandler{
		"auth": s.services["auth"].Handler("api"), "links": s.services["links"].Handler("api"), "videos": s.services["videos"].Handler("api"),
		"events": s.services["events"].Handler("api"), "console": s.services["console"].Handler("api"),
	})), s.public.base.listeners...)
	s.onClose(func(context.Context) error { // runs first because long-polling requests would delay the listeners' shutdown
		for _, svc := range s.services {
			for _, stop := range svc.Stopping {
				stop()
			}
		}
		return nil
	})
	return nil
}

func (s *Stack) serveFast(h fasthttp.RequestHandler, listeners ...net.Listener) {
	srv := httpapi.NewServer(h)
	for _, l := range listeners {
		s.group.Go(func() error { return srv.Serve(l) })
	}
	s.onClose(srv.ShutdownWithContext)
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
	s.onClose(func(ctx context.Context) error {
		if err := srv.Shutdown(ctx); err != nil {
			return srv.Close() // do not wait for long uploads; their clients retry
		}
		return nil
	})
}

// ownCallers rejects requests that a web page in a local browser may have caused, either a page on
// another site or a page whose host name resolves to this machine (DNS rebinding). Otherwise, such
// a page could read metrics.
func ownCallers(h fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		switch {
		case !guard.OwnHost(string(ctx.Host())):
			ctx.Error(
				"The operator's listener does not serve this host name. Use localhost or its IP address.",
				fasthttp.StatusMisdirectedRequest,
			)
		case string(ctx.Request.Header.Peek("Sec-Fetch-Site")) == "cross-site":
			ctx.Error("Pages on other sites cannot call the operator's listener.", fasthttp.StatusForbidden)
		default:
			h(ctx)
		}
	}
}

// withHealth adds health, metrics and profiles to the operator's listener. Profiles
// need the operator's token.
func (s *Stack) withHealth(operator fasthttp.RequestHandler) fasthttp.RequestHandler {
	health := fasthttpadaptor.NewFastHTTPHandler(boot.AdminHandler(func() error {
		var errs []error
		for _, svc := range s.services {
			errs = append(errs, svc.NotReady())
		}
		return errors.Join(errs...)
	}, s.AdminToken))
	return func(ctx *fasthttp.RequestCtx) {
		switch path := string(ctx.Path()); {
		case path == "/livez", path == "/readyz", path == "/metrics", path == "/version", strings.HasPrefix(path, "/debug/pprof/"):
			health(ctx)
		default:
			operator(ctx)
		}
	}
}
