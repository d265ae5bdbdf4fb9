package storage

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	bolt "go.etcd.io/bbolt"
)

// Entry is one entry in the index: an object, a bucket, a pending notification or a number that
// belongs to the index itself. Only this package interprets Key and Value.
type Entry struct {
	In    string `json:"in"`
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// Blob is a file with the bytes of one object. Its ID is never reused for different bytes.
type Blob struct {
	ID     string
	Object string // BUCKET/NAME
	Size   int64  // in bytes
	CRC32C string // in base64
}

var blobID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// Blob returns the file of the object that the entry describes. ok is false if the entry is not an
// object.
func (e Entry) Blob() (b Blob, ok bool, err error) {
	if e.In != string(inObjects) {
		return b, false, nil
	}
	var o object
	if err := json.Unmarshal(e.Value, &o); err != nil {
		return b, false, fmt.Errorf("cannot read the object %q: %w", e.Key, err)
	}
	if !blobID.MatchString(o.Blob) || o.Size < 0 {
		return b, false, fmt.Errorf("the object %q refers to no file on this server", e.Key)
	}
	return Blob{o.Blob, o.Bucket + "/" + o.Name, o.Size, o.CRC32C}, true, nil
}

// Object describes an object for a program that copies it.
type Object struct {
	Bucket, Name                               string
	Generation                                 int64
	ContentType, ContentEncoding, CacheControl string
	Blob
}

// Object returns the object that the entry describes. ok is false if the entry is not an object.
func (e Entry) Object() (x Object, ok bool, err error) {
	b, ok, err := e.Blob()
	if !ok || err != nil {
		return x, false, err
	}
	var o object
	if err := json.Unmarshal(e.Value, &o); err != nil {
		return x, false, fmt.Errorf("cannot read the object %q: %w", e.Key, err)
	}
	return Object{o.Bucket, o.Name, o.Generation, o.ContentType, o.ContentEncoding, o.CacheControl, b}, true, nil
}

// Check returns a reader that reads from r and fails at the end unless the bytes have the blob's
// size and checksum.
func (b Blob) Check(r io.Reader) io.Reader {
	return &checked{blob: b, r: r, crc: crc32.New(castagnoli)}
}

type checked struct {
	blob Blob
	r    io.Reader
	n    int64
	crc  interface {
		io.Writer
		Sum32() uint32
	}
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	_, _ = c.crc.Write(p[:n]) // never fails
	if err == io.EOF && (c.n != c.blob.Size || sum(c.crc.Sum32()) != c.blob.CRC32C) {
		return n, fmt.Errorf("the bytes of %s are damaged: their size or checksum differs from that of their object", c.blob.ID)
	}
	return n, err
}

func sum(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}

// Snapshot is the state of all objects at one point in time. Until Close, the bytes of the objects
// are kept, even if objects are deleted or replaced. Close the snapshot before the server.
type Snapshot struct {
	st  *store
	tx  *bolt.Tx
	end sync.Once
}

// Snapshot returns the current state. It calls also at the same point in time, so no change to an
// object is committed between the two. also must be fast.
func (s *Server) Snapshot(also func() error) (*Snapshot, error) {
	s.st.commits.Lock()
	defer s.st.commits.Unlock()
	tx, err := s.st.db.Begin(false)
	if err != nil {
		return nil, fmt.Errorf("storage: cannot take a snapshot: %w", err)
	}
	if err := also(); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	s.st.pins.add()
	return &Snapshot{st: s.st, tx: tx}, nil
}

// Entries calls fn with each entry in the index, except for unfinished uploads. Call it only once
// because it releases the index, which cannot grow while a snapshot reads it.
func (sn *Snapshot) Entries(fn func(Entry) error) error {
	defer func() { _ = sn.tx.Rollback() }() // opened only for reading
	for _, in := range [][]byte{inMeta, inBuckets, inObjects, inOutbox} {
		err := sn.tx.Bucket(in).ForEach(func(k, v []byte) error { return fn(Entry{string(in), k, v}) })
		if err != nil {
			return err
		}
	}
	return nil
}

// Open opens the bytes of a blob.
func (sn *Snapshot) Open(b Blob) (*os.File, error) { return os.Open(sn.st.data(b.ID)) }

// Close releases the snapshot and removes the bytes that were kept only for it.
func (sn *Snapshot) Close() {
	sn.end.Do(func() {
		_ = sn.tx.Rollback() // Entries may have ended it
		for _, path := range sn.st.pins.drop() {
			sn.st.discard(path)
		}
	})
}

// pins protects files from removal while snapshots are open.
type pins struct {
	mu     sync.Mutex
	open   int
	unused []string // files to remove when the last snapshot is closed
}

func (p *pins) add() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open++
}

// drop ends one snapshot and returns the files that can be removed.
func (p *pins) drop() (unused []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open--; p.open == 0 {
		unused, p.unused = p.unused, nil
	}
	return unused
}

// keep reports whether a snapshot needs a file that is about to be removed. In that case, the file
// is removed later.
func (p *pins) keep(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open > 0 {
		p.unused = append(p.unused, path)
	}
	return p.open > 0
}

// Restore fills the directories of a server that has never run.
type Restore struct{ st *store }

// NewRestore creates the directories. It fails if they contain objects. It uses only Dir and
// ObjectsDir from the options.
func NewRestore(o Options) (*Restore, error) {
	st := &store{dir: o.Dir, bytes: o.ObjectsDir}
	if st.bytes == "" {
		st.bytes = st.dir
	}
	if _, err := os.Stat(filepath.Join(st.dir, indexFile)); err == nil {
		return nil, fmt.Errorf("storage: %s already contains objects; restore into an empty folder", st.dir)
	}
	if err := st.openIndex(); err != nil {
		return nil, err
	}
	return &Restore{st}, nil
}

// Entries adds entries to the index in a single commit.
func (r *Restore) Entries(entries []Entry) error {
	return r.st.db.Update(func(t *bolt.Tx) error {
		for _, e := range entries {
			switch e.In {
			case string(inMeta), string(inBuckets), string(inObjects), string(inOutbox):
			default:
				return fmt.Errorf("storage: restore failed: the index has no part %q", e.In)
			}
			b, err := t.CreateBucketIfNotExists([]byte(e.In))
			if err != nil {
				return err
			}
			if err := b.Put(e.Key, e.Value); err != nil {
				return err
			}
			if e.In == string(inOutbox) {
				if err := continueAfter(b, e.Key); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// continueAfter gives the next notification a higher number than a restored one. Otherwise, the
// next notification would overwrite the restored one because an exported bucket does not contain
// its sequence.
func continueAfter(outbox *bolt.Bucket, key []byte) error {
	if len(key) != 8 {
		return fmt.Errorf("storage: restore failed: %x is not the number of a notification", key)
	}
	return outbox.SetSequence(max(outbox.Sequence(), binary.BigEndian.Uint64(key)))
}

// Write writes and checks the bytes of a blob. It replaces the blob's file if there is one, as is
// the case if only the index was lost.
func (r *Restore) Write(b Blob, from io.Reader) error {
	f, err := os.OpenFile(r.st.temp(b.ID), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("storage: restore failed: %w", err)
	}
	_, err = io.Copy(f, b.Check(from))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(r.st.temp(b.ID)) // the error below is more useful
		return err
	}
	return os.Rename(r.st.temp(b.ID), r.st.data(b.ID))
}

// LeaveOut removes an object from the index because its bytes are missing.
func (r *Restore) LeaveOut(b Blob) error {
	bucket, name, _ := strings.Cut(b.Object, "/")
	return r.st.db.Update(func(t *bolt.Tx) error { return t.Bucket(inObjects).Delete(objectKey(bucket, name)) })
}

// Close syncs all data to disk.
func (r *Restore) Close() error {
	return errors.Join(syncDir(filepath.Join(r.st.bytes, "data")), r.st.db.Close())
}
