package video

import (
	"strings"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/transcode"
)

// UploadObject is where the file of a video is uploaded.
func UploadObject(id ID) string { return UploadPrefix(id) + "source" }

// UploadPrefix holds what was uploaded for a video.
func UploadPrefix(id ID) string { return "uploads/" + string(id) + "/" }

// UploadedFor reads the video out of a name that UploadObject gave.
func UploadedFor(object string) (ID, bool) {
	rest, ok := strings.CutPrefix(object, "uploads/")
	id, _, found := strings.Cut(rest, "/")
	return ID(id), ok && found && id != ""
}

// CaptionObject is where a caption file is kept; each upload has its own name.
func CaptionObject(id ID, lang, nonce string) string {
	return transcode.VideoPrefix(string(id)) + "captions/" + lang + "-" + nonce + ".vtt"
}

// NewStillJob names the job of taking one picture.
func NewStillJob(id ID) string { return transcode.StillID(string(id), identity.NewNonce()) }
