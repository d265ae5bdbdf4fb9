package firestoredb_test

import (
	"strings"
	"sync"
	"testing"

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
	var wg sync.WaitGroup
	got := make([]string, 8)
	for i := range got {
		wg.Go(func() { got[i] = ask(db) })
	}
	wg.Wait()
	for _, id := range got {
		if id != got[0] || !strings.HasPrefix(id, "projects/"+cloudtest.Project+"/databases/(default)#db_") {
			t.Errorf("identities %q", got)
			break
		}
	}
	if other := ask(open(cloudtest.Start(t, cloudtest.Options{}).Endpoint, "")); other == got[0] {
		t.Errorf("an empty database of the same name is %q as well", other)
	}
}
