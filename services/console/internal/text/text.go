// Package text holds every sentence of the console. Pages name a sentence by its
// key, so that another language is another file beside en.go.
package text

import (
	"strconv"
	"strings"
)

// Get is the sentence of a key. An unknown key is a mistake of the page's author
// and shows as itself; a test finds it.
func Get(key string) string {
	if s, ok := english[key]; ok {
		return s
	}
	return "[" + key + "]"
}

// Has reports whether there is a sentence for key.
func Has(key string) bool { _, ok := english[key]; return ok }

// Number writes n with thousands apart.
func Number(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return strings.Replace(s, "-", "−", 1)
}
