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

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/queue"
	"github.com/linkreel/linkreel/libs/trail"
)

// TestTheRecipesOfRecoveryAreOurs compares the instructions in docs/recovery.md for Google's
// services with the code: TTL policies, the bucket's lifecycle, object names, settings and flags.
func TestTheRecipesOfRecoveryAreOurs(t *testing.T) {
	t.Parallel()
	text := string(read(t, "../../docs/recovery.md"))
	_, text, _ = strings.Cut(text, "\n## On Google's services\n")
	recipe, _, _ := strings.Cut(text, "\n## ")
	if len(recipe) < 1000 {
		t.Fatal("docs/recovery.md does not have instructions for Google's services")
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
			t.Fatal("docs/recovery.md does not have a list of TTL policies")
		}
		if got := strings.Split(strings.ReplaceAll(shown[1], "`", ""), ", "); !slices.Equal(got, want) {
			t.Errorf("docs/recovery.md lists %q, but the indexes file has %q", got, want)
		}
	})
	t.Run("lifecycle of the bucket", func(t *testing.T) {
		t.Parallel()
		rules := func(text string) (out any) {
			found := regexp.MustCompile(`(?s)\{"rule": \[.*?\n *\]\}`).FindString(text)
			if err := json.Unmarshal([]byte(found), &out); err != nil {
				t.Fatalf("cannot parse the lifecycle: %v: %q", err, found)
			}
			return out
		}
		got := rules(recipe)
		if setUp := rules(string(read(t, "../../docs/operations.md"))); !reflect.DeepEqual(got, setUp) {
			t.Errorf("recovery.md has the lifecycle %v, but operations.md has %v", got, setUp)
		}
		want := fmt.Sprintf("map[action:map[type:Delete] condition:map[age:%d matchesPrefix:[%s]]]", int(trail.Keep.Hours()/24), trail.Prefix)
		if !strings.Contains(fmt.Sprint(got), want) {
			t.Errorf("the lifecycle rules are %v, want %s among them", got, want)
		}
	})
	t.Run("names", func(t *testing.T) {
		t.Parallel()
		for _, want := range []string{
			"gs://$B/" + objectstore.OwnerObject, "gs://$B/" + trail.Prefix, "`" + trail.Prefix + "DAY/TIME-ID.jsonl`", "linkreel/files/firestore.indexes.json", `"database":"restored"`,
			"--destination-database=restored", "cloud.google.database=restored", "--enable-pitr", "--soft-delete-duration=7d",
		} {
			if !strings.Contains(recipe, want) {
				t.Errorf("docs/recovery.md does not contain %s", want)
			}
		}
	})
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		objects, err := renderAs(t, "linkreel", "linkreel")
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, o := range objects {
			if o.kind() != "StatefulSet" || !strings.HasSuffix(o.name(), "-redis") {
				continue
			}
			want = append(want, "scale statefulset/"+o.name()+" --replicas=0", "pod/"+o.name()+"-0", "scale statefulset/"+o.name()+" --replicas=1")
			for _, claim := range listAt(o, "spec", "volumeClaimTemplates") {
				want = append(want, "delete pvc "+claim.name()+"-"+o.name()+"-0 ")
			}
		}
		if len(want) != 4 {
			t.Fatalf("the chart has the Redis steps %q, want four", want)
		}
		// Every Redis key in the code begins with a prefix that the recipe deletes. A test in
		// services/standalone compares the recipe with the keys in a running installation.
		for _, want := range append(want, "'lr:*'", "'{lr:*'", "'"+strings.TrimSuffix(queue.StreamKey("*"), "}")+"'", "LINKREEL_CLICKS_REDIS_URL") {
			if !strings.Contains(recipe, want) {
				t.Errorf("the recipe does not contain %s", want)
			}
		}
		if stop, empty, start := strings.Index(recipe, "linkreel --replicas=0"), strings.Index(recipe, want[0]), strings.Index(recipe, "helm upgrade"); stop < 0 || empty < stop || start < empty {
			t.Error("the recipe does not empty Redis between stopping the services and starting them again")
		}
	})
	t.Run("autoscalers", func(t *testing.T) {
		t.Parallel()
		objects, err := renderAs(t, "linkreel", "linkreel", "--values", filepath.Join(chart, "ci/google.yaml"), "--set", "defaults.autoscaling.enabled=true,worker.autoscaling.enabled=false,worker.keda.enabled=true,worker.keda.address=10.20.0.4:6379")
		if err != nil {
			t.Fatal(err)
		}
		// KEDA scales up from zero, so the recipe must pause every ScaledObject before it stops the
		// services. A HorizontalPodAutoscaler does not scale up from zero.
		command := "kubectl -n linkreel annotate scaledobject -l app.kubernetes.io/instance=linkreel autoscaling.keda.sh/paused-replicas"
		scaled := 0
		for _, o := range objects {
			switch o.kind() {
			case "ScaledObject":
				scaled++
				if got := o.at("metadata", "labels", "app.kubernetes.io/instance"); got != "linkreel" {
					t.Errorf("the ScaledObject %s has the instance %v, so the recipe does not pause it", o.name(), got)
				}
			case "HorizontalPodAutoscaler":
			default:
				if strings.Contains(o.kind(), "Scal") {
					t.Errorf("the recipe does not pause the autoscaler %s %s", o.kind(), o.name())
				}
			}
		}
		if scaled == 0 {
			t.Fatal("the chart did not render a ScaledObject")
		}
		at := -1
		for _, step := range []string{command + "=0 --overwrite\n", "scale deployment -l app.kubernetes.io/instance=linkreel --replicas=0\n", "helm upgrade", "restore.enabled=false", command + "-\n"} {
			i := strings.Index(recipe, step)
			if i < at {
				t.Errorf("the recipe has %q at %d, want it after %d", step, i, at)
			}
			at = i
		}
	})
	t.Run("the Job", func(t *testing.T) {
		t.Parallel()
		args := []string{"--values", filepath.Join(chart, "ci/google.yaml")}
		for _, set := range regexp.MustCompile(`--set ((?:cloud|restore)\S+)`).FindAllStringSubmatch(recipe, -1) {
			args = append(args, "--set", set[1])
		}
		objects, err := render(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		program := string(read(t, "../../services/auth/cmd/auth/restore.go"))
		given, _ := containerOf(t, pods(objects), "Job try-linkreel-restore", "restore")["args"].([]any)
		if len(given) != 2 || given[0] != "restore" {
			t.Fatalf("the Job runs with %v, want restore and one flag", given)
		}
		for _, arg := range given[1:] {
			flag, _, _ := strings.Cut(strings.TrimPrefix(fmt.Sprint(arg), "--"), "=")
			if !strings.Contains(program, fmt.Sprintf("flags.String(%q", flag)) {
				t.Errorf("`auth restore` does not have a --%s flag", flag)
			}
		}
	})
}
