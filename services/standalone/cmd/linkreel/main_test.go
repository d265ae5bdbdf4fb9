package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/linkreel/linkreel/services/cli"
	"github.com/linkreel/linkreel/services/standalone"
)

// TestTheChartsCommandsAreUnderstood parses the arguments of the chart's backup job and restore
// container the way the program does.
func TestTheChartsCommandsAreUnderstood(t *testing.T) {
	t.Parallel()
	const chart = "../../../../charts/linkreel"
	helm, err := exec.LookPath("../../../../.local/bin/helm")
	if err != nil {
		if helm, err = exec.LookPath("helm"); err != nil {
			t.Fatal("helm is not installed; run `make chart` to build it")
		}
	}
	for name, tt := range map[string]struct {
		values  []string
		backup  standalone.BackupOptions
		restore standalone.RestoreOptions
	}{
		"only the required values": {
			[]string{"--set", "backup.enabled=true,restore.enabled=true"},
			standalone.BackupOptions{Dir: "/backups", From: "http://try-linkreel-localcloud:8087/", TokenFile: "/etc/linkreel-backup/token"},
			standalone.RestoreOptions{Dir: "/backups", Localcloud: "/data"},
		},
		"everything": {
			[]string{"--values", chart + "/ci/everything.yaml"},
			standalone.BackupOptions{
				Dir: "/backups", From: "http://try-linkreel-localcloud:8087/", TokenFile: "/etc/linkreel-backup/token",
				Recipient: "age1qyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqs3290gq",
			},
			standalone.RestoreOptions{
				Dir: "/backups", Localcloud: "/data", ObjectsDir: "/objects", Name: "2026-11-26T02-17-00.000Z", Identity: "/etc/linkreel-identity/identity",
				Audit: "/audit", SkipDamaged: true, WithoutKeys: true,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := exec.CommandContext(t.Context(), helm, append([]string{"template", "try", chart}, tt.values...)...).Output()
			if err != nil {
				t.Fatal(err)
			}
			args := func(command string) (list []string) {
				m := regexp.MustCompile(`(?s)args:\n +- ` + command + `\n(.*?)\n +env:`).FindSubmatch(text)
				if m == nil {
					t.Fatalf("the chart does not run linkreel %s", command)
				}
				for line := range strings.Lines(string(m[1])) {
					list = append(list, strings.TrimPrefix(strings.TrimSpace(line), "- "))
				}
				return list
			}
			b, err := backupOptions(args("backup"), cli.Env{})
			if diff := cmp.Diff(tt.backup, b); err != nil || diff != "" {
				t.Errorf("backupOptions returned the error %v and different options (-want +got):\n%s", err, diff)
			}
			r, err := restoreOptions(args("restore"), cli.Env{})
			if diff := cmp.Diff(tt.restore, r, cmpopts.IgnoreUnexported(standalone.RestoreOptions{})); err != nil || diff != "" {
				t.Errorf("restoreOptions returned the error %v and different options (-want +got):\n%s", err, diff)
			}
		})
	}
}

// The program must understand the commands in docs/recovery.md.
func TestTheCommandsOfRecoveryAreUnderstood(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/recovery.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^ *(?:\./)?linkreel (backup|restore) ([^#\n]*)`).FindAllSubmatch(page, -1)
	for _, m := range commands {
		args := strings.Fields(string(m[2]))
		_, err := backupOptions(args, cli.Env{})
		if string(m[1]) == "restore" {
			_, err = restoreOptions(args, cli.Env{})
		}
		if err != nil {
			t.Errorf("linkreel %s %s returned %v", m[1], m[2], err)
		}
	}
	if len(commands) < 4 {
		t.Errorf("docs/recovery.md has only %d commands, want at least 4", len(commands))
	}
}
