package contract_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/standalone"
	"github.com/linkreel/linkreel/tests/contract"
)

// running is the system under test. It is the system that the stack.json in LINKREEL_STACK
// describes, or one that the tests start.
var running *standalone.Stack

func TestMain(m *testing.M) {
	code, err := withStack(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tests/contract:", err)
		code = 1
	}
	os.Exit(code)
}

func withStack(run func() int) (code int, err error) {
	if path := os.Getenv("LINKREEL_STACK"); path != "" {
		b, err := os.ReadFile(path)
		if err != nil {
			return 1, err
		}
		running = new(standalone.Stack)
		if err := json.Unmarshal(b, running); err != nil {
			return 1, err
		}
		return run(), nil
	}
	dir, err := os.MkdirTemp("", "linkreel-contract-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // leftovers in the temporary folder are harmless
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return 1, err
	}
	running, err = standalone.Start(context.Background(), standalone.Config{
		DataDir: filepath.Join(dir, "data"), Log: log,
		Env: map[string]string{
			"DNS_RESOLVER":               "127.0.0.1:9", // DNS queries must not leave this machine
			"LINKREEL_FIRESTORE_TIMEOUT": "9s",          // on a busy machine, Firestore is slow but not unreachable
		},
	})
	if err != nil {
		return 1, fmt.Errorf("cannot start the stack: %w", err)
	}
	defer func() {
		if cerr := running.Close(); err == nil {
			err = cerr
		}
	}()
	return run(), nil
}

// LINKREEL_FUZZ_REQUESTS and LINKREEL_FUZZ_SEED set the number of requests and the seed. With
// LINKREEL_FULL, the run is long.
func TestFuzzRunningStack(t *testing.T) {
	requests := 1500
	if os.Getenv("LINKREEL_FULL") != "" {
		requests = 20_000
	}
	r, err := contract.Fuzz(t.Context(), contract.FuzzConfig{
		BaseURL: running.BaseURL, AdminURL: running.AdminURL, AdminToken: running.AdminToken,
		Requests: number("LINKREEL_FUZZ_REQUESTS", requests), Seed: uint64(number("LINKREEL_FUZZ_SEED", int(time.Now().Unix()))),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r)
	if r.Err() != nil {
		t.Errorf("the fuzzer found %d faults, want 0; see the seed and the faults above", r.FaultsTotal)
	}
}

func number(name string, without int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return without
}

// The source must register exactly the routes in the document.
func TestRoutesInTheSourceAreThoseOfTheDocument(t *testing.T) {
	t.Parallel()
	served := routesIn(t, "../../services")
	if len(served) < 20 {
		t.Fatalf("the source registers only %d routes, want at least 20", len(served))
	}
	if diff := contract.DiffRoutes(served); diff != "" {
		t.Error(diff)
	}
}

// routesIn finds calls such as a.Handle(fiber.MethodGet, "/api/v1/links", …).
func routesIn(t *testing.T, dir string) []apispec.Route {
	t.Helper()
	var out []apispec.Route
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 3 {
				return true
			}
			switch fun := call.Fun.(type) {
			case *ast.SelectorExpr:
				if fun.Sel.Name != "Handle" && fun.Sel.Name != "Public" {
					return true
				}
			case *ast.Ident: // add is a shorthand for routes that share their token
				if fun.Name != "add" {
					return true
				}
			default:
				return true
			}
			if p, ok := call.Args[1].(*ast.BasicLit); ok && p.Kind == token.STRING {
				route, _ := strconv.Unquote(p.Value) // the parser has accepted the literal
				out = append(out, apispec.Route{Method: method(call.Args[0]), Path: route})
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func method(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.SelectorExpr: // fiber.MethodGet
		return strings.ToUpper(strings.TrimPrefix(e.Sel.Name, "Method"))
	case *ast.BasicLit:
		return strings.Trim(e.Value, `"`)
	}
	return "?"
}

// As documented, each operation must reject callers without a key, keys without its scope and lower
// plans. It must do so before any other check.
func TestOperationsAskForTheKeyScopeAndPlanOfTheDocument(t *testing.T) {
	t.Parallel()
	c := &http.Client{Transport: contract.NewTransport(t, nil), Timeout: 30 * time.Second}
	free, _ := key(t, c, "free", identity.AllScopes.Names())
	for _, r := range apispec.Load().Routes() {
		base := running.BaseURL
		if r.Tag == "Operator" {
			base = running.AdminURL
		}
		target := base + strings.NewReplacer("{id}", "none_0", "{lang}", "en", "{delivery}", "none_1").Replace(r.Path)
		if got := ask(t, c, r.Method, target, "", ""); !r.Open && got.code != "MISSING_API_KEY" {
			t.Errorf("%s %s without a key returned %+v, want MISSING_API_KEY", r.Method, r.Path, got)
		}
		if r.Plan != "free" && r.Plan != "" {
			if got := ask(t, c, r.Method, target, free, "{}"); got.code != "PLAN_REQUIRED" || got.plan != r.Plan {
				t.Errorf("%s %s on the free plan returned %+v, want PLAN_REQUIRED for %s", r.Method, r.Path, got, r.Plan)
			}
		}
		if r.Scope != "" {
			other := "links:read"
			if r.Scope == other {
				other = "keys:read"
			}
			narrow, _ := key(t, c, "enterprise", []string{other})
			if got := ask(t, c, r.Method, target, narrow, "{}"); got.code != "INSUFFICIENT_SCOPE" || got.scope != r.Scope {
				t.Errorf("%s %s with only %s returned %+v, want INSUFFICIENT_SCOPE for %s", r.Method, r.Path, other, got, r.Scope)
			}
		}
	}
}

type refusal struct {
	status            int
	code, plan, scope string
}

func ask(t *testing.T, c *http.Client, method, target, key, body string) refusal {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var b struct {
		Error struct{ Code, RequiredPlan, RequiredScope string }
	}
	_ = json.NewDecoder(res.Body).Decode(&b) // a successful response has no error code
	return refusal{res.StatusCode, b.Error.Code, b.Error.RequiredPlan, b.Error.RequiredScope}
}

// key creates an account with a plan, and a key for it.
func key(t *testing.T, c *http.Client, plan string, scopes []string) (secret, account string) {
	t.Helper()
	post := func(path string, in map[string]any) (out struct{ ID, Key string }) {
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, running.AdminURL+path, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+running.AdminToken)
		req.Header.Set("Content-Type", "application/json")
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		if err := json.NewDecoder(res.Body).Decode(&out); err != nil || res.StatusCode != http.StatusCreated {
			t.Fatalf("POST %s returned %d, want 201; %v", path, res.StatusCode, err)
		}
		return out
	}
	acc := post("/admin/v1/accounts", map[string]any{"name": "contract", "plan": plan})
	in := map[string]any{"name": "contract"}
	if scopes != nil {
		in["scopes"] = scopes
	}
	return post("/admin/v1/accounts/"+acc.ID+"/keys", in).Key, acc.ID
}

// The service must serve the source's API document unchanged, and the page for it.
func TestDocumentsAreServed(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][]byte{"/openapi.json": apispec.Load().JSON(), "/openapi.yaml": apispec.Load().YAML(), "/docs": []byte("<!DOCTYPE html>")} {
		res, err := http.Get(running.BaseURL + path)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		_, err = got.ReadFrom(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != 200 || !bytes.HasPrefix(got.Bytes(), want) {
			t.Errorf("%s returned %d with %d bytes, want 200 with the source's document; %v", path, res.StatusCode, got.Len(), err)
		}
		if strings.Contains(res.Header.Get("Content-Security-Policy"), "unsafe") || path == "/docs" && res.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("the Content-Security-Policy for %s is %q, want one without \"unsafe\"", path, res.Header.Get("Content-Security-Policy"))
		}
	}
}
