package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

func (t *tools) readVideos(s *mcp.Server) {
	addTool(s, reads, "find_videos", "List the account's videos, newest first, or search them. A video must match all the fields that you specify.",
		t.findVideos, within("limit", 1, 100), among("status", "uploading", "processing", "ready", "failed"), among("privacy", privacies...))
	addTool(s, reads, "get_video", "Show a video: status, progress, share link, views, captions, who may see it, or why it failed. Can wait "+
		"until it is ready or has failed.", t.getVideo, within("waitSeconds", 0, 600))
}

func (t *tools) writeVideos(s *mcp.Server) {
	addTool(s, changes, "update_video", "Change a video's title, description, tags or external id.", t.updateVideo,
		among("clear", "title", "description", "tags", "externalId"))
	addTool(s, changes, "set_video_access", "Change who may see a video: its privacy, password or expiry, whether visitors may download it, "+
		"and which sites may embed it. Settings that you omit do not change.", t.setVideoAccess, among("privacy", privacies...))
	addTool(s, changes, "set_captions", "Set the captions of a video in one language from WebVTT text, or remove them.", t.setCaptions)
	addTool(s, changes, "set_thumbnail", "Use the frame at a given time in the video as its thumbnail, or restore the automatic one.", t.setThumbnail)
	addTool(s, changes, "delete_video", "Permanently delete a video in any state.", t.deleteVideo)
	if t.folder == "" {
		return // an assistant may follow text from strangers, so the user decides which files it may upload
	}
	addTool(s, adds, "upload_video", "Upload a video file from the folder of videos on this machine and return its share link. Reports "+
		"progress. To resume an upload, call it again with the same file.", t.uploadVideo,
		among("privacy", privacies...), within("waitSeconds", 0, 600))
}

var privacies = []any{"public", "unlisted", "password", "expiring"}

// videoID finds the ID of a video specified by its ID or share URL.
func (t *tools) videoID(ctx context.Context, name string) (string, error) {
	_, slug, found := strings.Cut(name, "/v/")
	if !found {
		return name, nil
	}
	if i := strings.IndexAny(slug, "/?#"); i >= 0 {
		slug = slug[:i]
	}
	if slug == "" {
		return "", usagef("id must be the id of a video (vid_…) or its share URL")
	}
	for v, err := range t.client.Videos(ctx, client.ListVideosQuery{Q: slug}) {
		if err != nil {
			return "", err
		}
		if v.Slug == slug {
			return v.ID, nil
		}
	}
	return "", &client.APIError{Status: 404, Code: "VIDEO_NOT_FOUND", Message: "No video has this share URL; find_videos searches."}
}

type videoOut struct {
	ID          string      `json:"id"`
	Title       string      `json:"title"`
	ShareURL    string      `json:"shareUrl" jsonschema:"the page to share"`
	Status      string      `json:"status" jsonschema:"uploading, processing, ready or failed"`
	Progress    int         `json:"progress" jsonschema:"percent done, while the video is processing"`
	Privacy     string      `json:"privacy" jsonschema:"public, unlisted, password or expiring"`
	Seconds     float64     `json:"durationSeconds,omitempty"`
	Width       int         `json:"width,omitempty"`
	Height      int         `json:"height,omitempty"`
	Views       int64       `json:"views"`
	Captions    []string    `json:"captions,omitempty" jsonschema:"languages that have captions"`
	Description string      `json:"description,omitempty"`
	Tags        []string    `json:"tags,omitempty"`
	ExternalID  string      `json:"externalId,omitempty"`
	Thumbnail   *float64    `json:"thumbnailSecond,omitempty" jsonschema:"time of the chosen thumbnail in seconds; absent if the thumbnail is the automatic one"`
	Download    *bool       `json:"allowDownload,omitempty" jsonschema:"whether visitors may download the file"`
	Embed       []string    `json:"embedOrigins,omitempty" jsonschema:"sites that may embed the video; absent if every site may"`
	CreatedAt   string      `json:"createdAt"`
	ExpiresAt   string      `json:"expiresAt,omitempty"`
	Failure     *failureOut `json:"failure,omitempty" jsonschema:"why the video failed"`
	Next        string      `json:"next,omitempty" jsonschema:"what to do next"`
}

type failureOut struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func showToAssistant(v *client.Video) videoOut {
	out := videoOut{ID: v.ID, Title: v.Title, ShareURL: v.ShareURL, Status: v.Status, Progress: v.Progress, Privacy: v.Privacy, Views: v.Views,
		Captions: v.Captions, Description: text(v.Description), Tags: v.Tags, ExternalID: text(v.ExternalID), Thumbnail: v.ThumbnailTime,
		CreatedAt: iso(&v.CreatedAt), ExpiresAt: iso(v.ExpiresAt)}
	if v.Duration != nil {
		out.Seconds = *v.Duration
	}
	if v.Width != nil && v.Height != nil {
		out.Width, out.Height = *v.Width, *v.Height
	}
	if v.Error != nil {
		out.Failure = &failureOut{v.Error.Code, v.Error.Message}
	}
	if v.Status == "processing" {
		out.Next = "call get_video with waitSeconds until the video is ready; the share link already works"
	}
	return out
}

// withAccess adds a video's access settings. A key that may not read these settings still gets
// the rest.
func (t *tools) withAccess(ctx context.Context, v *client.Video) (videoOut, error) {
	out := showToAssistant(v)
	access, err := t.client.GetVideoAccess(ctx, v.ID)
	if err != nil {
		if client.IsPermission(err) || client.IsNotFound(err) {
			return out, nil
		}
		return out, err
	}
	out.allow(access)
	return out, nil
}

// allow adds the access settings to the result.
func (out *videoOut) allow(a *client.VideoAccess) {
	out.Privacy, out.ExpiresAt, out.Download, out.Embed = a.Privacy, iso(a.ExpiresAt), &a.AllowDownload, a.EmbedOrigins
}

// changed reads a video after a change if the response did not contain the whole video. The change
// has already been made, so a failed read is not a tool error. In that case, changed returns known,
// the fields that the tool knows without reading the video, and adds a note.
func (t *tools) changed(ctx context.Context, known videoOut) videoOut {
	v, err := t.client.GetVideo(ctx, known.ID)
	if err != nil {
		known.Next = "the change was made, but reading the video afterwards failed (" + refusal(err) + "), so this answer is incomplete; call get_video"
		return known
	}
	out, _ := t.withAccess(ctx, v) // without the access settings if they cannot be read
	return out
}

type findVideosIn struct {
	Text       string   `json:"text,omitempty" jsonschema:"words to search for; each must begin a word of the title, the description, a tag or the slug"`
	Tags       []string `json:"tags,omitempty" jsonschema:"a video must have all of these tags; up to five"`
	Status     string   `json:"status,omitempty" jsonschema:"only videos with this status; all if omitted"`
	Privacy    string   `json:"privacy,omitempty" jsonschema:"only videos with this privacy; all if omitted"`
	ExternalID string   `json:"externalId,omitempty" jsonschema:"id of the video in another system"`
	Limit      int      `json:"limit,omitempty" jsonschema:"maximum number of videos; 20 if omitted"`
	Cursor     string   `json:"cursor,omitempty" jsonschema:"nextCursor from an earlier response, to get the next videos"`
}

type findVideosOut struct {
	Videos     []videoRow `json:"videos"`
	NextCursor string     `json:"nextCursor,omitempty" jsonschema:"pass it as cursor to get more; absent if there are no more"`
}

type videoRow struct {
	ID         string   `json:"id"`
	Title      string   `json:"title"`
	ShareURL   string   `json:"shareUrl" jsonschema:"the page to share"`
	Status     string   `json:"status" jsonschema:"uploading, processing, ready or failed"`
	Privacy    string   `json:"privacy" jsonschema:"public, unlisted, password or expiring"`
	Tags       []string `json:"tags,omitempty"`
	ExternalID string   `json:"externalId,omitempty"`
	CreatedAt  string   `json:"createdAt"`
}

func (t *tools) findVideos(ctx context.Context, _ *mcp.CallToolRequest, in findVideosIn) (out findVideosOut, err error) {
	q := client.ListVideosQuery{
		Q: in.Text, Tag: in.Tags, Status: in.Status, Privacy: in.Privacy, ExternalID: in.ExternalID, Limit: in.Limit,
	}
	if in.Cursor != "" {
		q.Cursor = &in.Cursor
	}
	page, err := t.client.ListVideos(ctx, q)
	if err != nil {
		return out, err
	}
	out.Videos, out.NextCursor = make([]videoRow, len(page.Data)), text(page.NextCursor)
	for i, v := range page.Data {
		out.Videos[i] = videoRow{v.ID, v.Title, v.ShareURL, v.Status, v.Privacy, v.Tags, text(v.ExternalID), iso(&v.CreatedAt)}
	}
	return out, nil
}

type videoIn struct {
	ID string `json:"id" jsonschema:"id of the video (vid_…) or its share URL"`
}

type getVideoIn struct {
	videoIn
	WaitSeconds int `json:"waitSeconds,omitempty" jsonschema:"maximum number of seconds to wait until the video is ready or has failed; if 0 or omitted, the tool returns immediately"`
}

func (t *tools) getVideo(ctx context.Context, req *mcp.CallToolRequest, in getVideoIn) (out videoOut, err error) {
	id, err := t.videoID(ctx, in.ID)
	if err != nil {
		return out, err
	}
	v, err := t.client.GetVideo(ctx, id)
	if err != nil {
		return out, err
	}
	if in.WaitSeconds > 0 && v.Status != "ready" && v.Status != "failed" {
		v, err = wait(ctx, t.env, t.client, v, time.Duration(in.WaitSeconds)*time.Second, t.teller(ctx, req).prepared)
		var why *client.VideoError
		if errors.As(err, &why) {
			v, err = t.client.GetVideo(ctx, id) // a failed video is a normal result here
		}
		if err != nil {
			return out, err
		}
	}
	return t.withAccess(ctx, v)
}

type updateVideoIn struct {
	videoIn
	tagsIn
	Title       string   `json:"title,omitempty" jsonschema:"new title; viewers see it"`
	Description string   `json:"description,omitempty" jsonschema:"new description; viewers see it"`
	ExternalID  string   `json:"externalId,omitempty" jsonschema:"id of the video in another system; unique in the account"`
	Clear       []string `json:"clear,omitempty" jsonschema:"fields to clear; fields that are neither specified nor listed here do not change"`
}

func (t *tools) updateVideo(ctx context.Context, _ *mcp.CallToolRequest, in updateVideoIn) (out videoOut, err error) {
	id, err := t.videoID(ctx, in.ID)
	if err != nil {
		return out, err
	}
	var change client.VideoUpdate
	for _, f := range []struct {
		name, value string
		to          *client.Field[string]
	}{{"title", in.Title, &change.Title}, {"description", in.Description, &change.Description}, {"externalId", in.ExternalID, &change.ExternalID}} {
		if err := setOrClear(f.name, f.value, in.Clear, f.to, func(s string) string { return s }); err != nil {
			return out, err
		}
	}
	var have []string
	var opts []client.Option
	if in.edits() { // new tags are added to the video's tags, so the video must not change in between
		var r client.Response
		v, err := t.client.GetVideo(ctx, id, client.WithResponse(&r))
		if err != nil {
			return out, err
		}
		have, opts = v.Tags, []client.Option{client.IfMatch(r.ETag)}
	}
	if err := in.tagsIn.update(&change.Tags, in.Clear, have); err != nil {
		return out, err
	}
	if change.Title.IsZero() && change.Description.IsZero() && change.ExternalID.IsZero() && change.Tags.IsZero() {
		return out, usagef("nothing to change: give a field, or list one in clear")
	}
	done, err := t.client.UpdateVideo(ctx, id, change, opts...)
	if err != nil {
		return out, err
	}
	out, _ = t.withAccess(ctx, &done.Video) // the change was made, even if this read fails
	return out, nil
}

type setVideoAccessIn struct {
	videoIn
	Privacy       string   `json:"privacy,omitempty" jsonschema:"public: anyone, and search engines may list it; unlisted: anyone with the link, not listed; password: whoever enters the password; expiring: anyone with the link until expires; each replaces the previous privacy and its password or expiry"`
	Password      string   `json:"password,omitempty" jsonschema:"viewers must enter it; if privacy is omitted, it becomes password"`
	Expires       string   `json:"expires,omitempty" jsonschema:"when the share link expires: a time from now such as 7d, or a date such as 2030-12-31T12:00:00Z; if privacy is omitted, it becomes expiring, and a password no longer applies"`
	AllowDownload *bool    `json:"allowDownload,omitempty" jsonschema:"whether visitors may download the file"`
	EmbedOrigins  []string `json:"embedOrigins,omitempty" jsonschema:"the only sites that may embed the video, such as https://www.example.com; replaces the existing list"`
	EmbedAnywhere bool     `json:"embedAnywhere,omitempty" jsonschema:"true allows every site to embed the video"`
}

func (t *tools) setVideoAccess(ctx context.Context, _ *mcp.CallToolRequest, in setVideoAccessIn) (out videoOut, err error) {
	id, err := t.videoID(ctx, in.ID)
	if err != nil {
		return out, err
	}
	var r client.Response
	access, err := t.client.GetVideoAccess(ctx, id, client.WithResponse(&r))
	if err != nil {
		return out, err
	}
	download := ""
	if in.AllowDownload != nil {
		download = map[bool]string{true: "yes", false: "no"}[*in.AllowDownload]
	}
	origins := in.EmbedOrigins
	if in.EmbedAnywhere {
		if len(origins) > 0 {
			return out, usagef("give embedOrigins or embedAnywhere, not both")
		}
		origins = []string{"any"}
	}
	if in.Privacy == "" && in.Password == "" && in.Expires == "" && download == "" && len(origins) == 0 {
		return out, usagef("nothing to change: give privacy, password, expires, allowDownload, embedOrigins or embedAnywhere")
	}
	change, err := amend(access, in.Privacy, in.Password, in.Expires, download, origins, t.env.Now())
	if err != nil {
		return out, err
	}
	if access, err = t.client.SetVideoAccess(ctx, id, change, client.IfMatch(r.ETag)); err != nil {
		return out, err
	}
	out = t.changed(ctx, videoOut{ID: id})
	out.allow(access)
	return out, nil
}

type setCaptionsIn struct {
	videoIn
	Language string `json:"language" jsonschema:"language tag such as en or pt-BR"`
	VTT      string `json:"vtt,omitempty" jsonschema:"the captions as WebVTT text, which begins with WEBVTT; replaces the existing captions in that language"`
	Remove   bool   `json:"remove,omitempty" jsonschema:"true removes the captions in that language"`
}

func (t *tools) setCaptions(ctx context.Context, _ *mcp.CallToolRequest, in setCaptionsIn) (out videoOut, err error) {
	if (in.VTT == "") != in.Remove {
		return out, usagef("give vtt to set captions, or remove to remove them")
	}
	id, err := t.videoID(ctx, in.ID)
	if err != nil {
		return out, err
	}
	if in.Remove {
		err = t.client.DeleteCaptions(ctx, id, in.Language)
	} else {
		_, err = t.client.PutCaptions(ctx, id, in.Language, []byte(in.VTT))
	}
	if err != nil {
		return out, err
	}
	return t.changed(ctx, videoOut{ID: id}), nil
}

type setThumbnailIn struct {
	videoIn
	Second    *float64 `json:"second,omitempty" jsonschema:"seconds from the beginning of the video, such as 1.5"`
	Automatic bool     `json:"automatic,omitempty" jsonschema:"true restores the automatic thumbnail"`
}

func (t *tools) setThumbnail(ctx context.Context, _ *mcp.CallToolRequest, in setThumbnailIn) (out videoOut, err error) {
	if (in.Second == nil) != in.Automatic {
		return out, usagef("give second, or automatic")
	}
	id, err := t.videoID(ctx, in.ID)
	if err != nil {
		return out, err
	}
	done, err := t.client.SetVideoThumbnail(ctx, id, client.VideoThumbnail{Time: in.Second})
	if err != nil {
		return out, err
	}
	out, _ = t.withAccess(ctx, &done.Video) // the change was made, even if this read fails
	return out, nil
}

func (t *tools) deleteVideo(ctx context.Context, _ *mcp.CallToolRequest, in videoIn) (out deletedOut, err error) {
	id, err := t.videoID(ctx, in.ID)
	if err != nil {
		return out, err
	}
	return deletedOut{id, true}, t.client.DeleteVideo(ctx, id)
}

type uploadVideoIn struct {
	Path        string   `json:"path" jsonschema:"the video file on this machine; a bare name is a file in the folder of videos"`
	Title       string   `json:"title,omitempty" jsonschema:"title of the video; the file's name if omitted"`
	Tags        []string `json:"tags,omitempty" jsonschema:"tags for finding the video; up to 20, each of 1 to 50 characters, without commas"`
	ExternalID  string   `json:"externalId,omitempty" jsonschema:"id of the video in another system; unique in the account"`
	Privacy     string   `json:"privacy,omitempty" jsonschema:"public: anyone, and search engines may list it; unlisted: anyone with the link, not listed; password: whoever enters the password; expiring: anyone with the link until expires; public if omitted"`
	Password    string   `json:"password,omitempty" jsonschema:"viewers must enter it; if privacy is omitted, it becomes password"`
	Expires     string   `json:"expires,omitempty" jsonschema:"when the share link expires: a time from now such as 7d, or a date such as 2030-12-31T12:00:00Z; if privacy is omitted, it becomes expiring; cannot be combined with a password"`
	WaitSeconds *int     `json:"waitSeconds,omitempty" jsonschema:"maximum number of seconds to wait after the upload until the video is ready; 45 if omitted"`
}

func (t *tools) uploadVideo(ctx context.Context, req *mcp.CallToolRequest, in uploadVideoIn) (out videoOut, err error) {
	path, err := t.allowed(in.Path)
	if err != nil {
		return out, err
	}
	if err := looksLikeVideo(path); err != nil {
		return out, err
	}
	u := uploader{
		env: t.env, client: t.client, address: t.address(), expires: in.Expires,
		in: client.VideoCreate{Title: in.Title, Tags: in.Tags, ExternalID: in.ExternalID, Privacy: in.Privacy, Password: in.Password},
	}
	if err := settle(&u.in, in.Expires, t.env.Now()); err != nil {
		return out, err
	}
	patience := 45 * time.Second
	if in.WaitSeconds != nil {
		patience = time.Duration(*in.WaitSeconds) * time.Second
	}
	v, err := u.bring(ctx, path, patience, t.teller(ctx, req))
	var failed *client.VideoError
	if v != nil && err != nil && !errors.As(err, &failed) && ctx.Err() == nil {
		return t.changed(ctx, showToAssistant(v)), nil // the file has arrived, even if a read failed while waiting
	}
	if err != nil {
		return out, err
	}
	if patience == 0 { // v is still the record from before the upload
		return t.changed(ctx, showToAssistant(v)), nil
	}
	return showToAssistant(v), nil
}

// allowed returns the file's real path if it is in the folder for uploads.
func (t *tools) allowed(path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(t.folder, path)
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	if rel, err := filepath.Rel(t.folder, path); err != nil || !filepath.IsLocal(rel) {
		return "", usagef("the file must be in the folder %s", t.folder)
	}
	return path, nil
}

// teller is a watcher that sends progress notifications if the caller requested them. The upload
// goes from 0 to 100, and the preparation from 100 to 200.
type teller struct {
	t    *tools
	tell func(progress float64, message string)
	at   float64
	said time.Time
}

func (t *tools) teller(ctx context.Context, req *mcp.CallToolRequest) *teller {
	// at starts below 0 because step only reports increases, and the first value is 0.
	w := &teller{t: t, at: -1, tell: func(float64, string) {}}
	if token := req.Params.GetProgressToken(); token != nil {
		w.tell = func(n float64, message string) {
			// A lost notification must not stop an upload.
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: n, Total: 200, Message: message})
		}
	}
	return w
}

// step reports progress at most four times per second, and only when it has increased.
func (w *teller) step(n float64, last bool, message string) {
	now := w.t.env.Now()
	if n <= w.at || !last && now.Sub(w.said) < 250*time.Millisecond {
		return
	}
	w.at, w.said = n, now
	w.tell(n, message)
}

func (w *teller) resumed(string) {}

func (w *teller) sent(n, total int64) {
	w.step(100*float64(n)/float64(max(total, 1)), n == total, fmt.Sprintf("uploaded %s of %s", size(n), size(total)))
}

func (w *teller) prepared(v *client.Video) {
	done := v.Status == "ready" || v.Status == "failed"
	n := 100 + float64(v.Progress)
	if done {
		n = 200
	}
	w.step(n, done, v.Status)
}
