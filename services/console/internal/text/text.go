// Package text holds every sentence of the console. Pages refer to a sentence by its key,
// so another language is another file next to en.go.
package text

import (
	"strconv"
	"strings"
)

// Get returns the sentence for a key. For an unknown key, which is a mistake in the page, it
// returns the key itself, so that a test finds the mistake.
func Get(key string) string {
	if s, ok := english[key]; ok {
		return s
	}
	return "[" + key + "]"
}

// Has reports whether there is a sentence for key.
func Has(key string) bool { _, ok := english[key]; return ok }

// Number writes n with separators between thousands.
func Number(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return strings.Replace(s, "-", "−", 1)
}
