package storage

import (
	"bytes"
	"crypto/md5"
	"crypto/rand"
	"encoding"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	bolt "go.etcd.io/bbolt"
)

// schema is the version of the index's layout. Open rejects an index with a higher version.
const schema = 1

// The index contains: meta (schema, last generation), buckets by name, objects by "bucket NUL
// name", resumable sessions by ID, and pending notifications by number.
var (
	inMeta     = []byte("meta")
	inBuckets  = []byte("buckets")
	inObjects  = []byte("objects")
	inSessions = []byte("sessions")
	inOutbox   = []byte("outbox")

	keySchema     = []byte("schema")
	keyGeneration = []byte("generation")
)

// indexFile is the name of the index in Dir.
const indexFile = "index.db"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// object is one live object: its resource in the JSON API's format, and the name of the file
// with its bytes.
type object struct {
	Bucket             string            `json:"bucket"`
	Name               string            `json:"name"`
	Generation         int64             `json:"generation,string"`
	Metageneration     int64             `json:"metageneration,string"`
	Size               int64             `json:"size,string"`
	ContentType        string            `json:"contentType,omitempty"`
	ContentEncoding    string            `json:"contentEncoding,omitempty"`
	ContentDisposition string            `json:"contentDisposition,omitempty"`
	ContentLanguage    string            `json:"contentLanguage,omitempty"`
	CacheControl       string            `json:"cacheControl,omitempty"`
	CustomTime         *time.Time        `json:"customTime,omitempty"`
	Metadata           map[string]string `json:"metadata,omitempty"`
	MD5                string            `json:"md5Hash,omitempty"` // empty for a composed object
	CRC32C             string            `json:"crc32c,omitempty"`
	Components         int64             `json:"componentCount,omitempty"`
	ETag               string            `json:"etag"`
	Created            time.Time         `json:"timeCreated"`
	Updated            time.Time         `json:"updated"`
	StorageClass       string            `json:"storageClass"`
	Blob               string            `json:"blob,omitempty"` // file in data/; never sent to clients
}

// bucket is the part of a bucket's resource that this server stores.
type bucket struct {
	Name           string            `json:"name"`
	Metageneration int64             `json:"metageneration,string"`
	Created        time.Time         `json:"timeCreated"`
	Updated        time.Time         `json:"updated"`
	Location       string            `json:"location"`
	StorageClass   string            `json:"storageClass"`
	CORS           []CORS            `json:"cors,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
}

// cond contains preconditions. Nil fields are not checked.
type cond struct {
	Gen     *int64 `json:"gen,omitempty"`
	NotGen  *int64 `json:"notGen,omitempty"`
	Meta    *int64 `json:"meta,omitempty"`
	NotMeta *int64 `json:"notMeta,omitempty"`
}

func (c cond) check(o *object) error {
	var g, m int64
	if o != nil {
		g, m = o.Generation, o.Metageneration
	}
	if c.Gen != nil && *c.Gen != g || c.Meta != nil && *c.Meta != m {
		return errCondition
	}
	if c.NotGen != nil && *c.NotGen == g || c.NotMeta != nil && *c.NotMeta == m {
		return errUnchanged
	}
	return nil
}

var (
	errCondition = fail(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.")
	// errUnchanged becomes 304 for a read and 412 for every other call.
	errUnchanged = &apiError{status: 412, code: "PreconditionFailed", msg: errCondition.msg, notModified: true}
)

type store struct {
	dir    string
	bytes  string // the directory of data/ and tmp/
	room   room
	db     *bolt.DB
	clock  func() time.Time
	faults *Faults
	notes  *outbox

	queue chan *change
	quit  chan struct{}
	gone  chan struct{} // closed when the writer has returned

	commits sync.Mutex // held while the index changes
	pins    pins

	lastGen  int64 // accessed only by the writer
	readOnly bool  // accessed only by the writer; see Server.SetReadOnly
}

// change is one request to edit the index. The writer runs many changes in one transaction, so f
// must run all its checks before its first Put. That way, a rejected change has no effect.
type change struct {
	f       func(*bolt.Tx) error
	newBlob bool
	err     error
	done    chan struct{}
}

func openStore(o Options, faults *Faults) (*store, error) {
	s := &store{dir: o.Dir, bytes: o.ObjectsDir, room: room{reserve: o.Reserve, free: o.FreeSpace}, clock: o.Clock, faults: faults, queue: make(chan *change, 1024),
		quit: make(chan struct{}), gone: make(chan struct{})}
	if s.bytes == "" {
		s.bytes = s.dir
	}
	if err := s.indexed(); err != nil {
		return nil, err
	}
	if err := s.openIndex(); err != nil {
		return nil, err
	}
	if s.room.free == nil {
		s.room.free = func() (int64, error) { return freeSpace(s.bytes) }
	}
	if err := errors.Join(s.adopt(), s.prepare()); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	go s.write()
	return s, nil
}

// indexed returns an error if there are files without an index. With a new index, sweep would delete
// all of them.
func (s *store) indexed() error {
	if _, err := os.Stat(filepath.Join(s.dir, indexFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, d := range []string{s.dir, s.bytes} {
		files, err := os.ReadDir(filepath.Join(d, "data"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot list the stored files: %w", err)
		}
		if len(files) > 0 {
			return fmt.Errorf("the storage index %s is missing, but %s contains %d files: restore a backup",
				filepath.Join(s.dir, indexFile), filepath.Join(d, "data"), len(files))
		}
	}
	return nil
}

// reservedMap returns the size of the address space that the index's mapping reserves. It does not
// use memory. An index that outgrows its mapping can be remapped only when nothing is reading it,
// so a stalled backup that reads the index would block every write. 16 GiB is enough for about ten
// million objects. On Windows, reservedMap returns 0 because the file itself would grow to this
// size.
func reservedMap() int {
	if runtime.GOOS == "windows" {
		return 0
	}
	return int(min(16<<30, int64(math.MaxInt/2)))
}

// openIndex creates missing directories and opens the index.
func (s *store) openIndex() error {
	for _, d := range []string{s.dir, filepath.Join(s.bytes, "data"), filepath.Join(s.bytes, "tmp")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("cannot create the storage directory: %w", err)
		}
	}
	db, err := bolt.Open(filepath.Join(s.dir, indexFile), 0o600, &bolt.Options{
		Timeout: 2 * time.Second, InitialMmapSize: reservedMap(), FreelistType: bolt.FreelistMapType,
	})
	if err != nil {
		return fmt.Errorf("cannot open the storage index in %s (is another process using it?): %w", s.dir, err)
	}
	s.db = db
	return nil
}

// prepare sets up a new directory or repairs one that a crash left inconsistent. It creates the
// index's buckets and removes files from uploads that ended without an object.
func (s *store) prepare() error {
	keep, unreadable := map[string]bool{}, false
	err := s.db.Update(func(t *bolt.Tx) error {
		for _, b := range [][]byte{inMeta, inBuckets, inObjects, inSessions, inOutbox} {
			if _, err := t.CreateBucketIfNotExists(b); err != nil {
				return err
			}
		}
		meta := t.Bucket(inMeta)
		if v := meta.Get(keySchema); v == nil {
			if err := meta.Put(keySchema, []byte(strconv.Itoa(schema))); err != nil {
				return err
			}
		} else if n, err := strconv.Atoi(string(v)); err != nil || n > schema {
			return fmt.Errorf("the storage index has schema %q, but this program supports only schemas up to %d", v, schema)
		}
		if v := meta.Get(keyGeneration); v != nil {
			s.lastGen = int64(binary.BigEndian.Uint64(v))
		}
		return t.Bucket(inSessions).ForEach(func(k, v []byte) error {
			var r sessionRecord
			if err := json.Unmarshal(v, &r); err != nil {
				unreadable = true
			} else if !r.Done {
				keep[r.Blob] = true
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("cannot prepare the storage index: %w", err)
	}
	if unreadable {
		return nil // an unreadable session may refer to any of the files, so keep them all; expire logs it
	}
	files, err := os.ReadDir(filepath.Join(s.bytes, "tmp"))
	if err != nil {
		return fmt.Errorf("cannot list unfinished uploads: %w", err)
	}
	for _, f := range files {
		if !keep[f.Name()] {
			if err := os.Remove(filepath.Join(s.bytes, "tmp", f.Name())); err != nil {
				return fmt.Errorf("cannot remove an unfinished upload: %w", err)
			}
		}
	}
	return nil
}

// sweep removes files without an object. Such files exist if a process was stopped between moving a
// file and writing the index. sweep may run while requests are being served because names was
// listed before the first request and a name is never reused.
func (s *store) sweep(names []string) (removed int, err error) {
	if len(names) == 0 {
		return 0, nil
	}
	orphan := make(map[string]bool, len(names))
	for _, n := range names {
		orphan[n] = true
	}
	err = s.db.View(func(t *bolt.Tx) error {
		return t.Bucket(inObjects).ForEach(func(_, v []byte) error {
			var r struct{ Blob string }
			if err := json.Unmarshal(v, &r); err != nil {
				return err
			}
			delete(orphan, r.Blob)
			return nil
		})
	})
	if err != nil {
		return 0, fmt.Errorf("cannot look for orphaned files: %w", err)
	}
	for n := range orphan {
		if s.pins.keep(s.data(n)) {
			continue // deleted, but an open snapshot needs it
		}
		if err := os.Remove(s.data(n)); err == nil {
			removed++
		} else if !errors.Is(err, fs.ErrNotExist) {
			return removed, fmt.Errorf("cannot remove an orphaned file: %w", err)
		}
	}
	return removed, nil
}

// blobs lists the files in data/.
func (s *store) blobs() ([]string, error) {
	d, err := os.Open(filepath.Join(s.bytes, "data"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return d.Readdirnames(-1)
}

// discard removes an unused file. If the removal fails, the next Open will retry it.
func (s *store) discard(path string) { _ = os.Remove(path) }

// release removes the bytes of a deleted or replaced object when no snapshot needs them.
func (s *store) release(o *object) {
	if path := s.data(o.Blob); !s.pins.keep(path) {
		s.discard(path)
	}
}

func (s *store) data(blob string) string { return filepath.Join(s.bytes, "data", blob) }
func (s *store) temp(blob string) string { return filepath.Join(s.bytes, "tmp", blob) }

func (s *store) close() error {
	close(s.quit)
	<-s.gone
	return s.db.Close()
}

// write is the only writer to the index. All changes that are queued while one commit is being
// synced share the next commit and its sync.
func (s *store) write() {
	defer close(s.gone)
	for {
		var batch []*change
		select {
		case c := <-s.queue:
			batch = append(batch, c)
		case <-s.quit:
			return
		}
	more:
		for len(batch) < 512 {
			select {
			case c := <-s.queue:
				batch = append(batch, c)
			default:
				break more
			}
		}
		err := s.commitBatch(batch)
		for _, c := range batch {
			if err != nil {
				c.err = err
			}
			close(c.done)
		}
	}
}

func (s *store) commitBatch(batch []*change) error {
	for _, c := range batch {
		if c.newBlob { // the files' names must be durable before the index refers to them
			if err := syncDir(filepath.Join(s.bytes, "data")); err != nil {
				return err
			}
			break
		}
	}
	before := s.lastGen
	s.commits.Lock()
	defer s.commits.Unlock()
	err := s.db.Update(func(t *bolt.Tx) error {
		for _, c := range batch {
			c.err = c.f(t)
			if refused := (*apiError)(nil); c.err != nil && !errors.As(c.err, &refused) {
				return c.err
			}
		}
		if s.lastGen == before {
			return nil
		}
		return t.Bucket(inMeta).Put(keyGeneration, binary.BigEndian.AppendUint64(nil, uint64(s.lastGen)))
	})
	if err != nil {
		return fmt.Errorf("cannot write the storage index: %w", err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}

// update runs f in the writer's next transaction and returns when it is on disk. After an error
// that is not an apiError, the outcome is unknown, as after a power failure.
func (s *store) update(newBlob bool, f func(*bolt.Tx) error) error {
	c := &change{f: f, newBlob: newBlob, done: make(chan struct{})}
	select {
	case s.queue <- c:
	case <-s.quit:
		return errClosed
	}
	select {
	case <-c.done:
		return c.err
	case <-s.gone:
		// If the writer committed c just before it returned, both channels are ready and select may
		// have chosen this one. Otherwise, c was queued but never taken.
		select {
		case <-c.done:
			return c.err
		default:
			return errClosed
		}
	}
}

var errClosed = errors.New("storage is closed")

// errReadOnly is a 503 in the XML API because its callers wait and retry. The JSON API returns 403
// instead because its callers are services, which would treat a 503 as a storage outage and also
// stop reading.
var errReadOnly = &apiError{status: 503, jsonStatus: 403, code: "ServiceUnavailable", msg: "The objects are read-only while they are being moved."}

// change is like update, but for changes to objects.
func (s *store) change(newBlob bool, f func(*bolt.Tx) error) error {
	return s.update(newBlob, func(t *bolt.Tx) error {
		if s.readOnly {
			return errReadOnly
		}
		return f(t)
	})
}

// nextGeneration returns a time in microseconds that always increases, even across restarts and
// when the clock is set back.
func (s *store) nextGeneration() int64 {
	s.lastGen = max(s.lastGen+1, s.clock().UnixMicro())
	return s.lastGen
}

func objectKey(bucket, name string) []byte { return []byte(bucket + "\x00" + name) }

func getJSON[T any](t *bolt.Tx, in, key []byte) (*T, error) {
	v := t.Bucket(in).Get(key)
	if v == nil {
		return nil, nil
	}
	x := new(T)
	if err := json.Unmarshal(v, x); err != nil {
		return nil, fmt.Errorf("cannot read %s %q from the index: %w", in, key, err)
	}
	return x, nil
}

func putJSON(t *bolt.Tx, in, key []byte, x any) error {
	v, err := json.Marshal(x)
	if err != nil {
		return err
	}
	return t.Bucket(in).Put(key, v)
}

func noBucket(name string) error {
	return fail(404, "NoSuchBucket", "The specified bucket does not exist: %s", name)
}

func noObject(bucket, name string) error {
	return fail(404, "NoSuchKey", "No such object: %s/%s", bucket, name)
}

// lookup reads an object in t. It returns nil for a missing object, and an error for a missing
// bucket.
func lookup(t *bolt.Tx, bucketName, name string) (*object, error) {
	if t.Bucket(inBuckets).Get([]byte(bucketName)) == nil {
		return nil, noBucket(bucketName)
	}
	return getJSON[object](t, inObjects, objectKey(bucketName, name))
}

func (s *store) get(bucketName, name string) (o *object, err error) {
	err = s.db.View(func(t *bolt.Tx) error { o, err = lookup(t, bucketName, name); return err })
	return o, err
}

// find is like get, but it returns an error if the object does not exist or does not satisfy c. The
// object's generation must be gen, unless gen is 0.
func (s *store) find(bucketName, name string, gen int64, c cond) (*object, error) {
	o, err := s.get(bucketName, name)
	if err != nil {
		return nil, err
	}
	if o == nil || gen != 0 && gen != o.Generation {
		return nil, noObject(bucketName, name)
	}
	return o, c.check(o)
}

// open finds an object and opens its bytes. If the object is overwritten in between and its file
// removed, open looks up the object again.
func (s *store) open(bucketName, name string, gen int64, c cond) (*object, *os.File, error) {
	for try := 0; ; try++ {
		o, err := s.find(bucketName, name, gen, c)
		if err != nil {
			return nil, nil, err
		}
		f, err := os.Open(s.data(o.Blob))
		if err == nil {
			return o, f, nil
		}
		if try == 10 || !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, fmt.Errorf("cannot open the bytes of %s/%s: %w", bucketName, name, err)
		}
	}
}

// upload is a temporary file with running checksums.
type upload struct {
	s    *store
	blob string
	f    *os.File
	crc  hash.Hash32
	md5  hash.Hash // nil if the object will have no MD5
	n    int64

	own       bool  // written by our own programs, which may use half of the reserve
	unchecked int64 // bytes written since the last check of free space
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func newSums(s *store, blob string) *upload {
	return &upload{s: s, blob: blob, crc: crc32.New(castagnoli), md5: md5.New()}
}

// newUpload starts an upload. expect is its length in bytes, or 0 if unknown. own is true for
// uploads from our own programs.
func (s *store) newUpload(own bool, expect int64) (*upload, error) {
	if err := s.room.check(own, expect); err != nil {
		return nil, err
	}
	u := newSums(s, randomHex(16))
	u.own = own
	f, err := os.OpenFile(s.temp(u.blob), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot create the upload's file: %w", err)
	}
	u.f = f
	return u, nil
}

func (u *upload) Write(p []byte) (int, error) {
	if err := u.s.faults.disk(); err != nil {
		return 0, &diskError{full(err)}
	}
	// Check again while bytes arrive because other programs also write to the volume and because
	// the length may be unknown.
	if u.unchecked += int64(len(p)); u.unchecked >= checkEvery {
		if err := u.s.room.check(u.own, int64(len(p))); err != nil {
			return 0, &diskError{err}
		}
		u.unchecked = 0
	}
	n, err := u.f.Write(p)
	u.crc.Write(p[:n])
	if u.md5 != nil {
		u.md5.Write(p[:n])
	}
	u.n += int64(n)
	if err != nil {
		return n, &diskError{full(err)}
	}
	return n, nil
}

// diskError marks a failure of our disk because io.Copy does not distinguish it from a failure of
// the client's connection.
type diskError struct{ err error }

func (e *diskError) Error() string { return "cannot write the upload: " + e.err.Error() }
func (e *diskError) Unwrap() error { return e.err }

var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// fill copies at most limit bytes from r into the upload.
func (u *upload) fill(r io.Reader, limit int64) error {
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	_, err := io.CopyBuffer(struct{ io.Writer }{u}, io.LimitReader(r, limit), *b)
	var disk *diskError
	if err != nil && !errors.As(err, &disk) {
		return fail(400, "IncompleteBody", "The request body ended early: %v", err)
	}
	return err
}

func (u *upload) discard() {
	_ = u.f.Close()
	u.s.discard(u.s.temp(u.blob))
}

func (u *upload) sums() (md5sum, crc string) {
	if u.md5 != nil {
		md5sum = base64.StdEncoding.EncodeToString(u.md5.Sum(nil))
	}
	return md5sum, base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, u.crc.Sum32()))
}

// state returns the data that a resumable upload needs to resume after a restart without reading
// its bytes again.
func (u *upload) state() (md5state, crcstate []byte, err error) {
	md5state, err = u.md5.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return nil, nil, err
	}
	crcstate, err = u.crc.(encoding.BinaryMarshaler).MarshalBinary()
	return md5state, crcstate, err
}

// wish describes the object that a caller wants to create from an upload.
type wish struct {
	object   object
	cond     cond
	md5, crc string // computed by the client; empty if not sent
	session  string // ID of the session that this commit ends
}

func checkName(name string) error {
	if name == "" || len(name) > 1024 || !utf8.ValidString(name) || strings.ContainsAny(name, "\r\n") ||
		name == "." || name == ".." || strings.HasPrefix(name, ".well-known/acme-challenge/") {
		return fail(400, "InvalidObjectName", "The specified object name is not valid.")
	}
	return nil
}

// commit makes an upload the live object. A crash before the index transaction has no effect. That
// transaction adds the complete object and its notification and ends its session.
func (s *store) commit(u *upload, w wish) (*object, error) {
	keepTemp := w.session != "" // needed until the index refers to the object's file
	defer func() {
		_ = u.f.Close() // the file is synced or about to be removed
		if !keepTemp {
			s.discard(s.temp(u.blob))
		}
	}()
	o := w.object
	if err := checkName(o.Name); err != nil {
		return nil, err
	}
	o.Size = u.n
	o.MD5, o.CRC32C = u.sums()
	if w.md5 != "" && w.md5 != o.MD5 || w.crc != "" && w.crc != o.CRC32C {
		return nil, fail(400, "BadDigest", "The checksum you specified did not match what we received.")
	}
	if err := u.f.Sync(); err != nil {
		return nil, fmt.Errorf("cannot sync the upload: %w", err)
	}
	// Link the file of a session instead of moving it because the session needs its file until the
	// transaction that ends the session has succeeded.
	move := os.Rename
	if w.session != "" {
		move = os.Link
	}
	// The link may already exist after a commit that failed before the index was written. The
	// session's next attempt reuses it.
	o.Blob = u.blob
	if err := move(s.temp(u.blob), s.data(o.Blob)); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("cannot move the upload: %w", err)
	}
	err := s.put(&o, w)
	if err == nil || refused(err) && !errors.Is(err, errReadOnly) {
		keepTemp = false
	}
	if err != nil {
		return nil, err
	}
	return &o, nil
}

func refused(err error) bool {
	var e *apiError
	return errors.As(err, &e)
}

// put adds o, whose bytes are already in data/, to the index. It removes the file of the object
// that o replaces.
func (s *store) put(o *object, w wish) error {
	var old *object
	err := s.change(true, func(t *bolt.Tx) (err error) {
		if old, err = lookup(t, o.Bucket, o.Name); err != nil {
			return err
		}
		if err := w.cond.check(old); err != nil {
			return err
		}
		var ses *sessionRecord
		if w.session != "" {
			if ses, err = getJSON[sessionRecord](t, inSessions, []byte(w.session)); err != nil {
				return err
			}
			if ses == nil {
				return fail(404, "NoSuchUpload", "The upload session was cancelled.")
			}
		}
		now := s.clock().UTC()
		o.Generation, o.Metageneration = s.nextGeneration(), 1
		o.Created, o.Updated = now, now
		o.StorageClass = "STANDARD"
		if o.ContentType == "" {
			o.ContentType = "application/octet-stream"
		}
		o.ETag = etag(o)
		if err := putJSON(t, inObjects, objectKey(o.Bucket, o.Name), o); err != nil {
			return err
		}
		if ses != nil {
			ses.Done, ses.Result, ses.MD5State, ses.CRCState = true, o, nil, nil
			if err := putJSON(t, inSessions, []byte(w.session), ses); err != nil {
				return err
			}
		}
		return s.notes.add(t, eventFinalize, o, old)
	})
	if err != nil {
		if refused(err) { // after other errors, the index may refer to the file; the next Open finds out
			s.discard(s.data(o.Blob))
		}
		return err
	}
	s.notes.wake()
	if old != nil {
		s.release(old) // open readers can still use their descriptors
	}
	return nil
}

func etag(o *object) string {
	b := binary.AppendUvarint([]byte{8}, uint64(o.Generation))
	return base64.StdEncoding.EncodeToString(binary.AppendUvarint(append(b, 16), uint64(o.Metageneration)))
}

func (s *store) delete(bucketName, name string, gen int64, c cond) error {
	var gone *object
	err := s.change(false, func(t *bolt.Tx) (err error) {
		if gone, err = lookup(t, bucketName, name); err != nil {
			return err
		}
		if gone == nil || gen != 0 && gen != gone.Generation {
			return noObject(bucketName, name)
		}
		if err := c.check(gone); err != nil {
			return err
		}
		if err := t.Bucket(inObjects).Delete(objectKey(bucketName, name)); err != nil {
			return err
		}
		return s.notes.add(t, eventDelete, gone, nil)
	})
	if err != nil {
		return err
	}
	s.notes.wake()
	s.release(gone)
	return nil
}

// amend edits an object's metadata and increments the metageneration. It changes neither the bytes
// nor the generation.
func (s *store) amend(bucketName, name string, gen int64, c cond, edit func(*object) error) (*object, error) {
	var o *object
	err := s.change(false, func(t *bolt.Tx) (err error) {
		if o, err = lookup(t, bucketName, name); err != nil {
			return err
		}
		if o == nil || gen != 0 && gen != o.Generation {
			return noObject(bucketName, name)
		}
		if err := c.check(o); err != nil {
			return err
		}
		if err := edit(o); err != nil {
			return err
		}
		o.Metageneration++
		o.Updated = s.clock().UTC()
		o.ETag = etag(o)
		if err := putJSON(t, inObjects, objectKey(bucketName, name), o); err != nil {
			return err
		}
		return s.notes.add(t, eventMetadata, o, nil)
	})
	if err != nil {
		return nil, err
	}
	s.notes.wake()
	return o, nil
}

// copyOf creates another object from src's bytes without copying them. Blobs never change, so a
// second link to the file is enough.
func (s *store) copyOf(src *object, dst object, c cond) (*object, error) {
	dst.Blob = randomHex(16)
	dst.Size, dst.MD5, dst.CRC32C, dst.Components = src.Size, src.MD5, src.CRC32C, src.Components
	if err := checkName(dst.Name); err != nil {
		return nil, err
	}
	if err := os.Link(s.data(src.Blob), s.data(dst.Blob)); err != nil {
		return nil, fmt.Errorf("cannot copy the bytes: %w", err)
	}
	if err := s.put(&dst, wish{object: dst, cond: c}); err != nil {
		return nil, err
	}
	return &dst, nil
}

// compose concatenates sources, in order, into a new object.
func (s *store) compose(sources []*object, dst object, c cond) (*object, error) {
	var total int64
	for _, src := range sources {
		total += src.Size
	}
	u, err := s.newUpload(true, total)
	if err != nil {
		return nil, err
	}
	u.md5 = nil // production computes no MD5 for a composed object
	for _, src := range sources {
		err := func() error {
			f, err := os.Open(s.data(src.Blob))
			if err != nil {
				return noObject(src.Bucket, src.Name)
			}
			defer func() { _ = f.Close() }()
			return u.fill(f, maxObject)
		}()
		if err != nil {
			u.discard()
			return nil, err
		}
		dst.Components += max(src.Components, 1)
	}
	return s.commit(u, wish{object: dst, cond: c})
}

// listing contains the parameters of list.
type listing struct {
	prefix, delimiter string
	start, end        string // startOffset is inclusive, endOffset is exclusive
	trailing          bool   // includeTrailingDelimiter
	token             string // the end of the previous page
	limit             int
}

// A page token consists of a letter that distinguishes an object's name from a prefix, followed by
// the last entry on the previous page. A prefix means that all its members have been listed.
const (
	tokenName   = "n"
	tokenPrefix = "p"
)

// list returns objects and prefixes sorted by name, and the token for the next page.
func (s *store) list(bucketName string, q listing) (objs []*object, prefixes []string, next string, err error) {
	err = s.db.View(func(t *bolt.Tx) error {
		if t.Bucket(inBuckets).Get([]byte(bucketName)) == nil {
			return noBucket(bucketName)
		}
		base := string(objectKey(bucketName, ""))
		from := []byte(base + max(q.prefix, q.start))
		if name, ok := strings.CutPrefix(q.token, tokenName); ok {
			from = []byte(base + name + "\x00")
		} else if name, ok := strings.CutPrefix(q.token, tokenPrefix); ok && name != "" {
			from = after(base + name)
		}
		last := ""
		c := t.Bucket(inObjects).Cursor()
		k, v := c.Seek(from)
		for k != nil && strings.HasPrefix(string(k), base+q.prefix) {
			name := string(k[len(base):])
			if q.end != "" && name >= q.end {
				return nil
			}
			if len(objs)+len(prefixes) >= q.limit {
				next = last
				return nil
			}
			folded := ""
			if i := strings.Index(name[len(q.prefix):], q.delimiter); q.delimiter != "" && i >= 0 {
				folded = name[:len(q.prefix)+i+len(q.delimiter)]
				prefixes = append(prefixes, folded)
				last = tokenPrefix + folded
			}
			if folded == "" || q.trailing && name == folded {
				o := &object{}
				if err := json.Unmarshal(v, o); err != nil {
					return fmt.Errorf("cannot read the object %q from the index: %w", name, err)
				}
				objs = append(objs, o)
			}
			if folded != "" {
				k, v = c.Seek(after(base + folded))
				continue
			}
			last = tokenName + name
			k, v = c.Next()
		}
		return nil
	})
	return objs, prefixes, next, err
}

// after returns the first key after all keys with the prefix p. The last byte of p is below 0xff
// because names are UTF-8.
func after(p string) []byte {
	b := bytes.Clone([]byte(p))
	b[len(b)-1]++
	return b
}

func (s *store) bucket(name string) (b *bucket, err error) {
	err = s.db.View(func(t *bolt.Tx) error { b, err = getJSON[bucket](t, inBuckets, []byte(name)); return err })
	if err == nil && b == nil {
		err = noBucket(name)
	}
	return b, err
}

func (s *store) buckets(prefix string) (all []*bucket, err error) {
	err = s.db.View(func(t *bolt.Tx) error {
		return t.Bucket(inBuckets).ForEach(func(k, v []byte) error {
			if !strings.HasPrefix(string(k), prefix) {
				return nil
			}
			b := &bucket{}
			all = append(all, b)
			return json.Unmarshal(v, b)
		})
	})
	return all, err
}

func (s *store) createBucket(b bucket) (*bucket, error) {
	if !validBucket.MatchString(b.Name) {
		return nil, fail(400, "InvalidBucketName", "The specified bucket name is not valid: %q", b.Name)
	}
	err := s.update(false, func(t *bolt.Tx) error {
		if t.Bucket(inBuckets).Get([]byte(b.Name)) != nil {
			return fail(409, "BucketAlreadyOwnedByYou", "Your previous request to create the named bucket succeeded and you already own it.")
		}
		b.Created = s.clock().UTC()
		b.Updated, b.Metageneration = b.Created, 1
		if b.Location == "" {
			b.Location = "LOCAL"
		}
		b.StorageClass = "STANDARD"
		return putJSON(t, inBuckets, []byte(b.Name), b)
	})
	return &b, err
}

func (s *store) amendBucket(name string, c cond, edit func(*bucket) error) (b *bucket, err error) {
	err = s.update(false, func(t *bolt.Tx) error {
		if b, err = getJSON[bucket](t, inBuckets, []byte(name)); err != nil {
			return err
		}
		if b == nil {
			return noBucket(name)
		}
		if err := c.check(&object{Metageneration: b.Metageneration}); err != nil {
			return err
		}
		b.Labels = maps.Clone(b.Labels)
		if err := edit(b); err != nil {
			return err
		}
		b.Metageneration++
		b.Updated = s.clock().UTC()
		return putJSON(t, inBuckets, []byte(name), b)
	})
	return b, err
}

func (s *store) deleteBucket(name string, c cond) error {
	return s.update(false, func(t *bolt.Tx) error {
		b, err := getJSON[bucket](t, inBuckets, []byte(name))
		if err != nil {
			return err
		}
		if b == nil {
			return noBucket(name)
		}
		if err := c.check(&object{Metageneration: b.Metageneration}); err != nil {
			return err
		}
		base := objectKey(name, "")
		if k, _ := t.Bucket(inObjects).Cursor().Seek(base); bytes.HasPrefix(k, base) {
			return fail(409, "BucketNotEmpty", "The bucket you tried to delete is not empty.")
		}
		return t.Bucket(inBuckets).Delete([]byte(name))
	})
}
