package redirect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/services/links/internal/clicks"
	"github.com/linkreel/linkreel/services/links/internal/invalidation"
	"github.com/linkreel/linkreel/services/links/internal/link"
	"github.com/linkreel/linkreel/services/localcloud/procstat"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// shelf is an in-memory store.
type shelf struct {
	mu    sync.Mutex
	down  bool
	links map[string]link.Target
	hosts map[string]string
}

func (s *shelf) Target(_ context.Context, key string) (link.Target, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return link.Target{}, false, errors.New("down")
	}
	t, ok := s.links[key]
	return t, ok, nil
}

func (s *shelf) Host(_ context.Context, host string) (link.Site, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return link.Site{}, false, errors.New("down")
	}
	d, ok := s.hosts[host]
	return link.Site{DomainID: d}, ok, nil
}

// yes confirms every response and records the clicks.
type yes struct {
	mu     sync.Mutex
	clicks []link.Click
	again  int // how many responses to report as superseded
}

func (y *yes) Confirm(_ clicks.Answer, c *link.Click) clicks.Outcome {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.again > 0 {
		y.again--
		return clicks.Outcome{Again: true}
	}
	if c != nil {
		y.clicks = append(y.clicks, *c)
	}
	return clicks.Outcome{Counted: c != nil}
}

// Undo removes the last click that equals c.
func (y *yes) Undo(_ clicks.Answer, c link.Click) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for i := len(y.clicks) - 1; i >= 0; i-- {
		if y.clicks[i] == c {
			y.clicks = slices.Delete(y.clicks, i, i+1)
			return
		}
	}
}

func newHandler(y Confirmer) (*Handler, *shelf) {
	s := &shelf{links: map[string]link.Target{}, hosts: map[string]string{}}
	return New(invalidation.NewMemory(invalidation.Options{Target: s.Target, Host: s.Host, Suspended: nobody, Capacity: 64 << 20}), y, Options{ShortBaseURL: "http://lrl.example"}), s
}

func ask(h *Handler, uri, host string, header ...string) *fasthttp.Response {
	var ctx fasthttp.RequestCtx
	ctx.Request.SetRequestURI(uri)
	ctx.Request.Header.SetHost(host)
	for i := 0; i+1 < len(header); i += 2 {
		ctx.Request.Header.Set(header[i], header[i+1])
	}
	h.Serve(&ctx)
	return &ctx.Response
}

func TestServeCountsAnOvertakenAnswerOnce(t *testing.T) {
	t.Parallel()
	y := &yes{again: 3}
	h, s := newHandler(y)
	s.links["|a"] = link.Target{LinkID: "l", Slug: "a", Location: "https://x.example/"}
	if res := ask(h, "/a", "lrl.example", "Referer", "https://LRL.example/b", "User-Agent", "iPhone"); res.StatusCode() != 302 {
		t.Fatal(res)
	}
	want := link.Click{LinkID: "l", Day: link.DayOf(time.Now()), Device: link.Mobile}
	if len(y.clicks) != 1 || y.clicks[0] != want {
		t.Errorf("clicks = %+v, want one %+v", y.clicks, want)
	}
	y.again = 100
	if res := ask(h, "/a", "lrl.example"); res.StatusCode() != 503 || len(res.Header.Peek("Retry-After")) == 0 {
		t.Errorf("response to a visit that is superseded every time: %v, want 503 with Retry-After", res)
	}
}

func TestServeTracesAVisitThatWaitsForTheStore(t *testing.T) {
	t.Parallel()
	type mark struct{}
	s := &shelf{links: map[string]link.Target{"|a": {LinkID: "l", Slug: "a", Location: "https://x.example/"}}}
	var ended []int
	traced := 0
	load := func(ctx context.Context, key string) (link.Target, bool, error) {
		if ctx.Value(mark{}) != nil {
			traced++
		}
		return s.Target(ctx, key)
	}
	h := New(invalidation.NewMemory(invalidation.Options{Target: loader{s, load}.Target, Host: loader{s, load}.Host, Suspended: nobody, Capacity: 1 << 20}), &yes{}, Options{ShortBaseURL: "http://lrl.example", Trace: func() (context.Context, func(int)) {
		return context.WithValue(context.Background(), mark{}, true), func(status int) { ended = append(ended, status) }
	}})
	for range 3 {
		ask(h, "/a", "lrl.example")
	}
	if traced != 1 || len(ended) != 1 || ended[0] != 302 {
		t.Errorf("got %d traced loads and traces with statuses %v, want one load and one trace with 302", traced, ended)
	}
}

// loader is a shelf with its own Target method.
type loader struct {
	*shelf
	load func(ctx context.Context, key string) (link.Target, bool, error)
}

func (l loader) Target(ctx context.Context, key string) (link.Target, bool, error) {
	return l.load(ctx, key)
}

func TestServeSendsOneCleanLocation(t *testing.T) {
	t.Parallel()
	h, s := newHandler(&yes{})
	u, problem := link.ParseURL("https://x.example/%0d%0aSet-Cookie:%20a=b?\u00fc#<>", nil)
	if problem != nil {
		t.Fatal(problem)
	}
	s.links["|a"] = link.Target{LinkID: "l", Slug: "a", Location: u.Location}
	raw := ask(h, "/a", "lrl.example").String()
	if strings.Count(raw, "Location:") != 1 || strings.Contains(raw, "Set-Cookie: ") || !strings.Contains(raw, "Location: https://x.example/%0d%0aSet-Cookie:%20a=b?%C3%BC#%3C%3E\r\n") {
		t.Errorf("response, want one escaped Location header:\n%s", raw)
	}
}

func TestPagesEscapeWhatOwnersWrite(t *testing.T) {
	t.Parallel()
	h, s := newHandler(&yes{})
	evil := `"><script>alert(1)</script>{{.}}`
	s.links["|a"] = link.Target{LinkID: "l", Slug: "a", Location: `https://x.example/"%3E%3Cscript%3E`, OpenGraph: &link.MetaTags{Title: evil, Description: evil, Image: "https://x.example/i.png?a=1&b=2"}}
	for _, res := range []*fasthttp.Response{ask(h, "/a+", "lrl.example"), ask(h, "/a", "lrl.example", "User-Agent", "Twitterbot/1.0")} {
		if body := string(res.Body()); res.StatusCode() != 200 || strings.Contains(body, "<script") || !strings.Contains(string(res.Header.Peek("Content-Security-Policy")), "default-src 'none'") {
			t.Errorf("page with status %d, want 200, escaped text and a content security policy:\n%s", res.StatusCode(), body)
		}
	}
}

func TestServeRefusesANetworkThatScansAndNeverWhatIsInMemory(t *testing.T) {
	t.Parallel()
	s := &shelf{links: map[string]link.Target{"|a": {LinkID: "l", Slug: "a", Location: "https://x.example/"}, "|b": {LinkID: "m", Slug: "b", Location: "https://x.example/"}}}
	var clock atomic.Int64
	now := func() time.Time { return time.Unix(1_790_000_000, clock.Load()) }
	h := New(invalidation.NewMemory(invalidation.Options{Target: s.Target, Host: s.Host, Suspended: nobody, Capacity: 1 << 20, Now: now}), &yes{}, Options{ShortBaseURL: "http://lrl.example", Now: now,
		Misses: ratelimit.NewMisses(ratelimit.MissOptions{Burst: 20, Now: now}),
		Client: func(ctx *fasthttp.RequestCtx) netip.Addr {
			return netip.MustParseAddr(string(ctx.Request.Header.Peek("From")))
		}})
	ask := func(uri, from string) *fasthttp.Response {
		return ask(h, uri, "lrl.example", "From", from, "Accept", "application/json")
	}
	if res := ask("/a", "192.0.2.1"); res.StatusCode() != 302 {
		t.Fatal(res)
	}
	for i := range 20 {
		if res := ask(fmt.Sprint("/none", i), "192.0.2.1"); res.StatusCode() != 404 {
			t.Fatalf("miss %d: %v, want 404", i, res)
		}
	}
	for i := range 5 {
		res := ask(fmt.Sprint("/other", i), "192.0.2.1")
		if res.StatusCode() != 429 || len(res.Header.Peek("Retry-After")) == 0 || !strings.Contains(string(res.Body()), "RATE_LIMITED") {
			t.Fatalf("miss over the budget: %v, want 429 with Retry-After", res)
		}
	}
	if res := ask("/b", "192.0.2.1"); res.StatusCode() != 429 {
		t.Errorf("uncached link: status %d, want 429 as for any lookup", res.StatusCode())
	}
	if res := ask("/b", "192.0.2.2"); res.StatusCode() != 302 {
		t.Errorf("visit from another network: status %d, want 302", res.StatusCode())
	}
	clock.Add(int64(40 * time.Second / 100)) // 0.4 s
	for _, path := range []string{"/a", "/b"} {
		if res := ask(path, "192.0.2.1"); res.StatusCode() != 302 {
			t.Errorf("cached %s: status %d, want 302", path, res.StatusCode())
		}
	}
	if res := ask("/none19", "192.0.2.1"); res.StatusCode() != 404 {
		t.Errorf("cached miss: status %d, want 404", res.StatusCode())
	}
	clock.Add(int64(time.Second))
	if a, b := ask("/once", "192.0.2.1").StatusCode(), ask("/more", "192.0.2.1").StatusCode(); a != 404 || b != 429 {
		t.Errorf("two misses after 0.4 s: status %d and %d, want 404 and 429", a, b)
	}
}

func TestServeTakesBackAClickThatLedNowhere(t *testing.T) {
	t.Parallel()
	y := &overtaken{yes: &yes{}}
	h, s := newHandler(y)
	s.links["|a"] = link.Target{LinkID: "l", Slug: "a", Location: "https://x.example/"}
	y.change = func() { // the link is deleted before the click is confirmed
		s.mu.Lock()
		delete(s.links, "|a")
		s.mu.Unlock()
		h.memory.Invalidate("|a")
	}
	if res := ask(h, "/a", "lrl.example"); res.StatusCode() != 404 {
		t.Fatal(res)
	}
	if len(y.clicks) != 0 {
		t.Errorf("clicks after a 404 = %+v, want none", y.clicks)
	}
	y.change = func() {
		s.mu.Lock()
		s.links["|b"] = link.Target{LinkID: "n", Slug: "b", Location: "https://x.example/"}
		s.mu.Unlock()
		h.memory.Invalidate("|b")
	}
	s.links["|b"] = link.Target{LinkID: "m", Slug: "b", Location: "https://x.example/"}
	if res := ask(h, "/b", "lrl.example"); res.StatusCode() != 302 {
		t.Fatal(res)
	}
	if len(y.clicks) != 1 || y.clicks[0].LinkID != "n" {
		t.Errorf("clicks = %+v, want one on link n", y.clicks)
	}
}

func TestServeCountsTheRuleThatLedTheVisitor(t *testing.T) {
	t.Parallel()
	y := &overtaken{yes: &yes{}}
	h, s := newHandler(y)
	h.opt.Country = func(*fasthttp.RequestCtx) string { return "DE" }
	leads := func(name string) link.Target {
		return link.Target{LinkID: "l", Slug: "a", Location: "https://x.example/", Routing: &link.Routing{Rules: []link.Rule{
			{Name: name, When: link.When{Devices: []link.Device{link.Mobile}}, URL: link.URL{Location: "https://" + name + ".example/"}},
		}}}
	}
	s.links["|a"] = leads("phones")
	// The owner renames the rule while a visitor is waiting. The click must count under the new
	// name.
	rename := func() {
		s.mu.Lock()
		s.links["|a"] = leads("mobile")
		s.mu.Unlock()
		h.memory.Invalidate("|a")
	}
	for _, v := range []struct {
		agent, to string
		change    func()
	}{
		{"iPhone", "https://phones.example/", nil}, {"X11", "https://x.example/", nil}, {"iPhone", "https://mobile.example/", rename},
	} {
		y.change = v.change
		if res := ask(h, "/a", "lrl.example", "User-Agent", v.agent); res.StatusCode() != 302 || string(res.Header.Peek("Location")) != v.to {
			t.Fatalf("visit with %s: %v, want 302 to %s", v.agent, res, v.to)
		}
	}
	var rules []string
	for _, c := range y.clicks {
		if c.Country != "DE" {
			t.Errorf("click's country = %q, want DE", c.Country)
		}
		rules = append(rules, c.Rule)
	}
	if want := []string{"phones", "", "mobile"}; !slices.Equal(rules, want) {
		t.Errorf("the clicks' rules = %q, want %q", rules, want)
	}
}

// overtaken counts a click, and reports the first response as superseded by a change.
type overtaken struct {
	*yes
	change func()
}

func (o *overtaken) Confirm(a clicks.Answer, c *link.Click) clicks.Outcome {
	out := o.yes.Confirm(a, c)
	if change := o.change; change != nil {
		o.change = nil
		change()
	}
	out.Again = !a.Current()
	return out
}

func TestServeASuspendedAccountIsOutOfService(t *testing.T) {
	t.Parallel()
	s := &shelf{links: map[string]link.Target{"|a": {LinkID: "l", AccountID: "acc", Slug: "a", Location: "https://x.example/"}}}
	suspended := false
	m := invalidation.NewMemory(invalidation.Options{Target: s.Target, Host: s.Host, Capacity: 1 << 20, Suspended: func(_ context.Context, id string) (bool, error) {
		return suspended && id == "acc", nil
	}})
	y := &yes{}
	h := New(m, y, Options{ShortBaseURL: "http://lrl.example"})
	for _, suspended = range []bool{false, true, false} {
		m.Invalidate(invalidation.AccountKey("acc"))
		want := map[bool]int{false: 302, true: 410}[suspended]
		if res := ask(h, "/a", "lrl.example", "Accept", "application/json"); res.StatusCode() != want || suspended && !strings.Contains(string(res.Body()), "ACCOUNT_SUSPENDED") {
			t.Errorf("suspended = %v: response %v, want %d", suspended, res, want)
		}
	}
	if len(y.clicks) != 2 {
		t.Errorf("got %d clicks, want 2, one for each redirect", len(y.clicks))
	}
}

// A program that calls the API at the default short host gets JSON with the right URL. Visitors get
// a page, and a custom domain reveals nothing about the deployment.
func TestServeTellsProgramsWhereTheAPIIs(t *testing.T) {
	t.Parallel()
	s := &shelf{links: map[string]link.Target{}, hosts: map[string]string{"go.example.com": "d"}}
	m := invalidation.NewMemory(invalidation.Options{Target: s.Target, Host: s.Host, Suspended: nobody, Capacity: 1 << 20})
	h := New(m, &yes{}, Options{ShortBaseURL: "http://lrl.example", BaseURL: "https://linkreel.example/"})
	postTo := func(host, path, contentType string) *fasthttp.Response {
		var ctx fasthttp.RequestCtx
		ctx.Request.Header.SetMethod("POST")
		ctx.Request.SetRequestURI(path)
		ctx.Request.Header.SetHost(host)
		ctx.Request.Header.SetContentType(contentType)
		h.Serve(&ctx)
		return &ctx.Response
	}
	post := func(host, contentType string) *fasthttp.Response { return postTo(host, "/api/v1/links", contentType) }
	const address = "The API is at https://linkreel.example/api/v1."
	for name, tt := range map[string]struct {
		res        *fasthttp.Response
		status     int
		json, told bool
	}{
		"POST of JSON":                         {post("lrl.example", "application/json; charset=utf-8"), 405, true, true},
		"POST of JSON, media type in capitals": {postTo("lrl.example", "/links", "Application/JSON"), 405, true, true},
		"POST of a form":                       {post("lrl.example", "application/x-www-form-urlencoded"), 405, false, true},
		"POST on a custom domain":              {post("go.example.com", "application/json"), 405, true, false},
		"GET that accepts JSON":                {ask(h, "/api/v1/links", "lrl.example", "Accept", "application/json"), 404, true, true},
		"visitor":                              {ask(h, "/nothing", "lrl.example", "Accept", "text/html,application/json;q=0.9"), 404, false, false},
	} {
		body := string(tt.res.Body())
		isJSON := strings.HasPrefix(body, `{"error":{`) && strings.Contains(body, `"docUrl":"/docs/guides/errors#`)
		if tt.res.StatusCode() != tt.status || isJSON != tt.json || strings.Contains(body, address) != tt.told {
			t.Errorf("%s: %d %.200s; want %d, JSON = %v, API URL = %v", name, tt.res.StatusCode(), body, tt.status, tt.json, tt.told)
		}
	}
}

func FuzzServe(f *testing.F) {
	for _, s := range [][2]string{{"/a", "lrl.example"}, {"/A%61+", "go.example.com:80"}, {"//a", "[::1]"}, {"/%", ""}, {"http://lrl.example/a", "x"}, {"/a?b#c", "LRL.EXAMPLE."}, {"/%2e%2e/a", "a..b"}} {
		f.Add(s[0], s[1])
	}
	h, s := newHandler(&yes{})
	s.links["|a"] = link.Target{LinkID: "l", Slug: "a", Location: "https://x.example/"}
	s.hosts["go.example.com"] = "d"
	s.links["d|aa"] = link.Target{LinkID: "m", Slug: "aa", Location: "https://y.example/"}
	f.Fuzz(func(t *testing.T, uri, host string) {
		switch res := ask(h, uri, host); res.StatusCode() {
		case 302:
			if l := string(res.Header.Peek("Location")); l != "https://x.example/" && l != "https://y.example/" {
				t.Fatalf("visit to %q at %q: location %q, want one of the two links", uri, host, l)
			}
		case 200, 204, 404:
		default:
			t.Fatalf("visit to %q at %q: status %d, want 200, 204, 302 or 404", uri, host, res.StatusCode())
		}
	})
}

// TestMemoryHoldsAMillionLinks checks that a million cached links fit in a replica's memory.
func TestMemoryHoldsAMillionLinks(t *testing.T) {
	const limit = 400 << 20
	n := 100_000
	if os.Getenv("LINKREEL_FULL") == "1" {
		n = 1_000_000
	}
	before := procstat.Heap()
	m := invalidation.NewMemory(invalidation.Options{Target: generated{}.Target, Host: generated{}.Host, Suspended: nobody, Capacity: limit})
	for i := range n {
		var a invalidation.Answer
		err := m.Resolve(&a, func(bool) (context.Context, error) { return t.Context(), nil }, "", fmt.Sprintf("slug%07d", i))
		for errors.Is(err, context.DeadlineExceeded) && t.Context().Err() == nil { // on a busy machine
			err = m.Resolve(&a, func(bool) (context.Context, error) { return t.Context(), nil }, "", fmt.Sprintf("slug%07d", i))
		}
		if err != nil || a.Target() == nil {
			t.Fatal(err)
		}
	}
	used := procstat.Heap() - before
	t.Logf("%d links in %d MiB, %d bytes each; %d stay cached", n, used>>20, used/int64(n), m.Len())
	if used > limit/1_000_000*int64(n) {
		t.Errorf("a million links would take %d MiB, want at most 400", used/int64(n)*1_000_000>>20)
	}
	if m.Len() < n*99/100 {
		t.Errorf("%d of %d links stay cached, want at least 99 %%: the weights are too high", m.Len(), n)
	}
	runtime.KeepAlive(m)
}

// generated is a store in which every link exists.
type generated struct{}

func (generated) Target(_ context.Context, key string) (link.Target, bool, error) {
	return link.Target{LinkID: "lnk_0123456789" + key[1:], Slug: link.Slug(strings.Clone(key[1:])), Location: "https://example.com/some/path/of/usual/length?utm_source=" + key[1:]}, true, nil
}

func (generated) Host(context.Context, string) (link.Site, bool, error) {
	return link.Site{}, false, nil
}

// ruled is a store in which every link exists. Each link has 20 rules, and only the last rule
// matches every visitor.
type ruled struct{ generated }

func (r ruled) Target(ctx context.Context, key string) (link.Target, bool, error) {
	t, found, err := r.generated.Target(ctx, key)
	t.Routing = &link.Routing{}
	for i := range link.MaxRules {
		t.Routing.Rules = append(t.Routing.Rules, link.Rule{
			Name: fmt.Sprint("rule ", i), URL: link.URL{Location: fmt.Sprintf("https://%d.example/", i)},
			When: link.When{Countries: []string{"FR", "BE"}, Devices: []link.Device{link.Mobile}, Languages: []string{"fr"}},
		})
	}
	t.Routing.Rules[link.MaxRules-1].When = link.When{Devices: []link.Device{link.Desktop}}
	return t, found, err
}

// nobody reports every account as not suspended.
func nobody(context.Context, string) (bool, error) { return false, nil }

// BenchmarkServeWarm measures redirects for a cached link, both without a click log and with a
// real click log and Redis.
func BenchmarkServeWarm(b *testing.B) {
	b.Run("unconfirmed", func(b *testing.B) { benchmarkServe(b, confirmed{}) })
	b.Run("last of 20 rules", func(b *testing.B) {
		benchmarkMemory(b, invalidation.NewMemory(invalidation.Options{Target: ruled{}.Target, Host: ruled{}.Host, Suspended: nobody, Capacity: 64 << 20}), confirmed{})
	})
	b.Run("with Redis", func(b *testing.B) {
		m := invalidation.NewMemory(invalidation.Options{Target: generated{}.Target, Host: generated{}.Host, Suspended: nobody, Capacity: 64 << 20})
		log, err := clicks.Open(clicks.Config{Redis: redisdb.Config{URL: redistest.Start(b)}, SpoolDir: b.TempDir(), Budget: time.Second}, m)
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- log.Run(ctx) }()
		benchmarkServe(b, log)
		cancel()
		<-done
	})
}

type confirmed struct{}

func (confirmed) Undo(clicks.Answer, link.Click) {}

func (confirmed) Confirm(clicks.Answer, *link.Click) clicks.Outcome {
	return clicks.Outcome{Counted: true}
}

func benchmarkServe(b *testing.B, c Confirmer) {
	benchmarkMemory(b, invalidation.NewMemory(invalidation.Options{Target: generated{}.Target, Host: generated{}.Host, Suspended: nobody, Capacity: 64 << 20}), c)
}

func benchmarkMemory(b *testing.B, m *invalidation.Memory, c Confirmer) {
	h := New(m, c, Options{ShortBaseURL: "http://lrl.example"})
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		var ctx fasthttp.RequestCtx
		ctx.Request.SetRequestURI("/hot")
		ctx.Request.Header.SetHost("lrl.example")
		ctx.Request.Header.SetUserAgent("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/120 Safari/537.36")
		for pb.Next() {
			h.Serve(&ctx)
			if ctx.Response.StatusCode() != 302 {
				b.Errorf("status %d, want 302", ctx.Response.StatusCode())
			}
			ctx.Response.Reset()
		}
	})
}

// The log must contain the cause of failed visits, but many failed visits must not flood it. The
// test is not parallel because the whole process shares the logger.
func TestVisitsThatFailWriteALineASecond(t *testing.T) {
	var log strings.Builder
	former := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(former)
	synctest.Test(t, func(t *testing.T) {
		var f failures
		for range 250 {
			f.warn(503, errors.New("Firestore does not respond"))
			time.Sleep(10 * time.Millisecond) // uses the fake clock of the synctest bubble
		}
	})
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], "Firestore does not respond") || !strings.Contains(lines[0], "visits=1") ||
		!strings.Contains(lines[1], "visits=100") || !strings.Contains(lines[1], "level=WARN") {
		t.Errorf("log of 250 failed visits in 2.5 s, want 3 lines:\n%s", log.String())
	}
	log.Reset()
	h, s := newHandler(&yes{})
	s.down = true
	if res := ask(h, "/cold", "lrl.example"); res.StatusCode() != 503 || !strings.Contains(log.String(), "error=") {
		t.Errorf("failed visit: status %d, log %q; want 503 and a line with the error", res.StatusCode(), log.String())
	}
	log.Reset()
	s.down = false
	if res := ask(h, "/none", "lrl.example"); res.StatusCode() != 404 || log.Len() > 0 {
		t.Errorf("visit to an unknown link: status %d, log %q; want 404 and no line", res.StatusCode(), log.String())
	}
}
