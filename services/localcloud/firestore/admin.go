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

// Export writes every document of every database as one line of JSON, in the
// protocol's own JSON form: name, fields, createTime, updateTime. All lines
// belong to one moment; commits continue meanwhile.
func (s *Server) Export(ctx context.Context, w io.Writer) error {
	buf := bufio.NewWriter(w)
	err := s.store.read(latest, func(sn *snapshot) error {
		return eachDatabase(sn.tx, func(database string, b *bolt.Bucket) error {
			return b.Bucket(docsBucket).ForEach(func(k, record []byte) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				d, err := decodeDocument(joinName(database, decodeDocumentKey(k)), record)
				if err != nil {
					return err
				}
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
		})
	})
	if err == nil {
		err = buf.Flush()
	}
	if err != nil {
		return fmt.Errorf("firestore: export: %w", err)
	}
	return nil
}

// compactJSON takes out the spaces that protojson puts in at random, so that
// exports can be compared.
func compactJSON(b []byte) ([]byte, error) {
	return json.Marshal(json.RawMessage(b))
}

// importBatch is how many documents of an import share one fsync.
const importBatch = 500

// Import reads what Export wrote. Documents that are there already are
// replaced; creation and update times are new ones.
func (s *Server) Import(ctx context.Context, r io.Reader) error {
	dec := json.NewDecoder(r)
	var writes []*pb.Write
	for n := 1; ; n++ {
		var line json.RawMessage
		err := dec.Decode(&line)
		if errors.Is(err, io.EOF) {
			return s.importBatch(ctx, writes)
		}
		d := &pb.Document{}
		if err == nil {
			err = protojson.Unmarshal(line, d)
		}
		if err != nil {
			return fmt.Errorf("firestore: import: document %d: %w", n, err)
		}
		writes = append(writes, &pb.Write{Operation: &pb.Write_Update{Update: d}})
		if len(writes) == importBatch {
			if err := s.importBatch(ctx, writes); err != nil {
				return err
			}
			writes = nil
		}
	}
}

func (s *Server) importBatch(ctx context.Context, writes []*pb.Write) error {
	if len(writes) == 0 {
		return nil
	}
	if err := s.commit(ctx, &commitRequest{writes: writes}); err != nil {
		return fmt.Errorf("firestore: import: %w", err)
	}
	return nil
}

// Wipe deletes every document of every database.
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
		s.store.history.forget(at) // too much to remember
		return changes, nil
	})
	if err != nil {
		return fmt.Errorf("firestore: wipe: %w", err)
	}
	return nil
}
