package faults_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.yaml.in/yaml/v3"

	"github.com/linkreel/linkreel/libs/apikey/authtest"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tags"
	"github.com/linkreel/linkreel/services/auth"
	"github.com/linkreel/linkreel/services/links"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/redisproc"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

// linksBinary builds the service like a release build, without the race detector.
var linksBinary = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "linkreel-tests", "links")
	out, err := exec.Command("go", "build", "-o", path, "github.com/linkreel/linkreel/services/links/cmd/links").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cannot build links: %w\n%s", err, out)
	}
	return path, nil
})

// linksWorld contains the servers that links processes share. The processes reach Redis and
// Firestore through proxies that can inject faults.
type linksWorld struct {
	t           testing.TB
	firestore   *firestore.Server
	firestoreBy *toxiproxy.Proxy
	redis       *redisproc.Server // nil if the test starts its own
	redisBy     *toxiproxy.Proxy
	env         []string // additional settings for every process
	auth        string
	key         string
}

func newLinksWorld(t testing.TB) *linksWorld {
	t.Helper()
	cloud := cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{links.Indexes(), tags.Indexes, auth.Indexes(), idempotency.Indexes}})
	whose := authtest.Start(t)
	b := &linksWorld{t: t, firestore: cloud.Firestore, redis: redistest.Server(t), auth: whose.URL, key: whose.Key(t, "acc_t", identity.Enterprise)}
	toxi := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	b.firestoreBy = linksProxy(t, toxi, "firestore", cloud.Endpoint)
	b.redisBy = linksProxy(t, toxi, "redis", b.redis.Addr())
	return b
}

func linksProxy(t testing.TB, s *toxiproxy.ApiServer, name, upstream string) *toxiproxy.Proxy {
	t.Helper()
	p := toxiproxy.NewProxy(s, name, authFreeAddr(t), upstream)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

func (b *linksWorld) slow(p *toxiproxy.Proxy, ms int) (heal func()) {
	b.t.Helper()
	toxic := fmt.Sprintf(`{"name":"slow","type":"latency","stream":"downstream","attributes":{"latency":%d}}`, ms)
	if _, err := p.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		b.t.Fatal(err)
	}
	return func() { p.Toxics.ResetToxics(context.Background()) }
}

// linksProcess is one replica. A kill does not change its addresses or its spool folder.
type linksProcess struct {
	world                   *linksWorld
	api, redirect, internal string
	admin                   string
	spool                   string
	flush                   bool
	cmd                     *exec.Cmd
	done                    chan struct{}
	log                     *linksLog
}

type linksLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *linksLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *linksLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (b *linksWorld) start(flush bool) *linksProcess {
	b.t.Helper()
	p := &linksProcess{world: b, api: authFreeAddr(b.t), redirect: authFreeAddr(b.t), internal: authFreeAddr(b.t), admin: authFreeAddr(b.t), spool: b.t.TempDir(), flush: flush, log: &linksLog{}}
	b.t.Cleanup(func() {
		p.kill()
		if b.t.Failed() {
			b.t.Logf("the links log on %s:\n%.6000s", p.redirect, p.log)
		}
	})
	p.run()
	return p
}

func (p *linksProcess) run() {
	t := p.world.t
	t.Helper()
	binary, err := linksBinary()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(binary)
	p.cmd.Env = append(os.Environ(),
		"LINKREEL_API_ADDR="+p.api, "LINKREEL_REDIRECT_ADDR="+p.redirect, "LINKREEL_INTERNAL_ADDR="+p.internal, "LINKREEL_ADMIN_ADDR="+p.admin,
		"LINKREEL_FIRESTORE_ENDPOINT="+p.world.firestoreBy.Listen, "LINKREEL_REDIS_URL="+p.world.redisBy.Listen, "LINKREEL_AUTH_URL="+p.world.auth,
		"LINKREEL_INTERNAL_TOKEN="+authInternalToken, "LINKREEL_SHORT_BASE_URL=http://lrl.example", "LINKREEL_SPOOL_DIR="+p.spool,
		"LINKREEL_LOG_LEVEL=warn", "LINKREEL_DRAIN=0s", fmt.Sprint("LINKREEL_FLUSH=", p.flush),
	)
	p.cmd.Env = append(p.cmd.Env, p.world.env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.done = make(chan struct{})
	started := make(chan error, 1)
	go func(cmd *exec.Cmd, done chan struct{}) {
		runtime.LockOSThread() // the kernel sends the parent-death signal when this thread exits
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the tests kill the process, so an error is expected
		}
	}(p.cmd, p.done)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	authUntil(t, "links accepts requests", time.Minute, func() bool {
		for _, addr := range []string{p.api, p.redirect} {
			c, err := net.DialTimeout("tcp", addr, time.Second)
			if err != nil {
				return false
			}
			_ = c.Close()
		}
		return true
	})
}

// linksPodMemory returns the memory limit for the chart's pods, in bytes. The limit for links is
// higher, so a pod has memory to spare when 300,000 links are cached.
func linksPodMemory(t testing.TB) int64 {
	t.Helper()
	text, err := os.ReadFile("../../charts/linkreel/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Defaults struct {
			Resources struct{ Limits struct{ Memory string } }
		}
	}
	var mib int64
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(values.Defaults.Resources.Limits.Memory, "%dMi", &mib); err != nil {
		t.Fatalf("the chart's memory limit is %q", values.Defaults.Resources.Limits.Memory)
	}
	return mib << 20
}

func (p *linksProcess) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// metric returns a metric from the process, summed over its labels, or -1 if the process does not
// respond.
func (p *linksProcess) metric(name string) float64 {
	res, err := (&http.Client{Timeout: 2 * time.Second}).Get("http://" + p.admin + "/metrics")
	if err != nil {
		return -1
	}
	defer res.Body.Close()
	sum := 0.0
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		if v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64); err == nil {
			sum += v
		}
	}
	return sum
}

// call sends a request to the API.
func (p *linksProcess) call(method, path, body string) authAnswer {
	return authCall(method, p.api, path, p.world.key, body)
}

// create creates links with the slugs and returns their IDs.
func (p *linksProcess) create(slugs ...string) map[string]string {
	t := p.world.t
	t.Helper()
	ids := map[string]string{}
	for part := range slices.Chunk(slugs, 100) {
		var items []string
		for _, s := range part {
			items = append(items, fmt.Sprintf(`{"url":"https://example.com/%s","slug":%q}`, s, s))
		}
		a := p.call("POST", "/api/v1/links/bulk", `{"urls":[`+strings.Join(items, ",")+`]}`)
		if a.err != nil || a.status != 201 {
			t.Fatalf("creating links returned %d, want 201: %s %v", a.status, a.body, a.err)
		}
		var out struct {
			Results []struct{ Data struct{ ID, Slug string } }
		}
		if err := json.Unmarshal(a.body, &out); err != nil {
			t.Fatal(err)
		}
		for _, r := range out.Results {
			ids[r.Data.Slug] = r.Data.ID
		}
	}
	return ids
}

// clicks returns the counted clicks by slug.
func (p *linksProcess) clicks() (map[string]int64, error) {
	out := map[string]int64{}
	cursor := ""
	for {
		a := p.call("GET", "/api/v1/links?limit=100"+cursor, "")
		if a.err != nil || a.status != 200 {
			return nil, fmt.Errorf("listing links returned %d: %w", a.status, a.err)
		}
		var page struct {
			Data []struct {
				Slug   string
				Clicks int64
			}
			NextCursor *int64
		}
		if err := json.Unmarshal(a.body, &page); err != nil {
			return nil, err
		}
		for _, l := range page.Data {
			out[l.Slug] = l.Clicks
		}
		if page.NextCursor == nil {
			return out, nil
		}
		cursor = fmt.Sprint("&cursor=", *page.NextCursor)
	}
}

// linksConn is a visitor's connection. Unlike http.Client, it never retries a request, so it sends
// each request at most once.
type linksConn struct {
	addr string
	host string // the visits' host; "" for the default short host
	c    net.Conn
	r    *bufio.Reader
}

var errLinksNotSent = errors.New("not sent")

func (c *linksConn) visit(path string) (status int, location string, err error) {
	return c.ask("GET", path)
}

func (c *linksConn) ask(method, path string) (status int, location string, err error) {
	return c.askAs(method, path, "User-Agent: Mozilla/5.0 (X11; Linux)")
}

// askAs sends a request with a particular visitor's headers.
func (c *linksConn) askAs(method, path string, headers ...string) (status int, location string, err error) {
	if c.c == nil {
		conn, err := net.DialTimeout("tcp", c.addr, 2*time.Second)
		if err != nil {
			return 0, "", fmt.Errorf("%w: %w", errLinksNotSent, err)
		}
		c.c, c.r = conn, bufio.NewReader(conn)
	}
	_ = c.c.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = fmt.Fprintf(c.c, "%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n", method, path, cmp.Or(c.host, "lrl.example"), strings.Join(headers, "\r\n"))
	if err == nil {
		var res *http.Response
		if res, err = http.ReadResponse(c.r, &http.Request{Method: method}); err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if err == nil {
				if res.Close {
					c.close()
				}
				return res.StatusCode, res.Header.Get("Location"), nil
			}
		}
	}
	c.close()
	return 0, "", err
}

func (c *linksConn) close() {
	if c.c != nil {
		_ = c.c.Close()
	}
	c.c = nil
}

// linksLoad sends visits at a constant rate, whether or not they succeed.
type linksLoad struct {
	slugs []string
	to    []*linksProcess

	answered, broken map[string]*atomic.Int64 // by slug; an interrupted visit may or may not have been counted
	refused          atomic.Int64             // visits without a listening process
	statuses         [600]atomic.Int64
	mu               sync.Mutex
	took             []time.Duration

	stop func()
	held float64 // visits per second
}

func startLinksLoad(rate int, slugs []string, to ...*linksProcess) *linksLoad {
	l := &linksLoad{slugs: slugs, to: to, answered: map[string]*atomic.Int64{}, broken: map[string]*atomic.Int64{}}
	for _, s := range slugs {
		l.answered[s], l.broken[s] = new(atomic.Int64), new(atomic.Int64)
	}
	pools := make([]chan *linksConn, len(to))
	for i := range pools {
		pools[i] = make(chan *linksConn, 512)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var sent atomic.Int64
	started := time.Now()
	wg.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			due := started.Add(time.Duration(n) * time.Second / time.Duration(rate))
			if wait := time.Until(due); wait > 0 {
				time.Sleep(wait)
			}
			sent.Add(1)
			wg.Go(func() { l.one(pools) })
		}
	})
	l.stop = sync.OnceFunc(func() {
		cancel()
		took := time.Since(started)
		wg.Wait()
		l.held = float64(sent.Load()) / took.Seconds()
		for _, p := range pools {
			for len(p) > 0 {
				(<-p).close()
			}
		}
	})
	return l
}

func (l *linksLoad) one(pools []chan *linksConn) {
	slug, i := l.slugs[mrand.IntN(len(l.slugs))], mrand.IntN(len(pools))
	var c *linksConn
	select {
	case c = <-pools[i]:
	default:
		c = &linksConn{addr: l.to[i].redirect}
	}
	started := time.Now()
	status, _, err := c.visit("/" + slug)
	took := time.Since(started)
	switch {
	case errors.Is(err, errLinksNotSent):
		l.refused.Add(1)
	case err != nil:
		l.broken[slug].Add(1)
	default:
		l.statuses[status].Add(1)
		if status == 302 {
			l.answered[slug].Add(1)
		}
		l.mu.Lock()
		l.took = append(l.took, took)
		l.mu.Unlock()
		select {
		case pools[i] <- c:
			return
		default:
		}
	}
	c.close()
}

func (l *linksLoad) sums() (answered, broken int64) {
	for _, s := range l.slugs {
		answered += l.answered[s].Load()
		broken += l.broken[s].Load()
	}
	return answered, broken
}

// p99 returns the 99th percentile of the response times since the last call.
func (l *linksLoad) p99() time.Duration {
	l.mu.Lock()
	took := l.took
	l.took = nil
	l.mu.Unlock()
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

func (l *linksLoad) others() map[int]int64 {
	out := map[int]int64{}
	for s := range l.statuses {
		if n := l.statuses[s].Load(); n > 0 && s != 302 {
			out[s] = n
		}
	}
	return out
}

// balance waits until every click is counted. For each link, the count must be the number of
// answered clicks plus some of the visits with a broken connection.
func (l *linksLoad) balance(t testing.TB, p *linksProcess, before map[string]int64) {
	t.Helper()
	answered, broken := l.sums()
	var counted int64
	var wrong []string
	last, since := int64(-1), time.Now()
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		now, err := p.clicks()
		if err != nil && time.Now().Before(deadline) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		counted, wrong = 0, nil
		for _, s := range l.slugs {
			n := now[s] - before[s]
			counted += n
			if a, b := l.answered[s].Load(), l.broken[s].Load(); n < a || n > a+b {
				wrong = append(wrong, fmt.Sprintf("%s: %d counted, %d answered, %d interrupted", s, n, a, b))
			}
		}
		if counted != last {
			last, since = counted, time.Now()
		}
		// After 2.5 s without a change, no clicks are in flight.
		if len(wrong) == 0 && time.Since(since) > 2500*time.Millisecond || time.Now().After(deadline) {
			break
		}
	}
	t.Logf("%d clicks counted = %d answered + %d of %d interrupted; %d refused, other responses %v; %.0f visits/s", counted, answered, counted-answered, broken, l.refused.Load(), l.others(), l.held)
	for _, w := range wrong {
		t.Error(w)
	}
}

func linksSlugs(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}
