// Command release makes a release of Linkreel without Docker: images for amd64
// and arm64, the chart with their digests, the linkreel program for six
// platforms, an SBOM for each image and program, checksums and a provenance
// statement. It pushes each image and the chart to a registry as soon as it is made.
//
// What it promises: two runs on the same commit and the same state of Debian's
// archive give the same digests, whatever machine, folder and time they run in.
// So nothing here reads the clock (all times are the commit's), maps are written in
// sorted order, and programs are built without paths, build ids and VCS stamps.
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
	"time"
)

// release is one run: its settings, and the results so far.
type release struct {
	root     string // the repository
	out      string // files for people to download
	work     string // what only this run needs
	version  string // semantic, without a v
	registry string // host and folder of images and chart
	insecure bool   // the registry speaks plain HTTP
	only     map[string]bool

	commit string
	time   time.Time // of the commit
	made   []artifact
}

// artifact is a result: a file in out, or something in the registry.
type artifact struct {
	Name   string // file name, or registry reference without digest
	SHA256 string // hex
}

// semver matches the versions that both Helm and registries accept as a tag.
var semver = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

func main() {
	log.SetFlags(0)
	var r release
	var only string
	flag.StringVar(&r.version, "version", "", "semantic version to release, such as 0.4.0")
	flag.StringVar(&r.registry, "registry", "", "registry and folder, such as ghcr.io/linkreel")
	flag.StringVar(&r.out, "out", "dist/release", "folder for files to download")
	flag.BoolVar(&r.insecure, "insecure", false, "the registry speaks plain HTTP")
	flag.StringVar(&only, "only", "", "images to build, separated by commas; the chart then keeps tags for the others")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.prepare(ctx, only); err != nil {
		log.Fatal("release: ", err)
	}
	err := r.run(ctx)
	if err = errors.Join(err, os.RemoveAll(r.work)); err != nil {
		log.Fatal("release: ", err)
	}
}

// prepare checks the run's settings before anything is built or pushed.
func (r *release) prepare(ctx context.Context, only string) error {
	r.version = strings.TrimPrefix(r.version, "v")
	switch {
	case !semver.MatchString(r.version):
		return fmt.Errorf("VERSION is %q, not a semantic version such as 0.4.0", r.version)
	case r.registry == "":
		return errors.New("REGISTRY is not set; give host and folder, such as ghcr.io/linkreel")
	}
	top, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	r.root = top
	if dirty, err := output(ctx, top, "git", "status", "--porcelain"); err != nil || dirty != "" {
		return errors.Join(err, errors.New("the working tree has changes; a release is made of a commit"))
	}
	if r.commit, err = output(ctx, top, "git", "rev-parse", "HEAD"); err != nil {
		return err
	}
	seconds, err := output(ctx, top, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("time of the commit: %w", err)
	}
	r.time = time.Unix(unix, 0).UTC()
	if only != "" {
		r.only = map[string]bool{}
		for name := range strings.SplitSeq(only, ",") {
			r.only[name] = true
		}
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	r.work, err = os.MkdirTemp("", "linkreel-release-")
	return err
}

// run makes everything. Files come last. If a registry refuses a push, the run then fails
// before its slow part.
func (r *release) run(ctx context.Context) error {
	digests, err := r.images(ctx)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	if err := r.chart(ctx, digests); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	if err := r.programs(ctx); err != nil {
		return fmt.Errorf("programs: %w", err)
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
	// Each module is built by its own go.mod, so that the workspace does not affect a
	// release.
	cmd.Dir = filepath.Join(r.root, dir)
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+goos, "GOARCH="+goarch, "GOAMD64=v1", "GOARM64=v8.0")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s for %s/%s: %w", pkg, goos, goarch, err)
	}
	return nil
}

// output runs a program and returns what it prints, without the last newline.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
