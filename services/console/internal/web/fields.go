package web

import (
	"cmp"
	"slices"
	"strings"

	"github.com/linkreel/linkreel/services/console/internal/text"
)

// field is one field in a form, for the template "field".
type field struct {
	Name  string // the field's name, both in the form and in the API's errors
	Key   string // the label's key; the hint, if there is one, has the key Key+".hint"
	Text  string // the label, if it is a name (such as a column name) instead of a console text
	Kind  string // text, url, number, password, time, lines, check, select or boxes
	Value string
	// Was is a time field's stored value in ms, or "" if there is none. It preserves the
	// seconds, which the field does not show.
	Was     string
	Choices []option // the choices in a select or boxes field
	Max     int      // the maximum number of characters; 0 means unlimited
	Focus   bool     // whether the field is focused when the page opens
	Error   string
	Theirs  *string // the value that somebody else has stored; see [view]
}

// ID returns the name with hyphens instead of dots, which are awkward in HTML ids.
func (f field) ID() string { return strings.ReplaceAll(f.Name, ".", "-") }

func (f field) Label() string {
	if f.Text != "" {
		return f.Text
	}
	return text.Get(f.Key)
}

// Hint returns the text below the field, or "" if there is none.
func (f field) Hint() string {
	if key := f.Key + ".hint"; text.Has(key) {
		return text.Get(key)
	}
	return ""
}

// Described returns the ids of the elements that describe the field, separated by spaces.
func (f field) Described() (ids string) {
	if f.Hint() != "" || f.Kind == "time" {
		ids = f.ID() + "-hint "
	}
	if f.Error != "" {
		ids += f.ID() + "-error"
	}
	return ids
}

// choose returns the field with the given values as its choices. A choice's text has the key
// prefix+value.
func (f field) choose(prefix string, values ...string) field {
	f.Choices = options(prefix, values, f.Value)
	return f
}

// With returns the field with its error from the view and the value that somebody else has stored.
func (v view) With(f field) field {
	f.Error, f.Theirs = v.Fields[f.Name], v.Theirs[f.Name]
	if f.Theirs == nil || *f.Theirs == "" {
		return f
	}
	shown := *f.Theirs
	if f.Kind == "check" {
		shown = text.Get("form." + cmp.Or(shown, "false"))
	}
	if i := slices.IndexFunc(f.Choices, func(o option) bool { return o.Value == shown }); i >= 0 {
		shown = f.Choices[i].Text
	}
	f.Theirs = &shown
	return f
}

// Uses reports whether at least one of the fields is filled in, has an error or was changed by
// somebody else. Pages expand the sections of a form that are in use.
func (v view) Uses(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		value := v.Form[name]
		return v.Fields[name] != "" || v.Theirs[name] != nil || value != "" && value != "false" && value != temporary
	})
}
