// Package docs offers the documentation page of the API and the contract itself
// as ready answers: a path, a content type, bytes. It knows no HTTP framework;
// whoever serves the base address mounts [Paths], answers with [Files] and sends [ContentSecurityPolicy]
// with each of them.
//
// The pages ask nothing of other hosts and need no exception from the policy. The
// copies of the guides are made by tools/webassets and committed; the reference and
// the forms of /docs/try are made from the contract when somebody asks for the first.
package docs

import (
	"crypto/sha256"
	"encoding/base64"
	"sync"

	"github.com/linkreel/linkreel/libs/apispec"
)

// ContentSecurityPolicy suits every file here. Images may be data: addresses,
// because /docs/try shows QR codes that it was answered.
const ContentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

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

// Paths are the request paths of all files: the reference at /docs, the guides below
// /docs/guides/ as pages and as Markdown, the page that makes calls at /docs/try
// with its parts, llms.txt, and the contract at /openapi.json and /openapi.yaml.
func Paths() []string {
	out := []string{
		"/docs", "/docs/try", "/docs/try.js", "/docs/reference.css", "/docs/icon.svg", "/llms.txt", "/openapi.json", "/openapi.yaml",
	}
	for _, name := range guideNames {
		out = append(out, "/docs/guides/"+name, "/docs/guides/"+name+".md")
	}
	return out
}

// Files maps [Paths] to answers. Read only. They are made at the first call: a program
// that starts needs none of them.
func Files() map[string]File { return made() }

var made = sync.OnceValue(func() map[string]File {
	d := apispec.Load()
	out := reference()
	out["/openapi.json"] = packed("application/json", d.JSON())
	out["/openapi.yaml"] = packed("application/yaml", d.YAML())
	return out
})

func file(contentType string, b []byte) File {
	sum := sha256.Sum256(b)
	return File{ContentType: contentType, Bytes: b, ETag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
}
