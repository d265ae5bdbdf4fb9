package api

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/docs"
	"github.com/linkreel/linkreel/libs/design"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/httpserver"
	"github.com/linkreel/linkreel/libs/identity"
)

//go:embed site
var siteFiles embed.FS

var (
	pages = template.Must(template.ParseFS(siteFiles, "site/*.html"))
	style = append([]byte(design.Tokens), mustRead("site/style.css")...)
	icon  = mustRead("site/icon.svg")
	// The policy allows only the pages' own style block, by its hash.
	sitePolicy = "default-src 'none'; img-src 'self' data:; style-src 'sha256-" + hashOf(style) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

func mustRead(name string) []byte {
	b, err := siteFiles.ReadFile(name)
	if err != nil {
		panic(err) // cannot happen: the files are embedded
	}
	return b
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Site adds the remaining routes at the base URL: the start page, the documentation, and the
// files that browsers and bots request automatically.
func Site(a *httpapi.API) {
	a.Public(fiber.MethodGet, "/", func(c *fiber.Ctx) error {
		c.Set(fiber.HeaderCacheControl, "no-cache")
		return page(c, fiber.StatusOK, "start.html", nil)
	})
	for _, path := range docs.Paths() {
		a.Public(fiber.MethodGet, path, func(c *fiber.Ctx) error { return document(c, docs.Files()[path]) })
	}
	a.Public(fiber.MethodGet, "/docs/", func(c *fiber.Ctx) error { return c.Redirect("/docs", fiber.StatusMovedPermanently) })
	for _, path := range []string{"/favicon.ico", "/favicon.svg"} {
		a.Public(fiber.MethodGet, path, func(c *fiber.Ctx) error {
			c.Set(fiber.HeaderCacheControl, "public, max-age=86400")
			return send(c, "image/svg+xml", icon)
		})
	}
	a.Public(fiber.MethodGet, "/robots.txt", func(c *fiber.Ctx) error {
		c.Set(fiber.HeaderCacheControl, "public, max-age=86400")
		return send(c, "text/plain; charset=utf-8", []byte("User-agent: *\nDisallow: /api/\n"))
	})
}

// ErrorPage implements [httpapi.Options].Page. It sends a page to clients that accept HTML, such as
// browsers. For all other clients it returns an error, so they receive JSON.
func ErrorPage(c *fiber.Ctx, e *apierr.Error) error {
	c.Vary(fiber.HeaderAccept)
	if !httpserver.WantsPage(c.Request()) {
		return fmt.Errorf("the client does not accept HTML")
	}
	title := "Something went wrong"
	if e.Code.Status() == fiber.StatusNotFound {
		title = "Nothing here"
	}
	return page(c, e.Code.Status(), "error.html", map[string]any{
		"Title": title, "Message": e.Message, "RequestID": identity.RequestOf(c.UserContext()).ID,
	})
}

func page(c *fiber.Ctx, status int, name string, data map[string]any) error {
	if data == nil {
		data = map[string]any{}
	}
	data["Style"] = template.CSS(style) //nolint:gosec // our own embedded file
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		return fmt.Errorf("page %s: %w", name, err)
	}
	c.Set("Content-Security-Policy", sitePolicy)
	c.Set("Referrer-Policy", "no-referrer")
	c.Status(status)
	return send(c, fiber.MIMETextHTMLCharsetUTF8, b.Bytes())
}

// document sends a documentation file, or 304 if the browser already has it.
func document(c *fiber.Ctx, f docs.File) error {
	c.Set("Content-Security-Policy", docs.ContentSecurityPolicy)
	c.Set("Referrer-Policy", "no-referrer")
	c.Set(fiber.HeaderCacheControl, "no-cache")
	body, etag := f.Bytes, f.ETag
	if f.Gzip != nil {
		c.Vary(fiber.HeaderAcceptEncoding)
	}
	if f.Gzip != nil && httpapi.AcceptsGzip(c) {
		// The compressed bytes need their own strong ETag. Otherwise, a cache could combine
		// parts of both versions.
		body, etag = f.Gzip, strings.TrimSuffix(f.ETag, `"`)+`-gzip"`
		c.Set(fiber.HeaderContentEncoding, "gzip")
	}
	if httpapi.NotModified(c, etag) {
		c.Response().Header.Del(fiber.HeaderContentEncoding) // it describes the body, and a 304 has none
		return nil
	}
	return send(c, f.ContentType, body)
}

func send(c *fiber.Ctx, contentType string, body []byte) error {
	c.Set(fiber.HeaderContentType, contentType)
	c.Set("X-Content-Type-Options", "nosniff")
	c.Response().SetBodyRaw(body)
	return nil
}
