package cli

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/libs/clients/go/linktable"
)

func linkCommands() []command {
	return []command{
		{"links create", "URL", "make a short link and print its address and id", linksCreate},
		{"links list", "", "list links, newest first", linksList},
		{"links get", "ID", "show a link", linksGet},
		{"links update", "ID", "change a link", linksUpdate},
		{"links delete", "ID…", "delete links", linksDelete},
		{"links change", "ID…", "change the tags, archived state or expiry of many links in one call", linksChange},
		{"links explain", "ID", "show where a visit would be redirected, and why", linksExplain},
		{"links available", "SLUG", "show whether a slug is available", linksAvailable},
		{"links stats", "ID", "show clicks over time", linksStats},
		{"links bulk", "FILE", "create links from a CSV or JSON Lines file of any size", linksBulk},
		{"links import", "FILE", "same as links bulk; also reads files that other services exported", linksBulk},
		{"tags list", "", "list the account's tags in alphabetical order", tagsList},
		{"links export", "", "write all links as CSV or JSON Lines", linksExport},
	}
}

func linksCreate(a *app, fs *flag.FlagSet) action {
	var in client.LinkCreate
	var expires string
	fs.StringVar(&in.Slug, "slug", "", "`slug` of the link; default is a random one")
	fs.StringVar(&in.Title, "title", "", "private label")
	fs.StringVar(&in.DomainID, "domain", "", "`id` of a verified domain, or default for the default host")
	fs.StringVar(&expires, "expires", "", "`when` the link expires: 7d, 12h, 2027-01-31 or any date")
	texts(fs, "tag", "`tag` for finding the link; may be repeated", &in.Tags)
	fs.StringVar(&in.ExternalID, "external-id", "", "your own `id` for the link, unique in the account")
	fs.BoolVar(&in.Archived, "archived", false, "hide the link from lists; it keeps redirecting")
	fs.StringVar(&in.OGTitle, "og-title", "", "preview title")
	fs.StringVar(&in.OGDescription, "og-description", "", "preview text")
	fs.StringVar(&in.OGImage, "og-image", "", "preview picture's `url`")
	complete := a.routingFlags(fs, &in)
	return a.asks("URL", func(ctx context.Context, c *client.Client, address string) error {
		if err := complete(); err != nil {
			return err
		}
		in.URL = address
		if expires != "" {
			in.ExpiresAt = moment(expires, a.env.Now())
		}
		l, err := c.CreateLink(ctx, in)
		if _, ahead := span(expires); err == nil && expires != "" && !ahead {
			a.noteEnd(ctx, c, l.ID)
		}
		return a.answer(l, err, func(w io.Writer) {
			fmt.Fprintln(w, clean(l.ShortURL))
			a.note("id %s", clean(l.ID)) // on standard error because scripts read the short URL from standard output
		})
	})
}

// noteEnd warns if a link has already ended. `--expires 10` is the likely mistake: without a unit,
// 10 is a date in the past.
func (a *app) noteEnd(ctx context.Context, c *client.Client, id string) {
	l, err := c.GetLink(ctx, id)
	if err == nil && l.Status == "expired" { // if the call failed, do not warn
		a.note("This link has already ended, on %s. To set a time from now, use a unit, such as 10d.", when(l.ExpiresAt))
	}
}

func linksList(a *app, fs *flag.FlagSet) action {
	limit := fs.Int("limit", 0, "stop after `n` links; 0 lists all")
	var f client.ListLinksQuery
	fs.StringVar(&f.Q, "search", "", "only links whose slug, title, tags or destination have words that start with these `words`")
	texts(fs, "tag", "only links with this `tag`; repeat the flag to require several tags", &f.Tag)
	fs.StringVar(&f.DomainID, "domain", "", "only links on the domain with this `id`; default means the default host")
	fs.StringVar(&f.Slug, "slug", "", "only links with this `slug`, ignoring case")
	fs.StringVar(&f.ExternalID, "external-id", "", "only the link with this external `id`")
	fs.StringVar(&f.Archived, "archived", "false", "archived links: false hides them, true lists only them, all lists everything")
	return a.asks("", func(ctx context.Context, c *client.Client, _ string) error {
		t := a.table("ID", "SLUG", "CLICKS", "CREATED", "TITLE", "DESTINATION")
		return show(t, c.Links(ctx, f), *limit, func(l client.LinkSummary) []string {
			return []string{l.ID, l.Slug, strconv.FormatInt(l.Clicks, 10), when(&l.CreatedAt), l.Title, l.DestinationURL}
		})
	})
}

func linksGet(a *app, _ *flag.FlagSet) action {
	return a.asksLink(func(ctx context.Context, c *client.Client, id string) error {
		l, err := c.GetLink(ctx, id)
		return a.answer(l, err, func(w io.Writer) {
			facts(w, append([]string{
				"id", l.ID, "short address", l.ShortURL, "destination", l.DestinationURL, "title", l.Title, "status", l.Status,
				"tags", strings.Join(l.Tags, ", "), "external id", text(l.ExternalID), "archived", map[bool]string{true: "yes"}[l.Archived],
				"clicks", strconv.FormatInt(l.Clicks, 10), "imported clicks", nonzero(l.ImportedClicks), "taken down",
				takenDown(l.TakenDown), "created", l.CreatedAt.Time().Format(time.DateTime), "expires", when(l.ExpiresAt),
				"preview title", text(l.OGTitle), "preview text", text(l.OGDescription), "preview picture", text(l.OGImage),
			}, routingFacts(l)...)...)
		})
	})
}

func linksUpdate(a *app, fs *flag.FlagSet) action {
	var in client.LinkUpdate
	fs.Func("url", "new destination `url`", func(s string) error { in.URL = client.Set(s); return nil })
	textField(fs, "title", "new private `label`; an empty value clears it", &in.Title)
	textField(fs, "og-title", "new preview `title`; an empty value clears it", &in.OGTitle)
	textField(fs, "og-description", "new preview `text`; an empty value clears it", &in.OGDescription)
	textField(fs, "og-image", "new preview picture's `url`; an empty value clears it", &in.OGImage)
	textField(fs, "external-id", "new external `id`; an empty value clears it", &in.ExternalID)
	tagsField(fs, &in.Tags)
	archivedField(fs, &in.Archived)
	a.expiresField(fs, &in.ExpiresAt)
	complete := a.routingFields(fs, &in)
	return a.asksLink(func(ctx context.Context, c *client.Client, id string) error {
		done, err := c.UpdateLink(ctx, id, in)
		if err != nil {
			return err
		}
		if !in.ExpiresAt.IsZero() {
			a.noteEnd(ctx, c, id)
		}
		return a.print(map[string]any{"success": true, "id": id, "slug": done.Slug}, func(io.Writer) { a.note("updated %s", clean(done.Slug)) })
	}, complete)
}

// linksDelete sends one bulk request per hundred links. For just one link, it sends a plain DELETE.
// On plans without bulk requests, it deletes the links one by one.
func linksDelete(a *app, _ *flag.FlagSet) action {
	single := a.each("deleted", func(ctx context.Context, c *client.Client, id string) error { return c.DeleteLink(ctx, id) })
	return func(ctx context.Context, names []string) error {
		ids, err := a.linkIDs(ctx, names)
		if err != nil {
			return err
		}
		if len(ids) < 2 {
			return single(ctx, ids)
		}
		err = a.many(ids, "deleted", func(c *client.Client, ids []string) ([]client.BulkChange, error) {
			return c.DeleteLinks(ctx, ids)
		})
		if client.HasCode(err, "PLAN_REQUIRED", "NOT_FOUND", "METHOD_NOT_ALLOWED") { // the plan or the release does not include bulk requests
			return single(ctx, ids)
		}
		return err
	}
}

func linksChange(a *app, fs *flag.FlagSet) action {
	var set client.BulkSet
	tagsField(fs, &set.Tags)
	texts(fs, "add-tag", "`tag` to add; may be repeated", &set.AddTags)
	texts(fs, "remove-tag", "`tag` to remove; may be repeated", &set.RemoveTags)
	archivedField(fs, &set.Archived)
	a.expiresField(fs, &set.ExpiresAt)
	return func(ctx context.Context, names []string) error {
		if len(names) == 0 {
			return usagef("give at least one ID")
		}
		if set.Tags.IsZero() && set.Archived.IsZero() && set.ExpiresAt.IsZero() && len(set.AddTags)+len(set.RemoveTags) == 0 {
			return usagef("nothing to change: give --tag, --add-tag, --remove-tag, --archived or --expires")
		}
		if !set.Tags.IsZero() && len(set.AddTags)+len(set.RemoveTags) > 0 {
			return usagef("--tag replaces all tags; use it without --add-tag and --remove-tag")
		}
		ids, err := a.linkIDs(ctx, names)
		if err != nil {
			return err
		}
		return a.many(ids, "changed", func(c *client.Client, ids []string) ([]client.BulkChange, error) {
			return c.UpdateLinks(ctx, ids, set)
		})
	}
}

// asksLink is like asks, for a command that takes a link's ID, short address or slug. do receives
// the ID.
func (a *app) asksLink(do func(ctx context.Context, c *client.Client, id string) error, must ...func() error) action {
	return a.asks("ID", func(ctx context.Context, c *client.Client, name string) error {
		id, err := linkID(ctx, c, name, searchLinks)
		if err != nil {
			return err
		}
		return do(ctx, c, id)
	}, must...)
}

const searchLinks = "`linkreel links list --search` finds links."

// linkIDs finds the IDs of links specified by ID, short address or slug, and returns each ID once.
// If a link does not exist, linkIDs fails before anything is changed.
func (a *app) linkIDs(ctx context.Context, names []string) ([]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	c, err := a.connect()
	if err != nil {
		return nil, err
	}
	ids := make([]string, 0, len(names))
	for _, name := range names {
		id, err := linkID(ctx, c, name, searchLinks)
		if err != nil {
			var refused *client.APIError
			if errors.As(err, &refused) {
				refused.Message = name + ": " + refused.Message
				return nil, err
			}
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// many makes one bulk call per hundred IDs and prints the IDs that failed.
func (a *app) many(ids []string, done string, do func(*client.Client, []string) ([]client.BulkChange, error)) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	failed := 0
	for chunk := range slices.Chunk(ids, client.BulkMax) {
		results, err := do(c, chunk)
		if err != nil {
			return err
		}
		for i, r := range results {
			if r.Error != nil || r.Status >= 300 {
				failed++
				why := "status " + strconv.Itoa(r.Status)
				if r.Error != nil {
					why = r.Error.Message + " (" + r.Error.Code + ")"
				}
				fmt.Fprintf(a.env.Err, "linkreel: %s: %s\n", clean(chunk[i]), clean(why))
				continue
			}
			if err := a.did(done, chunk[i]); err != nil {
				return err
			}
		}
	}
	if failed > 0 {
		return &partly{failed, len(ids)}
	}
	return nil
}

func tagsList(a *app, fs *flag.FlagSet) action {
	prefix := fs.String("search", "", "only tags that contain this `text`")
	return a.asks("", func(ctx context.Context, c *client.Client, _ string) error {
		for tag, err := range c.Tags(ctx, client.ListTagsQuery{Q: *prefix}) {
			if err := a.answer(tag, err, func(w io.Writer) { fmt.Fprintln(w, clean(tag.Name)) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// textField adds a flag that sets a string field in an update. An empty value clears the field.
func textField(fs *flag.FlagSet, name, usage string, to *client.Field[string]) {
	fs.Func(name, usage, func(s string) error {
		*to = client.Set(s)
		if s == "" {
			*to = client.Clear[string]()
		}
		return nil
	})
}

// texts adds a flag that may be repeated.
func texts(fs *flag.FlagSet, name, usage string, to *[]string) {
	fs.Func(name, usage, func(s string) error { *to = append(*to, s); return nil })
}

// tagsField adds a flag that replaces all tags. One empty value removes all tags.
func tagsField(fs *flag.FlagSet, to *client.Field[[]string]) {
	tags := []string{}
	fs.Func("tag", "new `tag`, instead of all current ones; may be repeated; an empty value removes all", func(s string) error {
		if s != "" {
			tags = append(tags, s)
		}
		*to = client.Set(tags)
		return nil
	})
}

func archivedField(fs *flag.FlagSet, to *client.Field[bool]) {
	boolField(fs, "archived", "`true` hides the link from lists, false shows it again", to)
}

func (a *app) expiresField(fs *flag.FlagSet, to *client.Field[client.Time]) {
	a.momentField(fs, "expires", "`when` the link expires: 7d, 2027-01-31, any date, or never", to)
}

func nonzero(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func takenDown(t *client.TakenDown) string {
	if t == nil {
		return ""
	}
	return t.At.Time().Format(time.DateTime) + ", " + t.Reason
}

func linksStats(a *app, fs *flag.FlagSet) action {
	from := fs.String("from", "", "first `day`, such as 2026-11-01")
	to := fs.String("to", "", "last `day`")
	return a.asksLink(func(ctx context.Context, c *client.Client, id string) error {
		s, err := c.GetLinkStats(ctx, id, client.GetLinkStatsQuery{From: *from, To: *to})
		return a.answer(s, err, func(w io.Writer) {
			most := int64(1)
			for _, d := range s.Days {
				most = max(most, d.Clicks)
			}
			for _, d := range s.Days {
				fmt.Fprintf(w, "%s %7d %s\n", d.Date, d.Clicks, strings.Repeat("█", int(d.Clicks*40/most)))
			}
			fmt.Fprintf(w, "total      %7d\n", s.Total)
			for _, r := range s.Referrers {
				fmt.Fprintf(w, "from       %7d %s\n", r.Clicks, clean(cmp.Or(r.Host, "(direct)")))
			}
			for _, r := range s.Countries {
				fmt.Fprintf(w, "in         %7d %s\n", r.Clicks, clean(cmp.Or(r.Country, "(unknown)")))
			}
			for _, r := range s.Devices {
				fmt.Fprintf(w, "on         %7d %s\n", r.Clicks, clean(r.Device))
			}
			if len(s.Rules) > 1 || len(s.Rules) == 1 && s.Rules[0].Rule != "" {
				for _, r := range s.Rules {
					fmt.Fprintf(w, "by rule    %7d %s\n", r.Clicks, clean(cmp.Or(r.Rule, "(none)")))
				}
			}
		})
	})
}

func linksExport(a *app, fs *flag.FlagSet) action {
	format := fs.String("format", "csv", "csv or jsonl")
	return a.asks("", func(ctx context.Context, c *client.Client, _ string) error {
		var write func(l exportedLink) error
		flush := func() error { return nil }
		switch {
		case *format == "jsonl" || a.json:
			enc := json.NewEncoder(a.env.Out)
			enc.SetEscapeHTML(false)
			write = func(l exportedLink) error { return enc.Encode(l) }
		case *format == "csv":
			w := csv.NewWriter(a.env.Out)
			if err := w.Write(exportColumns); err != nil {
				return err
			}
			write = func(l exportedLink) error { return w.Write(exportRow(l)) }
			flush = func() error { w.Flush(); return w.Error() }
		default:
			return usagef("--format must be csv or jsonl")
		}
		for l, err := range c.Links(ctx, client.ListLinksQuery{Archived: "all"}) {
			if err != nil {
				return err
			}
			whole, found, err := withRules(ctx, c, l)
			if err == nil && found {
				err = write(whole)
			}
			if err != nil {
				return err
			}
		}
		return flush()
	})
}

// The first six columns are those from the first release. `links import` reads all of them.
var exportColumns = []string{
	"id", "slug", "url", "title", "clicks", "createdAt", "shortUrl", "domainId", "expiresAt", "tags", "archived", "externalId",
	"importedClicks", "redirectType", "forwardQuery", "forwardPath", "startsAt", "expiredUrl", "hasPassword", "maxClicks", "rules",
}

// exportTime has milliseconds, like the records, so an import preserves them.
const exportTime = "2006-01-02T15:04:05.000Z07:00"

func exportRow(l exportedLink) []string {
	row := []string{l.ID, l.Slug, l.DestinationURL, l.Title, strconv.FormatInt(l.Clicks, 10), l.CreatedAt.Time().Format(exportTime),
		l.ShortURL, text(l.DomainID), "", strings.Join(l.Tags, ","), strconv.FormatBool(l.Archived), text(l.ExternalID), "",
		nonzero(int64(l.RedirectType)), strconv.FormatBool(l.ForwardQuery), strconv.FormatBool(l.ForwardPath), "", text(l.ExpiredURL),
		strconv.FormatBool(l.HasPassword), "", rulesText(l.Rules)}
	if l.ExpiresAt != nil {
		row[8] = l.ExpiresAt.Time().Format(exportTime)
	}
	if l.StartsAt != nil {
		row[16] = l.StartsAt.Time().Format(exportTime)
	}
	if l.MaxClicks != nil {
		row[19] = strconv.FormatInt(*l.MaxClicks, 10)
	}
	if l.ImportedClicks > 0 {
		row[12] = strconv.FormatInt(l.ImportedClicks, 10)
	}
	for i := range row {
		row[i] = linktable.SafeCell(row[i])
	}
	return row
}

// moment parses 7d or 12h as a time from now, and passes any other form to the service.
func moment(s string, now time.Time) client.Time {
	if d, ok := span(s); ok {
		return client.At(now.Add(d))
	}
	return client.Text(s)
}

// These help texts describe the values that instant and past accept.
const (
	dates    = "2027-01-31, or a time such as 2027-01-31T12:00:00+01:00, in UTC if it has no zone"
	instants = "90d, " + dates
	pasts    = "7d (seven days ago), " + dates
)

// instant is like moment, but for fields that accept only ISO 8601 dates with a zone. A date
// without a zone is in UTC.
func instant(s string, now time.Time) client.Time {
	if t, ok := endOf(s, now); ok {
		return client.At(t)
	}
	return client.Text(s)
}

// past is like instant, but for past times: 7d is seven days ago.
func past(s string, now time.Time) client.Time {
	if d, ok := span(s); ok {
		return client.At(now.Add(-d))
	}
	return instant(s, now)
}

// span parses a duration that may contain days and weeks.
func span(s string) (time.Duration, bool) {
	for unit, d := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if n, err := strconv.ParseFloat(strings.TrimSuffix(s, unit), 64); strings.HasSuffix(s, unit) && err == nil && n >= 0 && n < 1e5 {
			return time.Duration(n * float64(d)), true
		}
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0
}
