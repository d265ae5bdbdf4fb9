package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
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
	u := uploader{env: a.env}
	var expires string
	var noWait bool
	fs.StringVar(&u.in.Title, "title", "", "title; else the file's name")
	fs.StringVar(&u.in.Privacy, "privacy", "", "public, unlisted, password or expiring")
	fs.StringVar(&u.in.Password, "password", "", "protect with this `password`; - reads it from standard input")
	fs.StringVar(&expires, "expires", "", "`when` the link ends: 7d, 12h, 2027-01-31 or 2027-01-31T12:00:00Z")
	fs.BoolVar(&noWait, "no-wait", false, "do not wait until the video plays")
	fs.BoolVar(&u.again, "again", false, "upload anew, whatever an earlier run has done")
	return func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return usagef("needs at least one FILE")
		}
		if u.in.Password == "-" {
			b, err := io.ReadAll(io.LimitReader(u.env.In, 2000))
			if err != nil {
				return err
			}
			u.in.Password = strings.TrimRight(string(b), "\r\n")
		}
		if err := settle(&u.in, expires, a.env.Now()); err != nil {
			return err
		}
		var err error
		if u.client, err = a.connect(); err != nil {
			return err
		}
		u.address, u.expires = a.address(), expires
		patience := forever
		if noWait {
			patience = 0
		}
		var last error
		failed := 0
		for _, file := range args {
			w := &bars{app: a, file: file}
			v, err := u.bring(ctx, file, patience, w)
			w.end()
			if err != nil {
				if ctx.Err() != nil {
					a.note("stopped; the same command goes on where it was")
					return err
				}
				last, failed = err, failed+1
				if len(args) > 1 {
					fmt.Fprintf(a.env.Err, "linkreel: %s: %s\n", clean(file), explain(err))
				}
				continue
			}
			if err := a.print(v, func(w io.Writer) { fmt.Fprintln(w, clean(v.ShareURL)) }); err != nil {
				return err
			}
		}
		if failed > 0 && len(args) > 1 {
			return &partly{failed, len(args)}
		}
		return last
	}
}

// settle derives privacy from the other options and reads the end.
func settle(in *client.VideoCreate, expires string, now time.Time) error {
	if in.Password != "" && in.Privacy == "" {
		in.Privacy = "password"
	}
	if in.Password != "" && in.Privacy != "password" {
		return usagef("a password is for privacy password")
	}
	if expires == "" {
		return nil
	}
	if in.Password != "" {
		return usagef("a video is protected by a password or by an end, not by both")
	}
	if in.Privacy == "" {
		in.Privacy = "expiring"
	}
	if d, ok := span(expires); ok {
		in.ExpiresAt = client.At(now.Add(d))
		return nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly, time.DateTime} {
		if t, err := time.Parse(form, expires); err == nil {
			in.ExpiresAt = client.At(t)
			return nil
		}
	}
	return usagef("expires %q is neither a length of time nor a date", expires)
}

// bars is a watcher for a person.
type bars struct {
	*app
	file string
	bar  *bar
	said string
}

func (w *bars) resumed(id string) { w.note("%s: going on with %s", clean(w.file), clean(id)) }

func (w *bars) sent(n, total int64) {
	if w.bar == nil {
		w.bar = w.app.bar(filepath.Base(w.file), max(total, 1))
		w.bar.start(n)
		if !w.bar.on() {
			w.note("%s: uploading %s", clean(w.file), size(total))
		}
	}
	w.bar.set(n)
}

func (w *bars) prepared(v *client.Video) {
	if w.said == "" {
		w.end()
		w.bar = w.app.bar(filepath.Base(w.file), 100)
	}
	if w.bar.on() {
		w.bar.tail = v.Status
		w.bar.drawn = time.Time{}
		w.bar.set(int64(v.Progress))
	} else if w.said != v.Status {
		w.note("%s: %s", clean(w.file), v.Status)
	}
	w.said = v.Status
}

func (w *bars) end() {
	if w.bar != nil {
		w.bar.end()
	}
}
