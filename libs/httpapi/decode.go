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
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/libs/jsdate"
)

// Optional is a field of a PATCH, which may be absent (the zero value), null, or a value.
type Optional[T any] struct {
	Set   bool // the field was in the body
	Null  bool // its value was null
	Value T
}

// UnmarshalJSON is called only for a field that is present.
func (o *Optional[T]) UnmarshalJSON(b []byte) error {
	*o = Optional[T]{Set: true}
	if string(b) == "null" {
		o.Null = true
		return nil
	}
	return json.Unmarshal(b, &o.Value)
}

// Ptr returns the value, or nil if the field is absent or null.
func (o *Optional[T]) Ptr() *T {
	if !o.Set || o.Null {
		return nil
	}
	return &o.Value
}

// Fields collects the rules that a request violates, so the caller sees all of them in one
// response. It lists up to [apierr.MaxDetails] and counts the rest.
type Fields struct {
	// Unknown lists the body's fields that the destination does not have, in body order. If there
	// are many, it lists only the first ones.
	Unknown []string
	details []apierr.Detail
	broken  map[string]bool // by field
	more    int
	listed  bool               // a detail already lists the known names
	schema  *jsonschema.Schema // the body's schema, or nil if there is none
}

// Add records rule violations. Only the first violation per field is kept.
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

// HasError reports whether field already violates a rule. If so, do not validate it further.
func (f *Fields) HasError(field string) bool { return f.broken[field] }

// HasErrorIn reports whether a field, or a part of it, violates a rule. For example, rules.0.name
// is a part of rules.
func (f *Fields) HasErrorIn(field string) bool {
	for broken := range f.broken {
		if broken == field || strings.HasPrefix(broken, field+".") {
			return true
		}
	}
	return false
}

// Instant reads a time: milliseconds since 1970, or ISO 8601 with a time zone. For any other value,
// it adds an error and returns false. It also returns false if the field already has an error.
func (f *Fields) Instant(field string, value jsdate.Moment) (ms int64, ok bool) {
	if f.HasError(field) {
		return 0, false
	}
	if ms, ok = value.Instant(); ok {
		return ms, true
	}
	d := apierr.Detail{Field: field, Code: apierr.InvalidFormat}
	switch {
	case value.LacksZone():
		d.Message = "This time has no time zone. Write it as 2027-04-01T00:00:00Z or 2027-04-01T00:00:00+02:00, or send milliseconds since 1970."
	case value.IsText():
		d.Message = "This is not a time. Use ISO 8601 with a time zone, such as 2027-04-01T00:00:00Z, or a number of milliseconds since 1970."
	default:
		d.Code = apierr.OutOfRange
		d.Message = "This number of milliseconds is out of range for a date. Use -8640000000000000 to 8640000000000000."
	}
	f.Add(d)
	return 0, false
}

// Err returns a VALIDATION_ERROR with the details, or nil if there are none.
func (f *Fields) Err() error {
	if len(f.details) == 0 {
		return nil
	}
	return apierr.InvalidSome(f.more, f.details...)
}

// Decode reads the body into dst, a pointer to a struct with json tags. The error is INVALID_JSON
// for a body that is not a single JSON object, and UNSUPPORTED_MEDIA_TYPE for a body with any other
// media type. Fields lists the schema rules that the body violates. The handler adds violations of
// rules that schemas cannot express, and then calls [Fields.Err].
//
// JSON names are case-sensitive: "URL" is not "url". The operation's schema decides whether an
// unknown name is rejected or listed in [Fields.Unknown]. A PATCH that has only unknown names is
// always rejected. Decode also reports unknown query parameters. A field that violates a rule keeps
// its zero value.
func Decode(c *fiber.Ctx, dst any) (*Fields, error) {
	// A body without a Content-Type counts as JSON. Comparing with the most common header first
	// avoids parsing it.
	media := c.Get(fiber.HeaderContentType)
	if media != "" && media != fiber.MIMEApplicationJSON && !isJSON(media) {
		return nil, apierr.New(apierr.UnsupportedMediaType, "Send the body as application/json.")
	}
	o, err := parseObject(c.Request().Body())
	if err != nil {
		return nil, err
	}
	op, ok := c.Locals(operationKey{}).(*apispec.Operation)
	if !ok {
		return decodeObject(o, nil, dst, maxUnknown) // a route that is not in the contract
	}
	fields, err := decodeObject(o, op.Schema, dst, maxUnknown)
	if err != nil {
		return nil, err
	}
	if c.Method() == fiber.MethodPatch && len(o.members) > 0 {
		fields.nothingKnown(o.names)
	}
	if args := c.Context().QueryArgs(); args.Len() > 0 {
		fields.addQuery(args, op.Query)
	}
	return fields, nil
}

// DecodeOptional is [Decode] for an operation with an optional body.
func DecodeOptional(c *fiber.Ctx, dst any) (*Fields, error) {
	if len(c.Request().Body()) > 0 {
		return Decode(c, dst)
	}
	fields := &Fields{}
	if op, ok := c.Locals(operationKey{}).(*apispec.Operation); ok {
		fields.addQuery(c.Context().QueryArgs(), op.Query)
	}
	return fields, nil
}

func isJSON(contentType string) bool {
	media, params, err := mime.ParseMediaType(contentType)
	return err == nil && media == fiber.MIMEApplicationJSON && (params["charset"] == "" || strings.EqualFold(params["charset"], "utf-8"))
}

// DecodeObject is [Decode] for a single JSON object, such as an item of a bulk request. It is
// equally strict. schema may be nil.
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
		if err := schema.Validate(o.value); err != nil {
			var failed *jsonschema.ValidationError
			if !errors.As(err, &failed) {
				return nil, fmt.Errorf("validate body: %w", err)
			}
			fields.addFailures(failed)
		}
	}
	fill(reflect.ValueOf(dst).Elem(), o, fields)
	if len(o.members) > 0 {
		fields.Unknown = unknownNames(o, unknown)
		fields.hint()
	}
	return fields, nil
}

// fill decodes each member into the struct field with exactly the same name, and removes the member
// from o. Fields of an embedded struct count as fields of dst.
func fill(dst reflect.Value, o *object, fields *Fields) {
	for i := range dst.NumField() {
		field := dst.Type().Field(i)
		if field.Anonymous {
			fill(dst.Field(i), o, fields)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		raw, ok := o.members[name]
		if !ok || name == "" || name == "-" {
			continue
		}
		delete(o.members, name)
		if fields.HasError(name) {
			continue
		}
		problem := apierr.Detail{Field: name, Code: apierr.InvalidValue}
		switch text, _ := o.value[name].(string); {
		case strings.ContainsRune(text, 0):
			problem.Message = "The text contains a NUL character."
		case strings.ContainsRune(text, utf8.RuneError) && !paired.Match(raw):
			problem.Message = "The text contains half of a surrogate pair."
		case json.Unmarshal(raw, dst.Field(i).Addr().Interface()) != nil:
			dst.Field(i).SetZero()
			if fields.HasErrorIn(name) { // the existing detail is more precise
				continue
			}
			problem.Code, problem.Message = apierr.InvalidType, "This field has the wrong type."
		default:
			continue
		}
		fields.Add(problem)
	}
}

// paired matches a JSON string without unpaired escaped surrogates. Checking the decoded text is
// not enough: Go decodes an unpaired surrogate to U+FFFD, but the caller may also have sent U+FFFD.
var paired = regexp.MustCompile(`(?i)^([^\\]|\\[^u]|\\u[^d]|\\ud[0-7]|\\ud[89ab]..\\ud[c-f])*$`)

// These constants limit how many bytes of unknown names a response repeats. The limit per item is
// lower because a bulk response has up to a hundred items.
const (
	maxUnknown     = 8 << 10
	maxUnknownItem = 400
)

// unknownNames returns the names that fill did not use, in body order. bytes bounds their total
// size.
func unknownNames(o *object, bytes int) []string {
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

// Limits on a body, in addition to its size. The largest useful body, a bulk request with every
// field, has about 4,000 values.
const (
	maxDepth  = 32     // maximum nesting depth
	maxValues = 10_000 // maximum number of values
)

// object is a strictly parsed JSON object. It has the parsed value for validation and the raw
// members for decoding.
type object struct {
	value   map[string]any
	members map[string]json.RawMessage
	names   []string // in body order
}

var (
	errDeep = invalidJSON(fmt.Sprintf("The body is nested more than %d levels deep.", maxDepth))
	errMany = invalidJSON(fmt.Sprintf("The body has more than %d values.", maxValues))
)

// errTwice returns the error for a duplicate name in an object, which is rejected because parsers
// disagree about which value to use.
func errTwice(name string) error {
	if len(name) > maxShownName {
		return invalidJSON("The body contains a field twice. Send it once.")
	}
	return invalidJSON(fmt.Sprintf("The body contains the field %q twice. Send it once.", name))
}

func invalidJSON(message string) error { return apierr.New(apierr.InvalidJSON, message) }

// parseObject reads exactly one JSON object in UTF-8 without duplicate names (RFC 8259, and
// I-JSON's rule on names, RFC 7493 §2.3). It stops at the first violation, so the body's size and
// maxValues bound its cost.
func parseObject(body []byte) (*object, error) {
	if !utf8.Valid(body) {
		return nil, invalidJSON("The body is not valid UTF-8.")
	}
	p := &parser{Decoder: json.NewDecoder(bytes.NewReader(body)), body: body, top: &object{members: map[string]json.RawMessage{}}}
	p.UseNumber()
	token, err := p.Token()
	if err == nil && token != json.Delim('{') {
		return nil, invalidJSON("The body must be a JSON object.")
	}
	if err == nil {
		p.top.value, err = p.object(1)
	}
	if err == nil {
		if _, err = p.Token(); errors.Is(err, io.EOF) {
			return p.top, nil // no data after the object
		}
	}
	if apierr.CodeOf(err) != apierr.InvalidJSON {
		err = syntaxError(body)
	}
	return nil, err
}

// parser reads token by token. The standard decoder would keep only the last of several members
// with the same name, and it has no limits.
type parser struct {
	*json.Decoder
	body   []byte
	top    *object
	values int
}

// object reads an object's members and its end.
func (p *parser) object(depth int) (map[string]any, error) {
	out := map[string]any{}
	for p.More() {
		token, err := p.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string) // the decoder accepts only strings as names
		if _, twice := out[name]; twice {
			return nil, errTwice(name)
		}
		from := p.InputOffset()
		if out[name], err = p.value(depth); err != nil {
			return nil, err
		}
		if depth == 1 {
			p.top.names = append(p.top.names, name)
			p.top.members[name] = bytes.TrimLeft(p.body[from:p.InputOffset()], ": \t\r\n")
		}
	}
	_, err := p.Token() // }
	return out, err
}

// value reads one value. depth is the number of objects and arrays that contain it.
func (p *parser) value(depth int) (any, error) {
	if p.values++; p.values > maxValues {
		return nil, errMany
	}
	token, err := p.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Number:
		return tame(v), nil
	case json.Delim:
		switch {
		case depth == maxDepth:
			return nil, errDeep
		case v == '{':
			return p.object(depth + 1)
		}
		return p.array(depth + 1)
	}
	return token, nil
}

func (p *parser) array(depth int) ([]any, error) {
	out := []any{}
	for p.More() {
		v, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	_, err := p.Token() // ]
	return out, err
}

// tame limits the cost of validating numbers. Schemas compare exact fractions, and the exact value
// of 1e999999 has a million digits. tame therefore replaces a long number with the nearest float64,
// and a number out of range with ±1e309, which exceeds every bound in a schema.
func tame(number json.Number) json.Number {
	const plain = 40 // longer than any number that a field accepts
	if len(number) <= plain && !strings.ContainsAny(string(number), "eE") {
		return number
	}
	f, err := number.Float64()
	if err != nil { // out of range: f is an infinity
		if number[0] == '-' {
			return "-1e309"
		}
		return "1e309"
	}
	return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
}
