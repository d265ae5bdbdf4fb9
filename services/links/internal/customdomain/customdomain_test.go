package customdomain

import (
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

var own = []string{"lrl.example"}

func TestCheckHostname(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"go.example.com": "go.example.com", "GO.Example.COM": "go.example.com", "xn--mnchen-3ya.example": "xn--mnchen-3ya.example", "a.b": "a.b",
		"": "", "localhost": "", "example.com.": "", "*.example.com": "", "example.com:80": "", "192.0.2.1": "", "[::1]": "", "2001:db8::1": "", "a..b": "", "-a.example": "", "a-.example": "",
		"a_b.example": "", "münchen.example": "", "lrl.example": "", "http://a.example": "", "a.example/": "", "1.2.3.0x7f": "", strings.Repeat("a", 64) + ".example": "", strings.Repeat("a.", 127) + "example": "",
	} {
		got, problem := CheckHostname(in, own)
		if got != want || (problem == nil) != (want != "") {
			t.Errorf("CheckHostname(%q) = %q, %+v, want %q", in, got, problem, want)
		}
	}
}

func FuzzCheckHostname(f *testing.F) {
	for _, s := range []string{"go.example.com", "A.b", "1.2.3.4", "a..b", "xn--a.b", "*.a.b", "a.b:80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, problem := CheckHostname(text, own)
		if problem != nil {
			return
		}
		if again, problem := CheckHostname(name, own); problem != nil || again != name {
			t.Fatalf("CheckHostname(%q) = %q, and CheckHostname for the result = %q, %v; want no change", text, name, again, problem)
		}
		if _, ok := dns.IsDomainName(name); !ok {
			t.Fatalf("CheckHostname(%q) = %q, want a valid DNS name", text, name)
		}
	})
}

func TestCheckedForgivesAMissingProofForAWeek(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return time.Unix(1_790_000_000, 0).Add(time.Duration(n) * 24 * time.Hour) }
	var d Domain
	d.Checked(Missing, "gone", day(0))
	if d.Verified(day(0)) || !d.FailingSince.IsZero() {
		t.Fatalf("claim without proof: %+v, want it unverified and not failing", d)
	}
	d.Checked(Proven, "", day(1))
	if !d.Verified(day(1)) || !d.VerifiedAt.Equal(day(1)) {
		t.Fatalf("claim with proof: %+v, want it verified since day 1", d)
	}
	d.Checked(Missing, "gone", day(2))
	d.Checked(Missing, "gone", day(5))
	if !d.Verified(day(8)) || d.Lapsed(day(8)) {
		t.Errorf("claim after six days without proof: %+v, want it still verified", d)
	}
	if d.Verified(day(9)) || !d.Lapsed(day(9)) {
		t.Errorf("claim after seven days without proof: %+v, want it lapsed", d)
	}
	d.Checked(Proven, "", day(10))
	if !d.Verified(day(10)) || !d.VerifiedAt.Equal(day(1)) {
		t.Errorf("claim with the proof restored: %+v, want it verified since day 1", d)
	}
}

func TestCheckedAlwaysMovesTheNextCheckOfAVerifiedDomain(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_790_000_000, 0)
	for _, o := range []Outcome{Proven, Missing, Unknown, Lost} {
		d := &Domain{VerifiedAt: now.Add(-time.Hour), NextCheckAt: now.Add(-time.Minute)}
		last := time.Duration(0)
		for range 40 {
			d.Checked(o, "why", now)
			wait := d.NextCheckAt.Sub(now)
			if wait < last || wait <= 0 || wait > Recheck {
				t.Fatalf("outcome %d: next check after %v, want %v to %v", o, wait, last, Recheck)
			}
			last = wait
		}
		if last != Recheck {
			t.Errorf("outcome %d: final interval between checks = %v, want %v", o, last, Recheck)
		}
	}
	d := &Domain{}
	if d.Checked(Missing, "why", now); !d.NextCheckAt.IsZero() {
		t.Errorf("next check for a pending domain = %v, want none", d.NextCheckAt)
	}
}

func TestProves(t *testing.T) {
	t.Parallel()
	const name = "_linkreel.go.example.com."
	txt := func(texts ...string) dns.RR {
		return &dns.TXT{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: texts}
	}
	long := strings.Repeat("x", 200)
	for title, c := range map[string]struct {
		answer    []dns.RR
		rcode     int
		want      bool
		undecided bool
	}{
		"exact token":                  {answer: []dns.RR{txt("linkreel-verify=abc")}, want: true},
		"token split into two strings": {answer: []dns.RR{txt("linkreel-", "verify=abc")}, want: true},
		"token among other records":    {answer: []dns.RR{txt("v=spf1 -all"), txt("linkreel-verify=old"), txt("linkreel-verify=abc")}, want: true},
		"token after a CNAME":          {answer: []dns.RR{&dns.CNAME{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET}, Target: "x.example."}, txt("linkreel-verify=abc")}, want: true},
		"another account's token":      {answer: []dns.RR{txt("linkreel-verify=abcd")}},
		"token inside a longer string": {answer: []dns.RR{txt("x linkreel-verify=abc")}},
		"empty answer":                 {},
		"name does not exist":          {rcode: dns.RcodeNameError},
		"failing resolver":             {rcode: dns.RcodeServerFailure, undecided: true},
		"answer too long for UDP":      {answer: []dns.RR{txt(long), txt(long), txt(long), txt(long), txt(long), txt(long), txt(long), txt(long), txt("linkreel-verify=abc")}, want: true},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			addr := serveDNS(t, func(q *dns.Msg) *dns.Msg {
				r := new(dns.Msg)
				r.SetRcode(q, c.rcode)
				if q.Question[0].Name == name {
					r.Answer = c.answer
				}
				return r
			})
			d, err := NewDNS(addr)
			if err != nil {
				t.Fatal(err)
			}
			claim := &Domain{Hostname: "go.example.com", Token: "abc"}
			record, _ := claim.Record()
			texts, err := d.Texts(t.Context(), record)
			got, reason := claim.Inspect(texts, err)
			if (got == Proven) != c.want || (got == Unknown) != c.undecided || (reason == "") != c.want {
				t.Errorf("outcome %v, reason %q; want proven = %v, undecided = %v", got, reason, c.want, c.undecided)
			}
		})
	}
}

// serveDNS starts a name server for UDP and TCP on one loopback port.
func serveDNS(t *testing.T, answer func(q *dns.Msg) *dns.Msg) (addr string) {
	t.Helper()
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		r := answer(q)
		if w.LocalAddr().Network() == "udp" {
			r.Truncate(1232)
		}
		_ = w.WriteMsg(r)
	})
	tcp, udp := listenBoth(t)
	for _, s := range []*dns.Server{{Listener: tcp, Handler: handler}, {PacketConn: udp, Handler: handler}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { _ = s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return tcp.Addr().String()
}
