package standalone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/services/localcloud/backup"
)

// up starts a stack on a data directory.
func up(t *testing.T, dir string) *Stack {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	// The stack file is where a second stack's would be.
	s, err := Start(context.Background(), Config{DataDir: dir, StackFile: filepath.Join(dir, "stack.json"), Log: log, Env: map[string]string{
		"LINKREEL_WEBHOOK_ALLOW_HTTP": "true", "LINKREEL_WEBHOOK_ALLOW_PRIVATE": "true",
	}})
	if err != nil {
		t.Fatalf("start the stack: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() }) // a test that closes it checks the error
	return s
}

func down(t *testing.T, s *Stack) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("stop the stack: %v", err)
	}
}

// count returns the number of documents in a collection.
func (s *Stack) count(t *testing.T, collection string) int {
	t.Helper()
	db, err := s.Firestore.Client(t.Context(), project)
	if err != nil {
		t.Fatal(err)
	}
	found, err := db.Collection(collection).Documents(t.Context()).GetAll()
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

// visit returns where a short link leads.
func (s *Stack) visit(t *testing.T, slug string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.ShortBaseURL+"/"+slug, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.Header.Get("Location")
}

// TestAStackIsBackedUpAndRestored takes a backup of a running stack and of a stopped one,
// and restores both. It sets the environment, so it does not run in parallel.
func TestAStackIsBackedUpAndRestored(t *testing.T) {
	data, dir := t.TempDir(), t.TempDir()
	t.Setenv("LINKREEL_DATA_DIR", data)
	s := up(t, data)
	post := func(path string, body any) {
		t.Helper()
		if err := call(t.Context(), http.MethodPost, s.BaseURL+path, s.Keys["business"], body, &struct{}{}); err != nil {
			t.Fatal(err)
		}
	}
	post("/api/v1/links", map[string]string{"url": "https://example.com/kept", "slug": "kept"})
	post("/api/v1/webhooks", map[string]any{"url": "http://127.0.0.1:65000/hook", "events": []string{"key.created"}})
	if put := s.storageAPI(t, "POST", "/upload/storage/v1/b/"+bucket+"/o?uploadType=media&name=videos/film", "film", s.cloudToken); put.StatusCode != http.StatusOK {
		t.Fatalf("store an object: %s", put.Status)
	}
	if _, err := s.SignInLink(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.count(t, "oneTimeLinks") != 1 {
		t.Fatal("the sign-in link has no record")
	}
	if err := Backup(t.Context(), io.Discard, dir, ""); err != nil {
		t.Fatalf("back up a running stack: %v", err)
	}
	post("/api/v1/links", map[string]string{"url": "https://example.com/later", "slug": "later"})
	key := s.secrets.PlaybackKey
	down(t, s)
	if err := Backup(t.Context(), io.Discard, dir, ""); err != nil {
		t.Fatalf("back up a stopped stack: %v", err)
	}
	names, err := backup.Names(dir)
	if err != nil || len(names) != 2 {
		t.Fatalf("backups %v, %v", names, err)
	}
	secrets := filepath.Join(data, "secrets.json")
	for i, name := range names {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			again := t.TempDir()
			t.Setenv("LINKREEL_DATA_DIR", again)
			o := RestoreOptions{Dir: dir, Name: name}
			if err := Restore(t.Context(), io.Discard, o); err == nil || !strings.Contains(err.Error(), "LINKREEL_WEBHOOK_SECRET_KEY") {
				t.Fatalf("a restore without the key of webhooks' secrets = %v", err)
			}
			o.Secrets, o.Verify = secrets, true
			if err := Restore(t.Context(), io.Discard, o); err != nil {
				t.Fatalf("verify: %v", err)
			}
			if left, err := os.ReadDir(again); err != nil || len(left) != 0 {
				t.Fatalf("verify wrote %v, %v", left, err)
			}
			o.Verify = false
			if err := Restore(t.Context(), io.Discard, o); err != nil {
				t.Fatalf("restore: %v", err)
			}
			if err := Restore(t.Context(), io.Discard, o); err == nil || !strings.Contains(err.Error(), "not empty") {
				t.Fatalf("a second restore = %v", err)
			}
			r := up(t, again)
			defer down(t, r)
			if to := r.visit(t, "kept"); to != "https://example.com/kept" {
				t.Errorf("the link leads to %q", to)
			}
			if to := r.visit(t, "later"); (to != "") != (i == 1) {
				t.Errorf("the later link leads to %q", to)
			}
			if r.Keys["business"] != s.Keys["business"] {
				t.Error("the demo key does not work any more")
			}
			var hooks struct{ Data []struct{ ID string } }
			if err := call(t.Context(), http.MethodGet, r.BaseURL+"/api/v1/webhooks", r.Keys["business"], nil, &hooks); err != nil || len(hooks.Data) != 1 {
				t.Errorf("webhooks %v, %v", hooks, err)
			}
			if got := r.storageAPI(t, "GET", "/storage/v1/b/"+bucket+"/o/videos%2Ffilm?alt=media", "", r.cloudToken); got.StatusCode != http.StatusOK {
				t.Errorf("the object: %s", got.Status)
			}
			if n := r.count(t, "oneTimeLinks"); n != 0 {
				t.Errorf("%d one-time links still work", n)
			}
			if r.secrets.PlaybackKey == key || r.secrets.WebhookKey != s.secrets.WebhookKey {
				t.Error("playback grants still work, or webhooks have another key")
			}
		})
	}
}

func TestARestoreThatFailsLeavesAnEmptyFolder(t *testing.T) {
	data, dir, again := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("LINKREEL_DATA_DIR", data)
	down(t, up(t, data))
	if err := Backup(t.Context(), io.Discard, dir, ""); err != nil {
		t.Fatal(err)
	}
	m, err := backup.Read(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, m.Name, m.Records.Name), m.Records.Bytes/2); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LINKREEL_DATA_DIR", again)
	if err := Restore(t.Context(), io.Discard, RestoreOptions{Dir: dir}); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Fatalf("restore of half a file = %v", err)
	}
	left, err := os.ReadDir(again)
	if err != nil || len(left) != 1 || left[0].Name() != lockFile {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

func TestABackupFindsTheRightStack(t *testing.T) {
	data, other, dir := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("LINKREEL_DATA_DIR", other)
	if err := Backup(t.Context(), io.Discard, dir, ""); err == nil || !strings.Contains(err.Error(), "LINKREEL_DATA_DIR") {
		t.Errorf("a folder without a stack = %v", err)
	}
	held, err := openDataDir(data)
	if err != nil {
		t.Fatal(err)
	}
	defer held.close()
	if err := os.WriteFile(filepath.Join(data, recordsFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(Stack{DataDir: other, BackupURL: "http://127.0.0.1:1/"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "stack.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := running(t.Context(), Config{DataDir: data}); err == nil || errors.Is(err, errRunning) || !strings.Contains(err.Error(), "stack.json") {
		t.Errorf("the stack file of another folder = %v", err)
	}
}
