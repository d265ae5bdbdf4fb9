package firestore_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gc "cloud.google.com/go/firestore"
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	bolt "go.etcd.io/bbolt"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

// clock is a clock that tests can advance.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func TestOpenKeepsDocumentsOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data.db")
	s := open(t, firestore.Options{Path: path})
	c := client(t, s)
	r := set(t, c, "k/a", fields{"n": 1})
	must(t, s.Close())
	c = client(t, open(t, firestore.Options{Path: path}))
	wantFields(t, c, "k/a", fields{"n": int64(1)})
	wantEqual(t, get(t, c, "k/a").UpdateTime, r.UpdateTime)
}

func TestOpenASecondTimeSaysThatTheFileIsInUse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data.db")
	open(t, firestore.Options{Path: path})
	_, err := firestore.Open(firestore.Options{Path: path})
	if err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("Open = %v, want an error saying that the file is in use", err)
	}
}

func TestOpenRefusesAFileOfANewerVersion(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data.db")
	must(t, open(t, firestore.Options{Path: path}).Close())
	db, err := bolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte{0, 0, 0, 99}) }))
	must(t, db.Close())
	_, err = firestore.Open(firestore.Options{Path: path})
	if err == nil || !strings.Contains(err.Error(), "newer version (format 99, this program supports up to 1)") {
		t.Errorf("Open = %v, want an error saying that a newer version wrote the file", err)
	}
}

func TestOpenRefusesAFileThatIsSomethingElse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data.db")
	must(t, os.WriteFile(path, bytes.Repeat([]byte("no database"), 1000), 0o600))
	if _, err := firestore.Open(firestore.Options{Path: path}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("Open = %v, want an error with the path", err)
	}
}

func TestCloseEndsClientsAndListenersAndMayComeTwice(t *testing.T) {
	t.Parallel()
	s := open(t, firestore.Options{})
	c := client(t, s)
	it := c.Doc("k/a").Snapshots(ctxOf(t))
	_, err := it.Next()
	must(t, err)
	must(t, s.Close())
	must(t, s.Close())
	if _, err := s.Client(t.Context(), "p"); err == nil {
		t.Error("Client on a closed server succeeded, want an error")
	}
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s, err := firestore.Open(firestore.Options{Path: filepath.Join(t.TempDir(), "data.db")})
	must(t, err)
	_, err = s.Listen("127.0.0.1:0")
	must(t, err)
	c, err := s.Client(context.Background(), "linkreel")
	must(t, err)
	set(t, c, "k/a", fields{"n": 1})
	it := c.Collection("k").Snapshots(context.Background())
	wantNext(t, it, "a", "added a")
	must(t, s.Close())
	it.Stop()
	goleak.VerifyNone(t, before)
}

func TestDatabasesAreKeptApart(t *testing.T) {
	t.Parallel()
	s := open(t, firestore.Options{})
	one, err := s.Client(t.Context(), "one")
	must(t, err)
	two, err := s.Client(t.Context(), "two")
	must(t, err)
	set(t, one, "k/a", fields{"n": 1})
	wantMissing(t, two, "k/a")
	wantIDs(t, two.CollectionGroup("k").Query, "")
}

func TestReadTime(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s := open(t, firestore.Options{Clock: clk.now})
	c := client(t, s)
	seed(t, c, map[string]fields{"a": {"n": 1}, "b": {"n": 2}})
	at := get(t, c, "k/a").ReadTime
	clk.move(time.Second)
	seed(t, c, map[string]fields{"a": {"n": 5}, "c": {"n": 0}})
	_, err := c.Doc("k/b").Delete(ctxOf(t))
	must(t, err)

	t.Run("queries return an earlier state", func(t *testing.T) {
		q := c.Collection("k").OrderBy("n", gc.Asc)
		wantIDs(t, q, "c a")
		docs, err := q.WithReadOptions(gc.ReadTime(at)).Documents(ctxOf(t)).GetAll()
		must(t, err)
		wantEqual(t, ids(docs), "a b")
	})
	t.Run("reads of documents return an earlier state", func(t *testing.T) {
		d, err := c.Doc("k/b").WithReadOptions(gc.ReadTime(at)).Get(ctxOf(t))
		must(t, err)
		wantEqual(t, d.Data(), fields{"n": int64(2)})
	})
	t.Run("a time in the future returns InvalidArgument", func(t *testing.T) {
		_, err := c.Doc("k/b").WithReadOptions(gc.ReadTime(clk.now().Add(time.Hour))).Get(ctxOf(t))
		wantCode(t, err, codes.InvalidArgument)
	})
	t.Run("a time that is too long ago returns FailedPrecondition", func(t *testing.T) {
		clk.move(2 * time.Minute)
		set(t, c, "k/d", fields{})
		_, err := c.Doc("k/b").WithReadOptions(gc.ReadTime(at)).Get(ctxOf(t))
		wantCode(t, err, codes.FailedPrecondition)
	})
}

func TestAFailedWipeForgetsOnlyEarlierStates(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s := open(t, firestore.Options{Clock: clk.now})
	c := client(t, s)
	set(t, c, "k/a", fields{"n": 1})
	at := get(t, c, "k/a").ReadTime
	clk.move(time.Second)
	s.Faults().Add(firestore.Fault{DiskFull: true, Times: 1})
	wantCode(t, s.Wipe(t.Context()), codes.ResourceExhausted)
	set(t, c, "k/a", fields{"n": 2})
	d, err := c.Doc("k/a").WithReadOptions(gc.ReadTime(at)).Get(ctxOf(t))
	must(t, err)
	wantEqual(t, d.Data(), fields{"n": int64(1)})
}

func TestEveryReadRejectsABadFieldMask(t *testing.T) {
	t.Parallel()
	s := newSession(t, firestore.Options{})
	must(t, s.write(nil, "a", 1))
	bad := &pb.DocumentMask{FieldPaths: []string{"n", "a..b"}}
	_, err := s.GetDocument(ctxOf(t), &pb.GetDocumentRequest{Name: database + "/documents/k/a", Mask: bad})
	wantCode(t, err, codes.InvalidArgument)
	_, err = s.ListDocuments(ctxOf(t), &pb.ListDocumentsRequest{Parent: database + "/documents", CollectionId: "k", Mask: bad})
	wantCode(t, err, codes.InvalidArgument)
	stream, err := s.BatchGetDocuments(ctxOf(t), &pb.BatchGetDocumentsRequest{Database: database, Mask: bad})
	must(t, err)
	_, err = stream.Recv()
	wantCode(t, err, codes.InvalidArgument)
}

func TestDeleteExpired(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s := open(t, firestore.Options{Clock: clk.now, Indexes: indexes(t, declared), TTLInterval: -1})
	c := client(t, s)
	seed(t, c, map[string]fields{
		"past": {"expires": clk.now().Add(-time.Second)}, "future": {"expires": clk.now().Add(time.Hour)},
		"text": {"expires": "2000-01-01"}, "null": {"expires": nil}, "none": {"x": 1},
	})
	set(t, c, "deep/a/k/past", fields{"expires": clk.now().Add(-time.Hour)})
	set(t, c, "other/past", fields{"expires": clk.now().Add(-time.Hour)})
	wantFields(t, c, "k/past", fields{"expires": clk.now().Add(-time.Second)}) // expired documents are readable until they are deleted

	n, err := s.DeleteExpired(t.Context())
	must(t, err)
	wantEqual(t, n, 2)
	wantIDs(t, c.Collection("k").Query, "future none null text")
	wantIDs(t, c.Collection("other").Query, "past")
	wantMissing(t, c, "deep/a/k/past")

	clk.move(2 * time.Hour)
	it := c.Collection("k").Where("expires", ">", time.Time{}).Snapshots(ctxOf(t))
	defer it.Stop()
	wantNext(t, it, "future", "added future")
	n, err = s.DeleteExpired(t.Context())
	must(t, err)
	wantEqual(t, n, 1)
	wantNext(t, it, "", "removed future")
	must(t, firestore.CheckConsistency(s))
}

func TestDeleteExpiredInManyRounds(t *testing.T) {
	t.Parallel()
	s := open(t, firestore.Options{Indexes: indexes(t, declared), TTLInterval: -1})
	c := client(t, s)
	for range 3 {
		b := c.Batch() //nolint:staticcheck // the atomic batch
		for range 450 {
			b.Set(c.Collection("k").NewDoc(), fields{"expires": time.Now().Add(-time.Minute)})
		}
		_, err := b.Commit(ctxOf(t))
		must(t, err)
	}
	n, err := s.DeleteExpired(t.Context())
	must(t, err)
	wantEqual(t, n, 1350)
	wantIDs(t, c.Collection("k").Query, "")
}

func TestExportAndWipe(t *testing.T) {
	t.Parallel()
	s := open(t, firestore.Options{Path: filepath.Join(t.TempDir(), "data.db"), Indexes: indexes(t, declared)})
	c := client(t, s)
	seed(t, c, map[string]fields{"a": {"n": 1, "g": "x", "t": []any{1}}, "b": {"s": "<ü>", "m": fields{"deep": nil}}})
	set(t, c, "k/a/s/c", fields{"bytes": []byte{0, 1}})
	var first bytes.Buffer
	must(t, s.Export(t.Context(), &first))
	lines := strings.Split(strings.TrimSpace(first.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], `"integerValue":"1"`) || !strings.Contains(lines[0], `"createTime":"`) {
		t.Errorf("the export does not contain 3 documents with their times:\n%s", first.String())
	}
	must(t, s.Wipe(t.Context()))
	wantIDs(t, c.Collection("k").Query, "")
	wantEqual(t, collections(t, c.Collections(ctxOf(t))), "")
	must(t, firestore.CheckConsistency(s))
}

func TestWipeIsSeenByListeners(t *testing.T) {
	t.Parallel()
	s := open(t, firestore.Options{})
	c := client(t, s)
	seed(t, c, map[string]fields{"a": {}, "b": {}})
	it := c.Collection("k").Snapshots(ctxOf(t))
	defer it.Stop()
	wantNext(t, it, "a b", "added a, added b")
	must(t, s.Wipe(t.Context()))
	wantNext(t, it, "", "removed a, removed b")
	set(t, c, "k/c", fields{})
	wantNext(t, it, "c", "added c")
}

// TestReadsDoNotWaitForTheDisk pauses a commit just before its sync and reads while it is paused.
func TestReadsDoNotWaitForTheDisk(t *testing.T) {
	t.Parallel()
	s := open(t, firestore.Options{Path: filepath.Join(t.TempDir(), "data.db")})
	c := client(t, s)
	set(t, c, "k/a", fields{"n": 1})
	reached, goOn := firestore.HoldCommits(s)
	done := make(chan error, 1)
	go func() {
		_, err := c.Doc("k/a").Set(context.Background(), fields{"n": 2})
		done <- err
	}()
	<-reached
	wantFields(t, c, "k/a", fields{"n": int64(1)}) // not on disk yet, so not visible yet
	wantIDs(t, c.Collection("k").Where("n", "==", 1), "a")
	goOn()
	must(t, <-done)
	wantFields(t, c, "k/a", fields{"n": int64(2)})
}

func TestGroupCommitSharesASyncAmongWaitingCommits(t *testing.T) {
	t.Parallel()
	s := open(t, firestore.Options{Path: filepath.Join(t.TempDir(), "data.db")})
	c := client(t, s)
	reached, goOn := firestore.HoldCommits(s)
	var wg sync.WaitGroup
	commit := func(i int) {
		if _, err := c.Doc(fmt.Sprint("k/", i)).Create(context.Background(), fields{}); err != nil {
			t.Error(err)
		}
	}
	wg.Go(func() { commit(0) })
	<-reached
	for i := range 20 {
		wg.Go(func() { commit(i + 1) })
	}
	firestore.WaitForQueue(s, 20)
	goOn()
	wg.Wait()
	if n := s.Stats().Batches; n != 2 {
		t.Errorf("21 commits were written in %d batches, want 2", n)
	}
}

// TestListenResumes checks that a client that reconnects with a resume token receives only the
// changes since that token.
func TestListenResumes(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s := open(t, firestore.Options{Clock: clk.now})
	c := client(t, s)
	seed(t, c, map[string]fields{"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}})
	query := &pb.Target_QueryTarget{
		Parent: "projects/linkreel/databases/(default)/documents",
		QueryType: &pb.Target_QueryTarget_StructuredQuery{StructuredQuery: &pb.StructuredQuery{
			From: []*pb.StructuredQuery_CollectionSelector{{CollectionId: "k"}},
		}},
	}
	rpc := raw(t, s)
	first := listen(t, rpc, &pb.Target{TargetId: 7, TargetType: &pb.Target_Query{Query: query}})
	wantEqual(t, first.events, "add; change a; change b; change c; current")
	seed(t, c, map[string]fields{"b": {"n": 5}, "d": {"n": 6}})
	_, err := c.Doc("k/a").Delete(ctxOf(t))
	must(t, err)
	resumed := &pb.Target{TargetId: 7, TargetType: &pb.Target_Query{Query: query}, ResumeType: &pb.Target_ResumeToken{ResumeToken: first.token}}
	wantEqual(t, listen(t, rpc, resumed).events, "add; change b; change d; delete a; current")
	wantEqual(t, listen(t, rpc, &pb.Target{
		TargetId: 7, TargetType: &pb.Target_Query{Query: query}, ResumeType: &pb.Target_ReadTime{ReadTime: timestamppb.New(clk.now())},
	}).events, "add; change b; change d; delete a; current")

	clk.move(time.Hour)
	set(t, c, "k/d", fields{"n": 7})
	wantEqual(t, listen(t, rpc, resumed).events, "add; reset; change b; change c; change d; current")
}

func TestListenFollowsSeveralTargetsOnOneStream(t *testing.T) {
	t.Parallel()
	s := open(t, firestore.Options{})
	c := client(t, s)
	set(t, c, "k/a", fields{"n": 1})
	target := func(id int32, collection string) *pb.Target {
		return &pb.Target{TargetId: id, TargetType: &pb.Target_Query{Query: &pb.Target_QueryTarget{
			Parent: "projects/linkreel/databases/(default)/documents",
			QueryType: &pb.Target_QueryTarget_StructuredQuery{StructuredQuery: &pb.StructuredQuery{
				From: []*pb.StructuredQuery_CollectionSelector{{CollectionId: collection}},
			}},
		}}}
	}
	l := listen(t, raw(t, s), target(1, "k"))
	l.add(t, target(2, "other"))
	wantEqual(t, l.until(t, "current"), "snapshot; add; current")
	set(t, c, "other/x", fields{})
	wantEqual(t, l.until(t, "snapshot"), "snapshot; change x for 2; snapshot")
	must(t, l.stream.Send(&pb.ListenRequest{TargetChange: &pb.ListenRequest_RemoveTarget{RemoveTarget: 2}}))
	wantEqual(t, l.until(t, "remove"), "remove")
	set(t, c, "other/y", fields{})
	set(t, c, "k/b", fields{})
	wantEqual(t, l.until(t, "snapshot"), "change b for 1; snapshot")
	l.add(t, target(3, ""))
	wantEqual(t, l.until(t, "remove"), "remove") // this query cannot be listened to
	set(t, c, "k/c", fields{})
	wantEqual(t, l.until(t, "snapshot"), "change c for 1; snapshot")
}

// listener describes the events on a Listen stream as text.
type listener struct {
	stream pb.Firestore_ListenClient
	events string
	token  []byte
}

// listen follows one target until it is current.
func listen(t *testing.T, c pb.FirestoreClient, target *pb.Target) *listener {
	t.Helper()
	stream, err := c.Listen(ctxOf(t))
	must(t, err)
	l := &listener{stream: stream}
	l.add(t, target)
	l.events = l.until(t, "current")
	return l
}

func (l *listener) add(t *testing.T, target *pb.Target) {
	t.Helper()
	must(t, l.stream.Send(&pb.ListenRequest{
		Database: "projects/linkreel/databases/(default)", TargetChange: &pb.ListenRequest_AddTarget{AddTarget: target},
	}))
}

func (l *listener) until(t *testing.T, last string) string {
	t.Helper()
	var out []string
	seen := false
	for !seen {
		r, err := l.stream.Recv()
		must(t, err)
		var e string
		switch x := r.GetResponseType().(type) {
		case *pb.ListenResponse_TargetChange:
			e = []string{"snapshot", "add", "remove", "current", "reset"}[x.TargetChange.GetTargetChangeType()]
			if tok := x.TargetChange.GetResumeToken(); tok != nil {
				l.token = tok
			}
			seen = e == last && (e != "snapshot" || len(out) > 0 && strings.HasPrefix(out[len(out)-1], "change"))
		case *pb.ListenResponse_DocumentChange:
			e = "change " + lastSegment(x.DocumentChange.GetDocument().GetName())
			if last == "snapshot" {
				e += fmt.Sprintf(" for %d", x.DocumentChange.GetTargetIds()[0])
			}
		case *pb.ListenResponse_DocumentDelete:
			e = "delete " + lastSegment(x.DocumentDelete.GetDocument())
		case *pb.ListenResponse_DocumentRemove:
			e = "remove " + lastSegment(x.DocumentRemove.GetDocument())
		}
		out = append(out, e)
	}
	return strings.Join(out, "; ")
}

func lastSegment(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
