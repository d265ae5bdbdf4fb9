package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// SecretPrefix is the prefix of every signing secret.
const SecretPrefix = "whsec_"

const secretBytes = 32

// NewSecret generates a signing secret.
func NewSecret() (string, error) {
	b := make([]byte, secretBytes)
	if _, err := io.ReadFull(rand.Reader, b); err != nil {
		return "", fmt.Errorf("generate webhook secret: %w", err)
	}
	return SecretPrefix + base64.StdEncoding.EncodeToString(b), nil
}

// Headers returns a message's headers: its ID, the time of this attempt, and a signature for
// each secret.
func Headers(id string, at time.Time, body []byte, secrets []string) (map[string]string, error) {
	stamp := strconv.FormatInt(at.Unix(), 10)
	var signatures []string
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, SecretPrefix))
		if err != nil {
			return nil, fmt.Errorf("sign message: %w", err)
		}
		mac := hmac.New(sha256.New, key)
		_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, stamp, body) // never fails
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return map[string]string{
		"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": strings.Join(signatures, " "),
	}, nil
}
