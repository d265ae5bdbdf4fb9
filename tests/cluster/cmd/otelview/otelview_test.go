package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

func TestTreeOfATrace(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	v := &viewer{store: newStore(10), out: &lines}
	srv := httptest.NewServer(v.handler())
	t.Cleanup(srv.Close)

	trace := bytes.Repeat([]byte{0xab}, 16)
	spanOf := func(id, parent byte, name string, start uint64) *tracepb.Span {
		s := &tracepb.Span{TraceId: trace, SpanId: bytes.Repeat([]byte{id}, 8), Name: name, StartTimeUnixNano: start, EndTimeUnixNano: start + 2_000_000}
		if parent != 0 {
			s.ParentSpanId = bytes.Repeat([]byte{parent}, 8)
		}
		return s
	}
	failing := spanOf(3, 2, "get", 30)
	failing.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR}
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: &resourcepb.Resource{Attributes: []*commonpb.KeyValue{{Key: "service.name",
			Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: "links"}}}}},
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{failing, spanOf(2, 1, "store", 20), spanOf(1, 0, "GET /:slug", 10)}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(srv.URL+"/v1/traces", "application/x-protobuf", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the export returned %d, want 200", resp.StatusCode)
	}
	want := "     2.0 ms  links: GET /:slug\n     2.0 ms    links: store\n     2.0 ms      links: get  FAILED\n"
	if diff := cmp.Diff(want, get(t, srv.URL+"/traces/abababababababababababababababab")); diff != "" {
		t.Errorf("the tree differs (-want +got):\n%s", diff)
	}
	if got := get(t, srv.URL+"/traces?name=slug"); !strings.Contains(got, "links GET /:slug") {
		t.Errorf("the filter slug returned %q, want the trace GET /:slug", got)
	}
	if got := get(t, srv.URL+"/traces?name=other"); got != "" {
		t.Errorf("a filter that does not match any name returned %q, want an empty list", got)
	}
	if n := bytes.Count(lines.Bytes(), []byte("\n")); n != 3 {
		t.Errorf("the file has %d lines, want 3, one for each span", n)
	}
}

func get(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
