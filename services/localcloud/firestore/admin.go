package firestore

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protojson"
)

// Export writes every document in every database as one line of JSON, in the protocol's own JSON
// format: name, fields, createTime, updateTime. All lines show the state at the same point in time.
// Commits continue during an export.
func (s *Server) Export(ctx context.Context, w io.Writer) error {
	buf := bufio.NewWriter(w)
	sn, err := s.Snapshot()
	if err != nil {
		return err
	}
	defer func() { _ = sn.Close() }() // opened only for reading
	err = sn.Documents(ctx, func(d *pb.Document) error {
		line, err := protojson.Marshal(d)
		if err != nil {
			return err
		}
		if line, err = compactJSON(line); err != nil {
			return err
		}
		_, err = buf.Write(append(line, '\n'))
		return err
	})
	if err == nil {
		err = buf.Flush()
	}
	if err != nil {
		return fmt.Errorf("firestore: export failed: %w", err)
	}
	return nil
}

// compactJSON removes the spaces that protojson inserts at random, so exports can be compared.
func compactJSON(b []byte) ([]byte, error) {
	return json.Marshal(json.RawMessage(b))
}

// Wipe deletes every document in every database. Listeners receive each deletion.
func (s *Server) Wipe(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.writer.administer(func(sn *snapshot) ([]change, error) {
		at := s.clock.tick()
		var changes []change
		var databases [][]byte
		err := eachDatabase(sn.tx, func(database string, b *bolt.Bucket) error {
			databases = append(databases, []byte(database))
			return b.Bucket(docsBucket).ForEach(func(k, record []byte) error {
				name := joinName(database, decodeDocumentKey(k))
				d, err := decodeDocument(name, record)
				changes = append(changes, change{at: at, name: name, before: d})
				return err
			})
		})
		for _, b := range databases {
			err = errors.Join(err, sn.tx.DeleteBucket(b))
		}
		if err != nil {
			return nil, err
		}
		// Reads of past states need an in-memory copy of each changed document. Wipe changes all
		// documents, so it does not keep copies, and later reads of earlier states fail.
		s.store.history.forget(at)
		return changes, nil
	})
	if err != nil {
		return fmt.Errorf("firestore: wipe failed: %w", err)
	}
	return nil
}
