package contract_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/tests/contract"
)

const pythonClient = "../../libs/clients/python"

// The test runs the client's own tests with the document and the running stack.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	run(
		t, pythonClient, exec.CommandContext(t.Context(), "python3", "-B", "-W", "error::ResourceWarning", "-m", "unittest", "-q"),
		"LINKREEL_STACK="+stackFile(t), "LINKREEL_OPENAPI="+documentFile(t),
	)
}

// Over a bad network, the Python client's examples must not create anything twice or lose anything.
func TestExamplesOfThePythonClientBehindAHostileProxy(t *testing.T) {
	t.Parallel()
	film := filepath.Join(t.TempDir(), "clip.mp4")
	clip(t, film)
	for _, tt := range []struct {
		program []string
		lines   []string
	}{
		{[]string{"examples/tour.py", film}, []string{
			`created http\S+ found \['.*'\]`, `deleted: LINK_NOT_FOUND`, `bulk: 990 created, 10 refused`, `listed: True`, `sent \d+ of \d+`,
			`plays at http\S+ webhook: video.ready`, `feed: each link once: True`, `cleared: \{200\}`,
		}},
		{[]string{"examples/many.py"}, []string{`created 60, each once in the feed: True, in the list: True`, `left: \[\]`}},
		{[]string{"-m", "unittest", "tests.test_running.BehindABadNetwork"}, []string{`Ran 1 test in .*`, `OK`}},
	} {
		t.Run(tt.program[len(tt.program)-1], func(t *testing.T) {
			t.Parallel()
			secret, _ := key(t, &http.Client{Timeout: 30 * time.Second}, "business", []string{
				"links:read", "links:write", "videos:read", "videos:write", "events:read", "webhooks:read", "webhooks:write",
			})
			proxy := &contract.Hostile{Target: running.BaseURL, Seed: 7}
			srv := httptest.NewServer(proxy)
			defer srv.Close()
			cmd := exec.CommandContext(t.Context(), "python3", slices.Concat([]string{"-B"}, tt.program)...)
			cmd.Dir = pythonClient
			cmd.Env = append(os.Environ(), "PYTHONPATH=.", "LINKREEL_BASE_URL="+srv.URL, "LINKREEL_HOSTILE="+srv.URL, "LINKREEL_API_KEY="+secret)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range tt.lines {
				if !regexp.MustCompile("(?m)^" + want + "$").Match(out) {
					t.Errorf("the output has no line that matches %s:\n%s", want, out)
				}
			}
			if len(proxy.Deeds) < 9 {
				t.Errorf("the proxy injected only %v, want at least 9 kinds of failures", proxy.Deeds)
			}
		})
	}
}

// debianPython returns Debian's own Python, or the one on the PATH, if it can install packages
// without a registry.
func debianPython(t *testing.T) string {
	t.Helper()
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		const has = `import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, ["pip", "setuptools", "wheel"])))`
		if exec.CommandContext(t.Context(), python, "-c", has).Run() == nil {
			return python
		}
	}
	t.Fatal("no Python on this machine has pip, setuptools and wheel; run `make tools` to install them")
	return ""
}

// Every build of the wheel must produce the same bytes. pip must install the same files from the
// wheel and from the source.
func TestPythonClientIsInstalledFromTheWheelAndFromTheSource(t *testing.T) {
	t.Parallel()
	python := debianPython(t)
	dir := t.TempDir()
	wheel := func(name string) (path string, content []byte) {
		out := filepath.Join(dir, name)
		if err := os.Mkdir(out, 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "go", "run", "./wheel", "-out", out, "-time", "1790000000")
		cmd.Dir, cmd.Env, cmd.Stderr = "../../tools", append(os.Environ(), "GOWORK=off"), os.Stderr
		file, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		path = filepath.Join(out, strings.TrimSpace(string(file)))
		if content, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		return path, content
	}
	path, first := wheel("first")
	if _, second := wheel("second"); !bytes.Equal(first, second) {
		t.Error("two builds from the same sources returned different wheels")
	}
	source := filepath.Join(dir, "source") // pip writes into the folder that it installs from
	if err := os.CopyFS(source, os.DirFS(pythonClient)); err != nil {
		t.Fatal(err)
	}
	installed := map[string]string{}
	for name, from := range map[string]string{"wheel": path, "source": source} {
		to := filepath.Join(dir, "from-"+name)
		run(t, dir, exec.CommandContext(t.Context(), python, "-m", "pip", "install", "-q", "--no-compile", "--no-build-isolation",
			"--no-index", "--no-deps", "--target", to, from), "PIP_ROOT_USER_ACTION=ignore")
		cmd := exec.CommandContext(t.Context(), python, "-B", "-c", `import importlib.metadata, linkreel, pathlib
assert importlib.metadata.version("linkreel") == linkreel.__version__
assert importlib.metadata.metadata("linkreel")["Requires-Python"] == ">=3.10"
for file in sorted(pathlib.Path(linkreel.__file__).parent.iterdir()): print(file.name, hash(file.read_bytes()))`)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PYTHONPATH="+to, "PYTHONHASHSEED=0")
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("py.typed")) {
			t.Errorf("the client installed from the %s does not run or lacks py.typed: %v\n%s", name, err, out)
		}
		installed[name] = string(out)
	}
	if installed["wheel"] != installed["source"] {
		t.Errorf("pip installed from the wheel:\n%s\nand from the source:\n%s", installed["wheel"], installed["source"])
	}
}

func TestPythonClientHasNoErrorOfTypes(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("mypy"); err != nil {
		t.Fatalf("%v; run `make tools` to install it", err)
	}
	run(t, pythonClient, exec.CommandContext(t.Context(), "mypy", "--strict", "--cache-dir", t.TempDir(), "linkreel", "examples"))
	pyright := nodeTool(t, "pyright")
	versions := []string{"3.10"}
	if os.Getenv("LINKREEL_FULL") != "" {
		versions = append(versions, "3.11", "3.12", "3.13", "3.14")
	}
	for _, version := range versions {
		run(t, pythonClient, exec.CommandContext(t.Context(), pyright, "--pythonversion", version, "linkreel", "examples"))
	}
}
