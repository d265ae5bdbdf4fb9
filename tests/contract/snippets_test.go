package contract_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// linkreel is the path of the command-line program. The tests build it once.
var linkreel = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "linkreel-bin-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "linkreel")
	out, err := exec.CommandContext(context.Background(), "go", "build", "-o", path, "../../services/standalone/cmd/linkreel").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cannot build linkreel: %w: %s", err, out)
	}
	return path, nil
})

// desk returns a folder in which a reader can follow a document. It contains stack.json, the
// program in .local/bin, and the files that the documents mention.
func desk(t *testing.T) string {
	t.Helper()
	bin, err := linkreel()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(filepath.Dir(stackFile(t)))
	if err := os.Mkdir(filepath.Join(dir, ".local", "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(bin, filepath.Join(dir, ".local", "bin", "linkreel")); err != nil {
		t.Fatal(err)
	}
	clip(t, filepath.Join(dir, "clip.mp4"))
	film, err := os.ReadFile(filepath.Join(dir, "clip.mp4"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"board.mp4": string(film), "draft.mp4": string(film), "talk.mp4": string(film), "talk.mov": string(film),
		"password.txt": "correct horse battery staple\n",
		"talk.en.vtt":  "WEBVTT\n\n00:00.000 --> 00:01.000\nHello.\n",
		"export.csv":   "long_url,link,title\nhttps://example.com/moved,https://short.example/moved-" + filepath.Base(filepath.Dir(dir)) + ",Moved\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// prelude replaces commands that the test cannot run unchanged. A failed call must fail its line,
// the example hosts do not exist, and this machine does not have a clipboard.
const prelude = `set -euo pipefail
curl() { command curl --fail-with-body --retry 2 "$@"; }
pbpaste() { printf 'https://example.com/pasted\n'; }
`

// A reader can paste the shell lines in the documents in order, and every line must work.
func TestSnippetsOfTheDocumentsRun(t *testing.T) {
	t.Parallel()
	tests := []struct {
		file     string
		login    bool
		least    int
		replaced map[string]string // values for the placeholders that a reader replaces
	}{
		{file: "README.md", least: 4, replaced: map[string]string{
			"sign-in-link ACCOUNT": `sign-in-link "$(.local/bin/linkreel account --json | jq -er .id)"`,
		}},
		{file: "docs/api.md", least: 1},
		{file: "docs/cli.md", login: true, least: 2},
		{file: "docs/guides.md", login: true, least: 7, replaced: map[string]string{
			// The test does not set any DNS records, so these commands must fail with
			// DOMAIN_NOT_VERIFIED.
			`verify "$DOMAIN" --wait 10m`:      `verify "$DOMAIN" 2>refusal || grep -q DOMAIN_NOT_VERIFIED refusal`,
			`--domain "$DOMAIN" --slug spring`: `--domain "$DOMAIN" --slug spring 2>refusal || grep -q DOMAIN_NOT_VERIFIED refusal`,
		}},
		{file: "docs/mcp.md", login: true, least: 3},
		{file: "docs/sign-in.md", least: 1},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			doc, err := os.ReadFile(filepath.Join("../..", tt.file))
			if err != nil {
				t.Fatal(err)
			}
			dir := desk(t)
			script, n := prelude, 0
			for _, b := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(doc, -1) {
				if strings.HasPrefix(string(b[1]), "make ") || strings.HasPrefix(string(b[1]), "helm ") {
					continue // make test runs this test, and the block that installs the chart has its own tests
				}
				script += string(b[1]) + "\n"
				n++
			}
			if n < tt.least {
				t.Errorf("%s has %d snippets, want at least %d", tt.file, n, tt.least)
			}
			for old, with := range tt.replaced {
				if !strings.Contains(script, old) {
					t.Errorf("%s does not contain %s", tt.file, old)
				}
				script = strings.ReplaceAll(script, old, with)
			}
			env := []string{"HOME=" + dir, "XDG_CONFIG_HOME=" + dir + "/config", "XDG_CACHE_HOME=" + dir + "/cache", "PATH=" + filepath.Join(dir, ".local", "bin") + ":" + os.Getenv("PATH")}
			if tt.login {
				secret, _ := key(t, &http.Client{Timeout: 30 * time.Second}, "business", nil)
				env = append(env, "LINKREEL_BASE_URL="+running.BaseURL, "LINKREEL_API_KEY="+secret)
			}
			run(t, dir, exec.CommandContext(t.Context(), "bash", "-xc", script), env...)
		})
	}
}

// The TypeScript client's first program must run as JavaScript and compile as TypeScript.
func TestTheFirstProgramIsTypeScript(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../libs/clients/README.md")
	if err != nil {
		t.Fatal(err)
	}
	first := regexp.MustCompile("(?s)```ts\n(.*?)```").FindSubmatch(doc)
	if first == nil {
		t.Fatal("the client's README has no ts block")
	}
	compiled(t, map[string]string{"first.ts": string(first[1])})
}

// The clients' examples must run unchanged, except for the base URL, the key and the port. Each Go
// example runs as a program. The examples in each other language run together as one program.
func TestSnippetsOfTheClientsRun(t *testing.T) {
	t.Parallel()
	needNode(t)
	doc, err := os.ReadFile("../../libs/clients/README.md")
	if err != nil {
		t.Fatal(err)
	}
	clients, err := filepath.Abs("../../libs/clients")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		lang, file string
		start      []string
	}{
		{"python", "example.py", []string{"python3", "example.py"}}, {"ts", "example.mjs", []string{"node", "example.mjs"}}, {"go", "main.go", []string{"go", "run", "."}},
	} {
		t.Run(tt.lang, func(t *testing.T) {
			t.Parallel()
			programs := []string{""}
			for _, b := range regexp.MustCompile("(?s)```"+tt.lang+"\n(.*?)```").FindAllSubmatch(doc, -1) {
				if tt.lang == "go" {
					programs = append(programs, "")
				}
				programs[len(programs)-1] += string(b[1])
			}
			if tt.lang == "go" {
				programs = programs[1:]
			}
			if !strings.Contains(programs[0], "localhost:3000") {
				t.Fatalf("the first %s program has no webhook receiver on localhost:3000: %.200s", tt.lang, programs[0])
			}
			dir := desk(t)
			goModule(t, dir)
			for _, program := range programs {
				secret, _ := key(t, &http.Client{Timeout: 30 * time.Second}, "business", allScopes)
				write(t, filepath.Join(dir, tt.file), strings.NewReplacer(
					"http://localhost:8080", running.BaseURL, "lr_live_…", secret, "@linkreel/client", clients+"/typescript/dist/index.js", "3000", freePort(t),
				).Replace(program))
				run(t, dir, exec.CommandContext(t.Context(), tt.start[0], tt.start[1:]...), "LINKREEL_BASE_URL="+running.BaseURL, "LINKREEL_API_KEY="+secret,
					"PYTHONPATH="+clients+"/python", "PYTHONDONTWRITEBYTECODE=1", "GOWORK=off")
			}
		})
	}
}

// freePort returns a port that nothing is currently listening on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
