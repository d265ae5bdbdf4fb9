package httpapi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apierr"
)

// addFailures converts the leaves of a schema failure into details, one per field.
func (f *Fields) addFailures(e *jsonschema.ValidationError) {
	for i := range e.InstanceLocation {
		if i > 0 && f.HasError(strings.Join(e.InstanceLocation[:i], ".")) {
			return // report one error for a list that is too long, not one for each item
		}
	}
	if k, ok := e.ErrorKind.(*kind.AdditionalProperties); ok {
		f.addUnknown(e.InstanceLocation, k.Properties)
		return
	}
	if len(e.Causes) == 0 {
		f.Add(detailsOf(e)...)
		return
	}
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf:
		// The branches' errors contradict each other. The caller only needs to know that the
		// value has none of the accepted types.
		message := "This field has the wrong type."
		if want := branchTypes(e); want != nil {
			message = "Use " + typesOf(want) + "."
		}
		f.Add(apierr.Detail{Field: location(e), Code: apierr.InvalidType, Message: message})
		return
	}
	for _, cause := range e.Causes {
		f.addFailures(cause)
	}
}

func detailsOf(e *jsonschema.ValidationError) []apierr.Detail {
	d := apierr.Detail{Field: location(e), Code: apierr.InvalidValue, Message: "This value is not valid."}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		var out []apierr.Detail
		for _, name := range k.Missing {
			field := name
			if d.Field != "" {
				field = d.Field + "." + name
			}
			out = append(out, apierr.Detail{Field: field, Code: apierr.Required, Message: "This field is required."})
		}
		return out
	case *kind.Type:
		d.Code, d.Message = apierr.InvalidType, "Use "+typesOf(k.Want)+"."
	case *kind.MaxLength:
		d.Code, d.Max, d.Message = apierr.TooLong, int64(k.Want), "Use at most "+count(k.Want, "character")+"."
	case *kind.MinLength:
		d.Code, d.Min, d.Message = apierr.TooShort, int64(k.Want), "Use at least "+count(k.Want, "character")+"."
	case *kind.MaxItems:
		d.Code, d.Max, d.Message = apierr.TooLong, int64(k.Want), "Use at most "+count(k.Want, "item")+"."
	case *kind.MinItems:
		d.Code, d.Min, d.Message = apierr.TooShort, int64(k.Want), "Use at least "+count(k.Want, "item")+"."
	case *kind.MinProperties:
		d.Code, d.Min, d.Message = apierr.TooShort, int64(k.Want), "Set at least "+count(k.Want, "field")+" of this object."
	case *kind.Maximum:
		d.Code, d.Message = apierr.OutOfRange, "This number is too large. Use at most "+k.Want.RatString()+"."
		if k.Want.IsInt() {
			d.Max = k.Want.Num().Int64()
		}
	case *kind.Minimum:
		d.Code, d.Message = apierr.OutOfRange, "This number is too small. Use at least "+k.Want.RatString()+"."
		if k.Want.IsInt() {
			d.Min = k.Want.Num().Int64()
		}
	case *kind.Enum:
		var want []string
		for _, v := range k.Want {
			if v != nil { // null means that the field is not set
				want = append(want, fmt.Sprint(v))
			}
		}
		d.Message = "Use one of " + strings.Join(want, ", ") + "."
	case *kind.Pattern, *kind.Format:
		d.Code, d.Message = apierr.InvalidFormat, "This value has the wrong format."
	}
	return []apierr.Detail{d}
}

// branchTypes returns the types that the branches of a failure accept, or nil if a branch failed
// for a different reason.
func branchTypes(e *jsonschema.ValidationError) (want []string) {
	for _, cause := range e.Causes {
		k, ok := cause.ErrorKind.(*kind.Type)
		if !ok {
			return nil
		}
		want = append(want, k.Want...)
	}
	return want
}

// typesOf lists JSON types as a phrase, with null last: "a string, or null".
func typesOf(want []string) string {
	names := map[string]string{
		"string": "a string", "number": "a number", "integer": "a whole number", "boolean": "true or false", "array": "a list", "object": "an object",
	}
	var out []string
	for _, t := range want {
		if t != "null" {
			out = append(out, cmp.Or(names[t], t))
		}
	}
	text := strings.Join(out, " or ")
	switch null := slices.Contains(want, "null"); {
	case null && text == "":
		return "null"
	case null:
		return text + ", or null"
	}
	return text
}

// count formats a number with a noun: "1 item", "2 items".
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprint(n, " ", thing)
}

func location(e *jsonschema.ValidationError) string { return strings.Join(e.InstanceLocation, ".") }

// addQuery rejects parameters that the operation does not have. params maps each of the operation's
// parameters to true if it may be repeated.
func (f *Fields) addQuery(args *fasthttp.Args, params map[string]bool) {
	known := slices.Sorted(maps.Keys(params))
	seen := map[string]bool{}
	for key := range args.All() {
		name := string(key)
		repeatable, ok := params[name]
		switch {
		case !ok && name != "": // an empty name is a stray & or =
			f.addUnknownName(nil, name, known, "parameter")
		case ok && seen[name] && !repeatable:
			// Handlers read only the first value, so a second value would be silently ignored.
			f.Add(apierr.Detail{Field: name, Code: apierr.Unknown, Message: "Send this parameter once. It accepts only one value."})
		}
		seen[name] = true
	}
}

// addBody rejects every name in the body if the operation does not take a body. A body without
// names is accepted because nothing in it would be ignored.
func (f *Fields) addBody(body []byte) {
	o, err := parseObject(body)
	if err != nil {
		return
	}
	for _, name := range o.names {
		f.addUnknownName(nil, name, nil, "field")
	}
}

// addUnknown rejects unknown names. at is the path of the object that contains them.
func (f *Fields) addUnknown(at, names []string) {
	var known []string
	if s := schemaAt(f.schema, at); s != nil {
		known = editable(s)
	}
	slices.Sort(names) // the library returns them in no particular order
	for _, name := range names {
		f.addUnknownName(at, name, known, "field")
	}
}

func (f *Fields) addUnknownName(at []string, name string, known []string, what string) {
	if len(f.details) >= apierr.MaxDetails {
		f.more++ // only count these names: finding similar names takes time
		return
	}
	message := "There is no such " + what + " here."
	if near := nearest(name, known); near != "" {
		message += " Did you mean " + near + "?"
	} else if len(known) > 0 && !f.listed {
		f.listed = true // list the known names only once, to bound the response
		message += " The " + what + "s are " + listed(known) + "."
	}
	shown := strings.ToValidUTF8(name, "\uFFFD")
	if utf8.RuneCountInString(shown) > maxShownName {
		shown = string([]rune(shown)[:maxShownName]) + "…"
	}
	f.Add(apierr.Detail{Field: strings.Join(append(slices.Clone(at), shown), "."), Code: apierr.Unknown, Message: message})
}

// maxShownName limits how many code points of an unknown name a response repeats.
const maxShownName = 100

// nothingKnown rejects a change if all of its fields are unknown.
func (f *Fields) nothingKnown(names []string) {
	s := schemaAt(f.schema, nil)
	if closed(s) {
		return // a closed schema has already rejected them
	}
	for _, name := range names {
		if s.Properties[name] != nil {
			return
		}
	}
	f.addUnknown(nil, slices.Clone(names))
}

// hint extends the message for a missing field: it mentions a similar name from the body or, if
// there is none, the first unknown name.
func (f *Fields) hint() {
	for i := range f.details {
		d := &f.details[i]
		if d.Code != apierr.Required || len(f.Unknown) == 0 {
			continue
		}
		at := slices.IndexFunc(f.Unknown, func(name string) bool { return nearest(name, []string{d.Field}) == d.Field })
		if at >= 0 {
			d.Message += fmt.Sprintf(" The body has %q. Did you mean %s?", f.Unknown[at], d.Field)
		} else if name := f.Unknown[0]; len(name) <= maxShownName {
			d.Message += fmt.Sprintf(" The body has the unknown field %q.", name)
		}
	}
}

// schemaAt follows a path of property names and list indexes. It returns nil if the path does not
// exist.
func schemaAt(s *jsonschema.Schema, at []string) *jsonschema.Schema {
	for s != nil {
		for s.Ref != nil {
			s = s.Ref
		}
		if len(at) == 0 {
			return s
		}
		next := s.Properties[at[0]]
		if next == nil {
			next = s.Items2020
		}
		s, at = next, at[1:]
	}
	return nil
}

func closed(s *jsonschema.Schema) bool {
	open, is := s.AdditionalProperties.(bool)
	return is && !open
}

// editable returns the names that a caller can set.
func editable(s *jsonschema.Schema) []string {
	var out []string
	for name, p := range s.Properties {
		if !p.ReadOnly {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// nearest returns the known name that the caller probably meant by name, or "" if no known name is
// similar. It recognises other spellings (snake_case, singular and plural), up to two wrong
// letters, and names whose last word is a known name: destinationUrl matches url.
func nearest(name string, known []string) string {
	if len(name) > 64 {
		return ""
	}
	given := plain(name)
	best, least := "", 1<<30
	for _, k := range known {
		want := plain(k)
		d := distance(given, want)
		switch {
		case given == want, given+"s" == want, given == want+"s", given+"id" == want:
			d = 0
		case d <= allowed(want):
		case len(want) >= 3 && strings.EqualFold(lastWord(name), k):
			d = 3 // less likely than any misspelling
		default:
			continue
		}
		if d < least {
			best, least = k, d
		}
	}
	return best
}

// allowed returns how many letters of a name may be wrong. It returns less for short names because
// short words are similar to many others.
func allowed(name string) int {
	switch n := len(name); {
	case n < 3:
		return 0
	case n < 5:
		return 1
	default:
		return 2
	}
}

// plain returns the letters and digits of a name in lower case, so the naming style does not
// matter.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
}

// lastWord returns the last word of a name: "url" for long_url, "Url" for destinationUrl.
func lastWord(name string) string {
	start := 0
	for i, r := range name {
		switch {
		case r == '_' || r == '-' || r == '.':
			start = i + 1
		case unicode.IsUpper(r):
			start = i
		}
	}
	return name[start:]
}

// distance returns the edit distance between two names, counting insertions, deletions,
// replacements and swaps of adjacent letters.
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	var before []int
	last, row := make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(s); i++ {
		row[0] = i
		for j := 1; j <= len(t); j++ {
			cost := 1
			if s[i-1] == t[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, make([]int, len(t)+1)
	}
	return last[len(t)]
}
