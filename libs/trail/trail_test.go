package trail_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/trail"
)

func add(t *testing.T, l *trail.Log, notes ...trail.Note) {
	t.Helper()
	if err := l.Add(notes...); err != nil {
		t.Fatal(err)
	}
}

// clock starts at noon and moves by a second with each reading.
func clock() func() time.Time {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return func() time.Time { now = now.Add(time.Second); return now }
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func open(t *testing.T, dir string, now func() time.Time) *trail.Log {
	t.Helper()
	l, err := trail.Open(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTheLastNoteAboutAThingCounts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, clock())
	add(t, l, trail.Note{Kind: trail.AccountState, ID: "acc_1", To: "suspended"}, trail.Note{Kind: trail.KeyRevoked, ID: "key_1"})
	add(t, l, trail.Note{Kind: trail.MemberRole, ID: "mem_1", To: "viewer"})
	add(t, l, trail.Note{Kind: trail.AccountState, ID: "acc_1", To: "active"})
	add(t, l, trail.Note{Kind: trail.MemberRemoved, ID: "mem_1"})
	notes, problems, err := trail.Read(dir)
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	var got []string
	for _, n := range notes {
		got = append(got, strings.TrimSpace(string(n.Kind)+" "+n.ID+" "+n.To))
	}
	if want := "key.revoked key_1, account.state acc_1 active, member.removed mem_1"; strings.Join(got, ", ") != want {
		t.Errorf("notes are %v, want %s", got, want)
	}
}

// TestWhatCannotBeReadIsNamedAndChangesNothing reads a trail with files that are half
// written, doubled, or not of the trail.
func TestWhatCannotBeReadIsNamedAndChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, clock())
	add(t, l, trail.Note{Kind: trail.KeyRevoked, ID: "key_1"})
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"doubled.jsonl": string(whole), "half.jsonl": string(whole) + `{"kind":"key.rev`, "empty.jsonl": `{"kind":"key.revoked"}`, ".new-1": "x", "notes.txt": "x",
	} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(files[0]), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	notes, problems, err := trail.Read(dir)
	if err != nil || len(notes) != 1 || len(problems) != 4 {
		t.Errorf("notes %v, problems %q, %v; want one note and four problems", notes, problems, err)
	}
	if _, _, err := trail.Read(filepath.Join(dir, "none")); err == nil {
		t.Error("a trail that is lost is not told")
	}
}

// TestAFolderIsReadWhateverItsName reads a trail in a folder whose name is a pattern, with a
// file in place of a day, and a line that is too long.
func TestAFolderIsReadWhateverItsName(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "audit[1")
	add(t, open(t, dir, clock()), trail.Note{Kind: trail.KeyRevoked, ID: "key_1"})
	for name, text := range map[string]string{
		"2026-03-01/long.jsonl": `{"kind":"` + strings.Repeat("x", 1<<17) + `"}`, "2026-02-28": "x",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	notes, problems, err := trail.Read(dir)
	told := strings.Join(problems, "\n")
	if err != nil || len(notes) != 1 || len(problems) != 2 || !strings.Contains(told, "2026-02-28") || !strings.Contains(told, "long.jsonl") {
		t.Errorf("notes %v, problems %q, %v; want one note and two problems", notes, problems, err)
	}
}

func TestANoteThatCannotBeWrittenWaits(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, clock())
	if err := os.Remove(dir); err != nil { // as a disk that is not mounted
		t.Fatal(err)
	}
	err := l.Add(trail.Note{Kind: trail.KeyRevoked, ID: "key_1"})
	if apierr.CodeOf(err) != apierr.Unavailable || !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("error %v, want UNAVAILABLE", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	add(t, l, trail.Note{Kind: trail.KeyRevoked, ID: "key_2"})
	if notes, _, err := trail.Read(dir); err != nil || len(notes) != 2 {
		t.Errorf("notes %v, %v", notes, err)
	}
}

func TestOldDaysGo(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	l := open(t, dir, func() time.Time { return now })
	for _, days := range []int{0, 399, 2} {
		now = now.AddDate(0, 0, days)
		add(t, l, trail.Note{Kind: trail.KeyRevoked, ID: "key_" + now.Format("0102")})
	}
	if days, err := os.ReadDir(dir); err != nil || len(days) != 2 {
		t.Errorf("days %v, %v; want the last two", days, err)
	}
}

func TestWithoutAFolderNothingIsNoted(t *testing.T) {
	t.Parallel()
	l := open(t, "", nil)
	if err := l.Add(trail.Note{Kind: trail.KeyRevoked, ID: "key_1"}); l != nil || err != nil {
		t.Errorf("log %v, error %v", l, err)
	}
}

// TestRepeatedRevocationsWriteNothing is about a caller in a loop, who would fill the disk.
func TestRepeatedRevocationsWriteNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, clock())
	for range 5 {
		add(t, l, trail.Note{Kind: trail.KeyRevoked, ID: "key_1"})
		add(t, l)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*", "*")); err != nil || len(files) != 1 {
		t.Errorf("files %v, %v; want one", files, err)
	}
}

// TestAChangeThatNeedsNoNoteWritesWhatWaits also shows that such a change succeeds while the
// folder is away.
func TestAChangeThatNeedsNoNoteWritesWhatWaits(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, clock())
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := l.Add(trail.Note{Kind: trail.AccountState, ID: "acc_1", To: "suspended"}); apierr.CodeOf(err) != apierr.Unavailable {
			t.Fatalf("error %v, want UNAVAILABLE", err)
		}
		add(t, l)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	add(t, l)
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(files) != 1 || strings.Count(read(t, files[0]), "\n") != 1 {
		t.Errorf("files %v, %v; want one file with one note", files, err)
	}
}
