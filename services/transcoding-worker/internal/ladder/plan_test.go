package ladder

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/services/transcoding-worker/internal/ffmpeg"
)

// source returns a typical phone clip, changed by edit.
func source(edit func(*ffmpeg.Source)) *ffmpeg.Source {
	s := &ffmpeg.Source{
		Demuxer: "mov", Size: 40 << 20,
		Video: ffmpeg.Video{
			Codec: "h264", Profile: "High", Tag: "avc1", PixelFormat: "yuv420p", Level: 40,
			Width: 1920, Height: 1080, DisplayWidth: 1920, DisplayHeight: 1080, Square: true,
			Span: 20, Frames: 600, Rate: ffmpeg.Rate{Num: 30, Den: 1}, Constant: true, Whole: true,
			Bytes: 12 << 20, MaxGOP: 2, MaxRate: 6e6,
		},
	}
	if edit != nil {
		edit(s)
	}
	return s
}

func sized(w, h int) func(*ffmpeg.Source) {
	return func(s *ffmpeg.Source) {
		s.Video.Width, s.Video.Height, s.Video.DisplayWidth, s.Video.DisplayHeight = w, h, w, h
	}
}

func TestRungsFollowTheShortSideAndNeverGrow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		w, h int
		want string
	}{
		{1920, 1080, "1080p 1920x1080, 720p 1280x720, 480p 854x480, 360p 640x360"},
		{1080, 1920, "1080p 1080x1920, 720p 720x1280, 480p 480x854, 360p 360x640"},
		{3840, 2160, "1080p 1920x1080, 720p 1280x720, 480p 854x480, 360p 640x360"},
		{1280, 720, "720p 1280x720, 480p 854x480, 360p 640x360"},
		{1600, 900, "900p 1600x900, 720p 1280x720, 480p 854x480, 360p 640x360"},
		{1366, 768, "768p 1366x768, 480p 854x480, 360p 640x360"},
		{853, 479, "478p 852x478, 360p 642x360"},
		{640, 360, "360p 640x360"},
		{64, 64, "64p 64x64"},
		{2, 2, "2p 2x2"},
		{1, 1, "2p 2x2"},
		{8192, 100, "46p 3840x46"},
		{2560, 1080, "1080p 2560x1080, 720p 1706x720, 480p 1138x480, 360p 854x360"},
		{4000, 1080, "888p 3286x888, 720p 2190x592, 480p 1460x394, 360p 1096x296"},
	} {
		t.Run(fmt.Sprintf("%dx%d", tt.w, tt.h), func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, r := range Make(source(sized(tt.w, tt.h))).Rungs {
				got = append(got, fmt.Sprintf("%s %dx%d", r.Name, r.Width, r.Height))
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("rungs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRateRuleKeepsOrdinaryRatesAndDividesFastOnes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		num, den, frames int
		constant         bool
		wantRate         string
		wantFrames       int
		wantGOP          int
		half             bool // whether the smallest rung runs at half the rate
	}{
		{30, 1, 600, true, "30/1", 600, 60, false},
		{30000, 1001, 600, true, "30000/1001", 600, 60, false},
		{60, 1, 1200, true, "60/1", 1200, 120, true},
		{120, 1, 2401, true, "120/2", 1201, 120, true},
		{240, 1, 4800, true, "240/4", 1200, 120, true},
		{25, 1, 500, true, "25/1", 500, 50, false},
		{1, 1, 20, true, "1/1", 20, 2, false},
		{60, 1, 700, false, "60/1", 1200, 120, true},
		{1, 10, 2, true, "1/1", 20, 2, false},
	} {
		t.Run(fmt.Sprintf("%d of %d/%d", tt.frames, tt.num, tt.den), func(t *testing.T) {
			t.Parallel()
			p := Make(source(func(s *ffmpeg.Source) {
				s.Video.Rate, s.Video.Frames, s.Video.Constant, s.Video.Span = ffmpeg.Rate{Num: tt.num, Den: tt.den}, tt.frames, tt.constant, 20
			}))
			if p.Rate.String() != tt.wantRate || p.Frames != tt.wantFrames || p.GOP != tt.wantGOP || p.Rungs[len(p.Rungs)-1].Half != tt.half {
				t.Errorf("got rate %s, %d frames, groups of %d, half %v; want %s, %d, %d, %v", p.Rate, p.Frames, p.GOP, p.Rungs[len(p.Rungs)-1].Half, tt.wantRate, tt.wantFrames, tt.wantGOP, tt.half)
			}
			for i, c := range p.Cuts {
				if n := c * p.Rate.Float() / float64(p.GOP); math.Abs(n-math.Round(n)) > 1e-6 || math.Round(n) != float64(3*(i+1)) {
					t.Errorf("cut %d is at %.4f, want it at a group boundary", i, c)
				}
			}
		})
	}
}

func TestOneRenditionIsMadeFirstWhereThatWins(t *testing.T) {
	t.Parallel()
	names := func(p Plan) string {
		var names []string
		for _, r := range p.Rungs {
			names = append(names, r.Name)
		}
		return strings.Join(names, " ")
	}
	for name, tt := range map[string]struct {
		edit        func(*ffmpeg.Source)
		first, rest string
	}{
		"1080p":               {nil, "720p", "1080p 480p 360p"},
		"camera":              {sized(1280, 720), "720p", "480p 360p"},
		"between two rungs":   {sized(1366, 768), "768p", "480p 360p"},
		"portrait":            {sized(1080, 1920), "720p", "1080p 480p 360p"},
		"one rendition":       {sized(640, 360), "", ""},
		"expensive to decode": {sized(3840, 2160), "", ""},
		"encoded in parts":    {func(s *ffmpeg.Source) { s.Video.Span, s.Video.Frames = 300, 9000 }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := Make(source(tt.edit))
			all := names(p)
			first, rest, ok := p.First()
			if ok != (tt.first != "") || ok && (names(first) != tt.first || names(rest) != tt.rest) {
				t.Errorf("First = %s, %s, %v; want %s, %s", names(first), names(rest), ok, tt.first, tt.rest)
			}
			if names(p) != all {
				t.Errorf("First changed the original plan to %s, want no change", names(p))
			}
		})
	}
}

// If the source is copied or one rendition is encoded first, the tallest of the remaining rungs
// may use only every second frame.
func TestEveryRungOfHalfTheRateLeavesOutPictures(t *testing.T) {
	t.Parallel()
	p := Make(source(func(s *ffmpeg.Source) {
		sized(1280, 720)(s)
		s.Video.Rate, s.Video.Frames = ffmpeg.Rate{Num: 60, Den: 1}, 1200
	}))
	p.Rungs = p.Rungs[1:]
	if !p.Rungs[0].Half || !p.Rungs[1].Half {
		t.Fatalf("rungs = %+v, want both remaining rungs at half the rate", p.Rungs)
	}
	if graph := p.videoGraph(p.whole()); strings.Count(graph, "framestep=2") != 1 || strings.Index(graph, "framestep=2") > strings.Index(graph, "split") {
		t.Errorf("videoGraph = %s, want framestep=2 once, before the split", graph)
	}
}

func TestOnlyWhatPlayersTakeIsCopied(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		edit       func(*ffmpeg.Source)
		copy, keep bool
	}{
		"phone clip":                   {nil, true, true},
		"slightly high bit rate":       {func(s *ffmpeg.Source) { s.Video.Bytes = 18 << 20 }, true, false},
		"bit rate too high":            {func(s *ffmpeg.Source) { s.Video.Bytes = 30 << 20 }, false, false},
		"passage with a high bit rate": {func(s *ffmpeg.Source) { s.Video.MaxRate = 17e6 }, false, false},
		"rotated":                      {func(s *ffmpeg.Source) { s.Video.Rotation = 90 }, false, false},
		"interlaced":                   {func(s *ffmpeg.Source) { s.Video.Interlaced = true }, false, false},
		"non-square pixels":            {func(s *ffmpeg.Source) { s.Video.Square = false }, false, false},
		"ten bits":                     {func(s *ffmpeg.Source) { s.Video.PixelFormat = "yuv420p10le" }, false, false},
		"hdr":                          {func(s *ffmpeg.Source) { s.Video.Transfer = "arib-std-b67" }, false, false},
		"hevc":                         {func(s *ffmpeg.Source) { s.Video.Codec = "hevc" }, false, false},
		"matroska":                     {func(s *ffmpeg.Source) { s.Demuxer = "matroska" }, false, false},
		"variable rate":                {func(s *ffmpeg.Source) { s.Video.Constant = false }, false, false},
		"120 frames per second":        {func(s *ffmpeg.Source) { s.Video.Rate = ffmpeg.Rate{Num: 120, Den: 1} }, false, false},
		"4k":                           {sized(3840, 2160), false, false},
		"long groups":                  {func(s *ffmpeg.Source) { s.Video.MaxGOP = 10.5 }, false, false},
		"same bytes twice":             {func(s *ffmpeg.Source) { s.Size = s.Video.Bytes - 1 }, false, false},
		"audio longer than the video":  {func(s *ffmpeg.Source) { s.Video.Hold = 3 }, false, false},
		"trimmed by an edit list":      {func(s *ffmpeg.Source) { s.Video.Whole = false }, false, false},
		"high 4:4:4 profile":           {func(s *ffmpeg.Source) { s.Video.Profile = "High 4:4:4 Predictive" }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := Make(source(tt.edit))
			if c, k := p.Copyable(); c != tt.copy || k != tt.keep {
				t.Errorf("Copyable = %v, %v; want %v, %v", c, k, tt.copy, tt.keep)
			}
		})
	}
}

func TestSoundIsCopiedOnlyInStep(t *testing.T) {
	t.Parallel()
	const frame = 1024.0 / 48000
	audio := func(first, priming, end float64) *ffmpeg.Audio {
		return &ffmpeg.Audio{Codec: "aac", Profile: "LC", Rate: 48000, Channels: 2, Steady: true, First: first, Priming: priming, End: end}
	}
	for name, tt := range map[string]struct {
		audio *ffmpeg.Audio
		drop  int
		ok    bool
	}{
		"encoder delay of one frame":    {audio(0, frame, 20), 1, true},
		"encoder delay of an iPhone":    {audio(0, 2112.0/48000, 20), 2, true},
		"encoder delay of half a frame": {audio(0, frame/2, 20), 0, false},
		"audio starts late":             {audio(0.7, frame, 20), 0, false},
		"audio starts before the video": {audio(-1, 0, 20), 47, true},
		"audio ends early":              {audio(0, frame, 18), 0, false},
		"variable packets":              {func() *ffmpeg.Audio { a := audio(0, frame, 20); a.Steady = false; return a }(), 0, false},
		"six channels":                  {func() *ffmpeg.Audio { a := audio(0, frame, 20); a.Channels = 6; return a }(), 0, false},
		"HE-AAC":                        {func() *ffmpeg.Audio { a := audio(0, frame, 20); a.Profile = "HE-AAC"; return a }(), 0, false},
		"no audio":                      {nil, 0, false},
		"same bytes repeated":           {func() *ffmpeg.Audio { a := audio(0, frame, 20); a.Bytes = 41 << 20; return a }(), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := Make(source(func(s *ffmpeg.Source) { s.Audio = tt.audio }))
			if drop, ok := p.copyAudio(); ok != tt.ok || ok && drop != tt.drop {
				t.Errorf("copyAudio = %d, %v; want %d, %v", drop, ok, tt.drop, tt.ok)
			}
		})
	}
}

// TestSpaceIsWhatAPlanTakesAtItsFullest checks two documented claims: the space for an hour of
// video in docs/operations.md, and that the chart's default is enough for the largest upload that
// the limits allow.
func TestSpaceIsWhatAPlanTakesAtItsFullest(t *testing.T) {
	t.Parallel()
	const gb = 1e9
	film := func(hours, gigabytes float64, rate int, edit func(*ffmpeg.Source)) *ffmpeg.Source {
		return source(func(s *ffmpeg.Source) {
			s.Size = int64(gigabytes * gb)
			s.Video.Bytes, s.Video.Span, s.Video.Rate = s.Size, hours*3600, ffmpeg.Rate{Num: rate, Den: 1}
			s.Video.Frames = int(hours * 3600 * float64(rate))
			s.Video.Level = 50 // too high to be copied
			s.Audio = &ffmpeg.Audio{Codec: "opus"}
			if edit != nil {
				edit(s)
			}
		})
	}
	copied := func(s *ffmpeg.Source) { s.Video.Level = 40 }
	for name, tt := range map[string]struct {
		source      *ffmpeg.Source
		copied, all float64 // gigabytes
	}{
		"short clip":                       {film(20.0/3600, 0.02, 30, nil), 0.02, 0.05},
		"one hour":                         {film(1, 4, 30, nil), 4, 8.9},
		"one hour at 60 frames per second": {film(1, 4, 60, nil), 4, 10.7},
		"one hour, copied and kept":        {film(1, 2, 30, copied), 4.2, 7.2},
		"one hour, copied and replaced":    {film(1, 3, 30, copied), 6.3, 7.8},
		"largest allowed upload":           {film(4, 10*1.073741824, 60, nil), 10.7, 39.1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := Make(tt.source)
			copied, all := p.Space()
			if math.Abs(float64(copied)/gb-tt.copied) > 0.02*tt.copied || math.Abs(float64(all)/gb-tt.all) > 0.02*tt.all {
				t.Errorf("Space = %.2f and %.2f GB, want %g and %g GB", float64(copied)/gb, float64(all)/gb, tt.copied, tt.all)
			}
			for _, part := range p.Parts() {
				if part := p.PartSpace(part); part > all {
					t.Errorf("PartSpace = %d bytes, want at most %d, the space of the whole plan", part, all)
				}
			}
		})
	}
}
