// Package guard decides which requests a private listener accepts. They must contain a token and a
// host name that no web page can choose.
package guard

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// MinToken is the minimum length of a token.
const MinToken = 32

// Tokens contains the bearer tokens that a server accepts. If it is empty, the server accepts every
// caller.
type Tokens struct {
	first string
	sums  [][sha256.Size]byte
}

// Parse parses comma-separated tokens. Clients send the first token. The server accepts all of
// them, so a token can be replaced while clients still send the old one. An empty string means no
// tokens. Any other string must be a list of complete tokens. Otherwise, Parse returns an error, so
// a mistake cannot leave the server unprotected.
func Parse(text string) (Tokens, error) {
	var t Tokens
	if text == "" {
		return t, nil
	}
	for token := range strings.SplitSeq(text, ",") {
		token = strings.TrimSpace(token)
		if len(token) < MinToken {
			return Tokens{}, fmt.Errorf("a token has %d characters; use %d or more, and commas only between tokens", len(token), MinToken)
		}
		if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return Tokens{}, errors.New("a token contains a character that cannot be sent in a header; use letters and digits")
		}
		if t.first == "" {
			t.first = token
		}
		t.sums = append(t.sums, sha256.Sum256([]byte(token)))
	}
	return t, nil
}

// Required reports whether callers must send a token.
func (t Tokens) Required() bool { return len(t.sums) > 0 }

// First returns the token that clients send, or "" if there is none.
func (t Tokens) First() string { return t.first }

// Accept reports whether a request with this Authorization header is accepted. It compares hashes
// in constant time, so its duration does not reveal anything about a token.
func (t Tokens) Accept(authorization string) bool {
	if !t.Required() {
		return true
	}
	scheme, given, _ := strings.Cut(authorization, " ")
	sum, good := sha256.Sum256([]byte(given)), 0
	for _, want := range t.sums {
		good |= subtle.ConstantTimeCompare(sum[:], want[:])
	}
	return strings.EqualFold(scheme, "Bearer") && good == 1
}

// OwnHost reports whether a request's host is safe, meaning that a web page cannot choose it. A
// page can make its own host name resolve to this machine (DNS rebinding) and then read the
// responses. IP addresses, localhost and names without a dot are never resolved by public DNS, so
// these hosts are safe. more lists additional names to accept.
func OwnHost(host string, more ...string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	return net.ParseIP(host) != nil || !strings.Contains(host, ".") || strings.HasSuffix(host, ".localhost") ||
		slices.ContainsFunc(more, func(m string) bool { return strings.EqualFold(m, host) })
}

// Bearer sends a token with each gRPC call, even over a connection without TLS, such as a
// connection to a private listener.
type Bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b Bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (Bearer) RequireTransportSecurity() bool { return false }
