package firestore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	gc "cloud.google.com/go/firestore"
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/guard"
)

// dialled returns a server that requires token and a connection to that server.
func dialled(t *testing.T, token string, opts ...grpc.DialOption) (*firestore.Server, *grpc.ClientConn) {
	t.Helper()
	s := open(t, firestore.Options{Token: token})
	addr, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(addr.String(), append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return s, conn
}

// counted returns the number of requests with the given outcome according to the metrics.
func counted(t *testing.T, registry *prometheus.Registry, outcome string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "localcloud_requests_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == outcome {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

// TestWithoutTheTokenNoMethodAnswers calls every method in the protocol, including Listen and the
// other streams, as well as some unknown methods.
func TestWithoutTheTokenNoMethodAnswers(t *testing.T) {
	t.Parallel()
	token := strings.Repeat("t", 40)
	s, conn := dialled(t, token)
	methods := []string{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.health.v1.Health/Check", "/google.firestore.admin.v1.FirestoreAdmin/ListIndexes", "/none/None", "/"}
	for _, m := range pb.Firestore_ServiceDesc.Methods {
		methods = append(methods, "/google.firestore.v1.Firestore/"+m.MethodName)
	}
	for _, m := range pb.Firestore_ServiceDesc.Streams {
		methods = append(methods, "/google.firestore.v1.Firestore/"+m.StreamName)
	}
	if len(methods) < 20 {
		t.Fatalf("the test calls only %d methods, want at least 20", len(methods))
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Metrics()...)
	calls := 0
	for _, given := range [][]string{nil, {"authorization", "Bearer owner"}, {"authorization", token}, {"authorization", "Bearer " + strings.Repeat("x", 40)}, {"Authorization", "Bearer owner", "authorization", "Bearer " + token}, {"x-goog-api-key", token}} {
		for _, method := range methods {
			ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), given...), 20*time.Second)
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
			if err == nil {
				_, _ = stream.SendMsg(&emptypb.Empty{}), stream.CloseSend() // if these calls fail, RecvMsg returns the reason
				err = stream.RecvMsg(&emptypb.Empty{})
			}
			if status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s with %q returned %v, want Unauthenticated", method, given, err)
			}
			cancel()
			calls++
		}
	}
	if n := counted(t, registry, "refused"); n != float64(calls) {
		t.Errorf("the metrics count %v refused calls, want %d", n, calls)
	}
	if got := s.Stats().Calls; len(got) != 0 {
		t.Errorf("the server processed the calls %v, want none", got)
	}
}

func TestClientsThatShowATokenWork(t *testing.T) {
	t.Parallel()
	older, newer := strings.Repeat("o", 32), strings.Repeat("n", 32)
	for _, token := range []string{older, newer} {
		s, conn := dialled(t, newer+","+older, grpc.WithPerRPCCredentials(guard.Bearer(token)))
		outside, err := gc.NewClient(t.Context(), "linkreel", option.WithGRPCConn(conn))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = outside.Close() }()
		heard := make(chan error, 1)
		changes := outside.Doc("c/d").Snapshots(t.Context())
		defer changes.Stop()
		go func() { _, err := changes.Next(); heard <- err }()
		if err := <-heard; err != nil {
			t.Errorf("Listen with the token returned %v, want no error", err)
		}
		if _, err := client(t, s).Doc("c/d").Set(t.Context(), map[string]any{"n": 1}); err != nil {
			t.Errorf("a write from the server's own client returned %v, want no error", err)
		}
		if d, err := outside.Doc("c/d").Get(t.Context()); err != nil || d.Data()["n"] != int64(1) {
			t.Errorf("a read with the token returned %v (error %v), want n to be 1", d, err)
		}
	}
}

func TestAFirestoreDoesNotOpenWithAMistakenToken(t *testing.T) {
	t.Parallel()
	if s, err := firestore.Open(firestore.Options{Token: "short"}); err == nil {
		_ = s.Close()
		t.Error("Open accepted an invalid token, want an error")
	}
}
