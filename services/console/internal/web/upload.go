package web

import (
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// upload shows the upload page. Its script sends files directly to storage, not through the console.
func upload(r *request) error {
	r.allowMedia()
	return r.render(http.StatusOK, "upload.html", view{Title: text.Get("upload.title"), Data: map[string]any{
		"CanWrite": r.can("videos:write"), "Privacies": options("video.privacy.", privacies[:2], "unlisted"), "Account": r.who.Account.ID,
	}})
}

// record shows the recording page. Its script records and uploads at the same time.
func record(r *request) error {
	r.allowMedia()
	return r.render(http.StatusOK, "record.html", view{Title: text.Get("record.title"), Data: map[string]any{
		"CanWrite": r.can("videos:write"), "Privacies": options("video.privacy.", privacies[:2], "unlisted"),
	}})
}

// createVideo sends the upload URLs to the script. They only allow writing to this one object.
func createVideo(r *request) error {
	privacy := r.form.Get("privacy")
	// The form only offers "public" and "unlisted". People set a password or an expiry on the
	// video's page. All other values become "unlisted", the more private of the two.
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
