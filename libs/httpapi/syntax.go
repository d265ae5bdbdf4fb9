package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// byteOrderMark is the mark that some editors write at the start of UTF-8 text. JSON does not allow
// it (RFC 8259 §8.1).
const byteOrderMark = "\ufeff"

// wanted maps errors from encoding/json to the expected token. after is the end of the error's
// text.
var wanted = []struct{ after, want string }{
	{"looking for beginning of object key string", "a field name in double quotes"},
	{"looking for beginning of value", "a value"},
	{"after object key:value pair", "a comma or }"},
	{"after object key", "a colon"},
	{"after array element", "a comma or ]"},
	{"after top-level value", "the end of the body"},
	{"in string literal", `an escape such as \n`},
	{"in string escape code", `one of " \ / b f n r t u`},
	{`in \u hexadecimal character escape`, "a hexadecimal digit"},
}

// syntaxError returns an error that names the position of the syntax error, the unexpected
// character and the expected token. It repeats at most one character of the body.
func syntaxError(body []byte) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return invalidJSON("The body is empty. Send a JSON object.")
	}
	if bytes.HasPrefix(body, []byte(byteOrderMark)) {
		return invalidJSON("The body begins with a byte order mark. Send it as UTF-8 without one.")
	}
	var raw json.RawMessage
	var syntax *json.SyntaxError
	if err := json.Unmarshal(body, &raw); !errors.As(err, &syntax) {
		return invalidJSON("The body is not valid JSON.")
	}
	if strings.HasPrefix(syntax.Error(), "unexpected end") {
		return invalidJSON("The body is not valid JSON. It ends too early: a quote, a bracket or a brace is not closed.")
	}
	at := min(max(int(syntax.Offset)-1, 0), len(body)-1)
	line := 1 + bytes.Count(body[:at], []byte("\n"))
	column := 1 + utf8.RuneCount(body[bytes.LastIndexByte(body[:at], '\n')+1:at])
	found, _ := utf8.DecodeRune(body[at:])
	text := fmt.Sprintf("The body is not valid JSON. Line %d, column %d has %s", line, column, character(found))
	for _, w := range wanted {
		if strings.HasSuffix(syntax.Error(), w.after) {
			return invalidJSON(text + " where " + w.want + " belongs." + hint(body[:at], found))
		}
	}
	return invalidJSON(text + ", which does not belong there.")
}

// character returns how an error message refers to a character.
func character(c rune) string {
	switch {
	case c == '\n':
		return "a line break"
	case c == '\t':
		return "a tab"
	case c < ' ' || c == 0x7f:
		return "a control character"
	case c == '\'':
		return "a single quote"
	}
	return string(c)
}

// hint describes the likely mistake that caused an unexpected character.
func hint(before []byte, found rune) string {
	switch {
	case found == '\'':
		return " JSON uses double quotes."
	case found == '/' || found == '#':
		return " JSON has no comments."
	case (found == '}' || found == ']') && bytes.HasSuffix(bytes.TrimSpace(before), []byte(",")):
		return " Remove the comma before it."
	}
	return ""
}
