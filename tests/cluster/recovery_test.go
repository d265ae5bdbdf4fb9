package cluster

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/trail"
)

// TestTheRecipesOfRecoveryAreOurs compares what docs/recovery.md tells operators of Google's
// services with the code's own lists: TTL policies, the lifecycle of the bucket, names of
// objects, settings and flags.
func TestTheRecipesOfRecoveryAreOurs(t *testing.T) {
	t.Parallel()
	text := string(read(t, "../../docs/recovery.md"))
	_, text, _ = strings.Cut(text, "\n## On Google's services\n")
	recipe, _, _ := strings.Cut(text, "\n## ")
	if len(recipe) < 1000 {
		t.Fatal("docs/recovery.md has no recipe for Google's services")
	}
	t.Run("TTL policies", func(t *testing.T) {
		t.Parallel()
		var indexes struct {
			FieldOverrides []struct {
				CollectionGroup, FieldPath string
				TTL                        bool
			}
		}
		if err := json.Unmarshal(read(t, filepath.Join(chart, "files/firestore.indexes.json")), &indexes); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, f := range indexes.FieldOverrides {
			if f.TTL {
				want = append(want, f.CollectionGroup+"."+f.FieldPath)
			}
		}
		slices.Sort(want)
		shown := regexp.MustCompile(`The last command must show: (.*)\.\n`).FindStringSubmatch(recipe)
		if shown == nil {
			t.Fatal("no list")
		}
		if got := strings.Split(strings.ReplaceAll(shown[1], "`", ""), ", "); !slices.Equal(got, want) {
			t.Errorf("it lists %q, and the indexes file has %q", got, want)
		}
	})
	t.Run("lifecycle of the bucket", func(t *testing.T) {
		t.Parallel()
		rules := func(text string) (out any) {
			found := regexp.MustCompile(`(?s)\{"rule": \[.*?\n *\]\}`).FindString(text)
			if err := json.Unmarshal([]byte(found), &out); err != nil {
				t.Fatalf("%v in %q", err, found)
			}
			return out
		}
		got := rules(recipe)
		if setUp := rules(string(read(t, "../../docs/operations.md"))); !reflect.DeepEqual(got, setUp) {
			t.Errorf("recovery.md has %v, operations.md %v", got, setUp)
		}
		want := fmt.Sprintf("map[action:map[type:Delete] condition:map[age:%d matchesPrefix:[%s]]]", int(trail.Keep.Hours()/24), trail.Prefix)
		if !strings.Contains(fmt.Sprint(got), want) {
			t.Errorf("the rules are %v, want %s", got, want)
		}
	})
	t.Run("names", func(t *testing.T) {
		t.Parallel()
		for _, want := range []string{
			"gs://$B/" + objectstore.OwnerObject, "gs://$B/" + trail.Prefix, "`" + trail.Prefix + "DAY/TIME-ID.jsonl`", "linkreel/files/firestore.indexes.json", `"database":"restored"`,
			"--destination-database=restored", "cloud.google.database: restored", "--enable-pitr", "--soft-delete-duration=7d",
		} {
			if !strings.Contains(recipe, want) {
				t.Errorf("it does not say %s", want)
			}
		}
	})
	t.Run("the Job", func(t *testing.T) {
		t.Parallel()
		manifest := regexp.MustCompile(`(?s)<<END\n(.*?)\n +END\n`).FindStringSubmatch(recipe)
		if manifest == nil {
			t.Fatal("no Job")
		}
		var job map[string]any
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll("\n"+manifest[1], "\n   ", "\n")), &job); err != nil {
			t.Fatal(err)
		}
		objects, err := render(t, "--values", filepath.Join(chart, "ci/google.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		settings := environment(objects, "auth")
		program := string(read(t, "../../services/auth/cmd/auth/restore.go"))
		container := listAt(object(job), "spec", "template", "spec", "containers")[0]
		for _, e := range listAt(container, "env") {
			if name := fmt.Sprint(e["name"]); settings[name] == "" {
				t.Errorf("%s is no setting of auth in a cluster", name)
			}
		}
		args, _ := container["args"].([]any)
		for _, arg := range args[1:] {
			flag, _, _ := strings.Cut(strings.TrimPrefix(fmt.Sprint(arg), "--"), "=")
			if !strings.Contains(program, fmt.Sprintf("flags.String(%q", flag)) {
				t.Errorf("auth restore has no flag --%s", flag)
			}
		}
		if fmt.Sprint(args[0]) != "restore" || len(args) != 3 {
			t.Errorf("arguments %v", args)
		}
	})
}
