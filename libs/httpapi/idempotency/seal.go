package idempotency

import (
	"bytes"
	"cmp"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/seal"
)

// id returns the hash that identifies a request's record. Because it is a hash, document paths do
// not contain text from callers, and the database does not contain Idempotency-Keys.
func (r Request) id() string {
	h := sha256.New()
	for _, part := range []string{r.Account, r.Route, r.Key} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// key returns the key that seals a response. It is derived from the Idempotency-Key, which is
// stored only as a hash. A bound key is also derived from the caller's API key. It seals responses
// that contain a new secret, so the database does not reveal the secret.
func (r Request) key(bound bool) (*seal.Key, error) {
	secret, purpose := r.Account, "linkreel idempotency 1 plain"
	if bound {
		secret, purpose = r.Secret, "linkreel idempotency 1 bound"
	}
	return seal.Derive(secret+"\x00"+r.Key, []byte(r.id()), purpose)
}

// secretPrefixes lists the prefixes of API keys, one-time links, and Standard Webhooks secrets.
var secretPrefixes = []string{identity.KeyPrefix, identity.LinkPrefix, "whsec_"}

// close compresses and encrypts the response to a request.
func (d *document) close(r Request, answer *Response) error {
	var packed bytes.Buffer
	w, _ := flate.NewWriter(&packed, flate.BestSpeed) // fails only for an unknown level
	if err := cmp.Or(json.NewEncoder(w).Encode(answer), w.Close()); err != nil {
		return fmt.Errorf("compress response: %w", err)
	}
	d.Bound = slices.ContainsFunc(secretPrefixes, func(prefix string) bool { return bytes.Contains(answer.Body, []byte(prefix)) })
	key, err := r.key(d.Bound)
	if err != nil {
		return fmt.Errorf("seal response: %w", err)
	}
	d.Done, d.Sealed = true, key.Seal(r.id(), packed.Bytes())
	return nil
}

// replay returns the response to a finished request.
func (d *document) replay(r Request) (*Response, error) {
	key, err := r.key(d.Bound)
	if err != nil {
		return nil, fmt.Errorf("open sealed response: %w", err)
	}
	packed, err := key.Open(r.id(), d.Sealed)
	if err != nil && d.Bound {
		return nil, apierr.Wrap(apierr.IdempotencyKeyReused,
			"This Idempotency-Key was used with a different API key. Repeat the request with that key.", err)
	}
	if err != nil {
		return nil, fmt.Errorf("open sealed response: %w", err)
	}
	// No size limit is needed because the data is authenticated: this deployment wrote it.
	answer := &Response{}
	if err := json.NewDecoder(flate.NewReader(bytes.NewReader(packed))).Decode(answer); err != nil {
		return nil, fmt.Errorf("decompress response: %w", err)
	}
	return answer, nil
}
