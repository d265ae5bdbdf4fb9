package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// casesFile is a file in alerts/. It uses promtool's format with three additions. See
// alerts/README.md.
type casesFile struct {
	Values   []string    `yaml:"values,omitempty"` // chart values, in addition to everyAlert
	Rules    []string    `yaml:"rule_files"`
	Interval string      `yaml:"evaluation_interval"`
	Tests    []alertCase `yaml:"tests"`
}

type alertCase struct {
	Name     string        `yaml:"name"`
	Interval string        `yaml:"interval"`
	Series   []series      `yaml:"input_series"`
	Expects  []expectation `yaml:"alert_rule_test,omitempty"`
	Queries  []query       `yaml:"promql_expr_test,omitempty"`
	Silent   []string      `yaml:"silent,omitempty"` // times when no alert should fire
}

type series struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type query struct {
	Expr    string   `yaml:"expr"`
	At      string   `yaml:"eval_time"`
	Samples []sample `yaml:"exp_samples"`
}

type sample struct {
	Labels string  `yaml:"labels"`
	Value  float64 `yaml:"value"`
}

type expectation struct {
	Alert  string  `yaml:"alertname"`
	At     string  `yaml:"eval_time"`
	Alerts []fired `yaml:"exp_alerts"`
}

type fired struct {
	Labels map[string]string `yaml:"exp_labels"`
}

// rule is a Prometheus rule. A test case may omit fields.
type rule struct {
	Record      string            `yaml:"record,omitempty"`
	Alert       string            `yaml:"alert,omitempty"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

type ruleGroup struct {
	Name     string `yaml:"name"`
	Interval string `yaml:"interval"`
	Rules    []rule `yaml:"rules"`
}

// everyAlert contains the chart values that enable all alerts.
var everyAlert = []string{"metrics.rules.enabled=true", "metrics.probe.enabled=true", "tls.onDemand.enabled=true", "backup.enabled=true"}

// rulesOf returns the rules that the chart renders for a release, and the kind of the object that
// contains them.
func rulesOf(t *testing.T, release, namespace string, values ...string) (groups []ruleGroup, kind string) {
	t.Helper()
	objects, err := renderAs(t, release, namespace, "--set", strings.Join(slices.Concat(everyAlert, values), ","))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.kind() != "PrometheusRule" && o.kind() != "Rules" {
			continue
		}
		text, err := yaml.Marshal(o.at("spec", "groups"))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &groups); err != nil {
			t.Fatal(err)
		}
		return groups, o.kind()
	}
	t.Fatal("the chart does not render any rules")
	return nil, ""
}

// alertsOf returns the names of the alerts in the rules.
func alertsOf(groups []ruleGroup) []string {
	names := map[string]bool{}
	for _, g := range groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				names[r.Alert] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// scoped changes the rules the way Google's operator does: it adds the namespace, and it rejects
// rules that set one of the operator's labels.
func scoped(t *testing.T, groups []ruleGroup, namespace string) {
	t.Helper()
	for _, g := range groups {
		if g.Interval == "" {
			t.Errorf("the group %s does not have an interval, which Google's operator requires", g.Name)
		}
		for _, r := range g.Rules {
			for _, label := range []string{"project_id", "location", "cluster", "namespace"} {
				if r.Labels[label] != "" {
					t.Errorf("%s sets the %s label, which Google's operator rejects", r.Record+r.Alert, label)
				}
			}
			r.Labels["namespace"] = namespace
		}
	}
}

// promtool runs the cases in a file against the releases' rules. A release has a name and a
// namespace.
func promtool(t *testing.T, file casesFile, releases ...[2]string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("promtool is not installed. Run `make tools`")
	}
	dir := t.TempDir()
	for i, of := range releases {
		groups, kind := rulesOf(t, of[0], of[1], file.Values...)
		if kind == "Rules" {
			scoped(t, groups, of[1])
		}
		for g := range groups {
			groups[g].Name += fmt.Sprint(" ", i) // Prometheus distinguishes groups by file, but promtool only by name
			for r := range groups[g].Rules {
				groups[g].Rules[r].Annotations = nil // without annotations, the cases do not have to repeat them
			}
		}
		needed(groups, marshal(t, file))
		file.Rules = append(file.Rules, fmt.Sprintf("rules-%d.yaml", i))
		write(t, filepath.Join(dir, file.Rules[i]), marshal(t, map[string]any{"groups": groups}))
	}
	file.Values = nil
	write(t, filepath.Join(dir, "cases.yaml"), marshal(t, file))
	if out, err := exec.CommandContext(t.Context(), program, "test", "rules", filepath.Join(dir, "cases.yaml")).CombinedOutput(); err != nil {
		t.Errorf("promtool reports failed cases: %v\n%s", err, out)
	}
}

// needed removes alerts that are not expected in any case, and recording rules that are not used in
// any rule. Rules with windows of several days take up most of the test's time.
func needed(groups []ruleGroup, cases string) {
	reads := cases
	dropped := func(r rule) bool {
		return !strings.Contains(reads, "ALERTS{") && !strings.Contains(reads, r.Record+r.Alert)
	}
	for range 2 { // a recording rule may read another recording rule
		for _, g := range groups {
			for _, r := range g.Rules {
				if !dropped(r) {
					reads += r.Expr
				}
			}
		}
	}
	for g := range groups {
		groups[g].Rules = slices.DeleteFunc(groups[g].Rules, dropped)
	}
}

// cases returns the files in alerts/ by name.
func cases(t *testing.T) map[string]casesFile {
	t.Helper()
	paths, err := filepath.Glob("alerts/*.yaml")
	if err != nil || len(paths) < 3 {
		t.Fatalf("alerts/ has the files %v, want at least 3: %v", paths, err)
	}
	files := map[string]casesFile{}
	for _, path := range paths {
		var file casesFile
		if err := yaml.Unmarshal(read(t, path), &file); err != nil {
			t.Fatalf("cannot parse %s: %v", path, err)
		}
		groups, _ := rulesOf(t, "try", "ns", file.Values...)
		for i := range file.Tests {
			file.Tests[i].fillIn(alertsOf(groups))
		}
		files[filepath.Base(path)] = file
	}
	return files
}

var ours = regexp.MustCompile(`\bours\b`)

// fillIn adds the fields that a case in alerts/ may omit.
func (c *alertCase) fillIn(alerts []string) {
	for i, s := range c.Series {
		c.Series[i].Series = ours.ReplaceAllString(s.Series, `namespace="ns",release="try"`)
	}
	for _, e := range c.Expects {
		for _, f := range e.Alerts {
			f.Labels["namespace"], f.Labels["release"] = "ns", "try"
		}
	}
	for _, at := range c.Silent {
		for _, alert := range alerts {
			c.Expects = append(c.Expects, expectation{Alert: alert, At: at})
		}
	}
	c.Silent = nil
}

// TestAlertsFireInTheirOutageOnly runs the cases in alerts/ with promtool.
func TestAlertsFireInTheirOutageOnly(t *testing.T) {
	t.Parallel()
	fires, silent := map[string]bool{}, map[string]bool{}
	for name, file := range cases(t) {
		for _, c := range file.Tests {
			for _, e := range c.Expects {
				if len(e.Alerts) > 0 {
					fires[e.Alert] = true
				} else if name != "quiet.yaml" && name != "no-workers.yaml" {
					silent[e.Alert] = true
				}
			}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			promtool(t, file, [2]string{"try", "ns"})
		})
	}
	groups, _ := rulesOf(t, "try", "ns")
	for _, alert := range alertsOf(groups) {
		if !fires[alert] || !silent[alert] {
			t.Errorf("alerts/ needs a case in which %s fires (has one: %v) and one in which it almost fires (has one: %v)", alert, fires[alert], silent[alert])
		}
	}
}

// TestReleasesUnderOnePrometheus runs all outages in alerts/ at the same time in one release. A
// release with the same name in another namespace and another release in the same namespace have
// their own rules in the same Prometheus. Their alerts must not fire, and two rules must never
// record the same series.
func TestReleasesUnderOnePrometheus(t *testing.T) {
	t.Parallel()
	all := alertCase{Name: "all outages at the same time", Interval: "1m", Queries: []query{
		{Expr: `ALERTS{alertstate="firing", release="other"} or ALERTS{alertstate="firing", namespace="other"} or ALERTS{alertstate="firing", namespace=""}`, At: "30m"},
		{Expr: `linkreel:redirects_errors:burn_rate1h > bool 1000`, At: "30m", Samples: []sample{{`{namespace="ns", release="try"}`, 1}}},
		{Expr: `count(count by (alertname) (ALERTS{alertstate="firing", namespace="ns", release="try"})) > bool 15`, At: "30m", Samples: []sample{{"{}", 1}}},
	}}
	for _, labels := range []string{`namespace="other",release="try"`, `namespace="ns",release="other"`} {
		for _, service := range []string{"auth", "console", "events", "links", "localcloud", "videos", "worker"} {
			all.Series = append(all.Series, series{fmt.Sprintf("up{%s,component=%q}", labels, service), "1x60"})
		}
		all.Series = append(all.Series, series{fmt.Sprintf(`linkreel_redirect_duration_seconds_count{%s,status="302"}`, labels), "0+60x60"},
			series{fmt.Sprintf("linkreel_clicks_counted_total{%s}", labels), "0+60x60"})
	}
	seen := map[string]bool{}
	for _, file := range []string{"budgets.yaml", "outages.yaml"} {
		for _, c := range cases(t)[file].Tests {
			if !slices.ContainsFunc(c.Expects, func(e expectation) bool { return len(e.Alerts) > 0 }) {
				continue
			}
			for _, s := range c.Series {
				if !seen[s.Series] {
					seen[s.Series] = true
					all.Series = append(all.Series, s)
				}
			}
		}
	}
	promtool(t, casesFile{Interval: "1m", Tests: []alertCase{all}}, [2]string{"try", "ns"}, [2]string{"try", "other"}, [2]string{"other", "ns"})
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each alert must link to its section in the manual for its version. The section must list the
// first three steps, and Prometheus must be able to parse its queries.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	operations := string(read(t, "../../docs/operations.md"))
	version := regexp.MustCompile(`(?m)^appVersion: "(.+)"$`).FindSubmatch(read(t, filepath.Join(chart, "Chart.yaml")))[1]
	groups, _ := rulesOf(t, "try", "ns")
	for _, g := range groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			if want := fmt.Sprintf("https://github.com/linkreel/linkreel/blob/v%s/docs/operations.md#%s", version, strings.ToLower(r.Alert)); r.Annotations["runbook_url"] != want {
				t.Errorf("the runbook_url of %s is %s, want %s", r.Alert, r.Annotations["runbook_url"], want)
			}
			if r.Annotations["summary"] == "" || r.Labels["severity"] == "" || r.Labels["namespace"] != "ns" || r.Labels["release"] != "try" {
				t.Errorf("%s lacks a summary or one of the labels severity, namespace and release: %v", r.Alert, r)
			}
		}
	}
	var queries []rule
	for _, alert := range alertsOf(groups) {
		_, section, ok := strings.Cut(operations, "\n### "+alert+"\n")
		section, _, _ = strings.Cut(section, "\n### ")
		if !ok {
			t.Errorf("docs/operations.md does not have a section ### %s", alert)
		}
		for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(section, -1) {
			if regexp.MustCompile(`^[^-]*\b(linkreel_|http_server_|container_|kubelet_|kube_|up\{)`).MatchString(span[1]) {
				queries = append(queries, rule{Record: fmt.Sprint("query", len(queries)), Expr: span[1]})
			}
		}
		for n := 1; n <= 3; n++ {
			if !regexp.MustCompile(fmt.Sprintf("(?m)^%d\\. .*`.+`", n)).MatchString(section) {
				t.Errorf("the section for %s does not have a command or query in step %d", alert, n)
			}
		}
	}
	if len(queries) < 30 {
		t.Errorf("the sections have only %d queries, want at least 30", len(queries))
	}
	readable(t, queries)
}

// Each expression in a panel must select a namespace and a release and use series that exist.
// Prometheus must be able to parse it.
func TestTheDashboardShowsOneRelease(t *testing.T) {
	t.Parallel()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(read(t, filepath.Join(chart, "files/dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	selected := regexp.MustCompile(`namespace="\$namespace"[^{}]*(, release="\$release"|="\$release-|=~"[^"]*\$release-)`)
	recorded := map[string]bool{}
	groups, _ := rulesOf(t, "try", "ns")
	for _, g := range groups {
		for _, r := range g.Rules {
			recorded[r.Record] = true
		}
	}
	var rules []rule
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			for _, selector := range regexp.MustCompile(`\{[^}]*\}`).FindAllString(target.Expr, -1) {
				if !selected.MatchString(selector) {
					t.Errorf("the panel %q selects %s, want one namespace and one release", panel.Title, selector)
				}
			}
			names := regexp.MustCompile(`([\w:]+)\{`).FindAllStringSubmatch(target.Expr, -1)
			for _, m := range names {
				if name := m[1]; !recorded[name] && !regexp.MustCompile(`^(linkreel|localcloud|http_server)_`).MatchString(name) && !slices.Contains(ofOthers, name) {
					t.Errorf("the panel %q shows %s, which neither Linkreel nor a known exporter exports", panel.Title, name)
				}
			}
			if len(names) == 0 {
				t.Errorf("the expression in the panel %q does not use any series: %s", panel.Title, target.Expr)
			}
			expr := strings.NewReplacer("$__rate_interval", "1m", "$namespace", "ns", "$release", "try").Replace(target.Expr)
			rules = append(rules, rule{Record: fmt.Sprint("panel", len(rules)), Expr: expr})
		}
	}
	readable(t, rules)
}

// readable fails the test unless Prometheus can parse the rules' expressions.
func readable(t *testing.T, rules []rule) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, marshal(t, map[string]any{"groups": []ruleGroup{{Name: "expressions", Interval: "1m", Rules: rules}}}))
	if out, err := exec.CommandContext(t.Context(), "promtool", "check", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("promtool cannot parse the rules: %v\n%s", err, out)
	}
}

// ofOthers lists metrics in panels that come from other exporters: Go's client library, cAdvisor
// and the Redis exporter. A test in tests/repo compares our own metrics with the code.
var ofOthers = []string{
	"process_resident_memory_bytes", "container_cpu_cfs_periods_total", "container_cpu_cfs_throttled_periods_total",
	"redis_memory_used_bytes", "redis_memory_max_bytes", "redis_commands_duration_seconds_total",
}
