package firestoredb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/outage"
)

// calls intercepts every request to the database. It sets a deadline, begins transactions without
// locks, and records the responses. Calls in [DB.Do] already have a deadline, so this one matters
// only for calls outside Do. The client library's defaults are one minute for a write and five
// minutes for a query, during which a handler would keep its caller's connection open.
type calls time.Duration

func (c calls) unary(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	commit, reads, onlyWrites := false, true, ctx.Value(onlyWritesKey{}) != nil
	switch r := req.(type) {
	case *pb.BeginTransactionRequest:
		if onlyWrites {
			return nil // the response remains empty, and an empty id means no transaction
		}
		// By default, the database locks the documents that a transaction reads. If the process is
		// killed partway through one, no other client can write those documents until the server
		// abandons the transaction a minute later. The client library has no option for this.
		r.Options = &pb.TransactionOptions{Mode: &pb.TransactionOptions_ReadWrite_{ReadWrite: &pb.TransactionOptions_ReadWrite{
			RetryTransaction: r.GetOptions().GetReadWrite().GetRetryTransaction(),
			ConcurrencyMode:  pb.TransactionOptions_OPTIMISTIC,
		}}}
	case *pb.RollbackRequest:
		if onlyWrites {
			return nil
		}
	case *pb.CommitRequest:
		commit, reads = true, len(r.GetTransaction()) > 0
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c)) // an earlier deadline takes precedence
	defer cancel()
	try := func() error {
		began := time.Now()
		err := invoke(ctx, method, req, reply, cc, opts...)
		took(method, began, err)
		if r, ok := req.(*pb.CommitRequest); ok && err == nil {
			wrote(r.GetWrites())
		}
		return hear(ctx, commit, err)
	}
	if !reads {
		return again(ctx, try) // nothing was read, so the same writes can be sent again
	}
	return try()
}

func (c calls) stream(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if ctx.Value(onlyWritesKey{}) != nil { // all reads are streams
		return nil, errOnlyWrites
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c))
	began := time.Now()
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		cancel()
		took(method, began, err)
		return nil, hear(ctx, false, err)
	}
	context.AfterFunc(s.Context(), cancel) // the stream's context is cancelled when the stream ends
	return &heardStream{ClientStream: s, call: ctx, method: method, began: began}, nil
}

// onlyWritesKey marks the context of a [DB.Commit]. The calls that begin and end a transaction are
// skipped in such a context because a commit without a transaction is also atomic. The client
// library's only other way to make such a commit is its deprecated batches.
type onlyWritesKey struct{}

// errOnlyWrites is the error for a read in a [DB.Commit]. Such a read would not be part of the
// transaction.
var errOnlyWrites = errors.New("cannot read in a commit that only writes")

// heard records what a call to [DB.Do] learned about the database's state. The interceptors fill it
// in because the call's error is not specific enough: it can be the same when the database is down
// and when another writer always wins.
type heard struct {
	answered atomic.Bool // the database answered one of the call's requests
	lost     atomic.Bool // the call lost to another writer at least once
	open     atomic.Bool // a commit got no response, so it may have taken effect
}

type heardKey struct{}

// answered wraps the error from a call that failed even though the database answered some of its
// requests.
type answered struct{ error }

func (a answered) Unwrap() error { return a.error }

// aborted is the error for a request that lost to another writer. It has no Unwrap, so the client
// library does not see the code and retry. The library would pause for 1 to 4 s, which allows only
// three attempts in three seconds. [again] retries instead.
type aborted struct{ error }

// hear records how the database answered a request. commit is true if the request is a commit. If
// another writer won, hear hides this from the client library, so the library does not retry.
// Outside of [DB.Do], hear returns err unchanged.
func hear(ctx context.Context, commit bool, err error) error {
	h, ok := ctx.Value(heardKey{}).(*heard)
	if !ok {
		return err
	}
	code := status.Code(err)
	switch {
	case err == io.EOF: //nolint:errorlint // grpc returns it unwrapped at the end of a stream
		code = codes.OK
	case code == codes.Aborted:
		h.lost.Store(true)
		err = aborted{err}
	}
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Unknown:
		// The library returns the same codes when no response arrived.
		if commit {
			h.open.Store(true)
		}
	default:
		h.answered.Store(true)
	}
	return err
}

// judged returns a function that runs fn as one call and converts its error into one of this
// package's errors.
func judged(fn func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		var h heard
		return h.judge(fn(context.WithValue(ctx, heardKey{}, &h)))
	}
}

// heardStream records the responses to a read.
type heardStream struct {
	grpc.ClientStream
	call   context.Context
	method string
	began  time.Time
	reads  int
	ended  bool
}

func (s *heardStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch {
	case err == nil:
		s.reads += readIn(m)
	case !s.ended:
		s.ended = true
		took(s.method, s.began, err)
		// Firestore charges for at least one document. A count query costs one read per thousand
		// index entries, but the response does not contain that number, so it counts as one.
		documentsRead.Add(float64(max(s.reads, 1)))
	}
	return hear(s.call, false, err)
}

// judge converts a call's error into one of this package's errors.
func (h *heard) judge(err error) error {
	if err == nil {
		return nil
	}
	mapped := Map(err)
	late := errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
	switch lost := errors.As(err, new(aborted)) || h.lost.Load() && late; {
	case lost && h.open.Load(): // one of the attempts may have been committed
		return answered{apierr.Down(err)}
	case lost:
		return contended(err)
	case h.open.Load() && errors.Is(mapped, ErrExists):
		return fmt.Errorf("%w: %w", ErrUncertain, mapped)
	case h.answered.Load() && outage.Down(mapped):
		return answered{mapped}
	}
	return mapped
}

func contended(err error) error {
	return apierr.Contended(fmt.Errorf("%w: %w", ErrContended, err))
}

const (
	firstPause   = 10 * time.Millisecond
	longestPause = 320 * time.Millisecond
)

// unsure reports whether one of this call's commits got no response. In that case, the change may
// have been made, and a retry could make it twice. A commit without reads does not count, because
// it may be repeated; see [DB.Commit].
func unsure(ctx context.Context) bool {
	h, ok := ctx.Value(heardKey{}).(*heard)
	return ok && h.open.Load() && ctx.Value(onlyWritesKey{}) == nil
}

// again repeats try while another writer wins. It stops when there is no time left for a full
// attempt: an attempt that is cut off might have been committed. Pauses are random, so two writers
// that collided do not collide again.
func again(ctx context.Context, try func() error) error {
	for most := firstPause; ; most = min(2*most, longestPause) {
		began := time.Now()
		err := try()
		if !errors.As(err, new(aborted)) || unsure(ctx) {
			return err
		}
		pause := rand.N(most)
		if end, ok := ctx.Deadline(); ok && time.Until(end) < pause+time.Since(began) {
			return err
		}
		if !outage.Pause(ctx, pause) {
			return err
		}
	}
}
