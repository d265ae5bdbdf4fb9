// Package signin contains the requests and responses of sign-in, which the console sends to auth's
// internal listener. Both services share these types, so they cannot drift apart.
//
// Auth makes all decisions. The console shows pages and keeps the session in a cookie. Between the
// steps of a sign-in, its state is kept in the browser, in a cookie with a sealed value (Flow), so
// no replica of either service holds state.
//
// Calls with a session are checked like requests to the public API: an ended session, or a removed
// member's session, is rejected immediately.
package signin

const prefix = "/internal/v1/sign-in/"

// The operations' paths; see libs/peer.
const (
	OpMethods       = prefix + "methods"
	OpOpenLink      = prefix + "open-link"
	OpUseLink       = prefix + "use-link"
	OpBeginOIDC     = prefix + "begin-oidc"
	OpFinishOIDC    = prefix + "finish-oidc"
	OpBeginPasskey  = prefix + "begin-passkey"
	OpFinishPasskey = prefix + "finish-passkey"
	OpBeginAdd      = prefix + "begin-add-passkey"
	OpFinishAdd     = prefix + "finish-add-passkey"
	OpRemovePasskey = prefix + "remove-passkey"
	OpWho           = prefix + "who"
	OpProfile       = prefix + "profile"
	OpSwitch        = prefix + "switch"
	OpEnd           = prefix + "end"
	OpDevice        = prefix + "device"
	OpDecideDevice  = prefix + "decide-device"
)

// Browser is the browser that makes the request.
type Browser struct {
	Address string `json:"address"` // the client's address; attempts are limited per address
	Client  string `json:"client"`  // User-Agent
	Session string `json:"session"` // the browser's current session; "" for none
}

// From returns the browser from a request that embeds Browser.
func (b Browser) From() Browser { return b }

// Methods lists the sign-in methods of this installation.
type Methods struct {
	OIDC     bool   `json:"oidc"`
	OIDCName string `json:"oidcName"` // name of the provider, for the button
	Passkeys bool   `json:"passkeys"` // false if browsers do not allow passkeys: over http, except on localhost
}

// LinkRequest reads or uses a one-time link.
type LinkRequest struct {
	Browser
	Token string `json:"token"`
	Name  string `json:"name,omitempty"` // name for a new member, if the invitation has no name
}

// Link describes a one-time link.
type Link struct {
	Kind        string `json:"kind"` // sign_in or invitation
	AccountName string `json:"accountName"`
	Name        string `json:"name"`
	Role        string `json:"role"`
	ExpiresAt   int64  `json:"expiresAt"` // ms
}

// Session is a new session. Secret must be stored only in the cookie.
type Session struct {
	Secret    string `json:"secret"`
	ID        string `json:"id"`
	MemberID  string `json:"memberId"`
	ExpiresAt int64  `json:"expiresAt"` // ms; the session may end earlier
	Next      string `json:"next"`      // the path to open after OIDC
}

// BeginOIDC starts a sign-in with the identity provider. With Link, it accepts that invitation.
// With Connect, it adds the identity to the person who is signed in with Browser.Session.
type BeginOIDC struct {
	Browser
	Link    string `json:"link,omitempty"`
	Name    string `json:"name,omitempty"`
	Connect bool   `json:"connect,omitempty"`
	Next    string `json:"next,omitempty"`
}

// Begun is a sign-in after its first step.
type Begun struct {
	URL     string `json:"url,omitempty"`     // the URL to redirect the browser to
	Options []byte `json:"options,omitempty"` // JSON for navigator.credentials
	Flow    string `json:"flow"`              // sealed; send it back with the second step
}

// FinishOIDC contains the parameters of the identity provider's redirect to the console.
type FinishOIDC struct {
	Browser
	Flow   string `json:"flow"`
	State  string `json:"state"`
	Code   string `json:"code"`
	Issuer string `json:"issuer"` // RFC 9207, if the provider sends it
	Error  string `json:"error"`
}

// Passkey is a device's response to a passkey request.
type Passkey struct {
	Browser
	Flow     string `json:"flow"`
	Response []byte `json:"response"` // the credential as JSON
	Name     string `json:"name,omitempty"`
}

// OnSession is a call with the current session. ID identifies what the call acts on.
type OnSession struct {
	Browser
	ID string `json:"id,omitempty"`
}

// Profile is the person who is signed in. The response to "who", which every page requests,
// contains only the first four fields, so it does not require a database read.
type Profile struct {
	SessionID  string       `json:"sessionId"`
	Member     Member       `json:"member"`
	Account    Account      `json:"account"`
	Scopes     []string     `json:"scopes"`
	Accounts   []Membership `json:"accounts"`
	Identities []Identity   `json:"identities"`
	Passkeys   []Credential `json:"passkeys"`
	Sessions   []Signed     `json:"sessions"`
	// SignIn lists the methods that the person can use to sign in to this account again: passkey,
	// provider. If it is empty, the person needs a new sign-in link.
	SignIn []string `json:"signIn"`
	// Bound means that the session is valid only for this account; see docs/sign-in.md.
	Bound bool `json:"bound"`
	// LinkUsed describes a sign-in link for this person that was used before this session
	// started. It is nil if there was none.
	LinkUsed *LinkUsed `json:"linkUsed,omitempty"`
}

// LinkUsed is a sign-in link that someone else created for this person.
type LinkUsed struct {
	By string `json:"by"` // the name of the person who created it
	At int64  `json:"at"` // when it was used, ms
}

// Member is a person in the session's account.
type Member struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Email string `json:"email"`
	Role  string `json:"role"`
}

// Account is the session's account.
type Account struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Plan      string `json:"plan"`
	Suspended bool   `json:"suspended"`
}

// Membership is an account that the person may switch to.
type Membership struct {
	MemberID    string `json:"memberId"`
	AccountName string `json:"accountName"`
	Role        string `json:"role"`
}

// Identity is an account at an identity provider.
type Identity struct {
	Issuer string `json:"issuer"`
	Email  string `json:"email"`
}

// Credential is a passkey.
type Credential struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	CreatedAt  int64  `json:"createdAt"`
	LastUsedAt int64  `json:"lastUsedAt"` // 0 means never
}

// Signed is a session that belongs to the same member.
type Signed struct {
	ID        string `json:"id"`
	Client    string `json:"client"`
	CreatedAt int64  `json:"createdAt"`
	SeenAt    int64  `json:"seenAt"`
}

// DeviceRequest reads or answers a program's request for a key.
type DeviceRequest struct {
	Browser
	UserCode string `json:"userCode"`
	Approve  bool   `json:"approve,omitempty"`
}

// Device is a program that requests a key.
type Device struct {
	UserCode  string   `json:"userCode"`
	Name      string   `json:"name"`
	Scopes    []string `json:"scopes"`
	ExpiresAt int64    `json:"expiresAt"` // ms
}
