package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/linkreel/linkreel/libs/apierr"
)

// Bounds of a body beyond its size. The largest sensible one, a bulk request that
// uses every field, has about 4,000 values.
const (
	maxDepth  = 32     // how deeply a body may nest
	maxValues = 10_000 // how many values it may hold
)

// object is a strict JSON object: what it holds, for schemas, and its members as
// they were written, for decoding.
type object struct {
	value   map[string]any
	members map[string]json.RawMessage
	names   []string // in the body's order
}

// StrictJSON accepts exactly one JSON object in UTF-8 without duplicate names,
// nested at most 32 deep (RFC 8259, and I-JSON's rule on names, RFC 7493 §2.3),
// with at most 10,000 values.
func StrictJSON(body []byte) error {
	_, err := parseObject(body)
	return err
}

// parseObject reads a body once, from front to back, and stops at the first
// breach, so its cost is bounded by the body's size and by maxValues. The
// standard decoder would read it four times: to check the syntax, to find
// duplicates, to split the members, and to build the value.
func parseObject(body []byte) (*object, error) {
	if !utf8.Valid(body) {
		return nil, invalidJSON("The body is not valid UTF-8.")
	}
	p := &parser{b: body}
	p.blank()
	if p.at >= len(body) {
		return nil, invalidJSON("The body is not valid JSON.")
	}
	top := &object{value: map[string]any{}, members: map[string]json.RawMessage{}}
	if body[p.at] != '{' {
		if _, err := p.value(0); err != nil {
			return nil, err
		}
		if p.blank(); p.at < len(body) {
			return nil, errSyntax
		}
		return nil, invalidJSON("The body must be a JSON object.")
	}
	if err := p.object(1, top.value, func(name string, raw []byte) {
		top.members[name] = raw
		top.names = append(top.names, name)
	}); err != nil {
		return nil, err
	}
	if p.blank(); p.at < len(body) {
		return nil, errSyntax
	}
	return top, nil
}

func invalidJSON(message string) error { return apierr.New(apierr.InvalidJSON, message) }

var (
	errSyntax = invalidJSON("The body is not valid JSON.")
	errTwice  = invalidJSON("The body names a field twice.")
	errDeep   = invalidJSON(fmt.Sprintf("The body is nested more than %d deep.", maxDepth))
	errMany   = invalidJSON(fmt.Sprintf("The body has more than %d values.", maxValues))
)

type parser struct {
	b      []byte
	at     int
	values int
}

func (p *parser) blank() {
	for p.at < len(p.b) {
		switch p.b[p.at] {
		case ' ', '\t', '\r', '\n':
			p.at++
		default:
			return
		}
	}
}

// next skips blanks and gives the byte there; 0 at the end, which no rule accepts.
func (p *parser) next() byte {
	if p.blank(); p.at < len(p.b) {
		return p.b[p.at]
	}
	return 0
}

// value reads one value. depth counts the containers around it.
func (p *parser) value(depth int) (any, error) {
	if p.values++; p.values > maxValues {
		return nil, errMany
	}
	switch c := p.next(); {
	case c == '{':
		if depth++; depth > maxDepth {
			return nil, errDeep
		}
		out := map[string]any{}
		return out, p.object(depth, out, nil)
	case c == '[':
		if depth++; depth > maxDepth {
			return nil, errDeep
		}
		return p.array(depth)
	case c == '"':
		return p.text()
	case c == '-', c >= '0' && c <= '9':
		return p.number()
	}
	for word, v := range words {
		if bytes.HasPrefix(p.b[p.at:], []byte(word)) {
			p.at += len(word)
			return v, nil
		}
	}
	return nil, errSyntax
}

var words = map[string]any{"null": nil, "true": true, "false": false}

func (p *parser) object(depth int, into map[string]any, each func(name string, raw []byte)) error {
	p.at++ // {
	if p.next() == '}' {
		p.at++
		return nil
	}
	for {
		if p.next() != '"' {
			return errSyntax
		}
		name, err := p.text()
		if err != nil {
			return err
		}
		if p.next() != ':' {
			return errSyntax
		}
		p.at++
		p.blank()
		from := p.at
		v, err := p.value(depth)
		if err != nil {
			return err
		}
		if _, twice := into[name]; twice {
			return errTwice
		}
		if into[name] = v; each != nil {
			each(name, p.b[from:p.at])
		}
		switch p.next() {
		case ',':
			p.at++
		case '}':
			p.at++
			return nil
		default:
			return errSyntax
		}
	}
}

func (p *parser) array(depth int) ([]any, error) {
	p.at++ // [
	out := []any{}
	if p.next() == ']' {
		p.at++
		return out, nil
	}
	for {
		v, err := p.value(depth)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
		switch p.next() {
		case ',':
			p.at++
		case ']':
			p.at++
			return out, nil
		default:
			return nil, errSyntax
		}
	}
}

// text reads a string. Escapes are left to the standard decoder, which turns half
// a surrogate pair into U+FFFD: two names that differ in such halves only are the
// same name here. textProblem refuses them in values.
func (p *parser) text() (string, error) {
	from, escaped := p.at, false
	for i := p.at + 1; i < len(p.b); i++ {
		switch c := p.b[i]; {
		case c == '"':
			p.at = i + 1
			if !escaped {
				return string(p.b[from+1 : i]), nil
			}
			var s string
			if json.Unmarshal(p.b[from:p.at], &s) != nil {
				return "", errSyntax
			}
			return s, nil
		case c == '\\':
			escaped = true
			i++ // whatever is escaped is no end; the decoder judges it
		case c < 0x20:
			return "", errSyntax
		}
	}
	return "", errSyntax
}

// number reads a number in JSON's grammar.
func (p *parser) number() (json.Number, error) {
	from := p.at
	if p.b[p.at] == '-' {
		p.at++
	}
	switch {
	case p.at < len(p.b) && p.b[p.at] == '0':
		p.at++
	case !p.digits():
		return "", errSyntax
	}
	if p.at < len(p.b) && p.b[p.at] == '.' {
		if p.at++; !p.digits() {
			return "", errSyntax
		}
	}
	if p.at < len(p.b) && (p.b[p.at] == 'e' || p.b[p.at] == 'E') {
		if p.at++; p.at < len(p.b) && (p.b[p.at] == '+' || p.b[p.at] == '-') {
			p.at++
		}
		if !p.digits() {
			return "", errSyntax
		}
	}
	return tame(p.b[from:p.at]), nil
}

func (p *parser) digits() bool {
	from := p.at
	for p.at < len(p.b) && p.b[p.at] >= '0' && p.b[p.at] <= '9' {
		p.at++
	}
	return p.at > from
}

// tame keeps numbers cheap to judge. Schemas compare exact fractions, and the
// exact value of 1e999999 has a million digits; a long number becomes the nearest
// float64, and one beyond those the largest or smallest that schemas need to see.
func tame(text []byte) json.Number {
	const plain = 40 // longer than any number that a field wants
	if len(text) <= plain && !bytes.ContainsAny(text, "eE") {
		return json.Number(text)
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil { // out of range: f is an infinity
		if text[0] == '-' {
			return "-1e309"
		}
		return "1e309"
	}
	return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
}
