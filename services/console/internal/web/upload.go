package web

import (
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// upload is the page whose script sends files straight to storage: their bytes
// never pass through the console.
func upload(r *request) error {
	r.allowMedia()
	return r.render(http.StatusOK, "upload.html", view{Title: text.Get("upload.title"), Data: map[string]any{
		"CanWrite": r.can("videos:write"), "Privacies": options("video.privacy.", privacies[:2], "unlisted"), "Account": r.who.Account.ID,
	}})
}

// record is the page whose script records and sends to storage meanwhile.
func record(r *request) error {
	r.allowMedia()
	return r.render(http.StatusOK, "record.html", view{Title: text.Get("record.title"), Data: map[string]any{
		"CanWrite": r.can("videos:write"), "Privacies": options("video.privacy.", privacies[:2], "unlisted"),
	}})
}

// createVideo answers the script with where to send the file. The addresses open
// one object for writing, and nothing else.
func createVideo(r *request) error {
	privacy := r.form.Get("privacy")
	// The form offers these two only; a password or an end is set on the video's page. Anything else
	// becomes the one that shows less.
	if privacy != "public" {
		privacy = "unlisted"
	}
	body := client.VideoCreate{Title: strings.TrimSpace(r.form.Get("title")), Privacy: privacy, Recording: r.form.Get("recording") == "true"}
	var made client.VideoCreated
	if err := r.do("POST", "/api/v1/videos", body, &made); err != nil {
		return r.refuseScript(err)
	}
	return r.Status(http.StatusCreated).JSON(fiber.Map{
		"id": made.VideoID, "put": made.UploadURL, "resume": made.ResumableUploadURL, "share": made.ShareURL,
	})
}
