package firestore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gc "cloud.google.com/go/firestore"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

// behaviour is a documented behaviour of production, tested through Google's client.
type behaviour struct {
	name string
	run  func(t *testing.T, c *gc.Client)
	// onlyOurs, if not empty, says why the test does not run against Google's emulator.
	onlyOurs string
}

func conformance() []behaviour {
	return slices.Concat(documentBehaviours, transformBehaviours, batchBehaviours, queryBehaviours,
		cursorBehaviours, aggregateBehaviours, transactionBehaviours, listenBehaviours, limitBehaviours)
}

// TestConformance tests each behaviour on its own server.
func TestConformance(t *testing.T) {
	t.Parallel()
	if n := len(conformance()); n < 120 {
		t.Errorf("the suite has only %d behaviours, want at least 120", n)
	}
	for _, b := range conformance() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			b.run(t, client(t, open(t, firestore.Options{})))
		})
	}
}

// TestConformanceOfTheEmulator validates the suite itself: Google's emulator must also pass it.
func TestConformanceOfTheEmulator(t *testing.T) {
	t.Parallel()
	conn := startEmulatorConn(t)
	for i, b := range conformance() {
		if b.onlyOurs != "" {
			t.Logf("skipping %s on the emulator: %s", b.name, b.onlyOurs)
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			c, err := gc.NewClient(t.Context(), fmt.Sprintf("conformance%d", i), option.WithGRPCConn(conn))
			if err != nil {
				t.Fatal(err)
			}
			b.run(t, c)
		})
	}
}

func startEmulatorConn(t *testing.T) *grpc.ClientConn {
	t.Helper()
	addr := emulatorAddress(t)
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(owner{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

type fields = map[string]any

func ctxOf(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func set(t *testing.T, c *gc.Client, path string, data any, opts ...gc.SetOption) *gc.WriteResult {
	t.Helper()
	r, err := c.Doc(path).Set(ctxOf(t), data, opts...)
	must(t, err)
	return r
}

func get(t *testing.T, c *gc.Client, path string) *gc.DocumentSnapshot {
	t.Helper()
	d, err := c.Doc(path).Get(ctxOf(t))
	must(t, err)
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("the error is %v, want %v", err, want)
	}
}

func wantEqual(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the values differ (-want +got):\n%s", diff)
	}
}

// wantFields reads a document and compares its fields.
func wantFields(t *testing.T, c *gc.Client, path string, want fields) {
	t.Helper()
	wantEqual(t, get(t, c, path).Data(), want)
}

func wantMissing(t *testing.T, c *gc.Client, path string) {
	t.Helper()
	_, err := c.Doc(path).Get(ctxOf(t))
	wantCode(t, err, codes.NotFound)
}

// seed writes documents by ID into the k collection.
func seed(t *testing.T, c *gc.Client, docs map[string]fields) {
	t.Helper()
	b := c.Batch() //nolint:staticcheck // all in one request
	for id, d := range docs {
		b.Set(c.Doc("k/"+id), d)
	}
	_, err := b.Commit(ctxOf(t))
	must(t, err)
}

// wantIDs runs a query and compares the IDs of its result, in order, with a space-separated list.
func wantIDs(t *testing.T, q gc.Query, want string) {
	t.Helper()
	docs, err := q.Documents(ctxOf(t)).GetAll()
	must(t, err)
	var ids []string
	for _, d := range docs {
		ids = append(ids, d.Ref.ID)
	}
	if got := strings.Join(ids, " "); got != want {
		t.Errorf("the query returned %q, want %q", got, want)
	}
}

func wantQueryCode(t *testing.T, q gc.Query, want codes.Code) {
	t.Helper()
	_, err := q.Documents(ctxOf(t)).GetAll()
	wantCode(t, err, want)
}
