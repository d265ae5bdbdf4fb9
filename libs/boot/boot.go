// Package boot runs a service: its listeners, its background loops, its health,
// its telemetry, and above all the order in which they stop.
//
// A stop loses no accepted work: first the service says that it is not ready and
// waits until balancers have seen it (Drain), then it stops accepting and
// finishes what it has, then the loops end and hand back or flush what they
// hold, then stores are closed, and telemetry is flushed last.
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

// Config is what every service has; services embed it in their own.
type Config struct {
	// AdminAddr serves /livez, /readyz, /metrics and /version; empty serves none.
	AdminAddr string `env:"LINKREEL_ADMIN_ADDR" envDefault:":9090"`
	// ProfileToken is the bearer token that /debug/pprof/ on AdminAddr asks for; empty
	// turns profiles off.
	ProfileToken string `env:"LINKREEL_PROFILE_TOKEN"`
	// Drain is how long a stopping service goes on serving while it says that it
	// is not ready; it should exceed the time balancers take to notice.
	Drain time.Duration `env:"LINKREEL_DRAIN" envDefault:"5s"`
	// Grace bounds what comes after the drain: open requests, jobs, flushes. It
	// should stay below the pod's termination grace period less Drain.
	Grace time.Duration `env:"LINKREEL_GRACE" envDefault:"20s"`
	// LogLevel is debug, info, warn or error.
	LogLevel slog.Level `env:"LINKREEL_LOG_LEVEL" envDefault:"info"`
	// LogFormat is json, or google: the same lines with the names of fields that
	// Cloud Logging reads.
	LogFormat LogFormat `env:"LINKREEL_LOG_FORMAT" envDefault:"json"`
}

// Service is a service that is made but not yet running.
type Service struct {
	Name    string
	Servers []Server
	Loops   []Loop
	// WarmUp is a first call to each store, and to each service that requests wait for,
	// so that none has to wait for connections. The service is ready once each was
	// answered. One that is not is made again, for half a minute at most: the loss of a
	// dependency is bridged, and no reason to keep a service out.
	WarmUp []Call
	// Stopping runs when the service has drained and is about to wait for open
	// requests: what holds requests on purpose lets go of them here.
	Stopping []func()
	// Close ends stores and clients after the loops have ended, the last one first:
	// what was opened later may use what was opened before.
	Close []func(ctx context.Context) error

	warm atomic.Bool
}

// Server is one listener's worth of handlers. A service has a name for each:
// "api", "redirect", "admin", "internal".
type Server struct {
	Name    string
	Addr    string
	Handler fasthttp.RequestHandler
	// TLS is set when the listener speaks TLS. The handshake has the same time as a
	// request has to arrive.
	TLS *tls.Config
}

// Loop is background work that runs until its context ends and then returns
// what it holds. A loop that returns an error earlier stops the service.
type Loop struct {
	Name string
	Run  func(ctx context.Context) error
}

// Call is a first call to what a service needs.
type Call struct {
	To string
	Do func(ctx context.Context) error
}

const (
	// warmUpTime bounds the first calls, and with them how long a service that has
	// lost its stores takes to become ready. It is longer than a cluster may take to
	// let a new pod through: while an upgrade replaces all pods at once, requests that
	// were sent to one which reaches no store yet would fail.
	warmUpTime = 30 * time.Second
	// warmUpTry bounds one of them: a packet that was dropped is never answered.
	warmUpTry = 5 * time.Second
	// warmUpPause is the time between two.
	warmUpPause = 250 * time.Millisecond
)

// Handler finds a server's handler by name; nil when the service has none.
func (s *Service) Handler(name string) fasthttp.RequestHandler {
	for _, srv := range s.Servers {
		if srv.Name == name {
			return srv.Handler
		}
	}
	return nil
}

// Main is the whole of a service's main function: signals, telemetry, memory, the
// service, exit code. make builds the service once telemetry stands.
func Main(name string, cfg Config, build func(ctx context.Context) (*Service, error)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	slog.SetDefault(NewLogger(os.Stdout, cfg.LogLevel, cfg.LogFormat))
	boundMemory()
	if err := run(ctx, name, cfg, build); err != nil {
		slog.Error("stopped", "service", name, "error", err)
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
	// The process ends either way; telemetry that cannot be delivered in time is
	// not worth waiting for.
	flushCtx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(err, flush(flushCtx))
}

// Run serves svc until ctx ends and returns after an orderly stop.
func Run(ctx context.Context, cfg Config, svc *Service) error {
	var stopping atomic.Bool
	listeners := make([]net.Listener, len(svc.Servers))
	for i, srv := range svc.Servers {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", srv.Addr)
		if err != nil {
			return fmt.Errorf("%s: listen for %s: %w", svc.Name, srv.Name, err)
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
			// A line for each handshake that fails would let strangers fill the log.
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
		slog.Info("draining", "service", svc.Name, "for", cfg.Drain.String())
		outage.Pause(gctx, cfg.Drain)
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

// discard is fasthttp's logger where nothing is to be logged.
type discard struct{}

func (discard) Printf(string, ...any) {}

// StartLoops runs the service's loops in g until ctx ends.
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

// CloseAll closes what the service holds.
func CloseAll(ctx context.Context, svc *Service) error {
	var errs []error
	for _, c := range slices.Backward(svc.Close) {
		errs = append(errs, c(ctx))
	}
	return errors.Join(errs...)
}

// CloseWith has fn called when the service ends, before what was opened until now is
// closed.
func (s *Service) CloseWith(fn func() error) {
	s.Close = append(s.Close, func(context.Context) error { return fn() })
}

// Abandon is what the maker of a service defers. After an error it closes what is
// open already, and says whose error it is.
func (s *Service) Abandon(ctx context.Context, err *error) {
	if *err != nil {
		*err = errors.Join(fmt.Errorf("%s: %w", s.Name, *err), CloseAll(ctx, s))
	}
}

// Warm makes the service's first calls, and the service ready once they were
// answered or have taken too long. It does not wait.
func Warm(ctx context.Context, svc *Service) {
	ctx, cancel := context.WithTimeout(ctx, warmUpTime)
	var calls sync.WaitGroup
	for _, c := range svc.WarmUp {
		calls.Go(func() {
			if err := c.untilAnswered(ctx); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
				slog.WarnContext(ctx, "first call failed", "service", svc.Name, "to", c.To, "error", err)
			}
		})
	}
	go func() {
		defer cancel()
		calls.Wait()
		svc.warm.Store(true)
	}()
}

// Reach is a first call to another of our services: a connection to its address, such as
// "http://auth:8090", that is closed again.
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

// untilAnswered makes the call until it succeeds or ctx ends, and returns the last error.
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

// NotReady says why the service should not be sent requests; nil means ready.
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
		return fmt.Errorf("%s did not end in time", what)
	}
}
