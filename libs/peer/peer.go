// Package peer is how our services call each other: one client, one door, one table
// of who may ask what.
//
// auth is in the middle. Each other service has one token that it shares with auth
// and with nobody else: the service shows it to auth, and auth shows it to the
// service. So whoever reads the console's memory can sign people in, and cannot
// erase an account in links. A token is given as "NEW,OLD" while it is replaced: the
// first is shown, all are accepted.
//
// A call is a POST with one JSON value, and so is its answer. The door repeats the
// name of the call in its answer ([callHeader]). An answer without it is not from the
// handler that was asked: a wrong token, a missing route, a proxy's page, or an answer
// to somebody else's question. The client reads all of those as UNAVAILABLE, so that
// none of them can pass for "no such key" or "erased".
package peer

import (
	"crypto/sha256"
	"slices"
	"strings"
)

// Service names a service of ours.
type Service string

// The services that call others.
const (
	Auth    Service = "auth"
	Links   Service = "links"
	Videos  Service = "videos"
	Events  Service = "events"
	Console Service = "console"
)

// may is what each service may ask, by the start of the path. Everything else is
// refused with 403, whatever the token.
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

// callHeader names one call. It is a number that the client draws.
const callHeader = "Linkreel-Call"

// Shown is the token that a caller shows of "NEW,OLD".
func Shown(token string) string {
	first, _, _ := strings.Cut(token, ",")
	return strings.TrimSpace(first)
}

type hash = [sha256.Size]byte

// hashes are those of all tokens in "NEW,OLD". Empty ones are left out.
func hashes(token string) (all []hash) {
	for one := range strings.SplitSeq(token, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, sha256.Sum256([]byte(one)))
		}
	}
	return all
}
