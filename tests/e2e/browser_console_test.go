package e2e

import (
	"html"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-rod/rod/lib/proto"
)

// A person opens a sign-in link and copies a short link in a real browser. The person then adds a
// passkey on a virtual authenticator, signs out, and signs in with the passkey. Pages must not log
// to the browser's console or violate their Content-Security-Policy.
func TestConsoleInABrowser(t *testing.T) {
	link, err := stack.SignInLink(t.Context())
	check(t, err)
	v := visitor(t, look{})
	v.authenticator()
	page := v.Timeout(patience)
	at := func(path string) {
		t.Helper()
		eventually(t, patience, "the page "+path, func() bool { return strings.HasPrefix(page.MustInfo().URL, stack.BaseURL+path) })
		page.MustWaitLoad()
	}
	v.open(link)
	page.MustElementR("button", "Sign in").MustClick()
	v.shows("label", "Destination")
	at("/app")
	page.MustElement("#url").MustInput("https://go.dev/doc/")
	page.MustElementR("button", "Shorten").MustClick()
	v.shows("h2", "Your short link is ready")
	if short := page.MustElement(".short a").MustText(); !strings.HasPrefix(short, stack.ShortBaseURL+"/") {
		t.Errorf("the short URL is %s, want one under %s", short, stack.ShortBaseURL)
	}
	check(t, proto.BrowserGrantPermissions{Permissions: []proto.BrowserPermissionType{proto.BrowserPermissionTypeClipboardSanitizedWrite}}.Call(v.Browser()))
	page.MustElement(".short button").MustClick()
	v.shows(".short button", "Copied")

	v.open(stack.BaseURL + "/app/settings")
	page.MustElement("#passkey-name").MustInput("Virtual")
	page.MustElementR("button", "Add a passkey").MustClick()
	v.shows(".note", "Passkey added")
	v.shows("li", "Virtual")
	page.MustElementR("button", "Sign out").MustClick()
	v.shows(".note", "You are signed out")
	page.MustElementR("button", "Sign in with a passkey").MustClick()
	v.shows("h1", "Shorten a link")
	at("/app")
	v.clean()
}

// authenticator gives the browser a virtual device that stores passkeys without asking
// the user.
func (v *viewer) authenticator() {
	v.t.Helper()
	check(v.t, proto.WebAuthnEnable{}.Call(v.Page))
	_, err := proto.WebAuthnAddVirtualAuthenticator{Options: &proto.WebAuthnVirtualAuthenticatorOptions{
		Protocol: proto.WebAuthnAuthenticatorProtocolCtap2, Transport: proto.WebAuthnAuthenticatorTransportInternal,
		HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
	}}.Call(v.Page)
	check(v.t, err)
}

// shortAddress matches the URL that a page offers for copying without JavaScript.
var shortAddress = regexp.MustCompile(`class="mono" href="([^"]+)"`)

// Cleo accepts an invitation, and her session ends before she has a passkey. An admin makes a
// sign-in link for her on the Members page. Home then asks her to add a passkey, and she uses it to
// sign in without an admin's help. With LINKREEL_PICTURES, the test saves screenshots of the pages
// in that folder.
func TestAnInvitedPersonComesBackInABrowser(t *testing.T) {
	t.Parallel()
	account := operator(t).want(201, "POST", "/admin/v1/accounts", map[string]any{"name": "Harbour Museum", "plan": "business"}).str("id")
	admin := enter(t, newPlainBrowser(t), account, "Ada Obi", "admin")
	linkFrom := func(p page) string {
		t.Helper()
		m := shortAddress.FindStringSubmatch(p.html)
		if m == nil {
			t.Fatalf("the page has no sign-in link: %d %.2000s", p.status, p.html)
		}
		return html.UnescapeString(m[1])
	}
	v := visitor(t, look{})
	v.authenticator()
	page := v.Timeout(patience)
	picture := func(name string) {
		t.Helper()
		if dir := os.Getenv("LINKREEL_PICTURES"); dir != "" {
			data, err := page.Screenshot(true, &proto.PageCaptureScreenshot{Format: proto.PageCaptureScreenshotFormatPng})
			check(t, err)
			check(t, os.WriteFile(filepath.Join(dir, name+".png"), data, 0o600))
		}
	}
	v.open(linkFrom(admin.send("/app/members/invite", url.Values{"name": {"Cleo"}, "role": {"member"}})))
	page.MustElementR("button", "Accept the invitation").MustClick()
	v.shows("h2", "Make sure that you can sign in again")

	// Her session ends before she adds a passkey.
	page.MustElementR("button", "Sign out").MustClick()
	v.shows(".note", "You are signed out")
	members := admin.get("/app/members")
	made := regexp.MustCompile(`action="(/app/members/[^"]+/sign-in-link)"`).FindAllStringSubmatch(members.html, -1)
	if len(made) != 1 || !strings.Contains(members.html, "Can sign in only with a link") {
		t.Fatalf("the page has the sign-in link forms %v, want one form and a note that the member needs a link: %s", made, members.html)
	}
	link := linkFrom(admin.send(made[0][1], nil))
	v.open(link)
	page.MustElementR("button", "Sign in").MustClick()
	v.shows("h2", "Make sure that you can sign in again")
	picture("come-back-card")
	page.MustElementR("button", "Add a passkey").MustClick()
	v.shows(".note", "Passkey added")
	if has, _, err := page.HasR("h2", "Make sure that you can sign in again"); err != nil || has {
		t.Errorf("Home asks for a passkey again even though the member has one (%v)", err)
	}
	if p := admin.get("/app/members"); strings.Contains(p.html, "/sign-in-link\"") {
		t.Error("the page offers a sign-in link for a member who has a passkey")
	}
	if p := admin.send(made[0][1], nil); p.status != 409 || !strings.Contains(p.html, "own way to sign in") {
		t.Errorf("a sign-in link for a member who has a passkey: status %d, want 409", p.status)
	}

	page.MustElementR("button", "Sign out").MustClick()
	page.MustElementR("button", "Sign in with a passkey").MustClick()
	v.shows(".note", "The link was made by Ada Obi")
	picture("come-back-told")
	v.clean()

	// The admin sees the same pages.
	a := visitor(t, look{})
	a.open(operator(t).want(201, "POST", "/admin/v1/accounts/"+account+"/sign-in-links", map[string]any{"name": "Olu", "role": "owner"}).str("url"))
	page = a.Timeout(patience)
	page.MustElementR("button", "Sign in").MustClick()
	a.shows("h1", "Shorten a link")
	a.open(stack.BaseURL + "/app/members")
	page.MustElementR("button", "Make a sign-in link").MustClick()
	a.shows("h2", "Sign-in link for Ada Obi")
	picture("come-back-members")
	a.clean()
}
