package standalone

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"filippo.io/age"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/restored"
	"github.com/linkreel/linkreel/libs/trail"
	"github.com/linkreel/linkreel/services/auth"
	"github.com/linkreel/linkreel/services/events"
	"github.com/linkreel/linkreel/services/links"
	"github.com/linkreel/linkreel/services/localcloud/backup"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/guard"
	"github.com/linkreel/linkreel/services/localcloud/storage"
	"github.com/linkreel/linkreel/services/videos"
)

// backupPath is the path for backups on the object storage port. No bucket can have this name.
const backupPath = "/-/backup"

// These settings contain the keys that seal values in records.
const (
	webhookKey     = "LINKREEL_WEBHOOK_SECRET_KEY"
	certificateKey = "LINKREEL_CERTIFICATE_KEY"
)

// sealed lists the record fields with sealed values.
var sealed = []backup.Sealed{
	{Collection: "webhooks", Field: "keyIds", Keys: webhookKey},
	{Collection: "certificates", Field: "keyId", Keys: certificateKey},
	{Collection: "acmeAccounts", Field: "key", Keys: certificateKey},
}

// operatorHandler returns a handler that serves [Backup] and [Move] until stop is done.
func (s *Stack) operatorHandler(stop context.Context) (*http.ServeMux, error) {
	tokens, err := guard.Parse(s.BackupToken)
	if err != nil {
		return nil, fmt.Errorf("backup token: %w", err)
	}
	m := http.NewServeMux()
	m.Handle(backupPath, (&backup.Source{Records: s.Firestore, Objects: s.Storage, Tokens: tokens, Stop: stop}).Handler())
	m.Handle(readOnlyPath, s.readOnly.handler(tokens))
	return m, nil
}

// BackupOptions contains the options of `linkreel backup`.
type BackupOptions struct {
	Dir       string // the backup folder
	Recipient string // an age recipient (age1…); "" means no encryption
	From      string // backup address of a localcloud (its --backup-addr); "" means LINKREEL_DATA_DIR
	TokenFile string // file with the token for From

	Env map[string]string // adds or replaces settings, as in Config
}

// Backup is `linkreel backup`. It copies the data directory LINKREEL_DATA_DIR or the data of a
// running localcloud into a new backup. The stack that uses the data directory may be running.
func Backup(ctx context.Context, out io.Writer, o BackupOptions) error {
	var cfg Config
	if err := readSettings(&cfg, o.Env); err != nil {
		return err
	}
	if cfg.BackupDays < 0 {
		return fmt.Errorf("LINKREEL_BACKUP_DAYS is %d; use a number of days, or 0 to keep all backups", cfg.BackupDays)
	}
	find := running
	if o.From != "" {
		find = o.localcloud
	}
	s, done, err := find(ctx, cfg)
	if err != nil {
		return err
	}
	m, err := backup.Take(ctx, backup.Options{
		Dir: o.Dir, URL: s.BackupURL, Token: s.BackupToken, Recipient: o.Recipient,
		Keep: time.Duration(cfg.BackupDays) * 24 * time.Hour, Sealed: sealed,
	})
	if err = errors.Join(err, done()); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "Backup %s: %d records, %d objects (%d bytes).\n", m.Name, m.Documents, len(m.Objects), m.Bytes())
	if m.Left > 0 {
		_, _ = fmt.Fprintf(out, "%d backups are older than %d days and have not been removed yet, because each backup removes at most two, and none that is being restored. Is the clock right?\n", m.Left, cfg.BackupDays)
	}
	if len(m.Keys) > 0 {
		keys := filepath.Join(s.DataDir, secretsFile)
		if o.From != "" {
			keys = strings.Join(slices.Sorted(maps.Keys(m.Keys)), " and ")
		}
		_, _ = fmt.Fprintf(out, "A restore requires %s, which the backup does not contain. Keep a copy of it somewhere else.\n", keys)
	}
	return nil
}

// running finds the stack that is running on the data directory. If none is running, it serves the
// records and objects itself, without services, until done is called.
func running(ctx context.Context, cfg Config) (s *Stack, done func() error, err error) {
	if _, err := os.Stat(filepath.Join(cfg.DataDir, recordsFile)); err != nil {
		return nil, nil, fmt.Errorf("%s is not a Linkreel data directory; set LINKREEL_DATA_DIR (%w)", cfg.DataDir, err)
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
	return nil, nil, fmt.Errorf("an instance of Linkreel is running on %s, but its stack.json is not here; "+
		"run the command in the folder where it was started", path)
}

// stopped serves backups of a data directory on which no stack is running.
func stopped(ctx context.Context, dir *dataDir) (_ *Stack, done func() error, err error) {
	ctx, stop := context.WithCancel(ctx)
	s := &Stack{dir: dir, DataDir: dir.path, BackupToken: randomHex(), ctx: ctx, stop: stop, group: new(errgroup.Group)}
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
	if s.readOnly, err = openReadOnly(dir, s.Firestore, s.Storage); err != nil {
		return nil, nil, err
	}
	handler, err := s.operatorHandler(ctx)
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

// RestoreOptions contains the options of `linkreel restore`.
type RestoreOptions struct {
	Dir         string // the backup folder
	Name        string // name of the backup; "" means the newest
	Identity    string // file with age identities; "" means none
	Secrets     string // a copy of the secrets.json from the backup's data directory; "" means none
	Audit       string // folder with the revocation trail; "" means LINKREEL_AUDIT_DIR
	Localcloud  string // data directory of a localcloud to restore into; "" means LINKREEL_DATA_DIR
	ObjectsDir  string // --objects-dir of that localcloud; "" means inside its data directory
	SkipDamaged bool   // leave damaged objects out
	WithoutKeys bool   // restore even if keys that sealed values are lost
	Verify      bool   // only check that the backup can be restored

	Env map[string]string // adds or replaces settings, as in Config

	step func(string) // replaced by tests
}

// Restore is `linkreel restore`. It restores a backup into an empty data directory, which is
// LINKREEL_DATA_DIR or that of a localcloud. It ends all sessions, one-time links, device codes and
// playback grants. It also repeats and prints the decisions in the trail. A pod may repeat the
// command: if a localcloud's directory already contains this backup, Restore does not change it,
// and an incomplete restore is started over.
func Restore(ctx context.Context, out io.Writer, o RestoreOptions) error {
	var cfg Config
	if err := readSettings(&cfg, o.Env); err != nil {
		return err
	}
	r := restoring{cfg: cfg, from: o.Dir, skip: o.SkipDamaged, audit: cmp.Or(o.Audit, cfg.AuditDir), project: project, out: out, step: o.step}
	to := r.stack
	if o.Localcloud != "" {
		local := localcloudDir{o.Localcloud, o.ObjectsDir}
		if done, err := local.prepare(o); done != "" || err != nil {
			_, _ = io.WriteString(out, done)
			return err
		}
		to = func() (*place, error) { return local.place(&r), nil }
	}
	if err := r.read(o); err != nil {
		return err
	}
	if o.Verify {
		return r.verify(ctx)
	}
	into, err := r.into(ctx, to)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, `Restored %s into %s: %d records, %d objects. The newest record is from %s.
%sAll sessions, one-time links and device codes have been revoked. %s
%s
Webhooks are paused, and so is the janitor, which removes files without a record. Start Linkreel, check the data, and then resume them:
  linkreel admin recovery resume --webhooks --janitor
`, r.m.Name, into.name, r.m.Documents, len(r.m.Objects)-r.left, r.m.At.Format(time.RFC3339), r.passedOver(), into.grants, auth.NotKnown(r.applied, r.audit))
	return nil
}

// restoring is a running restore into an empty data directory.
type restoring struct {
	cfg        Config
	from       string // the backup folder
	m          *backup.Manifest
	seen       int64 // the highest order of any backup when the restore started
	identities []age.Identity
	kept       *secrets
	lost       map[string]bool // ids of keys that are lost
	newest     string          // the most recently made backup; "" if it cannot be read
	skip       bool            // leave damaged objects out
	left       int             // how many were left out
	audit      string          // folder of the trail; "" means none
	trail      *trail.Found
	applied    int    // number of records that notes in the trail refer to
	project    string // project in the documents' names
	// installation is set if Linkreel has used the database.
	installation bool
	unsealed     unsealed
	out          io.Writer
	step         func(string) // nil except in tests
}

// place is an empty data directory to restore into.
type place struct {
	name    string // used in messages
	records string
	objects storage.Options
	grants  string       // tells the operator what happens to playback grants
	settle  func() error // writes the remaining files before the data can be served
	empty   func() error // removes everything that the restore has written
	close   func()
}

// read reads the manifest, the identities and the keys, and checks that no keys are missing.
func (r *restoring) read(o RestoreOptions) (err error) {
	if r.m, err = backup.Read(o.Dir, o.Name); err != nil {
		return err
	}
	r.seen = r.m.Order
	if newest, err := backup.Read(o.Dir, ""); err == nil { // ignore damage to other backups, so a named backup can still be restored
		r.seen, r.newest = max(r.seen, newest.Order), newest.Name
	}
	if r.identities, err = readIdentities(o.Identity); err != nil {
		return err
	}
	r.kept = &secrets{}
	if o.Secrets != "" {
		if r.kept, err = readSecrets(o.Secrets); err != nil {
			return err
		}
	}
	settings := environment(o.Env, nil)
	where := "pass a copy of the secrets.json from that time with --secrets"
	if o.Localcloud != "" {
		r.kept.WebhookKey = cmp.Or(r.kept.WebhookKey, settings[webhookKey])
		where = "set it to the key that was used at that time"
	}
	r.lost, err = lostKeys(r.m, r.kept.WebhookKey, settings[certificateKey])
	if err != nil || len(r.lost) == 0 || o.WithoutKeys {
		return err
	}
	for setting, needed := range r.m.Keys {
		for _, id := range needed {
			if !r.lost[id] {
				continue
			}
			if setting == certificateKey {
				where = "set it to the key that was used at that time"
			}
			return fmt.Errorf("the backup %s contains values that are sealed with key %s of %s, and this key is missing; %s. "+
				"If the key is lost, restore the rest with --without-keys", r.m.Name, id, setting, where)
		}
	}
	return nil
}

func (r *restoring) verify(ctx context.Context) error {
	if err := backup.Verify(ctx, r.from, r.m, r.identities, r.tellDamage); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(
		r.out, "Backup %s can be restored: %d records, %d objects (%d bytes).\n", r.m.Name, r.m.Documents, len(r.m.Objects), r.m.Bytes(),
	)
	return nil
}

// passedOver returns a line about a newer backup than the restored one, or "". A name that was set
// for an earlier restore must not go unnoticed.
func (r *restoring) passedOver() string {
	if r.newest == "" || r.newest == r.m.Name {
		return ""
	}
	return fmt.Sprintf("The newest backup is %s. It was not restored, because this restore names a different one.\n", r.newest)
}

// tellDamage tells the operator what a damaged object means for its video.
func (r *restoring) tellDamage(d backup.Damage) {
	_, name, _ := strings.Cut(d.Object, "/")
	_, _ = fmt.Fprintf(r.out, "Damaged: %s. %v.\n", cmp.Or(videos.ObjectOf(name), "The object "+d.Object), d.Err)
}

func readIdentities(path string) ([]age.Identity, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read identities: %w", err)
	}
	defer func() { _ = f.Close() }() // opened only for reading
	ids, err := age.ParseIdentities(f)
	if err != nil {
		return nil, fmt.Errorf("read identities from %s: %w", path, err)
	}
	return ids, nil
}

// lostKeys returns the ids of keys that sealed values in the backup but are not in either setting.
func lostKeys(m *backup.Manifest, webhook, certificate string) (map[string]bool, error) {
	lost := map[string]bool{}
	for setting, needed := range m.Keys {
		text, ids := webhook, events.KeyIDs
		if setting == certificateKey {
			text, ids = certificate, links.KeyIDs
		}
		var have []string
		if text != "" {
			var err error
			if have, err = ids(text); err != nil {
				return nil, err
			}
		}
		for _, id := range needed {
			if !slices.Contains(have, id) {
				lost[id] = true
			}
		}
	}
	return lost, nil
}

// stack returns the data directory LINKREEL_DATA_DIR as a place.
func (r *restoring) stack() (*place, error) {
	if err := r.mustBeEmpty(); err != nil { // before openDataDir writes into it
		return nil, err
	}
	if r.step != nil {
		r.step("lock the data directory")
	}
	dir, err := openDataDir(r.cfg.DataDir)
	if err != nil {
		return nil, err
	}
	if err := r.mustBeEmpty(); err != nil { // another restore may have filled it before it was locked
		dir.close()
		return nil, err
	}
	return &place{
		name: r.cfg.DataDir, records: dir.join(recordsFile), objects: storage.Options{Dir: dir.join(objectsDir)},
		grants: "All playback grants have been revoked too.", close: dir.close,
		settle: func() error {
			r.kept.PlaybackKey = "" // a new key ends all playback grants
			return errors.Join(dir.saveSecrets(r.kept), r.copyTrail(r.cfg.auditDir(dir)))
		},
		empty: func() (err error) { // remove everything because the directory was empty before the restore
			for _, name := range []string{recordsFile, objectsDir, secretsFile, auditDir} {
				err = errors.Join(err, os.RemoveAll(dir.join(name)))
			}
			return err
		},
	}, nil
}

// mustBeEmpty returns an error if the data directory contains files other than its lock.
func (r *restoring) mustBeEmpty() error {
	found, err := os.ReadDir(r.cfg.DataDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("data directory: %w", err)
	}
	for _, e := range found {
		if e.Name() != lockFile {
			return fmt.Errorf("%s is not empty; restore into an empty folder, or move its contents elsewhere", r.cfg.DataDir)
		}
	}
	return nil
}

func (r *restoring) into(ctx context.Context, to func() (*place, error)) (p *place, err error) {
	if r.audit != "" {
		if r.trail, err = trail.Read(ctx, trail.Folder(r.audit), time.Time{}); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("%w. To restore without the trail, leave out --audit and LINKREEL_AUDIT_DIR", err)
			}
			return nil, err
		}
	}
	if p, err = to(); err != nil {
		return nil, err
	}
	defer p.close()
	indexes, err := parsedIndexes()
	if err != nil {
		return nil, err
	}
	token := randomHex()
	target := backup.Target{
		Records: p.records, Indexes: indexes, Objects: p.objects, Edit: r.keep, Token: token,
		Finish: func(ctx context.Context, records *firestore.Server) error {
			r.tellUnsealed()
			return errors.Join(r.endAgain(ctx, records, token), p.settle())
		},
	}
	if r.skip {
		target.Damaged = func(d backup.Damage) { r.left++; r.tellDamage(d) }
	}
	if err = backup.Restore(ctx, r.from, r.m, r.identities, target); err != nil {
		return nil, errors.Join(err, p.empty())
	}
	return p, nil
}

// endAgain records the restore, so the services that will serve the records know about it, and
// repeats the decisions in the trail.
func (r *restoring) endAgain(ctx context.Context, records *firestore.Server, token string) error {
	if !r.installation && r.trail == nil {
		return nil // leave the records unchanged because Linkreel has not used them yet
	}
	addr, err := records.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	db, err := firestoredb.Open(ctx, firestoredb.Config{Project: cmp.Or(r.project, project), Endpoint: addr.String(), Token: token})
	if err != nil {
		return err
	}
	if r.installation {
		_, err = restored.Write(ctx, db, r.m.At)
	}
	if err == nil && r.trail != nil {
		r.applied, err = auth.ApplyTrail(ctx, db, r.trail, func(line string) { _, _ = fmt.Fprintln(r.out, line) })
	}
	return errors.Join(err, db.Close())
}

// copyTrail copies the trail into the folder where the restored stack will continue it. A later
// restore of an older backup will need it again.
func (r *restoring) copyTrail(to string) error {
	if r.applied == 0 {
		return nil
	}
	if one, err := sameFile(to, r.audit); one || err != nil {
		return err
	}
	// Each name is used only once, so a file that already exists was copied by a killed restore or
	// belongs to the same trail.
	from := os.DirFS(r.audit)
	return fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, filepath.FromSlash(name))
		if d.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		if _, err := os.Stat(target); err == nil || !d.Type().IsRegular() {
			return nil
		}
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		return writeFile(target, text)
	})
}

// sameFile reports whether two paths refer to the same file. The first one need not exist.
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

// keep reports whether a restore keeps a document.
func (r *restoring) keep(d *pb.Document) bool {
	in, path, _ := strings.Cut(d.GetName(), "/documents/")
	if parts := strings.Split(in, "/"); len(parts) > 1 {
		r.project = parts[1]
	}
	if path == "installation/database" {
		r.installation = true
	}
	collection, _, _ := strings.Cut(path, "/")
	return !slices.Contains(auth.Transient(), collection) && r.opens(collection, path, d)
}
