package objectstore

import (
	"crypto/x509"
	"encoding/pem"
)

// KeyForTest reveals the signing identity.
func KeyForTest(s *Store) (email string, keyPEM []byte) {
	k := s.signer.(*keySigner)
	der, err := x509.MarshalPKCS8PrivateKey(k.key)
	if err != nil {
		panic(err)
	}
	return k.email, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
