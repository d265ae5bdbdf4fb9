package firestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// These are the limits on one batch. Each batch needs one fsync.
const (
	maxBatchRequests = 1024
	maxBatchBytes    = 32 << 20
)

var errClosed = status.Error(codes.Unavailable, "The local Firestore is shutting down.")

// commitRequest is one Commit call or one write in a BatchWrite call.
type commitRequest struct {
	writes []*pb.Write
	size   int          // approximate size in bytes
	tx     *transaction // may be nil
	admin  func(*snapshot) ([]change, error)

	done    chan struct{} // closed after the result fields are set
	results []*pb.WriteResult
	at      int64
	changes []change
	err     error
}

// change describes the effect of one commit on one document.
type change struct {
	at            int64
	name          string
	before, after *pb.Document // nil if the document does not exist; never modified
	recreated     bool         // deleted and created again in this commit
}

// writer applies commits one after another. Commits that arrive while a batch is being synced to
// disk form the next batch, so its commits share one fsync.
type writer struct {
	server *Server

	mu      sync.Mutex
	arrived *sync.Cond
	queue   []*commitRequest
	closed  bool
	stopped chan struct{}

	beforeSync func() // for tests; may be nil
}

func startWriter(s *Server) *writer {
	w := &writer{server: s, stopped: make(chan struct{})}
	w.arrived = sync.NewCond(&w.mu)
	go w.run()
	return w
}

// submit queues requests in order. It closes each request's done channel when the request is
// finished.
func (w *writer) submit(reqs ...*commitRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range reqs {
		r.done = make(chan struct{})
		if w.closed {
			r.err = errClosed
			close(r.done)
		}
	}
	if !w.closed {
		w.queue = append(w.queue, reqs...)
		w.arrived.Signal()
	}
}

// administer runs f in a batch of its own.
func (w *writer) administer(f func(*snapshot) ([]change, error)) error {
	r := &commitRequest{admin: f}
	w.submit(r)
	<-r.done
	return r.err
}

// close stops the writer after the queued commits have finished.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.arrived.Signal()
	w.mu.Unlock()
	<-w.stopped
}

// take waits for the next batch and returns it. The batch is empty if the writer is closed and the
// queue is empty.
func (w *writer) take() []*commitRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 && !w.closed {
		w.arrived.Wait()
	}
	n, size := 0, 0
	for n < len(w.queue) && n < maxBatchRequests && size < maxBatchBytes {
		if w.queue[n].admin != nil {
			// An administrative request runs in its own batch because it may delete buckets that
			// the snapshot of a shared batch has cached.
			n = max(n, 1)
			break
		}
		size += w.queue[n].size
		n++
	}
	batch := slices.Clone(w.queue[:n])
	w.queue = slices.Delete(w.queue, 0, n)
	return batch
}

func (w *writer) run() {
	defer close(w.stopped)
	for {
		batch := w.take()
		if len(batch) == 0 {
			return
		}
		w.commit(batch)
		for _, r := range batch {
			close(r.done)
		}
	}
}

// commit applies a batch in one transaction on the data file. A rejected request has no effect. If
// the file cannot be written, all requests in the batch fail.
func (w *writer) commit(batch []*commitRequest) {
	s := w.server
	before, after, err := w.write(batch)
	if err != nil {
		s.store.history.retract(before)
		s.clock.settled(before)
		for _, r := range batch {
			if r.err == nil {
				r.err, r.results, r.changes = storageError(err), nil, nil
			}
		}
		return
	}
	s.clock.settled(after)
	var changes []change
	for _, r := range batch {
		changes = append(changes, r.changes...)
	}
	if len(changes) == 0 {
		return
	}
	s.stats.committed(changes)
	s.store.history.prune(after)
	s.hub.publish(changes)
}

// write commits a batch, and returns the newest commit before and after it.
func (w *writer) write(batch []*commitRequest) (before, after int64, err error) {
	s := w.server
	tx, err := s.store.db.Begin(true)
	if err != nil {
		return s.clock.newest(), 0, err
	}
	defer func() { _ = tx.Rollback() }() // no effect after a successful commit
	before = lastCommit(tx)
	after = before
	dirty := false
	sn := &snapshot{store: s.store, tx: tx, at: latest, partitions: map[string]*partition{}}
	for _, r := range batch {
		if err := w.apply(sn, r); err != nil {
			return before, 0, err
		}
		if len(r.changes) > 0 {
			after = r.at
		}
		dirty = dirty || len(r.changes) > 0 || r.admin != nil
	}
	if !dirty {
		return before, before, nil
	}
	if after > before {
		if err := setLastCommit(tx, after); err != nil {
			return before, 0, err
		}
	}
	if w.beforeSync != nil {
		w.beforeSync()
	}
	began := time.Now()
	if err = s.faults.diskError(); err == nil {
		err = tx.Commit()
	}
	s.committed(began, err)
	return before, after, err
}

func storageError(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return status.Error(codes.ResourceExhausted, "The disk is full.")
	}
	return status.Errorf(codes.Internal, "Cannot write the data file: %v", err)
}

// apply sets the result of one request. If apply returns an error, the whole batch fails.
func (w *writer) apply(sn *snapshot, r *commitRequest) (err error) {
	s := w.server
	defer func() {
		if p := recover(); p != nil { // a request that causes a panic must not bring down the server
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if r.admin != nil {
		r.changes, err = r.admin(sn)
		for _, c := range r.changes {
			r.at = max(r.at, c.at)
		}
		return err
	}
	// Run all checks before the first put. The batch shares one transaction on the file, so the
	// puts from an individual rejected request could not be undone.
	r.at = s.clock.tick()
	if r.tx != nil {
		if r.err = s.validate(sn, r.tx); r.err != nil {
			return nil
		}
	}
	if r.changes, r.results, r.err = stage(sn, r.writes, r.at); r.err != nil {
		return nil
	}
	if s.readOnly && len(r.changes) > 0 {
		r.changes, r.results, r.err = nil, nil, errReadOnly
		return nil
	}
	if r.err = s.indexes.checkTransaction(r.changes); r.err != nil {
		r.changes, r.results = nil, nil
		return nil
	}
	s.indexes.tellHot(r.changes, s.hotIndex)
	for _, c := range r.changes {
		if err := s.store.put(sn, c); err != nil {
			return err
		}
	}
	return nil
}

// validate checks that nothing that the transaction has read has changed since. The locks make such
// a change unlikely, but only this check rules it out.
func (s *Server) validate(sn *snapshot, t *transaction) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, version := range t.reads {
		d, err := sn.get(name)
		if err != nil {
			return err
		}
		if versionOf(d) != version {
			return errContention
		}
	}
	for _, r := range t.queries {
		if !s.store.history.touched(r.at, r.query.mayHold) {
			continue
		}
		sig := newSignature()
		if err := s.store.run(sn, r.query, sig.add); err != nil {
			return err
		}
		if sig.String() != r.signature {
			return errContention
		}
	}
	return nil
}

// stage computes the writes' effect without changing anything. Each write is applied to the
// result of the previous writes.
func stage(sn *snapshot, writes []*pb.Write, at int64) ([]change, []*pb.WriteResult, error) {
	staged := map[string]*change{}
	var names []string
	results := make([]*pb.WriteResult, len(writes))
	for i, w := range writes {
		name, err := writeTarget(w)
		if err != nil {
			return nil, nil, err
		}
		c := staged[name]
		if c == nil {
			d, err := sn.get(name)
			if err != nil {
				return nil, nil, err
			}
			c = &change{at: at, name: name, before: d, after: d}
			staged[name] = c
			names = append(names, name)
		}
		if err := c.checkPrecondition(w.GetCurrentDocument()); err != nil {
			return nil, nil, err
		}
		if results[i], err = c.apply(w); err != nil {
			return nil, nil, err
		}
	}
	changes := make([]change, 0, len(names))
	for _, n := range names {
		c := staged[n]
		if c.settle(); c.after != c.before {
			changes = append(changes, *c)
		}
	}
	for i, w := range writes { // all writes to a document produce one new version
		name, _ := writeTarget(w)
		results[i].UpdateTime = staged[name].after.GetUpdateTime()
	}
	return changes, results, nil
}

// writeTarget returns the name of the document that a write changes.
func writeTarget(w *pb.Write) (string, error) {
	var name string
	switch o := w.GetOperation().(type) {
	case *pb.Write_Update:
		name = o.Update.GetName()
	case *pb.Write_Delete:
		name = o.Delete
	case *pb.Write_Transform:
		name = o.Transform.GetDocument()
	default:
		return "", invalid("A write needs an operation.")
	}
	_, _, err := splitDocument(name)
	return name, err
}

// checkPrecondition checks a write's precondition. It checks existence in the state after the
// request's previous writes, but compares an update time with the document's version before the
// request.
func (c *change) checkPrecondition(p *pb.Precondition) error {
	switch x := p.GetConditionType().(type) {
	case *pb.Precondition_Exists:
		if x.Exists && c.after == nil {
			return status.Errorf(codes.NotFound, "No document to update: %s", c.name)
		}
		if !x.Exists && c.after != nil {
			return status.Errorf(codes.AlreadyExists, "Document already exists: %s", c.name)
		}
	case *pb.Precondition_UpdateTime:
		if c.before == nil || !proto.Equal(c.before.GetUpdateTime(), x.UpdateTime) {
			return status.Errorf(codes.FailedPrecondition, "the stored version (%d) does not match the required base version (%d)", versionOf(c.before), micros(x.UpdateTime))
		}
	}
	return nil
}

// apply adds the effect of one write to the change.
func (c *change) apply(w *pb.Write) (*pb.WriteResult, error) {
	if _, isDelete := w.GetOperation().(*pb.Write_Delete); isDelete {
		c.after, c.recreated = nil, true
		return &pb.WriteResult{}, nil
	}
	fields, err := updatedFields(c.after.GetFields(), w)
	if err != nil {
		return nil, err
	}
	transforms := w.GetUpdateTransforms()
	if t := w.GetTransform(); t != nil {
		transforms = t.GetFieldTransforms()
	}
	result := &pb.WriteResult{}
	for _, t := range transforms {
		path, err := parseFieldPath(t.GetFieldPath())
		if err != nil {
			return nil, err
		}
		stored, reported, err := applyTransform(getPath(fields, path), t, c.at)
		if err != nil {
			return nil, err
		}
		fields = setPath(fields, path, stored)
		result.TransformResults = append(result.TransformResults, reported)
	}
	size, err := checkFields(fields, 0)
	if err != nil {
		return nil, err
	}
	if size += len(c.name) + 48; size > maxDocumentBytes {
		return nil, invalid("Document %q cannot be written because its size (%d bytes) exceeds the maximum allowed size of %d bytes.", c.name, size, maxDocumentBytes)
	}
	c.after = &pb.Document{Name: c.name, Fields: fields}
	return result, nil
}

func updatedFields(old map[string]*pb.Value, w *pb.Write) (map[string]*pb.Value, error) {
	if w.GetTransform() != nil {
		return old, nil
	}
	in := w.GetUpdate().GetFields()
	if w.GetUpdateMask() == nil {
		return in, nil
	}
	for _, p := range w.GetUpdateMask().GetFieldPaths() {
		path, err := parseFieldPath(p)
		if err != nil {
			return nil, err
		}
		old = setPath(old, path, getPath(in, path)) // a masked field without a value is deleted
	}
	return old, nil
}

// settle sets the document's times. A document with unchanged fields keeps its previous times.
func (c *change) settle() {
	switch {
	case c.after == nil || c.after == c.before:
	case c.before != nil && !c.recreated && proto.Equal(&pb.MapValue{Fields: c.before.GetFields()}, &pb.MapValue{Fields: c.after.GetFields()}):
		// The same pointer tells stage that nothing changed, so nothing is written and listeners
		// are not called. A document that one commit deletes and writes again is new, even with the
		// same fields.
		c.after = c.before
	default:
		c.after.CreateTime, c.after.UpdateTime = timestamp(c.at), timestamp(c.at)
		if c.before != nil && !c.recreated {
			c.after.CreateTime = c.before.GetCreateTime()
		}
	}
}

// put writes a change with its index entries, and keeps the previous state in the history.
func (s *store) put(sn *snapshot, c change) error {
	database, path, err := splitDocument(c.name)
	if err != nil {
		return err
	}
	p, err := s.writable(sn, database)
	if err != nil {
		return err
	}
	key := documentKey(path)
	s.history.add(pastVersion{c.at, c.name, slices.Clone(p.docs.Get(key))})
	if err := s.reindex(p, database, path, key, c); err != nil {
		return err
	}
	if (c.before == nil) != (c.after == nil) {
		if err := p.countDocument(path[:len(path)-1], c.after != nil); err != nil {
			return err
		}
	}
	if c.after == nil {
		return p.docs.Delete(key)
	}
	record, err := encodeDocument(c.after)
	if err != nil {
		return err
	}
	return p.docs.Put(key, record)
}

// countDocument updates the number of documents in a collection. It removes the entry of an empty
// collection, so the collection is not listed.
func (p *partition) countDocument(collection []string, more bool) error {
	key := collectionKey(collection)
	n := p.count(key)
	group := append(append([]byte(collection[len(collection)-1]), 0), key...)
	if more {
		n++
	} else {
		n--
	}
	if n <= 0 {
		return errors.Join(p.colls.Delete(key), p.groups.Delete(group))
	}
	if n == 1 && more {
		if err := p.groups.Put(group, nil); err != nil {
			return err
		}
	}
	return p.colls.Put(key, binary.BigEndian.AppendUint64(nil, uint64(n)))
}

// count returns the number of documents in a collection.
func (p *partition) count(collectionKey []byte) int64 {
	if p.colls == nil {
		return 0
	}
	if v := p.colls.Get(collectionKey); len(v) == 8 {
		return int64(binary.BigEndian.Uint64(v))
	}
	return 0
}
