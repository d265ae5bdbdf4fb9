// Command release builds a release of Linkreel without Docker: images for amd64 and arm64, the
// chart with their digests, the linkreel program for six platforms, an SBOM for each image and
// program, the Python client as a wheel, checksums and a provenance statement. Its arguments name
// the steps to run, in this order:
//
//	build   build everything in dist/release and dist/release.oci; publish nothing
//	push    send images and chart to the registry, by digest only
//	tag     tag the pushed images and chart with the version
//	serve   serve the build as a registry, for a cluster on this machine
//
// The version, the registry and the builder come from the environment (VERSION, REGISTRY,
// RELEASE_BRANCH, RELEASE_BUILDER, RELEASE_RUN). On a command line, make and the shell would expand
// a version, which is a tag name that anyone could have chosen.
//
// Two runs on the same commit and the same state of Debian's archive produce the same digests, on
// any machine, in any folder and at any time. None of the steps read the clock (all times are the
// commit's time), maps are written in sorted order, and programs are built without paths, build IDs
// and VCS stamps.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// release contains the settings and the results of one run.
type release struct {
	root     string // the repository
	out      string // files to download
	layout   string // built images and chart, as an OCI image layout
	work     string // temporary files from this run
	version  string // semantic, without a v
	registry string // host and folder for images and chart
	branch   string // branch that must contain the commit; "" allows every commit
	listen   string // address that the serve step listens on
	insecure bool   // the registry speaks plain HTTP
	only     map[string]bool

	commit string
	time   time.Time // time of the commit
	made   []artifact
}

// artifact is a result: a file in out, or an object in the registry.
type artifact struct {
	Name   string // file name, or registry reference without digest
	SHA256 string // hex
}

// semver matches the versions that both Helm and registries accept as a tag: numbers without
// leading zeros, and after a hyphen, identifiers of letters, digits and hyphens.
var semver = regexp.MustCompile(`^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

func main() {
	log.SetFlags(0)
	r := release{
		version: strings.TrimPrefix(os.Getenv("VERSION"), "v"), registry: os.Getenv("REGISTRY"), branch: os.Getenv("RELEASE_BRANCH"),
	}
	var only string
	flag.StringVar(&r.out, "out", "dist/release", "folder for files to download; images and chart are written to the folder with the same name and the suffix .oci")
	flag.StringVar(&r.listen, "listen", ":5000", "address that the serve step listens on")
	flag.BoolVar(&r.insecure, "insecure", false, "the registry speaks plain HTTP")
	flag.StringVar(&only, "only", "", "images to build, separated by commas; the chart then keeps tags for the others")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := r.prepare(ctx, only); err != nil {
		log.Fatal("release: ", err)
	}
	err := r.run(ctx, flag.Args())
	if err = errors.Join(err, os.RemoveAll(r.work)); err != nil {
		log.Fatal("release: ", err)
	}
}

// prepare checks the run's settings before anything is built or pushed.
func (r *release) prepare(ctx context.Context, only string) error {
	switch {
	case !semver.MatchString(r.version):
		return fmt.Errorf("VERSION is %q, not a semantic version such as 0.4.0", r.version)
	case r.registry == "":
		return errors.New("REGISTRY is not set; set it to a host and folder, such as ghcr.io/linkreel")
	}
	var err error
	if r.root, err = output(ctx, ".", "git", "rev-parse", "--show-toplevel"); err != nil {
		return err
	}
	if err := r.ofCommit(ctx); err != nil {
		return err
	}
	if only != "" {
		r.only = map[string]bool{}
		for name := range strings.SplitSeq(only, ",") {
			r.only[name] = true
		}
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	r.layout = r.out + ".oci"
	r.work, err = os.MkdirTemp("", "linkreel-release-")
	return err
}

// ofCommit determines the commit to release. It rejects a tree with changes, a commit that is not
// on the branch, and a final version that the documents do not mention.
func (r *release) ofCommit(ctx context.Context) error {
	if dirty, err := output(ctx, r.root, "git", "status", "--porcelain"); err != nil || dirty != "" {
		return errors.Join(err, errors.New("the working tree has changes; commit them, because a release is built from a commit"))
	}
	var err error
	if r.commit, err = output(ctx, r.root, "git", "rev-parse", "HEAD"); err != nil {
		return err
	}
	if r.branch != "" {
		if _, err := output(ctx, r.root, "git", "merge-base", "--is-ancestor", r.commit, r.branch); err != nil {
			return fmt.Errorf("commit %s is not on %s; only commits on that branch are released: %w", r.commit, r.branch, err)
		}
	}
	seconds, err := output(ctx, r.root, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("commit time: %w", err)
	}
	r.time = time.Unix(unix, 0).UTC()
	return r.documented()
}

// documented rejects a final version without a section in CHANGELOG.md and UPGRADING.md. Versions
// with a hyphen are test releases and do not need a section.
func (r *release) documented() error {
	if strings.Contains(r.version, "-") {
		return nil
	}
	for _, file := range []string{"CHANGELOG.md", "UPGRADING.md"} {
		text, err := os.ReadFile(filepath.Join(r.root, file))
		if err != nil {
			return err
		}
		if !strings.Contains(string(text), "\n## ["+r.version+"]") {
			return fmt.Errorf("%s has no section [%s]; rename the section of unreleased changes", file, r.version)
		}
	}
	return nil
}

// run runs the steps in the given order.
func (r *release) run(ctx context.Context, steps []string) error {
	if len(steps) == 0 {
		return errors.New("no steps; use build, push, tag or serve")
	}
	for _, step := range steps {
		take := map[string]func(context.Context) error{"build": r.build, "push": r.push, "tag": r.tag, "serve": r.serve}[step]
		if take == nil {
			return fmt.Errorf("unknown step %q; use build, push, tag or serve", step)
		}
		if err := take(ctx); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	return nil
}

// build builds everything and publishes nothing.
func (r *release) build(ctx context.Context) error {
	for _, dir := range []string{r.out, r.layout} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	digests, err := r.images(ctx)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	if err := r.chart(digests); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	if err := r.programs(ctx); err != nil {
		return fmt.Errorf("programs: %w", err)
	}
	if err := r.wheel(ctx); err != nil {
		return fmt.Errorf("wheel: %w", err)
	}
	if err := r.provenance(); err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	return r.checksums()
}

// goBuild builds a static program for one platform.
func (r *release) goBuild(ctx context.Context, pkg, goos, goarch, file string) error {
	dir, _, _ := strings.Cut(pkg, "/cmd/")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags=disable_grpc_modules", "-gcflags=all=-dwarf=false",
		"-ldflags", "-s -w -buildid= -X github.com/linkreel/linkreel/libs/boot.version="+r.version+" -X github.com/linkreel/linkreel/services/cli.version="+r.version,
		"-o", file, "./cmd/"+filepath.Base(pkg))
	// Each module is built with its own go.mod so that the workspace does not affect a release.
	cmd.Dir = filepath.Join(r.root, dir)
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+goos, "GOARCH="+goarch, "GOAMD64=v1", "GOARM64=v8.0")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s for %s/%s: %w", pkg, goos, goarch, err)
	}
	return nil
}

// output runs a program and returns its output without the last newline.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
