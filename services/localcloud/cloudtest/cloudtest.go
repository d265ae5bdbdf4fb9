// Package cloudtest starts a separate Firestore and object storage for a test, on free local ports.
// Both stop when the test ends. Google's clients, and all code that uses them, work with these
// servers without changes.
package cloudtest

import (
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	gcfirestore "cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// Project is the project for [Cloud.Client]. The servers accept any project.
const Project = "test"

// Options configures the servers for a test. The zero value starts an in-memory Firestore that does
// not enforce indexes.
type Options struct {
	// Indexes contains the contents of firestore.indexes.json files. If Indexes is not empty, a
	// query without its index fails, as in production.
	Indexes [][]byte
	// Complete means that Indexes covers all collections to which the test writes. In that case,
	// the test fails if it stores a time in an index that all documents in a collection share.
	Complete bool
	// Rare lists fields ("collection.field") that Complete allows in such an index, because only
	// operators write them, and only rarely.
	Rare []string
	// Clock returns the time for signatures, commits and objects. If it is nil, the servers use
	// time.Now.
	Clock func() time.Time
	// Token is the bearer token that callers of the servers must send. If it is empty, callers do
	// not need a token. Signed URLs and [Cloud.Client] work in both cases.
	Token string
	// Buckets are created at the start. Without buckets, the test has no object storage.
	Buckets []string
	// Storage changes the options of the object storage before it is opened.
	Storage func(*storage.Options)
}

// Cloud is a running Firestore and, if the test requested buckets, a running object storage.
type Cloud struct {
	// Firestore is the server. Tests use it to inject failures (Faults) or to delete expired
	// documents (DeleteExpired).
	Firestore *firestore.Server
	// Endpoint is Firestore's address.
	Endpoint string
	// Storage is the object storage. Tests use it to inject failures.
	Storage *storage.Server
	// PublicURL serves signed URLs, and APIURL serves the JSON API.
	PublicURL, APIURL string
	// Key is the key file for the service account that signs URLs.
	Key []byte
}

// Start runs the servers until the test ends.
func Start(tb testing.TB, o Options) *Cloud {
	tb.Helper()
	c := &Cloud{}
	c.startFirestore(tb, o)
	if len(o.Buckets) > 0 {
		c.startStorage(tb, o)
	}
	return c
}

func (c *Cloud) startFirestore(tb testing.TB, o Options) {
	tb.Helper()
	var indexes *firestore.Indexes
	if len(o.Indexes) > 0 {
		var err error
		if indexes, err = firestore.ParseIndexes(o.Indexes...); err != nil {
			tb.Fatalf("cannot parse the indexes: %v", err)
		}
	}
	server, err := firestore.Open(firestore.Options{Indexes: indexes, Clock: o.Clock, TTLInterval: -1, Faults: &firestore.Faults{}, Token: o.Token, HotIndex: o.hotIndex(tb)})
	if err != nil {
		tb.Fatalf("cannot start Firestore: %v", err)
	}
	tb.Cleanup(func() { _ = server.Close() })
	addr, err := server.Listen("127.0.0.1:0")
	if err != nil {
		tb.Fatalf("cannot listen for Firestore: %v", err)
	}
	c.Firestore, c.Endpoint = server, addr.String()
}

// hotIndex returns a function that fails the test if the tested service stores a time in an index
// that all documents in a collection share. It reports each field once.
func (o Options) hotIndex(tb testing.TB) func(collection, field string) {
	if !o.Complete {
		return nil
	}
	var told sync.Map
	return func(collection, field string) {
		if slices.Contains(o.Rare, collection+"."+field) {
			return
		}
		if _, before := told.LoadOrStore(collection+"."+field, true); !before {
			tb.Errorf("%s.%s increases over time and has an index that all documents share, which limits the collection to 500 writes per second; "+
				"exempt it in firestore.indexes.json, or put a bucket or an account before it in the index", collection, field)
		}
	}
}

func (c *Cloud) startStorage(tb testing.TB, o Options) {
	tb.Helper()
	// The configuration needs the addresses, so open the listeners first. The listeners cannot
	// respond before the server exists.
	var handlers [2]http.Handler
	servers := [2]*httptest.Server{}
	for i := range servers {
		servers[i] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handlers[i].ServeHTTP(w, r) }))
		tb.Cleanup(servers[i].Close)
	}
	c.PublicURL, c.APIURL = servers[0].URL, servers[1].URL
	so := storage.Options{Dir: tb.TempDir(), Buckets: o.Buckets, PublicURL: c.PublicURL, APIURL: c.APIURL, Clock: o.Clock, Key: ServiceAccountKey(), Token: o.Token}
	if o.Storage != nil {
		o.Storage(&so)
	}
	server, err := storage.Open(so)
	if err != nil {
		tb.Fatalf("cannot start storage: %v", err)
	}
	tb.Cleanup(func() {
		for _, s := range servers {
			s.CloseClientConnections() // aborts uploads that the test left unfinished
		}
		_ = server.Close()
	})
	handlers = [2]http.Handler{server.PublicHandler(), server.APIHandler()}
	c.Storage, c.Key = server, server.ServiceAccountKey()
}

// Client returns Google's Firestore client. The connection closes when the test ends.
func (c *Cloud) Client(tb testing.TB) *gcfirestore.Client {
	tb.Helper()
	client, err := c.Firestore.Client(tb.Context(), Project)
	if err != nil {
		tb.Fatalf("cannot create a Firestore client: %v", err)
	}
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// ServiceAccountKey returns the key of every storage that [Start] runs. All of them share one key
// because creating a key takes longer than most tests.
var ServiceAccountKey = sync.OnceValue(func() []byte {
	dir, err := os.MkdirTemp("", "localcloud-key-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // best effort: leftover temporary files are harmless
	s, err := storage.Open(storage.Options{Dir: dir})
	if err != nil {
		panic(err)
	}
	defer func() { _ = s.Close() }()
	return s.ServiceAccountKey()
})
