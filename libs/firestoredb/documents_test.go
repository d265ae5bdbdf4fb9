package firestoredb_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

func documents(t *testing.T) (*firestoredb.Documents, *cloudtest.Cloud) {
	t.Helper()
	cloud := cloudtest.Start(t, cloudtest.Options{})
	d, err := firestoredb.OpenDocuments(t.Context(), firestoredb.Config{Project: cloudtest.Project, Endpoint: cloud.Endpoint, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d, cloud
}

func put(d *firestoredb.Documents, path string, v *pb.Value) *pb.Write {
	return &pb.Write{Operation: &pb.Write_Update{Update: &pb.Document{Name: d.Name(path), Fields: map[string]*pb.Value{"v": v}}}}
}

func TestDocumentsPassUnchanged(t *testing.T) {
	t.Parallel()
	d, cloud := documents(t)
	values := map[string]*pb.Value{
		"a/nan":         {ValueType: &pb.Value_DoubleValue{DoubleValue: math.NaN()}},
		"a/ref":         {ValueType: &pb.Value_ReferenceValue{ReferenceValue: d.Name("a/nan")}},
		"a/ref/b/under": {ValueType: &pb.Value_BytesValue{BytesValue: []byte{0, 255}}},
		"z/null":        {ValueType: &pb.Value_NullValue{}},
	}
	var writes []*pb.Write
	for path, v := range values {
		writes = append(writes, put(d, path, v))
	}
	// The writes need more than one commit, and the response to one commit is lost.
	for i := range 2*firestoredb.MaxWrites + 1 {
		writes = append(writes, put(d, fmt.Sprintf("many/%d", i), &pb.Value{ValueType: &pb.Value_IntegerValue{IntegerValue: int64(i)}}))
	}
	defer cloud.Firestore.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, Times: 1, LoseAnswer: true, Code: codes.Internal})()
	defer cloud.Firestore.Faults().Add(firestore.Fault{Methods: []string{"RunQuery"}, Times: 1, Code: codes.Unavailable})()
	if err := d.Commit(t.Context(), writes...); err != nil {
		t.Fatal(err)
	}
	read := 0
	var names []string
	err := d.Each(t.Context(), 0, func(x *pb.Document) error {
		read++
		path := strings.TrimPrefix(x.GetName(), d.Name(""))
		if want, ok := values[path]; ok {
			names = append(names, path)
			if !proto.Equal(x.GetFields()["v"], want) {
				t.Errorf("document %s = %v, want %v", path, x.GetFields()["v"], want)
			}
		}
		return nil
	})
	if err != nil || read != len(writes) {
		t.Errorf("read %d of %d documents with error %v, want all", read, len(writes), err)
	}
	if got := strings.Join(names, " "); got != "a/nan a/ref a/ref/b/under z/null" {
		t.Errorf("Each returned the documents in the order %s, want them sorted by name", got)
	}
	if err := d.Each(t.Context(), 3, func(*pb.Document) error { read--; return nil }); err != nil || read != len(writes)-3 {
		t.Errorf("Each with a limit of 3 read %d documents with error %v, want 3 and no error", len(writes)-read, err)
	}
	stop := errors.New("stop")
	if err := d.Each(t.Context(), 0, func(*pb.Document) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("Each = %v, want the function's error", err)
	}
	if x, err := d.Get(t.Context(), "a/none"); x != nil || err != nil {
		t.Errorf("Get for a missing document = %v, %v, want nil", x, err)
	}
	if x, err := d.Get(t.Context(), "a/ref"); err != nil || !proto.Equal(x.GetFields()["v"], values["a/ref"]) {
		t.Errorf("Get(a/ref) = %v, %v, want the written value", x, err)
	}
}

// A rejected write does not prevent the other writes.
func TestACommitThatIsRefusedNamesTheDocument(t *testing.T) {
	t.Parallel()
	d, _ := documents(t)
	large := &pb.Value{ValueType: &pb.Value_StringValue{StringValue: strings.Repeat("x", 1<<20)}}
	err := d.Commit(t.Context(), put(d, "a/1", &pb.Value{ValueType: &pb.Value_BooleanValue{}}), put(d, "a/large", large), put(d, "a/2", &pb.Value{ValueType: &pb.Value_BooleanValue{}}))
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(fmt.Sprint(err), "a/large") {
		t.Fatalf("Commit with a document that is too large = %v, want InvalidArgument with the document's name", err)
	}
	for _, path := range []string{"a/1", "a/2"} {
		if x, err := d.Get(t.Context(), path); x == nil || err != nil {
			t.Errorf("Get(%s) = %v, %v, want the document", path, x, err)
		}
	}
}

func TestADatabaseThatStaysAwayEndsPatience(t *testing.T) {
	t.Parallel()
	d, cloud := documents(t)
	d.Patience = 300 * time.Millisecond
	cloud.Firestore.Faults().Add(firestore.Fault{Code: codes.Internal})
	if _, err := d.Get(t.Context(), "a/1"); status.Code(err) != codes.Internal {
		t.Errorf("Get = %v, want Internal", err)
	}
}
