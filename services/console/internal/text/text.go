// Package text contains all the text in the console. Pages refer to each message by its key, so
// adding a language means adding a file next to en.go.
package text

import (
	"strconv"
	"strings"
)

// Get returns the text for a key. An unknown key is a mistake in the page. In that case, Get
// returns the key itself, so that tests catch the mistake.
func Get(key string) string {
	if s, ok := english[key]; ok {
		return s
	}
	return "[" + key + "]"
}

// Has reports whether there is text for key.
func Has(key string) bool { _, ok := english[key]; return ok }

// Number formats n with thousands separators.
func Number(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return strings.Replace(s, "-", "−", 1)
}
