package certificate

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/linkreel/linkreel/libs/seal"
)

// Files is how the ACME client's files and locks are remembered. Values are
// sealed already.
type Files interface {
	// File reads a file; found is false when there is none.
	File(ctx context.Context, name string) (f File, found bool, err error)
	// Files lists the names that begin with prefix.
	Files(ctx context.Context, prefix string) ([]string, error)
	// PutFile writes a file, unless one of the locks is no longer held: then it is
	// ErrOvertaken.
	PutFile(ctx context.Context, f File, locks ...Lock) error
	// DeleteFiles removes the file and those whose names begin with it and a slash.
	DeleteFiles(ctx context.Context, name string) error
	// FilesSealedBy lists ids of files that one of keyIDs seals, in order, after an id;
	// "" is the start. Files that cannot be read are among them.
	FilesSealedBy(ctx context.Context, keyIDs []string, after string, limit int) (ids []string, err error)
	// ChangeFile runs fn on a file and stores what fn made of it, unless that is an
	// error. It does nothing when the file is gone. fn may run several times.
	ChangeFile(ctx context.Context, id string, fn func(f *File) error) error

	// TakeLock makes holder the one who has the lock, or extends its lease; taken is
	// false while somebody else has it.
	TakeLock(ctx context.Context, l Lock, now time.Time) (token int64, taken bool, err error)
	// DropLock gives the lock back, unless somebody else has it.
	DropLock(ctx context.Context, l Lock) error
}

// File is one of the ACME client's files.
type File struct {
	Name     string
	Value    []byte // sealed
	Modified time.Time
	ExpireAt time.Time // zero: never
}

// Lock is a lease on a name.
type Lock struct {
	Name   string
	Holder string
	Token  int64 // 0: not known yet
	Until  time.Time
}

// Storage is [certmagic.Storage] over [Files]: the account of the authority and
// the challenges that are waiting to be asked for, shared by all replicas.
// Certificates are not among it; they are records of their own.
type Storage struct {
	files  Files
	seal   *seal.Keys
	holder string
	now    func() time.Time

	mu   sync.Mutex
	held map[string]*heldLock
}

type heldLock struct {
	Lock
	stop context.CancelFunc
	done chan struct{}
}

const (
	lockLease = 30 * time.Second
	lockPause = 250 * time.Millisecond
	// challengeLife is after what time the challenge of a replica that was killed is
	// removed from the database.
	challengeLife = 24 * time.Hour
	fileTimeout   = 5 * time.Second
)

var _ certmagic.Storage = (*Storage)(nil)

// NewStorage uses files; holder names this process.
func NewStorage(files Files, keys *seal.Keys, holder string, now func() time.Time) *Storage {
	return &Storage{files: files, seal: keys, holder: holder, now: now, held: map[string]*heldLock{}}
}

// Store implements [certmagic.Storage]. An account is two files, which two
// replicas must not mix; so they are written only while the lock of the
// registration is still held.
func (s *Storage) Store(ctx context.Context, key string, value []byte) error {
	f := File{Name: key, Value: s.seal.Seal(key, value), Modified: s.now()}
	var fence []Lock
	if strings.Contains(key, "/challenge_tokens/") {
		if begun, ok := ctx.Value(begunKey{}).(*atomic.Bool); ok {
			begun.Store(true)
		}
		f.ExpireAt = s.now().Add(challengeLife)
	} else {
		fence = s.locks()
	}
	return s.files.PutFile(ctx, f, fence...)
}

func (s *Storage) locks() []Lock {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Lock, 0, len(s.held))
	for _, l := range s.held {
		out = append(out, l.Lock)
	}
	return out
}

// Load implements [certmagic.Storage].
func (s *Storage) Load(ctx context.Context, key string) ([]byte, error) {
	f, found, err := s.files.File(ctx, key)
	if err != nil {
		return nil, err
	}
	if !found || !f.ExpireAt.IsZero() && !s.now().Before(f.ExpireAt) {
		return nil, fmt.Errorf("%s: %w", key, fs.ErrNotExist)
	}
	return s.seal.Open(key, f.Value)
}

// Delete implements [certmagic.Storage].
func (s *Storage) Delete(ctx context.Context, key string) error { return s.files.DeleteFiles(ctx, key) }

// Exists implements [certmagic.Storage].
func (s *Storage) Exists(ctx context.Context, key string) bool {
	if _, found, err := s.files.File(ctx, key); found || err != nil {
		return found
	}
	names, err := s.files.Files(ctx, key+"/")
	return err == nil && len(names) > 0
}

// List implements [certmagic.Storage].
func (s *Storage) List(ctx context.Context, prefix string, recursive bool) ([]string, error) {
	prefix = strings.TrimSuffix(prefix, "/")
	names, err := s.files.Files(ctx, prefix+"/")
	if err != nil || recursive {
		return names, err
	}
	var out []string
	seen := map[string]bool{}
	for _, name := range names {
		first, _, _ := strings.Cut(strings.TrimPrefix(name, prefix+"/"), "/")
		if child := path.Join(prefix, first); !seen[child] {
			seen[child] = true
			out = append(out, child)
		}
	}
	return out, nil
}

// Stat implements [certmagic.Storage].
func (s *Storage) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	f, found, err := s.files.File(ctx, key)
	if err != nil {
		return certmagic.KeyInfo{}, err
	}
	if !found {
		if names, err := s.files.Files(ctx, key+"/"); err != nil || len(names) > 0 {
			return certmagic.KeyInfo{Key: key}, err
		}
		return certmagic.KeyInfo{}, fmt.Errorf("%s: %w", key, fs.ErrNotExist)
	}
	return certmagic.KeyInfo{Key: key, Modified: f.Modified, Size: int64(len(f.Value)), IsTerminal: true}, nil
}

// Lock implements [certmagic.Storage]. The lease is extended until Unlock; when
// that fails for too long another replica takes the lock, and [Storage.Store]
// refuses this one.
func (s *Storage) Lock(ctx context.Context, name string) error {
	// Goroutines of this process are told apart too.
	l := Lock{Name: name, Holder: s.holder + "/" + newHolder()}
	for {
		l.Until = s.now().Add(lockLease)
		token, taken, err := s.files.TakeLock(ctx, l, s.now())
		if err == nil && taken {
			l.Token = token
			break
		}
		if err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "lock of the ACME client is not to be had", "lock", name, "error", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("lock %s: %w", name, ctx.Err())
		case <-time.After(lockPause):
		}
	}
	// The lease lasts until Unlock, though the context of the locking may end before.
	keep, stop := context.WithCancel(context.WithoutCancel(ctx))
	h := &heldLock{Lock: l, stop: stop, done: make(chan struct{})}
	s.mu.Lock()
	s.held[name] = h
	s.mu.Unlock()
	go func() {
		defer close(h.done)
		s.keep(keep, l)
	}()
	return nil
}

// keep extends the lease until ctx ends or somebody else has the lock.
func (s *Storage) keep(ctx context.Context, l Lock) {
	tick := time.NewTicker(lockLease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.Until = s.now().Add(lockLease)
		// An error may pass: the lease outlasts the next try.
		if _, taken, err := s.files.TakeLock(ctx, l, s.now()); err == nil && !taken {
			return
		}
	}
}

// Unlock implements [certmagic.Storage]. It gives the lock back even when ctx has
// ended: certmagic calls it with the context of the work.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	s.mu.Lock()
	h := s.held[name]
	delete(s.held, name)
	s.mu.Unlock()
	if h == nil {
		return fmt.Errorf("unlock %s: it is not locked", name)
	}
	h.stop()
	// The extension ends first: it must not take the lock again after it was given back.
	<-h.done
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fileTimeout)
	defer cancel()
	return s.files.DropLock(ctx, h.Lock)
}
