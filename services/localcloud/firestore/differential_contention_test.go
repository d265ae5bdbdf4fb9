package firestore_test

import (
	"strings"
	"testing"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/grpc/status"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

// TestDifferentialContention runs the same conflicting transactions on this server and on Google's
// emulator. Each step has the form "transaction action document", where "-" stands for a call
// outside a transaction.
func TestDifferentialContention(t *testing.T) {
	t.Parallel()
	theirs := startEmulator(t)
	server := open(t, firestore.Options{})
	ours := raw(t, server)
	// Writes concurrent with a query are not compared. The emulator locks the query's whole
	// collection. This server locks the documents in the result, and it aborts the transaction if a
	// new document would have matched the query. See TestContention.
	for _, story := range []string{
		"- write a; 1 read a; - write a; 1 write a; - write a",
		"- write a; 1 read a; 2 read a; - read a; 1 rollback; 2 write a",
		"1 read a; - write a; 1 write b",
		"1 read a; 1 rollback; - write a; 1 write a",
		"- write a; 1 find; - write a; 1 write b",
		"- write a; 1 read a; 2 read a; 1 write a; 2 write a",
		"- write a; 1 read a; 2 read b; 1 write c; 2 write d",
		"1 read a; 2 write b; 1 write b",
		"1 write a; 1 write a",
		"1 rollback; 1 rollback; 1 read a",
	} {
		t.Run(story, func(t *testing.T) {
			if a, b := tell(&session{t, ours, server}, story), tell(&session{t, theirs, nil}, story); a != b {
				t.Errorf("the codes of the steps differ:\nours   %s\ntheirs %s", a, b)
			}
		})
	}
}

// tell runs the steps of a story and returns the status code of each.
func tell(s *session, story string) string {
	s.t.Helper()
	for _, id := range []string{"a", "b", "c", "d", "other"} {
		_, err := s.Commit(ctxOf(s.t), &pb.CommitRequest{Database: database, Writes: []*pb.Write{{Operation: &pb.Write_Delete{Delete: getRequest(id).GetName()}}}})
		must(s.t, err)
	}
	open := map[string][]byte{"-": nil}
	var out []string
	for step := range strings.SplitSeq(story, "; ") {
		f := strings.Fields(step)
		tx, begun := open[f[0]]
		if !begun {
			tx = s.begin()
			open[f[0]] = tx
		}
		var err error
		switch f[1] {
		case "read":
			err = s.read(tx, f[2])
		case "find":
			s.find(tx)
		case "write":
			err = s.write(tx, f[2], 1+int64(len(out)))
		case "rollback":
			_, err = s.Rollback(ctxOf(s.t), &pb.RollbackRequest{Database: database, Transaction: tx})
		}
		out = append(out, step+" "+status.Code(err).String())
	}
	for who, tx := range open {
		if who != "-" {
			_, _ = s.Rollback(ctxOf(s.t), &pb.RollbackRequest{Database: database, Transaction: tx})
		}
	}
	return strings.Join(out, "; ")
}
