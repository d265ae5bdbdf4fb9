package web

import (
	"context"
	"errors"
	"html/template"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/sync/singleflight"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/signin"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// signInData is the data for the sign-in page: the ways to sign in, or a one-time link.
type signInData struct {
	Methods signin.Methods
	Link    *signin.Link
	Token   string
	Next    string
}

// ways caches the installation's ways to sign in. The sign-in page is public, so it must not
// call auth for each request.
type ways struct {
	one   singleflight.Group
	known atomic.Pointer[knownWays]
}

type knownWays struct {
	signin.Methods
	at time.Time
}

// waysLife is how long the page may show stale settings.
const waysLife = time.Minute

func (r *request) methods() (signin.Methods, error) {
	w := &r.pages.ways
	if k := w.known.Load(); k != nil && r.pages.cfg.Now().Sub(k.at) < waysLife {
		return k.Methods, nil
	}
	_, err, _ := w.one.Do("", func() (any, error) {
		k := &knownWays{at: r.pages.cfg.Now()}
		// Continue even if this request ends: other requests are waiting for the same response.
		err := r.pages.cfg.Auth.Call(context.WithoutCancel(r.ctx), signin.OpMethods, struct{}{}, &k.Methods)
		if err == nil {
			w.known.Store(k)
		}
		return nil, err
	})
	if k := w.known.Load(); k != nil {
		return k.Methods, nil // a stale response is better than none
	}
	return signin.Methods{}, err
}

// signInPage also shows one-time links. Opening a link does not use it up. Anyone who opens it,
// including a preview bot, gets a page with a button.
func signInPage(r *request) error {
	if token := r.Query("link"); token != "" {
		return r.linkPage(token)
	}
	m, err := r.methods()
	if err != nil {
		return err
	}
	v := view{Title: text.Get("signin.title"), Data: signInData{Methods: m, Next: safeNext(r.Query("next"))}}
	switch r.Query("why") {
	case "ended":
		v.Notice = text.Get("signin.ended")
	case "out":
		v.Notice = text.Get("signin.out")
	}
	return r.render(http.StatusOK, "signin.html", v)
}

func (r *request) linkView(token string) (view, error) {
	d := signInData{Token: token, Link: &signin.Link{}}
	if err := r.ask(signin.OpOpenLink, signin.LinkRequest{Browser: r.browser(), Token: token}, d.Link); err != nil {
		return view{}, err
	}
	var err error
	if d.Methods, err = r.methods(); err != nil {
		return view{}, err
	}
	title := "link.signin.title"
	if d.Link.Kind == "invitation" {
		title = "link.invitation.title"
	}
	return view{Title: text.Get(title), Data: d}, nil
}

func (r *request) linkPage(token string) error {
	v, err := r.linkView(token)
	if err != nil {
		return r.usedLink(err)
	}
	return r.render(http.StatusOK, "link.html", v)
}

// usedLink shows the page for a link that no longer works if err is NotFound. It returns any other
// error.
func (r *request) usedLink(err error) error {
	if apierr.CodeOf(err) != apierr.NotFound {
		return err
	}
	return r.render(http.StatusNotFound, "message.html", view{Title: text.Get("link.used.title"), Data: text.Get("link.used")})
}

// useLink signs in with a one-time link.
func useLink(r *request) error {
	token := r.form.Get("link")
	var s signin.Session
	err := r.ask(signin.OpUseLink, signin.LinkRequest{Browser: r.browser(), Token: token, Name: r.form.Get("name")}, &s)
	if apierr.CodeOf(err) == apierr.ValidationError {
		v, failed := r.linkView(token)
		if failed != nil {
			return failed
		}
		return r.again(err, "link.html", v)
	}
	if err != nil {
		return r.usedLink(err)
	}
	r.signedIn(s)
	return r.done("/app", "")
}

// beginOIDC sends the browser to the identity provider. It uses a page instead of a redirect
// because browsers also apply form-action 'self' to redirects that follow a form submission.
func beginOIDC(r *request) error {
	return r.toProvider(signin.BeginOIDC{Link: r.form.Get("link"), Name: r.form.Get("name"), Next: safeNext(r.form.Get("next"))})
}

func (r *request) toProvider(in signin.BeginOIDC) error {
	in.Browser = r.browser()
	var begun signin.Begun
	if err := r.ask(signin.OpBeginOIDC, in, &begun); err != nil {
		return err
	}
	// The cookie expires after 10 minutes because auth rejects older flows.
	r.setCookie(flowCookie, begun.Flow, 10*time.Minute)
	return r.render(http.StatusOK, "leave.html", view{Title: text.Get("leave.title"), Data: map[string]any{
		"URL": begun.URL,
		//nolint:gosec // the URL is escaped and comes from auth
		"Refresh": template.HTMLAttr(`content="0; url=` + template.HTMLEscapeString(begun.URL) + `"`),
	}})
}

func finishOIDC(r *request) error {
	flow := r.cookie(flowCookie)
	// Always remove the cookie: a flow only accepts one response.
	r.setCookie(flowCookie, "", 0)
	var s signin.Session
	err := r.ask(signin.OpFinishOIDC, signin.FinishOIDC{
		Browser: r.browser(), Flow: flow, State: r.Query("state"), Code: r.Query("code"), Issuer: r.Query("iss"), Error: r.Query("error"),
	}, &s)
	if err != nil {
		return r.notSignedIn(err)
	}
	if s.Secret == "" { // an identity was connected, so the session does not change
		return r.done(safeNext(s.Next), "connected")
	}
	r.signedIn(s)
	return r.done(safeNext(s.Next), "")
}

// notSignedIn shows only the reason, so a person who is not a member learns nothing about the
// accounts.
func (r *request) notSignedIn(err error) error {
	var e *apierr.Error
	if !errors.As(err, &e) || e.Code.Status() >= http.StatusInternalServerError {
		return err
	}
	return r.render(e.Code.Status(), "message.html", view{Title: text.Get("signin.refused"), Data: e.Message})
}

// beginPasskey sends the options for navigator.credentials to the script.
func beginPasskey(r *request) error {
	return r.passkeyOptions(signin.OpBeginPasskey)
}

func (r *request) passkeyOptions(op string) error {
	var begun signin.Begun
	if err := r.ask(op, signin.OnSession{Browser: r.browser()}, &begun); err != nil {
		return err
	}
	r.setCookie(flowCookie, begun.Flow, 10*time.Minute)
	r.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return r.Send(begun.Options)
}

func (r *request) passkey() signin.Passkey {
	flow := r.cookie(flowCookie)
	r.setCookie(flowCookie, "", 0)
	return signin.Passkey{Browser: r.browser(), Flow: flow, Response: []byte(r.form.Get("credential")), Name: r.form.Get("name")}
}

func finishPasskey(r *request) error {
	var s signin.Session
	if err := r.ask(signin.OpFinishPasskey, r.passkey(), &s); err != nil {
		return r.notSignedIn(err)
	}
	r.signedIn(s)
	return r.done(safeNext(r.form.Get("next")), "")
}

func signOut(r *request) error {
	err := r.ask(signin.OpEnd, signin.OnSession{Browser: r.browser()}, nil)
	if err != nil && apierr.CodeOf(err) != apierr.NotFound {
		return err // keep the cookie, so the person can try again
	}
	r.setCookie(sessionCookie, "", 0)
	return r.Redirect("/app/sign-in?why=out", fiber.StatusSeeOther)
}
