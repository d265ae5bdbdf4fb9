package httpserver

import (
	"bytes"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apierr"
)

// framing says why a request must not be served: because another parser on its
// way here (a balancer, a proxy) could have read it as a different request or as
// one for a different path, or because its body would have to be unpacked. nil is
// a plain request.
//
// It reads the raw header since the parsed one no longer shows what was odd:
// fasthttp keeps the last of several Hosts, prefers one of two framings, and files
// `Host :` under a name of its own.
func framing(req *fasthttp.Request) *apierr.Error {
	refuse := func(message string) *apierr.Error { return apierr.New(apierr.BadRequest, message) }
	path, _, _ := bytes.Cut(req.Header.RequestURI(), []byte("?"))
	if bytes.ContainsAny(path, ".%") && dotted(path) {
		return refuse(`The path has the segment "." or "..". Proxies resolve such paths to other ones, so they are refused. Send the path that you mean.`)
	}
	var hosts, lengths, transfers int
	coded := false
	for raw := req.Header.RawHeaders(); len(raw) > 0; {
		var line []byte
		line, raw, _ = bytes.Cut(raw, []byte("\n"))
		if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
			continue // the end of the header
		}
		colon := bytes.IndexByte(line, ':')
		// A blank before the colon, and a line that continues the one before it
		// (RFC 9112 §5.1, §5.2), are where parsers differ most. Nothing below a blank
		// belongs into a name either.
		if colon <= 0 || line[0] <= ' ' || line[colon-1] <= ' ' {
			return refuse("A header line has a blank where none may be.")
		}
		// The length first: this runs for every redirect, and most names end here.
		switch name, value := line[:colon], line[colon+1:]; colon {
		case len("Host"):
			if bytes.EqualFold(name, hostName) {
				if hosts++; !validHost(bytes.TrimSpace(value)) {
					return refuse("The Host header is not valid.")
				}
			}
		case len("Content-Length"):
			if bytes.EqualFold(name, lengthName) {
				lengths++
			}
		case len("Content-Encoding"):
			if bytes.EqualFold(name, encodingName) {
				value = bytes.TrimSpace(value)
				coded = coded || len(value) > 0 && !bytes.EqualFold(value, identity)
			}
		case len("Transfer-Encoding"):
			if bytes.EqualFold(name, transferName) {
				if transfers++; !bytes.EqualFold(bytes.TrimSpace(value), chunked) {
					return refuse("The only Transfer-Encoding that is accepted is chunked.")
				}
			}
		}
	}
	switch {
	case hosts != 1:
		return refuse("A request has exactly one Host header.")
	case transfers > 1, transfers == 1 && lengths > 0:
		return refuse("A body has either one Content-Length or one Transfer-Encoding.")
	case transfers > 0 && !req.Header.IsHTTP11():
		return refuse("HTTP/1.0 has no Transfer-Encoding.")
	case coded && len(req.Body()) > 0:
		return apierr.New(apierr.UnsupportedMediaType, "Send the body without a Content-Encoding.")
	}
	return nil
}

// dotted reports whether a segment of a path is "." or "..", plain or
// percent-encoded. A slash that is encoded or leans back separates segments too,
// since it does so for some proxies.
func dotted(path []byte) bool {
	dots, others := 0, 0 // of the segment so far
	for len(path) > 0 {
		c := path[0]
		path = path[1:]
		if c == '%' && len(path) >= 2 {
			if v, err := strconv.ParseUint(string(path[:2]), 16, 8); err == nil {
				c, path = byte(v), path[2:]
			}
		}
		switch c {
		case '.':
			dots++
		case '/', '\\':
			if others == 0 && (dots == 1 || dots == 2) {
				return true
			}
			dots, others = 0, 0
		default:
			others++
		}
	}
	return others == 0 && (dots == 1 || dots == 2)
}

var (
	hostName     = []byte("Host")
	lengthName   = []byte("Content-Length")
	encodingName = []byte("Content-Encoding")
	transferName = []byte("Transfer-Encoding")
	chunked      = []byte("chunked")
	identity     = []byte("identity")
)

// validHost accepts what can be a host and port, and nothing that a parser could
// take for two hosts or for more of an address.
func validHost(host []byte) bool {
	for _, c := range host {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '.', c == '-', c == '_', c == ':', c == '[', c == ']', c == '%', c == '~':
		default:
			return false
		}
	}
	return len(host) > 0 && len(host) <= 300 // a DNS name has 253 at most
}
