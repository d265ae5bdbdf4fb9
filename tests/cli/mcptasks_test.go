package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/services/cli/clitest"
)

// answersFile names a file with a JSON list of {"task": number, "tool", "arguments"}. Its author
// saw only the tasks and the tools' schemas. If it is set, the test checks these answers instead of
// the table's own calls.
const answersFile = "LINKREEL_MCP_ANSWERS"

// task is a request to an assistant: a sentence, the tool for it, the tool's arguments, and a check
// of the result. In a task, https://s.example/ stands for the deployment's short host, and vid_tour
// and similar names stand for the IDs of videos.
type task struct {
	sentence string
	tool     string
	in       clitest.Args
	holds    func(w *world, said string) error
}

// world is the account that the tasks work on.
type world struct {
	t      *testing.T
	c      *client.Client
	short  string            // the short host's URL
	videos map[string]string // IDs by name, such as vid_tour
}

type list = []any

// shows checks that the tool's response contains every string, except that strings prefixed with
// "!" must be absent.
func shows(texts ...string) func(*world, string) error {
	return func(w *world, said string) error {
		for _, text := range texts {
			unwanted, found := strings.CutPrefix(text, "!")
			if strings.Contains(said, w.real(unwanted)) == found {
				return fmt.Errorf("the response does not meet the condition %q: %s", text, said)
			}
		}
		return nil
	}
}

// linkIs checks that the link with the given slug satisfies must.
func linkIs(slug string, must func(*client.Link) bool) func(*world, string) error {
	return func(w *world, _ string) error {
		return w.aLink(func(l client.LinkSummary) bool { return l.Slug == slug }, must)
	}
}

// to checks that a link to a URL exists and satisfies must.
func to(address string, must func(*client.Link) bool) func(*world, string) error {
	return func(w *world, _ string) error {
		return w.aLink(func(l client.LinkSummary) bool { return l.DestinationURL == address }, must)
	}
}

func (w *world) aLink(which func(client.LinkSummary) bool, must func(*client.Link) bool) error {
	all, err := client.All(w.c.Links(w.t.Context(), client.ListLinksQuery{}))
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, which)
	if i < 0 {
		return fmt.Errorf("the account does not have such a link")
	}
	l, err := w.c.GetLink(w.t.Context(), all[i].ID)
	if err == nil && !must(l) {
		err = fmt.Errorf("the link does not meet the condition: %+v", l)
	}
	return err
}

// links checks that each link with one of these slugs satisfies must.
func links(must func(*client.Link) bool, slugs ...string) func(*world, string) error {
	return func(w *world, said string) error {
		for _, slug := range slugs {
			if err := linkIs(slug, must)(w, said); err != nil {
				return fmt.Errorf("%s: %w", slug, err)
			}
		}
		return nil
	}
}

// gone checks that there is no link with the slug.
func gone(slug string) func(*world, string) error {
	return func(w *world, said string) error {
		if err := linkIs(slug, func(*client.Link) bool { return true })(w, said); err == nil {
			return fmt.Errorf("the link still exists")
		}
		return nil
	}
}

// videoHas checks that a video and its access settings satisfy must.
func videoHas(name string, must func(*client.Video, *client.VideoAccess) bool) func(*world, string) error {
	return func(w *world, _ string) error {
		v, err := w.c.GetVideo(w.t.Context(), w.videos[name])
		if err != nil {
			return err
		}
		access, err := w.c.GetVideoAccess(w.t.Context(), v.ID)
		if err == nil && !must(v, access) {
			err = fmt.Errorf("the video does not meet the condition: %+v, with access %+v", v, access)
		}
		return err
	}
}

// in reports whether a time is about d from now.
func in(at *client.Time, d time.Duration) bool {
	return at != nil && time.Until(at.Time()) > d-10*time.Minute && time.Until(at.Time()) < d+10*time.Minute
}

func is(field *string, want string) bool { return field != nil && *field == want }

func tagged(want ...string) func(*client.Link) bool {
	return func(l *client.Link) bool { return slices.Equal(slices.Sorted(slices.Values(l.Tags)), want) }
}

var tasks = []task{
	{"Make a short link to https://example.com/prices.", "create_link", clitest.Args{"url": "https://example.com/prices"},
		to("https://example.com/prices", func(*client.Link) bool { return true })},
	{"Make a short link to https://example.com/jobs that ends in /jobs-2027.", "create_link", clitest.Args{"url": "https://example.com/jobs", "slug": "jobs-2027"},
		linkIs("jobs-2027", func(l *client.Link) bool { return l.DestinationURL == "https://example.com/jobs" })},
	{"Shorten https://example.com/party. The short link should stop working in 7 days.", "create_link", clitest.Args{"url": "https://example.com/party", "expires": "7d"},
		to("https://example.com/party", func(l *client.Link) bool { return in(l.ExpiresAt, 7*24*time.Hour) })},
	{"Make a short link to https://example.com/press with the tags press and spring.", "create_link", clitest.Args{"url": "https://example.com/press", "tags": list{"press", "spring"}},
		to("https://example.com/press", tagged("press", "spring"))},
	{"Make a short link to https://example.com/apply that ends on 31 January 2037 at noon UTC.", "create_link", clitest.Args{"url": "https://example.com/apply", "expires": "2037-01-31T12:00:00Z"},
		to("https://example.com/apply", func(l *client.Link) bool {
			return l.ExpiresAt != nil && l.ExpiresAt.Time().Equal(time.Date(2037, 1, 31, 12, 0, 0, 0, time.UTC))
		})},
	{"Make a short link to https://example.com/vip that asks its visitors for the password opensesame.", "create_link", clitest.Args{"url": "https://example.com/vip", "password": "opensesame"},
		to("https://example.com/vip", func(l *client.Link) bool { return l.HasPassword })},
	{"Make a short link to https://example.com/offer that ends after 100 clicks. After that, send visitors to https://example.com/over.", "create_link",
		clitest.Args{"url": "https://example.com/offer", "maxClicks": 100, "expiredUrl": "https://example.com/over"},
		to("https://example.com/offer", func(l *client.Link) bool {
			return l.MaxClicks != nil && *l.MaxClicks == 100 && is(l.ExpiredURL, "https://example.com/over")
		})},
	{"Make a short link to https://example.com/home with the slug geo. Visitors whose browser prefers German or Danish should be sent to https://example.com/de instead.", "create_link",
		clitest.Args{"url": "https://example.com/home", "slug": "geo", "rules": list{clitest.Args{"name": "north", "when": clitest.Args{"language": list{"de", "da"}}, "url": "https://example.com/de"}}},
		linkIs("geo", func(l *client.Link) bool {
			return len(l.Rules) == 1 && l.Rules[0].URL == "https://example.com/de" && slices.Equal(slices.Sorted(slices.Values(l.Rules[0].When.Language)), []string{"da", "de"})
		})},
	{"Make a short link to https://example.com/a with the slug ab-test that sends half of its visitors to https://example.com/b.", "create_link",
		clitest.Args{"url": "https://example.com/a", "slug": "ab-test", "rules": list{clitest.Args{"name": "b", "when": clitest.Args{"percent": 50}, "url": "https://example.com/b"}}},
		linkIs("ab-test", func(l *client.Link) bool { return len(l.Rules) == 1 && l.Rules[0].When.Percent == 50 })},
	{"Make a short link to https://example.com/docs with the slug docs-all. Anything that visitors add after the slug, both path and query, should be passed on.", "create_link",
		clitest.Args{"url": "https://example.com/docs", "slug": "docs-all", "forwardQuery": true, "forwardPath": true},
		linkIs("docs-all", func(l *client.Link) bool { return l.ForwardPath && l.ForwardQuery })},
	{"Make a short link to https://example.com/contract. In our CRM it has the id crm-900; store that.", "create_link", clitest.Args{"url": "https://example.com/contract", "externalId": "crm-900"},
		to("https://example.com/contract", func(l *client.Link) bool { return is(l.ExternalID, "crm-900") })},
	{"Make a short link to https://example.com/news. Social networks should show the title \"Big news\" and the text \"Read it first\".", "create_link",
		clitest.Args{"url": "https://example.com/news", "ogTitle": "Big news", "ogDescription": "Read it first"},
		to("https://example.com/news", func(l *client.Link) bool { return is(l.OGTitle, "Big news") && is(l.OGDescription, "Read it first") })},
	{"Make a short link to https://example.com/moved, a permanent redirect with status 301.", "create_link", clitest.Args{"url": "https://example.com/moved", "redirectType": 301},
		to("https://example.com/moved", func(l *client.Link) bool { return l.RedirectType == 301 })},
	{"Make a short link to https://example.com/launch that starts working on 1 March 2037 at 00:00 UTC.", "create_link", clitest.Args{"url": "https://example.com/launch", "starts": "2037-03-01T00:00:00Z"},
		to("https://example.com/launch", func(l *client.Link) bool { return l.Status == "scheduled" })},
	{"Is the slug news-june still free?", "check_slug", clitest.Args{"slug": "news-june"}, shows(`"available":false`)},
	{"Show me the links with the tag newsletter.", "find_links", clitest.Args{"tags": list{"newsletter"}}, shows("https://s.example/news-june", "https://s.example/news-july", "!autumn-fair")},
	{"I need the short address of our link about the autumn fair.", "find_links", clitest.Args{"text": "autumn fair"}, shows("https://s.example/autumn-fair", "!news-june")},
	{"Which links are archived?", "find_links", clitest.Args{"archived": "true"}, shows("old-menu", "!autumn-fair")},
	{"Give me the link that has the id crm-4711 in our CRM.", "find_links", clitest.Args{"externalId": "crm-4711"}, shows("https://s.example/from-crm", "!news-june")},
	{"Show me our three newest links.", "find_links", clitest.Args{"limit": 3}, func(_ *world, said string) error {
		if n := strings.Count(said, `"slug"`); n != 3 {
			return fmt.Errorf("the response has %d links, want 3", n)
		}
		return nil
	}},
	{"Do we have any short links to shop.example.net?", "find_links", clitest.Args{"text": "shop.example.net"}, shows("https://s.example/shop", "!news-june")},
	{"Where does https://s.example/news-june redirect to?", "get_link", clitest.Args{"id": "https://s.example/news-june"}, shows("https://example.com/june")},
	{"When does the link with the slug u-noexp2 expire?", "get_link", clitest.Args{"id": "u-noexp2"}, shows(`"expiresAt":"2037-05-01`)},
	{"How many clicks did https://s.example/news-july get on each day from 1 to 3 November 2026?", "link_stats",
		clitest.Args{"id": "https://s.example/news-july", "from": "2026-11-01", "to": "2026-11-03"}, shows(`"date":"2026-11-01"`, `"date":"2026-11-03"`, `!"date":"2026-11-04"`)},
	{"From which countries do the visitors of the link autumn-fair come?", "link_stats", clitest.Args{"id": "autumn-fair"}, shows(`"countries"`)},
	{"Where would https://s.example/app take somebody with an iPhone?", "explain_link", clitest.Args{"id": "https://s.example/app", "device": "phone", "system": "ios"}, shows("https://apps.example.com/ios")},
	{"Where would https://s.example/app take somebody on a Windows desktop computer?", "explain_link",
		clitest.Args{"id": "https://s.example/app", "device": "desktop", "system": "windows"}, shows("https://example.com/app", "!apps.example.com")},
	{"Where will https://s.example/summer take a visitor with a German browser on 1 July 2037?", "explain_link",
		clitest.Args{"id": "https://s.example/summer", "language": "de", "at": "2037-07-01"}, shows("https://example.com/sommer")},
	{"Change the destination of the link u-dest to https://example.com/new.", "update_link", clitest.Args{"id": "u-dest", "url": "https://example.com/new"},
		linkIs("u-dest", func(l *client.Link) bool { return l.DestinationURL == "https://example.com/new" })},
	{"Give the link u-title the title Winter 2037.", "update_link", clitest.Args{"id": "u-title", "title": "Winter 2037"},
		linkIs("u-title", func(l *client.Link) bool { return l.Title == "Winter 2037" })},
	{"Add the tag urgent to the link u-tag. It should keep its other tags.", "update_link", clitest.Args{"id": "u-tag", "addTags": list{"urgent"}}, linkIs("u-tag", tagged("keep", "urgent"))},
	{"Remove the tag draft from the link u-untag.", "update_link", clitest.Args{"id": "u-untag", "removeTags": list{"draft"}}, linkIs("u-untag", tagged("keep"))},
	{"Archive https://s.example/u-arch.", "update_link", clitest.Args{"id": "https://s.example/u-arch", "archived": true}, linkIs("u-arch", func(l *client.Link) bool { return l.Archived })},
	{"The link u-unarch was archived by mistake. Show it in the lists again.", "update_link", clitest.Args{"id": "u-unarch", "archived": false},
		linkIs("u-unarch", func(l *client.Link) bool { return !l.Archived })},
	{"The link u-exp should stop working in 12 hours.", "update_link", clitest.Args{"id": "u-exp", "expires": "12h"}, linkIs("u-exp", func(l *client.Link) bool { return in(l.ExpiresAt, 12*time.Hour) })},
	{"The link u-noexp should never expire.", "update_link", clitest.Args{"id": "u-noexp", "clear": list{"expires"}}, linkIs("u-noexp", func(l *client.Link) bool { return l.ExpiresAt == nil })},
	{"Remove the password of the link u-pass.", "update_link", clitest.Args{"id": "u-pass", "clear": list{"password"}}, linkIs("u-pass", func(l *client.Link) bool { return !l.HasPassword })},
	{"Let the link u-max expire after 500 clicks.", "update_link", clitest.Args{"id": "u-max", "maxClicks": 500}, linkIs("u-max", func(l *client.Link) bool { return l.MaxClicks != nil && *l.MaxClicks == 500 })},
	{"Send visitors of the link u-rule who use a phone to https://m.example.com/.", "update_link",
		clitest.Args{"id": "u-rule", "rules": list{clitest.Args{"name": "phones", "when": clitest.Args{"device": list{"phone"}}, "url": "https://m.example.com/"}}},
		linkIs("u-rule", func(l *client.Link) bool {
			return len(l.Rules) == 1 && slices.Equal(l.Rules[0].When.Device, []string{"phone"})
		})},
	{"Remove all rules of the link u-norule.", "update_link", clitest.Args{"id": "u-norule", "clear": list{"rules"}}, linkIs("u-norule", func(l *client.Link) bool { return len(l.Rules) == 0 })},
	{"Archive the links b-1, b-2 and b-3.", "update_links", clitest.Args{"ids": list{"b-1", "b-2", "b-3"}, "archived": true}, links(func(l *client.Link) bool { return l.Archived }, "b-1", "b-2", "b-3")},
	{"Add the tag y2037 to the links b-4 and b-5.", "update_links", clitest.Args{"ids": list{"b-4", "b-5"}, "addTags": list{"y2037"}}, links(tagged("keep", "y2037"), "b-4", "b-5")},
	{"Delete the short link d-1.", "delete_link", clitest.Args{"id": "d-1"}, gone("d-1")},
	{"Delete https://s.example/d-2 permanently.", "delete_link", clitest.Args{"id": "https://s.example/d-2"}, gone("d-2")},
	{"Which tags do we use?", "list_tags", clitest.Args{}, shows("newsletter", "training")},
	{"Which plan are we on, and how many links may we have?", "get_account", clitest.Args{}, shows(`"plan":"business"`, `"limits"`)},
	{"Which custom domains do we have?", "list_domains", clitest.Args{}, shows("go.acme.example")},
	{"We want to use the host name links.acme.example for short links. Add it and tell me what to set in DNS.", "add_domain", clitest.Args{"hostname": "links.acme.example"}, shows(`"type":"TXT"`, "links.acme.example")},
	{"Send visitors of unknown addresses on go.acme.example to https://acme.example/help.", "update_domain",
		clitest.Args{"domain": "go.acme.example", "notFoundUrl": "https://acme.example/help"}, shows(`"notFoundUrl":"https://acme.example/help"`)},
	{"I am looking for our video about onboarding.", "find_videos", clitest.Args{"text": "onboarding"}, shows("Onboarding in May", "!Tour")},
	{"Which videos have the tag training?", "find_videos", clitest.Args{"tags": list{"training"}}, shows("Onboarding in May", "!Tour")},
	{"Is the video vid_tour ready to be watched?", "get_video", clitest.Args{"id": "vid_tour"}, shows(`"status":"ready"`)},
	{"Rename the video vid_title to Team day 2037.", "update_video", clitest.Args{"id": "vid_title", "title": "Team day 2037"},
		videoHas("vid_title", func(v *client.Video, _ *client.VideoAccess) bool { return v.Title == "Team day 2037" })},
	{"Protect the video vid_lock with the password mellon.", "set_video_access", clitest.Args{"id": "vid_lock", "privacy": "password", "password": "mellon"},
		videoHas("vid_lock", func(v *client.Video, _ *client.VideoAccess) bool { return v.Privacy == "password" })},
	{"The share link of the video vid_exp should stop working in 3 days.", "set_video_access", clitest.Args{"id": "vid_exp", "privacy": "expiring", "expires": "3d"},
		videoHas("vid_exp", func(v *client.Video, _ *client.VideoAccess) bool { return in(v.ExpiresAt, 72*time.Hour) })},
	{"Only the site https://www.acme.example may embed the video vid_embed, and nobody may download it.", "set_video_access",
		clitest.Args{"id": "vid_embed", "embedOrigins": list{"https://www.acme.example"}, "allowDownload": false},
		videoHas("vid_embed", func(_ *client.Video, a *client.VideoAccess) bool {
			return !a.AllowDownload && slices.Equal(a.EmbedOrigins, []string{"https://www.acme.example"})
		})},
	{"Give the video vid_tour English captions: the word Hello during the first second.", "set_captions",
		clitest.Args{"id": "vid_tour", "language": "en", "vtt": "WEBVTT\n\n00:00.000 --> 00:01.000\nHello\n"},
		videoHas("vid_tour", func(v *client.Video, _ *client.VideoAccess) bool { return slices.Contains(v.Captions, "en") })},
	{"Use the frame at 1 second of the video vid_tour as its thumbnail.", "set_thumbnail", clitest.Args{"id": "vid_tour", "second": 1},
		videoHas("vid_tour", func(v *client.Video, _ *client.VideoAccess) bool {
			return v.ThumbnailTime != nil && *v.ThumbnailTime == 1
		})},
	{"Delete the video vid_gone.", "delete_video", clitest.Args{"id": "vid_gone"}, func(w *world, _ string) error {
		if _, err := w.c.GetVideo(w.t.Context(), w.videos["vid_gone"]); !client.IsNotFound(err) {
			return fmt.Errorf("reading the deleted video returned %w, want not found", err)
		}
		return nil
	}},
	{"Upload the file clip.mp4 from my videos folder. Give it the title Our clip, and let only people who have the link find it.", "upload_video",
		clitest.Args{"path": "clip.mp4", "title": "Our clip", "privacy": "unlisted"}, shows(`"title":"Our clip"`, `"privacy":"unlisted"`)},
}

// real replaces the table's placeholders in text with the deployment's real URLs and IDs.
func (w *world) real(text string) string {
	text = strings.ReplaceAll(text, "https://s.example", w.short)
	for name, id := range w.videos {
		text = strings.ReplaceAll(text, name, id)
	}
	return text
}

// args calls real for all of a tool's arguments.
func (w *world) args(in clitest.Args) (out clitest.Args) {
	w.t.Helper()
	b, err := json.Marshal(in)
	if err == nil {
		err = json.Unmarshal([]byte(w.real(string(b))), &out)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// prepare creates the records that the tasks refer to.
func (w *world) prepare(clip string) {
	w.t.Helper()
	ctx := w.t.Context()
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	rule := func(when client.LinkRuleWhen, url string) []client.LinkRule {
		return []client.LinkRule{{Name: "rule", When: when, URL: url}}
	}
	made, err := w.c.CreateLinks(ctx, []client.LinkCreate{
		{Slug: "news-june", URL: "https://example.com/june", Title: "June", Tags: []string{"newsletter"}},
		{Slug: "news-july", URL: "https://example.com/july", Title: "July", Tags: []string{"newsletter"}},
		{Slug: "autumn-fair", URL: "https://example.com/fairs/12", Title: "Autumn fair"},
		{Slug: "old-menu", URL: "https://example.com/menu", Archived: true},
		{Slug: "from-crm", URL: "https://example.com/crm", ExternalID: "crm-4711"},
		{Slug: "shop", URL: "https://shop.example.net/all"},
		{Slug: "app", URL: "https://example.com/app", Rules: rule(client.LinkRuleWhen{Device: []string{"phone"}, System: []string{"ios"}}, "https://apps.example.com/ios")},
		{Slug: "summer", URL: "https://example.com/summer", Rules: rule(client.LinkRuleWhen{Language: []string{"de"}, From: new(client.Text("2037-06-01T00:00:00Z"))}, "https://example.com/sommer")},
		{Slug: "u-noexp2", URL: "https://example.com/u", ExpiresAt: client.Text("2037-05-01T00:00:00Z")},
		{Slug: "u-dest", URL: "https://example.com/u"},
		{Slug: "u-title", URL: "https://example.com/u"},
		{Slug: "u-tag", URL: "https://example.com/u", Tags: []string{"keep"}},
		{Slug: "u-untag", URL: "https://example.com/u", Tags: []string{"keep", "draft"}},
		{Slug: "u-arch", URL: "https://example.com/u"},
		{Slug: "u-unarch", URL: "https://example.com/u", Archived: true},
		{Slug: "u-exp", URL: "https://example.com/u"},
		{Slug: "u-noexp", URL: "https://example.com/u", ExpiresAt: client.Text("2037-05-01T00:00:00Z")},
		{Slug: "u-pass", URL: "https://example.com/u", Password: "old"},
		{Slug: "u-max", URL: "https://example.com/u"},
		{Slug: "u-rule", URL: "https://example.com/u"},
		{Slug: "u-norule", URL: "https://example.com/u", Rules: rule(client.LinkRuleWhen{Percent: 10}, "https://example.com/ten")},
		{Slug: "b-1", URL: "https://example.com/b"}, {Slug: "b-2", URL: "https://example.com/b"}, {Slug: "b-3", URL: "https://example.com/b"},
		{Slug: "b-4", URL: "https://example.com/b", Tags: []string{"keep"}}, {Slug: "b-5", URL: "https://example.com/b", Tags: []string{"keep"}},
		{Slug: "d-1", URL: "https://example.com/d"}, {Slug: "d-2", URL: "https://example.com/d"},
	})
	must(err)
	for _, r := range made {
		if r.Error != nil {
			w.t.Fatalf("%+v", r.Error)
		}
	}
	_, err = w.c.CreateDomain(ctx, client.DomainCreate{Hostname: "go.acme.example"})
	must(err)
	w.videos = map[string]string{}
	for name, in := range map[string]client.VideoCreate{
		"vid_onboarding": {Title: "Onboarding in May", Tags: []string{"training"}}, "vid_title": {Title: "Old title"}, "vid_lock": {}, "vid_exp": {},
		"vid_embed": {}, "vid_gone": {},
	} {
		v, err := w.c.CreateVideo(ctx, in)
		must(err)
		w.videos[name] = v.VideoID
	}
	tour, err := w.c.UploadVideo(ctx, clip, client.VideoCreate{Title: "Tour"}, nil)
	must(err)
	_, err = w.c.WaitVideo(ctx, tour.VideoID, nil)
	must(err)
	w.videos["vid_tour"] = tour.VideoID
}

// answers returns the calls to make: the file's calls, or the table's own.
func answers(t *testing.T) []task {
	t.Helper()
	todo := slices.Clone(tasks)
	path := os.Getenv(answersFile)
	if path == "" {
		return todo
	}
	var given []struct {
		Task      int
		Tool      string
		Arguments clitest.Args
	}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &given)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range todo {
		todo[i].tool = "" // a task that is missing from the file counts as not done
	}
	for _, a := range given {
		if a.Task < 1 || a.Task > len(todo) {
			t.Fatalf("the file has an answer for task %d, which does not exist", a.Task)
		}
		todo[a.Task-1].tool, todo[a.Task-1].in = a.Tool, a.Arguments
	}
	return todo
}

// do calls the task's tool and checks the result.
func (d *task) do(w *world, k *clitest.Talk) error {
	if d.tool == "" {
		return errors.New("the file does not have an answer for this task")
	}
	res, err := k.Session.CallTool(w.t.Context(), &mcp.CallToolParams{Name: d.tool, Arguments: w.args(d.in)})
	if err != nil {
		return err
	}
	if res.IsError {
		return fmt.Errorf("the tool returned an error: %s", clitest.Said(res))
	}
	return d.holds(w, clitest.Said(res))
}

// Each of these sixty common requests takes one call to one tool. The test makes these calls
// against a whole system.
func TestAssistantDoesSixtyTasks(t *testing.T) {
	t.Parallel()
	s := realStack(t)
	dir := t.TempDir()
	films := filepath.Join(dir, "films")
	if err := os.Mkdir(films, 0o700); err != nil {
		t.Fatal(err)
	}
	clip := filepath.Join(films, "clip.mp4")
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=320x180:d=2", "-pix_fmt", "yuv420p", clip).CombinedOutput(); err != nil {
		t.Fatalf("cannot make a clip: %v: %s", err, out)
	}
	c, err := client.New(client.Config{BaseURL: s.BaseURL, Key: s.Keys["business"]})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, c: c, short: s.ShortBaseURL}
	w.prepare(clip)
	k := clitest.TalkOver(t, &mcp.CommandTransport{Command: program(t.Context(), t, dir, s.BaseURL, s.Keys["business"], "mcp", "--files", films)})
	right := 0
	for i, todo := range answers(t) {
		err := todo.do(w, k)
		if err == nil {
			right++
			continue
		}
		t.Errorf("task %d, %s\n\t%s %v: %v", i+1, todo.sentence, todo.tool, todo.in, err)
	}
	t.Logf("%d of %d tasks are done correctly", right, len(tasks))
	if len(tasks) != 60 {
		t.Errorf("the table has %d tasks, want 60", len(tasks))
	}
}
