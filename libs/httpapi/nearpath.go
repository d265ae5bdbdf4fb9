package httpapi

import (
	"slices"
	"strings"
	"sync"

	"github.com/linkreel/linkreel/libs/apispec"
)

// Anyone can request any path, so these limits bound the comparisons for a 404. They are the
// maximum length of the path, and how much longer a segment may be than a word in the API, in
// bytes.
const (
	maxNearPath = 256
	maxNearWord = 12
)

// apiPaths returns, for each path in the API, the segments after /api/v1/.
var apiPaths = sync.OnceValue(func() (paths [][]string) {
	for _, r := range apispec.Load().Routes() {
		if rest, ok := strings.CutPrefix(r.Path, "/api/v1/"); ok {
			paths = append(paths, strings.Split(rest, "/"))
		}
	}
	slices.SortFunc(paths, slices.Compare[[]string])
	return slices.CompactFunc(paths, slices.Equal[[]string]) // a path with several methods appears several times
})

// nearPath returns the API path that the caller probably meant by path, or "" if none is
// similar. It recognises an extra slash, a missing or wrong /api/v1, and misspelt words.
func nearPath(path string) string {
	if len(path) > maxNearPath {
		return ""
	}
	segments := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	if len(segments) > 0 && segments[0] == "api" {
		segments = segments[1:]
	}
	if len(segments) > 0 && isVersion(segments[0]) {
		segments = segments[1:]
	}
	if len(segments) == 0 {
		return ""
	}
	best, least := "", 1<<30
	for _, route := range apiPaths() {
		if near, wrong := alike(segments, route); near != "" && wrong < least {
			best, least = "/api/v1/"+near, wrong
		}
	}
	if best == path {
		return ""
	}
	return best
}

func isVersion(segment string) bool {
	return len(segment) > 1 && segment[0] == 'v' && strings.Trim(segment[1:], "0123456789") == ""
}

// alike returns a route's path with the caller's values for its parameters, and the number of
// words that the caller misspelt. The path is "" if given is not similar to route.
func alike(given, route []string) (path string, wrong int) {
	if len(given) != len(route) {
		return "", 0
	}
	out := make([]string, len(route))
	for i, want := range route {
		switch {
		case strings.HasPrefix(want, "{") || strings.HasPrefix(want, ":"):
			out[i] = given[i]
		case given[i] == want:
			out[i] = want
		case len(given[i]) <= len(want)+maxNearWord && nearest(given[i], []string{want}) != "":
			out[i] = want
			wrong++
		default:
			return "", 0
		}
	}
	return strings.Join(out, "/"), wrong
}

// listed joins words for use in a sentence: "GET, HEAD and PATCH".
func listed(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
