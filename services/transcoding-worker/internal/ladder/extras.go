package ladder

import (
	"context"
	"fmt"
	"image/jpeg"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ffmpeg"
)

// own returns the input arguments for a file that we produced.
func own(path string) []string { return ffmpeg.Input("mov", path, 0) }

const extrasTime = 2 * time.Minute

// Picture is an image extracted from a video.
type Picture struct {
	Path          string
	Width, Height int
}

// Poster extracts a representative frame near the beginning. It uses a black frame only if there
// are no others.
func (m *Maker) Poster(ctx context.Context, dir string, from File) (Picture, error) {
	out := filepath.Join(dir, "poster.jpg")
	filter := "thumbnail=n=4,scale=w='min(1280,iw)':h='min(1280,ih)':force_original_aspect_ratio=decrease:force_divisible_by=2,format=yuvj420p"
	var err error
	for _, at := range []float64{0.1 * from.Track.Duration(), 0} {
		_ = os.Remove(out)
		args := append(m.base(), "-threads", "1", "-skip_frame", "nokey", "-ss", strconv.FormatFloat(at, 'f', 3, 64))
		args = append(args, own(from.Path)...)
		args = append(args, "-map", "0:v:0", "-an", "-vf", filter, "-frames:v", "1", "-q:v", "4")
		args = append(args, clean...)
		args = append(args, "-f", "mjpeg", "file:"+out)
		if _, err = m.Tools.Transcode(ctx, ffmpeg.Call{Dir: dir, Args: args, CPU: extrasTime, Wall: 2 * extrasTime}); err != nil {
			continue
		}
		var p Picture
		if p, err = measure(out); err == nil {
			return p, nil
		}
	}
	return Picture{}, fmt.Errorf("poster: %w", err)
}

// Still extracts the frame at the given time, in seconds from the start, from one of our own
// files. If there is no frame at the very end of a file, Still extracts an earlier one.
func (m *Maker) Still(ctx context.Context, dir, path string, at float64) (Picture, error) {
	out := filepath.Join(dir, "still.jpg")
	filter := "scale=w='min(1280,iw)':h='min(1280,ih)':force_original_aspect_ratio=decrease:force_divisible_by=2,format=yuvj420p"
	var err error
	for _, t := range []float64{at, at - 0.1, at - 0.5, at - 2, 0} {
		_ = os.Remove(out)
		args := append(m.base(), "-threads", "1", "-ss", strconv.FormatFloat(max(0, t), 'f', 3, 64))
		args = append(args, own(path)...)
		args = append(args, "-map", "0:v:0", "-an", "-vf", filter, "-frames:v", "1", "-q:v", "4")
		args = append(args, clean...)
		args = append(args, "-f", "mjpeg", "file:"+out)
		if _, err = m.Tools.Transcode(ctx, ffmpeg.Call{Dir: dir, Args: args, CPU: extrasTime, Wall: 2 * extrasTime}); err != nil {
			continue
		}
		var p Picture
		if p, err = measure(out); err == nil {
			return p, nil
		}
	}
	return Picture{}, fmt.Errorf("still: %w", err)
}

func measure(path string) (Picture, error) {
	f, err := os.Open(path)
	if err != nil {
		return Picture{}, err
	}
	defer func() { _ = f.Close() }()
	c, err := jpeg.DecodeConfig(f)
	if err != nil {
		return Picture{}, err
	}
	return Picture{Path: path, Width: c.Width, Height: c.Height}, nil
}

const (
	storyColumns  = 10
	storyMost     = 100
	storyTileSide = 160
)

// Storyboard produces one sheet of small frames for the seek bar from the keyframes of one of our
// renditions. This is about 50 times as fast as reading the source again.
func (m *Maker) Storyboard(ctx context.Context, dir string, from File) (*transcode.Storyboard, Picture, error) {
	duration := from.Track.Duration()
	group := from.Track.Seconds(int64(from.Track.Fragments[0].Duration))
	// The interval must be a whole number of groups because only keyframes are decoded.
	interval := max(1, group*math.Ceil(duration/storyMost/group))
	if duration < interval {
		interval = max(duration, 0.1)
	}
	count := min(storyMost, max(1, int(math.Ceil(duration/interval-0.01))))
	rows := (count + storyColumns - 1) / storyColumns
	scale := fmt.Sprintf("scale=w=%d:h=%d:force_original_aspect_ratio=decrease:force_divisible_by=2", storyTileSide, storyTileSide)
	out := filepath.Join(dir, "storyboard.jpg")
	args := append(m.base(), "-threads", "1", "-skip_frame", "nokey")
	args = append(args, own(from.Path)...)
	args = append(args, "-map", "0:v:0", "-an",
		"-vf", fmt.Sprintf("setpts=PTS-STARTPTS,fps=fps=1/%.6f:start_time=0:round=up,%s,tpad=stop_mode=clone:stop=%d,tile=%dx%d,format=yuvj420p", interval, scale, storyMost, min(count, storyColumns), rows),
		"-frames:v", "1", "-q:v", "5")
	args = append(args, clean...)
	args = append(args, "-f", "mjpeg", "file:"+out)
	if _, err := m.Tools.Transcode(ctx, ffmpeg.Call{Dir: dir, Args: args, CPU: 2 * extrasTime, Wall: 4 * extrasTime}); err != nil {
		return nil, Picture{}, fmt.Errorf("storyboard: %w", err)
	}
	sheet, err := measure(out)
	if err != nil {
		return nil, Picture{}, fmt.Errorf("storyboard: %w", err)
	}
	columns := min(count, storyColumns)
	return &transcode.Storyboard{
		Columns: columns, Rows: rows, TileWidth: sheet.Width / columns, TileHeight: sheet.Height / rows,
		Interval: interval, Count: count,
	}, sheet, nil
}

// Download writes the video and audio tracks into one progressive MP4 without encoding.
func (m *Maker) Download(ctx context.Context, dir string, video File, audio *File) (string, error) {
	out := filepath.Join(dir, "download.mp4")
	args := m.base()
	// Do not add -itsoffset. Our fMP4 uses negative offsets to show its first frame at its
	// first decode time, but ffmpeg already subtracts each input's start time. With a second
	// shift, the edit list would cut off the first frames.
	args = append(args, own(video.Path)...)
	if audio != nil {
		args = append(args, own(audio.Path)...)
		args = append(args, "-map", "0:v:0", "-map", "1:a:0")
	}
	args = append(args, "-c", "copy", "-movflags", "+faststart")
	args = append(args, clean...)
	args = append(args, "-f", "mp4", "file:"+out)
	limit := extrasTime + time.Duration(video.Track.Duration()/5)*time.Second
	if _, err := m.Tools.Transcode(ctx, ffmpeg.Call{Dir: dir, Args: args, CPU: limit, Wall: 3 * limit}); err != nil {
		return "", fmt.Errorf("download: %w", err)
	}
	return out, nil
}
