package standalone

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// dataDir is the folder with all of a stack's data. Only one process at a time can lock it.
type dataDir struct {
	path string
	lock *os.File
}

// lockFile and secretsFile are files in a data directory.
const (
	lockFile    = "lock"
	secretsFile = "secrets.json"
)

// auditDir returns the revocation trail's folder.
func (c Config) auditDir(d *dataDir) string { return cmp.Or(c.AuditDir, d.join(auditDir)) }

// errRunning means that another process has locked the data directory.
var errRunning = errors.New("another Linkreel instance is running")

// openDataDir creates the folder if it does not exist, and locks it. The kernel releases the lock
// when the process exits, so a killed stack leaves no lock behind.
func openDataDir(path string) (*dataDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w on %s; stop it, or choose another folder with LINKREEL_DATA_DIR", errRunning, path)
		}
		return nil, fmt.Errorf("lock data directory %s: %w", path, err)
	}
	return &dataDir{path: path, lock: lock}, nil
}

func (d *dataDir) join(elem ...string) string {
	return filepath.Join(append([]string{d.path}, elem...)...)
}

func (d *dataDir) close() { unlockFile(d.lock) }

// unlockFile unlocks and closes a file. Closing the file does not always unlock it: a child process
// that is just starting holds a copy of the descriptor until it executes its program.
func unlockFile(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) // best effort: closing usually unlocks too
	_ = f.Close()                                   // nothing was written, so there is nothing to lose
}

// secrets contains the values that are generated once and stored with the data that they protect.
type secrets struct {
	AdminToken    string            `json:"adminToken"`
	InternalToken string            `json:"internalToken"`
	PlaybackKey   string            `json:"playbackKey"`
	WebhookKey    string            `json:"webhookKey"`
	Keys          map[string]string `json:"keys"`            // demo keys by plan
	Owner         string            `json:"owner,omitempty"` // the member of the demo account that `linkreel up` signs in
}

func (d *dataDir) loadSecrets() (*secrets, error) {
	s, err := readSecrets(d.join(secretsFile))
	if errors.Is(err, os.ErrNotExist) {
		s, err = &secrets{}, nil
	}
	if err != nil {
		return nil, err
	}
	for _, field := range []*string{&s.AdminToken, &s.InternalToken, &s.PlaybackKey, &s.WebhookKey} {
		if *field == "" {
			*field = randomHex()
		}
	}
	if s.Keys == nil {
		s.Keys = map[string]string{}
	}
	return s, d.saveSecrets(s)
}

func readSecrets(path string) (*secrets, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read secrets: %w", err)
	}
	s := &secrets{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("read secrets from %s: %w", path, err)
	}
	return s, nil
}

func (d *dataDir) saveSecrets(s *secrets) error { return writeJSON(d.join(secretsFile), s) }

// writeJSON encodes a value as JSON and writes it with [writeFile].
func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	return writeFile(path, append(text, '\n'))
}

// writeFile writes a temporary file and renames it, so a reader sees either the whole old file or
// the whole new one.
func writeFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error below is more useful
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

// randomHex returns a token of 64 characters.
func randomHex() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
