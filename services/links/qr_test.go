package links_test

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"

	"github.com/linkreel/linkreel/libs/identity"
)

func TestAQRCodeLeadsToTheShortAddress(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Free)
	made := r.create(c.keys.Key(t, "acc_a", identity.Creator), map[string]any{"url": "https://example.com", "slug": strings.Repeat("Longest.", 12)})
	path := "/api/v1/links/" + made.str("id") + "/qr"
	for _, query := range []string{"?format=png", "?format=png&size=2048&margin=0&level=L", "?format=png&size=301&level=H", "", "?size=64&margin=16&level=Q"} {
		a := r.api(key, "GET", path+query, nil)
		if a.status != 200 || a.header.Get("ETag") == "" || !strings.Contains(a.header.Get("Cache-Control"), "max-age") {
			t.Fatalf("%s: %d %v, want 200 with ETag and max-age", query, a.status, a.header)
		}
		var picture image.Image
		if strings.Contains(query, "png") {
			var err error
			if picture, err = png.Decode(strings.NewReader(a.text)); err != nil {
				t.Fatalf("%s: %v", query, err)
			}
		} else {
			picture = drawn(t, a.text)
		}
		if got := scan(t, query, picture); got != made.str("shortUrl") {
			t.Errorf("%s: scanned text = %q, want %q", query, got, made.str("shortUrl"))
		}
		if again := r.api(key, "GET", path+query, nil, "If-None-Match", a.header.Get("ETag")); again.status != 304 || again.text != "" {
			t.Errorf("%s with If-None-Match: %v, want 304", query, again)
		}
	}
}

func TestAQRCodeThatCannotBeDrawnIsRefused(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	made := r.create(key, map[string]any{"url": "https://example.com", "slug": strings.Repeat("x", 100)})
	path := "/api/v1/links/" + made.str("id") + "/qr"
	bad := r.api(key, "GET", path+"?format=gif&size=9999999999&margin=-1&level=m", nil)
	want(t, "four invalid parameters", bad, 400, "VALIDATION_ERROR")
	if fields := bad.fields(); len(fields) != 4 || fields["size"] != "out_of_range" || fields["format"] != "invalid_value" {
		t.Errorf("details = %v, want four, with size out_of_range and format invalid_value", fields)
	}
	want(t, "code larger than the image", r.api(key, "GET", path+"?format=png&size=64&level=H&margin=16", nil), 400, "VALIDATION_ERROR")
	want(t, "another account's link", r.api(c.keys.Key(t, "acc_b", identity.Creator), "GET", path, nil), 404, "LINK_NOT_FOUND")
	want(t, "unknown link", r.api(key, "GET", "/api/v1/links/none/qr?size=x", nil), 404, "LINK_NOT_FOUND")
}

// drawn renders an SVG from the service. Its path consists of horizontal bars that are one unit
// high.
func drawn(t *testing.T, svg string) image.Image {
	t.Helper()
	side := regexp.MustCompile(`viewBox="0 0 (\d+) `).FindStringSubmatch(svg)
	if side == nil {
		t.Fatalf("the SVG has no viewBox: %s", svg)
	}
	const scale = 4
	n, _ := strconv.Atoi(side[1])
	picture := image.NewGray(image.Rect(0, 0, n*scale, n*scale))
	for i := range picture.Pix {
		picture.Pix[i] = 255
	}
	for _, run := range regexp.MustCompile(`M(\d+) (\d+)h(\d+)v1h-`).FindAllStringSubmatch(svg, -1) {
		x, _ := strconv.Atoi(run[1])
		y, _ := strconv.Atoi(run[2])
		w, _ := strconv.Atoi(run[3])
		for px := x * scale; px < (x+w)*scale; px++ {
			for py := y * scale; py < (y+1)*scale; py++ {
				picture.SetGray(px, py, color.Gray{})
			}
		}
	}
	return picture
}

func scan(t *testing.T, what string, picture image.Image) string {
	t.Helper()
	// The scanner needs a quiet zone. With a margin of 0, this test adds one, as users must.
	var framed bytes.Buffer
	frame := image.NewGray(picture.Bounds().Inset(-40))
	for i := range frame.Pix {
		frame.Pix[i] = 255
	}
	for y := picture.Bounds().Min.Y; y < picture.Bounds().Max.Y; y++ {
		for x := picture.Bounds().Min.X; x < picture.Bounds().Max.X; x++ {
			frame.Set(x, y, picture.At(x, y))
		}
	}
	if err := png.Encode(&framed, frame); err != nil {
		t.Fatal(err)
	}
	whole, err := png.Decode(&framed)
	if err != nil {
		t.Fatal(err)
	}
	bitmap, err := gozxing.NewBinaryBitmapFromImage(whole)
	if err != nil {
		t.Fatal(err)
	}
	hints := map[gozxing.DecodeHintType]any{gozxing.DecodeHintType_PURE_BARCODE: true}
	found, err := qrcode.NewQRCodeReader().Decode(bitmap, hints)
	if err != nil {
		t.Fatalf("%s cannot be scanned: %v", what, err)
	}
	return found.GetText()
}
