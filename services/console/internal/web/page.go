package web

import (
	"net/http"

	"github.com/linkreel/linkreel/libs/apierr"
)

// page is a page with forms: what it shows is read again after each of them.
type page struct {
	template string
	view     func(r *request) (view, error)
	// typed, when not nil, keeps choices of a refused form that are no plain fields.
	typed func(r *request, data map[string]any)
}

func (p page) show(r *request) error {
	v, err := p.view(r)
	if err != nil {
		return err
	}
	return r.render(http.StatusOK, p.template, v)
}

// answer answers a form of the page: a notice when it worked, else the page again.
func (p page) answer(r *request, err error, home, notice string) error {
	switch {
	case err == nil:
		return r.done(home, notice)
	case apierr.CodeOf(err).Status() == http.StatusNotFound:
		return err // there is no such record to show the form for
	}
	return p.again(r, err)
}

// again shows the page with what is wrong: with what was typed in this form, and what
// is stored in the others.
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

// secret shows what was just made together with its page. It is shown nowhere else and
// must not be lost: when the page cannot be read, it is shown without.
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
