package web

import (
	"net/http"

	"github.com/linkreel/linkreel/libs/apierr"
)

// page is a page with forms. After each form is handled, the page's data is read again.
type page struct {
	template string
	view     func(r *request) (view, error)
	// typed, if not nil, keeps the parts of a rejected form that are not plain fields.
	typed func(r *request, data map[string]any)
}

func (p page) show(r *request) error {
	v, err := p.view(r)
	if err != nil {
		return err
	}
	return r.render(http.StatusOK, p.template, v)
}

// answer responds to a form on the page. If the action succeeded, it shows a notice. Otherwise, it
// shows the page again with the errors.
func (p page) answer(r *request, err error, home, notice string) error {
	switch {
	case err == nil:
		return r.done(home, notice)
	case apierr.CodeOf(err).Status() == http.StatusNotFound:
		return err // the record does not exist, so there is no form to show
	}
	return p.again(r, err)
}

// again shows the page with the errors. The rejected form keeps the typed values. The other forms
// show the stored values.
func (p page) again(r *request, err error) error {
	v, failed := p.view(r)
	if failed != nil {
		return failed
	}
	if p.typed != nil {
		p.typed(r, v.Data.(map[string]any))
	}
	for name, value := range v.Form {
		if _, here := r.form[name]; !here {
			r.form.Set(name, value)
		}
	}
	return r.again(atField(err), p.template, v)
}

// secret shows a new secret on its page. It is not shown anywhere else and must not be lost, so if
// the page's data cannot be read, the response only shows the secret.
func (p page) secret(r *request, err error, home, about, secret string, put func(data map[string]any)) error {
	if err != nil {
		return p.again(r, err)
	}
	v, failed := p.view(r)
	if failed != nil {
		return r.onlySecret(failed, home, about, secret)
	}
	put(v.Data.(map[string]any))
	return r.render(http.StatusOK, p.template, v)
}
