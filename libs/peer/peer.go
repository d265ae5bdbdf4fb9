// Package peer lets our services call each other, with one client, one door, and one
// table of which service may call which route.
//
// All calls are between auth and another service. Each of the other services shares one
// token with auth and with nobody else. The service sends it to auth, and auth sends it
// to the service. So somebody who reads the console's memory can sign people in, but
// cannot erase an account in links. While a token is being replaced, its setting is
// "NEW,OLD": callers send the first, and services accept both.
//
// A call is a POST with one JSON value, and its response is one JSON value. The door
// repeats the id of the call in its response ([callHeader]). A response without it is not
// from the handler: the token was wrong, the route is missing, a proxy answered, or the
// answer belongs to another call. The client treats all of these as UNAVAILABLE, so
// that none of them can be mistaken for "no such key" or "erased".
package peer

import (
	"crypto/sha256"
	"slices"
	"strings"
)

// Service names one of our services.
type Service string

// The services that call others.
const (
	Auth    Service = "auth"
	Links   Service = "links"
	Videos  Service = "videos"
	Events  Service = "events"
	Console Service = "console"
)

// may lists the prefixes of the paths that each service may call. All other paths are
// refused with 403, with any token.
var may = map[Service][]string{
	Auth:    {"/internal/v1/accounts/", "/internal/v1/takedowns/"},
	Links:   {"/internal/v1/keys/verify"},
	Videos:  {"/internal/v1/keys/verify", "/internal/v1/rights"},
	Events:  {"/internal/v1/keys/verify"},
	Console: {"/internal/v1/sign-in/"},
}

func (s Service) may(path string) bool {
	return slices.ContainsFunc(may[s], func(start string) bool { return strings.HasPrefix(path, start) })
}

// callHeader carries the id of one call, a random number from the client.
const callHeader = "Linkreel-Call"

// Shown returns the token that callers send: the first in a setting "NEW,OLD".
func Shown(token string) string {
	first, _, _ := strings.Cut(token, ",")
	return strings.TrimSpace(first)
}

type hash = [sha256.Size]byte

// hashes returns the hashes of all tokens in "NEW,OLD". It skips empty ones.
func hashes(token string) (all []hash) {
	for one := range strings.SplitSeq(token, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, sha256.Sum256([]byte(one)))
		}
	}
	return all
}
