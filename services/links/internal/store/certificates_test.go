package store

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/services/links/internal/certificate"
)

// Forget must delete all of an account's data, even the pauses for its deleted domains.
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
			t.Errorf("record for %s: found = %v, %v; want %v for %+v", host, found, err, want, r)
		}
	}
}

// An unreadable certificate must not prevent its domain from being deleted or its name from being
// verified.
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
		t.Errorf("deleted domain's certificate: found = %v, %v; want none", found, err)
	}
	if _, err := b.domains.Get(t.Context(), "a", d.ID); apierr.CodeOf(err) != apierr.DomainNotFound {
		t.Errorf("get the deleted domain: %v, want DOMAIN_NOT_FOUND", err)
	}
}

// The test is not parallel because the whole process shares the metric.
func TestWaitsTellsWhichCertificatesAreDueAndWhichEndsFirst(t *testing.T) {
	b := newWorld(t)
	waits := b.Certificates().Waits()
	t.Cleanup(waits.Lost)
	look := func(when string, n int64, end time.Time) {
		t.Helper()
		d, err := waits.Depth(t.Context())
		if err != nil || d.N != n {
			t.Errorf("%s: %d certificates are due, %v; want %d", when, d.N, err, n)
		}
		if series := testutil.CollectAndCount(earliestEnd); series == 0 != end.IsZero() {
			t.Errorf("%s: the metric has %d series, want 1 if a certificate exists and 0 otherwise", when, series)
		} else if got := testutil.ToFloat64(earliestEnd.WithLabelValues()); series > 0 && got != float64(end.Unix()) {
			t.Errorf("%s: earliest expiry = %v, want %v", when, got, end.Unix())
		}
	}
	look("no certificate", 0, time.Time{})
	ends := map[string]time.Time{}
	for host, left := range map[string]time.Duration{"a.example.com": 90 * 24 * time.Hour, "b.example.com": 40 * 24 * time.Hour} {
		d := b.claim(t, host, host)
		b.proofs.show(host, d)
		if _, err := b.domains.Verify(t.Context(), host, d.ID); err != nil {
			t.Fatal(err)
		}
		ends[host] = b.clock().Add(left)
		err := b.Certificates().ChangeCertificate(t.Context(), host, func(r *certificate.Record, _ *certificate.Owner) error {
			r.Issued(&certificate.Certificate{NotBefore: b.clock(), NotAfter: ends[host], RenewAt: ends[host].Add(-30 * 24 * time.Hour)})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	look("two certificates", 0, ends["b.example.com"])
	b.offset.Store(int64(20 * 24 * time.Hour))
	look("one renewal due", 1, ends["b.example.com"])
	b.offset.Store(int64(50 * 24 * time.Hour))
	look("one certificate expired", 1, ends["a.example.com"])
	if waits.Lost(); testutil.CollectAndCount(earliestEnd) != 0 {
		t.Error("the metric still has a value after Lost, want none")
	}
}
