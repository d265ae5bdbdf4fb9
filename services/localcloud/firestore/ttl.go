package firestore

import (
	"context"
	"fmt"
	"slices"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	bolt "go.etcd.io/bbolt"
)

// expiryBatch bounds how long one batch of deletions delays commits.
const expiryBatch = 500

// DeleteExpired deletes the documents whose time-to-live field is in the past and returns how many
// it deleted. A field override with "ttl": true declares the field. As in production, queries and
// reads return expired documents until they are deleted.
func (s *Server) DeleteExpired(ctx context.Context) (int, error) {
	if s.indexes == nil {
		return 0, nil
	}
	total := 0
	for _, o := range s.indexes.Overrides {
		if !o.TTL {
			continue
		}
		for {
			if err := ctx.Err(); err != nil {
				return total, err
			}
			n, err := s.deleteExpired(o)
			total += n
			if err != nil {
				return total, fmt.Errorf("cannot delete expired documents from %s: %w", o.CollectionGroup, err)
			}
			if n < expiryBatch {
				break
			}
		}
	}
	return total, nil
}

// deleteExpired deletes one batch in one collection group.
func (s *Server) deleteExpired(o FieldOverride) (int, error) {
	var any bool // most rounds find nothing, so check first to avoid delaying commits
	if err := s.store.read(latest, func(sn *snapshot) error {
		names, err := s.expired(sn, o, 1)
		any = len(names) > 0
		return err
	}); err != nil || !any {
		return 0, err
	}
	n := 0
	err := s.writer.administer(func(sn *snapshot) ([]change, error) {
		if s.readOnly {
			return nil, nil
		}
		names, err := s.expired(sn, o, expiryBatch)
		if err != nil {
			return nil, err
		}
		n = len(names)
		return s.deleteAll(sn, names)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// expired returns the names of expired documents from the field's index, which sorts the oldest
// times first.
func (s *Server) expired(sn *snapshot, o FieldOverride, limit int) (names []string, err error) {
	path, err := parseFieldPath(o.FieldPath)
	if err != nil {
		return nil, err
	}
	until := appendValue(nil, &pb.Value{ValueType: &pb.Value_TimestampValue{TimestampValue: timestamp(s.clock.now().UnixMicro())}})
	err = eachDatabase(sn.tx, func(database string, _ *bolt.Bucket) error {
		p := sn.partition(database)
		for _, x := range s.store.indexes.declared {
			if !x.group || x.collection != o.CollectionGroup || len(x.fields) != 1 || !slices.Equal(x.fields[0].path, path) {
				continue
			}
			b := p.indexes.Bucket(x.id)
			if b == nil {
				continue
			}
			w := (&access{entries: b, prefix: []byte{kindTag(kindTimestamp)}, to: until}).walk()
			for k, key := w.next(); k != nil && len(names) < limit; k, key = w.next() {
				names = append(names, joinName(database, decodeDocumentKey(key)))
			}
		}
		return nil
	})
	return names, err
}

// deleteAll deletes documents as part of an administrative batch.
func (s *Server) deleteAll(sn *snapshot, names []string) ([]change, error) {
	at := s.clock.tick()
	var out []change
	for _, name := range names {
		d, err := sn.get(name)
		if err != nil {
			return nil, err
		}
		if d == nil {
			continue
		}
		c := change{at: at, name: name, before: d}
		if err := s.store.put(sn, c); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}
