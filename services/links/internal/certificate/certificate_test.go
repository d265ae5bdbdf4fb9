package certificate

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mholt/acmez/v3/acme"

	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
)

var start = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func TestOneReplicaOrdersAtATime(t *testing.T) {
	t.Parallel()
	r := &Record{Host: "go.example.com"}
	if claimed, err := r.Claim("a", start); !claimed || err != nil {
		t.Fatalf("the first claim: %v, %v", claimed, err)
	}
	first := r.Token
	if claimed, err := r.Claim("b", start.Add(Lease-1)); claimed || !errors.Is(err, ErrBusy) {
		t.Errorf("a claim during the lease: %v, %v", claimed, err)
	}
	r.Extend(start.Add(Lease - 1))
	if _, err := r.Claim("b", start.Add(Lease+1)); !errors.Is(err, ErrBusy) {
		t.Errorf("a claim during the extended lease: %v", err)
	}
	if !r.DueAt.Equal(r.Until) {
		t.Errorf("an order without a result is due at %v, want the lease's end %v", r.DueAt, r.Until)
	}
	if claimed, err := r.Claim("b", start.Add(3*Lease)); !claimed || err != nil {
		t.Fatalf("a claim after the lease: %v, %v", claimed, err)
	}
	if r.Held(first) || !r.Held(r.Token) {
		t.Error("the former holder still has the lease")
	}
}

func TestACertificateThatIsNotDueIsNotOrdered(t *testing.T) {
	t.Parallel()
	r := &Record{Host: "go.example.com"}
	r.Issued(&Certificate{NotBefore: start, NotAfter: start.Add(90 * 24 * time.Hour), RenewAt: start.Add(60 * 24 * time.Hour)})
	if claimed, err := r.Claim("a", start.Add(59*24*time.Hour)); claimed || err != nil {
		t.Errorf("before it is due: %v, %v", claimed, err)
	}
	if claimed, err := r.Claim("a", start.Add(61*24*time.Hour)); !claimed || err != nil {
		t.Errorf("when it is due: %v, %v", claimed, err)
	}
}

func TestFailuresArePausedByTheirKind(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err         error
		first, most time.Duration
		words       string
	}{
		"the name leads elsewhere":  {acme.Problem{Type: "urn:ietf:params:acme:error:unauthorized", Status: 403, Detail: "404 there"}, retryRefused, mostRefused, "404 there"},
		"the authority is away":     {errors.New("dial tcp: connection refused"), retryAway, mostAway, "cannot be reached"},
		"the authority is broken":   {acme.Problem{Status: 500, Detail: "oops"}, retryAway, mostAway, "an error on its side"},
		"the authority has a limit": {acme.Problem{Type: acme.ProblemTypeRateLimited, Status: 429, Detail: "50 a week"}, retryLimited, mostRefused, "50 a week"},
		"what it says is long":      {acme.Problem{Status: 403, Detail: strings.Repeat("ü", 5000)}, retryRefused, mostRefused, "…"},
	} {
		f := failureOf("go.example.com", tt.err)
		if !strings.Contains(f.Words, tt.words) || len([]rune(f.Words)) > 600 {
			t.Errorf("%s: %q", name, f.Words)
		}
		r := &Record{Host: "go.example.com"}
		r.Failed(f, start)
		if got := r.NextAt.Sub(start); got != tt.first {
			t.Errorf("%s: the first pause is %v, want %v", name, got, tt.first)
		}
		var refusal *RefusedError
		if _, err := r.Claim("a", start.Add(tt.first-1)); !errors.As(err, &refusal) || refusal.Reason != f.Words {
			t.Errorf("%s: a claim in the pause: %v", name, err)
		}
		if !r.DueAt.IsZero() {
			t.Errorf("%s: a name that never had a certificate is retried without a visit", name)
		}
		for range 40 {
			r.Failed(f, start)
		}
		if got := r.NextAt.Sub(start); got != tt.most {
			t.Errorf("%s: the longest pause is %v, want %v", name, got, tt.most)
		}
	}
}

func TestAFailedRenewalIsRetriedWhileTheCertificateLasts(t *testing.T) {
	t.Parallel()
	r := &Record{Host: "go.example.com", Certificate: &Certificate{NotAfter: start.Add(time.Hour)}}
	f := Failure{Words: "no"}
	r.Failed(f, start)
	if !r.DueAt.Equal(start.Add(retryRefused)) {
		t.Errorf("due at %v", r.DueAt)
	}
	if c := Shown(r, start); c.Status != customdomain.CertificateIssued || c.Error != "no" {
		t.Errorf("shown as %+v", c)
	}
	r.Failed(f, start.Add(50*time.Minute))
	if !r.DueAt.IsZero() {
		t.Errorf("a certificate that ends before the next attempt is due at %v", r.DueAt)
	}
	if c := Shown(r, start.Add(2*time.Hour)); c.Status != customdomain.CertificateFailed {
		t.Errorf("past its end it is shown as %+v", c)
	}
}

func TestRenewalsAreBeforeTheLastThirdAndSpread(t *testing.T) {
	t.Parallel()
	end := start.Add(90 * 24 * time.Hour)
	seen := map[time.Time]bool{}
	for _, host := range []string{"a.example.com", "b.example.com", "c.example.com", "d.example.com"} {
		at := RenewAt(host, start, end)
		if left := end.Sub(at); left < 30*24*time.Hour || left > 33*24*time.Hour {
			t.Errorf("%s is renewed %v before its end", host, left)
		}
		seen[at] = true
	}
	if len(seen) < 3 {
		t.Errorf("four hosts are renewed at %d times", len(seen))
	}
}

// This tests what is left of a record when its domain is deleted or another account takes over.
func TestHandOver(t *testing.T) {
	t.Parallel()
	cert := &Certificate{NotAfter: start.Add(time.Hour)}
	far, near := start.Add(mostRefused), start.Add(retryRefused)
	for name, tt := range map[string]struct {
		before Record
		to     string
		want   Record
		left   bool
	}{
		"a certificate goes":                         {before: Record{Account: "a", Certificate: cert, DueAt: far}, want: Record{Account: "a"}},
		"a pause stays, and the sweep removes it":    {before: Record{Account: "a", Failures: 9, Failure: "no", NextAt: far}, want: Record{Account: "a", Failures: 9, Failure: "no", NextAt: far, DueAt: far}, left: true},
		"a pause that is over goes":                  {before: Record{Account: "a", Failures: 9, NextAt: start}, want: Record{Account: "a", Failures: 9, NextAt: start, DueAt: start}},
		"the same account finds its pause":           {before: Record{Account: "a", Failures: 9, NextAt: far, DueAt: far}, to: "a", want: Record{Account: "a", Failures: 9, NextAt: far}, left: true},
		"another waits as after a first failure":     {before: Record{Account: "a", Failures: 9, Failure: "no", NextAt: far, DueAt: far}, to: "b", want: Record{Account: "b", Failure: inherited, NextAt: near}, left: true},
		"a shorter pause gets no longer":             {before: Record{Account: "a", NextAt: start.Add(time.Minute)}, to: "b", want: Record{Account: "b", NextAt: start.Add(time.Minute)}, left: true},
		"an order in flight stays":                   {before: Record{Account: "a", Certificate: cert, Holder: "r", Token: 3, Until: near, DueAt: near}, want: Record{Account: "a", Holder: "r", Token: 3, Until: near, DueAt: near}, left: true},
		"an order whose replica is gone is given up": {before: Record{Account: "a", Holder: "r", Token: 3, Until: start, NextAt: near}, want: Record{Account: "a", Token: 3, NextAt: near, DueAt: near}, left: true},
	} {
		r := tt.before
		if left := r.HandOver(tt.to, start); left != tt.left {
			t.Errorf("%s: left = %v, want %v", name, left, tt.left)
		}
		if d := cmp.Diff(tt.want, r); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// No single account can use up the hour's orders. Neither can renewals alone or new certificates
// alone.
func TestSpend(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ perHour, account, kind, rest int }{
		{perHour: 100, account: 20, kind: 80, rest: 20},
		{perHour: 10, account: 2, kind: 8, rest: 2},
		{perHour: 1, account: 1, kind: 1, rest: 0},
	} {
		for _, renewal := range []bool{false, true} {
			s := &Service{opt: Options{PerHour: tt.perHour, Limiter: ratelimit.New(nil, func() time.Time { return start })}}
			spend := func(account string, renewal bool) (n int, err error) {
				for ; ; n++ {
					_, wait, err := s.spend(t.Context(), claimed{account: account, renewal: renewal})
					if err != nil {
						if wait != time.Hour {
							t.Errorf("%s waits %v, want an hour", account, wait)
						}
						return n, err
					}
				}
			}
			all, err := spend("a", renewal)
			if all != tt.account || !errors.Is(err, ErrShare) {
				t.Errorf("%d an hour, renewal %v: one account orders %d and then gets %v, want %d", tt.perHour, renewal, all, err, tt.account)
			}
			for _, account := range []string{"b", "c", "d", "e"} {
				n, err := spend(account, renewal)
				if all += n; account == "e" && !errors.Is(err, ErrLimited) {
					t.Errorf("%d an hour, renewal %v: the last account gets %v", tt.perHour, renewal, err)
				}
			}
			if all != tt.kind {
				t.Errorf("%d an hour, renewal %v: five accounts order %d, want %d", tt.perHour, renewal, all, tt.kind)
			}
			if n, _ := spend("a", !renewal); n != tt.rest {
				t.Errorf("%d an hour, renewal %v: %d of the other kind are left, want %d", tt.perHour, renewal, n, tt.rest)
			}
		}
	}
}

func TestATryIsRefundedEverywhere(t *testing.T) {
	t.Parallel()
	s := &Service{opt: Options{PerHour: 1, Limiter: ratelimit.New(nil, func() time.Time { return start })}}
	for i := range 3 {
		refund, _, err := s.spend(t.Context(), claimed{account: "a"})
		if err != nil {
			t.Fatalf("try %d: %v", i, err)
		}
		refund()
	}
}
