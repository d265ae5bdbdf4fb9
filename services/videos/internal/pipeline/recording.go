package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// follow checks how much a session has received, since that counts against the
// account's storage. It finishes a recording whose page is gone: the bytes received so
// far become the file. Only sweeps ask storage, since asking may cut off the part that
// is being sent, and the sender then has to send it again.
func (p *Pipeline) follow(ctx context.Context, v *video.Video) (*video.Video, error) {
	session := v.Upload.ResumableURL
	n, whole, err := p.o.Bucket.Received(ctx, session)
	if errors.Is(err, objectstore.ErrNotFound) {
		// Storage has forgotten the session. A file may still be sent in one piece.
		return p.note(ctx, v, func(v *video.Video) error {
			// The session was renewed meanwhile.
			if v.Upload.ResumableURL != session {
				return video.ErrUnchanged
			}
			v.SessionGone(session)
			return nil
		})
	}
	if err != nil {
		return v, fmt.Errorf("follow session: %w", err)
	}
	if n == 0 && !whole && v.Forgotten(p.o.Now()) {
		return p.note(ctx, v, func(v *video.Video) error {
			if v.Upload.ResumableURL != session || !v.Forgotten(p.o.Now()) {
				return video.ErrUnchanged
			}
			return nil
		})
	}
	over := false
	if !whole {
		before := v.Upload.Received
		if over = v.Receive(n, p.o.Plan, p.o.Now()); v.Upload.Received != before {
			return p.note(ctx, v, func(v *video.Video) error {
				if v.Upload.ResumableURL != session {
					return video.ErrUnchanged
				}
				// Judge again on the record, since this copy may be stale.
				v.Receive(n, p.o.Plan, p.o.Now())
				v.Outgrown(p.o.Now())
				return nil
			})
		}
	}
	if over && v.Upload.Recording {
		p.o.Log.InfoContext(ctx, "recording page is gone; the bytes received become the video", "video", v.ID, "bytes", n)
		// If the process dies after this, the next check finds the object like any other upload.
		if whole, err = p.o.Bucket.FinishResumable(ctx, session, n); err != nil {
			return v, fmt.Errorf("finish recording: %w", err)
		}
	}
	if whole {
		return p.detectUpload(ctx, v)
	}
	return v, nil
}

// endSessions makes storage end the sessions from which v no longer accepts a file.
func (p *Pipeline) endSessions(ctx context.Context, v *video.Video) (*video.Video, error) {
	var ended []string
	var errs []error
	for _, session := range v.Upload.Ended {
		if err := p.o.Bucket.EndResumable(ctx, session); err != nil {
			errs = append(errs, err)
			continue
		}
		ended = append(ended, session)
	}
	if len(ended) == 0 {
		return v, errors.Join(errs...)
	}
	noted, err := p.note(ctx, v, func(v *video.Video) error {
		for _, session := range ended {
			v.SessionGone(session)
		}
		return nil
	})
	return noted, errors.Join(append(errs, err)...)
}

// note applies step to the record and returns the newest copy.
func (p *Pipeline) note(ctx context.Context, v *video.Video, step func(*video.Video) error) (*video.Video, error) {
	noted, _, err := p.move(ctx, v.ID, step)
	return orOld(noted, v), err
}
