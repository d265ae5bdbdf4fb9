package record_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/quota"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	local "github.com/linkreel/linkreel/services/localcloud/firestore"
)

// folder is a simple kind of record.
type folder struct {
	ID, Account, Name string
	Created, Due      time.Time
	Stored            time.Time
}

type folderDoc struct {
	Account string      `firestore:"accountId"`
	Name    string      `firestore:"name"`
	Created time.Time   `firestore:"createdAt"`
	Due     *record.Due `firestore:"due,omitempty"`
}

var errAbsent = errors.New("no such folder")

// Events must have a known type, so these folders use the types for links.
var folders = record.Kind[folder]{
	Collection: "folders", Object: "link",
	Of:  func(f *folder) (string, string) { return f.ID, f.Account },
	Doc: func(f *folder) any { return folderDoc{f.Account, f.Name, f.Created, record.DueAt(f.ID, f.Due)} },
	From: firestoredb.Reader(func(snap firestoredb.Snap, d *folderDoc) *folder {
		return &folder{snap.Ref.ID, d.Account, d.Name, d.Created, d.Due.Time(), snap.UpdateTime}
	}),
	Absent: func() error { return errAbsent },
	Shown:  func(f *folder) any { return map[string]string{"id": f.ID, "name": f.Name} },
	Order:  func(a, b *folder) int { return b.Created.Compare(a.Created) },
	Limit:  &record.Limit{Kind: "folders", Full: func(int64) error { return apierr.New(apierr.QuotaExceeded, "full") }},
	Beside: func(tx *record.Tx, _, after *folder) {
		if after != nil {
			tx.Announce(after.ID)
		}
	},
}

type world struct {
	*record.Kept[folder]
	db        *record.DB
	server    *local.Server
	set       *record.Set
	now       time.Time
	mu        sync.Mutex
	announced []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cloud := cloudtest.Start(t, cloudtest.Options{})
	db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: cloudtest.Project, Endpoint: cloud.Endpoint, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	w := &world{server: cloud.Firestore, now: time.Now().UTC().Truncate(time.Microsecond)}
	w.db = record.Open(db, record.Options{
		Outbox: outbox.New(db, nil, nil), Now: func() time.Time { return w.now },
		Announce: func(_ context.Context, keys ...string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.announced = append(w.announced, keys...)
		},
	})
	w.Kept = record.Keep(w.db, folders)
	w.set = w.db.Set(w.Kept, record.Traces{DB: w.db, Collection: "folderNames"})
	return w
}

func (w *world) make(t *testing.T, n int) *folder {
	t.Helper()
	f := &folder{ID: fmt.Sprintf("fld_%03d", n), Account: "acc_a", Name: fmt.Sprint(n), Created: w.now.Add(time.Duration(n) * time.Second), Due: w.now}
	f, err := w.Create(t.Context(), f, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// told returns the types of all events.
func (w *world) told(t *testing.T) (types []string) {
	t.Helper()
	snaps, err := w.db.Query(t.Context(), "list events", w.db.Collection(outbox.Collection).OrderBy("order", 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, snap := range snaps {
		what, _ := snap.DataAt("type")
		types = append(types, what.(string))
	}
	return types
}

func (w *world) spoil(t *testing.T, id string) {
	t.Helper()
	_, err := w.Ref(id).Set(t.Context(), map[string]any{"accountId": "acc_a", "name": 7, "due": record.DueAt(id, w.now)})
	if err != nil {
		t.Fatal(err)
	}
}

func TestARecordOfAnotherAccountIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.make(t, 1)
	if got, err := w.Get(t.Context(), "acc_a", f.ID); err != nil || got.Name != "1" {
		t.Errorf("Get for a new folder = %v, %v, want the folder with the name 1", got, err)
	}
	quiet := func(*folder) (events.Type, error) { return events.Quiet, nil }
	for account, id := range map[string]string{"acc_b": f.ID, "acc_a": "fld_none", "acc_c": "__x__/..", "acc_d": ""} {
		_, err := w.Get(t.Context(), account, id)
		_, changed := w.Change(t.Context(), account, id, quiet)
		deleted := w.Delete(t.Context(), account, id, func(*folder) error { return nil })
		if !errors.Is(err, errAbsent) || !errors.Is(changed, errAbsent) || !errors.Is(deleted, errAbsent) {
			t.Errorf("%s in %s: Get = %v, Change = %v, Delete = %v; want errAbsent from each", id, account, err, changed, deleted)
		}
	}
}

func TestEachChangeIsOneCommitWithItsEventAndIsAnnouncedAfterIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.make(t, 1)
	rename := func(t events.Type) func(*folder) (events.Type, error) {
		return func(f *folder) (events.Type, error) { f.Name += "x"; return t, nil }
	}
	for _, what := range []events.Type{events.LinkUpdated, events.Quiet} {
		if _, err := w.Change(t.Context(), f.Account, f.ID, rename(what)); err != nil {
			t.Fatal(err)
		}
	}
	commits := w.server.Stats().Calls["Commit"]
	if got, err := w.Change(t.Context(), f.Account, f.ID, rename("")); err != nil || got.Name != "1xxx" {
		t.Errorf("Change without a change = %v, %v, want the record as stored", got, err)
	}
	if n := w.server.Stats().Calls["Commit"]; n != commits {
		t.Error("a change without writes was committed, want no commit")
	}
	refused := errors.New("refused")
	if err := w.Delete(t.Context(), f.Account, f.ID, func(*folder) error { return refused }); !errors.Is(err, refused) {
		t.Error(err)
	}
	if err := w.Delete(t.Context(), f.Account, f.ID, func(f *folder) error {
		if f.Name != "1xx" {
			return fmt.Errorf("stored name = %q, want 1xx", f.Name)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if got := strings.Join(w.told(t), " "); got != "link.created link.updated link.deleted" {
		t.Errorf("events = %s, want link.created link.updated link.deleted", got)
	}
	if len(w.announced) != 3 { // one for each of create, update and delete
		t.Errorf("announced = %v, want three announcements", w.announced)
	}
}

func TestARepeatedCreateFindsWhatItsFirstTryMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, limit := range []int64{0, 1} {
		first := &folder{ID: fmt.Sprintf("fld_%d", limit), Account: fmt.Sprintf("acc_%d", limit), Name: "first"}
		second := *first
		second.Name = "second"
		for _, f := range []*folder{first, &second} {
			got, err := w.Create(t.Context(), f, limit)
			if err != nil || got.Name != "first" {
				t.Errorf("Create again with the limit %d = %v, %v, want the first record", limit, got, err)
			}
		}
		second.Account = "acc_other"
		if _, err := w.Create(t.Context(), &second, limit); !errors.Is(err, firestoredb.ErrExists) {
			t.Errorf("Create with the id of another account's record: got %v, want ErrExists", err)
		}
	}
	another := &folder{ID: "fld_another", Account: "acc_1"}
	if _, err := w.Create(t.Context(), another, 1); apierr.CodeOf(err) != apierr.QuotaExceeded {
		t.Errorf("Create above the limit: got %v, want QUOTA_EXCEEDED", err)
	}
}

func TestWhatCannotBeReadHidesNothingThatIsDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 40 {
		w.make(t, n)
	}
	for n := range 20 {
		w.spoil(t, fmt.Sprintf("fld_%03d", n))
	}
	due, err := w.Due(t.Context(), 100)
	if err == nil || len(due) != 20 {
		t.Errorf("Due returned %d records with error %v; want 20 and an error about the other records", len(due), err)
	}
	for _, f := range due[1:] {
		if err := w.PutOff(t.Context(), f.ID, time.Time{}, f.Stored); err != nil {
			t.Fatal(err)
		}
	}
	if due, err := w.Due(t.Context(), 1); err != nil || len(due) != 1 {
		t.Errorf("Due after setting aside the undecodable records: %d records, error %v; want 1 and no error", len(due), err)
	}
	if err := w.PutOff(t.Context(), due[0].ID, time.Time{}, due[1].Stored.Add(-time.Second)); err != nil {
		t.Errorf("PutOff for a record that has changed since it was read: got %v, want no error", err)
	}
	w.now = w.now.Add(2 * time.Hour)
	if due, err := w.Due(t.Context(), 100); err == nil || len(due) != 1 {
		t.Errorf("Due two hours later: %d records, error %v; want 1 and an error", len(due), err)
	}
}

// A database that answers queries but rejects writes, for example because its disk is full, must
// not cause an endless loop of queries for the same page.
func TestWhatCannotBeSetAsideIsNotLookedForWithoutEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.make(t, 1)
	w.spoil(t, "fld_001")
	w.server.Faults().Add(local.Fault{Methods: []string{"Commit"}, Code: codes.PermissionDenied})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if due, err := w.Due(ctx, 1); err == nil || ctx.Err() != nil || len(due) != 0 {
		t.Errorf("Due returned %d records with error %v, want 0 and an error before the deadline", len(due), err)
	}
}

func TestAnAccountLeavesWithAllThatItHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 150 {
		w.make(t, n)
	}
	other := &folder{ID: "fld_other", Account: "acc_b", Name: "other"}
	if _, err := w.Create(t.Context(), other, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := w.db.Collection("folderNames").Doc("x").Set(t.Context(), map[string]any{"accountId": "acc_a"}); err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	if err := w.set.Export(t.Context(), "acc_a", &lines); err != nil {
		t.Error(err)
	}
	list := strings.Split(strings.TrimSpace(lines.String()), "\n")
	if len(list) != 150 || !slices.IsSorted(list) || list[0] != `{"type":"link","data":{"id":"fld_000","name":"0"}}` {
		t.Errorf("export has %d lines, the first is %s; want 150 sorted lines", len(list), list[0])
	}
	w.spoil(t, "fld_007")
	lines.Reset()
	if err := w.set.Export(t.Context(), "acc_a", &lines); err != nil {
		t.Error(err)
	}
	if all, err := w.All(t.Context(), "acc_a"); err != nil || len(all) != 149 {
		t.Errorf("All returned %d records with error %v; want only the decodable records", len(all), err)
	}
	named := `{"type":"unreadable","data":{"type":"link","id":"fld_007"}}` + "\n"
	if got := lines.String(); strings.Count(got, "\n") != 150 || !strings.Contains(got, named) {
		t.Errorf("export has %d lines, want all records and one line for the undecodable record", strings.Count(got, "\n"))
	}
	rounds := 0
	for more := true; more; rounds++ {
		var err error
		if more, err = w.set.Erase(t.Context(), "acc_a", 100); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := w.set.Remains(t.Context(), "acc_a"); err != nil || left || rounds != 2 {
		t.Errorf("after %d rounds: Remains = %v, %v, want false after two rounds", rounds, left, err)
	}
	if left, err := w.set.Remains(t.Context(), "acc_b"); err != nil || !left {
		t.Errorf("other account: Remains = %v, %v, want true", left, err)
	}
	if all, err := w.All(t.Context(), "acc_b"); err != nil || len(all) != 1 {
		t.Errorf("other account: All = %v, %v, want one record", all, err)
	}
}

func TestAChangeOfUnknownOutcomeIsAnnounced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.make(t, 1)
	w.announced = nil
	for err, want := range map[error]int{errors.New("connection lost"): 1, errAbsentCoded: 0} {
		w.announced = nil
		got := w.db.Tx(t.Context(), "fail", func(tx *record.Tx) error {
			tx.Announce("key")
			return err
		})
		if !errors.Is(got, err) || len(w.announced) != want {
			t.Errorf("after the error %v, Tx returned %v and announced %v; want the same error, and an announcement only if the outcome is unknown", err, got, w.announced)
		}
	}
}

var errAbsentCoded = apierr.New(apierr.LinkNotFound, "no such link")

// A set adds indexes to a file: due times and paged lists get an index, and fields are only indexed
// across accounts if the file lists that index.
func TestAKindBringsItsIndexes(t *testing.T) {
	t.Parallel()
	db := record.Open(nil, record.Options{})
	paged := folders
	paged.Paged = true
	set := db.Set(record.Keep(db, paged), record.Traces{DB: db, Collection: "folderNames"})
	const name = `{"collectionGroup":"folders","fieldPath":"name","indexes":[{"queryScope":"COLLECTION","order":"ASCENDING"}]}`
	indexes, err := local.ParseIndexes(set.Indexes([]byte(`{"indexes":[],"fieldOverrides":[` + name + `]}`)))
	if err != nil {
		t.Fatal(err)
	}
	want := "[{folders COLLECTION [{accountId ASCENDING } {createdAt DESCENDING }]} {folders COLLECTION [{due.bucket ASCENDING } {due.at ASCENDING }]}]"
	if got := fmt.Sprint(indexes.Composite); got != want {
		t.Errorf("composite indexes = %v, want %v", got, want)
	}
	got := map[string]int{}
	for _, o := range indexes.Overrides {
		got[o.CollectionGroup+"."+o.FieldPath] = len(o.Indexes)
	}
	if want := map[string]int{"folders.accountId": 1, "folders.name": 1, "folders.createdAt": 0, "folders.due": 0}; !maps.Equal(got, want) {
		t.Errorf("single-field indexes = %v, want %v", got, want)
	}
}

// An attempt may find that another process has created the records for which the previous attempt
// needed slots. This attempt has not read the ledger and must not write it, because a write would
// lose the slots that were leased in the meantime.
func TestATryThatAsksForNoRoomLeavesTheLedger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := record.Keep(record.Open(w.db.DB, record.Options{Outbox: outbox.New(w.db.DB, nil, nil)}), folders)
	f := &folder{ID: "fld_001", Account: "acc_a", Name: "first", Created: w.now}
	ledger := func() any {
		snap, err := w.db.Collection(quota.Collection).Doc("acc_a~folders").Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return snap.Data()["state"]
	}
	var want any
	tries := 0
	err := w.db.Tx(t.Context(), "put", func(tx *record.Tx) error {
		tries++
		in := w.In(tx)
		found, err := in.GetAll(f.ID)
		if err != nil {
			return err
		}
		if found[0] != nil {
			after := *found[0]
			after.Name = "second"
			return in.Put(found[0], &after, events.LinkUpdated)
		}
		if err := in.Room(f.Account, 1000, 1); err != nil {
			return err
		}
		if _, err := other.Create(t.Context(), f, 1000); err != nil {
			return err
		}
		want = ledger()
		return in.Add(f, events.LinkCreated)
	})
	if err != nil || tries != 2 {
		t.Fatalf("%d attempts, error %v; want 2", tries, err)
	}
	if got := ledger(); got != want {
		t.Errorf("ledger = %v, want %v as written by the other process", got, want)
	}
	// The slots that the first attempt would have leased do not exist.
	if err := w.db.Tx(t.Context(), "create", func(tx *record.Tx) error { return w.In(tx).Room(f.Account, 1000, 1) }); err != nil {
		t.Error(err)
	}
}

// A request that panics gets a response, and the process continues. Other requests from the account
// must not wait for the slots that this request was about to lease.
func TestAChangeThatPanicsLeavesTheLedgerToOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the change did not panic, want a panic")
			}
		}()
		_ = w.db.Tx(t.Context(), "create", func(tx *record.Tx) error {
			if err := w.In(tx).Room("acc_a", 10, 1); err != nil {
				return err
			}
			panic("a defect")
		})
	}()
	f := &folder{ID: "fld_001", Account: "acc_a", Name: "first", Created: w.now}
	if _, err := w.Create(t.Context(), f, 10); err != nil {
		t.Error(err)
	}
}
