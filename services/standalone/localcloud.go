package standalone

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/linkreel/linkreel/services/localcloud/backup"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/guard"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// localcloud returns a Stack that represents the localcloud at From.
func (o BackupOptions) localcloud(context.Context, Config) (s *Stack, done func() error, err error) {
	u, err := url.Parse(o.From)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, nil, fmt.Errorf("%q is not the address of a localcloud; use one such as http://linkreel-localcloud:8087", o.From)
	}
	if o.TokenFile == "" {
		return nil, nil, errors.New("a localcloud requires a token for backups; pass the file that contains it with --token-file")
	}
	text, err := os.ReadFile(o.TokenFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read the backup token: %w", err)
	}
	tokens, err := guard.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, nil, fmt.Errorf("read the backup token in %s: %w", o.TokenFile, err)
	}
	return &Stack{BackupURL: o.From, BackupToken: tokens.First()}, func() error { return nil }, nil
}

// localcloudDir contains the data directories of a localcloud, as given by its flags --data-dir and
// --objects-dir.
type localcloudDir struct{ data, objects string }

// restoredFile marks a data directory that a restore has filled. The file names the backup.
const restoredFile = "restored.json"

type restoredNote struct {
	Backup     string    `json:"backup"`
	RestoredAt time.Time `json:"restoredAt"`
	// Order is the highest order of any backup when the restore started. Backups with a higher
	// order were made later.
	Order int64 `json:"order,omitempty"`
}

func (d localcloudDir) records() string { return filepath.Join(d.data, "firestore.db") }
func (d localcloudDir) storage() string { return filepath.Join(d.data, "storage") }
func (d localcloudDir) note() string    { return filepath.Join(d.data, restoredFile) }

// prepare removes an incomplete restore. If the directory was already restored, done is the message
// for the operator. prepare refuses a directory with other data or one that was restored from a
// backup other than the named one. If no backup is named, prepare accepts any restored directory
// because a backup that completes after the restore must not prevent localcloud from starting.
func (d localcloudDir) prepare(o RestoreOptions) (done string, err error) {
	if o.Verify {
		return "", nil
	}
	unfinished, err := firestore.RestoreUnfinished(d.records())
	if err != nil {
		return "", err
	}
	if unfinished {
		return "", d.empty()
	}
	text, err := os.ReadFile(d.note())
	if err == nil {
		var was restoredNote
		if err := json.Unmarshal(text, &was); err != nil {
			return "", fmt.Errorf("read %s: %w", d.note(), err)
		}
		if o.Name != "" && o.Name != was.Backup {
			return "", fmt.Errorf("%s was restored from the backup %s at %s and may have been used since. To restore %s, start with an empty volume. "+
				"To keep the current data, disable the restore (restore.enabled=false)", d.data, was.Backup, was.RestoredAt.Format(time.RFC3339), o.Name)
		}
		return fmt.Sprintf("%s was restored from the backup %s at %s. Nothing to do. To restore this backup again, start with an empty volume.\n%s",
			d.data, was.Backup, was.RestoredAt.Format(time.RFC3339), o.passedOver(was)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read %s: %w", d.note(), err)
	}
	if _, err := os.Stat(filepath.Join(d.storage(), "index.db")); !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s contains data that was not written by a restore, and a restore never overwrites data; start with an empty volume", d.data)
	}
	if err := os.MkdirAll(d.data, 0o700); err != nil {
		return "", fmt.Errorf("data directory: %w", err)
	}
	return "", nil
}

// passedOver returns a sentence about a backup that is newer than the one in the directory, or "".
// It also returns "" if the backups cannot be read: restored data must be usable without them.
func (o RestoreOptions) passedOver(was restoredNote) string {
	newest, err := backup.Read(o.Dir, "")
	if err != nil || o.Name != "" || newest.Name == was.Backup {
		return ""
	}
	when := "already existed at the time of that restore"
	if newest.Order > was.Order {
		when = "was made after that restore"
	}
	return fmt.Sprintf("The newest backup, %s, %s and has not been restored. To restore it instead, start with an empty volume.\n", newest.Name, when)
}

// empty removes everything that a restore has written. It removes the records last because they
// contain the mark of an incomplete restore.
func (d localcloudDir) empty() error {
	if err := errors.Join(os.RemoveAll(d.storage()), os.RemoveAll(d.note())); err != nil {
		return err
	}
	return os.RemoveAll(d.records())
}

// place returns the directory as the target of a restore. The trail is not copied.
func (d localcloudDir) place(r *restoring) *place {
	return &place{
		name: d.data, records: d.records(), objects: storage.Options{Dir: d.storage(), ObjectsDir: d.objects},
		grants: "Playback grants end when you replace LINKREEL_TOKEN_SECRET.",
		settle: func() error {
			if err := writeJSON(d.note(), restoredNote{r.m.Name, time.Now().UTC(), r.seen}); err != nil {
				return err
			}
			dir, err := os.Open(d.data)
			if err != nil {
				return err
			}
			return errors.Join(dir.Sync(), dir.Close())
		},
		empty: func() error {
			// Records without the mark are not from this restore, so they must not be removed.
			unfinished, err := firestore.RestoreUnfinished(d.records())
			if err != nil || !unfinished {
				return err
			}
			return d.empty()
		},
		close: func() {},
	}
}
