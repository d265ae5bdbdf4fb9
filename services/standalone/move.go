package standalone

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/services/standalone/internal/move"
)

// moveFile is the file in a data directory that describes its move.
const moveFile = "move.json"

// moving is the content of [moveFile].
type moving struct {
	ID       string `json:"id"`
	Project  string `json:"project"`
	Database string `json:"database"`
	Bucket   string `json:"bucket"`
	Aborted  bool   `json:"aborted,omitempty"`
}

// MoveOptions contains the options of `linkreel move`.
type MoveOptions struct {
	Project, Database, Bucket string // the target's names
	Abort                     bool   // let the data directory accept changes again

	Env map[string]string // adds or replaces settings, as in Config

	step func(string) // replaced by tests
}

// moveTarget contains the settings for the target. They are the same as for the services, except
// that the options name the project, the database and the bucket.
type moveTarget struct {
	Firestore firestoredb.Config `envPrefix:"LINKREEL_"`
	Storage   objectstore.Config `envPrefix:"LINKREEL_"`
}

// Changes are refused once a pass has changed no more than this, or after the maximum number of
// passes.
const (
	fewRecords = 2000
	fewBytes   = 64 << 20
	mostPasses = 6
)

// Move is `linkreel move`. It copies the data directory LINKREEL_DATA_DIR, whether or not a stack
// is running on it, into another database and bucket. When it returns without an error, the target
// contains the same data, and the data directory is read-only. Calling it again resumes an
// interrupted move.
func Move(ctx context.Context, out io.Writer, o MoveOptions) (err error) {
	var cfg Config
	var to moveTarget
	if err := readSettings(&cfg, o.Env); err != nil {
		return err
	}
	if err := env.ParseWithOptions(&to, env.Options{Environment: environment(o.Env, nil)}); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	s, done, err := running(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	unlock, err := lockMove(s.DataDir)
	if err != nil {
		return err
	}
	defer unlock()
	if o.Abort {
		return abortMove(ctx, out, s)
	}
	to.Firestore.Project, to.Firestore.Database, to.Storage.Bucket = o.Project, cmp.Or(o.Database, "(default)"), o.Bucket
	to.Firestore.Timeout = time.Minute // long enough for a commit of hundreds of documents or a long read
	to.Storage.Timeout = 30 * time.Second
	w, err := beginMove(s.DataDir, to)
	if err != nil {
		return err
	}
	records, err := firestoredb.OpenDocuments(ctx, to.Firestore)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	objects, err := objectstore.Open(ctx, to.Storage)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, objects.Close()) }()
	m := &move.Move{
		ID: w.ID, Records: records, Objects: objects, Ordered: []string{outbox.Collection}, Step: o.step,
		From: move.Source{URL: s.BackupURL, Token: s.BackupToken, Database: "projects/" + project + "/databases/(default)", Bucket: bucket},
	}
	err = mover{m, s, out}.run(ctx)
	if err != nil && !errors.Is(err, errAborted) {
		return fmt.Errorf("%w. Run the same command to resume", err)
	}
	return err
}

// lockMove prevents a second concurrent move of the same data directory.
func lockMove(dir string) (unlock func(), err error) {
	lock, err := os.OpenFile(filepath.Join(dir, "move.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s (is another move running?): %w", lock.Name(), err), lock.Close())
	}
	return func() { unlockFile(lock) }, nil
}

func readMove(dir string) (*moving, error) {
	text, err := os.ReadFile(filepath.Join(dir, moveFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	w := &moving{}
	if err == nil {
		err = json.Unmarshal(text, w)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", moveFile, err)
	}
	return w, nil
}

// beginMove returns the unfinished move to a target, or a new move.
func beginMove(dir string, to moveTarget) (*moving, error) {
	w := &moving{ID: randomHex(), Project: to.Firestore.Project, Database: to.Firestore.Database, Bucket: to.Storage.Bucket}
	old, err := readMove(dir)
	if err != nil {
		return nil, err
	}
	if old != nil {
		same := old.Project == w.Project && old.Database == w.Database && old.Bucket == w.Bucket
		if !same && !old.Aborted {
			return nil, fmt.Errorf("there is an unfinished move to project %s, database %s, bucket %s; specify that target, or abort that move with linkreel move --abort",
				old.Project, old.Database, old.Bucket)
		}
		if same {
			w.ID = old.ID
		}
	}
	return w, writeJSON(filepath.Join(dir, moveFile), w)
}

func abortMove(ctx context.Context, out io.Writer, s *Stack) error {
	w, err := readMove(s.DataDir)
	if err != nil {
		return err
	}
	if w == nil {
		return fmt.Errorf("there is no move of %s to abort", s.DataDir)
	}
	w.Aborted = true
	if err := writeJSON(filepath.Join(s.DataDir, moveFile), w); err != nil {
		return err
	}
	if err := setReadOnly(ctx, s, false); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, `This instance accepts changes again. The copied data remains in project %s, database %s, bucket %s.
Delete both, or move there again. If services have run there, two installations now have the same webhooks and links.
`, w.Project, w.Database, w.Bucket)
	return nil
}

// mover runs a move and prints its progress.
type mover struct {
	*move.Move
	s   *Stack
	out io.Writer
}

// errAborted means that the target of a finished move must not be used any more.
var errAborted = errors.New("this move was finished and then aborted with --abort, and the target does not contain later changes. " +
	"Move to a new database and a new bucket")

func (m mover) say(format string, a ...any) { _, _ = fmt.Fprintf(m.out, format+"\n", a...) }

func (m mover) run(ctx context.Context) error {
	err := m.Begin(ctx)
	if errors.Is(err, move.ErrFinished) {
		// If the file is missing, this instance has accepted changes since the move was aborted,
		// and the target does not contain them.
		if _, err := os.Stat(filepath.Join(m.s.DataDir, readOnlyFile)); err != nil {
			return errAborted
		}
		m.say("This move is finished. %s", m.next())
		return nil
	}
	if err != nil {
		return err
	}
	// An earlier attempt may already have made the data read-only.
	stopped := func() (os.FileInfo, error) { return os.Stat(filepath.Join(m.s.DataDir, readOnlyFile)) }
	_, err = stopped()
	for i := 0; err != nil && i < mostPasses; i++ {
		c, err := m.pass(ctx, "while Linkreel accepts changes")
		if err != nil {
			return err
		}
		if c.Records+c.Deleted <= fewRecords && c.Bytes <= fewBytes {
			break
		}
	}
	// Do this even if the file exists because an earlier attempt may have been killed before
	// everything was read-only.
	if err := setReadOnly(ctx, m.s, true); err != nil {
		return err
	}
	since, err := stopped()
	if err != nil {
		return err
	}
	m.say("Changes have been refused since %s. Links still redirect and videos still play.", since.ModTime().Format(time.TimeOnly))
	if _, err := m.pass(ctx, "while changes are refused"); err != nil {
		return err
	}
	t, err := m.Verify(ctx)
	if err != nil {
		return err
	}
	if err := m.Finish(ctx); err != nil {
		return err
	}
	m.say("Verified: all %d records and %d objects (%d bytes) are identical (checksum %s).", t.Records, t.Objects, t.Bytes, t.Checksum)
	m.say("Changes have been refused for %.1f s, and will be until callers reach the new installation. %s", time.Since(since.ModTime()).Seconds(), m.next())
	return nil
}

func (m mover) pass(ctx context.Context, when string) (move.Changes, error) {
	began := time.Now()
	c, err := m.Pass(ctx)
	if err == nil {
		m.say("Copied %d records and %d objects (%d bytes), deleted %d records, in %.1f s, %s.",
			c.Records, c.Objects, c.Bytes, c.Deleted, time.Since(began).Seconds(), when)
	}
	return c, err
}

// next returns instructions for the steps after a move.
func (m mover) next() string {
	return fmt.Sprintf(`Next:

  1. Create the chart's Secret with these keys from %s:
       admin-token = adminToken, token-secret = playbackKey, webhook-secret-key = webhookKey
     If this machine has a LINKREEL_CERTIFICATE_KEY, add it as certificate-key. Generate the other keys.
  2. Install the chart. Set secrets.existingSecret to this Secret, and cloud.google.project, cloud.google.database and
     cloud.google.bucket to the target of this move. Use the same hosts, so that addresses do not change.
  3. Point the DNS records of the hosts at the cluster, and stop this instance.

docs/recovery.md has the commands. This instance stays read-only, even after a restart. To make it accept changes again, run linkreel move --abort.`, filepath.Join(m.s.DataDir, secretsFile))
}

// setReadOnly makes a running stack refuse changes or accept them again.
func setReadOnly(ctx context.Context, s *Stack, on bool) error {
	body, _ := json.Marshal(on) // never fails for a bool
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	address := strings.TrimSuffix(s.BackupURL, backupPath) + readOnlyPath
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.BackupToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("reach the running instance: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // best effort: the status alone is enough
		return fmt.Errorf("the running instance responded with %s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	return nil
}
