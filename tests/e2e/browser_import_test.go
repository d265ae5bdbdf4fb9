package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-rod/rod/lib/input"
)

// Some rows of an imported table fail. A person corrects them with the keyboard and sends only
// those rows, or saves them as a CSV file, corrects the file and uploads it. Links must not be
// created twice.
func TestFailedRowsOfAnImportInABrowser(t *testing.T) {
	t.Parallel()
	for _, l := range []look{{width: 320, height: 700, dark: true}, {width: 1280, height: 860}} {
		v := person(t, l)
		page := v.Timeout(patience)
		c := as(t, "business")
		name := fmt.Sprintf("mend-%d", l.width)
		taken := c.want(201, "POST", "/api/v1/links", map[string]any{"url": "https://go.dev/", "slug": name}).str("slug")
		fits := func(state string) {
			t.Helper()
			v.accessible(state)
			if wide := eval[int](v, `() => document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide > 0 {
				t.Errorf("%s is %d px wider than the %d px screen", state, wide, l.width)
			}
		}
		v.open(stack.BaseURL + "/app/links/import")
		page.MustElement("#csv").MustInput("url,slug,title,tags,maxClicks\n" +
			"https://go.dev/made," + name + "-made,,,\n" +
			"https://go.dev/taken," + taken + ",=1+1,\"a|b,c\",7\n" +
			"ftp://go.dev/" + strings.Repeat("long", 30) + "," + name + "-two,,,\n" +
			"https://go.dev/many," + name + "-three,,,many\n")
		page.MustElementR("button", "^Create the links$").MustFocus()
		check(t, v.Page.Keyboard.Press(input.Enter))
		v.shows("h2", "Fix the rows that failed")
		v.shows("#rows-0-slug-error", "taken")
		v.shows("#rows-1-url-error", "http")
		v.shows("#rows-2-maxClicks-error", "whole number")
		fits("an import with failed rows")
		v.shot(fmt.Sprintf("import-failed-%d", l.width))

		dir := t.TempDir()
		wait := v.Browser().Timeout(patience).WaitDownload(dir)
		page.MustElement("a[download]").MustFocus()
		check(t, v.Page.Keyboard.Press(input.Enter))
		saved := wait()
		if saved == nil || saved.SuggestedFilename != "failed-links.csv" {
			t.Fatalf("the browser saved %+v, want failed-links.csv", saved)
		}

		page.MustElement("#rows-0-slug").MustSelectAllText().MustInput(name + "-one").MustType(input.Enter)
		v.shows(`[role="status"]`, "1 of 3")
		v.shows("#rows-1-maxClicks-error", "whole number")
		if left := page.MustElements("fieldset.rule"); len(left) != 2 {
			t.Errorf("the form has %d rows, want 2", len(left))
		}
		page.MustElement(`[name="rows.0.leave"]`).MustFocus()
		check(t, v.Page.Keyboard.Type(input.Space)) // a checkbox changes when the key is released
		page.MustElement("#rows-1-maxClicks").MustSelectAllText().MustInput("5").MustType(input.Enter)
		v.shows(`[role="status"]`, "1 of 1")
		fits("an import without failed rows")
		v.clean()

		var made struct {
			Data []struct {
				Slug, Title string
				Tags        []string
				MaxClicks   int
			}
		}
		check(t, json.Unmarshal(c.want(200, "GET", "/api/v1/links?q="+name+"&limit=100", nil).raw, &made))
		var slugs []string
		for _, link := range made.Data {
			slugs = append(slugs, strings.TrimPrefix(link.Slug, name))
			if link.Slug == name+"-one" && (link.Title != "=1+1" || strings.Join(link.Tags, ",") != "a,b,c" || link.MaxClicks != 7) {
				t.Errorf("the link from the corrected row is %+v, want the title =1+1, the tags a, b, c and 7 clicks", link)
			}
		}
		if got := strings.Join(slugs, " "); got != "-three -one -made " {
			t.Errorf("the account has the links %q, want -three -one -made", got)
		}

		// The file has the three rows that failed the first time. The form has since created all of
		// them except the second.
		table, err := os.ReadFile(filepath.Join(dir, saved.GUID))
		check(t, err)
		if !strings.Contains(string(table), "'=1+1") || strings.Contains(string(table), name+"-made") {
			t.Errorf("the saved file must have an escaped =1+1 and no row for a created link:\n%s", table)
		}
		file := filepath.Join(dir, "corrected.csv")
		check(t, os.WriteFile(file, []byte(strings.Replace(string(table), "ftp://", "https://", 1)), 0o600))
		page.MustElement("#file").MustSetFiles(file)
		page.MustElementR("button", "^Create the links$").MustFocus()
		check(t, v.Page.Keyboard.Press(input.Enter))
		v.shows(`[role="status"]`, "1 of 3")
		v.shows("td", name+"-two")
		v.clean()
	}
}
