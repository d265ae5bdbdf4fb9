package job

import (
	"context"

	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ffmpeg"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ladder"
)

// Maker runs the programs. *ladder.Maker implements it. dir is the job's folder. Files are created
// there, and the programs cannot access any other folder.
type Maker interface {
	// Probe identifies a file. If the file is rejected, the error is a *transcode.Failure
	// with the reason.
	Probe(ctx context.Context, dir, path string, limits transcode.Limits) (*ffmpeg.Source, error)
	// Copy repackages the source's own video track.
	Copy(ctx context.Context, dir string, p ladder.Plan) (ladder.Tracks, error)
	// Ladder encodes all rungs in a plan at once and calls progress with the finished fraction.
	Ladder(ctx context.Context, dir string, p ladder.Plan, sound bool, progress func(float64)) (ladder.Tracks, error)
	// Sound, Part and Join encode a plan in parts.
	Sound(ctx context.Context, dir string, p ladder.Plan) error
	Part(ctx context.Context, dir string, p ladder.Plan, part ladder.Part, progress func(float64)) ([]string, error)
	Join(dir string, p ladder.Plan, parts [][]string, sound bool) (ladder.Tracks, error)
	// Poster, Storyboard and Download make a video's optional extras.
	Poster(ctx context.Context, dir string, from ladder.File) (ladder.Picture, error)
	Storyboard(ctx context.Context, dir string, from ladder.File) (*transcode.Storyboard, ladder.Picture, error)
	Download(ctx context.Context, dir string, video ladder.File, audio *ladder.File) (string, error)
	// Still extracts the frame at a given time from one of our own files.
	Still(ctx context.Context, dir, path string, at float64) (ladder.Picture, error)
}
