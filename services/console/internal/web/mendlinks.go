package web

import (
	"bytes"
	"encoding/base64"
	"html/template"
	"slices"
	"strconv"
	"strings"

	"github.com/linkreel/linkreel/libs/clients/go/linktable"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// The maximum number of rows in the form for failed rows, and of bytes in their cells. Even
// if all bytes are line breaks, which a browser sends as six bytes each, the form is smaller
// than the largest allowed request.
const (
	maxMend      = 100
	maxMendBytes = 150 << 10
)

// mending is the part of the import page that shows the rows that failed.
type mending struct {
	Once   string // see [request.makeLinks]
	Failed int
	CSV    template.URL // a table of all failed rows, as a data URL that browsers can download
	Rows   []mendRow    // the rows that fit into the form
}

// mendRow is a row in the form. Main contains the fields that the page always shows. More contains
// the other fields that have a value.
type mendRow struct {
	N          int // its index in the form
	Line       int
	URL        string
	Problem    string // the error, unless one of the fields shows it
	Lost       string // see [importRow]
	Main, More []field
}

// mend returns the form for the failed rows, or nil if none failed.
func mend(failed []importRow, once string) (*mending, error) {
	if len(failed) == 0 {
		return nil, nil
	}
	table, err := writeTable(failed)
	if err != nil {
		return nil, err
	}
	m := &mending{Once: once, Failed: len(failed), CSV: template.URL("data:text/csv;charset=utf-8;base64," + //nolint:gosec // base64 holds no markup
		base64.StdEncoding.EncodeToString(table))}
	// A lost request's rows come first and stay together: only the whole request can be repeated,
	// and the downloadable table cannot contain the request's key.
	failed = slices.Clone(failed)
	slices.SortStableFunc(failed, func(a, b importRow) int { return strings.Compare(b.Lost, a.Lost) })
	size := 0
	for from := 0; from < len(failed); {
		to := from + 1
		for failed[from].Lost != "" && to < len(failed) && failed[to].Lost == failed[from].Lost {
			to++
		}
		for _, row := range failed[from:to] {
			for _, cell := range row.Cells {
				size += len(cell)
			}
		}
		if to > maxMend || size > maxMendBytes {
			break
		}
		for ; from < to; from++ {
			m.Rows = append(m.Rows, mendRowOf(from, failed[from]))
		}
	}
	return m, nil
}

func mendRowOf(n int, row importRow) mendRow {
	out := mendRow{N: n, Line: row.Line, URL: row.Cells["url"], Problem: row.Problem, Lost: row.Lost}
	column := row.column()
	for _, name := range linktable.Columns {
		f := field{Name: cellName(n, name), Text: name, Kind: "text", Value: row.Cells[name]}
		switch {
		case name == "password":
			f.Kind = "password"
		case strings.Contains(f.Value, "\n"), name == "rules", name == "geo":
			f.Kind = "lines"
		case name == "url", strings.HasSuffix(name, "Url"):
			f.Kind = "url"
		}
		if name == column {
			f.Error, out.Problem = strings.TrimPrefix(row.Problem, name+": "), ""
		}
		missing := name == "password" && row.Cells["hasPassword"] != "" // exports do not contain passwords
		switch {
		case f.Error != "" || missing || slices.Contains([]string{"url", "slug", "title"}, name):
			out.Main = append(out.Main, f)
		case f.Value != "":
			out.More = append(out.More, f)
		}
	}
	return out
}

// cellName returns the field name for a cell in row n.
func cellName(n int, column string) string { return "rows." + strconv.Itoa(n) + "." + column }

// column returns the column with the row's error, or "" if the error is not about a column.
func (row importRow) column() string {
	name, _, _ := strings.Cut(row.Problem, ": ") // the API found the problem
	name, _, _ = strings.Cut(name, ".")
	if word, _, _ := strings.Cut(row.Problem, " "); slices.Contains(linktable.Columns, word) { // linktable found the problem
		name = word
	}
	switch {
	case row.Field != "":
		return row.Field
	case slices.Contains(linktable.Columns, name):
		return name
	}
	return ""
}

// writeTable returns rows as a table. Parsing the table returns the same rows.
func writeTable(rows []importRow) ([]byte, error) {
	cells := make([]map[string]string, len(rows))
	for i, row := range rows {
		cells[i] = row.Cells
	}
	var b bytes.Buffer
	err := linktable.Write(&b, cells)
	return b.Bytes(), err
}

// mended returns the rows from the form for failed rows, without the rows that the person left out.
// sent is false if the request contains a different form.
func (r *request) mended() (rows []importRow, sent bool) {
	n, err := strconv.Atoi(r.form.Get("rowCount"))
	if err != nil {
		return nil, false
	}
	for i := range min(n, maxMend) {
		if r.form.Get(cellName(i, "leave")) != "" {
			continue
		}
		row := importRow{Cells: map[string]string{}, Lost: r.form.Get(cellName(i, "lost"))}
		for _, name := range linktable.Columns {
			// Browsers send every line break as CR and LF.
			if cell := strings.ReplaceAll(r.form.Get(cellName(i, name)), "\r\n", "\n"); cell != "" {
				row.Cells[name] = cell
			}
		}
		rows = append(rows, row)
	}
	return rows, true
}

// Summary returns a message that says how many of the failed rows the form contains.
func (m *mending) Summary() string {
	if len(m.Rows) == m.Failed {
		return text.Get("mend.text")
	}
	return strings.NewReplacer("{n}", text.Number(int64(len(m.Rows))), "{all}", text.Number(int64(m.Failed))).Replace(text.Get("mend.some"))
}
