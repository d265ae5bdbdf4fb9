package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// linkreel runs the command-line program with the account's key and returns its output.
func (a *tenantOf) linkreel(args ...string) (out, notes string) {
	a.t.Helper()
	bin, err := program()
	check(a.t, err)
	dir := a.t.TempDir()
	cmd := exec.CommandContext(a.t.Context(), bin, args...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir, "LINKREEL_BASE_URL="+a.base, "LINKREEL_API_KEY="+a.key)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		a.t.Fatalf("linkreel %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return stdout.String(), stderr.String()
}

// linksOf returns the links in an export, oldest first. It omits the values that a deployment
// assigns: IDs, URLs, clicks and some times.
func linksOf(t *testing.T, export string) (links []map[string]any) {
	t.Helper()
	for line := range strings.Lines(export) {
		var l struct {
			Type string
			Data map[string]any
		}
		check(t, json.Unmarshal([]byte(line), &l))
		if l.Type != "link" {
			continue
		}
		total, _ := l.Data["importedClicks"].(float64)
		clicks, _ := l.Data["clicks"].(float64)
		for _, own := range []string{"id", "_id", "shortUrl", "updatedAt", "clicks", "importedClicks"} {
			delete(l.Data, own)
		}
		l.Data["all clicks"] = total + clicks // the second deployment shows the first one's counted clicks as imported clicks
		links = append(links, l.Data)
	}
	slices.Reverse(links) // an export lists the newest link first
	return links
}

// The test moves an account's links from one deployment to another.
func TestAnExportIsImportedElsewhereAndExportedAgain(t *testing.T) {
	t.Parallel()
	here := newTenant(t, stackFile{BaseURL: stack.BaseURL, ShortBaseURL: stack.ShortBaseURL, AdminURL: stack.AdminURL, AdminToken: stack.AdminToken}, "Leaves")
	name := strings.ToLower(here.id[4:10])
	soon := time.Now().Add(48 * time.Hour).UnixMilli()
	var items []map[string]any
	for i := range 90 {
		item := map[string]any{"url": fmt.Sprintf("https://example.com/%s/%d?q=ä&x=<y>", name, i), "slug": fmt.Sprintf("%s-%d", name, i)}
		for field, value := range map[string]any{
			"title": fmt.Sprintf("Title, \"%d\" ü", i), "tags": []string{"a|b", "Größe", fmt.Sprint("n", i%7)}, "externalId": fmt.Sprint("ext/", i), "archived": true, "expiresAt": soon + int64(i),
			"ogTitle": "Preview", "ogDescription": "Words", "ogImage": "https://example.com/i.png", "createdAt": 1_600_000_000_000 + int64(i), "importedClicks": i,
			"redirectType": 308, "forwardQuery": true, "forwardPath": true, "startsAt": 1_650_000_000_000 + int64(i), "expiredUrl": "https://example.com/over",
			"rules": []any{map[string]any{"name": "ü", "url": "https://example.com/app", "when": map[string]any{
				"device": []string{"phone"}, "system": []string{"ios"}, "language": []string{"de-AT"}, "query": map[string]string{"a": "*"}, "from": soon, "until": soon + 1, "percent": 50,
			}}},
		} {
			if (i+len(field))%3 > 0 {
				item[field] = value
			}
		}
		if item["redirectType"] == nil { // a link with status 308 cannot have a limit
			item["maxClicks"] = 1000 + i
		}
		items = append(items, item)
	}
	here.want(201, "POST", "/api/v1/links/bulk", map[string]any{"urls": items})
	for i, item := range items {
		if item["expiresAt"] == nil && i < 9 {
			visit(t, stack.ShortBaseURL+"/"+item["slug"].(string))
		}
	}

	i := install(t)
	i.env = append(i.env, "DNS_RESOLVER=127.0.0.1:9", "LINKREEL_FIRESTORE_TIMEOUT=9s")
	_, s := i.up()
	there := newTenant(t, s, "Arrives")
	taken, _ := here.linkreel("account", "export")
	file := filepath.Join(t.TempDir(), "account.jsonl")
	check(t, os.WriteFile(file, []byte(taken), 0o600))
	_, notes := there.linkreel("links", "import", file)
	t.Log(notes)
	if !strings.Contains(notes, "created 90 links, 0 rows failed") || !strings.Contains(notes, "not kept: ") {
		t.Errorf("the import printed %q, want 90 created links, no failed rows and the list of values that were not kept", notes)
	}
	brought, _ := there.linkreel("account", "export")
	// The file lists the newest link first. The new deployment lists links in the order in which
	// they were imported.
	want, got := linksOf(t, taken), linksOf(t, brought)
	slices.Reverse(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the two exports differ (-first deployment +second deployment):\n%s", diff)
	}
	if len(want) != len(items) {
		t.Errorf("%d links were exported, want %d", len(want), len(items))
	}
	var back struct{ Data []struct{ Slug string } }
	check(t, json.Unmarshal(there.want(200, "GET", "/api/v1/links?limit=1", nil).raw, &back))
	if len(back.Data) != 1 || back.Data[0].Slug != name+"-0" {
		t.Errorf("the link that was imported last is %+v, want the slug of the first link", back)
	}
	if a := visit(t, s.ShortBaseURL+"/"+name+"-3"); a.status != http.StatusFound && a.status != http.StatusGone {
		t.Errorf("a short URL on the second deployment returned %d, want 302 or 410", a.status)
	}
}

// `domains list` must show what `apply` set. Applying its output must not change anything.
func TestPagesOfAppliedDomainsAreShownAsWritten(t *testing.T) {
	t.Parallel()
	a := newTenant(t, stackFile{BaseURL: stack.BaseURL, ShortBaseURL: stack.ShortBaseURL, AdminURL: stack.AdminURL, AdminToken: stack.AdminToken}, "Applies")
	host := strings.ToLower(a.id[4:]) + ".example.com"
	file := filepath.Join(t.TempDir(), "wanted.yaml")
	apply := func(pages, want string) {
		t.Helper()
		check(t, os.WriteFile(file, []byte("domains: [{hostname: "+host+", "+pages+"}]"), 0o600))
		if out, notes := a.linkreel("apply", "-f", file); !strings.Contains(notes, want) {
			t.Errorf("apply of %s printed %s\n%s\nwant %q", pages, notes, out, want)
		}
	}
	shown := func() (pages string) {
		t.Helper()
		out, _ := a.linkreel("domains", "list", "--json")
		var d map[string]any
		check(t, json.Unmarshal([]byte(out), &d))
		for _, name := range []string{"homeUrl", "notFoundUrl", "expiredUrl"} {
			text, _ := d[name].(string)
			pages += fmt.Sprintf("%s: %q, ", name, text)
		}
		return pages
	}
	apply(`homeUrl: "https://Example.com/ä b?q=1#top", notFoundUrl: "https://example.com/lost"`, "1 created, 0 changed")
	pages := shown()
	if want := `homeUrl: "https://Example.com/ä b?q=1#top", notFoundUrl: "https://example.com/lost", expiredUrl: "", `; pages != want {
		t.Errorf("`domains list` shows %s\nwant %s", pages, want)
	}
	apply(pages, "0 created, 0 changed, 1 unchanged")
	apply(`notFoundUrl: "", expiredUrl: "https://example.com/over"`, "0 created, 1 changed")
	apply(shown(), "0 created, 0 changed, 1 unchanged")
}
