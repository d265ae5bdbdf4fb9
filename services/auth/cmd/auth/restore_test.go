package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFalseTimeIsExplained(t *testing.T) {
	t.Setenv("LINKREEL_AUDIT_DIR", t.TempDir())
	t.Setenv("LINKREEL_FIRESTORE_ENDPOINT", "127.0.0.1:1") // not reached
	for since, want := range map[string]string{
		"yesterday":            `"yesterday" is not a time. Use the time that you restored the database to, in UTC, such as`,
		"2026-03-01":           `"2026-03-01" is not a time. Use`,
		"9999-01-01T00:00:00Z": "9999-01-01T00:00:00Z is in the future according to this machine's clock. Use the time that you restored the database to, in UTC, such as",
	} {
		if err := restore(t.Context(), []string{"--since", since}, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("restore --since %s returned %v, want %s", since, err, want)
		}
	}
}

// The folder of the trail is missing, as if its disk were not mounted. If restore created an
// empty trail, everything that was revoked after the backup would become valid again.
func TestARestoreDoesNotCreateTheTrail(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	t.Setenv("LINKREEL_AUDIT_DIR", dir)
	t.Setenv("LINKREEL_FIRESTORE_ENDPOINT", "127.0.0.1:1") // not reached
	err := restore(t.Context(), []string{"--since", "2026-03-01T12:00:00Z"}, io.Discard)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "LINKREEL_AUDIT_DIR") {
		t.Errorf("restore returned %v, want fs.ErrNotExist for the folder in LINKREEL_AUDIT_DIR", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat on the folder returned %v, want fs.ErrNotExist", err)
	}
}
