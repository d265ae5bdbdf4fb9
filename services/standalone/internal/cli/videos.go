package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/client"
)

func videoCommands() []command {
	return []command{
		{"videos upload", "FILE…", "upload videos, wait until they play, print their share links", videosUpload},
		{"videos list", "", "list the newest videos", videosList},
		{"videos get", "ID", "show a video", videosGet},
		{"videos update", "ID", "change title and description", videosUpdate},
		{"videos captions", "ID LANG FILE", "set the captions of a language from a WebVTT file", videosCaptions},
		{"videos delete", "ID…", "delete videos", videosDelete},
	}
}

func videosList(a *app, fs *flag.FlagSet) func(context.Context, []string) error {
	limit := fs.Int("limit", 100, "at most `n`, up to 100")
	return func(ctx context.Context, args []string) error {
		if err := none(args); err != nil {
			return err
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		list, err := c.Videos(ctx, *limit)
		if err != nil {
			return err
		}
		t := a.table("ID", "SLUG", "STATUS", "PRIVACY", "TITLE")
		for _, v := range list {
			if err := t.row(v, v.ID, v.Slug, v.Status, v.Privacy, v.Title); err != nil {
				return err
			}
		}
		return t.end()
	}
}

func videosGet(a *app, _ *flag.FlagSet) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		id, err := one(args, "ID")
		if err != nil {
			return err
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		v, err := c.Video(ctx, id)
		if err != nil {
			return err
		}
		return a.print(v, func(w io.Writer) { showVideo(w, v) })
	}
}

func showVideo(w io.Writer, v *client.Video) {
	why, dimensions, length := "", "", ""
	if v.Error != nil {
		why = v.Error.Error()
	}
	if v.Width != nil && v.Height != nil {
		dimensions = fmt.Sprintf("%d × %d", *v.Width, *v.Height)
	}
	if v.Duration != nil {
		length = left(*v.Duration)
	}
	progress := ""
	if v.Status == "processing" {
		progress = strconv.Itoa(v.Progress) + " %"
	}
	facts(w, "id", v.ID, "title", v.Title, "description", text(v.Description), "share address", v.ShareURL, "status", v.Status, "progress", progress, "why", why,
		"privacy", v.Privacy, "ends", when(v.ExpiresAt), "length", length, "size", dimensions, "captions", strings.Join(v.Captions, ", "),
		"views", strconv.FormatInt(v.Views, 10), "created", v.CreatedAt.Time().Format(time.DateTime))
}

func videosUpdate(a *app, fs *flag.FlagSet) func(context.Context, []string) error {
	var in client.VideoUpdate
	for name, to := range map[string]*client.Field[string]{"title": &in.Title, "description": &in.Description} {
		fs.Func(name, "new `text`; empty clears", func(s string) error {
			*to = client.Set(s)
			if s == "" {
				*to = client.Clear[string]()
			}
			return nil
		})
	}
	return func(ctx context.Context, args []string) error {
		id, err := one(args, "ID")
		if err != nil {
			return err
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		if err := c.UpdateVideo(ctx, id, in); err != nil {
			return err
		}
		return a.print(map[string]any{"success": true, "id": id}, func(io.Writer) { a.note("updated") })
	}
}

func videosCaptions(a *app, _ *flag.FlagSet) func(context.Context, []string) error {
	return func(ctx context.Context, args []string) error {
		if len(args) != 3 {
			return usagef("needs ID, LANG and FILE")
		}
		vtt, err := os.ReadFile(args[2])
		if err != nil {
			return err
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		if err := c.PutCaptions(ctx, args[0], args[1], vtt); err != nil {
			return err
		}
		return a.print(map[string]any{"success": true, "id": args[0], "language": args[1]}, func(io.Writer) { a.note("captions are set") })
	}
}

func videosDelete(a *app, _ *flag.FlagSet) func(context.Context, []string) error {
	return a.each("deleted", func(ctx context.Context, c *client.Client, id string) error { return c.DeleteVideo(ctx, id) })
}

func videosUpload(a *app, fs *flag.FlagSet) func(context.Context, []string) error {
	u := uploader{app: a}
	var expires string
	fs.StringVar(&u.in.Title, "title", "", "title; else the file's name")
	fs.StringVar(&u.in.Privacy, "privacy", "", "public, unlisted, password or expiring")
	fs.StringVar(&u.in.Password, "password", "", "protect with this `password`; - reads it from standard input")
	fs.StringVar(&expires, "expires", "", "`when` the link ends: 7d, 12h, 2027-01-31 or 2027-01-31T12:00:00Z")
	fs.BoolVar(&u.noWait, "no-wait", false, "do not wait until the video plays")
	fs.BoolVar(&u.again, "again", false, "upload anew, whatever an earlier run has done")
	return func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return usagef("needs at least one FILE")
		}
		if err := u.settle(expires); err != nil {
			return err
		}
		var err error
		if u.client, err = a.connect(); err != nil {
			return err
		}
		var last error
		failed := 0
		for _, file := range args {
			if err := u.upload(ctx, file); err != nil {
				if ctx.Err() != nil {
					a.note("stopped; the same command goes on where it was")
					return err
				}
				last, failed = err, failed+1
				if len(args) > 1 {
					fmt.Fprintf(a.env.Err, "linkreel: %s: %s\n", clean(file), explain(err))
				}
			}
		}
		if failed > 0 && len(args) > 1 {
			return &partly{failed, len(args)}
		}
		return last
	}
}

// uploader brings files to the service. What it has begun is kept in the state
// folder under the file's path, size and time, so that the same command finds
// the half-finished upload again, whatever ended the first run.
type uploader struct {
	*app
	client        *client.Client
	in            client.VideoCreate
	noWait, again bool
}

// begun is an upload as the state folder knows it. It is written before the
// record is made, so that a kill in between repeats the create with the same
// Idempotency-Key.
type begun struct {
	Key     string `json:"key"`
	VideoID string `json:"videoId,omitempty"`
}

// settle derives privacy from the other flags.
func (u *uploader) settle(expires string) error {
	if u.in.Password == "-" {
		b, err := io.ReadAll(io.LimitReader(u.env.In, 2000))
		if err != nil {
			return err
		}
		u.in.Password = strings.TrimRight(string(b), "\r\n")
	}
	if u.in.Password != "" && u.in.Privacy == "" {
		u.in.Privacy = "password"
	}
	if expires == "" {
		return nil
	}
	if u.in.Privacy == "" {
		u.in.Privacy = "expiring"
	}
	at := u.env.Now()
	if d, ok := span(expires); ok {
		u.in.ExpiresAt = client.At(at.Add(d))
		return nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly, time.DateTime} {
		if t, err := time.Parse(form, expires); err == nil {
			u.in.ExpiresAt = client.At(t)
			return nil
		}
	}
	return usagef("--expires %q is neither a length of time nor a date", expires)
}

func (u *uploader) upload(ctx context.Context, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no file that can be read twice", file)
	}
	memory, err := u.memory(file, info)
	if err != nil {
		return err
	}
	v, err := u.record(ctx, file, memory)
	if err != nil {
		return err
	}
	if v.Status == "uploading" || v.Status == "failed" {
		if err := u.send(ctx, f, info, v); err != nil {
			return err
		}
	}
	if !u.noWait {
		if v, err = u.wait(ctx, file, v); err != nil {
			var why *client.VideoError
			if errors.As(err, &why) {
				_ = os.Remove(memory) // the next try is a new one; a leftover only costs a question
			}
			return err
		}
		if err := os.Remove(memory); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return u.print(v, func(w io.Writer) { fmt.Fprintln(w, clean(v.ShareURL)) })
}

// memory is the state file for this file as it is now, on this deployment.
func (u *uploader) memory(file string, info os.FileInfo) (string, error) {
	if u.env.StateDir == "" {
		return "", errors.New("no folder for unfinished uploads: set HOME or XDG_CACHE_HOME")
	}
	full, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %d %q %q", u.address(), full, info.Size(), info.ModTime().UnixNano(), u.in.Title, u.in.Privacy))
	return filepath.Join(u.env.StateDir, "linkreel", "uploads", hex.EncodeToString(sum[:16])+".json"), nil
}

// record finds the record of an earlier run or makes one.
func (u *uploader) record(ctx context.Context, file, memory string) (*client.Video, error) {
	var m begun
	b, err := os.ReadFile(memory)
	if err == nil && !u.again {
		_ = json.Unmarshal(b, &m) // an unreadable memory is none
	}
	if m.VideoID != "" {
		v, err := u.client.Video(ctx, m.VideoID)
		if err == nil {
			u.note("%s: going on with %s", clean(file), clean(m.VideoID))
			return v, nil
		}
		if !client.HasCode(err, "VIDEO_NOT_FOUND") {
			return nil, err
		}
		m = begun{}
	}
	if m.Key == "" {
		m.Key = rand.Text()
		if err := save(memory, m); err != nil {
			return nil, fmt.Errorf("remember upload: %w", err)
		}
	}
	in := u.in
	if in.Title == "" {
		in.Title = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	}
	made, err := u.client.CreateVideo(client.WithIdempotencyKey(ctx, m.Key), in)
	if client.HasCode(err, "IDEMPOTENCY_KEY_REUSED") {
		// Other options than those of the run that was stopped: a new video.
		m.Key = rand.Text()
		if err := save(memory, m); err != nil {
			return nil, fmt.Errorf("remember upload: %w", err)
		}
		made, err = u.client.CreateVideo(client.WithIdempotencyKey(ctx, m.Key), in)
	}
	if err != nil {
		return nil, err
	}
	m.VideoID = made.VideoID
	if err := save(memory, m); err != nil {
		return nil, fmt.Errorf("remember upload: %w", err)
	}
	return u.client.Video(ctx, made.VideoID)
}

// send brings the bytes there, in a session where there is one. An address that
// has run out is replaced once.
func (u *uploader) send(ctx context.Context, f *os.File, info os.FileInfo, v *client.Video) error {
	b := u.bar(filepath.Base(f.Name()), max(info.Size(), 1))
	defer b.end()
	if !b.on() {
		u.note("%s: uploading %s", clean(f.Name()), size(info.Size()))
	}
	fresh := true
	for try := 1; ; try++ {
		err := u.client.Upload(ctx, client.Upload{
			File: f, Size: info.Size(), ContentType: mime.TypeByExtension(filepath.Ext(f.Name())), URL: v.UploadURL, Session: v.ResumableUploadURL,
			Progress: func(n int64) {
				if fresh {
					b.start(n)
					fresh = false
				}
				b.set(n)
			},
		})
		if !errors.Is(err, client.ErrUploadGone) || try == 3 {
			return err
		}
		again, gerr := u.client.Video(ctx, v.ID)
		if gerr != nil {
			return gerr
		}
		if again.Status == "processing" || again.Status == "ready" {
			return nil // the file is there; only the answer was lost
		}
		if again.ResumableUploadURL == v.ResumableUploadURL {
			again.ResumableUploadURL = "" // that session is over: send the file whole
		}
		v = again
	}
}

func (u *uploader) wait(ctx context.Context, file string, v *client.Video) (*client.Video, error) {
	b := u.bar(filepath.Base(file), 100)
	defer b.end()
	said := ""
	return u.client.WaitUntilReady(ctx, v.ID, func(v *client.Video) {
		if b.on() {
			b.tail = v.Status
			b.drawn = time.Time{}
			b.set(int64(v.Progress))
		} else if said != v.Status {
			u.note("%s: %s", clean(file), v.Status)
		}
		said = v.Status
	})
}
