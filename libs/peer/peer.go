// Package peer implements calls between services. It contains the client, the door that
// authenticates calls, and the table of routes that each service may call.
//
// All calls are between auth and another service. Each of the other services shares one token with
// auth only. That token authenticates calls in both directions. Therefore, an attacker who can read
// the console's memory can sign people in, but cannot erase an account in links. During a rotation,
// a token's setting is "NEW,OLD": callers send the first token, and services accept both.
//
// A call is a POST with one JSON value, and its response is one JSON value. The door repeats the
// call's id in its response ([callHeader]). A response without this id is not from the handler: the
// token is wrong, the route does not exist, a proxy has answered, or the response belongs to
// another call. The client treats all of these as UNAVAILABLE so that they cannot be mistaken for
// "unknown key" or "erased".
package peer

import (
	"crypto/sha256"
	"slices"
	"strings"
)

// Service is the name of a service.
type Service string

// The services that call other services.
const (
	Auth    Service = "auth"
	Links   Service = "links"
	Videos  Service = "videos"
	Events  Service = "events"
	Console Service = "console"
)

// may lists the path prefixes that each service may call. All other paths return 403 for every
// token.
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

// callHeader contains the id of one call, a random number chosen by the client.
const callHeader = "Linkreel-Call"

// Shown returns the token that callers send, the first one in a "NEW,OLD" setting.
func Shown(token string) string {
	first, _, _ := strings.Cut(token, ",")
	return strings.TrimSpace(first)
}

type hash = [sha256.Size]byte

// hashes returns the hashes of all tokens in "NEW,OLD". It skips empty tokens.
func hashes(token string) (all []hash) {
	for one := range strings.SplitSeq(token, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, sha256.Sum256([]byte(one)))
		}
	}
	return all
}
