package api

import (
	"bytes"
	"mime"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

var language = regexp.MustCompile(`^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$`)

func captions(c *fiber.Ctx, v *video.Video) error {
	page, err := httpapi.Page(c, "captions", string(v.ID))
	if err != nil {
		return err
	}
	found, next := paging.Cut(page, v.Captions, paging.Oldest, func(t video.Caption) paging.Place { return paging.Place{ID: t.Lang} })
	return httpapi.JSON(c, fiber.StatusOK, wire.CaptionList{Data: wire.List(found, captionOf), HasMore: next != nil, NextCursor: next})
}

func captionOf(t video.Caption) wire.Caption {
	return wire.Caption{Language: t.Lang, Name: t.Name(), UpdatedAt: t.At.UnixMilli()}
}

// nothing responds with 204 if the video exists.
func nothing(*fiber.Ctx, *video.Video) error { return nil }

func (h public) putCaptions(c *fiber.Ctx, _ *video.Video) error {
	lang, err := languageOf(c)
	if err != nil {
		return err
	}
	file, err := captionFile(c)
	if err != nil {
		return err
	}
	if err := h.videos.SetCaptions(c.UserContext(), account(c), id(c), lang, file); err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, wire.CaptionsStored{Success: true, Language: lang})
}

func (h public) deleteCaptions(c *fiber.Ctx, _ *video.Video) error {
	lang, err := languageOf(c)
	if err != nil {
		return err
	}
	if err := h.videos.DeleteCaptions(c.UserContext(), account(c), id(c), lang); err != nil {
		return err
	}
	return httpapi.NoContent(c)
}

// track returns an error if the video has no captions in the path's language.
func track(c *fiber.Ctx, v *video.Video) error {
	lang, err := languageOf(c)
	if err != nil {
		return err
	}
	if _, ok := v.Caption(lang); !ok {
		return video.NoCaptions()
	}
	return nil
}

func languageOf(c *fiber.Ctx) (string, error) {
	lang := c.Params("lang")
	if len(lang) > 35 || !language.MatchString(lang) {
		return "", apierr.Invalid(apierr.Detail{Field: "lang", Code: apierr.InvalidFormat, Message: "Use a language tag such as en, de or pt-BR."})
	}
	return canonical(lang), nil
}

// captionFile returns the request body, which must be WebVTT. It reads the raw body because Fiber's
// c.Body would decompress a body to any size.
func captionFile(c *fiber.Ctx) ([]byte, error) {
	media, params, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	if err != nil || media != "text/vtt" || params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8") {
		return nil, apierr.New(apierr.UnsupportedMediaType, "Send the captions as text/vtt.")
	}
	// Copy the body: fasthttp reuses it after the handler returns, and an abandoned upload to
	// storage may still be reading it.
	body := bytes.Clone(bytes.TrimPrefix(c.Request().Body(), []byte("\ufeff")))
	first, _, _ := bytes.Cut(body, []byte("\n"))
	first = bytes.TrimSuffix(first, []byte("\r"))
	ok := utf8.Valid(body) && !bytes.ContainsRune(body, 0) &&
		(string(first) == "WEBVTT" || bytes.HasPrefix(first, []byte("WEBVTT ")) || bytes.HasPrefix(first, []byte("WEBVTT\t")))
	if !ok {
		return nil, apierr.Invalid(apierr.Detail{Field: "body", Code: apierr.InvalidFormat, Message: "The body is not a WebVTT file in UTF-8."})
	}
	return body, nil
}

// canonical returns a language tag in its canonical case (pt-BR, zh-Hant), so each language
// has only one track.
func canonical(tag string) string {
	parts := strings.Split(strings.ToLower(tag), "-")
	for i, p := range parts[1:] {
		switch len(p) {
		case 2:
			parts[i+1] = strings.ToUpper(p)
		case 4:
			parts[i+1] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, "-")
}
