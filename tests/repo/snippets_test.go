package repo_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fenced says which test covers a group of code blocks on a page.
type fenced struct {
	page     string // a path, in which * matches any name
	language string // a regular expression for the whole info string of the fence
	begins   string // a regular expression for the beginning of the block
	by       string // folder and function of the test, or ""
	why      string // why no test runs the block, if by is ""
}

const (
	operators = "tests/cluster:TestOperatorsSnippetsRunAsPasted"
	documents = "tests/contract:TestSnippetsOfTheDocumentsRun"
	receiver  = "tests/contract:TestAWebhookIsReceivedAsTheDocumentSays"
	clients   = "tests/contract:TestSnippetsOfTheClientsRun"
)

// snippets lists all code blocks on all pages. For each block, the first matching entry applies.
var snippets = []fenced{
	{page: "docs/api/videos.md", language: ``, why: "a diagram of the states"},
	{page: "docs/api/*.md", language: `go|ts|python|sh|sh cli|json|text`, by: "tests/contract:TestPagesRunAsPasted"},

	{page: "docs/operations.md", language: `sh`, by: operators},
	{page: "docs/operations.md", language: `yaml`, begins: `# prometheus.yaml`, by: "tests/cluster:TestConfigurationsOfOtherPrograms"},
	{page: "docs/operations.md", language: `yaml`, begins: `# otelcol.yaml`, by: "tests/cluster:TestConfigurationsOfOtherPrograms"},
	{page: "docs/operations.md", language: `yaml`, by: "tests/cluster:TestRecipes"},
	{page: "docs/recovery.md", language: `sh`, by: operators},
	{page: "docs/recovery.md", language: `yaml`, by: "tests/cluster:TestRecipes"},
	{page: "docs/recovery.md", language: `json`, by: "tests/cluster:TestTheRecipesOfRecoveryAreOurs"},
	{page: "docs/recovery.md", language: ``, begins: `15 3 \* \* \*`, why: "a line for cron; the program that it starts has its own tests"},
	{page: "docs/failures.md", language: `yaml`, by: "tests/cluster:TestConfigurationsOfOtherPrograms"},
	{page: "docs/releasing.md", language: `sh`, begins: `make `, by: operators},
	{page: "docs/releasing.md", language: `sh`, by: "tests/cluster:TestAReleaseIsPublishedOnlyWhenAllOfItIsRight"},
	{page: "docs/development.md", language: `sh`, by: operators},
	{page: "charts/*/README.md", language: `sh`, by: operators},
	{page: "tests/cluster/README.md", language: `sh`, by: operators},
	{page: "README.md", language: `sh`, begins: `make `, by: operators},
	{page: "services/localcloud/README.md", language: `sh`, by: "services/localcloud/cmd/localcloud:TestTheReadmeStartsTheProgram"},
	{page: "services/localcloud/README.md", language: `go`, why: "the outline of a test, without its body; the tests in libs/firestoredb start the same way"},

	{page: "README.md", language: `sh`, by: documents},
	{page: "docs/api.md", language: `sh`, by: documents},
	{page: "docs/api.md", language: ``, begins: `RateLimit`, why: "sample headers"},
	{page: "docs/cli.md", language: `sh`, by: documents},
	{page: "docs/cli.md", language: `yaml|text`, begins: `domains:|~ domain`, by: "services/cli:TestTheExampleOfApplyPrintsItsSample"},
	{page: "docs/cli.md", language: `text`, begins: `V=`, why: "installs a published release, with root privileges and on three systems"},
	{page: "docs/cli.md", language: `text`, begins: `clip.mov`, why: "a sample progress bar"},
	{page: "docs/guides.md", language: `sh`, by: documents},
	{page: "docs/guides.md", language: `html`, why: "an iframe for the reader's own web page"},
	{page: "docs/mcp.md", language: `sh`, by: documents},
	{page: "docs/mcp.md", language: `json`, why: "settings for an assistant"},
	{page: "docs/mcp.md", language: `text`, why: "a sample error"},
	{page: "docs/sign-in.md", language: `sh`, by: documents},
	{page: "docs/sign-in.md", language: `text`, begins: `LINKREEL_OIDC_`, why: "settings for an account with another company"},
	{page: "docs/errors.md", language: `json`, by: "tests/contract:TestTheSampleOfAnErrorIsReal"},
	{page: "docs/webhooks.md", language: `sh`, begins: `header\(|export LINKREEL_WEBHOOK_SECRET`, by: "tests/contract:TestSnippetsVerifyWebhooks"},
	{page: "docs/webhooks.md", language: `sh`, by: receiver},
	{page: "docs/webhooks.md", language: `go|ts|python`, by: "tests/contract:TestSnippetsVerifyWebhooks"},
	{page: "docs/webhooks.md", language: `http`, why: "a sample message"},
	{page: "libs/clients/README.md", language: `go|ts|python`, by: clients},
	{page: "libs/clients/README.md", language: `sh`, begins: `stack\(\)`, by: receiver}, // docs/webhooks.md has the same lines
	{page: "libs/clients/README.md", language: `text`, by: "tests/contract:TestPythonClientIsInstalledFromTheWheelAndFromTheSource"},
	{page: "ARCHITECTURE.md", language: ``, why: "a diagram of the services"},
}

var anyFence = regexp.MustCompile("(?sm)^ *```([^\n]*)\n(.*?)\n? *```$")

// Readers may paste any code block from any page. Each block is run or checked by a test, or the
// list says why it cannot be.
func TestEverySnippetHasATestOrAReason(t *testing.T) {
	t.Parallel()
	used := make([]int, len(snippets))
	blocks, unrun := 0, 0
	for _, glob := range []string{"*.md", "docs/*.md", "docs/api/*.md", "charts/*/README.md", "libs/*/README.md", "services/*/README.md", "tests/*/README.md"} {
		pages, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil || len(pages) == 0 {
			t.Fatalf("there is no page %s: %v", glob, err)
		}
		for _, path := range pages {
			page, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			if page == "CHANGELOG.md" {
				continue
			}
			for _, b := range anyFence.FindAllStringSubmatch(read(t, page), -1) {
				blocks++
				text := strings.TrimSpace(b[2])
				i := entryOf(page, b[1], text)
				if i < 0 {
					t.Errorf("%s: no entry in the list matches this block, in %q: %.100s", page, b[1], text)
					continue
				}
				if used[i]++; snippets[i].by == "" {
					unrun++
				}
			}
		}
	}
	for i, s := range snippets {
		if used[i] == 0 {
			t.Errorf("the entry for %s (%s) does not match any block", s.page, s.language)
		}
		if (s.by == "") == (s.why == "") {
			t.Errorf("the entry for %s (%s) needs a test or a reason", s.page, s.language)
		}
		folder, name, _ := strings.Cut(s.by, ":")
		if s.by != "" && !hasTest(t, folder, name) {
			t.Errorf("the entry for %s (%s) names %s, which does not exist", s.page, s.language, s.by)
		}
	}
	if t.Logf("%d blocks, of which %d have a reason instead of a test", blocks, unrun); blocks < 600 {
		t.Errorf("the pages have only %d blocks, want at least 600", blocks)
	}
}

// entryOf returns the index of the first entry that matches a block, or -1.
func entryOf(page, language, text string) int {
	for i, s := range snippets {
		inPage, _ := filepath.Match(s.page, page)
		if inPage && regexp.MustCompile(`^(?:`+s.language+`)$`).MatchString(language) && regexp.MustCompile(`^(?:`+s.begins+`)`).MatchString(text) {
			return i
		}
	}
	return -1
}

func hasTest(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}
