package auth_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/trail"
	"github.com/linkreel/linkreel/services/auth"
)

// The test revokes a key while the trail's folder is missing.
func TestAnAnswerWaitsForTheTrail(t *testing.T) {
	t.Parallel()
	cfg := newWorld(t).config()
	cfg.AuditDir = filepath.Join(t.TempDir(), "audit")
	r := start(t, cfg)
	_, key := r.account("creator")
	victim := r.api("POST", "/api/v1/keys", key, `{"name":"victim"}`)
	path := "/api/v1/keys/" + victim.field(t, "id")
	if err := os.RemoveAll(cfg.AuditDir); err != nil {
		t.Fatal(err)
	}
	want(t, r.api("DELETE", path, key, ""), 503, "UNAVAILABLE")
	want(t, r.api("GET", "/api/v1/account", victim.field(t, "key"), ""), 401, "API_KEY_REVOKED")
	want(t, r.api("DELETE", path, key, ""), 503, "UNAVAILABLE") // the key is revoked, but the trail does not say so yet
	if err := os.Mkdir(cfg.AuditDir, 0o700); err != nil {
		t.Fatal(err)
	}
	want(t, r.api("DELETE", path, key, ""), 204, "")
	notes, problems, err := trail.Read(cfg.AuditDir)
	if err != nil || len(problems) > 0 || len(notes) != 1 || notes[0].Kind != trail.KeyRevoked || notes[0].ID != victim.field(t, "id") {
		t.Errorf("notes %v, problems %v, %v", notes, problems, err)
	}
}

// The test renames an account and makes a key while the trail's folder is missing.
func TestChangesThatEndNothingNeedNoTrail(t *testing.T) {
	t.Parallel()
	cfg := newWorld(t).config()
	cfg.AuditDir = filepath.Join(t.TempDir(), "audit")
	r := start(t, cfg)
	id, key := r.account("creator")
	if err := os.RemoveAll(cfg.AuditDir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"A", "B", "B"} {
		want(t, r.admin("PATCH", "/admin/v1/accounts/"+id, `{"name":"`+name+`"}`), 200, "")
	}
	want(t, r.api("POST", "/api/v1/keys", key, `{"name":"more"}`), 201, "")
	want(t, r.admin("PATCH", "/admin/v1/accounts/"+id, `{"suspended":true}`), 503, "UNAVAILABLE")
}

// The test applies notes that no trail of this installation can contain, and some that would
// give rights.
func TestNotesFromElsewhereGiveNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := start(t, w.config())
	id, key := r.account("creator")
	p := r.join(id, "Only", "owner")
	viewer := r.join(id, "V", "viewer")
	want(t, r.admin("PATCH", "/admin/v1/accounts/"+id, `{"suspended":true}`), 200, "")
	before := r.admin("GET", "/admin/v1/accounts/"+id, "").body
	var said []string
	notes := []trail.Note{
		{Kind: trail.KeyRevoked, Account: "acc_1", ID: "key_1"}, {Kind: trail.KeyRevoked, Account: id, ID: "../x"},
		{Kind: trail.MemberRemoved, Account: id, ID: "mem_1"}, {Kind: trail.MemberRemoved, Account: "acc_1", ID: p.id},
		{Kind: trail.MemberRole, Account: id, ID: viewer.id, To: "owner"}, {Kind: trail.MemberRole, Account: id, ID: viewer.id, To: "king"},
		{Kind: trail.AccountState, ID: "acc_1", To: "deleting"}, {Kind: trail.AccountState, ID: id, To: "active"},
		{Kind: trail.TakenDown, ID: "a/b", Record: "lnk_1", To: "link"}, {Kind: trail.TakenDown, ID: "tkd_2", Record: "a/b", To: "link"},
		{Kind: trail.TakenDown, ID: "tkd_3", To: "link"}, {Kind: trail.MemberRemoved, Account: "a/b", ID: "mem_1"},
		{Kind: trail.Lifted, ID: "tkd_1"}, {Kind: "x", ID: "y"}, {Kind: trail.MemberRemoved, Account: id, ID: p.id},
	}
	db := firestoredb.Use(w.Client(t), 10*time.Second)
	if err := auth.EndAgain(t.Context(), db, notes, func(line string) { said = append(said, line) }); err != nil {
		t.Fatal(err)
	}
	// The unknown role, the account that was resumed, the unknown kind, the only owner, and
	// five damaged notes.
	if len(said) != 9 {
		t.Errorf("EndAgain reported %q", said)
	}
	if after := r.admin("GET", "/admin/v1/accounts/"+id, "").body; string(after) != string(before) {
		t.Errorf("the account was %s and is %s", before, after)
	}
	want(t, r.api("GET", "/api/v1/account", key, ""), 403, "ACCOUNT_SUSPENDED")
}
