package waiting

import (
	"strconv"
	"testing"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
)

// Not parallel because it changes maxCount.
func TestACountStopsAtItsBound(t *testing.T) {
	cloud := cloudtest.Start(t, cloudtest.Options{})
	db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: cloudtest.Project, Endpoint: cloud.Endpoint})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for i := range 5 {
		if err := db.Create(t.Context(), "create thing", db.Ref("things", strconv.Itoa(i)), map[string]any{"n": i}); err != nil {
			t.Fatal(err)
		}
	}
	things := db.Collection("things").Query
	count := Count(db, "things", func() []firestore.Query { return []firestore.Query{things, things} })
	if n, err := count(t.Context()); n != 10 || err != nil {
		t.Errorf("Count = %d, %v; want 10", n, err)
	}
	defer func(before int) { maxCount = before }(maxCount)
	maxCount = 3
	if n, err := count(t.Context()); n != 6 || err != nil {
		t.Errorf("Count = %d, %v; want at most 3 from each query", n, err)
	}
}
