package share

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"mime"
	"path"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
)

// The bundle is made by tools/player and committed.
//
//go:embed web/dist web/icon.svg web/pages.html
var web embed.FS

// asset is a file under a name that changes with its content, so that browsers
// may keep it for ever.
type asset struct {
	body    []byte
	gzipped []byte
	media   string
}

type assets struct {
	byURL map[string]asset  // app.0123abcd.css
	urlOf map[string]string // app.css → /v/-/app.0123abcd.css
}

func loadAssets() (assets, error) {
	a := assets{byURL: map[string]asset{}, urlOf: map[string]string{}}
	for name, file := range map[string]string{
		"app.css": "web/dist/app.css", "page.js": "web/dist/page.js", "hls.js": "web/dist/hls.js", "icon.svg": "web/icon.svg",
	} {
		body, err := web.ReadFile(file)
		if err != nil {
			return assets{}, err
		}
		sum := sha256.Sum256(body)
		ext := path.Ext(name)
		hashed := strings.TrimSuffix(name, ext) + "." + hex.EncodeToString(sum[:6]) + ext
		a.byURL[hashed] = asset{body, gzipped(body), mediaType(ext)}
		a.urlOf[name] = "/v/-/" + hashed
	}
	return a, nil
}

// mediaType always names the charset: scripts break if a browser assumes another one.
func mediaType(ext string) string {
	switch ext {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml; charset=utf-8"
	}
	return mime.TypeByExtension(ext)
}

func (s *Share) asset(c *fiber.Ctx) error {
	a, ok := s.assets.byURL[c.Params("asset")]
	if !ok {
		return apierr.New(apierr.NotFound, "There is nothing at this address.")
	}
	c.Set(fiber.HeaderContentType, a.media)
	c.Set(fiber.HeaderCacheControl, "public, max-age=31536000, immutable")
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set("Cross-Origin-Resource-Policy", "same-origin")
	c.Set(fiber.HeaderVary, fiber.HeaderAcceptEncoding)
	body := a.body
	if httpapi.AcceptsGzip(c) {
		c.Set(fiber.HeaderContentEncoding, "gzip")
		body = a.gzipped
	}
	c.Response().SetBodyRaw(body)
	return nil
}

// compressed answers with a page, gzipped if the caller accepts that.
func compressed(c *fiber.Ctx, body []byte) error {
	c.Set(fiber.HeaderVary, fiber.HeaderAcceptEncoding)
	if httpapi.AcceptsGzip(c) {
		c.Set(fiber.HeaderContentEncoding, "gzip")
		body = gzipped(body)
	}
	c.Response().SetBodyRaw(body)
	return nil
}

func gzipped(body []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(body) // writing to a buffer cannot fail
	_ = w.Close()
	return b.Bytes()
}
