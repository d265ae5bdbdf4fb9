package web

import (
	"net/url"
	"strings"

	"github.com/linkreel/linkreel/libs/apierr"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

func (r *request) domainsView() (view, error) {
	var list client.DomainList
	if err := r.do("GET", "/api/v1/domains", nil, &list); err != nil {
		return view{}, err
	}
	return view{Title: text.Get("domains.title"), Data: map[string]any{"Domains": list.Data, "CanWrite": r.can("domains:write")}}, nil
}

var domainsPage = page{template: "domains.html", view: (*request).domainsView}

func (r *request) domainPath() string { return "/api/v1/domains/" + url.PathEscape(r.Params("id")) }

func addDomain(r *request) error {
	err := r.do("POST", "/api/v1/domains", client.DomainCreate{Hostname: strings.TrimSpace(r.form.Get("hostname"))}, nil)
	return domainsPage.answer(r, err, "/app/domains", "domain.added")
}

// verifyDomain checks the name's records now. A missing record is not an error: the page
// shows what is missing, and the service repeats the check.
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
