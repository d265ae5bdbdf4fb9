package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// platforms lists the platforms that we release the linkreel program for.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// programs builds the linkreel program for each platform and packs it into a zip file for Windows
// and a tar.gz file for the others.
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

// wheel builds a wheel for the Python client. Its version is the API's; see versioning.md.
func (r *release) wheel(ctx context.Context) error {
	name, err := output(ctx, filepath.Join(r.root, "tools"), "env", "GOWORK=off", "go", "run", "./wheel", "-out", r.work, "-time", strconv.FormatInt(r.time.Unix(), 10))
	if err != nil {
		return err
	}
	content, err := os.ReadFile(filepath.Join(r.work, name))
	if err != nil {
		return err
	}
	return r.writeFile(name, content)
}

// statement is an in-toto statement with a SLSA provenance predicate,
// https://slsa.dev/spec/v1.0/provenance.
type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     struct {
		BuildDefinition struct {
			BuildType            string            `json:"buildType"`
			ExternalParameters   map[string]string `json:"externalParameters"`
			InternalParameters   map[string]string `json:"internalParameters"`
			ResolvedDependencies []source          `json:"resolvedDependencies"`
		} `json:"buildDefinition"`
		RunDetails struct {
			Builder  builder        `json:"builder"`
			Metadata map[string]any `json:"metadata,omitempty"`
		} `json:"runDetails"`
	} `json:"predicate"`
}

// subject is an artifact. Digest maps "sha256" to the hex digits of its hash.
type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// source is the repository and the commit that the release is built from.
type source struct {
	URI    string            `json:"uri"`
	Digest map[string]string `json:"digest"`
}

type builder struct {
	ID string `json:"id"`
}

// byHand is the builder ID for releases that a person built outside the workflow.
const byHand = "https://github.com/linkreel/linkreel/blob/main/docs/releasing.md#built-by-hand"

const provenanceFile = "provenance.intoto.json"

// provenance writes a statement about the artifacts, their source and their builder. RELEASE_BUILDER
// is the URI of the builder, byHand if it is not set, and RELEASE_RUN is the URI of its run. The
// statement is not signed. The workflow signs its own attestation for the same artifacts.
func (r *release) provenance() error {
	var s statement
	s.Type, s.PredicateType = "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"
	for _, a := range r.made {
		s.Subject = append(s.Subject, subject{a.Name, map[string]string{"sha256": a.SHA256}})
	}
	built := &s.Predicate.BuildDefinition
	built.BuildType = "https://github.com/linkreel/linkreel/blob/main/tools/release"
	built.ExternalParameters = map[string]string{"version": r.version, "registry": r.registry}
	built.InternalParameters = map[string]string{"go": runtime.Version(), "commitTime": r.time.Format(time.RFC3339)}
	built.ResolvedDependencies = []source{{"git+https://github.com/linkreel/linkreel", map[string]string{"gitCommit": r.commit}}}
	s.Predicate.RunDetails.Builder.ID = cmp.Or(os.Getenv("RELEASE_BUILDER"), byHand)
	if run := os.Getenv("RELEASE_RUN"); run != "" {
		s.Predicate.RunDetails.Metadata = map[string]any{"invocationId": run}
	}
	return r.writeJSON(provenanceFile, s)
}

// checksums writes SHA256SUMS, which lists the files to download for `sha256sum --check`. In the
// layout's folder, it writes SUBJECTS, which lists all artifacts in the same form. The workflow
// attests them.
func (r *release) checksums() error {
	var files, all []string
	for _, a := range r.made {
		// An attestation names an image by its repository, without the tag.
		repository, _, inRegistry := strings.Cut(a.Name, ":"+r.version)
		line := a.SHA256 + "  " + repository + "\n"
		all = append(all, line)
		if !inRegistry {
			files = append(files, line)
		}
	}
	slices.SortFunc(files, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return errors.Join(
		os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(strings.Join(files, "")), 0o644),
		os.WriteFile(filepath.Join(r.layout, "SUBJECTS"), []byte(strings.Join(all, "")), 0o644))
}

// cliPackage is the package of the command-line program that users download.
const cliPackage = "./services/cli/cmd/linkreel"
