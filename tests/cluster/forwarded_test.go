package cluster

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"
	"github.com/valyala/fasthttp/fasthttputil"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apikey/authtest"
	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/httpserver"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tags"
	"github.com/linkreel/linkreel/services/links"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
)

const (
	visitor, stranger = "203.0.113.7", "198.51.100.66"
	visitorIPv6       = "2001:db8:1::7"
)

// edge is the proxy between visitors and the pods.
type edge struct {
	values  func(t *testing.T, docs string) []string // arguments that render the chart for this edge
	peer    string                                   // the address that the edge calls pods from
	replace bool                                     // whether the edge replaces X-Forwarded-For or appends to it
	appends func(client string) string               // the text that the edge writes to X-Forwarded-For
	adds    func(client string) []string             // additional headers, which replace the visitor's

	// start runs the real proxy in front of upstream, and returns the address where it listens for
	// connections that begin with a PROXY protocol line. If start is set, replace, appends and adds
	// are not used.
	start func(t *testing.T, upstream string) (addr string)
}

// The edges write their headers as described in these documents: Google's "Target proxies" for the
// external Application Load Balancer, Amazon's "HTTP headers and Application Load Balancers",
// ingress-nginx's template with its defaults, Envoy's "HTTP header manipulation" for an edge, and
// "Cloudflare HTTP headers". Another case uses a real nginx, and testdata/edges has recorded
// requests from the other edges.
var edges = map[string]edge{
	"Google's load balancer": {
		values: func(*testing.T, string) []string { return []string{"--values", filepath.Join(chart, "ci/google.yaml")} },
		peer:   "35.191.8.9", appends: func(client string) string { return client + ",34.111.20.30" },
		adds: func(string) []string {
			return []string{"X-Forwarded-Proto: https", "Via: 1.1 google", "X-Cloud-Trace-Context: 105445aa7843bc8bf206b12000100000/1;o=1", "Connection: Keep-Alive"}
		},
	},
	"Google's load balancer with a Gateway": {
		values: func(*testing.T, string) []string {
			return []string{"--values", filepath.Join(chart, "ci/gke-gateway.yaml")}
		},
		peer: "130.211.1.2", appends: func(client string) string { return client + ",2600:1901:0:1::" },
		adds: func(string) []string { return []string{"X-Forwarded-Proto: https", "Via: 1.1 google"} },
	},
	"Amazon's load balancer": {
		values: func(*testing.T, string) []string { return []string{"--values", filepath.Join(chart, "ci/eks.yaml")} },
		peer:   "10.0.12.34", appends: func(client string) string { return client },
		adds: func(string) []string {
			return []string{"X-Forwarded-Proto: https", "X-Forwarded-Port: 443", "X-Amzn-Trace-Id: Root=1-67891233-abcdef012345678912345678"}
		},
	},
	"ingress-nginx": {
		values: anyCluster, peer: "10.244.1.5", replace: true, appends: func(client string) string { return client },
		adds: func(client string) []string {
			return []string{
				"X-Request-ID: 8b6e0b3a0f2f4a0d8c1d2e3f4a5b6c7d", "X-Real-IP: " + client, "X-Forwarded-Host: go.example.com", "X-Forwarded-Port: 443",
				"X-Forwarded-Proto: https", "X-Forwarded-Scheme: https", "X-Scheme: https",
			}
		},
	},
	"nginx with the directives of ingress-nginx": {values: anyCluster, peer: "10.244.1.5", start: startNginx},
	"Envoy": {
		values: anyCluster, peer: "10.244.1.6", appends: func(client string) string { return client },
		adds: func(client string) []string {
			return []string{"x-forwarded-proto: https", "x-envoy-external-address: " + client, "x-request-id: 6c0c8f0e-6f0b-4a53-9a8e-3d5c2b1a0f9e"}
		},
	},
	"Istio's sidecar with IPv6": {values: anyCluster, peer: "::6", appends: func(client string) string { return client }, adds: func(string) []string { return nil }},
	"OpenShift's router": {
		values: func(*testing.T, string) []string {
			return []string{"--values", filepath.Join(chart, "ci/openshift.yaml")}
		},
		peer: "10.128.2.7", appends: func(client string) string { return client },
		adds: func(client string) []string {
			return []string{"X-Forwarded-Host: go.example.com", "X-Forwarded-Port: 443", "X-Forwarded-Proto: https", "Forwarded: for=" + client + ";host=go.example.com;proto=https"}
		},
	},
	"Cloudflare in front of Envoy": {
		values: cloudflareValues, peer: "10.244.1.6", appends: func(client string) string { return client + ",172.68.1.2" },
		adds: func(client string) []string {
			country := "FR"
			if client == visitor || client == visitorIPv6 {
				country = "DE"
			}
			return []string{
				"CF-Connecting-IP: " + client, "CF-IPCountry: " + country, "CF-Ray: 8e5a1b2c3d4e5f60-FRA", `CF-Visitor: {"scheme":"https"}`, "CDN-Loop: cloudflare; loops=1",
				"x-forwarded-proto: https", "x-envoy-external-address: 172.68.1.2",
			}
		},
	},
}

func anyCluster(*testing.T, string) []string { return nil }

// through returns a request's headers as the edge passes it on.
func (e edge) through(client string, sent []string) []string {
	forwarded := e.appends(client)
	var out []string
	for _, header := range sent {
		name, value, _ := strings.Cut(header, ": ")
		replaced := slices.ContainsFunc(e.adds(client), func(own string) bool { n, _, _ := strings.Cut(own, ":"); return strings.EqualFold(n, name) })
		switch {
		case strings.EqualFold(name, "X-Forwarded-For") && !e.replace:
			forwarded = value + "," + forwarded
		case strings.EqualFold(name, "X-Forwarded-For"), replaced:
		default:
			out = append(out, header)
		}
	}
	return slices.Concat(out, []string{"X-Forwarded-For: " + forwarded}, e.adds(client))
}

// forgeries returns headers that visitors could forge to appear as another client or to change the
// request.
func forgeries(as string) map[string][]string {
	f := map[string][]string{
		"nothing":             nil,
		"X-Forwarded-For":     {"X-Forwarded-For: " + as},
		"a list":              {"X-Forwarded-For: " + as + ", " + as + "," + as},
		"a broken list":       {"X-Forwarded-For: ,unknown,_hidden:80, " + as + ","},
		"X-Real-IP":           {"X-Real-IP: " + as, "X-Client-IP: " + as, "True-Client-IP: " + as, "CF-Connecting-IP: " + as, "Fastly-Client-IP: " + as, "X-Cluster-Client-IP: " + as},
		"Forwarded":           {"Forwarded: for=" + as + ";host=evil.example;proto=http"},
		"a different host":    {"X-Forwarded-Host: evil.example", "X-Original-Host: evil.example", "X-Host: evil.example", "X-Forwarded-Server: evil.example"},
		"a different scheme":  {"X-Forwarded-Proto: http", "X-Forwarded-Scheme: http", "X-Forwarded-Ssl: off", "X-Forwarded-Port: 80", "Front-End-Https: off", "X-Url-Scheme: http"},
		"a different path":    {"X-Original-URL: /admin/v1/accounts", "X-Rewrite-URL: /admin/v1/accounts", "X-Forwarded-Prefix: /evil"},
		"a different country": {"CF-IPCountry: NL", "X-Country: NL", "CloudFront-Viewer-Country: NL", "X-AppEngine-Country: NL"},
		"a different method":  {"X-HTTP-Method-Override: DELETE", "X-Method-Override: DELETE"},
		"variants of a name":  {"X_Forwarded_For: " + as, "x-forwarded-for : " + as},
	}
	all := []string{}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if name != "variants of a name" {
			all = append(all, f[name]...)
		}
	}
	f["all of them"] = all
	return f
}

// behind is the links service as the chart configures it for an edge.
type behind struct {
	edge
	t       *testing.T
	servers map[string]boot.Server
	real    map[string]string // the real edge's address, by service port
}

// The test sends requests, as each edge forwards them, to a service with the environment that the
// chart renders for that edge.
func TestBehindEachEdgeTheVisitorIsKnown(t *testing.T) {
	t.Parallel()
	docs := string(read(t, "../../docs/operations.md"))
	cloud := cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{links.Indexes(), tags.Indexes, idempotency.Indexes, outbox.Indexes}})
	auth := authtest.Start(t)
	countries := countryFile(t, map[string]string{visitor + "/32": "DE", visitorIPv6 + "/128": "DE", "::/0": "FR"})
	for name, e := range edges {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := render(t, append(e.values(t, docs), "--set", "hosts.base=app.example.com,hosts.short=go.example.com,tls.enabled=true")...)
			if err != nil {
				t.Fatal(err)
			}
			settings := environment(objects, "links")
			maps.Copy(settings, edgeStores(t, cloud, auth))
			settings["LINKREEL_GEOIP_FILE"] = countries
			b := &behind{edge: e, t: t, servers: serversOf(t, settings), real: map[string]string{}}
			if e.start != nil {
				for _, port := range []string{"api", "redirect"} {
					b.real[port] = e.start(t, b.listen(port))
				}
			}
			slug := b.creates(auth.Key(t, "acc_"+strings.ToLower(identity.NewNonce()[:8]), identity.Creator))
			b.visits(slug)
			b.guesses()
		})
	}
}

func serversOf(t *testing.T, settings map[string]string) map[string]boot.Server {
	t.Helper()
	var cfg links.Config
	if err := env.ParseWithOptions(&cfg, env.Options{Environment: settings}); err != nil {
		t.Fatal(err)
	}
	svc, err := links.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	g, gctx := errgroup.WithContext(ctx)
	boot.StartLoops(gctx, g, svc)
	t.Cleanup(func() { cancel(); _ = g.Wait(); _ = boot.CloseAll(context.WithoutCancel(ctx), svc) })
	servers := map[string]boot.Server{}
	for _, s := range svc.Servers {
		servers[s.Name] = s
	}
	return servers
}

// fromPeer is a connection that appears to come from the edge's address.
type fromPeer struct {
	net.Conn
	addr net.Addr
}

func (c fromPeer) RemoteAddr() net.Addr { return c.addr }

// listen serves one of the service's ports to connections that appear to come from the edge.
func (b *behind) listen(port string) (addr string) {
	b.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = l.Close() })
	srv := httpserver.New(b.servers[port].Handler)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // the test has ended
			}
			go func() { _ = srv.ServeConn(fromPeer{conn, b.peerAddr()}) }() // the client sees the error
		}
	}()
	return l.Addr().String()
}

func (b *behind) peerAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(b.peer), Port: 40000} }

// connect returns a connection that a client can use to send requests to the edge, and the data
// that the client must send first.
func (b *behind) connect(port, client string) (conn net.Conn, first string) {
	b.t.Helper()
	if addr := b.real[port]; addr != "" {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			b.t.Fatal(err)
		}
		family, local := "TCP4", "192.0.2.1"
		if strings.Contains(client, ":") {
			family, local = "TCP6", "2001:db8::1"
		}
		return conn, fmt.Sprintf("PROXY %s %s %s 40000 443\r\n", family, client, local)
	}
	pipe := fasthttputil.NewPipeConns()
	srv, served := httpserver.New(b.servers[port].Handler), make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.ServeConn(fromPeer{pipe.Conn2(), b.peerAddr()}) // the client sees the error
	}()
	return closing{pipe.Conn1(), func() { _ = pipe.Close(); <-served }}, ""
}

// closing is a connection that calls then when it is closed.
type closing struct {
	net.Conn
	then func()
}

func (c closing) Close() error { c.then(); return nil }

// ask sends a client's request through the edge.
func (b *behind) ask(port, client, method, target string, sent []string, body string) (*http.Response, string) {
	b.t.Helper()
	host, path, _ := strings.Cut(target, "/")
	conn, first := b.connect(port, client)
	defer conn.Close()
	if b.start == nil {
		sent = b.through(client, sent)
	}
	raw := fmt.Sprintf("%s%s /%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		first, method, path, host, strings.Join(sent, "\r\n"), len(body), body)
	go func() { _, _ = io.WriteString(conn, raw) }() // the server may reject a request without reading all of it
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		b.t.Fatalf("%s %s: %v", method, target, err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	_ = res.Body.Close()
	if strings.Contains(string(text), "evil.example") || strings.Contains(fmt.Sprint(res.Header), "evil.example") {
		b.t.Errorf("the response to %s %s with %q contains the forged host: %v %s", method, target, sent, res.Header, text)
	}
	return res, string(text)
}

// startNginx runs Debian's nginx with the header configuration that ingress-nginx writes for a host
// with TLS, except that the connection does not use TLS. The variable names are those in
// ingress-nginx's template.
func startNginx(t *testing.T, upstream string) (addr string) {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			t.Fatal("nginx is not installed; run `make tools`")
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = l.Addr().String()
	_ = l.Close() // nginx listens there instead
	dir := t.TempDir()
	write(t, filepath.Join(dir, "nginx.conf"), fmt.Sprintf(`
daemon off; pid %[1]s/pid; error_log stderr warn; worker_processes 1;
events { worker_connections 64; }
http {
  access_log off;
  client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  real_ip_header proxy_protocol; real_ip_recursive on; set_real_ip_from 0.0.0.0/0;
  underscores_in_headers off; ignore_invalid_headers on;
  map $http_x_request_id $req_id { default $http_x_request_id; "" $request_id; }
  map $http_upgrade $connection_upgrade { default upgrade; "" ""; }
  server {
    listen %[2]s proxy_protocol;
    location / {
      set $pass_access_scheme https; set $pass_port 443; set $best_http_host $http_host;
      proxy_set_header Host $best_http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
      proxy_set_header X-Request-ID $req_id;
      proxy_set_header X-Real-IP $remote_addr;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Host $best_http_host;
      proxy_set_header X-Forwarded-Port $pass_port;
      proxy_set_header X-Forwarded-Proto $pass_access_scheme;
      proxy_set_header X-Forwarded-Scheme $pass_access_scheme;
      proxy_set_header X-Scheme $pass_access_scheme;
      proxy_set_header X-Original-Forwarded-For $http_x_forwarded_for;
      proxy_set_header X-Original-Forwarded-Host $http_x_forwarded_host;
      proxy_set_header Proxy "";
      proxy_http_version 1.1; proxy_redirect off; proxy_pass http://%[3]s;
    }
  }
}`, dir, addr, upstream))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, program, "-c", filepath.Join(dir, "nginx.conf"), "-p", dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // SIGKILL would leave its worker running
	cmd.WaitDelay = 10 * time.Second
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { stop(); <-ended })
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
			return addr
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("nginx exited: %v\n%s", err, log.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// creates makes a link that sends the visitor to one URL and everybody else to another, and returns
// its slug. The request has forged headers.
func (b *behind) creates(key string) (slug string) {
	const body = `{"url":"https://example.com/others","rules":[{"name":"visitor","when":{"country":["DE"]},"url":"https://example.com/visitor"}]}`
	res, text := b.ask("api", visitor, "POST", "app.example.com/api/v1/links", append(forgeries(stranger)["all of them"], "Authorization: Bearer "+key), body)
	var made struct{ Slug, ShortURL string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || res.StatusCode != 201 {
		b.t.Fatalf("the create returned %d, want 201: %s", res.StatusCode, text)
	}
	if made.ShortURL != "https://go.example.com/"+made.Slug {
		b.t.Errorf("the short URL is %s, want https://go.example.com/ and the slug", made.ShortURL)
	}
	if res.Header.Get("Strict-Transport-Security") == "" {
		b.t.Error("the response does not have a Strict-Transport-Security header")
	}
	return made.Slug
}

// visits checks that the service uses the client address that the edge sees, no matter what headers
// the client sends.
func (b *behind) visits(slug string) {
	for client, to := range map[string]string{visitor: "https://example.com/visitor", visitorIPv6: "https://example.com/visitor", stranger: "https://example.com/others"} {
		as := visitor // the stranger pretends to be the visitor, and vice versa
		if client != stranger {
			as = stranger
		}
		for name, sent := range forgeries(as) {
			res, text := b.ask("redirect", client, "GET", "go.example.com/"+slug, append(sent, "User-Agent: Mozilla/5.0"), "")
			if name == "variants of a name" && res.StatusCode == 400 {
				continue // rejected as an invalid header
			}
			if res.StatusCode != 302 || res.Header.Get("Location") != to || res.Header.Get("Strict-Transport-Security") == "" {
				b.t.Errorf("a visit by %s with %s returned %d with Location %q and the headers %v, want 302 to %s: %.80s", client, name, res.StatusCode, res.Header.Get("Location"), res.Header, to, text)
			}
		}
	}
}

// guesses checks that a stranger who guesses keys uses up one network's budget rather than the
// visitor's, and does not get a budget for each forged address.
func (b *behind) guesses() {
	guess := func(client string, sent ...string) int {
		res, _ := b.ask("api", client, "GET", "app.example.com/api/v1/links", append(sent, "Authorization: Bearer "+identity.NewKey(rand.Reader).Secret()), "")
		return res.StatusCode
	}
	// A network may send 300 wrong keys at once and then one per second. If forged addresses
	// counted, each of them would have its own budget.
	limited := false
	for i := 0; i < 1000 && !limited; i++ {
		limited = guess(stranger, fmt.Sprintf("X-Forwarded-For: 192.0.2.%d, 100.%d.1.1", i%256, i%256)) == 429
	}
	if !limited {
		b.t.Error("none of the stranger's 1000 wrong keys returned 429")
	}
	if status := guess(visitor, "X-Forwarded-For: "+stranger); status != 401 {
		b.t.Errorf("the visitor's first wrong key returned %d, want 401", status)
	}
}

// countryFile writes a MaxMind database of networks and their countries, with the widest networks
// first.
func countryFile(t *testing.T, countries map[string]string) string {
	t.Helper()
	tree, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: "GeoLite2-Country", IncludeReservedNetworks: true})
	if err != nil {
		t.Fatal(err)
	}
	bits := func(network string) int {
		_, n, _ := net.ParseCIDR(network)
		ones, size := n.Mask.Size()
		return ones + 128 - size
	}
	for _, network := range slices.SortedFunc(maps.Keys(countries), func(a, b string) int { return bits(a) - bits(b) }) {
		_, n, err := net.ParseCIDR(network)
		if err != nil {
			t.Fatal(err)
		}
		if err := tree.Insert(n, mmdbtype.Map{"country": mmdbtype.Map{"iso_code": mmdbtype.String(countries[network])}}); err != nil {
			t.Fatal(err)
		}
	}
	var text bytes.Buffer
	if _, err := tree.WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "country.mmdb")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}
