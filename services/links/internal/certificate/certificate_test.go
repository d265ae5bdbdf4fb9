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
		t.Fatalf("first claim: claimed = %v, %v; want true", claimed, err)
	}
	first := r.Token
	if claimed, err := r.Claim("b", start.Add(Lease-1)); claimed || !errors.Is(err, ErrBusy) {
		t.Errorf("claim during the lease: claimed = %v, %v; want ErrBusy", claimed, err)
	}
	r.Extend(start.Add(Lease - 1))
	if _, err := r.Claim("b", start.Add(Lease+1)); !errors.Is(err, ErrBusy) {
		t.Errorf("claim during the extended lease: %v, want ErrBusy", err)
	}
	if !r.DueAt.Equal(r.Until) {
		t.Errorf("due time for an order without a result = %v, want the end of the lease %v", r.DueAt, r.Until)
	}
	if claimed, err := r.Claim("b", start.Add(3*Lease)); !claimed || err != nil {
		t.Fatalf("claim after the lease: claimed = %v, %v; want true", claimed, err)
	}
	if r.Held(first) || !r.Held(r.Token) {
		t.Errorf("Held(first token), Held(new token) = %v, %v; want false, true", r.Held(first), r.Held(r.Token))
	}
}

func TestACertificateThatIsNotDueIsNotOrdered(t *testing.T) {
	t.Parallel()
	r := &Record{Host: "go.example.com"}
	r.Issued(&Certificate{NotBefore: start, NotAfter: start.Add(90 * 24 * time.Hour), RenewAt: start.Add(60 * 24 * time.Hour)})
	if claimed, err := r.Claim("a", start.Add(59*24*time.Hour)); claimed || err != nil {
		t.Errorf("claim before the due time: claimed = %v, %v; want false", claimed, err)
	}
	if claimed, err := r.Claim("a", start.Add(61*24*time.Hour)); !claimed || err != nil {
		t.Errorf("claim after the due time: claimed = %v, %v; want true", claimed, err)
	}
}

func TestFailuresArePausedByTheirKind(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err         error
		first, most time.Duration
		words       string
	}{
		"name points elsewhere":  {acme.Problem{Type: "urn:ietf:params:acme:error:unauthorized", Status: 403, Detail: "404 there"}, retryRefused, mostRefused, "404 there"},
		"authority unreachable":  {errors.New("dial tcp: connection refused"), retryAway, mostAway, "cannot be reached"},
		"error at the authority": {acme.Problem{Status: 500, Detail: "oops"}, retryAway, mostAway, "an error on its side"},
		"authority's rate limit": {acme.Problem{Type: acme.ProblemTypeRateLimited, Status: 429, Detail: "50 a week"}, retryLimited, mostRefused, "50 a week"},
		"long error message":     {acme.Problem{Status: 403, Detail: strings.Repeat("ü", 5000)}, retryRefused, mostRefused, "…"},
	} {
		f := failureOf("go.example.com", tt.err)
		if !strings.Contains(f.Words, tt.words) || len([]rune(f.Words)) > 600 {
			t.Errorf("%s: failure = %q, want at most 600 characters with %q", name, f.Words, tt.words)
		}
		r := &Record{Host: "go.example.com"}
		r.Failed(f, start)
		if got := r.NextAt.Sub(start); got != tt.first {
			t.Errorf("%s: first pause = %v, want %v", name, got, tt.first)
		}
		var refusal *RefusedError
		if _, err := r.Claim("a", start.Add(tt.first-1)); !errors.As(err, &refusal) || refusal.Reason != f.Words {
			t.Errorf("%s: claim during the pause: %v, want the refusal %q", name, err, f.Words)
		}
		if !r.DueAt.IsZero() {
			t.Errorf("%s: due time for a name without a certificate = %v, want none", name, r.DueAt)
		}
		for range 40 {
			r.Failed(f, start)
		}
		if got := r.NextAt.Sub(start); got != tt.most {
			t.Errorf("%s: longest pause = %v, want %v", name, got, tt.most)
		}
	}
}

func TestAFailedRenewalIsRetriedWhileTheCertificateLasts(t *testing.T) {
	t.Parallel()
	r := &Record{Host: "go.example.com", Certificate: &Certificate{NotAfter: start.Add(time.Hour)}}
	f := Failure{Words: "no"}
	r.Failed(f, start)
	if !r.DueAt.Equal(start.Add(retryRefused)) {
		t.Errorf("due time = %v, want %v", r.DueAt, start.Add(retryRefused))
	}
	if c := Shown(r, start); c.Status != customdomain.CertificateIssued || c.Error != "no" {
		t.Errorf("Shown = %+v, want issued with the error \"no\"", c)
	}
	r.Failed(f, start.Add(50*time.Minute))
	if !r.DueAt.IsZero() {
		t.Errorf("due time for a certificate that expires before the next attempt = %v, want none", r.DueAt)
	}
	if c := Shown(r, start.Add(2*time.Hour)); c.Status != customdomain.CertificateFailed {
		t.Errorf("Shown after expiry = %+v, want failed", c)
	}
}

func TestRenewalsAreBeforeTheLastThirdAndSpread(t *testing.T) {
	t.Parallel()
	end := start.Add(90 * 24 * time.Hour)
	seen := map[time.Time]bool{}
	for _, host := range []string{"a.example.com", "b.example.com", "c.example.com", "d.example.com"} {
		at := RenewAt(host, start, end)
		if left := end.Sub(at); left < 30*24*time.Hour || left > 33*24*time.Hour {
			t.Errorf("%s is renewed %v before its expiry, want 30 to 33 days", host, left)
		}
		seen[at] = true
	}
	if len(seen) < 3 {
		t.Errorf("four hosts have %d renewal times, want at least 3", len(seen))
	}
}

// HandOver decides which parts of a record are kept when its domain is deleted or another account
// takes over.
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
		"certificate is removed":          {before: Record{Account: "a", Certificate: cert, DueAt: far}, want: Record{Account: "a"}},
		"pause is kept for the sweep":     {before: Record{Account: "a", Failures: 9, Failure: "no", NextAt: far}, want: Record{Account: "a", Failures: 9, Failure: "no", NextAt: far, DueAt: far}, left: true},
		"expired pause is removed":        {before: Record{Account: "a", Failures: 9, NextAt: start}, want: Record{Account: "a", Failures: 9, NextAt: start, DueAt: start}},
		"same account's pause":            {before: Record{Account: "a", Failures: 9, NextAt: far, DueAt: far}, to: "a", want: Record{Account: "a", Failures: 9, NextAt: far}, left: true},
		"another account's pause":         {before: Record{Account: "a", Failures: 9, Failure: "no", NextAt: far, DueAt: far}, to: "b", want: Record{Account: "b", Failure: inherited, NextAt: near}, left: true},
		"another account's shorter pause": {before: Record{Account: "a", NextAt: start.Add(time.Minute)}, to: "b", want: Record{Account: "b", NextAt: start.Add(time.Minute)}, left: true},
		"order in flight":                 {before: Record{Account: "a", Certificate: cert, Holder: "r", Token: 3, Until: near, DueAt: near}, want: Record{Account: "a", Holder: "r", Token: 3, Until: near, DueAt: near}, left: true},
		"order with an expired lease":     {before: Record{Account: "a", Holder: "r", Token: 3, Until: start, NextAt: near}, want: Record{Account: "a", Token: 3, NextAt: near, DueAt: near}, left: true},
	} {
		r := tt.before
		if left := r.HandOver(tt.to, start); left != tt.left {
			t.Errorf("%s: HandOver = %v, want %v", name, left, tt.left)
		}
		if d := cmp.Diff(tt.want, r); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// Neither a single account, nor all renewals together, nor all first certificates together can use
// up the hour's orders.
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
							t.Errorf("wait for account %s = %v, want an hour", account, wait)
						}
						return n, err
					}
				}
			}
			all, err := spend("a", renewal)
			if all != tt.account || !errors.Is(err, ErrShare) {
				t.Errorf("%d per hour, renewal %v: one account got %d orders, then %v; want %d, then ErrShare", tt.perHour, renewal, all, err, tt.account)
			}
			for _, account := range []string{"b", "c", "d", "e"} {
				n, err := spend(account, renewal)
				if all += n; account == "e" && !errors.Is(err, ErrLimited) {
					t.Errorf("%d per hour, renewal %v: error for the last account = %v, want ErrLimited", tt.perHour, renewal, err)
				}
			}
			if all != tt.kind {
				t.Errorf("%d per hour, renewal %v: five accounts got %d orders, want %d", tt.perHour, renewal, all, tt.kind)
			}
			if n, _ := spend("a", !renewal); n != tt.rest {
				t.Errorf("%d per hour, renewal %v: %d orders of the other kind left, want %d", tt.perHour, renewal, n, tt.rest)
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
			t.Fatalf("spend %d after a refund: %v", i, err)
		}
		refund()
	}
}
