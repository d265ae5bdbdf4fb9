package ratelimit_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/ratelimit"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func misses(o ratelimit.MissOptions) (*ratelimit.Misses, *time.Time) {
	now := noon
	o.Now = func() time.Time { return now }
	return ratelimit.NewMisses(o), &now
}

// scan makes n lookups that find nothing, and returns how many of them were allowed.
func scan(m *ratelimit.Misses, addr netip.Addr, n int) (asked int) {
	for range n {
		if m.Wait(addr) == 0 {
			asked++
			m.Miss(addr)
		}
	}
	return asked
}

func TestANetworkThatHasSpentItsMissesAsksOnceASecond(t *testing.T) {
	t.Parallel()
	m, now := misses(ratelimit.MissOptions{Burst: 10})
	addr := netip.MustParseAddr("192.0.2.1")
	if n := scan(m, addr, 100); n != 10 {
		t.Errorf("%d misses allowed in a burst, want 10", n)
	}
	for i := range 30 {
		*now = now.Add(time.Second)
		if n := scan(m, addr, 100); n != 1 {
			t.Fatalf("second %d: %d lookups allowed, want 1", i, n)
		}
	}
	if wait := m.Wait(addr); wait <= 0 || wait > time.Second {
		t.Errorf("Wait = %s, want at most a second", wait)
	}
	*now = now.Add(time.Hour)
	if n := scan(m, addr, 100); n != 10 {
		t.Errorf("%d misses allowed after an hour, want 10", n)
	}
}

func TestHitsSpendNothing(t *testing.T) {
	t.Parallel()
	m, _ := misses(ratelimit.MissOptions{Burst: 10})
	for i := range 10_000 {
		if wait := m.Wait(netip.MustParseAddr("192.0.2.1")); wait != 0 {
			t.Fatalf("Wait = %[2]s for lookup %[1]d, want 0 because all earlier lookups found something", i, wait)
		}
	}
}

func TestQuestionsInFlightArePaidAfterwards(t *testing.T) {
	t.Parallel()
	m, now := misses(ratelimit.MissOptions{Burst: 10})
	addr := netip.MustParseAddr("192.0.2.1")
	for range 1000 {
		if m.Wait(addr) != 0 {
			t.Fatal("a lookup was refused before any miss was counted, want it allowed")
		}
	}
	for range 1000 {
		m.Miss(addr)
	}
	*now = now.Add(9 * time.Second)
	if n := scan(m, addr, 100); n != 1 {
		t.Errorf("%d lookups allowed, want 1 because the network is still in debt", n)
	}
	*now = now.Add(21 * time.Second)
	if n := scan(m, addr, 100); n < 8 {
		t.Errorf("%d lookups allowed after 30 s, want at least 8 because the debt is bounded", n)
	}
}

func TestNetworks(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		a, b string
		same bool
	}{
		"adjacent IPv4 addresses":             {"192.0.2.1", "192.0.2.2", false},
		"same IPv6 /64":                       {"2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true},
		"different IPv6 /64s":                 {"2001:db8:1:2::1", "2001:db8:1:3::1", false},
		"IPv4 and its IPv4-mapped form":       {"192.0.2.1", "::ffff:192.0.2.1", true},
		"link-local address in two zones":     {"fe80::1%eth0", "fe80::1%eth1", true},
		"IPv4-mapped form of another address": {"192.0.2.1", "2001:db8::192.0.2.1", false},
	} {
		if same := ratelimit.Network(netip.MustParseAddr(tt.a)) == ratelimit.Network(netip.MustParseAddr(tt.b)); same != tt.same {
			t.Errorf("%s: same network = %v, want %v", name, same, tt.same)
		}
	}
	m, _ := misses(ratelimit.MissOptions{Burst: 3})
	scan(m, netip.Addr{}, 10)
	if m.Wait(netip.Addr{}) == 0 || m.Wait(netip.MustParseAddr("192.0.2.1")) != 0 {
		t.Error("peers without an address do not share a separate budget, want one budget for all of them")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	m, _ := misses(ratelimit.MissOptions{Burst: 2, Networks: 100})
	for i := range 100_000 {
		addr := netip.MustParseAddr(fmt.Sprintf("2001:db8:%x:%x::1", i>>16, i&0xffff))
		if m.Wait(addr) != 0 {
			t.Fatal("a lookup from a network without misses was refused, want it allowed")
		}
		m.Miss(addr)
		if n := m.Len(); n > 100 {
			t.Fatalf("%d networks in memory, want at most 100", n)
		}
	}
}
