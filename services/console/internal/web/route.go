package web

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

// callTime bounds each call to the API. A page makes one or two calls.
const callTime = 8 * time.Second

// NewAPI returns a client for the public API that routes each call to the service for its path
// prefix. It connects lazily. It does not retry calls: a person waiting for a page can click again.
func NewAPI(addresses map[string]string) (*client.Client, error) {
	// The services are on the same network, where compression costs more than it saves.
	dialer := &net.Dialer{Timeout: time.Second, KeepAlive: 15 * time.Second}
	rs := routes{transport: otelhttp.NewTransport(&http.Transport{ // no Proxy: internal calls must not go through one
		DialContext: dialer.DialContext, MaxIdleConnsPerHost: 64, IdleConnTimeout: 60 * time.Second, DisableCompression: true,
	})}
	for prefix, address := range addresses {
		u, err := url.Parse(strings.TrimRight(address, "/"))
		if err != nil || u.Host == "" || !strings.HasPrefix(prefix, "/") {
			return nil, fmt.Errorf("API route %q=%q must be a path that starts with / and an address such as http://links:8080", prefix, address)
		}
		rs.list = append(rs.list, route{prefix, u})
	}
	slices.SortFunc(rs.list, func(a, b route) int {
		return cmp.Or(-cmp.Compare(len(a.prefix), len(b.prefix)), cmp.Compare(a.prefix, b.prefix))
	})
	if len(rs.list) == 0 || rs.list[len(rs.list)-1].prefix != "/" {
		return nil, fmt.Errorf("the API routes have no entry for /")
	}
	return client.New(client.Config{
		BaseURL: rs.list[len(rs.list)-1].to.String(), WithoutKey: true, Timeout: callTime, Attempts: 1, UserAgent: "linkreel-console/1",
		HTTPClient: &http.Client{
			Transport: rs,
			// The API never redirects, so a redirect is not from the API.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})
}

// routes sends each call to the service for its path.
type routes struct {
	list      []route // the longest prefix first; the last is "/"
	transport http.RoundTripper
}

type route struct {
	prefix string
	to     *url.URL
}

func (rs routes) RoundTrip(req *http.Request) (*http.Response, error) {
	last := rs.list[len(rs.list)-1].to
	path := strings.TrimPrefix(req.URL.Path, last.Path)
	for _, r := range rs.list {
		// A prefix ends at a path segment: /api/v1/links does not match /api/v1/linksets.
		if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(r.prefix, "/")); ok && (rest == "" || rest[0] == '/') {
			out := req.Clone(req.Context()) // a RoundTripper must not modify the request
			out.URL.Scheme, out.URL.Host, out.Host = r.to.Scheme, r.to.Host, ""
			out.URL.Path = r.to.Path + path
			if out.URL.RawPath != "" {
				out.URL.RawPath = r.to.EscapedPath() + strings.TrimPrefix(out.URL.RawPath, last.EscapedPath())
			}
			return rs.transport.RoundTrip(out)
		}
	}
	return rs.transport.RoundTrip(req)
}
