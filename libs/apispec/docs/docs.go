// Package docs offers the documentation page of the API and the contract itself
// as ready answers: a path, a content type, bytes. It knows no HTTP framework;
// whoever serves the base address mounts [Files] and sends [ContentSecurityPolicy]
// with each of them.
//
// The pages ask nothing of other hosts and need no exception from the policy. The
// files of /docs/try and the copies of the guides are made by tools/webassets and
// committed; the reference is made from the contract when the program starts.
package docs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io"
	"maps"
	"path"
	"strings"

	"github.com/linkreel/linkreel/libs/apispec"
)

// ContentSecurityPolicy suits every file here. Images may be data: addresses,
// because the style sheet carries its icons in itself.
const ContentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// File is one answer. Serve it with "Cache-Control: no-cache", so that a browser
// asks again with the ETag and a new release shows at once.
type File struct {
	ContentType string
	Bytes       []byte
	// Gzip holds the same bytes compressed, for callers that accept it; nil
	// where it is not worth it.
	Gzip []byte
	ETag string
}

//go:embed assets
var assets embed.FS

// Files maps request paths to answers: the reference at /docs, the guides below
// /docs/guides/ as pages and as Markdown, the page that makes calls at /docs/try
// with its parts, llms.txt, and the contract at /openapi.json and /openapi.yaml.
// Read only.
var Files = files()

var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
	".txt":  "text/plain; charset=utf-8",
}

func files() map[string]File {
	out := map[string]File{}
	entries, err := assets.ReadDir("assets")
	if err != nil {
		panic(err) // embedded: cannot happen in a program that was built
	}
	for _, e := range entries {
		name, stored := strings.CutSuffix(e.Name(), ".gz")
		b, err := assets.ReadFile("assets/" + e.Name())
		if err != nil {
			panic(err)
		}
		var f File
		if stored { // large files are stored in the form that nearly every browser asks for
			plain := unpack(b)
			if plain == nil {
				panic("assets/" + e.Name() + " is not whole")
			}
			f = file(types[path.Ext(name)], plain)
			f.Gzip = b
		} else {
			f = packed(types[path.Ext(name)], b)
		}
		if name == "page.html" {
			out["/docs/try"] = f
			continue
		}
		out["/docs/"+name] = f
	}
	maps.Copy(out, reference())
	d := apispec.Load()
	out["/openapi.json"] = packed("application/json", d.JSON())
	out["/openapi.yaml"] = packed("application/yaml", d.YAML())
	return out
}

func file(contentType string, b []byte) File {
	sum := sha256.Sum256(b)
	return File{ContentType: contentType, Bytes: b, ETag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
}

// unpack returns nil for what gzip did not write.
func unpack(b []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		return nil
	}
	return plain
}
