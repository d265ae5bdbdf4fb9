package certificate

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/linkreel/linkreel/libs/seal"
)

// Account holds the key for our account with the authority. All replicas share the account. Only
// the key is stored because an authority returns the existing account for a known key. Replicas
// that register at the same time therefore get the same account.
type Account struct {
	Store interface {
		// ChangeAccount runs fn with an account's sealed key and the time when the key was stored.
		// sealed is nil if there is no key. ChangeAccount stores the key that fn returns. fn may
		// run several times.
		ChangeAccount(ctx context.Context, id string, fn func(sealed []byte, since time.Time) ([]byte, error)) error
	}
	ID   string // derived from the authority's URL and our e-mail address
	Seal *seal.Keys
	Now  func() time.Time
}

// key returns the account's key, creating it if it does not exist.
func (a *Account) key(ctx context.Context) (key crypto.Signer, err error) {
	err = a.Store.ChangeAccount(ctx, a.ID, func(sealed []byte, since time.Time) (_ []byte, err error) {
		// If no sealing key decrypts it, do not replace it immediately; [Service.lost] explains
		// why.
		if sealed != nil && (a.Seal.Has(sealed) || a.Now().Sub(since) < loss) {
			key, err = a.open(sealed)
			return sealed, err
		}
		made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("make key: %w", err)
		}
		key = made
		der, err := x509.MarshalPKCS8PrivateKey(made)
		return a.Seal.Seal(a.ID, der), err
	})
	if err != nil {
		return nil, fmt.Errorf("key for the account at the authority: %w", err)
	}
	return key, nil
}

func (a *Account) open(sealed []byte) (crypto.Signer, error) {
	der, err := a.Seal.Open(a.ID, sealed)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("this kind of key cannot sign")
	}
	return signer, nil
}

// reseal reseals the key with the first sealing key. It does nothing if the key does not exist or
// if no sealing key decrypts it.
func (a *Account) reseal(ctx context.Context) error {
	return a.Store.ChangeAccount(ctx, a.ID, func(sealed []byte, _ time.Time) ([]byte, error) {
		if !a.Seal.Has(sealed) {
			return nil, seal.ErrCurrent
		}
		return a.Seal.Again(a.ID, sealed)
	})
}
