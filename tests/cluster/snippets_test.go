package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// kubectl returns the path of kubectl: the test cluster's binary, or else the one on the PATH.
func kubectl(t *testing.T) string {
	t.Helper()
	for _, name := range []string{filepath.Join(os.Getenv("CLUSTER_STATE"), "bin/kubectl"), "/var/lib/linkreel-cluster/bin/kubectl", "kubectl"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("kubectl is not installed. Run `make tools`")
	return ""
}

// headingOrShell matches a heading, or a block of shell commands with its indentation.
var headingOrShell = regexp.MustCompile("(?sm)^##[^\n]*$|^( *)```sh\n(.*?)\n *```$")

// An operator can paste the commands on a page in order, starting in an empty folder. helm renders
// the chart with each command's values. kubectl calls an API server that has the chart's objects,
// so a wrong name or flag makes the test fail. gcloud commands are checked against gcloud's own
// list.
func TestOperatorsSnippetsRunAsPasted(t *testing.T) {
	t.Parallel()
	objects := clusterObjects(t)
	for _, tt := range []struct {
		file     string
		given    string            // variables that the page uses and another page sets
		releases map[string]string // the reader's release values, by the heading where they start to apply
		least    int
		skipped  []string          // prefixes of blocks that other tests run
		replaced map[string]string // text that a reader replaces
	}{
		{file: "docs/operations.md", least: 24, replaced: map[string]string{
			"helm template RELEASE": "helm template linkreel", "NAMESPACE": "linkreel",
		}},
		{file: "docs/recovery.md", given: "P=my-project B=my-videos AUTH=auth@example.com REDIS=redis://localhost\n", least: 20, replaced: map[string]string{
			"/srv/linkreel/data": "data", "/tmp/redis.damaged": "redis.damaged", "\nlinkreel up\n": "\nlinkreel up &\n",
		}, releases: map[string]string{
			"On Google's services": "--values charts/linkreel/ci/google.yaml", "In a cluster": "--set backup.enabled=true",
		}},
		{file: "docs/development.md", least: 2, replaced: map[string]string{"\n.ci/run ": "\ntest -x \"$REPOSITORY/.ci/run\" "}},
		{file: "docs/releasing.md", least: 1, skipped: []string{"V=", "cosign ", "gh "}},
		{file: "README.md", least: 2, skipped: []string{"stack()", "ffmpeg ", ".local/bin/"}},
		{file: "charts/linkreel/README.md", least: 1},
		{file: "charts/devstack/README.md", least: 1, replaced: map[string]string{"devstack-otelview 4318 ": "devstack-otelview 4318 & "}},
		{file: "tests/cluster/README.md", least: 1},
	} {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			script, section, n := "set -euo pipefail\n"+tt.given, "", 0
			for _, b := range headingOrShell.FindAllStringSubmatch(string(read(t, "../../"+tt.file)), -1) {
				text := strings.ReplaceAll("\n"+b[2], "\n"+b[1], "\n")
				if values, ok := tt.releases[strings.TrimLeft(b[0], "# ")]; ok {
					script += "export RELEASE_VALUES='" + values + "'\n"
				}
				if b[2] == "" {
					section = "again\n" // only before the first block of a section, since each call takes time
				}
				if b[2] == "" || slices.ContainsFunc(tt.skipped, func(begin string) bool { return strings.HasPrefix(text, "\n"+begin) }) {
					continue
				}
				script += section + text + "\n"
				section = ""
				n++
			}
			if n < tt.least {
				t.Errorf("%s has %d blocks, want at least %d", tt.file, n, tt.least)
			}
			for old, with := range tt.replaced {
				if !strings.Contains(script, old) {
					t.Errorf("%s does not contain %q", tt.file, old)
				}
				script = strings.ReplaceAll(script, old, with)
			}
			o := newOperator(t, objects)
			o.run(t, script)
			o.checkGcloud(t)
		})
	}
}

// operator is somebody with an empty folder and the programs in testdata/operator.sh.
type operator struct {
	dir, calls string
	env        []string
}

func newOperator(t *testing.T, objects map[string]object) operator {
	t.Helper()
	server := httptest.NewServer(&clusterAPI{start: objects, objects: maps.Clone(objects)})
	t.Cleanup(server.Close)
	abs := func(path string) string {
		path, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	program := func(name string) string {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("%s is not installed. Run `make tools`", name)
		}
		return path
	}
	home := t.TempDir()
	o := operator{dir: filepath.Join(home, "work"), calls: filepath.Join(home, "calls")}
	for _, dir := range []string{"work/data/redis", "work/data.old", "bin"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"again", "curl", "firebase", "gcloud", "go", "helm", "ip", "kubectl", "linkreel", "make", "redis-cli", "rsync", "unshare", "yq"} {
		if err := os.Symlink(abs("testdata/operator.sh"), filepath.Join(home, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"charts": "../../charts", "linkreel": "testdata/operator.sh"} { // as in a clone, and in a release folder
		if err := os.Symlink(abs(to), filepath.Join(o.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(home, "config"), `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"users":[{"name":"u","user":{}}],"clusters":[{"name":"c","cluster":{"server":"`+server.URL+`"}}]}`)
	// The files that a page tells the reader to have ready.
	write(t, filepath.Join(o.dir, "my-values.yaml"), string(read(t, filepath.Join(chart, "ci/google.yaml"))))
	write(t, filepath.Join(o.dir, "lifecycle.json"), regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(string(read(t, "../../docs/recovery.md")))[1])
	write(t, filepath.Join(o.dir, "identity.txt"), "AGE-SECRET-KEY-1")
	write(t, filepath.Join(o.dir, "data.old/linkreel.log"), `{"msg":"audit"}`)
	write(t, filepath.Join(o.dir, "data/secrets.json"), `{"adminToken":"a","playbackKey":"b","webhookKey":"c"}`)
	o.env = []string{
		"PATH=" + filepath.Join(home, "bin") + ":" + os.Getenv("PATH"), "HOME=" + home, "KUBECONFIG=" + filepath.Join(home, "config"), "CALLS=" + o.calls,
		"API=" + server.URL, "HELM=" + abs(helm(t)), "KUBECTL=" + kubectl(t), "CURL=" + program("curl"),
		"CHART=" + abs(chart), "REPOSITORY=" + abs("../.."),
	}
	return o
}

// run runs a script in the operator's folder. It kills any commands that the script leaves running
// in the background.
func (o operator) run(t *testing.T, script string) {
	t.Helper()
	// The output goes to a file: a pipe would stay open for as long as a command was running in the
	// background.
	out, err := os.Create(filepath.Join(filepath.Dir(o.dir), "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command("bash", "-xc", script)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = o.dir, append(os.Environ(), o.env...), out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // the group may have already exited
	defer end()
	defer time.AfterFunc(5*time.Minute, end).Stop()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the commands failed: %v\n%s", err, read(t, out.Name()))
	}
}

// clusterAPI is an API server with the chart's objects and the pods that controllers would create
// for them.
type clusterAPI struct {
	start map[string]object

	mu      sync.Mutex
	objects map[string]object // by resource and name, such as "deployments/linkreel-auth"
}

// resources contains the kinds that the chart renders or that a page mentions, by group and
// version.
var resources = map[string]map[string]string{
	"v1": {
		"ConfigMap": "configmaps", "Namespace": "namespaces", "PersistentVolumeClaim": "persistentvolumeclaims", "Pod": "pods", "Secret": "secrets",
		"Service": "services", "ServiceAccount": "serviceaccounts",
	},
	"apps/v1":              {"Deployment": "deployments", "StatefulSet": "statefulsets"},
	"batch/v1":             {"CronJob": "cronjobs", "Job": "jobs"},
	"keda.sh/v1alpha1":     {"ScaledObject": "scaledobjects"},
	"networking.k8s.io/v1": {"Ingress": "ingresses"},
}

// clusterObjects returns the objects of a release that uses all parts of the chart that the pages
// mention, by resource and name.
func clusterObjects(t *testing.T) map[string]object {
	t.Helper()
	all := map[string]object{"namespaces/linkreel": {"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "linkreel"}}}
	for _, args := range [][]string{
		{"--set", "tls.onDemand.enabled=true,backup.enabled=true,restore.enabled=true,localcloud.objects.size=10Gi,ingress.enabled=true"},
		{"--values", filepath.Join(chart, "ci/google.yaml"), "--set", "worker.autoscaling.enabled=false,worker.keda.enabled=true,worker.keda.address=10.20.0.4:6379,restore.enabled=true,restore.since=2026-03-01T12:00:00Z"},
	} {
		objects, err := renderAs(t, "linkreel", "linkreel", args...)
		if err != nil {
			t.Fatal(err)
		}
		add(all, objects)
	}
	return all
}

// add adds the objects whose kinds are in resources, and the StatefulSets' volume claims.
func add(to map[string]object, objects []object) {
	for _, o := range objects {
		if name := resources[fmt.Sprint(o["apiVersion"])][o.kind()]; name != "" {
			to[name+"/"+o.name()] = o
		}
		for _, claim := range listAt(o, "spec", "volumeClaimTemplates") {
			name := claim.name() + "-" + o.name() + "-0"
			to["persistentvolumeclaims/"+name] = object{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": map[string]any{"name": name, "namespace": "linkreel"}}
		}
	}
}

// pods returns the pods of the workloads that are not scaled to zero.
func (c *clusterAPI) pods() map[string]object {
	all := map[string]object{}
	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		o, name := c.objects[key], c.objects[key].name()
		switch o.kind() {
		case "Deployment", "Job":
			name += "-x"
		case "StatefulSet":
			name += "-0"
		default:
			continue
		}
		if fmt.Sprint(o.at("spec", "replicas")) == "0" {
			continue
		}
		labels := maps.Clone(map[string]any(mapAt(o, "spec", "template", "metadata", "labels")))
		if o.kind() == "Job" {
			if labels == nil {
				labels = map[string]any{}
			}
			labels["job-name"] = o.name()
		}
		all["pods/"+name] = object{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "namespace": "linkreel", "labels": labels},
			"spec": mapAt(o, "spec", "template", "spec"), "status": object{"phase": "Running"},
		}
	}
	return all
}

func (c *clusterAPI) find(key string) (object, bool) {
	if o, ok := c.pods()[key]; ok {
		return o, true
	}
	o, ok := c.objects[key]
	if ok && o.kind() == "Job" { // the API server adds the selector
		o = merged(o, object{"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"job-name": o.name()}}}})
	}
	return o, ok
}

// list returns the objects of a resource that match a selector.
func (c *clusterAPI) list(resource string, query url.Values) (found []any) {
	found = []any{} // kubectl does not accept null
	all := maps.Clone(c.objects)
	maps.Copy(all, c.pods())
	name, named := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=")
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(key, resource+"/") && matches(query.Get("labelSelector"), mapAt(all[key], "metadata", "labels")) && (!named || all[key].name() == name) {
			found = append(found, all[key])
		}
	}
	return found
}

// matches reports whether labels match a selector that consists of `name=value` and `name in (a,b)`.
func matches(selector string, labels object) bool {
	for _, m := range regexp.MustCompile(`([^=, ]+)(?:=([^,]*)| in \(([^)]*)\))`).FindAllStringSubmatch(selector, -1) {
		if value := fmt.Sprint(labels[m[1]]); value != m[2] && !slices.Contains(strings.Split(strings.ReplaceAll(m[3], " ", ""), ","), value) {
			return false
		}
	}
	return true
}

func (c *clusterAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	status, answer := c.answer(r)
	w.Header().Set("Content-Type", "application/json")
	if text, ok := answer.(string); ok {
		_, _ = io.WriteString(w, text)
		return
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}

// resourcePath matches the path of a resource, of an object, and of a part of an object.
var resourcePath = regexp.MustCompile(`^/(?:api|apis/[^/]+)/v1[a-z0-9]*/(?:namespaces/linkreel/)?([a-z]+)(?:/([^/]+))?(?:/([a-z]+))?$`)

func (c *clusterAPI) answer(r *http.Request) (int, any) {
	if r.URL.Path == "/again" {
		c.objects = maps.Clone(c.start)
		return http.StatusOK, "again"
	}
	if r.URL.Path == "/installed" {
		decoder := yaml.NewDecoder(r.Body)
		for {
			var o map[string]any
			if decoder.Decode(&o) != nil {
				return http.StatusOK, "installed"
			}
			add(c.objects, []object{o})
		}
	}
	if found := discovery(r.URL.Path); found != nil {
		return http.StatusOK, found
	}
	missing := object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": http.StatusNotFound, "message": r.URL.Path + " does not exist"}
	m := resourcePath.FindStringSubmatch(r.URL.Path)
	if m == nil {
		return http.StatusNotFound, missing
	}
	key := m[1] + "/" + m[2]
	if m[2] == "" && r.Method == http.MethodGet {
		for version, kinds := range resources {
			for kind, name := range kinds {
				if name == m[1] {
					return http.StatusOK, object{"kind": kind + "List", "apiVersion": version, "metadata": object{}, "items": c.list(name, r.URL.Query())}
				}
			}
		}
	}
	var sent map[string]any
	if body, _ := io.ReadAll(r.Body); len(body) > 0 && json.Unmarshal(body, &sent) != nil {
		return http.StatusBadRequest, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": http.StatusBadRequest, "message": "the body is not JSON"}
	}
	if r.Method == http.MethodPost {
		if m[1] == "pods" {
			sent["status"] = object{"phase": "Running", "conditions": []any{object{"type": "Ready", "status": "True"}}}
		}
		c.objects[m[1]+"/"+object(sent).name()] = sent
		return http.StatusCreated, sent
	}
	o, ok := c.find(key)
	if !ok {
		return http.StatusNotFound, missing
	}
	switch {
	case m[3] == "log":
		return http.StatusOK, "request REQUEST_ID\n"
	case r.Method == http.MethodDelete:
		delete(c.objects, key)
		return http.StatusOK, object{"kind": "Status", "apiVersion": "v1", "status": "Success"}
	case m[3] == "scale" && r.Method == http.MethodGet:
	case r.Method == http.MethodPatch || r.Method == http.MethodPut:
		c.objects[key] = merged(c.objects[key], sent)
		o = c.objects[key]
	}
	if m[3] == "scale" {
		return http.StatusOK, object{
			"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": object{"name": m[2], "namespace": "linkreel"},
			"spec": object{"replicas": o.at("spec", "replicas")},
		}
	}
	return http.StatusOK, o
}

// merged applies a merge patch.
func merged(o, patch object) object {
	out := maps.Clone(o)
	for name, v := range patch {
		below, isMap := v.(map[string]any)
		have, _ := out[name].(map[string]any)
		switch {
		case v == nil:
			delete(out, name)
		case isMap && have != nil:
			out[name] = map[string]any(merged(have, below))
		default:
			out[name] = v
		}
	}
	return out
}

// discovery returns the list of groups or resources at a path.
func discovery(path string) any {
	var groups, list []any
	for version, kinds := range resources {
		if group, number, ok := strings.Cut(version, "/"); ok {
			v := object{"groupVersion": version, "version": number}
			groups = append(groups, object{"name": group, "versions": []any{v}, "preferredVersion": v})
		}
		if path != "/apis/"+version && path != "/api/"+version {
			continue
		}
		for kind, name := range kinds {
			short := map[string][]string{"PersistentVolumeClaim": {"pvc"}, "Deployment": {"deploy"}}[kind]
			list = append(list, object{
				"name": name, "singularName": strings.ToLower(kind), "namespaced": kind != "Namespace", "kind": kind, "shortNames": short,
				"verbs": []string{"create", "delete", "get", "list", "patch", "update", "watch"},
			})
			if kind == "Deployment" || kind == "StatefulSet" {
				list = append(list, object{"name": name + "/scale", "namespaced": true, "kind": "Scale", "group": "autoscaling", "version": "v1", "verbs": []string{"get", "patch", "update"}})
			}
		}
	}
	switch {
	case path == "/version":
		return object{"major": "1", "minor": "36", "gitVersion": "v1.36.3"}
	case path == "/api":
		return object{"kind": "APIVersions", "versions": []string{"v1"}}
	case path == "/apis":
		return object{"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
	case list != nil:
		return object{"kind": "APIResourceList", "groupVersion": strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/"), "resources": list}
	}
	return nil
}

// gcloudFile lists the gcloud commands that the pages use, with their flags. gcloud.py next to it
// regenerates it from an installed gcloud. The entry "" has the flags that every command accepts.
const gcloudFile = "testdata/gcloud.json"

// checkGcloud checks the recorded gcloud commands against the list of commands and flags.
func (o operator) checkGcloud(t *testing.T) {
	t.Helper()
	var known map[string][]string
	if err := json.Unmarshal(read(t, gcloudFile), &known); err != nil {
		t.Fatal(err)
	}
	// The file comes from gcloud 528, which does not have this command yet.
	known["firestore databases clone"] = []string{"--source-database", "--snapshot-time", "--destination-database"}
	for line := range strings.Lines(string(read(t, o.calls))) {
		words := strings.Split(strings.TrimSuffix(line, "\x1f\n"), "\x1f")
		if words[0] != "gcloud" {
			continue
		}
		n := len(words)
		for n > 1 && known[strings.Join(words[1:n], " ")] == nil {
			n--
		}
		command := strings.Join(words[1:n], " ")
		if command == "" {
			t.Errorf("%s does not list the command gcloud %s", gcloudFile, strings.Join(words[1:], " "))
		}
		for _, word := range words[n:] {
			if flag, _, _ := strings.Cut(word, "="); strings.HasPrefix(flag, "--") && !slices.Contains(slices.Concat(known[command], known[""]), flag) {
				t.Errorf("gcloud %s does not have a %s flag, according to %s", strings.Join(words[1:], " "), flag, gcloudFile)
			}
		}
	}
}

// The pages show settings for other programs. promtool reads those for Prometheus. Alertmanager and
// the OpenTelemetry collector are not on this machine, so the test checks what it knows about them.
func TestConfigurationsOfOtherPrograms(t *testing.T) {
	t.Parallel()
	block := func(page, begins string, to any) string {
		for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(read(t, "../../docs/"+page)), -1) {
			if !strings.HasPrefix(m[1], begins) {
				continue
			}
			decoder := yaml.NewDecoder(strings.NewReader(m[1]))
			decoder.KnownFields(true)
			if err := decoder.Decode(to); err != nil {
				t.Fatalf("docs/%s: %v: %s", page, err, m[1])
			}
			return m[1]
		}
		t.Fatalf("docs/%s does not have a block that begins with %s", page, begins)
		return ""
	}
	t.Run("Prometheus", func(t *testing.T) {
		t.Parallel()
		text := block("operations.md", "# prometheus.yaml", &map[string]any{})
		path := filepath.Join(t.TempDir(), "prometheus.yaml")
		// Debian's promtool does not support Kubernetes, but it supports relabel_configs.
		write(t, path, "scrape_configs:\n- job_name: linkreel\n  static_configs: [{targets: [pod]}]\n  "+strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")+"\n")
		if out, err := exec.CommandContext(t.Context(), "promtool", "check", "config", path).CombinedOutput(); err != nil {
			t.Errorf("promtool rejects the configuration: %v\n%s", err, out)
		}
	})
	t.Run("OpenTelemetry collector", func(t *testing.T) {
		t.Parallel()
		var config struct {
			Receivers, Processors, Exporters map[string]any
			Service                          struct {
				Pipelines map[string]map[string][]string
			}
		}
		block("operations.md", "# otelcol.yaml", &config)
		parts := map[string]map[string]any{"receivers": config.Receivers, "processors": config.Processors, "exporters": config.Exporters}
		for name, pipeline := range config.Service.Pipelines {
			for kind, uses := range pipeline {
				for _, use := range uses {
					if _, ok := parts[kind][use]; !ok {
						t.Errorf("pipeline %s uses %s, which is not one of the %s", name, use, kind)
					}
				}
			}
		}
		if len(config.Service.Pipelines) == 0 {
			t.Error("the collector does not have any pipelines")
		}
	})
	t.Run("Alertmanager", func(t *testing.T) {
		t.Parallel()
		var config struct {
			Rules []struct {
				Source []string `yaml:"source_matchers"`
				Target []string `yaml:"target_matchers"`
				Equal  []string `yaml:"equal"`
			} `yaml:"inhibit_rules"`
		}
		block("failures.md", "inhibit_rules:", &config)
		groups, _ := rulesOf(t, "try", "ns")
		known := alertsOf(groups)
		matcher, word := regexp.MustCompile(`^([a-z_]+) =~? ("[^"]+"|[A-Za-z]+)$`), regexp.MustCompile(`[A-Za-z]+`)
		for _, rule := range config.Rules {
			if len(rule.Source) == 0 || len(rule.Target) == 0 || !slices.Equal(rule.Equal, []string{"namespace", "release"}) {
				t.Errorf("the rule %+v does not have a source, a target and equal labels", rule)
			}
			for _, text := range slices.Concat(rule.Source, rule.Target) {
				m := matcher.FindStringSubmatch(text)
				if m == nil {
					t.Errorf("%s is not a matcher", text)
					continue
				}
				if m[1] != "alertname" {
					continue
				}
				prefix, names, grouped := strings.Cut(m[2], "(")
				if !grouped {
					prefix, names = "", m[2]
				}
				for _, name := range word.FindAllString(names, -1) {
					if alert := strings.Trim(prefix, `"`) + name; !slices.Contains(known, alert) {
						t.Errorf("%s refers to the alert %s, which is not in the chart", text, alert)
					}
				}
			}
		}
		if len(config.Rules) < 4 {
			t.Errorf("the page has only %d rules, want at least 4", len(config.Rules))
		}
	})
}
