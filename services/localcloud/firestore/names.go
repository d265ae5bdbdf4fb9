package firestore

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
)

// A resource name is projects/{p}/databases/{d}/documents/{collection}/{id}/... The part before
// /documents identifies the database, and the part after it is the path.

// splitName splits a resource name. The path of the root is empty.
func splitName(name string) (database string, path []string, err error) {
	if len(name) > maxNameBytes {
		return "", nil, invalid("Document name is longer than %d bytes.", maxNameBytes)
	}
	p := strings.Split(name, "/")
	if len(p) < 5 || p[0] != "projects" || p[1] == "" || p[2] != "databases" || p[3] == "" || p[4] != "documents" {
		return "", nil, invalid("Document name %q is not of the form projects/*/databases/*/documents/*.", name)
	}
	for _, s := range p[5:] {
		if err := checkID(s); err != nil {
			return "", nil, err
		}
	}
	return strings.Join(p[:4], "/"), p[5:], nil
}

// splitDocument is like splitName, but for the name of a document.
func splitDocument(name string) (database string, path []string, err error) {
	database, path, err = splitName(name)
	if err == nil && (len(path) == 0 || len(path)%2 != 0) {
		err = invalid("Document name %q does not name a document.", name)
	}
	return database, path, err
}

// splitParent is like splitName, but for the parent of a collection, which is the root or a
// document.
func splitParent(name string) (database string, path []string, err error) {
	database, path, err = splitName(name)
	if err == nil && len(path)%2 != 0 {
		err = invalid("Parent %q is neither a document nor the root of a database.", name)
	}
	return database, path, err
}

func checkID(s string) error {
	if s == "" || s == "." || s == ".." {
		return invalid("Resource id %q is invalid.", s)
	}
	if len(s) > maxIDBytes {
		return invalid("The key path element name is longer than %d bytes.", maxIDBytes)
	}
	if _, numeric := numericID(s); isReserved(s) && !numeric {
		return invalid("Resource id %q is invalid because it is reserved.", s)
	}
	return nil
}

func joinName(database string, path []string) string {
	return database + "/documents/" + strings.Join(path, "/")
}

// The bytes of encoded paths sort in the same order as compareNames. A segment is 0x01 followed by
// a number, or 0x02 followed by an escaped string. A path ends with 0x00, so a parent sorts before
// its children.
const (
	endOfPath      = 0x00
	numericSegment = 0x01
	stringSegment  = 0x02
)

func appendSegments(b []byte, path []string) []byte {
	for _, s := range path {
		if n, ok := numericID(s); ok {
			b = binary.BigEndian.AppendUint64(append(b, numericSegment), uint64(n)^1<<63)
			continue
		}
		b = appendEscaped(append(b, stringSegment), s)
	}
	return b
}

// appendEscaped appends s so that no encoded string is a prefix of another and the encodings sort
// like the strings: 0x00 becomes 0x00 0xff, and 0x00 0x01 marks the end.
func appendEscaped[T string | []byte](b []byte, s T) []byte {
	for i := range len(s) {
		b = append(b, s[i])
		if s[i] == 0 {
			b = append(b, 0xff)
		}
	}
	return append(b, 0x00, 0x01)
}

// collectionKey returns the common prefix of the keys of a collection's documents.
func collectionKey(path []string) []byte { return append(appendSegments(nil, path), endOfPath) }

// documentKey returns a key that begins with the collection. A collection's documents are therefore
// adjacent, with no documents from subcollections between them.
func documentKey(path []string) []byte {
	return appendSegments(collectionKey(path[:len(path)-1]), path[len(path)-1:])
}

// decodeSegments decodes segments up to the end of the path or of b. It returns the bytes after the
// path as rest.
func decodeSegments(b []byte) (path []string, rest []byte) {
	for len(b) > 0 {
		var s string
		switch b[0] {
		case endOfPath:
			return path, b[1:]
		case numericSegment:
			if len(b) < 9 {
				return path, nil
			}
			s = formatNumericID(int64(binary.BigEndian.Uint64(b[1:9]) ^ 1<<63))
			b = b[9:]
		default:
			s, b = decodeEscaped(b[1:])
		}
		path = append(path, s)
	}
	return path, nil
}

func decodeEscaped(b []byte) (s string, rest []byte) {
	end := bytes.IndexByte(b, 0)
	if end < 0 {
		return string(b), nil
	}
	if end+1 >= len(b) || b[end+1] == 0x01 { // the usual case: the string does not contain a zero byte
		return string(b[:end]), b[min(end+2, len(b)):]
	}
	var out []byte
	for i := 0; i < len(b); i++ {
		if b[i] != 0 {
			out = append(out, b[i])
			continue
		}
		i++
		if i >= len(b) || b[i] == 0x01 {
			return string(out), b[min(i+1, len(b)):]
		}
		out = append(out, 0)
	}
	return string(out), nil
}

// decodeDocumentKey is the inverse of documentKey.
func decodeDocumentKey(k []byte) []string {
	path, rest := decodeSegments(k)
	id, _ := decodeSegments(rest)
	return append(path, id...)
}

func appendFloat(b []byte, f float64) []byte {
	if math.IsNaN(f) {
		return append(b, 0, 0, 0, 0, 0, 0, 0, 0) // NaN sorts below minus infinity
	}
	if f == 0 {
		f = 0 // turns -0 into 0 because they are equal
	}
	bits := math.Float64bits(f)
	if bits>>63 == 1 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	return binary.BigEndian.AppendUint64(b, bits)
}
