package password_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/linkreel/linkreel/libs/password"
)

func TestPasswordsRoundTrip(t *testing.T) {
	t.Parallel()
	p := password.New(2, 8)
	long := strings.Repeat("🔑", 256)
	hash, err := p.Hash(t.Context(), "acc", long)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("hash = %q, want the PHC format with the default parameters", hash)
	}
	for try, want := range map[string]bool{long: true, long[:len(long)-4]: false, "": false, long + "x": false} {
		if ok, err := p.Check(t.Context(), "acc", hash, try); err != nil || ok != want {
			t.Errorf("Check with %d bytes = %v, %v; want %v", len(try), ok, err, want)
		}
	}
	if other, _ := p.Hash(t.Context(), "acc", long); other == hash {
		t.Error("two hashes of the same password are identical, want different salts")
	}
}

func TestPasswordsRefuseADamagedRecord(t *testing.T) {
	t.Parallel()
	p := password.New(1, 1)
	for _, phc := range []string{"", "x", "$argon2i$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA", "$argon2id$v=19$m=99999999,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA", "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$"} {
		if ok, err := p.Check(t.Context(), "acc", phc, "x"); ok || err == nil {
			t.Errorf("Check(%q) = %v, %v, want an error", phc, ok, err)
		}
	}
}

// Forty connections guess the password for one account's video. Some of that account's calls are
// refused, but none from other accounts.
func TestAFloodOfGuessesIsRefusedToItsAccountAlone(t *testing.T) {
	t.Parallel()
	p := password.New(2, 4)
	var (
		wg   sync.WaitGroup
		busy atomic.Int64
	)
	over, stop := context.WithCancel(t.Context())
	for range 40 {
		wg.Go(func() {
			for over.Err() == nil {
				_, err := p.Hash(context.WithoutCancel(over), "noisy", "x")
				if errors.Is(err, password.ErrBusy) {
					busy.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 4 {
		if _, err := p.Hash(t.Context(), "quiet", "x"); err != nil {
			t.Errorf("Hash for another account: got %v, want no error", err)
		}
	}
	stop()
	wg.Wait()
	if busy.Load() == 0 {
		t.Error("all 40 concurrent hashes for one account succeeded, want some ErrBusy")
	}
	if _, err := p.Hash(t.Context(), "noisy", "x"); err != nil {
		t.Errorf("Hash after the flood: got %v, want no error", err)
	}
}
