package firestoredb

import (
	"io"
	"strings"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/linkreel/linkreel/libs/metrics"
)

// operations maps the Firestore methods that Linkreel calls to their names in metrics.
var operations = map[string]string{
	"BatchGetDocuments": "get", "GetDocument": "get", "RunQuery": "query", "RunAggregationQuery": "count",
	"Commit": "commit", "BeginTransaction": "begin", "Rollback": "rollback",
}

// reasons maps codes to the reasons for failed requests. Expected rejections, such as a failed
// precondition, are not counted as failures.
var reasons = map[codes.Code]string{
	codes.Unavailable: "unreachable", codes.DeadlineExceeded: "timeout", codes.Aborted: "contended",
	codes.ResourceExhausted: "quota", codes.PermissionDenied: "refused", codes.Unauthenticated: "refused",
	codes.Internal: "internal", codes.Unknown: "internal",
}

var (
	measured = metrics.NewCalls("Firestore", []string{"get", "query", "count", "commit", "begin", "rollback"},
		[]string{"unreachable", "timeout", "contended", "quota", "refused", "index", "internal"})
	documents = metrics.NewCounter(prometheus.CounterOpts{
		Name: "linkreel_firestore_documents_total",
		Help: "Documents that Firestore charges for, by operation: read (a query without results counts as one), write, delete.",
	}, []string{"operation"}, metrics.Each("read", "write", "delete")...)
	documentsRead   = documents.WithLabelValues("read")
	documentsWrite  = documents.WithLabelValues("write")
	documentsDelete = documents.WithLabelValues("delete")
)

// took records the metrics for one request. io.EOF, which ends a stream, is not a failure.
func took(method string, began time.Time, err error) {
	if err == io.EOF { //nolint:errorlint // grpc returns it unwrapped at the end of a stream
		err = nil
	}
	operation := operations[method[strings.LastIndexByte(method, '/')+1:]]
	measured.Took(operation, time.Since(began))
	if err != nil {
		measured.Failed(reasonOf(operation, status.Code(err)))
	}
}

// reasonOf returns the reason for a failed request. A query's only precondition is that its index
// exists.
func reasonOf(operation string, code codes.Code) string {
	if code == codes.FailedPrecondition && (operation == "query" || operation == "count") {
		return "index"
	}
	return reasons[code]
}

// wrote counts the documents in a commit.
func wrote(writes []*pb.Write) {
	deleted := 0
	for _, w := range writes {
		if _, ok := w.GetOperation().(*pb.Write_Delete); ok {
			deleted++
		}
	}
	documentsDelete.Add(float64(deleted))
	documentsWrite.Add(float64(len(writes) - deleted))
}

// readIn returns the number of documents in one stream message. It counts missing documents that
// were requested by name, since Firestore charges for them too.
func readIn(m any) int {
	switch m := m.(type) {
	case *pb.BatchGetDocumentsResponse:
		if m.GetResult() != nil {
			return 1
		}
	case *pb.RunQueryResponse:
		if m.GetDocument() != nil {
			return 1
		}
	}
	return 0
}
