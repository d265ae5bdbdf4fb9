// Package web contains the console's pages. It renders each page from the API's responses for the
// person's session. The only state is in the browser's cookies.
//
// Forms work without JavaScript. A rejected form is shown again with the typed values and each
// error next to its field. A successful form redirects to a page that shows the result, so a reload
// does not repeat the action.
package web

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/libs/design"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/signin"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// Auth calls auth's sign-in operations, which libs/signin defines. peer.Client
// implements it.
type Auth interface {
	Call(ctx context.Context, op string, in, out any) error
}

// Config contains the pages' dependencies.
type Config struct {
	Base *url.URL       // without /app
	API  *client.Client // each call has the person's session as its key
	Auth Auth
	// Storage is the origin of signed URLs, such as https://storage.googleapis.com. Pages
	// play videos from it and upload videos to it.
	Storage string
	Now     func() time.Time // nil means the system clock
}

// Pages are the console's pages.
type Pages struct {
	cfg       Config
	app       *httpapi.API
	templates map[string]*template.Template
	files     map[string]design.File // by URL path
	ways      ways
}

//go:embed templates
var templateFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// New returns the pages. It panics if an embedded file is broken, so any test detects that.
func New(cfg Config) *Pages {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	p := &Pages{cfg: cfg, templates: map[string]*template.Template{}, files: map[string]design.File{}}
	assets := map[string]string{"design.css": p.addFile(design.Stylesheet)}
	entries, err := assetFiles.ReadDir("assets")
	must(err)
	for _, e := range entries {
		content, err := assetFiles.ReadFile("assets/" + e.Name())
		must(err)
		assets[e.Name()] = p.addFile(design.NewFile(e.Name(), "text/javascript; charset=utf-8", content))
	}
	funcs := template.FuncMap{
		"t": text.Get, "icon": design.Icon,
		"asset": func(name string) (string, error) {
			if path, ok := assets[name]; ok {
				return path, nil
			}
			return "", fmt.Errorf("no asset %q", name)
		},
		"time":    moment(time.RFC3339),
		"date":    moment("2 Jan 2006, 15:04 MST"),
		"number":  text.Number,
		"tab":     design.TabTitle,
		"day":     moment(time.DateOnly),
		"dayText": moment("2 Jan 2006"),
	}
	shared := []string{"layout.html", "decides.html"}
	layout := template.Must(template.New("layout.html").Funcs(funcs).ParseFS(templateFiles, "templates/layout.html", "templates/decides.html"))
	files, err := templateFiles.ReadDir("templates")
	must(err)
	for _, f := range files {
		// Each page gets its own copy of the layout because all pages define blocks with the same
		// names.
		if !slices.Contains(shared, f.Name()) {
			p.templates[f.Name()] = template.Must(template.Must(layout.Clone()).ParseFS(templateFiles, "templates/"+f.Name()))
		}
	}
	return p
}

func must(err error) {
	if err != nil {
		panic(err) // the file is embedded, so any test would fail here
	}
}

func (p *Pages) addFile(f design.File) string {
	path := "/app/assets/" + f.Name
	p.files[path] = f
	return path
}

// moment formats a time from the API or from auth.
func moment(layout string) func(at any) (string, error) {
	return func(at any) (string, error) {
		switch at := at.(type) {
		case int64:
			return time.UnixMilli(at).UTC().Format(layout), nil
		case client.Time:
			return at.Time().Format(layout), nil
		case *client.Time:
			return at.Time().Format(layout), nil
		}
		return "", fmt.Errorf("cannot format a %T as a time", at)
	}
}

// request is one request from a browser.
type request struct {
	*fiber.Ctx
	pages   *Pages
	ctx     context.Context // the request's own context
	session string          // the session's key; "" on public pages
	who     signin.Profile  // the signed-in person; empty on public pages
	form    url.Values      // the fields in a POST
	files   map[string][]*multipart.FileHeader
}

// view is the data for a template.
type view struct {
	Title  string
	Path   string // the page's path, for the navigation
	Nav    []navItem
	Who    *signin.Profile // nil if nobody is signed in
	CSRF   string
	Notice string            // the action that has just succeeded
	Undo   string            // the links whose last change can be undone
	Error  string            // the message for the form as a whole
	Fields map[string]string // errors by field
	Form   map[string]string // the typed values
	// Rev is the ETag of the page's record, which its forms send back. Was contains hashes of the
	// values that the forms showed. Both are "" on pages without a record that can be overwritten.
	Rev, Was string
	// Theirs contains the values that somebody else has stored, by field, if they differ from the
	// typed values.
	Theirs map[string]*string
	Data   any
}

// ask calls auth. The caller must have set the Browser field of in.
func (r *request) ask(op string, in, out any) error { return r.pages.cfg.Auth.Call(r.ctx, op, in, out) }

// browser returns the caller's browser for auth.
func (r *request) browser() signin.Browser {
	return signin.Browser{
		Address: r.pages.app.ClientIP(r.Ctx).String(), Client: r.Get(fiber.HeaderUserAgent), Session: r.cookie(sessionCookie),
	}
}

// can reports whether the person has the scope. Pages hide actions that the API would reject.
func (r *request) can(scope string) bool { return slices.Contains(r.who.Scopes, scope) }

// render sends a page.
func (r *request) render(status int, name string, v view) error {
	t, ok := r.pages.templates[name]
	if !ok {
		return fmt.Errorf("no template %s", name)
	}
	v.Path = r.Path()
	v.CSRF = r.csrf()
	if r.who.Member.ID != "" {
		v.Who, v.Nav = &r.who, r.nav()
	}
	if v.Notice == "" {
		if key := r.Query("done"); text.Has("done." + key) {
			v.Notice, v.Undo = r.counted(text.Get("done."+key)), r.undo()
		}
	}
	// Render into memory first, so an error page is still possible if a template fails.
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, "layout.html", v); err != nil {
		return fmt.Errorf("page %s: %w", name, err)
	}
	r.Status(status).Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	return r.Send(b.Bytes())
}

// again shows a rejected form again with the errors. It returns errors that the person cannot fix
// in the form.
func (r *request) again(err error, name string, v view) error {
	// member handles an ended session for every page.
	var e *apierr.Error
	if !errors.As(err, &e) || e.Code.Status() >= http.StatusInternalServerError || e.Code.Status() == http.StatusUnauthorized {
		return err
	}
	stored := v.Form
	v.Error, v.Fields, v.Form = e.Message, map[string]string{}, r.typedForm()
	for _, d := range e.Details {
		v.Fields[d.Field] = d.Message
	}
	if len(v.Fields) > 0 {
		v.Error = text.Get("form.check")
	}
	if e.Code == apierr.PreconditionFailed {
		v.Error, v.Theirs = text.Get("form.conflict"), theirs(stored, v.Form)
	}
	return r.render(e.Code.Status(), name, v)
}

// typedForm returns the values that the person typed.
func (r *request) typedForm() map[string]string {
	form := map[string]string{}
	for name := range r.form {
		if !slices.Contains(hiddenFields, name) {
			form[name] = r.form.Get(name)
		}
	}
	return form
}

// done responds to a successful form with a 303 to path. The page at path shows the notice.
func (r *request) done(path, notice string) error {
	if notice == "" {
		return r.Redirect(path, fiber.StatusSeeOther)
	}
	return r.doneWith(path, url.Values{"done": {notice}})
}

// doneWith redirects like done, but with the query parameters that the caller passes.
func (r *request) doneWith(path string, more url.Values) error {
	sep := "?"
	if strings.Contains(path, "?") {
		sep = "&"
	}
	return r.Redirect(path+sep+more.Encode(), fiber.StatusSeeOther)
}

// doneIf calls done if err is nil. Otherwise it returns err.
func (r *request) doneIf(err error, path, notice string) error {
	if err != nil {
		return err
	}
	return r.done(path, notice)
}

// policyFormat is the pages' Content-Security-Policy, with a placeholder for storage's origin. The
// origin is empty on pages without media.
const policyFormat = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:%[1]s; connect-src 'self'%[1]s; " +
	"media-src 'self'%[1]s; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

var policy = fmt.Sprintf(policyFormat, "")

// allowMedia allows the page to play from storage and upload to it. Signed URLs point to storage.
func (r *request) allowMedia() {
	if r.pages.cfg.Storage != "" {
		r.Set("Content-Security-Policy", fmt.Sprintf(policyFormat, " "+r.pages.cfg.Storage))
	}
}

func secure(c *fiber.Ctx) {
	c.Set("Content-Security-Policy", policy)
	c.Set("X-Content-Type-Options", "nosniff")
	c.Set("X-Frame-Options", "DENY")
	// With no-referrer, browsers would send "Origin: null" even with our own forms.
	c.Set("Referrer-Policy", "same-origin")
	c.Set("Cross-Origin-Opener-Policy", "same-origin")
	c.Set("Cross-Origin-Resource-Policy", "same-origin")
	// Pages show private records and contain a form token.
	c.Set(fiber.HeaderCacheControl, "no-store")
}

// ErrorPage shows an error as a page. It is for [httpapi.Options].Page.
func (p *Pages) ErrorPage(c *fiber.Ctx, e *apierr.Error) error {
	secure(c)
	// Show the page as if nobody were signed in: auth may be unable to identify the person.
	r := &request{Ctx: c, pages: p, ctx: c.UserContext()}
	title := "error.title"
	switch e.Code.Status() {
	case http.StatusNotFound:
		title = "error.missing"
	case http.StatusForbidden:
		title = "error.forbidden"
	case http.StatusTooManyRequests:
		title = "error.busy"
	case http.StatusServiceUnavailable:
		title = "error.away"
	}
	return r.render(e.Code.Status(), "error.html", view{Title: text.Get(title), Error: e.Message, Data: identity.RequestOf(c.UserContext()).ID})
}

func (p *Pages) serveFile(c *fiber.Ctx) error {
	f, ok := p.files[c.Path()]
	if !ok {
		return apierr.New(apierr.NotFound, text.Get("error.nothing"))
	}
	c.Set("X-Content-Type-Options", "nosniff")
	c.Set(fiber.HeaderContentType, f.ContentType)
	c.Set(fiber.HeaderCacheControl, "public, max-age=31536000, immutable")
	return c.Send(f.Bytes)
}
