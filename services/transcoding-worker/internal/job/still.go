package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/transcode"
)

// still extracts one frame of a ready video from a segment of one of its renditions, and
// publishes it as an outcome with only a poster.
func (a *attempt) still(ctx context.Context) error {
	wanted := a.record.Still
	path := filepath.Join(a.dir, "segment.mp4")
	if err := a.reserve(ctx, wanted.Init.Size+wanted.Segment.Size); err != nil {
		return err
	}
	err := a.span(ctx, "download", func(ctx context.Context) error {
		return a.fetchParts(ctx, path, wanted.Init, wanted.Segment)
	})
	if errors.Is(err, objectstore.ErrNotFound) {
		return &transcode.Failure{Code: transcode.Internal, Message: "The video was removed or replaced before its thumbnail was created."}
	}
	if err != nil {
		return fmt.Errorf("download: %w", err)
	}
	return a.span(ctx, "still", func(ctx context.Context) error {
		picture, err := a.maker.Still(ctx, a.dir, path, wanted.At)
		if err != nil {
			return err
		}
		if err := a.upload(ctx, picture.Path); err != nil {
			return err
		}
		o := transcode.Outcome{
			Version: 1, Final: true, Path: transcode.PathTranscode, Prefix: a.prefix,
			Poster: a.object(picture.Path), PosterWidth: picture.Width, PosterHeight: picture.Height,
		}
		err = a.w.insist(ctx, func() error { return a.w.o.Jobs.Publish(ctx, a.token, &o) })
		if err == nil {
			a.w.hint(ctx, a.record.ID)
		}
		return err
	})
}

// fetchParts writes ranges of the job's object into one file. The init part and any segment
// of a rendition together are a complete fMP4 file.
func (a *attempt) fetchParts(ctx context.Context, path string, ranges ...transcode.Range) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		if err = a.w.o.Bucket.DownloadRange(ctx, a.record.Object, r.Offset, r.Size, f); err != nil {
			break
		}
	}
	return errors.Join(err, f.Close())
}
