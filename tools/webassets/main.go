// Command webassets makes the files that browsers load from our pages, out of
// sources and npm packages pinned by a lockfile. Its output is committed, so
// neither a build nor a test needs npm. Run it from anywhere in the repository
// after `npm ci` in the folder of the bundle:
//
//	cd libs/apispec/docs/web && npm ci && cd - && go -C tools run ./webassets
//
// Named folders are the only ones made: `webassets services/console/web` needs no npm.
//
// The output depends on nothing but the inputs: a second run changes no byte.
package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// largest is the bound for one committed file.
const largest = 2 << 20

// bundle turns the entry points of a folder into minified files, and copies
// others as they are. Licences of packages travel along in one text.
type bundle struct {
	from, to string
	entries  []string
	copies   []string
	licences []string
	packed   bool // large files are stored compressed, and only so
}

// guides are the documents for callers, which a deployment serves beside the
// reference. Embedding cannot reach docs/ itself.
var guides = []string{"api", "guides", "cli", "mcp", "webhooks", "sign-in", "versioning"}

func copyGuides(root string) error {
	for _, name := range guides {
		data, err := os.ReadFile(filepath.Join(root, "docs", name+".md"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, "libs/apispec/docs/guides", name+".md"), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

var bundles = []bundle{{
	from:    "libs/apispec/docs/web",
	to:      "libs/apispec/docs/assets",
	entries: []string{"page.js", "page.css"},
	copies:  []string{"page.html", "icon.svg"},
	licences: []string{
		"node_modules/swagger-ui-dist/NOTICE",
		"node_modules/swagger-ui-dist/LICENSE",
		"node_modules/swagger-ui-dist/swagger-ui-es-bundle.js.LICENSE.txt",
	},
	packed: true,
}, {
	from:    "services/console/web",
	to:      "services/console/internal/web/assets",
	entries: []string{"app.ts", "passkey.ts", "record.ts", "upload.ts", "video.ts"},
}, {
	from:    "services/console/web",
	to:      "services/console/internal/web/testdata", // a part of record.ts that a test tries alone
	entries: []string{"framer.ts"},
}}

func main() {
	log.SetFlags(0)
	root, err := repository()
	if err != nil {
		log.Fatal(err)
	}
	if err := copyGuides(root); err != nil {
		log.Fatal(err)
	}
	for _, b := range bundles {
		if len(os.Args) > 1 && !slices.Contains(os.Args[1:], b.from) {
			continue
		}
		if err := b.make(root); err != nil {
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
	for _, c := range b.copies {
		data, err := os.ReadFile(filepath.Join(from, c))
		if err != nil {
			return err
		}
		if err := b.write(to, c, data); err != nil {
			return err
		}
	}
	if len(b.licences) == 0 {
		return nil
	}
	var texts bytes.Buffer
	for _, l := range b.licences {
		data, err := os.ReadFile(filepath.Join(from, l))
		if err != nil {
			return err
		}
		fmt.Fprintf(&texts, "==== %s ====\n\n%s\n", filepath.ToSlash(l), data)
	}
	return b.write(to, "licenses.txt", texts.Bytes())
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
		LegalComments:     api.LegalCommentsNone, // licenses.txt has them whole
		Loader:            map[string]api.Loader{".svg": api.LoaderDataURL},
		Define:            map[string]string{"global": "globalThis"},
		LogLevel:          api.LogLevelWarning,
	})
	if len(r.Errors) > 0 {
		return nil, fmt.Errorf("bundle %s: %s", entry, r.Errors[0].Text)
	}
	return r.OutputFiles[0].Contents, nil
}

// write stores a file, large ones of a packed bundle compressed: the page of the
// documentation carries a megabyte of somebody else's code, which a checkout and
// its searches are better off without.
func (b bundle) write(dir, name string, data []byte) error {
	if len(data) > largest {
		return fmt.Errorf("%s has %d bytes, more than %d", name, len(data), largest)
	}
	path, stale := filepath.Join(dir, name), filepath.Join(dir, name+".gz")
	packed := b.packed && len(data) >= 4096
	if packed {
		path, stale = stale, path
	}
	if err := os.Remove(stale); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if !packed {
		return os.WriteFile(path, data, 0o644)
	}
	var gz bytes.Buffer
	w, err := gzip.NewWriterLevel(&gz, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, gz.Bytes(), 0o644)
}

func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("run inside the repository: no go.work above")
		}
		dir = filepath.Dir(dir)
	}
}
