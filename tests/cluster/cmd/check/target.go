package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// target is a deployment, with the addresses and connections to reach it.
type target struct {
	base, short, operator string
	token                 string // the operator's token
	routes                routes
	client                *http.Client
}

func newTarget(flags *flag.FlagSet) *target {
	t := &target{token: os.Getenv("LINKREEL_ADMIN_TOKEN")}
	flags.StringVar(&t.base, "base", "http://localhost:8080", "address of the API and the share pages")
	flags.StringVar(&t.short, "short", "http://localhost:8081", "address of the short links")
	flags.StringVar(&t.operator, "operator", "http://localhost:8082", "address of the operator API")
	flags.Var(&t.routes, "via", "`HOST/PATH=ADDR`: connect to ADDR for this host and paths below PATH; can be repeated, the first match applies")
	t.client = &http.Client{
		Timeout:       30 * time.Second,
		Transport:     &t.routes,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return t
}

// routes connects to configured addresses instead of a request's host, without changing the Host
// header. It is an http.RoundTripper and a flag.Value.
type routes struct {
	list []route
	next http.Transport
}

type route struct{ host, path, addr string }

func (r *routes) String() string { return "" }

func (r *routes) Set(text string) error {
	from, addr, ok := strings.Cut(text, "=")
	host, path, _ := strings.Cut(from, "/")
	if !ok || host == "" || addr == "" {
		return errors.New("use HOST/PATH=ADDR")
	}
	r.list = append(r.list, route{host, "/" + path, addr})
	return nil
}

func (r *routes) RoundTrip(req *http.Request) (*http.Response, error) {
	for _, route := range r.list {
		if req.URL.Hostname() != route.host || !below(req.URL.Path, route.path) {
			continue
		}
		moved := req.Clone(req.Context())
		if moved.Host == "" {
			moved.Host = req.URL.Host
		}
		moved.URL.Host = route.addr
		return r.next.RoundTrip(moved)
	}
	return r.next.RoundTrip(req)
}

func below(path, prefix string) bool {
	return prefix == "/" || path == prefix || strings.HasPrefix(path, prefix+"/")
}

// limitConnections keeps no more than n connections open to each address.
func (r *routes) limitConnections(n int) {
	r.next.MaxIdleConnsPerHost, r.next.MaxConnsPerHost = n, n
	r.next.DialContext = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext
}

// answer is a response and its complete body.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// code returns the code from an error body, or the beginning of a body that does not have one.
func (a *answer) code() string {
	var body struct{ Error struct{ Code string } }
	if err := json.Unmarshal(a.body, &body); err == nil && body.Error.Code != "" {
		return body.Error.Code
	}
	return fmt.Sprintf("%.80s", a.body)
}

// call sends body as JSON, or no body if it is nil.
func (t *target) call(ctx context.Context, method, address, bearer string, body any) (*answer, error) {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("cannot encode the body: %w", err)
		}
		reader = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, reader)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	return t.send(req)
}

func (t *target) send(req *http.Request) (*answer, error) {
	resp, err := t.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: cannot read the response: %w", req.Method, req.URL.Redacted(), err)
	}
	return &answer{resp.StatusCode, resp.Header, text}, nil
}

// want makes a call and fails unless the response has the given status. It decodes the response
// body into into.
func (t *target) want(ctx context.Context, status int, method, address, bearer string, body, into any) (*answer, error) {
	a, err := t.call(ctx, method, address, bearer, body)
	if err != nil {
		return nil, err
	}
	if a.status != status {
		return nil, fmt.Errorf("%s %s returned %d, want %d: %.300s", method, withoutQuery(address), a.status, status, a.body)
	}
	if into == nil {
		return a, nil
	}
	if err := a.into(into); err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, withoutQuery(address), err)
	}
	return a, nil
}

func (a *answer) into(v any) error {
	if err := json.Unmarshal(a.body, v); err != nil {
		return fmt.Errorf("cannot parse the response: %w: %.300s", err, a.body)
	}
	return nil
}

// withoutQuery removes the query, which may contain a signature.
func withoutQuery(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "(invalid address)"
	}
	u.RawQuery = ""
	return u.String()
}
