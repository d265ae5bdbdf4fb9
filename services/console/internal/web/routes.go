package web

import (
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// row is a page: its path, the scope that people need to see it, and its handlers. The
// navigation lists the rows with an icon in this order.
type row struct {
	path  string
	icon  string
	scope string // the navigation hides the page from people without this scope, which the API also checks
	get   handler
	posts map[string]handler // by the form's path relative to the page; "" is the page itself
}

// table returns every page for people who are signed in. To add a page, add a row, a handler,
// a template, and the text "nav.<path>".
func (p *Pages) table() []row {
	return []row{
		{path: "/app", icon: "home", get: homePage.show},
		{path: "/app/links", icon: "link", scope: "links:read", get: links, posts: map[string]handler{"": createLink, "/change": changeLinks}},
		{path: "/app/links/import", scope: "links:write", get: importPage, posts: map[string]handler{"": importLinks}},
		{path: "/app/links/:id", scope: "links:read", get: linkPage.show, posts: map[string]handler{
			"/edit": editLink, "/archive": archiveLink, "/delete": deleteLink,
		}},
		{path: "/app/links/:id/qr", scope: "links:read", get: linkCode},
		{path: "/app/videos", icon: "video", scope: "videos:read", get: videos},
		{path: "/app/videos/:id", scope: "videos:read", get: videoPage.show, posts: map[string]handler{
			"/edit": editVideo, "/access": setAccess, "/captions": addCaptions, "/captions/:lang/delete": deleteCaptions,
			"/thumbnail": setThumbnail, "/delete": deleteVideo,
		}},
		{path: "/app/videos/:id/status", scope: "videos:read", get: videoStatus},
		{path: "/app/upload", icon: "upload", scope: "videos:write", get: upload, posts: map[string]handler{"": createVideo}},
		{path: "/app/record", icon: "record", scope: "videos:write", get: record},
		{path: "/app/domains", icon: "domain", scope: "domains:read", get: domainsPage.show, posts: map[string]handler{
			"": addDomain, "/:id/verify": verifyDomain, "/:id/pages": changePages, "/:id/delete": deleteDomain,
		}},
		{path: "/app/webhooks", icon: "webhook", scope: "webhooks:read", get: webhooksPage.show, posts: map[string]handler{"": createWebhook}},
		{path: "/app/webhooks/:id", scope: "webhooks:read", get: webhookPage.show, posts: map[string]handler{
			"/edit": editWebhook, "/enable": enableWebhook, "/test": testWebhook, "/roll": rollSecret, "/delete": deleteWebhook,
			"/deliveries/:delivery/retry": retryDelivery,
		}},
		{path: "/app/activity", icon: "activity", scope: "events:read", get: activity},
		{path: "/app/keys", icon: "key", scope: "keys:read", get: keysPage.show, posts: map[string]handler{"": createKey, "/:id/revoke": revokeKey}},
		{path: "/app/members", icon: "people", scope: "members:read", get: membersPage.show, posts: map[string]handler{
			"/invite": invite, "/:id/role": changeRole, "/:id/remove": removeMember, "/:id/sign-in-link": makeSignInLink,
			"/invitations/:id/revoke": revokeInvitation,
		}},
		{path: "/app/settings", icon: "settings", get: settingsPage.show, posts: map[string]handler{
			"/account": changeAccount, "/switch": switchAccount, "/connect": connect, "/sessions/:id/end": endSession,
			"/passkeys/begin": beginAddPasskey, "/passkeys": addPasskey, "/passkeys/:id/remove": removePasskey,
		}},
		{path: "/app/device", get: device, posts: map[string]handler{"": decideDevice}},
	}
}

// Routes adds all pages to app.
func (p *Pages) Routes(app *httpapi.API) {
	p.app = app
	for _, r := range p.table() {
		app.Public(fiber.MethodGet, r.path, p.member(r.get))
		for suffix, h := range r.posts {
			app.Public(fiber.MethodPost, r.path+suffix, p.member(h))
		}
	}
	app.Public(fiber.MethodGet, "/app/", func(c *fiber.Ctx) error { return c.Redirect("/app", fiber.StatusMovedPermanently) })
	app.Public(fiber.MethodGet, "/app/sign-in", p.open(signInPage))
	app.Public(fiber.MethodPost, "/app/sign-in", p.open(useLink))
	app.Public(fiber.MethodPost, "/app/sign-in/oidc", p.open(beginOIDC))
	app.Public(fiber.MethodGet, "/app/sign-in/callback", p.open(finishOIDC))
	app.Public(fiber.MethodPost, "/app/sign-in/passkey/begin", p.open(beginPasskey))
	app.Public(fiber.MethodPost, "/app/sign-in/passkey", p.open(finishPasskey))
	app.Public(fiber.MethodPost, "/app/sign-out", p.member(signOut))
	app.Public(fiber.MethodGet, "/app/assets/:file", p.serveFile)
}

// navItem is an entry in the navigation.
type navItem struct {
	Path, Icon, Name string
	Keys             string // keyboard shortcut to the page, "" for none
	Current          bool
}

// KeyList splits Keys into individual keys.
func (n navItem) KeyList() []string { return strings.Fields(n.Keys) }

// keysOf maps each page to its keyboard shortcut: g and a second key.
var keysOf = map[string]string{
	"/app": "g h", "/app/links": "g l", "/app/videos": "g v", "/app/upload": "g u", "/app/record": "g r", "/app/domains": "g d",
	"/app/webhooks": "g w", "/app/activity": "g a", "/app/keys": "g k", "/app/members": "g m", "/app/settings": "g s",
}

func (r *request) nav() (out []navItem) {
	for _, row := range r.pages.table() {
		if row.icon != "" && (row.scope == "" || r.can(row.scope)) {
			within := r.Path() == row.path || row.path != "/app" && len(r.Path()) > len(row.path) && r.Path()[:len(row.path)+1] == row.path+"/"
			out = append(out, navItem{row.path, row.icon, text.Get("nav." + row.path), keysOf[row.path], within})
		}
	}
	return out
}
