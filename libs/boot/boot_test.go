package boot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/linkreel/linkreel/libs/dedup"
	"github.com/linkreel/linkreel/services/localcloud/redisproc"
)

func TestExportedSpansCarryNoQueries(t *testing.T) {
	t.Parallel()
	sink := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(redacting{sink}))
	_, span := provider.Tracer("t").Start(t.Context(), "PUT")
	span.SetAttributes(attribute.String("url.full", "http://x/b/o?X-Goog-Signature=s3cret&upload_id=s3cret"), attribute.String("url.query", "upload_id=s3cret"),
		attribute.String("http.route", "/plain"), attribute.Int("http.response.status_code", 200))
	span.End()
	got := sink.GetSpans()
	if len(got) != 1 {
		t.Fatalf("%d spans exported, want 1", len(got))
	}
	for _, kv := range got[0].Attributes {
		if strings.Contains(kv.Value.String(), "s3cret") {
			t.Errorf("attribute %s = %q, want it without the secret", kv.Key, kv.Value.String())
		}
	}
	if len(got[0].Attributes) != 4 {
		t.Errorf("attributes = %v, want four", got[0].Attributes)
	}
}

func TestLogLinesCarryTheTraceOfTheirContext(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := NewLogger(&out, slog.LevelInfo, LogJSON).With("a", 1)
	ctx, span := sdktrace.NewTracerProvider().Tracer("t").Start(t.Context(), "x")
	log.InfoContext(ctx, "line\nbroken")
	log.Debug("below the level")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("log line %q: %v", out.String(), err)
	}
	if line["trace_id"] != span.SpanContext().TraceID().String() || line["msg"] != "line\nbroken" {
		t.Errorf("log line = %v, want the message and the trace id of the span", line)
	}
}

func TestGoogleReadsSeverityMessageAndTrace(t *testing.T) {
	t.Setenv("GOOGLE_CLOUD_PROJECT", "shop")
	ctx, span := sdktrace.NewTracerProvider().Tracer("t").Start(t.Context(), "x")
	for level, want := range map[slog.Level]string{slog.LevelDebug: "DEBUG", slog.LevelInfo: "INFO", slog.LevelWarn: "WARNING", slog.LevelError: "ERROR"} {
		var out bytes.Buffer
		log := NewLogger(&out, slog.LevelDebug, LogGoogle).With("account", "acc_1").WithGroup("in")
		log.Log(ctx, level, "line", "msg", "kept")
		var line map[string]any
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatalf("log line %q: %v", out.String(), err)
		}
		in, _ := line["in"].(map[string]any)
		if line["severity"] != want || line["message"] != "line" || line["account"] != "acc_1" || in["msg"] != "kept" || line["level"] != nil || line["time"] == nil {
			t.Errorf("level %v: log line = %v, want severity %s", level, line, want)
		}
	}
	var out bytes.Buffer
	NewLogger(&out, slog.LevelInfo, LogGoogle).InfoContext(ctx, "line")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	sc := span.SpanContext()
	if line["logging.googleapis.com/trace"] != "projects/shop/traces/"+sc.TraceID().String() || line["logging.googleapis.com/spanId"] != sc.SpanID().String() || line["logging.googleapis.com/trace_sampled"] != true {
		t.Errorf("log line = %v, want the trace and span of the context", line)
	}
	var f LogFormat
	if err := f.UnmarshalText([]byte("xml")); err == nil {
		t.Error("UnmarshalText accepted the format xml, want an error")
	}
}

// events records events in order.
type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) add(s string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, s)
}

func TestAStopFinishesRequestsThenLoopsThenCloses(t *testing.T) {
	t.Parallel()
	var log events
	addr, admin := freeAddr(t), freeAddr(t)
	inside, release, connected := make(chan struct{}), make(chan struct{}), make(chan struct{})
	svc := &Service{
		Name: "test",
		Servers: []Server{{Name: "api", Addr: addr, Handler: func(c *fasthttp.RequestCtx) {
			close(inside)
			<-release
			log.add("request finished")
			c.SetStatusCode(204)
		}}},
		Loops: []Loop{{Name: "loop", Run: func(ctx context.Context) error {
			<-ctx.Done()
			log.add("loop ended")
			return nil
		}}},
		WarmUp: []Call{{To: "a store", Do: func(context.Context) error { <-connected; return nil }}},
		Close:  []func(context.Context) error{func(context.Context) error { log.add("closed"); return nil }},
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{AdminAddr: admin, Drain: 50 * time.Millisecond, Grace: 5 * time.Second}, svc)
	}()
	waitFor(t, "the service reports that it is connecting", func() bool { return status("http://"+admin+"/readyz") == 503 })
	close(connected)
	waitFor(t, "ready", func() bool { return status("http://"+admin+"/readyz") == 200 })
	answered := make(chan int, 1)
	go func() { answered <- status("http://" + addr + "/") }()
	<-inside
	stop()
	waitFor(t, "the service reports that it is draining", func() bool { s := status("http://" + admin + "/readyz"); return s == 503 || s == 0 })
	close(release)
	if got := <-answered; got != 204 {
		t.Errorf("the open request returned %d, want 204", got)
	}
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want no error", err)
	}
	if want := []string{"request finished", "loop ended", "closed"}; !slices.Equal(log.list, want) {
		t.Errorf("got the events %v, want %v in that order", log.list, want)
	}
}

func TestAServiceIsReadyOnceItsStoresAnsweredOrAfterHalfAMinute(t *testing.T) {
	t.Parallel()
	answered := func(context.Context) error { return nil }
	after := func(d time.Duration) func(context.Context) error {
		begun := time.Now()
		return func(context.Context) error {
			if time.Since(begun) < d {
				return errors.New("connection refused")
			}
			return nil
		}
	}
	dropped := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, c := range map[string]struct {
		do   func() func(context.Context) error
		want time.Duration
	}{
		"immediate success":      {func() func(context.Context) error { return answered }, 0},
		"refused for 20 seconds": {func() func(context.Context) error { return after(20 * time.Second) }, 20 * time.Second},
		"always refused":         {func() func(context.Context) error { return after(time.Hour) }, 30 * time.Second},
		"no response":            {func() func(context.Context) error { return dropped }, 30 * time.Second},
		"one lost packet":        {func() func(context.Context) error { return firstOf(dropped, answered) }, 5250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				svc := &Service{Name: "test", WarmUp: []Call{{To: "a store", Do: answered}, {To: "another", Do: c.do()}}}
				begun := time.Now()
				Warm(t.Context(), svc)
				synctest.Wait()
				for svc.NotReady() != nil {
					time.Sleep(10 * time.Millisecond)
					synctest.Wait()
				}
				if took := time.Since(begun); took < c.want || took > c.want+300*time.Millisecond {
					t.Errorf("ready after %v, want %v", took, c.want)
				}
			})
		})
	}
}

// firstOf returns a function that calls first on its first call, and then on each later call.
func firstOf(first, then func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		call := first
		first = then
		return call(ctx)
	}
}

func TestALoopThatFailsStopsTheService(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	err := Run(t.Context(), Config{Grace: time.Second}, &Service{Name: "test", Loops: []Loop{{Name: "l", Run: func(context.Context) error { return broken }}}})
	if !errors.Is(err, broken) {
		t.Errorf("Run = %v, want %v", err, broken)
	}
}

// Not parallel, because the process has only one default logger.
func TestAStopIsLoggedWithItsReason(t *testing.T) {
	var out bytes.Buffer
	former := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	defer slog.SetDefault(former)
	loop := func(err error) *Service {
		return &Service{Name: "test", Loops: []Loop{{Name: "l", Run: func(ctx context.Context) error {
			if err == nil {
				<-ctx.Done()
			}
			return err
		}}}}
	}
	_ = Run(t.Context(), Config{Grace: time.Second}, loop(errors.New("broken"))) // the previous test checks the error
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("terminated signal received"))
	if err := Run(ctx, Config{Grace: time.Second}, loop(nil)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`msg=stopping service=test version=` + Version() + ` reason="test: l: broken"`, `reason="terminated signal received" drain=0s`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, &out)
		}
	}
}

func status(url string) int {
	res, err := http.Get(url)
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := redisproc.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func TestProfilesNeedTheirToken(t *testing.T) {
	t.Parallel()
	const token = "the-token"
	ask := func(profileToken, path string, authorization ...string) int {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		for _, a := range authorization {
			r.Header.Add("Authorization", a)
		}
		w := httptest.NewRecorder()
		AdminHandler(func() error { return nil }, profileToken).ServeHTTP(w, r)
		return w.Code
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=1"} {
		for _, authorization := range []string{"", "Bearer", "Bearer ", token, "Basic " + token, "Bearer x", "Bearer " + token + "x"} {
			if got := ask(token, path, authorization); got != 401 {
				t.Errorf("GET %s with %q = %d, want 401", path, authorization, got)
			}
			if got := ask("", path, authorization); got != 404 {
				t.Errorf("GET %s with %q on a server without a token = %d, want 404", path, authorization, got)
			}
		}
		if got := ask(token, path); got != 401 {
			t.Errorf("GET %s = %d, want 401", path, got)
		}
	}
	for path, want := range map[string]int{"/debug/pprof/": 200, "/debug/pprof/goroutine?debug=1": 200, "/debug/pprof/none": 404} {
		if got := ask(token, path, "Bearer "+token); got != want {
			t.Errorf("GET %s with the token = %d, want %d", path, got, want)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics", "/version"} {
		if got := ask(token, path); got != 200 {
			t.Errorf("GET %s = %d, want 200 without a token", path, got)
		}
	}
}

func TestReachIsAConnection(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	call := Reach("auth", "http://"+l.Addr().String()+"/path")
	if err := call.Do(t.Context()); err != nil {
		t.Errorf("Reach for a listening address: %v, want no error", err)
	}
	_ = l.Close()
	if call.Do(t.Context()) == nil {
		t.Error("Reach for an address without a listener succeeded, want an error")
	}
}

func TestALoopCallsAgainAfterATimeAKickAndAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls []time.Duration
		start, kick := time.Now(), make(chan struct{}, 1)
		loop := Every(time.Minute, "round", func(context.Context) error {
			calls = append(calls, time.Since(start))
			return errors.New("not today")
		}, kick)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- loop.Run(ctx) }()
		time.Sleep(90 * time.Second)
		kick <- struct{}{}
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want no error", err)
		}
		want := []time.Duration{0, time.Minute, 90 * time.Second, 2 * time.Minute}
		if !slices.Equal(calls, want) {
			t.Errorf("called at %v, want %v", calls, want)
		}
	})
}

func TestASweepStartsAtOnceAndForAKick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls []time.Duration
		start, kick := time.Now(), make(chan struct{}, 1)
		turns, pace := dedup.New(nil, time.Now), dedup.Pace{What: "round", Every: time.Minute, Idle: time.Hour}
		turns.First(t.Context(), "round", 90*time.Second) // another loop has taken the turn
		loop := Sweep(turns, pace, func(context.Context) (bool, error) {
			calls = append(calls, time.Since(start))
			return false, nil
		}, kick)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- loop.Run(ctx) }()
		time.Sleep(80 * time.Second)
		kick <- struct{}{}
		time.Sleep(2 * time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want no error", err)
		}
		// There is no call at one minute because another loop has taken that turn. Without Redis,
		// the loop does not slow down to the idle rate for an hour.
		want := []time.Duration{0, 80 * time.Second, 2 * time.Minute, 3 * time.Minute}
		if !slices.Equal(calls, want) {
			t.Errorf("called at %v, want %v", calls, want)
		}
	})
}

// Not parallel, because the process has only one default logger.
func TestARepeatedFailureIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	defer slog.SetDefault(before)
	failed := ""
	elsewhere := errors.New("another replica takes this round")
	for _, err := range []error{errors.New("a"), errors.New("a"), elsewhere, errors.New("b"), elsewhere, errors.New("b"), nil, nil, errors.New("b")} {
		failed = once(t.Context(), "round", failed, func(context.Context) (bool, error) {
			if errors.Is(err, elsewhere) {
				return false, nil
			}
			return true, err
		})
	}
	if n := strings.Count(out.String(), "round failed; the next one retries"); n != 3 {
		t.Errorf("logged %d times, want 3:\n%s", n, &out)
	}
	if n := strings.Count(out.String(), "round is working again"); n != 1 {
		t.Errorf("recovery logged %d times, want 1:\n%s", n, &out)
	}
}

func TestAServiceThatCannotBeMadeClosesTheLastOneFirst(t *testing.T) {
	t.Parallel()
	var closed []string
	broken := errors.New("no such store")
	err := func() (err error) {
		svc := &Service{Name: "test"}
		defer svc.Abandon(t.Context(), &err)
		for _, name := range []string{"database", "client of the store"} {
			svc.CloseWith(func() error { closed = append(closed, name); return nil })
		}
		return broken
	}()
	if !errors.Is(err, broken) || err.Error() != "test: no such store" {
		t.Errorf("err = %v, want test: no such store", err)
	}
	if want := []string{"client of the store", "database"}; !slices.Equal(closed, want) {
		t.Errorf("closed %v, want %v", closed, want)
	}
}
