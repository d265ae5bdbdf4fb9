package cli

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

// uploader uploads files to the service. It stores an upload's state in the state folder, keyed by
// the file's path, size and time. Running the same command again finds the unfinished upload, no
// matter what stopped the first run.
type uploader struct {
	env     Env
	client  *client.Client
	address string // the deployment's URL
	in      client.VideoCreate
	expires string // the expiry as given, such as 7d
	again   bool   // ignore earlier runs
}

// watcher is notified of an upload's progress.
type watcher interface {
	resumed(id string)        // the upload continues one that an earlier run started
	sent(n, total int64)      // n of total bytes are stored
	prepared(v *client.Video) // the video's state while the service is preparing it
}

// forever means waiting for the video indefinitely.
const forever = time.Duration(math.MaxInt64)

// begun is an upload's stored state. It is written before the record is created. If the
// command is killed in between, the next run repeats the create with the same Idempotency-Key.
type begun struct {
	Key     string `json:"key"`
	VideoID string `json:"videoId,omitempty"`
	Seal    string `json:"seal,omitempty"` // a hash of the password and the expiry; see seal
}

// seal lets a later run detect a different password or expiry. Otherwise a resumed video could keep
// the protection that the stopped run set. Its HMAC key is the API key, which is as secret as the
// file.
func (u *uploader) seal(key string) string {
	h := hmac.New(sha256.New, []byte(key))
	fmt.Fprintf(h, "%q %q", u.in.Password, u.expires)
	return hex.EncodeToString(h.Sum(nil))
}

// bring uploads a file and waits up to patience for the video to be ready. If the video is not
// ready by then, bring returns it in its current state. If the video cannot be prepared, the
// error is a *[client.VideoError]. If the file was sent, bring returns an error together with the
// previous state of the video.
func (u *uploader) bring(ctx context.Context, file string, patience time.Duration, w watcher) (*client.Video, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened only for reading
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", file)
	}
	memory, err := u.memory(file, info)
	if err != nil {
		return nil, err
	}
	v, err := u.record(ctx, file, memory, w)
	if err != nil {
		return nil, err
	}
	old := v
	if v.Status == "uploading" || v.Status == "failed" {
		if err := u.client.SendVideo(ctx, v, f, w.sent); err != nil {
			return nil, err
		}
	}
	if patience == 0 {
		return v, nil
	}
	now, err := wait(ctx, u.env, u.client, old, patience, w.prepared)
	var why *client.VideoError
	if errors.As(err, &why) {
		_ = os.Remove(memory) // the next attempt is a new upload; a leftover file only causes an extra request
	}
	if err != nil {
		return old, err
	}
	if now.Status == "ready" {
		if err := os.Remove(memory); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return now, nil
}

// wait polls a video for up to patience until it is ready or failed, and returns the last state.
// old is the video before its file was sent. If it had failed, the service reports that status
// until it detects the new file.
func wait(
	ctx context.Context, env Env, c *client.Client, old *client.Video, patience time.Duration, seen func(*client.Video),
) (*client.Video, error) {
	last, begin := old, env.Now()
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		v, err := c.WaitVideo(bounded, old.ID, func(v *client.Video) {
			last = v
			seen(v)
		})
		var why *client.VideoError
		switch {
		case err == nil:
			return v, nil
		case bounded.Err() != nil && ctx.Err() == nil:
			return last, nil
		case errors.As(err, &why) && old.Status == "failed" && last.UpdatedAt == old.UpdatedAt && env.Now().Sub(begin) < time.Minute:
			if err := env.pause(bounded, time.Second); err != nil && ctx.Err() != nil {
				return nil, err
			}
		default:
			return nil, err
		}
	}
}

// memory returns the path of the state file for this version of the file on this deployment.
func (u *uploader) memory(file string, info os.FileInfo) (string, error) {
	if u.env.StateDir == "" {
		return "", errors.New("no folder for unfinished uploads: set HOME or XDG_CACHE_HOME")
	}
	full, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(
		fmt.Appendf(nil, "%q %q %d %d %q %q", u.address, full, info.Size(), info.ModTime().UnixNano(), u.in.Title, u.in.Privacy),
	)
	return filepath.Join(u.env.StateDir, "linkreel", "uploads", hex.EncodeToString(sum[:16])+".json"), nil
}

// record finds an earlier run's record or creates one.
func (u *uploader) record(ctx context.Context, file, memory string, w watcher) (*client.Video, error) {
	var m begun
	b, err := os.ReadFile(memory)
	if err == nil && !u.again {
		_ = json.Unmarshal(b, &m) // if the state is unreadable, start over
	}
	if m.Seal != u.seal(m.Key) {
		m = begun{}
	}
	if m.VideoID != "" {
		v, err := u.client.GetVideo(ctx, m.VideoID)
		if err == nil {
			w.resumed(m.VideoID)
			return v, nil
		}
		if !client.HasCode(err, "VIDEO_NOT_FOUND") {
			return nil, err
		}
		m = begun{}
	}
	if m.Key == "" {
		if m, err = u.begin(memory); err != nil {
			return nil, err
		}
	}
	in := u.in
	if in.Title == "" {
		in.Title = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	}
	made, err := u.client.CreateVideo(ctx, in, client.IdempotencyKey(m.Key))
	if client.HasCode(err, "IDEMPOTENCY_KEY_REUSED") {
		// The options differ from the stopped run's, so create a new video.
		if m, err = u.begin(memory); err != nil {
			return nil, err
		}
		made, err = u.client.CreateVideo(ctx, in, client.IdempotencyKey(m.Key))
	}
	if err != nil {
		return nil, err
	}
	m.VideoID = made.VideoID
	if err := save(memory, m); err != nil {
		return nil, fmt.Errorf("cannot store the state of the upload: %w", err)
	}
	return u.client.GetVideo(ctx, made.VideoID)
}

func (u *uploader) begin(memory string) (begun, error) {
	m := begun{Key: rand.Text()}
	m.Seal = u.seal(m.Key)
	if err := save(memory, m); err != nil {
		return m, fmt.Errorf("cannot store the state of the upload: %w", err)
	}
	return m, nil
}
