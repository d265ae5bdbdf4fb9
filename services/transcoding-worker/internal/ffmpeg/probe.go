package ffmpeg

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/transcode"
)

// Source describes a playable upload, as measured from its samples. Times are seconds after Start
// on the file's own timeline. ffmpeg shifts its input in the same way by default.
type Source struct {
	Path    string
	Size    int64
	Demuxer string
	Start   float64 // earliest time in the file
	Video   Video
	Audio   *Audio // nil if there is no decodable audio
	Streams int
}

// Video is the video track that viewers will see.
type Video struct {
	Index         int
	Codec         string
	Profile       string
	PixelFormat   string
	Level         int
	Width, Height int // as stored
	DisplayWidth  int // with square pixels and after rotation
	DisplayHeight int
	Square        bool // whether pixels are square
	Rotation      int  // degrees
	Interlaced    bool
	Transfer      string // colour transfer function, which distinguishes HDR from SDR
	Tag           string

	First    float64 // time of the first frame shown
	Span     float64 // seconds from the first frame to the end of the last
	Hold     float64 // seconds to hold the last frame for audio that continues after it
	Frames   int
	Rate     Rate    // rate of the constant grid, or of the fastest passages if there is no grid
	Constant bool    // every position on the grid has exactly one frame
	Bytes    int64   // total size of the samples
	MaxGOP   float64 // longest time between two keyframes
	MaxRate  float64 // highest bit rate of any group of pictures, in bits per second
	KeyTimes []float64
	Whole    bool // every sample is shown: no edit list drops a sample, and no sample refers to a missing one
}

// Audio is the first audio track.
type Audio struct {
	Index    int
	Codec    string
	Profile  string
	Rate     int
	Channels int
	First    float64 // time of the first audible sample
	Priming  float64 // seconds of encoder delay before First
	End      float64
	Packets  int
	Bytes    int64 // total size of the packets
	Steady   bool  // no gap or overlap between packets
}

// Rate is a frame rate as a fraction.
type Rate struct{ Num, Den int }

// Float returns the rate as a number.
func (r Rate) Float() float64 { return float64(r.Num) / float64(r.Den) }

// Half returns the rate of every other frame.
func (r Rate) Half() Rate { return Rate{r.Num, r.Den * 2} }

func (r Rate) String() string { return fmt.Sprintf("%d/%d", r.Num, r.Den) }

// formats are the allowed demuxers. Each call uses exactly one of them.
const formats = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,flv,mpegts,mpeg,ogg"

// Input returns the arguments that open a file. They allow only this demuxer, only local
// files, and no frame larger than maxPixels.
func Input(demuxer, path string, maxPixels int) []string {
	if maxPixels <= 0 {
		maxPixels = 36 << 20 // for our own files; above the service's default limit for uploads
	}
	// A demuxer can open another one, so the whitelist applies even though -f names the demuxer.
	// 20 MB and 20 s are enough to find tracks that start late, and bound what a crafted file costs.
	return []string{
		"-protocol_whitelist", "file", "-format_whitelist", formats,
		"-max_pixels", strconv.Itoa(maxPixels), "-probesize", "20M", "-analyzeduration", "20M",
		"-f", demuxer, "-i", "file:" + path,
	}
}

const (
	maxStreams = 100
	maxPackets = 8 << 20
	// probeTime limits ffprobe's own work before it reads packets. A normal file takes a tenth of a
	// second.
	probeTime = 30 * time.Second
)

func refuse(code transcode.Code, message string) error {
	return &transcode.Failure{Code: code, Message: message}
}

// Probe identifies the file at path. If the file cannot be played, the error is a
// *transcode.Failure with the reason. path must be in dir, the job's folder.
func (t *Tools) Probe(ctx context.Context, dir, path string, limits transcode.Limits) (*Source, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, refuse(transcode.EmptyFile, "The uploaded file is empty.")
	}
	if limits.MaxBytes > 0 && info.Size() > limits.MaxBytes {
		return nil, refuse(transcode.FileTooLarge, "The file is larger than allowed.")
	}
	kind, demuxer, err := Sniff(f)
	switch {
	case err != nil:
		return nil, err
	case kind == NotVideo && isForm(f):
		return nil, refuse(transcode.NotAVideo, transcode.FormUpload)
	case kind == NotVideo:
		return nil, refuse(transcode.NotAVideo, "The file is not a video.")
	case kind == OtherVideo:
		return nil, refuse(transcode.UnsupportedFormat, "This video format is not supported. Use MP4, MOV, MKV, WebM, AVI, FLV, MPEG or Ogg.")
	}
	if demuxer == "mov" {
		if err := CheckTables(f, info.Size()); errors.Is(err, ErrCorrupt) {
			return nil, corrupt()
		} else if err != nil {
			return nil, err
		}
	}
	// The frame size is not yet known, so allow for a large frame.
	t = t.Large()
	s := &Source{Path: path, Size: info.Size(), Demuxer: demuxer}
	if err := t.streams(ctx, dir, s, limits); err != nil {
		return nil, err
	}
	if err := t.packets(ctx, dir, s, limits); err != nil {
		return nil, err
	}
	return s, nil
}

// Unaffordable returns the error for a file that cannot be processed within the memory limit.
func Unaffordable(err error) error {
	return fmt.Errorf("%w: %w", refuse(transcode.TooLargeDimensions, "Preparing this video takes too much memory. Upload it at a lower resolution."), err)
}

func corrupt() error {
	return refuse(transcode.CorruptFile, "The file is damaged or incomplete.")
}

type probeStream struct {
	Index        int    `json:"index"`
	CodecName    string `json:"codec_name"`
	CodecType    string `json:"codec_type"`
	CodecTag     string `json:"codec_tag_string"`
	Profile      string `json:"profile"`
	Level        int    `json:"level"`
	Width        int    `json:"width"`
	Height       int    `json:"height"`
	PixFmt       string `json:"pix_fmt"`
	SAR          string `json:"sample_aspect_ratio"`
	FieldOrder   string `json:"field_order"`
	Transfer     string `json:"color_transfer"`
	SampleFmt    string `json:"sample_fmt"`
	SampleRate   string `json:"sample_rate"`
	Channels     int    `json:"channels"`
	StartTime    string `json:"start_time"`
	RFrameRate   string `json:"r_frame_rate"`
	AvgFrameRate string `json:"avg_frame_rate"`
	Disposition  struct {
		Default      int `json:"default"`
		AttachedPic  int `json:"attached_pic"`
		Thumbnails   int `json:"timed_thumbnails"`
		StillImage   int `json:"still_image"`
		Dependent    int `json:"dependent"`
		HearImpaired int `json:"hearing_impaired"`
		VisImpaired  int `json:"visual_impaired"`
	} `json:"disposition"`
	SideData []struct {
		Rotation json.Number `json:"rotation"`
	} `json:"side_data_list"`
}

// streams reads the file's headers and chooses the tracks.
func (t *Tools) streams(ctx context.Context, dir string, s *Source, limits transcode.Limits) error {
	var out bytes.Buffer
	args := append([]string{"-hide_banner", "-v", "error"}, Input(s.Demuxer, s.Path, limits.MaxPixels)...)
	args = append(args, "-show_streams", "-show_entries", "format=start_time", "-of", "json=compact=1")
	usage, err := t.Inspect(ctx, Call{
		Dir: dir, Args: args, Wall: probeTime, CPU: probeTime,
		Line: func(line []byte) {
			// This limit is far above what maxStreams tracks need. It prevents a crafted file from
			// exhausting memory. Truncated output does not parse, so the file is treated as
			// damaged.
			if out.Len() < 4<<20 {
				out.Write(line)
				out.WriteByte('\n')
			}
		},
	})
	if err != nil {
		return t.judge(ctx, err)
	}
	var doc struct {
		Streams []probeStream `json:"streams"`
		Format  struct {
			StartTime string `json:"start_time"`
		} `json:"format"`
	}
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		return corrupt()
	}
	if len(doc.Streams) == 0 {
		return corrupt()
	}
	if len(doc.Streams) > maxStreams {
		return refuse(transcode.UnsupportedFormat, "The file has too many tracks.")
	}
	s.Streams = len(doc.Streams)
	s.Start = seconds(doc.Format.StartTime)
	video := pickVideo(doc.Streams)
	if video == nil {
		return refuse(transcode.NotAVideo, "The file has no video track.")
	}
	// If the headers do not give the frame size, only the decoder's message shows that the frame
	// is too large.
	if video.Width <= 0 && tooLarge(usage.Said) || limits.MaxSide > 0 && max(video.Width, video.Height) > limits.MaxSide ||
		limits.MaxPixels > 0 && video.Width*video.Height > limits.MaxPixels {
		return refuse(transcode.TooLargeDimensions, "The video's resolution is higher than allowed.")
	}
	if video.CodecName == "" || video.CodecName == "unknown" {
		return refuse(transcode.UnsupportedFormat, "The video's codec is not supported.")
	}
	if video.Width <= 0 || video.Height <= 0 {
		return corrupt()
	}
	s.Video = videoOf(video)
	if audio := pickAudio(doc.Streams); audio != nil {
		rate, _ := strconv.Atoi(audio.SampleRate)
		s.Audio = &Audio{Index: audio.Index, Codec: audio.CodecName, Profile: audio.Profile, Rate: rate, Channels: audio.Channels}
	}
	return nil
}

// judge decides whether ffprobe failed because of the file.
func (t *Tools) judge(ctx context.Context, err error) error {
	var exit *ExitError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ErrTimeout):
		return refuse(transcode.Timeout, "Reading the file took too long.")
	case errors.Is(err, ErrStart):
		return err
	case errors.Is(err, ErrMemory):
		return Unaffordable(err)
	case errors.As(err, &exit) && tooLarge(exit.Stderr):
		return refuse(transcode.TooLargeDimensions, "The video's resolution is higher than allowed.")
	case errors.As(err, &exit):
		return corrupt()
	}
	return err
}

// tooLarge recognises the decoder's message about a frame larger than -max_pixels. It is needed for
// files whose headers do not give the frame size.
func tooLarge(said string) bool { return strings.Contains(said, "max pixel count") }

func pickVideo(streams []probeStream) *probeStream {
	var best *probeStream
	for i := range streams {
		s := &streams[i]
		if s.CodecType != "video" || s.Disposition.AttachedPic+s.Disposition.Thumbnails+s.Disposition.StillImage > 0 {
			continue
		}
		if best == nil || rank(s) > rank(best) {
			best = s
		}
	}
	return best
}

// rank prefers tracks that can be decoded, then the track marked as default, then the track
// with the larger frame size.
func rank(s *probeStream) int {
	r := min(s.Width*s.Height, 1<<40)
	if s.Disposition.Default > 0 {
		r += 1 << 41
	}
	if s.CodecName != "" && s.CodecName != "unknown" && s.Width > 0 && s.PixFmt != "" && s.PixFmt != "unknown" {
		r += 1 << 42
	}
	return r
}

func pickAudio(streams []probeStream) *probeStream {
	var best *probeStream
	for i := range streams {
		s := &streams[i]
		if s.CodecType != "audio" || s.SampleFmt == "" || s.SampleFmt == "unknown" || s.Channels <= 0 || s.SampleRate == "" || s.SampleRate == "0" {
			continue
		}
		if best == nil || s.Disposition.Default > best.Disposition.Default {
			best = s
		}
	}
	return best
}

func videoOf(p *probeStream) Video {
	v := Video{
		Index: p.Index, Codec: p.CodecName, Profile: p.Profile, PixelFormat: p.PixFmt, Level: p.Level,
		Width: p.Width, Height: p.Height, Square: true, Transfer: p.Transfer, Tag: p.CodecTag,
		Interlaced: p.FieldOrder != "" && p.FieldOrder != "progressive" && p.FieldOrder != "unknown",
	}
	width, height := float64(p.Width), float64(p.Height)
	if num, den, ok := fraction(p.SAR, ":"); ok && num != den && num > 0 && den > 0 && num/den < 20 && den/num < 20 {
		v.Square = false
		width *= num / den
	}
	for _, d := range p.SideData {
		if angle, err := d.Rotation.Float64(); err == nil && angle != 0 {
			v.Rotation = ((int(math.Round(angle))%360 + 360) % 360)
		}
	}
	if v.Rotation == 90 || v.Rotation == 270 {
		width, height = height, width
	}
	v.DisplayWidth, v.DisplayHeight = max(1, int(math.Round(width))), max(1, int(math.Round(height)))
	if v.DisplayWidth > 8192 { // wide pixels must not make the frame exceed the limit
		v.DisplayHeight = max(1, v.DisplayHeight*8192/v.DisplayWidth)
		v.DisplayWidth = 8192
	}
	return v
}

// packet is one line of ffprobe's packet list.
type packet struct {
	stream        int
	pts, duration float64
	size          int64
	key, discard  bool
}

// packets reads the time and size of every sample. These values take precedence over the headers.
func (t *Tools) packets(ctx context.Context, dir string, s *Source, limits transcode.Limits) error {
	args := append([]string{"-hide_banner", "-v", "error"}, Input(s.Demuxer, s.Path, limits.MaxPixels)...)
	args = append(args, "-show_entries", "packet=stream_index,pts_time,dts_time,duration_time,size,flags", "-of", "compact=nk=1:p=0")
	scan := scanner{source: s}
	// The clock in these formats may jump. See scanner.add.
	jumps := s.Demuxer == "mpegts" || s.Demuxer == "mpeg"
	total := 0
	// This call reads the whole file. Allow for storage as slow as 10 MiB per second.
	limit := probeTime + time.Duration(s.Size/(10<<20))*time.Second
	_, err := t.Inspect(ctx, Call{Dir: dir, Args: args, Wall: limit, CPU: limit, Line: func(line []byte) {
		// Line cannot stop the program, so lines beyond the limit are only counted.
		if total++; total > maxPackets {
			return
		}
		if p, ok := parsePacket(line); ok {
			scan.add(p, jumps)
		}
	}})
	// If the end of the file is damaged, the list is truncated. Use the packets before the
	// damage.
	var exit *ExitError
	if err != nil && !(errors.As(err, &exit) && exit.Code == 1) {
		return t.judge(ctx, err)
	}
	if total > maxPackets {
		return refuse(transcode.TooLong, "The video has too many frames.")
	}
	return scan.finish(limits)
}

func parsePacket(line []byte) (packet, bool) {
	var f [6][]byte
	for i := range f {
		var found bool
		f[i], line, found = bytes.Cut(line, []byte("|"))
		if !found && i < len(f)-1 {
			return packet{}, false
		}
	}
	stream, err := strconv.Atoi(string(f[0]))
	if err != nil {
		return packet{}, false
	}
	p := packet{stream: stream}
	var ok bool
	if p.pts, ok = finite(f[1]); !ok {
		// AVI stores only decode times.
		if p.pts, ok = finite(f[2]); !ok {
			return packet{}, false
		}
	}
	p.duration, _ = finite(f[3])
	p.size, _ = strconv.ParseInt(string(f[4]), 10, 64)
	p.key = bytes.Contains(f[5], []byte("K"))
	p.discard = bytes.Contains(f[5], []byte("D"))
	return p, true
}

// finite parses a number of seconds. It returns 0 and false for NaN, infinity, and text that
// is not a number.
func finite(text []byte) (seconds float64, ok bool) {
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// holdFrom is the minimum number of seconds that the audio must continue after the last frame for
// that frame to be held. Encoders pad their last packet, so in most files the audio is a few
// milliseconds longer than the video. The last frame of such a file must not be held because that
// would rule out the fast path, which copies the video track.
const holdFrom = 0.25

type scanner struct {
	source *Source

	times    []float64
	early    []float64 // times of the frames before the first keyframe
	lastTime float64
	lastDur  float64
	started  bool
	skipped  int
	keys     []float64
	gopBytes []int64
	bytes    int64

	audioNext    float64
	audioHeard   float64 // seconds of audible samples
	audioStarted bool
	audioSeen    bool
	unsteady     bool

	shift, previous float64 // for streams with jumps in their clock
	havePrevious    bool
}

func (c *scanner) add(p packet, jumps bool) {
	p.pts -= c.source.Start
	if jumps {
		// Remove clock jumps of more than ten seconds, as ffmpeg does.
		if c.havePrevious && math.Abs(p.pts+c.shift-c.previous) > 10 {
			c.shift = c.previous - p.pts
		}
		p.pts += c.shift
		c.previous, c.havePrevious = p.pts, true
	}
	switch {
	case p.stream == c.source.Video.Index:
		c.addVideo(p)
	case c.source.Audio != nil && p.stream == c.source.Audio.Index:
		c.addAudio(p)
	}
}

func (c *scanner) addVideo(p packet) {
	if !c.started && !p.key {
		c.skipped++
		c.early = append(c.early, p.pts)
		return // nothing can be shown before a keyframe
	}
	c.started = true
	c.bytes += p.size
	if p.key {
		c.keys = append(c.keys, p.pts)
		c.gopBytes = append(c.gopBytes, 0)
	}
	c.gopBytes[len(c.gopBytes)-1] += p.size
	// If the first group is open, its leading frames refer to missing frames.
	if p.discard || p.pts < c.keys[0] && len(c.keys) == 1 {
		c.skipped++
		return
	}
	c.times = append(c.times, p.pts)
	if len(c.times) == 1 || p.pts >= c.lastTime {
		c.lastTime, c.lastDur = p.pts, p.duration
	}
}

func (c *scanner) addAudio(p packet) {
	a := c.source.Audio
	if !c.audioSeen {
		c.audioSeen = true
		a.First, a.Priming = p.pts, 0
		c.audioNext = p.pts
	}
	if !c.audioStarted {
		if p.discard {
			a.Priming += p.duration
			a.First = p.pts + p.duration
		} else {
			c.audioStarted = true
		}
	}
	a.Packets++
	a.Bytes += p.size
	if math.Abs(p.pts-c.audioNext) > 0.002 {
		c.unsteady = true
	}
	c.audioNext = p.pts + p.duration
	if !p.discard {
		c.audioHeard += p.duration
	}
	a.End = max(a.End, c.audioNext)
}

// finish computes the source's properties from its samples.
func (c *scanner) finish(limits transcode.Limits) error {
	v := &c.source.Video
	if !c.started {
		// There are no keyframes, as in random data or a stream with gradual refresh. Only decoding
		// can show whether the file is playable.
		c.times = c.early
	}
	if len(c.times) == 0 {
		if c.bytes > 0 {
			return corrupt()
		}
		return refuse(transcode.NotAVideo, "The file's video track has no frames.")
	}
	if len(c.times) == 1 && imageCodec(v.Codec) {
		return refuse(transcode.NotAVideo, "The file is a still image.")
	}
	if v.PixelFormat == "" || v.PixelFormat == "unknown" {
		return corrupt()
	}
	slices.Sort(c.times)
	first, last := c.times[0], c.times[len(c.times)-1]
	step := fastStep(c.times)
	if c.lastDur <= 0 || c.lastDur > max(1, 10*step) {
		c.lastDur = step
	}
	v.First, v.Frames, v.Bytes, v.KeyTimes, v.Whole = first, len(c.times), c.bytes, c.keys, c.skipped == 0
	v.Span = last - first + c.lastDur
	v.Rate, v.Constant = fitRate(c.times, step)
	if v.Constant {
		v.Span = float64(v.Frames) / v.Rate.Float()
	}
	if a := c.source.Audio; a != nil {
		a.Steady = !c.unsteady
		// A timestamp without samples does not extend the video.
		left := min(a.End-(v.First+v.Span), c.audioHeard)
		switch {
		case !c.audioStarted || a.End <= v.First:
			c.source.Audio = nil
		case left >= holdFrom:
			v.Hold = left
		}
	}
	if limits.MaxDuration > 0 && v.Span+v.Hold > limits.MaxDuration.Seconds() {
		return refuse(transcode.TooLong, "The video is longer than allowed.")
	}
	for i, start := range c.keys {
		end := last + c.lastDur
		if i+1 < len(c.keys) {
			end = c.keys[i+1]
		}
		if length := end - start; length > 0 {
			v.MaxGOP = max(v.MaxGOP, length)
			if length > 0.4 { // a short group is not representative of the rate
				v.MaxRate = max(v.MaxRate, float64(c.gopBytes[i]*8)/length)
			}
		}
	}
	return nil
}

func imageCodec(codec string) bool {
	switch codec {
	case "png", "mjpeg", "bmp", "tiff", "webp", "gif", "jpeg2000", "jpegls", "apng", "targa", "svg", "qdraw", "jpegxl":
		return true
	}
	return false
}

// fastStep returns the time between frames in the fastest passages. It uses the 20th percentile,
// so a stall does not lower the rate of the rest.
func fastStep(times []float64) float64 {
	const fallback = 0.04
	if len(times) < 2 {
		return fallback
	}
	steps := make([]float64, 0, len(times)-1)
	for i := 1; i < len(times); i++ {
		if d := times[i] - times[i-1]; d > 0.0005 {
			steps = append(steps, d)
		}
	}
	if len(steps) == 0 {
		return fallback
	}
	slices.Sort(steps)
	return steps[len(steps)/5]
}

var standardRates = []Rate{
	{24000, 1001}, {24, 1}, {25, 1}, {30000, 1001}, {30, 1}, {48, 1}, {50, 1}, {60000, 1001}, {60, 1},
	{15, 1}, {12, 1}, {10, 1}, {20, 1}, {5, 1}, {1, 1}, {15000, 1001}, {12500, 1000}, {90, 1}, {100, 1}, {120000, 1001}, {120, 1}, {144, 1}, {240000, 1001}, {240, 1},
}

// fitRate returns the rate of the frames' constant grid and true. If there is no such grid,
// it returns the rate of the fastest passages and false.
func fitRate(times []float64, step float64) (Rate, bool) {
	n := len(times)
	if n == 1 {
		return Rate{25, 1}, true
	}
	if span := times[n-1] - times[0]; span > 0 {
		mean := float64(n-1) / span
		// Similar rates such as 29.97 and 30 both fit a short clip. Choose the closest rate,
		// and prefer a standard rate to a computed one.
		best, off := Rate{}, slack
		for _, r := range standardRates {
			if math.Abs(r.Float()-mean) < 0.01*mean {
				if o := offGrid(times, r.Float()); o < off {
					best, off = r, o
				}
			}
		}
		if best.Num > 0 {
			return best, true
		}
		if r := decimal(mean); offGrid(times, r.Float()) < slack {
			return r, true
		}
	}
	fast := 1 / step
	best := decimal(fast)
	for _, r := range standardRates {
		if math.Abs(r.Float()-fast) < 0.06*fast && (best == decimal(fast) || math.Abs(r.Float()-fast) < math.Abs(best.Float()-fast)) {
			best = r
		}
	}
	return best, false
}

// slack is the maximum distance between a frame and its position on the grid, in frame intervals.
const slack = 0.35

// offGrid returns the largest distance between a frame and its position on a grid, in frame
// intervals.
func offGrid(times []float64, rate float64) float64 {
	off := 0.0
	for i, t := range times {
		off = max(off, math.Abs((t-times[0])*rate-float64(i)))
	}
	return off
}

func decimal(rate float64) Rate {
	rate = min(max(rate, 1e-6), 10000)
	if rate < 1 {
		return Rate{max(1, int(math.Round(rate*1e6))), 1e6}
	}
	return Rate{int(math.Round(rate * 1000)), 1000}
}

func seconds(s string) float64 {
	f, _ := finite([]byte(s))
	return f
}

func fraction(s, sep string) (num, den float64, ok bool) {
	a, b, found := strings.Cut(s, sep)
	if !found {
		return 0, 0, false
	}
	num, err1 := strconv.ParseFloat(a, 64)
	den, err2 := strconv.ParseFloat(b, 64)
	return num, den, err1 == nil && err2 == nil && den != 0
}
