package firestoredb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/firestore"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/libs/turns"
)

// Config selects the database to open.
type Config struct {
	// Project is the Google Cloud project.
	Project string `env:"FIRESTORE_PROJECT" envDefault:"linkreel"`
	// Database is the name of the Firestore database in the project.
	Database string `env:"FIRESTORE_DATABASE" envDefault:"(default)"`
	// Endpoint is the host:port of a local Firestore. If it is empty, Open connects to Google
	// with the ambient credentials.
	Endpoint string `env:"FIRESTORE_ENDPOINT"`
	// Token is localcloud's bearer token. It is sent only to Endpoint, which may also be
	// Google's emulator, but never to Google. If Token holds several tokens, separated by commas,
	// only the first is sent.
	Token string `env:"LOCALCLOUD_TOKEN"`
	// Timeout bounds a call or a transaction. A transaction that has lost to other writers waits
	// for its turn and then gets the same amount of time again for more attempts. Keep Timeout
	// below 30 s because quota leases do not last much longer (libs/quota).
	Timeout time.Duration `env:"FIRESTORE_TIMEOUT" envDefault:"3s"`
}

// Open returns without waiting for the server, so a service starts even while Firestore is down.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	opts, database, err := dial(cfg)
	if err != nil {
		return nil, err
	}
	client, err := firestore.NewClientWithDatabase(ctx, cfg.Project, database, opts...)
	if err != nil {
		return nil, fmt.Errorf("open firestore: %w", err)
	}
	return newDB(client, cfg.Timeout), nil
}

// dial returns a client's connection options.
func dial(cfg Config) (opts []option.ClientOption, database string, err error) {
	if database = cfg.Database; database == "" {
		database = firestore.DefaultDatabaseID
	}
	// By default, the pauses between connection attempts grow to two minutes, so the client might
	// notice two minutes late that the database has recovered.
	reconnect := grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: 2 * time.Second,
	})
	each := calls(orDefault(cfg.Timeout))
	how := []grpc.DialOption{reconnect, grpc.WithChainUnaryInterceptor(each.unary), grpc.WithChainStreamInterceptor(each.stream)}
	if cfg.Endpoint != "" {
		how = append(how, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
		if token, _, _ := strings.Cut(cfg.Token, ","); token != "" {
			how = append(how, grpc.WithPerRPCCredentials(bearer(strings.TrimSpace(token))))
		}
		conn, err := grpc.NewClient(cfg.Endpoint, how...)
		if err != nil {
			return nil, "", fmt.Errorf("dial firestore %s: %w", cfg.Endpoint, err)
		}
		opts = append(opts, option.WithGRPCConn(conn))
	} else {
		for _, o := range how {
			opts = append(opts, option.WithGRPCDialOption(o))
		}
	}
	return opts, database, nil
}

// bearer sends a token, even over a connection without TLS, because a local Firestore does not use
// TLS.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

// Use wraps an existing client, for tests. The client has no interceptors, so it retries
// transactions at its own slow pace. The DB does not check the database's format. A timeout of 0
// means three seconds.
func Use(client *firestore.Client, timeout time.Duration) *DB {
	db := newDB(client, timeout)
	db.known.Store(true)
	return db
}

func newDB(client *firestore.Client, timeout time.Duration) *DB {
	db := &DB{Client: client, timeout: orDefault(timeout),
		calls: turns.NewQueue(turns.QueueOptions{Name: "firestore", Each: share}),
		turns: turns.NewQueue(turns.QueueOptions{Name: "transaction", Each: 1})}
	// Calls that begin together time out together, so five failures mean an outage only if they
	// span a second. With a one-second rest, a recovery is noticed within one or two seconds.
	db.breaker = outage.New(outage.Config{Name: "Firestore", Failures: 5, Over: time.Second, Rest: time.Second, Down: down,
		Opened: func(error) { db.outages.Add(1) }})
	return db
}

// Outages returns how many times this process has found the database unreachable. During each
// outage, the data may have been replaced, for example by a restore.
func (db *DB) Outages() uint64 { return db.outages.Load() }

// down reports whether err means that the database is unreachable. The database is reachable if it
// answered part of the call, if a transaction has expired, or if it rejected a request that is too
// large.
func down(err error) bool {
	return outage.Down(err) && !errors.As(err, new(answered)) && !errors.Is(err, ErrUncertain) && status.Code(err) != codes.ResourceExhausted
}

func orDefault(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return 3 * time.Second
	}
	return timeout
}

// Close closes the connection. It also closes the connection to an Endpoint because the client
// library closes a connection that is passed to it.
func (db *DB) Close() error { return db.Client.Close() }
