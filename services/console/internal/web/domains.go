package web

import (
	"net/http"
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

func domains(r *request) error {
	v, err := r.domainsView()
	if err != nil {
		return err
	}
	return r.render(http.StatusOK, "domains.html", v)
}

// onDomains answers a form of the page; a refusal is shown on it.
func (r *request) onDomains(err error, notice string) error {
	if err == nil {
		return r.done("/app/domains", notice)
	}
	if apierr.CodeOf(err) == apierr.DomainNotFound {
		return err
	}
	v, failed := r.domainsView()
	if failed != nil {
		return failed
	}
	return r.again(atField(err), "domains.html", v)
}

func (r *request) domainPath() string { return "/api/v1/domains/" + url.PathEscape(r.Params("id")) }

func addDomain(r *request) error {
	return r.onDomains(
		r.do("POST", "/api/v1/domains", client.DomainCreate{Hostname: strings.TrimSpace(r.form.Get("hostname"))}, nil),
		"domain.added",
	)
}

// verifyDomain looks at the name's records now. A record that is not there yet is no
// failure: the page says what is missing, and the check is repeated by itself.
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
	return r.onDomains(err, "domain.verified")
}

func deleteDomain(r *request) error {
	return r.onDomains(r.do("DELETE", r.domainPath(), nil, nil), "domain.deleted")
}
