package web

import (
	"net/url"
	"strings"

	"github.com/linkreel/linkreel/libs/apierr"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

func (r *request) domainsView() (view, error) {
	domains, err := listAll[client.Domain](r, "/api/v1/domains")
	if err != nil {
		return view{}, err
	}
	rows := make([]domainRow, len(domains))
	for i, d := range domains {
		rows[i] = domainRow{d, d.ID == r.Params("id") && r.form.Has("homeUrl")}
	}
	return view{Title: text.Get("domains.title"), Data: map[string]any{"Domains": rows, "CanWrite": r.can("domains:write")}}, nil
}

// domainRow is a domain in the list.
type domainRow struct {
	client.Domain
	Typed bool // whether the form for its pages was rejected and shows the typed values
}

// domainPage is a field in the form for a domain's pages.
type domainPage struct {
	Name   string
	Stored *string
}

// Pages returns the form's fields, in the order on the page.
func (d domainRow) Pages() []domainPage {
	return []domainPage{{"homeUrl", d.HomeURL}, {"notFoundUrl", d.NotFoundURL}, {"expiredUrl", d.ExpiredURL}}
}

// changePages sets where the domain's host redirects visits that do not match any link.
func changePages(r *request) error {
	body := map[string]any{}
	for _, p := range (domainRow{}).Pages() {
		body[p.Name] = nil
		if typed := strings.TrimSpace(r.form.Get(p.Name)); typed != "" {
			body[p.Name] = typed
		}
	}
	return domainsPage.answer(r, r.do("PATCH", r.domainPath(), body, nil), "/app/domains", "saved")
}

var domainsPage = page{template: "domains.html", view: (*request).domainsView}

func (r *request) domainPath() string { return "/api/v1/domains/" + url.PathEscape(r.Params("id")) }

func addDomain(r *request) error {
	err := r.do("POST", "/api/v1/domains", client.DomainCreate{Hostname: strings.TrimSpace(r.form.Get("hostname"))}, nil)
	return domainsPage.answer(r, err, "/app/domains", "domain.added")
}

// verifyDomain checks the name's DNS records now. A missing record is not an error: the
// page shows the missing record, and the service repeats the check.
func verifyDomain(r *request) error {
	var d client.Domain
	err := r.do("POST", r.domainPath()+"/verify", nil, &d)
	if err == nil && d.Status != "verified" {
		reason := text.Get("domains.waiting")
		if d.Reason != nil {
			reason = *d.Reason
		}
		err = apierr.New(apierr.DomainNotVerified, d.Hostname+": "+reason)
	}
	return domainsPage.answer(r, err, "/app/domains", "domain.verified")
}

func deleteDomain(r *request) error {
	return domainsPage.answer(r, r.do("DELETE", r.domainPath(), nil, nil), "/app/domains", "domain.deleted")
}
