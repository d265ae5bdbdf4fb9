package firestore

import (
	"context"
	"maps"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Stats contains counts since the server was opened, or since ResetStats.
type Stats struct {
	// Calls counts calls by method, such as Commit.
	Calls map[string]int64
	// Queries counts queries, including count queries, by the collection that they read.
	Queries map[string]int64
	// Errors counts failed calls by code. It includes NotFound, even though NotFound is a normal
	// response.
	Errors map[codes.Code]int64
	// Reads is the number of documents that calls have returned.
	Reads int64
	// Writes is the number of committed document changes. Writes that do not change anything are
	// not counted.
	Writes int64
	// Batches is the number of syncs of the data file for those writes.
	Batches int64
}

// DocumentRate is the rate of writes to a document.
type DocumentRate struct {
	Document  string // full name
	Writes    int    // within the window
	PerSecond float64
}

// rateWindows contains the windows, in seconds, for which rates are kept.
var rateWindows = [...]int64{1, 10, 60}

type stats struct {
	now func() time.Time

	mu     sync.Mutex
	counts Stats
	writes map[string]*recentWrites
	most   [len(rateWindows)]DocumentRate
	swept  int64
}

// recentWrites counts the writes to one document by second, oldest first.
type recentWrites struct{ seconds []secondCount }

type secondCount struct {
	second int64
	n      int
}

func newStats(now func() time.Time) *stats {
	s := &stats{now: now}
	s.reset()
	return s
}

func (s *stats) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts = Stats{Calls: map[string]int64{}, Queries: map[string]int64{}, Errors: map[codes.Code]int64{}}
	s.writes = map[string]*recentWrites{}
	s.most = [len(rateWindows)]DocumentRate{}
}

// Stats returns a copy of the counts.
func (s *Server) Stats() Stats {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	out := s.stats.counts
	out.Calls, out.Queries, out.Errors = maps.Clone(out.Calls), maps.Clone(out.Queries), maps.Clone(out.Errors)
	return out
}

// ResetStats resets all counts to zero.
func (s *Server) ResetStats() { s.stats.reset() }

// MaxSustainedWrites returns the document with the most writes within any single window. The server
// tracks windows of 1 s, 10 s and a minute. MaxSustainedWrites uses the shortest of these that is
// at least as long as window. Production promises about one sustained write per document per
// second. Windows begin and end on whole seconds.
func (s *Server) MaxSustainedWrites(window time.Duration) DocumentRate {
	s.stats.mu.Lock()
	defer s.stats.mu.Unlock()
	for i, w := range rateWindows {
		if window <= time.Duration(w)*time.Second {
			return s.stats.most[i]
		}
	}
	return s.stats.most[len(rateWindows)-1]
}

func (s *stats) called(method string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Calls[method]++
	if err != nil {
		s.counts.Errors[status.Code(err)]++
	}
}

func (s *stats) queried(collection string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Queries[collection]++
}

func (s *stats) read(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Reads += int64(n)
}

func (s *stats) committed(changes []change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Batches++
	s.counts.Writes += int64(len(changes))
	now := s.now().Unix()
	for _, c := range changes {
		r := s.writes[c.name]
		if r == nil {
			r = &recentWrites{}
			s.writes[c.name] = r
		}
		r.add(now)
		for i, w := range rateWindows {
			if n := r.within(now - w); n > s.most[i].Writes {
				s.most[i] = DocumentRate{c.name, n, float64(n) / float64(w)}
			}
		}
	}
	s.sweep(now)
}

// sweep removes documents whose last write is older than every window.
func (s *stats) sweep(now int64) {
	longest := rateWindows[len(rateWindows)-1]
	if now-s.swept < longest/4 {
		return
	}
	s.swept = now
	maps.DeleteFunc(s.writes, func(_ string, r *recentWrites) bool {
		return r.seconds[len(r.seconds)-1].second < now-longest
	})
}

func (r *recentWrites) add(second int64) {
	if n := len(r.seconds); n > 0 && r.seconds[n-1].second == second {
		r.seconds[n-1].n++
		return
	}
	longest := rateWindows[len(rateWindows)-1]
	for len(r.seconds) > 0 && r.seconds[0].second <= second-longest {
		r.seconds = r.seconds[1:]
	}
	r.seconds = append(r.seconds, secondCount{second, 1})
}

// within counts the writes after a given second.
func (r *recentWrites) within(after int64) (n int) {
	for i := len(r.seconds) - 1; i >= 0 && r.seconds[i].second > after; i-- {
		n += r.seconds[i].n
	}
	return n
}

func (s *Server) called(method string, err error) {
	s.stats.called(method, err)
	s.metrics.called(err)
}

func methodName(full string) string { return full[strings.LastIndexByte(full, '/')+1:] }

func (s *Server) interceptUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	method := methodName(info.FullMethod)
	var resp any
	err := s.faults.around(ctx, method, func() (err error) {
		defer recovered(&err)
		resp, err = handler(ctx, req)
		return err
	})
	s.called(method, err)
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (s *Server) interceptStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	method := methodName(info.FullMethod)
	err := s.faults.around(ss.Context(), method, func() (err error) {
		defer recovered(&err)
		return handler(srv, ss)
	})
	s.called(method, err)
	return err
}

// recovered turns a panic into an error because one faulty call must not bring down the server.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = status.Errorf(codes.Internal, "panic: %v\n%s", p, debug.Stack())
	}
}
