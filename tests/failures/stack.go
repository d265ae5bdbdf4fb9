package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.yaml.in/yaml/v3"

	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/services/localcloud/redisproc"
	"github.com/linkreel/linkreel/services/standalone"
)

const (
	release   = "try"
	namespace = "linkreel"
	bucket    = "media"
)

// stack is an installation of separate processes.
type stack struct {
	name       string // of the failure
	dir        string
	redis      *redisproc.Server
	processes  map[string]*process
	proxies    map[string]*proxy
	indexed    []string          // localcloud's arguments with indexes
	disks      map[string]string // mount points of small disks, by folder
	prometheus string
	key        string
	counts     counts
	domains    domains
	servers    []*httptest.Server // of this program
	unready    sync.Map           // names of the pods that do not get traffic because their readiness probes fail
	playback   atomic.Value       // URL of the video that was played last
	broken     time.Time          // when the failure began
	seen       map[string]span    // alerts since then
}

// say prints a line about the play.
func (s *stack) say(format string, args ...any) {
	fmt.Printf("%s: %s\n", s.name, fmt.Sprintf(format, args...))
}

// startStack starts all processes. Its files are in the failure's folder under dir.
func startStack(ctx context.Context, dir string, f failure) (s *stack, err error) {
	dir = filepath.Join(dir, f.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	started := &stack{name: f.name, dir: dir, processes: map[string]*process{}, proxies: map[string]*proxy{}, disks: map[string]string{}, seen: map[string]span{}}
	defer func() {
		if err != nil {
			started.stop()
		}
	}()
	for _, name := range f.disks {
		if err := started.mount(name); err != nil {
			return nil, err
		}
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "redis.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child process has its own descriptor
	if started.redis, err = redisproc.Start(ctx, redisproc.Options{Dir: started.folder("redis"), Addr: addr, Log: log}); err != nil {
		return nil, err
	}
	if err := started.startServices(ctx); err != nil {
		return nil, err
	}
	return started, started.startPrometheus(ctx)
}

// programs returns the folder for the built programs, in the folder of all plays. Another run at
// the same time may be of another commit, so they must not share it.
func programs(dir string) string { return filepath.Join(dir, "programs") }

func build(ctx context.Context, dir string) error {
	args := []string{"build", "-o", programs(dir) + "/"}
	for _, name := range []string{"localcloud", "auth", "links", "videos", "events", "transcoding-worker"} {
		args = append(args, "./services/"+name+"/cmd/"+name)
	}
	if err := os.MkdirAll(programs(dir), 0o700); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the programs: %w\n%s", err, out)
	}
	return nil
}

func (s *stack) startServices(ctx context.Context) error {
	addrs := map[string]string{}
	for _, name := range []string{
		"firestore", "upload", "storage", "auth.api", "auth.operator", "auth.internal", "videos.api", "videos.internal", "events.api", "events.internal",
		"links-1.api", "links-1.internal", "links-1.redirect", "links-1.tls", "links-2.api", "links-2.internal", "links-2.redirect", "links-2.tls",
	} {
		addr, err := freeAddr()
		if err != nil {
			return err
		}
		addrs[name] = addr
	}
	for name, upstream := range map[string]string{"firestore": addrs["firestore"], "storage": addrs["storage"], "upload": addrs["upload"], "redis": s.redis.Addr()} {
		if err := s.addProxy(name, upstream); err != nil {
			return err
		}
	}
	if err := s.startAuthority(addrs); err != nil {
		return err
	}
	// Use a host name because passkeys do not work with an IP address.
	local := func(addr string) string { return strings.Replace("http://"+addr, "127.0.0.1", "localhost", 1) }
	at := func(name string) string { return local(addrs[name]) }
	uploads := local(s.proxies["upload"].Listen)
	const token = "the-token-of-localcloud-in-failures-0123456789"
	tokenFile, indexes := filepath.Join(s.dir, "token"), []string{}
	if err := os.WriteFile(tokenFile, []byte(token), 0o600); err != nil {
		return err
	}
	for i, text := range standalone.Indexes() {
		path := filepath.Join(s.dir, fmt.Sprintf("indexes-%d.json", i))
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
		indexes = append(indexes, "--indexes="+path)
	}
	if err := s.run("localcloud", "localcloud", nil, append(indexes,
		"--data-dir="+s.folder("localcloud"), "--firestore-addr="+addrs["firestore"], "--storage-addr="+addrs["upload"],
		"--storage-api-addr="+addrs["storage"], "--admin-addr=ADMIN", "--token-file="+tokenFile, "--bucket="+bucket, "--public-url="+uploads,
		"--push-url="+at("videos.api")+"/hooks/storage", "--push-audience="+at("auth.api")+"/hooks/storage",
	)...); err != nil {
		return err
	}
	if err := s.ready(ctx, "localcloud", at("storage")+"/readyz"); err != nil {
		return err
	}
	keyFile := filepath.Join(s.folder("localcloud"), "storage", "service-account.json")
	shared := []string{
		"LINKREEL_FIRESTORE_PROJECT=linkreel-local", "LINKREEL_FIRESTORE_ENDPOINT=" + s.proxies["firestore"].Listen, "LINKREEL_FIRESTORE_TIMEOUT=9s",
		"LINKREEL_LOCALCLOUD_TOKEN=" + token, "LINKREEL_STORAGE_BUCKET=" + bucket, "LINKREEL_STORAGE_PUBLIC_URL=" + uploads,
		"LINKREEL_STORAGE_ENDPOINT=http://" + s.proxies["storage"].Listen, "LINKREEL_STORAGE_KEY_FILE=" + keyFile,
		"LINKREEL_REDIS_URL=" + s.proxies["redis"].Listen, "LINKREEL_BASE_URL=" + at("auth.api"), "LINKREEL_SHORT_BASE_URL=" + at("links-1.redirect"),
		"LINKREEL_AUTH_URL=" + at("auth.internal"), "LINKREEL_LINKS_URL=" + at("links-1.internal"), "LINKREEL_VIDEOS_URL=" + at("videos.internal"),
		"LINKREEL_EVENTS_URL=" + at("events.internal"), "LINKREEL_ADMIN_TOKEN=" + operatorToken, "LINKREEL_INTERNAL_TOKEN=the-internal-token-of-failures-0123456789",
		"LINKREEL_TOKEN_SECRET=" + secret, "LINKREEL_WEBHOOK_SECRET_KEY=" + secret, "LINKREEL_SPLIT_KEY=" + secret,
		"LINKREEL_PUSH_JWKS_URL=" + at("storage") + "/oauth2/v3/certs", "LINKREEL_PUSH_AUDIENCE=" + at("auth.api") + "/hooks/storage",
		"DNS_RESOLVER=" + s.domains.dns, "LINKREEL_ACME_DIRECTORY=https://" + s.proxies["authority"].Listen + "/dir", "LINKREEL_ACME_CA_FILE=" + s.domains.caFile,
		"LINKREEL_CERTIFICATE_KEY=" + secret,
		"LINKREEL_WEBHOOK_ALLOW_HTTP=true", "LINKREEL_WEBHOOK_ALLOW_PRIVATE=true", "LINKREEL_RATE_LIMITS=enterprise:60000",
		"LINKREEL_SCRATCH_DIR=" + filepath.Join(s.dir, "scratch"), "LINKREEL_ADMIN_ADDR=ADMIN", "LINKREEL_LOG_ACCESS=errors", "LINKREEL_DRAIN=1s",
	}
	for _, p := range []struct{ name, program string }{
		{"auth", "auth"}, {"links-1", "links"}, {"links-2", "links"}, {"videos", "videos"}, {"events", "events"}, {"worker", "transcoding-worker"},
	} {
		env := append([]string{"LINKREEL_SPOOL_DIR=" + s.folder("spool-"+p.name)}, shared...)
		for _, port := range []string{"api", "operator", "internal", "redirect", "tls"} {
			if addr := addrs[p.name+"."+port]; addr != "" {
				env = append(env, "LINKREEL_"+strings.ToUpper(port)+"_ADDR="+addr)
			}
		}
		if err := s.run(p.name, p.program, env); err != nil {
			return err
		}
	}
	for name, p := range s.processes {
		if name != "localcloud" {
			if err := s.ready(ctx, name, "http://"+p.admin+"/readyz"); err != nil {
				return err
			}
		}
	}
	s.counts.addrs = addrs
	return nil
}

// addProxy starts a proxy in front of a dependency.
func (s *stack) addProxy(name, upstream string) error {
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	toxi := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	p := &proxy{toxiproxy.NewProxy(toxi, name, addr, upstream), upstream}
	s.proxies[name] = p
	return p.Start()
}

const (
	operatorToken = "the-operator-token-of-failures-0123456789"
	secret        = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

func (s *stack) run(name, program string, env []string, args ...string) error {
	admin, err := freeAddr()
	if err != nil {
		return err
	}
	put := func(texts []string) []string {
		out := make([]string, len(texts))
		for i, text := range texts {
			out[i] = strings.ReplaceAll(text, "ADMIN", admin)
			if strings.HasPrefix(text, "LINKREEL_ADMIN_TOKEN") {
				out[i] = text
			}
		}
		return out
	}
	for i := range env {
		env[i] = strings.Replace(env[i], "LINKREEL_ADMIN_ADDR=ADMIN", "LINKREEL_ADMIN_ADDR="+admin, 1)
	}
	p := &process{program: filepath.Join(programs(filepath.Dir(s.dir)), program), args: put(args), env: env, admin: admin, log: filepath.Join(s.dir, name+".log")}
	s.processes[name] = p
	return p.start()
}

// ready waits until a URL of a process returns success.
func (s *stack) ready(ctx context.Context, name, address string) error {
	for range 600 {
		if resp, err := http.Get(address); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		if !outage.Pause(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("%s is not ready; see %s", name, s.processes[name].log)
}

// startPrometheus starts a Prometheus with the same metrics and rules as one that uses the chart's
// ServiceMonitor and rules.
func (s *stack) startPrometheus(ctx context.Context) error {
	rules := exec.CommandContext(ctx, "helm", "template", release, "charts/linkreel", "--namespace", namespace, "--show-only", "templates/rules.yaml",
		"--set", "metrics.rules.enabled=true,metrics.probe.enabled=true,tls.onDemand.enabled=true")
	rules.Env = append(os.Environ(), "PATH="+filepath.Join(".local", "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	text, err := rules.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return fmt.Errorf("cannot render the rules: %s", exit.Stderr)
		}
		return fmt.Errorf("cannot render the rules: %w", err)
	}
	var rendered struct{ Spec any }
	if err := yaml.Unmarshal(text, &rendered); err != nil {
		return fmt.Errorf("cannot parse the rendered rules: %w", err)
	}
	if text, err = yaml.Marshal(rendered.Spec); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir, "rules.yaml"), text, 0o600); err != nil {
		return err
	}
	var targets []any
	if len(s.disks) > 0 {
		kubelet := httptest.NewServer(http.HandlerFunc(s.volumes))
		context.AfterFunc(ctx, kubelet.Close)
		targets = append(targets, map[string]any{"targets": []string{kubelet.Listener.Addr().String()}, "labels": map[string]string{"namespace": namespace}})
	}
	for name, p := range s.processes {
		component, _, _ := strings.Cut(name, "-")
		targets = append(targets, map[string]any{"targets": []string{p.admin}, "labels": map[string]string{
			"component": component, "release": release, "namespace": namespace, "pod": name,
		}})
	}
	prober := httptest.NewServer(http.HandlerFunc(s.probe))
	s.servers = append(s.servers, prober)
	probes := []any{map[string]any{"targets": []string{prober.Listener.Addr().String()}, "labels": map[string]string{"release": release, "namespace": namespace}}}
	text, err = yaml.Marshal(map[string]any{
		"global":     map[string]any{"scrape_interval": "15s", "evaluation_interval": "30s"},
		"rule_files": []string{"rules.yaml"},
		"scrape_configs": []any{
			map[string]any{"job_name": "linkreel", "static_configs": targets}, map[string]any{"job_name": "probe", "static_configs": probes},
		},
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir, "prometheus.yaml"), text, 0o600); err != nil {
		return err
	}
	if s.prometheus, err = freeAddr(); err != nil {
		return err
	}
	s.processes["prometheus"] = &process{program: "prometheus", log: filepath.Join(s.dir, "prometheus.log"), args: []string{
		"--config.file=" + filepath.Join(s.dir, "prometheus.yaml"), "--storage.tsdb.path=" + filepath.Join(s.dir, "prometheus"), "--web.listen-address=" + s.prometheus,
	}}
	if err := s.processes["prometheus"].start(); err != nil {
		return err
	}
	return s.ready(ctx, "prometheus", "http://"+s.prometheus+"/-/ready")
}

// probe serves the metrics of a blackbox exporter that probes the URLs in the chart's Probe.
func (s *stack) probe(w http.ResponseWriter, r *http.Request) {
	start, err := call(r.Context(), http.MethodGet, "http://"+s.counts.addrs["auth.api"]+"/", "", nil, nil)
	fmt.Fprintf(w, "probe_success{site=\"base\"} %d\n", success(start, err))
	short, err := s.pod(r.Context(), 0, http.MethodGet, "redirect", "/robots.txt", nil, nil)
	fmt.Fprintf(w, "probe_success{site=\"short\"} %d\n", success(short, err))
}

// success returns 1 for a status below 400 and 0 for an error.
func success(status int, err error) int {
	if err != nil || status >= 400 {
		return 0
	}
	return 1
}

func (s *stack) stop() {
	for _, p := range s.processes {
		_ = p.kill()
	}
	for _, p := range s.proxies {
		p.Stop()
	}
	for _, server := range s.servers {
		server.Close()
	}
	if s.redis != nil {
		_ = s.redis.Stop()
	}
	for _, disk := range s.disks {
		_ = syscall.Unmount(disk, syscall.MNT_DETACH) // leaving the disk mounted is harmless
	}
}

// flap repeatedly cuts a dependency off and restores it until ctx is done.
func (s *stack) flap(ctx context.Context, name string, half time.Duration) error {
	if err := s.proxies[name].cut(); err != nil {
		return err
	}
	go func() {
		for cut := true; outage.Pause(ctx, half); cut = !cut {
			if cut {
				_ = s.proxies[name].heal() // the next iteration tries again
			} else {
				_ = s.proxies[name].cut()
			}
		}
	}()
	return nil
}

// killEvery kills a process repeatedly until ctx is done. Like Kubernetes, it restarts the process
// immediately the first time, and then after a backoff that starts at ten seconds and doubles up to
// five minutes.
func (s *stack) killEvery(ctx context.Context, name string, life time.Duration) error {
	p := s.processes[name]
	go func() {
		for wait := time.Duration(0); ctx.Err() == nil; wait = min(max(2*wait, 10*time.Second), 5*time.Minute) {
			_ = p.kill()
			outage.Pause(ctx, wait)
			_ = p.start() // killing a process that did not start has no effect
			outage.Pause(ctx, life)
		}
	}()
	return nil
}

// process is a program that can be killed and restarted. All its output goes to one log.
type process struct {
	program    string
	args, env  []string
	admin, log string

	mu  sync.Mutex
	cmd *exec.Cmd
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child process has its own descriptor
	p.cmd = exec.Command(p.program, p.args...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = append(os.Environ(), p.env...), log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return p.cmd.Start()
}

func (p *process) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	err := p.cmd.Process.Kill()
	_ = p.cmd.Wait() // the process was killed, so an error is expected
	p.cmd = nil
	return err
}

func (p *process) signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Signal(sig)
}

// proxy forwards connections to a dependency.
type proxy struct {
	*toxiproxy.Proxy
	server string // the dependency's address
}

func (p *proxy) slow(by time.Duration) error {
	_, err := p.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"name":"slow","type":"latency","stream":"downstream","attributes":{"latency":%d}}`, by.Milliseconds())))
	return err
}

func (p *proxy) cut() error { p.Stop(); return nil }

func (p *proxy) heal() error {
	p.Toxics.ResetToxics(context.Background())
	return p.forward(p.server)
}

// freeAddr returns a free address that no other installation in this program uses.
func freeAddr() (string, error) {
	for {
		addr, err := redisproc.FreeAddr()
		if _, used := usedAddrs.LoadOrStore(addr, true); err != nil || !used {
			return addr, err
		}
	}
}

var usedAddrs sync.Map

// call sends a request. Unless out is nil, it decodes the JSON of the response into out.
func call(ctx context.Context, method, address, token string, in, out any) (status int, err error) {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return 0, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, address, &body)
	if err != nil {
		return 0, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil || out == nil {
		return resp.StatusCode, err
	}
	if resp.StatusCode >= 400 {
		return resp.StatusCode, fmt.Errorf("%s %s returned %s: %s", method, address, resp.Status, text)
	}
	return resp.StatusCode, json.Unmarshal(text, out)
}

var client = &http.Client{
	Timeout:       20 * time.Second,
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// query sends a query to Prometheus and decodes the response.
func (s *stack) query(ctx context.Context, path string, values url.Values, out any) error {
	_, err := call(ctx, http.MethodGet, "http://"+s.prometheus+path+"?"+values.Encode(), "", nil, out)
	return err
}
