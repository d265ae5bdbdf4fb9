// Package standalone runs all of Linkreel in one process: the services, the embedded
// Firestore and object storage, a Redis child process, and a gateway with the ingress's
// route table. `make run` and the end-to-end tests use it, and it is sufficient for a small
// production deployment.
//
// All acknowledged data is in its data directory and survives kill -9. Only one process at
// a time can use a data directory.
package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/redisproc"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// Config says where a stack stores its data and which ports it listens on. All other settings for
// the services are read from the environment under their usual names.
type Config struct {
	// PortBase is the first of four consecutive ports for the base URL, short links, the operator
	// and uploads. 0 means any four free ports.
	PortBase int `env:"LINKREEL_PORT_BASE" envDefault:"8080"`
	// DataDir contains all data.
	DataDir string `env:"LINKREEL_DATA_DIR" envDefault:".local/data"`
	// StackFile is the file that tells scripts how to reach the stack. The file exists only while
	// the stack is serving. If StackFile is empty, no file is written.
	StackFile string `env:"-"`
	// Log receives the services' JSON log lines. If it is nil, they are written to a file in
	// DataDir.
	Log io.Writer `env:"-"`
	// LogLevel is debug, info, warn or error.
	LogLevel slog.Level `env:"LINKREEL_LOG_LEVEL" envDefault:"info"`
	// AuditDir is the revocation trail's folder. If it is empty, the trail is in DataDir.
	AuditDir string `env:"LINKREEL_AUDIT_DIR"`
	// BackupDays is how many days `linkreel backup` keeps a backup. 0 keeps all backups.
	BackupDays int `env:"LINKREEL_BACKUP_DAYS" envDefault:"35"`
	// Env adds or replaces settings for the services, by variable name.
	Env map[string]string `env:"-"`
}

// Stack is a running Linkreel system.
type Stack struct {
	BaseURL      string            `json:"baseUrl"`
	ShortBaseURL string            `json:"shortBaseUrl"`
	AdminURL     string            `json:"adminUrl"`
	AdminToken   string            `json:"adminToken"`
	UploadURL    string            `json:"uploadUrl"`
	Keys         map[string]string `json:"keys"` // a demo key for each plan
	DataDir      string            `json:"dataDir"`
	// BackupURL is the URL that `linkreel backup` calls with BackupToken. The token is generated on
	// each start.
	BackupURL   string `json:"backupUrl"`
	BackupToken string `json:"backupToken"`

	// Firestore, Storage and Redis are the running servers, for tests that access them directly
	// or make one of them fail.
	Firestore *firestore.Server `json:"-"`
	Storage   *storage.Server   `json:"-"`
	Redis     *redisproc.Server `json:"-"`

	cfg       Config
	readOnly  *readOnly
	dir       *dataDir
	secrets   *secrets
	public    publicPorts
	storage   net.Listener            // of object storage's API
	internal  map[string]net.Listener // by service
	firestore string                  // Firestore's address
	// cloudToken is the token that Firestore and object storage require, so other programs on this
	// machine cannot use their ports. It is generated on each start and never written to disk.
	cloudToken string
	services   map[string]*boot.Service

	ctx     context.Context // done when the stack stops
	stop    context.CancelFunc
	group   *errgroup.Group
	closers []func(context.Context) error // in opening order
	once    sync.Once
	err     error

	notices []string // messages for the user about this machine
}

// publicPorts contains the ports for people and programs outside the stack.
type publicPorts struct{ base, short, admin, upload port }

// Start starts a stack and returns once it is serving. The stack stops when ctx is done. Close
// waits until the stack has stopped.
func Start(ctx context.Context, cfg Config) (*Stack, error) {
	ctx, stop := context.WithCancel(ctx)
	group, gctx := errgroup.WithContext(ctx)
	s := &Stack{cfg: cfg, ctx: gctx, stop: stop, group: group, cloudToken: randomHex(), BackupToken: randomHex()}
	// Each step opens what the next step needs and registers how to close it. Loops start before
	// listeners and therefore stop after them, so during shutdown requests do not wait for a
	// stopped loop. Callers that connect before the listeners are serving wait in the kernel's
	// queue.
	for _, step := range []func(context.Context) error{
		s.openDataDir, s.takePorts, s.startTelemetry, s.startRedis, s.startFirestore, s.startStorage, s.openReadOnly,
		s.buildServices, s.runLoops, s.serve, s.demo, s.announce,
	} {
		if err := step(gctx); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// onClose registers a function that closes what a step has just opened.
func (s *Stack) onClose(c func(context.Context) error) { s.closers = append(s.closers, c) }

func (s *Stack) openDataDir(context.Context) error {
	dir, err := openDataDir(s.cfg.DataDir)
	if err != nil {
		return err
	}
	s.dir, s.DataDir = dir, dir.path
	s.onClose(func(context.Context) error { dir.close(); return nil })
	if s.secrets, err = dir.loadSecrets(); err != nil {
		return err
	}
	s.AdminToken = s.secrets.AdminToken
	return nil
}

// takePorts binds every public and internal port before any address is passed to a service.
func (s *Stack) takePorts(ctx context.Context) error {
	ports, err := listenAll(ctx, s.cfg.PortBase)
	if err != nil {
		return err
	}
	s.public = publicPorts{ports[0], ports[1], ports[2], ports[3]}
	s.onClose(func(context.Context) error {
		for _, p := range ports {
			p.close()
		}
		return nil
	})
	s.BaseURL, s.ShortBaseURL, s.AdminURL, s.UploadURL = s.public.base.url(), s.public.short.url(), s.public.admin.url(), s.public.upload.url()
	if s.storage, err = s.loopback(ctx); err != nil {
		return err
	}
	s.BackupURL = s.storageURL() + backupPath
	s.internal = map[string]net.Listener{}
	for _, name := range []string{"auth", "events", "links", "videos"} {
		if s.internal[name], err = s.loopback(ctx); err != nil {
			return err
		}
	}
	// This process holds the data directory and the ports, so any existing stack file was left by a
	// killed stack. It would mislead scripts.
	return removeStackFile(s.cfg.StackFile)
}

// loopback listens on a free port that only this machine can reach.
func (s *Stack) loopback(ctx context.Context) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.onClose(func(context.Context) error {
		_ = l.Close() // a server that was started on it may have closed it already
		return nil
	})
	return l, nil
}

func (s *Stack) startTelemetry(ctx context.Context) error {
	if err := setLog(s.cfg, s.dir); err != nil {
		return err
	}
	flush, err := boot.Telemetry(ctx, "linkreel")
	if err != nil {
		return err
	}
	s.onClose(flush)
	return nil
}

func setLog(cfg Config, dir *dataDir) error {
	w := cfg.Log
	if w == nil {
		f, err := os.OpenFile(dir.join("linkreel.log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return fmt.Errorf("log: %w", err)
		}
		w = f
	}
	slog.SetDefault(boot.NewLogger(w, cfg.LogLevel, boot.LogJSON))
	slog.Info("starting", "service", "linkreel", "version", boot.Version())
	return nil
}

// announce writes the file that tells scripts how to reach the stack.
func (s *Stack) announce(context.Context) error {
	if s.cfg.StackFile == "" {
		return nil
	}
	if err := writeStackFile(s.cfg.StackFile, s); err != nil {
		return err
	}
	s.onClose(func(context.Context) error { return removeStackFile(s.cfg.StackFile) })
	return nil
}

func writeStackFile(path string, s *Stack) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("stack file: %w", err)
	}
	return writeJSON(path, s)
}

func removeStackFile(path string) error {
	if path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("stack file: %w", err)
	}
	return nil
}

// Done returns a channel that is closed when the stack stops, whether because of a failure or
// because its context is done.
func (s *Stack) Done() <-chan struct{} { return s.ctx.Done() }

// Close stops the stack in reverse opening order and returns all errors, including earlier
// ones.
func (s *Stack) Close() error {
	s.once.Do(func() {
		failed := context.Cause(s.ctx)
		s.stop()
		ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
		defer cancel()
		var errs []error
		if failed != nil && !errors.Is(failed, context.Canceled) {
			errs = append(errs, failed)
		}
		for _, c := range slices.Backward(s.closers) {
			errs = append(errs, c(ctx))
		}
		s.err = errors.Join(append(errs, s.group.Wait())...)
	})
	return s.err
}
