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
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/trail"
	"github.com/linkreel/linkreel/services/auth"
	"github.com/linkreel/linkreel/services/localcloud/backup"
)

// on returns the settings that select a data directory.
func on(data string) map[string]string { return map[string]string{"LINKREEL_DATA_DIR": data} }

// up starts a stack on a data directory.
func up(t *testing.T, dir string) *Stack {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	// Put the stack file where a second stack would put it.
	s, err := Start(context.Background(), Config{DataDir: dir, StackFile: filepath.Join(dir, "stack.json"), Log: log, Env: map[string]string{
		"LINKREEL_WEBHOOK_ALLOW_HTTP": "true", "LINKREEL_WEBHOOK_ALLOW_PRIVATE": "true",
	}})
	if err != nil {
		t.Fatalf("start the stack: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() }) // tests that close the stack themselves check the error
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

// visit returns the URL to which a short link redirects.
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

// The test backs up a running stack and a stopped one, and restores both backups.
func TestAStackIsBackedUpAndRestored(t *testing.T) {
	t.Parallel()
	data, dir := t.TempDir(), t.TempDir()
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
		t.Fatal("the sign-in link did not create exactly one record")
	}
	if err := Backup(t.Context(), io.Discard, BackupOptions{Dir: dir, Env: on(data)}); err != nil {
		t.Fatalf("back up a running stack: %v", err)
	}
	post("/api/v1/links", map[string]string{"url": "https://example.com/later", "slug": "later"})
	var feed struct{ NextCursor string }
	if err := call(t.Context(), http.MethodGet, s.BaseURL+"/api/v1/events?wait=0", s.Keys["business"], nil, &feed); err != nil || feed.NextCursor == "" {
		t.Fatalf("reading the feed returned %v (error %v), want a cursor", feed, err)
	}
	key := s.secrets.PlaybackKey
	if to := s.visit(t, "kept"); to != "https://example.com/kept" {
		t.Fatalf("the link redirects to %q, want https://example.com/kept", to)
	}
	s.keysOfRedisAreInTheRecipe(t)
	down(t, s)
	if err := Backup(t.Context(), io.Discard, BackupOptions{Dir: dir, Env: on(data)}); err != nil {
		t.Fatalf("back up a stopped stack: %v", err)
	}
	names, err := backup.Names(dir)
	if err != nil || len(names) != 2 {
		t.Fatalf("the backups are %v (error %v), want two", names, err)
	}
	secrets := filepath.Join(data, "secrets.json")
	for i, name := range names {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			again := t.TempDir()
			o := RestoreOptions{Dir: dir, Name: name, Env: on(again)}
			if err := Restore(t.Context(), io.Discard, o); err == nil || !strings.Contains(err.Error(), "LINKREEL_WEBHOOK_SECRET_KEY") {
				t.Fatalf("a restore without the key for the webhook secrets returned %v, want an error about the key", err)
			}
			o.Secrets, o.Verify = secrets, true
			if err := Restore(t.Context(), io.Discard, o); err != nil {
				t.Fatalf("verify: %v", err)
			}
			if left, err := os.ReadDir(again); err != nil || len(left) != 0 {
				t.Fatalf("restore --verify wrote %v (error %v), want no files", left, err)
			}
			o.Verify = false
			var told strings.Builder
			if err := Restore(t.Context(), &told, o); err != nil {
				t.Fatalf("restore: %v", err)
			}
			if !strings.Contains(told.String(), "linkreel admin recovery resume --webhooks --janitor") {
				t.Errorf("the restore printed %s, want the command that resumes webhooks and the janitor", &told)
			}
			if err := Restore(t.Context(), io.Discard, o); err == nil || !strings.Contains(err.Error(), "not empty") {
				t.Fatalf("a second restore returned %v, want an error", err)
			}
			r := up(t, again)
			defer down(t, r)
			if to := r.visit(t, "kept"); to != "https://example.com/kept" {
				t.Errorf("the link redirects to %q, want https://example.com/kept", to)
			}
			if to := r.visit(t, "later"); (to != "") != (i == 1) {
				t.Errorf("the later link redirects to %q, want it to exist only in the second backup", to)
			}
			// The cursor is ahead of the first backup's feed.
			status, body := ask(t, http.MethodGet, r.BaseURL+"/api/v1/events?after="+feed.NextCursor, r.Keys["business"], "")
			if want := map[int]int{0: 410, 1: 200}[i]; status != want || (want == 410) != strings.Contains(body, `"code":"CURSOR_AHEAD"`) {
				t.Errorf("reading the feed after the cursor returned %d %s, want %d", status, body, want)
			}
			if r.Keys["business"] != s.Keys["business"] {
				t.Error("the demo key has changed, want the same key")
			}
			var hooks struct {
				Data []struct {
					ID     string
					Paused bool
				}
			}
			if err := call(t.Context(), http.MethodGet, r.BaseURL+"/api/v1/webhooks", r.Keys["business"], nil, &hooks); err != nil || len(hooks.Data) != 1 || !hooks.Data[0].Paused {
				t.Errorf("the webhooks are %v (error %v), want one that is paused", hooks, err)
			}
			if status, body := ask(t, http.MethodGet, r.AdminURL+"/admin/v1/recovery", r.AdminToken, ""); status != 200 || !strings.Contains(body, `"webhooksPaused":true`) || !strings.Contains(body, `"janitorPaused":true`) {
				t.Errorf("the operator API returned %d %s, want webhooks and the janitor paused", status, body)
			}
			if got := r.storageAPI(t, "GET", "/storage/v1/b/"+bucket+"/o/videos%2Ffilm?alt=media", "", r.cloudToken); got.StatusCode != http.StatusOK {
				t.Errorf("reading the object returned %s, want 200", got.Status)
			}
			if n := r.count(t, "oneTimeLinks"); n != 0 {
				t.Errorf("%d one-time links remain, want 0", n)
			}
			if r.secrets.PlaybackKey == key || r.secrets.WebhookKey != s.secrets.WebhookKey {
				t.Error("the playback key is the same or the webhook key has changed, want only the playback key replaced")
			}
		})
	}
}

// keysOfRedisAreInTheRecipe checks that the recipe for a recovery with Google's services deletes
// all Redis keys from a stack that has been used.
func (s *Stack) keysOfRedisAreInTheRecipe(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile("../../docs/recovery.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := regexp.MustCompile(`for keys in (.*); do`).FindSubmatch(text)
	if listed == nil {
		t.Fatal("docs/recovery.md does not contain a loop over the Redis keys")
	}
	var patterns []string
	for _, p := range strings.Fields(string(listed[1])) {
		patterns = append(patterns, strings.TrimSuffix(strings.Trim(p, "'"), "*"))
	}
	client := redis.NewClient(&redis.Options{Addr: s.Redis.Addr()})
	defer func() { _ = client.Close() }()
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) < 5 {
		t.Fatalf("Redis contains the keys %q (error %v), want at least five", keys, err)
	}
	for _, key := range keys {
		if !slices.ContainsFunc(patterns, func(p string) bool { return strings.HasPrefix(key, p) }) {
			t.Errorf("the recipe deletes the keys %q but not %q", patterns, key)
		}
	}
}

func TestARestoreThatFailsLeavesAnEmptyFolder(t *testing.T) {
	t.Parallel()
	data, dir, again := t.TempDir(), t.TempDir(), t.TempDir()
	down(t, up(t, data))
	if err := Backup(t.Context(), io.Discard, BackupOptions{Dir: dir, Env: on(data)}); err != nil {
		t.Fatal(err)
	}
	m, err := backup.Read(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, m.Name, m.Records.Name), m.Records.Bytes/2); err != nil {
		t.Fatal(err)
	}
	if err := Restore(t.Context(), io.Discard, RestoreOptions{Dir: dir, Env: on(again)}); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Fatalf("restoring a backup with a truncated file returned %v, want an error about damage", err)
	}
	left, err := os.ReadDir(again)
	if err != nil || len(left) != 1 || left[0].Name() != lockFile {
		t.Errorf("the restore left the files %v (error %v), want only %s", left, err, lockFile)
	}
}

// A second restore fills the folder after the first has found it empty. The first must leave it alone.
func TestARestoreBesideARestoreLeavesItAlone(t *testing.T) {
	t.Parallel()
	data, dir, again := t.TempDir(), t.TempDir(), t.TempDir()
	down(t, up(t, data))
	if err := Backup(t.Context(), io.Discard, BackupOptions{Dir: dir, Env: on(data)}); err != nil {
		t.Fatal(err)
	}
	o := RestoreOptions{Dir: dir, Env: on(again)}
	first := o
	first.step = func(string) {
		if err := Restore(t.Context(), io.Discard, o); err != nil {
			t.Error(err)
		}
	}
	if err := Restore(t.Context(), io.Discard, first); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("the restore returned %v, want an error saying that the folder is not empty", err)
	}
	for _, name := range []string{recordsFile, objectsDir, secretsFile} {
		if _, err := os.Stat(filepath.Join(again, name)); err != nil {
			t.Errorf("the other restore's file is missing: %v", err)
		}
	}
}

// The test makes one file in the trail unreadable.
func TestATrailThatCannotBeReadStopsARestore(t *testing.T) {
	t.Parallel()
	data, dir, again := t.TempDir(), t.TempDir(), t.TempDir()
	down(t, up(t, data))
	if err := Backup(t.Context(), io.Discard, BackupOptions{Dir: dir, Env: on(data)}); err != nil {
		t.Fatal(err)
	}
	audit := t.TempDir()
	day := filepath.Join(audit, "2026-03-01")
	if err := errors.Join(os.Mkdir(day, 0o700), os.Symlink("/proc/self/mem", filepath.Join(day, "1.jsonl"))); err != nil { // reads of it fail with EIO
		t.Fatal(err)
	}
	if err := Restore(t.Context(), io.Discard, RestoreOptions{Dir: dir, Audit: audit, Env: on(again)}); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "2026-03-01/1.jsonl") {
		t.Fatalf("the restore returned %v, want EIO with the name of the file", err)
	}
	if left, err := os.ReadDir(again); err != nil || len(left) > 0 {
		t.Errorf("the restore left the files %v (error %v), want none", left, err)
	}
}

func TestABackupFindsTheRightStack(t *testing.T) {
	t.Parallel()
	data, other, dir := t.TempDir(), t.TempDir(), t.TempDir()
	if err := Backup(t.Context(), io.Discard, BackupOptions{Dir: dir, Env: on(other)}); err == nil || !strings.Contains(err.Error(), "LINKREEL_DATA_DIR") {
		t.Errorf("backing up a folder without a stack returned %v, want an error about LINKREEL_DATA_DIR", err)
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
		t.Errorf("with the stack file from a different folder, running returned %v, want an error about stack.json", err)
	}
}

func TestABackupOfDamagedRecordsFails(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, recordsFile), []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Backup(t.Context(), io.Discard, BackupOptions{Dir: t.TempDir(), Env: on(data)}); err == nil || !strings.Contains(err.Error(), recordsFile) {
		t.Errorf("backing up damaged records returned %v, want an error about %s", err, recordsFile)
	}
	d, err := openDataDir(data)
	if err != nil {
		t.Fatalf("the backup left the data directory locked: %v", err)
	}
	d.close()
}

// ask calls an API and returns the status and the body of the response.
func ask(t *testing.T, method, address, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// must is like ask, but it fails the test unless the call succeeds. It returns a field from the
// body.
func must(t *testing.T, field, method, address, token, body string) string {
	t.Helper()
	code, text := ask(t, method, address, token, body)
	if code/100 != 2 {
		t.Fatalf("%s %s = %d %s", method, address, code, text)
	}
	var fields map[string]any
	if field == "" {
		return ""
	}
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatal(err)
	}
	value, _ := fields[field].(string)
	return value
}

// rights are granted before a backup and revoked after it.
type rights struct{ keys, secrets, removed, lowered, suspended, erased, slugs, links []string }

func (s *Stack) give(t *testing.T, n int) (r rights) {
	t.Helper()
	admin := func(field, path, body string) string {
		t.Helper()
		return must(t, field, http.MethodPost, s.AdminURL+"/admin/v1/"+path, s.AdminToken, body)
	}
	own := s.Keys["business"]
	account := must(t, "id", http.MethodGet, s.BaseURL+"/api/v1/account", own, "")
	admin("", "accounts/"+account+"/sign-in-links", `{"name":"Owner","role":"owner"}`)
	for i := range n {
		_, body := ask(t, http.MethodPost, s.AdminURL+"/admin/v1/accounts/"+account+"/keys", s.AdminToken, `{"name":"k"}`)
		var key struct{ ID, Key string }
		if err := json.Unmarshal([]byte(body), &key); err != nil {
			t.Fatal(err)
		}
		r.keys, r.secrets = append(r.keys, key.ID), append(r.secrets, key.Key)
		r.removed = append(r.removed, admin("memberId", "accounts/"+account+"/sign-in-links", `{"name":"M","role":"member"}`))
		r.lowered = append(r.lowered, admin("memberId", "accounts/"+account+"/sign-in-links", `{"name":"M","role":"admin"}`))
		r.suspended = append(r.suspended, admin("id", "accounts", `{"name":"S","plan":"free"}`))
		r.erased = append(r.erased, admin("id", "accounts", `{"name":"E","plan":"free"}`))
		slug := fmt.Sprintf("taken-%d", i)
		r.slugs = append(r.slugs, slug)
		r.links = append(r.links, must(t, "id", http.MethodPost, s.BaseURL+"/api/v1/links", own, `{"url":"https://example.com/","slug":"`+slug+`"}`))
	}
	r.secrets = append(r.secrets, own)
	return r
}

func (s *Stack) take(t *testing.T, r rights) {
	t.Helper()
	own := r.secrets[len(r.secrets)-1]
	for i := range r.keys {
		must(t, "", http.MethodDelete, s.BaseURL+"/api/v1/keys/"+r.keys[i], own, "")
		must(t, "", http.MethodDelete, s.BaseURL+"/api/v1/members/"+r.removed[i], own, "")
		must(t, "", http.MethodPatch, s.BaseURL+"/api/v1/members/"+r.lowered[i], own, `{"role":"viewer"}`)
		must(t, "", http.MethodPatch, s.AdminURL+"/admin/v1/accounts/"+r.suspended[i], s.AdminToken, `{"suspended":true}`)
		must(t, "", http.MethodPatch, s.AdminURL+"/admin/v1/accounts/"+r.erased[i], s.AdminToken, `{"suspended":true}`)
		must(t, "", http.MethodDelete, s.AdminURL+"/admin/v1/accounts/"+r.erased[i], s.AdminToken, "")
		must(t, "", http.MethodPost, s.AdminURL+"/admin/v1/takedowns", s.AdminToken, `{"linkId":"`+r.links[i]+`","reason":"spam"}`)
	}
}

// kinds lists how many rights of each kind there are.
func (r rights) kinds() string {
	return fmt.Sprintf("%d keys, %d removed members, %d lowered roles, %d suspended accounts, %d erased accounts and %d takedowns, together %d",
		len(r.keys), len(r.removed), len(r.lowered), len(r.suspended), len(r.erased), len(r.links),
		len(r.keys)+len(r.removed)+len(r.lowered)+len(r.suspended)+len(r.erased)+len(r.links))
}

// holds returns the rights that a running stack still grants.
func (s *Stack) holds(t *testing.T, r rights) (held []string) {
	t.Helper()
	own := r.secrets[len(r.secrets)-1]
	note := func(still bool, what, id string) {
		if still {
			held = append(held, what+" "+id)
		}
	}
	_, text := ask(t, http.MethodGet, s.BaseURL+"/api/v1/members?limit=100", own, "")
	var members struct{ Data []struct{ ID, Role string } }
	if err := json.Unmarshal([]byte(text), &members); err != nil || len(members.Data) == 0 {
		t.Fatalf("the list of members is %s (%v), want at least one member", text, err)
	}
	roles := map[string]string{}
	for _, m := range members.Data {
		roles[m.ID] = m.Role
	}
	for i := range r.keys {
		code, _ := ask(t, http.MethodGet, s.BaseURL+"/api/v1/account", r.secrets[i], "")
		note(code == http.StatusOK, "key", r.keys[i])
		note(roles[r.removed[i]] != "", "member", r.removed[i])
		note(roles[r.lowered[i]] != "viewer", "role of", r.lowered[i])
		_, text = ask(t, http.MethodGet, s.AdminURL+"/admin/v1/accounts/"+r.suspended[i], s.AdminToken, "")
		note(!strings.Contains(text, `"suspended":true`), "account", r.suspended[i])
		code, _ = ask(t, http.MethodGet, s.AdminURL+"/admin/v1/accounts/"+r.erased[i], s.AdminToken, "")
		note(code != http.StatusNotFound, "erased account", r.erased[i])
		note(s.visit(t, r.slugs[i]) != "", "link", r.slugs[i])
	}
	return held
}

// The test revokes rights after a backup and restores the backup with and without the trail. If
// LINKREEL_FULL is set, it revokes about 200 rights.
func TestWhatEndedStaysEnded(t *testing.T) {
	t.Parallel()
	n := 2
	if os.Getenv("LINKREEL_FULL") != "" {
		n = 34
	}
	data, dir := t.TempDir(), t.TempDir()
	s := up(t, data)
	r := s.give(t, n)
	if err := Backup(t.Context(), io.Discard, BackupOptions{Dir: dir, Env: on(data)}); err != nil {
		t.Fatal(err)
	}
	s.take(t, r)
	t.Logf("made decisions after the backup: %s", r.kinds())
	down(t, s) // each note was written before its response
	audit := filepath.Join(data, auditDir)
	// An erasure takes at least 15 s, so start all stacks before checking the first one.
	restore := func(audit string) (said, dataDir string, restored *Stack) {
		t.Helper()
		var out strings.Builder
		dataDir = t.TempDir()
		if err := Restore(t.Context(), &out, RestoreOptions{Dir: dir, Audit: audit, Env: on(dataDir)}); err != nil {
			t.Fatal(err)
		}
		return out.String(), dataDir, up(t, dataDir)
	}
	said, again, with := restore(audit)
	saidWithout, _, without := restore("")
	s = up(t, data)
	t.Run("without", func(t *testing.T) {
		defer down(t, without)
		if held := without.holds(t, r); len(held) != 6*n || !strings.Contains(saidWithout, "No trail was given") {
			t.Errorf("after a restore without the trail, %d rights are granted, want all %d and a notice: %s", len(held), 6*n, saidWithout)
		}
		t.Logf("checked that all are undone: %s", r.kinds())
	})
	t.Run("not restored", func(t *testing.T) {
		defer down(t, s)
		eventually(t, func() string { return strings.Join(s.holds(t, r), ", ") })
	})
	t.Run("with the trail", func(t *testing.T) {
		defer down(t, with)
		eventually(t, func() string { return strings.Join(with.holds(t, r), ", ") })
		for _, id := range slices.Concat(r.keys, r.removed, r.lowered, r.suspended, r.erased, r.links) {
			if !strings.Contains(said, id) {
				t.Errorf("the restore does not mention %s", id)
			}
		}
		t.Logf("checked that all are repeated: %s", r.kinds())
		old, err := trail.Read(t.Context(), trail.Folder(audit), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if now, err := trail.Read(t.Context(), trail.Folder(filepath.Join(again, auditDir)), time.Time{}); err != nil || now.Count() < max(old.Count(), 6*n) {
			t.Errorf("the trail in the new data directory is %+v (error %v), want at least %d notes", now, err, max(old.Count(), 6*n))
		}
	})
}

// eventually waits until wrong returns "".
func eventually(t *testing.T, wrong func() string) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for last := wrong(); last != ""; last = wrong() {
		if time.Now().After(deadline) {
			t.Fatal(last)
		}
		time.Sleep(50 * time.Millisecond) // background loops finish erasures and takedowns
	}
}

// If the trail's disk is not mounted, the restore cannot repeat any decisions and must tell the
// operator.
func TestAnEmptyTrailIsTold(t *testing.T) {
	t.Parallel()
	text := auth.NotKnown(0, "/mnt/audit")
	if !strings.Contains(text, "There are no notes from this installation in /mnt/audit") || !strings.Contains(text, "Repeat these decisions") {
		t.Errorf("NotKnown for an empty trail = %q, want the folder and what to do", text)
	}
}

// Several paths can refer to the same folder.
func TestATrailIsNotCopiedOntoItself(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "audit")
	other := dir + "-link"
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Symlink(dir, other)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{dir + "/": true, other: true, t.TempDir(): false} {
		if one, err := sameFile(dir, path); err != nil || one != want {
			t.Errorf("sameFile(%q, %q) = %v, %v, want %v", dir, path, one, err, want)
		}
	}
	if one, err := sameFile(filepath.Join(dir, "missing"), dir); err != nil || one {
		t.Errorf("sameFile for a missing folder = %v, %v, want false", one, err)
	}
}
