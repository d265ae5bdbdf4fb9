package firestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// hub notifies listening streams of commits.
type hub struct {
	mu      sync.Mutex
	streams map[*listenStream]struct{}
}

func newHub() *hub { return &hub{streams: map[*listenStream]struct{}{}} }

func (h *hub) add(l *listenStream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams[l] = struct{}{}
}

func (h *hub) remove(l *listenStream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.streams, l)
}

// publish passes the changes to every stream whose targets they may affect.
func (h *hub) publish(changes []change) {
	if len(changes) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.streams {
		l.notify(changes)
	}
}

// maxQueuedChanges bounds the memory of a stalled listener. Above this bound, the client must
// reconnect with its resume token. Client libraries do so automatically.
const maxQueuedChanges = 100_000

var errListenerTooSlow = status.Error(codes.Unavailable, "The listener cannot keep up with the changes. Reconnect with its resume token.")

// listenStream is one Listen call with its targets. Each client reads at its own pace, so the
// stream queues the changes that it has not sent yet.
type listenStream struct {
	s      *Server
	stream pb.Firestore_ListenServer

	mu       sync.Mutex
	wake     chan struct{} // buffers one signal
	requests []*pb.ListenRequest
	changes  []change
	targets  map[int32]*target
	recvErr  error
}

// target is a query or a list of documents that a client follows.
type target struct {
	id    int32
	once  bool
	query *query // nil if the target is a list of names
	names []string
	state map[string]*pb.Document // the documents that the client has
	at    int64                   // the newest commit that this state includes
}

// Listen implements the protocol.
func (s *service) Listen(stream pb.Firestore_ListenServer) error {
	l := &listenStream{s: s.Server, stream: stream, wake: make(chan struct{}, 1), targets: map[int32]*target{}}
	s.hub.add(l)
	defer s.hub.remove(l)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go l.receive() // returns when the stream ends, no later than when this function returns
	return l.run(ctx)
}

func (l *listenStream) receive() {
	for {
		r, err := l.stream.Recv()
		l.mu.Lock()
		if err != nil {
			l.recvErr = err
		} else {
			l.requests = append(l.requests, r)
		}
		l.mu.Unlock()
		l.signal()
		if err != nil {
			return
		}
	}
}

func (l *listenStream) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// notify queues the changes that may affect a target.
func (l *listenStream) notify(changes []change) {
	l.mu.Lock()
	n := len(l.changes)
	for _, c := range changes {
		for _, t := range l.targets {
			if t.mayCare(c) {
				l.changes = append(l.changes, c)
				break
			}
		}
	}
	more := len(l.changes) > n
	if len(l.changes) > maxQueuedChanges {
		l.changes, l.recvErr = nil, errListenerTooSlow
	}
	l.mu.Unlock()
	if more {
		l.signal()
	}
}

func (l *listenStream) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-l.wake:
		}
		l.mu.Lock()
		requests, changes, err := l.requests, l.changes, l.recvErr
		l.requests, l.changes = nil, nil
		l.mu.Unlock()
		// Deliver before handling requests because the initial state of a new target already
		// includes the previously queued changes.
		if err := l.deliver(changes); err != nil {
			return err
		}
		for _, r := range requests {
			if err := l.handle(r); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *listenStream) handle(r *pb.ListenRequest) error {
	switch x := r.GetTargetChange().(type) {
	case *pb.ListenRequest_AddTarget:
		err := l.addTarget(x.AddTarget)
		if err == nil {
			return nil
		}
		// Remove only the target that cannot be followed. The stream and the other targets
		// continue.
		st := status.Convert(err)
		return l.send(&pb.TargetChange{
			TargetChangeType: pb.TargetChange_REMOVE, TargetIds: []int32{x.AddTarget.GetTargetId()},
			Cause: &rpcstatus.Status{Code: int32(st.Code()), Message: st.Message()},
		})
	case *pb.ListenRequest_RemoveTarget:
		l.forget(x.RemoveTarget)
		return l.send(&pb.TargetChange{TargetChangeType: pb.TargetChange_REMOVE, TargetIds: []int32{x.RemoveTarget}})
	}
	return invalid("A listen request must add or remove a target.")
}

func (l *listenStream) forget(id int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.targets, id)
}

func (l *listenStream) addTarget(a *pb.Target) error {
	t := &target{id: a.GetTargetId(), once: a.GetOnce(), state: map[string]*pb.Document{}}
	if t.id == 0 {
		t.id = 1 // the client lets the server choose the ID
		for l.targets[t.id] != nil {
			t.id++
		}
	}
	switch {
	case a.GetQuery() != nil:
		var err error
		if t.query, err = l.s.compile(a.GetQuery().GetParent(), a.GetQuery().GetStructuredQuery()); err != nil {
			return err
		}
	case a.GetDocuments() != nil:
		for _, n := range a.GetDocuments().GetDocuments() {
			if _, _, err := splitDocument(n); err != nil {
				return err
			}
			t.names = append(t.names, n)
		}
	default:
		return invalid("A target must be a query or a list of documents.")
	}
	// From here on, changes are queued for the target. deliver skips changes that the initial state
	// already includes.
	l.mu.Lock()
	l.targets[t.id] = t
	l.mu.Unlock()
	if err := l.send(&pb.TargetChange{TargetChangeType: pb.TargetChange_ADD, TargetIds: []int32{t.id}}); err != nil {
		return err
	}
	resumed, err := l.resume(t, a)
	if err != nil {
		l.forget(t.id)
		return err
	}
	if !resumed && (a.GetResumeToken() != nil || a.GetReadTime() != nil) {
		if err := l.send(&pb.TargetChange{TargetChangeType: pb.TargetChange_RESET, TargetIds: []int32{t.id}}); err != nil {
			return err
		}
	}
	shown, _, err := l.refresh(t, latest)
	if err != nil {
		l.forget(t.id)
		return err
	}
	if err := l.send(&pb.TargetChange{
		TargetChangeType: pb.TargetChange_CURRENT, TargetIds: []int32{t.id},
		ReadTime: timestamp(shown), ResumeToken: resumeToken(shown),
	}); err != nil {
		return err
	}
	if err := l.sendSnapshot(shown); err != nil || !t.once {
		return err
	}
	l.forget(t.id)
	return l.send(&pb.TargetChange{TargetChangeType: pb.TargetChange_REMOVE, TargetIds: []int32{t.id}})
}

// resume restores the state of a client that was connected earlier. If that was too long ago, it
// returns false without an error, and the full state is sent again.
func (l *listenStream) resume(t *target, a *pb.Target) (bool, error) {
	var at int64
	switch {
	case len(a.GetResumeToken()) == 9 && a.GetResumeToken()[0] == 'r':
		at = int64(binary.BigEndian.Uint64(a.GetResumeToken()[1:]))
	case len(a.GetResumeToken()) > 0:
		return false, invalid("This server did not issue the resume token.")
	case a.GetReadTime() != nil:
		at = micros(a.GetReadTime())
	default:
		return false, nil
	}
	_, err := l.evaluate(t, at, func(d *pb.Document) { t.state[d.GetName()] = d })
	if err != nil {
		clear(t.state)
		return false, nil // a failed resume is a normal result, not an error
	}
	return true, nil
}

func resumeToken(at int64) []byte { return binary.BigEndian.AppendUint64([]byte{'r'}, uint64(at)) }

// evaluate calls f with the target's documents at the given time. It returns the newest commit
// that this state includes.
func (l *listenStream) evaluate(t *target, at int64, f func(*pb.Document)) (commit int64, err error) {
	err = l.s.store.read(at, func(sn *snapshot) error {
		commit = sn.at
		if t.query != nil {
			return l.s.store.run(sn, t.query, func(d *pb.Document) error { f(d); return nil })
		}
		for _, n := range t.names {
			d, err := sn.get(n)
			if err != nil {
				return err
			}
			if d != nil {
				f(d)
			}
		}
		return nil
	})
	return commit, err
}

// refresh sends the difference between the client's state and the state at the given time. If that
// time is too far in the past, it uses the current state.
func (l *listenStream) refresh(t *target, at int64) (shown int64, sent bool, err error) {
	var next map[string]*pb.Document
	var ordered []*pb.Document
	for _, at := range []int64{at, latest} {
		next, ordered = map[string]*pb.Document{}, nil
		t.at, err = l.evaluate(t, at, func(d *pb.Document) {
			next[d.GetName()] = d
			ordered = append(ordered, d)
		})
		if status.Code(err) != codes.FailedPrecondition {
			break
		}
	}
	if err != nil {
		return 0, false, err
	}
	shown = l.s.clock.readTime(t.at)
	for _, d := range ordered {
		if versionOf(t.state[d.GetName()]) != versionOf(d) {
			sent = true
			if err := l.sendDocument(t, d); err != nil {
				return 0, false, err
			}
		}
	}
	for _, name := range sortedNames(t.state) {
		if next[name] == nil {
			sent = true
			if err := l.sendGone(t, name, shown); err != nil {
				return 0, false, err
			}
		}
	}
	if t.query == nil && len(t.state) == 0 { // report a missing document that the client follows
		for _, n := range t.names {
			if next[n] == nil {
				sent = true
				if err := l.sendGone(t, n, shown); err != nil {
					return 0, false, err
				}
			}
		}
	}
	t.state = next
	return shown, sent, nil
}

func sortedNames(m map[string]*pb.Document) []string {
	out := make([]string, 0, len(m))
	for n := range m {
		out = append(out, n)
	}
	slices.SortFunc(out, compareNames)
	return out
}

// mayCare reports whether the change could affect the target. It considers only the name.
func (t *target) mayCare(c change) bool {
	if t.query != nil {
		return t.query.mayHold(c.name)
	}
	return slices.Contains(t.names, c.name)
}

// deliver updates the targets with the queued changes and sends one consistent snapshot for all of
// them.
func (l *listenStream) deliver(changes []change) error {
	if len(changes) == 0 {
		return nil
	}
	at := changes[len(changes)-1].at // all targets are updated to this time
	sent := false
	for _, id := range l.targetIDs() {
		t := l.targets[id]
		one, err := l.deliverTo(t, changes)
		if err != nil {
			return err
		}
		sent = sent || one
	}
	if !sent {
		return nil
	}
	return l.sendSnapshot(at)
}

func (l *listenStream) targetIDs() []int32 {
	ids := make([]int32, 0, len(l.targets)) // only this goroutine changes the map
	for id := range l.targets {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (l *listenStream) deliverTo(t *target, changes []change) (sent bool, err error) {
	at := changes[len(changes)-1].at
	for _, c := range changes {
		if c.at <= t.at || !t.mayCare(c) {
			continue
		}
		_, was := t.state[c.name]
		is := c.after != nil && t.admits(c.after)
		if !was && !is {
			continue
		}
		if t.query != nil && (t.query.limit >= 0 || t.query.offset > 0) {
			_, one, err := l.refresh(t, at) // other documents may enter or leave the result
			sent = sent || one
			if err != nil {
				return sent, err
			}
			continue // t.at shows that refresh has already included later changes
		}
		sent = true
		if is {
			t.state[c.name] = c.after
			err = l.sendDocument(t, c.after)
		} else {
			delete(t.state, c.name)
			err = l.sendGone(t, c.name, c.at)
		}
		if err != nil {
			return sent, err
		}
	}
	t.at = max(t.at, at)
	return sent, nil
}

func (t *target) admits(d *pb.Document) bool {
	if t.query == nil {
		return true
	}
	_, ok := t.query.admit(d)
	return ok
}

func (l *listenStream) sendDocument(t *target, d *pb.Document) error {
	if t.query != nil {
		d = project(d, t.query.fields)
	}
	return l.stream.Send(&pb.ListenResponse{ResponseType: &pb.ListenResponse_DocumentChange{
		DocumentChange: &pb.DocumentChange{Document: d, TargetIds: []int32{t.id}},
	}})
}

// sendGone reports that a document was deleted or left the result.
func (l *listenStream) sendGone(t *target, name string, at int64) error {
	deleted := true
	err := l.s.store.read(latest, func(sn *snapshot) error {
		d, err := sn.get(name)
		deleted = d == nil
		return err
	})
	if err != nil {
		return err
	}
	ids := []int32{t.id}
	if deleted {
		return l.stream.Send(&pb.ListenResponse{ResponseType: &pb.ListenResponse_DocumentDelete{
			DocumentDelete: &pb.DocumentDelete{Document: name, RemovedTargetIds: ids, ReadTime: timestamp(at)},
		}})
	}
	return l.stream.Send(&pb.ListenResponse{ResponseType: &pb.ListenResponse_DocumentRemove{
		DocumentRemove: &pb.DocumentRemove{Document: name, RemovedTargetIds: ids, ReadTime: timestamp(at)},
	}})
}

// sendSnapshot reports that all targets now reflect the state at time at.
func (l *listenStream) sendSnapshot(at int64) error {
	return l.send(&pb.TargetChange{
		TargetChangeType: pb.TargetChange_NO_CHANGE, ReadTime: timestamp(at), ResumeToken: resumeToken(at),
	})
}

func (l *listenStream) send(c *pb.TargetChange) error {
	err := l.stream.Send(&pb.ListenResponse{ResponseType: &pb.ListenResponse_TargetChange{TargetChange: c}})
	if err != nil {
		return fmt.Errorf("cannot send a snapshot: %w", err)
	}
	return nil
}
