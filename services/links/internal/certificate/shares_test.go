package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/seal"
)

// registry is an in-memory store of certificates. A host's account is the part of its name after
// the first dot.
type registry struct {
	Store
	mu      sync.Mutex
	records map[string]Record
	read    int
}

func (s *registry) Certificate(_ context.Context, host string) (*Record, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read++
	r, ok := s.records[host]
	return &r, ok, nil
}

func (s *registry) ChangeCertificate(_ context.Context, host string, fn func(*Record, *Owner) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[host]
	r.Host = host
	_, account, _ := strings.Cut(host, ".")
	err := fn(&r, &Owner{Account: account})
	if err == nil {
		s.records[host] = r
	}
	return err
}

// desk is an authority that never completes orders for hosts with "hanging" in their names.
type desk struct {
	t    testing.TB
	mu   sync.Mutex
	now  map[string]int // running orders by account
	most map[string]int
}

func (d *desk) Issue(ctx context.Context, csr *x509.CertificateRequest, _ Present) ([]byte, error) {
	_, account, _ := strings.Cut(csr.DNSNames[0], ".")
	d.mu.Lock()
	d.now[account]++
	d.most[account] = max(d.most[account], d.now[account])
	d.mu.Unlock()
	defer func() { d.mu.Lock(); d.now[account]--; d.mu.Unlock() }()
	if strings.HasPrefix(account, "hanging") {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: csr.DNSNames, NotBefore: time.Now(), NotAfter: time.Now().Add(90 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, csr.PublicKey, key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

func newDesk(t testing.TB) (*Service, *desk) {
	t.Helper()
	keys, err := seal.New(SealPurpose, "a key of thirty-two characters or more")
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, now: map[string]int{}, most: map[string]int{}}
	return NewService(Options{
		Store: &registry{records: map[string]Record{}}, Issuer: d, Seal: keys, Limiter: ratelimit.New(nil, time.Now), PerHour: 10_000,
		Misses: ratelimit.NewMisses(ratelimit.MissOptions{Now: time.Now}), Own: func(string) bool { return false },
		Owner: func(func(bool) (context.Context, error), string) (bool, error) { return true, nil },
	}), d
}

// The authority never answers for one account's names, and each name has many visitors.
func TestOneAccountsHangingOrdersLeaveOthersTheirPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, d := newDesk(t)
		var visits sync.WaitGroup
		visit := func(host string) error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := s.serve(ctx, host)
			return err
		}
		for host := range 100 {
			for range 30 {
				visits.Go(func() {
					if visit(fmt.Sprintf("h%d.hanging.example.com", host)) == nil {
						t.Error("the handshake succeeded, want an error because the order never completes")
					}
				})
			}
		}
		time.Sleep(time.Second)
		s.mu.Lock()
		waiting := s.waiting
		s.mu.Unlock()
		if most := (ordersOfAccount + queuedOfAccount) * waitingForHost; waiting > most {
			t.Errorf("%d handshakes for one account are waiting, want at most %d", waiting, most)
		}
		if err := visit("www.other.example.com"); err != nil {
			t.Errorf("handshake for another account: %v", err)
		}
		visits.Wait()
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := d.most["hanging.example.com"]; n != ordersOfAccount {
			t.Errorf("got %d concurrent orders from one account, want %d", n, ordersOfAccount)
		}
	})
}

// Renewals must succeed even if visitors occupy all slots for waiting handshakes.
func TestVisitorsTakeNoPlaceOfRenewals(t *testing.T) {
	t.Parallel()
	s, _ := newDesk(t)
	s.waiting = mostWaiting
	if _, err := s.serve(t.Context(), "a.example.com"); !errors.Is(err, ErrLimited) {
		t.Errorf("serve = %v, want %v", err, ErrLimited)
	}
	if err := s.renew(t.Context(), "a.example.com"); err != nil {
		t.Errorf("renew: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Unknown clients request challenges for a known name. The service looks up challenges only within
// the budget for such clients, and still answers the authority's request.
func TestStrangersLookUpFewChallenges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := newDesk(t)
		kept := s.opt.Store.(*registry)
		kept.records["waiting.example.com"] = Record{Challenge: &Challenge{Token: "x", Answer: "x.y"}}
		ask := func(host, from string) bool {
			answer, ok := s.Answer(t.Context(), host, "x", netip.MustParseAddr(from))
			return ok && answer == "x.y"
		}
		const networks, each = 100, 50
		for range each {
			for n := range networks {
				if ask("known.example.com", fmt.Sprintf("10.0.0.%d", n)) {
					t.Fatal("got a response for a challenge that does not exist, want none")
				}
			}
		}
		if most := networks + strangersBurst; kept.read > most {
			t.Errorf("looked up %d of %d requests, want at most %d", kept.read, networks*each, most)
		}
		for range 10 { // the authority sends its request from several networks
			if !ask("waiting.example.com", "192.0.2.1") {
				t.Fatal("the authority's request got no response, want one")
			}
		}
	})
}
