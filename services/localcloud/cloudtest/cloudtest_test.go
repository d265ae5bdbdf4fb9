package cloudtest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	gcfirestore "cloud.google.com/go/firestore"
	gcs "cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
)

// This shows a typical test with its own cloud and unmodified Google clients.
func TestWithACloudOfItsOwn(t *testing.T) {
	t.Parallel()
	cloud := cloudtest.Start(t, cloudtest.Options{Buckets: []string{"media"}})

	db := cloud.Client(t)
	if _, err := db.Doc("links/spring").Set(t.Context(), map[string]any{"clicks": 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Doc("links/spring").Update(t.Context(), []gcfirestore.Update{{Path: "clicks", Value: gcfirestore.Increment(2)}}); err != nil {
		t.Fatal(err)
	}
	if snap, err := db.Doc("links/spring").Get(t.Context()); err != nil || snap.Data()["clicks"] != int64(3) {
		t.Errorf("the document is %v (error %v), want 3 clicks", snap.Data(), err)
	}

	bucket, err := gcs.NewClient(t.Context(), option.WithEndpoint(cloud.APIURL+"/storage/v1/"), option.WithoutAuthentication(), gcs.WithJSONReads())
	if err != nil {
		t.Fatal(err)
	}
	defer bucket.Close()
	w := bucket.Bucket("media").Object("hello.txt").NewWriter(t.Context())
	if _, err := io.WriteString(w, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// A query without its index must fail as in production.
func TestIndexesAreEnforced(t *testing.T) {
	t.Parallel()
	const none = `{"indexes": []}`
	db := cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{[]byte(none)}}).Client(t)
	_, err := db.Collection("links").Where("owner", "==", "a").OrderBy("createdAt", gcfirestore.Desc).Documents(t.Context()).GetAll()
	if err == nil || !strings.Contains(err.Error(), "FailedPrecondition") {
		t.Errorf("a query without an index returned %v, want FailedPrecondition", err)
	}
}

// The servers must use the test's clock.
func TestTheClockIsTheTests(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	cloud := cloudtest.Start(t, cloudtest.Options{Buckets: []string{"media"}, Clock: func() time.Time { return now }})
	resp, err := http.Get(cloud.PublicURL + "/media/x?X-Goog-Algorithm=GOOG4-RSA-SHA256")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusBadRequest {
		t.Errorf("an unsigned read returned %s, want 400 or 403", resp.Status)
	}
	snap, err := cloud.Client(t).Doc("a/b").Set(t.Context(), map[string]any{"x": 1})
	if err != nil || snap.UpdateTime.Year() != 2030 {
		t.Errorf("the document is %v (error %v), want an update time in 2030", snap, err)
	}
}
