// Package firestoredb is the only way the services reach Firestore.
//
// It promises that every call has a deadline, that a Firestore which is down is
// noticed once and then refused at once (a breaker) instead of holding every
// caller to its deadline, and that errors arrive in the words of this package:
// [ErrNotFound], [ErrExists], [ErrStale], [ErrContended], or an apierr UNAVAILABLE.
// It does not hide the client: stores build documents and queries with
// cloud.google.com/go/firestore itself.
//
// Writers of one document that get in each other's way are no outage. A transaction
// that loses tries again while there is time, after others of its account that lost
// before, and then gets [ErrContended]. No account has more than a share of a process's
// calls in flight.
package firestoredb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/libs/turns"
)

// Config says which database to open.
type Config struct {
	// Project is the Google Cloud project.
	Project string `env:"FIRESTORE_PROJECT" envDefault:"linkreel"`
	// Database is the Firestore database of the project.
	Database string `env:"FIRESTORE_DATABASE" envDefault:"(default)"`
	// Endpoint is host:port of a local Firestore; empty means Google's, with the
	// ambient credentials.
	Endpoint string `env:"FIRESTORE_ENDPOINT"`
	// Token is the bearer token of localcloud. It is sent to Endpoint alone, never to
	// Google, and not to Google's emulator either unless somebody sets both. Of
	// several, separated by commas, the first is sent.
	Token string `env:"LOCALCLOUD_TOKEN"`
	// Timeout bounds a call or a transaction. One that lost against other writers has
	// it once more for its further tries, when its turn has come. Keep it below 30 s:
	// places below a limit are leased for not much longer (libs/quota).
	Timeout time.Duration `env:"FIRESTORE_TIMEOUT" envDefault:"3s"`
}

// What a store can meet.
var (
	ErrNotFound = errors.New("no such document")
	ErrExists   = errors.New("document already exists")
	ErrStale    = errors.New("document changed meanwhile")
	// ErrInvalid means that the database will never take this request: a value, a
	// name or a size that it does not allow.
	ErrInvalid = errors.New("request is refused for good")

	// ErrUncertain comes with an UNAVAILABLE when a commit was repeated because
	// its answer was lost, and the server no longer knows the transaction: most
	// likely the first try went through.
	ErrUncertain = errors.New("outcome of the commit is not known")

	// ErrContended comes with a RATE_LIMITED when other writers of the same documents
	// were faster until the time was over. Nothing was committed: a call whose last try,
	// or one before, may have gone through gets a plain UNAVAILABLE.
	ErrContended = errors.New("other writers of the same documents were faster")
)

// DB is an open database.
type DB struct {
	*firestore.Client
	timeout time.Duration
	known   atomic.Bool // to have this build's format, see [DB.Identity]
	breaker *outage.Breaker
	calls   *turns.Queue // of accounts
	turns   *turns.Queue // of accounts whose transactions lost
}

// share is how many calls of one account are in flight at once. A connection to
// Firestore carries a hundred.
const share = 32

// Open connects; it does not wait for the server, so that a service starts while
// Firestore is down.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	database := cfg.Database
	if database == "" {
		database = firestore.DefaultDatabaseID
	}
	var opts []option.ClientOption
	// By default the pauses between tries to connect grow to two minutes, and a
	// database that is back would be found that late.
	reconnect := grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: 2 * time.Second,
	})
	each := calls(orDefault(cfg.Timeout))
	dial := []grpc.DialOption{reconnect, grpc.WithChainUnaryInterceptor(each.unary), grpc.WithChainStreamInterceptor(each.stream)}
	if cfg.Endpoint != "" {
		dial = append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
		if token, _, _ := strings.Cut(cfg.Token, ","); token != "" {
			dial = append(dial, grpc.WithPerRPCCredentials(bearer(strings.TrimSpace(token))))
		}
		conn, err := grpc.NewClient(cfg.Endpoint, dial...)
		if err != nil {
			return nil, fmt.Errorf("dial firestore %s: %w", cfg.Endpoint, err)
		}
		opts = append(opts, option.WithGRPCConn(conn))
	} else {
		for _, o := range dial {
			opts = append(opts, option.WithGRPCDialOption(o))
		}
	}
	client, err := firestore.NewClientWithDatabase(ctx, cfg.Project, database, opts...)
	if err != nil {
		return nil, fmt.Errorf("open firestore: %w", err)
	}
	return newDB(client, cfg.Timeout), nil
}

// bearer sends a token over a connection without TLS, which a local Firestore has.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

// Use wraps a client that is open already, in tests: nothing listens to what the
// database answers, so the client repeats transactions at its own slow pace, and the
// database's format is not looked at. Timeout 0 means three seconds.
func Use(client *firestore.Client, timeout time.Duration) *DB {
	db := newDB(client, timeout)
	db.known.Store(true)
	return db
}

func newDB(client *firestore.Client, timeout time.Duration) *DB {
	return &DB{Client: client, timeout: orDefault(timeout),
		calls: turns.NewQueue(turns.QueueOptions{Name: "firestore", Each: share}),
		turns: turns.NewQueue(turns.QueueOptions{Name: "transaction", Each: 1}),
		// Calls that began together run out of time together, so five failures say little
		// before they are a second apart. One rest of a second: healing shows within a
		// second or two.
		breaker: outage.New(outage.Config{Name: "Firestore", Failures: 5, Over: time.Second, Rest: time.Second, Down: down})}
}

// down tells a database that is away from one that answers: one that answered a part
// of the call, has forgotten a transaction, or finds a request too much.
func down(err error) bool {
	return outage.Down(err) && !errors.As(err, new(answered)) && !errors.Is(err, ErrUncertain) && status.Code(err) != codes.ResourceExhausted
}

func orDefault(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return 3 * time.Second
	}
	return timeout
}

// Close ends the connection, also one that was dialled for an Endpoint: the
// client closes what it was given.
func (db *DB) Close() error { return db.Client.Close() }

// Do runs one or several calls under the database's deadline and maps the error.
// what names the deed for the log: "get link".
func (db *DB) Do(ctx context.Context, what string, fn func(ctx context.Context) error) error {
	if !db.known.Load() && ctx.Value(firstContactKey{}) == nil {
		if _, err := db.Identity(ctx); err != nil {
			return err
		}
	}
	err := inLine(ctx, db.calls, func() error {
		return db.breaker.Call(ctx, db.timeout, judged(fn))
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// inLine runs do when it is the turn of the account for which ctx acts. What acts for
// no account, and a call within a call, which would wait for itself, run at once.
func inLine(ctx context.Context, q *turns.Queue, do func() error) error {
	p := identity.FromContext(ctx)
	if p == nil || ctx.Value(heardKey{}) != nil {
		return do()
	}
	if err := ctx.Err(); err != nil {
		return Map(err) // the time went elsewhere
	}
	release, err := q.Enter(ctx, p.AccountID)
	if errors.Is(err, context.DeadlineExceeded) {
		return contended(err) // only the account's own work was before it
	}
	if err != nil {
		return err
	}
	defer release()
	return do()
}

// Tx runs fn as a transaction. fn may run several times and so must read first,
// decide, write, and have no other effect; it must wrap errors with %w, else the
// abort of a try is not seen.
func (db *DB) Tx(ctx context.Context, what string, fn func(ctx context.Context, tx *firestore.Transaction) error, opts ...firestore.TransactionOption) error {
	try := func(ctx context.Context) error { return db.RunTransaction(ctx, fn, opts...) }
	err := db.Do(ctx, what, try)
	if errors.Is(err, ErrContended) {
		err = inLine(ctx, db.turns, func() error {
			return db.Do(ctx, what, func(ctx context.Context) error { return again(ctx, func() error { return try(ctx) }) })
		})
	}
	return err
}

// Commit is [DB.Tx] for an fn that only writes: one call to the database, where a
// transaction takes another to begin. A commit whose answer is lost is sent again, so
// writes must bear to be made twice, or have a precondition that the second time fails.
func (db *DB) Commit(ctx context.Context, what string, fn func(ctx context.Context, tx *firestore.Transaction) error, opts ...firestore.TransactionOption) error {
	return db.Tx(context.WithValue(ctx, onlyWritesKey{}, true), what, fn, opts...)
}

// DeleteAll deletes documents in one commit. That one is not there is no error.
func (db *DB) DeleteAll(ctx context.Context, what string, refs ...*firestore.DocumentRef) error {
	if len(refs) == 0 {
		return nil
	}
	return db.Commit(ctx, what, func(_ context.Context, tx *firestore.Transaction) error {
		for _, ref := range refs {
			if err := tx.Delete(ref); err != nil {
				return err
			}
		}
		return nil
	})
}

// Find lists what a query finds, without its fields.
func (db *DB) Find(ctx context.Context, what string, q firestore.Query) (refs []*firestore.DocumentRef, err error) {
	err = db.Do(ctx, what, func(ctx context.Context) error {
		snaps, err := q.Select().Documents(ctx).GetAll()
		refs = refs[:0]
		for _, snap := range snaps {
			refs = append(refs, snap.Ref)
		}
		return err
	})
	return refs, err
}

// IDs is [DB.Find] for the ids alone.
func (db *DB) IDs(ctx context.Context, what string, q firestore.Query) ([]string, error) {
	found, err := db.Find(ctx, what, q)
	ids := make([]string, len(found))
	for i, ref := range found {
		ids[i] = ref.ID
	}
	return ids, err
}

// Map turns the client's error into this package's words. Errors that already
// have a code pass through.
func Map(err error) error {
	if err == nil {
		return nil
	}
	var coded *apierr.Error
	if errors.As(err, &coded) {
		return err
	}
	switch code := status.Code(err); {
	case errors.Is(err, context.DeadlineExceeded), code == codes.DeadlineExceeded:
		return apierr.Down(err)
	case code == codes.Canceled:
		return fmt.Errorf("%w: %w", context.Canceled, err)
	// Only the words tell it from a value that is refused for good; the code is the same.
	case code == codes.InvalidArgument && strings.Contains(err.Error(), "referenced transaction"):
		return apierr.Down(fmt.Errorf("%w: %w", ErrUncertain, err))
	case code == codes.InvalidArgument:
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case code == codes.NotFound:
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case code == codes.AlreadyExists:
		return fmt.Errorf("%w: %w", ErrExists, err)
	case code == codes.FailedPrecondition:
		return fmt.Errorf("%w: %w", ErrStale, err)
	case code == codes.Aborted:
		return contended(err)
	case code == codes.Unavailable, code == codes.ResourceExhausted, code == codes.Internal:
		return apierr.Down(err)
	}
	return err
}
