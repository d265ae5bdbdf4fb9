package idempotency

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/seal"
)

// seals are the two keys under which an answer may be kept. Both are derived
// from the Idempotency-Key, of which only a hash is stored. The bound one needs
// the caller's API key too: it is for answers that hold a new API key, which
// nobody who reads the database may learn.
type seals struct{ bound, plain *seal.Key }

func newSeals(r Request, id string) (seals, error) {
	derive := func(secret, info string) (*seal.Key, error) {
		return seal.Derive(secret+"\x00"+r.Key, []byte(id), "linkreel idempotency 1 "+info)
	}
	bound, err := derive(r.Secret, "bound")
	if err != nil {
		return seals{}, fmt.Errorf("seal answer: %w", err)
	}
	plain, err := derive(r.Account, "plain")
	if err != nil {
		return seals{}, fmt.Errorf("seal answer: %w", err)
	}
	return seals{bound: bound, plain: plain}, nil
}

// documentID names a request's record by hash, so that a caller's text is never
// a document path and a guessed key cannot be read back.
func documentID(r Request) string {
	h := sha256.New()
	for _, part := range []string{r.Account, r.Route, r.Key} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// holdsSecret reports whether an answer hands out an API key, a one-time link, or
// a webhook's signing secret.
func holdsSecret(r Response) bool {
	for _, prefix := range []string{identity.KeyPrefix, identity.LinkPrefix, webhookSecretPrefix} {
		if bytes.Contains(r.Body, []byte(prefix)) {
			return true
		}
	}
	return false
}

// webhookSecretPrefix starts the secrets of Standard Webhooks.
const webhookSecretPrefix = "whsec_"

// close compresses and encrypts an answer. bound says which key was used.
func (s seals) close(id string, answer Response) (text []byte, bound bool, err error) {
	plain, err := json.Marshal(answer)
	if err != nil {
		return nil, false, fmt.Errorf("encode answer: %w", err)
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err != nil {
		return nil, false, fmt.Errorf("compress answer: %w", err)
	}
	if _, err := w.Write(plain); err != nil {
		return nil, false, fmt.Errorf("compress answer: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, false, fmt.Errorf("compress answer: %w", err)
	}
	bound = holdsSecret(answer)
	return s.key(bound).Seal(id, packed.Bytes()), bound, nil
}

// replay is the answer of a finished request.
func (s seals) replay(id string, d document) (*Response, error) {
	packed, err := s.key(d.Bound).Open(id, d.Sealed)
	if err != nil && d.Bound {
		return nil, apierr.Wrap(apierr.IdempotencyKeyReused, "This Idempotency-Key was used with another API key, which alone may see the answer again.", err)
	}
	if err != nil {
		return nil, fmt.Errorf("open sealed answer: %w", err)
	}
	// Without a bound: only we can have sealed it, so it unpacks to an answer of ours.
	plain, err := io.ReadAll(flate.NewReader(bytes.NewReader(packed)))
	if err != nil {
		return nil, fmt.Errorf("open sealed answer: %w", err)
	}
	var answer Response
	if err := json.Unmarshal(plain, &answer); err != nil {
		return nil, fmt.Errorf("open sealed answer: %w", err)
	}
	return &answer, nil
}

func (s seals) key(bound bool) *seal.Key {
	if bound {
		return s.bound
	}
	return s.plain
}
