package standalone_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/httpserver"
	"github.com/linkreel/linkreel/services/auth"
	"github.com/linkreel/linkreel/services/console"
	"github.com/linkreel/linkreel/services/events"
	"github.com/linkreel/linkreel/services/links"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
	"github.com/linkreel/linkreel/services/videos"
)

// TestEachPortAnswersBalancers is in this module because this module imports all services. Load
// balancers request GET / on each port, by IP address or under a name of their own. Browsers must
// still get the normal pages.
func TestEachPortAnswersBalancers(t *testing.T) {
	t.Parallel()
	settings := map[string]string{
		"LINKREEL_REDIS_URL": redistest.Start(t), "LINKREEL_INTERNAL_TOKEN": strings.Repeat("t", 32), "LINKREEL_ADMIN_TOKEN": strings.Repeat("a", 32),
		"LINKREEL_FIRESTORE_PROJECT": "p", "LINKREEL_FIRESTORE_ENDPOINT": "127.0.0.1:1", "LINKREEL_STORAGE_BUCKET": "b", "LINKREEL_STORAGE_ENDPOINT": "http://127.0.0.1:1",
		"LINKREEL_STORAGE_PUBLIC_URL": "http://127.0.0.1:1", "LINKREEL_TOKEN_SECRET": strings.Repeat("00", 32), "LINKREEL_WEBHOOK_SECRET_KEY": strings.Repeat("k", 32),
		"LINKREEL_BASE_URL": "https://app.example.com", "LINKREEL_SHORT_BASE_URL": "https://go.example.com", "LINKREEL_SHORT_HOME_URL": "https://example.com/home",
		"LINKREEL_SPOOL_DIR": t.TempDir(),
	}
	for name, service := range map[string]func(*testing.T, map[string]string) *boot.Service{
		"auth": from(auth.New), "console": from(console.New), "events": from(events.New), "links": from(links.New), "videos": from(videos.New),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, server := range service(t, settings).Servers {
				ask := serveOn(t, server)
				for _, host := range []string{"10.1.2.3", "10.1.2.3:8080", "[fd00::1]:8081", "contour-envoy-healthcheck"} {
					for _, method := range []string{"GET", "HEAD"} {
						res, body := ask(method, "/", host)
						if cookies := res.Cookies(); res.StatusCode != 200 || len(body) > 8<<10 || len(cookies) > 0 {
							t.Errorf("%s of %s: %s / for %s returned %d with %d bytes and cookies %v, want 200, at most 8 KiB and no cookies", server.Name, name, method, host, res.StatusCode, len(body), cookies)
						}
						if own := name == "auth" && server.Name == "api"; !own && method == "GET" && body != "ok\n" {
							t.Errorf("%s of %s: GET / for %s returned %q, want ok", server.Name, name, host, body)
						}
					}
					if res, _ := ask("POST", "/", host); res.StatusCode < 400 {
						t.Errorf("%s of %s: POST / for %s returned %d, want an error", server.Name, name, host, res.StatusCode)
					}
					if res, _ := ask("GET", "/nothing", host); res.StatusCode < 400 {
						t.Errorf("%s of %s: GET /nothing for %s returned %d, want an error", server.Name, name, host, res.StatusCode)
					}
				}
				switch name + " " + server.Name {
				case "auth api":
					if res, body := ask("GET", "/", "app.example.com"); res.StatusCode != 200 || !strings.Contains(body, "<h1") {
						t.Errorf("the start page returned %d with %.80s, want 200 with a heading", res.StatusCode, body)
					}
				case "links redirect":
					if res, _ := ask("GET", "/", "go.example.com"); res.StatusCode != 302 || res.Header.Get("Location") != "https://example.com/home" {
						t.Errorf("the home page of the short host returned %d with the location %q, want a redirect to LINKREEL_SHORT_HOME_URL", res.StatusCode, res.Header.Get("Location"))
					}
					if res, body := ask("GET", "/", "go.customer.example"); res.StatusCode == 200 {
						t.Errorf("the home page of a custom host with an unreadable record returned %d %q, want an error", res.StatusCode, body)
					}
				}
			}
		})
	}
}

// serveOn serves a port in memory, the way boot does, and returns a function that sends
// requests to it.
func serveOn(t *testing.T, server boot.Server) func(method, path, host string) (*http.Response, string) {
	t.Helper()
	l := fasthttputil.NewInmemoryListener()
	srv := httpserver.New(server.Handler)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Shutdown(); <-done })
	return func(method, path, host string) (*http.Response, string) {
		t.Helper()
		c, err := l.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_, _ = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: ELB-HealthChecker/2.0\r\nAccept: */*\r\nConnection: close\r\n\r\n", method, path, host)
		res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%s %s of %s: %v", method, path, server.Name, err)
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(body)
	}
}
