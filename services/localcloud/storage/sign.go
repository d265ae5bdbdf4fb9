package storage

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	algorithm = "GOOG4-RSA-SHA256"
	dateForm  = "20060102T150405Z"
	// earliness is how far a signer's clock may be ahead of ours.
	earliness = 15 * time.Minute
	longest   = 7 * 24 * 60 * 60 // seconds
)

// verify checks the method, path, host, query, headers and time of a request with a V4 signature.
// It returns nil only if exactly this request was signed with a key that the server knows.
func verify(r *http.Request, now time.Time, keys map[string]*rsa.PublicKey) error {
	q := r.URL.Query()
	if !q.Has("X-Goog-Algorithm") && !q.Has("X-Goog-Signature") {
		return fail(403, "AccessDenied", "Anonymous caller does not have access to the object.")
	}
	for _, p := range []string{"X-Goog-Algorithm", "X-Goog-Credential", "X-Goog-Date", "X-Goog-Expires", "X-Goog-SignedHeaders", "X-Goog-Signature"} {
		if len(q[p]) != 1 {
			return malformed("query parameter %s must be given exactly once", p)
		}
	}
	if q.Get("X-Goog-Algorithm") != algorithm {
		return malformed("unsupported algorithm; use %s", algorithm)
	}
	account, scope, ok := strings.Cut(q.Get("X-Goog-Credential"), "/")
	date, err := time.Parse(dateForm, q.Get("X-Goog-Date"))
	if !ok || err != nil {
		return malformed("malformed credential or date")
	}
	if s := strings.Split(scope, "/"); len(s) != 4 || s[0] != date.Format("20060102") || s[1] == "" || s[2] != "storage" || s[3] != "goog4_request" {
		return malformed("malformed credential scope")
	}
	lifetime, err := strconv.Atoi(q.Get("X-Goog-Expires"))
	if err != nil || lifetime < 1 || lifetime > longest {
		return malformed("X-Goog-Expires must be between 1 and %d", longest)
	}
	if now.Before(date.Add(-earliness)) {
		return fail(403, "AccessDenied", "The request is not valid yet.")
	}
	if now.After(date.Add(time.Duration(lifetime) * time.Second)) {
		return fail(400, "ExpiredToken", "The provided token has expired.")
	}
	signed := strings.Split(q.Get("X-Goog-SignedHeaders"), ";")
	if !slices.Contains(signed, "host") || !slices.IsSorted(signed) {
		return malformed("signed headers must be sorted and include host")
	}
	for h := range r.Header {
		h = strings.ToLower(h)
		if strings.HasPrefix(h, "x-goog-") && !slices.Contains(signed, h) && !unsignedOK[h] {
			return fail(400, "MalformedSecurityHeader", "Header %s was sent but not signed.", h)
		}
	}
	for _, h := range signed {
		if h != "host" && len(r.Header.Values(h)) == 0 {
			return fail(400, "MalformedSecurityHeader", "Header was included in signedheaders, but not in the request: %s", h)
		}
	}
	signature, err := hex.DecodeString(q.Get("X-Goog-Signature"))
	key := keys[account]
	if err != nil || key == nil {
		return mismatch()
	}
	q.Del("X-Goog-Signature")
	stamp := algorithm + "\n" + q.Get("X-Goog-Date") + "\n" + scope + "\n"
	for _, m := range methodsFor(r.Method) {
		for _, host := range hostsFor(r.Host) {
			canonical := sha256.Sum256([]byte(m + "\n" + canonicalRequest(r, q, signed, host)))
			digest := sha256.Sum256([]byte(stamp + hex.EncodeToString(canonical[:])))
			if rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], signature) == nil {
				return nil
			}
		}
	}
	return mismatch()
}

// unsignedOK lists the headers that Google's own clients add to every request without signing them.
var unsignedOK = map[string]bool{"x-goog-api-client": true, "x-goog-gcs-idempotency-token": true, "x-goog-user-project": true}

func malformed(f string, a ...any) error { return fail(400, "AuthenticationRequired", f, a...) }

func mismatch() error {
	return fail(403, "SignatureDoesNotMatch", "Access denied: the request signature does not match the signature you provided.")
}

// methodsFor lists the signed methods that allow method. A URL that was signed for GET also allows
// HEAD.
func methodsFor(method string) []string {
	if method == http.MethodHead {
		return []string{http.MethodHead, http.MethodGet}
	}
	return []string{method}
}

// hostsFor lists the forms in which clients sign a host. Most clients omit the port, but some
// include it.
func hostsFor(host string) []string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return []string{name, host}
	}
	return []string{host}
}

// canonicalRequest returns the text to be signed without its first line.
func canonicalRequest(r *http.Request, q url.Values, signed []string, host string) string {
	var b strings.Builder
	for i, seg := range strings.Split(r.URL.Path, "/") {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(percent(seg))
	}
	b.WriteString("\n" + strings.ReplaceAll(q.Encode(), "+", "%20") + "\n")
	payload := "UNSIGNED-PAYLOAD"
	for _, h := range signed {
		v := host
		if h != "host" {
			v = strings.Join(strings.Fields(strings.Join(r.Header.Values(h), ",")), " ")
		}
		if h == "x-goog-content-sha256" {
			payload = v
		}
		b.WriteString(h + ":" + v + "\n")
	}
	b.WriteString("\n" + strings.Join(signed, ";") + "\n" + payload)
	return b.String()
}

func percent(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
