package link

import (
	"slices"
	"strings"

	"golang.org/x/text/language"
)

// IsPrefetch reports whether a request's Sec-Purpose, Purpose, X-Purpose or X-Moz header marks the
// request as a prefetch.
func IsPrefetch(purpose string) bool {
	p := strings.ToLower(purpose)
	return strings.Contains(p, "prefetch") || strings.Contains(p, "prerender") || p == "preview"
}

// maxReferrer is the maximum length of a stored referrer host. DNS has the same limit.
const maxReferrer = 253

// ReferrerHost returns the host in a Referer header. It returns "" for headers that are not
// counted: those with any other scheme, without a plain host, or with a host in own.
func ReferrerHost(referer string, own Hosts) string {
	hostport, _ := authority(referer)
	// Visitors choose this text, and it is stored in statistics, so only characters that are valid
	// in host names are accepted. Trim's result is not empty if there is any other character, even
	// in the middle.
	host := ParseHost(hostport)
	if host.Name == "" || len(host.Name) > maxReferrer || strings.Trim(host.Name, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" {
		return ""
	}
	if slices.Contains(own, host) {
		return ""
	}
	return host.Name
}

// Country returns the two-letter code of a country or territory in upper case, or "" for anything
// else. If a proxy passes on a header from the visitor, visitors can choose the code. There are
// about 285 known codes. Even with all of them, a day's statistics fit into one commit. With all
// 676 pairs of letters, they would not.
func Country(code string) string {
	if len(code) != 2 {
		return ""
	}
	c := strings.ToUpper(code)
	if c[0] < 'A' || c[0] > 'Z' || c[1] < 'A' || c[1] > 'Z' || !countries[c[0]-'A'][c[1]-'A'] {
		return ""
	}
	return c
}

// countries records, for each pair of letters, whether Unicode's data has a country or territory
// with that code. Historic codes are included.
var countries = func() (known [26][26]bool) {
	for a := range known {
		for b := range known[a] {
			code := string([]byte{byte('A' + a), byte('A' + b)})
			r, err := language.ParseRegion(code)
			known[a][b] = err == nil && r.IsCountry() && r.String() == code
		}
	}
	return known
}()
