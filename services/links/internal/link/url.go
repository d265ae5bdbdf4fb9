package link

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nlnwa/whatwg-url/url"

	"github.com/linkreel/linkreel/libs/apierr"
)

// maxURL is the longest address in bytes, because a destination becomes a header. The
// contract bounds characters.
const maxURL = 8192

// URL is an http or https address. Given is what the caller wrote, to the
// letter; Location is how the URL standard writes the same address in ASCII. A
// browser follows Location by that standard, so it is the form that was judged.
type URL struct{ Given, Location string }

// Hosts are the addresses at which redirects are served: a link to one of them
// could only go in circles.
type Hosts []Host

// Host is a host name in lower case with the port that is written behind it,
// "" when it is the scheme's own.
type Host struct{ Name, Port string }

// ParseHost reads host or host:port.
func ParseHost(hostport string) Host {
	name, port := hostport, ""
	if i := strings.LastIndexByte(hostport, ':'); i >= 0 && !strings.HasSuffix(hostport, "]") {
		name, port = hostport[:i], hostport[i+1:]
	}
	if port == "80" || port == "443" {
		port = ""
	}
	return Host{strings.TrimSuffix(Fold(name), "."), port}
}

// Names are the hosts' names.
func (h Hosts) Names() []string {
	out := make([]string, len(h))
	for i := range h {
		out[i] = h[i].Name
	}
	return out
}

func (h Hosts) has(u *url.Url) bool {
	port := u.Port()
	if port == "80" || port == "443" { // the other scheme's own: still ours, most likely
		port = ""
	}
	name := strings.TrimSuffix(u.Hostname(), ".")
	for _, own := range h {
		if name == own.Name && port == own.Port {
			return true
		}
	}
	return false
}

// ParseURL accepts a destination, or a preview image, which is never fetched: http or https, a host right behind the
// slashes, no user info, at most 8,192 bytes, valid by the WHATWG URL standard,
// and not one of own.
func ParseURL(text string, own Hosts) (URL, *apierr.Detail) {
	if len(text) > maxURL {
		return URL{}, &apierr.Detail{Code: apierr.TooLong, Message: "Use at most 8,192 bytes.", Max: maxURL}
	}
	refuse := func(code, message string) (URL, *apierr.Detail) {
		return URL{}, &apierr.Detail{Code: code, Message: message}
	}
	rest, ok := behindScheme(text)
	switch {
	case !ok:
		return refuse(apierr.InvalidFormat, "The address must start with http:// or https://.")
	case !utf8.ValidString(text):
		return refuse(apierr.InvalidFormat, "The address is not valid UTF-8.")
	case strings.ContainsFunc(text, unicode.IsControl):
		return refuse(apierr.InvalidFormat, "The address contains a control character.")
	// The standard would skip further slashes and take what follows for the host.
	case rest == "" || strings.ContainsRune(`/\?#`, rune(rest[0])):
		return refuse(apierr.InvalidFormat, "The address has no host.")
	}
	authority := rest
	if i := strings.IndexAny(rest, `/\?#`); i >= 0 {
		authority = rest[:i]
	}
	// Before parsing, which drops user info that is empty.
	if strings.Contains(authority, "@") {
		return refuse(apierr.NotAllowed, "The address must not carry a user name or password.")
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return refuse(apierr.InvalidFormat, "This is not a valid address.")
	}
	if u.Username() != "" || u.Password() != "" {
		return refuse(apierr.NotAllowed, "The address must not carry a user name or password.")
	}
	if own.has(u) {
		return refuse(apierr.SelfReference, "The address leads back to our own short host.")
	}
	location := u.Href(false)
	if !visibleASCII(location) {
		return refuse(apierr.InvalidFormat, "This is not a valid address.")
	}
	return URL{Given: text, Location: location}, nil
}

func behindScheme(text string) (rest string, ok bool) {
	for _, prefix := range []string{"https://", "http://"} {
		if len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix) {
			return text[len(prefix):], true
		}
	}
	return "", false
}

// visibleASCII guards the Location header even if the parser had a flaw.
func visibleASCII(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
