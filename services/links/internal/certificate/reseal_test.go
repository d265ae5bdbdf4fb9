package certificate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/linkreel/linkreel/libs/seal"
)

// shelf is an in-memory store of sealed records and of the account's key.
type shelf struct {
	Store
	records map[string][]byte
	account []byte
	broken  map[string]error
	tried   int
}

func sealedIn(m map[string][]byte, keyIDs []string, after string, limit int) (ids []string) {
	for id, sealed := range m {
		if id > after && slices.Contains(keyIDs, seal.IDOf(sealed)) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids[:min(len(ids), limit)]
}

func (s *shelf) SealedBy(_ context.Context, keyIDs []string, after string, limit int) ([]string, error) {
	return sealedIn(s.records, keyIDs, after, limit), nil
}

func (s *shelf) ChangeCertificate(_ context.Context, host string, fn func(*Record, *Owner) error) error {
	s.tried++
	r := &Record{Host: host, Certificate: &Certificate{Key: s.records[host]}}
	err := errors.Join(s.broken[host], fn(r, &Owner{}))
	if err == nil {
		s.records[host] = r.Certificate.Key
	}
	return err
}

func (s *shelf) ChangeAccount(_ context.Context, _ string, fn func([]byte, time.Time) ([]byte, error)) error {
	s.tried++
	key, err := fn(s.account, time.Time{})
	if err == nil {
		s.account = key
	}
	return err
}

// older returns the gauge's value, or -1 if the gauge has no value.
func older(t *testing.T) int {
	t.Helper()
	all, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.GetName() == "linkreel_certificates_sealed_by_older_keys" {
			return int(m.GetMetric()[0].GetGauge().GetValue())
		}
	}
	return -1
}

// Records that cannot be resealed must be counted by the gauge and must not block other records, no
// matter how many there are. The test is not parallel because the process has only one gauge.
func TestReseal(t *testing.T) {
	const formerly, now, lost = "the old key of thirty-two characters or more", "the new key of thirty-two characters or more", "a key that is lost with thirty-two characters or more"
	keys := func(text string) *seal.Keys {
		k, err := seal.New(SealPurpose, text)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	first, old, gone, both := keys(now), keys(formerly), keys(lost), keys(now+","+formerly)
	s := &shelf{records: map[string][]byte{}, broken: map[string]error{}}
	put := func(m map[string][]byte, k *seal.Keys, name string, n int) (names []string) {
		for i := range n {
			id := fmt.Sprintf("%s%03d", name, i)
			m[id] = k.Seal(id, []byte(id))
			names = append(names, id)
		}
		return names
	}
	unreadable := put(s.records, gone, "a-lost", 150)
	damaged := put(s.records, old, "b-damaged", 150)
	for _, id := range damaged {
		s.records[id] = append(s.records[id][:10:10], "damaged"...)
	}
	refused := put(s.records, old, "c-refused", 300)
	for _, id := range refused {
		s.broken[id] = errors.New("not today")
	}
	good := put(s.records, old, "d-good", 120)
	put(s.records, first, "e-current", 5)
	const account = "https://acme.example.com/directory"
	intact := old.Seal(account, []byte("the account's key"))
	s.account = slices.Concat(intact[:10], []byte("damaged"))

	rotation := newRotation(Options{Store: s, Account: &Account{Store: s, ID: account, Seal: both}, Seal: both})
	round := func() {
		t.Helper()
		if err := rotation.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	round()
	if n := s.tried; n > 500 {
		t.Errorf("a round tried %d records, want at most 500", n)
	}
	if n := older(t); n != -1 {
		t.Errorf("gauge before all records are checked = %d, want none", n)
	}
	round()
	if n, want := older(t), len(damaged)+len(refused)+1; n != want {
		t.Errorf("gauge = %d, want %d", n, want)
	}
	for id, sealed := range s.records {
		plain, err := first.Open(id, sealed)
		if again := slices.Contains(good, id) || strings.HasPrefix(id, "e-"); again != (err == nil) || again && string(plain) != id {
			t.Errorf("open %s with the first key: %q, %v; want opened = %v", id, plain, err, again)
		}
	}
	if !gone.Has(s.records[unreadable[0]]) {
		t.Error("Round rewrote a record that no key opens, want it unchanged")
	}

	clear(s.broken)
	for _, id := range damaged {
		delete(s.records, id)
	}
	s.account = intact
	round()
	if n := older(t); n != 0 {
		t.Errorf("gauge at the end = %d, want 0", n)
	}
	if plain, err := first.Open(account, s.account); err != nil || string(plain) != "the account's key" {
		t.Errorf("open the account's key with the first key: %q, %v; want it opened", plain, err)
	}
}
