package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// debianPackage is one package of a base.
type debianPackage struct{ name, version, arch string }

// triplets maps architectures to the names of their library folders.
var triplets = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

// alternatives returns the library folders that a package's installation script would have linked
// into the standard folder.
func alternatives(arch string) string {
	lib := "/usr/lib/" + triplets[arch]
	return lib + "/blas:" + lib + "/lapack"
}

// debian creates a layer of the named packages and their dependencies. It unpacks them without
// installing them. It does not run any of their programs, so a machine can create the layer for
// another architecture.
func (r *release) debian(ctx context.Context, packages, arch string) (layer string, list []debianPackage, err error) {
	layer = filepath.Join(r.work, "debian-"+strings.ReplaceAll(packages, ",", "-")+"-"+arch+".tar")
	if list, err := packagesOf(layer); err == nil {
		return layer, list, nil // already created for another image with the same base
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		return "", nil, errors.New("mmdebstrap is missing; install it with apt-get install mmdebstrap")
	}
	// Use the machine's own Debian sources, so there is no need to configure a mirror here. A
	// machine that does not run Debian must set both variables.
	sources, suite := os.Getenv("DEBIAN_SOURCES"), os.Getenv("DEBIAN_SUITE")
	if sources == "" {
		sources = "/etc/apt/sources.list.d/debian.sources"
	}
	if info, err := os.Stat(sources); err != nil || info.Size() == 0 {
		sources = "/etc/apt/sources.list"
	}
	if suite == "" {
		if suite, err = output(ctx, ".", "sh", "-c", ". /etc/os-release && echo $VERSION_CODENAME"); err != nil {
			return "", nil, err
		}
	}
	raw := layer + ".raw"
	cmd := exec.CommandContext(ctx, "mmdebstrap", "--quiet", "--mode=root", "--variant=extract", "--format=tar",
		"--architectures="+arch, "--include="+packages, "--aptopt=APT::Install-Recommends \"false\"",
		"--skip=cleanup/apt", suite, raw, sources)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.time.Unix(), 10))
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", nil, fmt.Errorf("mmdebstrap %s for %s: %w", packages, arch, err)
	}
	list, err = r.strip(raw, layer)
	return layer, list, errors.Join(err, os.Remove(raw))
}

// unwanted lists folders that none of our programs reads.
var unwanted = []string{"usr/share/doc/", "usr/share/man/", "usr/share/locale/", "usr/share/info/", "usr/share/icons/", "usr/share/lintian/",
	"var/", "dev/", "proc/", "sys/", "run/", "tmp/", "etc/apt/"}

// strip rewrites a tar of extracted packages. It drops files that an image does not need, and sets
// all times to the commit's time. It keeps licences (copyright files). It also lists the packages,
// based on the archives that apt left in the tar.
func (r *release) strip(from, to string) ([]debianPackage, error) {
	in, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	var list []debianPackage
	tr, tw := tar.NewReader(in), tar.NewWriter(out)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		path := strings.TrimPrefix(h.Name, "./")
		if p, ok := archived(path); ok {
			list = append(list, p)
		}
		if !wanted(path, h.Typeflag) {
			continue
		}
		h.ModTime, h.AccessTime, h.ChangeTime, h.PAXRecords, h.Format = r.time, r.time, r.time, nil, tar.FormatPAX
		h.Uname, h.Gname = "", ""
		if err := tw.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
		if _, err := io.Copy(tw, tr); err != nil { //nolint:gosec // Debian's packages, bounded by Debian's archive
			return nil, err
		}
	}
	if err := tw.Close(); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("mmdebstrap left no package archives to list")
	}
	slices.SortFunc(list, func(a, b debianPackage) int { return strings.Compare(a.name, b.name) })
	return list, errors.Join(out.Close(), writePackages(to, list))
}

func wanted(path string, kind byte) bool {
	if path == "" || kind == tar.TypeBlock || kind == tar.TypeChar {
		return false
	}
	// These are Mesa's graphics drivers and the compiler that they depend on. Without a GPU, ffmpeg
	// loads neither, and they make up a third of the layer.
	if strings.Contains(path, "/dri/") || strings.Contains(path, "/libLLVM") {
		return false
	}
	if strings.HasPrefix(path, "usr/share/doc/") {
		return kind == tar.TypeDir || strings.HasSuffix(path, "/copyright")
	}
	return !slices.ContainsFunc(unwanted, func(dir string) bool { return strings.HasPrefix(path, dir) && path != dir })
}

// archived parses the name of a package's archive in apt's cache, name_version_arch.deb with a
// colon encoded as %3a.
func archived(path string) (debianPackage, bool) {
	file, ok := strings.CutPrefix(path, "var/cache/apt/archives/")
	file, deb := strings.CutSuffix(file, ".deb")
	parts := strings.Split(file, "_")
	if !ok || !deb || len(parts) != 3 {
		return debianPackage{}, false
	}
	version, err := url.PathUnescape(parts[1])
	return debianPackage{parts[0], version, parts[2]}, err == nil
}

// The list of a layer's packages is stored next to the layer, for other images in the same run.

func writePackages(layer string, list []debianPackage) error {
	var text strings.Builder
	for _, p := range list {
		fmt.Fprintln(&text, p.name, p.version, p.arch)
	}
	return os.WriteFile(layer+".packages", []byte(text.String()), 0o600)
}

func packagesOf(layer string) ([]debianPackage, error) {
	text, err := os.ReadFile(layer + ".packages")
	if err != nil {
		return nil, err
	}
	var list []debianPackage
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 {
			list = append(list, debianPackage{f[0], f[1], f[2]})
		}
	}
	return list, nil
}
