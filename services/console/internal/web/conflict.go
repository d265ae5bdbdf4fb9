package web

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/linkreel/linkreel/libs/apierr"
)

// Fields of forms that say which state of the record the person saw.
const (
	revField = "rev" // its ETag
	wasField = "was" // what the fields showed, see [shown]
)

// hiddenFields are never shown again as something that was typed.
var hiddenFields = []string{csrfField, revField, wasField}

// shown is the text of [wasField]: for each field of a page a short hash of what it
// showed.
func shown(form map[string]string) string {
	sums := map[string]string{}
	for name, value := range form {
		sum := sha256.Sum256([]byte(value))
		sums[name] = hex.EncodeToString(sum[:6])
	}
	text, _ := json.Marshal(sums) // of strings: cannot fail
	return string(text)
}

// edit stores what a form of a record's page says. When the record has changed since
// the page was shown, but none of the form's own fields has, nothing of anybody is
// overwritten, and the form is stored over the new state: a video that becomes ready
// is no reason to ask. Else the API's 412 comes back. now reads the page as it would be
// shown now.
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

// untouched reports whether the fields of this form are stored as the person saw them.
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

// theirs lists the fields that are stored otherwise than they were typed.
func theirs(stored, typed map[string]string) map[string]*string {
	out := map[string]*string{}
	for name, value := range typed {
		if now, ok := stored[name]; ok && now != strings.ReplaceAll(value, "\r\n", "\n") {
			out[name] = &now
		}
	}
	return out
}
