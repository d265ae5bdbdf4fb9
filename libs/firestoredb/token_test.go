package firestoredb_test

import (
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
)

func TestALocalFirestoreIsShownTheFirstToken(t *testing.T) {
	t.Parallel()
	older, newer, newest := strings.Repeat("o", 32), strings.Repeat("n", 32), strings.Repeat("v", 32)
	cloud := cloudtest.Start(t, cloudtest.Options{Token: newer + "," + older})
	for token, works := range map[string]bool{newer: true, older: true, newer + "," + newest: true, newest + "," + newer: false, newest: false, "": false} {
		db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: cloudtest.Project, Endpoint: cloud.Endpoint, Token: token, Timeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Identity(t.Context()); (err == nil) != works {
			t.Errorf("call with the token %q: error %v, want success = %v", token, err, works)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
