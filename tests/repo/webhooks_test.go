package repo_test

import (
	"regexp"
	"strings"
	"testing"
)

// Developers who write a receiver look in docs/webhooks.md to find out why a client refuses a
// message.
func TestTheGuideListsEveryReasonOfARefusedWebhook(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(read(t, "docs/webhooks.md"), "\n### Why a message is refused\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for file, reason := range map[string]*regexp.Regexp{
		"libs/clients/go/webhooks.go":               regexp.MustCompile(`&WebhookError\{"(\w+)"`),
		"libs/clients/typescript/src/webhooks.ts":   regexp.MustCompile(`new WebhookError\("(\w+)"`),
		"libs/clients/python/linkreel/_webhooks.py": regexp.MustCompile(`raise WebhookError\("(\w+)"`),
	} {
		found := reason.FindAllStringSubmatch(read(t, file), -1)
		if len(found) < 4 {
			t.Errorf("%s has %d reasons, want at least 4", file, len(found))
		}
		for _, m := range found {
			if !strings.Contains(table, "`"+m[1]+"`") {
				t.Errorf("docs/webhooks.md does not list the reason %s from %s", m[1], file)
			}
		}
	}
}
