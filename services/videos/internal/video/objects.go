package video

import (
	"strings"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/transcode"
)

// UploadObject returns the object name of a video's uploaded file.
func UploadObject(id ID) string { return UploadPrefix(id) + "source" }

// UploadPrefix returns the prefix of all objects uploaded for a video.
func UploadPrefix(id ID) string { return "uploads/" + string(id) + "/" }

// UploadedFor returns the video for an object name returned by UploadObject.
func UploadedFor(object string) (ID, bool) {
	rest, ok := strings.CutPrefix(object, "uploads/")
	id, _, found := strings.Cut(rest, "/")
	return ID(id), ok && found && id != ""
}

// CaptionObject returns the object name of a caption file. Each upload gets its own name.
func CaptionObject(id ID, lang, nonce string) string {
	return transcode.VideoPrefix(string(id)) + "captions/" + lang + "-" + nonce + ".vtt"
}

// NewStillJob returns a new ID for a job that takes a poster.
func NewStillJob(id ID) string { return transcode.StillID(string(id), identity.NewNonce()) }
