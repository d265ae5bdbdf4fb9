package video

import (
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/jsdate"
)

// Rule is an access rule as sent by a caller. Absent fields are nil.
type Rule struct {
	Privacy       *string
	Password      *string
	ExpiresAt     *int64 // Unix time in ms
	AllowDownload *bool
	EmbedOrigins  []string
}

// Access is a validated rule.
type Access struct {
	Privacy      Privacy
	Password     string    // only with Password; only its hash is stored; "" keeps the current password
	ExpiresAt    time.Time // only with Expiring
	NoDownload   bool
	EmbedOrigins []string
}

// MaxEmbedOrigins limits the sites that may embed a video in a frame.
const MaxEmbedOrigins = 20

// Check validates a rule and reports all errors at once. It rejects a password or an expiry that
// the privacy setting would ignore. Otherwise, the caller would believe the video is protected when
// it is not.
//
// If present is not nil, the owner of that video can send back the rule that the API returned.
// In that case, the password may be absent if the video has one, and the current expiry is valid
// even if it has passed.
func (r Rule) Check(present *Video, now time.Time) (Access, []apierr.Detail) {
	var bad []apierr.Detail
	// The whole rule is replaced, so absent fields get their defaults, not the current values.
	a := Access{Privacy: Public, NoDownload: r.AllowDownload != nil && !*r.AllowDownload}
	// If the privacy setting is unknown, fields that depend on it cannot be checked.
	known := true
	if r.Privacy != nil {
		a.Privacy = Privacy(*r.Privacy)
		if known = slices.Contains(Privacies(), a.Privacy); !known {
			bad = append(
				bad,
				apierr.Detail{Field: "privacy", Code: apierr.InvalidValue, Message: "Use one of public, unlisted, password, expiring."},
			)
		}
	}

	keeps := present != nil && present.Privacy == Password && present.PasswordHash != ""
	switch {
	case r.Password == nil && a.Privacy == Password && !keeps:
		bad = append(bad, apierr.Detail{Field: "password", Code: apierr.Required, Message: "This field is required when privacy is password."})
	case r.Password != nil && known && a.Privacy != Password:
		bad = append(bad, apierr.Detail{Field: "password", Code: apierr.NotAllowed, Message: "A password has no effect unless privacy is password. Set both, or leave it out."})
	case r.Password != nil && *r.Password == "":
		bad = append(bad, apierr.Detail{Field: "password", Code: apierr.TooShort, Message: "Use at least 1 character.", Min: 1})
	case r.Password != nil:
		a.Password = *r.Password
		bad = append(bad, checkText("password", a.Password, MaxPassword)...)
	}

	kept := present != nil && r.ExpiresAt != nil && !present.ExpiresAt.IsZero() && present.ExpiresAt.UnixMilli() == *r.ExpiresAt
	switch {
	case r.ExpiresAt == nil && a.Privacy == Expiring:
		bad = append(bad, apierr.Detail{Field: "expiresAt", Code: apierr.Required, Message: "This field is required when privacy is expiring."})
	case r.ExpiresAt != nil && known && a.Privacy != Expiring:
		bad = append(bad, apierr.Detail{Field: "expiresAt", Code: apierr.NotAllowed, Message: "A time has no effect unless privacy is expiring. Set both, or leave it out."})
	case r.ExpiresAt != nil && !kept && (*r.ExpiresAt <= now.UnixMilli() || *r.ExpiresAt > maxTime):
		bad = append(
			bad,
			apierr.Detail{
				Field: "expiresAt", Code: apierr.OutOfRange, Message: "Use a time in the future." + jsdate.SecondsHint(*r.ExpiresAt),
				Min: now.UnixMilli() + 1, Max: maxTime,
			},
		)
	case r.ExpiresAt != nil:
		a.ExpiresAt = time.UnixMilli(*r.ExpiresAt).UTC()
	}

	origins, details := embedOrigins(r.EmbedOrigins)
	a.EmbedOrigins = origins
	if bad = append(bad, details...); len(bad) > 0 {
		return Access{}, bad
	}
	return a, nil
}

func embedOrigins(given []string) (origins []string, bad []apierr.Detail) {
	if len(given) > MaxEmbedOrigins {
		return nil, []apierr.Detail{{Field: "embedOrigins", Code: apierr.TooLong, Message: "Use at most 20 origins.", Max: MaxEmbedOrigins}}
	}
	for i, text := range given {
		origin, ok := parseOrigin(text)
		if !ok {
			bad = append(
				bad,
				apierr.Detail{
					Field: "embedOrigins." + strconv.Itoa(i), Code: apierr.InvalidFormat,
					Message: "Use an origin such as https://www.example.com, without a path.",
				},
			)
		} else if !slices.Contains(origins, origin) {
			origins = append(origins, origin)
		}
	}
	return origins, bad
}

var hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

// parseOrigin accepts only an origin as browsers define it, in lower case. The text becomes
// part of a Content-Security-Policy, where a space or a semicolon would start another source
// or directive.
func parseOrigin(text string) (string, bool) {
	if len(text) > 300 {
		return "", false
	}
	u, err := url.Parse(strings.ToLower(text))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.Path != "" ||
		u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#") {
		return "", false
	}
	host := u.Hostname()
	if a, err := netip.ParseAddr(host); err == nil && a.Zone() == "" && a.Is6() {
		host = "[" + host + "]"
	} else if len(host) > 253 || !hostName.MatchString(host) {
		return "", false
	}
	switch port := u.Port(); {
	case port == "" && strings.HasSuffix(u.Host, ":"):
		return "", false
	case port == "" || u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80":
		return u.Scheme + "://" + host, true
	default:
		// Write the port without leading zeros, as browsers do.
		n, err := strconv.Atoi(port)
		return u.Scheme + "://" + host + ":" + strconv.Itoa(n), err == nil && n >= 1 && n <= 65535
	}
}

// AccessRestored reports whether the access rule is older than a restore at restoredAt. The restore
// may have undone a later change by the owner. restoredAt is zero if there was no restore.
func (v *Video) AccessRestored(restoredAt time.Time) bool {
	return v.CreatedAt.Before(restoredAt) && v.AccessSetAt.Before(restoredAt)
}

// SetAccess replaces the whole rule and increments [Video.Access], which revokes every
// permission granted under the old rule. hash is the hash of the new password. "" keeps the
// current password. If the rule does not change anything, SetAccess leaves the video as it is and
// returns false.
func (v *Video) SetAccess(a Access, hash string, now time.Time) bool {
	if a.Privacy != Password {
		hash = ""
	} else if hash == "" {
		hash = v.PasswordHash
	}
	same := v.Privacy == a.Privacy && v.PasswordHash == hash && v.ExpiresAt.Equal(a.ExpiresAt) &&
		v.NoDownload == a.NoDownload && slices.Equal(v.EmbedOrigins, a.EmbedOrigins)
	if same {
		return false
	}
	v.AccessSetAt = now
	v.Privacy, v.PasswordHash, v.ExpiresAt, v.NoDownload, v.EmbedOrigins = a.Privacy, hash, a.ExpiresAt, a.NoDownload, a.EmbedOrigins
	v.Access++
	v.UpdatedAt = now
	return true
}
