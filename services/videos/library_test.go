package videos_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// titles returns the titles in a list response.
func titles(a answer) []string {
	a.t.Helper()
	got := []string{}
	for _, item := range a.want(200).json()["data"].([]any) {
		got = append(got, item.(map[string]any)["title"].(string))
	}
	return got
}

func TestTagsAndExternalIds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.api(http.MethodPost, "", `{"title":"one","tags":[" Launch ","launch","Ü"],"externalId":"crm 7","color":"red","shareUrl":"x"}`).want(201)
	if diff := cmp.Diff([]any{"color", "shareUrl"}, a.json()["ignoredFields"]); diff != "" {
		t.Errorf("ignoredFields (-want +got):\n%s", diff)
	}
	id := a.json()["videoId"].(string)
	if got := w.get(id); cmp.Diff([]any{"Launch", "Ü"}, got["tags"]) != "" || got["externalId"] != "crm 7" {
		t.Errorf("create returned tags %v and externalId %v, want the tags Launch and Ü and the externalId crm 7", got["tags"], got["externalId"])
	}
	if a := w.api(http.MethodPost, "", `{"externalId":"crm 7"}`).want(409); a.code() != "EXTERNAL_ID_TAKEN" {
		t.Error(a.body)
	}
	w.as("acc_b", http.MethodPost, "", `{"externalId":"crm 7"}`).want(201) // unique within an account
	other := w.create(`{"externalId":"crm 8","tags":null}`)
	if a := w.api(http.MethodPatch, "/"+other.id, `{"externalId":"crm 7"}`).want(409); a.code() != "EXTERNAL_ID_TAKEN" {
		t.Error(a.body)
	}
	w.api(http.MethodPatch, "/"+id, `{"externalId":null,"tags":["a"]}`).want(200)
	w.api(http.MethodPatch, "/"+other.id, `{"externalId":"crm 7"}`).want(200)
	w.api(http.MethodPost, "", `{"externalId":"crm 8"}`).want(201) // the externalId is available again
	w.api(http.MethodDelete, "/"+other.id, "").want(204)
	w.api(http.MethodPatch, "/"+id, `{"externalId":"crm 7","tags":null}`).want(200)
	if got := w.get(id); cmp.Diff([]any{}, got["tags"]) != "" || got["externalId"] != "crm 7" {
		t.Errorf("got tags %v and externalId %v after the patches, want no tags and crm 7", got["tags"], got["externalId"])
	}
	for body, want := range map[string]string{
		`{"tags":["a,b"]}`: "tags.0", `{"tags":["` + strings.Repeat("x", 51) + `"]}`: "tags.0", `{"tags":"a"}`: "tags", `{"externalId":""}`: "externalId",
		`{"externalId":"é"}`: "externalId", `{"externalId":7}`: "externalId", `{"tags":[` + strings.TrimSuffix(many(21), ",") + `]}`: "tags",
	} {
		for _, call := range [][2]string{{http.MethodPost, ""}, {http.MethodPatch, "/" + id}} {
			a := w.api(call[0], call[1], body).want(400)
			if got := a.json()["error"].(map[string]any)["details"].([]any)[0].(map[string]any)["field"]; got != want && !strings.HasPrefix(fmt.Sprint(got), want) {
				t.Errorf("%s of %s reported field %v, want %s", call[0], body, got, want)
			}
		}
	}
}

func many(n int) (s string) {
	for i := range n {
		s += fmt.Sprintf(`"tag %d",`, i)
	}
	return s
}

func TestVideosAreFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, body := range []string{
		`{"title":"Straße nach Süden","tags":["Reise","Herbst"]}`, `{"title":"Quarterly numbers","privacy":"unlisted","tags":["Finance"]}`,
		`{"title":"Quarter horse","externalId":"h-1","tags":["reise"]}`, `{"title":"Numbers of spring"}`,
	} {
		w.create(body)
	}
	last := w.create(`{"title":"plain"}`)
	w.api(http.MethodPatch, "/"+last.id, `{"description":"A long story about naïve robots"}`).want(200)
	w.as("acc_b", http.MethodPost, "", `{"title":"Quarterly numbers"}`).want(201)
	for query, want := range map[string][]string{
		"q=quart":                         {"Quarter horse", "Quarterly numbers"},
		"q=numb+QUARTERLY":                {"Quarterly numbers"},
		"q=strasse":                       {"Straße nach Süden"},
		"q=sud":                           {"Straße nach Süden"},
		"q=NAIVE+rob":                     {"plain"},
		"q=obots":                         {},
		"q=" + last.slug:                  {"plain"},
		"q=herbst":                        {"Straße nach Süden"},
		"q=%21%3F":                        {"plain", "Numbers of spring", "Quarter horse", "Quarterly numbers", "Straße nach Süden"},
		"tag=REISE":                       {"Quarter horse", "Straße nach Süden"},
		"tag=reise&tag=herbst":            {"Straße nach Süden"},
		"tag=reise&q=horse":               {"Quarter horse"},
		"privacy=unlisted":                {"Quarterly numbers"},
		"status=uploading&privacy=public": {"plain", "Numbers of spring", "Quarter horse", "Straße nach Süden"},
		"status=ready":                    {},
		"externalId=h-1":                  {"Quarter horse"},
		"externalId=h-1&q=numbers":        {},
		"externalId=none":                 {},
	} {
		if diff := cmp.Diff(want, titles(w.api(http.MethodGet, "?"+query, ""))); diff != "" {
			t.Errorf("list with %s (-want +got):\n%s", query, diff)
		}
	}
	for _, bad := range []string{"status=done", "privacy=", "tag=", "tag=a,b", "tag=a&tag=b&tag=c&tag=d&tag=e&tag=f", "externalId=", "q=" + strings.Repeat("x", 501)} {
		if a := w.api(http.MethodGet, "?"+bad, "").want(400); a.code() != "VALIDATION_ERROR" {
			t.Errorf("list with %s returned %s, want VALIDATION_ERROR", bad, a.body)
		}
	}
}

var nextPage = regexp.MustCompile(`^<([^>]+)>; rel="next"$`)

func TestEveryVideoIsListedOncePageByPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var want []string
	for i := range 7 {
		title := fmt.Sprintf("film %d", i)
		w.create(`{"title":"` + title + `","tags":["x"]}`)
		want = append([]string{title}, want...)
	}
	for _, filter := range []string{"", "&q=film", "&tag=X&status=uploading"} {
		var got []string
		address := w.base + "/api/v1/videos?limit=3" + filter
		for pages := 0; address != ""; pages++ {
			if pages > 5 {
				t.Fatal("the list has more than 5 pages, want at most 5")
			}
			a := w.send(http.MethodGet, address, "", header("Authorization", "Bearer "+w.keys["acc_a"]))
			got = append(got, titles(a)...)
			address = ""
			if link := a.header.Get("Link"); link != "" {
				m := nextPage.FindStringSubmatch(link)
				if m == nil || !strings.HasPrefix(m[1], w.base+"/api/v1/videos?") {
					t.Fatalf("Link header is %s, want the base URL and a next page", link)
				}
				address = m[1]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("list with filter %q (-want +got):\n%s", filter, diff)
		}
	}
	cursor := func() string {
		u, err := url.Parse(nextPage.FindStringSubmatch(w.api(http.MethodGet, "?limit=1", "").header.Get("Link"))[1])
		must(t, err)
		return u.Query().Get("cursor")
	}()
	for _, bad := range []string{"", "1", "x", cursor[1:], url.QueryEscape(cursor + "=")} {
		if a := w.api(http.MethodGet, "?cursor="+bad, "").want(400); a.code() != "INVALID_CURSOR" {
			t.Errorf("list with cursor %q returned %s, want INVALID_CURSOR", bad, a.body)
		}
	}
	w.as("acc_b", http.MethodGet, "?cursor="+cursor, "").want(400) // a cursor from another account's list
}

func TestAListReadsAboutAsManyAsItAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 30 {
		w.create(fmt.Sprintf(`{"title":"item %d"}`, i))
	}
	w.create(`{"title":"needle"}`)
	w.fire.ResetStats()
	if got := titles(w.api(http.MethodGet, "?q=need", "")); len(got) != 1 {
		t.Fatalf("search found %v, want one video", got)
	}
	if r := w.fire.Stats().Reads; r > 3 {
		t.Errorf("a search that finds one of 31 videos cost %d reads, want at most 3", r)
	}
	w.fire.ResetStats()
	w.api(http.MethodGet, "?limit=5", "").want(200)
	if r := w.fire.Stats().Reads; r > 7 {
		t.Errorf("a page of 5 videos cost %d reads, want at most 7", r)
	}
}
