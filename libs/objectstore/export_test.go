package objectstore

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"time"

	"google.golang.org/api/option"
)

// ReasonOf is reasonOf.
var ReasonOf = reasonOf

// SignByIAM makes the store sign through the IAM service at endpoint, as email.
func SignByIAM(s *Store, email, endpoint string, timeout time.Duration) {
	s.signer = &iamSigner{email: email, timeout: timeout, options: []option.ClientOption{option.WithEndpoint(endpoint), option.WithoutAuthentication()}}
}

// SignBytesForTest signs with the store's key.
func SignBytesForTest(s *Store, b []byte) ([]byte, error) {
	return s.signer.sign(context.Background(), "", b)
}

// KeyForTest returns the signing identity.
func KeyForTest(s *Store) (email string, keyPEM []byte) {
	k := s.signer.(*keySigner)
	der, err := x509.MarshalPKCS8PrivateKey(k.key)
	if err != nil {
		panic(err)
	}
	return k.email, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
