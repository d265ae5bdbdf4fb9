package caller

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	whatwg "github.com/nlnwa/whatwg-url/url"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/services/events/internal/webhook"
)

// MaxURL is the maximum length of a URL in bytes.
const MaxURL = 2048

// Parse checks a receiver's URL. The URL must use https, or http if the policy allows it, and must
// have a host, an allowed port and no user name. If the host is an IP address, Parse checks that
// too. A host name is checked later, on every call.
func (p Policy) Parse(text string) (webhook.Address, *apierr.Detail) {
	refuse := func(code apierr.DetailCode, message string) (webhook.Address, *apierr.Detail) {
		return webhook.Address{}, &apierr.Detail{Code: code, Message: message}
	}
	if len(text) > MaxURL {
		return webhook.Address{}, &apierr.Detail{Code: apierr.TooLong, Message: "Use at most 2,048 bytes.", Max: MaxURL}
	}
	scheme, rest, ok := strings.Cut(text, "://")
	scheme = strings.ToLower(scheme)
	if !ok || scheme != "https" && scheme != "http" || rest == "" || strings.HasPrefix(rest, "/") {
		return refuse(apierr.InvalidFormat, "Use an address that starts with https:// and names a host.")
	}
	if scheme == "http" && !p.AllowHTTP {
		return refuse(apierr.NotAllowed, "Use https: this installation does not send webhooks in plain text.")
	}
	if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || r == utf8.RuneError }) {
		return refuse(apierr.InvalidValue, "The address contains a control character.")
	}
	// Parse according to the URL standard, which also recognises other ways of
	// writing IPv4 addresses (0x7f.1, 2130706433).
	u, err := whatwg.Parse(text)
	if err != nil || u.Hostname() == "" {
		return refuse(apierr.InvalidFormat, "This address is not valid according to the URL standard.")
	}
	if u.Username() != "" || u.Password() != "" {
		return refuse(apierr.NotAllowed, "Leave the user name and password out of the address.")
	}
	if u.Port() != "" {
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || CheckPort(uint16(port)) != nil {
			return refuse(apierr.NotAllowed, "Use port 80, 443 or one above 1023.")
		}
	}
	if addr, err := netip.ParseAddr(strings.Trim(u.Hostname(), "[]")); err == nil && p.Check(addr) != nil {
		return refuse(apierr.NotAllowed, "Use a public address.")
	}
	target, _, _ := strings.Cut(u.Href(false), "#") // a fragment is never sent
	return webhook.Address{Given: text, Target: target}, nil
}

// retryAfter parses a Retry-After header, which contains seconds or a date. It returns 0 if the
// header is missing or invalid.
func retryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if n, err := strconv.ParseInt(value, 10, 32); err == nil {
		return max(0, time.Duration(n)*time.Second)
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// printable converts a response to valid text without control characters.
func printable(b []byte) string {
	if len(b) == keptBytes { // the limit may have split a character
		for i := 1; i < utf8.UTFMax; i++ {
			if tail := b[len(b)-i:]; utf8.RuneStart(tail[0]) {
				if !utf8.FullRune(tail) {
					b = b[:len(b)-i]
				}
				break
			}
		}
	}
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(b), "\uFFFD"))
}
