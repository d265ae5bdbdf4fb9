package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/queue"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
	"github.com/linkreel/linkreel/services/localcloud/procstat"
	"github.com/linkreel/linkreel/services/localcloud/redisproc"
	"github.com/linkreel/linkreel/services/localcloud/storage"
	worker "github.com/linkreel/linkreel/services/transcoding-worker"
)

// benchLadder runs the worker's own comparison, which needs the worker's internals.
func benchLadder(ctx context.Context) error {
	return goTest(ctx, "./services/transcoding-worker/internal/ladder", "BenchmarkAgainstFFmpeg", strconv.Itoa(setting("BENCH_ROUNDS", 5))+"x")
}

// source creates a clip that resembles a recording: it contains motion and is not trivial to
// encode.
func source(ctx context.Context, path, size string, seconds int, args ...string) error {
	all := []string{"-nostdin", "-v", "error", "-f", "lavfi", "-i", fmt.Sprintf("testsrc2=s=%s:r=30:d=%d", size, seconds),
		"-f", "lavfi", "-i", fmt.Sprintf("sine=f=440:r=48000:d=%d", seconds),
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "60", "-c:a", "aac", "-b:a", "96k"}
	if out, err := exec.CommandContext(ctx, "ffmpeg", append(append(all, args...), path)...).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot create %s: %w: %s", filepath.Base(path), err, out)
	}
	return nil
}

// benchFirstPlay uploads a minute of film the way a caller does. It measures how long it takes from
// the end of the upload until the API reports that the video can be watched.
func benchFirstPlay(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "linkreel-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	clip := filepath.Join(dir, "minute.mp4")
	if err := source(ctx, clip, "1280x720", 60, "-b:v", "3M"); err != nil {
		return err
	}
	file, err := os.ReadFile(clip)
	if err != nil {
		return err
	}
	sys, err := startSystem(ctx, dir, "")
	if err != nil {
		return err
	}
	defer sys.stop()
	var took []float64
	for range setting("BENCH_ROUNDS", 5) {
		t, err := sys.firstPlay(ctx, string(file))
		if err != nil {
			return err
		}
		took = append(took, t.Seconds())
	}
	fmt.Printf("fast path, 60 s at 1280x720, %d MiB: ready %.2f s after the end of the upload (maximum %.2f s)\n",
		len(file)>>20, median(took), sorted(took)[len(took)-1])
	return nil
}

func (s *server) firstPlay(ctx context.Context, file string) (time.Duration, error) {
	var made struct{ VideoID, UploadURL string }
	if status, err := s.call(ctx, http.MethodPost, "/api/v1/videos", map[string]string{}, &made); err != nil || status != http.StatusCreated {
		return 0, fmt.Errorf("creating a video returned %d, want 201: %w", status, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, made.UploadURL, strings.NewReader(file))
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the upload returned %d, want 200", res.StatusCode)
	}
	uploaded := time.Now()
	var took time.Duration
	for {
		var v struct{ Status string }
		if _, err := s.call(ctx, http.MethodGet, "/api/v1/videos/"+made.VideoID, nil, &v); err != nil {
			return 0, err
		}
		took = time.Since(uploaded)
		if v.Status == "ready" {
			break
		}
		if v.Status == "failed" || took > time.Minute {
			return 0, fmt.Errorf("the video is %s after %v, want ready", v.Status, took)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return 0, err
		}
	}
	// The rest of the ladder must not slow down the next round.
	if _, err := s.call(ctx, http.MethodDelete, "/api/v1/videos/"+made.VideoID, nil, nil); err != nil {
		return 0, err
	}
	for len(procstat.Descendants(s.pid)) > 1 { // only Redis remains
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return took, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// benchTwoWorkers encodes five minutes of film with one worker on one processor, and with two
// workers on one processor each.
func benchTwoWorkers(ctx context.Context) error {
	if runtime.GOOS != "linux" || runtime.NumCPU() < 2 {
		fmt.Println("not measured: this part needs Linux and two processors")
		return nil
	}
	dir, err := os.MkdirTemp("", "linkreel-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// The film is Matroska, so the worker cannot copy anything and encodes the whole ladder.
	film := filepath.Join(dir, "film.mkv")
	if err := source(ctx, film, "640x360", 300, "-b:v", "1M"); err != nil {
		return err
	}
	site, err := newSite(ctx, dir)
	if err != nil {
		return err
	}
	defer site.close()
	var walls, cpus, one, two []float64
	for round := range setting("BENCH_ROUNDS", 5) {
		alone, err := site.run(ctx, fmt.Sprintf("alone%d", round), film, 1)
		if err != nil {
			return err
		}
		both, err := site.run(ctx, fmt.Sprintf("both%d", round), film, 2)
		if err != nil {
			return err
		}
		fmt.Printf("  round %d: one worker %.1f s, CPU %.1f s; two %.1f s, CPU %.1f s\n", round+1, alone.wall, alone.cpu, both.wall, both.cpu)
		one, two = append(one, alone.wall), append(two, both.wall)
		walls, cpus = append(walls, both.wall/alone.wall), append(cpus, both.cpu/alone.cpu)
	}
	fmt.Printf("300 s at 640x360, workers with one processor each: one %.1f s, two %.1f s; wall %.2f ×, CPU %.2f ×\n",
		median(one), median(two), median(walls), median(cpus))
	return nil
}

// site has the servers that workers use: Firestore, storage and Redis.
type site struct {
	env    []string
	jobs   *jobs.Store
	queue  *queue.Queue
	bucket *objectstore.Store
	closed []func()
}

func (s *site) close() {
	for i := range s.closed {
		s.closed[len(s.closed)-1-i]()
	}
}

func newSite(ctx context.Context, dir string) (_ *site, err error) {
	s := new(site)
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	db, err := startServer(ctx, "firestore", dir, "")
	if err != nil {
		return nil, err
	}
	s.closed = append(s.closed, db.stop)
	objects, err := storage.Open(storage.Options{Dir: filepath.Join(dir, "objects"), Buckets: []string{"media"}})
	if err != nil {
		return nil, err
	}
	s.closed = append(s.closed, func() { _ = objects.Close() })
	api := httptest.NewServer(objects.APIHandler())
	s.closed = append(s.closed, api.Close)
	key := filepath.Join(dir, "key.json")
	if err := os.WriteFile(key, objects.ServiceAccountKey(), 0o600); err != nil {
		return nil, err
	}
	rd, err := redisproc.Start(ctx, redisproc.Options{Dir: filepath.Join(dir, "redis")})
	if err != nil {
		return nil, err
	}
	s.closed = append(s.closed, func() { _ = rd.Stop() })
	settings := map[string]string{
		"LINKREEL_FIRESTORE_PROJECT": "linkreel-local", "LINKREEL_FIRESTORE_ENDPOINT": db.Firestore,
		"LINKREEL_STORAGE_BUCKET": "media", "LINKREEL_STORAGE_ENDPOINT": api.URL, "LINKREEL_STORAGE_KEY_FILE": key,
		"LINKREEL_REDIS_URL": rd.Addr(), "LINKREEL_SCRATCH_DIR": filepath.Join(dir, "scratch"),
		"LINKREEL_ADMIN_ADDR": "127.0.0.1:0", "LINKREEL_DRAIN": "0s", "LINKREEL_LOG_LEVEL": "warn",
	}
	for k, v := range settings {
		s.env = append(s.env, k+"="+v)
	}
	cfg, err := env.ParseAsWithOptions[worker.Config](env.Options{Environment: settings})
	if err != nil {
		return nil, err
	}
	fs, err := firestoredb.Open(ctx, cfg.Firestore)
	if err != nil {
		return nil, err
	}
	s.closed = append(s.closed, func() { _ = fs.Close() })
	s.jobs = jobs.New(fs, time.Now)
	client, err := redisdb.Open(cfg.Redis)
	if err != nil {
		return nil, err
	}
	s.closed = append(s.closed, func() { _ = client.Close() })
	s.queue = queue.New(client, queue.Options{Name: transcode.QueueName})
	if s.bucket, err = objectstore.Open(ctx, cfg.Storage); err != nil {
		return nil, err
	}
	s.closed = append(s.closed, func() { _ = s.bucket.Close() })
	return s, nil
}

// cost is the duration and processor time of a job, in seconds.
type cost struct{ wall, cpu float64 }

// run runs one job with the given number of workers. The processor time includes the programs that
// the workers start.
func (s *site) run(ctx context.Context, videoID, file string, workers int) (c cost, err error) {
	object, err := s.bucket.UploadFile(ctx, "uploads/"+videoID+"/source", file, objectstore.UploadOptions{})
	if err != nil {
		return c, err
	}
	var started []*exec.Cmd
	defer func() {
		for _, w := range started {
			_ = w.Process.Signal(syscall.SIGTERM)
			_ = w.Wait()
			c.cpu += (w.ProcessState.UserTime() + w.ProcessState.SystemTime()).Seconds()
		}
	}()
	for i := range workers {
		exe, err := os.Executable()
		if err != nil {
			return c, err
		}
		cmd := exec.CommandContext(ctx, exe, "serve", "worker")
		cmd.Env = append(append(os.Environ(), s.env...), "BENCH_CPU="+strconv.Itoa(i))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return c, err
		}
		started = append(started, cmd)
	}
	if err := pause(ctx, 2*time.Second); err != nil { // the workers must be waiting for work
		return c, err
	}
	j := transcode.Job{
		ID: transcode.JobID(videoID, object.Generation), VideoID: videoID, Object: object.Name, Generation: object.Generation, Size: object.Size,
		Limits: transcode.Limits{MaxBytes: 10 << 30, MaxDuration: 4 * time.Hour, MaxSide: 8192, MaxPixels: 36_000_000},
	}
	begun := time.Now()
	if _, err := s.jobs.Create(ctx, j); err != nil {
		return c, err
	}
	if _, err := s.queue.Add(ctx, jobs.Item(j)); err != nil {
		return c, err
	}
	for {
		r, err := s.jobs.Get(ctx, j.ID)
		if err != nil {
			return c, err
		}
		if r.State == transcode.Done {
			c.wall = time.Since(begun).Seconds()
			return c, nil
		}
		if r.State.Final() || time.Since(begun) > 20*time.Minute {
			if r.Failure != nil {
				return c, r.Failure
			}
			return c, fmt.Errorf("the job is %s after %v, want done", r.State, time.Since(begun))
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return c, err
		}
	}
}

// serveWorker runs a worker with all its programs on the processor that BENCH_CPU selects.
func serveWorker() error {
	if err := onProcessor(os.Getenv("BENCH_CPU")); err != nil {
		return err
	}
	cfg, err := env.ParseAs[worker.Config]()
	if err != nil {
		return err
	}
	boot.Main("transcoding-worker", cfg.Config, func(ctx context.Context) (*boot.Service, error) { return worker.New(ctx, cfg) })
	return nil
}
