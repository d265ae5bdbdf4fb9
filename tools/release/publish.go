package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// nameOf is the annotation on a layout entry with its name below the registry's folder,
// such as auth or charts/linkreel.
const nameOf = "org.opencontainers.image.ref.name"

func named(image string) layout.Option {
	return layout.WithAnnotations(map[string]string{nameOf: image})
}

// repository returns an image's repository in the registry.
func (r *release) repository(image string) (name.Repository, error) {
	var opts []name.Option
	if r.insecure {
		opts = append(opts, name.Insecure)
	}
	return name.NewRepository(r.registry+"/"+image, opts...)
}

func (r *release) remote(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}

// entry is an image or the chart in the layout, with its repository.
type entry struct {
	repository name.Repository
	v1.Descriptor
}

// entries returns the images, then the chart. It rejects an incomplete layout, and a layout that an
// earlier step built from a different commit or for a different version or registry.
func (r *release) entries() (v1.ImageIndex, []entry, error) {
	index, err := layout.ImageIndexFromPath(r.layout)
	if err != nil {
		return nil, nil, fmt.Errorf("nothing is built: %w", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, nil, err
	}
	wanted, err := r.wanted()
	if err != nil {
		return nil, nil, err
	}
	var all []entry
	for _, d := range manifest.Manifests {
		repository, err := r.repository(d.Annotations[nameOf])
		if err != nil {
			return nil, nil, err
		}
		reference := repository.Name() + ":" + r.version
		if wanted[reference] != d.Digest.Hex {
			return nil, nil, fmt.Errorf("the provenance does not mention %s@%s", reference, d.Digest)
		}
		delete(wanted, reference)
		all = append(all, entry{repository, d})
	}
	if len(wanted) != 0 {
		return nil, nil, fmt.Errorf("%s lacks %v", r.layout, wanted)
	}
	return index, all, nil
}

// wanted returns the built references with their digests (hex), as listed in the provenance.
func (r *release) wanted() (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(r.out, provenanceFile))
	if err != nil {
		return nil, err
	}
	var s statement
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	built := s.Predicate.BuildDefinition
	if version, of := built.ExternalParameters["version"], built.ResolvedDependencies; version != r.version ||
		len(of) != 1 || of[0].Digest["gitCommit"] != r.commit {
		return nil, fmt.Errorf("the build is version %s of %v, want %s of commit %s", version, of, r.version, r.commit)
	}
	wanted := map[string]string{}
	for _, subject := range s.Subject {
		if strings.HasSuffix(subject.Name, ":"+r.version) {
			wanted[subject.Name] = subject.Digest["sha256"]
		}
	}
	return wanted, nil
}

// push sends the images and the chart to the registry only under their digests so that they cannot
// be found before they are signed and tagged.
func (r *release) push(ctx context.Context) error {
	index, entries, err := r.entries()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, err := r.tagged(ctx, e); err != nil {
			return err
		}
	}
	for _, e := range entries {
		ref := e.repository.Digest(e.Digest.String())
		if err := send(ref, index, e.Descriptor, r.remote(ctx)...); err != nil {
			return fmt.Errorf("%s: %w", ref, err)
		}
		log.Printf("pushed %s", ref)
	}
	return nil
}

func send(ref name.Reference, from v1.ImageIndex, d v1.Descriptor, opts ...remote.Option) error {
	if d.MediaType.IsIndex() {
		index, err := from.ImageIndex(d.Digest)
		if err != nil {
			return err
		}
		return remote.WriteIndex(ref, index, opts...)
	}
	image, err := from.Image(d.Digest)
	if err != nil {
		return err
	}
	return remote.Write(ref, image, opts...)
}

// tag adds the version's tag to the pushed images and chart.
func (r *release) tag(ctx context.Context) error {
	_, entries, err := r.entries()
	if err != nil {
		return err
	}
	for _, e := range entries {
		done, err := r.tagged(ctx, e)
		if err != nil {
			return err
		}
		if done {
			continue
		}
		pushed, err := remote.Get(e.repository.Digest(e.Digest.String()), r.remote(ctx)...)
		if err != nil {
			return err
		}
		ref := e.repository.Tag(r.version)
		if err := remote.Tag(ref, pushed, r.remote(ctx)...); err != nil {
			return fmt.Errorf("%s: %w", ref, err)
		}
		log.Printf("tagged %s", ref)
	}
	return nil
}

// tagged reports whether the registry already has the version. It fails if that version has
// different content, because a version that may be installed must never be replaced.
func (r *release) tagged(ctx context.Context, e entry) (bool, error) {
	ref := e.repository.Tag(r.version)
	d, err := remote.Head(ref, r.remote(ctx)...)
	var refused *transport.Error
	switch {
	case errors.As(err, &refused) && refused.StatusCode == http.StatusNotFound:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%s: %w", ref, err)
	case d.Digest != e.Digest:
		return false, fmt.Errorf("%s is published as %s; choose another version", ref, d.Digest)
	}
	return true, nil
}

// serve serves the build as a registry until it is interrupted. A cluster on this machine can then
// pull everything before the release is public.
func (r *release) serve(ctx context.Context) error {
	index, entries, err := r.entries()
	if err != nil {
		return err
	}
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithBlobHandler(registry.NewDiskBlobHandler(r.work)))
	loading, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	defer server.Close()
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(loading) }()
	for _, e := range entries {
		to, err := name.NewRepository(loading.Addr().String()+"/"+e.repository.RepositoryStr(), name.Insecure)
		if err != nil {
			return err
		}
		if err := send(to.Digest(e.Digest.String()), index, e.Descriptor, remote.WithContext(ctx)); err != nil {
			return err
		}
	}
	// Listen last because a client that waits for this address must find everything ready.
	open, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.listen)
	if err != nil {
		return err
	}
	go func() { failed <- server.Serve(open) }()
	log.Printf("serving %d images and the chart at %s", len(entries)-1, open.Addr())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}
