package cli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

func (t *tools) readLinks(s *mcp.Server) {
	addTool(s, reads, "find_links", "List the account's short links, newest first, or search them. A link must match all the fields that you specify. Archived links are included unless archived says otherwise.",
		t.findLinks, within("limit", 1, 100), among("archived", "false", "true", "all"))
	addTool(s, reads, "get_link", "Show one short link: its short URL, destination, clicks, expiry, tags and rules.", t.getLink)
	addTool(s, reads, "explain_link", "Show where a visit to a link would be redirected, and why. The visit is not counted. A value that you omit is "+
		"unknown, so conditions on it are not met.", t.explainLink, within("percent", 0, 99),
		among("device", devices...), among("system", systems...))
	addTool(s, reads, "check_slug", "Say whether a slug is available. Does not reserve it.", t.checkSlug)
	addTool(s, reads, "link_stats", "Show a link's clicks by UTC day, referring host, country, device type and rule.", t.linkStats)
}

func (t *tools) writeLinks(s *mcp.Server) {
	addTool(s, adds, "create_link", "Create a short link for a URL and return its short URL.", t.createLink, routingSchema)
	addTool(s, changes, "update_link", "Change a short link: its destination, title, tags, expiry, preview, whether it is archived, or how "+
		"it handles visits. The slug and domain cannot be changed.", t.updateLink, routingSchema,
		among("clear", "title", "tags", "externalId", "expires", "ogTitle", "ogDescription", "ogImage", "starts", "expiredUrl", "password",
			"maxClicks", "rules"))
	addTool(s, changes, "update_links", "Make the same change to up to 100 short links: tags, archived or expiry. Requires the business plan.",
		t.updateLinks, among("clear", "tags", "expires"))
	addTool(s, changes, "delete_link", "Permanently delete a short link. Visitors get 404 immediately. To hide a link from lists, archive it instead.",
		t.deleteLink)
}

func (t *tools) linkID(ctx context.Context, name string) (string, error) {
	return linkID(ctx, t.client, name, "find_links searches.")
}

// linkID finds the ID of a link specified by its ID, short URL or slug. hint is the part of the
// error for a missing link that says how to search.
func linkID(ctx context.Context, c *client.Client, name, hint string) (string, error) {
	if strings.HasPrefix(name, "lnk_") {
		return name, nil
	}
	_, address, _ := strings.Cut("//"+name, "//")
	if _, rest, found := strings.Cut(address, "//"); found {
		address = rest
	}
	host, slug, found := strings.Cut(address, "/")
	if !found {
		host, slug = "", address
	}
	if i := strings.IndexAny(slug, "/?#"); i >= 0 {
		slug = slug[:i]
	}
	if slug == "" {
		return "", usagef("id must be the id of a link (lnk_…), its short URL or its slug")
	}
	all, err := client.All(c.Links(ctx, client.ListLinksQuery{Slug: slug}))
	if err != nil {
		return "", err
	}
	all = slices.DeleteFunc(all, func(l client.LinkSummary) bool {
		return !strings.EqualFold(l.Slug, slug) || host != "" && !strings.Contains(l.ShortURL, "://"+strings.ToLower(host)+"/")
	})
	switch len(all) {
	case 0:
		return "", documented(404, "LINK_NOT_FOUND", "No link has this short URL or slug; "+hint)
	case 1:
		return all[0].ID, nil
	}
	return "", usagef("several domains have a link with this slug: specify the full short URL, such as %s", all[0].ShortURL)
}

type linkOut struct {
	ID             string   `json:"id"`
	ShortURL       string   `json:"shortUrl" jsonschema:"the address to share"`
	Slug           string   `json:"slug"`
	DestinationURL string   `json:"destinationUrl" jsonschema:"where visits that match no rule are redirected"`
	Title          string   `json:"title,omitempty"`
	Clicks         int64    `json:"clicks" jsonschema:"all clicks so far"`
	Status         string   `json:"status" jsonschema:"active, scheduled (before its start), expired, exhausted (maxClicks is reached) or taken_down (by the operator)"`
	Tags           []string `json:"tags,omitempty"`
	ExternalID     string   `json:"externalId,omitempty"`
	Archived       bool     `json:"archived,omitempty"`
	CreatedAt      string   `json:"createdAt"`
	ExpiresAt      string   `json:"expiresAt,omitempty"`
	OGTitle        string   `json:"ogTitle,omitempty"`
	OGDescription  string   `json:"ogDescription,omitempty"`
	OGImage        string   `json:"ogImage,omitempty"`
	routingOut
}

type createLinkIn struct {
	URL           string   `json:"url" jsonschema:"where the link redirects: an http or https URL"`
	Slug          string   `json:"slug,omitempty" jsonschema:"last part of the short URL, such as spring-sale; generated if omitted"`
	Title         string   `json:"title,omitempty" jsonschema:"private label"`
	Domain        string   `json:"domain,omitempty" jsonschema:"host name or id of a verified custom domain, or default for the default host; the account's default domain if omitted"`
	Tags          []string `json:"tags,omitempty" jsonschema:"tags for finding the link; up to 20, each of 1 to 50 characters, without commas"`
	ExternalID    string   `json:"externalId,omitempty" jsonschema:"id of the link in another system; unique in the account"`
	Archived      bool     `json:"archived,omitempty" jsonschema:"true hides the link from lists; it keeps redirecting"`
	Expires       string   `json:"expires,omitempty" jsonschema:"when the link expires: a time from now such as 7d or 12h, or a date such as 2027-01-31T12:00:00Z; never if omitted"`
	OGTitle       string   `json:"ogTitle,omitempty" jsonschema:"title for social networks to show"`
	OGDescription string   `json:"ogDescription,omitempty" jsonschema:"text for social networks to show"`
	OGImage       string   `json:"ogImage,omitempty" jsonschema:"URL of an image for social networks to show"`
	routingIn
}

func (t *tools) createLink(ctx context.Context, _ *mcp.CallToolRequest, in createLinkIn) (out linkOut, err error) {
	domain, err := t.domainID(ctx, in.Domain)
	if err != nil {
		return out, err
	}
	link := client.LinkCreate{
		URL: in.URL, Slug: in.Slug, Title: in.Title, DomainID: domain, Tags: in.Tags, ExternalID: in.ExternalID, Archived: in.Archived,
		OGTitle: in.OGTitle, OGDescription: in.OGDescription, OGImage: in.OGImage,
	}
	if in.Expires != "" {
		link.ExpiresAt = moment(in.Expires, t.env.Now())
	}
	in.create(&link, t.env.Now())
	made, err := t.client.CreateLink(ctx, link)
	if err != nil {
		return out, err
	}
	return linkToAssistant(&made.Link), nil
}

type linkIn struct {
	ID string `json:"id" jsonschema:"id of the link (lnk_…), its short URL or its slug"`
}

func (t *tools) getLink(ctx context.Context, _ *mcp.CallToolRequest, in linkIn) (out linkOut, err error) {
	id, err := t.linkID(ctx, in.ID)
	if err != nil {
		return out, err
	}
	return t.readLink(ctx, id)
}

func (t *tools) readLink(ctx context.Context, id string) (out linkOut, err error) {
	l, err := t.client.GetLink(ctx, id)
	if err != nil {
		return out, err
	}
	return linkToAssistant(l), nil
}

func linkToAssistant(l *client.Link) linkOut {
	out := linkRow(&l.LinkSummary)
	out.OGTitle, out.OGDescription, out.OGImage = text(l.OGTitle), text(l.OGDescription), text(l.OGImage)
	out.routingOut = routingToAssistant(l)
	return out
}

// linkRow returns the link fields that lists contain.
func linkRow(l *client.LinkSummary) linkOut {
	return linkOut{
		ID: l.ID, ShortURL: l.ShortURL, Slug: l.Slug, DestinationURL: l.DestinationURL, Title: l.Title, Clicks: l.Clicks, Status: l.Status,
		Tags: l.Tags, ExternalID: text(l.ExternalID), Archived: l.Archived, CreatedAt: iso(&l.CreatedAt), ExpiresAt: iso(l.ExpiresAt),
	}
}

// tagsIn describes how a tool changes a record's tags.
type tagsIn struct {
	Tags       []string `json:"tags,omitempty" jsonschema:"replaces all tags; use addTags and removeTags to keep the others"`
	AddTags    []string `json:"addTags,omitempty" jsonschema:"tags to add"`
	RemoveTags []string `json:"removeTags,omitempty" jsonschema:"tags to remove"`
}

// edits reports whether the change depends on the record's current tags. If it does, they must be
// read first.
func (in tagsIn) edits() bool { return len(in.AddTags)+len(in.RemoveTags) > 0 }

// update sets a change's tags. have contains the record's tags.
func (in tagsIn) update(to *client.Field[[]string], clear, have []string) error {
	cleared := slices.Contains(clear, "tags")
	switch {
	case len(in.Tags) > 0 && (cleared || in.edits()), cleared && in.edits():
		return usagef("give tags, or addTags and removeTags, or list tags in clear; not several of them")
	case cleared:
		*to = client.Set([]string{})
	case len(in.Tags) > 0:
		*to = client.Set(in.Tags)
	case in.edits():
		has := func(list []string, tag string) bool {
			return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, tag) })
		}
		tags := slices.DeleteFunc(slices.Clone(have), func(tag string) bool { return has(in.RemoveTags, tag) })
		for _, tag := range in.AddTags {
			if !has(tags, tag) {
				tags = append(tags, tag)
			}
		}
		*to = client.Set(append([]string{}, tags...)) // an empty list, not null
	}
	return nil
}

type updateLinkIn struct {
	linkIn
	tagsIn
	URL           string   `json:"url,omitempty" jsonschema:"new destination"`
	Title         string   `json:"title,omitempty" jsonschema:"new private label"`
	ExternalID    string   `json:"externalId,omitempty" jsonschema:"id of the link in another system; unique in the account"`
	Archived      *bool    `json:"archived,omitempty" jsonschema:"true hides the link from lists, and it keeps redirecting; false shows it again"`
	Expires       string   `json:"expires,omitempty" jsonschema:"new time at which the link expires: a time from now such as 7d, or a date such as 2030-12-31T12:00:00Z; to remove the expiry, list expires in clear"`
	OGTitle       string   `json:"ogTitle,omitempty" jsonschema:"new title for social networks to show"`
	OGDescription string   `json:"ogDescription,omitempty" jsonschema:"new text for social networks to show"`
	OGImage       string   `json:"ogImage,omitempty" jsonschema:"URL of a new image for social networks to show"`
	Clear         []string `json:"clear,omitempty" jsonschema:"fields to clear; fields that are neither specified nor listed here do not change"`
	routingIn
}

func (t *tools) updateLink(ctx context.Context, _ *mcp.CallToolRequest, in updateLinkIn) (out linkOut, err error) {
	id, err := t.linkID(ctx, in.ID)
	if err != nil {
		return out, err
	}
	var have []string
	var opts []client.Option
	if in.edits() { // new tags are added to the link's tags, so the link must not change in between
		var r client.Response
		l, err := t.client.GetLink(ctx, id, client.WithResponse(&r))
		if err != nil {
			return out, err
		}
		have, opts = l.Tags, []client.Option{client.IfMatch(r.ETag)}
	}
	change, err := in.change(have, t.env.Now())
	if err != nil {
		return out, err
	}
	done, err := t.client.UpdateLink(ctx, id, change, opts...)
	if err != nil {
		return out, err
	}
	return linkToAssistant(&done.Link), nil
}

// change returns the change for the API. have contains the link's tags.
func (in *updateLinkIn) change(have []string, now time.Time) (change client.LinkUpdate, err error) {
	for _, f := range []struct {
		name, value string
		to          *client.Field[string]
	}{{"url", in.URL, &change.URL}, {"title", in.Title, &change.Title}, {"ogTitle", in.OGTitle, &change.OGTitle},
		{"ogDescription", in.OGDescription, &change.OGDescription}, {"ogImage", in.OGImage, &change.OGImage},
		{"externalId", in.ExternalID, &change.ExternalID},
		{"expiredUrl", in.ExpiredURL, &change.ExpiredURL}, {"password", in.Password, &change.Password}} {
		if err := setOrClear(f.name, f.value, in.Clear, f.to, func(s string) string { return s }); err != nil {
			return change, err
		}
	}
	at := func(s string) client.Time { return moment(s, now) }
	if err := setOrClear("expires", in.Expires, in.Clear, &change.ExpiresAt, at); err != nil {
		return change, err
	}
	if err := setOrClear("starts", in.Starts, in.Clear, &change.StartsAt, at); err != nil {
		return change, err
	}
	if err := in.tagsIn.update(&change.Tags, in.Clear, have); err != nil {
		return change, err
	}
	if in.Archived != nil {
		change.Archived = client.Set(*in.Archived)
	}
	if err := in.routingIn.update(&change, in.Clear, now); err != nil {
		return change, err
	}
	if text, err := json.Marshal(change); err == nil && string(text) == "{}" {
		return change, usagef("nothing to change: give a field, or list one in clear")
	}
	return change, nil
}

// setOrClear sets a field to the given value, or empties it if clear lists it.
func setOrClear[T any](name, value string, clear []string, to *client.Field[T], of func(string) T) error {
	switch cleared := slices.Contains(clear, name); {
	case cleared && value != "":
		return usagef("give a value for %s or clear it, not both", name)
	case cleared:
		*to = client.Clear[T]()
	case value != "":
		*to = client.Set(of(value))
	}
	return nil
}

type updateLinksIn struct {
	IDs []string `json:"ids" jsonschema:"ids (lnk_…), short URLs or slugs of the links"`
	tagsIn
	Archived *bool    `json:"archived,omitempty" jsonschema:"true hides the links from lists, and they keep redirecting; false shows them again"`
	Expires  string   `json:"expires,omitempty" jsonschema:"new time at which the links expire: a time from now such as 7d, or a date such as 2030-12-31T12:00:00Z; to remove the expiry, list expires in clear"`
	Clear    []string `json:"clear,omitempty" jsonschema:"fields to clear; fields that are neither specified nor listed here do not change"`
}

type updateLinksOut struct {
	Changed int         `json:"changed" jsonschema:"number of links that were changed"`
	Done    []string    `json:"done,omitempty" jsonschema:"the links that were changed, as you named them"`
	Failed  []failedOut `json:"failed,omitempty" jsonschema:"the links that were not changed, and why"`
}

type failedOut struct {
	ID      string `json:"id" jsonschema:"the link, as you named it"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (t *tools) updateLinks(ctx context.Context, _ *mcp.CallToolRequest, in updateLinksIn) (out updateLinksOut, err error) {
	if len(in.IDs) == 0 || len(in.IDs) > client.BulkMax {
		return out, usagef("give 1 to %d ids", client.BulkMax)
	}
	set := client.BulkSet{AddTags: in.AddTags, RemoveTags: in.RemoveTags}
	if !in.edits() { // otherwise the service adds to the tags of each link
		err = in.tagsIn.update(&set.Tags, in.Clear, nil)
	} else if len(in.Tags) > 0 || slices.Contains(in.Clear, "tags") {
		err = usagef("give tags, or addTags and removeTags, or list tags in clear; not several of them")
	}
	if err != nil {
		return out, err
	}
	if in.Archived != nil {
		set.Archived = client.Set(*in.Archived)
	}
	now := t.env.Now()
	if err := setOrClear("expires", in.Expires, in.Clear, &set.ExpiresAt, func(s string) client.Time { return moment(s, now) }); err != nil {
		return out, err
	}
	ids, names := make([]string, 0, len(in.IDs)), make([]string, 0, len(in.IDs))
	for _, name := range in.IDs {
		id, err := t.linkID(ctx, name)
		var words *usageError
		switch {
		case client.HasCode(err, "LINK_NOT_FOUND"), errors.As(err, &words): // as if the API had rejected only this link
			code, message, _ := strings.Cut(refusal(err), ": ")
			out.Failed = append(out.Failed, failedOut{name, code, message})
		case err != nil:
			return out, &inPart{"Looking up " + strconv.Quote(name) + " failed, and no link was changed:", err}
		default:
			ids, names = append(ids, id), append(names, name)
		}
	}
	if len(ids) == 0 {
		return out, nil
	}
	results, err := t.client.UpdateLinks(ctx, ids, set)
	switch {
	case client.IsValidation(err), client.IsAuthentication(err), client.IsPermission(err):
		return out, &inPart{"No link was changed:", err}
	case err != nil:
		return out, &inPart{"Some of the links may have been changed. Call this again: links that already have the change are not affected. The error was:", err}
	}
	for i, r := range results {
		if r.Error != nil {
			out.Failed = append(out.Failed, failedOut{names[i], r.Error.Code, r.Error.Message})
			continue
		}
		out.Done = append(out.Done, names[i])
	}
	out.Changed = len(out.Done)
	return out, nil
}

type deletedOut struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
}

func (t *tools) deleteLink(ctx context.Context, _ *mcp.CallToolRequest, in linkIn) (out deletedOut, err error) {
	id, err := t.linkID(ctx, in.ID)
	if err != nil {
		return out, err
	}
	return deletedOut{id, true}, t.client.DeleteLink(ctx, id)
}

type findLinksIn struct {
	Text       string   `json:"text,omitempty" jsonschema:"words to search for; each must begin a word of the slug, a tag, the title, or the destination's host or path, such as shop.example.net; the destination's query and the short URL's host are not searched"`
	Tags       []string `json:"tags,omitempty" jsonschema:"a link must have all of these tags; up to five"`
	Domain     string   `json:"domain,omitempty" jsonschema:"host of the short URL: host name or id of a custom domain, or default for the default host; all if omitted"`
	Slug       string   `json:"slug,omitempty" jsonschema:"the whole slug"`
	ExternalID string   `json:"externalId,omitempty" jsonschema:"id of the link in another system"`
	Archived   string   `json:"archived,omitempty" jsonschema:"archived links: false leaves them out, true shows only them, all includes them; all if omitted"`
	Limit      int      `json:"limit,omitempty" jsonschema:"maximum number of links; 20 if omitted"`
	Cursor     string   `json:"cursor,omitempty" jsonschema:"nextCursor from an earlier response, to get the next links"`
}

type findLinksOut struct {
	Links      []linkOut `json:"links"`
	NextCursor string    `json:"nextCursor,omitempty" jsonschema:"pass it as cursor to get more; absent if there are no more"`
}

func (t *tools) findLinks(ctx context.Context, _ *mcp.CallToolRequest, in findLinksIn) (out findLinksOut, err error) {
	q := client.ListLinksQuery{
		Q: in.Text, Tag: in.Tags, Slug: in.Slug, ExternalID: in.ExternalID, Archived: in.Archived, Limit: in.Limit,
	}
	if q.DomainID, err = t.domainID(ctx, in.Domain); err != nil {
		return out, err
	}
	if in.Cursor != "" {
		n, err := strconv.ParseInt(in.Cursor, 10, 64)
		if err != nil {
			return out, &client.APIError{Status: 400, Code: "INVALID_CURSOR", Message: "cursor must be the nextCursor of an earlier answer"}
		}
		q.Cursor = &n
	}
	page, err := t.client.ListLinks(ctx, q)
	if err != nil {
		return out, err
	}
	out.Links = make([]linkOut, len(page.Data))
	for i := range page.Data {
		out.Links[i] = linkRow(&page.Data[i])
	}
	if page.NextCursor != nil {
		out.NextCursor = strconv.FormatInt(*page.NextCursor, 10)
	}
	return out, nil
}

type linkStatsIn struct {
	linkIn
	From string `json:"from,omitempty" jsonschema:"first UTC day, such as 2026-11-01; 29 days before to if omitted"`
	To   string `json:"to,omitempty" jsonschema:"last UTC day, such as 2026-11-30; today if omitted"`
}

func (t *tools) linkStats(ctx context.Context, _ *mcp.CallToolRequest, in linkStatsIn) (*client.LinkStats, error) {
	id, err := t.linkID(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return t.client.GetLinkStats(ctx, id, client.GetLinkStatsQuery{From: in.From, To: in.To})
}
