package ladder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ffmpeg"
	"github.com/linkreel/linkreel/services/transcoding-worker/internal/fmp4"
)

// File is one finished track on disk.
type File struct {
	Name  string
	Path  string
	Track *fmp4.Track
}

// Tracks is a set of renditions of the same video.
type Tracks struct {
	Video []File // tallest first
	Audio *File
	Cuts  []float64 // start times of all segments after the first, the same for every track
	CPU   time.Duration
}

// With adds the renditions that were encoded after t, and checks that all tracks have the
// same cuts.
func (t Tracks) With(later Tracks) (Tracks, error) {
	t.Video = append(slices.Clone(t.Video), later.Video...)
	slices.SortStableFunc(t.Video, func(a, b File) int { return cmp.Compare(b.Track.Height, a.Track.Height) })
	return t, inStep(t.Video, t.Cuts)
}

// Maker produces renditions in a job's folder.
type Maker struct {
	Tools     *ffmpeg.Tools
	MaxPixels int
}

// base returns the arguments that every ffmpeg call starts with.
func (m *Maker) base() []string {
	return []string{"-nostdin", "-hide_banner", "-v", "error", "-y"}
}

// With returns a copy of the maker with its tools changed by edit.
func (m *Maker) With(change func(*ffmpeg.Tools)) *Maker {
	tools := *m.Tools
	change(&tools)
	return &Maker{Tools: &tools, MaxPixels: m.MaxPixels}
}

// Probe identifies a file.
func (m *Maker) Probe(ctx context.Context, dir, path string, limits transcode.Limits) (*ffmpeg.Source, error) {
	return m.Tools.Probe(ctx, dir, path, limits)
}

// large reports whether the resolution is above 4K. Decoding such a video takes most of the
// memory.
func large(v ffmpeg.Video) bool { return v.Width*v.Height > 9<<20 }

func (m *Maker) tools(v ffmpeg.Video) *ffmpeg.Tools {
	if large(v) {
		return m.Tools.Large()
	}
	return m.Tools
}

func (m *Maker) threads(v ffmpeg.Video) int {
	if large(v) {
		return 1 // each decoding thread keeps its own frames
	}
	return max(1, m.Tools.Threads)
}

// clean removes metadata about the file's owner and everything that would differ between runs.
var clean = []string{"-map_metadata", "-1", "-map_chapters", "-1", "-fflags", "+bitexact", "-sn", "-dn"}

// budget returns the time limits for encoding a part. They are several times what the slowest known
// source needs, so only decompression bombs reach them.
func (p *Plan) budget(part Part) (cpu, wall time.Duration) {
	v := p.Source.Video
	perPicture := 0.002 + p.pixels()*25e-9 + float64(v.Width*v.Height)*60e-9
	work := 60 + 3*perPicture*float64(max(p.Frames*p.Step, v.Frames))*float64(part.Frames)/float64(p.Frames)
	cpu = time.Duration(min(work, 24*3600) * float64(time.Second))
	return cpu, min(2*time.Minute+3*cpu, 12*time.Hour)
}

// Ladder encodes the plan's rungs and the audio in one pass over the source. It calls progress
// with the finished fraction.
func (m *Maker) Ladder(ctx context.Context, dir string, p Plan, sound bool, progress func(float64)) (Tracks, error) {
	args := append(m.base(), "-progress", "pipe:1", "-stats_period", "0.5", "-threads", strconv.Itoa(m.threads(p.Source.Video)))
	args = append(args, ffmpeg.Input(p.Source.Demuxer, p.Source.Path, m.MaxPixels)...)
	graph := p.videoGraph(p.whole())
	sound = sound && p.Source.Audio != nil
	if sound {
		graph += ";" + p.audioGraph()
	}
	args = append(args, "-filter_complex", graph)
	args = append(args, m.outputs(dir, p, p.whole())...)
	adts := filepath.Join(dir, "audio.aac")
	if sound {
		args = append(args, p.soundOutput(adts)...)
	}
	usage, err := m.encode(ctx, dir, p, p.whole(), args, progress)
	if err != nil {
		return Tracks{}, err
	}
	t := Tracks{Cuts: p.Cuts, CPU: usage.CPU}
	for _, r := range p.Rungs {
		f, err := p.check(dir, r)
		if err != nil {
			return Tracks{}, err
		}
		t.Video = append(t.Video, f)
	}
	if err := inStep(t.Video, t.Cuts); err != nil {
		return Tracks{}, err
	}
	if sound {
		t.Audio, err = m.packSound(dir, adts, 0, t)
		if err != nil {
			return Tracks{}, err
		}
	}
	return t, nil
}

// outputs returns the output arguments for every rung in a part.
func (m *Maker) outputs(dir string, p Plan, part Part) []string {
	var args []string
	for i, r := range p.Rungs {
		args = append(args, "-map", fmt.Sprintf("[v%d]", i))
		args = append(args, p.encode(r, part)...)
		args = append(args, "-threads", strconv.Itoa(max(1, m.Tools.Threads)))
		args = append(args, clean...)
		args = append(args, "-f", "mp4", "file:"+filepath.Join(dir, r.Name+".mp4"))
	}
	return args
}

func (p *Plan) soundOutput(adts string) []string {
	args := []string{"-map", "[a]", "-c:a", "aac", "-b:a", "128k"}
	return append(append(args, clean...), "-f", "adts", "file:"+adts)
}

// encode runs ffmpeg for a part within the part's share of the plan's budget.
func (m *Maker) encode(ctx context.Context, dir string, p Plan, part Part, args []string, progress func(float64)) (ffmpeg.Usage, error) {
	cpu, wall := p.budget(part)
	total := float64(part.Frames) / p.Rate.Float()
	usage, err := m.tools(p.Source.Video).Transcode(ctx, ffmpeg.Call{
		Dir: dir, Args: args, CPU: cpu, Wall: wall, Stall: 2 * time.Minute,
		Line: ffmpeg.Progress(func(done time.Duration) {
			if progress != nil {
				progress(min(1, done.Seconds()/total))
			}
		}),
	})
	if err != nil {
		return usage, m.blame(ctx, err)
	}
	return usage, nil
}

// videoGraph returns the filter graph that decodes the source once for all rungs. For every
// part except the first, the input keeps the source's own times and starts slightly early.
// The fps filter then drops the frames before the part.
func (p *Plan) videoGraph(part Part) string {
	v := p.Source.Video
	top := p.Rungs[0]
	first := v.First
	if part.From > 0 {
		first += p.Source.Start
	}
	chain := []string{fmt.Sprintf("[0:%d]setpts=PTS-(%.6f)/TB", v.Index, first)}
	if v.Interlaced {
		chain = append(chain, "bwdif=mode=send_frame:parity=auto:deint=all")
	}
	chain = append(chain, fmt.Sprintf("fps=fps=%s:start_time=%.6f:round=near", p.Grid, p.time(part.From)))
	// Clone at most Held frames. Unlimited padding would hide the fact that a damaged source is
	// short.
	if p.Held > 0 && part.From+part.Frames == p.Frames {
		chain = append(chain, fmt.Sprintf("tpad=stop_mode=clone:stop=%d", p.Held))
	}
	if p.Step > 1 {
		chain = append(chain, fmt.Sprintf("framestep=%d", p.Step))
	}
	if top.Half {
		// All rungs in this plan have half the rate. Taller full-rate rungs are in another plan.
		chain = append(chain, "framestep=2")
	}
	if part.From > 0 {
		chain = append(chain, "setpts=PTS-STARTPTS")
	}
	if p.ToneMap {
		chain = append(chain, fmt.Sprintf("zscale=w=%d:h=%d:tin=%s:pin=bt2020:min=bt2020nc:t=linear:npl=100", top.Width, top.Height, v.Transfer),
			"format=gbrpf32le", "zscale=p=bt709", "tonemap=tonemap=hable:desat=0", "zscale=t=bt709:m=bt709:r=tv")
	} else {
		chain = append(chain, fmt.Sprintf("scale=%d:%d:flags=bicubic:out_range=tv", top.Width, top.Height))
	}
	chain = append(chain, "format=yuv420p", "setsar=1")
	if top.Width < minSide || top.Height < minSide {
		chain = append(chain, fmt.Sprintf("pad=w=max(iw\\,%d):h=max(ih\\,%d):x=(ow-iw)/2:y=(oh-ih)/2", minSide, minSide))
	}
	var b strings.Builder
	b.WriteString(strings.Join(chain, ","))
	if len(p.Rungs) == 1 {
		b.WriteString("[v0]")
		return b.String()
	}
	fmt.Fprintf(&b, ",split=%d[v0]", len(p.Rungs))
	for i := range p.Rungs[1:] {
		fmt.Fprintf(&b, "[s%d]", i+1)
	}
	for i, r := range p.Rungs[1:] {
		step := ""
		if r.Half && !top.Half {
			step = "framestep=2,"
		}
		fmt.Fprintf(&b, ";[s%d]%sscale=%d:%d:flags=bicubic,setsar=1[v%d]", i+1, step, r.Width, r.Height, i+1)
	}
	return b.String()
}

// minSide is the smallest frame side that decoders handle well. Smaller frames are padded.
const minSide = 16

// audioGraph aligns the audio with the video track's timeline. It trims the beginning or
// pads it with silence, and also pads the end with silence. The encoder adds a delay of 1024
// samples, so the graph removes the same number of samples to keep the audio in sync.
func (p *Plan) audioGraph() string {
	samples := max(2*frameSamples, int(p.Duration*48000)/frameSamples*frameSamples)
	return fmt.Sprintf("[0:%d]asetpts=PTS-(%.6f)/TB,aresample=48000:async=1:first_pts=0,"+
		"aformat=sample_fmts=fltp:sample_rates=48000:channel_layouts=stereo,apad=whole_len=%d,atrim=start_sample=%d:end_sample=%d,asetpts=N/SR/TB[a]",
		p.Source.Audio.Index, p.Source.Video.First, samples, frameSamples, samples)
}

// encode returns the encoder's arguments for one rung: closed groups of two seconds,
// extra keyframes at the start of segments, and one fragment per group.
func (p *Plan) encode(r Rung, part Part) []string {
	gop, frames := p.GOP, part.Frames
	if r.Half {
		gop, frames = gop/2, (frames+1)/2
	}
	// Fixed groups without keyframes at scene cuts (sc_threshold 0) give every rung the same
	// segment boundaries, so a player can switch between rungs.
	args := []string{
		"-c:v", "libx264", "-preset", "veryfast", "-profile:v", "high", "-pix_fmt", "yuv420p",
		"-crf", "23", "-maxrate", strconv.Itoa(r.Kbps) + "k", "-bufsize", strconv.Itoa(2*r.Kbps) + "k",
		"-g", strconv.Itoa(gop), "-keyint_min", strconv.Itoa(gop), "-sc_threshold", "0",
		"-fps_mode", "passthrough", "-frames:v", strconv.Itoa(frames),
		"-movflags", "+cmaf+frag_keyframe",
	}
	if p.ToneMap {
		args = append(args, "-color_primaries", "bt709", "-color_trc", "bt709", "-colorspace", "bt709")
	}
	if keys := p.foreignCuts(part); keys != "" {
		args = append(args, "-force_key_frames", keys)
	}
	return args
}

// foreignCuts returns the segment boundaries if they differ from the boundaries of the plan's own
// groups, as with a copied video track. Each boundary is nearly half a frame early, so rounding
// cannot miss it.
func (p *Plan) foreignCuts(part Part) string {
	group := float64(p.GOP) / p.Rate.Float()
	from, to := p.time(part.From), p.time(part.From+part.Frames)
	var keys []string
	foreign := false
	for _, c := range p.Cuts {
		if c < from+0.4/p.Rate.Float() || c > to {
			continue
		}
		c -= from
		n := c / group
		foreign = foreign || math.Abs(n-math.Round(n)) > 0.01
		keys = append(keys, strconv.FormatFloat(c-0.4/p.Rate.Float(), 'f', 6, 64))
	}
	if !foreign {
		return ""
	}
	return strings.Join(keys, ",")
}

// check reads an encoded rung and compares it with the plan.
func (p *Plan) check(dir string, r Rung) (File, error) {
	f, err := open(dir, r.Name)
	if err != nil {
		return File{}, err
	}
	want := p.Frames
	if r.Half {
		want = (want + 1) / 2
	}
	got := f.Track.Samples()
	if missing := want - got; missing > 1 && float64(missing) > 0.05*float64(want) {
		return File{}, &transcode.Failure{Code: transcode.CorruptFile, Message: "The file is damaged: a large part of the video cannot be read."}
	}
	return f, nil
}

// open reads a finished track and checks its timeline.
func open(dir, name string) (File, error) {
	path := filepath.Join(dir, name+".mp4")
	in, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer func() { _ = in.Close() }()
	track, err := fmp4.ReadTrack(in)
	if err != nil {
		return File{}, noPicture(in, err)
	}
	if err := track.Check(); err != nil {
		return File{}, fmt.Errorf("%s: %w", name, err)
	}
	return File{Name: name, Path: path, Track: track}, nil
}

// noPicture returns the error for a file without a single fragment. ffmpeg found nothing to
// decode but exited without an error.
func noPicture(in *os.File, err error) error {
	if info, statErr := in.Stat(); statErr == nil && info.Size() < 4<<10 {
		return &transcode.Failure{Code: transcode.CorruptFile, Message: "The file is damaged: the video cannot be read."}
	}
	return err
}

// inStep checks that every track can be cut at the given times.
func inStep(files []File, cuts []float64) error {
	want := -1
	for _, f := range files {
		table := f.Track.Segments(cuts)
		if want >= 0 && len(table) != want {
			return fmt.Errorf("%s has %d segments, want %d", f.Name, len(table), want)
		}
		want = len(table)
		at, slack := 0.0, 1.1*f.Track.Duration()/float64(f.Track.Samples())
		for i, s := range table[:len(table)-1] {
			at += s.Duration
			if math.Abs(at-cuts[i]) > slack {
				return fmt.Errorf("%s: segment %d ends at %.3f, want %.3f", f.Name, i, at, cuts[i])
			}
		}
	}
	return nil
}

func (m *Maker) packSound(dir, adts string, drop int, t Tracks) (*File, error) {
	// drop is 0 for audio that was encoded here, which starts with the video. A copied track may
	// begin earlier. See copyAudio.
	err := packAudio(adts, filepath.Join(dir, "audio.mp4"), drop, t.Video[0].Track.Duration(), t.Cuts)
	if err != nil {
		return nil, fmt.Errorf("pack sound: %w", err)
	}
	_ = os.Remove(adts) // audio.mp4 has the same frames, and scratch space is scarce
	f, err := open(dir, "audio")
	if err != nil {
		return nil, err
	}
	return &f, nil
}

// Copy repackages the source's own video track without encoding, and its audio if that can be kept.
// The result has one video file. Its name differs from that of the encoded rendition of the same
// height because both can exist.
func (m *Maker) Copy(ctx context.Context, dir string, p Plan) (Tracks, error) {
	v := p.Source.Video
	name := fmt.Sprintf("%dp-source", min(v.Width, v.Height))
	args := append(m.base(), ffmpeg.Input(p.Source.Demuxer, p.Source.Path, m.MaxPixels)...)
	drop, keepSound := p.copyAudio()
	sound := p.Source.Audio != nil
	adts := filepath.Join(dir, "audio.aac")
	if sound && !keepSound {
		args = append(args, "-filter_complex", p.audioGraph())
	}
	args = append(args, "-map", fmt.Sprintf("0:%d", v.Index), "-c:v", "copy",
		// Remove the messages embedded in the video stream because they may contain private data.
		"-bsf:v", "filter_units=remove_types=6", "-movflags", "+cmaf+frag_keyframe")
	args = append(args, clean...)
	args = append(args, "-f", "mp4", "file:"+filepath.Join(dir, name+".mp4"))
	if sound {
		if keepSound {
			args = append(args, "-map", fmt.Sprintf("0:%d", p.Source.Audio.Index), "-c:a", "copy", "-copypriorss:a", "1")
		} else {
			args = append(args, "-map", "[a]", "-c:a", "aac", "-b:a", "128k")
		}
		args = append(args, clean...)
		args = append(args, "-f", "adts", "file:"+adts)
	}
	limit := 2*time.Minute + time.Duration(v.Span/5)*time.Second
	usage, err := m.Tools.Transcode(ctx, ffmpeg.Call{Dir: dir, Args: args, CPU: limit, Wall: 2 * limit})
	if err != nil {
		return Tracks{}, err
	}
	f, err := open(dir, name)
	if err != nil {
		return Tracks{}, err
	}
	f.Name = fmt.Sprintf("%dp", min(v.Width, v.Height))
	if got := f.Track.Samples(); got != v.Frames {
		return Tracks{}, fmt.Errorf("copied %d of %d frames", got, v.Frames)
	}
	t := Tracks{Video: []File{f}, Cuts: f.Track.Cuts(segmentSeconds), CPU: usage.CPU}
	if sound {
		if keepSound {
			frames, err := countFrames(adts)
			if err != nil {
				return Tracks{}, err
			}
			// ffmpeg may already have dropped packets before the start.
			drop = max(0, drop-(p.Source.Audio.Packets-frames))
		} else {
			drop = 0
		}
		if t.Audio, err = m.packSound(dir, adts, drop, t); err != nil {
			return Tracks{}, err
		}
	}
	return t, nil
}

// blame determines the cause of a failed encode. ffmpeg conceals damage and continues. If it
// fails on a file that it could open, the file is the cause.
func (m *Maker) blame(ctx context.Context, err error) error {
	var exit *ffmpeg.ExitError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ffmpeg.ErrStart):
		return err
	case errors.Is(err, ffmpeg.ErrTimeout):
		return &transcode.Failure{Code: transcode.Timeout, Message: "Preparing the video took too long."}
	case errors.Is(err, ffmpeg.ErrMemory):
		return ffmpeg.Unaffordable(err)
	case errors.As(err, &exit) && exit.Signal == 0 && hopeless(exit.Stderr):
		return fmt.Errorf("%w: %w", &transcode.Failure{Code: transcode.CorruptFile, Message: "The file is damaged: its video or audio cannot be read."}, err)
	}
	return err
}

// hopeless reports whether stderr contains a message that ffmpeg prints when it cannot read
// its input.
func hopeless(stderr string) bool {
	for _, sign := range []string{"Invalid data found", "Error while decoding", "Cannot determine format of input", "Could not find codec parameters", "Decoder (codec", "Error opening decoder", "Error initializing"} {
		if strings.Contains(stderr, sign) {
			return true
		}
	}
	return false
}
