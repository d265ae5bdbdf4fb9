package storage_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// entries returns the entries of a server's index.
func (e *env) entries(t *testing.T) (all []storage.Entry) {
	t.Helper()
	sn, err := e.srv.Snapshot(func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer sn.Close()
	err = sn.Entries(func(entry storage.Entry) error {
		all = append(all, storage.Entry{In: entry.In, Key: bytes.Clone(entry.Key), Value: bytes.Clone(entry.Value)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestANewNotificationOverwritesNoRestoredOne(t *testing.T) {
	t.Parallel()
	nobody := &storage.Notify{URL: "http://127.0.0.1:1/"}
	e := start(t, storage.Options{Notify: nobody})
	e.put(t, "a", "")
	dir := t.TempDir()
	to, err := storage.NewRestore(storage.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Entries(e.entries(t)); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	restored := start(t, storage.Options{Dir: dir, Notify: nobody})
	restored.put(t, "b", "")
	r := receive(t)
	restored.again(t, storage.Options{Notify: &storage.Notify{URL: r.URL}})
	eventually(t, "the notifications for a and b have arrived", func() bool { return len(r.seen()) == 2 })
}

// TestABackupThatStallsStopsNoWrite adds 300 MB to the index while a backup reads it.
func TestABackupThatStallsStopsNoWrite(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	sn, err := e.srv.Snapshot(func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer sn.Close() // closing the snapshot also releases a write that waits for it
	done := make(chan error, 1)
	go func() { done <- e.srv.FillIndex(300 << 20) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("a write did not finish within a minute because it waited for the backup")
	}
}
