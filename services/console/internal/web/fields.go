package web

import (
	"cmp"
	"slices"
	"strings"

	"github.com/linkreel/linkreel/services/console/internal/text"
)

// field is one field of a form, as the template "field" draws it.
type field struct {
	Name  string // in the form, which is also its name in the API's errors
	Key   string // of its texts: Key for the label, and Key+".hint" if there is one
	Kind  string // text, url, number, password, time, lines, check, select or boxes
	Value string
	// Was is the exact moment of a time field, in ms, so that the form keeps its seconds; "" for none.
	Was     string
	Choices []option // of select and boxes
	Max     int      // characters; 0 means any number
	Focus   bool     // whether the page opens at this field
	Error   string
	Theirs  *string // what somebody else stored meanwhile; see [view]
}

// ID is the name without dots, which ids in HTML should not have.
func (f field) ID() string { return strings.ReplaceAll(f.Name, ".", "-") }

func (f field) Label() string { return text.Get(f.Key) }

// Hint is the text below the field, or "".
func (f field) Hint() string {
	if key := f.Key + ".hint"; text.Has(key) {
		return text.Get(key)
	}
	return ""
}

// Described lists the ids of the texts that describe the field, separated by spaces.
func (f field) Described() (ids string) {
	if f.Hint() != "" || f.Kind == "time" {
		ids = f.ID() + "-hint "
	}
	if f.Error != "" {
		ids += f.ID() + "-error"
	}
	return ids
}

// choose is a field whose value is one of some; the texts of these begin with prefix.
func (f field) choose(prefix string, values ...string) field {
	f.Choices = options(prefix, values, f.Value)
	return f
}

// With adds what the view has to say about a field.
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

// Uses reports whether one of the fields is filled in or has an error. Sections of a form
// that are in use are shown unfolded.
func (v view) Uses(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		value := v.Form[name]
		return v.Fields[name] != "" || v.Theirs[name] != nil || value != "" && value != "false" && value != temporary
	})
}
