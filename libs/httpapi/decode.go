package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"reflect"
	"regexp"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec"
)

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

// Ptr is the value; nil when the field is absent or null.
func (o *Optional[T]) Ptr() *T {
	if !o.Set || o.Null {
		return nil
	}
	return &o.Value
}

// Fields collects what is wrong with a request, so that a caller learns of every
// bad field at once. It names [apierr.MaxDetails] of them and counts the rest.
type Fields struct {
	// Unknown names the body's fields that the destination has no place for, in
	// the body's order; the first of them, when there are very many.
	Unknown []string
	details []apierr.Detail
	broken  map[string]bool // by field
	more    int
	schema  *jsonschema.Schema // of the body; nil when it has none
}

// Add notes broken rules. A field keeps its first broken rule only.
func (f *Fields) Add(details ...apierr.Detail) {
	for _, d := range details {
		if f.HasError(d.Field) {
			continue
		}
		if f.broken == nil {
			f.broken = map[string]bool{}
		}
		f.broken[d.Field] = true
		if len(f.details) < apierr.MaxDetails {
			f.details = append(f.details, d)
		} else {
			f.more++
		}
	}
}

// HasError reports whether a rule of field is broken already; its value is not to
// be validated further.
func (f *Fields) HasError(field string) bool { return f.broken[field] }

// Details are the broken rules so far, at most [apierr.MaxDetails].
func (f *Fields) Details() []apierr.Detail { return f.details }

// Err is a VALIDATION_ERROR with the details, nil when there are none.
func (f *Fields) Err() error {
	if len(f.details) == 0 {
		return nil
	}
	return apierr.InvalidSome(f.more, f.details...)
}

// Decode reads the body into dst, a pointer to a struct with json tags. The
// error is for a body that is not one JSON object (INVALID_JSON) or of another
// type (UNSUPPORTED_MEDIA_TYPE); broken field rules are in Fields, to which the
// handler adds what schemas cannot say before it calls [Fields.Err].
//
// A JSON name fits only itself: "URL" is not "url". A name that the contract does
// not know is rejected or listed in [Fields.Unknown], as the operation's schema
// says; a PATCH of which no name is known is always rejected. Query parameters that
// the contract does not know are reported here too. Fields with broken rules keep
// their zero value.
func Decode(c *fiber.Ctx, dst any) (*Fields, error) {
	if err := jsonType(c); err != nil {
		return nil, err
	}
	o, err := parseObject(Body(c))
	if err != nil {
		return nil, err
	}
	fields, err := decodeObject(o, apispec.Load().RequestSchema(c.Method(), specPath(c.Route().Path)), dst, maxUnknown)
	if err != nil {
		return nil, err
	}
	if c.Method() == fiber.MethodPatch {
		fields.nothingKnown(o.names)
	}
	return pending(c).join(fields), nil
}

// Body is the request's body as it was sent; it lives as long as the handler.
// Fiber's own c.Body() would unpack one with a Content-Encoding without any bound.
// The server refuses those, and this does not rely on it.
func Body(c *fiber.Ctx) []byte { return c.Request().Body() }

// DecodeOptional is Decode for an endpoint whose body may be missing.
func DecodeOptional(c *fiber.Ctx, dst any) (*Fields, error) {
	if len(Body(c)) == 0 {
		return pending(c).join(&Fields{}), nil
	}
	return Decode(c, dst)
}

var pathParam = regexp.MustCompile(`:(\w+)`)

// specPath turns Fiber's path form into the API document's.
func specPath(path string) string { return pathParam.ReplaceAllString(path, "{$1}") }

func jsonType(c *fiber.Ctx) error {
	refuse := func(message string) error { return apierr.New(apierr.UnsupportedMediaType, message) }
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

// DecodeObject is Decode for one JSON object that is strict already, such as an
// item of a bulk request. schema may be nil.
func DecodeObject(raw []byte, schema *jsonschema.Schema, dst any) (*Fields, error) {
	o, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	return decodeObject(o, schema, dst, maxUnknownItem)
}

func decodeObject(o *object, schema *jsonschema.Schema, dst any, unknown int) (*Fields, error) {
	fields := &Fields{schema: schema}
	if schema != nil {
		shorten(o.value, schema, fields)
		if err := schema.Validate(o.value); err != nil {
			var failed *jsonschema.ValidationError
			if !errors.As(err, &failed) {
				return nil, fmt.Errorf("validate body: %w", err)
			}
			fields.addFailures(failed)
		}
	}
	fill(reflect.ValueOf(dst).Elem(), o.members, fields)
	fields.Unknown = unknownNames(o, unknown)
	fields.hint()
	return fields, nil
}

// shorten checks maxItems before the items, so that a list that is too long reports
// one error and not one for each item.
func shorten(value map[string]any, schema *jsonschema.Schema, fields *Fields) {
	for schema.Ref != nil {
		schema = schema.Ref
	}
	for name, v := range value {
		list, ok := v.([]any)
		rule := schema.Properties[name]
		for rule != nil && rule.Ref != nil {
			rule = rule.Ref
		}
		if !ok || rule == nil || rule.MaxItems == nil || len(list) <= *rule.MaxItems {
			continue
		}
		fields.Add(apierr.Detail{Field: name, Code: apierr.TooLong, Max: int64(*rule.MaxItems), Message: fmt.Sprintf("Use at most %d items.", *rule.MaxItems)})
		value[name] = list[:0]
	}
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
		if fields.HasError(name) {
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

// What an answer repeats of a caller's unknown names, in bytes. A bulk answer has
// up to a hundred items.
const (
	maxUnknown     = 8 << 10
	maxUnknownItem = 400
)

// unknownNames are the names that fill has left, in the body's order, up to a
// total of bytes.
func unknownNames(o *object, bytes int) []string {
	if len(o.members) == 0 {
		return nil
	}
	var out []string
	for _, name := range o.names {
		if _, left := o.members[name]; !left {
			continue
		}
		if bytes -= len(name) + 3; bytes < 0 {
			break
		}
		out = append(out, name)
	}
	return out
}

// addFailures turns the leaves of a schema failure into details, one a field.
func (f *Fields) addFailures(e *jsonschema.ValidationError) {
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
		// The branches contradict each other; what a caller can use is that no
		// accepted type fits.
		f.Add(apierr.Detail{Field: location(e), Code: apierr.InvalidType, Message: "This field has another type."})
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
			if v != nil { // null stands for an absent field
				want = append(want, fmt.Sprint(v))
			}
		}
		d.Message = "Use one of " + strings.Join(want, ", ") + "."
	case *kind.Pattern, *kind.Format:
		d.Code, d.Message = apierr.InvalidFormat, "This value has another form."
	}
	return []apierr.Detail{d}
}

func location(e *jsonschema.ValidationError) string { return strings.Join(e.InstanceLocation, ".") }
