package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

// row is one line of an import.
type row struct {
	line int // its number in the file, for messages
	item client.BulkItem
	host string // host of its previous short address
	bad  string // why it cannot be sent
}

// outcome is the result of a row: part of a journal line, and a line of --json.
type outcome struct {
	Line     int    `json:"line"`
	Status   int    `json:"status"`
	ID       string `json:"id,omitempty"`
	ShortURL string `json:"shortUrl,omitempty"`
	URL      string `json:"url"`
	Slug     string `json:"slug,omitempty"`
	Code     string `json:"code,omitempty"`
	Message  string `json:"message,omitempty"`
	// Lost lists the fields that the deployment does not accept. Host is the link's
	// previous host.
	Lost []string `json:"notKept,omitempty"`
	Host string   `json:"host,omitempty"`
}

func linksBulk(a *app, fs *flag.FlagSet) action {
	o := importer{app: a}
	fs.StringVar(&o.format, "format", "", "csv or jsonl (default by the file's name)")
	fs.StringVar(&o.journal, "journal", "", "`file` that records finished rows (default FILE.linkreel-journal; none for standard input)")
	fs.BoolVar(&o.dryRun, "dry-run", false, "only read and check the file")
	fs.BoolVar(&o.restart, "restart", false, "ignore an earlier run of this file")
	return func(ctx context.Context, args []string) error {
		file, err := one(args, "FILE (- is standard input)")
		if err != nil {
			return err
		}
		return o.run(ctx, file)
	}
}

// importer sends a file in chunks of 100 rows. Chunks are cut by position, and each chunk's
// outcomes are written to a journal before the next chunk is sent. If a run is killed in
// between, the next one sends the unfinished chunk again with the same Idempotency-Key. The
// service then replays its results and creates nothing twice.
type importer struct {
	*app
	format, journal string
	dryRun, restart bool

	client *client.Client
	log    *journal
	single bool // the plan has no bulk requests: send rows one by one

	domains map[string]string // the account's verified host names, to ids
	lost    map[string]int    // number of links that lost something, by description
}

func (o *importer) run(ctx context.Context, file string) error {
	src, size, err := o.open(file)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }() // it was only read
	counted := &counting{r: src}
	next, err := o.reader(file, counted)
	if err != nil {
		return err
	}
	if !o.dryRun {
		if o.client, err = o.connect(); err != nil {
			return err
		}
		if o.log, err = o.openJournal(file); err != nil {
			return err
		}
		defer func() { _ = o.log.close() }() // each chunk has been synced
		if err := o.knowDomains(ctx); err != nil {
			return err
		}
	}
	bar := o.bar(file, size)
	defer bar.end()
	made, failed, seen := 0, 0, map[string]int{}
	for chunk, done := 0, false; !done; chunk++ {
		var rows []row
		for len(rows) < client.BulkMax {
			r, err := next()
			if errors.Is(err, io.EOF) {
				done = true
				break
			}
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			rows = append(rows, r)
		}
		if len(rows) == 0 {
			break
		}
		out, err := o.chunk(ctx, chunk, rows, seen)
		if err != nil {
			bar.end()
			if o.log != nil && o.log.f != nil {
				o.note("Stopped after %d links. Run the same command to resume.", made)
			}
			return err
		}
		for _, r := range out {
			if r.Status == 201 || r.Status == 0 {
				made++
				o.miss(r)
			} else {
				failed++
				bar.clear()
				if !o.json {
					fmt.Fprintf(o.env.Err, "line %d: %s: %s %s\n", r.Line, clean(r.Code), clean(r.Message), clean(short(r.URL)))
				}
			}
			if o.json {
				if err := o.print(r, nil); err != nil {
					return err
				}
			}
		}
		bar.set(counted.n)
	}
	bar.end()
	verb := "created"
	if o.dryRun {
		verb = "would create"
	}
	o.note("%s %d links, %d rows failed", verb, made, failed)
	for _, what := range slices.Sorted(maps.Keys(o.lost)) {
		o.note("not kept: %s (%d links)", clean(what), o.lost[what])
	}
	if failed > 0 {
		return &partly{failed, made + failed}
	}
	return nil
}

// knowDomains finds the account's host names, so that links keep their hosts. If the key may not
// list them, all links go to the default host, and the import reports that.
func (o *importer) knowDomains(ctx context.Context) error {
	o.domains = map[string]string{}
	list, err := o.client.Domains(ctx)
	var refused *client.Error
	// A wrong key (401), too many calls (429) and an outage (5xx) would fail each row as well, so they
	// end the import. Any other refusal concerns domains only: the plan or the key's scopes do not
	// include them.
	if errors.As(err, &refused) && refused.Status < 500 && refused.Status != 401 && refused.Status != 429 {
		return nil
	}
	for _, d := range list {
		if d.Status == "verified" {
			o.domains[strings.ToLower(d.Hostname)] = d.ID
		}
	}
	return err
}

// miss counts the parts of a row that the created link has lost.
func (o *importer) miss(r outcome) {
	if o.lost == nil {
		o.lost = map[string]int{}
	}
	for _, field := range r.Lost {
		o.lost[field+", which this deployment does not take"]++
	}
	made, err := url.Parse(r.ShortURL)
	if r.Host != "" && r.ShortURL != "" && err == nil && !strings.EqualFold(made.Hostname(), r.Host) {
		o.lost["the host "+r.Host+", which is not a verified domain of the account; the links are on "+made.Hostname()]++
	}
}

func (o *importer) open(file string) (io.ReadCloser, int64, error) {
	if file == "-" {
		return io.NopCloser(o.env.In), 0, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close() // the first error is the one to report
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// chunk returns the outcomes of rows, from the journal or from the service.
func (o *importer) chunk(ctx context.Context, n int, rows []row, seen map[string]int) ([]outcome, error) {
	sum := digest(rows)
	if o.log != nil {
		if old, ok := o.log.done[n]; ok {
			if old.Sum != sum { // the rows have changed: resuming would skip some and create some twice
				return nil, fmt.Errorf("the file has changed since an earlier run, from line %d on; use --restart to start again", rows[0].line)
			}
			return old.Rows, nil
		}
	}
	out := make([]outcome, len(rows))
	var items []client.BulkItem
	var at []int // the index in rows of each item, since bad rows are not sent
	for i, r := range rows {
		out[i] = outcome{Line: r.line, URL: r.item.URL, Slug: r.item.Slug, Host: r.host}
		r.item.DomainID = o.domains[r.host]
		if o.dryRun && r.bad == "" {
			out[i].Code, out[i].Message = check(r, seen)
		}
		if r.bad != "" {
			out[i].Code, out[i].Message = "INVALID_ROW", r.bad
		}
		if out[i].Code != "" {
			out[i].Status = 400
			continue
		}
		items, at = append(items, r.item), append(at, i)
	}
	if o.dryRun {
		return out, nil
	}
	if len(items) > 0 {
		// A run after a kill uses the same key, so that the service replays its first
		// answer.
		results, err := o.send(ctx, o.log.ID+"-"+sum[:32]+fmt.Sprint("-", n), items)
		if err != nil {
			return nil, err
		}
		for k, res := range results {
			out[at[k]].take(res)
		}
	}
	return out, o.log.add(doneChunk{Chunk: n, Sum: sum, Rows: out})
}

// take stores the service's result for a row.
func (r *outcome) take(res client.BulkResult) {
	r.Status, r.Lost = res.Status, res.IgnoredFields
	switch {
	case res.Data != nil:
		r.ID, r.ShortURL, r.Slug = res.Data.ID, res.Data.ShortURL, res.Data.Slug
	case res.Error != nil:
		r.Code, r.Message = res.Error.Code, res.Error.Message
		var fields []string
		for _, d := range res.Error.Details {
			fields = append(fields, d.Field+": "+d.Message)
		}
		if len(fields) > 0 { // more useful than "some fields are wrong"
			r.Message = strings.Join(fields, " ")
		}
	}
}

// send creates links with the bulk operation, or one by one on plans without it.
func (o *importer) send(ctx context.Context, key string, items []client.BulkItem) ([]client.BulkResult, error) {
	if !o.single {
		results, err := o.client.BulkCreate(client.WithIdempotencyKey(ctx, key), items)
		if !client.HasCode(err, "PLAN_REQUIRED") {
			return results, err
		}
		o.note("this plan has no bulk requests: links are created one by one")
		o.single = true
	}
	out := make([]client.BulkResult, len(items))
	for i, item := range items {
		l, err := o.client.CreateLink(client.WithIdempotencyKey(ctx, fmt.Sprint(key, "-", i)), item)
		var refused *client.Error
		switch {
		case err == nil:
			out[i] = client.BulkResult{
				Status: 201, Data: &client.BulkLink{ID: l.ID, ShortURL: l.ShortURL, Slug: l.Slug, DestinationURL: l.DestinationURL},
				IgnoredFields: l.IgnoredFields,
			}
		// Only this row is refused. Any other error would be the same for each row, so it
		// ends the run.
		case errors.As(err, &refused) && (refused.Status == 400 || refused.Status == 409):
			out[i] = client.BulkResult{
				Status: refused.Status,
				Error:  &client.BulkItemFail{Code: refused.Code, Message: refused.Message, URL: item.URL, Details: refused.Details},
			}
		default:
			return nil, err
		}
	}
	return out, nil
}

func digest(rows []row) string {
	h := sha256.New()
	for _, r := range rows {
		item, _ := json.Marshal(r.item) // strings and numbers always encode
		fmt.Fprintf(h, "%s %q %q\n", item, r.host, r.bad)
	}
	return hex.EncodeToString(h.Sum(nil))
}

var slugForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$`)

// check makes the checks of a dry run, which need no service.
func check(r row, seen map[string]int) (code, message string) {
	scheme, rest, ok := strings.Cut(r.item.URL, "://")
	switch scheme = strings.ToLower(scheme); {
	case !ok || scheme != "http" && scheme != "https" || rest == "" || strings.HasPrefix(rest, "/"):
		return "VALIDATION_ERROR", "url must start with http:// or https:// and name a host"
	case r.item.Slug != "" && !slugForm.MatchString(r.item.Slug):
		return "VALIDATION_ERROR", "slug has characters that are not allowed"
	case utf8.RuneCountInString(r.item.Title) > 500:
		return "VALIDATION_ERROR", "title has more than 500 characters"
	}
	if folded := strings.ToLower(r.item.Slug); folded != "" {
		if before, ok := seen[folded]; ok {
			return "SLUG_TAKEN", fmt.Sprintf("line %d has the same slug", before)
		}
		seen[folded] = r.line
	}
	return "", ""
}

func short(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:79]) + "…"
	}
	return s
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
	"maxClicks":    {"maxclicks", "maxvisits"},
	"rules":        {"rules"},
}

// understood are columns that are ignored without a warning: ids of the deployment that
// wrote the file, and values that follow from other columns.
var understood = []string{"id", "_id", "domainid", "status", "updatedat", "hasrules"}

// pick returns the position of each field in a heading. Bitly calls the short address
// "link" and the destination "long_url".
func pick(head []string) map[string]int {
	at := map[string]int{}
	find := func(name string) int {
		return slices.IndexFunc(head, func(h string) bool { return plainName(h) == name })
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

func plainName(s string) string {
	return strings.NewReplacer(" ", "", "_", "", "-", "").Replace(strings.ToLower(strings.TrimSpace(strings.TrimPrefix(s, "\ufeff"))))
}

// reader returns the rows of a file one by one, then io.EOF.
func (o *importer) reader(file string, r io.Reader) (func() (row, error), error) {
	format := o.format
	if format == "" {
		switch strings.ToLower(path.Ext(file)) {
		case ".jsonl", ".ndjson", ".json":
			format = "jsonl"
		default:
			format = "csv"
		}
	}
	switch format {
	case "csv":
		return o.csvRows(r)
	case "jsonl":
		return o.jsonRows(r), nil
	}
	return nil, usagef("--format must be csv or jsonl")
}

func (o *importer) csvRows(r io.Reader) (func() (row, error), error) {
	cr := csv.NewReader(r)
	cr.FieldsPerRecord, cr.LazyQuotes, cr.ReuseRecord = -1, true, false
	head, err := cr.Read()
	if errors.Is(err, io.EOF) {
		return func() (row, error) { return row{}, io.EOF }, nil
	}
	if err != nil {
		return nil, err
	}
	at := pick(head)
	var pending []string
	if _, ok := at["url"]; !ok {
		if !strings.Contains(head[0], "://") {
			return nil, fmt.Errorf("no column holds the destination: name one of them url (found %s)", clean(strings.Join(head, ", ")))
		}
		at, pending = map[string]int{"url": 0, "slug": 1, "title": 2}, head // no headings
	} else if names := leftOut(head, at); len(names) > 0 {
		o.note("not kept: the columns %s", clean(strings.Join(names, ", ")))
	}
	return func() (row, error) {
		record := pending
		pending = nil
		if record == nil {
			if record, err = cr.Read(); errors.Is(err, io.EOF) {
				return row{}, io.EOF
			}
		}
		line, _ := cr.FieldPos(0)
		var parse *csv.ParseError
		if errors.As(err, &parse) {
			return row{line: parse.StartLine, bad: parse.Err.Error()}, nil
		}
		if err != nil {
			return row{}, err
		}
		get := func(name string) string {
			if i, ok := at[name]; ok && i < len(record) {
				cell := plainCell(record[i])
				if name == "title" || name == "ogtitle" || name == "ogtext" || name == "password" {
					return cell // keep the spaces in texts
				}
				return strings.TrimSpace(cell)
			}
			return ""
		}
		return makeRow(line, get, tagsOf(get("tags"), at)), nil
	}, nil
}

func (o *importer) jsonRows(r io.Reader) func() (row, error) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	line, told := 0, map[string]bool{}
	return func() (row, error) {
		for s.Scan() {
			line++
			text := bytes.TrimSpace(bytes.TrimPrefix(s.Bytes(), []byte("\ufeff")))
			if len(text) == 0 {
				continue
			}
			var fields map[string]any
			if json.Unmarshal(text, &fields) != nil {
				return row{line: line, bad: "not a JSON object"}, nil
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
					o.note("not kept: the field %s", clean(name))
				}
			}
			get := func(name string) string {
				i, ok := at[name]
				if !ok {
					return ""
				}
				if list, ok := fields[names[i]].([]any); ok && name == "rules" {
					text, _ := json.Marshal(list) // it was decoded from JSON
					return string(text)
				}
				return plain(fields[names[i]])
			}
			tags := tagsOf(get("tags"), at)
			if i, ok := at["tags"]; ok {
				if list, ok := fields[names[i]].([]any); ok {
					tags = tagsIn(list)
				}
			}
			return makeRow(line, get, tags), nil
		}
		if err := s.Err(); err != nil {
			return row{}, err
		}
		return row{}, io.EOF
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
func makeRow(line int, get func(string) string, tags []string) row {
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
	r := row{line: line, host: host, item: client.BulkItem{
		URL: get("url"), Slug: slug, Title: get("title"), Tags: tags, ExternalID: get("external"),
		OGTitle: get("ogtitle"), OGDescription: get("ogtext"), OGImage: get("ogimage"),
		ExpiresAt: momentOf(get("expires")), CreatedAt: momentOf(get("created")),
	}}
	r.item.Archived, _ = strconv.ParseBool(get("archived")) // any other value means false
	// Zero clicks are sent too when there is a time: clicks mark the link as imported, and
	// the deployment accepts a time only for imported links.
	n, err := strconv.ParseInt(get("clicks"), 10, 64)
	before, errBefore := strconv.ParseInt(get("imported"), 10, 64)
	if err == nil && n > 0 || errBefore == nil || !r.item.CreatedAt.IsZero() {
		n = max(n, 0) + max(before, 0) // add those from an earlier import
		r.item.ImportedClicks = &n
	}
	r.bad = addRouting(&r.item, get)
	if b, err := json.Marshal(r.item); err != nil || !utf8.ValidString(
		r.item.URL+slug+r.item.Title+strings.Join(r.item.Tags, "")+r.item.ExpiredURL+r.item.Password+get("rules"),
	) || !utf8.Valid(b) {
		r.bad = "not valid UTF-8"
		r.item = client.BulkItem{URL: strings.ToValidUTF8(r.item.URL, "\ufffd")}
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

// momentOf reads the forms of time in exports. It passes any other form unchanged to the service,
// whose error then names the value.
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
	for _, form := range []string{time.RFC3339, time.DateTime, time.DateOnly, "2006-01-02T15:04:05", "01/02/2006"} {
		if t, err := time.Parse(form, s); err == nil {
			return client.At(t)
		}
	}
	return client.Text(s)
}

// journal is the record of an import: a heading and one line per finished chunk.
type journal struct {
	ID   string
	done map[int]doneChunk
	f    *os.File
}

type doneChunk struct {
	Chunk int       `json:"chunk"`
	Sum   string    `json:"sum"`
	Rows  []outcome `json:"rows"`
}

type journalHead struct {
	Journal string `json:"linkreelJournal"`
	BaseURL string `json:"baseUrl"`
}

func (o *importer) openJournal(file string) (*journal, error) {
	name := o.journal
	if name == "" && file != "-" {
		name = file + ".linkreel-journal"
	}
	if name == "" {
		return &journal{ID: rand.Text()}, nil
	}
	if o.restart {
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &journal{done: map[int]doneChunk{}, f: f}
	if err := j.load(o.address()); err != nil {
		_ = f.Close() // the first error is the one to report
		return nil, fmt.Errorf("journal %s: %w", name, err)
	}
	if len(j.done) > 0 {
		o.note("Resuming after %d rows that are done (%s)", len(j.done)*client.BulkMax, name)
	}
	return j, nil
}

// address returns the address of the deployment, for the journal's heading.
func (a *app) address() string {
	saved, _ := a.login() // connect has reported any error already
	return strings.TrimRight(cmp.Or(a.baseURL, a.env.Getenv("LINKREEL_BASE_URL"), saved.BaseURL), "/")
}

// load reads an existing journal. It drops a line that a kill cut off.
func (j *journal) load(base string) error {
	r := bufio.NewReader(j.f)
	var good int64
	for first := true; ; first = false {
		line, err := r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err != nil {
			break
		}
		if first {
			var head journalHead
			if json.Unmarshal(line, &head) != nil || head.Journal == "" {
				return errors.New("this is not an import journal")
			}
			if head.BaseURL != base {
				return fmt.Errorf("it belongs to %s; use --restart to start again", head.BaseURL)
			}
			j.ID = head.Journal
		} else {
			var c doneChunk
			// After a power cut a line may be damaged although its newline was written. Drop it
			// and all lines after it: their chunks are sent again with the same Idempotency-Key.
			if json.Unmarshal(line, &c) != nil {
				break
			}
			j.done[c.Chunk] = c
		}
		good += int64(len(line))
	}
	// Cut off a partial last line. Otherwise the next line would be appended to it.
	if err := j.f.Truncate(good); err != nil {
		return err
	}
	if _, err := j.f.Seek(good, io.SeekStart); err != nil {
		return err
	}
	if j.ID == "" {
		j.ID = rand.Text()
		return j.write(journalHead{j.ID, base})
	}
	return nil
}

func (j *journal) add(c doneChunk) error {
	if j.f == nil {
		return nil
	}
	return j.write(c)
}

func (j *journal) write(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := j.f.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return j.f.Sync()
}

func (j *journal) close() error {
	if j.f == nil {
		return nil
	}
	return j.f.Close()
}

// counting counts the bytes read from a file, for the progress bar.
type counting struct {
	r io.Reader
	n int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
