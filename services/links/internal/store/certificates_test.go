package store

import (
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/services/links/internal/certificate"
)

// Nothing of an erased account is left, not even the pauses of its deleted domains.
func TestForgetRemovesThePausesOfDeletedDomains(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	for _, account := range []string{"a", "b"} {
		d := b.claim(t, account, account+".example.com")
		b.proofs.show(d.Hostname, d)
		if _, err := b.domains.Verify(t.Context(), account, d.ID); err != nil {
			t.Fatal(err)
		}
		err := b.Certificates().ChangeCertificate(t.Context(), d.Hostname, func(r *certificate.Record, o *certificate.Owner) error {
			r.Account = o.Account
			r.Failed(certificate.Failure{Words: "no"}, b.clock())
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.domains.Delete(t.Context(), account, d.ID, anyVersion); err != nil {
			t.Fatal(err)
		}
	}
	if more, err := b.Forget(t.Context(), "a"); err != nil || more {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{"a.example.com": false, "b.example.com": true} {
		r, found, err := b.Certificates().Certificate(t.Context(), host)
		if err != nil || found != want {
			t.Errorf("the record of %s: found = %v, %v; want %v: %+v", host, found, err, want, r)
		}
	}
}

// A certificate that cannot be read does not prevent anyone from deleting a domain or from
// verifying its name.
func TestDeleteTakesACertificateThatCannotBeReadAlong(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	d := b.claim(t, "a", "go.example.com")
	b.proofs.show(d.Hostname, d)
	if _, err := b.domains.Verify(t.Context(), "a", d.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := b.certificateRef(d.Hostname).Set(t.Context(), map[string]any{"failures": "many", "nextAt": b.clock().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if err := b.domains.Delete(t.Context(), "a", d.ID, anyVersion); err != nil {
		t.Fatal(err)
	}
	if _, found, err := b.Certificates().Certificate(t.Context(), d.Hostname); found || err != nil {
		t.Errorf("the record is still there: %v", err)
	}
	if _, err := b.domains.Get(t.Context(), "a", d.ID); apierr.CodeOf(err) != apierr.DomainNotFound {
		t.Errorf("the domain is still there: %v", err)
	}
}
