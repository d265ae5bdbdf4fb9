package e2e

import (
	"strings"
	"testing"

	"github.com/go-rod/rod/lib/proto"
)

// From a sign-in link to a copied short link in a real browser, then a passkey on
// a virtual authenticator: added, signed out, and signed in with. No page writes
// to the console, and none breaks its policy.
func TestConsoleInABrowser(t *testing.T) {
	link, err := stack.SignInLink(t.Context())
	check(t, err)
	v := visitor(t, look{})
	check(t, proto.WebAuthnEnable{}.Call(v.Page))
	_, err = proto.WebAuthnAddVirtualAuthenticator{Options: &proto.WebAuthnVirtualAuthenticatorOptions{
		Protocol: proto.WebAuthnAuthenticatorProtocolCtap2, Transport: proto.WebAuthnAuthenticatorTransportInternal,
		HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
	}}.Call(v.Page)
	check(t, err)
	page := v.Timeout(patience)
	at := func(path string) {
		t.Helper()
		eventually(t, patience, "the page "+path, func() bool { return strings.HasPrefix(page.MustInfo().URL, stack.BaseURL+path) })
		page.MustWaitLoad()
	}
	v.open(link)
	page.MustElementR("button", "Sign in").MustClick()
	page.MustElementR("label", "Destination")
	at("/app")
	page.MustElement("#url").MustInput("https://go.dev/doc/")
	page.MustElementR("button", "Shorten").MustClick()
	page.MustElementR("h2", "Your short link is ready")
	if short := page.MustElement(".short a").MustText(); !strings.HasPrefix(short, stack.ShortBaseURL+"/") {
		t.Errorf("short address %s", short)
	}
	check(t, proto.BrowserGrantPermissions{Permissions: []proto.BrowserPermissionType{proto.BrowserPermissionTypeClipboardSanitizedWrite}}.Call(v.Browser()))
	page.MustElement(".short button").MustClick()
	page.MustElementR(".short button", "Copied")

	v.open(stack.BaseURL + "/app/settings")
	page.MustElement("#passkey-name").MustInput("Virtual")
	page.MustElementR("button", "Add a passkey").MustClick()
	page.MustElementR(".note", "Passkey added")
	page.MustElementR("li", "Virtual")
	page.MustElementR("button", "Sign out").MustClick()
	page.MustElementR(".note", "You are signed out")
	page.MustElementR("button", "Sign in with a passkey").MustClick()
	page.MustElementR("h1", "Shorten a link")
	at("/app")
	v.clean()
}
