package docs_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/libs/apispec/docs"
)

func TestFilesAreThePageItsPartsAndTheContract(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"/docs":              "text/html; charset=utf-8",
		"/docs/page.js":      "text/javascript; charset=utf-8",
		"/docs/page.css":     "text/css; charset=utf-8",
		"/docs/icon.svg":     "image/svg+xml",
		"/docs/licenses.txt": "text/plain; charset=utf-8",
		"/openapi.json":      "application/json",
		"/openapi.yaml":      "application/yaml",
	}
	for path, contentType := range want {
		f, ok := docs.Files[path]
		if !ok || f.ContentType != contentType || len(f.Bytes) == 0 || len(f.ETag) < 10 {
			t.Errorf("%s: %v, type %q, %d bytes, ETag %s", path, ok, f.ContentType, len(f.Bytes), f.ETag)
		}
		if len(f.Bytes) >= 2<<20 {
			t.Errorf("%s has %d bytes", path, len(f.Bytes))
		}
	}
	if len(docs.Files) != len(want) {
		t.Errorf("%d files, want %d", len(docs.Files), len(want))
	}
}

func TestCompressedTwinsHoldTheSameBytes(t *testing.T) {
	t.Parallel()
	n := 0
	for path, f := range docs.Files {
		if f.Gzip == nil {
			continue
		}
		n++
		r, err := gzip.NewReader(bytes.NewReader(f.Gzip))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		plain, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(plain, f.Bytes) {
			t.Errorf("%s: compressed twin differs (%v); run tools/webassets", path, err)
		}
	}
	if n == 0 {
		t.Error("nothing is compressed")
	}
}

func TestPageNeedsNoExceptionFromThePolicy(t *testing.T) {
	t.Parallel()
	if strings.Contains(docs.ContentSecurityPolicy, "unsafe") {
		t.Error("the policy has an unsafe exception")
	}
	page := string(docs.Files["/docs"].Bytes)
	for _, bad := range []string{"<style", " style=", "onclick", "onload", "javascript:"} {
		if strings.Contains(page, bad) {
			t.Errorf("page has %q", bad)
		}
	}
	for _, m := range regexp.MustCompile(`<script([^>]*)>([^<]*)`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(m[1], `src="/docs/`) || strings.TrimSpace(m[2]) != "" {
			t.Errorf("inline or foreign script: %s", m[0])
		}
	}
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if _, ok := docs.Files[m[1]]; !ok && !strings.HasPrefix(m[1], "#") {
			t.Errorf("page refers to %s, which is not served", m[1])
		}
	}
}
