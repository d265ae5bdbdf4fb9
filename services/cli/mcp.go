package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

func mcpCommands() []command {
	return []command{{"mcp", "", "serve the API to an assistant over the Model Context Protocol", mcpServe}}
}

func mcpServe(a *app, fs *flag.FlagSet) action {
	t := tools{app: a}
	fs.StringVar(&t.folder, "files", "", "offer the tool upload_video, for files in this `folder` only")
	fs.BoolVar(&t.readOnly, "read-only", false, "offer only tools that change nothing")
	return func(ctx context.Context, args []string) error {
		if err := none(args); err != nil {
			return err
		}
		var err error
		if t.client, err = a.connect(); err != nil {
			return err
		}
		if t.folder != "" {
			if t.folder, err = filepath.EvalSymlinks(t.folder); err != nil {
				return err
			}
			if t.folder, err = filepath.Abs(t.folder); err != nil {
				return err
			}
		}
		out := &lockedWriter{w: a.env.Out}
		return t.server().Run(ctx, &mcp.IOTransport{Reader: io.NopCloser(onlyJSON(a.env.In, out)), Writer: keepOpen{out}})
	}
}

// keepOpen leaves standard output open when a session ends.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

// lockedWriter keeps messages of the protocol and of onlyJSON from mixing.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// onlyJSON passes on only lines that are JSON, and answers others with -32700, as JSON-RPC
// requires. The protocol's own reader would end the session.
func onlyJSON(in io.Reader, out io.Writer) io.Reader {
	r, w := io.Pipe()
	go func() {
		lines := bufio.NewReader(in)
		for {
			line, err := lines.ReadBytes('\n')
			if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 {
				if json.Valid(trimmed) {
					if _, werr := w.Write(append(trimmed, '\n')); werr != nil {
						return // the session has ended
					}
				} else if _, werr := io.WriteString(
					out, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error: the line is not JSON"}}`+"\n",
				); werr != nil {
					_ = w.CloseWithError(werr)
					return
				}
			}
			if err != nil {
				_ = w.CloseWithError(err) // io.EOF ends the session
				return
			}
		}
	}()
	return r
}

var coded = regexp.MustCompile(`^[A-Z][A-Z_]+: `)

// codedErrors rewrites the library's schema errors in the form of our own errors: a code
// first, then what to change.
func codedErrors(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		call, ok := res.(*mcp.CallToolResult)
		if err != nil || !ok || call == nil || !call.IsError {
			return res, err
		}
		for _, c := range call.Content {
			if text, ok := c.(*mcp.TextContent); ok && !coded.MatchString(text.Text) {
				// The schema library formats a null argument as "<invalid reflect.Value>".
				text.Text = "INVALID_ARGUMENT: " + strings.ReplaceAll(text.Text, "<invalid reflect.Value>", "the value")
			}
		}
		return res, nil
	}
}

// tools are the operations that an assistant can perform on the account of a key. Their
// results contain only data that is safe to read aloud: no keys, no passwords, and no
// signed URLs, which are credentials by themselves.
type tools struct {
	*app
	client   *client.Client
	folder   string // the folder for uploads; if empty, no tool reads local files
	readOnly bool
}

const instructions = `Linkreel makes short links and shareable videos. Ids start with lnk_ and vid_; find_links and list_videos return them.
Errors start with a code: VALIDATION_ERROR names the wrong fields, SLUG_TAKEN asks for another slug,
PLAN_REQUIRED and INSUFFICIENT_SCOPE need another plan or key.
The shareUrl of a video works at once; its page shows progress until the video is ready.`

func (t *tools) server() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "linkreel", Title: "Linkreel", Version: Version()},
		&mcp.ServerOptions{Instructions: instructions, Capabilities: &mcp.ServerCapabilities{}})
	s.AddReceivingMiddleware(codedErrors)
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(bool)}
	adds := &mcp.ToolAnnotations{DestructiveHint: new(bool)}
	changes := &mcp.ToolAnnotations{IdempotentHint: true}

	addTool(s, reads, "find_links", "List the account's short links, newest first, or search them by text in slug, destination or title.", t.findLinks,
		within("limit", 1, 100))
	addTool(s, reads, "get_link", "Show one short link with its short address, clicks and expiry.", t.getLink)
	addTool(s, reads, "explain_link", "Say where a visit to a link would lead and why. The visit is not counted. A value that you omit is "+
		"unknown, so conditions on it are not met.", t.explainLink, within("percent", 0, 99),
		among("device", devices...), among("system", systems...))
	addTool(s, reads, "check_slug", "Say whether a slug is available. Does not reserve it.", t.checkSlug)
	addTool(s, reads, "link_stats", "Show a link's clicks by UTC day, referring host, country, kind of device and rule.", t.linkStats)
	addTool(s, reads, "list_videos", "List the newest videos of the account.", t.listVideos, within("limit", 1, 100))
	addTool(s, reads, "video_status", "Show a video: status, progress, share link, or why it failed. Can wait until it is ready or has "+
		"failed.", t.videoStatus,
		within("waitSeconds", 0, 600))
	if t.readOnly {
		return s
	}
	addTool(s, adds, "create_link", "Make a short link for a web address and return its short address.", t.createLink, routingSchema)
	addTool(s, changes, "update_link", "Change a short link: its destination, title, expiry, preview or how it handles visits. The slug and "+
		"domain cannot be changed.", t.updateLink, routingSchema,
		among("clear", "title", "expires", "ogTitle", "ogDescription", "ogImage", "starts", "expiredUrl", "password", "maxClicks", "rules"))
	addTool(s, changes, "delete_link", "Delete a short link for good. Visitors get 404 at once.", t.deleteLink)
	if t.folder == "" {
		return s // an assistant reads strangers' texts, so the user decides which files it may upload
	}
	addTool(s, adds, "upload_video", "Upload a video file from the folder of videos on this machine and return its share link. Reports "+
		"progress. To resume an upload, call it again with the same file.", t.uploadVideo,
		among("privacy", "public", "unlisted", "password", "expiring"), within("waitSeconds", 0, 600))
	return s
}

// addTool registers a tool, deriving its schemas from its types.
func addTool[In, Out any](s *mcp.Server, hints *mcp.ToolAnnotations, name, description string,
	do func(context.Context, *mcp.CallToolRequest, In) (Out, error), tune ...func(map[string]*jsonschema.Schema)) {
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		panic(err) // the types are ours, and a test registers every tool
	}
	for _, f := range tune {
		f(schema.Properties)
	}
	mcp.AddTool(s, &mcp.Tool{Name: name, Description: description, Annotations: hints, InputSchema: schema},
		func(ctx context.Context, req *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
			out, err := do(ctx, req, in)
			if err != nil {
				return nil, out, errors.New(refusal(err))
			}
			return nil, out, nil
		})
}

// within sets bounds for a number. An optional number may be omitted but not null.
func within(name string, low, high float64) func(map[string]*jsonschema.Schema) {
	return func(p map[string]*jsonschema.Schema) {
		p[name].Type, p[name].Types = "integer", nil
		p[name].Minimum, p[name].Maximum = &low, &high
	}
}

// among lists the allowed values of a text, or of the texts in a list.
func among(name string, values ...any) func(map[string]*jsonschema.Schema) {
	return func(p map[string]*jsonschema.Schema) {
		if p[name].Items != nil {
			p[name].Items.Enum = values
			return
		}
		p[name].Enum = values
	}
}

// refusal writes an error for an assistant: the code first, then what to change.
func refusal(err error) string {
	var (
		api   *client.APIError
		video *client.VideoError
		words *usageError
	)
	switch {
	case errors.As(err, &words):
		return "INVALID_ARGUMENT: " + words.text
	case errors.As(err, &video):
		return video.Code + ": " + video.Message
	case errors.As(err, &api):
		text := strings.Replace(explain(err), " ("+api.Code+")", "", 1)
		return api.Code + ": " + strings.ReplaceAll(text, ".; ", ". ")
	default:
		return "FAILED: " + clean(err.Error())
	}
}

type linkOut struct {
	ID             string `json:"id"`
	ShortURL       string `json:"shortUrl,omitempty" jsonschema:"the address to share; get_link returns it"`
	Slug           string `json:"slug"`
	DestinationURL string `json:"destinationUrl"`
	Title          string `json:"title,omitempty"`
	Clicks         int64  `json:"clicks"`
	Status         string `json:"status,omitempty" jsonschema:"active, scheduled, expired, exhausted or taken_down"`
	CreatedAt      string `json:"createdAt"`
	ExpiresAt      string `json:"expiresAt,omitempty"`
	DomainID       string `json:"domainId,omitempty"`
	OGTitle        string `json:"ogTitle,omitempty"`
	OGDescription  string `json:"ogDescription,omitempty"`
	OGImage        string `json:"ogImage,omitempty"`
	routingOut
}

type createLinkIn struct {
	URL           string `json:"url" jsonschema:"where the link leads: an http or https address"`
	Slug          string `json:"slug,omitempty" jsonschema:"last part of the short address, such as spring-sale; generated if omitted"`
	Title         string `json:"title,omitempty" jsonschema:"private label"`
	DomainID      string `json:"domainId,omitempty" jsonschema:"a verified custom domain, or default for the default host; the account's default domain if omitted"`
	Expires       string `json:"expires,omitempty" jsonschema:"when the link expires: a time from now such as 7d or 12h, or a date such as 2027-01-31T12:00:00Z; never if omitted"`
	OGTitle       string `json:"ogTitle,omitempty" jsonschema:"title that social networks show"`
	OGDescription string `json:"ogDescription,omitempty" jsonschema:"text that social networks show"`
	OGImage       string `json:"ogImage,omitempty" jsonschema:"address of a picture that social networks show"`
	routingIn
}

func (t *tools) createLink(ctx context.Context, _ *mcp.CallToolRequest, in createLinkIn) (out linkOut, err error) {
	link := client.LinkCreate{
		URL: in.URL, Slug: in.Slug, Title: in.Title, DomainID: in.DomainID, OGTitle: in.OGTitle, OGDescription: in.OGDescription,
		OGImage: in.OGImage,
	}
	if in.Expires != "" {
		link.ExpiresAt = moment(in.Expires, t.env.Now())
	}
	in.create(&link, t.env.Now())
	made, err := t.client.CreateLink(ctx, link)
	if err != nil {
		return out, err
	}
	return t.readLink(ctx, made.ID)
}

type idIn struct {
	ID string `json:"id" jsonschema:"id of the record, such as lnk_…"`
}

func (t *tools) getLink(ctx context.Context, _ *mcp.CallToolRequest, in idIn) (linkOut, error) {
	return t.readLink(ctx, in.ID)
}

func (t *tools) readLink(ctx context.Context, id string) (out linkOut, err error) {
	l, err := t.client.GetLink(ctx, id)
	if err != nil {
		return out, err
	}
	return linkOut{
		ID: l.ID, ShortURL: l.ShortURL, Slug: l.Slug, DestinationURL: l.DestinationURL, Title: l.Title, Clicks: l.Clicks, Status: l.Status,
		CreatedAt: iso(&l.CreatedAt), ExpiresAt: iso(l.ExpiresAt), DomainID: text(l.DomainID),
		OGTitle: text(l.OGTitle), OGDescription: text(l.OGDescription), OGImage: text(l.OGImage), routingOut: routingToAssistant(l),
	}, nil
}

type updateLinkIn struct {
	ID            string   `json:"id" jsonschema:"id of the link, lnk_…"`
	URL           string   `json:"url,omitempty" jsonschema:"new destination"`
	Title         string   `json:"title,omitempty" jsonschema:"new private label"`
	Expires       string   `json:"expires,omitempty" jsonschema:"when the link expires: a time from now such as 7d, or a date"`
	OGTitle       string   `json:"ogTitle,omitempty"`
	OGDescription string   `json:"ogDescription,omitempty"`
	OGImage       string   `json:"ogImage,omitempty"`
	Clear         []string `json:"clear,omitempty" jsonschema:"fields to clear; a field that is neither given nor listed here stays as it is"`
	routingIn
}

func (t *tools) updateLink(ctx context.Context, _ *mcp.CallToolRequest, in updateLinkIn) (out linkOut, err error) {
	var change client.LinkUpdate
	touched := false
	for _, f := range []struct {
		name, value string
		to          *client.Field[string]
	}{{"url", in.URL, &change.URL}, {"title", in.Title, &change.Title}, {"ogTitle", in.OGTitle, &change.OGTitle},
		{"ogDescription", in.OGDescription, &change.OGDescription}, {"ogImage", in.OGImage, &change.OGImage},
		{"expiredUrl", in.ExpiredURL, &change.ExpiredURL}, {"password", in.Password, &change.Password}} {
		switch clear := slices.Contains(in.Clear, f.name); {
		case clear && f.value != "":
			return out, usagef("give a value for %s or clear it, not both", f.name)
		case clear:
			*f.to = client.Clear[string]()
		case f.value != "":
			*f.to = client.Set(f.value)
		}
		touched = touched || !f.to.IsZero()
	}
	for _, f := range []struct {
		name, value string
		to          *client.Field[client.Time]
	}{{"expires", in.Expires, &change.ExpiresAt}, {"starts", in.Starts, &change.StartsAt}} {
		switch clear := slices.Contains(in.Clear, f.name); {
		case clear && f.value != "":
			return out, usagef("give a value for %s or clear it, not both", f.name)
		case clear:
			*f.to = client.Clear[client.Time]()
		case f.value != "":
			*f.to = client.Set(moment(f.value, t.env.Now()))
		}
		touched = touched || !f.to.IsZero()
	}
	more, err := in.update(&change, in.Clear, t.env.Now())
	if err != nil {
		return out, err
	}
	if !touched && !more {
		return out, usagef("nothing to change: give a field, or list one in clear")
	}
	if _, err := t.client.UpdateLink(ctx, in.ID, change); err != nil {
		return out, err
	}
	return t.readLink(ctx, in.ID)
}

type deletedOut struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
}

func (t *tools) deleteLink(ctx context.Context, _ *mcp.CallToolRequest, in idIn) (out deletedOut, err error) {
	if err := t.client.DeleteLink(ctx, in.ID); err != nil {
		return out, err
	}
	return deletedOut{in.ID, true}, nil
}

type findLinksIn struct {
	Text   string `json:"text,omitempty" jsonschema:"only links with this text in slug, destination or title; case is ignored"`
	Limit  int    `json:"limit,omitempty" jsonschema:"maximum number of links; 20 if omitted"`
	Cursor string `json:"cursor,omitempty" jsonschema:"nextCursor of an earlier answer, to get the next links"`
}

type findLinksOut struct {
	Links      []linkOut `json:"links"`
	Searched   int       `json:"searched" jsonschema:"number of links that were examined"`
	NextCursor string    `json:"nextCursor,omitempty" jsonschema:"pass it as cursor to get more; absent if there are no more"`
}

// searchMost is how many links one call examines. With its cursor, the next call continues.
const searchMost = 1000

// findLinks reads pages until it has found enough. Its cursor is the API's cursor. If a
// search stops in the middle of a page, "+" and the last link examined are appended.
func (t *tools) findLinks(ctx context.Context, _ *mcp.CallToolRequest, in findLinksIn) (out findLinksOut, err error) {
	limit := in.Limit
	if limit == 0 {
		limit = 20
	}
	// A search reads whole pages, since most links on a page may not match.
	text, pageSize := strings.ToLower(in.Text), limit
	if text != "" {
		pageSize = 100
	}
	start, seen, _ := strings.Cut(in.Cursor, "+")
	var cursor *int64
	if start != "" {
		n, err := strconv.ParseInt(start, 10, 64)
		if err != nil {
			return out, &client.APIError{Status: 400, Code: "INVALID_CURSOR", Message: "cursor must be the nextCursor of an earlier answer"}
		}
		cursor = &n
	}
	out.Links = []linkOut{}
	for {
		page, err := t.client.ListLinks(ctx, client.ListLinksQuery{Cursor: cursor, Limit: pageSize})
		if err != nil {
			return out, err
		}
		rows := page.Data
		// After a cursor with "+", the page is read again without the links already examined. If
		// that last link has been deleted meanwhile, the whole page is shown, because showing a
		// link twice is better than missing one.
		if i := slices.IndexFunc(rows, func(l client.LinkSummary) bool { return l.ID == seen }); i >= 0 {
			rows = rows[i+1:]
		}
		for i, l := range rows {
			out.Searched++
			if text != "" && !strings.Contains(strings.ToLower(l.Slug+"\n"+l.DestinationURL+"\n"+l.Title), text) {
				continue
			}
			out.Links = append(
				out.Links,
				linkOut{ID: l.ID, Slug: l.Slug, DestinationURL: l.DestinationURL, Title: l.Title, Clicks: l.Clicks, CreatedAt: iso(&l.CreatedAt)},
			)
			if len(out.Links) == limit && i < len(rows)-1 {
				out.NextCursor = position(cursor) + "+" + l.ID
				return out, nil
			}
		}
		if !page.HasMore || page.NextCursor == nil {
			return out, nil
		}
		cursor, seen = page.NextCursor, ""
		if len(out.Links) >= limit || out.Searched >= searchMost {
			out.NextCursor = position(cursor)
			return out, nil
		}
	}
}

func position(cursor *int64) string {
	if cursor == nil {
		return ""
	}
	return strconv.FormatInt(*cursor, 10)
}

type linkStatsIn struct {
	ID   string `json:"id" jsonschema:"id of the link, lnk_…"`
	From string `json:"from,omitempty" jsonschema:"first UTC day, such as 2026-11-01; a month ago if omitted"`
	To   string `json:"to,omitempty" jsonschema:"last UTC day; today if omitted"`
}

func (t *tools) linkStats(ctx context.Context, _ *mcp.CallToolRequest, in linkStatsIn) (*client.LinkStats, error) {
	return t.client.GetLinkStats(ctx, in.ID, client.GetLinkStatsQuery{From: in.From, To: in.To})
}

type videoOut struct {
	ID        string      `json:"id"`
	Title     string      `json:"title"`
	ShareURL  string      `json:"shareUrl" jsonschema:"the page to share"`
	Status    string      `json:"status" jsonschema:"uploading, processing, ready or failed"`
	Progress  int         `json:"progress" jsonschema:"percent done, while the video is processing"`
	Privacy   string      `json:"privacy"`
	Seconds   float64     `json:"durationSeconds,omitempty"`
	Width     int         `json:"width,omitempty"`
	Height    int         `json:"height,omitempty"`
	Views     int64       `json:"views"`
	Captions  []string    `json:"captions,omitempty"`
	CreatedAt string      `json:"createdAt"`
	ExpiresAt string      `json:"expiresAt,omitempty"`
	Failure   *failureOut `json:"failure,omitempty" jsonschema:"why the video failed"`
	Next      string      `json:"next,omitempty" jsonschema:"what to do next"`
}

type failureOut struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func showToAssistant(v *client.Video) videoOut {
	out := videoOut{ID: v.ID, Title: v.Title, ShareURL: v.ShareURL, Status: v.Status, Progress: v.Progress, Privacy: v.Privacy, Views: v.Views,
		Captions: v.Captions, CreatedAt: iso(&v.CreatedAt), ExpiresAt: iso(v.ExpiresAt)}
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
		out.Next = "call video_status with waitSeconds until the video is ready; the share link already works"
	}
	return out
}

type listVideosIn struct {
	Limit int `json:"limit,omitempty" jsonschema:"maximum number of videos; 20 if omitted"`
}

type listVideosOut struct {
	Videos []videoRow `json:"videos"`
}

type videoRow struct {
	ID      string `json:"id"`
	Title   string `json:"title"`
	Slug    string `json:"slug"`
	Status  string `json:"status"`
	Privacy string `json:"privacy"`
}

func (t *tools) listVideos(ctx context.Context, _ *mcp.CallToolRequest, in listVideosIn) (out listVideosOut, err error) {
	page, err := t.client.ListVideos(ctx, client.ListVideosQuery{Limit: in.Limit})
	if err != nil {
		return out, err
	}
	list := page.Data
	out.Videos = make([]videoRow, len(list))
	for i, v := range list {
		out.Videos[i] = videoRow{v.ID, v.Title, v.Slug, v.Status, v.Privacy}
	}
	return out, nil
}

type videoStatusIn struct {
	ID          string `json:"id" jsonschema:"id of the video, vid_…"`
	WaitSeconds int    `json:"waitSeconds,omitempty" jsonschema:"seconds to wait at most until the video is ready or failed; 0 returns at once"`
}

func (t *tools) videoStatus(ctx context.Context, req *mcp.CallToolRequest, in videoStatusIn) (out videoOut, err error) {
	v, err := t.client.GetVideo(ctx, in.ID)
	if err != nil {
		return out, err
	}
	if in.WaitSeconds > 0 && v.Status != "ready" && v.Status != "failed" {
		v, err = wait(ctx, t.env, t.client, v, time.Duration(in.WaitSeconds)*time.Second, t.teller(ctx, req).prepared)
		var why *client.VideoError
		if errors.As(err, &why) {
			v, err = t.client.GetVideo(ctx, in.ID) // a failed video is a normal result here
		}
		if err != nil {
			return out, err
		}
	}
	return showToAssistant(v), nil
}

type uploadVideoIn struct {
	Path        string `json:"path" jsonschema:"the video file on this machine"`
	Title       string `json:"title,omitempty" jsonschema:"title of the video; the file's name if omitted"`
	Privacy     string `json:"privacy,omitempty" jsonschema:"public if omitted; password requires a password, and expiring requires expires"`
	Password    string `json:"password,omitempty" jsonschema:"viewers must enter it"`
	Expires     string `json:"expires,omitempty" jsonschema:"when the share link expires: a time from now such as 7d, or a date"`
	WaitSeconds *int   `json:"waitSeconds,omitempty" jsonschema:"seconds to wait at most after the upload until the video is ready; 45 if omitted"`
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
		in: client.VideoCreate{Title: in.Title, Privacy: in.Privacy, Password: in.Password},
	}
	if err := settle(&u.in, in.Expires, t.env.Now()); err != nil {
		return out, err
	}
	patience := 45 * time.Second
	if in.WaitSeconds != nil {
		patience = time.Duration(*in.WaitSeconds) * time.Second
	}
	v, err := u.bring(ctx, path, patience, t.teller(ctx, req))
	if err != nil {
		return out, err
	}
	if patience == 0 { // v is still the record from before the upload
		if v, err = t.client.GetVideo(ctx, v.ID); err != nil {
			return out, err
		}
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

// teller is a watcher that sends progress notifications if the caller requested them. The
// upload counts from 0 to 100, the preparation from 100 to 200.
type teller struct {
	t    *tools
	tell func(progress float64, message string)
	at   float64
	said time.Time
}

func (t *tools) teller(ctx context.Context, req *mcp.CallToolRequest) *teller {
	// at starts below 0, because step only reports a value that has risen, and 0 is the first.
	w := &teller{t: t, at: -1, tell: func(float64, string) {}}
	if token := req.Params.GetProgressToken(); token != nil {
		w.tell = func(n float64, message string) {
			// A lost notification must not stop an upload.
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: n, Total: 200, Message: message})
		}
	}
	return w
}

// step reports progress at most four times a second, and only when it has risen.
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

// iso formats a time for people and models.
func iso(m *client.Time) string {
	if m == nil {
		return ""
	}
	return m.Time().Format(time.RFC3339)
}
