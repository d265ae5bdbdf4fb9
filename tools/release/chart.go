package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Media types for charts in registries, https://helm.sh/docs/topics/registries/.
const (
	chartConfig  = types.MediaType("application/vnd.cncf.helm.config.v1+json")
	chartContent = types.MediaType("application/vnd.cncf.helm.chart.content.v1.tar+gzip")
)

// chart packages the chart with this release's version and digests, for the registry's "charts"
// folder. It is the last entry in the layout because it contains the digests of the others.
func (r *release) chart(digests map[string]string) error {
	files, err := r.chartFiles(digests)
	if err != nil {
		return err
	}
	archive, err := r.pack(files)
	if err != nil {
		return err
	}
	if err := r.writeFile("linkreel-"+r.version+".tgz", archive); err != nil {
		return err
	}
	metadata, err := json.Marshal(map[string]any{
		"apiVersion": "v2", "name": "linkreel", "type": "application", "version": r.version, "appVersion": r.version,
		"description": "Short links and shareable videos over an HTTP API.", "kubeVersion": ">=1.30.0-0",
		"home": "https://github.com/linkreel/linkreel",
	})
	if err != nil {
		return err
	}
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image, err = mutate.AppendLayers(image, static.NewLayer(archive, chartContent))
	if err != nil {
		return err
	}
	artifactImage := &chartImage{Image: image, config: metadata, annotations: map[string]string{
		"org.opencontainers.image.title": "linkreel", "org.opencontainers.image.version": r.version,
		"org.opencontainers.image.created":  r.time.Format(time.RFC3339),
		"org.opencontainers.image.revision": r.commit,
		"org.opencontainers.image.source":   "https://github.com/linkreel/linkreel",
	}}
	built, err := layout.FromPath(r.layout)
	if err != nil {
		return err
	}
	if err := built.AppendImage(artifactImage, named("charts/linkreel")); err != nil {
		return err
	}
	digest, err := artifactImage.Digest()
	if err != nil {
		return err
	}
	return r.inRegistry("charts/linkreel", digest)
}

var (
	chartVersion = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)
	registryLine = regexp.MustCompile(`(?m)^(  registry): .*$`)
	digestsLine  = regexp.MustCompile(`(?m)^(  digests): \{\}$`)
)

// chartFiles reads the chart and inserts version, registry and digests. It omits ci/, which
// contains values for our own tests.
func (r *release) chartFiles(digests map[string]string) (map[string][]byte, error) {
	root := filepath.Join(r.root, "charts/linkreel")
	files := map[string][]byte{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil || strings.HasPrefix(rel, "ci/") {
			return err
		}
		files[filepath.ToSlash(rel)], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		return nil, err
	}
	files["Chart.yaml"] = chartVersion.ReplaceAll(files["Chart.yaml"], []byte(`$1: "`+r.version+`"`))
	list, err := json.Marshal(digests) // JSON is valid YAML, and Marshal sorts its keys
	if err != nil {
		return nil, err
	}
	values := files["values.yaml"]
	if !digestsLine.Match(values) || !registryLine.Match(values) {
		return nil, fmt.Errorf("values.yaml must have the lines image.registry and image.digests")
	}
	values = digestsLine.ReplaceAll(values, append([]byte("$1: "), list...))
	files["values.yaml"] = registryLine.ReplaceAll(values, []byte("$1: "+r.registry))
	return files, nil
}

// pack creates a chart's archive with sorted names and the commit's time.
func (r *release) pack(files map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	zw, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	tw := tar.NewWriter(zw)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: "linkreel/" + name, Mode: 0o644, Size: int64(len(files[name])), ModTime: r.time, Format: tar.FormatPAX}
		if err := tw.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := tw.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := tw.Close(); err != nil {
		return nil, err
	}
	if err := zw.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// chartImage is an image with a chart's metadata as its config, as Helm expects. The image library
// only supports configs for container images.
type chartImage struct {
	v1.Image
	config      []byte
	annotations map[string]string
}

func (c *chartImage) RawConfigFile() ([]byte, error) { return c.config, nil }

func (c *chartImage) ConfigName() (v1.Hash, error) {
	h, _, err := v1.SHA256(bytes.NewReader(c.config))
	return h, err
}

func (c *chartImage) ConfigLayer() (v1.Layer, error) {
	return static.NewLayer(c.config, chartConfig), nil
}

func (c *chartImage) Manifest() (*v1.Manifest, error) {
	m, err := c.Image.Manifest()
	if err != nil {
		return nil, err
	}
	m = m.DeepCopy()
	hash, size, err := v1.SHA256(bytes.NewReader(c.config))
	m.Config = v1.Descriptor{MediaType: chartConfig, Size: size, Digest: hash}
	m.Annotations = c.annotations
	return m, err
}

func (c *chartImage) RawManifest() ([]byte, error) {
	m, err := c.Manifest()
	if err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

func (c *chartImage) Digest() (v1.Hash, error) {
	raw, err := c.RawManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	h, _, err := v1.SHA256(bytes.NewReader(raw))
	return h, err
}

func (c *chartImage) Size() (int64, error) {
	raw, err := c.RawManifest()
	return int64(len(raw)), err
}
