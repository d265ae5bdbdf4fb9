package client

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// WebhookTolerance is the maximum difference between a message's time and the local clock, in the
// past or in the future.
const WebhookTolerance = 5 * time.Minute

// ErrWebhook matches every error from [VerifyWebhook].
var ErrWebhook = errors.New("webhook not verified")

// WebhookError is the reason why a message is rejected.
type WebhookError struct {
	// Reason is "secret" (the secret is not base64), "header" (a header is missing or malformed),
	// "timestamp" (the message's time is too far from the local time) or "signature" (no signature
	// matches because the secret is different or the body was changed).
	Reason  string
	Message string
}

func (e *WebhookError) Error() string { return ErrWebhook.Error() + ": " + e.Message }

// Is matches [ErrWebhook].
func (e *WebhookError) Is(target error) bool { return target == ErrWebhook }

// VerifyWebhook checks that a message is recent and was signed with secret (whsec_…). Pass recently
// rotated secrets as older. body is the raw body of the request. Header names may be in any case. A
// message that is sent again has the same webhook-id header. The error is a *[WebhookError].
func VerifyWebhook(secret string, header http.Header, body []byte, older ...string) error {
	return verifyWebhook(append([]string{secret}, older...), header, body, time.Now())
}

func verifyWebhook(secrets []string, header http.Header, body []byte, now time.Time) error {
	id, stamp := headerOf(header, "webhook-id"), headerOf(header, "webhook-timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if id == "" || err != nil {
		return &WebhookError{"header", "webhook-id or webhook-timestamp is missing, or the timestamp is not a number of seconds"}
	}
	signatures := strings.Fields(headerOf(header, "webhook-signature"))
	if len(signatures) == 0 {
		return &WebhookError{"header", "webhook-signature is missing"}
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > WebhookTolerance || age < -WebhookTolerance {
		return &WebhookError{"timestamp", fmt.Sprintf("its time differs from the local time by %s; check the clock, or drop the message", age.Round(time.Second))}
	}
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(secret), "whsec_"))
		if err != nil || len(key) == 0 {
			return &WebhookError{"secret", "the secret must be whsec_ followed by base64"}
		}
		mac := hmac.New(sha256.New, key)
		_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, stamp, body) // never returns an error
		want := mac.Sum(nil)
		for _, part := range signatures {
			version, text, _ := strings.Cut(part, ",")
			got, err := base64.StdEncoding.DecodeString(text)
			if version == "v1" && err == nil && hmac.Equal(got, want) {
				return nil
			}
		}
	}
	return &WebhookError{"signature", "no signature matches: the message was signed with a different secret, or the body was changed before the check"}
}

// headerOf returns a header regardless of the case of its name, which some gateways change.
func headerOf(h http.Header, name string) string {
	if v := h.Get(name); v != "" {
		return v
	}
	for key, values := range h {
		if strings.EqualFold(key, name) && len(values) > 0 {
			return values[0]
		}
	}
	return ""
}
