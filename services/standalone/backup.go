package standalone

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"filippo.io/age"
	"github.com/caarlos0/env/v11"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/trail"
	"github.com/linkreel/linkreel/services/auth"
	"github.com/linkreel/linkreel/services/events"
	"github.com/linkreel/linkreel/services/links"
	"github.com/linkreel/linkreel/services/localcloud/backup"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/guard"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// backupPath is the path of backups on the port of object storage. No bucket has this name.
const backupPath = "/-/backup"

// Names of the settings whose keys seal values in records.
const (
	webhookKey     = "LINKREEL_WEBHOOK_SECRET_KEY"
	certificateKey = "LINKREEL_CERTIFICATE_KEY"
)

// sealed lists the records with sealed values.
var sealed = []backup.Sealed{
	{Collection: "webhooks", Field: "keyIds", Keys: webhookKey},
	{Collection: "certificates", Field: "keyId", Keys: certificateKey},
	{Collection: "acmeAccounts", Field: "key", Keys: certificateKey},
}

func backupHandler(stop context.Context, records *firestore.Server, objects *storage.Server, token string) (http.Handler, error) {
	tokens, err := guard.Parse(token)
	if err != nil {
		return nil, fmt.Errorf("token of backups: %w", err)
	}
	return (&backup.Source{Records: records, Objects: objects, Tokens: tokens, Stop: stop}).Handler(), nil
}

// Backup is `linkreel backup`: it copies the data directory of LINKREEL_DATA_DIR into a new
// backup in the folder dir, whether a stack runs on it or not. recipient is an age
// recipient, or "" for no encryption.
func Backup(ctx context.Context, out io.Writer, dir, recipient string) error {
	var cfg Config
	if err := env.Parse(&cfg); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if cfg.BackupDays < 0 {
		return fmt.Errorf("LINKREEL_BACKUP_DAYS is %d; use a number of days, or 0 to keep all backups", cfg.BackupDays)
	}
	s, done, err := running(ctx, cfg)
	if err != nil {
		return err
	}
	m, err := backup.Take(ctx, backup.Options{
		Dir: dir, URL: s.BackupURL, Token: s.BackupToken, Recipient: recipient,
		Keep: time.Duration(cfg.BackupDays) * 24 * time.Hour, Sealed: sealed,
	})
	if err = errors.Join(err, done()); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "Backup %s: %d records, %d objects with %d bytes.\n", m.Name, m.Documents, len(m.Objects), m.Bytes())
	if len(m.Keys) > 0 {
		_, _ = fmt.Fprintf(
			out, "A restore needs %s, which is not in the backup: keep a copy of it elsewhere.\n", filepath.Join(s.DataDir, secretsFile),
		)
	}
	return nil
}

// running finds the stack that runs on the data directory. If none runs, it opens the
// records and objects, without services, until done is called.
func running(ctx context.Context, cfg Config) (s *Stack, done func() error, err error) {
	if _, err := os.Stat(filepath.Join(cfg.DataDir, recordsFile)); err != nil {
		return nil, nil, fmt.Errorf("%s is not the data directory of a Linkreel: set LINKREEL_DATA_DIR (%w)", cfg.DataDir, err)
	}
	dir, err := openDataDir(cfg.DataDir)
	if err == nil {
		return stopped(ctx, dir)
	}
	if !errors.Is(err, errRunning) {
		return nil, nil, err
	}
	path, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return nil, nil, err
	}
	for _, file := range []string{filepath.Join(path, "stack.json"), usualStackFile} {
		s := &Stack{}
		text, err := os.ReadFile(file)
		if err == nil && json.Unmarshal(text, s) == nil && s.DataDir == path {
			return s, func() error { return nil }, nil
		}
	}
	return nil, nil, fmt.Errorf("a Linkreel runs on %s, but its stack.json is not here: "+
		"run the command in the folder in which it was started", path)
}

// stopped serves backups of a data directory on which no stack runs.
func stopped(ctx context.Context, dir *dataDir) (s *Stack, done func() error, err error) {
	ctx, stop := context.WithCancel(ctx)
	s = &Stack{dir: dir, DataDir: dir.path, BackupToken: randomHex(), ctx: ctx, stop: stop, group: new(errgroup.Group)}
	s.onClose(func(context.Context) error { dir.close(); return nil })
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	indexes, err := parsedIndexes()
	if err != nil {
		return nil, nil, err
	}
	s.Firestore, err = firestore.Open(firestore.Options{Path: dir.join(recordsFile), Indexes: indexes, TTLInterval: -1})
	if err != nil {
		return nil, nil, err
	}
	s.onClose(func(context.Context) error { return s.Firestore.Close() })
	if s.Storage, err = storage.Open(storage.Options{Dir: dir.join(objectsDir)}); err != nil {
		return nil, nil, err
	}
	s.onClose(func(context.Context) error { return s.Storage.Close() })
	handler, err := backupHandler(ctx, s.Firestore, s.Storage, s.BackupToken)
	if err != nil {
		return nil, nil, err
	}
	if s.storage, err = s.loopback(ctx); err != nil {
		return nil, nil, err
	}
	s.BackupURL = s.storageURL() + backupPath
	s.serveHTTP(handler, s.storage)
	return s, s.Close, nil
}

// RestoreOptions are those of `linkreel restore`.
type RestoreOptions struct {
	Dir      string // the folder of backups
	Name     string // of the backup; "" means the newest
	Identity string // file with age identities; "" means none
	Secrets  string // a copy of the secrets.json of the backup's data directory; "" means none
	Audit    string // folder with the trail of what ended; "" means LINKREEL_AUDIT_DIR
	Verify   bool   // only check that the backup can be restored
}

// Restore is `linkreel restore`: it restores a backup into the data directory of
// LINKREEL_DATA_DIR, which must be empty. All sessions, one-time links, device codes and
// playback grants end, and what the trail says has ended since. It prints each such decision.
func Restore(ctx context.Context, out io.Writer, o RestoreOptions) error {
	var cfg Config
	if err := env.Parse(&cfg); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	m, err := backup.Read(o.Dir, o.Name)
	if err != nil {
		return err
	}
	identities, err := readIdentities(o.Identity)
	if err != nil {
		return err
	}
	kept := &secrets{}
	if o.Secrets != "" {
		if kept, err = readSecrets(o.Secrets); err != nil {
			return err
		}
	}
	if err := checkKeys(m, kept, environment(nil, nil)); err != nil {
		return err
	}
	if o.Verify {
		if err := backup.Verify(ctx, o.Dir, m, identities); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(
			out, "Backup %s can be restored: %d records, %d objects with %d bytes.\n", m.Name, m.Documents, len(m.Objects), m.Bytes(),
		)
		return nil
	}
	r := restoring{cfg: cfg, from: o.Dir, m: m, identities: identities, kept: kept, audit: cmp.Or(o.Audit, cfg.AuditDir), out: out}
	if err := r.into(ctx); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, `Restored %s into %s: %d records, %d objects. The newest record is of %s.
All sessions, one-time links, device codes and playback grants have ended.
%s
`, m.Name, cfg.DataDir, m.Documents, len(m.Objects), m.At.Format(time.RFC3339), r.unknown())
	return nil
}

// restoring is a restore into an empty data directory.
type restoring struct {
	cfg        Config
	from       string // the folder of backups
	m          *backup.Manifest
	identities []age.Identity
	kept       *secrets
	audit      string // folder of the trail; "" means none
	notes      []trail.Note
	out        io.Writer
}

// unknown says what is as it was at the time of the backup.
func (r *restoring) unknown() string {
	if len(r.notes) == 0 {
		why := "No trail was given (--audit)"
		if r.audit != "" {
			why = "There are no notes in " + r.audit + " (is it the right folder, and its disk mounted?)"
		}
		return why + ", so what was decided later is not known: keys that were revoked, members who were\n" +
			"removed or have a lower role, accounts that were suspended or erased, and takedowns since then are as before.\n" +
			"Repeat these decisions before you let anybody in. Passwords, passkeys and rules of access are as before, too."
	}
	return "Passwords, passkeys and rules of access that were changed later are as before, and so are secrets of webhooks."
}

func readIdentities(path string) ([]age.Identity, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read identities: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	ids, err := age.ParseIdentities(f)
	if err != nil {
		return nil, fmt.Errorf("read identities of %s: %w", path, err)
	}
	return ids, nil
}

// checkKeys refuses a backup with sealed values that none of the keys would open.
func checkKeys(m *backup.Manifest, kept *secrets, settings map[string]string) error {
	for setting, needed := range m.Keys {
		text, ids, where := kept.WebhookKey, events.KeyIDs, "give a copy of the secrets.json of that time with --secrets"
		if setting == certificateKey {
			text, ids, where = settings[certificateKey], links.KeyIDs, "set it to the key of that time"
		}
		var have []string
		if text != "" {
			var err error
			if have, err = ids(text); err != nil {
				return err
			}
		}
		for _, id := range needed {
			if !slices.Contains(have, id) {
				return fmt.Errorf("the backup %s has values that the key %s of %s has sealed, and this key is not here: %s", m.Name, id, setting, where)
			}
		}
	}
	return nil
}

func (r *restoring) into(ctx context.Context) (err error) {
	found, err := os.ReadDir(r.cfg.DataDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("data directory: %w", err)
	}
	for _, e := range found {
		if e.Name() != lockFile {
			return fmt.Errorf("%s is not empty: restore into an empty folder, or move what is there away", r.cfg.DataDir)
		}
	}
	if r.audit != "" {
		if r.notes, err = r.readTrail(); err != nil {
			return err
		}
	}
	dir, err := openDataDir(r.cfg.DataDir)
	if err != nil {
		return err
	}
	defer dir.close()
	indexes, err := parsedIndexes()
	if err != nil {
		return err
	}
	token := randomHex()
	err = backup.Restore(ctx, r.from, r.m, r.identities, backup.Target{
		Records: dir.join(recordsFile), Indexes: indexes, Objects: storage.Options{Dir: dir.join(objectsDir)}, Edit: lasting, Token: token,
		Finish: func(ctx context.Context, records *firestore.Server) error {
			return r.finish(ctx, dir, records, token)
		},
	})
	if err == nil {
		return nil
	}
	for _, name := range []string{recordsFile, objectsDir, secretsFile, auditDir} { // the folder was empty, and is again
		err = errors.Join(err, os.RemoveAll(dir.join(name)))
	}
	return err
}

func (r *restoring) readTrail() ([]trail.Note, error) {
	notes, problems, err := trail.Read(r.audit)
	if err != nil {
		return nil, fmt.Errorf("%w. To restore without the trail, leave out --audit and LINKREEL_AUDIT_DIR", err)
	}
	for _, p := range problems {
		_, _ = fmt.Fprintf(r.out, "Not read: %s\n", p)
	}
	if len(notes) > 0 {
		_, _ = fmt.Fprintf(r.out, "The trail has notes about %d things. The newest is of %s.\n", len(notes), notes[len(notes)-1].At.Format(time.RFC3339))
	}
	return notes, nil
}

// finish ends what the trail says has ended, and puts the secrets and the trail in place.
func (r *restoring) finish(ctx context.Context, dir *dataDir, records *firestore.Server, token string) error {
	r.kept.PlaybackKey = "" // a new one ends all playback grants
	if err := dir.saveSecrets(r.kept); err != nil {
		return err
	}
	if len(r.notes) == 0 {
		return nil
	}
	addr, err := records.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	db, err := firestoredb.Open(ctx, firestoredb.Config{Project: project, Endpoint: addr.String(), Token: token})
	if err != nil {
		return err
	}
	err = auth.EndAgain(ctx, db, r.notes, func(line string) { _, _ = fmt.Fprintln(r.out, line) })
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	to := r.cfg.auditDir(dir)
	if one, err := sameFile(to, r.audit); one || err != nil {
		return err
	}
	return os.CopyFS(to, os.DirFS(r.audit)) // a later restore of an older backup needs it again
}

// sameFile reports whether two paths lead to one file. The first need not exist.
func sameFile(a, b string) (bool, error) {
	first, err := os.Stat(a)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second), err
}

// lasting reports whether a restore keeps a document.
func lasting(d *pb.Document) bool {
	_, path, _ := strings.Cut(d.GetName(), "/documents/")
	collection, _, _ := strings.Cut(path, "/")
	return !slices.Contains(auth.Transient(), collection)
}
