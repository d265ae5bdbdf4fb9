package videos

import (
	"strings"

	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// ObjectOf describes an object in the bucket, for example "The file uploaded for video ID". It
// returns "" for the name of an object that does not belong to any video.
func ObjectOf(name string) string {
	if id, ok := video.UploadedFor(name); ok {
		return "The file uploaded for video " + string(id)
	}
	rest, ok := strings.CutPrefix(name, "videos/")
	id, file, found := strings.Cut(rest, "/")
	if !ok || !found || id == "" {
		return ""
	}
	what := "A playback file"
	if strings.HasPrefix(file, "captions/") {
		what = "Captions"
	}
	return what + " for video " + id
}
