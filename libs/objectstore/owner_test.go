package objectstore_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
)

func TestOneDatabaseOfManyOwnsABucket(t *testing.T) {
	t.Parallel()
	cloud := cloudtest.Start(t, cloudtest.Options{Buckets: []string{"media"}})
	store, err := objectstore.Open(t.Context(), objectstore.Config{Bucket: "media", PublicURL: cloud.PublicURL, Endpoint: cloud.APIURL, Key: cloud.Key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if owner, err := store.Owner(t.Context()); owner != "" || err != nil {
		t.Fatalf("Owner of a new bucket = %q, %v, want none", owner, err)
	}
	var wg sync.WaitGroup
	answers := make([]error, 8)
	for i := range answers {
		wg.Go(func() { answers[i] = store.Claim(t.Context(), "database "+string(rune('a'+i))) })
	}
	wg.Wait()
	owner, err := store.Owner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range answers {
		mine := strings.HasSuffix(owner, string(rune('a'+i)))
		if mine != (err == nil) || !mine && !errors.Is(err, objectstore.ErrForeign) {
			t.Errorf("Owner = %q, but Claim for database %c returned %v; want success only for the owner", owner, 'a'+i, err)
		}
	}
	if err := store.Claim(t.Context(), owner); err != nil {
		t.Errorf("second Claim by the owner: got %v, want no error", err)
	}
	// A bad edit has damaged the owner object.
	for _, text := range []string{"", owner + "\n", strings.Repeat("x", 5000)} {
		if _, err := store.Upload(t.Context(), objectstore.OwnerObject, strings.NewReader(text), objectstore.UploadOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := store.Claim(t.Context(), owner); !errors.Is(err, objectstore.ErrForeign) {
			t.Errorf("Claim with the owner object %.60q: got %v, want ErrForeign", text, err)
		}
	}
}
