package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/localcloud/backup"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/guard"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// opened is a running localcloud on a restored data directory.
type opened struct {
	*firestore.Server
	objects *httptest.Server
}

func open(t *testing.T, d localcloudDir) opened {
	t.Helper()
	records, err := firestore.Open(firestore.Options{Path: d.records(), TTLInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = records.Close() })
	objects, err := storage.Open(storage.Options{Dir: d.storage(), ObjectsDir: d.objects})
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(objects.APIHandler())
	t.Cleanup(func() { api.Close(); _ = objects.Close() })
	return opened{records, api}
}

func (o opened) document(t *testing.T, path string) bool {
	t.Helper()
	db, err := o.Client(t.Context(), project)
	if err != nil {
		t.Fatal(err)
	}
	found, err := db.Doc(path).Get(t.Context())
	return err == nil && found.Exists()
}

func (o opened) object(t *testing.T, name string) int {
	t.Helper()
	code, _ := ask(t, http.MethodGet, o.objects.URL+"/storage/v1/b/"+bucket+"/o/"+strings.ReplaceAll(name, "/", "%2F")+"?alt=media", "", "")
	return code
}

// The test does what the chart's CronJob and init container do. It makes a backup over the
// network with a token and restores it into a localcloud's volumes. It also repeats a restore,
// interrupts a restore, and tries to restore into a volume that is not empty.
func TestAPodRestoresItsVolume(t *testing.T) {
	t.Parallel()
	data, dir := t.TempDir(), t.TempDir()
	s := up(t, data)
	r := s.give(t, 1)
	must(t, "", http.MethodPost, s.BaseURL+"/api/v1/webhooks", s.Keys["business"], `{"url":"http://127.0.0.1:65000/hook","events":["key.created"]}`)
	for _, name := range []string{"uploads/vid1/source", "videos/vid2/1-1/0.mp4", "videos/vid3/captions/en-x.vtt"} {
		if put := s.storageAPI(t, "POST", "/upload/storage/v1/b/"+bucket+"/o?uploadType=media&name="+name, "bytes of "+name, s.cloudToken); put.StatusCode != http.StatusOK {
			t.Fatalf("store an object: %s", put.Status)
		}
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(s.BackupToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]BackupOptions{
		"no token file": {From: s.BackupURL}, "an invalid URL": {From: "localcloud:8087", TokenFile: token}, "a missing file": {From: s.BackupURL, TokenFile: token + "x"},
	} {
		o.Dir = dir
		if err := Backup(t.Context(), io.Discard, o); err == nil {
			t.Errorf("a backup with %s succeeded, want an error", name)
		}
	}
	if err := Backup(t.Context(), io.Discard, BackupOptions{Dir: dir, From: s.BackupURL, TokenFile: token}); err != nil {
		t.Fatal(err)
	}
	s.take(t, r)
	key := s.secrets.WebhookKey
	down(t, s)

	to := localcloudDir{filepath.Join(t.TempDir(), "data"), t.TempDir()}
	o := RestoreOptions{Dir: dir, Localcloud: to.data, ObjectsDir: to.objects, Audit: filepath.Join(data, auditDir)}
	var said strings.Builder
	if err := Restore(t.Context(), &said, o); err == nil || !strings.Contains(err.Error(), webhookKey) || !strings.Contains(err.Error(), "--without-keys") {
		t.Fatalf("a restore without the key returned %v, want an error with the setting and --without-keys", err)
	}
	o.Env = map[string]string{webhookKey: key}
	t.Run("interrupted", func(t *testing.T) {
		half, err := firestore.Open(firestore.Options{Path: to.records(), Restoring: true, TTLInterval: -1})
		if err != nil {
			t.Fatal(err)
		}
		objects, err := storage.NewRestore(storage.Options{Dir: to.storage(), ObjectsDir: to.objects})
		if err := errors.Join(err, objects.Close(), half.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := firestore.Open(firestore.Options{Path: to.records()}); err == nil {
			t.Fatal("Open of an incomplete restore succeeded, want an error")
		}
	})
	if err := Restore(t.Context(), &said, o); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	for _, id := range []string{r.keys[0], r.removed[0], r.lowered[0], r.suspended[0], r.erased[0], r.links[0]} {
		if !strings.Contains(said.String(), id) {
			t.Errorf("the restore printed %s, want it to contain %s", said.String(), id)
		}
	}
	said.Reset()
	if err := Restore(t.Context(), &said, o); err != nil || !strings.Contains(said.String(), "Nothing to do") {
		t.Errorf("repeating the restore returned %v and printed %s, want no error and \"Nothing to do\"", err, said.String())
	}
	other := o
	other.Name = "2020-01-01T00-00-00.000Z"
	if err := Restore(t.Context(), io.Discard, other); err == nil || !strings.Contains(err.Error(), "empty volume") {
		t.Errorf("restoring a different backup returned %v, want an error about an empty volume", err)
	}
	first, err := backup.Newest(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a later restore with a newer backup", func(t *testing.T) {
		s := up(t, data)
		if err := os.WriteFile(token, []byte(s.BackupToken), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Backup(t.Context(), io.Discard, BackupOptions{Dir: dir, From: s.BackupURL, TokenFile: token}); err != nil {
			t.Fatal(err)
		}
		down(t, s)
		newest, err := backup.Newest(dir)
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		if err := Restore(t.Context(), &said, o); err != nil || !strings.Contains(said.String(), newest+", was made after that restore") {
			t.Errorf("with a later backup, Restore returned %v and printed %s, want a notice about the backup", err, said.String())
		}
		again := o
		again.Name = newest
		if err := Restore(t.Context(), io.Discard, again); err == nil || !strings.Contains(err.Error(), newest) || !strings.Contains(err.Error(), first) {
			t.Errorf("restoring the newest backup into the volume from an earlier restore returned %v, want an error with both names", err)
		}
		again.Name = first
		said.Reset()
		if err := Restore(t.Context(), &said, again); err != nil || !strings.Contains(said.String(), "Nothing to do") || strings.Contains(said.String(), newest) {
			t.Errorf("repeating the restore of the earlier backup returned %v and printed %s, want no error and \"Nothing to do\"", err, said.String())
		}
		passed := RestoreOptions{Dir: dir, Name: first, Localcloud: t.TempDir(), Audit: o.Audit, Env: o.Env}
		said.Reset()
		if err := Restore(t.Context(), &said, passed); err != nil || !strings.Contains(said.String(), "The newest backup is "+newest+". It was not restored") {
			t.Fatalf("a restore of the earlier backup returned %v and printed %s, want a notice about the newest backup", err, said.String())
		}
		passed.Name = ""
		said.Reset()
		if err := Restore(t.Context(), &said, passed); err != nil || !strings.Contains(said.String(), newest+", already existed") {
			t.Errorf("after restoring a named older backup, Restore returned %v and printed %s, want a notice about the newest backup", err, said.String())
		}
		again.Name, again.Dir = "", filepath.Join(dir, "away") // the pod starts even though its backups are missing
		if err := Restore(t.Context(), io.Discard, again); err != nil {
			t.Errorf("a repeated restore without the backups returned %v, want no error", err)
		}
	})
	o.Name = first
	served := open(t, to)
	if !served.document(t, "accounts/"+r.suspended[0]) || served.object(t, "videos/vid2/1-1/0.mp4") != http.StatusOK {
		t.Error("the restored localcloud does not contain both the account and the object")
	}
	if err := Restore(t.Context(), io.Discard, o); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a restore into a running localcloud returned %v, want an error", err)
	}
	if used := (localcloudDir{data: t.TempDir()}); open(t, used).Server != nil {
		if err := Restore(t.Context(), io.Discard, RestoreOptions{Dir: dir, Localcloud: used.data, Env: o.Env}); err == nil {
			t.Error("a restore into a used localcloud's volume succeeded, want an error")
		}
	}

	t.Run("only the records exist", func(t *testing.T) {
		kept := localcloudDir{data: t.TempDir()}
		records, err := firestore.Open(firestore.Options{Path: kept.records(), TTLInterval: -1})
		if err != nil {
			t.Fatal(err)
		}
		db, err := records.Client(t.Context(), project)
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.Doc("accounts/kept").Set(t.Context(), map[string]any{"n": 1})
		if err := errors.Join(err, records.Close()); err != nil {
			t.Fatal(err)
		}
		if err := Restore(t.Context(), io.Discard, RestoreOptions{Dir: dir, Localcloud: kept.data, Env: o.Env}); err == nil || !strings.Contains(err.Error(), "already contains records") {
			t.Errorf("a restore into a directory with other records returned %v, want an error about them", err)
		}
		if info, err := os.Stat(kept.records()); err != nil || info.Size() == 0 {
			t.Errorf("the refused restore removed the existing records: %v", err)
		}
	})
	t.Run("only the objects exist", func(t *testing.T) {
		again := RestoreOptions{Dir: dir, Localcloud: t.TempDir(), ObjectsDir: to.objects, Env: o.Env}
		if err := Restore(t.Context(), io.Discard, again); err != nil {
			t.Error(err)
		}
	})
	t.Run("damaged objects and a lost key", func(t *testing.T) {
		m, err := backup.Read(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range m.Objects {
			if err := os.Remove(filepath.Join(dir, "objects", f.Name)); err != nil {
				t.Fatal(err)
			}
		}
		var said strings.Builder
		o := RestoreOptions{Dir: dir, Localcloud: t.TempDir(), WithoutKeys: true, Verify: true, Env: map[string]string{webhookKey: strings.Repeat("n", 32)}}
		if err := Restore(t.Context(), &said, o); err == nil || !strings.Contains(err.Error(), "4 of 4 objects") {
			t.Errorf("restore --verify returned %v, want an error about 4 of 4 objects", err)
		}
		o.Verify = false
		if err := Restore(t.Context(), &said, o); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("a restore of damaged objects returned %v, want an error about damage", err)
		}
		if left, err := os.ReadDir(o.Localcloud); err != nil || len(left) > 0 {
			t.Errorf("the restore left the files %v (error %v), want none", left, err)
		}
		o.SkipDamaged = true
		if err := Restore(t.Context(), &said, o); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"The file uploaded for video vid1.", "A playback file for video vid2.", "Captions for video vid3.", "nothing is sent to these webhooks until their owners roll the secrets (1)",
			", 0 objects. ", // all four were left out
		} {
			if !strings.Contains(said.String(), want) {
				t.Errorf("the restore printed %s, want it to contain %q", said.String(), want)
			}
		}
		if code := open(t, localcloudDir{data: o.Localcloud}).object(t, "uploads/vid1/source"); code != http.StatusNotFound {
			t.Errorf("reading the damaged object returned %d, want 404", code)
		}
	})
}

// restoreEnv, if set, makes this test binary restore a backup into a localcloud's volumes. Its
// value is FOLDER DATA OBJECTS. TestAKilledRestoreBeginsAgain kills that process.
const restoreEnv = "LINKREEL_TEST_RESTORE"

func restoreAndExit(at []string) {
	if err := Restore(context.Background(), os.Stdout, RestoreOptions{Dir: at[0], Localcloud: at[1], ObjectsDir: at[2]}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// The test kills restores after an increasing number of files, as a node crash would. No server
// should open an incomplete restore, and the last restore must be complete.
func TestAKilledRestoreBeginsAgain(t *testing.T) {
	t.Parallel()
	const objects = 400
	source, dir := t.TempDir(), t.TempDir()
	records, err := firestore.Open(firestore.Options{Path: filepath.Join(source, "firestore.db"), TTLInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	db, err := records.Client(t.Context(), project)
	if err != nil {
		t.Fatal(err)
	}
	// The restore opens the records the way the services do, so the records need a format
	// number.
	if _, err := db.Doc("installation/database").Create(t.Context(), map[string]any{"id": "db_test", "format": firestoredb.Format}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Doc("accounts/kept").Create(t.Context(), map[string]any{"name": "Kept"}); err != nil {
		t.Fatal(err)
	}
	store, err := storage.Open(storage.Options{Dir: filepath.Join(source, "storage"), Buckets: []string{bucket}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	api := httptest.NewServer(store.APIHandler())
	defer api.Close()
	for i := range objects {
		must(t, "", http.MethodPost, api.URL+"/upload/storage/v1/b/"+bucket+"/o?uploadType=media&name=o-"+fmt.Sprint(i), "", strings.Repeat("x", 10_000))
	}
	token := randomHex()
	tokens, err := guard.Parse(token)
	if err != nil {
		t.Fatal(err)
	}
	backups := httptest.NewServer((&backup.Source{Records: records, Objects: store, Tokens: tokens, Stop: t.Context()}).Handler())
	defer backups.Close()
	if _, err := backup.Take(t.Context(), backup.Options{Dir: dir, URL: backups.URL, Token: token}); err != nil {
		t.Fatal(err)
	}

	to := localcloudDir{t.TempDir(), t.TempDir()}
	kills := 0
	for files := 0; files < objects; files += 50 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), restoreEnv+"="+dir+" "+to.data+" "+to.objects)
		if err := os.RemoveAll(filepath.Join(to.objects, "data")); err != nil { // count only the files from this attempt
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for running := true; running; {
			select {
			case <-ended:
				running = false
			case <-time.After(time.Millisecond):
				if found, err := os.ReadDir(filepath.Join(to.objects, "data")); err == nil && len(found) >= files {
					_ = cmd.Process.Kill() // it may have exited already
					<-ended
					running = false
				}
			}
		}
		half, err := firestore.RestoreUnfinished(to.records())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(to.note()); half {
			kills++
			if s, err := firestore.Open(firestore.Options{Path: to.records()}); err == nil {
				_ = s.Close()
				t.Fatalf("Open of a restore that was killed after %d files succeeded, want an error", files)
			}
		} else if err != nil && files > 0 {
			t.Fatalf("a restore that was killed after %d files is neither incomplete nor complete: %v", files, err)
		}
	}
	if kills < 3 {
		t.Fatalf("%d restores were killed before they finished, want at least 3", kills)
	}
	if err := Restore(t.Context(), io.Discard, RestoreOptions{Dir: dir, Localcloud: to.data, ObjectsDir: to.objects}); err != nil {
		t.Fatal(err)
	}
	served := open(t, to)
	if !served.document(t, "accounts/kept") {
		t.Error("the restored localcloud does not contain the record accounts/kept")
	}
	for i := range objects {
		if code := served.object(t, fmt.Sprint("o-", i)); code != http.StatusOK {
			t.Errorf("reading object %d returned %d, want 200", i, code)
		}
	}
}

// A restore must complete the copy of the trail that a killed restore has started.
func TestATrailIsCopiedAgainAfterAKill(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "audit")
	for _, dir := range []string{from, to} {
		if err := os.MkdirAll(filepath.Join(dir, "2026-03-01"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{filepath.Join(from, "2026-03-01/1.jsonl"), filepath.Join(from, "2026-03-01/2.jsonl"), filepath.Join(to, "2026-03-01/1.jsonl")} {
		if err := os.WriteFile(path, []byte("a note"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := restoring{audit: from, applied: 1}
	for range 2 {
		if err := r.copyTrail(to); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(to, "2026-03-01/2.jsonl")); err != nil || string(text) != "a note" {
			t.Fatalf("the second note is %q (error %v), want a note", text, err)
		}
	}
}
