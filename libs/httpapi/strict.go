package httpapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec"
)

// Finds tells what an operation that reads no JSON body looks up first. A 403 and a 404
// go before a 400, so when such a request has an unknown name, find runs first and its
// error is the answer. It must change nothing. Without it such a request is a 400
// whether or not the record exists and the caller may do this to it. A read needs none:
// it is tried itself.
func (a *API) Finds(method, path string, find fiber.Handler) {
	if a.finds == nil {
		a.finds = map[string]fiber.Handler{}
	}
	a.finds[method+path] = find
}

// strict rejects what a request names and its operation does not know: query
// parameters, and fields of a body that the operation does not take. It knows the
// names from the API document. A route that is not in it (a page, a redirect, a
// callback) is left alone: those ignore unknown parameters.
func (a *API) strict(method, path string, h fiber.Handler) fiber.Handler {
	spec, at := apispec.Load(), specPath(path)
	params, ok := spec.Query(method, at)
	if !ok {
		return h
	}
	decodes, takesBody := spec.RequestSchema(method, at) != nil, spec.TakesBody(method, at)
	return func(c *fiber.Ctx) error {
		wrong := &Fields{}
		wrong.addQuery(c.Context().QueryArgs(), params)
		if !takesBody {
			wrong.addBody(Body(c))
		}
		if len(wrong.details) == 0 {
			return h(c)
		}
		if decodes {
			// The handler decides what goes before a 400. It reports this one together
			// with what is wrong in the body.
			c.Locals(pendingKey{}, wrong)
			return h(c)
		}
		if err := a.first(c, method, path, h); err != nil && apierr.From(err).Status() != fiber.StatusBadRequest {
			return err
		}
		return wrong.Err()
	}
}

// first answers what goes before a 400. Reads do so themselves; what they answer is
// dropped.
func (a *API) first(c *fiber.Ctx, method, path string, h fiber.Handler) error {
	find := a.finds[method+path]
	if find == nil && method == fiber.MethodGet {
		find = h
	}
	if find == nil {
		return nil
	}
	err := find(c)
	c.Response().ResetBody()
	for _, name := range []string{fiber.HeaderETag, fiber.HeaderLink} {
		c.Response().Header.Del(name)
	}
	return err
}

type pendingKey struct{}

// pending is what strict has left for Decode to report.
func pending(c *fiber.Ctx) *Fields {
	f, _ := c.Locals(pendingKey{}).(*Fields)
	return f
}

// join adds what f knows to g.
func (f *Fields) join(g *Fields) *Fields {
	if f != nil {
		g.Add(f.details...)
		g.more += f.more
	}
	return g
}

func (f *Fields) addQuery(args *fasthttp.Args, params map[string]bool) {
	if args.Len() == 0 {
		return
	}
	known := slices.Sorted(maps.Keys(params))
	seen := map[string]bool{}
	for key := range args.All() {
		name := string(key)
		repeatable, ok := params[name]
		switch {
		case !ok && name != "": // an empty name is a stray & or =
			f.addUnknownName(nil, name, known, "parameter")
		case ok && seen[name] && !repeatable:
			f.Add(apierr.Detail{Field: name, Code: apierr.Unknown, Message: "Send this parameter once. It takes a single value."})
		}
		seen[name] = true
	}
}

// addBody notes the names in a body that nobody will read. Anything but an object
// with names says nothing that could be lost.
func (f *Fields) addBody(body []byte) {
	if len(body) == 0 {
		return
	}
	o, err := parseObject(body)
	if err != nil {
		return
	}
	for _, name := range o.names {
		f.addUnknownName(nil, name, nil, "field")
	}
}

// addUnknown notes the names that a closed object does not have.
func (f *Fields) addUnknown(at, names []string) {
	var known []string
	if s := schemaAt(f.schema, at); s != nil {
		known = editable(s)
	}
	slices.Sort(names) // the library gives them in any order
	for _, name := range names {
		f.addUnknownName(at, name, known, "field")
	}
}

func (f *Fields) addUnknownName(at []string, name string, known []string, what string) {
	if len(f.details) >= apierr.MaxDetails {
		f.more++ // counted alone: looking for near misses costs time
		return
	}
	message := "There is no such " + what + " here."
	if near := nearest(name, known); near != "" {
		message += " Did you mean " + near + "?"
	}
	shown := strings.ToValidUTF8(name, "\uFFFD")
	if utf8.RuneCountInString(shown) > maxShownName {
		shown = string([]rune(shown)[:maxShownName]) + "…"
	}
	f.Add(apierr.Detail{Field: strings.Join(append(slices.Clone(at), shown), "."), Code: apierr.Unknown, Message: message})
}

// maxShownName bounds what an answer repeats of an unknown name, in code points.
const maxShownName = 100

// nothingKnown rejects a change that names fields and none of them is known.
func (f *Fields) nothingKnown(names []string) {
	s := schemaAt(f.schema, nil)
	if s == nil || len(names) == 0 || closed(s) {
		return // a closed schema has rejected them already
	}
	for _, name := range names {
		if s.Properties[name] != nil {
			return
		}
	}
	f.addUnknown(nil, slices.Clone(names))
}

// hint extends "required" for a field that came under a name much like its own.
func (f *Fields) hint() {
	for i := range f.details {
		d := &f.details[i]
		if d.Code != apierr.Required {
			continue
		}
		for _, name := range f.Unknown {
			if nearest(name, []string{d.Field}) == d.Field {
				d.Message += fmt.Sprintf(" The body has %q. Did you mean %s?", name, d.Field)
				break
			}
		}
	}
}

// schemaAt follows a path of property names; nil when it leads nowhere.
func schemaAt(s *jsonschema.Schema, at []string) *jsonschema.Schema {
	for s != nil {
		for s.Ref != nil {
			s = s.Ref
		}
		if len(at) == 0 {
			return s
		}
		s, at = s.Properties[at[0]], at[1:]
	}
	return nil
}

func closed(s *jsonschema.Schema) bool {
	open, is := s.AdditionalProperties.(bool)
	return is && !open
}

// editable are the names that a caller can set.
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

// nearest is the known name that name was probably meant to be; "" when none is near.
// It sees other spellings (snake_case, singular and plural), up to two wrong letters,
// and a name that ends with the known one as a word: destinationUrl is nearest to url.
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
			d = 3 // behind every misspelling
		default:
			continue
		}
		if d < least {
			best, least = k, d
		}
	}
	return best
}

// allowed is how many letters of a name may be wrong. Any short word is near any other.
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

// plain is a name without what differs between styles of spelling.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
}

// lastWord is "url" of long_url and "Url" of destinationUrl.
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

// distance counts insertions, deletions, replacements and swaps of neighbours.
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
