package member_test

import (
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/member"
)

func TestSessionsEndIdleOrOld(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		seen time.Duration
		want time.Duration
	}{
		{"not used again", 0, 12 * time.Hour},
		{"used for a day", 24 * time.Hour, 36 * time.Hour},
		{"used until the maximum lifetime", 7*24*time.Hour - time.Minute, 7 * 24 * time.Hour},
	} {
		x := member.Session{CreatedAt: made, SeenAt: made.Add(c.seen)}
		if got := x.ExpiresAt().Sub(made); got != c.want {
			t.Errorf("%s: ends after %v, want %v", c.name, got, c.want)
		}
		if end := made.Add(c.want); x.Active(end) || !x.Active(end.Add(-time.Second)) {
			t.Errorf("%s: Active is wrong around the session's end, want true just before it and false from then on", c.name)
		}
	}
	if x := (member.Session{CreatedAt: made, SeenAt: made, EndedAt: made.Add(time.Second)}); x.Active(made.Add(2 * time.Second)) {
		t.Error("Active for an ended session returned true, want false")
	}
}

func TestMayGive(t *testing.T) {
	t.Parallel()
	session := func(r identity.Role) *identity.Principal {
		return &identity.Principal{Session: true, MemberID: "m", Role: r}
	}
	for _, giver := range identity.Roles() {
		for _, given := range identity.Roles() {
			err := member.MayGive(session(giver), giver.Scopes(), given)
			if (err == nil) != giver.AtLeast(given) || err != nil && apierr.CodeOf(err) != apierr.InsufficientScope {
				t.Errorf("MayGive with caller %s and role %s = %v, want success = %v", giver, given, err, giver.AtLeast(given))
			}
		}
	}
	for _, given := range identity.Roles() {
		if err := member.MayGive(nil, 0, given); err != nil {
			t.Errorf("MayGive with the operator as the caller and role %s = %v, want nil", given, err)
		}
		key := &identity.Principal{MemberID: "m", Role: identity.Owner}
		if err := member.MayGive(key, identity.AllScopes, given); (err == nil) != (given != identity.Owner) {
			t.Errorf("MayGive with an owner's key as the caller and role %s = %v, want an error only for the owner role", given, err)
		}
	}
}
