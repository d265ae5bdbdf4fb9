package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/tests/contract"
)

// A page on a third-party site uploads a file in parts from another origin with the TypeScript
// client and reports progress. The site's server has created the video, so the page does not have a
// key.
func TestTypeScriptClientUploadsInABrowser(t *testing.T) {
	t.Parallel()
	made := as(t, "creator").want(201, "POST", "/api/v1/videos", map[string]any{"title": "From a browser"})
	if made.str("resumableUploadUrl") == "" {
		t.Fatalf("creating the video returned no upload session: %s", made.raw)
	}
	file := scenery(t, 3)
	mux := http.NewServeMux()
	mux.Handle("/client/", http.StripPrefix("/client/", http.FileServer(http.Dir("../../libs/clients/typescript/dist"))))
	mux.HandleFunc("/clip.mp4", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>Somebody's site</title>"))
	})
	site := httptest.NewServer(mux)
	defer site.Close()
	v := visitor(t, look{})
	v.open(site.URL)
	answer := v.Timeout(patience).MustEval(`async (session) => {
	  const { Linkreel } = await import("/client/index.js");
	  const api = new Linkreel({ baseUrl: "https://unused.example", key: "none" });
	  const clip = await (await fetch("/clip.mp4")).blob();
	  // A free box at the end makes the file large enough for several parts.
	  const rest = 1_500_000, head = new DataView(new ArrayBuffer(8));
	  head.setUint32(0, rest);
	  [..."free"].forEach((c, i) => head.setUint8(4 + i, c.charCodeAt(0)));
	  const file = new File([clip, head, new Uint8Array(rest - 8)], "clip.mp4", { type: "video/mp4" });
	  const steps = [];
	  await api.upload({ resumableUploadUrl: session }, file, { part: 256 << 10, onProgress: (sent, total) => steps.push([sent, total]) });
	  return JSON.stringify({ size: file.size, steps });
	}`, made.str("resumableUploadUrl")).Str()
	var got struct {
		Size  int64
		Steps [][2]int64
	}
	check(t, json.Unmarshal([]byte(answer), &got))
	last := int64(-1)
	for _, s := range got.Steps {
		if s[0] < last || s[1] != got.Size {
			t.Errorf("progress %v follows %d bytes, want more bytes and a total of %d", s, last, got.Size)
		}
		last = s[0]
	}
	if len(got.Steps) < 6 || last != got.Size {
		t.Errorf("the upload reported %d steps up to byte %d, want at least 6 up to byte %d", len(got.Steps), last, got.Size)
	}
	v.clean()
	eventually(t, 4*time.Minute, "video is ready", func() bool {
		return as(t, "creator").want(200, "GET", "/api/v1/videos/"+made.str("videoId"), nil).str("status") == "ready"
	})
}

// The client's example runs in a page over a network with every kind of injected failure.
func TestTypeScriptTourInABrowser(t *testing.T) {
	t.Parallel()
	tenant := newTenant(t, stackFile{BaseURL: stack.BaseURL, AdminURL: stack.AdminURL, AdminToken: stack.AdminToken}, "Tour in a browser")
	storage := httptest.NewServer(&contract.Hostile{Target: stack.UploadURL, Seed: 7})
	defer storage.Close()
	hostile := &contract.Hostile{Target: stack.BaseURL, Seed: 7, Rewrite: strings.NewReplacer(stack.UploadURL, storage.URL), Outage: 4 * time.Second}
	file := scenery(t, 3)
	mux := http.NewServeMux()
	mux.Handle("/api/", hostile)
	mux.Handle("/client/", http.StripPrefix("/client/", http.FileServer(http.Dir("../../libs/clients/typescript/dist"))))
	mux.HandleFunc("/clip.mp4", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<!doctype html><title>One of our tools</title><script type="importmap">{"imports":{"@linkreel/client":"/client/index.js"}}</script>`))
	})
	site := httptest.NewServer(mux)
	defer site.Close()
	v := visitor(t, look{})
	v.open(site.URL)
	answer := v.Timeout(4*time.Minute).MustEval(`async (key) => {
	  const { tour } = await import("/client/examples/tour.js");
	  const { Linkreel } = await import("@linkreel/client");
	  const clip = await (await fetch("/clip.mp4")).blob();
	  return JSON.stringify(await tour(new Linkreel({ baseUrl: location.origin, key }), clip, () => {}));
	}`, tenant.key).Str()
	var got struct {
		Made, Events []string
		Refused      int
		Video        string
		Progress     int64
	}
	check(t, json.Unmarshal([]byte(answer), &got))
	if len(got.Made) != 991 || len(got.Events) != 991 || got.Refused != 10 || got.Progress == 0 {
		t.Errorf("%d records created, %d in the feed, %d refused, %d bytes sent; want 991, 991, 10 and more than 0; %v", len(got.Made), len(got.Events), got.Refused, got.Progress, hostile.Deeds)
	}
	usage := tenant.want(200, "GET", "/api/v1/account", nil).json["usage"].(map[string]any)
	if usage["links"] != 990.0 || usage["videos"] != 1.0 {
		t.Errorf("the account's usage is %v, want 990 links and 1 video", usage)
	}
}
