package media

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/linkreel/linkreel/libs/apikey/authtest"
	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/localcloud/storage"
	"github.com/linkreel/linkreel/services/videos"
)

// witness collects log lines from the services in this process: publications, orphans, CPU time and
// errors. It prints the errors.
type witness struct {
	*noted
	slog.Handler
	attrs []slog.Attr
}

type noted struct {
	mu       sync.Mutex
	versions map[string][]int64       // by video, in the order of publication
	removed  []string                 // names of the objects that the janitor removed
	used     map[string]time.Duration // CPU time of the programs in all attempts at a video
}

var witnessed = &witness{
	Handler: slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}),
	noted:   &noted{versions: map[string][]int64{}, used: map[string]time.Duration{}},
}

func (w *witness) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func (w *witness) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &witness{w.noted, w.Handler.WithAttrs(attrs), append(slices.Clip(w.attrs), attrs...)}
}

func (w *witness) Handle(ctx context.Context, r slog.Record) error {
	about := map[string]slog.Value{}
	for _, a := range w.attrs {
		about[a.Key] = a.Value
	}
	r.Attrs(func(a slog.Attr) bool {
		about[a.Key] = a.Value
		return true
	})
	w.mu.Lock()
	id := about["video"].String()
	switch r.Message {
	case "video published":
		w.versions[id] = append(w.versions[id], about["version"].Int64())
	case "orphan removed":
		w.removed = append(w.removed, about["object"].String())
	}
	if used, ok := about["used"]; ok { // each attempt logs this once, when it ends
		for _, a := range used.Resolve().Group() {
			if a.Key == "cpuSeconds" {
				w.used[id] += time.Duration(a.Value.Float64() * float64(time.Second))
			}
		}
	}
	w.mu.Unlock()
	if r.Level < slog.LevelError {
		return nil
	}
	return w.Handler.Handle(ctx, r)
}

func (n *noted) published(id string) []int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.versions[id])
}

func (n *noted) cpu(id string) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.used[id]
}

// orphans counts the objects of these videos that the janitor has removed.
func (n *noted) orphans(of []*upload) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, object := range n.removed {
		if slices.ContainsFunc(of, func(u *upload) bool { return strings.HasPrefix(object, transcode.VideoPrefix(u.id)) }) {
			count++
		}
	}
	return count
}

// system is a world and the videos service that callers use.
type system struct {
	*world
	base, key string
	ahead     atomic.Int64 // how far the videos service's clock is ahead, in ns
}

func newSystem(t testing.TB, more map[string]string) *system {
	t.Helper()
	s := &system{world: newWorld(t)}
	auth := authtest.Start(t)
	s.key = auth.Key(t, "acc", identity.Creator)
	front := httptest.NewUnstartedServer(nil) // started only to find a free address
	addr := front.Listener.Addr().String()
	front.Close()
	s.base = "http://" + addr
	settings := map[string]string{
		"LINKREEL_AUTH_URL": auth.URL, "LINKREEL_INTERNAL_TOKEN": authtest.Token, "LINKREEL_BASE_URL": s.base,
		"LINKREEL_TOKEN_SECRET": strings.Repeat("07", 32),
	}
	for _, m := range []map[string]string{s.env, more} {
		for k, v := range m {
			settings[k] = v
		}
	}
	var cfg videos.Config
	if err := env.ParseWithOptions(&cfg, env.Options{Environment: settings}); err != nil {
		t.Fatal(err)
	}
	cfg.Now = func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }
	svc, err := videos.New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httpapi.NewServer(svc.Handler("api"))
	go func() { _ = server.ListenAndServe(addr) }()
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, loop := range svc.Loops {
		wg.Go(func() { _ = loop.Run(ctx) })
	}
	t.Cleanup(func() {
		stop()
		wg.Wait()
		_ = server.Shutdown()
		_ = boot.CloseAll(context.Background(), svc)
	})
	return s
}

// call calls the videos service. It returns nil if the service is unavailable.
func (s *system) call(method, path string, body any) map[string]any {
	s.t.Helper()
	packed, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequest(method, s.base+"/api/v1/videos"+path, bytes.NewReader(packed))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	var answer map[string]any
	if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode > 299 || json.Unmarshal(b, &answer) != nil {
		return nil
	}
	return answer
}

// eventually waits long enough for a busy machine.
func (s *system) eventually(what string, ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(2 * timeLimit); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("condition not met within %v: %s", 2*timeLimit, what)
		}
	}
}

// upload creates a video from a file, as a caller does.
func (s *system) upload(path string) *upload {
	s.t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	var made map[string]any
	s.eventually("the video is created", func() bool { made = s.call(http.MethodPost, "", map[string]any{}); return made != nil })
	u := &upload{system: s, id: made["videoId"].(string)}
	s.eventually("the file is uploaded", func() bool {
		req, err := http.NewRequest(http.MethodPut, made["uploadUrl"].(string), bytes.NewReader(file))
		if err != nil {
			s.t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	s.eventually("the service has noticed the upload", func() bool {
		if o, err := s.bucket.Stat(context.Background(), "uploads/"+u.id+"/source"); err == nil {
			u.job = transcode.JobID(u.id, o.Generation)
		}
		return u.look() == "processing" && u.job != ""
	})
	return u
}

type upload struct {
	*system
	id, job  string
	statuses []string // in order, without consecutive repeats
	want     item
	attempt  int // the attempt that the test's signal interrupted
}

// look requests the status as a caller does.
func (u *upload) look() string {
	v := u.call(http.MethodGet, "/"+u.id, nil)
	status, _ := v["status"].(string)
	if status != "" && (len(u.statuses) == 0 || u.statuses[len(u.statuses)-1] != status) {
		u.statuses = append(u.statuses, status)
	}
	return status
}

func (u *upload) record() transcode.Record {
	r, err := u.jobs.Get(context.Background(), u.job)
	if err != nil {
		return transcode.Record{}
	}
	return r
}

// strike describes a round: the signal that each worker gets, and the faults that accompany the
// signals.
type strike struct {
	name     string
	signals  []syscall.Signal
	flush    bool // empty Redis at the same time
	cutWhile bool // cut off storage for a while when another worker resumes the first job
}

func repeat(n int, s syscall.Signal) []syscall.Signal { return slices.Repeat([]syscall.Signal{s}, n) }

// The test kills or stops workers during their jobs. At the same time it empties Redis and cuts off
// storage. Every video must soon become ready exactly once, and objects from unfinished attempts
// must not remain.
func TestKilledWorkersVideosBecomeReadyOnce(t *testing.T) {
	t.Parallel()
	strikes := []strike{{"one killed, one stopped, Redis emptied, storage cut off", []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP}, true, true}}
	if full() {
		strikes = []strike{
			{"killed", repeat(5, syscall.SIGKILL), false, false},
			{"killed, Redis emptied", repeat(5, syscall.SIGKILL), true, false},
			{"killed, storage cut off", repeat(5, syscall.SIGKILL), false, true},
			{"killed", repeat(5, syscall.SIGKILL), false, false},
			{"stopped", repeat(5, syscall.SIGSTOP), false, false},
		}
	}
	s := newSystem(t, map[string]string{"LINKREEL_SWEEP_EVERY": "2s", "LINKREEL_JANITOR_EVERY": "3s"})
	if !full() {
		s.soon()
	}
	m := &maker{t: t, dir: t.TempDir()}
	// The first video has a published copy when its worker gets the signal, and the next attempt
	// makes the copy's files obsolete. The second video has no published files yet.
	sources := []struct {
		file string
		want item
	}{
		{m.ff(video("1280x720", "25", 12) + " " + tone(12) + x264 + "-g 50 -b:v 3M" + aac + "a.mp4"), item{frames: 300, rate: 25, width: 1280, height: 720, copied: true}},
		{m.ff(video("640x360", "30", 30) + " " + tone(30) + " -c:v mpeg4 -q:v 5" + aac + "b.mp4"), item{frames: 900, rate: 30, width: 640, height: 360}},
	}
	var all []*upload
	for _, round := range strikes {
		var uploads []*upload
		for i := range round.signals {
			u := s.upload(sources[i%len(sources)].file)
			u.want = sources[i%len(sources)].want
			uploads = append(uploads, u)
		}
		s.strike(round, uploads)
		all = append(all, uploads...)
	}
	var want []string
	for _, u := range all {
		s.eventually(u.id+" is ready", func() bool { return u.look() == "ready" })
		if got := strings.Join(u.statuses, " "); got != "processing ready" {
			t.Errorf("%s had the statuses %s, want processing and ready", u.id, got)
		}
		r := u.record()
		if r.State != transcode.Done || r.Outcome == nil {
			t.Fatalf("%s ended as %s, want done: %v", u.id, r.State, r.Failure)
		}
		if want := transcode.Prefix(u.id, r.Generation, r.Attempt); r.Outcome.Prefix != want {
			t.Errorf("%s was published under %s, want %s", u.id, r.Outcome.Prefix, want)
		}
		s.eventually("the last version of "+u.id+" is published", func() bool {
			versions := witnessed.published(u.id)
			return len(versions) > 0 && versions[len(versions)-1] == int64(r.Outcome.Version)
		})
		if versions := witnessed.published(u.id); !slices.IsSorted(versions) || len(slices.Compact(slices.Clone(versions))) != len(versions) {
			t.Errorf("%s was published in the versions %v, want increasing versions", u.id, versions)
		}
		for _, f := range s.check(r.Outcome, u.want) {
			t.Errorf("%s: %s", u.id, f)
		}
		want = append(want, r.Outcome.Objects()...)
	}
	slices.Sort(want)
	// Replaced media is kept for as long as one of its URLs may be valid. The record does not list
	// the objects that an interrupted worker wrote after its video's last change, so they are kept
	// for a week.
	s.eventually("the janitor leaves only the objects in the outcomes", func() bool {
		s.ahead.Add(int64(8 * time.Hour))
		var got []string
		for o, err := range s.bucket.List(context.Background(), "videos/") {
			if err != nil {
				return false
			}
			got = append(got, o.Name)
		}
		return slices.Equal(got, want)
	})
	orphans := witnessed.orphans(all)
	if orphans == 0 {
		t.Error("the janitor did not remove any objects, want at least one")
	}
	t.Logf("%d workers were interrupted, and %d videos became ready exactly once; the janitor removed %d objects and kept %d, all in use", len(all), len(all), orphans, len(want))
}

// strike starts a worker for each upload, sends each worker its signal during the job, and lets
// other workers finish the jobs.
func (s *system) strike(round strike, uploads []*upload) {
	t := s.t
	t.Helper()
	var victims []*process
	for range uploads {
		// Use one thread so that the encoding is slow enough for the strike, even on a fast
		// machine.
		victims = append(victims, s.start(map[string]string{"LINKREEL_FFMPEG_THREADS": "1"}))
	}
	s.eventually("all jobs are running", func() bool {
		n := 0
		for _, u := range uploads {
			r := u.record()
			inspected := strings.HasSuffix(r.Worker, "-fast") // the fast lane will soon return the job to the queue
			if r.State == transcode.Running && !inspected && (!u.want.copied || r.Outcome != nil) {
				n++
			}
		}
		return n == len(uploads)
	})
	for i, v := range victims {
		time.Sleep(time.Duration(i*137%300) * time.Millisecond) // strike at different points in the job
		_ = v.Process.Signal(round.signals[i])
	}
	struck := time.Now()
	if round.flush {
		if err := s.client.FlushAll(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, u := range uploads {
		r := u.record()
		if r.State != transcode.Running {
			t.Errorf("%s: %s was %s when its worker got the signal, want running: attempt %d, tries %d, outcome %v, held by %q", round.name, u.id, r.State, r.Attempt, r.Tries, r.Outcome != nil, r.Worker)
		}
		u.attempt = r.Attempt
	}
	var heirs []*process
	for range victims {
		heirs = append(heirs, s.start(nil))
	}
	resumed := map[string]time.Duration{}
	var woken bool
	var mend func()
	s.eventually("every video in the round is done", func() bool {
		done := 0
		for _, u := range uploads {
			r := u.record()
			if _, seen := resumed[u.id]; !seen && r.Attempt > u.attempt {
				resumed[u.id] = time.Since(struck)
			}
			u.look()
			if final(r) {
				done++
			}
		}
		if len(resumed) > 0 && round.cutWhile && mend == nil {
			mend = s.storage.Faults().Inject(storage.Fault{Status: http.StatusServiceUnavailable})
			time.AfterFunc(8*time.Second, mend)
		}
		if len(resumed) == len(uploads) && !woken {
			// Frozen workers resume while their successors are working. They must not publish the
			// results that their programs have produced.
			woken = true
			for _, v := range victims {
				_ = v.Process.Signal(syscall.SIGCONT)
			}
		}
		return done == len(uploads)
	})
	longest := time.Duration(0)
	for _, d := range resumed {
		longest = max(longest, d)
	}
	t.Logf("%d workers, %s: other workers resumed all their videos within %.1f s", len(victims), round.name, longest.Seconds())
	if longest > 45*time.Second {
		t.Errorf("%s: another worker resumed a video after %v, want at most 45 s", round.name, longest)
	}
	for _, v := range append(victims, heirs...) {
		v.terminate()
	}
}
