package standalone

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestWebhooksDoNotReachTheStack runs a stack the way `linkreel up` does, with webhooks that may
// reach this machine, and calls each of its listeners through a webhook. None of the calls should
// reach a listener or write anything, and the results must not distinguish the stack's ports from
// unused ones. The test does not run in parallel, so every new listener belongs to the stack.
func TestWebhooksDoNotReachTheStack(t *testing.T) {
	before := listening(t)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(context.Background(), Config{DataDir: t.TempDir(), Log: log, Env: map[string]string{
		"DNS_RESOLVER": "127.0.0.1:9", "LINKREEL_FIRESTORE_TIMEOUT": "9s", "LINKREEL_RATE_LIMITS": "creator:1000000",
	}})
	if err != nil {
		t.Fatalf("start the stack: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("stop the stack: %v", err)
		}
	})
	ports := slices.DeleteFunc(listening(t), func(p uint16) bool { return slices.Contains(before, p) })
	ports = append(ports, netip.MustParseAddrPort(s.Redis.Addr()).Port()) // Redis runs in a separate process
	own, err := s.ownPorts()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(own)
	slices.Sort(ports)
	if own = slices.Compact(own); !slices.Equal(own, ports) {
		t.Fatalf("the stack listens on the ports %v, but webhooks are blocked from %v, want the same ports", ports, own)
	}

	t.Run("a receiver on this machine is called", func(t *testing.T) {
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "thanks") }))
		t.Cleanup(receiver.Close)
		if a := s.viaWebhook(t, receiver.URL); a.Status == nil || *a.Status != 200 || a.Response != "thanks" {
			t.Errorf("the attempt is %+v, want a response with status 200", a)
		}
	})
	// This object is the video that the webhooks try to replace.
	put := s.storageAPI(t, "POST", "/upload/storage/v1/b/"+bucket+"/o?uploadType=media&name=videos/victim", "film", s.cloudToken)
	if put.StatusCode != 200 {
		t.Fatalf("store an object with the token: %s", put.Status)
	}
	t.Run("no listener in the stack is called", func(t *testing.T) {
		closed := s.viaWebhook(t, fmt.Sprintf("http://127.0.0.1:%d/", freePort(t)))
		if closed.Status != nil || closed.Error == nil {
			t.Fatalf("the attempt on a closed port is %+v, want an error", closed)
		}
		hosts := append([]string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "127.1.2.3", "0x7f.1"}, interfaces(t)...)
		for _, port := range ports {
			targets := hosts[:2] // the webhook caller's own test covers all forms
			if port == s.storagePort() || os.Getenv("LINKREEL_FULL") != "" {
				targets = hosts
			}
			for _, host := range targets {
				if a := s.viaWebhook(t, fmt.Sprintf("http://%s:%d/", host, port)); a.Status != nil || a.Error == nil || *a.Error != *closed.Error || a.Response != "" {
					t.Errorf("the attempt on http://%s:%d/ is %s, want the same as on an unused port: %s", host, port, a, closed)
				}
			}
		}
	})
	t.Run("videos cannot be replaced", func(t *testing.T) {
		api := "/storage/v1/b/" + bucket + "/o/"
		for _, path := range []string{
			"/upload/storage/v1/b/" + bucket + "/o?uploadType=media&name=uploads/pwned.json", api + "uploads%2Fpwned.json/copyTo/b/" + bucket + "/o/videos%2Fvictim",
			api + "videos%2Fvictim/rewriteTo/b/" + bucket + "/o/uploads%2Fstolen", api + "videos%2Fvictim/compose",
		} {
			if a := s.viaWebhook(t, s.storageURL()+path); a.Status != nil || a.Response != "" {
				t.Errorf("the webhook to %s received the response %s, want no response", path, a)
			}
			// Other programs on this machine must not be able to replace videos either.
			if r := s.storageAPI(t, "POST", path, "{}", ""); r.StatusCode != 401 {
				t.Errorf("POST %s without the token returned %s, want 401", path, r.Status)
			}
		}
		if r := s.storageAPI(t, "GET", api+"videos%2Fvictim?alt=media", "", s.cloudToken); r.StatusCode != 200 || r.body != "film" {
			t.Errorf("the video is now %s %q, want film", r.Status, r.body)
		}
		if r := s.storageAPI(t, "GET", "/storage/v1/b/"+bucket+"/o", "", s.cloudToken); strings.Contains(r.body, "pwned") || strings.Contains(r.body, "stolen") {
			t.Errorf("the bucket contains objects written by webhooks, want none: %s", r.body)
		}
	})
	t.Run("the operator's listener", func(t *testing.T) {
		for name, tc := range map[string]struct {
			path, host, site, token string
			want                    int
		}{
			"metrics":                                  {path: "/metrics", want: 200},
			"health":                                   {path: "/readyz", want: 200},
			"metrics for a page on the same host":      {path: "/metrics", site: "same-origin", want: 200},
			"metrics under a foreign host":             {path: "/metrics", host: "evil.example", want: 421},
			"metrics under a foreign host with a port": {path: "/metrics", host: "evil.example:8082", want: 421},
			"metrics for a page on another site":       {path: "/metrics", site: "cross-site", want: 403},
			"the API under a foreign host":             {path: "/admin/v1/accounts", host: "evil.example", token: s.AdminToken, want: 421},
			"the API":                                  {path: "/admin/v1/accounts", token: s.AdminToken, want: 200},
			"profiles without the token":               {path: "/debug/pprof/goroutine?debug=1", want: 401},
			"profiles with the wrong token":            {path: "/debug/pprof/goroutine?debug=1", token: s.Keys["enterprise"], want: 401},
			"profiles under a foreign host":            {path: "/debug/pprof/goroutine?debug=1", host: "evil.example", token: s.AdminToken, want: 421},
			"profiles with the token":                  {path: "/debug/pprof/goroutine?debug=1", token: s.AdminToken, want: 200},
			"the list of profiles":                     {path: "/debug/pprof/", want: 401},
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.AdminURL+tc.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tc.host != "" {
				req.Host = tc.host
			}
			if tc.site != "" {
				req.Header.Set("Sec-Fetch-Site", tc.site)
			}
			if tc.token != "" {
				req.Header.Set("Authorization", "Bearer "+tc.token)
			}
			if r := read(t, req); r.StatusCode != tc.want {
				t.Errorf("%s: GET %s = %s, want %d", name, tc.path, r.Status, tc.want)
			}
		}
	})
}

// attempt is the part of a webhook call that the webhook's owner can see.
type attempt struct {
	Status   *int
	Error    *string
	Response string
}

func (a attempt) String() string {
	text, _ := json.Marshal(a) // encoding cannot fail
	return string(text)
}

var hooks atomic.Int64

// viaWebhook creates a webhook, makes it call target, and returns the attempt as the webhook's
// owner sees it.
func (s *Stack) viaWebhook(t *testing.T, target string) attempt {
	t.Helper()
	key, api := s.Keys["creator"], s.BaseURL+"/api/v1/webhooks"
	var hook struct{ ID string }
	if err := call(t.Context(), http.MethodPost, api, key, map[string]any{"url": target, "events": []string{"key.created"}, "description": strconv.FormatInt(hooks.Add(1), 10)}, &hook); err != nil {
		t.Fatalf("create a webhook to %s: %v", target, err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api+"/"+hook.ID+"/test", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	if r := read(t, req); r.StatusCode/100 != 2 {
		t.Fatalf("test the webhook: %s %s", r.Status, r.body)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var page struct {
			Data []struct{ Attempts []attempt }
		}
		if err := call(t.Context(), http.MethodGet, api+"/"+hook.ID+"/deliveries", key, nil, &page); err != nil {
			t.Fatal(err)
		}
		if len(page.Data) > 0 && len(page.Data[0].Attempts) > 0 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, api+"/"+hook.ID, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+key)
			read(t, req)
			return page.Data[0].Attempts[0]
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing was sent to %s within a minute", target)
		}
	}
}

type response struct {
	*http.Response
	body string
}

func read(t *testing.T, req *http.Request) response {
	t.Helper()
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response{r, string(body)}
}

func (s *Stack) storageAPI(t *testing.T, method, path, body, token string) response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.storageURL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return read(t, req)
}

func (s *Stack) storagePort() uint16 {
	return netip.MustParseAddrPort(s.storage.Addr().String()).Port()
}

// freePort returns an unused port.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// interfaces returns the addresses on this machine that webhooks may call if private networks are
// allowed.
func interfaces(t *testing.T) (hosts []string) {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsPrivate() {
			hosts = append(hosts, (&url.URL{Host: p.Addr().String()}).Host)
			if p.Addr().Is6() {
				hosts[len(hosts)-1] = "[" + p.Addr().String() + "]"
			}
		}
	}
	return hosts
}

// listening returns the TCP ports on which this process listens, according to the kernel.
func listening(t *testing.T) (ports []uint16) {
	t.Helper()
	ours := map[string]bool{}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "socket:[") {
			ours[strings.Trim(to, "socket:[]")] = true
		}
	}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue // this machine has no IPv6
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" || !ours[f[9]] {
				continue
			}
			_, hex, _ := strings.Cut(f[1], ":")
			port, err := strconv.ParseUint(hex, 16, 16)
			if err != nil {
				t.Fatalf("%s: %q", table, line)
			}
			ports = append(ports, uint16(port))
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// TestWebhooksReachThisMachineOnlyWhereNobodyElseReachesTheStack checks when webhooks may call this
// machine. On a laptop, a developer needs this. On a server, it would let strangers call any
// listener.
func TestWebhooksReachThisMachineOnlyWhereNobodyElseReachesTheStack(t *testing.T) {
	t.Parallel()
	listener := func(addr string) net.Listener {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	loopback, everywhere := listener("127.0.0.1:0"), listener("0.0.0.0:0")
	const http, private = "LINKREEL_WEBHOOK_ALLOW_HTTP", "LINKREEL_WEBHOOK_ALLOW_PRIVATE"
	for name, tc := range map[string]struct {
		listeners []net.Listener
		settings  map[string]string
		want      [2]string
	}{
		"on loopback":                             {[]net.Listener{loopback}, nil, [2]string{"true", "true"}},
		"under a loopback address":                {[]net.Listener{loopback}, map[string]string{"LINKREEL_BASE_URL": "http://[::1]:8080"}, [2]string{"true", "true"}},
		"on loopback, with a setting":             {[]net.Listener{loopback}, map[string]string{private: "false"}, [2]string{"true", "false"}},
		"on all addresses":                        {[]net.Listener{loopback, everywhere}, nil, [2]string{}},
		"under a public name":                     {[]net.Listener{loopback}, map[string]string{"LINKREEL_BASE_URL": "https://app.example.com"}, [2]string{}},
		"under a name that begins with localhost": {[]net.Listener{loopback}, map[string]string{"LINKREEL_BASE_URL": "https://localhost.example.com"}, [2]string{}},
		"behind a proxy":                          {[]net.Listener{loopback}, map[string]string{"LINKREEL_BASE_URL": "https://app.example.com", "LINKREEL_TRUSTED_PROXY_HOPS": "1"}, [2]string{}},
		"behind a proxy, allowed by a setting":    {[]net.Listener{loopback}, map[string]string{"LINKREEL_BASE_URL": "https://app.example.com", "LINKREEL_TRUSTED_PROXY_HOPS": "1", http: "true"}, [2]string{"true", ""}},
	} {
		s := &Stack{public: publicPorts{base: port{listeners: tc.listeners}}}
		settings := map[string]string{"LINKREEL_BASE_URL": "http://localhost:8080"}
		for k, v := range tc.settings {
			settings[k] = v
		}
		s.openWebhooks(settings)
		if got := [2]string{settings[http], settings[private]}; got != tc.want {
			t.Errorf("%s: the settings for plain http and private networks are %q, want %q", name, got, tc.want)
		}
	}
}
