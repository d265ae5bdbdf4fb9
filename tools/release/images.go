package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// architectures lists the architectures that we release every image for.
var architectures = []string{"amd64", "arm64"}

// program is a line in images/list: an image that contains one of our programs, with or without a
// base of Debian packages.
type program struct{ name, pkg, base string }

// listed reads images/list. It skips images that are not released: images without one of our
// programs (the test cluster's Redis), and the test cluster's trace viewer.
func (r *release) listed() ([]program, error) {
	f, err := os.Open(filepath.Join(r.root, "images/list"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []program
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 || fields[0] == "#" || fields[1] == "-" || fields[0] == "otelview" {
			continue
		}
		if r.only != nil && !r.only[fields[0]] {
			continue
		}
		all = append(all, program{fields[0], fields[1], strings.Join(fields[2:], ",")})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("images/list names no image to release")
	}
	return all, nil
}

// images builds each image as an index of its architectures into the layout, and returns the
// digests by name.
func (r *release) images(ctx context.Context) (map[string]string, error) {
	programs, err := r.listed()
	if err != nil {
		return nil, err
	}
	images, err := layout.Write(r.layout, empty.Index)
	if err != nil {
		return nil, err
	}
	digests := map[string]string{}
	for _, p := range programs {
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, arch := range architectures {
			image, err := r.image(ctx, p, arch)
			if err != nil {
				return nil, err
			}
			index = mutate.AppendManifests(index, mutate.IndexAddendum{
				Add:        image,
				Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
			})
		}
		if err := images.AppendIndex(index, named(p.name)); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		digest, err := index.Digest()
		if err != nil {
			return nil, err
		}
		digests[p.name] = digest.String()
		if err := r.inRegistry(p.name, digest); err != nil {
			return nil, err
		}
	}
	return digests, nil
}

// inRegistry records the content that the registry will have under a name.
func (r *release) inRegistry(image string, digest v1.Hash) error {
	repository, err := r.repository(image)
	if err != nil {
		return err
	}
	r.made = append(r.made, artifact{repository.Name() + ":" + r.version, digest.Hex})
	log.Printf("%s@%s", repository, digest)
	return nil
}

// image builds one program's image for one architecture.
func (r *release) image(ctx context.Context, p program, arch string) (v1.Image, error) {
	binary := filepath.Join(r.work, p.name+"-"+arch)
	if err := r.goBuild(ctx, p.pkg, "linux", arch, binary); err != nil {
		return nil, err
	}
	image := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	var packages []debianPackage
	var env []string
	if p.base != "-" {
		file, list, err := r.debian(ctx, p.base, arch)
		if err != nil {
			return nil, err
		}
		packages = list
		env = append(env, "LD_LIBRARY_PATH="+alternatives(arch))
		if image, err = appendLayer(image, file, "Debian packages: "+p.base); err != nil {
			return nil, err
		}
	}
	files := filepath.Join(r.work, p.name+"-"+arch+".tar")
	if err := r.fileLayer(files, p.name, binary); err != nil {
		return nil, err
	}
	image, err := appendLayer(image, files, "Linkreel "+p.name)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: r.time}
	for i := range config.History {
		config.History[i].Created = v1.Time{Time: r.time}
	}
	config.Config = v1.Config{
		User:       "65532:65532",
		Env:        append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, env...),
		Entrypoint: []string{"/" + p.name},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "Linkreel " + p.name,
			"org.opencontainers.image.source":   "https://github.com/linkreel/linkreel",
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.revision": r.commit,
		},
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return image, r.writeSBOM("image-"+p.name+"-linux-"+arch, binary, packages)
}

func appendLayer(image v1.Image, file, comment string) (v1.Image, error) {
	layer, err := tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{CreatedBy: comment}})
}

// fileLayer creates the layer for a program: the program itself, its user, public CA certificates,
// and the licences of everything in it.
func (r *release) fileLayer(file, programName, binary string) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	tw := tar.NewWriter(out)
	licences, err := goLicences(binary)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		target, source string
		content        []byte
		mode           int64
	}{
		{"etc/passwd", filepath.Join(r.root, "images/passwd"), nil, 0o644},
		{"etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/ca-certificates.crt", nil, 0o644},
		{programName, binary, nil, 0o755},
		{"usr/share/licenses/linkreel/LICENSE", filepath.Join(r.root, "LICENSE"), nil, 0o644},
		{"usr/share/licenses/linkreel/MODULES", "", licences, 0o644},
	} {
		content := f.content
		if f.source != "" {
			if content, err = os.ReadFile(f.source); err != nil {
				return err
			}
		}
		header := &tar.Header{Name: f.target, Mode: f.mode, Size: int64(len(content)), ModTime: r.time, Format: tar.FormatPAX}
		if err := tw.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.Copy(tw, bytes.NewReader(content)); err != nil {
			return err
		}
	}
	if err := tw.Close(); err != nil {
		return err
	}
	return out.Close()
}
