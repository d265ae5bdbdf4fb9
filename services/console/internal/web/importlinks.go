package web

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/linkreel/linkreel/libs/apierr"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/libs/clients/go/linktable"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// The maximum number of rows in one import and in one API call.
const (
	maxImport = 500
	bulkSize  = 100
)

// importRow is a row in a table and its result.
type importRow struct {
	Line     int
	URL      string
	ShortURL string // the short address, if the link was created
	ID       string
	Problem  string            // the reason, if it was not created
	Field    string            // the column with the problem, if Problem does not begin with its name
	Cells    map[string]string // see [linktable.Row]
	// Lost identifies the request that contained this row and did not get a response. The link may
	// have been created. The request must be repeated with all of its rows. Otherwise, links might
	// be created twice.
	Lost string
}

// importColumns are the accepted columns, under their API names.
var importColumns = []string{"url", "slug", "title", "tags", "expiresAt", "externalId", "ogTitle", "ogDescription", "ogImage", "domainId"}

func importPage(r *request) error {
	return r.render(http.StatusOK, "import.html", r.importView())
}

func (r *request) importView() view {
	return view{Title: text.Get("import.title"), Form: map[string]string{}, Data: map[string]any{
		"CanWrite": r.can("links:write"), "Columns": strings.Join(importColumns, ", "), "Most": maxImport,
		"Once": cmp.Or(r.form.Get("once"), identity.NewNonce()),
	}}
}

// importLinks creates the links in a table and shows each row's result. The table is pasted or
// uploaded, or comes from the form with the rows that failed in an earlier import.
func importLinks(r *request) error {
	fixed, mending := r.mended()
	table, err := r.table(fixed, mending)
	if err != nil {
		return err
	}
	v := r.importView()
	data := v.Data.(map[string]any)
	all, problem := readTable(table, linktable.CSV)
	rows := make([]importRow, len(all))
	for i, row := range all {
		rows[i] = importRow{Line: row.Line, URL: row.Item.URL, Problem: row.Bad, Cells: row.Cells}
		if i < len(fixed) {
			rows[i].Lost = fixed[i].Lost
		}
	}
	again := func(err error) error { // nothing was created
		if mending {
			var failed error
			if data["Mend"], failed = mend(rows, r.form.Get("once")); failed != nil {
				return failed
			}
		}
		return r.again(err, "import.html", v)
	}
	if problem != "" {
		return again(apierr.Invalid(apierr.Detail{Field: "csv", Message: problem}))
	}
	items, at, err := r.placed(all)
	if err == nil {
		err = r.makeAll(items, rows, at, data["Once"].(string))
	}
	if err != nil {
		return again(err)
	}
	failed := slices.DeleteFunc(slices.Clone(rows), func(row importRow) bool { return row.Problem == "" })
	if data["Mend"], err = mend(failed, data["Once"].(string)); err != nil {
		return err
	}
	data["Rows"], data["MadeCount"] = rows, int64(len(rows)-len(failed))
	data["Once"] = identity.NewNonce() // for the next table
	return r.render(http.StatusOK, "import.html", v)
}

// chunk returns how many of the items fit into one request.
func chunk(items []client.LinkCreate) (n int) {
	for size := 0; n < min(len(items), bulkSize); n++ {
		if size += (linktable.Row{Item: items[n]}).Size(); size > linktable.MaxRequest && n > 0 {
			break
		}
	}
	return n
}

// table returns the text of the table that was sent.
func (r *request) table(fixed []importRow, mending bool) (string, error) {
	if mending {
		table, err := writeTable(fixed)
		return string(table), err
	}
	if table := r.form.Get("csv"); strings.TrimSpace(table) != "" {
		return table, nil
	}
	file, err := r.file("file")
	return string(file), err
}

// makeAll creates the links for rows. It only returns an error if it did not create any; other
// errors become their rows' problems.
func (r *request) makeAll(items []client.LinkCreate, rows []importRow, at []int, once string) error {
	var to int
	for from := 0; from < len(items); from = to {
		// If a request did not get a response, repeat it without changing it.
		most := from + chunk(items[from:])
		for to = from + 1; to < most && rows[at[to]].Lost == rows[at[from]].Lost; {
			to++
		}
		key, err := r.makeLinks(items[from:to], rows, at[from:to], once)
		if err == nil {
			continue
		}
		var e *apierr.Error
		if from == 0 || !errors.As(err, &e) {
			return err
		}
		unknown := e.Code.Status() >= http.StatusInternalServerError || e.Code == apierr.IdempotencyInProgress
		for n, i := range at[from:] {
			rows[i].Problem = text.Get("import.stopped") + " " + e.Message
			if unknown && n < to-from {
				rows[i].Problem, rows[i].Lost = text.Get("import.lost"), key
			}
		}
		return nil
	}
	return nil
}

// makeLinks creates links in one request, and returns the request's Idempotency-Key. The key is
// derived from once, which is new for each table that a person sends, and from the links. So links
// are not created twice if a browser resubmits a form, or if a person resends the rows from a
// request that did not get a response.
func (r *request) makeLinks(items []client.LinkCreate, rows []importRow, at []int, once string) (key string, err error) {
	body, err := json.Marshal(client.BulkCreate{URLs: items})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(once+"\n"), body...))
	key = base64.RawURLEncoding.EncodeToString(sum[:16])
	var answer client.BulkResults
	err = r.do(http.MethodPost, "/api/v1/links/bulk", client.BulkCreate{URLs: items}, &answer, client.IdempotencyKey(key))
	if err != nil {
		return key, err
	}
	for i, place := range at {
		row := &rows[place]
		row.Lost = ""
		switch {
		// A row without a result must not count as created.
		case i >= len(answer.Results) || answer.Results[i].Data == nil && answer.Results[i].Error == nil:
			row.Problem = text.Get("import.unknown")
		case answer.Results[i].Error != nil:
			refused := answer.Results[i].Error
			row.Problem, row.Field = refused.Message, columnOf[apierr.Code(refused.Code)]
			if d := refused.Details; len(d) > 0 {
				row.Problem = d[0].Field + ": " + d[0].Message
			}
		default:
			row.ShortURL, row.ID = answer.Results[i].Data.ShortURL, answer.Results[i].Data.ID
		}
	}
	return key, nil
}

// columnOf contains the columns that errors without a field refer to.
var columnOf = map[apierr.Code]string{apierr.SlugTaken: "slug", apierr.ExternalIDTaken: "externalId"}

// readTable reads a table's rows, as `linkreel links import` does.
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

// placed returns the links to create. A link keeps its previous host if that is one of the
// account's verified domains. at holds each link's index in all. If the domains could not be read,
// placed returns an error instead of creating the links on the wrong host.
func (r *request) placed(all []linktable.Row) (items []client.LinkCreate, at []int, err error) {
	ids := map[string]string{}
	if slices.ContainsFunc(all, func(row linktable.Row) bool { return row.Host != "" }) {
		domains, err := listAll[client.Domain](r, "/api/v1/domains")
		// If domains are not available to the member or the plan, the links are created on the
		// default host.
		if err != nil && apierr.CodeOf(err).Status() != http.StatusForbidden {
			return nil, nil, err
		}
		for _, d := range domains {
			if d.Status == "verified" {
				ids[strings.ToLower(d.Hostname)] = d.ID
			}
		}
	}
	for i, row := range all {
		if row.Bad == "" {
			row.Item.DomainID = cmp.Or(ids[row.Host], row.DomainID)
			items, at = append(items, row.Item), append(at, i)
		}
	}
	return items, at, nil
}
