// Package docs provides the API's documentation pages and the contract itself as files with a path
// and a content type. It does not depend on an HTTP framework. The service at the base URL routes
// [Paths], serves [Files], and sends [ContentSecurityPolicy] with each file.
//
// The pages do not load anything from other hosts, so the policy does not need any exceptions.
// tools/webassets copies the guides, and the copies are committed. The reference and the forms on
// /docs/try are generated from the contract on the first request.
package docs

import (
	"crypto/sha256"
	"encoding/base64"
	"sync"

	"github.com/linkreel/linkreel/libs/apispec"
)

// ContentSecurityPolicy is the policy for all files. It allows data: URLs as images because
// /docs/try shows QR codes that the API returns.
const ContentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// File is the response for one path. Serve it with "Cache-Control: no-cache", so a browser
// revalidates it with the ETag and shows a new release immediately.
type File struct {
	ContentType string
	Bytes       []byte
	// Gzip holds the compressed bytes for clients that accept gzip. It is nil if compression saves
	// too little.
	Gzip []byte
	ETag string
}

// Paths lists the request paths of all files: the reference at /docs, the guides below
// /docs/guides/ as pages and as Markdown, the interactive page at /docs/try with its script and
// styles, llms.txt, and the contract at /openapi.json and /openapi.yaml.
func Paths() []string {
	out := []string{
		"/docs", "/docs/try", "/docs/try.js", "/docs/reference.css", "/docs/icon.svg", "/llms.txt", "/openapi.json", "/openapi.yaml",
	}
	for _, name := range guideNames {
		out = append(out, "/docs/guides/"+name, "/docs/guides/"+name+".md")
	}
	return out
}

// Files returns the file for each of [Paths]. Do not change the map. The first call builds the
// files, which keeps this work out of the program's startup.
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
