package objectstore_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/linkreel/linkreel/libs/objectstore"
)

// Records refer to objects by generation, so the generations of moved objects must not change.
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
		t.Fatalf("Stat = %+v, %v, want generation 42 and the moved object's origin", got, err)
	}
	for x, err := range c.List(t.Context(), "") {
		if err != nil || x.Generation != 42 || x.Moved == nil {
			t.Errorf("List = %+v, %v, want generation 42", x, err)
		}
	}
	for generation, want := range map[int64]error{0: nil, 42: nil, 41: objectstore.ErrNotFound} {
		var b bytes.Buffer
		if _, err := c.Download(t.Context(), "film", generation, &b); !errors.Is(err, want) || err == nil && b.String() != "film" {
			t.Errorf("Download for generation %d = %q, %v, want film for 0 and 42, and ErrNotFound for 41", generation, b.String(), err)
		}
	}
	if err := c.Delete(t.Context(), "film", 41); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stat(t.Context(), "film"); err != nil {
		t.Errorf("Stat after deleting a different generation: got %v, want the object", err)
	}
	if err := c.Delete(t.Context(), "film", 42); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stat(t.Context(), "film"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("Stat after deleting it: got %v, want ErrNotFound", err)
	}
	// A file that replaces a moved file is newer, regardless of the moved file's metadata.
	if _, err := c.Upload(t.Context(), "film", bytes.NewReader([]byte("new")), objectstore.UploadOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Stat(t.Context(), "film"); err != nil || got.Generation <= 42 || got.Moved != nil {
		t.Errorf("Stat of the new object = %+v, %v, want a generation above 42", got, err)
	}
}
