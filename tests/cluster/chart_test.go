package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/services/localcloud/redisproc"
	"github.com/linkreel/linkreel/services/standalone"
)

const chart = "../../charts/linkreel"

var update = flag.Bool("update", false, "rewrite the generated parts of the chart")

// value is a documented leaf in values.yaml.
type value struct{ path, doc, def string }

// documented reads values.yaml. Each "# -- sentence" documents the key below it.
func documented(t *testing.T) []value {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal(read(t, filepath.Join(chart, "values.yaml")), &doc); err != nil {
		t.Fatal(err)
	}
	var values []value
	var walk func(n *yaml.Node, path string)
	walk = func(n *yaml.Node, path string) {
		for i := 0; i < len(n.Content); i += 2 {
			key, val := n.Content[i], n.Content[i+1]
			at := strings.TrimPrefix(path+"."+key.Value, ".")
			_, sentence, has := strings.Cut(key.HeadComment, "# -- ")
			switch {
			case has:
				values = append(values, value{at, strings.Join(strings.Fields(strings.ReplaceAll(sentence, "\n# ", " ")), " "), inline(t, val)})
			case val.Kind == yaml.MappingNode && len(val.Content) > 0:
				walk(val, at)
			case overridden(at):
			default:
				t.Errorf("values.yaml does not have a sentence (# -- …) for %s", at)
			}
		}
	}
	walk(doc.Content[0], "")
	return values
}

// overridden reports whether at overrides a default for one service.
func overridden(at string) bool {
	return regexp.MustCompile(`^(auth|links|videos|worker)\.(resources|graceSeconds)`).MatchString(at)
}

func inline(t *testing.T, n *yaml.Node) string {
	t.Helper()
	var v any
	if err := n.Decode(&v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestValues(t *testing.T) {
	t.Parallel()
	values := documented(t)
	t.Run("in the schema", func(t *testing.T) {
		t.Parallel()
		var schema map[string]any
		if err := json.Unmarshal(read(t, filepath.Join(chart, "values.schema.json")), &schema); err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			if !inSchema(schema, schema, strings.Split(v.path, ".")) {
				t.Errorf("values.schema.json lacks %s", v.path)
			}
		}
	})
	t.Run("in a template", func(t *testing.T) {
		t.Parallel()
		templates := templates(t)
		for _, v := range values {
			name := v.path[strings.LastIndexByte(v.path, '.')+1:]
			if !strings.Contains(templates, "."+name) && !strings.Contains(templates, `"`+name+`"`) {
				t.Errorf("%s is not used in any template", v.path)
			}
		}
	})
	t.Run("in the README", func(t *testing.T) {
		t.Parallel()
		var table strings.Builder
		table.WriteString("| Value | Default | Meaning |\n|---|---|---|\n")
		for _, v := range values {
			fmt.Fprintf(&table, "| `%s` | `%s` | %s |\n", v.path, v.def, strings.ReplaceAll(v.doc, "|", `\|`))
		}
		matchBetween(t, filepath.Join(chart, "README.md"), "<!-- values -->\n", "<!-- /values -->", table.String())
	})
}

// inSchema follows path through properties and $ref. It reports whether the schema has the path.
func inSchema(root, at map[string]any, path []string) bool {
	for {
		ref, ok := at["$ref"].(string)
		if !ok {
			break
		}
		at = root
		for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			at, _ = at[name].(map[string]any)
		}
	}
	if len(path) == 0 {
		return true
	}
	properties, _ := at["properties"].(map[string]any)
	next, ok := properties[path[0]].(map[string]any)
	return ok && inSchema(root, next, path[1:])
}

// matchBetween compares the text between two marks in a file with want. With -update it replaces
// the text with want.
func matchBetween(t *testing.T, path, from, to, want string) {
	t.Helper()
	text := string(read(t, path))
	before, rest, ok := strings.Cut(text, from)
	got, after, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks %q and %q", path, from, to)
	}
	if *update {
		write(t, path, before+from+want+to+after)
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is not up to date; run `go test ./tests/cluster -update` (-want +got):\n%s", path, diff)
	}
}

func TestIndexes(t *testing.T) {
	t.Parallel()
	type file struct {
		Indexes        []json.RawMessage `json:"indexes"`
		FieldOverrides []json.RawMessage `json:"fieldOverrides"`
	}
	all := file{Indexes: []json.RawMessage{}, FieldOverrides: []json.RawMessage{}}
	for i, text := range standalone.Indexes() {
		var one file
		if err := json.Unmarshal(text, &one); err != nil {
			t.Fatalf("cannot parse file %d: %v", i, err)
		}
		all.Indexes = appendNew(t, all.Indexes, one.Indexes)
		all.FieldOverrides = appendNew(t, all.FieldOverrides, one.FieldOverrides)
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	// devstack has copies of these files because a chart can only use its own files.
	for path, want := range map[string][]byte{
		filepath.Join(chart, "files/firestore.indexes.json"): append(text, '\n'),
		"../../charts/devstack/files/firestore.indexes.json": append(text, '\n'),
		"../../charts/devstack/files/cors.json":              read(t, filepath.Join(chart, "files/cors.json")),
	} {
		if *update {
			write(t, path, string(want))
			continue
		}
		if diff := cmp.Diff(string(want), string(read(t, path))); diff != "" {
			t.Errorf("%s is not up to date; run `go test ./tests/cluster -update` (-want +got):\n%s", path, diff)
		}
	}
}

// appendNew only appends new entries because several services may need the same index.
func appendNew(t *testing.T, to, from []json.RawMessage) []json.RawMessage {
	t.Helper()
	for _, item := range from {
		var compact bytes.Buffer
		if err := json.Compact(&compact, item); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(to, func(have json.RawMessage) bool { return bytes.Equal(have, compact.Bytes()) }) {
			to = append(to, compact.Bytes())
		}
	}
	return to
}

func TestCases(t *testing.T) {
	t.Parallel()
	cases := regexp.MustCompile(`(?m)^## (\w+): (.+)$`).FindAllStringSubmatch(string(read(t, "test.sh")), -1)
	var list strings.Builder
	for _, c := range cases {
		fmt.Fprintf(&list, "- **%s**: %s\n", c[1], c[2])
	}
	matchBetween(t, "README.md", "<!-- cases -->\n", "<!-- /cases -->", list.String())
}

// If a function has two definitions, the shell silently uses the last one.
func TestFunctionsAreDefinedOnce(t *testing.T) {
	t.Parallel()
	text := string(read(t, "lib.sh")) + string(read(t, "test.sh"))
	defined := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(\w+)\(\)`).FindAllStringSubmatch(text, -1) {
		if defined[m[1]] {
			t.Errorf("test.sh and its library define %s twice", m[1])
		}
		defined[m[1]] = true
	}
	if len(defined) < 20 {
		t.Fatalf("the scripts define only %d functions, want at least 20", len(defined))
	}
}

// object is a rendered Kubernetes object.
type object map[string]any

func (o object) kind() string { s, _ := o["kind"].(string); return s }
func (o object) name() string { s, _ := o.at("metadata", "name").(string); return s }

// at returns the value at path, or nil if the path does not exist.
func (o object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// helm returns the path of helm: the binary that make builds, or else the one on the PATH.
func helm(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"../../.local/bin/helm", filepath.Join(os.Getenv("CLUSTER_STATE"), "bin/helm"), "/var/lib/linkreel-cluster/bin/helm", "helm"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("helm is not installed. Run `make chart` to build it")
	return ""
}

// render returns the objects that the chart renders with args, for the release try in the namespace
// ns.
func render(t *testing.T, args ...string) ([]object, error) {
	t.Helper()
	return renderAs(t, "try", "ns", args...)
}

func renderAs(t *testing.T, release, namespace string, args ...string) ([]object, error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), helm(t), append([]string{"template", release, chart, "--namespace", namespace}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.String())
	}
	var objects []object
	decoder := yaml.NewDecoder(&stdout)
	for {
		var o map[string]any
		switch err := decoder.Decode(&o); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case o != nil:
			objects = append(objects, o)
		}
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(chart, "ci/*.yaml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("chart/ci has the files %v, want at least 3: %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			objects, err := render(t, "--values", file)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for _, o := range objects {
				id := o.kind() + "/" + o.name()
				if seen[id] {
					t.Errorf("%s is rendered twice", id)
				}
				seen[id] = true
				if ns := o.at("metadata", "namespace"); ns != "ns" {
					t.Errorf("%s is in the namespace %v, want ns", id, ns)
				}
				for _, complaint := range unrestricted(o) {
					t.Errorf("%s: %s", id, complaint)
				}
			}
		})
	}
}

// A program in a pod cannot read an emptyDir's size limit, so the chart must set it in the
// worker's environment.
func TestTheWorkerKnowsTheLimitOfItsScratch(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]string{
		"40Gi": "42949672960", "1.5Gi": "1610612736", "2G": "2000000000", "500M": "500000000", "900k": "900000", "12345678": "12345678",
	} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			objects, err := render(t, "--set-string", "worker.scratch.sizeLimit="+limit)
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, o := range objects {
				spec, _ := o.at("spec", "template", "spec").(map[string]any)
				if text := fmt.Sprint(spec); strings.Contains(text, "LINKREEL_SCRATCH_BYTES") {
					found = strings.Contains(text, "name:LINKREEL_SCRATCH_BYTES value:"+want+"]") && strings.Contains(text, "sizeLimit:"+limit+"]")
				}
			}
			if !found {
				t.Errorf("none of the pods have a scratch volume of %s and LINKREEL_SCRATCH_BYTES=%s", limit, want)
			}
		})
	}
}

// unrestricted lists how a pod violates the "restricted" pod security standard. It also reports a
// missing memory limit and a writable root.
func unrestricted(o object) (complaints []string) {
	all := pods([]object{o})
	if len(all) == 0 {
		return nil
	}
	need := func(ok bool, complaint string) {
		if !ok {
			complaints = append(complaints, complaint)
		}
	}
	pod := all[0].spec
	need(pod.at("securityContext", "runAsNonRoot") == true, "may run as root")
	need(pod.at("securityContext", "seccompProfile", "type") == "RuntimeDefault", "has no seccomp profile")
	need(pod.at("automountServiceAccountToken") == false, "gets a service account's token")
	for _, c := range all[0].containers {
		need(c.at("securityContext", "allowPrivilegeEscalation") == false, "may escalate its privileges")
		need(c.at("securityContext", "readOnlyRootFilesystem") == true, "has a writable root")
		need(cmp.Equal(c.at("securityContext", "capabilities", "drop"), []any{"ALL"}), "does not drop all capabilities")
		need(c.at("resources", "limits", "memory") != nil, "has no memory limit")
		need(c.at("resources", "requests", "cpu") != nil, "has no CPU request")
	}
	return complaints
}

// Operators need to know how much CPU and memory the pods request before they install the chart.
func TestTheDocsNameWhatPodsRequest(t *testing.T) {
	t.Parallel()
	docs := string(read(t, "../../docs/operations.md"))
	for _, says := range []string{`([\d.]+) processors and ([\d.]+) GiB that pods may request`, "`--set (worker[^`]+)` asks for ([\\d.]+) processors"} {
		m := regexp.MustCompile(says).FindStringSubmatch(docs)
		if m == nil {
			t.Fatalf("operations.md does not have any text that matches %s", says)
		}
		args := []string{"--set", "image.tag=v1"}
		wantCPU, wantMemory := m[1], m[2]
		if strings.HasPrefix(m[1], "worker") {
			args, wantCPU, wantMemory = append(args, "--set", m[1]), m[2], ""
		}
		objects, err := render(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		var processors, bytes float64
		for _, o := range objects {
			if o.kind() != "Deployment" && o.kind() != "StatefulSet" {
				continue
			}
			replicas := 1.0
			if n, ok := o.at("spec", "replicas").(int); ok {
				replicas = float64(n)
			}
			containers, _ := o.at("spec", "template", "spec", "containers").([]any)
			for _, c := range containers {
				processors += replicas * quantity(t, object(c.(map[string]any)).at("resources", "requests", "cpu"))
				bytes += replicas * quantity(t, object(c.(map[string]any)).at("resources", "requests", "memory"))
			}
		}
		if got := tenthsUp(processors); got != wantCPU {
			t.Errorf("%v: the pods request %s processors, but operations.md says %s", args, got, wantCPU)
		}
		if got := tenthsUp(bytes / (1 << 30)); wantMemory != "" && got != wantMemory {
			t.Errorf("%v: the pods request %s GiB, but operations.md says %s", args, got, wantMemory)
		}
	}
}

// tenthsUp rounds up to tenths because the documented amount must be sufficient.
func tenthsUp(v float64) string { return fmt.Sprintf("%.1f", math.Ceil(10*v-1e-6)/10) }

// quantity parses a Kubernetes quantity with the suffixes that the chart uses.
func quantity(t *testing.T, v any) float64 {
	t.Helper()
	text := fmt.Sprint(v)
	unit := 1.0
	for suffix, u := range map[string]float64{"m": 1e-3, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = rest, u
			break
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatalf("%v is not a quantity", v)
	}
	return n * unit
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"two entry points":                         {[]string{"--set", "httpRoute.enabled=true"}, "exclude each other"},
		"a route without a gateway":                {[]string{"--set", "httpRoute.enabled=true,ingress.enabled=false"}, "needs httpRoute.parentRefs"},
		"google without a project":                 {[]string{"--set", "cloud.mode=google"}, "needs cloud.google.project"},
		"no redis":                                 {[]string{"--set", "redis.enabled=false"}, "needs redis.external.url"},
		"two scalers for the worker":               {[]string{"--set", "worker.keda.enabled=true,worker.autoscaling.enabled=true"}, "exclude each other"},
		"a certificate without an issuer":          {[]string{"--set", "tls.certificate.create=true"}, "needs tls.certificate.issuerRef.name"},
		"one host for two purposes":                {[]string{"--set", "hosts.short=linkreel.localhost"}, "must differ"},
		"direct visitors and proxies":              {[]string{"--set", "tls.onDemand.enabled=true,trustedProxyHops=1"}, "exclude each other"},
		"direct visitors and Istio's sidecar":      {[]string{"--set", "tls.onDemand.enabled=true,trustedProxies={10.0.0.0/8,127.0.0.6/32}"}, "loopback addresses of 127.0.0.6/32"},
		"direct visitors and its IPv6 address":     {[]string{"--set", "tls.onDemand.enabled=true,trustedProxies={fc00::/7,::6/128}"}, "loopback addresses of ::6/128"},
		"direct visitors and a wide network":       {[]string{"--set", "tls.onDemand.enabled=true,trustedProxies={64.0.0.0/2}"}, "loopback addresses of 64.0.0.0/2"},
		"direct visitors and all networks":         {[]string{"--set", "tls.onDemand.enabled=true,trustedProxies={::/0}"}, "loopback addresses of ::/0"},
		"an authority without TLS":                 {[]string{"--set", "tls.onDemand.directory=http://ca.example/dir"}, "directory"},
		"a preflight with localcloud":              {[]string{"--set", "preflight.enabled=true"}, "needs cloud.mode google"},
		"an unknown jail":                          {[]string{"--set", "worker.jail=none"}, "jail"},
		"an unknown log format":                    {[]string{"--set", "defaults.logFormat=xml"}, "logFormat"},
		"an unknown log access setting":            {[]string{"--set", "links.logAccess=some"}, "logAccess"},
		"a resolver without a port":                {[]string{"--set", "dnsResolver=192.0.2.53"}, "dnsResolver"},
		"a backup of Google's services":            {[]string{"--set", "cloud.mode=google,cloud.google.project=p,cloud.google.bucket=b,backup.enabled=true"}, "copies the chart's own localcloud"},
		"a restore without backups":                {[]string{"--set", "restore.enabled=true"}, "needs backup.enabled"},
		"a restore with an invalid name":           {[]string{"--set", "backup.enabled=true,restore.enabled=true,restore.backup=../x"}, "backup"},
		"an invalid recipient":                     {[]string{"--set", "backup.enabled=true,backup.encryptTo=AGE-SECRET-KEY-1X"}, "encryptTo"},
		"a restored database without a time":       {[]string{"--set", "cloud.mode=google,cloud.google.project=p,cloud.google.bucket=b,restore.enabled=true"}, "needs restore.since"},
		"a restored database with an invalid time": {[]string{"--set", "restore.since=yesterday"}, "since"},
		"an unknown value":                         {[]string{"--set", "ingres.enabled=true"}, "not allowed"},
		"an unsupported setting":                   {[]string{"--set", "auth.env.PATH=/x"}, "PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := render(t, tt.args...)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("helm template with %s returned %v, want an error with %q", strings.Join(tt.args, " "), err, tt.want)
			}
		})
	}
}

// Google's load balancers need a readiness health check for each public service. A NetworkPolicy
// must allow the check.
func TestGKE(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		values string
		kinds  []string
	}{
		"an Ingress": {"google.yaml", []string{"BackendConfig"}},
		"a Gateway":  {"gke-gateway.yaml", []string{"GCPBackendPolicy", "HealthCheckPolicy"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := render(t, "--values", filepath.Join(chart, "ci", tt.values))
			if err != nil {
				t.Fatal(err)
			}
			found := map[string][]string{}
			for _, o := range objects {
				found[o.kind()] = append(found[o.kind()], o.name())
				text, err := json.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				switch o.kind() {
				case "BackendConfig", "HealthCheckPolicy":
					if !bytes.Contains(text, []byte(`"port":9090`)) || !bytes.Contains(text, []byte(`"requestPath":"/readyz"`)) {
						t.Errorf("%s %s does not check /readyz on port 9090: %s", o.kind(), o.name(), text)
					}
				case "NetworkPolicy":
					if strings.HasSuffix(o.name(), "-worker") {
						continue
					}
					if n := bytes.Count(text, []byte("35.191.0.0/16")); n < 2 {
						t.Errorf("%s allows Google's probes %d times, want the public ports and the admin port: %s", o.name(), n, text)
					}
				case "Service":
					annotations, _ := o.at("metadata", "annotations").(map[string]any)
					public := !strings.HasSuffix(o.name(), "-worker")
					if got := annotations["cloud.google.com/backend-config"] != nil; got != (public && tt.kinds[0] == "BackendConfig") {
						t.Errorf("the annotations on %s are %v, want a BackendConfig only for a public service behind an Ingress", o.name(), annotations)
					}
				}
			}
			for _, kind := range tt.kinds {
				if len(found[kind]) < 3 {
					t.Errorf("%s exists for %v, want one for each public service", kind, found[kind])
				}
			}
			if len(found["PodMonitoring"]) != 1 {
				t.Error("the chart does not render a PodMonitoring")
			}
		})
	}
}

// environment returns a service container's environment, by name. Variables from a Secret have the
// value SECRET/KEY.
func environment(objects []object, service string) map[string]string {
	out := map[string]string{}
	for _, o := range objects {
		if o.kind() != "Deployment" || !strings.HasSuffix(o.name(), "-"+service) {
			continue
		}
		containers, _ := o.at("spec", "template", "spec", "containers").([]any)
		first, _ := containers[0].(map[string]any)
		vars, _ := first["env"].([]any)
		for _, v := range vars {
			fields, _ := v.(map[string]any)
			name, _ := fields["name"].(string)
			if out[name], _ = fields["value"].(string); fields["valueFrom"] != nil {
				from := object(fields)
				out[name] = fmt.Sprintf("%v/%v", from.at("valueFrom", "secretKeyRef", "name"), from.at("valueFrom", "secretKeyRef", "key"))
			}
		}
	}
	return out
}

func TestSettingsReachTheirPods(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args    []string
		service string
		want    map[string]string
	}{
		"the jail by default": {nil, "worker", map[string]string{"LINKREEL_JAIL": "full"}},
		"the reduced jail":    {[]string{"--set", "worker.jail=reduced"}, "worker", map[string]string{"LINKREEL_JAIL": "reduced"}},
		"logs by default":     {nil, "links", map[string]string{"LINKREEL_LOG_FORMAT": "json", "GOOGLE_CLOUD_PROJECT": ""}},
		"logs for Google Cloud": {
			[]string{"--values", filepath.Join(chart, "ci/google.yaml"), "--set", "defaults.logFormat=google,cloud.google.project=shop"}, "videos",
			map[string]string{"LINKREEL_LOG_FORMAT": "google", "GOOGLE_CLOUD_PROJECT": "shop"},
		},
		"every access line by default": {nil, "auth", map[string]string{"LINKREEL_LOG_ACCESS": "all", "OTEL_TRACES_SAMPLER_ARG": ""}},
		"a service without access lines": {
			[]string{"--set", "defaults.logAccess=errors,links.logAccess=none"}, "links", map[string]string{"LINKREEL_LOG_ACCESS": "none"},
		},
		"a twentieth of the traces by default": {
			[]string{"--set", "telemetry.endpoint=http://collector:4318,networkPolicy.telemetryTo[0].podSelector.matchLabels.app=collector"}, "auth",
			map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.05"},
		},
		"no pages for the short host by default": {nil, "links", map[string]string{"LINKREEL_SHORT_HOME_URL": ""}},
		"pages for the short host": {
			[]string{"--set", "links.pages.home=https://e.example/,links.pages.notFound=https://e.example/n,links.pages.expired=https://e.example/x"}, "links",
			map[string]string{
				"LINKREEL_SHORT_HOME_URL": "https://e.example/", "LINKREEL_SHORT_NOT_FOUND_URL": "https://e.example/n", "LINKREEL_SHORT_EXPIRED_URL": "https://e.example/x",
			},
		},
		"no certificates by default": {nil, "links", map[string]string{"LINKREEL_TLS_ADDR": "", "LINKREEL_CERTIFICATE_KEY": ""}},
		"certificates, our own Secret": {
			[]string{"--set", "tls.onDemand.enabled=true"}, "links",
			map[string]string{"LINKREEL_TLS_ADDR": ":8443", "LINKREEL_CERTIFICATE_KEY": "try-linkreel/certificate-key", "LINKREEL_ACME_DIRECTORY": "https://acme-v02.api.letsencrypt.org/directory"},
		},
		"certificates, another Secret": {
			[]string{"--set", "tls.onDemand.enabled=true,tls.onDemand.existingSecret=sealing,tls.onDemand.existingSecretKey=keys"}, "links",
			map[string]string{"LINKREEL_CERTIFICATE_KEY": "sealing/keys"},
		},
		"no sealing key outside links": {[]string{"--set", "tls.onDemand.enabled=true"}, "videos", map[string]string{"LINKREEL_CERTIFICATE_KEY": "", "LINKREEL_TLS_ADDR": ""}},
		"localcloud's token":           {nil, "auth", map[string]string{"LINKREEL_LOCALCLOUD_TOKEN": "try-linkreel-storage-key/token", "LINKREEL_PROFILE_TOKEN": "try-linkreel/profile-token"}},
		"the token for another localcloud": {
			[]string{"--set", "localcloud.service=other,localcloud.keySecret=theirs"}, "worker",
			map[string]string{"LINKREEL_LOCALCLOUD_TOKEN": "theirs/token", "LINKREEL_ADMIN_TOKEN": ""},
		},
		"auth: the token for each service": {nil, "auth", map[string]string{
			"LINKREEL_INTERNAL_TOKEN": "try-linkreel/internal-token", "LINKREEL_LINKS_TOKEN": "try-linkreel/links-token", "LINKREEL_VIDEOS_TOKEN": "try-linkreel/videos-token",
			"LINKREEL_EVENTS_TOKEN": "try-linkreel/events-token", "LINKREEL_CONSOLE_TOKEN": "try-linkreel/console-token",
		}},
		"links: only its own token":    {nil, "links", map[string]string{"LINKREEL_INTERNAL_TOKEN": "try-linkreel/links-token", "LINKREEL_CONSOLE_TOKEN": ""}},
		"console: only its own token":  {nil, "console", map[string]string{"LINKREEL_INTERNAL_TOKEN": "try-linkreel/console-token", "LINKREEL_LINKS_TOKEN": ""}},
		"worker: no token":             {nil, "worker", map[string]string{"LINKREEL_INTERNAL_TOKEN": ""}},
		"console: no localcloud token": {nil, "console", map[string]string{"LINKREEL_LOCALCLOUD_TOKEN": "", "LINKREEL_ADMIN_TOKEN": ""}},
		"no localcloud token on Google Cloud": {
			[]string{"--values", filepath.Join(chart, "ci/google.yaml")}, "videos",
			map[string]string{"LINKREEL_LOCALCLOUD_TOKEN": "", "LINKREEL_PROFILE_TOKEN": "linkreel/profile-token"},
		},
		"the lifetime of a group-based membership": {
			[]string{"--values", filepath.Join(chart, "ci/everything.yaml"), "--set", "oidc.maxAge=168h"}, "auth",
			map[string]string{"LINKREEL_OIDC_MAX_AGE": "168h"},
		},
		"no trail by default": {nil, "auth", map[string]string{"LINKREEL_AUDIT_BUCKET": "", "LINKREEL_STORAGE_ENDPOINT": ""}},
		"the trail on Google Cloud": {
			[]string{"--values", filepath.Join(chart, "ci/google.yaml")}, "auth", map[string]string{"LINKREEL_AUDIT_BUCKET": "example-videos", "LINKREEL_STORAGE_ENDPOINT": ""},
		},
		"the trail in another bucket": {
			[]string{"--values", filepath.Join(chart, "ci/google.yaml"), "--set", "audit.bucket=example-audit"}, "auth", map[string]string{"LINKREEL_AUDIT_BUCKET": "example-audit"},
		},
		"no trail on Google Cloud": {
			[]string{"--values", filepath.Join(chart, "ci/google.yaml"), "--set", "audit.enabled=false"}, "auth", map[string]string{"LINKREEL_AUDIT_BUCKET": ""},
		},
		"the trail in a folder": {
			[]string{"--values", filepath.Join(chart, "ci/google.yaml"), "--set", "auth.env.LINKREEL_AUDIT_DIR=/audit"}, "auth",
			map[string]string{"LINKREEL_AUDIT_BUCKET": "", "LINKREEL_AUDIT_DIR": "/audit"},
		},
		"the trail in localcloud's bucket": {
			[]string{"--set", "audit.enabled=true"}, "auth",
			map[string]string{"LINKREEL_AUDIT_BUCKET": "linkreel", "LINKREEL_STORAGE_ENDPOINT": "http://try-linkreel-localcloud:8086", "LINKREEL_LOCALCLOUD_TOKEN": "try-linkreel-storage-key/token"},
		},
		"no trail outside auth": {[]string{"--set", "audit.enabled=true"}, "links", map[string]string{"LINKREEL_AUDIT_BUCKET": "", "LINKREEL_STORAGE_ENDPOINT": ""}},
		"a private certificate authority for Redis": {
			[]string{"--set", "redis.enabled=false,redis.external.url=rediss://r:6379,redis.external.caFile=/ca.pem"}, "auth",
			map[string]string{"LINKREEL_REDIS_CA_FILE": "/ca.pem"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := render(t, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			got := environment(objects, tt.service)
			for name, want := range tt.want {
				if got[name] != want {
					t.Errorf("the %s variable for %s is %q, want %q", name, tt.service, got[name], want)
				}
			}
		})
	}
}

// The pod and the services must read the token from the same Secret.
func TestLocalcloudAsksForAToken(t *testing.T) {
	t.Parallel()
	objects, err := render(t)
	if err != nil {
		t.Fatal(err)
	}
	var flags, secrets []string
	for _, o := range objects {
		switch {
		case o.kind() == "StatefulSet" && o.name() == "try-linkreel-localcloud":
			containers, _ := o.at("spec", "template", "spec", "containers").([]any)
			args, _ := object(containers[0].(map[string]any)).at("args").([]any)
			for _, arg := range args {
				flags = append(flags, fmt.Sprint(arg))
			}
		case o.kind() == "Secret" && o.name() == "try-linkreel-storage-key":
			data, _ := o.at("data").(map[string]any)
			for key, value := range data {
				if len(fmt.Sprint(value)) >= 48 {
					secrets = append(secrets, key)
				}
			}
		}
	}
	if !slices.Contains(flags, "--token-file=/etc/linkreel-key/token") || !slices.Contains(secrets, "token") {
		t.Errorf("localcloud runs with %v and its Secret has %v, want a token file and a token", flags, secrets)
	}
}

// The test starts the chart's Redis with its pod's command. It connects with the settings for the
// services and the pod's probes.
func TestAnyPasswordOfRedis(t *testing.T) {
	t.Parallel()
	objects, err := render(t)
	if err != nil {
		t.Fatal(err)
	}
	config, script := "", ""
	for _, o := range objects {
		switch {
		case o.name() == "try-linkreel-redis" && o.kind() == "ConfigMap":
			config, _ = o.at("data", "redis.conf").(string)
		case o.name() == "try-linkreel-redis" && o.kind() == "StatefulSet":
			containers, _ := o.at("spec", "template", "spec", "containers").([]any)
			command, _ := object(containers[0].(map[string]any)).at("command").([]any)
			script, _ = command[len(command)-1].(string)
		}
	}
	env := environment(objects, "links")
	for name, password := range map[string]string{
		"letters":             "abcXYZ012",
		"base64":              "ab/cd+ef==",
		"parts of an address": "a#b?c@d:e%f,g",
		"shell expansions":    "$HOME$(id)`id`;&|<>",
		"not ASCII":           "pässword",
		"a shell pattern":     "*[a]?~{b,c}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			addr, err := redisproc.FreeAddr()
			if err != nil {
				t.Fatal(err)
			}
			_, port, _ := strings.Cut(addr, ":")
			write(t, filepath.Join(dir, "redis.conf"), strings.NewReplacer("port 6379", "port "+port, "dir /data", "dir "+dir).Replace(config))
			cmd := exec.CommandContext(t.Context(), "sh", "-ec", strings.NewReplacer("/etc/redis/redis.conf", dir+"/redis.conf", "/data/redis.conf", dir+"/with-password.conf").Replace(script))
			cmd.Env = append(os.Environ(), "REDISCLI_AUTH="+password)
			var log bytes.Buffer
			cmd.Stdout, cmd.Stderr = &log, &log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() { defer close(ended); _ = cmd.Wait() }()
			t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })

			// The kubelet replaces $(NAME) with the variable's value.
			kubelet := strings.NewReplacer("$(REDIS_PASSWORD)", password, "try-linkreel-redis:6379", addr)
			cfg := redisdb.Config{URL: kubelet.Replace(env["LINKREEL_REDIS_URL"]), Timeout: time.Second}
			if env["LINKREEL_REDIS_PASSWORD"] == "try-linkreel/redis-password" {
				cfg.Password = password
			}
			client, err := redisdb.Open(cfg)
			if err != nil {
				t.Fatalf("the services cannot start with this address: %v", err)
			}
			defer func() { _ = client.Close() }()
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
				if err = client.Ping(t.Context()).Err(); err == nil {
					break
				}
				select {
				case <-ended:
					t.Fatalf("Redis exited on startup: %s", log.String())
				default:
				}
				if time.Now().After(deadline) {
					t.Fatalf("the services cannot connect to Redis: %v", err)
				}
			}
			probe := exec.CommandContext(t.Context(), "redis-cli", "-p", port, "ping")
			probe.Env = cmd.Env
			if out, err := probe.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "PONG" {
				t.Errorf("the pod's probe printed %s, want PONG: %v", out, err)
			}
			stranger, err := redisdb.Open(redisdb.Config{URL: addr})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = stranger.Close() }()
			if err := stranger.Ping(t.Context()).Err(); err == nil {
				t.Error("Redis accepts a connection without a password")
			}
		})
	}
}

// The Job must run before the rest of the release, with the services' identity and settings.
func TestPreflight(t *testing.T) {
	t.Parallel()
	objects, err := render(t, "--values", filepath.Join(chart, "ci/google.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]object{}
	for _, o := range objects {
		if strings.HasSuffix(o.name(), "-preflight") {
			found[o.kind()] = o
			annotations, _ := o.at("metadata", "annotations").(map[string]any)
			if annotations["helm.sh/hook"] != "pre-install,pre-upgrade" {
				t.Errorf("%s is not a hook for pre-install and pre-upgrade: %v", o.kind(), annotations)
			}
		}
	}
	if len(found) != 3 {
		t.Fatalf("the chart renders %v, want a ServiceAccount, a ConfigMap and a Job", found)
	}
	if want := string(read(t, filepath.Join(chart, "files/firestore.indexes.json"))); found["ConfigMap"].at("data", "firestore.indexes.json") != want {
		t.Error("the Job's ConfigMap differs from the chart's indexes")
	}
	if a, _ := found["ServiceAccount"].at("metadata", "annotations").(map[string]any); a["iam.gke.io/gcp-service-account"] != "linkreel@example-project.iam.gserviceaccount.com" {
		t.Errorf("the Job's identity differs from the services': %v", a)
	}
	text, err := json.Marshal(found["Job"])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"image":"ghcr.io/linkreel/videos:`, `"args":["preflight",`, `"--own-redis=false"`, `"--notification=true"`, `"LINKREEL_STORAGE_BUCKET","value":"example-videos"`, `"name":"linkreel-redis"`, `"LINKREEL_FIRESTORE_PROJECT","value":"example-project"`} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the Job lacks %s: %s", want, text)
		}
	}
}

// Visitors reach the pods over TCP, and the pods reach the certificate authority. By default, the
// chart does not render anything for either of them.
func TestCertificatesOnDemand(t *testing.T) {
	t.Parallel()
	policyOf := func(objects []object) string {
		for _, o := range objects {
			if o.kind() == "NetworkPolicy" && strings.HasSuffix(o.name(), "-links") {
				text, err := json.Marshal(o.at("spec"))
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			}
		}
		t.Fatal("links does not have a NetworkPolicy")
		return ""
	}
	service := func(objects []object) object {
		for _, o := range objects {
			if o.kind() == "Service" && strings.HasSuffix(o.name(), "-links-tls") {
				return o
			}
		}
		return nil
	}
	off, err := render(t)
	if err != nil {
		t.Fatal(err)
	}
	if s, p := service(off), policyOf(off); s != nil || strings.Contains(p, `"tls"`) {
		t.Errorf("without tls.onDemand, the chart renders the Service %v and the policy %s", s, p)
	}
	on, err := render(t, "--set", "tls.onDemand.enabled=true", "--set-json", `networkPolicy.ingressFrom=[{"podSelector":{"matchLabels":{"app":"edge"}}}]`)
	if err != nil {
		t.Fatal(err)
	}
	s := service(on)
	if s == nil || s.at("spec", "type") != "LoadBalancer" || s.at("spec", "externalTrafficPolicy") != "Local" {
		t.Errorf("the Service is %v, want a LoadBalancer with the traffic policy Local", s)
	}
	policy := policyOf(on)
	for _, want := range []string{`{"ports":[{"port":"tls"},{"port":"redirect"}]}`, `{"ports":[{"port":443}],"to":[{"ipBlock":{"cidr":"0.0.0.0/0"`} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy lacks %s: %s", want, policy)
		}
	}
	private, err := render(t, "--set", "tls.onDemand.enabled=true,tls.onDemand.service.enabled=false", "--set-json", `networkPolicy.acmeTo=[{"podSelector":{"matchLabels":{"app":"authority"}}}]`)
	if err != nil {
		t.Fatal(err)
	}
	if s, p := service(private), policyOf(private); s != nil || !strings.Contains(p, `"app":"authority"`) || strings.Contains(p, "2000::/3") {
		t.Errorf("with a private authority and no Service, the chart renders the Service %v and the policy %s", s, p)
	}
}

func TestOutside(t *testing.T) {
	t.Parallel()
	objects, err := render(t, "--values", filepath.Join(chart, "ci", "google.yaml"), "--set", "networkPolicy.googleTo=null,networkPolicy.externalCIDRs={10.8.0.0/16},networkPolicy.externalExcept=null")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		// The test excludes events, which may call any public address, and console, which does not
		// call any external addresses.
		if o.kind() != "NetworkPolicy" || strings.HasSuffix(o.name(), "-events") || strings.HasSuffix(o.name(), "-console") {
			continue
		}
		text, err := json.Marshal(o.at("spec", "egress"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte(`{"ipBlock":{"cidr":"10.8.0.0/16"}}`)) || !bytes.Contains(text, []byte("10.20.0.0/29")) || bytes.Contains(text, []byte("except")) {
			t.Errorf("%s: the private range must have no exceptions, but the rules are %s", o.name(), text)
		}
	}
}

// egress lists the destinations that a service's NetworkPolicy allows: "PORT PEER PEER…" for each
// port. The protocol is omitted if it is TCP. A port without a peer allows every address.
func egress(t *testing.T, objects []object, service string) []string {
	t.Helper()
	var all []string
	for _, o := range objects {
		if o.kind() != "NetworkPolicy" || !strings.HasSuffix(o.name(), "-"+service) {
			continue
		}
		rules, _ := o.at("spec", "egress").([]any)
		for _, r := range rules {
			rule := object(r.(map[string]any))
			peers := ""
			list, _ := rule.at("to").([]any)
			for _, peer := range list {
				text, err := json.Marshal(peer)
				if err != nil {
					t.Fatal(err)
				}
				peers += " " + string(text)
			}
			ports, _ := rule.at("ports").([]any)
			for _, p := range ports {
				port := object(p.(map[string]any))
				text := fmt.Sprint(port.at("port"))
				if protocol := port.at("protocol"); protocol != nil {
					text += fmt.Sprint("/", protocol)
				}
				all = append(all, text+peers)
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s does not have a NetworkPolicy, or it has one that does not allow any destinations", service)
	}
	return all
}

// The chart does not know the pod labels for an external localcloud.service.
func TestLocalcloudOfAnotherRelease(t *testing.T) {
	t.Parallel()
	other := []string{"--set", "localcloud.service=devstack-localcloud,localcloud.keySecret=devstack-storage-key"}
	for name, tt := range map[string]struct {
		args []string
		peer string
	}{
		"any pod in the namespace": {nil, `{"podSelector":{}}`},
		"the configured peers":     {[]string{"--set-json", `networkPolicy.localcloudTo=[{"podSelector":{"matchLabels":{"app":"devstack-localcloud"}}}]`}, `{"podSelector":{"matchLabels":{"app":"devstack-localcloud"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := render(t, slices.Concat(other, tt.args)...)
			if err != nil {
				t.Fatal(err)
			}
			for service, want := range map[string][]string{
				"auth": {"8085"}, "events": {"8085"}, "links": {"8085"}, "videos": {"8083", "8085", "8086"}, "worker": {"8083", "8085", "8086"}, "console": nil,
			} {
				var got []string
				for _, rule := range egress(t, objects, service) {
					if port, ok := strings.CutSuffix(rule, " "+tt.peer); ok {
						got = append(got, port)
					}
				}
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("%s may call the ports %v on localcloud, want %v", service, got, want)
				}
			}
		})
	}
}

// A service with a resolver on a port other than 53 may reach that port. The other services may
// not.
func TestResolversOnAnotherPort(t *testing.T) {
	t.Parallel()
	objects, err := render(t, "--set", "dnsResolver=192.0.2.53:5353,webhooks.resolver=[2001:db8::53]:8600")
	if err != nil {
		t.Fatal(err)
	}
	for service, want := range map[string][]string{"links": {"5353/UDP", "5353/TCP"}, "events": {"8600/UDP", "8600/TCP"}, "videos": nil} {
		var got []string
		for _, rule := range egress(t, objects, service) {
			if port, _, _ := strings.Cut(rule, "/"); port == "5353" || port == "8600" {
				got = append(got, rule)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s may reach resolvers on %v, want %v", service, got, want)
		}
	}
	objects, err = render(t, "--set", "dnsResolver=192.0.2.53:53,webhooks.resolver=192.0.2.53:53")
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range []string{"links", "events"} {
		if got, want := egress(t, objects, service)[:2], []string{"53/UDP", "53/TCP"}; !slices.Equal(got, want) {
			t.Errorf("%s may reach resolvers on %v, want %v", service, got, want)
		}
	}
}

func TestScaling(t *testing.T) {
	t.Parallel()
	objects, err := render(t, "--set", "defaults.autoscaling.enabled=true,worker.autoscaling.enabled=false,worker.keda.enabled=true")
	if err != nil {
		t.Fatal(err)
	}
	scaled := 0
	for _, o := range objects {
		switch o.kind() {
		case "Deployment":
			if n := o.at("spec", "replicas"); n != nil {
				t.Errorf("%s sets %v replicas, want none because an upgrade would reset the scaler's number", o.name(), n)
			}
		case "HorizontalPodAutoscaler", "ScaledObject":
			scaled++
		}
	}
	if scaled != 6 {
		t.Errorf("the chart renders %d scalers, want one for each of the 6 services", scaled)
	}
}

func TestAScalerGoesByTheMetricsOfTheValues(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ set, want string }{
		"CPU by default": {"links.autoscaling.enabled=true", "[map[resource:map[name:cpu target:map[averageUtilization:70 type:Utilization]] type:Resource]]"},
		"configured metrics": {
			"links.autoscaling.enabled=true,links.autoscaling.metrics[0].type=External,links.autoscaling.metrics[0].external.metric.name=queue",
			"[map[external:map[metric:map[name:queue]] type:External]]",
		},
	} {
		objects, err := render(t, "--set", tt.set)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if o.kind() == "HorizontalPodAutoscaler" {
				if got := fmt.Sprint(o.at("spec", "metrics")); got != tt.want {
					t.Errorf("%s: the metrics are %s, want %s", name, got, tt.want)
				}
			}
		}
	}
}

// When memory runs low, Kubernetes first evicts pods that use more than they request. That must not
// happen to links, which serves the redirects. The Go runtime in links uses at most nine tenths of
// the limit.
func TestLinksMayUseWhatTheDocsPlan(t *testing.T) {
	t.Parallel()
	m := regexp.MustCompile(`up to (\d+) MiB for links`).FindSubmatch(read(t, "../../docs/operations.md"))
	if m == nil {
		t.Fatal("operations.md does not say how much memory links uses")
	}
	uses := quantity(t, string(m[1])+"Mi")
	objects, err := render(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.kind() != "Deployment" || o.name() != "try-linkreel-links" {
			continue
		}
		containers, _ := o.at("spec", "template", "spec", "containers").([]any)
		c := object(containers[0].(map[string]any))
		if limit := quantity(t, c.at("resources", "limits", "memory")); limit*0.9 < uses {
			t.Errorf("links may use %.0f bytes, want at least the %.0f bytes in operations.md", limit*0.9, uses)
		}
		if wanted := quantity(t, c.at("resources", "requests", "memory")); wanted < uses/2 {
			t.Errorf("links requests %.0f bytes, want at least half of the %.0f bytes in operations.md", wanted, uses)
		}
		return
	}
	t.Error("the chart does not render any pods for links")
}

// When a manifest no longer sets the number of replicas, Kubernetes resets the number to one. The
// managedFields in this test come from a real API server. The fake server here implements only what
// Helm's lookup needs.
func TestTurningAScalerOnKeepsThePods(t *testing.T) {
	t.Parallel()
	whole := `"f:selector":{},"f:template":{}`
	helmApplies := `{"manager":"helm","operation":"Apply","fieldsV1":{"f:spec":{` + whole + `}}}`
	helmAppliesReplicas := `{"manager":"helm","operation":"Apply","fieldsV1":{"f:spec":{"f:replicas":{},` + whole + `}}}`
	helmPatchesReplicas := `{"manager":"helm","operation":"Update","fieldsV1":{"f:spec":{"f:replicas":{},` + whole + `}}}`
	scaler := `{"manager":"kube-controller-manager","operation":"Update","subresource":"scale","fieldsV1":{"f:spec":{"f:replicas":{}}}}`
	status := `{"manager":"kube-controller-manager","operation":"Update","subresource":"status","fieldsV1":{"f:status":{}}}`
	const (
		none     = -1
		byHPA    = "worker.autoscaling.enabled=true"
		byKEDA   = "worker.keda.enabled=true,worker.keda.minReplicas=0"
		byNobody = "worker.replicas=3"
	)
	theHPA, kedasHPA := []string{"try-linkreel-worker"}, []string{"keda-hpa-try-linkreel-worker"}
	for name, tt := range map[string]struct {
		values   string
		live     int
		managers []string
		kept     bool     // the Deployment's annotation
		scalers  []string // names of HorizontalPodAutoscalers
		want     int
	}{
		"applied, scaler turned on":           {byHPA, 6, []string{helmAppliesReplicas, status}, false, nil, 6},
		"applied, scaler has not acted":       {byHPA, 6, []string{helmAppliesReplicas, status}, true, theHPA, 6},
		"applied, scaler has acted":           {byHPA, 8, []string{helmApplies, scaler, status}, true, theHPA, none},
		"applied, both set the number":        {byHPA, 8, []string{helmAppliesReplicas, scaler}, true, theHPA, none},
		"applied, scaled from the start":      {byHPA, 8, []string{helmApplies}, false, theHPA, none},
		"applied, below the scaler's minimum": {byHPA, 1, []string{helmAppliesReplicas}, false, nil, 2},
		"patched, scaler turned on":           {byHPA, 6, []string{helmPatchesReplicas, status}, false, nil, 6},
		"patched, turned on, manually scaled": {byHPA, 7, []string{scaler, status}, false, nil, 7},
		"patched, scaler has acted":           {byHPA, 8, []string{scaler, status}, true, theHPA, 8},
		"patched, scaled from the start":      {byHPA, 8, []string{scaler, status}, false, theHPA, none},
		"patched, KEDA turned on":             {byKEDA, 6, []string{helmPatchesReplicas}, false, nil, 6},
		"patched, KEDA stopped all workers":   {byKEDA, 0, []string{scaler}, true, kedasHPA, 0},
		"patched, KEDA from the start":        {byKEDA, 4, []string{scaler}, false, kedasHPA, none},
		"scaler turned off":                   {byNobody, 8, []string{helmApplies, scaler}, true, theHPA, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			annotations := `{}`
			if tt.kept {
				annotations = `{"linkreel.io/replicas":"kept"}`
			}
			api := apiServer{"/apis/apps/v1/namespaces/ns/deployments/try-linkreel-worker": fmt.Sprintf(
				`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"try-linkreel-worker","namespace":"ns","annotations":%s,"managedFields":[%s]},"spec":{"replicas":%d}}`,
				annotations, strings.Join(tt.managers, ","), tt.live)}
			for _, name := range tt.scalers {
				api["/apis/autoscaling/v2/namespaces/ns/horizontalpodautoscalers/"+name] = fmt.Sprintf(`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":%q,"namespace":"ns"}}`, name)
			}
			server := httptest.NewServer(api)
			defer server.Close()
			objects, err := render(t, "--dry-run=server", "--is-upgrade", "--disable-openapi-validation", "--kube-apiserver", server.URL, "--set", tt.values)
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, o := range objects {
				if o.kind() != "Deployment" || o.name() != "try-linkreel-worker" {
					continue
				}
				found = true
				got, ok := o.at("spec", "replicas").(int)
				if !ok {
					got = none
				}
				if got != tt.want {
					t.Errorf("the manifest sets %d replicas, want %d (%d means no number)", got, tt.want, none)
				}
				_, kept := o.at("metadata", "annotations").(map[string]any)
				if want := tt.want != none && tt.values != byNobody; kept != want {
					t.Errorf("the manifest has the annotation for a scaler's number: %v, want %v", kept, want)
				}
			}
			if !found {
				t.Error("the chart does not render a Deployment for the worker")
			}
		})
	}
}

// apiServer returns the kinds that the chart renders, and serves objects by their path.
type apiServer map[string]string

func (objects apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kinds := map[string][]string{
		"v1":                   {"ConfigMap", "PersistentVolumeClaim", "Pod", "Secret", "Service", "ServiceAccount"},
		"apps/v1":              {"Deployment", "StatefulSet"},
		"autoscaling/v2":       {"HorizontalPodAutoscaler"},
		"keda.sh/v1alpha1":     {"ScaledObject", "TriggerAuthentication"},
		"networking.k8s.io/v1": {"Ingress", "NetworkPolicy"},
		"policy/v1":            {"PodDisruptionBudget"},
	}
	var groups, resources []any
	for version, list := range kinds {
		if group, number, ok := strings.Cut(version, "/"); ok {
			v := object{"groupVersion": version, "version": number}
			groups = append(groups, object{"name": group, "versions": []any{v}, "preferredVersion": v})
		}
		if r.URL.Path == "/apis/"+version || r.URL.Path == "/api/"+version {
			for _, kind := range list {
				resources = append(resources, object{"name": strings.ToLower(kind) + "s", "namespaced": true, "kind": kind, "verbs": []string{"get"}})
			}
		}
	}
	var answer any = object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": http.StatusNotFound}
	status := http.StatusOK
	switch text, ok := objects[r.URL.Path]; {
	case ok:
		answer = json.RawMessage(text)
	case r.URL.Path == "/version":
		answer = object{"major": "1", "minor": "36", "gitVersion": "v1.36.3"}
	case r.URL.Path == "/api":
		answer = object{"kind": "APIVersions", "versions": []string{"v1"}}
	case r.URL.Path == "/apis":
		answer = object{"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
	case resources != nil:
		_, version, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		answer = object{"kind": "APIResourceList", "groupVersion": version, "resources": resources}
	default:
		status = http.StatusNotFound
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

// templates returns the text of all templates.
func templates(t *testing.T) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(chart, "templates/*"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, path := range paths {
		all.Write(read(t, path))
	}
	return all.String()
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func isDNS(port any) bool { p, _ := port.(map[string]any); return p["port"] == 53 }

// TestEventsPolicy checks who may call events and which addresses events may call. Only events
// calls addresses that users choose. The "policy" case in test.sh tests the same thing with real
// traffic on a cluster.
func TestEventsPolicy(t *testing.T) {
	t.Parallel()
	objects, err := render(t)
	if err != nil {
		t.Fatal(err)
	}
	var policy object
	for _, o := range objects {
		if o.kind() == "NetworkPolicy" && strings.HasSuffix(o.name(), "-events") {
			policy = o
		}
	}
	if policy == nil {
		t.Fatal("events does not have a NetworkPolicy")
	}
	pods := func(direction, side string) (peers []string, blocks []map[string]any) {
		rules, _ := policy.at("spec", direction).([]any)
		for _, r := range rules {
			rule, _ := r.(map[string]any)
			ports, _ := rule["ports"].([]any)
			list, _ := rule[side].([]any)
			for _, p := range list {
				peer := object(p.(map[string]any))
				if block, ok := peer.at("ipBlock").(map[string]any); ok && !slices.ContainsFunc(ports, isDNS) {
					blocks = append(blocks, block)
				}
				if component, ok := peer.at("podSelector", "matchLabels", "app.kubernetes.io/component").(string); ok {
					for _, port := range ports {
						peers = append(peers, fmt.Sprint(component, ":", object(port.(map[string]any)).at("port")))
					}
				}
			}
		}
		slices.Sort(peers)
		return peers, blocks
	}
	if from, _ := pods("ingress", "from"); !slices.Contains(from, "auth:internal") || slices.ContainsFunc(from, func(p string) bool { return strings.HasSuffix(p, ":internal") && p != "auth:internal" }) {
		t.Errorf("%v may call the internal port, want only auth", from)
	}
	to, blocks := pods("egress", "to")
	if want := []string{"auth:internal", "localcloud:firestore", "redis:redis"}; !slices.Equal(to, want) {
		t.Errorf("events may call %v in the cluster, want %v", to, want)
	}
	for _, b := range blocks {
		except := fmt.Sprint(b["except"])
		switch b["cidr"] {
		case "2000::/3":
		case "0.0.0.0/0":
			for _, private := range []string{"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "224.0.0.0/4", "240.0.0.0/4"} {
				if !strings.Contains(except, private) {
					t.Errorf("webhooks may reach the private range %s", private)
				}
			}
		default:
			t.Errorf("webhooks may reach the unexpected range %v", b)
		}
	}
	if len(blocks) == 0 {
		t.Error("the policy does not allow webhooks to call any address")
	}
}
