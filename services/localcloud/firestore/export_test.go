package firestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	bolt "go.etcd.io/bbolt"
)

// IndexEverything makes every query build the best index for it.
func IndexEverything(s *Server) { s.store.adaptive = -1 }

// Write commits writes directly, without the network.
func Write(s *Server, writes ...*pb.Write) error {
	return s.commit(context.Background(), &commitRequest{writes: writes, size: 1})
}

// Examined returns the number of documents that queries have read.
func Examined(s *Server) int64 { return s.store.examined.Load() }

// HoldCommits makes the writer pause before it syncs a batch. reached receives a value when the
// writer has paused. goOn releases the writer, which does not pause again.
func HoldCommits(s *Server) (reached <-chan struct{}, goOn func()) {
	at, gate := make(chan struct{}, 1), make(chan struct{})
	s.writer.beforeSync = func() {
		select {
		case at <- struct{}{}:
		default:
		}
		<-gate
	}
	return at, func() { close(gate) }
}

// WaitForQueue waits until at least n commits are queued for the writer.
func WaitForQueue(s *Server, n int) {
	for {
		s.writer.mu.Lock()
		waiting := len(s.writer.queue)
		s.writer.mu.Unlock()
		if waiting >= n {
			return
		}
		runtime.Gosched()
	}
}

// ExpireTransactions expires transactions as if the clock were ahead by the given duration.
func ExpireTransactions(s *Server, ahead time.Duration) {
	now := s.txs.now
	later := &transactions{now: func() time.Time { return now().Add(ahead) }, locks: s.txs.locks, byID: s.txs.byID}
	later.expire()
}

// CheckConsistency checks all data that is derived from documents (indexes, lists of collections,
// counts) against the documents.
func CheckConsistency(s *Server) error {
	return s.store.read(latest, func(sn *snapshot) error {
		return eachDatabase(sn.tx, func(database string, b *bolt.Bucket) error {
			p := sn.partition(database)
			counts := map[string]int64{}
			indexes := map[string]map[string][]byte{}
			err := p.docs.ForEach(func(k, record []byte) error {
				path := decodeDocumentKey(k)
				if !bytes.Equal(documentKey(path), k) {
					return fmt.Errorf("the key of %v is wrong", path)
				}
				d, err := decodeDocument(joinName(database, path), record)
				if err != nil {
					return err
				}
				counts[string(collectionKey(path[:len(path)-1]))]++
				for _, x := range s.store.indexes.list(database, path[len(path)-2]) {
					if p.indexes.Bucket(x.id) == nil {
						continue
					}
					if indexes[string(x.id)] == nil {
						indexes[string(x.id)] = map[string][]byte{}
					}
					keys, _ := x.keys(d, path)
					for _, key := range keys {
						indexes[string(x.id)][string(key)] = bytes.Clone(k)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			return errors.Join(checkCounts(p, counts), checkIndexes(p, indexes))
		})
	})
}

func checkCounts(p *partition, want map[string]int64) error {
	got := map[string]int64{}
	err := p.colls.ForEach(func(k, _ []byte) error {
		got[string(k)] = p.count(k)
		return nil
	})
	if err == nil && !maps.Equal(got, want) {
		err = fmt.Errorf("the collections are %v, want %v", got, want)
	}
	groups := 0
	if err == nil {
		err = p.groups.ForEach(func(k, _ []byte) error {
			groups++
			id, key, _ := strings.Cut(string(k), "\x00")
			path, _ := decodeSegments([]byte(key))
			if want[key] == 0 || path[len(path)-1] != id {
				return fmt.Errorf("the group entry %q does not refer to any documents", k)
			}
			return nil
		})
	}
	if err == nil && groups != len(want) {
		err = fmt.Errorf("there are %d group entries, want %d", groups, len(want))
	}
	return err
}

func checkIndexes(p *partition, want map[string]map[string][]byte) error {
	return p.indexes.ForEachBucket(func(id []byte) error {
		got := map[string][]byte{}
		err := p.indexes.Bucket(id).ForEach(func(k, v []byte) error {
			got[string(k)] = bytes.Clone(v)
			return nil
		})
		if err != nil {
			return err
		}
		if !maps.EqualFunc(got, want[string(id)], bytes.Equal) {
			return fmt.Errorf("index %s has %d entries, want %d: %q, want %q", id, len(got), len(want[string(id)]), slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want[string(id)])))
		}
		return nil
	})
}
