// Package boot runs a service: its listeners, background loops, health and telemetry. Its main task
// is to stop them in the right order.
//
// No accepted work is lost when a service stops. First the service reports that it is not ready and
// waits until load balancers have noticed (Drain). Then it stops accepting requests and finishes
// in-flight ones. Then each loop stops and releases or flushes its work. Then the stores are
// closed. Telemetry is flushed last.
package boot

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/httpserver"
	"github.com/linkreel/linkreel/libs/outage"
)

// Config is the configuration that all services share. Services embed it in their own.
type Config struct {
	// AdminAddr is the address to listen on for /livez, /readyz, /metrics and /version. If it is
	// empty, these paths are not served.
	AdminAddr string `env:"LINKREEL_ADMIN_ADDR" envDefault:":9090"`
	// ProfileToken is the bearer token for /debug/pprof/ on AdminAddr. If it is empty, profiles are
	// off.
	ProfileToken string `env:"LINKREEL_PROFILE_TOKEN"`
	// Drain is how long a stopping service keeps serving while it reports that it is not ready. It
	// should be longer than load balancers take to notice.
	Drain time.Duration `env:"LINKREEL_DRAIN" envDefault:"5s"`
	// Grace is how long open requests, jobs and flushes have to finish after the drain.
	// Drain and Grace together should be shorter than the pod's termination grace period.
	Grace time.Duration `env:"LINKREEL_GRACE" envDefault:"20s"`
	// LogLevel is debug, info, warn or error.
	LogLevel slog.Level `env:"LINKREEL_LOG_LEVEL" envDefault:"info"`
	// LogFormat is "json" or "google". "google" writes the same lines with the field names that
	// Cloud Logging expects.
	LogFormat LogFormat `env:"LINKREEL_LOG_FORMAT" envDefault:"json"`
	// LogAccess selects the requests that are logged: "all", "errors" (server errors, requests that
	// take a second or more, and one in a hundred of the others) or "none".
	LogAccess httpserver.AccessLog `env:"LINKREEL_LOG_ACCESS" envDefault:"all"`
}

// Service is a configured service. [Run] runs it.
type Service struct {
	Name    string
	Servers []Server
	Loops   []Loop
	// WarmUp lists a warm-up call to each store, and to each service that requests need, so no
	// request waits for a connection. The service becomes ready when each call has succeeded.
	// Failed calls are retried for up to half a minute. Then the service becomes ready anyway
	// because it can work without its dependencies.
	WarmUp []Call
	// Stopping lists functions that are called after the drain, before the service waits for open
	// requests. For example, one of them may close the service's long polls.
	Stopping []func()
	// Close lists the functions that close stores and clients after the loops have stopped. They
	// are called in reverse order because a later dependency may use an earlier one.
	Close []func(ctx context.Context) error

	warm atomic.Bool
}

// Server is one listener and its handler. Its name is unique in the service: "api",
// "redirect", "admin", "internal".
type Server struct {
	Name    string
	Addr    string
	Handler fasthttp.RequestHandler
	// TLS is set if the listener uses TLS. A handshake has the same time limit as reading a
	// request.
	TLS *tls.Config
}

// Loop is background work that runs until its context is done and then releases its resources. If a
// loop returns an error before that, the service stops.
type Loop struct {
	Name string
	Run  func(ctx context.Context) error
}

// Call is a warm-up call to one of the service's dependencies.
type Call struct {
	To string
	Do func(ctx context.Context) error
}

const (
	// warmUpTime bounds the warm-up calls. A service that cannot reach its stores becomes ready
	// after this time. It is longer than a cluster needs to allow connections from a new pod.
	// Otherwise, during an upgrade that replaces all pods at once, pods would become ready before
	// they reach a store, and their requests would fail.
	warmUpTime = 30 * time.Second
	// warmUpTry bounds one attempt because a dropped packet never gets a response.
	warmUpTry = 5 * time.Second
	// warmUpPause is the pause between attempts.
	warmUpPause = 250 * time.Millisecond
)

// Handler returns the handler for the server with this name, or nil if there is no such server.
func (s *Service) Handler(name string) fasthttp.RequestHandler {
	for _, srv := range s.Servers {
		if srv.Name == name {
			return srv.Handler
		}
	}
	return nil
}

// Main is the body of a service's main function. It handles signals, sets the memory limit, sets up
// telemetry, runs the service and sets the exit code. It calls build after telemetry is set up.
func Main(name string, cfg Config, build func(ctx context.Context) (*Service, error)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	slog.SetDefault(NewLogger(os.Stdout, cfg.LogLevel, cfg.LogFormat))
	slog.Info("starting", "service", name, "version", Version())
	boundMemory()
	if err := run(ctx, name, cfg, build); err != nil {
		slog.Error("stopped", "service", name, "version", Version(), "error", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has run; nothing else is deferred
	}
}

func run(ctx context.Context, name string, cfg Config, build func(ctx context.Context) (*Service, error)) error {
	flush, err := Telemetry(ctx, name)
	if err != nil {
		return err
	}
	svc, err := build(ctx)
	if err == nil {
		err = Run(ctx, cfg, svc)
	}
	// The process is exiting, so do not wait any longer for telemetry that cannot be delivered.
	flushCtx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(err, flush(flushCtx))
}

// Run serves svc until ctx is done and returns after a graceful shutdown.
func Run(ctx context.Context, cfg Config, svc *Service) error {
	var stopping atomic.Bool
	listeners := make([]net.Listener, len(svc.Servers))
	for i, srv := range svc.Servers {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", srv.Addr)
		if err != nil {
			return fmt.Errorf("%s: open the listener %s: %w", svc.Name, srv.Name, err)
		}
		if srv.TLS != nil {
			l = tls.NewListener(l, srv.TLS)
		}
		listeners[i] = l
	}
	g, gctx := errgroup.WithContext(context.WithoutCancel(ctx))
	admin, err := serveAdmin(ctx, cfg, svc, &stopping)
	if err != nil {
		return err
	}
	servers := make([]*fasthttp.Server, len(svc.Servers))
	for i, srv := range svc.Servers {
		servers[i] = httpserver.New(srv.Handler)
		if srv.TLS != nil {
			// Logging each failed handshake would let anyone fill the log.
			servers[i].Logger = discard{}
		}
		g.Go(func() error { return servers[i].Serve(listeners[i]) })
		slog.Info("listening", "service", svc.Name, "server", srv.Name, "addr", listeners[i].Addr().String())
	}
	loopCtx, endLoops := context.WithCancel(gctx)
	defer endLoops()
	StartLoops(loopCtx, g, svc)
	Warm(loopCtx, svc)

	select {
	case <-ctx.Done():
	case <-gctx.Done(): // a listener or loop failed
	}
	stopping.Store(true)
	if ctx.Err() != nil {
		Stopping(svc.Name, context.Cause(ctx), "drain", cfg.Drain.String())
		outage.Pause(gctx, cfg.Drain)
	} else {
		Stopping(svc.Name, context.Cause(gctx))
	}
	for _, stop := range svc.Stopping {
		stop()
	}
	graceCtx, cancel := context.WithTimeout(context.Background(), cfg.Grace)
	defer cancel()
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.ShutdownWithContext(graceCtx))
	}
	endLoops()
	errs = append(errs, within(graceCtx, svc.Name+": loops", g.Wait))
	errs = append(errs, CloseAll(graceCtx, svc))
	if admin != nil {
		errs = append(errs, admin.Shutdown(graceCtx))
	}
	return errors.Join(errs...)
}

// Stopping logs that the process is stopping and why: a signal or a failure. more lists additional
// keys and values for the log line.
func Stopping(name string, reason error, more ...any) {
	slog.Info("stopping", slices.Concat([]any{"service", name, "version", Version(), "reason", fmt.Sprint(reason)}, more)...)
}

// discard is a logger for fasthttp that drops all lines.
type discard struct{}

func (discard) Printf(string, ...any) {}

// StartLoops runs the service's loops in g until ctx is done.
func StartLoops(ctx context.Context, g *errgroup.Group, svc *Service) {
	for _, loop := range svc.Loops {
		g.Go(func() error {
			if err := loop.Run(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %s: %w", svc.Name, loop.Name, err)
			}
			return nil
		})
	}
}

// CloseAll closes the service's stores and clients, in reverse order.
func CloseAll(ctx context.Context, svc *Service) error {
	var errs []error
	for _, c := range slices.Backward(svc.Close) {
		errs = append(errs, c(ctx))
	}
	return errors.Join(errs...)
}

// CloseWith registers fn to be called when the service stops, before all functions that
// were registered earlier.
func (s *Service) CloseWith(fn func() error) {
	s.Close = append(s.Close, func(context.Context) error { return fn() })
}

// Abandon is deferred by the function that creates a service. If *err is set, it closes the stores
// and clients that are already open, and adds the service's name to the error.
func (s *Service) Abandon(ctx context.Context, err *error) {
	if *err != nil {
		*err = errors.Join(fmt.Errorf("%s: %w", s.Name, *err), CloseAll(ctx, s))
	}
}

// Warm makes the service's warm-up calls in the background. The service becomes ready when they
// have succeeded or timed out.
func Warm(ctx context.Context, svc *Service) {
	ctx, cancel := context.WithTimeout(ctx, warmUpTime)
	var calls sync.WaitGroup
	for _, c := range svc.WarmUp {
		calls.Go(func() {
			if err := c.untilAnswered(ctx); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
				slog.WarnContext(ctx, "warm-up call failed; becoming ready without it", "service", svc.Name, "to", c.To, "error", err)
			}
		})
	}
	go func() {
		defer cancel()
		calls.Wait()
		svc.warm.Store(true)
	}()
}

// Reach returns a warm-up call to another service in the installation. The call connects to the
// URL, such as "http://auth:8090", and closes the connection.
func Reach(to, address string) Call {
	return Call{To: to, Do: func(ctx context.Context) error {
		u, err := url.Parse(address)
		if err != nil {
			return err
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), u.Scheme)))
		if err != nil {
			return err
		}
		return conn.Close()
	}}
}

// untilAnswered repeats the call until it succeeds or ctx is done, and returns the last error.
func (c Call) untilAnswered(ctx context.Context) error {
	for {
		try, cancel := context.WithTimeout(ctx, warmUpTry)
		err := c.Do(try)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		outage.Pause(ctx, warmUpPause)
	}
}

// NotReady returns the reason why the service should not receive requests, or nil if it is ready.
func (s *Service) NotReady() error {
	if !s.warm.Load() {
		return fmt.Errorf("%s: connecting", s.Name)
	}
	return nil
}

func within(ctx context.Context, what string, fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s did not stop in time", what)
	}
}
