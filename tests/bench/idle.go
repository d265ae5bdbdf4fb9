package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/redisproc"
	"github.com/linkreel/linkreel/services/localcloud/storage"
	"github.com/linkreel/linkreel/services/standalone"
)

// tally counts the output from one service or from all services.
type tally struct{ Lines, Bytes, Spans int64 }

// release is an installation with two processes for each service, like the chart's. Firestore and
// object storage run in this process.
type release struct {
	firestore *firestore.Server
	api       string // links, API
	short     string
	key       string

	mu      sync.Mutex
	tallies map[string]tally // by service
	running []*exec.Cmd
	closers []func()
}

// benchIdle counts an installation's Firestore queries, spans and log lines per minute. It counts
// them first while the installation is idle, and then during 600 API calls and 3,000 redirects per
// minute.
func benchIdle(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "linkreel-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	commits := []string{""}
	if old := os.Getenv("BENCH_BASELINE"); old != "" {
		commits = []string{old, ""}
	}
	for i, commit := range commits {
		bin := filepath.Join(dir, fmt.Sprint("programs", i))
		if err := buildServices(ctx, commit, bin); err != nil {
			return err
		}
		if err := measureRest(ctx, bin, filepath.Join(dir, fmt.Sprint("data", i)), commit); err != nil {
			return err
		}
	}
	return nil
}

var replicated = []string{"auth", "console", "events", "links", "videos", "transcoding-worker"}

// buildServices builds a commit's programs. If commit is "", it builds this tree.
func buildServices(ctx context.Context, commit, bin string) error {
	tree := "."
	if commit != "" {
		tree = bin + "-tree"
		if out, err := exec.CommandContext(ctx, "git", "worktree", "add", "--detach", tree, commit).CombinedOutput(); err != nil {
			return fmt.Errorf("cannot check out %s: %w\n%s", commit, err, out)
		}
		defer func() { _ = exec.Command("git", "worktree", "remove", "--force", tree).Run() }()
	}
	args := []string{"build", "-C", tree, "-o", bin + string(filepath.Separator)}
	for _, name := range replicated {
		args = append(args, "./services/"+name+"/cmd/"+name)
	}
	if err := os.MkdirAll(bin, 0o700); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build %s: %w\n%s", commit, err, out)
	}
	return nil
}

func measureRest(ctx context.Context, bin, dir, commit string) error {
	r, err := startRelease(ctx, bin, dir)
	if err != nil {
		return err
	}
	defer r.stop()
	minutes := float64(setting("BENCH_IDLE_SECONDS", 120)) / 60
	fmt.Printf("%s, per minute:\n", cmp.Or(commit, "this tree"))
	if err := pause(ctx, 15*time.Second); err != nil { // skip the first iteration of every loop
		return err
	}
	r.reset()
	if err := pause(ctx, time.Duration(minutes*float64(time.Minute))); err != nil {
		return err
	}
	r.print("idle", minutes)
	r.reset()
	if err := r.work(ctx); err != nil {
		return err
	}
	r.print("busy", 1)
	return nil
}

// startRelease starts the stores and all processes.
func startRelease(ctx context.Context, bin, dir string) (r *release, err error) {
	r = &release{tallies: map[string]tally{}}
	defer func() {
		if err != nil {
			r.stop()
		}
	}()
	env, err := r.openStores(ctx, dir)
	if err != nil {
		return nil, err
	}
	addrs := map[string]string{}
	for _, name := range []string{"auth", "events", "links", "videos"} {
		if addrs[name], err = freeAddr(); err != nil {
			return nil, err
		}
		env = append(env, "LINKREEL_"+strings.ToUpper(name)+"_URL=http://"+addrs[name])
	}
	for _, name := range replicated {
		for n := range 2 {
			own := append(slices.Clone(env), "LINKREEL_SPOOL_DIR="+filepath.Join(dir, name, fmt.Sprint(n)), "LINKREEL_SCRATCH_DIR="+filepath.Join(dir, name, fmt.Sprint(n)))
			for _, listener := range []string{"ADMIN", "API", "REDIRECT", "INTERNAL", "OPERATOR"} {
				addr, err := freeAddr()
				if err != nil {
					return nil, err
				}
				switch {
				case listener == "INTERNAL" && n == 0 && addrs[name] != "":
					addr = addrs[name]
				case listener == "API" && name == "links":
					r.api = addr
				case listener == "REDIRECT" && name == "links":
					r.short = addr
				}
				own = append(own, "LINKREEL_"+listener+"_ADDR="+addr)
			}
			if err := r.start(ctx, filepath.Join(bin, name), name, own); err != nil {
				return nil, err
			}
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "auth"), "bootstrap", "--name", "bench", "--plan", "enterprise")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("auth bootstrap failed: %w", err)
	}
	_, key, _ := strings.Cut(string(out), "key ")
	r.key = strings.TrimSpace(key)
	return r, nil
}

// openStores opens Firestore, object storage and Redis, and returns the services' settings.
func (r *release) openStores(ctx context.Context, dir string) ([]string, error) {
	indexes, err := firestore.ParseIndexes(standalone.Indexes()...)
	if err != nil {
		return nil, err
	}
	if r.firestore, err = firestore.Open(firestore.Options{Indexes: indexes}); err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func() { _ = r.firestore.Close() })
	addr, err := r.firestore.Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	redisd, err := redisproc.Start(ctx, redisproc.Options{Dir: filepath.Join(dir, "redis")})
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func() { _ = redisd.Stop() })
	var listeners [2]net.Listener
	for i := range listeners {
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, err
		}
	}
	public, api := "http://"+listeners[0].Addr().String(), "http://"+listeners[1].Addr().String()
	objects, err := storage.Open(storage.Options{Dir: filepath.Join(dir, "objects"), Buckets: []string{"linkreel"}, PublicURL: public, APIURL: api})
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func() { _ = objects.Close() })
	go func() { _ = http.Serve(listeners[0], objects.PublicHandler()) }()
	go func() { _ = http.Serve(listeners[1], objects.APIHandler()) }()
	keyFile := filepath.Join(dir, "key.json")
	if err := os.WriteFile(keyFile, objects.ServiceAccountKey(), 0o600); err != nil {
		return nil, err
	}
	return []string{
		"LINKREEL_FIRESTORE_ENDPOINT=" + addr.String(), "LINKREEL_REDIS_URL=" + redisd.Addr(),
		"LINKREEL_STORAGE_ENDPOINT=" + api, "LINKREEL_STORAGE_PUBLIC_URL=" + public, "LINKREEL_STORAGE_KEY_FILE=" + keyFile,
		"LINKREEL_INTERNAL_TOKEN=" + strings.Repeat("i", 32), "LINKREEL_ADMIN_TOKEN=" + strings.Repeat("a", 32),
		"LINKREEL_TOKEN_SECRET=" + strings.Repeat("07", 32), "LINKREEL_WEBHOOK_SECRET_KEY=" + strings.Repeat("w", 32),
		"LINKREEL_SHORT_BASE_URL=http://short.example", "LINKREEL_BASE_URL=http://base.example",
		"LINKREEL_RATE_LIMITS=enterprise:6000000", "LINKREEL_JAIL=reduced", "LINKREEL_DRAIN=0s", "DNS_RESOLVER=127.0.0.1:9",
		"OTEL_TRACES_EXPORTER=console", "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=" + cmp.Or(os.Getenv("BENCH_SAMPLE_RATIO"), "1"),
	}, nil
}

// start starts a process and counts its output lines. A line is a log line, or a span if it begins
// with the span's name.
func (r *release) start(ctx context.Context, program, name string, env []string) error {
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r.running = append(r.running, cmd)
	go func() {
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			r.mu.Lock()
			t := r.tallies[name]
			if bytes.HasPrefix(line, []byte(`{"Name":`)) {
				t.Spans++
			} else {
				t.Lines, t.Bytes = t.Lines+1, t.Bytes+int64(len(line))
			}
			r.tallies[name] = t
			r.mu.Unlock()
		}
	}()
	return nil
}

func (r *release) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.tallies)
	r.firestore.ResetStats()
}

// print prints the counts since the last reset, divided by minutes.
func (r *release) print(what string, minutes float64) {
	_ = pause(context.Background(), 6*time.Second) // services write spans every five seconds
	r.mu.Lock()
	defer r.mu.Unlock()
	stats := r.firestore.Stats()
	var queries int64
	var of []string
	for _, collection := range slices.Sorted(maps.Keys(stats.Queries)) {
		n := stats.Queries[collection]
		queries += n
		of = append(of, fmt.Sprintf("%s %.0f", collection, float64(n)/minutes))
	}
	var sum tally
	for _, name := range replicated {
		t := r.tallies[name]
		sum = tally{sum.Lines + t.Lines, sum.Bytes + t.Bytes, sum.Spans + t.Spans}
		fmt.Printf("  %s %-20s %7.0f spans %7.0f lines %9.0f bytes\n", what, name, float64(t.Spans)/minutes, float64(t.Lines)/minutes, float64(t.Bytes)/minutes)
	}
	fmt.Printf("  %s %-20s %7.0f spans %7.0f lines %9.0f bytes %7.0f queries (%.2f per second): %s\n", what, "all",
		float64(sum.Spans)/minutes, float64(sum.Lines)/minutes, float64(sum.Bytes)/minutes, float64(queries)/minutes, float64(queries)/minutes/60, strings.Join(of, ", "))
}

// work makes 600 API calls and 3,000 redirects, spread over a minute.
func (r *release) work(ctx context.Context) error {
	var slug string
	client := &http.Client{Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for i := range 600 {
		begun := time.Now()
		method, path, body := http.MethodGet, "/api/v1/links?limit=20", ""
		if i%3 == 0 {
			method, path, body = http.MethodPost, "/api/v1/links", fmt.Sprintf(`{"url":"https://example.com/%d"}`, i)
		}
		answer, err := r.ask(ctx, client, method, "http://"+r.api+path, body)
		if err != nil {
			return err
		}
		if method == http.MethodPost {
			var made struct{ Slug string }
			if err := json.Unmarshal(answer, &made); err != nil {
				return err
			}
			slug = made.Slug
		}
		for range 5 {
			if _, err := r.ask(ctx, client, http.MethodGet, "http://"+r.short+"/"+slug, ""); err != nil {
				return err
			}
		}
		if err := pause(ctx, max(time.Millisecond, time.Until(begun.Add(time.Minute/600)))); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) ask(ctx context.Context, client *http.Client, method, address, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if strings.Contains(address, r.api) {
		req.Header.Set("Authorization", "Bearer "+r.key)
		req.Header.Set("Content-Type", "application/json")
	} else {
		req.Host = "short.example"
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 400 {
		return nil, fmt.Errorf("%s %s returned %s: %s", method, address, res.Status, answer[:min(len(answer), 200)])
	}
	return answer, nil
}

func (r *release) stop() {
	for _, cmd := range r.running {
		_ = cmd.Process.Signal(os.Interrupt)
	}
	for _, cmd := range r.running {
		_ = cmd.Wait()
	}
	for _, c := range slices.Backward(r.closers) {
		c()
	}
}
