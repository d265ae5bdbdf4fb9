package video

import (
	"errors"

	"github.com/linkreel/linkreel/libs/apierr"
)

var (
	// ErrSlugTaken means that another video has, or used to have, the slug.
	ErrSlugTaken = errors.New("video: slug is taken")
	// ErrUnchanged ends an update without writing anything. The update still succeeds.
	ErrUnchanged = errors.New("video: nothing to change")
)

// NotFound returns the error for a video that does not exist and for a video in another account.
func NotFound() error { return apierr.New(apierr.VideoNotFound, "There is no such video.") }

// NoCaptions returns the error for a video without captions in a language.
func NoCaptions() error {
	return apierr.New(apierr.NotFound, "This video has no captions in this language.")
}

// ExternalIDTaken returns the error for an externalId that another video in the account already
// uses.
func ExternalIDTaken() error {
	return apierr.New(apierr.ExternalIDTaken, "This account already has a video with this externalId. Choose another externalId, or clear it on that video first.")
}

// expired returns the error for an expired video. The error reveals nothing else about the
// video.
func expired() error { return apierr.New(apierr.Gone, "This video has expired.") }

// takenDown returns the error for a video that the operator has taken down.
func takenDown() error {
	return apierr.New(apierr.TakenDown, "This video was taken down by the operator of this service.")
}

// accountSuspended returns the error for a video in a suspended account.
func accountSuspended() error {
	return &apierr.Error{Code: apierr.AccountSuspended, Message: "The account that shared this video is suspended.", OnPage: true}
}

// refusedGrant returns the error for a token that is no longer valid.
func refusedGrant() error {
	return apierr.New(apierr.Forbidden, "This playback URL is no longer valid.")
}

func quotaExceeded(what string) error {
	return apierr.New(apierr.QuotaExceeded, "The account has "+what+". Delete some videos or ask for a higher limit.")
}

// IsNotFound reports whether err means that the video does not exist.
func IsNotFound(err error) bool { return apierr.CodeOf(err) == apierr.VideoNotFound }
