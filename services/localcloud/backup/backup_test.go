package backup_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gc "cloud.google.com/go/firestore"
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"filippo.io/age"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/linkreel/linkreel/services/localcloud/backup"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/guard"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

const token = "0123456789abcdef0123456789abcdef"

// killedEnv, if set, makes this test binary take a backup and kill itself at one of the writes.
const killedEnv = "LINKREEL_TEST_KILLED_BACKUP"

func TestMain(m *testing.M) {
	if at, url, ok := strings.Cut(os.Getenv(killedEnv), " "); ok {
		takeAndDie(at, url)
	}
	os.Exit(m.Run())
}

// takeAndDie backs up url into the current folder and kills this process at write number at.
func takeAndDie(at, url string) {
	left, err := strconv.Atoi(at)
	if err == nil {
		o := backup.Options{Dir: ".", URL: url, Token: token, Keep: time.Hour}
		_, err = backup.Take(context.Background(), o.WithWrite(func(f *os.File, p []byte) (int, error) {
			if left--; left < 0 {
				_, _ = f.Write(p[:len(p)/2])
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			return f.Write(p)
		}))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// cloud is a running source with one bucket.
type cloud struct {
	tb      testing.TB
	records *firestore.Server
	db      *gc.Client
	api     string // of storage
	url     string // of backups
}

func start(tb testing.TB, dir string) *cloud {
	tb.Helper()
	c := &cloud{tb: tb}
	var err error
	if c.records, err = firestore.Open(firestore.Options{Path: filepath.Join(dir, "firestore.db")}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.records.Close() })
	if c.db, err = c.records.Client(tb.Context(), "p"); err != nil {
		tb.Fatal(err)
	}
	objects, err := storage.Open(storage.Options{Dir: filepath.Join(dir, "objects"), Buckets: []string{"media"}, Key: cloudtest.ServiceAccountKey()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = objects.Close() })
	tokens, err := guard.Parse(token)
	if err != nil {
		tb.Fatal(err)
	}
	source := &backup.Source{Records: c.records, Objects: objects, Tokens: tokens, Stop: tb.Context()}
	api, backups := httptest.NewServer(objects.APIHandler()), httptest.NewServer(source.Handler())
	tb.Cleanup(func() { api.Close(); backups.Close() })
	c.api, c.url = api.URL, backups.URL
	return c
}

// call calls the storage API and returns the response body.
func (c *cloud) call(method, path string, body []byte) []byte {
	req, err := http.NewRequestWithContext(context.Background(), method, c.api+path, bytes.NewReader(body))
	if err != nil {
		c.tb.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.tb.Error(err)
		return nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		c.tb.Errorf("%s %s = %s %v %.200s", method, path, resp.Status, err, text)
	}
	return text
}

// add writes an object and then a record that refers to it.
func (c *cloud) add(name string, content []byte) {
	c.call(http.MethodPost, "/upload/storage/v1/b/media/o?uploadType=media&name="+url.QueryEscape(name), content)
	if _, err := c.db.Collection("videos").Doc(name).Create(context.Background(), map[string]any{"object": name}); err != nil {
		c.tb.Error(err)
	}
}

// remove deletes the record, and then its object.
func (c *cloud) remove(name string) {
	if _, err := c.db.Collection("videos").Doc(name).Delete(context.Background()); err != nil {
		c.tb.Error(err)
	}
	c.call(http.MethodDelete, "/storage/v1/b/media/o/"+url.PathEscape(name), nil)
}

// names returns the names of the records. It also checks the content of each record's object.
func (c *cloud) names() map[string]bool {
	c.tb.Helper()
	docs, err := c.db.Collection("videos").OrderBy("object", gc.Asc).Documents(context.Background()).GetAll()
	if err != nil {
		c.tb.Fatal(err)
	}
	found := map[string]bool{}
	for _, d := range docs {
		found[d.Ref.ID] = true
		got := c.call(http.MethodGet, "/storage/v1/b/media/o/"+url.PathEscape(d.Ref.ID)+"?alt=media", nil)
		if !bytes.Equal(got, content(d.Ref.ID)) {
			c.tb.Errorf("%s has %d bytes of different content", d.Ref.ID, len(got))
		}
	}
	return found
}

// content returns the content of the object with the given name, up to 40 KiB.
func content(name string) []byte {
	sum := sha256.Sum256([]byte(name))
	return bytes.Repeat(sum[:], 1+int(sum[0])*5)
}

func (c *cloud) options(dir string) backup.Options {
	return backup.Options{Dir: dir, URL: c.url, Token: token, Keep: time.Hour}
}

func take(tb testing.TB, o backup.Options) *backup.Manifest {
	tb.Helper()
	m, err := backup.Take(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// restore restores into a new folder and starts a server on it.
func restore(tb testing.TB, dir string, m *backup.Manifest, ids ...age.Identity) *cloud {
	tb.Helper()
	to := tb.TempDir()
	if err := restoreTo(tb, to, dir, m, ids...); err != nil {
		tb.Fatal(err)
	}
	return start(tb, to)
}

func restoreTo(tb testing.TB, to, dir string, m *backup.Manifest, ids ...age.Identity) error {
	return backup.Restore(tb.Context(), dir, m, ids, backup.Target{
		Records: filepath.Join(to, "firestore.db"), Objects: storage.Options{Dir: filepath.Join(to, "objects")},
	})
}

// TestABackupIsOneStateUnderWrites takes backups while objects and records are being added and
// deleted. Each backup must contain every record that was acknowledged before it began, and the
// object that each record refers to.
func TestABackupIsOneStateUnderWrites(t *testing.T) {
	t.Parallel()
	c, dir := start(t, t.TempDir()), t.TempDir()
	for i := range 50 {
		c.add(fmt.Sprintf("old-%d", i), content(fmt.Sprintf("old-%d", i)))
	}
	var writers sync.WaitGroup
	stop := make(chan struct{})
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("w%d-%d", w, i)
				c.add(name, content(name))
				c.remove(name)
			}
		})
	}
	var taken []*backup.Manifest
	for i := range 4 {
		c.add(fmt.Sprintf("kept-%d", i), content(fmt.Sprintf("kept-%d", i)))
		taken = append(taken, take(t, c.options(dir)))
	}
	close(stop)
	writers.Wait()
	for i, m := range taken {
		if err := backup.Verify(t.Context(), dir, m, nil, nil); err != nil {
			t.Error(err)
		}
		found := restore(t, dir, m).names()
		for n := range 50 {
			if name := fmt.Sprintf("old-%d", n); !found[name] {
				t.Errorf("backup %d does not contain %s", i, name)
			}
		}
		for n := range 4 {
			if name := fmt.Sprintf("kept-%d", n); found[name] != (n <= i) {
				t.Errorf("backup %d: contains %s = %v, want %v", i, name, found[name], n <= i)
			}
		}
	}
}

func TestARestoredServerContinues(t *testing.T) {
	t.Parallel()
	c, dir := start(t, t.TempDir()), t.TempDir()
	c.add("a", content("a"))
	before, err := c.db.Doc("videos/a").Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again := restore(t, dir, take(t, c.options(dir)))
	after, err := again.db.Doc("videos/a").Get(t.Context())
	if err != nil || !after.CreateTime.Equal(before.CreateTime) || !after.UpdateTime.Equal(before.UpdateTime) {
		t.Errorf("the create and update times are %v and %v, want %v and %v (%v)", after.CreateTime, after.UpdateTime, before.CreateTime, before.UpdateTime, err)
	}
	if _, err := again.db.Doc("videos/a").Update(t.Context(), []gc.Update{{Path: "x", Value: 1}}, gc.LastUpdateTime(before.UpdateTime)); err != nil {
		t.Errorf("an update with a precondition from before the restore returned %v, want no error", err)
	}
	again.add("b", content("b"))
	// The next backup must not copy the restored object again, because its file is the same.
	size := usage(t, filepath.Join(dir, "objects"))
	m := take(t, again.options(dir))
	if grown := usage(t, filepath.Join(dir, "objects")) - size; len(m.Objects) != 2 || grown != int64(len(content("b"))) {
		t.Errorf("the next backup has %d objects and %d more bytes, want 2 objects and %d more bytes", len(m.Objects), grown, len(content("b")))
	}
}

func TestOldBackupsAndTheirObjectsGo(t *testing.T) {
	t.Parallel()
	c, dir := start(t, t.TempDir()), t.TempDir()
	now := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	o := c.options(dir)
	o.Now = func() time.Time { return now }
	c.add("a", content("a"))
	first := take(t, o)
	c.remove("a")
	c.add("b", content("b"))
	now = now.Add(40 * time.Minute)
	second := take(t, o)
	if err := backup.Verify(t.Context(), dir, first, nil, nil); err != nil {
		t.Error(err)
	}
	now = now.Add(40 * time.Minute)
	take(t, o)
	names, err := backup.Names(dir)
	if err != nil || len(names) != 2 || names[0] != second.Name {
		t.Errorf("backups are %v, want two from %s (%v)", names, second.Name, err)
	}
	if size := usage(t, filepath.Join(dir, "objects")); size != int64(len(content("b"))) {
		t.Errorf("the objects take up %d bytes, want %d", size, len(content("b")))
	}
}

// An expired backup is removed, but not while a restore or a check is reading it.
func TestABackupStaysWhileItIsRead(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	for name, read := range map[string]func(dir string, m *backup.Manifest, during func()) error{
		"restored": func(dir string, m *backup.Manifest, during func()) error {
			to, once := t.TempDir(), sync.Once{}
			return backup.Restore(t.Context(), dir, m, nil, backup.Target{
				Records: filepath.Join(to, "firestore.db"), Objects: storage.Options{Dir: filepath.Join(to, "objects")},
				Edit: func(*pb.Document) bool { once.Do(during); return true },
			})
		},
		"checked": func(dir string, m *backup.Manifest, during func()) error {
			// The first object is damaged, so the check reports it before it reads the others.
			if err := os.Truncate(filepath.Join(dir, "objects", m.Objects[0].Name), 1); err != nil {
				return err
			}
			lost := 0
			err := backup.Verify(t.Context(), dir, m, nil, func(backup.Damage) { lost++; during() })
			if lost == 1 && err != nil && strings.Contains(err.Error(), "1 of 2 objects") {
				return nil
			}
			return fmt.Errorf("%d damaged objects, want 1: %w", lost, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, dir, at := start(t, t.TempDir()), t.TempDir(), now
			o := c.options(dir)
			o.Now = func() time.Time { return at }
			for _, name := range []string{"a", "b"} {
				c.add(name, content(name))
			}
			old := take(t, o)
			for _, name := range []string{"a", "b"} {
				c.remove(name)
			}
			err := read(dir, old, func() {
				at = at.Add(2 * time.Hour)
				if m := take(t, o); m.Left != 1 {
					t.Errorf("%d expired backups remain while one is being read, want 1", m.Left)
				}
			})
			if err != nil {
				t.Errorf("while another backup was made: %v", err)
			}
			at = at.Add(time.Minute)
			take(t, o)
			if _, err := backup.Read(dir, old.Name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("after the read, Read of the old backup = %v, want %v", err, fs.ErrNotExist)
			}
			if err := backup.Verify(t.Context(), dir, old, nil, nil); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Verify of a removed backup = %v, want %v", err, fs.ErrNotExist)
			}
		})
	}
}

// The test sets the clock forward by 14 years.
func TestAClockThatJumpedRemovesTwoBackups(t *testing.T) {
	t.Parallel()
	c, dir := start(t, t.TempDir()), t.TempDir()
	now := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	o := c.options(dir)
	o.Now = func() time.Time { now = now.Add(time.Minute); return now }
	for range 5 {
		take(t, o)
	}
	now = now.AddDate(14, 0, 0)
	for _, left := range []int{3, 1, 0} {
		if m := take(t, o); m.Left != left {
			t.Errorf("%d expired backups remain, want %d", m.Left, left)
		}
	}
	if names, err := backup.Names(dir); err != nil || len(names) != 3 {
		t.Errorf("the backups are %v (error %v), want three", names, err)
	}
}

// The test sets the clock forward by 56 years during a backup, as happens when a machine without a
// clock battery gets the time from the network.
func TestAClockThatJumpsDuringABackupKeepsIt(t *testing.T) {
	t.Parallel()
	c, dir := start(t, t.TempDir()), t.TempDir()
	c.add("a", content("a"))
	o := c.options(dir)
	now := time.Date(1970, 1, 1, 0, 1, 0, 0, time.UTC)
	o.Now = func() time.Time { at := now; now = at.AddDate(56, 0, 0); return at }
	m := take(t, o)
	if err := backup.Verify(t.Context(), dir, m, nil, nil); err != nil {
		t.Errorf("the new backup %s cannot be restored: %v", m.Name, err)
	}
}

// The test makes backups in a folder that also contains other files.
func TestOnlyFilesOfBackupsAreRemoved(t *testing.T) {
	t.Parallel()
	c, dir := start(t, t.TempDir()), filepath.Join(t.TempDir(), "backups[1")
	now := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	o := c.options(dir)
	o.Now = func() time.Time { return now }
	c.add("a", content("a"))
	take(t, o)
	theirs := []string{"film.mp4.part", "objects/notes.txt", "objects/film.mp4.0123456789abcdef"}
	ours := []string{"2026-03-01T01-00-00.000Z.part", "objects/.new-1", "objects/" + strings.Repeat("0", 32) + "." + strings.Repeat("a", 64)}
	for _, name := range append(theirs, ours...) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(2 * time.Hour)
	take(t, o)
	for _, name := range theirs {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("a file that is not part of any backup is missing: %v", err)
		}
	}
	for _, name := range ours {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s remains (%v), want it removed", name, err)
		}
	}
}

func TestAnObjectThatWasCutOffIsCopiedAgain(t *testing.T) {
	t.Parallel()
	c, dir := start(t, t.TempDir()), t.TempDir()
	c.add("a", content("a"))
	m := take(t, c.options(dir))
	if err := os.Truncate(filepath.Join(dir, "objects", m.Objects[0].Name), 1); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*backup.Manifest{take(t, c.options(dir)), m} {
		if err := backup.Verify(t.Context(), dir, m, nil, nil); err != nil {
			t.Errorf("Verify of the backup %s = %v, want no error", m.Name, err)
		}
	}
}

// usage returns the total size of the files in a folder and checks their modes.
func usage(tb testing.TB, dir string) (n int64) {
	tb.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !d.IsDir() {
			n += info.Size()
		}
		if info.Mode().Perm()&0o077 != 0 && path != dir {
			tb.Errorf("%s has mode %v, want no access for others", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// The test kills a backup at each of its writes. The last complete backup must be kept, and a later
// attempt must succeed.
func TestAKilledBackupIsNoBackup(t *testing.T) { // not parallel: a starting process briefly inherits the locks of other tests
	c, dir := start(t, t.TempDir()), t.TempDir()
	for i := range 6 {
		c.add(fmt.Sprintf("o%d", i), content(fmt.Sprintf("o%d", i)))
	}
	first := take(t, c.options(dir))
	for i := range 6 {
		c.add(fmt.Sprintf("n%d", i), content(fmt.Sprintf("n%d", i)))
	}
	kills := 0
	for ; ; kills++ {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Dir, cmd.Env = dir, append(os.Environ(), fmt.Sprintf("%s=%d %s", killedEnv, kills%16, c.url))
		out, err := cmd.CombinedOutput()
		names, listErr := backup.Names(dir)
		if listErr != nil {
			t.Fatal(listErr)
		}
		if err == nil {
			break
		}
		if kills > 100 || cmd.ProcessState.ExitCode() != -1 || len(names) != 1 || names[0] != first.Name {
			t.Fatalf("after kill %d, the error is %v and the backups are %v, want a killed process and only %s: %s", kills, err, names, first.Name, out)
		}
		if err := backup.Verify(t.Context(), dir, first, nil, nil); err != nil {
			t.Fatalf("after kill %d, Verify of the first backup = %v, want no error", kills, err)
		}
	}
	m, err := backup.Read(dir, "")
	if err != nil || kills == 0 {
		t.Fatalf("after %d kills, Read = %v, want at least one kill and no error", kills, err)
	}
	if found := restore(t, dir, m).names(); len(found) != 12 {
		t.Errorf("after %d kills the backup has %d records, want 12", kills, len(found))
	}
	t.Logf("%d kills", kills)
}

func TestAFullDiskLeavesTheEarlierBackups(t *testing.T) {
	t.Parallel()
	c, dir := start(t, t.TempDir()), t.TempDir()
	c.add("a", content("a"))
	first := take(t, c.options(dir))
	c.add("b", content("b"))
	for at := range 4 {
		left := at
		_, err := backup.Take(t.Context(), c.options(dir).WithWrite(func(f *os.File, p []byte) (int, error) {
			if left--; left < 0 {
				n, _ := f.Write(p[:len(p)/2])
				return n, &fs.PathError{Op: "write", Path: f.Name(), Err: syscall.ENOSPC}
			}
			return f.Write(p)
		}))
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "is full: free some space") {
			t.Fatalf("Take with a full disk at write %d = %v, want ENOSPC and advice to free space", at, err)
		}
		names, err := backup.Names(dir)
		if err != nil || len(names) != 1 {
			t.Fatalf("after write %d failed, the backups are %v (error %v), want one", at, names, err)
		}
	}
	if err := backup.Verify(t.Context(), dir, first, nil, nil); err != nil {
		t.Error(err)
	}
	if found := restore(t, dir, take(t, c.options(dir))).names(); len(found) != 2 {
		t.Errorf("the next backup contains %v, want a and b", found)
	}
}

// The test damages each file in a backup in turn.
func TestDamageStopsARestore(t *testing.T) {
	t.Parallel()
	c, dir := start(t, t.TempDir()), t.TempDir()
	c.add("a", content("a"))
	m := take(t, c.options(dir))
	files := []string{
		filepath.Join(m.Name, "manifest.json"), filepath.Join(m.Name, m.Records.Name), filepath.Join(m.Name, m.Index.Name),
		filepath.Join("objects", m.Objects[0].Name),
	}
	for _, name := range files {
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for what, damaged := range map[string][]byte{"changed": append([]byte{whole[0] ^ 1}, whole[1:]...), "cut": whole[:len(whole)-1]} {
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			to := t.TempDir()
			read, err := backup.Read(dir, m.Name)
			if err == nil {
				if verified := backup.Verify(t.Context(), dir, read, nil, nil); verified == nil || !strings.Contains(verified.Error(), "damaged") {
					t.Errorf("%s %s: Verify = %v, want an error about damage", name, what, verified)
				}
				err = restoreTo(t, to, dir, read)
			}
			if err == nil || !strings.Contains(err.Error(), "damaged") {
				t.Errorf("%s %s: the restore returned %v, want an error about damage", name, what, err)
			}
			if read != nil {
				if _, err := firestore.Open(firestore.Options{Path: filepath.Join(to, "firestore.db")}); err == nil || !strings.Contains(err.Error(), "incomplete restore") {
					t.Errorf("%s %s: Open of an incomplete restore = %v, want an error", name, what, err)
				}
			}
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := backup.Verify(t.Context(), dir, m, nil, nil); err != nil {
		t.Error(err)
	}
}

// The test damages objects in a backup in different ways, and restores the backup without them.
func TestDamagedObjectsAreLeftOut(t *testing.T) {
	t.Parallel()
	c, dir := start(t, t.TempDir()), t.TempDir()
	for _, name := range []string{"whole", "changed", "cut", "gone"} {
		c.add(name, content(name))
	}
	m := take(t, c.options(dir))
	for i, f := range m.Objects {
		path := filepath.Join(dir, "objects", f.Name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case bytes.Equal(text, content("changed")):
			text[len(text)/2] ^= 1
			err = os.WriteFile(path, text, 0o600)
		case bytes.Equal(text, content("cut")):
			err = os.Truncate(path, f.Bytes/2)
		case bytes.Equal(text, content("gone")):
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatalf("object %d: %v", i, err)
		}
	}
	var verified, left []string
	err := backup.Verify(t.Context(), dir, m, nil, func(d backup.Damage) { verified = append(verified, d.Object) })
	if slices.Sort(verified); err == nil || !strings.Contains(err.Error(), "3 of 4 objects") || fmt.Sprint(verified) != "[media/changed media/cut media/gone]" {
		t.Errorf("Verify = %v and reported %v, want the changed, truncated and missing objects", err, verified)
	}
	to := t.TempDir()
	err = backup.Restore(t.Context(), dir, m, nil, backup.Target{
		Records: filepath.Join(to, "firestore.db"), Objects: storage.Options{Dir: filepath.Join(to, "objects")},
		Damaged: func(d backup.Damage) { left = append(left, d.Object) },
	})
	if slices.Sort(left); err != nil || !slices.Equal(left, verified) {
		t.Fatalf("Restore = %v and left out %v, want no error and %v", err, left, verified)
	}
	r := start(t, to)
	if got := r.call(http.MethodGet, "/storage/v1/b/media/o/whole?alt=media", nil); !bytes.Equal(got, content("whole")) {
		t.Errorf("the intact object is %d bytes long, want its %d original bytes", len(got), len(content("whole")))
	}
	var list struct{ Items []struct{ Name string } }
	if err := json.Unmarshal(r.call(http.MethodGet, "/storage/v1/b/media/o", nil), &list); err != nil || len(list.Items) != 1 {
		t.Errorf("the restored bucket lists %v (error %v), want one object", list.Items, err)
	}
	if files, err := os.ReadDir(filepath.Join(to, "objects", "data")); err != nil || len(files) != 1 {
		t.Errorf("the restore created the files %v (error %v), want one", files, err)
	}
	// The next backup copies missing objects again under their old names, which repairs the older backup.
	for _, f := range m.Objects {
		text, err := os.ReadFile(filepath.Join(dir, "objects", f.Name))
		if err == nil && bytes.Equal(text, content("whole")) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, "objects", f.Name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	take(t, c.options(dir))
	if err := backup.Verify(t.Context(), dir, m, nil, nil); err != nil {
		t.Errorf("Verify after another backup = %v, want no error", err)
	}
}

// A restore that cannot write must fail. It must not leave out intact objects.
func TestAFullDiskIsNoDamage(t *testing.T) {
	t.Parallel()
	c, dir, to := start(t, t.TempDir()), t.TempDir(), t.TempDir()
	c.add("a", content("a"))
	m := take(t, c.options(dir))
	id, _, _ := strings.Cut(m.Objects[0].Name, ".")
	if err := os.MkdirAll(filepath.Join(to, "objects", "tmp", id), 0o700); err != nil { // so the file cannot be created
		t.Fatal(err)
	}
	err := backup.Restore(t.Context(), dir, m, nil, backup.Target{
		Records: filepath.Join(to, "firestore.db"), Objects: storage.Options{Dir: filepath.Join(to, "objects")},
		Damaged: func(d backup.Damage) { t.Errorf("%s was left out (%v), want no objects left out", d.Object, d.Err) },
	})
	if err == nil {
		t.Error("Restore succeeded, want an error")
	}
}

func TestARestoreOverwritesNothing(t *testing.T) {
	t.Parallel()
	c, dir, to := start(t, t.TempDir()), t.TempDir(), t.TempDir()
	c.add("a", content("a"))
	m := take(t, c.options(dir))
	if err := restoreTo(t, to, dir, m); err != nil {
		t.Fatal(err)
	}
	if err := restoreTo(t, to, dir, m); err == nil || !strings.Contains(err.Error(), "empty folder") {
		t.Errorf("a second restore = %v, want an error about an empty folder", err)
	}
	if found := start(t, to).names(); !found["a"] {
		t.Error("the first restore is damaged")
	}
}

func TestAnEncryptedBackupNeedsItsIdentity(t *testing.T) {
	t.Parallel()
	c, dir := start(t, t.TempDir()), t.TempDir()
	c.add("secret-name", content("secret-name"))
	take(t, c.options(dir)) // its objects are not encrypted, so they are not reused
	id, other := identity(t), identity(t)
	o := c.options(dir)
	o.Recipient = id.Recipient().String()
	m := take(t, o)
	for _, f := range append([]backup.File{{Name: filepath.Join("..", m.Name, m.Records.Name)}, {Name: filepath.Join("..", m.Name, m.Index.Name)}}, m.Objects...) {
		text, err := os.ReadFile(filepath.Join(dir, "objects", f.Name))
		if err != nil || !bytes.HasPrefix(text, []byte("age-encryption.org/v1")) || bytes.Contains(text, content("secret-name")[:64]) {
			t.Errorf("%s is not encrypted (error %v), want an encrypted file", f.Name, err)
		}
	}
	for name, ids := range map[string][]age.Identity{"no identity": nil, "the wrong identity": {other}} {
		if err := backup.Verify(t.Context(), dir, m, ids, nil); err == nil {
			t.Errorf("Verify with %s succeeded, want an error", name)
		}
	}
	if found := restore(t, dir, m, id).names(); !found["secret-name"] {
		t.Errorf("the restored records are %v, want secret-name", found)
	}
	size := usage(t, filepath.Join(dir, "objects"))
	take(t, o)
	if grown := usage(t, filepath.Join(dir, "objects")) - size; grown != 0 {
		t.Errorf("the second encrypted backup copied %d bytes, want 0", grown)
	}
}

func identity(tb testing.TB) *age.X25519Identity {
	tb.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

// A forged manifest can name any file together with its correct checksum.
func TestAManifestNamesOnlyFilesOfItsBackup(t *testing.T) {
	t.Parallel()
	c, dir := start(t, t.TempDir()), t.TempDir()
	m := take(t, c.options(dir))
	if err := os.Rename(filepath.Join(dir, m.Name, m.Index.Name), filepath.Join(dir, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	m.Index.Name = "../elsewhere"
	if err := restoreTo(t, t.TempDir(), dir, m); err == nil || !strings.Contains(err.Error(), `"../elsewhere"`) {
		t.Errorf("restoring a manifest that names a file outside its backup returned %v, want an error with the file's name", err)
	}
}

func TestABackupNamesTheKeysOfSealedValues(t *testing.T) {
	t.Parallel()
	c, dir := start(t, t.TempDir()), t.TempDir()
	for id, fields := range map[string]map[string]any{
		"webhooks/1": {"keyIds": []string{"bb", "aa"}}, "webhooks/2": {"keyIds": []string{"aa"}},
		"certificates/1": {"keyId": "cc"}, "certificates/2": {"keyId": ""}, "accounts/1": {"key": []byte("\xee\xee\xee\xee sealed")}, "other/1": {"keyId": "dd"},
	} {
		if _, err := c.db.Doc(id).Create(t.Context(), fields); err != nil {
			t.Fatal(err)
		}
	}
	o := c.options(dir)
	o.Sealed = []backup.Sealed{{Collection: "webhooks", Field: "keyIds", Keys: "w"}, {Collection: "certificates", Field: "keyId", Keys: "c"}, {Collection: "accounts", Field: "key", Keys: "c"}}
	m := take(t, o)
	if got := fmt.Sprint(m.Keys); got != "map[c:[cc eeeeeeee] w:[aa bb]]" || m.Documents != 6 {
		t.Errorf("the manifest has the keys %s and %d documents, want four keys and 6 documents", got, m.Documents)
	}
}

func TestARestoreMayEditAndLeaveOut(t *testing.T) {
	t.Parallel()
	c, dir, to := start(t, t.TempDir()), t.TempDir(), t.TempDir()
	c.add("a", content("a"))
	c.add("b", content("b"))
	err := backup.Restore(t.Context(), dir, take(t, c.options(dir)), nil, backup.Target{
		Records: filepath.Join(to, "firestore.db"), Objects: storage.Options{Dir: filepath.Join(to, "objects")},
		Edit: func(d *pb.Document) bool { return !strings.HasSuffix(d.GetName(), "/a") },
	})
	if err != nil {
		t.Fatal(err)
	}
	if found := start(t, to).names(); found["a"] || !found["b"] {
		t.Errorf("the restored records are %v, want only b", found)
	}
}

// After a power failure, a file name exists only if its folder was synced after the name was
// written. The backup folder and its parent are both new.
func TestABackupOutlivesAPowerFailure(t *testing.T) {
	t.Parallel()
	c, root := start(t, t.TempDir()), t.TempDir()
	c.add("a", content("a"))
	mount, dir := filepath.Join(root, "mount"), filepath.Join(root, "mount", "backups")
	durable := map[string][]string{} // the names in each folder at its last sync
	m := take(t, c.options(dir).WithSync(func(path string) error {
		found, err := os.ReadDir(path)
		durable[path] = nil
		for _, e := range found {
			durable[path] = append(durable[path], e.Name())
		}
		return err
	}))
	for _, want := range []struct{ in, name string }{
		{root, "mount"}, {mount, "backups"}, {dir, m.Name}, {dir, "objects"}, {filepath.Join(dir, "objects"), m.Objects[0].Name},
		{filepath.Join(dir, m.Name+".part"), "manifest.json"}, {filepath.Join(dir, m.Name+".part"), m.Records.Name},
	} {
		if !slices.Contains(durable[want.in], want.name) {
			t.Errorf("the durable names in %s are %v, want %s", want.in, durable[want.in], want.name)
		}
	}
	// The process that created the folder may have been killed before it synced the parent.
	clear(durable)
	take(t, c.options(dir).WithSync(func(path string) error { durable[path] = []string{""}; return nil }))
	if durable[mount] == nil {
		t.Errorf("the second backup synced %v, want %s too", durable, mount)
	}
}

// A small compressed file, or a file that is mostly a hole, must not fill up memory.
func TestHugeFilesOfABackupAreRefused(t *testing.T) { // not parallel: it changes the maximum size of an index
	c, dir := start(t, t.TempDir()), t.TempDir()
	c.add("a", content("a"))
	m := take(t, c.options(dir))
	reset := backup.SetMaxIndex(20)
	if err := backup.Verify(t.Context(), dir, m, nil, nil); err == nil || !strings.Contains(err.Error(), "the index of objects has more than 20 bytes") {
		t.Errorf("Verify with a large index = %v, want an error about its size", err)
	}
	if _, err := backup.Take(t.Context(), c.options(dir)); err == nil || !strings.Contains(err.Error(), "the index of objects has more than 20 bytes") {
		t.Errorf("Take with a large index = %v, want an error about its size", err)
	}
	reset()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(bytes.Repeat([]byte(" "), 2<<20)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(z.Close(), os.WriteFile(filepath.Join(dir, m.Name, m.Index.Name), packed.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(packed.Bytes())
	m.Index.SHA256 = hex.EncodeToString(sum[:])
	if err := backup.Verify(t.Context(), dir, m, nil, nil); err == nil || !strings.Contains(err.Error(), "has an entry of more than 1048576 bytes") {
		t.Errorf("Verify with a large entry = %v, want an error about its size", err)
	}
	for file, most := range map[string]int64{"manifest.json": 1 << 30, "SHA256SUMS": 64 << 10} {
		path := filepath.Join(dir, m.Name, file)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, most+1); err != nil { // the end is a hole
			t.Fatal(err)
		}
		if _, err := backup.Read(dir, m.Name); err == nil || !strings.Contains(err.Error(), file+" is ") || !strings.Contains(err.Error(), "the file is damaged") {
			t.Errorf("Read with a %s of %d bytes = %v, want an error about its size", file, most+1, err)
		}
		if err := os.Truncate(path, info.Size()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestASourceNeedsItsToken(t *testing.T) {
	t.Parallel()
	c := start(t, t.TempDir())
	o := c.options(t.TempDir())
	o.Token = strings.Repeat("x", 32)
	if _, err := backup.Take(t.Context(), o); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("Take with a wrong token = %v, want a 401", err)
	}
	if names, err := backup.Names(o.Dir); err != nil || len(names) != 0 {
		t.Errorf("the backups are %v (error %v), want none", names, err)
	}
}

func TestABackupThatTheServerBreaksOffFails(t *testing.T) {
	t.Parallel()
	c, dir := start(t, t.TempDir()), t.TempDir()
	c.add("a", content("a"))
	whole := httptest.NewRecorder()
	proxied := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", whole.Header().Get("Content-Type"))
		n, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(whole.Body.Bytes()[:n])
	}))
	defer proxied.Close()
	resp, err := http.DefaultClient.Do(mustPost(t, c.url))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	whole.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	if _, err := whole.Body.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < whole.Body.Len()-200; n += 1 + whole.Body.Len()/40 {
		o := c.options(dir)
		o.URL = proxied.URL + "?n=" + strconv.Itoa(n)
		if _, err := backup.Take(t.Context(), o); err == nil {
			t.Errorf("Take succeeded with %d of %d bytes, want an error", n, whole.Body.Len())
		}
	}
	if names, err := backup.Names(dir); err != nil || len(names) != 0 {
		t.Errorf("the backups are %v (error %v), want none", names, err)
	}
}

// A source that stops sending must not keep a backup waiting forever, whether it stops before the
// response or in the middle of it. A slow receiver must not be mistaken for such a source.
func TestABackupEndsWithASilentSource(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string]string{
		"before the response": "", "in the middle of the records": "\r\n--x\r\nPart: records\r\nAt: 2026-03-01T00:00:00Z\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if sent != "" {
					w.Header().Set("Content-Type", "multipart/mixed; boundary=x")
					_, _ = io.WriteString(w, sent)
					w.(http.Flusher).Flush()
				}
				<-r.Context().Done()
			}))
			defer silent.Close()
			o := backup.Options{Dir: t.TempDir(), URL: silent.URL, Token: token}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := backup.Take(ctx, o.WithSilence(50*time.Millisecond))
			if err == nil || !strings.Contains(err.Error(), "the server sent nothing for 50ms") || !strings.Contains(err.Error(), silent.URL) {
				t.Errorf("Take = %v, want an error saying that the server sent nothing", err)
			}
			if names, err := backup.Names(o.Dir); err != nil || len(names) != 0 {
				t.Errorf("the backups are %v (error %v), want none", names, err)
			}
		})
	}
}

// The receiver takes longer to write than the source is allowed to be silent.
func TestASlowDiskIsNoSilentSource(t *testing.T) {
	t.Parallel()
	c := start(t, t.TempDir())
	c.add("a", content("a"))
	const limit = time.Second
	var once sync.Once
	slow := c.options(t.TempDir()).WithSilence(limit).WithWrite(func(f *os.File, p []byte) (int, error) {
		once.Do(func() { <-time.After(limit + limit/2) })
		return f.Write(p)
	})
	if _, err := backup.Take(t.Context(), slow); err != nil {
		t.Errorf("Take onto a slow disk = %v, want no error", err)
	}
}

// A proxy must not receive the data or the token. Go never uses a proxy for a loopback address, so
// the test uses a different address of this machine.
func TestABackupUsesNoProxy(t *testing.T) { // not parallel, like TestAKilledBackupIsNoBackup
	c := start(t, t.TempDir())
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the proxy received %s %s", r.Method, r.URL)
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "HTTP_PROXY="+proxy.URL, fmt.Sprintf("%s=%d %s", killedEnv, 1<<30, strings.Replace(c.url, "127.0.0.1", "0.0.0.0", 1)))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the backup returned %v, want no error: %s", err, out)
	}
}

func mustPost(tb testing.TB, address string) *http.Request {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, address, http.NoBody)
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return req
}

// The machine's clock shows an earlier time than the restored records.
func TestANewServerCommitsAfterTheRestoredState(t *testing.T) {
	t.Parallel()
	future := time.Now().Add(time.Hour)
	s, err := firestore.Open(firestore.Options{Path: filepath.Join(t.TempDir(), "f.db"), Restoring: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sent := false
	err = s.Import(t.Context(), future, func() (*pb.Document, error) {
		if sent {
			return nil, nil
		}
		sent = true
		return &pb.Document{Name: "projects/p/databases/(default)/documents/a/1", Fields: map[string]*pb.Value{}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	db, err := s.Client(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	w, err := db.Doc("a/2").Create(t.Context(), map[string]any{})
	if err != nil || !w.UpdateTime.After(future) {
		t.Errorf("committed at %v, want after %v (%v)", w, future, err)
	}
	if _, err := db.Doc("a/1").Create(t.Context(), map[string]any{}); status.Code(err) != codes.AlreadyExists {
		t.Errorf("Create of a restored document = %v, want AlreadyExists", err)
	}
}

// The test makes one backup while the clock is years ahead, and others after the clock is
// corrected. As long as any manifest is damaged, there is no way to tell which backup is the
// newest.
func TestTheNewestBackupIsTheOneMadeLast(t *testing.T) {
	t.Parallel()
	c, dir := start(t, t.TempDir()), t.TempDir()
	now := time.Date(2026, 3, 1, 2, 30, 0, 0, time.UTC)
	at := func(years, days int) *backup.Manifest {
		t.Helper()
		o := c.options(dir)
		o.Now, o.Keep = func() time.Time { return now.AddDate(years, 0, days) }, 0
		return take(t, o)
	}
	at(0, 0)
	at(14, 0)
	last := at(0, 1)
	if m, err := backup.Read(dir, ""); err != nil || m.Name != last.Name || m.Order != 3 {
		t.Errorf("the newest backup is %+v (error %v), want %s", m, err, last.Name)
	}
	for _, name := range []string{"newest", "2026-03-05T02-30-00.000Z"} {
		if m, err := backup.Read(dir, name); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), last.Name) {
			t.Errorf("Read(%q) = %v, %v, want an error with this name and with the existing %s", name, m, err, last.Name)
		}
	}
	if err := os.Truncate(filepath.Join(dir, last.Name, "manifest.json"), 10); err != nil {
		t.Fatal(err)
	}
	if m, err := backup.Read(dir, ""); err == nil || !strings.Contains(err.Error(), last.Name) {
		t.Errorf("with a damaged manifest, Read = %v, %v, want an error about %s", m, err, last.Name)
	}
	next := at(0, 2)
	if next.Order != 3 {
		t.Errorf("the next backup has order %d, want 3", next.Order)
	}
	if m, err := backup.Read(dir, ""); err == nil || !strings.Contains(err.Error(), last.Name) || !strings.Contains(err.Error(), next.Name+": to use that one, name it with --backup") {
		t.Errorf("with an earlier damaged manifest, Read = %v, %v, want an error with both names", m, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, last.Name)); err != nil {
		t.Fatal(err)
	}
	if m, err := backup.Read(dir, ""); err != nil || m.Name != next.Name {
		t.Errorf("the newest backup is %+v (error %v), want %s", m, err, next.Name)
	}
}
