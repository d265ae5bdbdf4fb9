package web

import (
	"encoding/csv"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/linkreel/linkreel/libs/apierr"
	client "github.com/linkreel/linkreel/libs/clients/go"
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
	ShortURL string // if the link was created
	ID       string
	Problem  string // if it was not
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
	items, rows, problem := readTable(table)
	v := r.importView()
	if problem != "" {
		return r.again(apierr.Invalid(apierr.Detail{Field: "csv", Message: problem}), "import.html", v)
	}
	var failed error
	for from := 0; from < len(items) && failed == nil; from += bulkSize {
		to := min(from+bulkSize, len(items))
		failed = r.makeLinks(items[from:to], rows[from:to])
		if failed == nil {
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
		for i := from; i < len(rows); i++ {
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

func (r *request) makeLinks(items []map[string]any, rows []importRow) error {
	var answer client.BulkResults
	if err := r.do("POST", "/api/v1/links/bulk", map[string]any{"urls": items}, &answer); err != nil {
		return err
	}
	for i := range rows {
		switch {
		// A row without a result must not count as created.
		case i >= len(answer.Results) || answer.Results[i].Data == nil && answer.Results[i].Error == nil:
			rows[i].Problem = text.Get("import.unknown")
		case answer.Results[i].Error != nil:
			rows[i].Problem = answer.Results[i].Error.Message
			if d := answer.Results[i].Error.Details; len(d) > 0 {
				rows[i].Problem = d[0].Field + ": " + d[0].Message
			}
		default:
			rows[i].ShortURL, rows[i].ID = answer.Results[i].Data.ShortURL, answer.Results[i].Data.ID
		}
	}
	return nil
}

// protected matches a cell with the apostrophe that `linkreel links export` and
// spreadsheets put before text that looks like a formula.
var protected = regexp.MustCompile(`^''*[\s\p{Z}\x{feff}]*[=+\-@＝＋－＠\t\r]`)

// readTable reads rows separated by commas or tabs. A first row with a column "url" names
// the columns. Without such a row, they are destination, short name and title.
func readTable(table string) (items []map[string]any, rows []importRow, problem string) {
	table = strings.TrimPrefix(strings.TrimSpace(table), "\ufeff")
	if table == "" {
		return nil, nil, text.Get("import.none")
	}
	in := csv.NewReader(strings.NewReader(table))
	// Pasted rows may differ in length.
	in.FieldsPerRecord, in.TrimLeadingSpace = -1, true
	if first, _, _ := strings.Cut(table, "\n"); strings.Contains(first, "\t") {
		in.Comma = '\t'
	}
	columns := importColumns[:3]
	for first := true; ; first = false {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if bad := new(csv.ParseError); errors.As(err, &bad) {
			return nil, nil, text.Get("import.broken") + " " + strconv.Itoa(bad.Line) + "."
		}
		if err != nil {
			return nil, nil, text.Get("import.broken")
		}
		if first {
			if named, ok := header(record); ok {
				columns = named
				continue
			}
		}
		if len(rows) == maxImport {
			return nil, nil, text.Get("import.many") + " " + strconv.Itoa(maxImport) + "."
		}
		line, _ := in.FieldPos(0)
		item := map[string]any{"url": ""}
		for i, value := range record {
			if protected.MatchString(value) {
				value = value[1:]
			}
			if value = strings.TrimSpace(value); i >= len(columns) || columns[i] == "" || value == "" {
				continue
			}
			// A comma would end the field unless it is quoted, so tags may be separated by semicolons.
			if item[columns[i]] = value; columns[i] == "tags" {
				item["tags"] = commaList(strings.ReplaceAll(value, ";", ","))
			}
		}
		items, rows = append(items, item), append(rows, importRow{Line: line, URL: item["url"].(string)})
	}
	if len(rows) == 0 {
		return nil, nil, text.Get("import.none")
	}
	return items, rows, ""
}

// header reads column names and ignores unknown ones.
func header(record []string) (columns []string, ok bool) {
	for _, name := range record {
		name = strings.TrimSpace(name)
		if strings.EqualFold(name, "destinationUrl") || strings.EqualFold(name, "destination") {
			name = "url"
		}
		i := slices.IndexFunc(importColumns, func(c string) bool { return strings.EqualFold(c, name) })
		if i < 0 {
			columns = append(columns, "")
			continue
		}
		columns = append(columns, importColumns[i])
	}
	return columns, slices.Contains(columns, "url")
}
