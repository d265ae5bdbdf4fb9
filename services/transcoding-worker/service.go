// Package worker is the service that transcodes uploaded videos. It has no API: it takes jobs
// from the queue or, while Redis is down, from Firestore. Its results are objects in storage
// and an outcome in the job's record, which the videos service applies.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/queue"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ffmpeg"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/job"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ladder"
)

// Config is the service's configuration. It does not contain the limits on videos: the videos
// service sends them with each job.
type Config struct {
	boot.Config
	Firestore firestoredb.Config `envPrefix:"LINKREEL_"`
	Storage   objectstore.Config `envPrefix:"LINKREEL_"`

	// Redis stores the queue. It may lose its data at any time.
	Redis redisdb.Config `envPrefix:"LINKREEL_REDIS_"`
	// ScratchDir is the directory for the source and the results of a running job. It needs
	// space for the upload and up to 5 GB per hour of 1080p, or 7 GB at 60 frames per second.
	ScratchDir string `env:"LINKREEL_SCRATCH_DIR" envDefault:"/tmp/linkreel-scratch"`
	// ScratchBytes limits the bytes that jobs may use there in total; 0 means the size of the
	// disk. Set it if the volume's limit is lower than the size of the disk, as it may be for an
	// emptyDir: Kubernetes evicts a pod that exceeds its volume's limit.
	ScratchBytes int64 `env:"LINKREEL_SCRATCH_BYTES" envDefault:"0"`
	// FFmpeg is the ffmpeg program or its folder. ffprobe must be in the same folder. If it is
	// empty, the worker looks for both in PATH.
	FFmpeg string `env:"LINKREEL_FFMPEG"`
	// Slots is the number of jobs that run at the same time.
	Slots int `env:"LINKREEL_WORKER_SLOTS" envDefault:"1"`
	// Threads is the number of threads that ffmpeg uses per job; 0 divides the processors among
	// the slots.
	Threads int `env:"LINKREEL_FFMPEG_THREADS" envDefault:"0"`
	// Memory limits the private memory of one ffmpeg process with two threads, in bytes. Each
	// additional thread adds 96 MiB, and a resolution above 4K doubles the limit. The whole worker
	// needs this amount for each slot, 112 MiB for the fast lane, and about 60 MiB for itself: 1
	// GiB with one slot and two threads.
	Memory int64 `env:"LINKREEL_FFMPEG_MEMORY" envDefault:"889192448"`
	// Jail is "full" or "reduced". While an upload is being decoded, a full jail hides all files
	// except the job's own. It needs a kernel with Landlock. On a kernel without Landlock, the
	// worker starts only with a reduced jail. A malicious file that takes control of ffmpeg in a
	// reduced jail can read everything that the worker can read.
	Jail string `env:"LINKREEL_JAIL" envDefault:"full"`
	// Lease is how long a job remains reserved for a worker that has stopped extending its lease.
	// After that, another worker takes over the job.
	Lease time.Duration `env:"LINKREEL_JOB_LEASE" envDefault:"20s"`
	// Heartbeat is how often a worker extends its job's lease. It must be well below Lease.
	Heartbeat time.Duration `env:"LINKREEL_JOB_HEARTBEAT" envDefault:"5s"`
	// Sweep is how often the worker searches for jobs that are missing from the queue.
	Sweep time.Duration `env:"LINKREEL_JOB_SWEEP" envDefault:"10s"`

	// ReducedJail, if set, lets the worker start with a reduced jail on a kernel without Landlock.
	// It is called with the reason. Set it only where the user will see the reason, for example on
	// a laptop.
	ReducedJail func(reason error) `env:"-"`
	// Now is the clock. If it is nil, the service uses the system's clock.
	Now func() time.Time `env:"-"`
}

// New returns the service. It connects lazily, so it succeeds even while Firestore, Redis or
// storage is down. It returns an error if ffmpeg is not installed.
func New(ctx context.Context, cfg Config) (_ *boot.Service, err error) {
	svc := &boot.Service{Name: "transcoding-worker"}
	defer svc.Abandon(ctx, &err)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Heartbeat <= 0 || cfg.Lease < 2*cfg.Heartbeat {
		return nil, errors.New("LINKREEL_JOB_LEASE must be at least twice LINKREEL_JOB_HEARTBEAT")
	}
	tools, err := ffmpeg.Find(cfg.FFmpeg)
	if err != nil {
		return nil, fmt.Errorf("%w; install ffmpeg or set LINKREEL_FFMPEG", err)
	}
	tools.Memory = cfg.Memory
	tools.Threads = cfg.Threads
	if tools.Threads == 0 {
		tools.Threads = min(8, max(1, runtime.GOMAXPROCS(0)/max(1, cfg.Slots)))
	}
	scratch, err := job.OpenScratch(cfg.ScratchDir, cfg.ScratchBytes)
	if err != nil {
		return nil, err
	}
	svc.CloseWith(scratch.Close)
	if err := testJail(ctx, cfg, tools, scratch); err != nil {
		return nil, err
	}
	db, err := firestoredb.Open(ctx, cfg.Firestore)
	if err != nil {
		return nil, err
	}
	svc.CloseWith(db.Close)
	bucket, err := objectstore.Open(ctx, cfg.Storage)
	if err != nil {
		return nil, err
	}
	svc.CloseWith(bucket.Close)
	rdb, err := redisdb.Open(cfg.Redis)
	if err != nil {
		return nil, err
	}
	svc.CloseWith(rdb.Close)
	maker := &ladder.Maker{Tools: tools}
	w := job.New(job.Options{
		Jobs:     jobs.New(db, cfg.Now),
		Queue:    queue.New(rdb, queue.Options{Name: transcode.QueueName, Silence: cfg.Lease, Now: cfg.Now}),
		Outcomes: queue.New(rdb, queue.Options{Name: transcode.OutcomeQueueName, Now: cfg.Now}),
		Bucket:   bucket, Maker: func(change func(*ffmpeg.Tools)) job.Maker { return maker.With(change) }, Scratch: scratch,
		Name: workerName(), Slots: cfg.Slots, Lease: cfg.Lease, Heartbeat: cfg.Heartbeat, Sweep: cfg.Sweep,
		Now: cfg.Now, Log: slog.With("service", "transcoding-worker"),
	})
	// The worker is ready immediately: no service calls it, and it keeps working during any outage.
	svc.Loops = []boot.Loop{{Name: "database format", Run: db.AwaitFormat}, {Name: "jobs", Run: w.Run}}
	return svc, nil
}

var reducedJail = promauto.NewGauge(prometheus.GaugeOpts{
	Name: "linkreel_worker_jail_reduced", Help: "1 if uploads are decoded without protection of the worker's other files, otherwise 0.",
})

// testJail checks the jail before any upload is decoded in it, so the worker does not start with
// a broken jail.
func testJail(ctx context.Context, cfg Config, tools *ffmpeg.Tools, scratch *job.Scratch) error {
	if cfg.Jail != "full" && cfg.Jail != "reduced" {
		return fmt.Errorf("LINKREEL_JAIL is %q; it must be full or reduced", cfg.Jail)
	}
	dir, remove, err := scratch.Job()
	if err != nil {
		return err
	}
	defer remove()
	err = tools.SelfTest(ctx, dir)
	switch {
	case err == nil:
		reducedJail.Set(0)
		return nil
	case !errors.Is(err, ffmpeg.ErrJail):
		return fmt.Errorf("jail self-test: %w", err)
	case cfg.Jail == "full" && cfg.ReducedJail == nil:
		return fmt.Errorf("%w; use a kernel with Landlock (5.13 or later), or set LINKREEL_JAIL=reduced (worker.jail in the chart) to run without this protection", err)
	}
	tools.Reduced = true
	reducedJail.Set(1)
	slog.WarnContext(ctx, "uploads are decoded in a reduced jail", "service", "transcoding-worker", "error", err)
	if cfg.ReducedJail != nil {
		cfg.ReducedJail(err)
	}
	return nil
}

// workerName returns a unique name, even for two workers on the same host.
func workerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return host + "-" + identity.NewID("w")
}
