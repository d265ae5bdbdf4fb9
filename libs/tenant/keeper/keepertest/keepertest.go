// Package keepertest contains the test that every service with a keeper must pass.
package keepertest

import (
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/tenant"
)

// Service is a running service with an account's records.
type Service struct {
	Holder  tenant.Holder // the holder that auth calls
	Account string
	Forward func(time.Duration) // moves the service's clock
	// Commit creates a record in the account without checking the account's state, like a replica
	// that was suspended after its check.
	Commit func()
	// Left returns how many records the account has left.
	Left func() int
}

// TakesWhatIsCommittedLate erases the account and then commits a record in the account. It expects
// the keeper to erase this record within 25 hours without another call.
func TakesWhatIsCommittedLate(t *testing.T, s Service) {
	t.Helper()
	s.Commit()
	if s.Left() == 0 {
		t.Fatal("the account has no records to erase, want at least one")
	}
	if err := s.Holder.SetState(t.Context(), s.Account, tenant.Standing{State: tenant.Deleting, Version: 2}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the account is erased", func() bool {
		s.Forward(10 * time.Second)
		done, err := s.Holder.Erased(t.Context(), s.Account)
		return done && err == nil
	})
	s.Forward(time.Hour)
	eventually(t, "the account has no records", func() bool { return s.Left() == 0 })
	s.Commit()
	if s.Left() == 0 {
		t.Fatal("Commit created no record, want one")
	}
	s.Forward(24 * time.Hour)
	eventually(t, "the late record is erased", func() bool { return s.Left() == 0 })
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(40 * time.Second); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}
