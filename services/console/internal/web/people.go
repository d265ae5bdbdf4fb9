package web

import (
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/linkreel/linkreel/libs/apierr"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/signin"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

func (r *request) keysView() (view, error) {
	keys, err := listAll[client.Key](r, "/api/v1/keys")
	if err != nil {
		return view{}, err
	}
	return view{
		Title: text.Get("keys.title"),
		Data:  map[string]any{"Keys": keys, "Scopes": identity.AllScopes.Names(), "CanWrite": r.can("keys:write")},
	}, nil
}

var keysPage = page{template: "keys.html", view: (*request).keysView}

// createKey only shows the key in the response to the form: URLs must not contain keys. A reload
// would create another key, so browsers ask the person first.
func createKey(r *request) error {
	body := client.KeyCreate{Name: strings.TrimSpace(r.form.Get("name")), Scopes: r.form["scopes"]}
	var made client.KeyCreated
	err := r.do("POST", "/api/v1/keys", body, &made)
	return keysPage.secret(r, err, "/app/keys", text.Get("keys.made"), made.Secret, func(data map[string]any) {
		data["Made"], data["MadeName"] = made.Secret, made.Name
	})
}

// onlySecret shows a new secret if the rest of the page cannot be loaded. The secret is never
// shown again, so the response must contain it despite the error.
func (r *request) onlySecret(failed error, home, about, secret string) error {
	slog.WarnContext(r.ctx, "cannot load the page around a new secret; showing only the secret", "error", failed)
	return r.render(
		http.StatusOK, "secret.html",
		view{Title: text.Get("secret.title"), Data: map[string]string{"Home": home, "About": about, "Secret": secret}},
	)
}

func revokeKey(r *request) error {
	return r.doneIf(r.do("DELETE", "/api/v1/keys/"+url.PathEscape(r.Params("id")), nil, nil), "/app/keys", "revoked")
}

type memberRow struct {
	client.Member

	Theirs  string   // the role that somebody else has stored
	Roles   []option // the roles that the person may assign to this member; may be empty
	MayLink bool     // whether the person may create a sign-in link for the member
	Me      bool
}

// Rev returns the member's ETag.
func (m memberRow) Rev() string {
	return strconv.Quote("r" + strconv.FormatInt(m.UpdatedAt.Time().UnixMilli(), 10))
}

// roles returns the roles that the person may assign.
func (r *request) roles(selected string) []option {
	mine := identity.Role(r.who.Member.Role)
	return options("role.", slices.DeleteFunc(identity.Roles(), func(role identity.Role) bool { return !mine.AtLeast(role) }), selected)
}

func (r *request) membersView() (view, error) {
	members, err := listAll[memberRow](r, "/api/v1/members")
	if err != nil {
		return view{}, err
	}
	open, err := listAll[client.Invitation](r, "/api/v1/invitations")
	if err != nil {
		return view{}, err
	}
	for i, m := range members {
		members[i].Me = m.ID == r.who.Member.ID
		mine := identity.Role(r.who.Member.Role)
		members[i].MayLink = r.can("members:write") && len(m.SignIn) == 0 && mine.AtLeast(identity.Role(m.Role)) && m.Role != r.who.Member.Role
		if r.can("members:write") && mine.AtLeast(identity.Role(m.Role)) {
			members[i].Roles = r.roles(m.Role)
		}
	}
	return view{Title: text.Get("members.title"), Data: map[string]any{
		"Members": members, "Invitations": open, "Roles": r.roles("member"), "CanWrite": r.can("members:write"),
	}}, nil
}

var membersPage = page{template: "members.html", view: (*request).membersView}

// invite creates an invitation.
func invite(r *request) error {
	return r.makeLink(
		"/api/v1/invitations", map[string]any{"name": strings.TrimSpace(r.form.Get("name")), "role": r.form.Get("role")},
		"members.invite", "members.made",
	)
}

// makeSignInLink creates a link for a member who has no other way to sign in.
func makeSignInLink(r *request) error {
	return r.makeLink("/api/v1/members/"+url.PathEscape(r.Params("id"))+"/sign-in-links", nil, "members.link.title", "members.link.made")
}

// makeLink only shows the link in the response to the form, as createKey does with the key.
func (r *request) makeLink(path string, body any, title, about string) error {
	var made client.MemberSignInLink
	err := r.do("POST", path, body, &made)
	return membersPage.secret(r, err, "/app/members", text.Get(about), made.URL, func(data map[string]any) {
		name := ""
		for _, m := range data["Members"].([]memberRow) {
			if m.ID == r.Params("id") {
				name = " " + m.Name
			}
		}
		data["Made"], data["MadeTitle"], data["MadeAbout"] = made.URL, text.Get(title)+name, text.Get(about)
	})
}

// onMember changes or removes a member or an invitation. The list shows the error, if any.
func (r *request) onMember(method, path string, body any, notice string) error {
	if err := r.do(method, path, body, nil); err != nil {
		conflict := apierr.CodeOf(err) == apierr.PreconditionFailed
		if apierr.CodeOf(err) != apierr.LastOwner && apierr.CodeOf(err) != apierr.InsufficientScope && !conflict {
			return err
		}
		v, failed := r.membersView()
		if failed != nil {
			return failed
		}
		rows := v.Data.(map[string]any)["Members"].([]memberRow)
		if at := slices.IndexFunc(rows, func(m memberRow) bool { return m.ID == r.Params("id") }); conflict && at >= 0 {
			rows[at].Theirs, rows[at].Roles = rows[at].Role, r.roles(r.form.Get("role"))
		}
		return r.again(err, "members.html", v)
	}
	return r.done("/app/members", notice)
}

func changeRole(r *request) error {
	return r.onMember("PATCH", "/api/v1/members/"+url.PathEscape(r.Params("id")), map[string]any{"role": r.form.Get("role")}, "saved")
}

func removeMember(r *request) error {
	return r.onMember("DELETE", "/api/v1/members/"+url.PathEscape(r.Params("id")), nil, "removed")
}

func revokeInvitation(r *request) error {
	return r.onMember("DELETE", "/api/v1/invitations/"+url.PathEscape(r.Params("id")), nil, "revoked")
}

// profile returns the person's profile and the available ways to sign in.
func (r *request) profile() (p signin.Profile, m signin.Methods, err error) {
	if err = r.ask(signin.OpProfile, signin.OnSession{Browser: r.browser()}, &p); err == nil {
		m, err = r.methods()
	}
	return p, m, err
}

// settingsView shows the account's settings, and the person's accounts, ways to sign in, and
// sessions.
func (r *request) settingsView() (view, error) {
	p, m, err := r.profile()
	if err != nil {
		return view{}, err
	}
	v := view{Title: text.Get("settings.title"), Data: map[string]any{"Profile": p, "Methods": m}}
	if r.can("account:write") {
		err = r.accountForm(&v)
	}
	return v, err
}

var settingsPage = page{template: "settings.html", view: (*request).settingsView}

// accountForm adds the account's form to v, with the domains that can be its default.
func (r *request) accountForm(v *view) error {
	var account client.Account
	header, err := r.read("/api/v1/account", &account)
	if err != nil {
		return err
	}
	stored, err := listAll[client.Domain](r, "/api/v1/domains")
	if err != nil {
		return err
	}
	chosen, typed := "default", r.form.Has("defaultDomainId")
	if account.DefaultDomainID != nil {
		chosen = *account.DefaultDomainID
	}
	present := chosen
	if typed {
		chosen = r.form.Get("defaultDomainId")
	}
	domains := []option{{"default", text.Get("settings.domain.default"), chosen == "default"}}
	broken := "settings.domain.gone" // why new links are rejected
	if present == "default" {
		broken = ""
	}
	for _, d := range stored {
		verified := d.Status == "verified"
		if d.ID == present && verified {
			broken = ""
		} else if d.ID == present {
			broken = "settings.domain.lapsed"
		}
		if verified || d.ID == present {
			domains = append(domains, option{d.ID, d.Hostname, d.ID == chosen})
		}
	}
	data := v.Data.(map[string]any)
	data["Account"], data["Domains"], data["Broken"] = account, domains, broken
	v.Form = map[string]string{"name": account.Name, "defaultDomainId": present}
	v.Rev, v.Was = header.Get("ETag"), shown(v.Form)
	return nil
}

// AccountDomain returns the field for the domain for new links.
func (v view) AccountDomain() field {
	domains, _ := v.Data.(map[string]any)["Domains"].([]option)
	return v.With(field{Name: "defaultDomainId", Choices: domains})
}

// changeAccount changes the account's name and default domain.
func changeAccount(r *request) error {
	err := r.edit("PATCH", "/api/v1/account", map[string]any{
		"name": strings.TrimSpace(r.form.Get("name")), "defaultDomainId": r.form.Get("defaultDomainId"),
	}, r.settingsView)
	return settingsPage.answer(r, err, "/app/settings", "saved")
}

func switchAccount(r *request) error {
	var s signin.Session
	if err := r.ask(signin.OpSwitch, signin.OnSession{Browser: r.browser(), ID: r.form.Get("member")}, &s); err != nil {
		return err
	}
	r.signedIn(s)
	return r.done("/app", "switched")
}

func connect(r *request) error {
	return r.toProvider(signin.BeginOIDC{Connect: true, Next: r.back()})
}

func endSession(r *request) error {
	return r.doneIf(r.ask(signin.OpEnd, signin.OnSession{Browser: r.browser(), ID: r.Params("id")}, nil), "/app/settings", "ended")
}

func beginAddPasskey(r *request) error { return r.passkeyOptions(signin.OpBeginAdd) }

func addPasskey(r *request) error {
	return r.doneIf(r.ask(signin.OpFinishAdd, r.passkey(), nil), r.back(), "passkey")
}

// back returns the page from which the person added a way to sign in: Home or Settings.
func (r *request) back() string {
	if r.form.Get("next") == "/app" {
		return "/app"
	}
	return "/app/settings"
}

func removePasskey(r *request) error {
	err := r.ask(signin.OpRemovePasskey, signin.OnSession{Browser: r.browser(), ID: r.Params("id")}, nil)
	return r.doneIf(err, "/app/settings", "removed")
}

// device asks the person whether to give a program a key.
func device(r *request) error {
	code := r.Query("code")
	if code == "" {
		return r.render(http.StatusOK, "device.html", view{Title: text.Get("device.title"), Data: map[string]any{}})
	}
	return r.askDevice(code)
}

func (r *request) askDevice(code string) error {
	var d signin.Device
	err := r.ask(signin.OpDevice, signin.DeviceRequest{Browser: r.browser(), UserCode: code}, &d)
	v := view{Title: text.Get("device.title"), Form: map[string]string{"code": code}, Data: map[string]any{}}
	if apierr.CodeOf(err) == apierr.NotFound {
		v.Error = text.Get("device.unknown")
		return r.render(http.StatusNotFound, "device.html", v)
	}
	if err != nil {
		return err
	}
	v.Data = map[string]any{"Device": d, "May": r.can("keys:write")}
	return r.render(http.StatusOK, "device.html", v)
}

func decideDevice(r *request) error {
	approve := r.form.Get("answer") == "approve"
	err := r.ask(signin.OpDecideDevice, signin.DeviceRequest{Browser: r.browser(), UserCode: r.form.Get("code"), Approve: approve}, nil)
	if err != nil {
		return r.again(err, "device.html", view{Title: text.Get("device.title"), Data: map[string]any{}})
	}
	message := "device.denied"
	if approve {
		message = "device.approved"
	}
	return r.render(http.StatusOK, "message.html", view{Title: text.Get("device.title"), Data: text.Get(message)})
}
