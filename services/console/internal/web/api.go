package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/linkreel/linkreel/libs/apierr"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// send calls the API as the signed-in person. If the form changes a record, the call names
// the version of the record that the person saw.
func (r *request) send(call client.Call) error {
	switch call.Method {
	case http.MethodPatch, http.MethodPut, http.MethodDelete:
		if seen := r.form.Get(revField); seen != "" {
			call.Header = http.Header{"If-Match": {seen}}
		}
	}
	err := r.pages.cfg.API.WithKey(r.session).Do(r.ctx, call)
	if err != nil {
		return refusal(call, err)
	}
	return nil
}

func (r *request) do(method, path string, in, out any) error {
	return r.send(client.Call{Method: method, Path: path, In: in, Out: out})
}

// listAll reads a whole list of the API, a page at a time.
func listAll[T any](r *request, path string) (records []T, err error) {
	for query := (url.Values{"limit": {"100"}}); ; {
		var page struct {
			Data       []T
			NextCursor *string
		}
		if err := r.do(http.MethodGet, path+"?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		if records = append(records, page.Data...); page.NextCursor == nil {
			return records, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}

// read sends a GET and also returns the headers of the response.
func (r *request) read(path string, out any) (header http.Header, err error) {
	err = r.send(client.Call{Method: http.MethodGet, Path: path, Out: out, Answered: func(h http.Header) { header = h }})
	return header, err
}

// refusal turns an error of the API into an *apierr.Error, so that a page can show it.
// Every other error becomes UNAVAILABLE.
func refusal(call client.Call, err error) error {
	var e *client.Error
	if errors.Is(err, client.ErrPath) {
		return apierr.New(apierr.NotFound, text.Get("error.nothing"))
	}
	// If the code does not match the status, the response came from a proxy in between.
	if !errors.As(err, &e) || e.Status >= http.StatusInternalServerError || apierr.Code(e.Code).Status() != e.Status {
		return apierr.Down(fmt.Errorf("%s %s: %w", call.Method, call.Path, err))
	}
	out := &apierr.Error{
		Code: apierr.Code(e.Code), Message: e.Message, RequiredPlan: e.RequiredPlan, CurrentPlan: e.CurrentPlan,
		RequiredScope: e.RequiredScope, RequiredRole: e.RequiredRole, RetryAfter: e.RetryAfter,
	}
	for _, d := range e.Details { // leave out the bounds: the message names them
		out.Details = append(out.Details, apierr.Detail{Field: d.Field, Code: d.Code, Message: d.Message})
	}
	return out
}

// str returns a text from the API, or "" if it is null.
func str(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
