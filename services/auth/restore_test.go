package auth_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/restored"
	"github.com/linkreel/linkreel/libs/trail"
	"github.com/linkreel/linkreel/services/auth"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

// notes returns the notes in the replica's trail, and the problems found while reading it.
func (r replica) notes(cfg auth.Config) (notes []trail.Note, problems []string) {
	r.t.Helper()
	found, err := trail.Read(r.t.Context(), trail.Folder(cfg.AuditDir), time.Time{})
	if err != nil {
		r.t.Fatal(err)
	}
	db, err := firestoredb.Open(r.t.Context(), cfg.Firestore)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	id, err := db.Installation(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	notes, others := found.Of(id)
	return notes, append(found.Problems, others...)
}

// This test revokes a key while the trail's folder is missing.
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
	want(t, r.api("DELETE", path, key, ""), 503, "UNAVAILABLE") // the key is revoked, but the trail does not contain the note yet
	if err := os.Mkdir(cfg.AuditDir, 0o700); err != nil {
		t.Fatal(err)
	}
	want(t, r.api("DELETE", path, key, ""), 204, "")
	notes, problems := r.notes(cfg)
	if len(problems) > 0 || len(notes) != 1 || notes[0].Kind != trail.KeyRevoked || notes[0].ID != victim.field(t, "id") {
		t.Errorf("the trail contains notes %v and problems %v, want one revocation note for key %s and no problems", notes, problems, victim.field(t, "id"))
	}
}

// This test renames an account and creates a key while the trail's folder is missing. Only the
// suspension must fail.
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

// This test applies notes that this installation could not have written, and notes that would grant
// rights.
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
	// EndAgain must report the unknown role, the account that was resumed, the unknown kind,
	// the only owner, and five damaged notes. Its last sentence says how many notes were damaged.
	if len(said) != 10 || !strings.HasPrefix(said[9], "5 of 15 notes were not applied.") {
		t.Errorf("EndAgain reported %d sentences, want 10 with the number of damaged notes: %q", len(said), said)
	}
	if after := r.admin("GET", "/admin/v1/accounts/"+id, "").body; string(after) != string(before) {
		t.Errorf("the account is %s, want it unchanged: %s", after, before)
	}
	want(t, r.api("GET", "/api/v1/account", key, ""), 403, "ACCOUNT_SUSPENDED")
}

// copyTo copies all documents in the world's database into another world's empty database, the way
// Google's restore does.
func (c world) copyTo(t *testing.T, to world) {
	t.Helper()
	all, err := c.Client(t).Collections(t.Context()).GetAll()
	if err != nil {
		t.Fatal(err)
	}
	target := to.Client(t)
	for _, collection := range all {
		docs, err := collection.Documents(t.Context()).GetAll()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range docs {
			if _, err := target.Collection(collection.ID).Doc(d.Ref.ID).Create(t.Context(), d.Data()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// This test copies a database, revokes rights in the original, and then applies the trail in
// the bucket to the copy twice.
func TestARestoredDatabaseIsRecovered(t *testing.T) {
	t.Parallel()
	w, copied := newWorld(t), newWorld(t)
	media := cloudtest.Start(t, cloudtest.Options{Buckets: []string{"media"}})
	cfg := w.config()
	cfg.AuditBucket, cfg.Storage = "media", objectstore.Config{PublicURL: media.PublicURL, Endpoint: media.APIURL, Key: media.Key}
	r := start(t, cfg)
	id, key := r.account("creator")
	suspended, _ := r.account("creator")
	removed, lowered := r.join(id, "R", "admin"), r.join(id, "L", "admin")
	owner := r.join(id, "Owner", "owner")
	revoked := r.api("POST", "/api/v1/keys", key, `{"name":"victim"}`)
	w.copyTo(t, copied)
	since := time.Now()
	want(t, r.api("DELETE", "/api/v1/keys/"+revoked.field(t, "id"), key, ""), 204, "")
	want(t, r.api("DELETE", "/api/v1/members/"+removed.id, owner.session, ""), 204, "")
	want(t, r.api("PATCH", "/api/v1/members/"+lowered.id, owner.session, `{"role":"viewer"}`), 200, "")
	want(t, r.admin("PATCH", "/admin/v1/accounts/"+suspended, `{"suspended":true}`), 200, "")

	db, err := firestoredb.Open(t.Context(), copied.config().Firestore)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	store, done, err := cfg.Audit.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = done() }()
	var record restored.Record
	for n, wanted := range []int{4, 0} {
		var said []string
		if err := auth.Recover(t.Context(), auth.Recovery{DB: db, Trail: store, Since: since, Tell: func(s string) { said = append(said, s) }}); err != nil {
			t.Fatal(err)
		}
		now, err := restored.Read(t.Context(), db)
		if err != nil || now.ID == "" || !now.WebhooksPaused() || !now.JanitorPaused() || record.ID != "" && now.ID != record.ID {
			t.Errorf("after run %d, the record is %+v (error %v), want the same ID after each run, with webhooks and the janitor paused", n+1, now, err)
		}
		record = now
		told := strings.Join(said, "\n")
		for _, of := range []string{revoked.field(t, "id"), removed.id, lowered.id, suspended} {
			if (wanted > 0) != strings.Contains(told, of) {
				t.Errorf("run %d reported %q, want it to mention %s: %t", n+1, told, of, wanted > 0)
			}
		}
		if len(said) != 4+wanted || !strings.Contains(told, "notes about 4 records") || !strings.Contains(told, "Later changes to passwords, passkeys, access rules") {
			t.Errorf("run %d reported %q, want %d sentences that mention 4 records and the lost changes", n+1, said, 4+wanted)
		}
	}
	again := start(t, copied.config())
	want(t, again.api("GET", "/api/v1/account", revoked.field(t, "key"), ""), 401, "API_KEY_REVOKED")
	want(t, again.api("GET", "/api/v1/account", lowered.session, ""), 401, "INVALID_API_KEY") // a restore ends all sessions
	want(t, again.api("GET", "/api/v1/account", key, ""), 200, "")
	want(t, again.api("GET", "/api/v1/account", owner.session, ""), 401, "INVALID_API_KEY")
	members, err := copied.Client(t).Collection("members").Documents(t.Context()).GetAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		if m.Ref.ID == removed.id || m.Ref.ID == lowered.id && m.Data()["role"] != "viewer" {
			t.Errorf("member %s is %v, want %s removed and %s with the viewer role", m.Ref.ID, m.Data(), removed.id, lowered.id)
		}
	}
	if got := again.admin("GET", "/admin/v1/accounts/"+suspended, "").field(t, "suspended"); got != "true" {
		t.Errorf("the account's suspended field is %s, want true", got)
	}
	if err := auth.Recover(t.Context(), auth.Recovery{DB: firestoredb.Use(newWorld(t).Client(t), 10*time.Second), Tell: func(string) {}}); !errors.Is(err, auth.ErrEmpty) {
		t.Errorf("Recover returned %v for an empty database, want ErrEmpty", err)
	}
}

// After a restore, a key that was rolled with an overlap after the backup must expire at the
// same time as before.
func TestARolledKeyExpiresAfterARestore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := start(t, w.config())
	id, key := r.account("creator")
	rolled := r.api("POST", "/api/v1/keys", key, `{"name":"rolled"}`).field(t, "id")
	soon := time.Now().Add(time.Hour).UTC()
	ends := func(at time.Time) trail.Note {
		return trail.Note{Kind: trail.KeyExpires, Account: id, ID: rolled, To: at.Format(time.RFC3339)}
	}
	for _, c := range []struct {
		note  trail.Note
		lines int
	}{{ends(soon), 1}, {ends(soon), 0}, {ends(soon.Add(time.Hour)), 0}} { // a note never extends a key's lifetime
		var said []string
		err := auth.EndAgain(t.Context(), firestoredb.Use(w.Client(t), 10*time.Second), []trail.Note{c.note}, func(line string) { said = append(said, line) })
		if err != nil || len(said) != c.lines {
			t.Errorf("EndAgain with %v returned %v and reported %q, want %d sentences", c.note, err, said, c.lines)
		}
		if got, want := r.api("GET", "/api/v1/keys/"+rolled, key, "").field(t, "expiresAt"), fmt.Sprint(float64(soon.Unix()*1000)); got != want {
			t.Errorf("after note %v, the key expires at %s, want %s", c.note, got, want)
		}
	}
}

// An unreadable account must not stop a restore: all other rights must still end.
func TestAnUnreadableAccountStopsNoRestore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	db := firestoredb.Use(w.Client(t), 10*time.Second)
	if _, err := db.Identity(t.Context()); err != nil { // as the first service to start does
		t.Fatal(err)
	}
	if _, err := w.Client(t).Collection("accounts").Doc("acc_broken").Set(t.Context(), map[string]any{"version": "x"}); err != nil {
		t.Fatal(err)
	}
	session := w.Client(t).Collection("sessions").Doc("some")
	if _, err := session.Set(t.Context(), map[string]any{"open": true}); err != nil {
		t.Fatal(err)
	}
	if err := auth.Recover(t.Context(), auth.Recovery{DB: db, Tell: func(string) {}}); err != nil {
		t.Fatal(err)
	}
	if _, err := session.Get(t.Context()); status.Code(err) != codes.NotFound {
		t.Errorf("reading a session after the restore returned %v, want not found", err)
	}
}

// Adding a member does not require a note. Raising a role does: an earlier note may contain a lower
// role. If the note cannot be written, the change is still made, but the response is 503.
func TestARightIsGivenWhileTheTrailIsAway(t *testing.T) {
	t.Parallel()
	cfg := newWorld(t).config()
	cfg.AuditDir = filepath.Join(t.TempDir(), "audit")
	r := start(t, cfg)
	id, _ := r.account("creator")
	owner := r.join(id, "Owner", "owner")
	if err := os.RemoveAll(cfg.AuditDir); err != nil {
		t.Fatal(err)
	}
	path := "/api/v1/members/" + r.join(id, "New", "viewer").id
	want(t, r.api("PATCH", path, owner.session, `{"role":"admin"}`), 503, "UNAVAILABLE")
	if members := string(r.api("GET", "/api/v1/members", owner.session, "").body); !strings.Contains(members, `"role":"admin"`) {
		t.Errorf("the members are %s, want one of them with the admin role", members)
	}
	if err := os.Mkdir(cfg.AuditDir, 0o700); err != nil {
		t.Fatal(err)
	}
	want(t, r.api("PATCH", path, owner.session, `{"role":"admin"}`), 200, "")
	if notes, _ := r.notes(cfg); len(notes) != 1 || notes[0].To != "admin" {
		t.Errorf("the trail contains notes %v, want one with the admin role", notes)
	}
}

// The first call takes the link down, but its note cannot be written yet. A repeated call must
// not succeed until the note has been written.
func TestARepeatedTakedownWaitsForTheTrail(t *testing.T) {
	t.Parallel()
	var cfg auth.Config
	dir := filepath.Join(t.TempDir(), "audit")
	r, h := beside(t, func(c *auth.Config, address string) {
		c.LinksURL, c.AuditDir = address, dir
		cfg = *c
	})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	const order = `{"linkId":"lnk_1","reason":"phishing"}`
	for range 2 {
		want(t, r.admin("POST", "/admin/v1/takedowns", order), 503, "UNAVAILABLE")
		h.set(func() {
			if len(h.takedowns) != 1 {
				t.Errorf("the holder has %d takedowns, want 1", len(h.takedowns))
			}
		})
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	made := r.admin("POST", "/admin/v1/takedowns", order)
	want(t, made, 201, "")
	if notes, _ := r.notes(cfg); len(notes) != 1 || notes[0].Kind != trail.TakenDown || notes[0].ID != made.field(t, "id") || notes[0].Record != "lnk_1" {
		t.Errorf("the trail contains notes %v, want takedown %s", notes, made.body)
	}
}

// revoked creates n keys. It returns the responses, and the notes that revoke these keys.
func (r replica) revoked(n int) (keys []answer, notes []trail.Note) {
	r.t.Helper()
	id, key := r.account("creator")
	for range n {
		k := r.api("POST", "/api/v1/keys", key, `{"name":"victim"}`)
		keys = append(keys, k)
		notes = append(notes, trail.Note{Kind: trail.KeyRevoked, Account: id, ID: k.field(r.t, "id")})
	}
	return keys, notes
}

// A restore must not succeed while revoked keys still work. A repeated restore must apply every
// note.
func TestARestoreFailsWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := start(t, w.config())
	keys, notes := r.revoked(3)
	notes = append([]trail.Note{{Kind: trail.KeyRevoked, ID: "../x"}}, notes...)
	var said []string
	tell := func(line string) { said = append(said, line) }
	answers := w.Firestore.Faults().Add(firestore.Fault{Code: codes.Unavailable})
	err := auth.EndAgainWithin(t.Context(), firestoredb.Use(w.Client(t), 200*time.Millisecond), notes, tell, time.Second)
	answers()
	if apierr.CodeOf(err) != apierr.Unavailable || !strings.Contains(err.Error(), "4 of 4 notes are not applied") || !strings.Contains(err.Error(), "repeat the restore") {
		t.Errorf("EndAgain without a database returned %v, want UNAVAILABLE and advice to repeat the restore", err)
	}
	if len(said) != 2 || !strings.HasPrefix(said[0], "Not applied:") || !strings.HasPrefix(said[1], "Not applied yet:") {
		t.Errorf("EndAgain reported %q, want the damaged note and a retry for another note", said)
	}
	if err := auth.EndAgain(t.Context(), firestoredb.Use(w.Client(t), 10*time.Second), notes, tell); err != nil {
		t.Errorf("the repeated EndAgain returned %v, want no error", err)
	}
	for _, k := range keys {
		want(t, r.api("GET", "/api/v1/account", k.field(t, "key"), ""), 401, "API_KEY_REVOKED")
	}
}

func TestARestoreWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]codes.Code{"unavailable": codes.Unavailable, "contended": codes.Aborted, "slow": codes.DeadlineExceeded} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			r := start(t, w.config())
			keys, notes := r.revoked(2)
			answers := w.Firestore.Faults().Add(firestore.Fault{Code: code})
			var said []string
			err := auth.EndAgain(t.Context(), firestoredb.Use(w.Client(t), time.Second), notes, func(line string) {
				said = append(said, line)
				answers() // after the first failure
			})
			if err != nil || len(said) != 3 || !strings.HasPrefix(said[0], "Not applied yet:") {
				t.Errorf("EndAgain returned %v and reported %q, want nil, one retry and two revoked keys", err, said)
			}
			for _, k := range keys {
				want(t, r.api("GET", "/api/v1/account", k.field(t, "key"), ""), 401, "API_KEY_REVOKED")
			}
		})
	}
}

// One note is for a takedown in the backup. The other was written by a database whose clock is
// ahead.
func TestARestoredTakedownKeepsItsReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	list := w.Client(t).Collection("operatorTakedowns")
	at := time.UnixMilli(1_790_000_000_000).UTC()
	asked := map[string]any{"reason": "phishing", "at": at, "targetUrl": "https://go.example/x", "phase": "asked", "pending": true}
	if _, err := list.Doc("tkd_kept").Set(t.Context(), asked); err != nil {
		t.Fatal(err)
	}
	notes := []trail.Note{
		{Kind: trail.TakenDown, ID: "tkd_kept", Record: "lnk_1", To: "link", At: at.Add(time.Second)},
		{Kind: trail.TakenDown, ID: "tkd_lost", Record: "lnk_2", To: "link", At: time.Now().Add(time.Hour)},
	}
	if err := auth.EndAgain(t.Context(), firestoredb.Use(w.Client(t), 10*time.Second), notes, func(string) {}); err != nil {
		t.Fatal(err)
	}
	for id, reason := range map[string]string{"tkd_kept": "phishing", "tkd_lost": "Taken down before the data was restored from a backup. The reason is lost."} {
		snap, err := list.Doc(id).Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d := snap.Data(); d["reason"] != reason || d["phase"] != "asked" || d["pending"] != true || d["at"].(time.Time).After(time.Now()) {
			t.Errorf("takedown %s is %v, want reason %q, phase asked and a time in the past", id, d, reason)
		}
	}
}

// Two processes with different clocks change the same role. The later change must win.
func TestNotesHaveTheTimesOfTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := w.config()
	cfg.AuditDir = filepath.Join(t.TempDir(), "audit")
	fast := cfg
	fast.Now = func() time.Time { return time.Now().Add(time.Minute) } // not far enough ahead to end sessions
	a, b := start(t, cfg), start(t, fast)
	id, _ := a.account("creator")
	owner := a.join(id, "Owner", "owner")
	m := a.join(id, "M", "viewer")
	path := "/api/v1/members/" + m.id
	want(t, b.api("PATCH", path, owner.session, `{"role":"admin"}`), 200, "")
	want(t, b.api("PATCH", path, owner.session, `{"role":"admin"}`), 200, "") // does not change anything, but writes another note
	want(t, a.api("PATCH", path, owner.session, `{"role":"member"}`), 200, "")
	if notes, _ := a.notes(cfg); len(notes) != 1 || notes[0].To != "member" {
		t.Errorf("the trail contains notes %v, want one with the member role", notes)
	}
}

// This test applies a trail in which another installation has revoked a key that also exists
// here.
func TestATrailOfAnotherInstallationEndsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := start(t, w.config())
	id, key := r.account("creator")
	victim := r.api("POST", "/api/v1/keys", key, `{"name":"victim"}`)
	dir := t.TempDir()
	theirs := trail.Open(trail.Config{Store: trail.Folder(dir), Installation: func(context.Context) (string, error) { return "db_theirs", nil }})
	if err := theirs.Add(t.Context(), trail.Note{Kind: trail.KeyRevoked, Account: id, ID: victim.field(t, "id")}); err != nil {
		t.Fatal(err)
	}
	found, err := trail.Read(t.Context(), trail.Folder(dir), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	n, err := auth.ApplyTrail(t.Context(), firestoredb.Use(w.Client(t), 10*time.Second), found, func(line string) { said = append(said, line) })
	if err != nil || n != 0 || len(said) != 1 || !strings.Contains(said[0], `another installation ("db_theirs"`) {
		t.Errorf("ApplyTrail applied %d notes, reported %q and returned error %v, want 0 notes, one report about the other installation, and nil", n, said, err)
	}
	want(t, r.api("GET", "/api/v1/account", victim.field(t, "key"), ""), 200, "")
}
