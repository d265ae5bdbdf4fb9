package move_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gc "cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/services/localcloud/backup"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/guard"
	"github.com/linkreel/linkreel/services/localcloud/storage"
	"github.com/linkreel/linkreel/services/standalone/internal/move"
)

const token = "0123456789abcdef0123456789abcdef"

// world is a source and an empty target.
type world struct {
	t      *testing.T
	source move.Source
	db     *gc.Client // of the source
	api    string     // of the source's storage
	target *cloudtest.Cloud
	there  *gc.Client // of the target
}

func start(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	records, err := firestore.Open(firestore.Options{Path: filepath.Join(dir, "firestore.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = records.Close() })
	w := &world{t: t, target: cloudtest.Start(t, cloudtest.Options{Buckets: []string{"there"}})}
	if w.db, err = records.Client(t.Context(), "here"); err != nil {
		t.Fatal(err)
	}
	w.there = w.target.Client(t)
	objects, err := storage.Open(storage.Options{Dir: filepath.Join(dir, "objects"), Buckets: []string{"media", "other"}, Key: cloudtest.ServiceAccountKey()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = objects.Close() })
	tokens, err := guard.Parse(token)
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(objects.APIHandler())
	state := httptest.NewServer((&backup.Source{Records: records, Objects: objects, Tokens: tokens, Stop: t.Context()}).Handler())
	t.Cleanup(func() { api.Close(); state.Close() })
	w.api = api.URL
	w.source = move.Source{URL: state.URL, Token: token, Database: "projects/here/databases/(default)", Bucket: "media"}
	w.set("installation/database", map[string]any{"id": "db_1", "format": firestoredb.Format})
	return w
}

func (w *world) set(path string, fields map[string]any) {
	w.t.Helper()
	if _, err := w.db.Doc(path).Set(w.t.Context(), fields); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) put(bucket, name, content string) {
	w.t.Helper()
	w.call(http.MethodPost, "/upload/storage/v1/b/"+bucket+"/o?uploadType=media&name="+name, content)
}

func (w *world) call(method, path, body string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.api+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		w.t.Fatalf("%s %s = %s", method, path, resp.Status)
	}
}

// move returns the move with the given id as a new process would open it.
func (w *world) move(id string) *move.Move {
	w.t.Helper()
	records, err := firestoredb.OpenDocuments(w.t.Context(), firestoredb.Config{Project: cloudtest.Project, Endpoint: w.target.Endpoint, Timeout: 20 * time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = records.Close() })
	objects, err := objectstore.Open(w.t.Context(), objectstore.Config{Bucket: "there", PublicURL: w.target.PublicURL, Endpoint: w.target.APIURL, Key: w.target.Key, Timeout: 20 * time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = objects.Close() })
	return &move.Move{ID: id, From: w.source, Records: records, Objects: objects, Ordered: []string{"events"}}
}

// run begins a move, makes one pass and verifies it.
func run(t *testing.T, m *move.Move) (move.Changes, move.Totals) {
	t.Helper()
	if err := m.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := m.Pass(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	totals, err := m.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c, totals
}

func (w *world) fields(path string) map[string]any {
	w.t.Helper()
	snap, err := w.there.Doc(path).Get(w.t.Context())
	if err != nil {
		w.t.Fatalf("%s in the target: %v", path, err)
	}
	return snap.Data()
}

func TestAMoveIsExactThroughFaults(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.set("links/a", map[string]any{"to": w.db.Doc("links/b"), "all": []any{map[string]any{"to": w.db.Doc("links/b/days/1")}}})
	w.set("links/b/days/1", map[string]any{"n": 1})
	for i := range 600 {
		w.set(fmt.Sprintf("many/%d", i), map[string]any{"n": i, "b": bytes.Repeat([]byte{1}, i)})
	}
	w.put("media", "film", "film")
	w.put("media", "large", strings.Repeat("large ", 1<<20))
	w.put("media", "linkreel/owner", "of the source")
	w.put("other", "film", "of another bucket")
	faults := w.target.Firestore.Faults()
	faults.Add(firestore.Fault{Methods: []string{"Commit"}, Every: 3, Times: 2, Code: codes.ResourceExhausted})
	faults.Add(firestore.Fault{Methods: []string{"Commit"}, Every: 2, Times: 2, LoseAnswer: true})
	faults.Add(firestore.Fault{Methods: []string{"RunQuery"}, Every: 2, Times: 1, Code: codes.Unavailable})
	w.target.Storage.Faults().Inject(storage.Fault{Call: "objects.insert", Times: 2, Status: 503})

	m := w.move("m1")
	first, totals := run(t, m)
	if first.Records != 602 || totals.Records != 602 || totals.Objects != 2 {
		t.Errorf("the first pass = %+v with the totals %+v, want 602 records and 2 objects", first, totals)
	}
	to := "projects/" + cloudtest.Project + "/databases/(default)/documents/links/b"
	a := w.fields("links/a")
	if got := a["to"].(*gc.DocumentRef).Path; got != to {
		t.Errorf("a reference has the path %s, want %s", got, to)
	}
	if got := a["all"].([]any)[0].(map[string]any)["to"].(*gc.DocumentRef).Path; got != to+"/days/1" {
		t.Errorf("a nested reference has the path %s, want %s/days/1", got, to)
	}
	if o, err := m.Objects.Stat(t.Context(), "film"); err != nil || o.Moved == nil || o.Generation != o.Moved.Generation {
		t.Errorf("Stat of a moved object = %+v, %v, want its generation in the source", o, err)
	}

	// Another process must copy only the differences: a changed and a deleted record, and two
	// objects.
	w.set("many/1", map[string]any{"n": -1})
	if _, err := w.db.Doc("many/2").Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.put("media", "film", "a new film")
	w.call(http.MethodDelete, "/storage/v1/b/media/o/large", "")
	m = w.move("m1")
	second, totals := run(t, m)
	if want := (move.Changes{Records: 1, Deleted: 1, Objects: 2, Bytes: 10}); second != want {
		t.Errorf("the second pass = %+v, want %+v", second, want)
	}
	if totals.Records != 601 || totals.Objects != 1 || totals.Bytes != 10 {
		t.Errorf("the totals are %+v, want 601 records and 1 object with 10 bytes", totals)
	}
	var film strings.Builder
	if _, err := m.Objects.Download(t.Context(), "film", 0, &film); err != nil || film.String() != "a new film" {
		t.Errorf("the moved object is %q (error %v), want a new film", film.String(), err)
	}

	// Services must be able to use the target only after Finish.
	db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: cloudtest.Project, Endpoint: w.target.Endpoint, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Identity(t.Context()); !errors.Is(err, firestoredb.ErrFormat) {
		t.Errorf("Identity during the move = %v, want ErrFormat", err)
	}
	if err := m.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	identity, err := db.Identity(t.Context())
	if err != nil || !strings.HasSuffix(identity, "#db_1") {
		t.Errorf("the identity is %s (error %v), want the source's identity", identity, err)
	}
	if err := m.Objects.Claim(t.Context(), identity); err != nil {
		t.Errorf("claiming the bucket = %v, want no error", err)
	}
	if err := w.move("m1").Begin(t.Context()); !errors.Is(err, move.ErrFinished) {
		t.Errorf("Begin after Finish = %v, want ErrFinished", err)
	}
}

// A killed Finish has given the target its identity, but has left its mark in the bucket. The next
// Begin must remove this mark, but not one from a different move.
func TestAKilledFinishLeavesNoMark(t *testing.T) {
	t.Parallel()
	w := start(t)
	m := w.move("m1")
	run(t, m)
	died := errors.New("killed")
	m.Step = func(what string) {
		if what == "finished" {
			panic(died)
		}
	}
	func() {
		defer func() {
			if got := recover(); got != died { //nolint:errorlint // the value of the panic above
				t.Errorf("Finish ended with %v, want %v", got, died)
			}
		}()
		_ = m.Finish(t.Context()) // panics
	}()
	mark := func() string {
		t.Helper()
		var id strings.Builder
		if _, err := m.Objects.Download(t.Context(), "linkreel/move", 0, &id); err != nil && !errors.Is(err, objectstore.ErrNotFound) {
			t.Fatal(err)
		}
		return id.String()
	}
	if got := mark(); got != "m1" {
		t.Fatalf("after the kill, the mark is %q, want m1", got)
	}
	for _, other := range []string{"", "m2"} {
		if other != "" {
			if _, err := m.Objects.Upload(t.Context(), "linkreel/move", strings.NewReader(other), objectstore.UploadOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.move("m1").Begin(t.Context()); !errors.Is(err, move.ErrFinished) {
			t.Errorf("Begin = %v, want ErrFinished", err)
		}
		if got := mark(); got != other {
			t.Errorf("after Begin, the mark is %q, want %q", got, other)
		}
	}
}

func TestAPassContinuesAfterStorageWasUnavailable(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.set("links/a", map[string]any{"n": 1})
	w.put("media", "large", strings.Repeat("large ", 1<<20))
	m := w.move("m1")
	objects, err := objectstore.Open(t.Context(), objectstore.Config{
		Bucket: "there", PublicURL: w.target.PublicURL, Endpoint: w.target.APIURL, Key: w.target.Key, Timeout: 20 * time.Second, StallTimeout: 2 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = objects.Close() })
	m.Objects = objects
	var uploads atomic.Int64
	m.Step = func(what string) {
		if what != "upload" {
			return
		}
		if uploads.Add(1) == 1 {
			w.target.Storage.Faults().Inject(storage.Fault{Call: "objects.insert", Status: 503})
		} else {
			w.target.Storage.Faults().Reset()
		}
	}
	did, totals := run(t, m)
	if did.Objects != 1 || did.Bytes != 6<<20 || totals.Objects != 1 || totals.Bytes != 6<<20 {
		t.Errorf("the pass = %+v with the totals %+v, want one object of 6 MiB", did, totals)
	}
	if n := uploads.Load(); n != 2 {
		t.Errorf("the pass started %d uploads, want 2", n)
	}
}

// Events without a position in the feed must receive one in the order of their creation times.
func TestEventsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	w := start(t)
	var want []string
	for i := range 40 {
		name := fmt.Sprintf("evt_%02d", 39-i)
		want = append(want, name)
		w.set("events/"+name, map[string]any{"n": i})
	}
	run(t, w.move("m1"))
	docs, err := w.there.Collection("events").Documents(t.Context()).GetAll()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(docs, func(a, b *gc.DocumentSnapshot) int { return a.CreateTime.Compare(b.CreateTime) })
	var got []string
	for _, d := range docs {
		got = append(got, d.Ref.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
}

func TestATargetThatIsInUseIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(w *world){
		"a document": func(w *world) {
			if _, err := w.there.Doc("a/b/c/d").Set(t.Context(), map[string]any{}); err != nil {
				t.Fatal(err)
			}
		},
		"an object": func(w *world) {
			if _, err := w.move("x").Objects.Upload(t.Context(), "film", strings.NewReader("film"), objectstore.UploadOptions{}); err != nil {
				t.Fatal(err)
			}
		},
		"another move": func(w *world) { run(t, w.move("m2")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			w.put("media", "film", "other")
			use(w)
			if err := w.move("m1").Begin(t.Context()); err == nil || !strings.Contains(err.Error(), "Use a new") {
				t.Errorf("Begin = %v, want an error with advice", err)
			}
			if name == "an object" {
				var film strings.Builder
				if _, err := w.move("x").Objects.Download(t.Context(), "film", 0, &film); err != nil || film.String() != "film" {
					t.Errorf("the object in the target is %q (error %v), want no change", film.String(), err)
				}
			}
		})
	}
}

func TestVerifyFindsWhatDiffers(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(w *world, m *move.Move) error{
		"a changed document": func(w *world, _ *move.Move) error {
			_, err := w.there.Doc("links/a").Set(t.Context(), map[string]any{"n": 2})
			return err
		},
		"a missing document": func(w *world, _ *move.Move) error {
			_, err := w.there.Doc("links/a").Delete(t.Context())
			return err
		},
		"an additional document": func(w *world, _ *move.Move) error {
			_, err := w.there.Doc("links/b").Set(t.Context(), map[string]any{"n": 1})
			return err
		},
		"a missing object": func(_ *world, m *move.Move) error { return m.Objects.Delete(t.Context(), "film", 0) },
		"an additional object": func(_ *world, m *move.Move) error {
			_, err := m.Objects.Upload(t.Context(), "film2", strings.NewReader("film"), objectstore.UploadOptions{})
			return err
		},
		"a changed object": func(_ *world, m *move.Move) error {
			_, err := m.Objects.Upload(t.Context(), "film", strings.NewReader("mlif"), objectstore.UploadOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			w.set("links/a", map[string]any{"n": 1})
			w.put("media", "film", "film")
			m := w.move("m1")
			run(t, m)
			if err := spoil(w, m); err != nil {
				t.Fatal(err)
			}
			if totals, err := m.Verify(t.Context()); err == nil || !strings.Contains(err.Error(), "verify: ") {
				t.Errorf("Verify = %+v, %v, want an error", totals, err)
			}
			// A pass by another process must repair the target.
			run(t, w.move("m1"))
		})
	}
}
