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

// do calls the API as the signed-in person. If the form changes a record, the call includes
// the version of the record that the person saw.
func (r *request) do(method, path string, in, out any, opts ...client.Option) error {
	switch method {
	case http.MethodPatch, http.MethodPut, http.MethodDelete:
		if seen := r.form.Get(revField); seen != "" {
			opts = append(opts, client.IfMatch(seen))
		}
	}
	if err := r.pages.cfg.API.WithKey(r.session).Request(r.ctx, method, path, in, out, opts...); err != nil {
		return refusal(method+" "+path, err)
	}
	return nil
}

// listAll reads a whole list from the API, one page at a time.
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

// read sends a GET and also returns the response headers.
func (r *request) read(path string, out any) (header http.Header, err error) {
	var answer client.Response
	err = r.do(http.MethodGet, path, nil, out, client.WithResponse(&answer))
	return answer.Header, err
}

// refusal converts an error from the API to an *apierr.Error that a page can show. Every other error
// becomes UNAVAILABLE.
func refusal(call string, err error) error {
	var e *client.APIError
	var argument *client.ArgumentError
	if errors.As(err, &argument) {
		return apierr.New(apierr.NotFound, text.Get("error.nothing"))
	}
	// If the code does not match the status, the response came from a proxy in between.
	if !errors.As(err, &e) || e.Status >= http.StatusInternalServerError || apierr.Code(e.Code).Status() != e.Status {
		return apierr.Down(fmt.Errorf("%s: %w", call, err))
	}
	out := &apierr.Error{
		Code: apierr.Code(e.Code), Message: e.Message, RequiredPlan: e.RequiredPlan, CurrentPlan: e.CurrentPlan,
		RequiredScope: e.RequiredScope, RequiredRole: e.RequiredRole, RetryAfter: e.RetryAfter,
	}
	for _, d := range e.Details { // omit the bounds, which the message already contains
		out.Details = append(out.Details, apierr.Detail{Field: d.Field, Code: d.Code, Message: d.Message})
	}
	return out
}

// str returns a string from the API, or "" if it is null.
func str(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
