package share

import (
	"html"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// oembed returns a video's embed code for sites that turn links into players
// (oembed.com). It does not describe videos that have a password.
func (s *Share) oembed(c *fiber.Ctx) error {
	c.Set(fiber.HeaderAccessControlAllowOrigin, "*")
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	if format := c.Query("format", "json"); format != "json" {
		return c.SendStatus(fiber.StatusNotImplemented)
	}
	slug, ok := s.o.Addresses.Slug(c.Query("url"))
	if !ok {
		return video.NotFound()
	}
	v, err := s.find(c, slug)
	switch {
	case err != nil:
		return err
	case v.Privacy == video.Password:
		return locked()
	case !v.Playable():
		return video.NotFound()
	}
	width, height, bad := fit(v.Media.Width, v.Media.Height, c.Query("maxwidth"), c.Query("maxheight"))
	if len(bad) > 0 {
		return apierr.Invalid(bad...)
	}
	src := s.o.Addresses.Embed(slug)
	frame := `<iframe src="` + html.EscapeString(src) + `" width="` + strconv.Itoa(width) + `" height="` + strconv.Itoa(height) +
		`" title="` + html.EscapeString(titleOf(v)) + `" allow="fullscreen; picture-in-picture" allowfullscreen loading="lazy" frameborder="0"></iframe>`
	// Five minutes, or less for a video that expires sooner.
	c.Set(fiber.HeaderCacheControl, "public, max-age="+strconv.Itoa(seconds(s.life(v, 300e9))))
	return httpapi.JSON(c, fiber.StatusOK, struct {
		Version         string `json:"version"`
		Type            string `json:"type"`
		ProviderName    string `json:"provider_name"`
		ProviderURL     string `json:"provider_url"`
		Title           string `json:"title"`
		HTML            string `json:"html"`
		Width           int    `json:"width"`
		Height          int    `json:"height"`
		ThumbnailURL    string `json:"thumbnail_url"`
		ThumbnailWidth  int    `json:"thumbnail_width"`
		ThumbnailHeight int    `json:"thumbnail_height"`
	}{"1.0", "video", "Linkreel", s.o.Addresses.Base, titleOf(v), frame, width, height, s.o.Addresses.Thumbnail(slug), v.Media.Width, v.Media.Height})
}

// fit scales a picture down to the size that a site requested. The result is at most 1280 pixels
// wide.
func fit(width, height int, maxWidth, maxHeight string) (int, int, []apierr.Detail) {
	var bad []apierr.Detail
	bound := func(field, value string, most int) int {
		if value == "" {
			return most
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			bad = append(bad, apierr.Detail{Field: field, Code: apierr.OutOfRange, Message: "Use a whole number of at least 1.", Min: 1})
			return most
		}
		return n
	}
	w, h := bound("maxwidth", maxWidth, min(width, 1280)), bound("maxheight", maxHeight, 1<<20)
	if len(bad) > 0 || width < 1 || height < 1 {
		return width, height, bad
	}
	scale := min(1, float64(w)/float64(width), float64(h)/float64(height))
	return max(1, int(float64(width)*scale)), max(1, int(float64(height)*scale)), nil
}
