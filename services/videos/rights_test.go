package videos_test

import (
	"crypto/rand"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/identity"
)

// member signs in a viewer of account a and returns the session.
func (w *world) member(id string) string {
	w.t.Helper()
	key := identity.NewSession(rand.Reader)
	w.apikeys.Put(key, &apikey.Record{
		Principal: identity.Principal{
			KeyID: "ses_" + id, AccountID: "acc_a", AccountName: "acc_a", Plan: identity.Creator, PerMinute: 1_000_000,
			Session: true, MemberID: id, MemberName: "Vera", Role: identity.Viewer, Scopes: identity.Viewer.Scopes(),
		},
		ExpiresAt: apikey.Never, Version: 1,
	})
	return key.Secret()
}

func TestAnOwnersAddressEndsWithTheRightOfWhomItWasMadeFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{"privacy":"password","password":"sesame"}`)
	session := w.member("mem_vera")
	addresses := func(key string) []string {
		a := w.send(http.MethodGet, "/api/v1/videos/"+v.id, "", header("Authorization", "Bearer "+key)).want(200).json()
		playlist := a["playbackUrl"].(string)
		return []string{playlist, strings.Replace(playlist, "master", "720p", 1), a["downloadUrl"].(string), a["posterUrl"].(string)}
	}
	owners, viewers := addresses(w.keys["acc_a"]), addresses(session)
	plays := func(all []string) {
		t.Helper()
		for _, a := range all {
			if got := w.send(http.MethodGet, a, ""); got.status >= 400 {
				t.Errorf("GET of the owner's %s returned %d %s, want success", a[strings.LastIndex(a, "/"):], got.status, got.body)
			}
		}
	}
	end := func(why string, all []string) {
		t.Helper()
		eventually(t, "URLs invalid after "+why, func() bool {
			for _, a := range all {
				if w.send(http.MethodGet, a, "").status != 403 {
					return false
				}
			}
			return true
		})
	}
	plays(owners)
	plays(viewers)
	// The owner's player keeps working for hours, even after the access rule has changed.
	w.clock.Advance(5 * time.Hour)
	w.setAccess(v, `{"privacy":"password","password":"another"}`).want(200)
	plays(owners)
	plays(viewers)

	w.apikeys.Edit(func(r *apikey.Record) bool { return r.MemberID == "mem_vera" }, func(r *apikey.Record) { r.Scopes = identity.LinksRead })
	end("a lower role", viewers)
	w.apikeys.Edit(func(r *apikey.Record) bool { return r.MemberID == "mem_vera" }, func(r *apikey.Record) { r.Scopes = identity.Viewer.Scopes() })
	eventually(t, "URLs valid with the old role", func() bool { return w.send(http.MethodGet, viewers[0], "").status == 200 })
	w.apikeys.Edit(func(r *apikey.Record) bool { return r.MemberID == "mem_vera" }, func(r *apikey.Record) { r.Revoked = true })
	end("a removed member", viewers)
	plays(owners)
	w.apikeys.Change("acc_a", func(r *apikey.Record) { r.Revoked = true })
	end("a revoked key", owners)
}

func TestAnOwnersAddressWorksForAWhileWithoutAuth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	playlist := w.get(w.ready(`{}`).id)["playbackUrl"].(string)
	w.send(http.MethodGet, playlist, "").want(200)
	other := w.replica()
	w.apikeys.Away(true)
	// This takes longer than a lease, so the service queries auth again.
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
		w.send(http.MethodGet, playlist, "").want(200)
	}
	// A replica that has never queried auth does not have an earlier response to use.
	if a := other.send(http.MethodGet, strings.Replace(playlist, w.base, other.base, 1), "").want(503); a.header.Get("Retry-After") == "" {
		t.Errorf("the response without auth has the header %v, want Retry-After", a.header)
	}
	w.apikeys.Away(false)
	other.send(http.MethodGet, strings.Replace(playlist, w.base, other.base, 1), "").want(200)
}

// A playback URL works only while its caller may read videos.
func TestACallerThatMayNotReadGetsNoAddressThatPlays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{"privacy":"password","password":"sesame"}`)
	session := w.member("mem_vera")
	for scopes, plays := range map[identity.ScopeSet]bool{identity.VideosWrite: false, identity.VideosWrite | identity.VideosRead: true} {
		w.apikeys.Edit(func(r *apikey.Record) bool { return r.MemberID == "mem_vera" }, func(r *apikey.Record) { r.Role, r.Scopes = identity.Member, scopes })
		var shown map[string]any
		eventually(t, "the scopes are known", func() bool {
			a := w.send(http.MethodPatch, "/api/v1/videos/"+v.id, `{"title":"New"}`, header("Authorization", "Bearer "+session))
			if a.status != 200 {
				return false
			}
			shown, _ = a.json()["video"].(map[string]any)
			return (shown["playbackUrl"] != nil) == plays
		})
		if (shown["downloadUrl"] != nil) != plays {
			t.Errorf("downloadUrl with the scopes %v = %v, want a URL only with permission to read videos", scopes, shown["downloadUrl"])
		}
	}
}
