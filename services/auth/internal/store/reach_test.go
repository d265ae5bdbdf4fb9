package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
	"github.com/linkreel/linkreel/services/auth/internal/member"
)

// scene has two people. Pat was invited to Mallory's account and later joins another account.
// Mallory is an admin of the first account and tries everything that an admin can do.
type scene struct {
	t       *testing.T
	people  *member.Service
	one     account.Account // the account that Mallory is an admin of
	two     account.Account
	mallory *identity.Principal
	pat     member.Session // Pat's own session in the first account
	patTwo  member.Session // Pat's own session in the second account, after Pat has joined
	tokens  int

	// The sessions and passkeys Mallory has obtained.
	sessions []member.Session
	passkeys []string
}

func newScene(t *testing.T, w world, people *member.Service) *scene {
	t.Helper()
	s := &scene{t: t, people: people, one: newAccount(t, w), two: newAccount(t, w)}
	admin := s.enter(s.one, identity.Admin)
	s.mallory = s.principal(admin, identity.Admin)
	s.enter(s.one, identity.Owner)
	s.enter(s.two, identity.Owner)
	s.pat = s.accept(s.invite(s.one, identity.Viewer), "")
	return s
}

func (s *scene) principal(x member.Session, role identity.Role) *identity.Principal {
	return &identity.Principal{AccountID: x.AccountID, MemberID: x.MemberID, KeyID: x.ID, Session: true, Role: role, Scopes: role.Scopes()}
}

func (s *scene) browser() member.Browser { return member.Browser{Key: newSecret(s.t)} }

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// enter creates a member with a sign-in link from the operator, and signs them in.
func (s *scene) enter(a account.Account, role identity.Role) member.Session {
	s.t.Helper()
	token := newSecret(s.t)
	_, err := s.people.SignInLink(s.t.Context(), a.ID, "", "Somebody", role, token)
	s.must(err)
	x, err := s.people.UseLink(s.t.Context(), token, "", nil, "", s.browser())
	s.must(err)
	return x
}

func (s *scene) invite(a account.Account, role identity.Role) identity.Key {
	s.t.Helper()
	token := newSecret(s.t)
	_, err := s.people.Invite(s.t.Context(), member.NewInvitation{ID: identity.NewID("inv"), Token: token, AccountID: a.ID, Name: "Pat", Role: role})
	s.must(err)
	return token
}

func (s *scene) accept(token identity.Key, as string) member.Session {
	s.t.Helper()
	x, err := s.people.UseLink(s.t.Context(), token, "", nil, as, s.browser())
	s.must(err)
	return x
}

// join makes Pat join the other account in their own browser.
func (s *scene) join() {
	s.t.Helper()
	s.patTwo = s.accept(s.invite(s.two, identity.Member), s.pat.Hash)
	if s.patTwo.PersonID != s.pat.PersonID {
		s.t.Fatal("Pat joined as a different person, want the same person")
	}
}

// link creates a sign-in link for the member, if by is allowed to.
func (s *scene) link(by *identity.Principal, memberID string) (identity.Key, error) {
	s.t.Helper()
	token := newSecret(s.t)
	_, err := s.people.SignInLinkFor(s.t.Context(), member.NewSignInLink{ID: identity.NewID("sil"), Token: token, MemberID: memberID, At: time.Now(), By: by})
	return token, err
}

// use signs Mallory in with a link and keeps the session, unless the link is rejected.
func (s *scene) use(token identity.Key, proof *member.Proof, as string) (member.Session, error) {
	x, err := s.people.UseLink(s.t.Context(), token, "", proof, as, s.browser())
	return x, s.hold(x, err)
}

func (s *scene) hold(x member.Session, err error) error {
	if err == nil {
		s.sessions = append(s.sessions, x)
	}
	return err
}

// asPat returns a session that Mallory opened with a link for Pat.
func (s *scene) asPat() member.Session {
	s.t.Helper()
	token, err := s.link(s.mallory, s.pat.MemberID)
	s.must(err)
	x, err := s.use(token, nil, "")
	s.must(err)
	return x
}

// plant adds one of Mallory's own passkeys in a session.
func (s *scene) plant(x member.Session) error {
	s.tokens++
	hash := fmt.Sprintf("%s%d", identity.NewSlug(20), s.tokens)
	err := s.people.AddPasskey(s.t.Context(), x.Hash, member.Passkey{Hash: hash, Credential: []byte("{}")})
	if err == nil {
		s.passkeys = append(s.passkeys, hash)
	}
	return err
}

func (s *scene) byPasskey(hash string) (member.Session, error) {
	p, err := s.people.Passkey(s.t.Context(), hash)
	if err != nil {
		return member.Session{}, err
	}
	x, err := s.people.SignInByPasskey(s.t.Context(), p, identity.NewNonce(), s.browser())
	return x, s.hold(x, err)
}

// opens returns how Mallory can now get access to the other account, or "" if there is no way.
func (s *scene) opens() string {
	s.t.Helper()
	ctx := s.t.Context()
	for _, hash := range s.passkeys {
		_, _ = s.byPasskey(hash) // a failed sign-in does not open a session; the sessions are checked below
	}
	third := s.accept(s.invite(s.one, identity.Viewer), "") // a person that Mallory has made up
	s.sessions = append(s.sessions, third)
	for _, x := range s.sessions {
		if x.AccountID == s.two.ID {
			return "a session opened by " + x.How
		}
		for _, to := range []string{s.patTwo.MemberID, s.pat.MemberID} {
			if y, err := s.people.Switch(ctx, x.Hash, to, s.browser()); err == nil && y.AccountID == s.two.ID {
				return "switching from a session opened by " + x.How
			}
		}
		p, err := s.people.Profile(ctx, x.Hash)
		if err != nil {
			continue // the session has ended
		}
		for _, m := range p.Memberships {
			if m.AccountID == s.two.ID {
				return "the list of accounts in a session opened by " + x.How
			}
		}
	}
	return ""
}

// This test tries everything that an admin of one account could do to get access to another of a
// member's accounts. In the cases named "before Pat joined", Pat belongs only to Mallory's account,
// like any invited person without a passkey.
func TestNothingThatOneAccountHandsOutOpensAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	people := member.NewService(w.Store, member.Provider{Issuer: "https://idp.example"}, nil)
	mallorys := func() *member.Proof {
		return &member.Proof{Issuer: "https://idp.example", Subject: identity.NewNonce(), Name: "Pat", Email: "pat@example.com"}
	}
	const (
		noLink  = apierr.NotFound
		has     = apierr.HasSignIn
		never   = apierr.Forbidden
		lacks   = apierr.InsufficientScope
		allowed = apierr.Code("") // the attempt succeeds, but does not give access to any other account
	)
	for _, try := range []struct {
		name string
		want apierr.Code
		do   func(s *scene) error
	}{
		{"link for a member of both accounts", has, func(s *scene) error {
			s.join()
			_, err := s.link(s.mallory, s.pat.MemberID)
			return err
		}},
		{"link for the membership in the other account", noLink, func(s *scene) error {
			s.join()
			_, err := s.link(s.mallory, s.patTwo.MemberID)
			return err
		}},
		{"link created before Pat joined and used afterwards", has, func(s *scene) error {
			token, err := s.link(s.mallory, s.pat.MemberID)
			s.must(err)
			s.join()
			_, err = s.use(token, nil, "")
			return err
		}},
		{"link used before Pat joined", allowed, func(s *scene) error {
			s.asPat()
			s.join()
			return nil
		}},
		{"link used twice", noLink, func(s *scene) error {
			token, err := s.link(s.mallory, s.pat.MemberID)
			s.must(err)
			_, err = s.use(token, nil, "")
			s.must(err)
			s.join()
			_, err = s.use(token, nil, "")
			return err
		}},
		{"link used with Mallory's own identity", allowed, func(s *scene) error {
			token, err := s.link(s.mallory, s.pat.MemberID)
			s.must(err)
			mine := mallorys()
			_, err = s.use(token, mine, "")
			s.must(err)
			s.join()
			x, err := s.people.SignIn(s.t.Context(), *mine, member.GroupMap{}, s.browser())
			if s.hold(x, err) == nil {
				s.t.Error("Mallory's identity was stored, want it rejected")
			}
			return nil
		}},
		{"passkey added in the link's session before Pat joined", allowed, func(s *scene) error {
			x := s.asPat()
			s.must(s.plant(x))
			s.join()
			return nil
		}},
		{"second passkey added in a session opened with the first", allowed, func(s *scene) error {
			s.must(s.plant(s.asPat()))
			x, err := s.byPasskey(s.passkeys[0])
			s.must(err)
			s.join()
			return s.plant(x)
		}},
		{"second passkey added in the link's session", has, func(s *scene) error {
			x := s.asPat()
			s.must(s.plant(x))
			return s.plant(x)
		}},
		{"passkey added in the link's session after Pat joined", has, func(s *scene) error {
			x := s.asPat()
			s.join()
			return s.plant(x)
		}},
		{"passkey added in the link's session after Pat added one", has, func(s *scene) error {
			x := s.asPat()
			s.must(s.people.AddPasskey(s.t.Context(), s.pat.Hash, member.Passkey{Hash: identity.NewSlug(20), Credential: []byte("{}")}))
			return s.plant(x)
		}},
		{"identity connected in the link's session before Pat joined", never, func(s *scene) error {
			mine := mallorys()
			err := s.people.Connect(s.t.Context(), s.asPat().Hash, *mine)
			s.join()
			x, failed := s.people.SignIn(s.t.Context(), *mine, member.GroupMap{}, s.browser())
			_ = s.hold(x, failed)
			return err
		}},
		{"identity connected in the planted passkey's session", never, func(s *scene) error {
			s.must(s.plant(s.asPat()))
			x, err := s.byPasskey(s.passkeys[0])
			s.must(err)
			return s.people.Connect(s.t.Context(), x.Hash, *mallorys())
		}},
		{"third account joined as Pat in the link's session", allowed, func(s *scene) error {
			x := s.asPat()
			s.join()
			third := newAccount(s.t, w)
			_, err := s.use(s.invite(third, identity.Owner), nil, x.Hash)
			return err
		}},
		{"third account joined as Pat in the planted passkey's session", allowed, func(s *scene) error {
			s.must(s.plant(s.asPat()))
			s.join()
			x, err := s.byPasskey(s.passkeys[0])
			s.must(err)
			_, err = s.use(s.invite(newAccount(s.t, w), identity.Owner), nil, x.Hash)
			return err
		}},
		{"Mallory's own account joined as Pat in the link's session", allowed, func(s *scene) error {
			x := s.asPat()
			s.join()
			_, err := s.use(s.invite(s.one, identity.Viewer), nil, x.Hash)
			return err
		}},
		{"switch in the link's session", never, func(s *scene) error {
			x := s.asPat()
			s.join()
			y, err := s.people.Switch(s.t.Context(), x.Hash, s.patTwo.MemberID, s.browser())
			return s.hold(y, err)
		}},
		{"switch in the planted passkey's session", never, func(s *scene) error {
			s.must(s.plant(s.asPat()))
			s.join()
			x, err := s.byPasskey(s.passkeys[0])
			s.must(err)
			y, err := s.people.Switch(s.t.Context(), x.Hash, s.patTwo.MemberID, s.browser())
			return s.hold(y, err)
		}},
		{"invitation in Pat's name, accepted by an unknown person", allowed, func(s *scene) error {
			s.join()
			_, err := s.use(s.invite(s.one, identity.Admin), nil, "")
			return err
		}},
		{"invitation in Pat's name, accepted with Pat's member id", allowed, func(s *scene) error {
			s.join()
			_, err := s.use(s.invite(s.one, identity.Admin), nil, s.patTwo.MemberID)
			return err
		}},
		{"invitation in Pat's name, accepted with an identity with Pat's address", allowed, func(s *scene) error {
			s.must(s.people.Connect(s.t.Context(), s.pat.Hash, member.Proof{Issuer: "https://idp.example", Subject: identity.NewNonce(), Email: "pat@example.com"}))
			s.join()
			_, err := s.use(s.invite(s.one, identity.Admin), mallorys(), "")
			return err
		}},
		{"removal followed by an invitation in Pat's name", allowed, func(s *scene) error {
			s.join()
			s.must(s.people.Remove(s.t.Context(), s.mallory, s.one.ID, s.pat.MemberID))
			_, err := s.use(s.invite(s.one, identity.Viewer), nil, "")
			return err
		}},
		{"link created by an API key with all scopes", lacks, func(s *scene) error {
			key := *s.mallory
			key.Session = false
			_, err := s.link(&key, s.pat.MemberID)
			return err
		}},
		{"link for an owner of both accounts", lacks, func(s *scene) error {
			owner := identity.Owner
			_, err := s.people.Change(s.t.Context(), nil, s.one.ID, s.pat.MemberID, member.Change{Role: &owner})
			s.must(err)
			s.join()
			_, err = s.link(s.mallory, s.pat.MemberID)
			return err
		}},
		{"link used after Pat has become an owner", noLink, func(s *scene) error {
			token, err := s.link(s.mallory, s.pat.MemberID)
			s.must(err)
			owner := identity.Owner
			_, err = s.people.Change(s.t.Context(), nil, s.one.ID, s.pat.MemberID, member.Change{Role: &owner})
			s.must(err)
			_, err = s.use(token, nil, "")
			return err
		}},
		{"link's session used after Pat has become an owner", apierr.NotFound, func(s *scene) error {
			x := s.asPat()
			owner := identity.Owner
			_, err := s.people.Change(s.t.Context(), nil, s.one.ID, s.pat.MemberID, member.Change{Role: &owner})
			s.must(err)
			_, _, err = s.people.Person(s.t.Context(), x.Hash)
			return err
		}},
		{"link used after Mallory was removed", noLink, func(s *scene) error {
			token, err := s.link(s.mallory, s.pat.MemberID)
			s.must(err)
			s.must(s.people.Remove(s.t.Context(), nil, s.one.ID, s.mallory.MemberID))
			_, err = s.use(token, nil, "")
			return err
		}},
		{"ending Pat's session in the other account", apierr.NotFound, func(s *scene) error {
			x := s.asPat()
			s.join()
			return s.people.End(s.t.Context(), x.Hash, s.patTwo.ID)
		}},
		{"removing Pat's own passkey", apierr.NotFound, func(s *scene) error {
			x := s.asPat()
			s.join()
			s.must(s.people.AddPasskey(s.t.Context(), s.patTwo.Hash, member.Passkey{Hash: identity.NewSlug(20), Credential: []byte("{}")}))
			all, err := s.people.Passkeys(s.t.Context(), s.pat.PersonID)
			s.must(err)
			return s.people.RemovePasskey(s.t.Context(), x.Hash, all[0].ID)
		}},
	} {
		t.Run(try.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, w, people)
			if got := apierr.CodeOf(try.do(s)); got != try.want {
				t.Errorf("got error code %q, want %q", got, try.want)
			}
			if s.patTwo.ID == "" {
				s.join()
			}
			if how := s.opens(); how != "" {
				t.Errorf("Mallory can get access to the other account through %s, want no access", how)
			}
			// Pat must still have access.
			if _, err := people.Switch(t.Context(), s.patTwo.Hash, s.patTwo.MemberID, s.browser()); err != nil {
				t.Errorf("Switch in Pat's own session returned %v, want nil", err)
			}
		})
	}
}
