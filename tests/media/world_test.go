package media

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/queue"
	"github.com/linkreel/linkreel/libs/tags"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/redisproc"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
	"github.com/linkreel/linkreel/services/localcloud/storage"
	worker "github.com/linkreel/linkreel/services/transcoding-worker"
	"github.com/linkreel/linkreel/services/videos"
)

// workerEnv is a variable that makes the test binary run a worker instead of tests, so tests can
// kill workers.
const workerEnv = "LINKREEL_TEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		cfg, err := env.ParseAs[worker.Config]()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		boot.Main("transcoding-worker", cfg.Config, func(ctx context.Context) (*boot.Service, error) { return worker.New(ctx, cfg) })
		os.Exit(0)
	}
	slog.SetDefault(slog.New(witnessed))
	os.Exit(m.Run())
}

// world holds all the servers that a worker needs. They are real local servers.
type world struct {
	t       testing.TB
	env     map[string]string
	jobs    *jobs.Store
	queue   *queue.Queue
	bucket  *objectstore.Store
	storage *storage.Server
	redis   *redisproc.Server
	client  *redis.Client
	scratch string
	player  *player // if nil, the tests do not play the results
	peak    peaks   // memory peaks of the last file in the corpus
}

func newWorld(t testing.TB) *world {
	t.Helper()
	ctx := context.Background()
	cloud := cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{jobs.Indexes, videos.Indexes(), tags.Indexes}, Buckets: []string{"media"}})
	key := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(key, cloud.Key, 0o600); err != nil {
		t.Fatal(err)
	}
	r := &world{t: t, storage: cloud.Storage, redis: redistest.Server(t), scratch: t.TempDir()}
	r.env = map[string]string{
		"LINKREEL_FIRESTORE_PROJECT": "test", "LINKREEL_FIRESTORE_ENDPOINT": cloud.Endpoint,
		"LINKREEL_STORAGE_BUCKET": "media", "LINKREEL_STORAGE_ENDPOINT": cloud.APIURL, "LINKREEL_STORAGE_PUBLIC_URL": cloud.PublicURL, "LINKREEL_STORAGE_KEY_FILE": key,
		"LINKREEL_REDIS_URL": r.redis.Addr(), "LINKREEL_SCRATCH_DIR": r.scratch,
		"LINKREEL_ADMIN_ADDR": "127.0.0.1:0", "LINKREEL_DRAIN": "0s", "LINKREEL_LOG_LEVEL": "warn",
	}
	cfg := r.config()
	db, err := firestoredb.Open(ctx, cfg.Firestore)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	r.jobs = jobs.New(db, time.Now)
	r.client = redis.NewClient(&redis.Options{Addr: r.redis.Addr()})
	t.Cleanup(func() { _ = r.client.Close() })
	r.queue = queue.New(r.client, queue.Options{Name: transcode.QueueName})
	if r.bucket, err = objectstore.Open(ctx, cfg.Storage); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.bucket.Close() })
	return r
}

func (r *world) config() worker.Config {
	r.t.Helper()
	var cfg worker.Config
	if err := env.ParseWithOptions(&cfg, env.Options{Environment: r.env}); err != nil {
		r.t.Fatal(err)
	}
	return cfg
}

// work runs a worker in this process until the test ends.
func (r *world) work() {
	r.t.Helper()
	svc, err := worker.New(context.Background(), r.config())
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, loop := range svc.Loops {
		wg.Go(func() {
			if err := loop.Run(ctx); err != nil {
				slog.Error("the worker's loop failed", "error", err)
			}
		})
	}
	r.t.Cleanup(func() {
		stop()
		wg.Wait()
		if err := boot.CloseAll(context.Background(), svc); err != nil {
			r.t.Errorf("cannot close the worker: %v", err)
		}
	})
}

// process is a worker in a separate process.
type process struct{ *exec.Cmd }

func (r *world) start(more map[string]string) *process {
	r.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"=1")
	for _, m := range []map[string]string{r.env, more} {
		for k, v := range m {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
	}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	p := &process{cmd}
	r.t.Cleanup(func() { p.kill() })
	return p
}

// soon makes workers that start afterwards take over a killed worker's job sooner than they would
// with the default settings.
func (r *world) soon() {
	r.env["LINKREEL_JOB_LEASE"], r.env["LINKREEL_JOB_HEARTBEAT"], r.env["LINKREEL_JOB_SWEEP"] = "8s", "2s", "2s"
}

func (p *process) kill() {
	if p.ProcessState == nil {
		_ = p.Process.Signal(syscall.SIGCONT)
		_ = p.Process.Kill()
		_ = p.Wait()
	}
}

var defaultLimits = transcode.Limits{MaxBytes: 10 << 30, MaxDuration: 4 * time.Hour, MaxSide: 8192, MaxPixels: 36_000_000}

// submit uploads a file and creates its job, as the videos service does.
func (r *world) submit(videoID, path string) transcode.Job {
	r.t.Helper()
	return r.submitLimited(context.Background(), videoID, path, defaultLimits)
}

func (r *world) submitLimited(ctx context.Context, videoID, path string, limits transcode.Limits) transcode.Job {
	r.t.Helper()
	object, err := r.bucket.UploadFile(ctx, "uploads/"+videoID+"/source", path, objectstore.UploadOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	j := transcode.Job{
		ID: transcode.JobID(videoID, object.Generation), VideoID: videoID, Object: object.Name,
		Generation: object.Generation, Size: object.Size, Limits: limits,
	}
	if _, err := r.jobs.Create(ctx, j); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.queue.Add(ctx, jobs.Item(j)); err != nil {
		r.t.Logf("cannot add the job to the queue: %v", err)
	}
	return j
}

// await polls a job until ok returns true.
func (r *world) await(id string, limit time.Duration, ok func(transcode.Record) bool) transcode.Record {
	r.t.Helper()
	for end := time.Now().Add(limit); ; {
		record, err := r.jobs.Get(context.Background(), id)
		if err == nil && ok(record) {
			return record
		}
		if time.Now().After(end) {
			r.t.Fatalf("job %s is still in the wrong state after %v: %+v, %v", id, limit, record, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func final(r transcode.Record) bool { return r.State.Final() }

// noScratch checks that the scratch folder is empty.
func (r *world) noScratch() {
	r.t.Helper()
	left, err := filepath.Glob(filepath.Join(r.scratch, "*"))
	if err != nil || len(left) > 0 {
		r.t.Errorf("the scratch folder contains %v, want no files; the error is %v", left, err)
	}
}
