package main

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// span contains the stored part of a span. It is also the format of the file's lines.
type span struct {
	Trace      string            `json:"trace"`
	ID         string            `json:"id"`
	Parent     string            `json:"parent,omitempty"`
	Service    string            `json:"service"`
	Name       string            `json:"name"`
	Kind       string            `json:"kind"` // server, client, producer, consumer or internal
	Start      time.Time         `json:"start"`
	Millis     float64           `json:"ms"`
	Failed     bool              `json:"failed,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Links      []string          `json:"links,omitempty"` // IDs of other traces
}

func read(data *tracepb.TracesData) (spans []span) {
	for _, resource := range data.GetResourceSpans() {
		service := texts(resource.GetResource().GetAttributes())["service.name"]
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				one := span{
					Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
					Service: service, Name: s.GetName(), Kind: kind(s.GetKind()), Start: time.Unix(0, int64(s.GetStartTimeUnixNano())).UTC(),
					Millis:     float64(s.GetEndTimeUnixNano()-s.GetStartTimeUnixNano()) / 1e6,
					Failed:     s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR,
					Attributes: texts(s.GetAttributes()),
				}
				for _, link := range s.GetLinks() {
					one.Links = append(one.Links, hex.EncodeToString(link.GetTraceId()))
				}
				spans = append(spans, one)
			}
		}
	}
	return spans
}

func kind(k tracepb.Span_SpanKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "SPAN_KIND_"))
}

func texts(attributes []*commonpb.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range attributes {
		switch v := a.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			m[a.GetKey()] = v.StringValue
		case *commonpb.AnyValue_IntValue:
			m[a.GetKey()] = fmt.Sprint(v.IntValue)
		case *commonpb.AnyValue_BoolValue:
			m[a.GetKey()] = fmt.Sprint(v.BoolValue)
		case *commonpb.AnyValue_DoubleValue:
			m[a.GetKey()] = fmt.Sprint(v.DoubleValue)
		}
	}
	return m
}

// store keeps the newest traces and drops the oldest first.
type store struct {
	mu     sync.Mutex
	keep   int
	order  []string
	traces map[string][]span
}

func newStore(keep int) *store { return &store{keep: keep, traces: map[string][]span{}} }

func (s *store) add(spans []span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range spans {
		if _, known := s.traces[one.Trace]; !known {
			s.order = append(s.order, one.Trace)
		}
		s.traces[one.Trace] = append(s.traces[one.Trace], one)
	}
	for len(s.order) > s.keep {
		delete(s.traces, s.order[0])
		s.order = s.order[1:]
	}
}

// line is a trace in the list.
type line struct {
	ID, Name string
	Millis   float64
	Spans    int
}

// newest lists up to n traces with text in their line, newest first. Unless all is set, it omits
// traces that begin with a client call. Such traces come from loops that poll for work.
func (s *store) newest(n int, text string, all bool) []line {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []line
	for i := len(s.order) - 1; i >= 0 && len(lines) < n; i-- {
		spans := s.traces[s.order[i]]
		first := slices.MinFunc(spans, func(a, b span) int { return a.Start.Compare(b.Start) })
		l := line{ID: s.order[i], Name: first.Service + " " + first.Name, Millis: first.Millis, Spans: len(spans)}
		if (all || first.Kind != "client") && strings.Contains(l.Name, text) {
			lines = append(lines, l)
		}
	}
	return lines
}

// tree formats a trace with its spans under their parents. It returns "" for an unknown trace.
func (s *store) tree(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	spans := slices.Clone(s.traces[id])
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.ID, b.ID)) })
	known := map[string]bool{}
	for _, one := range spans {
		known[one.ID] = true
	}
	var text strings.Builder
	var write func(parent string, depth int)
	write = func(parent string, depth int) {
		for _, one := range spans {
			// A span's parent may be exported later or never. Until then, the tree shows the span
			// at the top.
			top := depth == 0 && !known[one.Parent]
			if !top && (depth == 0 || one.Parent != parent) {
				continue
			}
			fmt.Fprintf(&text, "%8.1f ms  %s%s: %s%s%s\n", one.Millis, strings.Repeat("  ", depth), one.Service, one.Name, failed(one), linked(one))
			write(one.ID, depth+1)
		}
	}
	write("", 0)
	return text.String()
}

func failed(s span) string {
	if s.Failed {
		return "  FAILED"
	}
	return ""
}

func linked(s span) string {
	if len(s.Links) == 0 {
		return ""
	}
	return "  -> " + strings.Join(s.Links, " ")
}
