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

// The bounds of the form that corrects failed rows: how many rows, and how many bytes in
// their cells. Even if they are all line breaks, which a browser sends as six bytes each, the
// form stays below the largest request.
const (
	maxMend      = 100
	maxMendBytes = 150 << 10
)

// mending is the part of the import page with the rows that failed.
type mending struct {
	Once   string // see [request.makeLinks]
	Failed int
	CSV    template.URL // a table of all rows that failed, as an address that browsers can download
	Rows   []mendRow    // those that the form has room for
}

// mendRow is a row in the form. Main has the fields that the page shows at once. More has the
// other fields that have a value.
type mendRow struct {
	N          int // its place in the form, from 0
	Line       int
	URL        string
	Problem    string // the reason, if no field shows it
	Lost       string // see [importRow]
	Main, More []field
}

// mend returns the form for the rows that failed, or nil if none has.
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
	// The rows of a lost request come first and stay together, because only the whole request
	// can be repeated, and the table to download has no place for its key.
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
		missing := name == "password" && row.Cells["hasPassword"] != "" // an export has no passwords
		switch {
		case f.Error != "" || missing || slices.Contains([]string{"url", "slug", "title"}, name):
			out.Main = append(out.Main, f)
		case f.Value != "":
			out.More = append(out.More, f)
		}
	}
	return out
}

// cellName is the name of the field with a cell of row n.
func cellName(n int, column string) string { return "rows." + strconv.Itoa(n) + "." + column }

// column returns the column that the row's problem is about, or "" if it is not about one.
func (row importRow) column() string {
	name, _, _ := strings.Cut(row.Problem, ": ") // a problem that the API found
	name, _, _ = strings.Cut(name, ".")
	if word, _, _ := strings.Cut(row.Problem, " "); slices.Contains(linktable.Columns, word) { // a problem that linktable found
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

// writeTable writes rows as a table. Reading the table returns the same rows.
func writeTable(rows []importRow) ([]byte, error) {
	cells := make([]map[string]string, len(rows))
	for i, row := range rows {
		cells[i] = row.Cells
	}
	var b bytes.Buffer
	err := linktable.Write(&b, cells)
	return b.Bytes(), err
}

// mended returns the rows of the form that corrects failed rows, without those that are left
// out. sent is false if the request has another form.
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

// Summary says how many of the failed rows the form has.
func (m *mending) Summary() string {
	if len(m.Rows) == m.Failed {
		return text.Get("mend.text")
	}
	return strings.NewReplacer("{n}", text.Number(int64(len(m.Rows))), "{all}", text.Number(int64(m.Failed))).Replace(text.Get("mend.some"))
}
