// Package repo_test checks the repository itself: its modules, its workflows and its documentation.
package repo_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const root = "../.."

func read(t *testing.T, elem ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{root}, elem...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Anyone who can move an action's tag could run code in our pipeline. A commit hash always refers
// to the same code.
func TestActionsArePinnedByCommit(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no workflow files: %v", err)
	}
	pinned := regexp.MustCompile(`uses: (\./|[\w./-]+@[0-9a-f]{40} # v\d)`)
	for _, file := range files {
		for line := range strings.Lines(read(t, strings.TrimPrefix(file, root))) {
			if strings.Contains(line, "uses:") && !pinned.MatchString(line) {
				t.Errorf("%s: %q must be pinned to a commit hash, with the version in a comment", filepath.Base(file), strings.TrimSpace(line))
			}
		}
	}
}

// A tag can be moved to a new image, which could change the files that a job signs.
func TestImagesOfWorkflowsArePinnedByDigest(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no workflow files: %v", err)
	}
	image := regexp.MustCompile(`^\s*-?\s*(container|(\w+_)?image):\s*(\S.*)$|docker://(\S+)`)
	pinned := regexp.MustCompile(`@sha256:[0-9a-f]{64}\b`)
	for _, file := range files {
		for line := range strings.Lines(read(t, strings.TrimPrefix(file, root))) {
			if image.MatchString(strings.TrimRight(line, "\n")) && !pinned.MatchString(line) {
				t.Errorf("%s: %q must be pinned to a digest", filepath.Base(file), strings.TrimSpace(line))
			}
		}
	}
}

// Pushing a tag must not be enough to publish a release. A job that signs must run in the environment
// that requires a review.
func TestWhatSignsWaitsForReviewers(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no workflow files: %v", err)
	}
	signing := 0
	for _, file := range files {
		// A job starts with its name, indented by two spaces.
		for _, job := range regexp.MustCompile(`(?m)^  [\w-]+:\s*$`).Split(read(t, strings.TrimPrefix(file, root)), -1) {
			if !strings.Contains(job, "id-token: write") {
				continue
			}
			if signing++; !regexp.MustCompile(`(?m)^    environment: release$`).MatchString(job) {
				t.Errorf("%s: a job with id-token: write does not use the release environment", filepath.Base(file))
			}
		}
	}
	if signing == 0 {
		t.Error("no job has id-token: write, want at least one")
	}
}

// workflow holds the fields in a workflow file that the tests read.
type workflow struct {
	Permissions map[string]string `yaml:"permissions"`
	Jobs        map[string]struct {
		Permissions map[string]string `yaml:"permissions"`
		Steps       []struct {
			Uses string         `yaml:"uses"`
			Run  string         `yaml:"run"`
			With map[string]any `yaml:"with"`
		} `yaml:"steps"`
	} `yaml:"jobs"`
}

func workflows(t *testing.T) map[string]workflow {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no workflow files: %v", err)
	}
	all := map[string]workflow{}
	for _, file := range files {
		var w workflow
		if err := yaml.Unmarshal([]byte(read(t, strings.TrimPrefix(file, root))), &w); err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(file)] = w
	}
	return all
}

// GitHub expands the expressions in a script before the shell reads it. A value may be the name of
// a tag or a branch that someone else chose. The shell does not execute the value of an environment
// variable.
func TestNoScriptOfAWorkflowHoldsAnExpression(t *testing.T) {
	t.Parallel()
	for file, w := range workflows(t) {
		for name, job := range w.Jobs {
			for _, step := range job.Steps {
				if strings.Contains(step.Run, "${{") {
					t.Errorf("%s, job %s: a script contains an expression; pass it in env: %q", file, name, step.Run)
				}
			}
		}
	}
}

// Jobs on other branches can write to a cache, and a later step could use the credentials that a
// checkout stored.
func TestAReleaseTrustsNoCacheAndKeepsNoCredentials(t *testing.T) {
	t.Parallel()
	release := workflows(t)["release.yml"]
	if len(release.Permissions) != 1 || release.Permissions["contents"] != "read" {
		t.Errorf("the jobs have the default permissions %v, want contents: read", release.Permissions)
	}
	for name, job := range release.Jobs {
		if name != "publish" && job.Permissions != nil {
			t.Errorf("job %s has the permissions %v, want none: only publish needs any", name, job.Permissions)
		}
		for _, step := range job.Steps {
			action, _, _ := strings.Cut(step.Uses, "@")
			switch {
			case action == "actions/checkout" && step.With["persist-credentials"] != false:
				t.Errorf("job %s keeps the credentials of its checkout; set persist-credentials: false", name)
			case strings.HasPrefix(action, "actions/setup-") && step.With["cache"] != false, strings.HasPrefix(action, "actions/cache"):
				t.Errorf("job %s uses a cache: %s", name, step.Uses)
			}
		}
	}
}

// If the vulnerability database is unreachable, an ordinary build continues, but a release fails.
func TestAReleaseFailsWithoutTheDatabaseOfVulnerabilities(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	away := "#!/bin/sh\necho 'fetching vulnerabilities: dial tcp: no such host'\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bin, "govulncheck"), []byte(away), 0o700); err != nil {
		t.Fatal(err)
	}
	for required, passes := range map[string]bool{"": true, "1": false} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "tools/vuln.sh"))
		cmd.Env = append(os.Environ(), "BIN="+bin, "PKGS=./libs/...", "VULN_REQUIRED="+required)
		if out, err := cmd.CombinedOutput(); (err == nil) != passes {
			t.Errorf("vuln.sh with VULN_REQUIRED=%q returned %v, want success: %v; its output is %s", required, err, passes, out)
		}
	}
	if !strings.Contains(read(t, ".github/workflows/release.yml"), "- run: bash .ci/run\n        env: {VULN_REQUIRED: 1}\n") {
		t.Error("release.yml does not set VULN_REQUIRED, so a release does not require the vulnerability database")
	}
}

// UPGRADING.md must list every version, and every key that a Secret needs if the operator creates
// it.
func TestUpgradingNamesVersionsAndKeys(t *testing.T) {
	t.Parallel()
	heading := regexp.MustCompile(`(?m)^## (\[[^]]+\])`)
	upgrading := read(t, "UPGRADING.md")
	versions := func(text string) (all []string) {
		for _, m := range heading.FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		return all
	}
	if want, got := versions(read(t, "CHANGELOG.md")), versions(upgrading); len(want) < 2 || !slices.Equal(want, got) {
		t.Errorf("UPGRADING.md lists the versions %v, want those in CHANGELOG.md: %v", got, want)
	}
	secrets := read(t, "charts/linkreel/templates/secrets.yaml")
	list := regexp.MustCompile(`range \$key := list (.*) }}`).FindStringSubmatch(secrets)
	if list == nil {
		t.Fatal("secrets.yaml has no list of keys")
	}
	keys := strings.Fields(strings.ReplaceAll(list[1], `"`, ""))
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z][\w.-]+): \{\{ (get|dict)`).FindAllStringSubmatch(secrets, -1) {
		keys = append(keys, m[1])
	}
	if len(keys) < 13 {
		t.Fatalf("the chart's Secrets have the keys %v, want at least 13 keys", keys)
	}
	for _, key := range keys {
		if !strings.Contains(upgrading, "`"+key+"`") {
			t.Errorf("UPGRADING.md does not mention the %s key", key)
		}
	}
}

func TestEveryModuleIsInTheWorkspaceAndTheMakefile(t *testing.T) {
	t.Parallel()
	var modules []string
	for _, dir := range []string{"libs", "libs/clients/*", "services/*", "tests"} {
		found, err := filepath.Glob(filepath.Join(root, dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			m, err := filepath.Rel(root, filepath.Dir(f))
			if err != nil {
				t.Fatal(err)
			}
			modules = append(modules, m)
		}
	}
	slices.Sort(modules)
	var used []string
	for _, m := range regexp.MustCompile(`(?m)^\t\./(\S+)$`).FindAllStringSubmatch(read(t, "go.work"), -1) {
		used = append(used, m[1])
	}
	slices.Sort(used)
	listed := strings.Fields(regexp.MustCompile(`(?m)^MODULES := (.*)$`).FindStringSubmatch(read(t, "Makefile"))[1])
	slices.Sort(listed)
	if !slices.Equal(modules, used) {
		t.Errorf("go.work uses the modules %v\nwant %v", used, modules)
	}
	if !slices.Equal(modules, listed) {
		t.Errorf("the Makefile's MODULES are %v\nwant %v", listed, modules)
	}
}

// Modules that other projects import must have few dependencies.
func TestProductsRequireNoServer(t *testing.T) {
	t.Parallel()
	if mod := read(t, "libs/clients/go/go.mod"); strings.Contains(mod, "require") {
		t.Errorf("the Go client requires other modules, want only the standard library:\n%s", mod)
	}
	for module, banned := range map[string][]string{
		"services/localcloud": {"linkreel/linkreel/libs v", "require github.com/linkreel", "gofiber", "replace "},
		"services/cli":        {"linkreel/linkreel/libs v", "linkreel/linkreel/services/auth", "linkreel/linkreel/services/standalone", "gofiber", "cloud.google.com/go/firestore"},
	} {
		mod := read(t, module, "go.mod")
		for _, b := range banned {
			if strings.Contains(mod, b) {
				t.Errorf("%s/go.mod contains %q", module, b)
			}
		}
	}
}

// Every lint exclusion must state its reason.
func TestLintExclusionsHaveReasons(t *testing.T) {
	t.Parallel()
	for line := range strings.Lines(read(t, ".golangci.yml")) {
		if regexp.MustCompile(`^\s+- G\d+\s*$`).MatchString(line) {
			t.Errorf("the lint exclusion %q has no reason", strings.TrimSpace(line))
		}
	}
}

// Every skipped test and every suppressed finding must state a reason that a reader can judge. Work
// must not be postponed in a comment.
func TestWhatIsLeftOutHasAReason(t *testing.T) {
	t.Parallel()
	enabled := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^    - (\w+)`).FindAllStringSubmatch(read(t, ".golangci.yml"), -1) {
		enabled[m[1]] = true
	}
	skip := regexp.MustCompile(`\.Skip(Now|f?)\((.*)`)
	nolint := regexp.MustCompile(`//\s*nolint(:[\w,]+)?( // .{10,})?`) // matches a suppressed linter and its reason
	bare := regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`)                 // matches postponed work
	tracked, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", "*.go", "*.ts", "*.mjs", "*.sh", "*.yml", "*.yaml", "*.py", "*.mk", "Makefile").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	files := strings.Split(strings.TrimSuffix(string(tracked), "\x00"), "\x00")
	if len(files) < 500 {
		t.Fatalf("git ls-files lists only %d files, want at least 500", len(files))
	}
	for _, file := range files {
		if file == "tests/repo/repo_test.go" {
			continue // this file contains the patterns
		}
		for line := range strings.Lines(read(t, file)) {
			line = strings.TrimSpace(line)
			if m := skip.FindStringSubmatch(line); m != nil && strings.HasSuffix(file, "_test.go") && len(m[2]) < 25 {
				t.Errorf("%s: the reason for the skip in %q is too short", file, line)
			}
			if m := nolint.FindStringSubmatch(line); m != nil { // m[2] is the reason
				if m[2] == "" {
					t.Errorf("%s: %q has no reason", file, line)
				}
				for linter := range strings.SplitSeq(strings.TrimPrefix(m[1], ":"), ",") {
					if !enabled[linter] {
						t.Errorf("%s: %q suppresses a linter that .golangci.yml does not enable", file, line)
					}
				}
			}
			if bare.MatchString(line) {
				t.Errorf("%s: %q postpones work; do it now, or open an issue", file, line)
			}
		}
	}
}

// make race and make check run with -short. Tests may do less under -short, but they must still
// run.
func TestNoTestSkipsItselfToBeShort(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, dir := range []string{"libs", "services", "tests"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				branch, ok := n.(*ast.IfStmt)
				if !ok || !calls(branch.Cond, "Short") {
					return true
				}
				seen++
				if calls(branch.Body, "Skip") || calls(branch.Body, "Skipf") || calls(branch.Body, "SkipNow") {
					t.Errorf("%s: a test skips itself with -short; make it do less instead", path)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen == 0 {
		t.Error("no test calls testing.Short, want at least one")
	}
}

// calls reports whether n contains a call to a method, or to a function in another package, with
// this name.
func calls(n ast.Node, name string) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			selector, ok := call.Fun.(*ast.SelectorExpr)
			found = found || ok && selector.Sel.Name == name
		}
		return !found
	})
	return found
}

// ARCHITECTURE.md guides a new reader from the README to the key lines of code. Each hop must be a
// function in the linked file.
func TestTheWalksLeadToFunctionsThatExist(t *testing.T) {
	t.Parallel()
	_, section, found := strings.Cut(read(t, "ARCHITECTURE.md"), "## The two questions that everybody asks")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		t.Fatal("ARCHITECTURE.md has no section with the walks")
	}
	hop := regexp.MustCompile("\\[`(\\w+)`\\]\\(([\\w/.-]+\\.go)\\)")
	walks := 0
	for line := range strings.Lines(section) {
		hops := hop.FindAllStringSubmatch(line, -1)
		if len(hops) == 0 {
			continue
		}
		walks++
		if len(hops) > 3 {
			t.Errorf("the walk has %d hops, want at most 3: %s", len(hops), line)
		}
		for _, h := range hops {
			if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + h[1] + `\(`).MatchString(read(t, h[2])) {
				t.Errorf("%s has no function %s", h[2], h[1])
			}
		}
		// The README must link to the first hop of each walk, and the last hop must contain the
		// quoted line.
		if !strings.Contains(read(t, "README.md"), "("+hops[0][2]+")") {
			t.Errorf("the README does not link to %s", hops[0][2])
		}
		quoted := regexp.MustCompile("`([^`]+)` \\|$").FindStringSubmatch(strings.TrimSpace(line))
		if quoted == nil || !strings.Contains(read(t, hops[len(hops)-1][2]), strings.TrimSuffix(quoted[1], " …")) {
			t.Errorf("the last hop in the walk does not contain the quoted line: %s", line)
		}
	}
	if walks != 2 {
		t.Errorf("ARCHITECTURE.md has %d walks, want 2", walks)
	}
}

// Every test that the "What tenants share" table names must exist.
func TestFencesNameTestsThatExist(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(read(t, "ARCHITECTURE.md"), "## What tenants share\n")
	table, _, _ = strings.Cut(table, "\n## ")
	names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(table, -1)
	if len(names) < 30 {
		t.Fatalf("the table names %d tests, want at least 30", len(names))
	}
	var code strings.Builder
	for _, dir := range []string{"libs", "services", "tests"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			code.Write(source)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		if !strings.Contains(code.String(), "func "+name[1]+"(") {
			t.Errorf("ARCHITECTURE.md mentions %s, which is not a test", name[1])
		}
	}
}

// operations.md must describe every metric. Dashboards and alerts may use only metrics that the code
// defines.
func TestMetricsAreInTheManual(t *testing.T) {
	t.Parallel()
	inCode := map[string]bool{}
	opts := regexp.MustCompile(`prometheus\.\w+Opts\{\s*Name:\s+"(\w+)"`)
	for _, dir := range []string{"libs", "services"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			made := opts.FindAllSubmatch(source, -1)
			for _, m := range made {
				inCode[string(m[1])] = true
			}
			if len(made) != len(regexp.MustCompile(`prometheus\.\w+Opts\{`).FindAll(source, -1)) {
				t.Errorf("%s: the options of every metric must start with Name and a string literal", path)
			}
			if !strings.Contains(path, "libs/metrics/") && bytes.Contains(source, []byte("promauto.NewCounterVec(")) {
				t.Errorf("%s: create counters with labels through libs/metrics so that their series start at 0", path)
			}
			if bytes.Contains(source, []byte(`"go.opentelemetry.io/otel/metric"`)) {
				t.Errorf("%s: use Prometheus metrics (docs/adr/0020-metrics-are-prometheus-metrics.md)", path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, table, _ := strings.Cut(read(t, "docs/operations.md"), "### Metrics\n")
	table, _, _ = strings.Cut(table, "\n### ")
	inManual := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)`").FindAllStringSubmatch(table, -1) {
		inManual[m[1]] = true
		if !inCode[m[1]] {
			t.Errorf("docs/operations.md describes %s, which the code does not define", m[1])
		}
	}
	for name := range inCode {
		if !inManual[name] {
			t.Errorf("the metrics table in docs/operations.md does not list %s", name)
		}
	}
	_, runbooks, _ := strings.Cut(read(t, "docs/operations.md"), "### Alerts\n")
	shown := runbooks + read(t, "charts/linkreel/files/dashboard.json") + read(t, "charts/linkreel/templates/_alerts.tpl") + read(t, "charts/linkreel/templates/rules.yaml")
	for _, name := range regexp.MustCompile(`\b(linkreel|localcloud|http_server)_\w+`).FindAllString(shown, -1) {
		if whole := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, ""); !inCode[name] && !inCode[whole] {
			t.Errorf("the chart or a runbook uses %s, which the code does not define", name)
		}
	}
}

// Every decision record must show its date and whether it is still in force.
func TestDecisionsHaveADateAndAStatus(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "docs/adr/0*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("docs/adr contains no decision records: %v", err)
	}
	dated := regexp.MustCompile(`(?m)^Date: 20\d\d-\d\d-\d\d(, changed 20\d\d-\d\d-\d\d)?\. Status: (accepted|replaced by \[\d{4}\].*)\.$`)
	for _, file := range files {
		name := filepath.Base(file)
		if !dated.MatchString(read(t, "docs/adr", name)) {
			t.Errorf("%s does not state its date and status in the required form", name)
		}
		if !strings.Contains(read(t, "docs/adr/README.md"), "("+name+")") {
			t.Errorf("docs/adr/README.md does not list %s", name)
		}
	}
}

// The linter checks the direct imports of domain packages. This test also checks the indirect ones.
func TestDomainPackagesLinkNoTransport(t *testing.T) {
	t.Parallel()
	list := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}}: {{join .Deps \" \"}} ",
		"./libs/apierr", "./libs/events", "./libs/identity", "./libs/label", "./libs/search", "./libs/tenant", "./libs/transcode", "./libs/turns",
		"./services/auth/internal/account", "./services/auth/internal/member",
		"./services/events/internal/caller", "./services/events/internal/feed", "./services/events/internal/webhook",
		"./services/links/internal/customdomain", "./services/links/internal/link",
		"./services/videos/internal/hls", "./services/videos/internal/video")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list failed: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		name, deps, _ := strings.Cut(line, ": ")
		for _, transport := range []string{
			"github.com/gofiber/fiber/v2", "github.com/valyala/fasthttp", "cloud.google.com/go/firestore", "github.com/redis/go-redis/v9",
		} {
			if strings.Contains(" "+deps, " "+transport+" ") {
				t.Errorf("%s imports %s, directly or indirectly", name, transport)
			}
		}
	}
}
