package api

import (
	"context"
	"crypto/rand"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/peer"
	"github.com/linkreel/linkreel/libs/ratelimit"
	wire "github.com/linkreel/linkreel/libs/signin"
	"github.com/linkreel/linkreel/services/auth/internal/member"
	"github.com/linkreel/linkreel/services/auth/internal/signin"
)

// SignIn serves the internal routes that the console uses to sign people in.
type SignIn struct {
	Members  *member.Service
	Auth     httpapi.Authenticator // verifies sessions the same way as keys
	OIDC     *signin.OIDC          // nil if the installation has no identity provider
	Groups   member.GroupMap
	Passkeys *signin.Passkeys
	// PasskeysWork reports whether browsers allow passkeys at the base URL.
	PasskeysWork bool
	Tries        *ratelimit.Limiter
}

// signInTries is how many sign-in attempts of all kinds a network may make per minute.
// Successful attempts do not count, so people in an office that shares one IP address do not
// lock each other out.
const signInTries = 20

// Routes adds the routes that only the console calls.
func (s SignIn) Routes(d *peer.Door) {
	peer.Answer(d, wire.OpMethods, s.methods)
	peer.Answer(d, wire.OpOpenLink, limited(s, s.openLink))
	peer.Answer(d, wire.OpUseLink, limited(s, s.useLink))
	peer.Answer(d, wire.OpBeginOIDC, limited(s, s.beginOIDC))
	peer.Answer(d, wire.OpFinishOIDC, limited(s, s.finishOIDC))
	peer.Answer(d, wire.OpBeginPasskey, limited(s, s.beginPasskey))
	peer.Answer(d, wire.OpFinishPasskey, limited(s, s.finishPasskey))
	peer.Answer(d, wire.OpBeginAdd, judged(s, s.beginAdd))
	peer.Answer(d, wire.OpFinishAdd, judged(s, s.finishAdd))
	peer.Answer(d, wire.OpRemovePasskey, judged(s, s.removePasskey))
	peer.Answer(d, wire.OpWho, judged(s, s.who))
	peer.Answer(d, wire.OpProfile, judged(s, s.profile))
	peer.Answer(d, wire.OpSwitch, judged(s, s.switchAccount))
	peer.Answer(d, wire.OpEnd, s.end)
	peer.Answer(d, wire.OpDevice, limited(s, judged(s, s.device)))
	peer.Answer(d, wire.OpDecideDevice, limited(s, judged(s, s.decideDevice)))
}

// asker is a request that identifies the browser that sent it.
type asker interface{ From() wire.Browser }

// limited limits failed attempts from each network.
func limited[In asker, Out any](s SignIn, do func(ctx context.Context, in In) (Out, error)) func(ctx context.Context, in In) (Out, error) {
	return func(ctx context.Context, in In) (out Out, err error) {
		addr, _ := netip.ParseAddr(in.From().Address) // all invalid addresses count as one network
		// Count before the attempt and refund after a success, so concurrent attempts cannot
		// exceed the limit.
		rule := ratelimit.Rule{Key: "signin:" + ratelimit.Network(addr).String(), Max: signInTries, Window: time.Minute}
		t, wait := s.Tries.Take(ctx, rule)
		if err := tooMany(wait); err != nil {
			return out, err
		}
		if out, err = do(ctx, in); err == nil {
			s.Tries.Refund(ctx, t)
		}
		return out, err
	}
}

// judged calls do only if [SignIn.judge] accepts the browser's session.
func judged[In asker, Out any](
	s SignIn,
	do func(ctx context.Context, p *identity.Principal, in In) (Out, error),
) func(ctx context.Context, in In) (Out, error) {
	return func(ctx context.Context, in In) (out Out, err error) {
		p, err := s.judge(ctx, in.From())
		if err != nil {
			return out, err
		}
		return do(ctx, p, in)
	}
}

type none struct{}

func (s SignIn) methods(context.Context, none) (wire.Methods, error) {
	m := wire.Methods{Passkeys: s.PasskeysWork}
	if s.OIDC != nil {
		m.OIDC, m.OIDCName = true, s.OIDC.Name()
	}
	return m, nil
}

func (s SignIn) openLink(ctx context.Context, in wire.LinkRequest) (wire.Link, error) {
	token, err := identity.ParseLink(in.Token)
	if err != nil {
		return wire.Link{}, member.ErrNoLink
	}
	l, err := s.Members.OpenLink(ctx, token)
	if err != nil {
		return wire.Link{}, err
	}
	name, err := s.Members.AccountName(ctx, l.AccountID)
	if err != nil {
		return wire.Link{}, err
	}
	return wire.Link{Kind: string(l.Kind), AccountName: name, Name: l.Name, Role: string(l.Role), ExpiresAt: l.ExpiresAt.UnixMilli()}, nil
}

func (s SignIn) useLink(ctx context.Context, in wire.LinkRequest) (wire.Session, error) {
	token, err := identity.ParseLink(in.Token)
	if err != nil {
		return wire.Session{}, member.ErrNoLink
	}
	name, err := personName(in.Name)
	if err != nil {
		return wire.Session{}, err
	}
	return s.signIn(in.Browser, func(b member.Browser) (member.Session, error) {
		// No identity provider is involved here. Someone who is already signed in joins as the
		// person that the replaced session identifies.
		return s.Members.UseLink(ctx, token, name, nil, b.Replaces, b)
	})
}

func personName(name string) (string, error) {
	name = strings.TrimSpace(name)
	if len([]rune(name)) > 100 || strings.ContainsRune(name, 0) {
		return "", apierr.Invalid(apierr.Detail{Field: "name", Code: apierr.TooLong, Max: 100, Message: "Use at most 100 characters."})
	}
	return name, nil
}

// signIn generates the new session's key and returns it to the console. This is the only time
// that the key is returned.
func (s SignIn) signIn(from wire.Browser, do func(b member.Browser) (member.Session, error)) (wire.Session, error) {
	key := identity.NewSession(rand.Reader)
	x, err := do(member.Browser{Key: key, Client: from.Client, Replaces: sessionHash(from)})
	if errors.Is(err, firestoredb.ErrExists) {
		return wire.Session{}, signin.ErrFlow // the challenge was already used
	}
	if err != nil {
		return wire.Session{}, err
	}
	expires := x.CreatedAt.Add(member.SessionLife).UnixMilli()
	return wire.Session{Secret: key.Secret(), ID: x.ID, MemberID: x.MemberID, ExpiresAt: expires}, nil
}

func sessionHash(b wire.Browser) string {
	key, err := identity.ParseKey(b.Session, identity.KeyPrefix, identity.SessionPrefix)
	if err != nil || !key.IsSession() {
		return ""
	}
	return key.Hash()
}

func (s SignIn) beginOIDC(ctx context.Context, in wire.BeginOIDC) (wire.Begun, error) {
	if s.OIDC == nil {
		return wire.Begun{}, noOIDC()
	}
	name, err := personName(in.Name)
	if err != nil {
		return wire.Begun{}, err
	}
	p := signin.Purpose{Link: in.Link, Name: name, Next: in.Next}
	if in.Connect {
		if _, err := s.judge(ctx, in.Browser); err != nil {
			return wire.Begun{}, err
		}
		p.Connect = sessionHash(in.Browser)
	}
	url, flow, err := s.OIDC.Begin(ctx, p)
	return wire.Begun{URL: url, Flow: flow}, err
}

func noOIDC() error {
	return apierr.New(apierr.NotFound, "This installation has no identity provider.")
}

func (s SignIn) finishOIDC(ctx context.Context, in wire.FinishOIDC) (wire.Session, error) {
	if s.OIDC == nil {
		return wire.Session{}, noOIDC()
	}
	proof, p, err := s.OIDC.Finish(ctx, signin.Return{Flow: in.Flow, State: in.State, Code: in.Code, Issuer: in.Issuer, Error: in.Error})
	if err != nil {
		return wire.Session{}, err
	}
	if p.Connect != "" {
		// The browser must still have the session that began the flow. Otherwise, a link
		// could trick people into connecting a stranger's identity to their own account.
		if p.Connect != sessionHash(in.Browser) {
			return wire.Session{}, signin.ErrFlow
		}
		if _, err := s.judge(ctx, in.Browser); err != nil {
			return wire.Session{}, err
		}
		return wire.Session{Next: p.Next}, s.Members.Connect(ctx, p.Connect, proof)
	}
	out, err := s.signIn(in.Browser, func(b member.Browser) (member.Session, error) {
		if p.Link == "" {
			return s.Members.SignIn(ctx, proof, s.Groups, b)
		}
		token, err := identity.ParseLink(p.Link)
		if err != nil {
			return member.Session{}, member.ErrNoLink
		}
		// Do not pass a session: the proven identity determines who joins, not the browser's
		// current session.
		return s.Members.UseLink(ctx, token, p.Name, &proof, "", b)
	})
	out.Next = p.Next
	return out, err
}

func (s SignIn) beginPasskey(_ context.Context, _ wire.OnSession) (wire.Begun, error) {
	options, flow, err := s.Passkeys.BeginSignIn()
	return wire.Begun{Options: options, Flow: flow}, err
}

func (s SignIn) finishPasskey(ctx context.Context, in wire.Passkey) (wire.Session, error) {
	found, challenge, err := s.Passkeys.FinishSignIn(ctx, in.Flow, in.Response, func(hash string) (member.Passkey, error) {
		return s.Members.Passkey(ctx, hash)
	})
	if err != nil {
		return wire.Session{}, err
	}
	return s.signIn(in.Browser, func(b member.Browser) (member.Session, error) {
		x, err := s.Members.SignInByPasskey(ctx, found, challenge, b)
		if errors.Is(err, member.ErrNoPasskey) {
			err = signin.RefusedPasskey(ctx, err)
		}
		return x, err
	})
}

// authenticate verifies the browser's session. Unknown sessions count towards the network's limit
// on misses, just as unknown keys do in the API.
func (s SignIn) authenticate(ctx context.Context, b wire.Browser) (apikey.Decision, error) {
	addr, err := netip.ParseAddr(b.Address)
	if err != nil {
		addr = netip.IPv4Unspecified() // use a valid address because no limit applies to the zero address
	}
	return s.Auth.Authenticate(ctx, b.Session, addr)
}

// judge checks a session the way the API checks a key, including revocation and the rate limit.
// It accepts members of a suspended account. See decideDevice.
func (s SignIn) judge(ctx context.Context, b wire.Browser) (*identity.Principal, error) {
	d, err := s.authenticate(ctx, b)
	if err != nil {
		return nil, err
	}
	if !d.Limit.Allowed {
		return nil, tooMany(d.Limit.RetryAfter)
	}
	if !d.Principal.Session {
		return nil, apierr.New(apierr.InvalidAPIKey, "This is not a valid session.")
	}
	return d.Principal, nil
}

func (s SignIn) beginAdd(ctx context.Context, p *identity.Principal, in wire.OnSession) (wire.Begun, error) {
	hash := sessionHash(in.Browser)
	x, m, err := s.Members.Person(ctx, hash)
	if err != nil {
		return wire.Begun{}, err
	}
	has, err := s.Members.Passkeys(ctx, x.PersonID)
	if err != nil {
		return wire.Begun{}, err
	}
	if !x.Bound {
		// Do not exclude passkeys that are valid for only one membership. The same device may
		// replace such a passkey with one for all memberships.
		has = slices.DeleteFunc(has, func(k member.Passkey) bool { return k.MemberID != "" })
	}
	options, flow, err := s.Passkeys.BeginAdd(x.PersonID, m.Name+" ("+p.AccountName+")", hash, has)
	return wire.Begun{Options: options, Flow: flow}, err
}

func (s SignIn) finishAdd(ctx context.Context, _ *identity.Principal, in wire.Passkey) (none, error) {
	hash := sessionHash(in.Browser)
	x, m, err := s.Members.Person(ctx, hash)
	if err != nil {
		return none{}, err
	}
	made, err := s.Passkeys.FinishAdd(ctx, x.PersonID, m.Name, hash, in.Flow, in.Response)
	if err != nil {
		return none{}, err
	}
	if made.Name, err = personName(in.Name); err != nil {
		return none{}, err
	}
	if made.Name == "" {
		made.Name = "Passkey"
	}
	return none{}, s.Members.AddPasskey(ctx, hash, made)
}

func (s SignIn) removePasskey(ctx context.Context, _ *identity.Principal, in wire.OnSession) (none, error) {
	return none{}, s.Members.RemovePasskey(ctx, sessionHash(in.Browser), in.ID)
}

func (s SignIn) switchAccount(ctx context.Context, _ *identity.Principal, in wire.OnSession) (wire.Session, error) {
	return s.signIn(in.Browser, func(b member.Browser) (member.Session, error) {
		return s.Members.Switch(ctx, b.Replaces, in.ID, b)
	})
}

// end signs out. It does not need an active session, so signing out twice succeeds.
func (s SignIn) end(ctx context.Context, in wire.OnSession) (none, error) {
	hash := sessionHash(in.Browser)
	if hash == "" {
		return none{}, nil
	}
	if in.ID != "" {
		// Only a signed-in member may end another of their sessions.
		if _, err := s.judge(ctx, in.Browser); err != nil {
			return none{}, err
		}
	}
	// An unknown session counts as a miss, and a network that has reached its limit on misses
	// does not cause any further database reads.
	switch _, err := s.authenticate(ctx, in.Browser); apierr.CodeOf(err) {
	case apierr.InvalidAPIKey:
		return none{}, nil
	case apierr.RateLimited:
		return none{}, err
	}
	// Sign out despite any other error, for example if the session has expired or cannot be
	// verified at the moment.
	err := s.Members.End(ctx, hash, in.ID)
	if in.ID == "" && errors.Is(err, member.ErrNoSession) {
		return none{}, nil
	}
	return none{}, err
}

func (SignIn) who(_ context.Context, p *identity.Principal, _ wire.OnSession) (wire.Profile, error) {
	return profileOf(p), nil
}

func profileOf(p *identity.Principal) wire.Profile {
	return wire.Profile{
		SessionID: p.KeyID, Member: wire.Member{ID: p.MemberID, Name: p.MemberName, Role: string(p.Role)},
		Account: wire.Account{ID: p.AccountID, Name: p.AccountName, Plan: p.Plan.String(), Suspended: p.Suspended},
		Scopes:  p.Scopes.Names(),
	}
}

// profile returns the data that the console's account page shows to the signed-in person.
// Members.Profile does not check the session, because judged has already rejected sessions that
// have ended.
func (s SignIn) profile(ctx context.Context, p *identity.Principal, in wire.OnSession) (wire.Profile, error) {
	found, err := s.Members.Profile(ctx, sessionHash(in.Browser))
	if err != nil {
		return wire.Profile{}, err
	}
	out := profileOf(p)
	out.Member.Email, out.Bound = found.Member.Email, found.Session.Bound
	for _, way := range found.Ways {
		out.SignIn = append(out.SignIn, string(way))
	}
	// Somebody signed in as this member with a link that someone else had created. The page
	// says so because that person may have been the one who used it.
	if told := found.Session.Told; !told.At.IsZero() {
		out.LinkUsed = &wire.LinkUsed{By: told.By, At: told.At.UnixMilli()}
	}
	for _, other := range found.Memberships {
		name, err := s.Members.AccountName(ctx, other.AccountID)
		if err != nil {
			return wire.Profile{}, err
		}
		out.Accounts = append(out.Accounts, wire.Membership{MemberID: other.ID, AccountName: name, Role: string(other.Role)})
	}
	for _, i := range found.Identities {
		out.Identities = append(out.Identities, wire.Identity{Issuer: i.Issuer, Email: i.Email})
	}
	for _, k := range found.Passkeys {
		c := wire.Credential{ID: k.ID, Name: k.Name, CreatedAt: k.CreatedAt.UnixMilli()}
		if !k.LastUsedAt.IsZero() {
			c.LastUsedAt = k.LastUsedAt.UnixMilli()
		}
		out.Passkeys = append(out.Passkeys, c)
	}
	for _, x := range found.Sessions {
		shown := wire.Signed{ID: x.ID, Client: x.Client, CreatedAt: x.CreatedAt.UnixMilli(), SeenAt: x.SeenAt.UnixMilli()}
		out.Sessions = append(out.Sessions, shown)
	}
	return out, nil
}

func (s SignIn) device(ctx context.Context, _ *identity.Principal, in wire.DeviceRequest) (wire.Device, error) {
	d, err := s.Members.Device(ctx, userCode(in.UserCode))
	if err != nil {
		return wire.Device{}, err
	}
	return wire.Device{UserCode: d.UserCode, Name: d.Name, ExpiresAt: d.ExpiresAt.UnixMilli(), Scopes: d.Scopes.Names()}, nil
}

// userCode normalizes a code: case, spaces and hyphens do not matter.
func userCode(s string) string {
	s = strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(s))
	if len(s) != 8 {
		return s
	}
	return s[:4] + "-" + s[4:]
}

func (s SignIn) decideDevice(ctx context.Context, p *identity.Principal, in wire.DeviceRequest) (none, error) {
	// judge accepts members of a suspended account, so they can see why nothing works. They cannot
	// create keys, though.
	if p.Suspended {
		return none{}, apierr.New(apierr.AccountSuspended, "This account is suspended.")
	}
	return none{}, s.Members.DecideDevice(ctx, p, userCode(in.UserCode), in.Approve)
}
