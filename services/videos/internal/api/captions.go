package api

import (
	"bytes"
	"mime"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

var language = regexp.MustCompile(`^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$`)

// putCaptions stores a caption file under a new name first and then makes it the
// video's, so that a player never gets half of one.
func (a *API) putCaptions(c *fiber.Ctx) error {
	ctx := c.UserContext()
	v, err := a.owned(c)
	if err != nil {
		return err
	}
	lang := c.Params("lang")
	if len(lang) > 35 || !language.MatchString(lang) {
		return apierr.Invalid(apierr.Detail{Field: "lang", Code: apierr.InvalidFormat, Message: "Use a language tag such as en, de or pt-BR."})
	}
	lang = canonical(lang)
	file, err := captionFile(c)
	if err != nil {
		return err
	}
	object := a.o.CaptionObject(v.ID, lang, identity.NewNonce())
	_, err = a.o.Bucket.Upload(ctx, object, bytes.NewReader(file), objectstore.UploadOptions{ContentType: "text/vtt; charset=utf-8"})
	if err != nil {
		return err
	}
	owner, former := account(c), ""
	_, err = a.o.Store.Update(ctx, v.ID, func(v *video.Video) error {
		if v.AccountID != owner {
			return video.NotFound()
		}
		old, _ := v.Caption(lang)
		former = old.Object
		if now := a.o.Now(); !v.SetCaption(video.Caption{Lang: lang, Label: lang, Object: object, At: now}, now) {
			return apierr.New(apierr.QuotaExceeded, "This video has captions in as many languages as it may.")
		}
		return nil
	})
	if err != nil {
		former = object
	}
	if former != "" {
		if err := a.o.Bucket.Delete(ctx, former, 0); err != nil {
			a.o.Log.DebugContext(ctx, "caption file is left to the janitor", "error", err)
		}
	}
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, struct {
		Success  bool   `json:"success"`
		Language string `json:"language"`
	}{true, lang})
}

// captionFile is the body, if it is WebVTT.
func captionFile(c *fiber.Ctx) ([]byte, error) {
	media, params, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	if err != nil || media != "text/vtt" || params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8") {
		return nil, apierr.New(apierr.UnsupportedMediaType, "Send the captions as text/vtt.")
	}
	body := bytes.Clone(bytes.TrimPrefix(c.Body(), []byte("\ufeff")))
	first, _, _ := bytes.Cut(body, []byte("\n"))
	first = bytes.TrimSuffix(first, []byte("\r"))
	ok := utf8.Valid(body) && !bytes.ContainsRune(body, 0) &&
		(string(first) == "WEBVTT" || bytes.HasPrefix(first, []byte("WEBVTT ")) || bytes.HasPrefix(first, []byte("WEBVTT\t")))
	if !ok {
		return nil, apierr.Invalid(apierr.Detail{Field: "body", Code: apierr.InvalidFormat, Message: "The body is not a WebVTT file in UTF-8."})
	}
	return body, nil
}

// canonical writes a tag the usual way (pt-BR, zh-Hant), so that one language
// has one track.
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
