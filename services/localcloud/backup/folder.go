package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"filippo.io/age"
)

const (
	format       = 1
	manifestFile = "manifest.json"
	sumsFile     = "SHA256SUMS"
	recordsFile  = "records.gz"
	indexFile    = "index.gz"
	objectsDir   = "objects"
	incomplete   = ".part"
	newFile      = ".new-"
	nameForm     = "2006-01-02T15-04-05.000Z"
)

// Manifest describes a backup. It is the last file to be written.
type Manifest struct {
	Format int `json:"format"`
	// Name is the name of the backup's folder, which is the time when the backup started.
	Name string `json:"name"`
	// Order is higher than that of any earlier backup in the folder. Names come from a clock that
	// may be wrong, so they do not show which backup is the newest.
	Order int64 `json:"order,omitempty"`
	// At is the time of the newest record in the backup.
	At time.Time `json:"at"`
	// Recipient is the age recipient to which the other files are encrypted. "" means no
	// encryption.
	Recipient string `json:"recipient,omitempty"`
	Documents int64  `json:"documents"`
	Records   File   `json:"records"`
	Index     File   `json:"index"`
	Objects   []File `json:"objects"` // in the objects folder
	// Keys are the ids of the keys that sealed values in the records, by [Sealed.Keys]. A
	// restored server needs these keys. The backup does not contain them.
	Keys map[string][]string `json:"keys,omitempty"`
	// Left is the number of expired backups that [Take] had not yet removed when it made this
	// backup.
	Left int `json:"-"`
}

// File describes a file in a backup as stored on disk.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"` // in hex
}

// Bytes returns the total size of the backup's objects.
func (m *Manifest) Bytes() (n int64) {
	for _, f := range m.Objects {
		n += f.Bytes
	}
	return n
}

// folder is an open and locked backup folder.
type folder struct {
	path  string
	to    age.Recipient // nil for no encryption
	tag   string        // suffix of file names: .age-RECIPIENT, or "" without encryption
	write func(*os.File, []byte) (int, error)
	sync  func(dir string) error // makes the names in a folder durable
	lock  *os.File
	// parents are the folders that contain the folder itself and each folder that was created for it.
	parents []string
}

// openFolder creates the folder if it does not exist, and locks it so only one backup can run.
func openFolder(path, recipient string) (*folder, error) {
	f := &folder{path: path, write: (*os.File).Write, sync: syncDir}
	if recipient != "" {
		to, err := age.ParseX25519Recipient(recipient)
		if err != nil {
			return nil, fmt.Errorf("the recipient is not an age recipient (age1…): %w", err)
		}
		sum := sha256.Sum256([]byte(recipient))
		f.to, f.tag = to, ".age-"+hex.EncodeToString(sum[:4])
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("create the backup folder: %w", err)
	}
	// Always sync the first one because the process that created the folder may have been killed.
	f.parents = []string{filepath.Dir(absolute)}
	for dir := f.parents[0]; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		f.parents = append(f.parents, filepath.Dir(dir))
	}
	if err := os.MkdirAll(filepath.Join(path, objectsDir), 0o700); err != nil {
		return nil, fmt.Errorf("create the backup folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the backup folder: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s (is another backup running?): %w", path, err), lock.Close())
	}
	f.lock = lock
	return f, nil
}

func (f *folder) close() { unlock(f.lock) }

// store writes r to a new file, encrypts it if the folder is encrypted, and makes it durable. name
// returns the file's name, given its checksum.
func (f *folder) store(dir string, r io.Reader, name func(sha string) string) (File, error) {
	file, err := os.CreateTemp(dir, newFile+"*") // with mode 0600
	if err != nil {
		return File{}, err
	}
	out := &summed{write: f.write, file: file, sum: sha256.New()}
	err = f.encrypt(out, r)
	err = errors.Join(err, file.Sync(), file.Close())
	got := File{Bytes: out.n, SHA256: hex.EncodeToString(out.sum.Sum(nil))}
	got.Name = name(got.SHA256)
	if err == nil {
		err = os.Rename(file.Name(), filepath.Join(dir, got.Name))
	}
	if err != nil {
		_ = os.Remove(file.Name()) // the error below is more useful
		return File{}, err
	}
	return got, nil
}

func (f *folder) encrypt(w io.Writer, r io.Reader) error {
	if f.to == nil {
		_, err := io.Copy(w, r)
		return err
	}
	sealed, err := age.Encrypt(w, f.to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(sealed, r); err != nil {
		return err
	}
	return sealed.Close()
}

// summed is a file that computes its checksum as it is written.
type summed struct {
	write func(*os.File, []byte) (int, error)
	file  *os.File
	n     int64
	sum   interface {
		io.Writer
		Sum(b []byte) []byte
	}
}

func (s *summed) Write(p []byte) (int, error) {
	n, err := s.write(s.file, p)
	s.n += int64(n)
	_, _ = s.sum.Write(p[:n]) // never fails
	return n, err
}

// objects returns the fully copied objects, by id. Some may not belong to any backup, because a
// killed backup leaves its objects behind. Objects that were truncated later are omitted. newest is
// the highest order of any backup.
func (f *folder) objects() (found map[string]File, newest int64, err error) {
	entries, err := os.ReadDir(filepath.Join(f.path, objectsDir))
	if err != nil {
		return nil, 0, err
	}
	sizes, newest, err := f.sizes()
	if err != nil {
		return nil, 0, err
	}
	found = map[string]File{}
	for _, e := range entries {
		id, rest, _ := strings.Cut(e.Name(), ".")
		sha, tag := rest, ""
		if at := strings.Index(rest, "."); at >= 0 {
			sha, tag = rest[:at], rest[at:]
		}
		if id == "" || tag != f.tag {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, 0, err
		}
		if size, ok := sizes[e.Name()]; ok && size != info.Size() {
			continue
		}
		found[id] = File{Name: e.Name(), Bytes: info.Size(), SHA256: sha}
	}
	return found, newest, nil
}

// sizes returns the sizes of the objects, by name, as listed in the manifests, and the highest
// order of any backup.
func (f *folder) sizes() (sizes map[string]int64, newest int64, err error) {
	names, err := Names(f.path)
	if err != nil {
		return nil, 0, err
	}
	sizes = map[string]int64{}
	for _, name := range names {
		m, err := Read(f.path, name)
		if err != nil {
			continue // a damaged manifest must not prevent a new backup
		}
		newest = max(newest, m.Order)
		for _, o := range m.Objects {
			sizes[o.Name] = o.Bytes
		}
	}
	return sizes, newest, nil
}

// isIncomplete, isNew and object match the names of this package's own files. Files with other
// names are never removed.
func isIncomplete(name string) bool {
	at, ok := strings.CutSuffix(name, incomplete)
	_, err := time.Parse(nameForm, at)
	return ok && err == nil
}

func isNew(name string) bool { return strings.HasPrefix(name, newFile) }

// object matches ID.SHA256, followed by the recipient's tag if the object is encrypted.
var object = regexp.MustCompile(`^[0-9a-f]{32}\.[0-9a-f]{64}(\.age-[0-9a-f]{8})?$`)

// begin creates the folder for a new backup and removes the folders and files that killed backups
// left behind.
func (f *folder) begin(name string) (dir string, err error) {
	for sub, ours := range map[string]func(string) bool{"": isIncomplete, objectsDir: isNew} {
		entries, err := os.ReadDir(filepath.Join(f.path, sub))
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			if !ours(e.Name()) {
				continue
			}
			if err := os.RemoveAll(filepath.Join(f.path, sub, e.Name())); err != nil {
				return "", err
			}
		}
	}
	dir = filepath.Join(f.path, name+incomplete)
	return dir, os.Mkdir(dir, 0o700)
}

// complete writes the manifest and then gives the backup its final name.
func (f *folder) complete(dir string, m *Manifest) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	manifest, err := f.plain().store(dir, strings.NewReader(string(text)+"\n"), func(string) string { return manifestFile })
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, x := range []File{m.Index, manifest, m.Records} {
		fmt.Fprintf(&sums, "%s  %s\n", x.SHA256, x.Name)
	}
	if _, err := f.plain().store(dir, strings.NewReader(sums.String()), func(string) string { return sumsFile }); err != nil {
		return err
	}
	if err := errors.Join(f.sync(filepath.Join(f.path, objectsDir)), f.sync(dir)); err != nil {
		return err
	}
	for _, parent := range f.parents {
		// A folder that this user cannot read was not created by this backup.
		if err := f.sync(parent); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	if err := os.Rename(dir, strings.TrimSuffix(dir, incomplete)); err != nil {
		return err
	}
	return f.sync(f.path)
}

// plain returns the folder without encryption. The manifest is written this way because it says how
// to decrypt the other files.
func (f *folder) plain() *folder { return &folder{path: f.path, write: f.write} }

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Names returns the names of the complete backups in a folder, in chronological order.
func Names(path string) (names []string, err error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("read the backup folder: %w", err)
	}
	for _, e := range entries {
		if _, err := time.Parse(nameForm, e.Name()); err == nil && e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// Newest returns the name of the most recently made backup in a folder. It fails if any manifest is
// unreadable because in that case the order of that backup is unknown. The backup's name is no
// substitute, because the clock may have been wrong.
func Newest(path string) (string, error) {
	names, err := Names(path)
	if err != nil {
		return "", err
	}
	newest, order := "", int64(-1)
	var unknown error
	for _, name := range names {
		m, err := Read(path, name)
		switch {
		case err != nil:
			unknown = errors.Join(unknown, err)
		case m.Order >= order: // backups from earlier versions are ordered only by name
			newest, order = name, m.Order
		}
	}
	switch {
	case unknown != nil && newest == "":
		return "", unknown
	case unknown != nil:
		return "", fmt.Errorf("%w. An unreadable backup may be the newest one. The newest readable backup is %s: "+
			"to use that one, name it with --backup (restore.backup in the chart)", unknown, newest)
	case newest == "":
		return "", fmt.Errorf("%s contains no complete backup", path)
	}
	return newest, nil
}

// maxManifest and maxSums bound the files that are read into memory. A manifest needs about 230 bytes
// for each object, and a source sends at most about two million objects (see maxHave).
const (
	maxManifest = 1 << 30
	maxSums     = 64 << 10
)

// readFile reads a file of at most most bytes.
func readFile(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > most {
		return nil, fmt.Errorf("%s is %d bytes long, but a backup writes at most %d bytes to it; the file is damaged", path, info.Size(), most)
	}
	return os.ReadFile(path)
}

// Read reads the manifest of a backup and checks it. name "" means the newest backup.
func Read(path, name string) (*Manifest, error) {
	if name == "" {
		newest, err := Newest(path)
		if err != nil {
			return nil, err
		}
		name = newest
	}
	if _, err := time.Parse(nameForm, name); err != nil {
		return nil, fmt.Errorf("%q is not the name of a backup; use a time such as %s%s", name, nameForm, others(path))
	}
	if _, err := os.Stat(filepath.Join(path, name)); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the backup %s: %w%s", name, err, others(path))
	}
	text, err := readFile(filepath.Join(path, name, manifestFile), maxManifest)
	if err != nil {
		return nil, fmt.Errorf("read the backup %s: %w", name, err)
	}
	sums, err := readFile(filepath.Join(path, name, sumsFile), maxSums)
	if err != nil {
		return nil, fmt.Errorf("read the backup %s: %w", name, err)
	}
	sum := sha256.Sum256(text)
	if !slices.Contains(strings.Split(string(sums), "\n"), hex.EncodeToString(sum[:])+"  "+manifestFile) {
		return nil, fmt.Errorf("the manifest of the backup %s is damaged: its checksum differs from the one in %s", name, sumsFile)
	}
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("read the manifest of %s: %w", name, err)
	}
	if m.Format != format {
		return nil, fmt.Errorf("the backup %s has format %d, but this program reads format %d; use the version that wrote the backup", name, m.Format, format)
	}
	return m, nil
}

// othersShown bounds the names in an error message.
const othersShown = 50

// others returns the end of an error message about a backup that does not exist. In a cluster, an
// operator cannot list the folder without a pod that mounts the volume.
func others(path string) string {
	names, err := Names(path)
	if err != nil || len(names) == 0 {
		return ""
	}
	return ". The latest backups here are " + strings.Join(names[max(0, len(names)-othersShown):], ", ")
}

// removedAtOnce bounds how many old backups a new one removes. A clock that is years ahead looks
// the same as a folder that has not received a backup in years. With this bound, a wrong clock
// removes only two backups per night, so an operator has time to notice.
const removedAtOnce = 2

// remove removes a backup, unless a restore is reading it.
func (f *folder) remove(name string) (gone bool, err error) {
	manifest, err := os.OpenFile(filepath.Join(f.path, name, manifestFile), os.O_RDWR, 0) // an exclusive lock needs write access on NFS
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err == nil {
		defer unlock(manifest)
		if err := syscall.Flock(int(manifest.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
			return false, nil
		}
	}
	// Rename it first: a partly removed backup must not look complete.
	part := filepath.Join(f.path, name+incomplete)
	return true, errors.Join(os.Rename(filepath.Join(f.path, name), part), os.RemoveAll(part))
}

// hold prevents the removal of a backup until release is called. It locks the manifest, which does
// not require write access, so it also works for backups on a read-only disk. If the disk does not
// support locks, hold does nothing: backups cannot be made there either.
func hold(path string, m *Manifest) (release func(), err error) {
	manifest, err := os.Open(filepath.Join(path, m.Name, manifestFile))
	if err != nil {
		return nil, fmt.Errorf("read the backup %s: %w", m.Name, err)
	}
	release = func() { unlock(manifest) }
	failed := syscall.Flock(int(manifest.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	// It may have been removed before it was locked.
	if _, err = os.Stat(manifest.Name()); err == nil && errors.Is(failed, syscall.EWOULDBLOCK) {
		err = errors.New("a backup is removing it because it is too old")
	}
	if err != nil {
		release()
		return nil, fmt.Errorf("read the backup %s: %w", m.Name, err)
	}
	return release, nil
}

// unlock unlocks and closes a file. Closing alone does not always unlock it, because a child process
// that is just starting holds a copy of the descriptor.
func unlock(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) // best effort: closing usually unlocks too
	_ = f.Close()                                   // nothing was written
}

// prune removes the oldest backups that started before a given time, and the objects that no backup
// refers to. It returns the number of expired backups that remain. It keeps backups that a restore
// is reading, and the backup that was just made, which looks too old if the clock was set forward
// during the backup.
func (f *folder) prune(made string, before time.Time) (left int, err error) {
	names, err := Names(f.path)
	if err != nil {
		return 0, err
	}
	used, removed := map[string]bool{}, 0
	for _, name := range names {
		old := name != made && name < before.UTC().Format(nameForm)
		if old && removed < removedAtOnce {
			gone, err := f.remove(name)
			if err != nil {
				return 0, err
			}
			if gone {
				removed++
				continue
			}
		}
		if old {
			left++
		}
		m, err := Read(f.path, name)
		if err != nil {
			return 0, err // the objects that it needs are unknown
		}
		for _, o := range m.Objects {
			used[o.Name] = true
		}
	}
	entries, err := os.ReadDir(filepath.Join(f.path, objectsDir))
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if used[e.Name()] || !object.MatchString(e.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(f.path, objectsDir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
	}
	return left, nil
}
