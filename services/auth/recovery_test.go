package auth_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/restored"
)

// restoreTimes are the fields that only restores and operators change.
var restoreTimes = []string{"installation.dataAt", "installation.restoredAt", "installation.webhooksResumedAt", "installation.janitorResumedAt"}

func TestTheOperatorSeesAndEndsWhatWaitsSinceARestore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := start(t, w.config())
	type recovery struct {
		RestoreID                     *string
		DataAt, WebhooksResumedAt     *int64
		WebhooksPaused, JanitorPaused bool
	}
	read := func(a answer) (v recovery) {
		t.Helper()
		if a.status != 200 {
			t.Fatalf("got %d %s, want 200", a.status, a.body)
		}
		if err := json.Unmarshal(a.body, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := read(r.admin("GET", "/admin/v1/recovery", "")); v.RestoreID != nil || v.DataAt != nil || v.WebhooksPaused || v.JanitorPaused {
		t.Errorf("before any restore, the recovery is %+v, want no restore and no pause", v)
	}
	if v := read(r.admin("POST", "/admin/v1/recovery/resume", `{"restoreId":"rst_1","webhooks":true}`)); v.RestoreID != nil || v.WebhooksResumedAt != nil {
		t.Errorf("resume before any restore returned %+v, want no restore", v)
	}
	db, err := firestoredb.Open(t.Context(), w.config().Firestore)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	made, err := restored.Write(t.Context(), db, time.UnixMilli(1_790_000_000_000))
	if err != nil {
		t.Fatal(err)
	}
	if v := read(r.admin("GET", "/admin/v1/recovery", "")); *v.RestoreID != made.ID || *v.DataAt != 1_790_000_000_000 || !v.WebhooksPaused || !v.JanitorPaused {
		t.Errorf("after a restore, the recovery is %+v, want the restore with both paused", v)
	}
	for _, body := range []string{`{}`, `{"webhooks":true}`, `{"restoreId":"rst_1","webhooks":false}`, `{"restoreId":"rst_1","webhook":true}`, `{"restoreId":"rst_1","janitor":1}`} {
		want(t, r.admin("POST", "/admin/v1/recovery/resume", body), 400, "VALIDATION_ERROR")
	}
	want(t, r.admin("POST", "/admin/v1/recovery/resume", `{"restoreId":"rst_1","webhooks":true}`), 412, "PRECONDITION_FAILED")
	resume := func(what string) recovery {
		t.Helper()
		return read(r.admin("POST", "/admin/v1/recovery/resume", `{"restoreId":"`+made.ID+`",`+what+`}`))
	}
	first := resume(`"webhooks":true`)
	if first.WebhooksPaused || first.WebhooksResumedAt == nil || !first.JanitorPaused {
		t.Errorf("after webhooks were resumed, the recovery is %+v, want only the janitor paused", first)
	}
	last := resume(`"webhooks":true,"janitor":true`)
	if last.JanitorPaused || *last.WebhooksResumedAt != *first.WebhooksResumedAt {
		t.Errorf("after the janitor was resumed, the recovery is %+v, want nothing paused and webhooksResumedAt unchanged", last)
	}
}

// journal is an in-memory log.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// This test replaces the process's default logger, so it must not run in parallel.
func TestOnlyTheResumeOfARestoreIsAudited(t *testing.T) {
	var log journal
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	w := newWorld(t)
	r := start(t, w.config())
	want(t, r.admin("POST", "/admin/v1/recovery/resume", `{"restoreId":"rst_1","webhooks":true}`), 200, "")
	if strings.Contains(log.String(), "action=recovery.resumed") {
		t.Errorf("a resume without a restore was logged, want no audit line:\n%s", &log)
	}
	made, err := restored.Write(t.Context(), firestoredb.Use(w.Client(t), 10*time.Second), time.UnixMilli(1_790_000_000_000))
	if err != nil {
		t.Fatal(err)
	}
	want(t, r.admin("POST", "/admin/v1/recovery/resume", `{"restoreId":"`+made.ID+`","webhooks":true}`), 200, "")
	if !strings.Contains(log.String(), "action=recovery.resumed restore="+made.ID) {
		t.Errorf("resuming after a restore was not logged, want an audit line:\n%s", &log)
	}
}
