package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	signer  = "https://github.com/linkreel/linkreel/.github/workflows/release.yml@refs/tags/"
	runOfIt = "https://github.com/linkreel/linkreel/actions/runs/7/attempts/1"
)

// The test runs the commands in the release workflow one by one, each job in its own clone. It
// replaces GitHub, cosign, the cluster and the registry with stand-ins. By default it also replaces
// the compiler and Debian's archive. With LINKREEL_FULL=1 it uses the real ones, which needs root
// and half an hour on two processors.
func TestAReleaseIsPublishedOnlyWhenAllOfItIsRight(t *testing.T) {
	t.Parallel()
	r := newRehearsal(t)
	if err := r.release("v0.4.0", "cluster"); err == nil {
		t.Error("the workflow succeeded even though helm test failed")
	}
	r.wantNothing("after a failed test")
	needed := slices.Sorted(slices.Values(append(r.jobs["publish"].Needs, "publish")))
	if all := slices.Sorted(maps.Keys(r.jobs)); !slices.Equal(needed, all) {
		t.Errorf("publish needs the jobs %v, want all of %v", r.jobs["publish"].Needs, all)
	}

	// Run the failed jobs again, as a maintainer would.
	if err := r.release("v0.4.0", ""); err != nil {
		t.Fatal(err)
	}
	r.wantOrder()
	r.wantProvenance()
	r.verify()
	r.wantStaleReleasesNoticed()
	r.wantHostileNamesRefused()
	r.wantOthersRefused()
}

// rehearsal runs the release workflow.
type rehearsal struct {
	t        *testing.T
	full     bool
	dir      string // contains all files below
	source   string // a repository with this tree as its main
	commit   string // the released commit
	aside    string // a commit that is not on main
	jobs     map[string]job
	env      map[string]string // the environment for the whole workflow
	registry string            // host and port
	port     string            // the registry port that a cluster pulls from
	archive  string            // the Debian mirror
	golang   map[string]string // Go's settings, since a job's home directory does not have any
	at       map[string]string // the commit in each job's clone
	passed   map[string]bool   // jobs that have passed and are not run again
}

type job struct {
	Needs needs  `yaml:"needs"`
	Steps []step `yaml:"steps"`
}

type step struct {
	Name string            `yaml:"name"`
	Uses string            `yaml:"uses"`
	Run  string            `yaml:"run"`
	If   string            `yaml:"if"`
	With map[string]string `yaml:"with"`
	Env  map[string]string `yaml:"env"`
}

// needs reads one name or a list of names.
type needs []string

func (n *needs) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		*n = needs{node.Value}
		return nil
	}
	return node.Decode((*[]string)(n))
}

func newRehearsal(t *testing.T) *rehearsal {
	t.Helper()
	r := &rehearsal{
		t: t, full: os.Getenv("LINKREEL_FULL") == "1", dir: t.TempDir(), archive: "http://debian.invalid",
		golang: map[string]string{}, at: map[string]string{}, passed: map[string]bool{},
	}
	var text []byte
	r.jobs, r.env, text = jobsOf(t, "release.yml")
	// Another test checks that pods with these values request the resources that the manual states.
	small := regexp.MustCompile("On a small cluster, `(--set [^`]+)`").FindSubmatch(read(t, "../../docs/operations.md"))
	if small == nil || !bytes.Contains(text, small[1]) {
		t.Errorf("the workflow does not use the values for a small cluster in docs/operations.md: %q", small)
	}
	registry := httptest.NewServer(&standInRegistry{say: r.say, content: map[string][]byte{}})
	t.Cleanup(registry.Close)
	r.registry = strings.TrimPrefix(registry.URL, "http://")
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, r.port, _ = net.SplitHostPort(free.Addr().String())
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"bin", "home", "temp", "page", "signed", "artifact"} {
		if err := os.Mkdir(r.path(folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, r.path("events"), "")
	r.clone()
	r.standIns()
	return r
}

// jobsOf parses a workflow. It returns the jobs, the environment that they share, and the text.
func jobsOf(t *testing.T, file string) (map[string]job, map[string]string, []byte) {
	t.Helper()
	var workflow struct {
		Env  map[string]string `yaml:"env"`
		Jobs map[string]job    `yaml:"jobs"`
	}
	text := read(t, filepath.Join("../../.github/workflows", file))
	if err := yaml.Unmarshal(text, &workflow); err != nil {
		t.Fatal(err)
	}
	return workflow.Jobs, workflow.Env, text
}

func (r *rehearsal) path(elem ...string) string {
	return filepath.Join(append([]string{r.dir}, elem...)...)
}

// clone creates the source repository. Its main branch contains this tree, including uncommitted
// changes, as the commit that prepares 0.4.0.
func (r *rehearsal) clone() {
	r.t.Helper()
	r.source = r.path("source")
	r.must("", "git", "clone", "-q", "--shared", "../..", r.source)
	r.must(r.source, "git", "checkout", "-q", "-B", "main")
	changed := r.must("../..", "git", "diff", "-z", "--name-only", "HEAD") +
		r.must("../..", "git", "ls-files", "-z", "--others", "--exclude-standard")
	for name := range strings.SplitSeq(changed, "\x00") {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil && !errors.Is(err, os.ErrNotExist) || name == "" {
			continue
		}
		if err != nil { // the file was removed
			r.must(r.source, "git", "rm", "-q", "--ignore-unmatch", name)
			continue
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(r.source, name)), 0o755); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.source, name), text, 0o755); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, file := range []string{"CHANGELOG.md", "UPGRADING.md"} {
		text := read(r.t, filepath.Join(r.source, file))
		write(r.t, filepath.Join(r.source, file), strings.Replace(string(text), "## [Unreleased]", "## [0.4.0]", 1))
	}
	write(r.t, filepath.Join(r.source, ".ci/run"), "#!/bin/bash\n[ \"$VULN_REQUIRED\" = 1 ]\n")
	r.commitAll("the release")
	r.commit = r.must(r.source, "git", "rev-parse", "HEAD")
}

func (r *rehearsal) commitAll(message string) {
	r.t.Helper()
	r.must(r.source, "git", "add", "--all")
	r.must(r.source, "git", "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", message)
}

// must runs a program and returns its output.
func (r *rehearsal) must(dir, name string, args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s %v failed: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// standIns writes the programs that replace the real ones on a runner. Each stand-in records its
// calls.
func (r *rehearsal) standIns() {
	r.t.Helper()
	names := []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB"}
	var settings strings.Builder
	for i, value := range strings.Split(r.must("", "go", append([]string{"env"}, names...)...), "\n") {
		r.golang[names[i]] = value
		fmt.Fprintf(&settings, "%s='%s' ", names[i], value)
	}
	programs := map[string]string{
		"sudo":    `exec env -i PATH="$PATH" TMPDIR="$dir/temp" ` + settings.String() + `"$@"`,
		"git":     `[ "$1 $2" != "config --system" ] || exit 0; exec "$real" "$@"`,
		"docker":  `case "$*" in *route*) echo default via 127.0.0.1 dev eth0 ;; *tee*) cat ;; esac`,
		"kubectl": `say "$@"`,
		"helm":    standInHelm,
		"gh":      standInGH,
		"cosign":  standInCosign,
	}
	if !r.full {
		maps.Copy(programs, map[string]string{"apt-get": `:`, "mmdebstrap": standInDebian, "go": standInGo})
		write(r.t, r.path("main.go"), "package main\n\nfunc main() {}\n")
		r.must(r.dir, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", r.path("program"), r.path("main.go"))
	} else if m := regexp.MustCompile(`(?m)^URIs: (\S+)/debian$`).FindSubmatch(read(r.t, "/etc/apt/sources.list.d/debian.sources")); m != nil {
		r.archive = string(m[1])
	}
	for name, text := range programs {
		real, _ := exec.LookPath(name)
		if name == "helm" {
			real, _ = filepath.Abs(helm(r.t))
		}
		head := "#!/bin/bash\nset -euo pipefail\ndir='" + r.dir + "' real='" + real + "'\n" +
			"say() { printf '%s\\n' \"" + name + " $*\" >>\"$dir/events\"; }\n"
		file := r.path("bin", name)
		if err := os.WriteFile(file, []byte(head+text+"\n"), 0o755); err != nil {
			r.t.Fatal(err)
		}
	}
}

// The stand-in for the compiler returns the same small Go program for every service. The test only
// compiles the release program.
const standInGo = `
case "$*" in "build -trimpath -buildvcs=false "*)
	while [ "$1" != -o ]; do shift; done
	cp "$dir/program" "$2"; exit ;;
esac
exec "$real" "$@"`

const standInDebian = `
raw=${*: -2:1} root=$(mktemp -d)
mkdir -p "$root/var/cache/apt/archives" "$root/usr/bin"
touch "$root/var/cache/apt/archives/ffmpeg_7%3a5.1.9_all.deb" "$root/usr/bin/ffmpeg"
tar -cf "$raw" -C "$root" .
rm -r "$root"`

// Like a node, this stand-in requests each image by digest from the registry on this machine.
const standInHelm = `
say "$@"
case $1 in
upgrade)
	"$real" template linkreel "$4" "${@:5:2}" >"$dir/rendered"
	grep -oP '\bimage: "?\K[^"\s]+' "$dir/rendered" | sort -u | while read -r image; do
		[[ $image = *@sha256:* ]] || { echo "no digest: $image"; exit 1; }
		[[ $image = docker.io/* ]] && continue
		name=${image#*/} name=${name%%[:@]*}
		curl -fsS -o /dev/null "http://localhost:$PORT/v2/$name/manifests/${image#*@}"
	done ;;
test) [ "$FAIL" != cluster ] ;;
show) exit 1 ;;   # nothing is released before
esac`

const standInGH = `
say "$@"
case "$1 $2" in
"release view") exit 1 ;;
"release upload") cp "${@:5}" "$dir/page" ;;
"release list") echo v0.4.0 ;;
"release download") [[ " $* " != *" --dir "* ]] || { mkdir -p "$5"; cd "$5"; }; cp "$dir/page/"* . ;;
"attestation verify")
	case $3 in
	oci://*) digest=$("$dir/bin/cosign" digest "${3#oci://}") ;;
	*) digest=$(sha256sum <"$3" | cut -d' ' -f1) ;;
	esac
	[[ " $* " = *" --repo linkreel/linkreel "* ]]
	[[ " $* " = *" --cert-identity $(cat "$dir/signed/attested-${digest#sha256:}") "* ]] ;;
esac`

// A stand-in signature is a file with the signing job's identity.
const standInCosign = `
digest() {
	local path=${1#*/}
	case $1 in
	*@*) echo "${1#*@}" ;;
	*) curl -fsSI "http://${1%%/*}/v2/${path%:*}/manifests/${path##*:}" | tr -d '\r' | sed -n 's/^Docker-Content-Digest: //Ip' ;;
	esac
}
option() { local name=$1; shift; while [ "$1" != "$name" ]; do shift; done; echo "$2"; }
command=$1 last=${*: -1}
by="$GITHUB_SERVER_URL/$GITHUB_WORKFLOW_REF"
case $command in
digest) digest "$2"; exit ;;
sign | attest) say "$@"; [[ $last = *@sha256:* ]]; echo "$by" >"$dir/signed/$command-$(digest "$last")" ;;
sign-blob) say "$@"; echo "$by $(sha256sum <"$last")" >"$(option --bundle "$@")" ;;
verify | verify-attestation | verify-blob)
	[ "$(option --certificate-oidc-issuer "$@")" = https://token.actions.githubusercontent.com ]
	identity=$(option --certificate-identity "$@")
	case $command in
	verify) [ "$(cat "$dir/signed/sign-$(digest "$last")")" = "$identity" ] ;;
	verify-attestation) [ "$(cat "$dir/signed/attest-$(digest "$last")")" = "$identity" ] ;;
	verify-blob) [ "$(cat "$(option --bundle "$@")")" = "$identity $(sha256sum <"$last")" ] ;;
	esac ;;
esac`

// release runs the jobs that have not passed yet, in dependency order. fail is the job that must
// fail: "cluster" or "".
func (r *rehearsal) release(tag, fail string) error {
	r.t.Helper()
	tried := map[string]bool{}
	var failed error
	for range r.jobs {
		for _, name := range slices.Sorted(maps.Keys(r.jobs)) {
			ready := !slices.ContainsFunc(r.jobs[name].Needs, func(need string) bool { return !r.passed[need] })
			if r.passed[name] || tried[name] || !ready {
				continue
			}
			err := r.job(name, tag, fail)
			tried[name], r.passed[name] = true, err == nil
			failed = errors.Join(failed, err)
		}
	}
	if failed == nil && len(r.passed) != len(r.jobs) {
		r.t.Fatalf("only the jobs %v passed, want all", r.passed)
	}
	return failed
}

// workspace returns the clone that a job runs in.
func (r *rehearsal) workspace(name string) string {
	r.t.Helper()
	at := r.path("job-" + name)
	if _, err := os.Stat(at); err != nil {
		r.must("", "git", "clone", "-q", "--shared", r.source, at)
	}
	if r.at[name] != r.commit {
		r.must(at, "git", "fetch", "-q", "origin")
		r.must(at, "git", "checkout", "-q", "--detach", r.commit)
		r.at[name] = r.commit
	}
	return at
}

// job runs the steps of one job until a step fails.
func (r *rehearsal) job(name, tag, fail string) error {
	r.t.Helper()
	at := r.workspace(name)
	if err := os.RemoveAll(filepath.Join(at, "dist")); err != nil {
		r.t.Fatal(err)
	}
	var failed error
	for _, s := range r.jobs[name].Steps {
		if (failed != nil) != (s.If == "failure()") {
			continue
		}
		var err error
		if s.Uses != "" {
			err = r.use(s, at)
		} else {
			err = r.command(s, at, tag, fail)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s, step %q: %w", name, s.Name+s.Uses, err))
		}
	}
	return failed
}

// use stands in for an action.
func (r *rehearsal) use(s step, at string) error {
	action, _, _ := strings.Cut(s.Uses, "@")
	switch action {
	case "actions/checkout", "actions/setup-go", "helm/kind-action", "sigstore/cosign-installer":
		return nil
	case "actions/upload-artifact":
		r.must(at, "sh", "-c", "rm -rf \"$0\" && mkdir \"$0\" && cp -r "+s.With["path"]+" \"$0\"", r.path("artifact"))
		return nil
	case "actions/download-artifact":
		r.must(at, "cp", "-r", r.path("artifact"), s.With["path"])
		return nil
	case "actions/attest-build-provenance":
		r.say("attest " + s.With["subject-checksums"])
		for line := range strings.Lines(string(read(r.t, filepath.Join(at, s.With["subject-checksums"])))) {
			digest, _, _ := strings.Cut(line, " ")
			write(r.t, r.path("signed", "attested-"+digest), signer+"v0.4.0")
		}
		return nil
	}
	return fmt.Errorf("no stand-in for the action %s", action)
}

var expression = regexp.MustCompile(`\$\{\{ ([\w.]+) \}\}`)

// command runs a step as a runner does, with only the workflow's environment.
func (r *rehearsal) command(s step, at, tag, fail string) error {
	values := map[string]string{
		"github.ref_name": tag, "github.repository_owner": "linkreel", "github.repository": "linkreel/linkreel", "github.actor": "ada",
		"github.server_url": "https://github.com", "github.workflow_ref": strings.TrimPrefix(signer, "https://github.com/") + tag,
		"github.run_id": "7", "github.run_attempt": "1", "secrets.GITHUB_TOKEN": "secret", "vars.DEBIAN_ARCHIVE": r.archive,
	}
	env := map[string]string{
		"PATH": r.path("bin") + ":" + os.Getenv("PATH"), "HOME": r.path("home"), "RUNNER_TEMP": r.path("temp"), "GITHUB_SHA": r.commit,
		"GITHUB_REF_NAME": tag, "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "linkreel/linkreel",
		"GITHUB_WORKFLOW_REF": values["github.workflow_ref"], "FAIL": fail,
	}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		env[name] = os.Getenv(name)
	}
	maps.Copy(env, r.golang)
	for _, given := range []map[string]string{r.env, s.Env} {
		for name, text := range given {
			env[name] = expression.ReplaceAllStringFunc(text, func(e string) string {
				value, known := values[expression.FindStringSubmatch(e)[1]]
				if !known {
					r.t.Fatalf("step %s uses %s, which the test has no value for", name, e)
				}
				return value
			})
		}
	}
	env["REGISTRY"] = strings.Replace(env["REGISTRY"], "ghcr.io", r.registry, 1)
	if env["PORT"] != "" {
		env["PORT"] = r.port
	}
	return r.shell(s.Run, at, env)
}

// shell runs a script in the workflow's shell and then kills the script's remaining processes.
func (r *rehearsal) shell(script, at string, env map[string]string) error {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	file := r.path("temp", "script")
	write(r.t, file, script)
	cmd := exec.CommandContext(ctx, "bash", "--noprofile", "--norc", "-eo", "pipefail", file)
	cmd.Dir, cmd.SysProcAttr = at, &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = []string{"TMPDIR=" + r.path("temp")}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	output := r.path("temp", "output")
	out, err := os.Create(output)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // fails if no processes are left
	}
	if err != nil {
		text := read(r.t, output)
		return fmt.Errorf("%w:\n%s", err, text[max(0, len(text)-2000):])
	}
	return nil
}

var saying sync.Mutex

// say records an event in the stand-ins' format.
func (r *rehearsal) say(line string) {
	saying.Lock()
	defer saying.Unlock()
	f, err := os.OpenFile(r.path("events"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Error(err)
		return
	}
	_, err = fmt.Fprintln(f, line)
	if err = errors.Join(err, f.Close()); err != nil {
		r.t.Error(err)
	}
}

// published returns the events that have an effect outside this machine, and a line for each file
// that a hostile name could have created. It also clears the events.
func (r *rehearsal) published() []string {
	r.t.Helper()
	var all []string
	for line := range strings.Lines(string(read(r.t, r.path("events")))) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "helm ") && !strings.HasPrefix(line, "kubectl ") {
			all = append(all, line)
		}
	}
	write(r.t, r.path("events"), "")
	err := filepath.WalkDir(r.dir, func(path string, entry os.DirEntry, err error) error {
		switch {
		case path == r.source || entry != nil && entry.Name() == ".git":
			return filepath.SkipDir
		case filepath.Base(path) == "owned":
			all = append(all, "a command ran and wrote "+path)
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

func (r *rehearsal) wantNothing(why string) {
	r.t.Helper()
	if events := r.published(); len(events) != 0 {
		r.t.Errorf("%s, the workflow published %q, want nothing", why, events)
	}
}

// wantOrder checks that each part of a release exists before another part refers to it.
func (r *rehearsal) wantOrder() {
	r.t.Helper()
	events := r.published()
	phases := []struct{ name, match string }{
		{"push by digest", `^registry PUT \S+ sha256:`},
		{"attest", `^attest `},
		{"sign", `^cosign sign --yes \S+@sha256:\w+$`},
		{"attest the SBOMs", `^cosign attest .*@sha256:\w+$`},
		{"sign the checksums", `^cosign sign-blob `},
		{"draft", `^gh release (view|create v0\.4\.0 --draft|upload) ?`},
		{"tag", `^registry PUT \S+ 0\.4\.0$`},
		{"the client's tag", `^gh api repos/linkreel/linkreel/git/refs -f ref=refs/tags/libs/clients/go/v0\.4\.0 -f sha=` + r.commit + `$`},
		{"show", `^gh release edit v0\.4\.0 --draft=false$`},
	}
	var counts []int
	at := 0
	for _, phase := range phases {
		from := at
		for at < len(events) && regexp.MustCompile(phase.match).MatchString(events[at]) {
			at++
		}
		counts = append(counts, at-from)
	}
	if at < len(events) {
		r.t.Errorf("the event %q follows %q, which is the wrong order", events[at], events[max(0, at-1)])
	}
	// There are 9 images with two platforms each, the chart, and an SBOM for each platform.
	if want := []int{9*3 + 1, 1, 10, 18, 1, 3, 10, 1, 1}; !slices.Equal(counts, want) {
		r.t.Errorf("the event counts are %d, want %d: %q", counts, want, events)
	}
}

// wantProvenance checks the builder in the provenance. It also checks that a published version
// cannot be replaced.
func (r *rehearsal) wantProvenance() {
	r.t.Helper()
	builder := func(file string) (id, run string) {
		var p struct {
			Predicate struct {
				RunDetails struct {
					Builder  struct{ ID string }
					Metadata struct{ InvocationID string }
				}
			}
		}
		if err := json.Unmarshal(read(r.t, file), &p); err != nil {
			r.t.Fatal(err)
		}
		return p.Predicate.RunDetails.Builder.ID, p.Predicate.RunDetails.Metadata.InvocationID
	}
	if id, run := builder(r.path("page/provenance.intoto.json")); id != signer+"v0.4.0" || run != runOfIt {
		r.t.Errorf("the workflow's provenance has the builder %q and the run %q, want the workflow and its run", id, run)
	}
	// Build the same version again from a different commit, as someone with credentials for the
	// registry could.
	r.must(r.source, "git", "checkout", "-q", "-b", "aside")
	r.commitAll("a commit that nobody has reviewed")
	released := r.commit
	r.commit = r.must(r.source, "git", "rev-parse", "HEAD")
	r.workspace("build")
	if err := r.byHand("0.4.0", "build", "push"); err == nil || !strings.Contains(err.Error(), "is published as sha256:") {
		r.t.Errorf("replacing a published version returned %v, want an error", err)
	}
	r.wantNothing("after a second build of 0.4.0")
	r.aside, r.commit = r.commit, released
	id, run := builder(r.path("job-build/dist/release/provenance.intoto.json"))
	_, anchor, _ := strings.Cut(id, "docs/releasing.md#")
	if heading := "\n## " + strings.ReplaceAll(anchor, "-", " ") + "\n"; run != "" ||
		!strings.Contains(strings.ToLower(string(read(r.t, "../../docs/releasing.md"))), heading) {
		r.t.Errorf("the provenance of a manual release has the builder %q and the run %q, want a section in docs/releasing.md and no run", id, run)
	}
}

// byHand runs steps of the release program for one image, as a person would. The build job has
// already built the program.
func (r *rehearsal) byHand(version string, steps ...string) error {
	env := map[string]string{
		"PATH": r.path("bin") + ":" + os.Getenv("PATH"), "HOME": r.path("home"), "REGISTRY": r.registry + "/linkreel", "VERSION": version,
	}
	maps.Copy(env, r.golang)
	return r.shell("exec .local/bin/linkreel-release -only check "+strings.Join(steps, " "), r.path("job-build"), env)
}

// verify follows docs/releasing.md to verify the published files. It uses no other files.
func (r *rehearsal) verify() {
	r.t.Helper()
	_, section, _ := strings.Cut(string(read(r.t, "../../docs/releasing.md")), "\n## Verify a release\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var script strings.Builder
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		script.WriteString(block[1])
	}
	text := strings.ReplaceAll(script.String(), "ghcr.io/", r.registry+"/")
	for _, command := range []string{
		"sha256sum --check", "cosign verify ", "cosign verify-blob", "cosign verify-attestation", "gh attestation verify",
	} {
		if !strings.Contains(text, command) {
			r.t.Errorf("docs/releasing.md does not contain the command %q", command)
		}
	}
	run := func(text string) error {
		at := r.path("download")
		if err := errors.Join(os.RemoveAll(at), os.Mkdir(at, 0o755)); err != nil {
			r.t.Fatal(err)
		}
		return r.shell(text, at, map[string]string{
			"PATH": r.path("bin") + ":" + os.Getenv("PATH"), "HOME": r.path("home"), "GITHUB_SERVER_URL": "", "GITHUB_WORKFLOW_REF": "",
		})
	}
	if err := run(text); err != nil {
		r.t.Errorf("the commands in docs/releasing.md failed: %v", err)
	}
	if err := run(strings.Replace(text, "refs/tags/v$V", "refs/tags/v0.3.9", 1)); err == nil {
		r.t.Error("verifying a signature with a different tag succeeded, want an error")
	}
	altered := r.path("page/linkreel-0.4.0-linux-amd64.tar.gz")
	write(r.t, altered, "something else")
	if err := run(text); err == nil {
		r.t.Error("verifying an altered file succeeded, want an error")
	}
	r.published()
}

// The test checks the last release a week later. In the first check, nothing has changed. By the
// second check, Debian has newer packages and there is a known vulnerability.
func (r *rehearsal) wantStaleReleasesNoticed() {
	r.t.Helper()
	r.must(r.source, "git", "tag", "v0.4.0", r.commit)
	jobs, _, _ := jobsOf(r.t, "stale.yml")
	r.jobs["stale"] = jobs["stale"]
	defer delete(r.jobs, "stale")
	checker := filepath.Join(r.workspace("stale"), ".local/bin/govulncheck")
	finds := func(code int) {
		r.t.Helper()
		text := fmt.Sprintf("#!/bin/sh\necho GO-2026-1\nexit %d\n", code)
		if err := errors.Join(os.MkdirAll(filepath.Dir(checker), 0o755), os.WriteFile(checker, []byte(text), 0o755)); err != nil {
			r.t.Fatal(err)
		}
	}
	finds(0)
	if err := r.job("stale", "", ""); err != nil {
		r.t.Errorf("checking a current release returned %v, want no error", err)
	}
	finds(3)
	sbom := r.path("page/image-transcoding-worker-linux-arm64.spdx.json")
	released := read(r.t, sbom)
	write(r.t, sbom, strings.Replace(string(released), "pkg:deb/debian/ffmpeg@", "pkg:deb/debian/ffmpeg@0.", 1))
	err := r.job("stale", "", "")
	if err == nil || !strings.Contains(err.Error(), "< pkg:deb/debian/ffmpeg@0.") || !strings.Contains(err.Error(), "GO-2026-1") {
		r.t.Errorf("checking a stale release returned %v, want the new ffmpeg and the vulnerability", err)
	}
	write(r.t, sbom, string(released))
	r.published()
}

// Git accepts some of these names and rejects others. Each job receives them as if it were the
// first job to run, together with the files from a complete build.
func (r *rehearsal) wantHostileNamesRefused() {
	r.t.Helper()
	for _, tag := range []string{
		"v1.2.3-`id>owned`", "v1.2.3-$(id>owned)", "v1.2.3-$(shell id>owned)", "v1.2.3;id>owned", "v1.2.3-'\"; id>owned; '\"",
		"v1.2.3\nid>owned", "v1.2.3-../../x", "--version", "",
	} {
		for _, name := range []string{"build", "publish"} {
			err := r.job(name, tag, "")
			if err == nil || !strings.Contains(err.Error(), "not a semantic version") || !strings.Contains(err.Error(), "make: ***") {
				r.t.Errorf("the %s job with tag %q returned %v, want an error about the version", name, tag, err)
			}
		}
		r.wantNothing(fmt.Sprintf("with the tag %q", tag))
	}
	for _, version := range []string{
		"v1.2.3|id", "v1.2.3-${IFS}id", "v1.2.3 \tx", "-only=x", "v0.4.0\n", "v1.2.3-..", "v01.2.3", "v1.2.3+x", "vv1.2.3", "1.2",
	} {
		if err := r.byHand(version, "build"); err == nil || !strings.Contains(err.Error(), "not a semantic version") {
			r.t.Errorf("the release program with the version %q returned %v, want an error about the version", version, err)
		}
	}
	if err := r.job("cluster", "v1.2.3-$(id>owned)", ""); err == nil {
		r.t.Error("the cluster job accepted a hostile name, want an error")
	}
	r.wantNothing("with a hostile name in the cluster job")
}

// wantOthersRefused tries commits and versions that must not be released.
func (r *rehearsal) wantOthersRefused() {
	r.t.Helper()
	if err := r.job("build", "v0.5.0", ""); err == nil || !strings.Contains(err.Error(), "CHANGELOG.md has no section [0.5.0]") {
		r.t.Errorf("a version that is not in the changelog returned %v, want an error about CHANGELOG.md", err)
	}
	if err := r.job("publish", "v0.4.1-rc.1", ""); err == nil || !strings.Contains(err.Error(), "want 0.4.1-rc.1 of commit") {
		r.t.Errorf("publishing another version's artifact returned %v, want an error", err)
	}
	r.commit = r.aside
	for _, name := range []string{"build", "publish"} {
		if err := r.job(name, "v0.4.0", ""); err == nil || !strings.Contains(err.Error(), "is not on origin/main") {
			r.t.Errorf("the %s job with a commit that is not on main returned %v, want an error", name, err)
		}
	}
	r.wantNothing("with other commits and versions")
	if left, err := filepath.Glob(r.path("temp", "linkreel-release-*")); err != nil || len(left) != 0 {
		r.t.Errorf("the release program left %v in the temporary folder, want nothing; the error is %v", left, err)
	}
}

// standInRegistry stores the pushed content and records each manifest.
type standInRegistry struct {
	say     func(string)
	mu      sync.Mutex
	uploads int
	content map[string][]byte // by path
}

func (s *standInRegistry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(q.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	digest := q.URL.Query().Get("digest")
	switch q.Method {
	case http.MethodPost:
		s.uploads++
		w.Header().Set("Location", q.URL.Path+strconv.Itoa(s.uploads))
		w.WriteHeader(http.StatusAccepted)
	case http.MethodPatch:
		s.content[q.URL.Path] = body
		w.Header().Set("Location", q.URL.Path)
		w.WriteHeader(http.StatusAccepted)
	case http.MethodPut:
		if repository, reference, manifest := strings.Cut(q.URL.Path, "/manifests/"); manifest {
			s.say("registry PUT " + repository + " " + reference)
			s.content[repository+"/manifests/"+digestOf(body)] = body
			s.content[q.URL.Path] = body
		} else {
			blobs, _, _ := strings.Cut(q.URL.Path, "uploads/")
			s.content[blobs+digest] = append(s.content[q.URL.Path], body...)
		}
		w.WriteHeader(http.StatusCreated)
	default:
		body, found := s.content[q.URL.Path]
		if !found && q.URL.Path != "/v2/" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		var kind struct {
			MediaType string `json:"mediaType"`
		}
		if strings.Contains(q.URL.Path, "/manifests/") && json.Unmarshal(body, &kind) == nil {
			w.Header().Set("Content-Type", kind.MediaType)
		}
		w.Header().Set("Docker-Content-Digest", digestOf(body))
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = io.Copy(w, bytes.NewReader(body)) // the client may have disconnected
	}
}

func digestOf(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }
