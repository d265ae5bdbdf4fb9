// Command webassets builds the files that the console's pages load, and copies the guides that a
// deployment serves. Its output is committed. Run it from anywhere in the repository:
//
//	go -C tools run ./webassets
//
// With folders as arguments, it builds only their bundles: `webassets services/console/web`.
//
// The output depends only on the inputs: a second run does not change anything.
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/linkreel/linkreel/tools/internal/root"
)

// largest is the maximum size of one committed file.
const largest = 2 << 20

// bundle defines the entry points in a folder and their minified files.
type bundle struct {
	from, to string
	entries  []string
}

// guides lists the documents for callers that a deployment serves next to the reference, with their
// names in the deployment. They are copied because go:embed cannot reach docs/.
var guides = []struct{ from, to string }{
	{"docs/api.md", "api.md"},
	{"docs/api/*.md", "api"},
	{"docs/errors.md", "errors.md"},
	{"libs/clients/README.md", "clients.md"},
	{"docs/guides.md", "guides.md"},
	{"docs/cli.md", "cli.md"},
	{"docs/mcp.md", "mcp.md"},
	{"docs/webhooks.md", "webhooks.md"},
	{"docs/sign-in.md", "sign-in.md"},
	{"docs/versioning.md", "versioning.md"},
}

func copyGuides(root string) error {
	to := filepath.Join(root, "libs/apispec/docs/guides")
	if err := os.RemoveAll(to); err != nil { // a document may have been renamed
		return err
	}
	for _, g := range guides {
		found, err := filepath.Glob(filepath.Join(root, g.from))
		if err != nil {
			return err
		}
		for _, path := range found {
			name := g.to
			if strings.Contains(g.from, "*") {
				name = filepath.Join(g.to, filepath.Base(path))
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(to, name), data, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

var bundles = []bundle{{
	from:    "services/console/web",
	to:      "services/console/internal/web/assets",
	entries: []string{"app.ts", "passkey.ts", "record.ts", "upload.ts", "video.ts"},
}, {
	from:    "services/console/web",
	to:      "services/console/internal/web/testdata", // the part of record.ts that is tested separately
	entries: []string{"framer.ts"},
}}

func main() {
	log.SetFlags(0)
	dir, err := root.Dir()
	if err != nil {
		log.Fatal(err)
	}
	if err := copyGuides(dir); err != nil {
		log.Fatal(err)
	}
	for _, b := range bundles {
		if len(os.Args) > 1 && !slices.Contains(os.Args[1:], b.from) {
			continue
		}
		if err := b.make(dir); err != nil {
			log.Fatalf("%s: %v", b.from, err)
		}
	}
}

func (b bundle) make(root string) error {
	from, to := filepath.Join(root, b.from), filepath.Join(root, b.to)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, e := range b.entries {
		out, err := build(from, e)
		if err != nil {
			return err
		}
		if err := b.write(to, strings.TrimSuffix(e, ".ts")+map[bool]string{true: ".js"}[strings.HasSuffix(e, ".ts")], out); err != nil {
			return err
		}
	}
	return nil
}

func build(from, entry string) ([]byte, error) {
	r := api.Build(api.BuildOptions{
		AbsWorkingDir:     from,
		EntryPoints:       []string{entry},
		Bundle:            true,
		Format:            api.FormatESModule,
		Target:            api.ES2022,
		MinifyWhitespace:  true,
		MinifySyntax:      true,
		MinifyIdentifiers: true,
		Charset:           api.CharsetUTF8,
		LogLevel:          api.LogLevelWarning,
	})
	if len(r.Errors) > 0 {
		return nil, fmt.Errorf("bundle %s: %s", entry, r.Errors[0].Text)
	}
	return r.OutputFiles[0].Contents, nil
}

func (b bundle) write(dir, name string, data []byte) error {
	if len(data) > largest {
		return fmt.Errorf("%s is %d bytes long, more than the maximum of %d", name, len(data), largest)
	}
	return os.WriteFile(filepath.Join(dir, name), data, 0o644)
}
