package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// follow checks how many bytes a session has received because they count towards the account's
// storage. If a recording's page was closed, follow finishes the recording with the bytes received
// so far. Only sweeps query storage because a query may abort the part being sent, which forces the
// sender to send it again.
func (p *Pipeline) follow(ctx context.Context, v *video.Video) (*video.Video, error) {
	session := v.Upload.ResumableURL
	n, whole, err := p.o.Bucket.Received(ctx, session)
	if errors.Is(err, objectstore.ErrNotFound) {
		// Storage no longer has the session, but a file may still be sent in one piece.
		return p.note(ctx, v, func(v *video.Video) error {
			// If the URLs differ, the session has since been renewed.
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
				// Decide again based on the current record because this copy may be stale.
				v.Receive(n, p.o.Plan, p.o.Now())
				v.Outgrown(p.o.Now())
				return nil
			})
		}
	}
	if over && v.Upload.Recording {
		p.o.Log.InfoContext(ctx, "recording page was closed; finishing the recording with the bytes received", "video", v.ID, "bytes", n)
		// If the process crashes after this, the next check will detect the object like any other
		// upload.
		if whole, err = p.o.Bucket.FinishResumable(ctx, session, n); err != nil {
			return v, fmt.Errorf("finish recording: %w", err)
		}
	}
	if whole {
		return p.detectUpload(ctx, v)
	}
	return v, nil
}

// endSessions ends the upload sessions that v no longer accepts a file from.
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

// note applies step to the record and returns the updated video.
func (p *Pipeline) note(ctx context.Context, v *video.Video, step func(*video.Video) error) (*video.Video, error) {
	noted, _, err := p.move(ctx, v.ID, step)
	return orOld(noted, v), err
}
