package firestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Layout of the file:
//
//	meta                         format: number of the layout; last: time of the newest commit;
//	                             restoring: present until a restore is complete
//	projects/{p}/databases/{d}   one bucket per database, which contains:
//	  docs    documentKey                    -> create time, update time, fields
//	  colls   collectionKey                  -> number of documents
//	  groups  collection id, 0x00, collectionKey
//	  idx     one bucket per index: index key -> documentKey
//
// A document and all its index entries change in one transaction on the file, so a crash cannot
// make them inconsistent.
const formatVersion = 1

var (
	metaBucket   = []byte("meta")
	formatKey    = []byte("format")
	lastKey      = []byte("last")
	restoringKey = []byte("restoring")
	docsBucket   = []byte("docs")
	collsBucket  = []byte("colls")
	groupsBucket = []byte("groups")
	indexBucket  = []byte("idx")
)

// reservedMap returns the size of the address space that the file's mapping reserves. It does not
// use memory. A file that outgrows its mapping can be remapped only when no reader is active, so a
// single stalled stream would block every write. On Windows, reservedMap returns 0 because the file
// itself would grow to this size.
func reservedMap() int {
	if runtime.GOOS == "windows" {
		return 0
	}
	return int(min(16<<30, int64(math.MaxInt/2)))
}

// latest is a time that stands for the newest committed state.
const latest = int64(1) << 62

type store struct {
	db       *bolt.DB
	history  *history
	indexes  *indexRegistry
	adaptive int64        // minimum number of documents for which an index is worth building
	examined atomic.Int64 // number of documents that queries have read
}

// openStore creates the file if it does not exist. If the path is empty, it keeps all data in
// memory. restoring begins a restore into a new file.
func openStore(path string, restoring bool) (*store, error) {
	// Keep free pages in a map. The default list slows down with each page that deleted documents
	// free.
	opts := &bolt.Options{Timeout: time.Second, FreelistType: bolt.FreelistMapType, InitialMmapSize: reservedMap()}
	if path == "" {
		path = "memory"
		opts.NoSync, opts.NoGrowSync = true, true
		opts.OpenFile = openMemoryFile
	}
	db, err := bolt.Open(path, 0o600, opts)
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("firestore: %s is in use by another process: stop it or choose another data directory", path)
	case err != nil:
		return nil, fmt.Errorf("firestore: cannot open %s: %w", path, err)
	}
	s := &store{db: db, adaptive: adaptiveThreshold}
	err = s.checkFormat(path, restoring)
	if err == nil && restoring {
		err = s.beginRestore(path)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// beginRestore marks a new file as incomplete.
func (s *store) beginRestore(path string) error {
	return s.db.Update(func(tx *bolt.Tx) error {
		if lastCommit(tx) > 0 {
			return fmt.Errorf("firestore: %s already contains records; restore into an empty folder", path)
		}
		return tx.Bucket(metaBucket).Put(restoringKey, []byte{1})
	})
}

func (s *store) checkFormat(path string, restoring bool) error {
	var last int64
	err := s.db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(metaBucket)
		if b == nil {
			return nil
		}
		v := b.Get(formatKey)
		if len(v) != 4 {
			return fmt.Errorf("firestore: %s is not a local Firestore data file", path)
		}
		if n := binary.BigEndian.Uint32(v); n > formatVersion {
			return fmt.Errorf("firestore: %s was written by a newer version (format %d, this program supports up to %d): use that version, or another data directory", path, n, formatVersion)
		}
		if !restoring && b.Get(restoringKey) != nil {
			return fmt.Errorf("firestore: %s contains an incomplete restore: empty its folder and restore again", path)
		}
		last = lastCommit(tx)
		return nil
	})
	if err != nil {
		return err
	}
	s.history = newHistory(last)
	if last > 0 {
		return nil
	}
	return s.db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(metaBucket)
		if err != nil {
			return err
		}
		return b.Put(formatKey, binary.BigEndian.AppendUint32(nil, formatVersion))
	})
}

func lastCommit(tx *bolt.Tx) int64 {
	if b := tx.Bucket(metaBucket); b != nil {
		if v := b.Get(lastKey); len(v) == 8 {
			return int64(binary.BigEndian.Uint64(v))
		}
	}
	return 0
}

func setLastCommit(tx *bolt.Tx, at int64) error {
	return tx.Bucket(metaBucket).Put(lastKey, binary.BigEndian.AppendUint64(nil, uint64(at)))
}

// openTemporary opens a temporary file and removes its name. It is used on systems without
// anonymous memory files.
func openTemporary() (*os.File, error) {
	f, err := os.CreateTemp("", "firestore-*")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// snapshot is a consistent state of all databases. It is valid until the function that received it
// returns. It is not safe for concurrent use.
type snapshot struct {
	store      *store
	tx         *bolt.Tx
	at         int64             // the time of the snapshot's state
	changed    map[string][]byte // documents that changed later, as they were at that time
	partitions map[string]*partition
	strict     bool // fail instead of reading a large collection
}

// partition is one database within a snapshot. Its buckets are nil while the database is empty.
type partition struct{ docs, colls, groups, indexes *bolt.Bucket }

// read calls fn with the state at the given time. It does not wait for commits, nor do commits wait
// for it.
func (s *store) read(at int64, fn func(*snapshot) error) error {
	return s.db.View(func(tx *bolt.Tx) error {
		sn := &snapshot{store: s, tx: tx, at: lastCommit(tx), partitions: map[string]*partition{}}
		if at < sn.at {
			changed, err := s.history.before(at, sn.at)
			if err != nil {
				return err
			}
			sn.at, sn.changed = at, changed
		}
		return fn(sn)
	})
}

func (sn *snapshot) partition(database string) *partition {
	p := sn.partitions[database]
	if p == nil {
		p = &partition{}
		if b := sn.tx.Bucket([]byte(database)); b != nil {
			p = &partition{b.Bucket(docsBucket), b.Bucket(collsBucket), b.Bucket(groupsBucket), b.Bucket(indexBucket)}
		}
		sn.partitions[database] = p
	}
	return p
}

// writable is like partition, but for a database that may not exist yet.
func (s *store) writable(sn *snapshot, database string) (*partition, error) {
	if p := sn.partition(database); p.docs != nil {
		return p, nil
	}
	b, err := sn.tx.CreateBucketIfNotExists([]byte(database))
	if err != nil {
		return nil, err
	}
	p := &partition{}
	for _, x := range []struct {
		name []byte
		to   **bolt.Bucket
	}{{docsBucket, &p.docs}, {collsBucket, &p.colls}, {groupsBucket, &p.groups}, {indexBucket, &p.indexes}} {
		if *x.to, err = b.CreateBucketIfNotExists(x.name); err != nil {
			return nil, err
		}
	}
	for _, x := range s.indexes.declared {
		if _, err := p.indexes.CreateBucketIfNotExists(x.id); err != nil {
			return nil, err
		}
	}
	s.indexes.add(database, s.indexes.declared...)
	sn.partitions[database] = p
	return p, nil
}

// get returns nil for a missing document.
func (sn *snapshot) get(name string) (*pb.Document, error) {
	database, path, err := splitDocument(name)
	if err != nil {
		return nil, err
	}
	if record, ok := sn.changed[name]; ok {
		return decodeDocument(name, record)
	}
	p := sn.partition(database)
	if p.docs == nil {
		return nil, nil
	}
	return decodeDocument(name, p.docs.Get(documentKey(path)))
}

// encodeDocument omits the name, which is in the key.
func encodeDocument(d *pb.Document) ([]byte, error) {
	b := make([]byte, 0, 256)
	b = binary.BigEndian.AppendUint64(b, uint64(micros(d.GetCreateTime())))
	b = binary.BigEndian.AppendUint64(b, uint64(micros(d.GetUpdateTime())))
	return proto.MarshalOptions{}.MarshalAppend(b, &pb.MapValue{Fields: d.GetFields()})
}

// decodeDocument decodes a record. The result does not refer to the record's bytes.
func decodeDocument(name string, record []byte) (*pb.Document, error) {
	if record == nil {
		return nil, nil
	}
	if len(record) < 16 {
		return nil, fmt.Errorf("firestore: record of %s is damaged", name)
	}
	var m pb.MapValue
	if err := proto.Unmarshal(record[16:], &m); err != nil {
		return nil, fmt.Errorf("firestore: record of %s is damaged: %w", name, err)
	}
	return &pb.Document{
		Name: name, Fields: m.GetFields(),
		CreateTime: timestamp(int64(binary.BigEndian.Uint64(record))),
		UpdateTime: timestamp(int64(binary.BigEndian.Uint64(record[8:]))),
	}, nil
}

// Commit times are microseconds since 1970. They are strictly increasing and therefore serve as
// versions. 0 is the version of a missing document.

func timestamp(us int64) *timestamppb.Timestamp { return timestamppb.New(time.UnixMicro(us)) }

func micros(t *timestamppb.Timestamp) int64 { return t.GetSeconds()*1e6 + int64(t.GetNanos())/1000 }

func versionOf(d *pb.Document) int64 {
	if d == nil {
		return 0
	}
	return micros(d.GetUpdateTime())
}
