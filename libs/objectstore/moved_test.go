package objectstore_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/linkreel/linkreel/libs/objectstore"
)

// Records name their objects by generation, so the generations of moved objects must not
// change.
func TestAMovedObjectKeepsItsGeneration(t *testing.T) {
	t.Parallel()
	c, absent := open(t, nil), int64(0)
	o := objectstore.UploadOptions{ContentType: "video/mp4", IfGeneration: &absent, Moved: &objectstore.Moved{Generation: 42, Of: "blob"}}
	for range 2 { // the second upload repeats the first
		if _, err := c.Upload(t.Context(), "film", bytes.NewReader([]byte("film")), o); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.Stat(t.Context(), "film")
	if err != nil || got.Generation != 42 || got.Moved == nil || *got.Moved != *o.Moved {
		t.Fatalf("the object is %+v, %v", got, err)
	}
	for x, err := range c.List(t.Context(), "") {
		if err != nil || x.Generation != 42 || x.Moved == nil {
			t.Errorf("the list has %+v, %v", x, err)
		}
	}
	for generation, want := range map[int64]error{0: nil, 42: nil, 41: objectstore.ErrNotFound} {
		var b bytes.Buffer
		if _, err := c.Download(t.Context(), "film", generation, &b); !errors.Is(err, want) || err == nil && b.String() != "film" {
			t.Errorf("generation %d is %q, %v", generation, b.String(), err)
		}
	}
	if err := c.Delete(t.Context(), "film", 41); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stat(t.Context(), "film"); err != nil {
		t.Errorf("the delete of another generation: %v", err)
	}
	if err := c.Delete(t.Context(), "film", 42); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stat(t.Context(), "film"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("after the delete: %v", err)
	}
	// A file that replaces a moved one is newer than it, whatever is in its metadata.
	if _, err := c.Upload(t.Context(), "film", bytes.NewReader([]byte("new")), objectstore.UploadOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Stat(t.Context(), "film"); err != nil || got.Generation <= 42 || got.Moved != nil {
		t.Errorf("the new object is %+v, %v", got, err)
	}
}
