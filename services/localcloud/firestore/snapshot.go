package firestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"google.golang.org/protobuf/proto"
)

// Snapshot is the state of all databases at one point in time. Commits continue, but the data file
// grows until the snapshot is closed. Close the snapshot before the server.
type Snapshot struct{ tx *bolt.Tx }

// Snapshot returns the current state, including all acknowledged commits.
func (s *Server) Snapshot() (*Snapshot, error) {
	tx, err := s.store.db.Begin(false)
	if err != nil {
		return nil, fmt.Errorf("firestore: cannot take a snapshot: %w", err)
	}
	return &Snapshot{tx}, nil
}

// At returns the time of the newest commit in the snapshot.
func (sn *Snapshot) At() time.Time { return time.UnixMicro(lastCommit(sn.tx)).UTC() }

// Documents calls fn with each document in each database. Documents include their names and times.
func (sn *Snapshot) Documents(ctx context.Context, fn func(*pb.Document) error) error {
	return eachDatabase(sn.tx, func(database string, b *bolt.Bucket) error {
		return b.Bucket(docsBucket).ForEach(func(k, record []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			d, err := decodeDocument(joinName(database, decodeDocumentKey(k)), record)
			if err != nil {
				return err
			}
			return fn(d)
		})
	})
}

// Close releases the snapshot.
func (sn *Snapshot) Close() error { return sn.tx.Rollback() }

// These are the limits on a single Import commit.
const (
	importDocuments = 2000
	importBytes     = 8 << 20
)

// Import adds documents and keeps their times. at is the time of the imported state. All later
// commits get later times. next returns nil after the last document. Import requires
// Options.Restoring and fails if a document already exists.
func (s *Server) Import(ctx context.Context, at time.Time, next func() (*pb.Document, error)) error {
	if !s.restoring {
		return errors.New("firestore: import failed: the server was not opened for a restore")
	}
	s.clock.mu.Lock()
	s.clock.last = max(s.clock.last, at.UnixMicro())
	s.clock.mu.Unlock()
	for more := true; more; {
		var batch []*pb.Document
		for size := 0; len(batch) < importDocuments && size < importBytes; {
			d, err := next()
			if err != nil {
				return fmt.Errorf("firestore: import failed: %w", err)
			}
			if more = d != nil; !more {
				break
			}
			batch, size = append(batch, d), size+proto.Size(d)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.importBatch(batch); err != nil {
			return fmt.Errorf("firestore: import failed: %w", err)
		}
	}
	return nil
}

func (s *Server) importBatch(batch []*pb.Document) error {
	return s.writer.administer(func(sn *snapshot) ([]change, error) {
		at := s.clock.tick()
		var changes []change
		for _, d := range batch {
			old, err := sn.get(d.GetName())
			if err != nil {
				return nil, err
			}
			if old != nil {
				return nil, fmt.Errorf("the document %s already exists", d.GetName())
			}
			c := change{at: at, name: d.GetName(), after: d}
			if err := s.store.put(sn, c); err != nil {
				return nil, err
			}
			changes = append(changes, c)
		}
		s.store.history.forget(at) // the file is not served yet, so there are no readers of earlier states
		return changes, nil
	})
}

// RestoreUnfinished reports whether an unfinished restore left the data file at path behind. Such a
// file has never been opened by a server. A missing file does not count as unfinished.
func RestoreUnfinished(path string) (unfinished bool, err error) {
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return false, nil // an empty file just means that a restore was killed while creating it
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if errors.Is(err, berrors.ErrTimeout) {
		return false, fmt.Errorf("firestore: %s is in use by another process", path)
	}
	if err != nil {
		return false, fmt.Errorf("firestore: cannot open %s: %w", path, err)
	}
	err = db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(metaBucket)
		unfinished = b != nil && b.Get(restoringKey) != nil
		return nil
	})
	return unfinished, errors.Join(err, db.Close())
}

// EndRestore marks the data file as complete. Afterwards, Open accepts it.
func (s *Server) EndRestore() error {
	err := s.writer.administer(func(sn *snapshot) ([]change, error) {
		return nil, sn.tx.Bucket(metaBucket).Delete(restoringKey)
	})
	if err != nil {
		return fmt.Errorf("firestore: cannot end the restore: %w", err)
	}
	return nil
}
