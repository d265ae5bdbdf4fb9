package video

import (
	"errors"

	"github.com/linkreel/linkreel/libs/apierr"
)

var (
	// ErrSlugTaken is the answer to a create whose slug another video has or had.
	ErrSlugTaken = errors.New("video: slug is taken")
	// ErrUnchanged ends an update that finds nothing to write. It is a success.
	ErrUnchanged = errors.New("video: nothing to change")
)

// NotFound is the one answer for a video that is not there and for one that is
// somebody else's.
func NotFound() error { return apierr.New(apierr.VideoNotFound, "There is no such video.") }
