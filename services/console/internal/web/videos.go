package web

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// video is a video from a list, or a full record.
type video struct{ client.Video }

// ID returns the video's id. Templates use it for videos from lists and for full records.
func (v video) ID() string { return v.VideoSummary.ID }

func (v video) Name() string {
	if title := strings.TrimSpace(v.Title); title != "" {
		return title
	}
	return text.Get("video.untitled")
}

func (v video) TagList() string { return strings.Join(v.Tags, ", ") }
func (v video) Ready() bool     { return v.Status == "ready" }

// Waiting reports whether the status will change on its own.
func (v video) Waiting() bool { return v.Status == "uploading" || v.Status == "processing" }

// Length returns the duration as 1:15 or 1:01:15, or "" if it is not yet known.
func (v video) Length() string {
	if v.Duration == nil {
		return ""
	}
	n := int(math.Round(*v.Duration))
	if n >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", n/3600, n/60%60, n%60)
	}
	return fmt.Sprintf("%d:%02d", n/60, n%60)
}

// StatusText returns the text for the video's status.
func (v video) StatusText() string { return text.Get("video.status." + v.Status) }

// Poster, Playlist and File return URLs for this page. The API returns them with its own host. The
// page uses the console's host instead because its policy allows that host.
func (v video) Poster() string   { return samePath(str(v.PosterURL)) }
func (v video) Playlist() string { return samePath(str(v.PlaybackURL)) }
func (v video) File() string     { return samePath(str(v.DownloadURL)) }

// CaptionFile returns the URL of a language's captions, a file next to the playlist.
func (v video) CaptionFile(lang string) string {
	return v.beside("captions-" + lang + ".vtt")
}

// Storyboard returns the URL of the storyboard's thumbnail track.
func (v video) Storyboard() string { return v.beside("storyboard.vtt") }

// beside returns the URL of a file in the playlist's folder, or "" if the video has no playlist.
func (v video) beside(name string) string {
	list := v.Playlist()
	if list == "" {
		return ""
	}
	return list[:strings.LastIndexByte(list, '/')+1] + name
}

// samePath returns the URL without its host, or "" for an empty or invalid URL.
func samePath(address string) string {
	u, err := url.Parse(address)
	// For an empty URL, RequestURI would return "/".
	if err != nil || address == "" {
		return ""
	}
	return u.RequestURI()
}

type option struct {
	Value, Text string
	Selected    bool
}

var (
	privacies = []string{"public", "unlisted", "password", "expiring"}
	statuses  = []string{"uploading", "processing", "ready", "failed"}
)

func options[S ~string](prefix string, values []S, selected ...string) []option {
	out := make([]option, len(values))
	for i, v := range values {
		out[i] = option{string(v), text.Get(prefix + string(v)), slices.Contains(selected, string(v))}
	}
	return out
}

func videos(r *request) error {
	q := r.filters("q", "tag", "status", "privacy", "cursor")
	// If the URL has an unknown filter, the page shows all videos instead of an error.
	if !slices.Contains(statuses, q.Get("status")) {
		q.Del("status")
	}
	if !slices.Contains(privacies, q.Get("privacy")) {
		q.Del("privacy")
	}
	var list struct{ Data []video }
	header, err := r.read("/api/v1/videos?"+q.Encode(), &list)
	if err != nil {
		return err
	}
	next := ""
	if cursor := client.NextCursor(header); cursor != "" {
		next = r.pageLink(q, cursor)
	}
	return r.render(http.StatusOK, "videos.html", view{Title: text.Get("videos.title"), Data: map[string]any{
		"Videos": list.Data, "Next": next, "Q": q.Get("q"), "Tag": q.Get("tag"), "Filtered": len(q) > 0, "CanWrite": r.can("videos:write"),
		"Statuses":  options("video.status.short.", statuses, q.Get("status")),
		"Privacies": options("video.privacy.", privacies, q.Get("privacy")),
	}})
}

func (r *request) videoPath() string { return "/api/v1/videos/" + url.PathEscape(r.Params("id")) }
func (r *request) videoHome() string { return "/app/videos/" + url.PathEscape(r.Params("id")) }

// oneVideo reads the data for a video's page. Form contains the stored values by field name.
func (r *request) oneVideo() (view, error) {
	var v video
	header, err := r.read(r.videoPath(), &v)
	if err != nil {
		return view{}, err
	}
	var a client.VideoAccess
	if err := r.do("GET", r.videoPath()+"/access", nil, &a); err != nil {
		return view{}, err
	}
	captions, err := listAll[client.Caption](r, r.videoPath()+"/captions")
	if err != nil {
		return view{}, err
	}
	form := map[string]string{
		"title": v.Title, "description": str(v.Description), "tags": v.TagList(), "privacy": a.Privacy, "expiresAt": toMinute(a.ExpiresAt),
		"embedOrigins": strings.Join(a.EmbedOrigins, "\n"), "allowDownload": strconv.FormatBool(a.AllowDownload),
	}
	if v.ThumbnailTime != nil {
		form["time"] = strconv.FormatFloat(*v.ThumbnailTime, 'f', -1, 64)
	}
	r.allowMedia()
	return view{Title: v.Name(), Form: form, Rev: header.Get("ETag"), Was: shown(form), Data: map[string]any{
		"Video": v, "Access": a, "Captions": captions, "CanWrite": r.can("videos:write"),
		"Privacies":   options("video.privacy.", privacies, a.Privacy),
		"HasPassword": a.Privacy == "password",
	}}, nil
}

var videoPage = page{template: "video.html", view: (*request).oneVideo, typed: func(r *request, data map[string]any) {
	if chosen := r.form.Get("privacy"); chosen != "" {
		data["Privacies"] = options("video.privacy.", privacies, chosen)
	}
}}

func (r *request) onVideo(err error, notice string) error {
	return videoPage.answer(r, err, r.videoHome(), notice)
}

func editVideo(r *request) error {
	return r.onVideo(r.edit("PATCH", r.videoPath(), map[string]any{
		"title": strings.TrimSpace(r.form.Get("title")), "description": strings.TrimSpace(unix(r.form.Get("description"))),
		"tags": commaList(r.form.Get("tags")),
	}, r.oneVideo), "saved")
}

// unix replaces the line breaks from HTML forms with "\n".
func unix(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }

func setAccess(r *request) error {
	var present client.VideoAccess
	if err := r.do("GET", r.videoPath()+"/access", nil, &present); err != nil {
		return err
	}
	download := r.form.Get("allowDownload") == "true"
	wanted := client.VideoAccessUpdate{
		Privacy: r.form.Get("privacy"), AllowDownload: client.Set(download), EmbedOrigins: client.Set(lines(r.form.Get("embedOrigins"))),
	}
	if !download {
		r.form.Set("allowDownload", "false") // an unchecked box sends nothing
	}
	// The form sends the fields for all privacy settings. Leave out the fields that the chosen
	// setting does not use. The API would reject them.
	if password := r.form.Get("password"); wanted.Privacy == "password" && password != "" {
		wanted.Password = client.Set(password)
	}
	r.form.Del("password") // do not show the password again
	if wanted.Privacy == "expiring" {
		at, ok := r.minute("expiresAt", present.ExpiresAt)
		if !ok {
			return r.onVideo(apierr.Invalid(apierr.Detail{Field: "expiresAt", Message: text.Get("form.time")}), "")
		}
		if at != nil {
			wanted.ExpiresAt = client.Set(client.At(at.Time()))
		}
		r.form.Set("expiresAt", toMinute(at))
	}
	store := func() error { return r.edit("PUT", r.videoPath()+"/access", wanted, r.oneVideo) }
	if !wanted.Password.IsZero() {
		// None of the fields would show that somebody else has set a password, so any change to the
		// record counts as a conflict.
		store = func() error { return r.do("PUT", r.videoPath()+"/access", wanted, nil) }
	}
	return r.onVideo(reword(store(), func(d *apierr.Detail) {
		if d.Field == "expiresAt" && d.Code == apierr.OutOfRange { // the API's message mentions milliseconds
			d.Message = text.Get("video.expires.past")
		}
	}), "access")
}

func setThumbnail(r *request) error {
	// The "ours" button restores the automatic thumbnail, which needs a null time. In that case,
	// ignore the time field, which browsers also send.
	if r.form.Get("ours") != "" {
		return r.onVideo(r.edit("PUT", r.videoPath()+"/thumbnail", client.VideoThumbnail{}, r.oneVideo), "thumbnail")
	}
	seconds, ok := clockSeconds(r.form.Get("time"))
	if !ok {
		return r.onVideo(apierr.Invalid(apierr.Detail{Field: "time", Message: text.Get("video.thumbnail.bad")}), "")
	}
	return r.onVideo(r.edit("PUT", r.videoPath()+"/thumbnail", client.VideoThumbnail{Time: &seconds}, r.oneVideo), "thumbnail")
}

// clockSeconds parses "75", "75.5", "1:15" and "1:01:15".
func clockSeconds(s string) (float64, bool) {
	parts := strings.Split(strings.TrimSpace(s), ":")
	if len(parts) > 3 {
		return 0, false
	}
	var total float64
	for _, p := range parts {
		// Allow only digits and a dot: ParseFloat also accepts "1e3", "0x10", "-1" and "Inf".
		if p == "" || strings.Trim(p, "0123456789.") != "" {
			return 0, false
		}
		n, err := strconv.ParseFloat(p, 64)
		// This bound only rejects absurd numbers. The API checks the time against the video.
		if err != nil || n > 1e6 {
			return 0, false
		}
		total = total*60 + n
	}
	return total, true
}

func addCaptions(r *request) error {
	lang := strings.TrimSpace(r.form.Get("lang"))
	file, err := r.file("file")
	if err != nil {
		return err
	}
	switch {
	// The language becomes a segment of the path. With an empty language, the call would match a
	// different route, whose error does not name a field. Characters with a special meaning in
	// paths must not reach a proxy. The API checks everything else.
	case lang == "" || strings.ContainsAny(lang, `/\?#%.`):
		err = apierr.Invalid(apierr.Detail{Field: "lang", Message: text.Get("video.captions.lang.bad")})
	case len(file) == 0:
		err = apierr.Invalid(apierr.Detail{Field: "file", Message: text.Get("video.captions.file.none")})
	default:
		err = r.do(http.MethodPut, r.videoPath()+"/captions/"+url.PathEscape(lang), client.Raw{Type: "text/vtt", Data: file}, nil)
	}
	return r.onVideo(reword(err, func(d *apierr.Detail) {
		if d.Field == "body" {
			d.Field = "file" // the page's name for this field
		}
	}), "captions")
}

// reword returns a copy of an error with each detail adapted to the page by change, for example to
// use the page's field names.
func reword(err error, change func(*apierr.Detail)) error {
	var e *apierr.Error
	if !errors.As(err, &e) {
		return err
	}
	whole := *e
	whole.Details = slices.Clone(e.Details)
	for i := range whole.Details {
		change(&whole.Details[i])
	}
	return &whole
}

func deleteCaptions(r *request) error {
	return r.onVideo(r.do("DELETE", r.videoPath()+"/captions/"+url.PathEscape(r.Params("lang")), nil, nil), "removed")
}

func deleteVideo(r *request) error {
	return videoPage.answer(r, r.do("DELETE", r.videoPath(), nil, nil), "/app/videos", "video.deleted")
}

// videoStatus returns the video's status to the script.
func videoStatus(r *request) error {
	var v video
	if err := r.do("GET", r.videoPath(), nil, &v); err != nil {
		return r.refuseScript(err)
	}
	now := fiber.Map{"status": v.Status, "progress": v.Progress, "text": v.StatusText()}
	if v.Status == "failed" && r.can("videos:write") { // a failed video accepts a new file
		now["name"], now["share"], now["put"], now["resume"] = v.Name(), v.ShareURL, v.UploadURL, v.ResumableUploadURL
		if v.Error != nil {
			now["error"] = v.StatusText() + " " + v.Error.Message
		}
	}
	return r.JSON(now)
}

// refuseScript sends an error to one of our scripts as a message that the script can show. It
// returns an ended session's error to member, which handles that error for every page.
func (r *request) refuseScript(err error) error {
	var e *apierr.Error
	if !errors.As(atField(err), &e) || e.Code.Status() == http.StatusUnauthorized {
		return err
	}
	message := e.Message
	if len(e.Details) > 0 {
		message = e.Details[0].Message
	}
	return r.Status(e.Code.Status()).JSON(fiber.Map{"error": message})
}
