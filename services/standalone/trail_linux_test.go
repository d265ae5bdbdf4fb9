package standalone

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/trail"
)

// only returns the rights from a single round of [Stack.give].
func (r rights) only(i int) rights {
	own := r.secrets[len(r.secrets)-1]
	return rights{
		r.keys[i : i+1], []string{r.secrets[i], own}, r.removed[i : i+1], r.lowered[i : i+1], r.suspended[i : i+1], r.erased[i : i+1], r.slugs[i : i+1], r.links[i : i+1],
	}
}

// notesOf returns the files in a trail and the ID of the installation that wrote them.
func notesOf(t *testing.T, dir string) (files []string, of string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.jsonl"))
	if err != nil || len(files) < 6 {
		t.Fatalf("the trail contains the files %v (error %v), want at least 6", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var n trail.Note
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&n); err != nil || n.Of == "" {
		t.Fatalf("the note is from the installation %q (%v), want an ID", n.Of, err)
	}
	return files, n.Of
}

// The test restores one backup with trails that are lost, incomplete, duplicated and forged. The
// restore must report what it cannot use, apply the rest, and leave all other rights alone.
func TestADamagedTrailIsTold(t *testing.T) {
	t.Parallel()
	data, dir := t.TempDir(), t.TempDir()
	s := up(t, data)
	r := s.give(t, 2)
	ended, kept := r.only(0), r.only(1)
	if err := Backup(t.Context(), io.Discard, BackupOptions{Dir: dir, Env: on(data)}); err != nil {
		t.Fatal(err)
	}
	s.take(t, ended)
	down(t, s) // each note was written before its response, so the erasure need not be complete
	everything := []string{
		"key " + ended.keys[0], "member " + ended.removed[0], "role of " + ended.lowered[0], "account " + ended.suspended[0], "erased account " + ended.erased[0], "link " + ended.slugs[0],
	}

	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	type damaged struct {
		damage func(audit string)
		held   []string // revoked rights that the restore grants again
		said   []string
	}
	cases := map[string]damaged{
		"incomplete": {func(audit string) {
			files, _ := notesOf(t, audit)
			for _, path := range files {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Contains(text, []byte(ended.keys[0])) {
					write(path, string(text[:len(text)/2]))
				}
			}
		}, []string{"key " + ended.keys[0]}, []string{"is damaged or incomplete", ended.removed[0]}},
		"doubled": {func(audit string) {
			files, _ := notesOf(t, audit)
			for i, path := range files {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				write(path, strings.Repeat(string(text), 2))
				write(filepath.Join(filepath.Dir(path), fmt.Sprintf("again-%d.jsonl", i)), string(text))
			}
		}, nil, []string{ended.keys[0], ended.links[0]}},
		"forged": {func(audit string) {
			files, of := notesOf(t, audit)
			notes := []trail.Note{
				{Kind: trail.KeyRevoked, Account: kept.suspended[0], ID: kept.keys[0]}, {Kind: trail.KeyRevoked, Account: kept.suspended[0], ID: "../" + kept.keys[0]},
				{Kind: trail.MemberRemoved, Account: kept.suspended[0], ID: kept.removed[0]}, {Kind: trail.MemberRole, Account: kept.suspended[0], ID: kept.lowered[0], To: "viewer"},
				{Kind: trail.MemberRole, Account: kept.suspended[0], ID: kept.lowered[0], To: "king"}, {Kind: trail.AccountState, ID: "acc_elsewhere", To: "deleting"},
				{Kind: trail.AccountState, ID: kept.erased[0] + "/x", To: "deleting"}, {Kind: trail.TakenDown, ID: "tkd_elsewhere", Record: "lnk_elsewhere", To: "link"},
				{Kind: "account.erased", ID: kept.erased[0]}, {Kind: trail.AccountState, ID: kept.suspended[0], To: "suspended", Of: "db_elsewhere"},
			}
			var lines strings.Builder
			for _, n := range notes {
				n.Of, n.At = cmp.Or(n.Of, of), time.Now()
				line, err := json.Marshal(n)
				if err != nil {
					t.Fatal(err)
				}
				lines.Write(append(line, '\n'))
			}
			write(filepath.Join(filepath.Dir(files[0]), "forged.jsonl"), lines.String())
		}, nil, []string{"db_elsewhere", "../" + kept.keys[0], kept.erased[0] + "/x", "account.erased"}},
		"replaced by an empty disk": {func(audit string) {
			if err := os.RemoveAll(audit); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(audit, 0o700); err != nil {
				t.Fatal(err)
			}
		}, everything, []string{"There are no notes from this installation"}},
	}
	// An erasure takes at least 15 s, so start all stacks before checking the first one.
	told, restored := map[string]string{}, map[string]*Stack{}
	for name, tt := range cases {
		again, audit := t.TempDir(), filepath.Join(t.TempDir(), "audit")
		if err := os.CopyFS(audit, os.DirFS(filepath.Join(data, auditDir))); err != nil {
			t.Fatal(err)
		}
		tt.damage(audit)
		var said strings.Builder
		if err := Restore(t.Context(), &said, RestoreOptions{Dir: dir, Audit: audit, Env: on(again)}); err != nil {
			t.Fatal(err)
		}
		told[name], restored[name] = said.String(), up(t, again)
	}
	t.Run("lost", func(t *testing.T) {
		again := t.TempDir()
		missing := filepath.Join(t.TempDir(), "missing")
		if err := Restore(t.Context(), io.Discard, RestoreOptions{Dir: dir, Audit: missing, Env: on(again)}); err == nil || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "--audit") {
			t.Errorf("a restore with a missing trail returned %v, want an error with the folder and --audit", err)
		}
		if left, err := os.ReadDir(again); err != nil || len(left) > 0 {
			t.Errorf("the restore left the files %v (error %v), want none", left, err)
		}
	})
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			said, r := told[name], restored[name]
			defer down(t, r)
			for _, want := range tt.said {
				if !strings.Contains(said, want) {
					t.Errorf("the restore printed %s, want it to contain %q", said, want)
				}
			}
			eventually(t, func() string {
				if held := r.holds(t, ended); !slices.Equal(held, tt.held) {
					return fmt.Sprintf("the revoked rights %q are granted again, want %q: %s", held, tt.held, said)
				}
				return ""
			})
			if held := r.holds(t, kept); len(held) != 6 {
				t.Errorf("of the other rights, only %v are granted, want all 6: %s", held, said)
			}
		})
	}
}
