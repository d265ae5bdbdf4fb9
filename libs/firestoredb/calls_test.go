package firestoredb_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

// A call that bypasses Do and sets no deadline still returns.
func TestACallWithoutADeadlineEnds(t *testing.T) {
	t.Parallel()
	cloud := cloudtest.Start(t, cloudtest.Options{})
	cloud.Firestore.Faults().Add(firestore.Fault{Delay: time.Hour})
	db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: cloudtest.Project, Endpoint: cloud.Endpoint, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	things := db.Collection("things")
	for name, call := range map[string]func() error{
		"read":  func() error { _, err := things.Doc("a").Get(context.Background()); return err },
		"query": func() error { _, err := things.Documents(context.Background()).GetAll(); return err },
		"write": func() error {
			_, err := things.Doc("a").Set(context.Background(), map[string]any{"x": 1})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			if err := call(); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("got %v, want DeadlineExceeded", err)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("the call took %v, want at most 30s", took)
			}
		})
	}
}
