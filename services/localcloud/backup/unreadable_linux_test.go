package backup_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/linkreel/linkreel/services/localcloud/backup"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// TestADiskThatDoesNotAnswerIsNoDamage restores a backup and leaves out damaged objects, first
// while one object is unreadable and then while the whole objects folder is missing.
func TestADiskThatDoesNotAnswerIsNoDamage(t *testing.T) {
	t.Parallel()
	c, dir := start(t, t.TempDir()), t.TempDir()
	c.add("a", content("a"))
	m := take(t, c.options(dir))
	objects := filepath.Join(dir, "objects")
	object, away := filepath.Join(objects, m.Objects[0].Name), filepath.Join(t.TempDir(), "away")
	for _, tt := range []struct {
		name       string
		fail       func() error
		heal       func() error
		restoreErr error
	}{
		// Reads of this file fail with EIO.
		{"an unreadable object", func() error { return errors.Join(os.Rename(object, away), os.Symlink("/proc/self/mem", object)) }, func() error { return os.Rename(away, object) }, syscall.EIO},
		{"a missing folder", func() error { return os.Rename(objects, away) }, func() error { return os.Rename(away, objects) }, os.ErrNotExist},
	} {
		if err := tt.fail(); err != nil {
			t.Fatal(err)
		}
		told := func(d backup.Damage) {
			t.Errorf("with %s, %s was reported as damaged (%v), want no damage", tt.name, d.Object, d.Err)
		}
		restore := func() error {
			to := t.TempDir()
			return backup.Restore(t.Context(), dir, m, nil, backup.Target{
				Records: filepath.Join(to, "firestore.db"), Objects: storage.Options{Dir: filepath.Join(to, "objects")}, Damaged: told,
			})
		}
		if err := restore(); !errors.Is(err, tt.restoreErr) {
			t.Errorf("with %s, Restore = %v, want %v", tt.name, err, tt.restoreErr)
		}
		if err := backup.Verify(t.Context(), dir, m, nil, told); !errors.Is(err, tt.restoreErr) {
			t.Errorf("with %s, Verify = %v, want %v", tt.name, err, tt.restoreErr)
		}
		if err := tt.heal(); err != nil {
			t.Fatal(err)
		}
		if err := restore(); err != nil {
			t.Errorf("after recovery from %s, Restore = %v, want no error", tt.name, err)
		}
	}
}
