package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/signin"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// The cookies' names, without the prefix that cookieName adds for https.
const (
	sessionCookie = "linkreel_session"
	preCookie     = "linkreel_pre"  // binds forms to a browser without a session
	flowCookie    = "linkreel_flow" // the state between the two steps of a sign-in, sealed by auth
)

const csrfField = "csrf"

// cookieName adds a prefix that makes browsers reject the cookie if another host on the same site
// sets it. Browsers only accept the prefix on https.
func (p *Pages) cookieName(name string) string {
	if p.cfg.Base.Scheme == "https" {
		return "__Host-" + name
	}
	return name
}

func (r *request) cookie(name string) string { return r.Cookies(r.pages.cookieName(name)) }

// setCookie sets a cookie that scripts cannot read. A lifetime of 0 removes the cookie.
func (r *request) setCookie(name, value string, life time.Duration) {
	c := &http.Cookie{ //nolint:gosec // Secure wherever the base address is https; plain http is for local runs
		Name: r.pages.cookieName(name), Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: r.pages.cfg.Base.Scheme == "https", MaxAge: int(life / time.Second),
	}
	if life <= 0 {
		c.MaxAge = -1
	}
	r.Response().Header.Add(fiber.HeaderSetCookie, c.String())
}

// signedIn stores a new session and removes the sign-in cookies.
func (r *request) signedIn(s signin.Session) {
	r.setCookie(sessionCookie, s.Secret, time.UnixMilli(s.ExpiresAt).Sub(r.pages.cfg.Now()))
	r.setCookie(preCookie, "", 0)
	r.setCookie(flowCookie, "", 0)
}

// csrf returns the token for forms. It is derived from the session's key or, before sign-in,
// from a random cookie. Only a browser that has the session or the cookie can send the
// correct token.
func (r *request) csrf() string {
	secret := r.session
	if secret == "" {
		// The console never sets a value this short, so replace it.
		if secret = r.cookie(preCookie); len(secret) < 20 {
			secret = identity.NewNonce()
			r.setCookie(preCookie, secret, time.Hour)
		}
	}
	return csrfOf(secret)
}

func csrfOf(secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("linkreel console form 1"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

var errForm = apierr.New(apierr.Forbidden, text.Get("error.form"))

// genuine rejects POSTs that do not come from one of our pages. It checks the origin that the
// browser reports and the form's token. Either check would be enough.
func (r *request) genuine() error {
	switch site := r.Get("Sec-Fetch-Site"); {
	case site == "same-origin":
	case site != "":
		return errForm
	default: // an older browser, or a base URL on plain http
		if origin := r.Get(fiber.HeaderOrigin); origin != "" && !r.ownOrigin(origin) {
			return errForm
		}
	}
	secret := r.session
	if secret == "" {
		secret = r.cookie(preCookie)
	}
	if len(secret) < 20 || subtle.ConstantTimeCompare([]byte(r.form.Get(csrfField)), []byte(csrfOf(secret))) != 1 {
		return errForm
	}
	return nil
}

func (r *request) ownOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Host == r.pages.cfg.Base.Host && u.Scheme == r.pages.cfg.Base.Scheme || u.Host == string(r.Request().Host()))
}

// readForm parses the body of a POST, which is an HTML form with or without files. The body
// is already in memory, and httpapi has limited its size.
func (r *request) readForm() error {
	kind, _, _ := strings.Cut(r.Get(fiber.HeaderContentType), ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	// Reject compressed forms: no browser sends them, and their size after decompression
	// would not be limited.
	if kind != fiber.MIMEApplicationForm && kind != fiber.MIMEMultipartForm || r.Get(fiber.HeaderContentEncoding) != "" {
		return apierr.New(apierr.UnsupportedMediaType, text.Get("error.form"))
	}
	var err error
	if kind == fiber.MIMEMultipartForm {
		var parts *multipart.Form
		if parts, err = r.MultipartForm(); err == nil {
			r.form, r.files = parts.Value, parts.File
		}
	} else {
		r.form, err = url.ParseQuery(string(r.Request().Body()))
	}
	if err != nil {
		return errForm
	}
	r.joinLists()
	return nil
}

// joinLists removes the brackets from the names of checkboxes that share a name.
func (r *request) joinLists() {
	for name, values := range r.form {
		if plain, ok := strings.CutSuffix(name, "[]"); ok {
			r.form[plain] = append(r.form[plain], values...)
			delete(r.form, name)
		}
	}
}

// file returns an uploaded file from a form, or nil if none was chosen.
func (r *request) file(field string) ([]byte, error) {
	if len(r.files[field]) == 0 {
		return nil, nil
	}
	f, err := r.files[field][0].Open()
	if err != nil {
		return nil, fmt.Errorf("form file %s: %w", field, err)
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("form file %s: %w", field, err)
	}
	return content, nil
}

// handler handles a request for a page.
type handler func(r *request) error

// posted reads the form in a POST and rejects forms that were not submitted from one of our pages.
func (r *request) posted() error {
	if r.Method() != fiber.MethodPost {
		return nil
	}
	if err := r.readForm(); err != nil {
		return err
	}
	return r.genuine()
}

// open serves a page to everyone, without calling auth to identify the person.
func (p *Pages) open(h handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		secure(c)
		r := &request{Ctx: c, pages: p, ctx: c.UserContext()}
		if err := r.posted(); err != nil {
			return err
		}
		return h(r)
	}
}

// member serves a page to people who are signed in. Everyone else has to sign in first, and is
// redirected to the page afterwards.
func (p *Pages) member(h handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		secure(c)
		r := &request{Ctx: c, pages: p, ctx: c.UserContext()}
		if r.session = r.cookie(sessionCookie); r.session == "" {
			return r.signIn("")
		}
		// Check the form before calling auth, so a forged form does not cause a call.
		if err := r.posted(); err != nil {
			return err
		}
		err := r.ask(signin.OpWho, signin.OnSession{Browser: r.browser()}, &r.who)
		if err == nil && r.who.Account.Suspended {
			// The API would reject all of the page's calls in any case.
			return r.render(http.StatusForbidden, "suspended.html", view{Title: text.Get("suspended.title")})
		}
		if err == nil {
			err = h(r)
		}
		// A session can end between two calls, for example when somebody removes the member.
		if e := new(apierr.Error); errors.As(err, &e) && e.Code.Status() == http.StatusUnauthorized {
			r.setCookie(sessionCookie, "", 0)
			return r.signIn("ended")
		}
		return err
	}
}

// signIn redirects the browser to the sign-in page.
func (r *request) signIn(why string) error {
	q := url.Values{}
	// Opening a form's URL would not submit the form again, so sign-in only returns to pages.
	if r.Method() == fiber.MethodGet {
		if next := safeNext(string(r.Request().URI().RequestURI())); next != "/app" {
			q.Set("next", next)
		}
	}
	if why != "" {
		q.Set("why", why)
	}
	target := "/app/sign-in"
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	return r.Redirect(target, fiber.StatusSeeOther)
}

// safeNext returns the path to open after sign-in: next if it is a console path,
// otherwise the home page. Browsers interpret backslashes as slashes and drop control
// characters, so safeNext accepts neither.
func safeNext(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || len(next) > 2000 ||
		strings.ContainsFunc(next, func(c rune) bool { return c < 0x21 || c == '\\' || c == 0x7f }) ||
		u.Path != "/app" && !strings.HasPrefix(u.Path, "/app/") || strings.HasPrefix(u.Path, "/app/sign-in") ||
		strings.Contains(u.Path, "//") || strings.Contains(u.Path, "..") {
		return "/app"
	}
	return next
}
