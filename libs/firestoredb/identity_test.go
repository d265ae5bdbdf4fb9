package firestoredb_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
)

func TestADatabaseHasOneIdentityWhoeverAsksFirst(t *testing.T) {
	t.Parallel()
	open := func(endpoint, name string) *firestoredb.DB {
		db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: cloudtest.Project, Database: name, Endpoint: endpoint})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	ask := func(db *firestoredb.DB) string {
		id, err := db.Identity(t.Context())
		if err != nil {
			t.Error(err)
		}
		return id
	}
	cloud := cloudtest.Start(t, cloudtest.Options{})
	db := open(cloud.Endpoint, "")
	if id, err := db.Peek(t.Context()); id != "" || err != nil || cloud.Firestore.Stats().Writes > 0 {
		t.Errorf("Peek at an empty database = %q, %v after %d writes, want an empty string and no writes", id, err, cloud.Firestore.Stats().Writes)
	}
	var wg sync.WaitGroup
	got := make([]string, 8)
	for i := range got {
		wg.Go(func() { got[i] = ask(db) })
	}
	wg.Wait()
	for _, id := range got {
		if id != got[0] || !strings.HasPrefix(id, "projects/"+cloudtest.Project+"/databases/(default)#db_") {
			t.Errorf("identities = %q, want the same name and id for all callers", got)
			break
		}
	}
	if id, err := db.Peek(t.Context()); id != got[0] || err != nil {
		t.Errorf("Peek = %q, %v, want %q", id, err, got[0])
	}
	// Another process may write the identity just after Peek has found none.
	if id, err := db.PeekAfterReadForTest(t.Context()); err != nil || !strings.HasSuffix(got[0], "#"+id) || id == "" {
		t.Errorf("Peek during the first use = %q, %v, want the id of %q", id, err, got[0])
	}
	if other := ask(open(cloudtest.Start(t, cloudtest.Options{}).Endpoint, "")); other == got[0] {
		t.Errorf("identity of another empty database = %q, want a different one", other)
	}
}

// Every call fails while the records have a different format, even if the service has not asked for
// the identity first.
func TestADatabaseOfAnotherFormatIsRefused(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]map[string]any{
		"record without a format number": {"installation/database": map[string]any{"id": "db_1"}},
		"record without a database id":   {"links/1": map[string]any{"url": "https://example.com/"}},
		"undecodable id":                 {"installation/database": map[string]any{"id": 7}},
		"later build's format":           {"installation/database": map[string]any{"id": "db_1", "format": firestoredb.Format + 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud := cloudtest.Start(t, cloudtest.Options{})
			raw := cloud.Client(t)
			for path, doc := range before {
				if _, err := raw.Doc(path).Set(t.Context(), doc); err != nil {
					t.Fatal(err)
				}
			}
			writes := cloud.Firestore.Stats().Writes
			db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: cloudtest.Project, Endpoint: cloud.Endpoint, Timeout: 20 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			called := false
			for what, err := range map[string]error{
				"read":    db.Do(t.Context(), "read", func(context.Context) error { called = true; return nil }),
				"commit":  db.Commit(t.Context(), "commit", create(db.Doc("links/2"))),
				"waiting": db.AwaitFormat(t.Context()),
				"a peek":  func() error { _, err := db.Peek(t.Context()); return err }(),
			} {
				if !errors.Is(err, firestoredb.ErrFormat) {
					t.Errorf("%s: got %v, want %v", what, err, firestoredb.ErrFormat)
				}
			}
			if n := cloud.Firestore.Stats().Writes - writes; called || n != 0 {
				t.Errorf("called = %v with %d writes, want no calls and no writes", called, n)
			}
		})
	}
}
