package web

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/linkreel/linkreel/libs/apierr"
)

// Form fields that identify the version of the record that the person saw.
const (
	revField = "rev" // its ETag
	wasField = "was" // hashes of the shown values, see [shown]
)

// hiddenFields are excluded when a page shows the typed values again.
var hiddenFields = []string{csrfField, revField, wasField}

// shown returns the value of [wasField], which contains a short hash of each field's value on the
// page.
func shown(form map[string]string) string {
	sums := map[string]string{}
	for name, value := range form {
		sum := sha256.Sum256([]byte(value))
		sums[name] = hex.EncodeToString(sum[:6])
	}
	text, _ := json.Marshal(sums) // a map of strings can always be encoded
	return string(text)
}

// edit stores the form on a record's page. The record may have changed since the page was shown,
// for example because a video became ready. If none of the form's own fields has changed since
// then, storing the form does not overwrite anyone's change, so edit resubmits it with the new
// version. Otherwise, edit returns the API's 412. now reads the page's current values.
func (r *request) edit(method, path string, in any, now func() (view, error)) error {
	err := r.do(method, path, in, nil)
	if apierr.CodeOf(err) != apierr.PreconditionFailed {
		return err
	}
	v, failed := now()
	if failed != nil || !r.untouched(v) {
		return err
	}
	r.form.Set(revField, v.Rev)
	return r.do(method, path, in, nil)
}

// untouched reports whether the stored values of this form's fields are still those that the
// person saw.
func (r *request) untouched(now view) bool {
	var was, is map[string]string
	if json.Unmarshal([]byte(r.form.Get(wasField)), &was) != nil || json.Unmarshal([]byte(now.Was), &is) != nil {
		return false
	}
	for name := range r.form {
		if was[name] != is[name] {
			return false
		}
	}
	return true
}

// theirs returns the stored values that differ from the typed ones, by field.
func theirs(stored, typed map[string]string) map[string]*string {
	out := map[string]*string{}
	for name, value := range typed {
		if now, ok := stored[name]; ok && now != strings.ReplaceAll(value, "\r\n", "\n") {
			out[name] = &now
		}
	}
	return out
}
