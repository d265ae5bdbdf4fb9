// Package clitest runs a session with `linkreel mcp` for tests. The session uses either the command
// line with a fake service, or the real program with a real stack.
package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Talk is a session with the server that records all its messages.
type Talk struct {
	t        *testing.T
	Session  *mcp.ClientSession
	wire     *tap
	mu       sync.Mutex
	progress []mcp.ProgressNotificationParams
}

type tap struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *tap) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *tap) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// TalkOver starts a session over a transport. The session ends with the test.
func TalkOver(t *testing.T, transport mcp.Transport) *Talk {
	t.Helper()
	k := &Talk{t: t, wire: &tap{}}
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.progress = append(k.progress, *req.Params)
		},
	})
	session, err := c.Connect(t.Context(), &mcp.LoggingTransport{Transport: transport, Writer: k.wire}, nil)
	if err != nil {
		t.Fatalf("cannot connect: %v", err)
	}
	k.Session = session
	t.Cleanup(func() { _ = session.Close() })
	return k
}

// Args contains a tool's arguments.
type Args map[string]any

// Call calls a tool and requests progress notifications.
func (k *Talk) Call(name string, in Args) *mcp.CallToolResult {
	k.t.Helper()
	p := &mcp.CallToolParams{Name: name, Arguments: in}
	p.SetProgressToken(name + "-progress")
	res, err := k.Session.CallTool(k.t.Context(), p)
	if err != nil {
		k.t.Fatalf("calling %s failed: %v", name, err)
	}
	return res
}

// Said returns the text of a result.
func Said(res *mcp.CallToolResult) string {
	var b strings.Builder
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			b.WriteString(text.Text)
		}
	}
	return b.String()
}

// Good calls a tool that must succeed and returns its decoded result.
func Good[Out any](k *Talk, name string, in Args) (out Out) {
	k.t.Helper()
	res := k.Call(name, in)
	if res.IsError {
		k.t.Fatalf("%s with %v returned the error %s", name, in, Said(res))
	}
	if err := json.Unmarshal([]byte(Said(res)), &out); err != nil {
		k.t.Fatalf("cannot parse the result of %s: %q: %v", name, Said(res), err)
	}
	return out
}

// Bad calls a tool that must fail, and checks that the error contains words.
func (k *Talk) Bad(name string, in Args, words ...string) {
	k.t.Helper()
	res := k.Call(name, in)
	for _, w := range words {
		if !res.IsError || !strings.Contains(Said(res), w) {
			k.t.Errorf("%s with %v returned error=%v, %q; want an error with %q", name, in, res.IsError, Said(res), w)
		}
	}
}

// Answers returns everything that the server has sent.
func (k *Talk) Answers() string {
	var b strings.Builder
	for line := range strings.Lines(k.wire.String()) {
		if strings.HasPrefix(line, "read") {
			b.WriteString(line)
		}
	}
	if b.Len() == 0 {
		k.t.Error("the server has sent no message")
	}
	return b.String()
}

// CheckProgress checks that upload_video reported increasing progress up to the end.
func (k *Talk) CheckProgress() {
	k.t.Helper()
	// Notifications are handled concurrently with responses, so they may arrive a moment later.
	for deadline := time.Now().Add(10 * time.Second); k.progressed() < 200 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	at, words := -1.0, ""
	for _, p := range k.progress {
		if p.ProgressToken != "upload_video-progress" || p.Progress <= at || p.Total != 200 {
			k.t.Errorf("the progress %+v follows %v, want an increase to at most 200", p, at)
		}
		at, words = p.Progress, words+p.Message+"\n"
	}
	if at != 200 || !strings.Contains(words, "uploaded ") || !strings.HasSuffix(words, "ready\n") {
		k.t.Errorf("the progress ends at %v, want 200 and the status ready: %s", at, words)
	}
}

// progressed returns the last received progress.
func (k *Talk) progressed() float64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.progress) == 0 {
		return 0
	}
	return k.progress[len(k.progress)-1].Progress
}
