package trail_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/trail"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

func add(t *testing.T, l *trail.Log, notes ...trail.Note) {
	t.Helper()
	if err := l.Add(t.Context(), notes...); err != nil {
		t.Fatal(err)
	}
}

func flush(t *testing.T, l *trail.Log) {
	t.Helper()
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// clock starts at noon and advances by a second with each reading.
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

// ours is the tests' installation.
func ours(context.Context) (string, error) { return "db_1", nil }

func open(t *testing.T, dir string, now func() time.Time) *trail.Log {
	t.Helper()
	store, err := trail.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	return trail.Open(trail.Config{Store: store, Installation: ours, Now: now})
}

func readAll(t *testing.T, store trail.Store) (notes []trail.Note, problems []string) {
	t.Helper()
	found, err := trail.Read(t.Context(), store, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	notes, others := found.Of("db_1")
	return notes, append(found.Problems, others...)
}

func names(notes []trail.Note) string {
	var got []string
	for _, n := range notes {
		got = append(got, strings.TrimSpace(string(n.Kind)+" "+n.ID+" "+n.To))
	}
	return strings.Join(got, ", ")
}

func TestTheLastNoteAboutAThingCounts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, clock())
	add(t, l, trail.Note{Kind: trail.AccountState, ID: "acc_1", To: "suspended"}, trail.Note{Kind: trail.KeyRevoked, ID: "key_1"})
	add(t, l, trail.Note{Kind: trail.MemberRole, ID: "mem_1", To: "viewer"})
	add(t, l, trail.Note{Kind: trail.AccountState, ID: "acc_1", To: "active"})
	add(t, l, trail.Note{Kind: trail.MemberRemoved, ID: "mem_1"})
	notes, problems := readAll(t, trail.Folder(dir))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if got, want := names(notes), "key.revoked key_1, account.state acc_1 active, member.removed mem_1"; got != want {
		t.Errorf("notes are %s, want %s", got, want)
	}
}

// The test reads a trail with files that are incomplete, duplicated, or not part of the trail.
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
	if notes, problems := readAll(t, trail.Folder(dir)); len(notes) != 1 || len(problems) != 4 {
		t.Errorf("notes %v, problems %q; want one note and four problems", notes, problems)
	}
	if _, err := trail.Read(t.Context(), trail.Folder(filepath.Join(dir, "none")), time.Time{}); err == nil {
		t.Error("Read of a missing trail succeeded, want an error")
	}
}

// The folder's name looks like a glob pattern. The trail has a file in place of a day, and a line
// that is too long.
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
	notes, problems := readAll(t, trail.Folder(dir))
	told := strings.Join(problems, "\n")
	if len(notes) != 1 || len(problems) != 2 || !strings.Contains(told, "2026-02-28") || !strings.Contains(told, "long.jsonl") {
		t.Errorf("notes %v, problems %q; want one note and two problems", notes, problems)
	}
}

func TestANoteThatCannotBeWrittenWaits(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, clock())
	if err := os.Remove(dir); err != nil { // like a disk that is not mounted
		t.Fatal(err)
	}
	err := l.Add(t.Context(), trail.Note{Kind: trail.KeyRevoked, ID: "key_1"})
	if apierr.CodeOf(err) != apierr.Unavailable || !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("Add to a missing folder returned %v, want UNAVAILABLE", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	add(t, l, trail.Note{Kind: trail.KeyRevoked, ID: "key_2"})
	if notes, _ := readAll(t, trail.Folder(dir)); len(notes) != 2 {
		t.Errorf("notes are %v, want key_1 and key_2", notes)
	}
}

// A day that is too old is removed only when newer notes are written.
func TestOldDaysGo(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	l := open(t, dir, func() time.Time { return now })
	for _, days := range []int{0, 399, 2} {
		now = now.AddDate(0, 0, days)
		add(t, l, trail.Note{Kind: trail.KeyRevoked, ID: "key_" + now.Format("0102")})
	}
	l.Settle()
	if days, err := os.ReadDir(dir); err != nil || len(days) != 2 {
		t.Errorf("days %v, %v; want the last two", days, err)
	}
}

// The test sets the clock forward by 14 years.
func TestAClockThatJumpedRemovesLittle(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	l := open(t, dir, func() time.Time { return now })
	next := func(years, days int) {
		now = now.AddDate(years, 0, days)
		add(t, l, trail.Note{Kind: trail.AccountState, ID: "acc_1", To: "suspended"})
	}
	for range 100 {
		next(0, 1)
	}
	next(14, 0)
	next(0, 1)
	l.Settle()
	if days, err := os.ReadDir(dir); err != nil || len(days) != 98 { // each of the two new days removes two old ones
		t.Errorf("%d days are left, %v; want 98", len(days), err)
	}
}

func TestWithoutAFolderNothingIsNoted(t *testing.T) {
	t.Parallel()
	l := trail.Open(trail.Config{})
	if err := l.Add(t.Context(), trail.Note{Kind: trail.KeyRevoked, ID: "key_1"}); l != nil || err != nil {
		t.Errorf("Open = %v, and Add returned %v; want nil and no error", l, err)
	}
}

// A caller in a loop must not fill the disk.
func TestRepeatedRevocationsWriteNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, clock())
	for range 5 {
		add(t, l, trail.Note{Kind: trail.KeyRevoked, ID: "key_1"})
		add(t, l)
	}
	flush(t, l)
	if files, err := filepath.Glob(filepath.Join(dir, "*", "*")); err != nil || len(files) != 1 {
		t.Errorf("files %v, %v; want one", files, err)
	}
}

// A change that does not need a note also succeeds while the folder is missing.
func TestAChangeThatNeedsNoNoteWritesWhatWaits(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, clock())
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := l.Add(t.Context(), trail.Note{Kind: trail.AccountState, ID: "acc_1", To: "suspended"}); apierr.CodeOf(err) != apierr.Unavailable {
			t.Fatalf("Add = %v, want UNAVAILABLE", err)
		}
		add(t, l)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	flush(t, l)
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(files) != 1 || strings.Count(read(t, files[0]), "\n") != 1 {
		t.Errorf("files %v, %v; want one file with one note", files, err)
	}
}

// hanging is a store on a disk that hangs until it is released.
type hanging struct {
	trail.Folder
	release chan struct{}
}

func (h hanging) Create(ctx context.Context, at time.Time, text []byte) (time.Time, error) {
	<-h.release
	return h.Folder.Create(ctx, at, text)
}

// If a network disk hangs, all callers get an error within seconds, rather than one after another.
// The notes are written once the disk is available again.
func TestADiskThatHangsKeepsNobodyLong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store := hanging{trail.Folder(dir), make(chan struct{})}
		l := trail.Open(trail.Config{Store: store, Installation: ours})
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if err := l.Add(t.Context(), trail.Note{Kind: trail.KeyRevoked, ID: "key_" + string(rune('a'+i))}); apierr.CodeOf(err) != apierr.Unavailable {
					t.Errorf("Add = %v, want UNAVAILABLE", err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("the calls took %v, want at most 6 s", took)
		}
		add(t, l) // does not need a note, so it does not wait
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("after a change without a note, %v have passed, want at most 6 s", took)
		}
		close(store.release)
		flush(t, l)
		if notes, problems := readAll(t, trail.Folder(dir)); len(notes) != 20 || len(problems) > 0 {
			t.Errorf("the trail has %d notes and the problems %q, want 20 notes and no problems", len(notes), problems)
		}
	})
}

// The clock is set back between the notes.
func TestWhatEndedForGoodCountsWhateverTheTimes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, clock())
	late, early := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	add(t, l, trail.Note{Kind: trail.MemberRole, ID: "mem_1", To: "owner", At: late})
	l.Settle() // otherwise the log may still be removing old days when the early notes are added
	add(t, l, trail.Note{Kind: trail.MemberRemoved, ID: "mem_1", At: early})
	add(t, l, trail.Note{Kind: trail.AccountState, ID: "acc_1", To: "suspended", At: late})
	add(t, l, trail.Note{Kind: trail.AccountState, ID: "acc_1", To: "deleting", At: early})
	add(t, l, trail.Note{Kind: trail.AccountState, ID: "acc_1", To: "active", At: late})
	notes, _ := readAll(t, trail.Folder(dir))
	if got, want := names(notes), "account.state acc_1 deleting, member.removed mem_1"; got != want {
		t.Errorf("notes are %s, want %s", got, want)
	}
}

// The notes do not have a time from the database, so the log uses its own clock.
func TestAClockThatIsSetBackChangesNoOrder(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	l := open(t, dir, func() time.Time { return now })
	for _, to := range []string{"admin", "viewer", "member"} {
		add(t, l, trail.Note{Kind: trail.MemberRole, ID: "mem_1", To: to})
		now = now.Add(-time.Hour)
	}
	if notes, _ := readAll(t, trail.Folder(dir)); names(notes) != "member.role mem_1 member" {
		t.Errorf("notes are %s, want member.role mem_1 member", names(notes))
	}
}

// Two installations have written to one folder.
func TestNotesOfAnotherInstallationAreTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	add(t, open(t, dir, clock()), trail.Note{Kind: trail.KeyRevoked, ID: "key_1"})
	other := trail.Open(trail.Config{Store: trail.Folder(dir), Installation: func(context.Context) (string, error) { return "db_2", nil }})
	add(t, other, trail.Note{Kind: trail.KeyRevoked, ID: "key_1"}, trail.Note{Kind: trail.KeyRevoked, ID: "key_2"})
	notes, problems := readAll(t, trail.Folder(dir))
	if names(notes) != "key.revoked key_1" || len(problems) != 1 || !strings.Contains(problems[0], `2 notes were written by another installation ("db_2"`) {
		t.Errorf("notes are %s and the reports %q, want only key_1 and a report about db_2", names(notes), problems)
	}
}

// bucket starts a storage server and returns a client for its bucket "media".
func bucket(t *testing.T) (*cloudtest.Cloud, *objectstore.Store) {
	t.Helper()
	cloud := cloudtest.Start(t, cloudtest.Options{Buckets: []string{"media"}})
	objects, err := objectstore.Open(t.Context(), objectstore.Config{Bucket: "media", PublicURL: cloud.PublicURL, Endpoint: cloud.APIURL, Key: cloud.Key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = objects.Close() })
	return cloud, objects
}

// Objects in a bucket have the same names as files in a folder.
func TestATrailInABucket(t *testing.T) {
	t.Parallel()
	_, objects := bucket(t)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	store := trail.OpenBucket(objects, "media")
	l := trail.Open(trail.Config{Store: store, Installation: ours, Now: func() time.Time { return now }})
	add(t, l, trail.Note{Kind: trail.KeyRevoked, ID: "key_1"})
	now = now.AddDate(0, 0, 10)
	add(t, l, trail.Note{Kind: trail.KeyRevoked, ID: "key_2"})
	if _, err := objects.Upload(t.Context(), "audit/notes.txt", strings.NewReader("x"), objectstore.UploadOptions{}); err != nil {
		t.Fatal(err)
	}
	var found []string
	for o, err := range objects.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, o.Name)
	}
	if len(found) != 3 || !strings.HasPrefix(found[0], "audit/2026-03-01/120000.000000-") || !strings.HasPrefix(found[1], "audit/2026-03-11/120000.000000-") {
		t.Errorf("the bucket contains %q, want a file for 2026-03-01, a file for 2026-03-11, and notes.txt", found)
	}
	if notes, problems := readAll(t, store); names(notes) != "key.revoked key_1, key.revoked key_2" || len(problems) != 1 {
		t.Errorf("notes are %s and problems %q, want key_1, key_2 and one problem", names(notes), problems)
	}
	later, err := trail.Read(t.Context(), store, now)
	if err != nil {
		t.Fatal(err)
	}
	if notes, _ := later.Of("db_1"); names(notes) != "key.revoked key_2" {
		t.Errorf("since the second day, notes are %s, want key.revoked key_2", names(notes))
	}
	if err := store.RemoveDay(t.Context(), "2026-03-01"); err != nil {
		t.Fatal(err)
	}
	if notes, _ := readAll(t, store); names(notes) != "key.revoked key_2" {
		t.Errorf("after the first day was removed, notes are %s, want key.revoked key_2", names(notes))
	}
}

// The bucket is unreachable. Add must keep the note, and Read must fail.
func TestABucketThatIsAwayMakesNotesWait(t *testing.T) {
	t.Parallel()
	objects, err := objectstore.Open(t.Context(), objectstore.Config{
		Bucket: "media", PublicURL: "http://127.0.0.1:1", Endpoint: "http://127.0.0.1:1", Key: cloudtest.ServiceAccountKey(), Timeout: time.Second, TransferTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = objects.Close() }()
	store := trail.OpenBucket(objects, "media")
	l := trail.Open(trail.Config{Store: store, Installation: ours})
	if err := l.Add(t.Context(), trail.Note{Kind: trail.KeyRevoked, ID: "key_1"}); apierr.CodeOf(err) != apierr.Unavailable {
		t.Errorf("Add = %v, want UNAVAILABLE", err)
	}
	if _, err := trail.Read(t.Context(), store, time.Time{}); err == nil {
		t.Error("Read succeeded although the trail cannot be listed, want an error")
	}
}

// failing is a trail on a disk that fails. The functions that a test uses must be set.
type failing struct {
	trail.Folder
	read   func(name string) error
	list   func() error
	day    string       // the day for which list fails
	create func() error // called after the file was written
}

func (f failing) Create(ctx context.Context, at time.Time, text []byte) (time.Time, error) {
	olderThan, err := f.Folder.Create(ctx, at, text)
	return olderThan, errors.Join(err, f.create())
}

func (f failing) Read(ctx context.Context, name string) ([]byte, error) {
	if err := f.read(name); err != nil {
		return nil, err
	}
	return f.Folder.Read(ctx, name)
}

func (f failing) List(ctx context.Context, from string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := f.list(); err != nil && !yield(cmp.Or(f.day, "2026-03-01"), err) {
			return
		}
		f.Folder.List(ctx, from)(yield)
	}
}

// Disk errors and missing permissions say nothing about a file's content, so Read retries. Only
// a file that was read can count as damaged.
func TestWhatCannotBeReadForAMomentIsReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	add(t, open(t, dir, clock()), trail.Note{Kind: trail.KeyRevoked, ID: "key_1"})
	never := func() error { return nil }
	for _, broken := range []error{syscall.EIO, syscall.EACCES, syscall.ESTALE} {
		for times, stops := range map[int]bool{3: false, 1000: true} {
			left := times
			fails := func() error {
				if left--; left >= 0 {
					return &os.PathError{Op: "read", Path: "x", Err: broken}
				}
				return nil
			}
			for what, store := range map[string]failing{
				"read": {Folder: trail.Folder(dir), read: func(string) error { return fails() }, list: never},
				"list": {Folder: trail.Folder(dir), read: func(string) error { return nil }, list: fails},
			} {
				left = times
				found, err := trail.Read(t.Context(), store, time.Time{})
				if stops {
					if !errors.Is(err, broken) || !strings.Contains(err.Error(), "2026-03-01") {
						t.Errorf("if every %s fails with %v, Read = %v, want that error with the file's or day's name", what, broken, err)
					}
					continue
				}
				if err != nil || found.Count() != 1 || len(found.Problems) > 0 {
					t.Errorf("if a %s fails with %v %d times, Read = %v, %v, want one note and no problems", what, broken, times, found, err)
				}
			}
		}
	}
}

// One file is listed but missing. The trail itself removes only files that are too old. If another
// file is missing, its disk may no longer be mounted.
func TestOnlyAnOldFileMayBeGone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		age    time.Duration
		always bool // otherwise the file reappears after three reads
		want   string
	}{
		{trail.Keep + 48*time.Hour, true, "removed"}, {48 * time.Hour, false, ""}, {48 * time.Hour, true, "an error"},
	} {
		dir := t.TempDir()
		l := open(t, dir, nil)
		add(t, l, trail.Note{Kind: trail.KeyRevoked, ID: "key_1"})
		l.Settle() // otherwise this log may remove the old day that is added below
		at := time.Now().Add(-tt.age)
		add(t, open(t, dir, nil), trail.Note{Kind: trail.KeyRevoked, ID: "key_2", At: at})
		var reads atomic.Int64
		store := failing{Folder: trail.Folder(dir), list: func() error { return nil }, read: func(name string) error {
			if strings.HasPrefix(name, at.UTC().Format(time.DateOnly)) && (reads.Add(1) <= 3 || tt.always) {
				return &os.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
			}
			return nil
		}}
		found, err := trail.Read(t.Context(), store, time.Time{})
		switch {
		case tt.want == "an error":
			if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), at.UTC().Format(time.DateOnly)) {
				t.Errorf("if a file from %v ago is missing, Read = %+v, %v, want an error with its name", tt.age, found, err)
			}
		case err != nil:
			t.Errorf("if a file from %v ago is missing, Read returned %v, want no error", tt.age, err)
		case tt.want == "" && (found.Count() != 2 || len(found.Problems) > 0):
			t.Errorf("if a file from %v ago reappears, Read = %+v, want both notes", tt.age, found)
		case tt.want == "removed" && (found.Count() != 1 || len(found.Problems) != 1 || !strings.Contains(found.Problems[0], "was removed") || reads.Load() != 1):
			t.Errorf("if a file from %v ago is missing, Read = %+v after %d reads, want one note, one problem and one read", tt.age, found, reads.Load())
		}
	}
}

// A day is listed, but its folder is missing.
func TestADayThatIsGoneStopsTheRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	add(t, open(t, dir, nil), trail.Note{Kind: trail.KeyRevoked, ID: "key_1"})
	day := time.Now().UTC().Format(time.DateOnly)
	store := failing{Folder: trail.Folder(dir), read: func(string) error { return nil }, day: day, list: func() error {
		return &os.PathError{Op: "open", Path: day, Err: syscall.ENOENT}
	}}
	if found, err := trail.Read(t.Context(), store, time.Time{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Read = %+v, %v, want an error", found, err)
	}
}

func TestAFolderWithTheNameOfAFileStopsNobody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	add(t, open(t, dir, clock()), trail.Note{Kind: trail.KeyRevoked, ID: "key_1"})
	if err := os.Mkdir(filepath.Join(dir, "2026-03-01", "folder.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	if notes, problems := readAll(t, trail.Folder(dir)); len(notes) != 1 || len(problems) != 1 {
		t.Errorf("notes %v, problems %q; want one note and one problem", notes, problems)
	}
}

// The test damages a byte in the first line of a file and makes the second line very long.
func TestADamagedLineLosesNoOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := open(t, dir, clock())
	var notes []trail.Note
	for i := range 100 {
		notes = append(notes, trail.Note{Kind: trail.KeyRevoked, ID: fmt.Sprintf("key_%03d", i)})
	}
	add(t, l, notes...)
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	lines := strings.SplitAfter(read(t, files[0]), "\n")
	lines[0] = "\x00" + lines[0][1:]
	lines[1] = strings.Repeat("x", 1<<17) + "\n"
	if err := os.WriteFile(files[0], []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if notes, problems := readAll(t, trail.Folder(dir)); len(notes) != 98 || len(problems) != 1 || !strings.Contains(problems[0], "2 of its 100 lines") {
		t.Errorf("%d notes, problems %q; want 98 notes and one problem about two lines", len(notes), problems)
	}
}

// A new day's name is not durable yet when its first write fails. A later write on that day
// must not be reported as durable before the name is.
func TestANoteIsDurableOnlyWithItsDay(t *testing.T) {
	t.Parallel()
	dir, at, bad := t.TempDir(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), true
	trail.FailSync(dir, func() bool { return bad })
	for range 2 {
		if _, err := trail.Folder(dir).Create(t.Context(), at, []byte("{}\n")); !errors.Is(err, syscall.EIO) {
			t.Errorf("Create returned %v while the folder cannot be synced, want EIO", err)
		}
	}
	bad = false
	if _, err := trail.Folder(dir).Create(t.Context(), at, []byte("{}\n")); err != nil {
		t.Errorf("Create after a successful sync returned %v, want no error", err)
	}
}

// The disk is full when a day's folder is created. Later writes on that day do not report that
// old days may be removed.
func TestOldDaysGoAlthoughTheFirstWriteOfADayFails(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var full bool
	store := failing{Folder: trail.Folder(dir), create: func() error {
		if full {
			full = false
			return syscall.ENOSPC
		}
		return nil
	}}
	store.list = func() error { return nil }
	l := trail.Open(trail.Config{Store: store, Installation: ours, Now: func() time.Time { return now }})
	add(t, l, trail.Note{Kind: trail.KeyRevoked, ID: "key_1"})
	l.Settle()
	now, full = now.Add(trail.Keep+48*time.Hour), true
	if err := l.Add(t.Context(), trail.Note{Kind: trail.KeyRevoked, ID: "key_2"}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("Add on a full disk returned %v, want ENOSPC", err)
	}
	add(t, l, trail.Note{Kind: trail.KeyRevoked, ID: "key_3"})
	l.Settle()
	if days, err := os.ReadDir(dir); err != nil || len(days) != 1 || days[0].Name() != now.Format(time.DateOnly) {
		t.Errorf("the days are %v, %v, want only the new one", days, err)
	}
}

// The trail can be listed, but its objects cannot be read.
func TestABucketThatRefusesAFileStopsTheRead(t *testing.T) {
	t.Parallel()
	cloud, objects := bucket(t)
	store := trail.OpenBucket(objects, "media")
	add(t, trail.Open(trail.Config{Store: store, Installation: ours}), trail.Note{Kind: trail.KeyRevoked, ID: "key_1"})
	cloud.Storage.Faults().Inject(storage.Fault{Call: "objects.get", Status: 403, Times: 3})
	if notes, problems := readAll(t, store); len(notes) != 1 || len(problems) > 0 {
		t.Errorf("after three refused reads, notes are %v and problems %q, want one note and no problems", notes, problems)
	}
	cloud.Storage.Faults().Inject(storage.Fault{Call: "objects.get", Status: 403})
	if found, err := trail.Read(t.Context(), store, time.Time{}); err == nil {
		t.Errorf("while all reads are refused, Read = %+v, want an error", found)
	}
}

// The test does not run in parallel, because all logs share the gauge.
func TestNotesThatWaitAreMeasured(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir, clock())
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	began := float64(time.Now().Unix())
	var since float64
	for _, id := range []string{"key_1", "key_2"} {
		if err := l.Add(t.Context(), trail.Note{Kind: trail.KeyRevoked, ID: id}); err == nil {
			t.Fatal("Add succeeded although the folder is missing, want an error")
		}
		if got := trail.WaitingSince(); got < began || since != 0 && got != since {
			t.Errorf("notes have been waiting since %v, want since the first note (%v)", got, since)
		}
		since = trail.WaitingSince()
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	flush(t, l)
	if got := trail.WaitingSince(); got != 0 {
		t.Errorf("after all notes were written, the gauge is %v, want 0", got)
	}
}

// The trail's disk does not respond while a restore reads one of its files.
func TestAReadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder, err := trail.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := folder.Create(t.Context(), time.Now(), []byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the trail has the files %v (error %v), want one", files, err)
	}
	until := make(chan struct{})
	defer close(until)
	trail.HangRead(files[0], until)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	got := make(chan error, 1)
	go func() { _, err := trail.Read(ctx, folder, time.Time{}); got <- err }()
	select {
	case err := <-got:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Read = %v, want %v", err, context.DeadlineExceeded)
		}
	case <-time.After(20 * time.Second):
		t.Error("Read is still waiting for the disk after its context has ended")
	}
	for name, err := range folder.List(ctx, "") {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("List after its context has ended yielded %s and %v, want %v", name, err, context.DeadlineExceeded)
		}
	}
}
