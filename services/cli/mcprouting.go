package cli

import (
	"context"
	"slices"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

var (
	devices = []any{"desktop", "phone", "tablet"}
	systems = []any{"windows", "macos", "linux", "ios", "android", "chromeos", "other"}
)

// routingIn contains the settings that let an assistant change how a link handles visits.
type routingIn struct {
	RedirectType int    `json:"redirectType,omitempty" jsonschema:"HTTP status of the redirect; 302 by default for a new link; browsers remember a 301 or 308 for a minute, and repeated visits in that minute are not counted; 301 and 308 cannot be combined with password or maxClicks"`
	ForwardQuery *bool  `json:"forwardQuery,omitempty" jsonschema:"whether the visitor's query is added to the destination; false by default for a new link; parameters that the destination already has are kept, except utm_ ones"`
	ForwardPath  *bool  `json:"forwardPath,omitempty" jsonschema:"true appends the path after the slug to the destination's path; with false, the default for a new link, a longer path is a 404"`
	Starts       string `json:"starts,omitempty" jsonschema:"when the link starts; earlier visits get 404; a time from now such as 7d, or a date such as 2030-12-31T12:00:00Z"`
	ExpiredURL   string `json:"expiredUrl,omitempty" jsonschema:"where visits are redirected once the link has expired or reached maxClicks; if omitted, visitors get the domain's page for expired links, or a page that says so"`
	Password     string `json:"password,omitempty" jsonschema:"visitors must enter it; 1 to 256 characters; replaces any existing password"`
	MaxClicks    int    `json:"maxClicks,omitempty" jsonschema:"number of clicks after which the link expires; clicks that it already has count towards this number"`
	Rules        []rule `json:"rules,omitempty" jsonschema:"up to 20; replaces all of the link's rules, so include any that you want to keep; a visit is redirected to the url of the first rule whose conditions are all met, otherwise to the link's url"`
}

type rule struct {
	Name string   `json:"name" jsonschema:"name shown in the statistics"`
	When ruleWhen `json:"when" jsonschema:"at least one condition; every condition that you specify must be met, and each is independent of the others: ios says nothing about device"`
	URL  string   `json:"url" jsonschema:"where visits are redirected if the rule matches"`
}

type ruleWhen struct {
	Country  []string          `json:"country,omitempty" jsonschema:"two-letter country codes such as DE; one of them must match"`
	Device   []string          `json:"device,omitempty" jsonschema:"desktop, phone or tablet; one of them must match"`
	System   []string          `json:"system,omitempty" jsonschema:"windows, macos, linux, ios, android, chromeos or other; one of them must match; to match any phone or tablet, use device instead"`
	Language []string          `json:"language,omitempty" jsonschema:"language tags such as de or pt-BR; one of them must be the browser's preferred language; de also matches de-AT"`
	Query    map[string]string `json:"query,omitempty" jsonschema:"parameters that the visit must have, with their values; * means any value"`
	From     string            `json:"from,omitempty" jsonschema:"visits from then on: a time from now such as 7d, or a date such as 2030-12-31T12:00:00Z"`
	Until    string            `json:"until,omitempty" jsonschema:"visits before then: a time from now such as 7d, or a date such as 2030-12-31T12:00:00Z"`
	Percent  int               `json:"percent,omitempty" jsonschema:"percentage, 1 to 99, of the visitors who meet the other conditions; a visitor is always in the same group, and the groups of different rules do not overlap"`
}

// routingSchema defines the allowed values.
func routingSchema(p map[string]*jsonschema.Schema) {
	within("maxClicks", 1, 1e9)(p)
	among("redirectType", 301, 302, 308)(p)
	when := p["rules"].Items.Properties["when"].Properties
	among("device", devices...)(when)
	among("system", systems...)(when)
	within("percent", 1, 99)(when)
}

// rules returns the rules in the API's form, or nil if there are none.
func (in *routingIn) rules(now time.Time) (out []client.LinkRule) {
	at := func(s string) *client.Time {
		if s == "" {
			return nil
		}
		m := moment(s, now)
		return &m
	}
	for _, r := range in.Rules {
		w := r.When
		out = append(out, client.LinkRule{Name: r.Name, URL: r.URL, When: client.LinkRuleWhen{
			Country: w.Country, Device: w.Device, System: w.System, Language: w.Language, Query: w.Query, Percent: w.Percent,
			From: at(w.From), Until: at(w.Until),
		}})
	}
	return out
}

// create sets a new link's fields.
func (in *routingIn) create(link *client.LinkCreate, now time.Time) {
	link.ExpiredURL, link.Password, link.Rules = in.ExpiredURL, in.Password, in.rules(now)
	link.ForwardQuery = in.ForwardQuery != nil && *in.ForwardQuery
	link.ForwardPath = in.ForwardPath != nil && *in.ForwardPath
	if in.Starts != "" {
		link.StartsAt = moment(in.Starts, now)
	}
	if n := int64(in.RedirectType); n != 0 {
		link.RedirectType = &n
	}
	if n := int64(in.MaxClicks); n != 0 {
		link.MaxClicks = &n
	}
}

// update sets those fields of a change that are neither strings nor times.
func (in *routingIn) update(change *client.LinkUpdate, clear []string, now time.Time) error {
	if in.RedirectType != 0 {
		change.RedirectType = client.Set(int64(in.RedirectType))
	}
	if in.ForwardQuery != nil {
		change.ForwardQuery = client.Set(*in.ForwardQuery)
	}
	if in.ForwardPath != nil {
		change.ForwardPath = client.Set(*in.ForwardPath)
	}
	switch none := slices.Contains(clear, "maxClicks"); {
	case none && in.MaxClicks != 0:
		return usagef("give a value for maxClicks or clear it, not both")
	case none:
		change.MaxClicks = client.Clear[int64]()
	case in.MaxClicks != 0:
		change.MaxClicks = client.Set(int64(in.MaxClicks))
	}
	switch none := slices.Contains(clear, "rules"); {
	case none && len(in.Rules) > 0:
		return usagef("give a value for rules or clear it, not both")
	case none:
		change.Rules = client.Clear[[]client.LinkRule]()
	case len(in.Rules) > 0:
		change.Rules = client.Set(in.rules(now))
	}
	return nil
}

// routingOut contains the same settings for an assistant, without the password.
type routingOut struct {
	RedirectType int    `json:"redirectType,omitempty"`
	ForwardQuery bool   `json:"forwardQuery,omitempty"`
	ForwardPath  bool   `json:"forwardPath,omitempty"`
	StartsAt     string `json:"startsAt,omitempty"`
	ExpiredURL   string `json:"expiredUrl,omitempty"`
	HasPassword  bool   `json:"hasPassword,omitempty"`
	MaxClicks    int64  `json:"maxClicks,omitempty"`
	Rules        []rule `json:"rules,omitempty"`
}

func routingToAssistant(l *client.Link) routingOut {
	out := routingOut{
		RedirectType: l.RedirectType, ForwardQuery: l.ForwardQuery, ForwardPath: l.ForwardPath, StartsAt: iso(l.StartsAt),
		ExpiredURL: text(l.ExpiredURL), HasPassword: l.HasPassword,
	}
	if l.MaxClicks != nil {
		out.MaxClicks = *l.MaxClicks
	}
	for _, r := range l.Rules {
		w := r.When
		when := ruleWhen{w.Country, w.Device, w.System, w.Language, w.Query, iso(w.From), iso(w.Until), w.Percent}
		out.Rules = append(out.Rules, rule{r.Name, when, r.URL})
	}
	return out
}

type explainLinkIn struct {
	linkIn
	Country  string `json:"country,omitempty" jsonschema:"the visitor's country, two letters such as DE"`
	Device   string `json:"device,omitempty" jsonschema:"the visitor's device type; not derived from system, so specify both for an iPhone: phone and ios"`
	System   string `json:"system,omitempty" jsonschema:"the visitor's operating system; not derived from device"`
	Language string `json:"language,omitempty" jsonschema:"the browser's languages, as in the Accept-Language header, such as de or de-AT,de;q=0.9,en;q=0.5; only the most preferred one counts"`
	Query    string `json:"query,omitempty" jsonschema:"the visit's full query string, such as a=1&b=2"`
	Path     string `json:"path,omitempty" jsonschema:"the path after the slug, such as /a/b"`
	At       string `json:"at,omitempty" jsonschema:"time of the visit: a time from now such as 7d, or a date such as 2030-12-31T12:00:00Z; now if omitted"`
	Percent  *int   `json:"percent,omitempty" jsonschema:"the visitor's percentile, 0 to 99, for rules with a percentage; if omitted, such rules are skipped"`
}

func (t *tools) explainLink(ctx context.Context, _ *mcp.CallToolRequest, in explainLinkIn) (*client.LinkExplained, error) {
	id, err := t.linkID(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	v := client.ExplainLinkQuery{
		Country: in.Country, Device: in.Device, System: in.System, Language: in.Language, Query: in.Query, Path: in.Path,
		Percent: in.Percent,
	}
	if in.At != "" {
		v.At = moment(in.At, t.env.Now()).String()
	}
	return t.client.ExplainLink(ctx, id, v)
}

type checkSlugIn struct {
	Slug   string `json:"slug" jsonschema:"last part of the short URL, such as spring-sale"`
	Domain string `json:"domain,omitempty" jsonschema:"host name or id of a custom domain, or default for the default host; the account's default domain if omitted"`
}

func (t *tools) checkSlug(ctx context.Context, _ *mcp.CallToolRequest, in checkSlugIn) (*client.SlugAvailable, error) {
	domain, err := t.domainID(ctx, in.Domain)
	if err != nil {
		return nil, err
	}
	return t.client.CheckSlug(ctx, client.CheckSlugQuery{Slug: in.Slug, DomainID: domain})
}
