package web

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/linkreel/linkreel/libs/apierr"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/libs/clients/go/linktable"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// The maximum numbers of rows of one import and of one API call.
const (
	maxImport = 500
	bulkSize  = 100
)

type importRow struct {
	Line     int
	URL      string
	ShortURL string // the short address, if the link was created
	ID       string
	Problem  string // the reason, if it was not created
}

// importColumns are the accepted columns, under their API names.
var importColumns = []string{"url", "slug", "title", "tags", "expiresAt", "externalId", "ogTitle", "ogDescription", "ogImage", "domainId"}

func importPage(r *request) error {
	return r.render(http.StatusOK, "import.html", r.importView())
}

func (r *request) importView() view {
	return view{Title: text.Get("import.title"), Form: map[string]string{}, Data: map[string]any{
		"CanWrite": r.can("links:write"), "Columns": strings.Join(importColumns, ", "), "Most": maxImport,
	}}
}

// importLinks creates the links of a pasted or uploaded table and shows the result of each
// row. Failed rows can be fixed and sent again.
func importLinks(r *request) error {
	table := r.form.Get("csv")
	file, err := r.file("file")
	if err != nil {
		return err
	}
	if strings.TrimSpace(table) == "" {
		table = string(file)
	}
	all, problem := readTable(table, linktable.CSV)
	v := r.importView()
	if problem != "" {
		return r.again(apierr.Invalid(apierr.Detail{Field: "csv", Message: problem}), "import.html", v)
	}
	items, rows, at, err := r.placed(all)
	if err != nil { // nothing was created
		return r.again(err, "import.html", v)
	}
	var failed error
	for from := 0; from < len(items) && failed == nil; {
		to := from + chunk(items[from:])
		failed = r.makeLinks(items[from:to], rows, at[from:to])
		if failed == nil {
			from = to
			continue
		}
		if from == 0 { // nothing was created
			return r.again(failed, "import.html", v)
		}
		// Some links have been created already, so show the results of the rows instead of
		// the form.
		var e *apierr.Error
		if !errors.As(failed, &e) {
			return failed
		}
		for _, i := range at[from:] {
			rows[i].Problem = text.Get("import.stopped") + " " + e.Message
		}
	}
	made := int64(0)
	for _, row := range rows {
		if row.Problem == "" {
			made++
		}
	}
	v.Data.(map[string]any)["Rows"] = rows
	v.Data.(map[string]any)["MadeCount"] = made
	return r.render(http.StatusOK, "import.html", v)
}

// chunk returns how many of the items fit into one request.
func chunk(items []client.BulkItem) (n int) {
	for size := 0; n < min(len(items), bulkSize); n++ {
		if size += (linktable.Row{Item: items[n]}).Size(); size > linktable.MaxRequest && n > 0 {
			break
		}
	}
	return n
}

func (r *request) makeLinks(items []client.BulkItem, rows []importRow, at []int) error {
	var answer client.BulkResults
	if err := r.do("POST", "/api/v1/links/bulk", client.BulkCreate{URLs: items}, &answer); err != nil {
		return err
	}
	for i, place := range at {
		switch {
		// A row without a result must not count as created.
		case i >= len(answer.Results) || answer.Results[i].Data == nil && answer.Results[i].Error == nil:
			rows[place].Problem = text.Get("import.unknown")
		case answer.Results[i].Error != nil:
			rows[place].Problem = answer.Results[i].Error.Message
			if d := answer.Results[i].Error.Details; len(d) > 0 {
				rows[place].Problem = d[0].Field + ": " + d[0].Message
			}
		default:
			rows[place].ShortURL, rows[place].ID = answer.Results[i].Data.ShortURL, answer.Results[i].Data.ID
		}
	}
	return nil
}

// readTable reads the rows of a table, as `linkreel links import` does.
func readTable(table, format string) (all []linktable.Row, problem string) {
	utf8, _ := io.ReadAll(linktable.Text(strings.NewReader(table))) // reading from memory never fails
	utf8 = bytes.TrimSpace(utf8)
	if bytes.HasPrefix(utf8, []byte("{")) { // pasted JSON lines
		format = linktable.JSONLines
	}
	next, err := linktable.Read(bytes.NewReader(utf8), format, func(string) {})
	if err != nil {
		return nil, text.Get("import.broken") + " " + err.Error()
	}
	for {
		row, err := next()
		switch {
		case errors.Is(err, io.EOF) && len(all) == 0:
			return nil, text.Get("import.none")
		case errors.Is(err, io.EOF):
			return all, ""
		case err != nil:
			return nil, text.Get("import.broken") + " " + err.Error()
		case len(all) == maxImport:
			return nil, text.Get("import.many") + " " + strconv.Itoa(maxImport) + "."
		}
		all = append(all, row)
	}
}

// placed returns the links to create and the results of all rows so far. A link keeps its
// previous host if that is a verified domain of the account. at holds each link's index in
// rows. placed returns an error if the domains could not be read, because the links would be
// created on the wrong host.
func (r *request) placed(all []linktable.Row) (items []client.BulkItem, rows []importRow, at []int, err error) {
	ids := map[string]string{}
	if slices.ContainsFunc(all, func(row linktable.Row) bool { return row.Host != "" }) {
		var list client.DomainList
		// If the member or the plan may not use domains, the links go to the default host.
		if err := r.do("GET", "/api/v1/domains", nil, &list); err != nil && apierr.CodeOf(err).Status() != http.StatusForbidden {
			return nil, nil, nil, err
		}
		for _, d := range list.Data {
			if d.Status == "verified" {
				ids[strings.ToLower(d.Hostname)] = d.ID
			}
		}
	}
	for i, row := range all {
		rows = append(rows, importRow{Line: row.Line, URL: row.Item.URL, Problem: row.Bad})
		if row.Bad == "" {
			row.Item.DomainID = cmp.Or(ids[row.Host], row.DomainID)
			items, at = append(items, row.Item), append(at, i)
		}
	}
	return items, rows, at, nil
}
