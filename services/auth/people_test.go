package auth_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/signin"
)

// person is a signed-in member.
type person struct {
	r       replica
	session string
	id      string
	account string
}

// join creates a member with the role and signs them in.
func (r replica) join(account, name, role string) person {
	r.t.Helper()
	made := r.admin("POST", "/admin/v1/accounts/"+account+"/sign-in-links", `{"name":"`+name+`","role":"`+role+`"}`)
	want(r.t, made, 201, "")
	s := r.use(tokenOf(r.t, made), "", "")
	return person{r, s.Secret, made.field(r.t, "memberId"), account}
}

func tokenOf(t testing.TB, a answer) string {
	t.Helper()
	u, err := url.Parse(a.field(t, "url"))
	if err != nil || u.Path != "/app/sign-in" || u.Query().Get("link") == "" {
		t.Fatalf("got link %s (error %v), want a sign-in URL with a token", a.body, err)
	}
	return u.Query().Get("link")
}

// signin calls an internal sign-in operation.
func (r replica) signin(op string, in any) answer {
	r.t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.call("internal", "POST", op, internalToken, string(body))
}

func decode[T any](t testing.TB, a answer) (out T) {
	t.Helper()
	if err := json.Unmarshal(a.body, &out); err != nil || a.status != 200 {
		t.Fatalf("got %d %s (error %v), want 200 with JSON", a.status, a.body, err)
	}
	return out
}

func (r replica) use(token, name, session string) signin.Session {
	r.t.Helper()
	return decode[signin.Session](r.t, r.signin(signin.OpUseLink, signin.LinkRequest{
		Browser: signin.Browser{Address: "192.0.2.1", Client: "Test", Session: session}, Token: token, Name: name,
	}))
}

func (p person) api(method, path, body string) answer {
	p.r.t.Helper()
	return p.r.api(method, path, p.session, body)
}

func (p person) invite(role string) answer {
	p.r.t.Helper()
	return p.api("POST", "/api/v1/invitations", `{"role":"`+role+`"}`)
}

// This test calls each route with a session of every role, and checks the lowest role that is
// allowed to call it.
func TestRoleTable(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	id, _ := r.account("business")
	people := map[string]person{}
	for _, role := range identity.Roles() {
		people[string(role)] = r.join(id, "P "+string(role), string(role))
	}
	spare := r.join(id, "Spare", "viewer")
	for _, row := range []struct {
		method, path, body string
		lowest             identity.Role
	}{
		{"GET", "/api/v1/account", "", identity.Viewer},
		{"PATCH", "/api/v1/account", `{"name":"Renamed"}`, identity.Owner},
		{"GET", "/api/v1/keys", "", identity.Admin},
		{"POST", "/api/v1/keys", `{"name":"k","scopes":["links:read"]}`, identity.Admin},
		{"GET", "/api/v1/members", "", identity.Admin},
		{"PATCH", "/api/v1/members/" + spare.id, `{"name":"Spare part"}`, identity.Admin},
		{"GET", "/api/v1/invitations", "", identity.Admin},
		{"POST", "/api/v1/invitations", `{"role":"viewer"}`, identity.Admin},
		{"POST", "/api/v1/invitations", `{"role":"member"}`, identity.Admin},
		{"POST", "/api/v1/invitations", `{"role":"admin"}`, identity.Admin},
		{"POST", "/api/v1/invitations", `{"role":"owner"}`, identity.Owner},
		{"POST", "/api/v1/members/" + spare.id + "/sign-in-links", "", identity.Admin},
	} {
		for _, role := range identity.Roles() {
			got := people[string(role)].api(row.method, row.path, row.body)
			if role.AtLeast(row.lowest) != (got.status < 300) || got.status >= 300 && (got.status != 403 || got.code() != "INSUFFICIENT_SCOPE") {
				t.Errorf("role %s: %s %s %s got %d %s, want success only for role %s and above", role, row.method, row.path, row.body, got.status, got.body, row.lowest)
			}
		}
	}
}

func TestNobodyGivesARoleAboveTheirOwn(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	id, _ := r.account("business")
	owner, admin, viewer := r.join(id, "Olu", "owner"), r.join(id, "Ada", "admin"), r.join(id, "Vic", "viewer")
	all := r.key(id, `{"name":"all","scopes":["links:read","links:write","videos:read","videos:write","domains:read","domains:write","keys:read","keys:write","events:read","webhooks:read","webhooks:write","members:read","members:write","account:write"]}`)
	narrow := r.key(id, `{"name":"narrow","scopes":["members:read","members:write","links:read","videos:read","domains:read"]}`)
	for name, got := range map[string]answer{
		"admin invites an owner":                                 admin.invite("owner"),
		"admin makes themselves an owner":                        admin.api("PATCH", "/api/v1/members/"+admin.id, `{"role":"owner"}`),
		"admin makes another member an owner":                    admin.api("PATCH", "/api/v1/members/"+viewer.id, `{"role":"owner"}`),
		"admin lowers an owner's role":                           admin.api("PATCH", "/api/v1/members/"+owner.id, `{"role":"viewer"}`),
		"admin renames an owner":                                 admin.api("PATCH", "/api/v1/members/"+owner.id, `{"name":"X"}`),
		"admin removes an owner":                                 admin.api("DELETE", "/api/v1/members/"+owner.id, ""),
		"viewer raises their own role":                           viewer.api("PATCH", "/api/v1/members/"+viewer.id, `{"role":"member"}`),
		"key with all scopes makes an owner":                     r.api("PATCH", "/api/v1/members/"+viewer.id, all, `{"role":"owner"}`),
		"key with all scopes invites an owner":                   r.api("POST", "/api/v1/invitations", all, `{"role":"owner"}`),
		"key with all scopes removes an owner":                   r.api("DELETE", "/api/v1/members/"+owner.id, all, ""),
		"key with few scopes assigns the member role":            r.api("PATCH", "/api/v1/members/"+viewer.id, narrow, `{"role":"member"}`),
		"key with few scopes invites an admin":                   r.api("POST", "/api/v1/invitations", narrow, `{"role":"admin"}`),
		"key without the scope lists members":                    r.api("GET", "/api/v1/members", r.key(id, `{"name":"eight"}`), ""),
		"key with the default scopes invites a viewer":           r.api("POST", "/api/v1/invitations", r.key(id, `{"name":"eight"}`), `{"role":"viewer"}`),
		"403 takes precedence over 400 and 404":                  narrowPatch(r, narrow),
		"admin's key requests an invitation with the owner role": r.api("POST", "/api/v1/invitations", admin.key(`{"name":"k","scopes":["members:write"]}`), `{"role":"owner"}`),
	} {
		if got.status != 403 || got.code() != "INSUFFICIENT_SCOPE" {
			t.Errorf("%s: got %d %s, want 403 INSUFFICIENT_SCOPE", name, got.status, got.body)
		}
	}
	want(t, r.api("POST", "/api/v1/invitations", narrow, `{"role":"viewer"}`), 201, "")
	want(t, owner.invite("owner"), 201, "")
	want(t, owner.api("PATCH", "/api/v1/members/"+admin.id, `{"role":"owner"}`), 200, "")
	want(t, admin.api("PATCH", "/api/v1/members/"+viewer.id, `{"role":"owner"}`), 200, "")
}

func narrowPatch(r replica, key string) answer {
	return r.api("PATCH", "/api/v1/members/mem_none", key, `{"role":"admin","name":""}`)
}

func (p person) key(body string) string {
	p.r.t.Helper()
	made := p.api("POST", "/api/v1/keys", body)
	want(p.r.t, made, 201, "")
	return made.field(p.r.t, "key")
}

func TestTheLastOwnerStays(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	id, _ := r.account("free")
	a := r.join(id, "A", "owner")
	want(t, a.api("DELETE", "/api/v1/members/"+a.id, ""), 409, "LAST_OWNER")
	want(t, a.api("PATCH", "/api/v1/members/"+a.id, `{"role":"admin"}`), 409, "LAST_OWNER")
	b := r.join(id, "B", "owner")
	// Both owners try to lower their own role at the same time. One of them must remain an
	// owner.
	var answers [2]answer
	var wg sync.WaitGroup
	for i, p := range []person{a, b} {
		wg.Go(func() { answers[i] = p.api("PATCH", "/api/v1/members/"+p.id, `{"role":"admin"}`) })
	}
	wg.Wait()
	statuses := []int{answers[0].status, answers[1].status}
	slices.Sort(statuses)
	if !slices.Equal(statuses, []int{200, 409}) {
		t.Errorf("lowering both owners' roles returned %v, want 200 and 409", statuses)
	}
}

func TestARemovedMembersNextRequestIsRefused(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r, other := start(t, c.config()), start(t, c.config())
	id, _ := r.account("business")
	owner, admin := r.join(id, "Olu", "owner"), r.join(id, "Ada", "admin")
	key := admin.key(`{"name":"hers"}`)
	made := r.api("POST", "/api/v1/keys", key, `{"name":"her key's"}`)
	want(t, made, 201, "")
	second := made.field(t, "key")
	rolled := r.api("POST", "/api/v1/keys/"+made.field(t, "id")+"/roll", key, "")
	want(t, rolled, 201, "")
	third := rolled.field(t, "key")
	invitation := admin.invite("admin")
	want(t, invitation, 201, "")
	for _, credential := range []string{admin.session, key, third} {
		want(t, other.api("GET", "/api/v1/account", credential, ""), 200, "")
	}
	want(t, owner.api("DELETE", "/api/v1/members/"+admin.id, ""), 204, "")
	for name, credential := range map[string]string{"session": admin.session, "key": key, "key created by the key": second, "rolled key": third} {
		for i, at := range []replica{r, other} {
			if got := at.api("GET", "/api/v1/account", credential, ""); got.status != 401 || got.code() != "API_KEY_REVOKED" {
				t.Errorf("replica %d: a request with the %s returned %d %s, want 401 API_KEY_REVOKED", i, name, got.status, got.body)
			}
		}
	}
	// She cannot rejoin with the invitation that she created.
	want(t, r.signin(signin.OpUseLink, signin.LinkRequest{Token: tokenOf(t, invitation), Name: "Ada again"}), 404, "NOT_FOUND")
	want(t, owner.api("DELETE", "/api/v1/members/"+admin.id, ""), 404, "NOT_FOUND")
}

func TestALoweredMemberKeepsOnlyWhatTheirRoleGives(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r, other := start(t, c.config()), start(t, c.config())
	id, _ := r.account("business")
	owner, admin := r.join(id, "Olu", "owner"), r.join(id, "Ada", "admin")
	wide, narrow := admin.key(`{"name":"wide"}`), admin.key(`{"name":"narrow","scopes":["links:read","links:write"]}`)
	operators := r.key(id, `{"name":"operator's"}`)
	want(t, other.api("GET", "/api/v1/members", admin.session, ""), 200, "")
	want(t, owner.api("PATCH", "/api/v1/members/"+admin.id, `{"role":"member"}`), 200, "")
	want(t, other.api("GET", "/api/v1/members", admin.session, ""), 403, "INSUFFICIENT_SCOPE")
	want(t, other.api("GET", "/api/v1/account", admin.session, ""), 200, "")
	want(t, other.api("GET", "/api/v1/account", wide, ""), 401, "API_KEY_REVOKED")
	want(t, other.api("GET", "/api/v1/account", narrow, ""), 200, "")
	want(t, other.api("GET", "/api/v1/account", operators, ""), 200, "")
	// Once restored, her old role takes effect immediately on every replica.
	want(t, owner.api("PATCH", "/api/v1/members/"+admin.id, `{"role":"admin"}`), 200, "")
	want(t, other.api("GET", "/api/v1/members", admin.session, ""), 200, "")
	want(t, other.api("GET", "/api/v1/account", wide, ""), 401, "API_KEY_REVOKED")
}

func TestOneTimeLinksWorkOnce(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var mu sync.Mutex
	cfg := newWorld(t).config()
	cfg.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	forward := func(d time.Duration) { mu.Lock(); now = now.Add(d); mu.Unlock() }
	r := start(t, cfg)
	id, _ := r.account("business")
	owner := r.join(id, "Olu", "owner")
	invitation := owner.api("POST", "/api/v1/invitations", `{"role":"member","colour":"red"}`)
	want(t, invitation, 201, "")
	if got := invitation.field(t, "ignoredFields"); got != "[colour]" {
		t.Errorf("ignoredFields is %s, want [colour]", got)
	}
	token := tokenOf(t, invitation)
	// A preview bot may open the link any number of times.
	for range 3 {
		l := decode[signin.Link](t, r.signin(signin.OpOpenLink, signin.LinkRequest{Token: token}))
		if l.Kind != "invitation" || l.AccountName != "Test" || l.Role != "member" {
			t.Errorf("got link %+v, want an invitation as member of Test", l)
		}
	}
	want(t, r.signin(signin.OpUseLink, signin.LinkRequest{Token: token}), 400, "VALIDATION_ERROR") // without the name
	var sessions [4]answer
	var wg sync.WaitGroup
	for i := range sessions {
		wg.Go(func() {
			sessions[i] = r.signin(signin.OpUseLink, signin.LinkRequest{Token: token, Name: "Kofi", Browser: signin.Browser{Address: "192.0.2.9"}})
		})
	}
	wg.Wait()
	won := 0
	for _, s := range sessions {
		if s.status == 200 {
			won++
		} else if s.status != 404 {
			t.Errorf("using the link again returned %d %s, want 404", s.status, s.body)
		}
	}
	if won != 1 {
		t.Errorf("the link worked %d times, want once", won)
	}
	want(t, r.signin(signin.OpOpenLink, signin.LinkRequest{Token: token}), 404, "NOT_FOUND")

	late := owner.invite("viewer")
	signIn := r.admin("POST", "/admin/v1/accounts/"+id+"/sign-in-links", `{"memberId":"`+owner.id+`"}`)
	want(t, signIn, 201, "")
	forward(15 * time.Minute)
	want(t, r.signin(signin.OpUseLink, signin.LinkRequest{Token: tokenOf(t, signIn)}), 404, "NOT_FOUND")
	want(t, r.signin(signin.OpOpenLink, signin.LinkRequest{Token: tokenOf(t, late)}), 200, "")
	forward(7 * 24 * time.Hour)
	want(t, r.signin(signin.OpOpenLink, signin.LinkRequest{Token: tokenOf(t, late)}), 404, "NOT_FOUND")
	want(t, r.signin(signin.OpOpenLink, signin.LinkRequest{Token: "lr_link_guess"}), 404, "NOT_FOUND")
	want(t, r.signin(signin.OpUseLink, signin.LinkRequest{Token: owner.session}), 404, "NOT_FOUND")
}

func TestInvitationsAreListedAndRevoked(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	id, _ := r.account("business")
	owner, admin := r.join(id, "Olu", "owner"), r.join(id, "Ada", "admin")
	made := admin.api("POST", "/api/v1/invitations", `{"name":" Kofi ","role":"member"}`)
	want(t, made, 201, "")
	owners := owner.invite("owner")
	list := admin.api("GET", "/api/v1/invitations", "")
	if strings.Contains(string(list.body), "lr_link_") || !strings.Contains(string(list.body), `"name":"Kofi"`) || !strings.Contains(string(list.body), `"invitedBy":{"type":"member","id":"`+admin.id+`","name":"Ada"}`) {
		t.Errorf("list is %s, want Ada's invitation to Kofi without a token", list.body)
	}
	want(t, admin.api("DELETE", "/api/v1/invitations/"+owners.field(t, "id"), ""), 403, "INSUFFICIENT_SCOPE")
	otherID, _ := r.account("free")
	stranger := r.join(otherID, "Sam", "owner")
	want(t, stranger.api("DELETE", "/api/v1/invitations/"+made.field(t, "id"), ""), 404, "NOT_FOUND")
	want(t, stranger.api("PATCH", "/api/v1/members/"+admin.id, `{"role":"viewer"}`), 404, "NOT_FOUND")
	want(t, stranger.api("DELETE", "/api/v1/members/"+admin.id, ""), 404, "NOT_FOUND")
	want(t, admin.api("DELETE", "/api/v1/invitations/"+made.field(t, "id"), ""), 204, "")
	want(t, admin.api("DELETE", "/api/v1/invitations/"+made.field(t, "id"), ""), 404, "NOT_FOUND")
	want(t, r.signin(signin.OpUseLink, signin.LinkRequest{Token: tokenOf(t, made)}), 404, "NOT_FOUND")
}

// Requests with the same Idempotency-Key create only one invitation, and every response has the
// same URL.
func TestARepeatedInvitationIsTheSame(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	id, _ := r.account("business")
	owner := r.join(id, "Olu", "owner")
	var urls []string
	for range 2 {
		made := r.api("POST", "/api/v1/invitations", owner.session, `{"role":"viewer"}`, "Idempotency-Key", "once")
		want(t, made, 201, "")
		urls = append(urls, made.field(t, "url"))
	}
	if urls[0] != urls[1] {
		t.Errorf("the repeated requests returned URLs %v, want identical URLs", urls)
	}
	if list := owner.api("GET", "/api/v1/invitations", ""); strings.Count(string(list.body), `"id":"inv_`) != 1 {
		t.Errorf("list is %s, want one invitation", list.body)
	}
}

func TestTwoPeopleOfOneNameAreTwoMembers(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	id, _ := r.account("business")
	owner := r.join(id, "Sam Lee", "owner")
	twin := r.join(id, "Sam Lee", "viewer")
	if owner.id == twin.id {
		t.Fatal("two people with the same name became one member, want two")
	}
	want(t, twin.api("GET", "/api/v1/members", ""), 403, "INSUFFICIENT_SCOPE")
	again := r.admin("POST", "/admin/v1/accounts/"+id+"/sign-in-links", `{"memberId":"`+twin.id+`"}`)
	want(t, again, 201, "")
	if got := again.field(t, "memberId"); got != twin.id {
		t.Errorf("the link signs in member %s, want %s", got, twin.id)
	}
	p := decode[signin.Profile](t, r.signin(signin.OpProfile, signin.OnSession{Browser: signin.Browser{Session: r.use(tokenOf(t, again), "", "").Secret}}))
	if p.Member.ID != twin.id || p.Member.Role != "viewer" || p.Account.ID != id {
		t.Errorf("got profile %+v, want viewer %s in account %s", p, twin.id, id)
	}
}

func TestSignInLinkBodies(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	id, key := r.account("free")
	owner := r.join(id, "Olu", "owner")
	path := "/admin/v1/accounts/" + id + "/sign-in-links"
	for body, details := range map[string][]string{
		`{}`:                                {"name required", "role required"},
		`{"name":"A"}`:                      {"role required"},
		`{"role":"owner"}`:                  {"name required"},
		`{"name":" ","role":"owner"}`:       {"name required"},
		`{"name":"A","role":"root"}`:        {"role invalid_value"},
		`{"memberId":"mem_1","name":"Ada"}`: {"memberId not_allowed"},
	} {
		got := r.admin("POST", path, body)
		if got.status != 400 || !slices.Equal(got.details(t), details) {
			t.Errorf("body %s returned %d %s, want 400 with %v", body, got.status, got.body, details)
		}
	}
	want(t, r.admin("POST", path, `{"memberId":"mem_none"}`), 404, "NOT_FOUND")
	want(t, r.admin("POST", "/admin/v1/accounts/acc_none/sign-in-links", `{"name":"A","role":"owner"}`), 404, "NOT_FOUND")
	want(t, r.call("admin", "POST", path, key, `{"name":"A","role":"owner"}`), 401, "INVALID_API_KEY")
	want(t, r.call("admin", "POST", path, owner.session, `{"name":"A","role":"owner"}`), 401, "INVALID_API_KEY")
	want(t, r.call("internal", "POST", signin.OpMethods, key, `{}`), 401, "INVALID_API_KEY")
}

func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var mu sync.Mutex
	c := newWorld(t)
	cfg := c.config()
	cfg.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	forward := func(d time.Duration) { mu.Lock(); now = now.Add(d); mu.Unlock() }
	r, other := start(t, cfg), start(t, cfg)
	id, _ := r.account("business")
	a := r.join(id, "A", "owner")
	in := func() person {
		made := r.admin("POST", "/admin/v1/accounts/"+id+"/sign-in-links", `{"memberId":"`+a.id+`"}`)
		return person{r, r.use(tokenOf(t, made), "", "").Secret, a.id, id}
	}
	out := in()
	want(t, other.api("GET", "/api/v1/members", out.session, ""), 200, "")
	want(t, r.signin(signin.OpEnd, signin.OnSession{Browser: signin.Browser{Session: out.session}}), 200, "")
	want(t, other.api("GET", "/api/v1/members", out.session, ""), 401, "API_KEY_REVOKED")
	want(t, other.api("GET", "/api/v1/members", a.session, ""), 200, "")
	want(t, r.signin(signin.OpEnd, signin.OnSession{Browser: signin.Browser{Session: out.session}}), 200, "") // signing out twice is not an error

	// A new sign-in in the same browser ends the old session, which prevents session
	// fixation.
	made := r.admin("POST", "/admin/v1/accounts/"+id+"/sign-in-links", `{"memberId":"`+a.id+`"}`)
	fresh := r.use(tokenOf(t, made), "", a.session)
	want(t, other.api("GET", "/api/v1/members", a.session, ""), 401, "API_KEY_REVOKED")

	// A suspension applies to people as well as keys.
	want(t, r.admin("PATCH", "/admin/v1/accounts/"+id, `{"suspended":true}`), 200, "")
	want(t, other.api("GET", "/api/v1/members", fresh.Secret, ""), 403, "ACCOUNT_SUSPENDED")
	want(t, r.admin("PATCH", "/admin/v1/accounts/"+id, `{"suspended":false}`), 200, "")

	forward(12*time.Hour - time.Second)
	want(t, other.api("GET", "/api/v1/members", in().session, ""), 200, "")
	forward(time.Second)
	want(t, other.api("GET", "/api/v1/members", fresh.Secret, ""), 401, "API_KEY_EXPIRED")
}

// eventsOf lists an account's events as "type actor-type actor-name".
func eventsOf(t testing.TB, c world, accountID string) (out []string) {
	t.Helper()
	client, err := c.Firestore.Client(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	snaps, err := client.Collection("events").Where("accountId", "==", accountID).Documents(t.Context()).GetAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, snap := range snaps {
		d := snap.Data()
		if text := fmt.Sprint(d); strings.Contains(text, "lr_sess_") || strings.Contains(text, "lr_link_") {
			t.Errorf("event %s contains a secret, want none", text)
		}
		out = append(out, fmt.Sprint(d["type"], " ", d["actorType"], " ", d["actorName"]))
	}
	return out
}

func TestDevicesGetAKeyThroughAPerson(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	id, _ := r.account("business")
	admin, viewer := r.join(id, "Ada", "admin"), r.join(id, "Vic", "viewer")
	begin := func() (device, user string) {
		d := r.api("POST", "/api/v1/device-codes", "", `{"name":"laptop"}`)
		want(t, d, 201, "")
		return d.field(t, "deviceCode"), d.field(t, "userCode")
	}
	collect := func(device string) answer {
		return r.api("POST", "/api/v1/device-codes/token", "", `{"deviceCode":"`+device+`"}`)
	}
	decide := func(p person, user string, yes bool) answer {
		return r.signin(signin.OpDecideDevice, signin.DeviceRequest{Browser: signin.Browser{Session: p.session}, UserCode: user, Approve: yes})
	}
	device, user := begin()
	want(t, collect(device), 409, "AUTHORIZATION_PENDING")
	want(t, decide(viewer, user, true), 403, "INSUFFICIENT_SCOPE")
	want(t, collect(device), 409, "AUTHORIZATION_PENDING")
	shown := decode[signin.Device](t, r.signin(signin.OpDevice, signin.DeviceRequest{Browser: signin.Browser{Session: admin.session}, UserCode: strings.ToUpper(user)}))
	if shown.Name != "laptop" || len(shown.Scopes) != 8 {
		t.Errorf("the page shows %+v, want program laptop and eight scopes", shown)
	}
	want(t, decide(admin, user, true), 200, "")
	want(t, decide(admin, user, true), 404, "NOT_FOUND")
	made := collect(device)
	want(t, made, 201, "")
	want(t, collect(device), 404, "NOT_FOUND")
	key := made.field(t, "key")
	want(t, r.api("GET", "/api/v1/keys", key, ""), 200, "")

	device, user = begin()
	want(t, decide(admin, user, false), 200, "")
	want(t, collect(device), 403, "FORBIDDEN")

	// An approval becomes invalid when the approver is removed.
	device, user = begin()
	want(t, decide(admin, user, true), 200, "")
	owner := r.join(id, "Olu", "owner")
	want(t, owner.api("DELETE", "/api/v1/members/"+admin.id, ""), 204, "")
	want(t, collect(device), 404, "NOT_FOUND")
	want(t, r.api("GET", "/api/v1/keys", key, ""), 401, "API_KEY_REVOKED")
	want(t, collect("lr_link_none"), 404, "NOT_FOUND")
}

func TestSignInTriesAreLimited(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	try := func(from string) answer {
		return r.signin(signin.OpOpenLink, signin.LinkRequest{Browser: signin.Browser{Address: from}, Token: "lr_link_guess"})
	}
	for range 20 {
		want(t, try("198.51.100.7"), 404, "NOT_FOUND")
	}
	got := try("198.51.100.7")
	want(t, got, 429, "RATE_LIMITED")
	if got.header.Get("Retry-After") == "" {
		t.Error("the 429 response has no Retry-After, want one")
	}
	want(t, try("198.51.100.8"), 404, "NOT_FOUND")
	for range 10 {
		want(t, r.api("POST", "/api/v1/device-codes", "", ""), 201, "")
	}
	want(t, r.api("POST", "/api/v1/device-codes", "", ""), 429, "RATE_LIMITED")
}

// A person can belong to several accounts and switch between them.
func TestAPersonInTwoAccounts(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	one, _ := r.account("free")
	two, _ := r.account("business")
	ada, olu := r.join(one, "Ada", "owner"), r.join(two, "Olu", "owner")
	invitation := olu.invite("member")
	s := r.use(tokenOf(t, invitation), "Ada", ada.session)
	ada.session = s.Secret
	want(t, ada.api("POST", "/api/v1/keys", `{"name":"x"}`), 403, "INSUFFICIENT_SCOPE") // in this account, Ada is only a member
	in := func() signin.Browser { return signin.Browser{Session: ada.session} }
	p := decode[signin.Profile](t, r.signin(signin.OpProfile, signin.OnSession{Browser: in()}))
	if p.Account.ID != two || len(p.Accounts) != 2 {
		t.Fatalf("got profile %+v, want account %s and two accounts", p, two)
	}
	want(t, r.signin(signin.OpSwitch, signin.OnSession{Browser: in(), ID: olu.id}), 404, "NOT_FOUND")
	back := decode[signin.Session](t, r.signin(signin.OpSwitch, signin.OnSession{Browser: in(), ID: ada.id}))
	want(t, ada.api("GET", "/api/v1/account", ""), 401, "API_KEY_REVOKED")
	ada.session = back.Secret
	want(t, ada.api("POST", "/api/v1/keys", `{"name":"x"}`), 201, "")
	// A person cannot be a member of the same account twice.
	again := olu.invite("viewer")
	want(t, r.signin(signin.OpUseLink, signin.LinkRequest{Browser: in(), Token: tokenOf(t, again), Name: "Ada"}), 409, "ALREADY_MEMBER")
}

func TestEachChangeOfPeopleWritesItsEvent(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := start(t, c.config())
	id, _ := r.account("business")
	owner := r.join(id, "Olu", "owner")
	invitation := owner.invite("admin")
	ada := person{r, r.use(tokenOf(t, invitation), "Ada", "").Secret, "", id}
	ada.key(`{"name":"k"}`)
	var list struct{ Data []struct{ ID, Name string } }
	if err := json.Unmarshal(owner.api("GET", "/api/v1/members", "").body, &list); err != nil || len(list.Data) != 2 {
		t.Fatal(list, err)
	}
	adaID := list.Data[1].ID
	want(t, owner.api("PATCH", "/api/v1/members/"+adaID, `{"role":"viewer"}`), 200, "")
	want(t, owner.api("DELETE", "/api/v1/members/"+adaID, ""), 204, "")
	want(t, owner.api("DELETE", "/api/v1/invitations/"+owner.invite("viewer").field(t, "id"), ""), 204, "")
	got := eventsOf(t, c, id)
	for _, want := range []string{
		"member.added operator Operator", "session.created member Olu", "invitation.created member Olu", "member.added member Ada",
		"invitation.accepted member Ada", "session.created member Ada", "key.created member Ada", "member.changed member Olu",
		"key.revoked member Olu", "member.removed member Olu", "session.ended member Olu", "invitation.revoked member Olu",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no %q event among %q", want, got)
		}
	}
}

// members returns how each member of the account can sign in, by name.
func (p person) members() map[string][]string {
	p.r.t.Helper()
	var list struct {
		Data []struct {
			Name   string
			SignIn []string
		}
	}
	if err := json.Unmarshal(p.api("GET", "/api/v1/members", "").body, &list); err != nil {
		p.r.t.Fatal(err)
	}
	out := map[string][]string{}
	for _, m := range list.Data {
		out[m.Name] = m.SignIn
	}
	return out
}

func TestASignInLinkLetsAMemberBackIn(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	i := newIssuer(t)
	r := start(t, i.config(c))
	id, _ := r.account("business")
	owner, admin, other, cleo := r.join(id, "Olu", "owner"), r.join(id, "Ada", "admin"), r.join(id, "Ann", "admin"), r.join(id, "Cleo", "viewer")
	link := func(by person, of string) answer { return by.api("POST", "/api/v1/members/"+of+"/sign-in-links", "") }
	if ways, known := owner.members()["Cleo"]; !known || ways == nil || len(ways) != 0 {
		t.Errorf("Cleo's ways to sign in are %v, want an empty list", ways)
	}
	made := link(admin, cleo.id)
	want(t, made, 201, "")
	shown := decode[signin.Link](t, r.signin(signin.OpOpenLink, signin.LinkRequest{Token: tokenOf(t, made)}))
	if shown.Kind != "sign_in" || shown.Name != "Cleo" || shown.AccountName != "Test" {
		t.Errorf("got link %+v, want a sign-in link for Cleo in Test", shown)
	}
	profile := func(session string) signin.Profile {
		t.Helper()
		return decode[signin.Profile](t, r.signin(signin.OpProfile, signin.OnSession{Browser: signin.Browser{Session: session}}))
	}
	back := r.use(tokenOf(t, made), "", "")
	if p := profile(back.Secret); p.Member.ID != cleo.id || !p.Bound || len(p.SignIn) != 0 || p.LinkUsed != nil {
		t.Errorf("the link's session has profile %+v, want Cleo in a bound session without ways to sign in", p)
	}
	want(t, r.signin(signin.OpUseLink, signin.LinkRequest{Token: tokenOf(t, made)}), 404, "NOT_FOUND")
	// Cleo gets the notice only once, at the next sign-in.
	for _, told := range []bool{true, false} {
		next := r.admin("POST", "/admin/v1/accounts/"+id+"/sign-in-links", `{"memberId":"`+cleo.id+`"}`)
		cleo.session = r.use(tokenOf(t, next), "", "").Secret
		if p := profile(cleo.session); p.Bound || (p.LinkUsed != nil) != told || told && p.LinkUsed.By != "Ada" {
			t.Errorf("the next sign-in has profile %+v with link use %+v, want the notice only at the first", p, p.LinkUsed)
		}
	}
	key := admin.key(`{"name":"k","scopes":["members:write","members:read"]}`)
	for name, got := range map[string]answer{
		"admin for an owner":            link(admin, owner.id),
		"admin for an admin":            link(admin, other.id),
		"admin for themselves":          link(admin, admin.id),
		"owner for themselves":          link(owner, owner.id),
		"viewer":                        link(cleo, cleo.id),
		"API key":                       r.api("POST", "/api/v1/members/"+cleo.id+"/sign-in-links", key, ""),
		"API key for an unknown member": r.api("POST", "/api/v1/members/mem_none/sign-in-links", key, ""),
		"owner for another owner":       link(owner, owner.id),
	} {
		if got.status != 403 || got.code() != "INSUFFICIENT_SCOPE" {
			t.Errorf("%s: got %d %s, want 403 INSUFFICIENT_SCOPE", name, got.status, got.body)
		}
	}
	want(t, link(owner, admin.id), 201, "")
	want(t, link(owner, "mem_none"), 404, "NOT_FOUND")
	elsewhere, _ := r.account("free")
	want(t, link(r.join(elsewhere, "Sam", "owner"), cleo.id), 404, "NOT_FOUND")
	// Requests with the same Idempotency-Key create only one link.
	first := r.api("POST", "/api/v1/members/"+cleo.id+"/sign-in-links", admin.session, "", "Idempotency-Key", "once")
	again := r.api("POST", "/api/v1/members/"+cleo.id+"/sign-in-links", admin.session, "", "Idempotency-Key", "once")
	if first.field(t, "url") != again.field(t, "url") {
		t.Error("two requests with the same Idempotency-Key returned different links, want the same link")
	}
	// Once Cleo has her own way to sign in, the list shows it, and only the operator can create
	// a link for her.
	i.as("cleo", nil)
	want(t, i.begin(r, signin.BeginOIDC{Browser: signin.Browser{Session: cleo.session}, Connect: true}).finish(r, cleo.session), 200, "")
	want(t, link(admin, cleo.id), 409, "HAS_SIGN_IN")
	want(t, r.signin(signin.OpUseLink, signin.LinkRequest{Token: tokenOf(t, first)}), 409, "HAS_SIGN_IN")
	if ways := owner.members()["Cleo"]; !slices.Equal(ways, []string{"provider"}) {
		t.Errorf("Cleo's ways to sign in are %v, want [provider]", ways)
	}
	got := eventsOf(t, c, id)
	for _, want := range []string{"sign_in_link.created member Ada", "sign_in_link.used member Cleo", "sign_in_link.created operator Operator", "sign_in_link.created member Olu"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %q event among %q", want, got)
		}
	}
}

func TestAnAccountMakesTwentySignInLinksADay(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	id, _ := r.account("business")
	owner, cleo := r.join(id, "Olu", "owner"), r.join(id, "Cleo", "viewer")
	path := "/api/v1/members/" + cleo.id + "/sign-in-links"
	want(t, owner.api("POST", "/api/v1/members/mem_none/sign-in-links", ""), 404, "NOT_FOUND") // does not count towards the limit
	for range 20 {
		want(t, owner.api("POST", path, ""), 201, "")
	}
	got := owner.api("POST", path, "")
	want(t, got, 429, "RATE_LIMITED")
	if got.header.Get("Retry-After") == "" {
		t.Error("the 429 response has no Retry-After, want one")
	}
	want(t, r.admin("POST", "/admin/v1/accounts/"+id+"/sign-in-links", `{"memberId":"`+cleo.id+`"}`), 201, "")
	elsewhere, _ := r.account("business")
	want(t, r.join(elsewhere, "Sam", "owner").api("POST", "/api/v1/members/"+r.join(elsewhere, "Kim", "viewer").id+"/sign-in-links", ""), 201, "")
}

// Each made-up session costs a database read, so each network only gets a limited number of
// attempts.
func TestMadeUpSessionsHaveABudget(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(t).config())
	id, _ := r.account("business")
	owner := r.join(id, "Olu", "owner")
	ask := func(op, from, session string) answer {
		return r.signin(op, signin.OnSession{Browser: signin.Browser{Address: from, Session: session}})
	}
	madeUp := func() string {
		k := identity.NewSession(rand.Reader)
		return k.Secret()
	}
	const from, elsewhere = "198.51.100.20", "198.51.100.21"
	ops := []string{signin.OpWho, signin.OpProfile, signin.OpSwitch, signin.OpEnd, signin.OpBeginAdd, signin.OpRemovePasskey}
	for _, from := range []string{"", "invalid IP", from} { // the last network is tested again below, before its budget refills
		asked := 0
		for ask(ops[asked%len(ops)], from, madeUp()).status != 429 {
			if asked++; asked > 2000 {
				t.Fatalf("2,000 made-up sessions from %q were all looked up, want a limit", from)
			}
		}
	}
	for _, op := range ops {
		got := ask(op, from, madeUp())
		for range 50 { // on a slow machine, the budget may regain an attempt
			if got.status == 429 {
				break
			}
			got = ask(op, from, madeUp())
		}
		want(t, got, 429, "RATE_LIMITED")
		if got := ask(op, elsewhere, madeUp()); got.status != 401 && op != signin.OpEnd || got.status != 200 && op == signin.OpEnd {
			t.Errorf("operation %s from another network returned %d %s, want no rate limit", op, got.status, got.body)
		}
	}
	want(t, ask(signin.OpWho, elsewhere, owner.session), 200, "")
	want(t, ask(signin.OpWho, from, owner.session), 200, "") // an active session is not limited
	want(t, ask(signin.OpEnd, from, owner.session), 200, "")
}
