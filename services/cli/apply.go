package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

func applyCommands() []command {
	return []command{{"apply", "", "create and change links and domains from a YAML file; never deletes", apply}}
}

// desired is the file's content. A field that the file omits for a domain or link is not
// changed.
type desired struct {
	Domains []desiredDomain `yaml:"domains"`
	Links   []desiredLink   `yaml:"links"`
}

// desiredDomain is a domain with the URLs of its pages. An empty URL removes the page.
type desiredDomain struct {
	Hostname    string  `yaml:"hostname"`
	HomeURL     *string `yaml:"homeUrl"`
	NotFoundURL *string `yaml:"notFoundUrl"`
	ExpiredURL  *string `yaml:"expiredUrl"`
}

func (d desiredDomain) name() string { return "domain " + strings.ToLower(d.Hostname) }

type desiredLink struct {
	Slug          string    `yaml:"slug"`
	Domain        string    `yaml:"domain"` // host name; empty means the default host
	URL           string    `yaml:"url"`
	Title         *string   `yaml:"title"`
	Tags          *[]string `yaml:"tags"`
	ExternalID    *string   `yaml:"externalId"`
	Archived      *bool     `yaml:"archived"`
	ExpiresAt     *string   `yaml:"expiresAt"` // a date, or never
	OGTitle       *string   `yaml:"ogTitle"`
	OGDescription *string   `yaml:"ogDescription"`
	OGImage       *string   `yaml:"ogImage"`

	RedirectType *int64        `yaml:"redirectType"`
	ForwardQuery *bool         `yaml:"forwardQuery"`
	ForwardPath  *bool         `yaml:"forwardPath"`
	StartsAt     *string       `yaml:"startsAt"` // a date, or never
	ExpiredURL   *string       `yaml:"expiredUrl"`
	Password     *string       `yaml:"password"`
	MaxClicks    *int64        `yaml:"maxClicks"` // 0 means unlimited
	Rules        *desiredRules `yaml:"rules"`
}

func (l desiredLink) name() string { return strings.TrimPrefix(l.Domain+"/"+l.Slug, "/") }

func apply(a *app, fs *flag.FlagSet) action {
	ap := applier{app: a, domains: map[string]string{}}
	file := fs.String("f", "", "the `file`; - is standard input")
	fs.BoolVar(&ap.dry, "dry-run", false, "only print the changes")
	return func(ctx context.Context, args []string) error {
		if err := none(args); err != nil {
			return err
		}
		if *file == "" {
			return usagef("apply needs -f FILE")
		}
		want, err := a.readDesired(*file)
		if err != nil {
			return err
		}
		if ap.client, err = a.connect(); err != nil {
			return err
		}
		return ap.run(ctx, want)
	}
}

// readDesired reads and checks the whole file before anything changes.
func (a *app) readDesired(file string) (*desired, error) {
	in, _, err := a.open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // opened only for reading
	dec := yaml.NewDecoder(in)
	dec.KnownFields(true) // otherwise a misspelled field would be ignored silently
	var want desired
	if err := dec.Decode(&want); err != nil && !errors.Is(err, io.EOF) {
		return nil, usagef("%s: %v", file, err)
	}
	seen := map[string]bool{}
	for i, d := range want.Domains {
		switch {
		case d.Hostname == "":
			return nil, usagef("%s: domain %d must have a hostname", file, i+1)
		case seen[d.name()]:
			return nil, usagef("%s: %s appears twice", file, d.name())
		}
		seen[d.name()] = true
	}
	for i, l := range want.Links {
		switch name := strings.ToLower(l.name()); {
		case l.Slug == "" || l.URL == "":
			return nil, usagef("%s: link %d must have a slug and a url", file, i+1)
		case seen[name]:
			return nil, usagef("%s: %s appears twice", file, l.name())
		default:
			seen[name] = true
		}
		for field, at := range map[string]*string{"expiresAt": l.ExpiresAt, "startsAt": l.StartsAt} {
			if at == nil || *at == "never" {
				continue
			}
			if _, ok := endOf(*at, time.Time{}); !ok {
				return nil, usagef("%s: %s: %s must be a date such as 2027-01-31T12:00:00Z, or never", file, l.name(), field)
			}
			if _, relative := span(*at); relative {
				return nil, usagef("%s: %s: %s must be a date, not a duration, because the file can be applied many times", file, l.name(), field)
			}
		}
	}
	return &want, nil
}

// applier changes a deployment so that it matches a file.
type applier struct {
	*app
	dry     bool
	client  *client.Client
	domains map[string]string // IDs by host name
	tally
}

type tally struct{ created, changed, same, failed int }

func (p *applier) run(ctx context.Context, want *desired) error {
	have, err := p.readDomains(ctx, want)
	if err != nil {
		return err
	}
	for _, d := range want.Domains {
		if err := p.try(d.name(), func() error { return p.applyDomain(ctx, d, have[strings.ToLower(d.Hostname)]) }); err != nil {
			return err
		}
	}
	for _, l := range want.Links {
		if err := p.try(l.name(), func() error { return p.applyLink(ctx, l) }); err != nil {
			return err
		}
	}
	verb := ""
	if p.dry {
		verb = " (dry run, nothing was changed)"
	}
	p.note("%d created, %d changed, %d unchanged, %d failed%s", p.created, p.changed, p.same, p.failed, verb)
	if p.failed > 0 {
		return &partly{p.failed, p.failed + p.created + p.changed + p.same}
	}
	return nil
}

// try applies one domain or link. If the service rejects it, try counts a failure and returns nil, so
// that the others are still applied.
func (p *applier) try(name string, step func() error) error {
	before := p.tally
	err := step()
	var refused *client.APIError
	if errors.As(err, &refused) && refused.Status < 500 && refused.Status != 401 && refused.Status != 403 && refused.Status != 429 {
		p.tally = before // step has already counted it as applied
		p.failed++
		fmt.Fprintf(p.env.Err, "linkreel: %s: %s\n", clean(name), explain(err))
		return nil
	}
	return err
}

// readDomains returns the account's domains by host name.
func (p *applier) readDomains(ctx context.Context, want *desired) (map[string]*client.Domain, error) {
	list, err := client.All(p.client.Domains(ctx))
	if err != nil && !client.HasCode(err, "PLAN_REQUIRED", "INSUFFICIENT_SCOPE") {
		return nil, err
	}
	if err != nil && len(want.Domains) > 0 { // the plan need not include domains if the file has none
		return nil, err
	}
	have := map[string]*client.Domain{}
	for _, d := range list {
		host := strings.ToLower(d.Hostname)
		have[host], p.domains[host] = &d, d.ID
	}
	return have, nil
}

// applyDomain creates a domain or changes it to match the file. have is nil if the account does not
// have the domain.
func (p *applier) applyDomain(ctx context.Context, want desiredDomain, have *client.Domain) error {
	sign, host := "~", strings.ToLower(want.Hostname)
	if have == nil {
		sign, have = "+", &client.Domain{}
	}
	change, diff := want.changes(have)
	switch {
	case sign == "+":
		p.created++
	case len(diff) == 0:
		p.same++
		return nil
	default:
		p.changed++
	}
	if err := p.say(sign, want.name(), diff); err != nil {
		return err
	}
	if p.dry {
		p.domains[host] = cmp.Or(have.ID, "new") // links may refer to it
		return nil
	}
	if sign == "+" {
		made, err := p.client.CreateDomain(ctx, client.DomainCreate{Hostname: want.Hostname})
		if err != nil {
			return err
		}
		have, p.domains[host] = made, made.ID
		for _, r := range made.Records {
			p.note("  set in DNS: %s %s %q", clean(r.Name), clean(r.Type), r.Value)
		}
	}
	if len(diff) == 0 {
		return nil
	}
	_, err := p.client.UpdateDomain(ctx, have.ID, change)
	return err
}

// changes returns the pages in the file that differ from the domain's.
func (d desiredDomain) changes(have *client.Domain) (change client.DomainUpdate, diff []string) {
	differ := differences(&diff)
	changeText("homeUrl", d.HomeURL, have.HomeURL, &change.HomeURL, differ)
	changeText("notFoundUrl", d.NotFoundURL, have.NotFoundURL, &change.NotFoundURL, differ)
	changeText("expiredUrl", d.ExpiredURL, have.ExpiredURL, &change.ExpiredURL, differ)
	return change, diff
}

func (p *applier) applyLink(ctx context.Context, want desiredLink) error {
	domain := ""
	if want.Domain != "" {
		if domain = p.domains[strings.ToLower(want.Domain)]; domain == "" {
			return &client.APIError{
				Status: 404, Code: "DOMAIN_NOT_FOUND",
				Message: "The account has no domain " + want.Domain + "; add it to domains in the file",
			}
		}
	}
	have, err := p.find(ctx, want.Slug, domain)
	if err != nil {
		return err
	}
	if have == nil {
		p.created++
		if err := p.say("+", want.name(), []string{"url: " + want.URL}); err != nil || p.dry {
			return err
		}
		_, err := p.client.CreateLink(ctx, want.create(domain))
		return err
	}
	change, diff := want.changes(have)
	if len(diff) == 0 {
		p.same++
		return nil
	}
	p.changed++
	if err := p.say("~", want.name(), diff); err != nil || p.dry {
		return err
	}
	_, err = p.client.UpdateLink(ctx, have.ID, change)
	return err
}

// find looks up a link by its slug. The service does the filtering, but find also checks the
// results because deployments that do not support the filter return all links.
func (p *applier) find(ctx context.Context, slug, domain string) (*client.Link, error) {
	if domain == "new" {
		return nil, nil // in a dry run, the domain does not exist yet
	}
	f := client.ListLinksQuery{Slug: slug, DomainID: cmp.Or(domain, "default"), Archived: "all"}
	for l, err := range p.client.Links(ctx, f) {
		if err != nil {
			return nil, err
		}
		if strings.EqualFold(l.Slug, slug) && text(l.DomainID) == domain {
			// A list omits ogTitle, ogDescription and ogImage, which changes needs.
			return p.client.GetLink(ctx, l.ID)
		}
	}
	return nil, nil
}

// say prints one step: + for created, ~ for changed.
func (p *applier) say(sign, name string, diff []string) error {
	return p.print(map[string]any{
		"action": map[string]string{"+": "create", "~": "change"}[sign], "name": name, "diff": diff, "dryRun": p.dry,
	}, func(w io.Writer) {
		fmt.Fprintf(w, "%s %s\n", sign, clean(name))
		for _, d := range diff {
			fmt.Fprintf(w, "    %s\n", clean(d))
		}
	})
}

func (l desiredLink) create(domain string) client.LinkCreate {
	in := client.LinkCreate{URL: l.URL, Slug: l.Slug, DomainID: cmp.Or(domain, "default"), Title: text(l.Title), ExternalID: text(l.ExternalID),
		OGTitle: text(l.OGTitle), OGDescription: text(l.OGDescription), OGImage: text(l.OGImage)}
	if l.Tags != nil {
		in.Tags = *l.Tags
	}
	if l.Archived != nil {
		in.Archived = *l.Archived
	}
	if l.ExpiresAt != nil && *l.ExpiresAt != "never" {
		end, _ := endOf(*l.ExpiresAt, time.Time{}) // checked when the file was read
		in.ExpiresAt = client.At(end)
	}
	l.addRouting(&in)
	return in
}

// changes returns the fields in the file that differ from the link's.
func (l desiredLink) changes(have *client.Link) (change client.LinkUpdate, diff []string) {
	differ := differences(&diff)
	if l.URL != have.DestinationURL {
		change.URL = client.Set(l.URL)
		differ("url", have.DestinationURL, l.URL)
	}
	changeText("title", l.Title, &have.Title, &change.Title, differ)
	changeText("externalId", l.ExternalID, have.ExternalID, &change.ExternalID, differ)
	changeText("ogTitle", l.OGTitle, have.OGTitle, &change.OGTitle, differ)
	changeText("ogDescription", l.OGDescription, have.OGDescription, &change.OGDescription, differ)
	changeText("ogImage", l.OGImage, have.OGImage, &change.OGImage, differ)
	changeText("expiredUrl", l.ExpiredURL, have.ExpiredURL, &change.ExpiredURL, differ)
	if l.Tags != nil && !slices.Equal(*l.Tags, have.Tags) && len(*l.Tags)+len(have.Tags) > 0 {
		change.Tags = client.Set(*l.Tags)
		differ("tags", strings.Join(have.Tags, ", "), strings.Join(*l.Tags, ", "))
	}
	if l.Archived != nil && *l.Archived != have.Archived {
		change.Archived = client.Set(*l.Archived)
		differ("archived", fmt.Sprint(have.Archived), fmt.Sprint(*l.Archived))
	}
	changeMoment("expiresAt", l.ExpiresAt, have.ExpiresAt, &change.ExpiresAt, differ)
	l.routingChanges(have, &change, differ)
	return change, diff
}

// differences returns a function that adds a changed field to diff.
func differences(diff *[]string) func(field, was, is string) {
	return func(field, was, is string) { *diff = append(*diff, fmt.Sprintf("%s: %q → %q", field, was, is)) }
}

// changeText compares a string in the file with the record's. An empty string in the file clears
// the field.
func changeText(field string, want, have *string, to *client.Field[string], differ func(field, was, is string)) {
	if want == nil || *want == text(have) {
		return
	}
	*to = client.Set(*want)
	if *want == "" {
		*to = client.Clear[string]()
	}
	differ(field, text(have), *want)
}
