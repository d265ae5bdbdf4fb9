package web_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/services/console/internal/text"
)

const oneLink = `{"_id":"lnk_1","id":"lnk_1","slug":"abc","shortUrl":"https://s.example/abc","destinationUrl":"https://go.dev/","title":"Before","clicks":0,
	"createdAt":1700000000000,"updatedAt":1700000000000,"expiresAt":null,"status":"active","tags":["a"],"archived":false,"ogTitle":"","ogDescription":"","ogImage":""}`

const oneAccount = `{"id":"acc_1","name":"Before","plan":"business","defaultDomainId":null}`

// opened returns the values of the hidden fields in a page's forms.
func (d *desk) opened(path string) url.Values {
	d.t.Helper()
	page := d.page(path)
	form := url.Values{}
	for _, name := range []string{"rev", "was"} {
		m := regexp.MustCompile(`name="` + name + `" value="([^"]+)"`).FindStringSubmatch(page)
		if m == nil {
			d.t.Fatalf("page %s has no %s field", path, name)
		}
		form.Set(name, html.UnescapeString(m[1]))
	}
	return form
}

func (d *desk) store(etag string, records map[string]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.etag = etag
	for call, body := range records {
		d.answers[call] = answer{200, "", body}
	}
}

func with(form url.Values, more url.Values) url.Values {
	for name, values := range more {
		form[name] = values
	}
	return form
}

// Two people open a record and both change it.
func TestAFormOverSomebodyElsesChangeShowsBothTexts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		record, call, page, action string
		before, after              string
		typed                      url.Values
	}{
		"link": {"lnk_1", "GET /api/v1/links/lnk_1", "/app/links/lnk_1", "/edit", oneLink, strings.ReplaceAll(oneLink, "Before", "Their title"),
			url.Values{"url": {"https://go.dev/"}, "title": {"My title"}, "tags": {"a"}, "expiresAt": {""}, "ogTitle": {""}, "ogDescription": {""}, "ogImage": {""}}},
		"video": {"vid_1", "GET /api/v1/videos/vid_1", "/app/videos/vid_1", "/edit", oneVideo, strings.ReplaceAll(oneVideo, `"description":`+quoted(nasty), `"description":"Their title"`),
			url.Values{"title": {nasty}, "description": {"My title"}, "tags": {"a"}}},
		"access to a video": {"vid_1", "GET /api/v1/videos/vid_1/access", "/app/videos/vid_1", "/access", oneAccess, strings.ReplaceAll(oneAccess, "https://www.example.com", "Their title"),
			url.Values{"privacy": {"public"}, "embedOrigins": {"My title"}, "allowDownload": {"true"}}},
		"webhook": {"wh_1", "GET /api/v1/webhooks/wh_1", "/app/webhooks/wh_1", "/edit", oneWebhook, strings.ReplaceAll(oneWebhook, quoted(nasty), `"Their title"`),
			url.Values{"url": {"https://hook.example/"}, "description": {"My title"}, "all": {"true"}}},
		"account": {"acc_1", "GET /api/v1/account", "/app/settings", "/account", oneAccount, strings.ReplaceAll(oneAccount, "Before", "Their title"),
			url.Values{"name": {"My title"}, "defaultDomainId": {"default"}}},
		"default domain": {"acc_1", "GET /api/v1/account", "/app/settings", "/account", oneAccount, strings.ReplaceAll(oneAccount, "null", `"dom_1"`),
			url.Values{"name": {"My title"}, "defaultDomainId": {"default"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := fullDesk(t)
			d.store(`"1"`, map[string]string{
				"GET /api/v1/account": oneAccount, "PATCH /api/v1/account": oneAccount,
				"GET /api/v1/domains":     `{"data":[{"id":"dom_1","hostname":"Their title","status":"verified"}]}`,
				"GET /api/v1/links/lnk_1": oneLink, "PATCH /api/v1/links/lnk_1": oneLink, "PATCH /api/v1/videos/vid_1": oneVideo,
				"PUT /api/v1/videos/vid_1/access": oneAccess, "PATCH /api/v1/webhooks/wh_1": oneWebhook, tt.call: tt.before,
			})
			form := with(d.opened(tt.page), tt.typed)
			d.store(`"2"`, map[string]string{tt.call: tt.after})
			resp, page := d.post(tt.page, tt.page+tt.action, form)
			if resp.StatusCode != http.StatusPreconditionFailed || !strings.Contains(page, "My title") || !strings.Contains(page, "<q>Their title</q>") {
				t.Fatalf("got %d, my title on the page: %v, their title on the page: %v; want 412 and both titles", resp.StatusCode, strings.Contains(page, "My title"), strings.Contains(page, "<q>Their title</q>"))
			}
			checkPage(t, tt.page, resp, page)
			// Submitting the form again from the page that shows both values replaces the stored
			// value.
			if resp, page := d.post(tt.page, tt.page+tt.action, with(d.opened(tt.page), tt.typed)); resp.StatusCode != http.StatusSeeOther {
				t.Errorf("submitting the form again returned %d, want 303:\n%s", resp.StatusCode, page)
			}
		})
	}
}

func TestAFormSaysThatSomebodyElseHasClearedAField(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	d.store(`"1"`, map[string]string{"GET /api/v1/links/lnk_1": oneLink, "PATCH /api/v1/links/lnk_1": oneLink})
	form := with(d.opened("/app/links/lnk_1"), url.Values{"url": {"https://go.dev/"}, "title": {"My title"}, "tags": {"a"}})
	d.store(`"2"`, map[string]string{"GET /api/v1/links/lnk_1": strings.ReplaceAll(oneLink, "Before", "")})
	if _, page := d.post("/app/links/lnk_1", "/app/links/lnk_1/edit", form); !strings.Contains(page, text.Get("form.theirs")+" "+text.Get("form.theirs.empty")) {
		t.Errorf("the page does not show that the stored title is empty:\n%s", page)
	}
}

// There is no conflict if a video becomes ready or a field in another form changes.
func TestAFormWhoseOwnFieldsNobodyChangedIsStored(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	d.store(`"1"`, map[string]string{"PATCH /api/v1/videos/vid_1": oneVideo})
	form := with(d.opened("/app/videos/vid_1"), url.Values{"title": {"New"}, "description": {"x"}, "tags": {""}})
	d.store(`"2"`, map[string]string{"GET /api/v1/videos/vid_1/access": strings.ReplaceAll(oneAccess, "www.example", "other.example")})
	if resp, page := d.post("/app/videos/vid_1", "/app/videos/vid_1/edit", form); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("submitting the form returned %d, want 303:\n%s", resp.StatusCode, page)
	}
}

func TestADeletionOverSomebodyElsesChangeAsksAgain(t *testing.T) {
	t.Parallel()
	d := fullDesk(t)
	d.store(`"1"`, map[string]string{"GET /api/v1/links/lnk_1": oneLink, "DELETE /api/v1/links/lnk_1": "", "DELETE /api/v1/videos/vid_1": "", "DELETE /api/v1/webhooks/wh_1": ""})
	for _, page := range []string{"/app/links/lnk_1", "/app/videos/vid_1", "/app/webhooks/wh_1"} {
		d.store(`"1"`, nil)
		form := d.opened(page)
		d.store(`"2"`, nil)
		if resp, _ := d.post(page, page+"/delete", form); resp.StatusCode != http.StatusPreconditionFailed {
			t.Errorf("deleting on %s returned %d, want 412 after another change", page, resp.StatusCode)
		}
	}
}
