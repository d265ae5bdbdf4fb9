package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec"
)

// maxDepth is how deeply a body may nest.
const maxDepth = 32

// Optional is a field of a PATCH: absent (zero value), null, or a value.
type Optional[T any] struct {
	Set   bool // the field was in the body
	Null  bool // its value was null
	Value T
}

// UnmarshalJSON is called only for a field that is there.
func (o *Optional[T]) UnmarshalJSON(b []byte) error {
	*o = Optional[T]{Set: true}
	if string(b) == "null" {
		o.Null = true
		return nil
	}
	return json.Unmarshal(b, &o.Value)
}

// Fields collects what is wrong with a request, so that a caller hears of every
// bad field at once.
type Fields struct {
	// Unknown names the body's fields that the destination has no place for, in
	// the body's order.
	Unknown []string
	details []apierr.Detail
}

// Add notes broken rules. A field keeps its first broken rule only.
func (f *Fields) Add(details ...apierr.Detail) {
	for _, d := range details {
		if !f.Bad(d.Field) {
			f.details = append(f.details, d)
		}
	}
}

// Bad reports whether a rule of field is broken already; its value is not to be
// judged further.
func (f *Fields) Bad(field string) bool {
	return slices.ContainsFunc(f.details, func(d apierr.Detail) bool { return d.Field == field })
}

// Details are the broken rules so far.
func (f *Fields) Details() []apierr.Detail { return f.details }

// Err is a VALIDATION_ERROR with all details, nil when there are none.
func (f *Fields) Err() error {
	if len(f.details) == 0 {
		return nil
	}
	return apierr.Invalid(f.details...)
}

// Decode reads the body into dst, a pointer to a struct with json tags. The
// error is for a body that is not one JSON object (INVALID_JSON) or of another
// type (UNSUPPORTED_MEDIA_TYPE); broken field rules are in Fields, to which the
// handler adds what schemas cannot say before it calls [Fields.Err].
//
// A JSON name fits only itself: "URL" is not "url". Fields with broken rules
// keep their zero value.
func Decode(c *fiber.Ctx, dst any) (*Fields, error) {
	if err := jsonType(c); err != nil {
		return nil, err
	}
	body := c.Body()
	if err := StrictJSON(body); err != nil {
		return nil, err
	}
	return DecodeObject(body, apispec.Load().RequestSchema(c.Method(), specPath(c.Route().Path)), dst)
}

// DecodeOptional is Decode for an endpoint whose body may be missing.
func DecodeOptional(c *fiber.Ctx, dst any) (*Fields, error) {
	if len(c.Body()) == 0 {
		return &Fields{}, nil
	}
	return Decode(c, dst)
}

var pathParam = regexp.MustCompile(`:(\w+)`)

// specPath turns Fiber's path form into the API document's.
func specPath(path string) string { return pathParam.ReplaceAllString(path, "{$1}") }

func jsonType(c *fiber.Ctx) error {
	refuse := func(message string) error { return apierr.New(apierr.UnsupportedMediaType, message) }
	if enc := c.Get(fiber.HeaderContentEncoding); enc != "" && !strings.EqualFold(enc, "identity") {
		return refuse("Send the body without a Content-Encoding.")
	}
	value := c.Get(fiber.HeaderContentType)
	if value == "" {
		return nil
	}
	media, params, err := mime.ParseMediaType(value)
	if err != nil || media != "application/json" || params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8") {
		return refuse("Send the body as application/json.")
	}
	return nil
}

// StrictJSON accepts exactly one JSON object in UTF-8 without duplicate names,
// nested at most 32 deep (RFC 8259, and I-JSON's rule on names, RFC 7493 §2.3).
func StrictJSON(body []byte) error {
	bad := func(message string) error { return apierr.New(apierr.InvalidJSON, message) }
	switch {
	case !utf8.Valid(body):
		return bad("The body is not valid UTF-8.")
	case !json.Valid(body):
		return bad("The body is not valid JSON.")
	case bytes.TrimLeft(body, " \t\r\n")[0] != '{':
		return bad("The body must be a JSON object.")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber() // a number's size is a field rule, not a syntax rule
	type level struct {
		names  map[string]bool // nil in an array
		isName bool
	}
	var stack []level
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return bad("The body is not valid JSON.")
		}
		top := len(stack) - 1
		if name, ok := tok.(string); ok && top >= 0 && stack[top].names != nil && stack[top].isName {
			if stack[top].names[name] {
				return bad("The body names a field twice.")
			}
			stack[top].names[name], stack[top].isName = true, false
			continue
		}
		if top >= 0 && stack[top].names != nil {
			stack[top].isName = true // after this value comes a name
		}
		switch tok {
		case json.Delim('{'):
			stack = append(stack, level{names: map[string]bool{}, isName: true})
		case json.Delim('['):
			stack = append(stack, level{})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
			if n := len(stack) - 1; n >= 0 && stack[n].names != nil {
				stack[n].isName = true
			}
		}
		if len(stack) > maxDepth {
			return bad(fmt.Sprintf("The body is nested more than %d deep.", maxDepth))
		}
	}
}

// DecodeObject is Decode for one JSON object that is strict already, such as an
// item of a bulk request. schema may be nil.
func DecodeObject(raw []byte, schema *jsonschema.Schema, dst any) (*Fields, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, apierr.New(apierr.InvalidJSON, "A JSON object is needed.")
	}
	fields := &Fields{}
	if schema != nil {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			return nil, apierr.New(apierr.InvalidJSON, "The body is not valid JSON.")
		}
		if err := schema.Validate(value); err != nil {
			var failed *jsonschema.ValidationError
			if !errors.As(err, &failed) {
				return nil, fmt.Errorf("validate body: %w", err)
			}
			fields.Add(detailsOf(failed)...)
		}
	}
	fill(reflect.ValueOf(dst).Elem(), members, fields)
	fields.Unknown = unknownNames(raw, members)
	return fields, nil
}

// fill decodes each member into the struct field of exactly its name and takes
// it out of members.
func fill(dst reflect.Value, members map[string]json.RawMessage, fields *Fields) {
	for i := range dst.NumField() {
		name, _, _ := strings.Cut(dst.Type().Field(i).Tag.Get("json"), ",")
		raw, ok := members[name]
		if !ok || name == "" || name == "-" {
			continue
		}
		delete(members, name)
		if fields.Bad(name) {
			continue
		}
		if problem := textProblem(raw); problem != "" {
			fields.Add(apierr.Detail{Field: name, Code: apierr.InvalidValue, Message: problem})
			continue
		}
		if err := json.Unmarshal(raw, dst.Field(i).Addr().Interface()); err != nil {
			dst.Field(i).SetZero()
			fields.Add(apierr.Detail{Field: name, Code: apierr.InvalidType, Message: "This field has another type."})
		}
	}
}

// textProblem refuses what no text may hold: NUL, and escaped surrogates without
// their other half, which Go would turn into U+FFFD without a word.
func textProblem(raw []byte) string {
	if len(raw) == 0 || raw[0] != '"' {
		return ""
	}
	for i := 1; i < len(raw)-1; i++ {
		if raw[i] != '\\' {
			continue
		}
		i++
		if raw[i] != 'u' {
			continue
		}
		switch r := hex4(raw[i+1:]); {
		case r == 0:
			return "The text contains a NUL character."
		case r >= 0xdc00 && r <= 0xdfff:
			return "The text contains half of a surrogate pair."
		case r >= 0xd800 && r <= 0xdbff:
			rest := raw[i+5:]
			if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' {
				return "The text contains half of a surrogate pair."
			}
			if low := hex4(rest[2:]); low < 0xdc00 || low > 0xdfff {
				return "The text contains half of a surrogate pair."
			}
			i += 10
		default:
			i += 4
		}
	}
	return ""
}

func hex4(b []byte) (r rune) {
	for _, c := range b[:4] {
		switch {
		case c <= '9':
			r = r<<4 | rune(c-'0')
		default:
			r = r<<4 | rune((c|0x20)-'a'+10)
		}
	}
	return r
}

// unknownNames orders what is left of members as the body had it.
func unknownNames(raw []byte, members map[string]json.RawMessage) []string {
	if len(members) == 0 {
		return nil
	}
	var out []string
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil
	}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return out
		}
		if name, ok := tok.(string); ok {
			if _, left := members[name]; left {
				out = append(out, name)
			}
		}
		var skip json.RawMessage
		if err := dec.Decode(&skip); err != nil {
			return out
		}
	}
	return out
}

// detailsOf turns the leaves of a schema failure into details, one a field.
func detailsOf(e *jsonschema.ValidationError) []apierr.Detail {
	if len(e.Causes) > 0 {
		switch e.ErrorKind.(type) {
		case *kind.AnyOf, *kind.OneOf:
			// The branches contradict each other; what a caller can use is that no
			// accepted type fits.
			return []apierr.Detail{{Field: location(e), Code: apierr.InvalidType, Message: "This field has another type."}}
		}
		var out []apierr.Detail
		for _, cause := range e.Causes {
			out = append(out, detailsOf(cause)...)
		}
		return out
	}
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
		d.Code, d.Message = apierr.InvalidType, "Use "+strings.Join(k.Want, " or ")+"."
	case *kind.MaxLength:
		d.Code, d.Max, d.Message = apierr.TooLong, int64(k.Want), fmt.Sprintf("Use at most %d characters.", k.Want)
	case *kind.MinLength:
		d.Code, d.Min, d.Message = apierr.TooShort, int64(k.Want), fmt.Sprintf("Use at least %d characters.", k.Want)
	case *kind.MaxItems:
		d.Code, d.Max, d.Message = apierr.TooLong, int64(k.Want), fmt.Sprintf("Use at most %d items.", k.Want)
	case *kind.MinItems:
		d.Code, d.Min, d.Message = apierr.TooShort, int64(k.Want), fmt.Sprintf("Use at least %d items.", k.Want)
	case *kind.Maximum:
		d.Code, d.Message = apierr.OutOfRange, "This number is too large."
		if k.Want.IsInt() {
			d.Max = k.Want.Num().Int64()
		}
	case *kind.Minimum:
		d.Code, d.Message = apierr.OutOfRange, "This number is too small."
		if k.Want.IsInt() {
			d.Min = k.Want.Num().Int64()
		}
	case *kind.Enum:
		var want []string
		for _, v := range k.Want {
			want = append(want, fmt.Sprint(v))
		}
		d.Message = "Use one of " + strings.Join(want, ", ") + "."
	case *kind.Pattern, *kind.Format:
		d.Code, d.Message = apierr.InvalidFormat, "This value has another form."
	}
	return []apierr.Detail{d}
}

func location(e *jsonschema.ValidationError) string { return strings.Join(e.InstanceLocation, ".") }
