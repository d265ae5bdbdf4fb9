package httpserver

import (
	"encoding/json"
	"strings"

	"github.com/linkreel/linkreel/libs/apierr"
)

// maxField limits the length of a field's name in an error because part of the name may come from
// the caller.
const maxField = 200

// ErrorBody returns an error response's body. Its size is bounded for any request: it lists at
// most [apierr.MaxDetails] details and counts the rest.
func ErrorBody(e *apierr.Error, requestID string) []byte {
	type body struct {
		Code          apierr.Code     `json:"code"`
		Message       string          `json:"message"`
		RequestID     string          `json:"requestId"`
		DocURL        string          `json:"docUrl"`
		Details       []apierr.Detail `json:"details,omitempty"`
		MoreDetails   int             `json:"moreDetails,omitempty"`
		RequiredPlan  string          `json:"requiredPlan,omitempty"`
		CurrentPlan   string          `json:"currentPlan,omitempty"`
		RequiredScope string          `json:"requiredScope,omitempty"`
		RequiredRole  string          `json:"requiredRole,omitempty"`
		RestartAfter  string          `json:"restartAfter,omitempty"`
		StartsAt      int64           `json:"startsAt,omitempty"`
	}
	details, more := e.Details, e.MoreDetails
	if n := len(details) - apierr.MaxDetails; n > 0 {
		details, more = details[:apierr.MaxDetails], more+n
	}
	for i, d := range details {
		if len(d.Field) > maxField {
			short := append([]apierr.Detail(nil), details...) // copy, because the error may be shared
			short[i].Field = strings.ToValidUTF8(d.Field[:maxField], "") + "…"
			details = short
		}
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // keep <, > and & in text
	err := enc.Encode(struct {
		Error body `json:"error"`
	}{body{
		e.Code, e.Message, requestID, e.Code.DocURL(), details, more, e.RequiredPlan, e.CurrentPlan, e.RequiredScope, e.RequiredRole,
		e.RestartAfter, e.StartsAt,
	}})
	if err != nil {
		return []byte(`{"error":{"code":"INTERNAL","message":"Something went wrong on our side.","requestId":"","docUrl":"/docs/guides/errors#internal"}}`)
	}
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}
