// Package linktable reads tables of links: CSV and JSON Lines, in the export formats of Linkreel,
// Bitly, Dub, Short.io, YOURLS and Shlink.
package linktable

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

// Table formats.
const (
	CSV       = "csv" // separated by commas, semicolons or tabs
	JSONLines = "jsonl"
)

// DefaultHost is the DomainID of a link on the default short host.
const DefaultHost = "default"

// Row is one line of a table.
type Row struct {
	Line     int // line number in the file, from 1
	Item     client.LinkCreate
	Host     string // the host of the link's short URL in the source, in lower case
	DomainID string // the id in the deployment that wrote the file, or DefaultHost; "" if unknown
	Bad      string // why the row cannot be sent, or ""
	// Cells holds the non-empty cells of the row, keyed by the names in [Columns]. [Write] writes
	// them, for example to a table of rows to correct.
	Cells map[string]string
}

// Limits on a row.
const (
	maxRow = 1 << 20 // bytes of text
	// maxItem is the maximum size of a link in a request. A row in which every value has the
	// maximum length is smaller.
	maxItem = 512 << 10
)

// MaxRequest is the maximum total [Row.Size] of the rows in one request. Together with the rest of
// the body, the request stays below the 1 MiB that the service accepts.
const MaxRequest = 1<<20 - 1<<12

// Size returns the size of the row in a request, in bytes.
func (r Row) Size() int {
	b, _ := json.Marshal(r.Item) //nolint:gosec // only its length is used; encoding cannot fail
	return len(b) + 1
}

// Chunks returns a function that returns the next rows of a table: as many as fit into one request,
// but no more than most. After the last chunk, it does not return any rows.
func Chunks(next func() (Row, error), most int) func() ([]Row, error) {
	var left []Row // the row that did not fit into the last chunk
	return func() (rows []Row, err error) {
		rows, left = left, nil
		size := 0
		for _, r := range rows {
			size += r.Size()
		}
		for len(rows) < most {
			r, err := next()
			if errors.Is(err, io.EOF) {
				return rows, nil
			}
			if err != nil {
				return nil, err
			}
			if size += r.Size(); size > MaxRequest && len(rows) > 0 {
				left = []Row{r}
				return rows, nil
			}
			rows = append(rows, r)
		}
		return rows, nil
	}
}

// Format returns the format of a file, based on its name.
func Format(file string) string {
	switch strings.ToLower(path.Ext(file)) {
	case ".jsonl", ".ndjson", ".json":
		return JSONLines
	}
	return CSV
}

// Read returns a function that returns the rows of a table one by one, then io.EOF. A CSV table
// without headings has the columns destination, slug and title. Read calls note with the columns
// that it ignores. If a row cannot be read, its Bad is the reason, and reading continues with the
// next row.
func Read(r io.Reader, format string, note func(what string)) (next func() (Row, error), err error) {
	if format == JSONLines {
		return jsonRows(r, note), nil
	}
	return csvRows(r, note)
}

// columns maps each field to its column names in exports from Linkreel, Bitly, Dub, Short.io,
// YOURLS and Shlink, in lower case and without spaces, hyphens and underscores. Earlier names take
// precedence.
var columns = map[string][]string{
	"url":      {"url", "destinationurl", "destination", "longurl", "originalurl", "targeturl", "target", "link"},
	"slug":     {"slug", "key", "custombackhalf", "backhalf", "keyword", "path", "shortcode", "alias", "shortlink", "shorturl", "bitlink"},
	"title":    {"title", "name", "label"},
	"short":    {"shorturl", "shortlink", "bitlink"},
	"domain":   {"domain", "host", "hostname"},
	"tags":     {"tags", "tag", "labels"},
	"expires":  {"expiresat", "expires", "expiration", "expirationdate", "expirydate", "validuntil"},
	"created":  {"createdat", "created", "createdon", "datecreated", "creationdate", "timestamp"},
	"imported": {"importedclicks"},
	"clicks":   {"clicks", "totalclicks", "visits", "visitscount", "visitcount", "hits", "engagements"},
	"external": {"externalid"},
	"archived": {"archived"},
	"ogtitle":  {"ogtitle"},
	"ogtext":   {"ogdescription"},
	"ogimage":  {"ogimage"},

	"redirectType": {"redirecttype"},
	"forwardQuery": {"forwardquery"},
	"forwardPath":  {"forwardpath"},
	"starts":       {"startsat", "validsince"},
	"expiredUrl":   {"expiredurl"},
	"password":     {"password"},
	"hasPassword":  {"haspassword"},
	"maxClicks":    {"maxclicks", "maxvisits", "clickslimit"},
	"rules":        {"rules"},
	"ios":          {"ios", "iosurl", "iphoneurl"},
	"android":      {"android", "androidurl"},
	"geo":          {"geo"},
	"domainId":     {"domainid"},
}

// Columns lists the names of the columns that [Write] writes.
var Columns = []string{
	"url", "slug", "domain", "domainId", "title", "tags", "expiresAt", "createdAt", "clicks", "importedClicks", "ogTitle", "ogDescription", "ogImage",
	"redirectType", "forwardQuery", "forwardPath", "startsAt", "expiredUrl", "password", "hasPassword", "maxClicks", "rules", "ios", "android", "geo",
	// These two columns identify exports from Linkreel, in which tags may contain bars and
	// semicolons. The last column does not contain free text, so removing white space at the end of
	// the table is harmless.
	"externalId", "archived",
}

// named maps each field of [columns] to its name in [Columns].
var named = func() map[string]string {
	out := map[string]string{}
	for field, i := range pick(Columns) {
		out[field] = Columns[i]
	}
	return out
}()

// Write writes the [Row.Cells] of rows as a CSV table from which [Read] returns the same rows.
// Spreadsheets show every cell as text. All rows must come from the same table.
func Write(w io.Writer, rows []map[string]string) error {
	var head []string
	for i, name := range Columns {
		used := slices.ContainsFunc(rows, func(cells map[string]string) bool { return cells[name] != "" })
		if used || i < 2 || i >= len(Columns)-2 {
			head = append(head, name)
		}
	}
	out := csv.NewWriter(w)
	if err := out.Write(head); err != nil {
		return err
	}
	for _, cells := range rows {
		record := make([]string, len(head))
		for i, name := range head {
			record[i] = SafeCell(cells[name])
		}
		if err := out.Write(record); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// known contains the normalised names of all columns that are imported or listed in understood.
var known = func() map[string]bool {
	all := map[string]bool{}
	for _, names := range columns {
		for _, name := range names {
			all[name] = true
		}
	}
	for _, name := range understood {
		all[name] = true
	}
	return all
}()

// understood lists the columns that are ignored without a warning: ids from the deployment that
// wrote the file, and values that are derived from other columns.
var understood = []string{"id", "_id", "status", "updatedat", "hasrules"}

// pick returns the position of each field in the headings. Bitly calls the short URL "link" and the
// destination "long_url".
func pick(head []string) map[string]int {
	at := map[string]int{}
	first := map[string]int{}
	for i, h := range slices.Backward(head) {
		first[plainName(h)] = i
	}
	find := func(name string) int {
		if i, ok := first[name]; ok {
			return i
		}
		return -1
	}
	for want, names := range columns {
		for _, name := range names {
			if i := find(name); i >= 0 {
				at[want] = i
				break
			}
		}
	}
	// YOURLS's export plugin calls the slug "source" and the destination "target". In other
	// exports, source is the place where a link was posted.
	if _, ok := at["slug"]; !ok && find("target") >= 0 && at["url"] == find("target") && find("source") >= 0 {
		at["slug"] = find("source")
	}
	if find("longurl") >= 0 && at["url"] == find("longurl") && find("link") >= 0 {
		if _, ok := at["slug"]; !ok {
			at["slug"] = find("link")
		}
		if _, ok := at["short"]; !ok {
			at["short"] = find("link")
		}
	}
	return at
}

// byCountry maps each country to the column that holds its destination.
type byCountry map[string]int

// countryColumns finds columns such as geo.DE, in which some exports store the countries of Dub's
// geo. It adds them to at.
func countryColumns(head []string, at map[string]int) byCountry {
	out := byCountry{}
	if _, ok := at["geo"]; ok {
		return out
	}
	for i, h := range head {
		if name, country, ok := strings.Cut(strings.TrimSpace(h), "."); ok && len(country) == 2 && strings.EqualFold(name, "geo") {
			out[strings.ToUpper(country)], at["geo."+country] = i, i
		}
	}
	return out
}

// in returns a row's countries and their destinations in the format of Dub's geo.
func (c byCountry) in(record []string) string {
	places := map[string]string{}
	for country, i := range c {
		if i < len(record) && record[i] != "" && record[i] != "null" {
			places[country] = strings.TrimSpace(PlainCell(record[i]))
		}
	}
	text, _ := json.Marshal(places) // encoding strings cannot fail
	return string(text)
}

// leftOut returns the headings of the columns that are ignored: unknown headings and repeated
// headings.
func leftOut(head []string, at map[string]int) (names []string) {
	taken := slices.Collect(maps.Values(at))
	seen := map[string]bool{}
	for i, h := range head {
		name := plainName(h)
		switch {
		case name == "" || slices.Contains(taken, i) || slices.Contains(understood, name):
		case known[name] && seen[name]:
			names = append(names, "a second "+strings.TrimSpace(h))
		case !known[name]:
			names = append(names, strings.TrimSpace(h))
		}
		seen[name] = true
	}
	return names
}

// few joins names for a message. It shortens the list because a table may have thousands of
// columns.
func few(names []string) string {
	const most = 20
	out := make([]string, 0, most)
	for _, name := range names[:min(len(names), most)] {
		name = strings.ToValidUTF8(name, "\ufffd")
		if r := []rune(name); len(r) > 80 {
			name = string(r[:80]) + "…"
		}
		out = append(out, name)
	}
	if more := len(names) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, ", ")
}

var blanks = strings.NewReplacer(" ", "", "_", "", "-", "")

func plainName(s string) string {
	return blanks.Replace(strings.ToLower(strings.TrimSpace(strings.TrimPrefix(s, "\ufeff"))))
}

func csvRows(r io.Reader, note func(string)) (func() (Row, error), error) {
	in := &recorder{in: Text(r)}
	cr := csv.NewReader(in)
	start, _ := in.in.Peek(4096) // a later read reports the error
	cr.Comma = separator(start)
	cr.FieldsPerRecord, cr.LazyQuotes, cr.ReuseRecord = -1, true, false
	head, err := cr.Read()
	if errors.Is(err, io.EOF) {
		return func() (Row, error) { return Row{}, io.EOF }, nil
	}
	if err != nil {
		return nil, err
	}
	at := pick(head)
	_, ours := at["domainId"]
	countries := countryColumns(head, at)
	var pending []string
	if _, ok := at["url"]; !ok {
		if !strings.Contains(head[0], "://") || strings.Contains(head[0], "\n") || strings.HasPrefix(head[0], "{") {
			return nil, fmt.Errorf("no column holds the destination: rename that column to url (found %s)", few(head))
		}
		at, pending = map[string]int{"url": 0, "slug": 1, "title": 2}, head // no headings
	} else if names := leftOut(head, at); len(names) > 0 {
		note("the columns " + few(names))
	}
	return func() (Row, error) {
		record := pending
		if pending = nil; record == nil {
			in.begin(cr.InputOffset())
			record, err = cr.Read()
		}
		var parse *csv.ParseError
		switch {
		case errors.As(err, &parse):
			return Row{Line: parse.StartLine, Bad: parse.Err.Error()}, nil
		case err != nil: // io.EOF too
			return Row{}, err
		}
		line, _ := cr.FieldPos(0)
		if bad := in.wrong(cr.InputOffset(), line, cr.Comma); bad != "" {
			return Row{Line: line, Bad: bad}, nil
		}
		get := func(name string) string {
			if name == "geo" && len(countries) > 0 {
				return countries.in(record)
			}
			if i, ok := at[name]; ok && i < len(record) {
				cell := PlainCell(record[i])
				if cell == "null" && !ours { // other services write null for an unset value
					return ""
				}
				if name == "title" || name == "ogtitle" || name == "ogtext" || name == "password" {
					return cell // keep the spaces in free text
				}
				return strings.TrimSpace(cell)
			}
			return ""
		}
		return makeRow(line, get, tagsOf(get("tags"), at)).on(at), nil
	}, nil
}

// maxNotes limits the number of notes about a JSON Lines file because each line may have different
// fields.
const maxNotes = 50

func jsonRows(r io.Reader, note func(string)) func() (Row, error) {
	in := Text(r)
	line, told := 0, map[string]bool{}
	return func() (Row, error) {
		for {
			text, long, err := readLine(in)
			if err != nil {
				return Row{}, err
			}
			line++
			if long {
				return Row{Line: line, Bad: "the line is longer than 1 MiB"}, nil
			}
			if len(text) == 0 {
				continue
			}
			var fields map[string]any
			if json.Unmarshal(text, &fields) != nil {
				return Row{Line: line, Bad: "not a JSON object; a JSON Lines file has one object on each line"}, nil
			}
			// In an account's export, each line has a type. Only links are imported.
			if kind, ok := fields["type"].(string); ok && fields["url"] == nil {
				if data, ok := fields["data"].(map[string]any); ok {
					if kind != "link" {
						continue
					}
					fields = data
				}
			}
			flatten(fields)
			names := slices.Sorted(maps.Keys(fields))
			at := pick(names)
			for _, name := range leftOut(names, at) {
				if !told[name] && len(told) < maxNotes {
					told[name] = true
					note("the field " + few([]string{name}))
				}
			}
			return jsonRow(line, fields, names, at), nil
		}
	}
}

// readLine returns a line without its line break and surrounding white space. long is true for a
// line longer than maxRow, which is skipped. The error is io.EOF after the last line.
func readLine(in *bufio.Reader) (text []byte, long bool, err error) {
	for more := true; more; {
		var part []byte
		part, err = in.ReadSlice('\n')
		if more = errors.Is(err, bufio.ErrBufferFull); len(text)+len(part) > maxRow {
			text, long = nil, true
		} else if !long {
			text = append(text, part...)
		}
	}
	if errors.Is(err, io.EOF) && (len(text) > 0 || long) {
		err = nil
	}
	return bytes.TrimSpace(text), long, err
}

// lifted lists the fields of Shlink's meta that flatten moves.
var lifted = []string{"validSince", "validUntil", "maxVisits"}

// flatten moves the fields of Shlink's nested objects to the top level. A link's total visits
// become its clicks.
func flatten(fields map[string]any) {
	lift := func(from, name, to string) {
		if o, ok := fields[from].(map[string]any); ok && fields[to] == nil && o[name] != nil {
			fields[to] = o[name]
		}
	}
	if fields["visitsCount"] == nil { // older versions of Shlink have a number here
		lift("visitsSummary", "total", "visitsCount")
	}
	for _, name := range lifted {
		lift("meta", name, name)
	}
	delete(fields, "visitsSummary")
	if meta, ok := fields["meta"].(map[string]any); ok && !slices.ContainsFunc(slices.Collect(maps.Keys(meta)), func(name string) bool { return !slices.Contains(lifted, name) }) {
		delete(fields, "meta")
	}
}

func jsonRow(line int, fields map[string]any, names []string, at map[string]int) Row {
	get := func(name string) string {
		i, ok := at[name]
		if !ok {
			return ""
		}
		switch v := fields[names[i]].(type) {
		case []any, map[string]any:
			if name == "rules" || name == "geo" {
				text, _ := json.Marshal(v) // encoding cannot fail: the value was decoded from JSON
				return string(text)
			}
		}
		return plain(fields[names[i]])
	}
	tags := tagsOf(get("tags"), at)
	if i, ok := at["tags"]; ok {
		if list, ok := fields[names[i]].([]any); ok {
			tags = tagsIn(list)
		}
	}
	return makeRow(line, get, tags).on(at)
}

// plain converts a JSON value to the text of a table cell.
func plain(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return strings.Join(tagsIn(v), ",")
	}
	return ""
}

// makeRow turns a row's cells into a link. In exports, the slug may be a full short URL, whose host
// becomes the link's domain.
func makeRow(line int, get func(string) string, tags []string) Row {
	slug, host := get("slug"), get("domain")
	if whole, err := url.Parse(cmp.Or(get("short"), slug)); err == nil && whole.Host != "" && host == "" {
		host = whole.Hostname()
	}
	if h, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(host, "https://"), "http://"), "/"); ok || h != "" {
		host = strings.ToLower(h)
	}
	slug, nested := slugIn(slug, get("short"))
	r := Row{Line: line, Host: host, DomainID: get("domainId"), Item: client.LinkCreate{
		URL: get("url"), Slug: slug, Title: get("title"), Tags: tags, ExternalID: get("external"),
		OGTitle: get("ogtitle"), OGDescription: get("ogtext"), OGImage: get("ogimage"),
		ExpiresAt: momentOf(get("expires")), CreatedAt: momentOf(get("created")),
	}}
	r.Item.Archived, _ = strconv.ParseBool(get("archived")) // any other value means false
	// If there is a time, send clicks even if they are zero: clicks mark the link as imported, and
	// the deployment accepts a time only for imported links.
	n, err := strconv.ParseInt(get("clicks"), 10, 64)
	before, errBefore := strconv.ParseInt(get("imported"), 10, 64)
	if err == nil && n > 0 || errBefore == nil || !r.Item.CreatedAt.IsZero() {
		n = max(n, 0) + max(before, 0) // add the clicks from an earlier import
		r.Item.ImportedClicks = &n
	}
	r.Cells = map[string]string{}
	for field, name := range named {
		cell := get(field)
		switch field { // makeRow may have derived these from other columns
		case "slug":
			cell = slug
		case "domain":
			cell = host
		case "tags":
			cell = strings.Join(tags, ",")
		}
		if cell = strings.ToValidUTF8(cell, "\ufffd"); cell != "" {
			r.Cells[name] = cell
		}
	}
	if r.Bad = addRouting(&r.Item, get); nested {
		r.Bad = "the slug " + slug + " contains a slash, which Linkreel does not support"
	}
	switch {
	case !validText(&r.Item, get("rules")):
		r.Bad = "not valid UTF-8; save the file as UTF-8"
	case r.Size() > maxItem:
		r.Bad = "the row is too large"
	default:
		return r
	}
	r.Item = client.LinkCreate{URL: few([]string{r.Item.URL})} // identifies the row
	return r
}

// slugIn returns the slug from a cell, which may contain a full short URL or a path as in YOURLS
// (/slug/). nested is true for a slug with a slash, which Linkreel does not support. Keeping only
// its last part would change the short URL.
func slugIn(cell, short string) (slug string, nested bool) {
	_, rest, whole := strings.Cut(cell, "://")
	if !whole {
		rest = cell
	}
	rest = strings.Trim(rest, "/")
	host, after, ok := strings.Cut(rest, "/")
	if !ok {
		return rest, false
	}
	if whole || strings.Contains(host, ".") && cell == short { // bit.ly/slug
		return after, strings.Contains(after, "/")
	}
	return rest, true
}

// validText reports whether all text in a row is valid UTF-8. Encoding it as JSON would replace
// invalid bytes.
func validText(item *client.LinkCreate, rules string) bool {
	for _, text := range append(
		[]string{item.URL, item.Slug, item.Title, item.ExternalID, item.OGTitle, item.OGDescription, item.OGImage, item.ExpiredURL, item.Password, rules},
		item.Tags...,
	) {
		if !utf8.ValidString(text) {
			return false
		}
	}
	return true
}

// on returns the row with its DomainID. Only exports from Linkreel have a column for it, which is
// empty for the default host. at contains the table's columns.
func (r Row) on(at map[string]int) Row {
	if _, ours := at["domainId"]; ours && r.DomainID == "" {
		r.DomainID, r.Cells["domainId"] = DefaultHost, DefaultHost
	}
	return r
}

func tagsIn(list []any) (tags []string) {
	for _, e := range list {
		if m, ok := e.(map[string]any); ok { // Dub's tags are objects with a name
			e = m["name"]
		}
		tags = append(tags, plain(e))
	}
	return tags
}

// tagsOf splits a cell with tags. Other services separate tags with a comma, a bar or a semicolon,
// and Shlink and Dub do not allow these characters in tags. Linkreel tags may contain them, so a
// cell from a Linkreel export, which is recognised by its columns, is split only at commas.
func tagsOf(s string, columns map[string]int) (tags []string) {
	_, external := columns["external"]
	_, archived := columns["archived"]
	ours := external && archived
	for t := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' || !ours && (r == '|' || r == ';') }) {
		if t = strings.TrimSpace(t); t != "" {
			tags = append(tags, t)
		}
	}
	return tags
}

// momentOf parses the time formats in exports. It passes any other text through unchanged, and the
// service quotes it in its error.
func momentOf(s string) client.Time {
	if s == "" || s == "0" || strings.EqualFold(s, "null") || strings.EqualFold(s, "never") {
		return client.Time{}
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		if n < 100_000_000_000 { // as seconds, this would be the year 5138
			n *= 1000
		}
		return client.At(time.UnixMilli(n))
	}
	for _, form := range []string{time.RFC3339, time.DateTime, time.DateOnly, "2006-01-02T15:04:05", "2006-01-02T15:04:05-0700", "01/02/2006"} {
		if t, err := time.Parse(form, s); err == nil {
			return client.At(t)
		}
	}
	return client.Text(s)
}

// ParseRules reads rules from JSON text. It rejects unknown names because dropping an unknown
// condition would redirect every visitor to the rule's destination.
func ParseRules(text string) ([]client.LinkRule, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	var rules []client.LinkRule
	err := d.Decode(&rules)
	if err == nil && d.InputOffset() < int64(len(strings.TrimRight(text, " \t\r\n"))) {
		err = errors.New("unexpected text after the list")
	}
	if err != nil {
		return nil, fmt.Errorf(`rules must be a JSON list such as [{"name":"…","when":{"device":["phone"]},"url":"https://…"}]: %w`, err)
	}
	return rules, nil
}

// addRouting parses the cells in a row that decide where a visit is redirected. It returns a
// description of the first error. It does not ignore invalid values, because a link without its
// limit or rules would redirect visitors to the wrong destination.
func addRouting(item *client.LinkCreate, get func(string) string) (bad string) {
	refuse := func(what string) {
		if bad == "" {
			bad = what
		}
	}
	whole := func(name string, to **int64) {
		cell := get(name)
		if cell == "" || cell == "null" {
			return
		}
		if n, err := strconv.ParseInt(cell, 10, 64); err != nil {
			refuse(name + " must be a whole number")
		} else {
			*to = &n
		}
	}
	truth := func(name string, to *bool) {
		var err error
		if cell := get(name); cell != "" && cell != "null" {
			if *to, err = strconv.ParseBool(cell); err != nil {
				refuse(name + " must be true or false")
			}
		}
	}
	whole("redirectType", &item.RedirectType)
	if item.RedirectType != nil && *item.RedirectType == 302 {
		item.RedirectType = nil // 302 is the default; omit it for deployments without this field
	}
	whole("maxClicks", &item.MaxClicks)
	truth("forwardQuery", &item.ForwardQuery)
	truth("forwardPath", &item.ForwardPath)
	truth("hasPassword", &item.HasPassword)
	item.StartsAt, item.ExpiredURL, item.Password = momentOf(get("starts")), get("expiredUrl"), get("password")
	if cell := get("rules"); cell != "" && cell != "null" {
		rules, err := ParseRules(cell)
		if item.Rules = rules; err != nil {
			refuse(err.Error())
		}
	}
	if hashed.MatchString(item.Password) {
		item.Password = ""
		refuse("the password is hashed or hidden, so it cannot be imported; set a new one in this row")
	}
	for _, s := range []struct{ column, name string }{{"ios", "iOS"}, {"android", "Android"}} {
		if to := get(s.column); to != "" && to != "null" {
			item.Rules = append(item.Rules, client.LinkRule{Name: s.name, When: client.LinkRuleWhen{System: []string{s.column}}, URL: to})
		}
	}
	if cell := get("geo"); cell != "" && cell != "null" {
		var places map[string]string
		if json.Unmarshal([]byte(cell), &places) != nil {
			refuse("geo must be a JSON object that maps countries to addresses")
		}
		for _, country := range slices.Sorted(maps.Keys(places)) {
			item.Rules = append(item.Rules, client.LinkRule{
				Name: "Country " + country, When: client.LinkRuleWhen{Country: []string{country}}, URL: places[country],
			})
		}
	}
	return bad
}

// hashed matches password cells from other services that contain a hash or asterisks. If the cell
// were imported as the password, everyone who knows the real password would be locked out.
var hashed = regexp.MustCompile(`^(\$[A-Za-z0-9]+\$.+|\*{3,}|[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9a-f]{128})$`)
