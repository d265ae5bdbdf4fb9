package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
