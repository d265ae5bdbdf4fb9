package link

import (
	"net/url"
	"slices"
	"strings"
)

// MaxForwardedPath is the maximum length, in bytes, of a path that a link with ForwardPath
// forwards.
const MaxForwardedPath = 2048

// passedOn lists the parameters for which the visitor's values replace the owner's.
var passedOn = map[string]bool{"utm_source": true, "utm_medium": true, "utm_campaign": true, "utm_term": true, "utm_content": true}

// WithQuery adds a visitor's query to a URL. The query is the text that the visitor sent, without
// the question mark. If the URL already has a parameter with the same name, the owner's parameter
// is kept and the visitor's is omitted. The five utm_ parameters are the exception: the visitor's
// parameters replace the owner's, at the position of the owner's first such parameter. Names are
// compared after decoding. The order, repeated names, the fragment and the text of all values are
// preserved.
func WithQuery(address, query string) string {
	visitor := piecesOf(query, false)
	if len(visitor) == 0 {
		return address
	}
	address, fragment, hasFragment := strings.Cut(address, "#")
	base, own, _ := strings.Cut(address, "?")
	owner := piecesOf(own, true)

	out := make([]string, 0, len(owner)+len(visitor))
	done := map[string]bool{} // parameter names that the visitor cannot add
	for _, p := range owner {
		if !passedOn[p.name] || !slices.ContainsFunc(visitor, p.sameName) {
			out = append(out, p.text)
			done[p.name] = true
			continue
		}
		if !done[p.name] {
			out = append(out, textsOf(visitor, p.sameName)...)
			done[p.name] = true
		}
	}
	out = append(out, textsOf(visitor, func(p piece) bool { return !done[p.name] })...)
	address = base + "?" + strings.Join(out, "&")
	if hasFragment {
		address += "#" + fragment
	}
	return address
}

// piece is one query parameter: its text, safe in a header, and its decoded name.
type piece struct{ text, name string }

func (p piece) sameName(other piece) bool { return p.name == other.name }

func piecesOf(query string, empty bool) (pieces []piece) {
	if query == "" {
		return nil
	}
	for text := range strings.SplitSeq(query, "&") {
		if text == "" && !empty {
			continue
		}
		name, _, _ := strings.Cut(text, "=")
		pieces = append(pieces, piece{escaped(text, inQuery), unescaped(name)})
	}
	return pieces
}

func textsOf(pieces []piece, which func(piece) bool) (texts []string) {
	for _, p := range pieces {
		if which(p) {
			texts = append(texts, p.text)
		}
	}
	return texts
}

// unescaped decodes a parameter's name or value the way the URL standard decodes forms. A plus
// becomes a space, and a percent sign without a valid escape is kept.
func unescaped(name string) string {
	if strings.IndexByte(name, '%') < 0 && strings.IndexByte(name, '+') < 0 {
		return name
	}
	out := make([]byte, 0, len(name))
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c == '+':
			out = append(out, ' ')
		case c == '%' && i+2 < len(name) && isHex(name[i+1]) && isHex(name[i+2]):
			out = append(out, hexValue(name[i+1])<<4|hexValue(name[i+2]))
			i += 2
		default:
			out = append(out, c)
		}
	}
	return string([]rune(string(out))) // bytes that are not UTF-8 become U+FFFD
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func hexValue(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

// The characters that the URL standard escapes in the query and in the path of an http URL, in
// addition to control characters, spaces and non-ASCII characters.
const (
	inQuery = `"#<>'`
	inPath  = "\"#<>?^`{}"
)

// escaped escapes the special characters in text, and all characters that are invalid in a URL.
// Existing escapes are kept.
func escaped(text, special string) string {
	must := func(c byte) bool { return c <= ' ' || c >= 0x7f || strings.IndexByte(special, c) >= 0 }
	first := 0
	for first < len(text) && !must(text[first]) {
		first++
	}
	if first == len(text) {
		return text
	}
	const digits = "0123456789ABCDEF"
	out := append(make([]byte, 0, len(text)+16), text[:first]...)
	for i := first; i < len(text); i++ {
		if c := text[i]; must(c) {
			out = append(out, '%', digits[c>>4], digits[c&15])
		} else {
			out = append(out, c)
		}
	}
	return string(out)
}

// WithPath appends the part of a short URL after the slug to the path of a URL. That part must be
// the text that the visitor sent, start with a slash, and be forwardable.
func WithPath(address, path string) string {
	if path == "" {
		return address
	}
	end := strings.IndexAny(address, "?#")
	if end < 0 {
		end = len(address)
	}
	return strings.TrimSuffix(address[:end], "/") + escaped(path, inPath) + address[end:]
}

// forwardable reports whether a link may forward the path. It rejects dot segments, and all
// characters that a server might interpret as a slash, as the end of the text or as an invalid
// escape.
func forwardable(path string) bool {
	if len(path) > MaxForwardedPath || path[0] != '/' || strings.IndexByte(path, '\\') >= 0 {
		return false
	}
	text, err := url.PathUnescape(path)
	if err != nil || strings.ContainsAny(text, "\\\x00") || strings.Count(text, "/") != strings.Count(path, "/") {
		return false
	}
	for segment := range strings.SplitSeq(text, "/") {
		if segment == "." || segment == ".." {
			return false
		}
	}
	return true
}
