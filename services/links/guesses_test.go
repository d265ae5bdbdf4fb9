package links_test

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/unlock"
	"github.com/linkreel/linkreel/services/links"
)

// tooLong is longer than any password. It counts as a wrong guess but is not hashed.
var tooLong = strings.Repeat("x", 300)

// proxied returns a replica that trusts the client address from its proxy.
func (c *world) proxied(t *testing.T) *replica {
	return c.replica(t, func(cfg *links.Config) { cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/32")} })
}

// guess submits a password from an IP address and returns the status.
func (r *replica) guess(slug, password, ip string) int {
	r.t.Helper()
	a := r.give("/"+slug, password, "X-Forwarded-For", ip)
	if wait, err := strconv.Atoi(a.header.Get("Retry-After")); a.status == 429 && (err != nil || wait < 1 || wait > 3600) {
		r.t.Errorf("Retry-After for a rejected guess = %q, want 1 to 3600", a.header.Get("Retry-After"))
	}
	return a.status
}

func TestRightPasswordsUseUpNoBudget(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.proxied(t)
	r.create(c.keys.Key(t, "acc_a", identity.Creator), map[string]any{"url": "https://example.com/", "slug": "open", "password": "right"})
	for i := range 12 {
		if got := r.guess("open", "right", "198.51.100.7"); got != 303 {
			t.Fatalf("correct password, attempt %d: status %d, want 303", i+1, got)
		}
	}
	for i, want := range []int{403, 403, 403, 303, 403, 403, 429} {
		password := tooLong
		if want == 303 {
			password = "right"
		}
		if got := r.guess("open", password, "198.51.100.7"); got != want {
			t.Errorf("attempt %d: status %d, want %d", i+1, got, want)
		}
	}
	if got := r.guess("open", "right", "198.51.100.7"); got != 429 {
		t.Errorf("correct password from a network over its budget: status %d, want 429", got)
	}
}

// A network has one budget for all links, so it cannot try one password on many links.
func TestANetworkHasOneBudgetForAllLinks(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	a, b := c.proxied(t), c.proxied(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	for i := range 6 {
		a.create(key, map[string]any{"url": "https://example.com/", "slug": fmt.Sprint("l", i), "password": "right"})
	}
	for i := range 5 {
		if got := []*replica{a, b}[i%2].guess(fmt.Sprint("l", i), tooLong, "2001:db8:5:6::"+fmt.Sprint(i)); got != 403 {
			t.Errorf("guess %d: status %d, want 403", i+1, got)
		}
	}
	if got := a.guess("l5", "right", "2001:db8:5:6:ffff::1"); got != 429 {
		t.Errorf("correct password for the sixth link from the same network: status %d, want 429", got)
	}
	if got := a.guess("l5", "right", "2001:db8:5:7::1"); got != 303 {
		t.Errorf("correct password from another network: status %d, want 303", got)
	}
}

func TestThousandsOfNetworksShareOneLinksBudget(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	a, b := c.proxied(t), c.proxied(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	for _, slug := range []string{"one", "two"} {
		a.create(key, map[string]any{"url": "https://example.com/", "slug": slug, "password": "right"})
	}
	a.create(c.keys.Key(t, "acc_b", identity.Creator), map[string]any{"url": "https://example.com/", "slug": "theirs", "password": "right"})
	guessed := 0
	attack := func(i int, ip string) {
		switch got := []*replica{a, b}[i%2].guess("one", tooLong, ip); got {
		case 403:
			guessed++
		case 429:
		default:
			t.Fatalf("wrong password from %s: status %d, want 403 or 429", ip, got)
		}
	}
	for i := range 300 {
		attack(i, fmt.Sprintf("10.1.%d.%d", i%256, i/256+1))
		attack(i, fmt.Sprintf("2001:db8:1:%x::1", i))
	}
	const fromTwoRanges = unlock.SharedGuesses + 60 + 1 // from the reserve, a /16 gets 60 guesses and a /48 gets one
	if !about(guessed, fromTwoRanges) {
		t.Errorf("a /16 and a /48 got %d guesses, want about %d", guessed, fromTwoRanges)
	}
	if got := a.guess("one", "right", "10.1.7.9"); got != 429 {
		t.Errorf("correct password from the attacker's range: status %d, want 429", got)
	}
	for i := range 20 {
		if got := b.guess("one", "right", fmt.Sprintf("192.0.%d.7", i)); got != 303 {
			t.Errorf("correct password from a network that has not guessed: status %d, want 303", got)
		}
	}
	// A visitor's first wrong guess is charged to the reserve. The next attempt must wait because
	// the shared budget is used up.
	if wrong, right := a.guess("one", "mistyped", "192.0.99.7"), a.guess("one", "right", "192.0.99.7"); wrong != 403 || right != 429 {
		t.Errorf("wrong, then correct password after the shared budget is used up: status %d, %d; want 403, 429", wrong, right)
	}
	for _, slug := range []string{"two", "theirs"} {
		if got := a.guess(slug, "right", "10.1.7.9"); got != 303 {
			t.Errorf("correct password for link %s from the attacker's range: status %d, want 303", slug, got)
		}
	}
	for i := range 12 * 60 {
		attack(i, fmt.Sprintf("10.%d.%d.1", 2+i/60, i%60))
	}
	if most := unlock.SharedGuesses + unlock.FirstGuesses; !about(guessed+1, most) { // plus the visitor's wrong guess
		t.Errorf("the networks got %d guesses in total, want about %d", guessed+1, most)
	}
}

// about allows for slow Redis responses on a busy machine, which make each replica decide on some
// guesses using its own counts and half the limit.
func about(got, want int) bool { return got >= want*9/10 && got <= want*3/2 }

// One account's links are flooded with passwords that must be hashed. Visitors to another account's
// link may have to wait but must not be rejected.
func TestAFloodOfGuessesAtOneAccountDelaysNoOther(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	a, b := c.proxied(t), c.proxied(t)
	flooded, calm := c.keys.Key(t, "acc_a", identity.Creator), c.keys.Key(t, "acc_b", identity.Creator)
	const attacked = 16
	for i := range attacked {
		a.create(flooded, map[string]any{"url": "https://example.com/", "slug": fmt.Sprint("l", i), "password": "right"})
	}
	a.create(calm, map[string]any{"url": "https://example.com/", "slug": "calm", "password": "right"})
	stop := make(chan struct{})
	var flood sync.WaitGroup
	var guesses, refused atomic.Int64
	for i := range 48 {
		flood.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				switch got := []*replica{a, b}[i%2].guess(fmt.Sprint("l", n%attacked), "wrong", fmt.Sprintf("10.%d.%d.1", i, n%256)); got {
				case 403:
					guesses.Add(1)
				case 429:
					refused.Add(1)
				default:
					t.Errorf("guess in the flood: status %d, want 403 or 429", got)
				}
			}
		})
	}
	eventually(t, "the flood has started", func() bool { return guesses.Load() > 4 && refused.Load() > 0 })
	for i := range 24 {
		r, ip := []*replica{a, b}[i%2], fmt.Sprintf("172.16.%d.1", i)
		if got := r.guess("calm", "right", ip); got != 303 {
			t.Errorf("correct password for another account's link during the flood: status %d, want 303", got)
		}
		if i%8 == 0 {
			if got := r.guess("calm", "wrong", fmt.Sprintf("172.17.%d.1", i)); got != 403 {
				t.Errorf("wrong password for another account's link during the flood: status %d, want 403", got)
			}
		}
	}
	close(stop)
	flood.Wait()
	t.Logf("flood: %d guesses checked, %d rejected", guesses.Load(), refused.Load())
}
