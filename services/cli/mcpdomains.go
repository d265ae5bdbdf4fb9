package cli

import (
	"context"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

func (t *tools) readAccount(s *mcp.Server) {
	addTool(s, reads, "get_account", "Show the account's plan, the number of links, videos and domains it has and is allowed to have, and its default domain.",
		t.getAccount)
	addTool(s, reads, "list_tags", "List the tags of the account's links and videos in alphabetical order.", t.listTags, within("limit", 1, 100))
	addTool(s, reads, "list_domains", "List the account's custom domains, whether they are verified, the DNS records to set if they are not, "+
		"and where visits without a matching link are redirected.", t.listDomains)
}

func (t *tools) writeDomains(s *mcp.Server) {
	addTool(s, adds, "add_domain", "Add a custom host name for short links and return the DNS records to set.", t.addDomain)
	addTool(s, changes, "verify_domain", "Check now whether a domain's DNS records are set.", t.verifyDomain)
	addTool(s, changes, "update_domain", "Set where a domain redirects visits that no link serves: visits to its start page, to unknown "+
		"addresses and to links that have ended.", t.updateDomain, among("clear", "homeUrl", "notFoundUrl", "expiredUrl"))
}

// domainID finds the ID of a domain specified by its ID or host name. It returns "default" and ""
// unchanged.
func (t *tools) domainID(ctx context.Context, name string) (string, error) {
	if name == "" || name == "default" || strings.HasPrefix(name, "dom_") {
		return name, nil
	}
	for d, err := range t.client.Domains(ctx) {
		if err != nil {
			return "", err
		}
		if strings.EqualFold(d.Hostname, strings.TrimSuffix(name, ".")) {
			return d.ID, nil
		}
	}
	return "", &client.APIError{Status: 404, Code: "DOMAIN_NOT_FOUND", Message: "The account has no domain " + name + "; list_domains shows them."}
}

type nothingIn struct{}

type accountOut struct {
	ID              string               `json:"id"`
	Name            string               `json:"name"`
	Plan            string               `json:"plan"`
	DefaultDomainID string               `json:"defaultDomainId,omitempty" jsonschema:"domain for new links; absent if it is the default host"`
	Usage           client.AccountUsage  `json:"usage" jsonschema:"what the account has"`
	Limits          client.AccountLimits `json:"limits" jsonschema:"the account's limits; null means no limit"`
}

func (t *tools) getAccount(ctx context.Context, _ *mcp.CallToolRequest, _ nothingIn) (out accountOut, err error) {
	a, err := t.client.GetAccount(ctx)
	if err != nil {
		return out, err
	}
	return accountOut{a.ID, a.Name, a.Plan, text(a.DefaultDomainID), a.Usage, a.Limits}, nil
}

type listTagsIn struct {
	Text   string `json:"text,omitempty" jsonschema:"only tags with words that begin with these words; all tags if omitted"`
	Limit  int    `json:"limit,omitempty" jsonschema:"maximum number of tags; 100 if omitted"`
	Cursor string `json:"cursor,omitempty" jsonschema:"nextCursor from an earlier response, to get the next tags"`
}

type listTagsOut struct {
	Tags       []string `json:"tags"`
	NextCursor string   `json:"nextCursor,omitempty" jsonschema:"pass it as cursor to get more; absent if there are no more"`
}

func (t *tools) listTags(ctx context.Context, _ *mcp.CallToolRequest, in listTagsIn) (out listTagsOut, err error) {
	q := client.ListTagsQuery{Q: in.Text, Limit: in.Limit}
	if q.Limit == 0 {
		q.Limit = 100
	}
	if in.Cursor != "" {
		q.Cursor = &in.Cursor
	}
	page, err := t.client.ListTags(ctx, q)
	if err != nil {
		return out, err
	}
	out.Tags, out.NextCursor = make([]string, len(page.Data)), text(page.NextCursor)
	for i, tag := range page.Data {
		out.Tags[i] = tag.Name
	}
	return out, nil
}

type domainOut struct {
	ID          string             `json:"id"`
	Hostname    string             `json:"hostname"`
	Status      string             `json:"status" jsonschema:"links can be created only on a verified domain"`
	Reason      string             `json:"reason,omitempty" jsonschema:"why the last check failed"`
	Records     []client.DNSRecord `json:"records,omitempty" jsonschema:"DNS records to set while the domain is not verified"`
	HomeURL     string             `json:"homeUrl,omitempty"`
	NotFoundURL string             `json:"notFoundUrl,omitempty"`
	ExpiredURL  string             `json:"expiredUrl,omitempty"`
}

func showDomain(d *client.Domain) domainOut {
	out := domainOut{
		ID: d.ID, Hostname: d.Hostname, Status: d.Status, Reason: text(d.Reason), HomeURL: text(d.HomeURL), NotFoundURL: text(d.NotFoundURL),
		ExpiredURL: text(d.ExpiredURL),
	}
	if d.Status != "verified" {
		out.Records = d.Records
	}
	return out
}

type listDomainsOut struct {
	Domains []domainOut `json:"domains"`
}

func (t *tools) listDomains(ctx context.Context, _ *mcp.CallToolRequest, _ nothingIn) (listDomainsOut, error) {
	out := listDomainsOut{Domains: []domainOut{}}
	for d, err := range t.client.Domains(ctx) {
		if err != nil {
			return out, err
		}
		out.Domains = append(out.Domains, showDomain(&d))
	}
	return out, nil
}

type addDomainIn struct {
	Hostname string `json:"hostname" jsonschema:"host name such as go.example.com, without https://"`
}

func (t *tools) addDomain(ctx context.Context, _ *mcp.CallToolRequest, in addDomainIn) (out domainOut, err error) {
	d, err := t.client.CreateDomain(ctx, client.DomainCreate{Hostname: in.Hostname})
	if err != nil {
		return out, err
	}
	return showDomain(d), nil
}

type domainIn struct {
	Domain string `json:"domain" jsonschema:"host name or id of the domain"`
}

func (t *tools) verifyDomain(ctx context.Context, _ *mcp.CallToolRequest, in domainIn) (out domainOut, err error) {
	id, err := t.domainID(ctx, in.Domain)
	if err != nil {
		return out, err
	}
	d, err := t.client.VerifyDomain(ctx, id)
	if err != nil {
		return out, err
	}
	return showDomain(d), nil
}

type updateDomainIn struct {
	domainIn
	HomeURL     string   `json:"homeUrl,omitempty" jsonschema:"URL that visits to the start page / are redirected to"`
	NotFoundURL string   `json:"notFoundUrl,omitempty" jsonschema:"URL that visits to unknown short URLs are redirected to"`
	ExpiredURL  string   `json:"expiredUrl,omitempty" jsonschema:"URL that visits to expired links are redirected to, unless the link has its own"`
	Clear       []string `json:"clear,omitempty" jsonschema:"fields to clear; fields that are neither specified nor listed here do not change"`
}

func (t *tools) updateDomain(ctx context.Context, _ *mcp.CallToolRequest, in updateDomainIn) (out domainOut, err error) {
	var change client.DomainUpdate
	for _, f := range []struct {
		name, value string
		to          *client.Field[string]
	}{{"homeUrl", in.HomeURL, &change.HomeURL}, {"notFoundUrl", in.NotFoundURL, &change.NotFoundURL}, {"expiredUrl", in.ExpiredURL, &change.ExpiredURL}} {
		if err := setOrClear(f.name, f.value, in.Clear, f.to, func(s string) string { return s }); err != nil {
			return out, err
		}
	}
	if change == (client.DomainUpdate{}) {
		return out, usagef("nothing to change: give a field, or list one in clear")
	}
	id, err := t.domainID(ctx, in.Domain)
	if err != nil {
		return out, err
	}
	d, err := t.client.UpdateDomain(ctx, id, change)
	if err != nil {
		return out, err
	}
	return showDomain(d), nil
}
