package cli

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

func videoCommands() []command {
	return []command{
		{"videos upload", "FILE…", "upload videos, wait until they are ready, and print their share links", videosUpload},
		{"videos list", "", "list the newest videos", videosList},
		{"videos get", "ID", "show a video", videosGet},
		{"videos update", "ID", "change title, description, tags or external id", videosUpdate},
		{"videos captions", "ID [LANG FILE]", "list captions, or set or --delete the captions of one language", videosCaptions},
		{"videos access", "ID", "show who may see a video, or change it with flags", videosAccess},
		{"videos thumbnail", "ID SECOND|default", "use the frame at SECOND as the thumbnail", videosThumbnail},
		{"videos delete", "ID…", "delete videos", videosDelete},
	}
}

func videosList(a *app, fs *flag.FlagSet) action {
	limit := fs.Int("limit", 0, "stop after `n` videos; 0 lists all")
	var f client.ListVideosQuery
	fs.StringVar(&f.Q, "search", "", "only videos whose title, description, slug or tags have words that start with these `words`")
	texts(fs, "tag", "only videos with this `tag`; repeat the flag to require several tags", &f.Tag)
	fs.StringVar(&f.Status, "status", "", "only videos with this `status`: uploading, processing, ready or failed")
	fs.StringVar(&f.Privacy, "privacy", "", "only videos with this `privacy`: public, unlisted, password or expiring")
	fs.StringVar(&f.ExternalID, "external-id", "", "only the video with this external `id`")
	return a.asks("", func(ctx context.Context, c *client.Client, _ string) error {
		t := a.table("ID", "SLUG", "STATUS", "PRIVACY", "TITLE")
		return show(t, c.Videos(ctx, f), *limit, func(v client.VideoSummary) []string {
			return []string{v.ID, v.Slug, v.Status, v.Privacy, v.Title}
		})
	})
}

func videosGet(a *app, _ *flag.FlagSet) action {
	return a.asks("ID", func(ctx context.Context, c *client.Client, id string) error {
		v, err := c.GetVideo(ctx, id)
		return a.answer(v, err, func(w io.Writer) { showVideo(w, v) })
	})
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
	facts(w, "id", v.ID, "title", v.Title, "description", text(v.Description), "share address", v.ShareURL,
		"status", v.Status, "progress", progress, "why", why,
		"privacy", v.Privacy, "expires", when(v.ExpiresAt), "length", length, "size", dimensions, "captions", strings.Join(v.Captions, ", "),
		"tags", strings.Join(v.Tags, ", "), "external id", text(v.ExternalID), "taken down", takenDown(v.TakenDown),
		"views", strconv.FormatInt(v.Views, 10), "created", when(&v.CreatedAt))
}

func videosUpdate(a *app, fs *flag.FlagSet) action {
	var in client.VideoUpdate
	tagsField(fs, &in.Tags)
	for name, to := range map[string]*client.Field[string]{"title": &in.Title, "description": &in.Description, "external-id": &in.ExternalID} {
		textField(fs, name, "new `text`; an empty value clears it", to)
	}
	return a.asks("ID", func(ctx context.Context, c *client.Client, id string) error {
		_, err := c.UpdateVideo(ctx, id, in)
		return a.answer(map[string]any{"success": true, "id": id}, err, func(io.Writer) { a.note("updated") })
	})
}

func videosCaptions(a *app, fs *flag.FlagSet) action {
	gone := fs.Bool("delete", false, "remove the captions of LANG")
	return func(ctx context.Context, args []string) error {
		switch {
		case len(args) == 1 && !*gone, len(args) == 2 && *gone, len(args) == 3 && !*gone:
		default:
			return usagef("give ID to list captions, ID LANG FILE to set them, or ID LANG --delete to remove them")
		}
		var vtt []byte
		var err error
		if len(args) == 3 {
			if vtt, err = os.ReadFile(args[2]); err != nil {
				return err
			}
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		switch len(args) {
		case 1:
			return show(a.table("LANG", "NAME"), c.Captions(ctx, args[0]), 0, func(l client.Caption) []string {
				return []string{l.Language, l.Name}
			})
		case 2:
			err := c.DeleteCaptions(ctx, args[0], args[1])
			return a.answer(
				map[string]any{"id": args[0], "language": args[1], "deleted": true}, err,
				func(io.Writer) { a.note("captions removed") },
			)
		}
		_, err = c.PutCaptions(ctx, args[0], args[1], vtt)
		return a.answer(map[string]any{"success": true, "id": args[0], "language": args[1]}, err, func(io.Writer) { a.note("captions set") })
	}
}

// videosAccess shows a video's access settings. If there are flags, it applies them first.
func videosAccess(a *app, fs *flag.FlagSet) action {
	var privacy, password, expires string
	var origins []string
	fs.StringVar(&privacy, "privacy", "", "public, unlisted, password or expiring")
	fs.StringVar(&password, "password", "", "new `password`; - reads it from standard input")
	fs.StringVar(&expires, "expires", "", "`when` the link expires: 7d, 2027-01-31 or 2027-01-31T12:00:00Z")
	download := fs.String("download", "", "whether visitors may download the file: yes or no")
	texts(fs, "embed-origin", "`origin` allowed to embed the video, such as https://example.com; repeat for more, or use any to allow every site", &origins)
	return a.asks("ID", func(ctx context.Context, c *client.Client, id string) error {
		var r client.Response
		access, err := c.GetVideoAccess(ctx, id, client.WithResponse(&r))
		if err != nil {
			return err
		}
		if privacy != "" || password != "" || expires != "" || *download != "" || len(origins) > 0 {
			if password, err = a.passwordFrom(password); err != nil {
				return err
			}
			change, err := amend(access, privacy, password, expires, *download, origins, a.env.Now())
			if err != nil {
				return err
			}
			if access, err = c.SetVideoAccess(ctx, id, change, client.IfMatch(r.ETag)); err != nil {
				return err
			}
		}
		return a.print(access, func(w io.Writer) {
			embed := strings.Join(access.EmbedOrigins, ", ")
			facts(
				w, "privacy", access.Privacy, "expires", when(access.ExpiresAt), "download",
				map[bool]string{true: "yes", false: "no"}[access.AllowDownload], "embedded at", cmp.Or(embed, "any site"),
			)
		})
	})
}

// amend applies changes to access settings. An empty value has no effect, and the origin "any"
// allows every site. amend drops settings that belong to a different privacy level.
func amend(
	access *client.VideoAccess, privacy, password, expires, download string, origins []string, now time.Time,
) (in client.VideoAccessUpdate, err error) {
	switch {
	case privacy != "":
	case password != "":
		privacy = "password"
	case expires != "":
		privacy = "expiring"
	default:
		privacy = access.Privacy
	}
	if password != "" && privacy != "password" {
		return in, usagef("a password requires privacy password")
	}
	// The call replaces all access settings, so fields without a flag are sent unchanged.
	in = client.VideoAccessUpdate{
		Privacy: privacy, ExpiresAt: client.Clear[client.Time](), AllowDownload: client.Set(access.AllowDownload),
		EmbedOrigins: client.Set(access.EmbedOrigins),
	}
	if password != "" {
		in.Password = client.Set(password)
	}
	if expires != "" {
		end, ok := endOf(expires, now)
		if !ok {
			return in, usagef("expires %q must be a duration, such as 7d, or a date, such as 2027-01-31", expires)
		}
		in.ExpiresAt = client.Set(client.At(end))
	} else if privacy == "expiring" && access.ExpiresAt != nil {
		in.ExpiresAt = client.Set(client.At(access.ExpiresAt.Time()))
	}
	switch download {
	case "":
	case "yes", "no":
		in.AllowDownload = client.Set(download == "yes")
	default:
		return in, usagef("download must be yes or no")
	}
	if len(origins) == 1 && origins[0] == "any" {
		in.EmbedOrigins = client.Set([]string{})
	} else if len(origins) > 0 {
		in.EmbedOrigins = client.Set(origins)
	}
	return in, nil
}

// passwordFrom returns a password. It reads the password from standard input if flag is "-".
func (a *app) passwordFrom(flag string) (string, error) {
	if flag != "-" {
		return flag, nil
	}
	b, err := io.ReadAll(io.LimitReader(a.env.In, 2000))
	return strings.TrimRight(string(b), "\r\n"), err
}

func videosThumbnail(a *app, _ *flag.FlagSet) action {
	return func(ctx context.Context, args []string) error {
		if len(args) != 2 {
			return usagef("give ID and a SECOND of the video, or ID and default")
		}
		var at *float64
		if args[1] != "default" {
			second, err := strconv.ParseFloat(args[1], 64)
			if err != nil || second < 0 {
				return usagef("%q is not a position in seconds", args[1])
			}
			at = &second
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		if _, err := c.SetVideoThumbnail(ctx, args[0], client.VideoThumbnail{Time: at}); err != nil {
			return err
		}
		return a.print(map[string]any{"id": args[0], "time": at}, func(io.Writer) { a.note("the thumbnail changes within a minute") })
	}
}

func videosDelete(a *app, _ *flag.FlagSet) action {
	return a.each("deleted", func(ctx context.Context, c *client.Client, id string) error { return c.DeleteVideo(ctx, id) })
}

func videosUpload(a *app, fs *flag.FlagSet) action {
	u := uploader{env: a.env}
	var expires string
	var noWait bool
	fs.StringVar(&u.in.Title, "title", "", "title (default the file's name)")
	fs.StringVar(&u.in.Privacy, "privacy", "", "public, unlisted, password or expiring")
	fs.StringVar(&u.in.Password, "password", "", "protect with this `password`; - reads it from standard input")
	fs.StringVar(&expires, "expires", "", "`when` the link expires: 7d, 12h, 2027-01-31 or 2027-01-31T12:00:00Z")
	texts(fs, "tag", "`tag` for finding the video; may be repeated", &u.in.Tags)
	fs.StringVar(&u.in.ExternalID, "external-id", "", "your own `id` for the video, unique among the account's videos")
	fs.BoolVar(&noWait, "no-wait", false, "do not wait until the video is ready")
	fs.BoolVar(
		&u.again, "again", false,
		"make a new video instead of resuming an unfinished upload (after a finished upload, a new video is made anyway)",
	)
	return func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return usagef("give at least one FILE")
		}
		var err error
		if u.in.Password, err = a.passwordFrom(u.in.Password); err != nil {
			return err
		}
		if err := settle(&u.in, expires, a.env.Now()); err != nil {
			return err
		}
		if u.client, err = a.connect(); err != nil {
			return err
		}
		u.address, u.expires = a.address(), expires
		patience := forever
		if noWait {
			patience = 0
		}
		return a.every(ctx, args, func(file string) error {
			w := &bars{app: a, file: file}
			v, err := u.bring(ctx, file, patience, w)
			w.end()
			if err != nil && ctx.Err() != nil {
				a.note("Stopped. Run the same command to resume.")
			}
			return a.answer(v, err, func(w io.Writer) { fmt.Fprintln(w, clean(v.ShareURL)) })
		})
	}
}

// settle derives privacy from the other options and parses the expiry.
func settle(in *client.VideoCreate, expires string, now time.Time) error {
	if in.Password != "" && in.Privacy == "" {
		in.Privacy = "password"
	}
	if in.Password != "" && in.Privacy != "password" {
		return usagef("--password needs --privacy password")
	}
	if expires == "" {
		return nil
	}
	if in.Password != "" {
		return usagef("a video can have a password or an expiry, not both")
	}
	if in.Privacy == "" {
		in.Privacy = "expiring"
	}
	end, ok := endOf(expires, now)
	if !ok {
		return usagef("expires %q must be a duration, such as 7d, or a date, such as 2027-01-31", expires)
	}
	in.ExpiresAt = client.At(end)
	return nil
}

// endOf parses a duration from now or an ISO 8601 date, which is in UTC if it has no zone.
func endOf(s string, now time.Time) (time.Time, bool) {
	if d, ok := span(s); ok {
		return now.Add(d), true
	}
	for _, form := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", time.DateOnly, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, "2006-01-02 15:04"} {
		if t, err := time.Parse(form, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// bars is a watcher that shows progress bars.
type bars struct {
	*app
	file string
	bar  *bar
	said string
}

func (w *bars) resumed(id string) { w.note("%s: resuming %s", clean(w.file), clean(id)) }

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
	} else if w.said != v.Status && v.Status != "uploading" { // sent has already reported this status
		w.note("%s: %s", clean(w.file), v.Status)
	}
	w.said = v.Status
}

func (w *bars) end() {
	if w.bar != nil {
		w.bar.end()
	}
}
