package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The test renders the settings that docs/operations.md recommends, combined with the values that
// operators start from. It checks that the rendered objects are consistent.
func TestRecipes(t *testing.T) {
	t.Parallel()
	docs := string(read(t, "../../docs/operations.md"))
	recovery := string(read(t, "../../docs/recovery.md"))
	recipes := yamlRecipes(t, docs)
	tried := 0
	try := func(name string, args ...string) {
		tried++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := render(t, args...)
			if err != nil {
				t.Fatal(err)
			}
			for _, complaint := range inconsistencies(t, objects, docs+recovery) {
				t.Error(complaint)
			}
		})
	}
	for name, values := range recipes {
		try(name+", on Google Cloud", "--values", valuesFile(t, joined(onGoogle(t, values["redis"] == nil), values)))
		if values["cloud"] == nil {
			try(name+", on any cluster", "--values", valuesFile(t, values))
		}
	}
	for name, values := range yamlRecipes(t, recovery) { // TestOperatorsSnippetsRunAsPasted runs its commands
		try("recovery.md, "+name, "--values", valuesFile(t, values), "--set", "backup.enabled=true,restore.enabled=true")
	}
	// An operator who uses all of these recipes puts them in one file.
	together := onGoogle(t, false)
	for _, part := range []string{"linkreel-redis", "federation", "blocked-destinations", "linkreel-keda"} {
		for _, name := range slices.Sorted(maps.Keys(recipes)) {
			if text, _ := json.Marshal(recipes[name]); strings.Contains(string(text), `"`+part+`"`) {
				together = joined(together, recipes[name])
			}
		}
	}
	try("Memorystore, federation, blocked destinations and KEDA together", "--values", valuesFile(t, together))
	for i, args := range commandRecipes(docs) {
		try(fmt.Sprintf("command %d, %s", i+1, strings.Join(args, " ")), args...)
	}
	if tried < 20 {
		t.Errorf("operations.md has only %d recipes, want at least 20", tried)
	}
}

// Each file in ci is an example that operators can start from.
func TestExamplesFitTogether(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(chart, "ci/*.yaml"))
	if err != nil || len(files) < 8 {
		t.Fatalf("chart/ci has the files %v, want at least 8: %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			objects, err := render(t, "--values", file)
			if err != nil {
				t.Fatal(err)
			}
			for _, complaint := range inconsistencies(t, objects, string(read(t, file))) {
				t.Error(complaint)
			}
		})
	}
}

// Without this test, nobody would notice if the checks above never reported an error.
func TestInconsistenciesAreFound(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ values, want string }{
		"a missing Secret": {`{redis: {enabled: false, external: {existingSecret: nobodys}}}`, "Secret nobodys"},
		"a missing ConfigMap": {
			`{links: {extraVolumes: [{name: x, configMap: {name: nobodys}}], extraVolumeMounts: [{name: x, mountPath: /x}]}}`, "ConfigMap nobodys",
		},
		"a missing projected Secret":    {`{auth: {extraVolumes: [{name: x, projected: {sources: [{secret: {name: nobodys}}]}}]}}`, "Secret nobodys"},
		"a blocked port on a collector": {`{telemetry: {endpoint: "http://collector:4318"}}`, "does not let it call collector:4318"},
		"a blocked port in the release": {
			`{networkPolicy: {enabled: true}, auth: {extraEnv: [{name: LINKREEL_TEST_URL, value: "http://try-linkreel-redis:6380"}]}}`, "does not let it call try-linkreel-redis:6380",
		},
		"a file without a mount": {`{tls: {onDemand: {enabled: true, caFile: /etc/ca.pem}}}`, "but mounts nothing"},
		"a missing TriggerAuthentication": {
			`{worker: {keda: {enabled: true, address: "r:6379", triggerAuthentication: nobodys}}, redis: {enabled: false, external: {url: "redis://r:6379"}}}`, "TriggerAuthentication nobodys",
		},
		"an init container without its volume": {
			`{links: {initContainers: [{name: x, image: x, volumeMounts: [{name: nothing, mountPath: /x}]}]}}`, "mounts nothing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var values map[string]any
			if err := yaml.Unmarshal([]byte(tt.values), &values); err != nil {
				t.Fatal(err)
			}
			objects, err := render(t, "--values", valuesFile(t, values))
			if err != nil {
				t.Fatal(err)
			}
			if got := inconsistencies(t, objects, ""); len(got) == 0 || !strings.Contains(strings.Join(got, "\n"), tt.want) {
				t.Errorf("inconsistencies returned %q, want one with %q", got, tt.want)
			}
		})
	}
}

// onGoogle returns the example for Google Cloud in the form that step 7 describes: without
// `secrets`, and with Memorystore only if none of the recipes set a different Redis.
func onGoogle(t *testing.T, memorystore bool) map[string]any {
	t.Helper()
	var values map[string]any
	if err := yaml.Unmarshal(read(t, filepath.Join(chart, "ci/google.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	delete(values, "secrets")
	if !memorystore {
		delete(values, "redis")
		defaults, _ := values["defaults"].(map[string]any)
		delete(defaults, "extraVolumes")
		delete(defaults, "extraVolumeMounts")
		policy, _ := values["networkPolicy"].(map[string]any)
		delete(policy, "externalRedisPorts")
		delete(policy, "redisTo")
	}
	return values
}

// yamlRecipes returns the blocks of values in docs. Each key combines the heading above a block
// with the block's first line.
func yamlRecipes(t *testing.T, docs string) map[string]map[string]any {
	t.Helper()
	var known map[string]any
	if err := yaml.Unmarshal(read(t, filepath.Join(chart, "values.yaml")), &known); err != nil {
		t.Fatal(err)
	}
	recipes := map[string]map[string]any{}
	for _, m := range regexp.MustCompile("(?s)( *)```yaml\n(.*?)\n *```").FindAllStringSubmatch(docs, -1) {
		text := strings.ReplaceAll("\n"+m[2], "\n"+m[1], "\n")
		var values map[string]any
		if err := yaml.Unmarshal([]byte(text), &values); err != nil {
			t.Fatalf("operations.md: cannot parse this block: %v: %s", err, text)
		}
		if strings.HasPrefix(text, "\n# otelcol.yaml") || strings.HasPrefix(text, "\n# prometheus.yaml") {
			continue // this block configures another program
		}
		for name := range values {
			if _, ok := known[name]; !ok {
				t.Errorf("operations.md: the chart does not have a %s value: %s", name, text)
			}
		}
		first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
		recipes[fmt.Sprintf("recipe %02d, %s", len(recipes)+1, first)] = values
	}
	return recipes
}

// commandRecipes returns the values that the helm commands in docs set, as arguments.
func commandRecipes(docs string) (all [][]string) {
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(docs, -1) {
		text := strings.ReplaceAll(block[1], "\\\n", " ")
		for _, command := range regexp.MustCompile(`(?m)^\s*helm (install|upgrade) .*$`).FindAllString(text, -1) {
			var args []string
			for _, m := range regexp.MustCompile(`(--set|--set-json|--set-string)[ =]('[^']*'|\S+)`).FindAllStringSubmatch(command, -1) {
				args = append(args, m[1], strings.Trim(m[2], "'"))
			}
			if args != nil {
				all = append(all, args)
			}
		}
	}
	return all
}

func valuesFile(t *testing.T, values map[string]any) string {
	t.Helper()
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "values.yaml")
	write(t, path, string(text))
	return path
}

// joined merges two values files the way an operator would. It concatenates lists.
func joined(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	for name, v := range b {
		switch have := out[name].(type) {
		case map[string]any:
			v = joined(have, v.(map[string]any))
		case []any:
			v = slices.Concat(have, v.([]any))
		}
		out[name] = v
	}
	return out
}

// pod is a rendered pod or pod template.
type pod struct {
	owner      string // kind and name of the object
	labels     map[string]any
	spec       object
	volumes    []string
	containers []object // init containers first
}

func (p pod) component() string { s, _ := p.labels["app.kubernetes.io/component"].(string); return s }

func mapAt(o object, path ...string) object { m, _ := o.at(path...).(map[string]any); return m }

func listAt(o object, path ...string) (list []object) {
	items, _ := o.at(path...).([]any)
	for _, item := range items {
		m, _ := item.(map[string]any)
		list = append(list, m)
	}
	return list
}

func pods(objects []object) (all []pod) {
	for _, o := range objects {
		template := mapAt(o, "spec", "template")
		switch o.kind() {
		case "Pod":
			template = o
		case "CronJob":
			template = mapAt(o, "spec", "jobTemplate", "spec", "template")
		}
		if template == nil || template.at("spec", "containers") == nil {
			continue
		}
		p := pod{owner: o.kind() + " " + o.name(), labels: mapAt(template, "metadata", "labels"), spec: mapAt(template, "spec")}
		p.containers = append(listAt(p.spec, "initContainers"), listAt(p.spec, "containers")...)
		for _, v := range listAt(p.spec, "volumes") {
			p.volumes = append(p.volumes, fmt.Sprint(v["name"]))
		}
		for _, claim := range listAt(o, "spec", "volumeClaimTemplates") {
			p.volumes = append(p.volumes, claim.name())
		}
		all = append(all, p)
	}
	return all
}

// inconsistencies lists the errors in a set of objects: mounts without a volume; Secrets and
// ConfigMaps that neither the chart nor a command in text creates; ports that are not in any
// container, Service or NetworkPolicy; and addresses that a pod is configured to call but is not
// allowed to.
func inconsistencies(t *testing.T, objects []object, text string) (complaints []string) {
	t.Helper()
	all := pods(objects)
	for _, p := range all {
		complaints = append(complaints, mountsWithoutVolume(p)...)
		for _, ref := range references(p) {
			if !made(objects, ref) && !named(text, ref) {
				complaints = append(complaints, fmt.Sprintf("%s needs the %s, which does not exist", p.owner, ref))
			}
		}
	}
	for _, o := range objects {
		for _, ref := range objectReferences(o) {
			if !made(objects, ref) && !named(text, ref) {
				complaints = append(complaints, fmt.Sprintf("%s %s needs the %s, which does not exist", o.kind(), o.name(), ref))
			}
		}
	}
	complaints = append(complaints, unknownPorts(objects, all)...)
	return append(complaints, closedCalls(t, objects, all, text)...)
}

// isFile matches the settings that contain the path of a file or a folder.
var isFile = regexp.MustCompile(`(_FILE|_DIR|_CREDENTIALS|_DESTINATIONS)$`)

func mountsWithoutVolume(p pod) (complaints []string) {
	for i, v := range p.volumes {
		if slices.Contains(p.volumes[:i], v) {
			complaints = append(complaints, fmt.Sprintf("%s declares volume %s twice", p.owner, v))
		}
	}
	for _, c := range p.containers {
		seen := map[any]bool{}
		for _, m := range listAt(c, "volumeMounts") {
			if !slices.Contains(p.volumes, fmt.Sprint(m["name"])) {
				complaints = append(complaints, fmt.Sprintf("%s mounts %v, which is not one of its volumes", p.owner, m["name"]))
			}
			if seen[m["mountPath"]] {
				complaints = append(complaints, fmt.Sprintf("%s mounts two volumes at %v", p.owner, m["mountPath"]))
			}
			seen[m["mountPath"]] = true
		}
		for _, e := range listAt(c, "env") {
			if seen[e["name"]] {
				complaints = append(complaints, fmt.Sprintf("%s sets %v twice", p.owner, e["name"]))
			}
			seen[e["name"]] = true
			file, _ := e["value"].(string)
			mounted := slices.ContainsFunc(listAt(c, "volumeMounts"), func(m object) bool { return strings.HasPrefix(file+"/", fmt.Sprint(m["mountPath"], "/")) })
			if isFile.MatchString(fmt.Sprint(e["name"])) && file != "" && !mounted {
				complaints = append(complaints, fmt.Sprintf("%s sets %v=%s, but mounts nothing at that path", p.owner, e["name"], file))
			}
		}
	}
	return complaints
}

// reference is an object that a pod needs.
type reference struct{ kind, name string }

func (r reference) String() string { return r.kind + " " + r.name }

func references(p pod) (refs []reference) {
	add := func(kind string, o object, key string) {
		if name, _ := o[key].(string); name != "" && o["optional"] != true {
			refs = append(refs, reference{kind, name})
		}
	}
	for _, c := range p.containers {
		for _, e := range listAt(c, "env") {
			add("Secret", mapAt(e, "valueFrom", "secretKeyRef"), "name")
			add("ConfigMap", mapAt(e, "valueFrom", "configMapKeyRef"), "name")
		}
		for _, e := range listAt(c, "envFrom") {
			add("Secret", mapAt(e, "secretRef"), "name")
			add("ConfigMap", mapAt(e, "configMapRef"), "name")
		}
	}
	for _, v := range listAt(p.spec, "volumes") {
		add("Secret", mapAt(v, "secret"), "secretName")
		add("ConfigMap", mapAt(v, "configMap"), "name")
		add("PersistentVolumeClaim", mapAt(v, "persistentVolumeClaim"), "claimName")
		for _, source := range listAt(v, "projected", "sources") {
			add("Secret", mapAt(source, "secret"), "name")
			add("ConfigMap", mapAt(source, "configMap"), "name")
		}
	}
	for _, s := range listAt(p.spec, "imagePullSecrets") {
		add("Secret", s, "name")
	}
	add("ServiceAccount", p.spec, "serviceAccountName")
	return refs
}

// objectReferences lists the references in an object that is not a pod.
func objectReferences(o object) (refs []reference) {
	for _, target := range listAt(o, "spec", "secretTargetRef") {
		refs = append(refs, reference{"Secret", target["name"].(string)})
	}
	for _, trigger := range listAt(o, "spec", "triggers") {
		if name, ok := trigger.at("authenticationRef", "name").(string); ok {
			refs = append(refs, reference{"TriggerAuthentication", name})
		}
	}
	return refs
}

// made reports whether the rendered objects include ref, or an object that a controller creates it
// from.
func made(objects []object, ref reference) bool {
	if ref == (reference{"ServiceAccount", "default"}) {
		return true
	}
	return slices.ContainsFunc(objects, func(o object) bool {
		switch o.kind() {
		case ref.kind:
			return o.name() == ref.name
		case "ExternalSecret":
			return ref.kind == "Secret" && o.at("spec", "target", "name") == ref.name
		case "Certificate":
			return ref.kind == "Secret" && o.at("spec", "secretName") == ref.name
		}
		return false
	})
}

// named reports whether the text of a recipe has a command that creates or changes ref. If text is
// an example, it reports whether its values contain ref.
func named(text string, ref reference) bool {
	name := regexp.QuoteMeta(ref.name) + `\b`
	verbs := map[string]string{"Secret": `(create secret generic|patch secret) `, "ConfigMap": `create configmap `}[ref.kind]
	return verbs != "" && regexp.MustCompile(verbs+name).MatchString(text) ||
		regexp.MustCompile(`(?m)^[^#]*([Ss]ecret|configMap\w*|name|keySecret|\w*Claim): \{?(name: )?`+name).MatchString(text)
}

// portsOf returns a pod's container ports by name.
func portsOf(p pod) map[string]int {
	ports := map[string]int{}
	for _, c := range p.containers {
		for _, port := range listAt(c, "ports") {
			ports[fmt.Sprint(port["name"])], _ = port["containerPort"].(int)
		}
	}
	return ports
}

// selects reports whether labels contains every label in selector.
func selects(selector object, labels map[string]any) bool {
	for name, v := range selector {
		if labels[name] != v {
			return false
		}
	}
	return true
}

// unknownPorts lists the ports that objects refer to but that do not exist.
func unknownPorts(objects []object, all []pod) (complaints []string) {
	services := map[string][]any{} // port names and numbers
	for _, o := range objects {
		if o.kind() != "Service" {
			continue
		}
		for _, port := range listAt(o, "spec", "ports") {
			services[o.name()] = append(services[o.name()], port["name"], port["port"])
			for _, p := range all {
				if _, ok := portsOf(p)[fmt.Sprint(port["targetPort"])]; selects(mapAt(o, "spec", "selector"), p.labels) && !ok {
					complaints = append(complaints, fmt.Sprintf("Service %s forwards to port %v, which %s does not have", o.name(), port["targetPort"], p.owner))
				}
			}
		}
	}
	backend := func(owner, service string, port any) {
		if !strings.HasPrefix(service, "try-") {
			return // the Service belongs to another release
		}
		if ports, ok := services[service]; ok && !slices.Contains(ports, port) {
			complaints = append(complaints, fmt.Sprintf("%s uses port %v on Service %s, which does not have that port", owner, port, service))
		} else if !ok {
			complaints = append(complaints, fmt.Sprintf("%s uses Service %s, which does not exist", owner, service))
		}
	}
	for _, o := range objects {
		for _, rule := range listAt(o, "spec", "rules") {
			for _, path := range listAt(rule, "http", "paths") {
				port := mapAt(path, "backend", "service", "port")
				backend(o.kind()+" "+o.name(), fmt.Sprint(path.at("backend", "service", "name")), cmp.Or(port["name"], port["number"]))
			}
			for _, ref := range listAt(rule, "backendRefs") {
				backend(o.kind()+" "+o.name(), fmt.Sprint(ref["name"]), ref["port"])
			}
		}
		if o.kind() != "NetworkPolicy" {
			continue
		}
		for _, p := range all {
			if !selects(mapAt(o, "spec", "podSelector", "matchLabels"), p.labels) {
				continue
			}
			for _, rule := range listAt(o, "spec", "ingress") {
				for _, port := range listAt(rule, "ports") {
					name, isName := port["port"].(string)
					if _, ok := portsOf(p)[name]; isName && !ok {
						complaints = append(complaints, fmt.Sprintf("NetworkPolicy %s opens port %s, which %s does not have", o.name(), name, p.owner))
					}
				}
			}
		}
	}
	return complaints
}

// called matches the settings with addresses that a service calls. It does not match addresses that
// are only displayed, such as LINKREEL_BASE_URL.
var called = regexp.MustCompile(`^(LINKREEL_(AUTH|LINKS|VIDEOS|EVENTS|REDIS|CLICKS_REDIS|PUSH_JWKS|TEST)_URL|LINKREEL_\w+_ENDPOINT|LINKREEL_STORAGE_PUBLIC_DIAL|` +
	`LINKREEL_API_ROUTES|LINKREEL_OIDC_ISSUER|LINKREEL_ACME_DIRECTORY|LINKREEL_EGRESS_PROXY|LINKREEL_WEBHOOK_RESOLVER|DNS_RESOLVER|OTEL_EXPORTER_OTLP_ENDPOINT)$`)

// closedCalls lists the configured addresses that the caller's or the destination's NetworkPolicy
// does not allow. If an address is in a Secret, closedCalls reads it from the command in text that
// creates the Secret.
func closedCalls(t *testing.T, objects []object, all []pod, text string) (complaints []string) {
	t.Helper()
	policies := map[string]object{}
	for _, o := range objects {
		if o.kind() == "NetworkPolicy" {
			for _, p := range all {
				if selects(mapAt(o, "spec", "podSelector", "matchLabels"), p.labels) {
					policies[p.owner] = mapAt(o, "spec")
				}
			}
		}
	}
	for _, p := range all {
		policy, ok := policies[p.owner]
		if !ok {
			continue // all calls are allowed
		}
		for _, call := range calls(t, p, text) {
			target := podOf(objects, all, call.host, call.port)
			to := listAt(policy, "egress")
			if !slices.ContainsFunc(to, func(rule object) bool { return allows(rule, "to", call.port, target) }) {
				complaints = append(complaints, fmt.Sprintf("%[2]s in %[1]s is set to %[3]s:%[4]d, but its NetworkPolicy does not let it call %[3]s:%[4]d", p.owner, call.setting, call.host, call.port))
			}
			if target == nil || policies[target.owner] == nil {
				continue
			}
			from := listAt(policies[target.owner], "ingress")
			if !slices.ContainsFunc(from, func(rule object) bool { return allowsFrom(rule, call.port, *target, p) }) {
				complaints = append(complaints, fmt.Sprintf("%s calls %s:%d, but the destination's NetworkPolicy does not admit it", p.owner, call.host, call.port))
			}
		}
	}
	return complaints
}

// call is an address in a setting.
type call struct {
	setting, host string
	port          int
}

var inSecret = `create secret generic %s --from-literal=%s="([^"]+)"`

func calls(t *testing.T, p pod, text string) (all []call) {
	t.Helper()
	for _, c := range p.containers {
		for _, e := range listAt(c, "env") {
			name, _ := e["name"].(string)
			value, _ := e["value"].(string)
			if from := mapAt(e, "valueFrom", "secretKeyRef"); from != nil {
				if m := regexp.MustCompile(fmt.Sprintf(inSecret, from["name"], from["key"])).FindStringSubmatch(text); m != nil {
					value = regexp.MustCompile(`\$\([^()]*\)`).ReplaceAllString(m[1], "x")
				}
			}
			if value == "" || !called.MatchString(name) {
				continue
			}
			for part := range strings.SplitSeq(value, ",") {
				if _, rest, ok := strings.Cut(part, "=http"); ok { // an entry in the form PATH=ADDRESS
					part = "http" + rest
				}
				all = append(all, addressed(t, name, part))
			}
		}
	}
	return all
}

// addressed parses one address: host:port or a URL.
func addressed(t *testing.T, setting, text string) call {
	t.Helper()
	if !strings.Contains(text, "://") {
		text = "tcp://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		t.Fatalf("cannot parse the address in %s: %v", setting, err)
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443", "redis": "6379", "rediss": "6379"}[u.Scheme])
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatalf("%s=%s has no port", setting, text)
	}
	return call{setting, u.Hostname(), n}
}

// podOf returns the pod in the release that a Service's address selects. It returns nil if there is
// no such pod, or if the Service does not have the port.
func podOf(objects []object, all []pod, host string, port int) *pod {
	name, _, _ := strings.Cut(host, ".")
	for _, o := range objects {
		if o.kind() != "Service" || o.name() != name {
			continue
		}
		for i, p := range all {
			if p.owner != "" && selects(mapAt(o, "spec", "selector"), p.labels) && slices.ContainsFunc(listAt(o, "spec", "ports"), func(at object) bool { return at["port"] == port }) {
				return &all[i]
			}
		}
	}
	return nil
}

// allows reports whether an egress rule allows calls to a port on target. If target is nil, it
// reports whether the rule allows calls to a port outside the release.
func allows(rule object, side string, port int, target *pod) bool {
	if !opens(rule, port, target) {
		return false
	}
	peers := listAt(rule, side)
	return peers == nil || slices.ContainsFunc(peers, func(peer object) bool {
		labels := mapAt(peer, "podSelector", "matchLabels")
		ours := labels["app.kubernetes.io/instance"] != nil
		if target == nil {
			return !ours
		}
		return peer["podSelector"] != nil && peer["namespaceSelector"] == nil && selects(labels, target.labels)
	})
}

// allowsFrom reports whether an ingress rule on target admits caller at a port.
func allowsFrom(rule object, port int, target, caller pod) bool {
	if !opens(rule, port, &target) {
		return false
	}
	peers := listAt(rule, "from")
	return peers == nil || slices.ContainsFunc(peers, func(peer object) bool {
		return peer["podSelector"] != nil && selects(mapAt(peer, "podSelector", "matchLabels"), caller.labels)
	})
}

// opens reports whether a rule applies to a port. It looks up a named port in target.
func opens(rule object, port int, target *pod) bool {
	ports := listAt(rule, "ports")
	return ports == nil || slices.ContainsFunc(ports, func(p object) bool {
		if name, ok := p["port"].(string); ok {
			return target != nil && portsOf(*target)[name] == port
		}
		from, _ := p["port"].(int)
		to, ok := p["endPort"].(int)
		if !ok {
			to = from
		}
		return from <= port && port <= to
	})
}
