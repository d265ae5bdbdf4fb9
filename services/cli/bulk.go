package cli

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/libs/clients/go/linktable"
)

// outcome is the result for a row, as it appears in a journal line and in the output of --json.
type outcome struct {
	Line     int    `json:"line"`
	Status   int    `json:"status"`
	ID       string `json:"id,omitempty"`
	ShortURL string `json:"shortUrl,omitempty"`
	URL      string `json:"url"`
	Slug     string `json:"slug,omitempty"`
	Code     string `json:"code,omitempty"`
	Message  string `json:"message,omitempty"`
	// Lost lists the fields that the deployment does not accept. Host is the link's previous host.
	Lost []string `json:"notKept,omitempty"`
	Host string   `json:"host,omitempty"`
}

func linksBulk(a *app, fs *flag.FlagSet) action {
	o := importer{app: a}
	fs.StringVar(&o.format, "format", "", "csv or jsonl (default depends on the file's name)")
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

// importer sends a file in chunks of 100 rows, or fewer if the rows are large. The chunks depend only
// on the rows. The outcomes of each chunk are written to a journal before the next chunk is sent. If
// a run is killed in between, the next run sends the unfinished chunk again with the same
// Idempotency-Key. The service replays its results instead of creating the links twice.
type importer struct {
	*app
	format, journal string
	dryRun, restart bool

	client *client.Client
	log    *journal
	single bool // the plan does not include bulk requests, so rows are sent one by one

	domains map[string]string // the IDs of the account's verified domains, by host name
	lost    map[string]int    // number of affected links, keyed by what they lost
}

func (o *importer) run(ctx context.Context, file string) error {
	src, size, err := o.open(file)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }() // opened only for reading
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
		defer func() { _ = o.log.close() }() // each chunk has already been synced
		if err := o.knowDomains(ctx); err != nil {
			return err
		}
	}
	bar := o.bar(file, size)
	defer bar.end()
	var n rowCounts
	seen, take := map[string]int{}, linktable.Chunks(next, client.BulkMax)
	for chunk := 0; ; chunk++ {
		rows, err := take()
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if len(rows) == 0 {
			break
		}
		old := o.log.has(chunk)
		out, err := o.chunk(ctx, chunk, rows, seen)
		if err != nil {
			bar.end()
			if o.log != nil && o.log.f != nil && !errors.Is(err, errChanged) {
				o.note("Stopped after %s. Run the same command to resume. "+again, count(n.made+n.before, "link"))
			}
			return err
		}
		if old && chunk == 0 { // the checks above show that the file has not changed
			bar.clear()
			o.note("Resuming after %d finished rows (%s). "+again, o.log.rows(), o.log.f.Name())
		}
		for _, r := range out {
			n.add(r, old)
			if err := o.tell(r, bar); err != nil {
				return err
			}
		}
		bar.set(counted.n)
	}
	bar.end()
	return o.sum(n)
}

// rowCounts counts the rows in an import. before is the number of links that an earlier run
// created.
type rowCounts struct{ made, before, failed int }

func (n *rowCounts) add(r outcome, old bool) {
	switch {
	case !r.made():
		n.failed++
	case old:
		n.before++
	default:
		n.made++
	}
}

// made reports whether the row's link exists, or would exist without --dry-run.
func (r outcome) made() bool { return r.Status == 201 || r.Status == 0 }

// tell prints a row's outcome if it failed or --json is set.
func (o *importer) tell(r outcome, bar *bar) error {
	if r.made() {
		o.miss(r)
	} else if bar.clear(); !o.json {
		row := ""
		if r.URL != "" {
			row = " " + strconv.Quote(clean(short(r.URL)))
		}
		fmt.Fprintf(o.env.Err, "line %d: %s: %s%s\n", r.Line, clean(r.Code), clean(r.Message), row)
	}
	if o.json {
		return o.print(r, nil)
	}
	return nil
}

// sum prints the totals for an import.
func (o *importer) sum(n rowCounts) error {
	switch {
	case o.dryRun:
		o.note("would create %s, %s failed", count(n.made, "link"), count(n.failed, "row"))
	case n.before > 0:
		o.note("created %s, %s failed; an earlier run had created %s", count(n.made, "link"), count(n.failed, "row"), count(n.before, "link"))
	default:
		o.note("created %s, %s failed", count(n.made, "link"), count(n.failed, "row"))
	}
	for _, what := range slices.Sorted(maps.Keys(o.lost)) {
		o.note("not kept: %s (%s)", clean(what), count(o.lost[what], "link"))
	}
	if n.failed > 0 {
		return &partly{n.failed, n.made + n.before + n.failed}
	}
	return nil
}

// count returns a number with its noun, such as "1 row" or "2 rows".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprint(n, " ", noun, "s")
}

// knowDomains reads the account's host names so that links keep their hosts. If the key is not
// allowed to list domains, all links are created on the default host, and the import reports that.
func (o *importer) knowDomains(ctx context.Context) error {
	o.domains = map[string]string{}
	list, err := client.All(o.client.Domains(ctx))
	var refused *client.APIError
	// With an invalid key (401), rate limiting (429) or an outage (5xx), every row would fail too, so
	// these errors end the import. Any other error is only about domains: the plan or the key's
	// scopes do not include them.
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

// miss counts the values in a row that the created link did not keep.
func (o *importer) miss(r outcome) {
	if o.lost == nil {
		o.lost = map[string]int{}
	}
	for _, field := range r.Lost {
		o.lost[field+", which this deployment does not accept"]++
	}
	made, err := url.Parse(r.ShortURL)
	if r.Host != "" && r.ShortURL != "" && err == nil && !strings.EqualFold(made.Hostname(), r.Host) {
		o.lost["the host "+r.Host+", which is not a verified domain of the account; the links are on "+made.Hostname()]++
	}
}

// open opens a file, or standard input if file is "-", and returns its size, or 0 if it is not known.
func (a *app) open(file string) (io.ReadCloser, int64, error) {
	if file == "-" {
		return io.NopCloser(a.env.In), 0, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close() // return the first error
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// errChanged means that finished rows in the file have changed.
var errChanged = errors.New("the file has changed since an earlier run: import new and corrected rows from a separate file. " + again)

// again explains --restart in every message about an earlier run.
const again = "--restart imports every row again, and creates links without a slug twice"

// chunk returns the outcomes of rows, from the journal or from the service.
func (o *importer) chunk(ctx context.Context, n int, rows []linktable.Row, seen map[string]int) ([]outcome, error) {
	sum := digest(rows)
	if o.log != nil {
		if old, ok := o.log.done[n]; ok {
			if old.Sum != sum { // the rows have changed, so resuming would skip some and create others twice
				return nil, errChanged
			}
			return old.Rows, nil
		}
	}
	out := make([]outcome, len(rows))
	var items []client.LinkCreate
	var at []int // each item's index in rows; invalid rows are not sent
	for i, r := range rows {
		out[i] = outcome{Line: r.Line, URL: r.Item.URL, Slug: r.Item.Slug, Host: r.Host}
		r.Item.DomainID = o.domains[r.Host]
		if r.DomainID == linktable.DefaultHost && r.Item.DomainID == "" {
			r.Item.DomainID = linktable.DefaultHost
		}
		if o.dryRun && r.Bad == "" {
			out[i].Code, out[i].Message = check(r, seen)
		}
		if r.Bad != "" {
			out[i].Code, out[i].Message = "INVALID_ROW", r.Bad
		}
		if out[i].Code != "" {
			out[i].Status = 400
			continue
		}
		items, at = append(items, r.Item), append(at, i)
	}
	if o.dryRun {
		return out, nil
	}
	if len(items) > 0 {
		// If this run is killed, the next one uses the same key, so the service replays its first
		// response.
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
func (o *importer) send(ctx context.Context, key string, items []client.LinkCreate) ([]client.BulkResult, error) {
	if !o.single {
		made, err := o.client.BulkCreateLinks(ctx, client.BulkCreate{URLs: items}, client.IdempotencyKey(key))
		switch {
		case err == nil && len(made.Results) != len(items):
			return nil, fmt.Errorf("the bulk request returned %d results for %d items", len(made.Results), len(items))
		case err == nil:
			return made.Results, nil
		case !client.HasCode(err, "PLAN_REQUIRED"):
			return nil, err
		}
		o.note("this plan does not include bulk requests, so links are created one by one")
		o.single = true
	}
	out := make([]client.BulkResult, len(items))
	for i, item := range items {
		l, err := o.client.CreateLink(ctx, item, client.IdempotencyKey(fmt.Sprint(key, "-", i)))
		var refused *client.APIError
		switch {
		case err == nil:
			out[i] = client.BulkResult{
				Status: 201, Data: &client.BulkLink{ID: l.ID, ShortURL: l.ShortURL, Slug: l.Slug, DestinationURL: l.DestinationURL},
				IgnoredFields: l.IgnoredFields,
			}
		// The service rejected only this row. Any other error would be the same for every row, so
		// it ends the run.
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

func digest(rows []linktable.Row) string {
	h := sha256.New()
	for _, r := range rows {
		item, _ := json.Marshal(r.Item) //nolint:gosec // only its digest is kept; strings and numbers always encode
		fmt.Fprintf(h, "%s %q %q\n", item, r.Host, r.Bad)
	}
	return hex.EncodeToString(h.Sum(nil))
}

var slugForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$`)

// check performs the checks of a dry run, which do not call the service.
func check(r linktable.Row, seen map[string]int) (code, message string) {
	scheme, rest, ok := strings.Cut(r.Item.URL, "://")
	switch scheme = strings.ToLower(scheme); {
	case !ok || scheme != "http" && scheme != "https" || rest == "" || strings.HasPrefix(rest, "/"):
		return "VALIDATION_ERROR", "url must start with http:// or https:// and name a host"
	case r.Item.Slug != "" && !slugForm.MatchString(r.Item.Slug):
		return "VALIDATION_ERROR", "slug has characters that are not allowed"
	case utf8.RuneCountInString(r.Item.Title) > 500:
		return "VALIDATION_ERROR", "title has more than 500 characters"
	}
	if folded := strings.ToLower(r.Item.Slug); folded != "" {
		if before, ok := seen[folded]; ok {
			return "SLUG_TAKEN", fmt.Sprintf("line %d has the same slug", before)
		}
		seen[folded] = r.Line
	}
	return "", ""
}

func short(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:79]) + "…"
	}
	return s
}

// reader returns a function that reads a file's rows one by one, and then returns io.EOF.
func (o *importer) reader(file string, r io.Reader) (func() (linktable.Row, error), error) {
	format := o.format
	if format == "" {
		format = linktable.Format(file)
	}
	if format != linktable.CSV && format != linktable.JSONLines {
		return nil, usagef("--format must be csv or jsonl")
	}
	return linktable.Read(r, format, func(what string) { o.note("not kept: %s", clean(what)) })
}

// journal is the record of an import: a header and one line per finished chunk.
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
		return nil, fmt.Errorf("cannot open the journal: %w", err)
	}
	j := &journal{done: map[int]doneChunk{}, f: f}
	if err := j.load(o.address()); err != nil {
		_ = f.Close() // return the first error
		return nil, fmt.Errorf("cannot use the journal %s: %w", name, err)
	}
	return j, nil
}

// has reports whether an earlier run has finished a chunk.
func (j *journal) has(chunk int) bool {
	if j == nil { // a dry run
		return false
	}
	_, ok := j.done[chunk]
	return ok
}

// rows counts the rows that an earlier run has finished, including failed rows.
func (j *journal) rows() (n int) {
	for _, c := range j.done {
		n += len(c.Rows)
	}
	return n
}

// address returns the deployment's URL for the journal's header.
func (a *app) address() string {
	saved, _ := a.login() // connect has already reported an error
	return strings.TrimRight(cmp.Or(a.baseURL, a.env.Getenv("LINKREEL_BASE_URL"), saved.BaseURL), "/")
}

// load reads an existing journal. It drops a last line that is incomplete because the program was
// killed.
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
				return fmt.Errorf("it belongs to %s; use --restart to start again on this deployment", head.BaseURL)
			}
			j.ID = head.Journal
		} else {
			var c doneChunk
			// After a power failure, a line may be damaged even though its newline was written. Drop
			// it and all later lines. Their chunks are sent again with the same Idempotency-Key.
			if json.Unmarshal(line, &c) != nil {
				break
			}
			j.done[c.Chunk] = c
		}
		good += int64(len(line))
	}
	// Remove a partial last line. Otherwise the next line would be appended to it.
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
		return fmt.Errorf("cannot write the journal: %w", err)
	}
	return j.f.Sync()
}

func (j *journal) close() error {
	if j.f == nil {
		return nil
	}
	return j.f.Close()
}

// counting counts the bytes that are read from a file, for the progress bar.
type counting struct {
	r io.Reader
	n int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
