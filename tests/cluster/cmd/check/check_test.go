package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestViaSendsByHostAndPathAndKeepsTheHost(t *testing.T) {
	t.Parallel()
	server := func(name string) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, name+" "+r.Host)
		}))
		t.Cleanup(srv.Close)
		return strings.TrimPrefix(srv.URL, "http://")
	}
	var r routes
	for _, via := range []string{"app.test/api/v1/links=" + server("links"), "app.test/=" + server("auth"), "go.test/=" + server("redirects")} {
		if err := r.Set(via); err != nil {
			t.Fatal(err)
		}
	}
	client := &http.Client{Transport: &r}
	for address, want := range map[string]string{
		"http://app.test/api/v1/links/abc":  "links app.test",
		"http://app.test/api/v1/linksabc":   "auth app.test",
		"http://app.test:8080/api/v1/links": "links app.test:8080",
		"http://go.test/anything":           "redirects go.test",
	} {
		resp, err := client.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(got) != want {
			t.Errorf("GET %s reached %q, want %[4]q; the error is %[3]v", address, got, err, want)
		}
	}
	for _, bad := range []string{"", "app.test", "=1.2.3.4:5", "app.test/="} {
		if err := r.Set(bad); err == nil {
			t.Errorf("Set(%q) accepted the invalid value", bad)
		}
	}
}

func TestFirstAddressOfAPlaylist(t *testing.T) {
	t.Parallel()
	for playlist, want := range map[string]string{
		"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n720p.m3u8\n360p.m3u8\n": "720p.m3u8",
		"#EXTM3U\r\n\r\nhttp://x.test/a.mp4\r\n":                         "http://x.test/a.mp4",
		"#EXTM3U\n":                                                      "",
	} {
		if got := firstAddress(playlist); got != want {
			t.Errorf("firstAddress(%q) = %q, want %q", playlist, got, want)
		}
	}
}

// The first two of four links were acknowledged before the backup began.
func TestARestoreBringsBackTheFirstLinks(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		back []string
		want string // in the error; "" means none
	}{
		"the links from before":                  {[]string{"/0", "/1"}, ""},
		"the links from before and the next one": {[]string{"/0", "/1", "/2"}, ""},
		"a link from before is lost":             {[]string{"/0"}, "is lost"},
		"a link is lost but a later one is back": {[]string{"/0", "/1", "/3"}, "which was created earlier"},
		"no links are lost":                      {[]string{"/0", "/1", "/2", "/3"}, "some lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				status := http.StatusNotFound
				if slices.Contains(tt.back, r.URL.Path) {
					status = http.StatusFound
				}
				w.WriteHeader(status)
			}))
			defer server.Close()
			began := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			var k keeping
			for i, path := range []string{"/0", "/1", "/2", "/3"} {
				k.Links = append(k.Links, keptLink{server.URL + path, began.Add(time.Duration(2*i-3) * time.Second)})
			}
			client := *server.Client()
			client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			err := k.links(t.Context(), &target{client: &client}, began)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("links() = %v, want an error with %q (empty: no error)", err, tt.want)
			}
		})
	}
}
