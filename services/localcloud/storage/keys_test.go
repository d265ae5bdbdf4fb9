package storage_test

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"testing"

	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// otherKey returns a key file that no other server uses.
func otherKey(t *testing.T) []byte {
	t.Helper()
	s, err := storage.Open(storage.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.ServiceAccountKey()
}

func parsePublic(t *testing.T, keyPEM string) *rsa.PublicKey {
	t.Helper()
	b, _ := pem.Decode([]byte(keyPEM))
	k, err := x509.ParsePKCS8PrivateKey(b.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return &k.(*rsa.PrivateKey).PublicKey
}
