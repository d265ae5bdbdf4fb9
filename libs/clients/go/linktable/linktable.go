// Package linktable reads tables of links: CSV and JSON Lines, as this product and Bitly, Dub,
// Short.io, YOURLS and Shlink export them.
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

// Formats of a table.
const (
	CSV       = "csv" // separated by commas or tabs
	JSONLines = "jsonl"
)

// DefaultHost is the domain of a row that was on the default short host.
const DefaultHost = "default"

// Row is one line of a table.
type Row struct {
	Line     int // its number in the file, from 1
	Item     client.BulkItem
	Host     string // the host of the link's previous short address, in lower case
	DomainID string // in the deployment that wrote the file, or DefaultHost; "" if the file does not say
	Bad      string // why it cannot be sent; "" if it can
	// Cells are the cells of the row that have a text, by the names of [Columns]. [Write] writes
	// them, for example after somebody has corrected them.
	Cells map[string]string
}

// tabbed matches a table whose first line has a tab.
var tabbed = regexp.MustCompile(`^[^\n]*\t`)

// Format returns the format of a file by its name.
func Format(file string) string {
	switch strings.ToLower(path.Ext(file)) {
	case ".jsonl", ".ndjson", ".json":
		return JSONLines
	}
	return CSV
}

// Read returns a function that returns the rows of a table one by one, then io.EOF. A CSV
// table without headings has the columns destination, slug and title. Read calls note with
// the columns that are not kept.
func Read(r io.Reader, format string, note func(what string)) (next func() (Row, error), err error) {
	if format == JSONLines {
		return jsonRows(r, note), nil
	}
	return csvRows(r, note)
}

// Names that columns have in our own exports and in those of Bitly, Dub, Short.io,
// YOURLS and Shlink, in lower case and without blanks, dashes and underscores.
// Earlier names win.
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

// Columns are the names of the columns that [Write] writes.
var Columns = []string{
	"url", "slug", "domain", "domainId", "title", "tags", "expiresAt", "createdAt", "clicks", "importedClicks", "ogTitle", "ogDescription", "ogImage",
	"redirectType", "forwardQuery", "forwardPath", "startsAt", "expiredUrl", "password", "hasPassword", "maxClicks", "rules", "ios", "android", "geo",
	// Tables with these two columns are ours, so tags can contain bars and semicolons. The last
	// column holds no free text, so a reader that trims the table takes nothing away.
	"externalId", "archived",
}

// named has the name that each field of [columns] has among [Columns].
var named = func() map[string]string {
	out := map[string]string{}
	for field, i := range pick(Columns) {
		out[field] = Columns[i]
	}
	return out
}()

// Write writes rows, given by their [Row.Cells], as a CSV table that [Read] reads as they
// were. Spreadsheets show every cell as text. All rows must be of one table.
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

// understood are columns that are ignored without a warning: ids of the deployment that
// wrote the file, and values that follow from other columns.
var understood = []string{"id", "_id", "status", "updatedat", "hasrules"}

// pick returns the position of each field in a heading. Bitly calls the short address
// "link" and the destination "long_url".
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

// leftOut lists the headings that are not used.
func leftOut(head []string, at map[string]int) (names []string) {
	taken := slices.Collect(maps.Values(at))
	for i, h := range head {
		if name := plainName(h); name != "" && !slices.Contains(taken, i) && !slices.Contains(understood, name) && !slices.ContainsFunc(
			slices.Collect(maps.Values(columns)), func(n []string) bool { return slices.Contains(n, name) },
		) {
			names = append(names, strings.TrimSpace(h))
		}
	}
	return names
}

var blanks = strings.NewReplacer(" ", "", "_", "", "-", "")

func plainName(s string) string {
	return blanks.Replace(strings.ToLower(strings.TrimSpace(strings.TrimPrefix(s, "\ufeff"))))
}

func csvRows(r io.Reader, note func(string)) (func() (Row, error), error) {
	in := bufio.NewReader(r)
	cr := csv.NewReader(in)
	if start, _ := in.Peek(4096); tabbed.Match(start) { // a later read reports the error
		cr.Comma = '\t'
	}
	cr.FieldsPerRecord, cr.LazyQuotes, cr.ReuseRecord = -1, true, false
	head, err := cr.Read()
	if errors.Is(err, io.EOF) {
		return func() (Row, error) { return Row{}, io.EOF }, nil
	}
	if err != nil {
		return nil, err
	}
	at := pick(head)
	var pending []string
	if _, ok := at["url"]; !ok {
		if !strings.Contains(head[0], "://") || strings.Contains(head[0], "\n") {
			return nil, fmt.Errorf("no column holds the destination: name one of them url (found %s)", strings.Join(head, ", "))
		}
		at, pending = map[string]int{"url": 0, "slug": 1, "title": 2}, head // no headings
	} else if names := leftOut(head, at); len(names) > 0 {
		note("the columns " + strings.Join(names, ", "))
	}
	return func() (Row, error) {
		record := pending
		pending = nil
		if record == nil {
			if record, err = cr.Read(); errors.Is(err, io.EOF) {
				return Row{}, io.EOF
			}
		}
		var parse *csv.ParseError
		if errors.As(err, &parse) {
			return Row{Line: parse.StartLine, Bad: parse.Err.Error()}, nil
		}
		if err != nil {
			return Row{}, err
		}
		line, _ := cr.FieldPos(0)
		get := func(name string) string {
			if i, ok := at[name]; ok && i < len(record) {
				cell := PlainCell(record[i])
				if name == "title" || name == "ogtitle" || name == "ogtext" || name == "password" {
					return cell // keep the spaces in texts
				}
				return strings.TrimSpace(cell)
			}
			return ""
		}
		return makeRow(line, get, tagsOf(get("tags"), at)).on(at), nil
	}, nil
}

func jsonRows(r io.Reader, note func(string)) func() (Row, error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	line, told := 0, map[string]bool{}
	return func() (Row, error) {
		for s.Scan() {
			line++
			text := bytes.TrimSpace(bytes.TrimPrefix(s.Bytes(), []byte("\ufeff")))
			if len(text) == 0 {
				continue
			}
			var fields map[string]any
			if json.Unmarshal(text, &fields) != nil {
				return Row{Line: line, Bad: "not a JSON object"}, nil
			}
			// A line of an account's export names its type; only links are imported.
			if kind, ok := fields["type"].(string); ok && fields["url"] == nil {
				if data, ok := fields["data"].(map[string]any); ok {
					if kind != "link" {
						continue
					}
					fields = data
				}
			}
			names := slices.Sorted(maps.Keys(fields))
			at := pick(names)
			for _, name := range leftOut(names, at) {
				if !told[name] {
					told[name] = true
					note("the field " + name)
				}
			}
			get := func(name string) string {
				i, ok := at[name]
				if !ok {
					return ""
				}
				switch v := fields[names[i]].(type) {
				case []any, map[string]any:
					if name == "rules" || name == "geo" {
						text, _ := json.Marshal(v) // it was decoded from JSON
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
			return makeRow(line, get, tags).on(at), nil
		}
		if err := s.Err(); err != nil {
			return Row{}, err
		}
		return Row{}, io.EOF
	}
}

// plain writes a JSON value as a table cell would show it.
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

// makeRow turns a row's cells into a link. In exports the slug may be a whole short
// address; its host then becomes the link's domain.
func makeRow(line int, get func(string) string, tags []string) Row {
	slug, host := get("slug"), get("domain")
	if whole, err := url.Parse(cmp.Or(get("short"), slug)); err == nil && whole.Host != "" && host == "" {
		host = whole.Hostname()
	}
	if h, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(host, "https://"), "http://"), "/"); ok || h != "" {
		host = strings.ToLower(h)
	}
	if strings.Contains(slug, "/") {
		slug = path.Base(slug)
	}
	r := Row{Line: line, Host: host, DomainID: get("domainId"), Item: client.BulkItem{
		URL: get("url"), Slug: slug, Title: get("title"), Tags: tags, ExternalID: get("external"),
		OGTitle: get("ogtitle"), OGDescription: get("ogtext"), OGImage: get("ogimage"),
		ExpiresAt: momentOf(get("expires")), CreatedAt: momentOf(get("created")),
	}}
	r.Item.Archived, _ = strconv.ParseBool(get("archived")) // any other value means false
	// Zero clicks are sent too when there is a time: clicks mark the link as imported, and
	// the deployment accepts a time only for imported links.
	n, err := strconv.ParseInt(get("clicks"), 10, 64)
	before, errBefore := strconv.ParseInt(get("imported"), 10, 64)
	if err == nil && n > 0 || errBefore == nil || !r.Item.CreatedAt.IsZero() {
		n = max(n, 0) + max(before, 0) // add those from an earlier import
		r.Item.ImportedClicks = &n
	}
	r.Cells = map[string]string{}
	for field, name := range named {
		cell := get(field)
		switch field { // these may come from other columns
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
	r.Bad = addRouting(&r.Item, get)
	if b, err := json.Marshal(r.Item); err != nil || !utf8.ValidString(
		r.Item.URL+slug+r.Item.Title+strings.Join(r.Item.Tags, "")+r.Item.ExpiredURL+r.Item.Password+get("rules"),
	) || !utf8.Valid(b) {
		r.Bad = "not valid UTF-8"
		r.Item = client.BulkItem{URL: strings.ToValidUTF8(r.Item.URL, "\ufffd")}
	}
	return r
}

// on returns the row with its domain. Only our exports have a column for it, which is empty
// on the default host. at has the columns of the table.
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

// tagsOf splits a cell of tags. Other services separate them by a comma, a bar or a
// semicolon, and Shlink and Dub never use one within a tag. Our own tags may contain bars
// and semicolons, so our exports are recognised by their columns.
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

// momentOf reads the time formats that exports use. It passes any other text unchanged to the
// service, and the service's error names it.
func momentOf(s string) client.Moment {
	if s == "" || s == "0" || strings.EqualFold(s, "null") || strings.EqualFold(s, "never") {
		return client.Moment{}
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

// ParseRules reads rules from JSON text. It refuses an unknown name: a condition that is
// dropped would lead every visitor to the rule's address.
func ParseRules(text string) ([]client.LinkRule, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	var rules []client.LinkRule
	err := d.Decode(&rules)
	if err == nil && d.InputOffset() < int64(len(strings.TrimRight(text, " \t\r\n"))) {
		err = errors.New("text after the list")
	}
	if err != nil {
		return nil, fmt.Errorf(`rules must be a JSON list such as [{"name":"…","when":{"device":["phone"]},"url":"https://…"}]: %w`, err)
	}
	return rules, nil
}

// addRouting reads the cells of a row about what a link decides at a visit. It returns what
// is wrong with them. A wrong value is not ignored: a link without its limit or its rules
// would lead visitors elsewhere.
func addRouting(item *client.BulkItem, get func(string) string) (bad string) {
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
		item.RedirectType = nil // the default, so a deployment that does not know the field loses nothing
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
			refuse("geo must be a JSON object of countries and addresses")
		}
		for _, country := range slices.Sorted(maps.Keys(places)) {
			item.Rules = append(item.Rules, client.LinkRule{
				Name: "Country " + country, When: client.LinkRuleWhen{Country: []string{country}}, URL: places[country],
			})
		}
	}
	return bad
}

// hashed matches passwords of other services that are hashes or stars. If we imported them
// unchanged, they would lock out everyone who knows the real password.
var hashed = regexp.MustCompile(`^(\$[A-Za-z0-9]+\$.+|\*{3,}|[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9a-f]{128})$`)
