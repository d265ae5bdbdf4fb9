package link

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nlnwa/whatwg-url/url"

	"github.com/linkreel/linkreel/libs/apierr"
)

// maxURL is the maximum length of a URL in bytes. It exists because destinations are sent in a
// header. The API contract has its own limit, in characters.
const maxURL = 8192

// URL is an http or https URL. Given is the exact text from the caller. Location is the same URL in
// ASCII, as the URL standard serializes it. Browsers interpret URLs by that standard, so Location
// is the form that [ParseURL] checks.
type URL struct{ Given, Location string }

// Hosts is a list of hosts that serve redirects. A link to one of them could cause a redirect loop,
// so links must not point to them.
type Hosts []Host

// Host is a host name in lower case with its port. Port is "" for the default ports of http and
// https, because our hosts are usually reachable on both.
type Host struct{ Name, Port string }

// At returns the hosts where a custom host name is reachable: on the default ports, and on the
// default short host's port.
func (h Hosts) At(hostname string) Hosts {
	out := Hosts{ParseHost(hostname)}
	for _, own := range h {
		if at := (Host{out[0].Name, own.Port}); !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	return out
}

// ParseHost parses a host with or without a port.
func ParseHost(hostport string) Host {
	name, port := hostport, ""
	if i := strings.LastIndexByte(hostport, ':'); i >= 0 && !strings.HasSuffix(hostport, "]") {
		name, port = hostport[:i], hostport[i+1:]
	}
	if port == "80" || port == "443" {
		port = ""
	}
	return Host{strings.TrimSuffix(strings.ToLower(name), "."), port}
}

// Names returns the hosts' names.
func (h Hosts) Names() []string {
	out := make([]string, len(h))
	for i := range h {
		out[i] = h[i].Name
	}
	return out
}

// ParseURL accepts the URL of a destination or of a preview image. It never fetches the URL. The
// URL must be http or https, have a host right after the slashes, and not contain any user info. It
// must be valid under the WHATWG URL standard, be at most 8,192 bytes long, and not be on one of
// the hosts in own.
func ParseURL(text string, own Hosts) (URL, *apierr.Detail) {
	if len(text) > maxURL {
		return URL{}, &apierr.Detail{Code: apierr.TooLong, Message: "Use at most 8,192 bytes.", Max: maxURL}
	}
	refuse := func(code, message string) (URL, *apierr.Detail) {
		return URL{}, &apierr.Detail{Code: code, Message: message}
	}
	host, ok := authority(text)
	switch {
	case !ok:
		return refuse(apierr.InvalidFormat, "The address must start with http:// or https://.")
	case !utf8.ValidString(text):
		return refuse(apierr.InvalidFormat, "The address is not valid UTF-8.")
	case strings.ContainsFunc(text, unicode.IsControl):
		return refuse(apierr.InvalidFormat, "The address contains a control character.")
	// The URL standard would skip any extra slashes and treat the next part as the host.
	case host == "":
		return refuse(apierr.InvalidFormat, "The address has no host.")
	// Check this before parsing because the parser drops empty user info.
	case strings.Contains(host, "@"):
		return refuse(apierr.NotAllowed, "The address must not contain a user name or password.")
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return refuse(apierr.InvalidFormat, "This is not a valid address. Check the host and port.")
	}
	if u.Username() != "" || u.Password() != "" {
		return refuse(apierr.NotAllowed, "The address must not contain a user name or password.")
	}
	if slices.Contains(own, ParseHost(u.Host())) {
		return URL{}, LeadsBack()
	}
	location := u.Href(false)
	// This check protects the Location header even if the parser has a bug.
	if strings.ContainsFunc(location, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return refuse(apierr.InvalidFormat, "This is not a valid address.")
	}
	return URL{Given: text, Location: location}, nil
}

// LeadsBack returns the error for a URL on a short-link host that could redirect visits back.
func LeadsBack() *apierr.Detail {
	return &apierr.Detail{
		Code: apierr.SelfReference, Message: "The address is on one of our own short hosts, so visits could end up in a redirect loop. Use the final destination.",
	}
}

// Host returns the URL's host.
func (u URL) Host() Host {
	host, _ := authority(u.Location)
	return ParseHost(host)
}

// authority returns the part between the scheme and the path of an http or https URL.
func authority(address string) (_ string, ok bool) {
	scheme, rest, ok := strings.Cut(address, "://")
	if scheme = strings.ToLower(scheme); !ok || scheme != "http" && scheme != "https" {
		return "", false
	}
	if i := strings.IndexAny(rest, `/\?#`); i >= 0 {
		rest = rest[:i]
	}
	return rest, true
}

// Destination accepts the destination of a link. It must be a valid URL, and must not be on a host
// in own or on a host that this installation blocks.
func (s *Service) Destination(text string, own Hosts) (URL, *apierr.Detail) {
	u, problem := ParseURL(text, own)
	if problem == nil && s.opt.Blocked != nil && s.opt.Blocked.Has(u.Location) {
		return URL{}, &apierr.Detail{
			Code:    apierr.BlockedDestination,
			Message: "This installation does not allow links to this host. Use a different destination, or ask the operator.",
		}
	}
	return u, problem
}
