package media

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-rod/rod"
	"github.com/go-rod/rod/lib/launcher"
	"github.com/go-rod/rod/lib/proto"

	"github.com/linkreel/linkreel/libs/transcode"
)

// player plays outcomes in a real Chromium with the product's hls.js.
type player struct {
	r       *world
	browser *rod.Browser
	server  *httptest.Server

	mu       sync.Mutex
	outcomes map[string]*transcode.Outcome
}

// page plays a muted video at high speed, one rendition after another, and records any errors.
const page = `<!doctype html><video muted playsinline></video><script type="module">
import Hls from "/hls.js";
const video = document.querySelector("video");
window.report = {errors: [], done: false, frames: 0, from: -1, to: 0};
const hls = new Hls({startLevel: LEVEL, maxBufferHole: 0});
hls.on("hlsError", (_, e) => report.errors.push(e.details));
hls.on("hlsManifestParsed", () => { hls.currentLevel = LEVEL; video.playbackRate = RATE; video.play().catch((e) => report.errors.push(String(e))); });
video.addEventListener("error", () => report.errors.push("media error " + video.error.code + " " + video.error.message));
video.addEventListener("loadeddata", () => report.from = video.buffered.length ? video.buffered.start(0) : -1);
video.addEventListener("ended", () => {
  report.to = video.currentTime; report.holes = video.buffered.length - 1;
  report.frames = video.getVideoPlaybackQuality().totalVideoFrames;
  report.width = video.videoWidth; report.height = video.videoHeight; report.done = true;
});
hls.loadSource("/play/NAME/master.m3u8"); hls.attachMedia(video);
</script>`

func newPlayer(r *world) *player {
	r.t.Helper()
	bin := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			bin = found
			break
		}
	}
	if bin == "" {
		r.t.Fatal("Chromium is not installed. Run `make tools`")
	}
	start := launcher.New().Bin(bin).Leakless(false).NoSandbox(true).Headless(true).Set("mute-audio").Set("autoplay-policy", "no-user-gesture-required")
	address, err := start.Launch()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(start.Kill)
	p := &player{r: r, browser: rod.New().ControlURL(address), outcomes: map[string]*transcode.Outcome{}}
	if err := p.browser.Connect(); err != nil {
		r.t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hls.js", func(w http.ResponseWriter, req *http.Request) {
		http.ServeFile(w, req, filepath.Join("..", "..", "services", "videos", "internal", "share", "web", "dist", "hls.js"))
	})
	mux.HandleFunc("GET /page/{name}/{level}", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, strings.NewReplacer("NAME", req.PathValue("name"), "LEVEL", req.PathValue("level"), "RATE", p.rate(req.PathValue("name"))).Replace(page))
	})
	mux.HandleFunc("GET /play/{name}/{list}", p.playlist)
	mux.HandleFunc("GET /object/{name...}", func(w http.ResponseWriter, req *http.Request) {
		http.ServeContent(w, req, "a.mp4", time.Time{}, bytes.NewReader(r.object(req.PathValue("name"))))
	})
	p.server = httptest.NewServer(mux)
	r.t.Cleanup(p.server.Close)
	return p
}

func (p *player) playlist(w http.ResponseWriter, req *http.Request) {
	p.mu.Lock()
	o := p.outcomes[req.PathValue("name")]
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/vnd.apple.mpegurl")
	list := strings.TrimSuffix(req.PathValue("list"), ".m3u8")
	if list == "master" {
		fmt.Fprint(w, masterPlaylist(o))
		return
	}
	rendition, ok := o.Rendition(list)
	if !ok {
		http.NotFound(w, req)
		return
	}
	fmt.Fprint(w, mediaPlaylist(rendition))
}

// masterPlaylist returns the minimum that a player needs. This package tests the files. Package
// services/videos/internal/hls tests the product's playlists.
func masterPlaylist(o *transcode.Outcome) string {
	var b strings.Builder
	b.WriteString("#EXTM3U\n#EXT-X-VERSION:7\n")
	audio, codecs := "", ""
	if o.Audio != nil {
		b.WriteString("#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"a\",DEFAULT=YES,AUTOSELECT=YES,URI=\"" + o.Audio.Name + ".m3u8\"\n")
		audio, codecs = `,AUDIO="a"`, ","+o.Audio.Codecs
	}
	for _, r := range o.Renditions {
		fmt.Fprintf(&b, "#EXT-X-STREAM-INF:BANDWIDTH=%d,RESOLUTION=%dx%d,CODECS=\"%s\"%s\n%s.m3u8\n", r.Bandwidth, r.Width, r.Height, r.Codecs+codecs, audio, r.Name)
	}
	return b.String()
}

func mediaPlaylist(r transcode.Rendition) string {
	var b strings.Builder
	target := 1.0
	for _, s := range r.Segments {
		target = math.Max(target, math.Round(s.Duration))
	}
	fmt.Fprintf(&b, "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:%.0f\n#EXT-X-PLAYLIST-TYPE:VOD\n", target)
	fmt.Fprintf(&b, "#EXT-X-MAP:URI=\"/object/%s\",BYTERANGE=\"%d@%d\"\n", r.Object, r.Init.Size, r.Init.Offset)
	for _, s := range r.Segments {
		fmt.Fprintf(&b, "#EXTINF:%.6f,\n#EXT-X-BYTERANGE:%d@%d\n/object/%s\n", s.Duration, s.Size, s.Offset, r.Object)
	}
	return b.String() + "#EXT-X-ENDLIST\n"
}

// rate returns the playback speed. It is four, except for a very short video. At that speed, such a
// video would end before the player has signalled the end of the data to the browser.
func (p *player) rate(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.outcomes[name].Duration < 2 {
		return "1"
	}
	return "4"
}

// play plays every rendition to its end and returns the errors.
func (p *player) play(name string, o *transcode.Outcome) (faults []string) {
	p.mu.Lock()
	p.outcomes[name] = o
	p.mu.Unlock()
	for level := range o.Renditions {
		tab, err := p.browser.Page(proto.TargetCreateTarget{URL: fmt.Sprintf("%s/page/%s/%d", p.server.URL, name, level)})
		if err != nil {
			return append(faults, err.Error())
		}
		var report struct {
			Errors        []string
			Done          bool
			Frames, Holes int
			From, To      float64
			Width, Height int
		}
		limit := time.Minute + time.Duration(o.Duration)*time.Second
		for end := time.Now().Add(limit); !report.Done && len(report.Errors) == 0 && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if v, err := tab.Eval(`() => window.report || {}`); err == nil {
				_ = v.Value.Unmarshal(&report)
			}
		}
		_ = tab.Close()
		say := func(format string, args ...any) {
			faults = append(faults, fmt.Sprintf("chromium, level %d: ", level)+fmt.Sprintf(format, args...))
		}
		switch {
		case len(report.Errors) > 0:
			say("%v", report.Errors)
		case !report.Done:
			say("playback did not reach the end")
		case report.Holes > 0 || report.From != 0:
			say("the buffer has %d holes and starts at %.3f, want 0 and 0", report.Holes, report.From)
		case math.Abs(report.To-o.Duration) > 0.2:
			say("playback ended at %.2f, want %.2f", report.To, o.Duration)
		case report.Frames == 0 || report.Width == 0:
			say("no frames were decoded")
		}
	}
	return faults
}

// skipPlaying reports whether the run skips playback, which is the default.
func skipPlaying() bool { return !full() && os.Getenv("LINKREEL_PLAY") == "" }
