package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// platforms are the platforms for which we release the linkreel program.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// programs builds the linkreel program for each platform and packs it: a zip for
// Windows, a tar for the others.
func (r *release) programs(ctx context.Context) error {
	for _, platform := range platforms {
		goos, arch, _ := strings.Cut(platform, "/")
		file := "linkreel"
		if goos == "windows" {
			file += ".exe"
		}
		binary := filepath.Join(r.work, goos+"-"+arch, file)
		if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
			return err
		}
		if err := r.goBuild(ctx, cliPackage, goos, arch, binary); err != nil {
			return err
		}
		name := fmt.Sprintf("linkreel-%s-%s-%s", r.version, goos, arch)
		if err := r.writeSBOM(name, binary, nil); err != nil {
			return err
		}
		archive, ending, err := r.archive(binary, goos)
		if err != nil {
			return err
		}
		if err := r.writeFile(name+ending, archive); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) archive(binary, goos string) (content []byte, ending string, err error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, "", err
	}
	licence, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, "", err
	}
	modules, err := goLicences(binary)
	if err != nil {
		return nil, "", err
	}
	files := []struct {
		name    string
		mode    int64
		content []byte
	}{{filepath.Base(binary), 0o755, program}, {"LICENSE", 0o644, licence}, {"LICENSES-OF-MODULES", 0o644, modules}}
	var out bytes.Buffer
	if goos == "windows" {
		zw := zip.NewWriter(&out)
		for _, f := range files {
			h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: r.time}
			h.SetMode(os.FileMode(f.mode)) //nolint:gosec // a constant above
			w, err := zw.CreateHeader(h)
			if err != nil {
				return nil, "", err
			}
			if _, err := w.Write(f.content); err != nil {
				return nil, "", err
			}
		}
		err = zw.Close()
		return out.Bytes(), ".zip", err
	}
	zw, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, "", err
	}
	tw := tar.NewWriter(zw)
	for _, f := range files {
		if err := tw.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: r.time, Format: tar.FormatPAX}); err != nil {
			return nil, "", err
		}
		if _, err := tw.Write(f.content); err != nil {
			return nil, "", err
		}
	}
	if err := tw.Close(); err != nil {
		return nil, "", err
	}
	err = zw.Close()
	return out.Bytes(), ".tar.gz", err
}

// provenance writes which files were built from which sources, as an in-toto statement
// with a SLSA provenance predicate (https://slsa.dev/spec/v1.0/provenance). It does not
// sign the statement. The workflow that publishes a release signs it with its own
// identity.
func (r *release) provenance() error {
	type subject struct {
		Name   string            `json:"name"`
		Digest map[string]string `json:"digest"`
	}
	var subjects []subject
	for _, a := range r.made {
		subjects = append(subjects, subject{a.Name, map[string]string{"sha256": a.SHA256}})
	}
	return r.writeJSON("provenance.intoto.json", map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "subject": subjects, "predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType":          "https://github.com/linkreel/linkreel/blob/main/tools/release",
				"externalParameters": map[string]any{"version": r.version, "registry": r.registry},
				"resolvedDependencies": []any{map[string]any{
					"uri": "git+https://github.com/linkreel/linkreel", "digest": map[string]string{"gitCommit": r.commit},
				}},
				"internalParameters": map[string]any{"go": runtime.Version(), "commitTime": r.time.Format(time.RFC3339)},
			},
			"runDetails": map[string]any{"builder": map[string]any{"id": "https://github.com/linkreel/linkreel/blob/main/.github/workflows/release.yml"}},
		},
	})
}

// checksums writes SHA256SUMS over the files to download, for `sha256sum --check`.
func (r *release) checksums() error {
	var lines []string
	for _, a := range r.made {
		if !strings.Contains(a.Name, ":") {
			lines = append(lines, a.SHA256+"  "+a.Name+"\n")
		}
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644) //nolint:gosec // for everybody to read
}

// cliPackage is the command line, the program that people download.
const cliPackage = "./services/cli/cmd/linkreel"
