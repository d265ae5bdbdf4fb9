package contract_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/tests/contract"
)

const (
	document  = "../../libs/apispec/openapi.yaml"
	goTools   = "../../tools" // a module outside the workspace
	nodeTools = "npm"
)

// nodeTool returns the path of a program that npm/package.json installs.
func nodeTool(t *testing.T, name string) string {
	t.Helper()
	needNode(t)
	path, err := filepath.Abs(filepath.Join(nodeTools, "node_modules", ".bin", name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%v; run `make tools` to install it", err)
	}
	return path
}

// oapi-codegen is the most widely used Go client generator. It must be able to read the
// document, and the generated client must compile and work.
func TestGeneratedGoClient(t *testing.T) {
	t.Parallel()
	secret, _ := key(t, &http.Client{Timeout: 30 * time.Second}, "business", nil)
	here := generated(t, "oapiclient", "main.go", "call.go.txt")
	run(t, goTools, exec.CommandContext(t.Context(), "go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "main",
		"-o", here+"/client.gen.go", "../libs/apispec/openapi.yaml"), "GOWORK=off")
	run(t, goTools, exec.CommandContext(t.Context(), "go", "run", here, running.BaseURL, secret), "GOWORK=off")
}

// ogen generates a union with one type for each schema and validates every response. With
// LINKREEL_FULL, the test also compiles its client and makes calls with it.
func TestGeneratedOgenClient(t *testing.T) {
	t.Parallel()
	secret, _ := key(t, &http.Client{Timeout: 30 * time.Second}, "business", []string{"links:read", "links:write", "events:read"})
	here := generated(t, "ogenclient", "call.go.txt")
	run(t, goTools, exec.CommandContext(t.Context(), "go", "tool", "ogen", "-config", "ogenclient/ogen.yml", "-package", "main",
		"-target", here, "../libs/apispec/openapi.yaml"), "GOWORK=off")
	if os.Getenv("LINKREEL_FULL") != "" {
		run(t, goTools, exec.CommandContext(t.Context(), "go", "run", here, running.BaseURL, secret), "GOWORK=off")
	}
}

// generated creates a folder inside the tools module and copies files into it because the
// generated code needs that module's dependencies. It returns the folder's path in the module.
func generated(t *testing.T, in string, files ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp(filepath.Join(goTools, in), "gen-") //nolint:usetesting // must be inside the module
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, file := range files {
		b, err := os.ReadFile(filepath.Join(goTools, in, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, strings.TrimSuffix(file, ".txt")), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return "./" + in + "/" + filepath.Base(dir)
}

// The test checks the types that openapi-typescript must narrow: results by status, events by type.
func TestGeneratedTypeScriptTypes(t *testing.T) {
	t.Parallel()
	generator, compiler := nodeTool(t, "openapi-typescript"), nodeTool(t, "tsc")
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(nodeTools, "narrows.ts"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "narrows.ts"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	run(t, ".", exec.CommandContext(t.Context(), generator, document, "-o", filepath.Join(dir, "schema.ts")))
	run(t, dir, exec.CommandContext(t.Context(), compiler, "--strict", "--noEmit", "--target", "es2022", "--skipLibCheck", "--module", "nodenext", "narrows.ts"))
}

// The linters must not report any errors or warnings.
func TestLintersFindNothingInTheContract(t *testing.T) {
	t.Parallel()
	redocly, spectral := nodeTool(t, "redocly"), nodeTool(t, "spectral")
	report, err := exec.CommandContext(t.Context(), redocly, "lint", "--config", nodeTools+"/redocly.yaml", "--format", "json", document).Output()
	var found struct {
		Totals struct{ Errors, Warnings *int }
	}
	if jerr := json.Unmarshal(report, &found); err != nil || jerr != nil || found.Totals.Errors == nil || *found.Totals.Errors+*found.Totals.Warnings > 0 {
		t.Errorf("redocly: %v, %v: %s", err, jerr, report)
	}
	run(t, ".", exec.CommandContext(t.Context(), spectral, "lint", "--ruleset", nodeTools+"/spectral.yaml", "--fail-severity", "hint", document))
}

// prism parses the document with its own code and validates the exchanges that it forwards. It must
// not find any responses that the document does not allow, or any invalid requests that succeed.
func TestPrismFindsNoViolation(t *testing.T) {
	t.Parallel()
	requests := 60
	if os.Getenv("LINKREEL_FULL") != "" {
		requests = 600
	}
	seen := &witness{}
	r, err := contract.Fuzz(t.Context(), contract.FuzzConfig{
		BaseURL: prism(t, running.BaseURL), AdminURL: running.AdminURL, AdminToken: running.AdminToken, Requests: requests, Workers: 2,
		Seed: uint64(number("LINKREEL_FUZZ_SEED", int(time.Now().Unix()))), Client: &http.Client{Timeout: 30 * time.Second, Transport: seen},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d requests passed through prism", seen.calls, r.Requests)
	if seen.calls < requests/2 {
		t.Errorf("only %d of %d requests passed through prism, want at least half", seen.calls, requests)
	}
	for _, v := range seen.violations {
		t.Error(v)
	}
}

// prism starts the proxy in front of an upstream URL and returns the proxy's URL.
func prism(t *testing.T, upstream string) string {
	t.Helper()
	program := nodeTool(t, "prism")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, program, "proxy", "--port", port, document, upstream)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { stop(); <-ended })
	dialer := &net.Dialer{Timeout: time.Second}
	for {
		c, err := dialer.DialContext(ctx, "tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = c.Close()
			return "http://127.0.0.1:" + port
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("prism exited: %v: %s", err, out.String())
		case <-time.After(50 * time.Millisecond): // a program starts in real time
		}
	}
}

// witness collects the violations that prism reports in the sl-violations header.
type witness struct {
	mu         sync.Mutex
	calls      int
	violations []string
}

// RoundTrip sends a request through prism.
func (w *witness) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || !strings.HasPrefix(r.URL.Path, "/api/") || contract.Dotted(r.URL) {
		return res, err // a path with a dot segment is rejected before routing
	}
	var reported []struct {
		Location      []string
		Code, Message string
	}
	text := res.Header.Get("Sl-Violations")
	if jerr := json.Unmarshal([]byte(text), &reported); text != "" && jerr != nil {
		return nil, fmt.Errorf("cannot parse prism's report %q: %w", text, jerr)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	for _, v := range reported {
		if len(v.Location) > 0 && v.Location[0] == "request" && res.StatusCode >= 400 {
			continue // an invalid request that was rejected
		}
		if res.StatusCode == http.StatusMultiStatus && len(v.Location) > 3 && slices.Equal(v.Location[:3], []string{"request", "body", "urls"}) {
			continue // the response reports this item's error
		}
		w.violations = append(w.violations, fmt.Sprintf("%s %s: status %d: %s %v: %s", r.Method, r.URL.RequestURI(), res.StatusCode, v.Code, v.Location, v.Message))
	}
	return res, nil
}
