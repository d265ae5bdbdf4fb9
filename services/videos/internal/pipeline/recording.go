package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// follow looks how far a recording has come, and finishes the one whose page is
// gone: what storage has received becomes the whole file. Only sweeps ask, since a
// question may cut off the part that the page is just sending; the page then sends
// it again.
func (p *Pipeline) follow(ctx context.Context, v *video.Video) (*video.Video, error) {
	session := v.Upload.ResumableURL
	n, whole, err := p.o.Bucket.Received(ctx, session)
	if errors.Is(err, objectstore.ErrNotFound) {
		// Storage has forgotten the session. A file may still be sent in one piece.
		return p.note(ctx, v, func(v *video.Video) error {
			// A session that was renewed meanwhile is another one.
			if v.Upload.ResumableURL != session {
				return video.ErrUnchanged
			}
			v.Upload.Recording, v.Upload.ResumableURL = false, ""
			return nil
		})
	}
	if err != nil {
		return v, fmt.Errorf("follow recording: %w", err)
	}
	over := false
	if !whole {
		before := v.Upload
		if over = v.Receive(n, p.o.Plan, p.o.Now()); v.Upload != before {
			return p.note(ctx, v, func(v *video.Video) error {
				if v.Status != video.Uploading || !v.Upload.Recording || v.Upload.ResumableURL != session {
					return video.ErrUnchanged
				}
				// Judged again on the record: this copy may be older.
				v.Receive(n, p.o.Plan, p.o.Now())
				return nil
			})
		}
	}
	if over {
		p.o.Log.InfoContext(ctx, "recording was left; what arrived becomes the video", "video", v.ID, "bytes", n)
		// If the process dies after this, the next look finds the object like any other upload.
		if whole, err = p.o.Bucket.FinishResumable(ctx, session, n); err != nil {
			return v, fmt.Errorf("finish recording: %w", err)
		}
	}
	if whole {
		return p.detectUpload(ctx, v)
	}
	return v, nil
}

// note stores what a look at a recording has shown.
func (p *Pipeline) note(ctx context.Context, v *video.Video, step func(*video.Video) error) (*video.Video, error) {
	noted, _, err := p.move(ctx, v.ID, step)
	return orOld(noted, v), err
}
