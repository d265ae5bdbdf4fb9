package firestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	gcfirestore "cloud.google.com/go/firestore"
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/grpc/test/bufconn"

	"github.com/linkreel/linkreel/services/localcloud/guard"
)

// Mode defines what happens when transactions conflict.
type Mode int

const (
	// Pessimistic is production's default. Documents that a transaction has read are locked. Other
	// writes to them wait and are Aborted after LockTimeout.
	Pessimistic Mode = iota
	// Optimistic does not lock anything. It aborts a transaction at commit if its reads are
	// outdated.
	Optimistic
	// Fast makes a transaction wait for any other transaction that has read the same document, so
	// almost no transaction is aborted. It hides contention. Use it only in tests that are not
	// about contention.
	Fast
)

// Options configures a server. The zero value is an in-memory server that behaves like production
// but does not enforce indexes.
type Options struct {
	// Path is the data file. If it is empty, all data is in memory.
	Path string
	// Indexes contains the declared indexes; see ParseIndexes. If it is nil, the server also
	// accepts queries without a suitable index.
	Indexes *Indexes
	// Token is the token that callers must send, as "authorization: Bearer TOKEN". It must be at
	// least 32 characters long. If Token contains several tokens, separated by commas, each is
	// accepted. If it is empty, callers do not need a token, as with Google's emulator.
	Token string
	// Mode selects the concurrency control.
	Mode Mode
	// LockTimeout is how long a write waits for transactions that have read the same documents. 0
	// means 2 s.
	LockTimeout time.Duration
	// Clock provides the commit times and determines which documents have expired. Nil means
	// time.Now. Timeouts always use real time.
	Clock func() time.Time
	// Faults injects failures. Nil means none until faults are added through Server.Faults.
	Faults *Faults
	// HotIndex, if set, is called for each stored field that increases with time in an index that
	// all documents in a collection share. Such a field is a timestamp that has an automatic index
	// or is the first field in a composite index. Production limits such an index to about 500
	// writes per second.
	HotIndex func(collection, field string)
	// TTLInterval is how often expired documents are deleted. 0 means every minute, and a negative
	// value means never. Server.DeleteExpired deletes them immediately.
	TTLInterval time.Duration
	// ReadOnly starts the server in the state that [Server.SetReadOnly] sets.
	ReadOnly bool
	// Restoring begins a restore into a new data file. Import fills the file. Open rejects it until
	// EndRestore has been called.
	Restoring bool
}

// Server is an embedded Firestore. It is safe for concurrent use.
type Server struct {
	store   *store
	indexes *Indexes
	clock   *commitClock
	locks   *lockTable
	txs     *transactions
	writer  *writer
	hub     *hub
	faults  *Faults
	tokens  guard.Tokens
	stats   *stats
	metrics metrics
	disk    disk

	hotIndex  func(collection, field string) // Options.HotIndex
	restoring bool                           // Options.Restoring
	readOnly  bool                           // accessed only by the writer; see SetReadOnly
	grpc      *grpc.Server
	pipe      *bufconn.Listener

	background sync.WaitGroup
	stop       context.CancelFunc
	closing    sync.Once
	closeErr   error

	mu      sync.Mutex
	clients []*gcfirestore.Client
	closed  bool
}

// service implements the protocol. It is separate from Server because both have a Listen method.
type service struct {
	pb.UnimplementedFirestoreServer
	*Server
}

// Open starts a server that is reachable through Client. Listen also makes it reachable over the
// network. Only one process can open a data file at a time.
func Open(o Options) (*Server, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = 2 * time.Second
	}
	if o.TTLInterval == 0 {
		o.TTLInterval = time.Minute
	}
	if o.Faults == nil {
		o.Faults = &Faults{}
	}
	tokens, err := guard.Parse(o.Token)
	if err != nil {
		return nil, fmt.Errorf("firestore: %w", err)
	}
	st, err := openStore(o.Path, o.Restoring)
	if err != nil {
		return nil, err
	}
	if err := st.openIndexes(o.Indexes); err != nil {
		return nil, errors.Join(err, st.db.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		store: st, indexes: o.Indexes, hotIndex: o.HotIndex, restoring: o.Restoring, readOnly: o.ReadOnly, tokens: tokens, faults: o.Faults, stats: newStats(o.Clock), metrics: newMetrics(), hub: newHub(),
		clock: &commitClock{now: o.Clock, last: st.history.floor, visible: st.history.floor},
		locks: newLockTable(o.Mode, o.LockTimeout),
		pipe:  bufconn.Listen(1 << 20), stop: cancel,
	}
	s.txs = &transactions{now: o.Clock, locks: s.locks, byID: map[string]*transaction{}}
	s.writer = startWriter(s)
	s.grpc = grpc.NewServer(
		// This limit exceeds the protocol's, so the server returns InvalidArgument, as production
		// does. Clients would retry the transport's ResourceExhausted until their deadline.
		grpc.MaxRecvMsgSize(64<<20),
		// Clients in other languages ping idle connections often.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
		// This runs before the method lookup and before a message is read. Interceptors do not see
		// a call until its whole message, up to 64 MiB, is in memory.
		grpc.InTapHandle(s.admit),
		grpc.ChainUnaryInterceptor(s.interceptUnary),
		grpc.ChainStreamInterceptor(s.interceptStream),
	)
	pb.RegisterFirestoreServer(s.grpc, &service{Server: s})
	s.serve(s.pipe)
	s.every(ctx, 10*time.Second, s.txs.expire)
	if o.TTLInterval > 0 {
		s.every(ctx, o.TTLInterval, func() {
			if _, err := s.DeleteExpired(ctx); err != nil && ctx.Err() == nil {
				slog.WarnContext(ctx, "cannot delete expired documents; the next round retries", "error", err)
			}
		})
	}
	return s, nil
}

// admit rejects every call without the token, regardless of its method.
func (s *Server) admit(ctx context.Context, call *tap.Info) (context.Context, error) {
	given := ""
	if values := call.Header.Get("authorization"); len(values) == 1 {
		given = values[0]
	}
	if !s.tokens.Accept(given) {
		err := status.Error(codes.Unauthenticated, "this Firestore requires the server's bearer token")
		s.metrics.called(err) // count it here because no interceptor sees this call
		return nil, err
	}
	return ctx, nil
}

func (s *Server) serve(l net.Listener) {
	s.background.Add(1)
	go func() {
		defer s.background.Done()
		_ = s.grpc.Serve(l) // returns after Close
	}()
}

func (s *Server) every(ctx context.Context, d time.Duration, f func()) {
	s.background.Add(1)
	go func() {
		defer s.background.Done()
		t := time.NewTicker(d)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				f()
			}
		}
	}()
}

// Listen serves gRPC without encryption on an address such as 127.0.0.1:0 and returns the address
// in use. Clients can find it through FIRESTORE_EMULATOR_HOST, but those clients do not send a
// token. If Options.Token is set, use [guard.Bearer].
func (s *Server) Listen(addr string) (net.Addr, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("firestore: %w", err)
	}
	s.serve(l)
	return l.Addr(), nil
}

// Client returns Google's client, connected to the server without a port. Server.Close closes the
// client if the caller has not closed it.
func (s *Server) Client(ctx context.Context, projectID string) (*gcfirestore.Client, error) {
	opts := []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.pipe.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// As in firestoredb, a response may be larger than gRPC's default limit of 4 MiB.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64 << 20)),
	}
	if token := s.tokens.First(); token != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(guard.Bearer(token)))
	}
	conn, err := grpc.NewClient("passthrough:///firestore", opts...)
	if err != nil {
		return nil, fmt.Errorf("firestore: connect: %w", err)
	}
	c, err := gcfirestore.NewClient(ctx, projectID, option.WithGRPCConn(conn))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("firestore: new client: %w", err), conn.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(errors.New("firestore: the server is closed"), c.Close())
	}
	s.clients = append(s.clients, c)
	return c, nil
}

// errReadOnly uses the code for an exhausted quota because clients must handle both cases the same
// way: the database serves reads but rejects writes for a while.
var errReadOnly = status.Error(codes.ResourceExhausted, "The records are read-only while they are being moved.")

// SetReadOnly turns read-only mode on or off. In this mode, the server rejects every commit that
// would change a document. When SetReadOnly returns, all accepted commits are on disk and no more
// commits are accepted. Reads keep working. Expired documents are kept.
func (s *Server) SetReadOnly(on bool) error {
	return s.writer.administer(func(*snapshot) ([]change, error) {
		s.readOnly = on
		return nil, nil
	})
}

// Faults returns the failures that the server injects.
func (s *Server) Faults() *Faults { return s.faults }

// Close ends open calls, waits for accepted commits, and closes the data file and the clients that
// Client returned.
func (s *Server) Close() error {
	s.closing.Do(func() {
		s.mu.Lock()
		clients := s.clients
		s.clients, s.closed = nil, true
		s.mu.Unlock()
		s.stop()
		for _, c := range clients {
			// Ignore the error, which only says that the owner has already closed the client.
			_ = c.Close()
		}
		s.grpc.Stop()
		s.background.Wait()
		s.writer.close()
		s.closeErr = s.store.db.Close()
	})
	return s.closeErr
}
