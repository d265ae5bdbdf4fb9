package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth"
	"github.com/linkreel/linkreel/services/localcloud/procstat"
)

const (
	connections = 64
	manyLinks   = 100_000 // BENCH_LINKS; the number of links for the Zipf distribution
)

// contender is one server in the comparison.
type contender struct {
	name string
	addr string
	pids []int
	path func(worker, n int) string
	warm []string // paths to load into memory before each round

	server *server // the server to profile

	answered int64
	resting  time.Duration // CPU time used while idle
	rested   time.Duration // duration of that measurement
	rounds   []round
	p99      []time.Duration
}

// round has the figures for one contender in one round.
type round struct {
	answers int64
	loaded  time.Duration // duration of the requests to this contender
	took    time.Duration // including the other contenders' turns
	cpu     time.Duration
}

// idle returns how much of a processor the contender uses while idle.
func (c *contender) idle() float64 { return c.resting.Seconds() / c.rested.Seconds() }

// perRequest returns the CPU time of a redirect in each round, in µs. The cost does not include the
// system's background loops because they may differ between this commit and the baseline.
func (c *contender) perRequest() (µs []float64) {
	for _, r := range c.rounds {
		µs = append(µs, 1e6*(r.cpu.Seconds()-c.idle()*r.took.Seconds())/float64(r.answers))
	}
	return µs
}

// rate returns the number of redirects per second in each round.
func (c *contender) rate() (perSecond []float64) {
	for _, r := range c.rounds {
		perSecond = append(perSecond, float64(r.answers)/r.loaded.Seconds())
	}
	return perSecond
}

func benchRedirect(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "linkreel-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	sys, err := startSystem(ctx, filepath.Join(dir, "now"), "")
	if err != nil {
		return err
	}
	defer sys.stop()
	old, err := startBaseline(ctx, dir)
	if err != nil {
		return err
	}
	fiber, err := startServer(ctx, "fiber", dir, "")
	if err != nil {
		return err
	}
	defer fiber.stop()
	hour, err := startServer(ctx, "hour", dir, "")
	if err != nil {
		return err
	}
	defer hour.stop()

	many := setting("BENCH_LINKS", manyLinks)
	fmt.Printf("creating %d links …\n", many)
	slugs, err := sys.createLinks(ctx, many)
	if err != nil {
		return err
	}
	hot := "/" + slugs[0]
	zipf, drawn := drawZipf(slugs)
	all := []*contender{
		{name: "bare Fiber", addr: fiber.Short, pids: []int{fiber.pid}, path: func(int, int) string { return "/hot" }},
		{name: "linkreel, one hot link", addr: sys.Short, pids: sys.linkPids(), server: sys, path: func(int, int) string { return hot }},
		{name: fmt.Sprintf("linkreel, %d links by Zipf", many), addr: sys.Short, pids: sys.linkPids(), server: sys, path: zipf, warm: drawn},
		{name: "Fiber, HINCRBY per visit", addr: hour.Short, pids: hour.linkPids(), path: func(int, int) string { return "/hot" }},
	}
	var oldBefore int64
	if old != nil {
		defer old.stop()
		fmt.Printf("creating %d links in the baseline …\n", many)
		slugs, err := old.createLinks(ctx, many)
		if err != nil {
			return err
		}
		hot := "/" + slugs[0]
		zipf, drawn := drawZipf(slugs)
		all = append(all,
			&contender{name: "baseline, one hot link", addr: old.Short, pids: old.linkPids(), path: func(int, int) string { return hot }},
			&contender{name: "baseline, the same Zipf", addr: old.Short, pids: old.linkPids(), path: zipf, warm: drawn})
		if oldBefore, err = old.clicks(ctx); err != nil {
			return err
		}
	}
	if nginx, err := startNginx(ctx, dir); err != nil {
		fmt.Printf("nginx is not measured: %v\n", err)
	} else {
		defer nginx.stop()
		all = append(all, &contender{name: "nginx return 302", addr: nginx.Short, pids: nginx.pids, path: func(int, int) string { return "/hot" }})
	}
	before, err := sys.clicks(ctx)
	if err != nil {
		return err
	}
	hotOnes, zipfOnes := []*contender{all[0], all[1]}, []*contender{all[2]}
	for _, c := range all[3:] {
		if c.warm == nil {
			hotOnes = append(hotOnes, c)
		} else {
			zipfOnes = append(zipfOnes, c)
		}
	}
	rounds := setting("BENCH_ROUNDS", 5)
	for round := -1; round < rounds; round++ { // the first round is not counted
		for _, group := range [][]*contender{hotOnes, zipfOnes} {
			if err := takeTurns(ctx, group, round >= 0); err != nil {
				return err
			}
		}
	}
	answered, oldAnswered := all[1].answered+all[2].answered, int64(0)
	if old != nil {
		oldAnswered = all[4].answered + all[5].answered
	}
	fmt.Printf("\n%-34s %14s %10s %10s %9s %9s\n", "", "CPU µs/request", "requests/s", "p99", "× Fiber", "at rest")
	for _, c := range all {
		fmt.Printf("%-34s %14.2f %10.0f %10s %9.2f %8.1f%%\n", c.name, median(c.perRequest()), median(c.rate()), slices.Sorted(slices.Values(c.p99))[len(c.p99)/2].Round(10*time.Microsecond), ratio(c.perRequest(), all[0].perRequest()), 100*c.idle())
	}
	if last := all[len(all)-1]; last.name == "nginx return 302" {
		for _, c := range all[1:3] {
			fmt.Printf("%s: × nginx %.2f\n", c.name, ratio(c.perRequest(), last.perRequest()))
		}
	}
	fmt.Printf("one hot link: × Fiber with HINCRBY %.2f\n", ratio(all[1].perRequest(), all[3].perRequest()))
	if old != nil {
		fmt.Printf("one hot link: × baseline %.3f\nby Zipf: × baseline %.3f\n", ratio(all[1].perRequest(), all[4].perRequest()), ratio(all[2].perRequest(), all[5].perRequest()))
		if err := old.reconcile(ctx, oldBefore, oldAnswered); err != nil {
			return fmt.Errorf("baseline: %w", err)
		}
	}
	return sys.reconcile(ctx, before, answered)
}

// ratio returns the median over all rounds of a's cost divided by b's cost in the same round.
func ratio(a, b []float64) float64 { return median(ratios(a, b)) }

// ratios returns the ratio for each round, sorted from the smallest to the largest.
func ratios(a, b []float64) []float64 {
	r := make([]float64, len(a))
	for i := range a {
		r[i] = a[i] / b[i]
	}
	return sorted(r)
}

// rest measures the CPU time that contenders use while idle.
func rest(ctx context.Context, group []*contender) error {
	const length = 8 * time.Second
	before, err := cpu(group)
	if err != nil {
		return err
	}
	if err := pause(ctx, length); err != nil {
		return err
	}
	after, err := cpu(group)
	for i, c := range group {
		c.resting, c.rested = c.resting+after[i]-before[i], c.rested+length
	}
	return err
}

// cpu returns each contender's processor time so far.
func cpu(of []*contender) ([]time.Duration, error) {
	used := make([]time.Duration, len(of))
	for i, c := range of {
		var err error
		if used[i], err = procstat.CPU(c.pids...); err != nil {
			return used, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return used, nil
}

// takeTurns loads the contenders in turns of a third of a second, each for a total of one round,
// and records their CPU time. A machine's speed changes from second to second. With short turns,
// each change affects all contenders. If keep is false, the round is a warm-up and its figures are
// dropped.
func takeTurns(ctx context.Context, group []*contender, keep bool) error {
	const turn = time.Second / 3
	if keep {
		// Measure this in each round because the machine's speed changes from minute to minute.
		if err := rest(ctx, group); err != nil {
			return err
		}
	}
	n, p99 := make([]int64, len(group)), make([][]time.Duration, len(group))
	for _, c := range group {
		if err := visitOnce(ctx, c.addr, c.warm); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if dir := os.Getenv("BENCH_PROFILES"); dir != "" && c.server != nil {
			go c.server.profile(ctx, filepath.Join(dir, strings.ReplaceAll(c.name, " ", "-")+".pprof"), time.Duration(len(group))*roundLength())
		}
	}
	started := time.Now()
	before, err := cpu(group)
	if err != nil {
		return err
	}
	turns := int(roundLength() / turn)
	for at := range turns {
		for i := range group {
			if at%2 == 1 { // alternate the order too
				i = len(group) - 1 - i
			}
			c := group[i]
			answers, slow, err := load(ctx, c.addr, connections, turn, "302", func(worker, n int) string { return c.path(worker, at<<12+n) })
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			n[i] += answers
			p99[i] = append(p99[i], slow)
		}
	}
	// Wait for the flusher because its work for these clicks is part of their cost. After flushing
	// many links, it pauses for four seconds.
	if err := pause(ctx, 7*time.Second); err != nil {
		return err
	}
	after, err := cpu(group)
	if err != nil {
		return err
	}
	took := time.Since(started)
	for i, c := range group {
		c.answered += n[i]
		if keep {
			c.rounds = append(c.rounds, round{answers: n[i], loaded: time.Duration(turns) * turn, took: took, cpu: after[i] - before[i]})
			c.p99 = append(c.p99, p99[i]...)
		}
	}
	return nil
}

// profile saves a CPU profile of the server, starting now.
func (s *server) profile(ctx context.Context, path string, length time.Duration) {
	url := fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", s.Control, int(length.Seconds()))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: cannot save a profile:", err)
		return
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: cannot save a profile:", err)
	}
}

// drawZipf returns a function that draws paths to request, and a list of the distinct paths it can
// draw.
func drawZipf(slugs []string) (path func(worker, n int) string, drawn []string) {
	const draws = 1 << 16
	z := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(len(slugs)-1))
	paths := make([]string, draws)
	for i := range paths {
		paths[i] = "/" + slugs[z.Uint64()]
	}
	drawn = slices.Compact(slices.Sorted(slices.Values(paths)))
	return func(worker, n int) string { return paths[(worker*7919+n)%draws] }, drawn
}

// visitOnce sends a HEAD request for each path. HEAD requests do not count as clicks.
func visitOnce(ctx context.Context, addr string, paths []string) error {
	// This must be fast. Servers refresh old cache entries in the background, so a slow pass would
	// cause refreshes during the round.
	const visitors = 16
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Transport: &http.Transport{MaxIdleConnsPerHost: visitors}}
	defer client.CloseIdleConnections()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(visitors)
	for _, path := range paths {
		g.Go(func() error {
			req, err := http.NewRequestWithContext(ctx, http.MethodHead, "http://"+addr+path, nil)
			if err != nil {
				return err
			}
			req.Host = "localhost"
			res, err := client.Do(req)
			if err != nil {
				return err
			}
			if _ = res.Body.Close(); res.StatusCode != http.StatusFound {
				return fmt.Errorf("HEAD %s returned %s, want 302", path, res.Status)
			}
			return nil
		})
	}
	return g.Wait()
}

// server is a child process to be measured.
type server struct {
	pid  int
	pids []int
	cmd  *exec.Cmd
	ready
	firestore *server // a system's database

	record string // ID of the record that the API calls use
	calls  int    // number of calls so far; it makes the bodies distinct
}

// ready is the message that a child process prints when it is ready.
type ready struct {
	Short, Base, Control, Key string
	Firestore                 string
	Redis                     int // process id
}

// startBaseline builds the commit in BENCH_BASELINE from this repository and starts its system. It
// returns nil if BENCH_BASELINE is not set.
func startBaseline(ctx context.Context, dir string) (*server, error) {
	commit := os.Getenv("BENCH_BASELINE")
	if commit == "" {
		return nil, nil
	}
	tree, exe := filepath.Join(dir, "baseline-tree"), filepath.Join(dir, "baseline-bench")
	fmt.Printf("building the baseline %s …\n", commit)
	for _, args := range [][]string{
		{"git", "worktree", "add", "--detach", tree, commit},
		{"go", "build", "-C", tree, "-o", exe, "./tests/bench"},
		{"go", "build", "-C", tree, "-o", exe + "-auth", "./services/auth/cmd/auth"},
		{"git", "worktree", "remove", "--force", tree},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%v failed: %w\n%s", args, err, out)
		}
	}
	return startSystem(ctx, filepath.Join(dir, "baseline"), exe)
}

// startSystem starts Linkreel, with Firestore in a separate process. If exe is empty, it starts
// this program.
func startSystem(ctx context.Context, dir, exe string) (*server, error) {
	db, err := startProgram(ctx, exe, "firestore", dir, "")
	if err != nil {
		return nil, err
	}
	s, err := startProgram(ctx, exe, "system", dir, db.Firestore)
	if err != nil {
		db.stop()
		return nil, err
	}
	s.firestore = db
	if s.Key, err = demoKey(ctx, exe, db.Firestore); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// demoKey creates a key in the database that the system uses. The system's own demo keys are in its
// embedded database, which this bench does not use. A baseline may store accounts in a different
// format, so its own auth program creates its key.
func demoKey(ctx context.Context, exe, endpoint string) (string, error) {
	const project = "linkreel-local"
	if exe == "" {
		db, err := firestoredb.Open(ctx, firestoredb.Config{Project: project, Endpoint: endpoint})
		if err != nil {
			return "", err
		}
		defer func() { _ = db.Close() }()
		return auth.EnsureDemo(ctx, db, identity.Enterprise, "")
	}
	cmd := exec.CommandContext(ctx, exe+"-auth", "bootstrap", "--name", "bench")
	cmd.Env = append(os.Environ(), "LINKREEL_FIRESTORE_PROJECT="+project, "LINKREEL_FIRESTORE_ENDPOINT="+endpoint)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("the baseline's auth bootstrap failed: %w", err)
	}
	_, key, ok := strings.Cut(string(out), "key ")
	if !ok {
		return "", fmt.Errorf("the baseline's auth bootstrap printed no key: %q", out)
	}
	return strings.TrimSpace(key), nil
}

func startServer(ctx context.Context, what, dir, firestoreAddr string) (*server, error) {
	return startProgram(ctx, "", what, dir, firestoreAddr)
}

func startProgram(ctx context.Context, exe, what, dir, firestoreAddr string) (*server, error) {
	if exe == "" {
		var err error
		if exe, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe, "serve", what)
	cmd.Env = append(os.Environ(), "BENCH_DIR="+filepath.Join(dir, what), "BENCH_FIRESTORE="+firestoreAddr)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stdin, err := cmd.StdinPipe() // the pipe closes when this process exits, which makes the child exit too
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	_ = stdin
	s := &server{cmd: cmd, pid: cmd.Process.Pid}
	if err := json.NewDecoder(out).Decode(&s.ready); err != nil {
		s.stop()
		return nil, fmt.Errorf("%s did not start: %w", what, err)
	}
	return s, nil
}

func (s *server) stop() {
	_ = s.cmd.Process.Signal(os.Interrupt)
	_ = s.cmd.Wait()
	if s.firestore != nil {
		s.firestore.stop()
	}
}

// linkPids returns the processes that serve redirects: the links service with its flusher, and
// Redis.
func (s *server) linkPids() []int { return []int{s.pid, s.Redis} }

func (s *server) createLinks(ctx context.Context, n int) ([]string, error) {
	slugs := make([]string, 0, n)
	for len(slugs) < n {
		items := make([]map[string]string, min(100, n-len(slugs)))
		for i := range items {
			items[i] = map[string]string{"url": fmt.Sprintf("https://example.com/%d", len(slugs)+i)}
		}
		var answer struct {
			Results []struct {
				Data struct{ Slug string }
			}
		}
		status, err := s.call(ctx, http.MethodPost, "/api/v1/links/bulk", map[string]any{"urls": items}, &answer)
		if err != nil {
			return nil, err
		}
		if status != http.StatusCreated {
			return nil, fmt.Errorf("the bulk create returned %d, want 201", status)
		}
		for _, r := range answer.Results {
			slugs = append(slugs, r.Data.Slug)
		}
	}
	return slugs, nil
}

func (s *server) call(ctx context.Context, method, path string, body, answer any) (int, error) {
	var r io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, err
		}
		r = strings.NewReader(string(text))
	}
	req, err := http.NewRequestWithContext(ctx, method, s.Base+path, r)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+s.Key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || answer == nil {
		return res.StatusCode, err
	}
	return res.StatusCode, json.Unmarshal(text, answer)
}

// control reads the database's counters.
func (s *server) control(ctx context.Context, path string, answer any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.firestore.Control+path, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return json.NewDecoder(res.Body).Decode(answer)
}

// clicks returns the sum of all links' click counts.
func (s *server) clicks(ctx context.Context) (n int64, err error) {
	return n, s.control(ctx, "/clicks", &n)
}

// reconcile checks that the number of counted clicks equals the number of redirects served.
func (s *server) reconcile(ctx context.Context, before, answered int64) error {
	var now int64
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		var err error
		if now, err = s.clicks(ctx); err != nil {
			return err
		}
		if now-before == answered {
			break
		}
	}
	var rate struct {
		PerSecond float64
		Document  string
	}
	if err := s.control(ctx, "/hottest", &rate); err != nil {
		return err
	}
	fmt.Printf("clicks: %d answered, %d counted; the document with the most writes, %s, had %.2f writes/s\n", answered, now-before, rate.Document, rate.PerSecond)
	if now-before != answered {
		return errors.New("clicks were lost or counted twice")
	}
	return nil
}

// startNginx serves `return 302` if nginx is installed.
func startNginx(ctx context.Context, dir string) (*server, error) {
	bin, err := exec.LookPath("nginx")
	if err != nil {
		return nil, errors.New("nginx is not installed")
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf("daemon off; worker_processes 1; pid %s/nginx.pid; error_log stderr crit;\nevents {}\nhttp { access_log off; keepalive_requests 10000000; server { listen %s; location / { return 302 https://example.com/; } } }\n", dir, addr)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, bin, "-p", dir, "-c", conf)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd, pid: cmd.Process.Pid, ready: ready{Short: addr}}
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if s.pids = append([]int{s.pid}, procstat.Descendants(s.pid)...); len(s.pids) > 1 {
			return s, nil
		}
	}
	s.stop()
	return nil, errors.New("nginx did not start")
}
