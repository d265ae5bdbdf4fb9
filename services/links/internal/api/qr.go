package api

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"image"
	"image/color"
	"image/png"
	"slices"
	"strconv"

	"github.com/gofiber/fiber/v2"
	"rsc.io/qr"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
)

// Limits for QR codes. Drawing the largest image takes 4 MiB of memory. The encoded response is
// only a few kilobytes.
const (
	minQRSize, maxQRSize, defaultQRSize       = 64, 2048, 512
	minQRMargin, maxQRMargin, defaultQRMargin = 0, 16, 4 // ISO/IEC 18004 requires a quiet zone of four modules
)

var qrLevels = map[string]qr.Level{"L": qr.L, "M": qr.M, "Q": qr.Q, "H": qr.H}

// qr returns the QR code of a link's short URL as an image. A link's URL never changes, so
// caches may keep the image.
func (h public) qr(c *fiber.Ctx) error {
	ctx := c.UserContext()
	l, err := h.links.Get(ctx, account(ctx), c.Params("id"))
	if err != nil {
		return err
	}
	var f httpapi.Fields
	format := oneOf(c, &f, "format", "svg", "svg", "png")
	level := oneOf(c, &f, "level", "M", "L", "M", "Q", "H")
	size := within(c, &f, "size", defaultQRSize, minQRSize, maxQRSize)
	margin := within(c, &f, "margin", defaultQRMargin, minQRMargin, maxQRMargin)
	if err := f.Err(); err != nil {
		return err
	}
	address := l.ShortURL(h.opt.ShortBaseURL)
	code, err := qr.Encode(address, qrLevels[level])
	if err != nil {
		return fmt.Errorf("QR code for an address of %d bytes: %w", len(address), err)
	}
	if need := code.Size + 2*margin; format == "png" && size < need {
		f.Add(apierr.Detail{Field: "size", Code: apierr.OutOfRange, Min: int64(need), Max: maxQRSize,
			Message: fmt.Sprintf("With this margin and level, the QR code needs at least %d pixels.", need)})
		return f.Err()
	}
	c.Set(fiber.HeaderCacheControl, "private, max-age=86400")
	sum := fnv.New64a()
	_, _ = fmt.Fprintf(sum, "%s %s %d %d %s", format, level, size, margin, address)
	if httpapi.NotModified(c, fmt.Sprintf(`"%016x"`, sum.Sum64())) {
		return nil
	}
	if format == "png" {
		picture, err := qrPNG(code, size, margin)
		if err != nil {
			return err
		}
		c.Set(fiber.HeaderContentType, "image/png")
		return c.Send(picture)
	}
	c.Set(fiber.HeaderContentType, "image/svg+xml")
	return c.Send(qrSVG(code, size, margin))
}

// qrSVG draws all dark modules as one path. Each run of dark modules in a row is one segment of the
// path.
func qrSVG(code *qr.Code, size, margin int) []byte {
	var b bytes.Buffer
	side := code.Size + 2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" shape-rendering="crispEdges">`,
		size, size, side, side)
	fmt.Fprintf(&b, `<path fill="#fff" d="M0 0h%dv%dH0z"/><path d="`, side, side)
	for y := range code.Size {
		for x := 0; x < code.Size; x++ {
			if !code.Black(x, y) {
				continue
			}
			from := x
			for x < code.Size && code.Black(x, y) {
				x++
			}
			fmt.Fprintf(&b, "M%d %dh%dv1h-%dz", from+margin, y+margin, x-from, x-from)
		}
	}
	b.WriteString(`"/></svg>`)
	return b.Bytes()
}

// qrPNG draws every module with a whole number of pixels, so that edges are sharp. The remaining
// pixels widen the quiet zone.
func qrPNG(code *qr.Code, size, margin int) ([]byte, error) {
	scale := size / (code.Size + 2*margin)
	first := (size - scale*code.Size) / 2
	picture := image.NewPaletted(image.Rect(0, 0, size, size), color.Palette{color.White, color.Black})
	for y := range code.Size {
		row := picture.Pix[(first+y*scale)*picture.Stride:][:picture.Stride]
		for x := range code.Size {
			if code.Black(x, y) {
				for i := range scale {
					row[first+x*scale+i] = 1
				}
			}
		}
		for i := 1; i < scale; i++ {
			copy(picture.Pix[(first+y*scale+i)*picture.Stride:], row)
		}
	}
	var b bytes.Buffer
	err := png.Encode(&b, picture)
	return b.Bytes(), err
}

// oneOf parses a query parameter that must be one of the given words.
func oneOf(c *fiber.Ctx, f *httpapi.Fields, name, otherwise string, words ...string) string {
	if !c.Context().QueryArgs().Has(name) {
		return otherwise
	}
	given := c.Query(name)
	if slices.Contains(words, given) {
		return given
	}
	f.Add(apierr.Detail{Field: name, Code: apierr.InvalidValue, Message: fmt.Sprintf("Use one of %v.", words)})
	return otherwise
}

// within parses a query parameter that must be a whole number from low to high.
func within(c *fiber.Ctx, f *httpapi.Fields, name string, otherwise, low, high int) int {
	if !c.Context().QueryArgs().Has(name) {
		return otherwise
	}
	n, err := strconv.Atoi(c.Query(name))
	if err != nil || n < low || n > high {
		f.Add(apierr.Detail{
			Field: name, Code: apierr.OutOfRange, Min: int64(low), Max: int64(high),
			Message: fmt.Sprintf("Use a whole number from %d to %d.", low, high),
		})
		return otherwise
	}
	return n
}
