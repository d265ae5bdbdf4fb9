// Package repo_test holds what has to be true of the repository itself: its modules, its workflows, its command lists.
package repo_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
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

// Whoever can move a tag could run code in our pipeline; a commit cannot be moved.
func TestActionsArePinnedByCommit(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	pinned := regexp.MustCompile(`uses: (\./|[\w./-]+@[0-9a-f]{40} # v\d)`)
	for _, file := range files {
		for line := range strings.Lines(read(t, strings.TrimPrefix(file, root))) {
			if strings.Contains(line, "uses:") && !pinned.MatchString(line) {
				t.Errorf("%s: %q names no commit with its version behind it", filepath.Base(file), strings.TrimSpace(line))
			}
		}
	}
}

func TestEveryModuleIsInTheWorkspaceAndTheMakefile(t *testing.T) {
	t.Parallel()
	var modules []string
	for _, dir := range []string{"libs", "libs/*", "services/*", "tests"} {
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
		t.Errorf("modules %v\nbut go.work uses %v", modules, used)
	}
	if !slices.Equal(modules, listed) {
		t.Errorf("modules  %v\nMakefile %v", modules, listed)
	}
}

// What others build on brings little along.
func TestProductsRequireNoServer(t *testing.T) {
	t.Parallel()
	if mod := read(t, "libs/client/go.mod"); strings.Contains(mod, "require") {
		t.Errorf("the Go client requires more than the standard library:\n%s", mod)
	}
	for module, banned := range map[string][]string{
		"libs/localcloud": {"linkreel/linkreel/libs v", "linkreel/linkreel/services", "gofiber", "replace "},
		"services/cli":    {"linkreel/linkreel/libs v", "linkreel/linkreel/services/auth", "linkreel/linkreel/services/standalone", "gofiber", "cloud.google.com/go/firestore"},
	} {
		mod := read(t, module, "go.mod")
		for _, b := range banned {
			if strings.Contains(mod, b) {
				t.Errorf("%s/go.mod holds %q", module, b)
			}
		}
	}
}

// Settings that lint leaves out have a reason behind them.
func TestLintExclusionsHaveReasons(t *testing.T) {
	t.Parallel()
	for line := range strings.Lines(read(t, ".golangci.yml")) {
		if regexp.MustCompile(`^\s+- G\d+\s*$`).MatchString(line) {
			t.Errorf("%q has no reason", strings.TrimSpace(line))
		}
	}
}
