package transcode

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func sample() *Outcome {
	return &Outcome{
		Version: 1, Path: PathTranscode, Prefix: "videos/vid/7-1/", Duration: 10, Width: 1920, Height: 1080, FrameRate: 30, HasAudio: true,
		Renditions: []Rendition{
			{Name: "1080p", Object: "videos/vid/7-1/1080p.mp4", Width: 1920, Height: 1080, FrameRate: 30, Codecs: "avc1.640028", Bandwidth: 5000000, AverageBandwidth: 4000000,
				Init: Range{0, 800}, Segments: Segments{{Range{800, 1000}, 6}, {Range{1800, 500}, 4}}},
			{Name: "720p", Object: "videos/vid/7-1/720p.mp4", Width: 1280, Height: 720, FrameRate: 30, Codecs: "avc1.64001f", Bandwidth: 2500000, AverageBandwidth: 2000000},
		},
		Audio:      &Rendition{Name: "audio", Object: "videos/vid/7-1/audio.mp4", Codecs: "mp4a.40.2", Bandwidth: 130000, AverageBandwidth: 128000},
		Storyboard: &Storyboard{Objects: []string{"videos/vid/7-1/sb0.jpg"}, Columns: 2, Rows: 2, TileWidth: 160, TileHeight: 90, Interval: 5, Count: 2},
	}
}

func TestOutcomeSurvivesItsStoredForm(t *testing.T) {
	t.Parallel()
	b, err := MarshalOutcome(sample())
	if err != nil {
		t.Fatal(err)
	}
	got, err := UnmarshalOutcome(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), got); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
}

func TestLongOutcomeStaysSmall(t *testing.T) {
	t.Parallel()
	var table Segments
	for i := range 2400 { // four hours
		table = append(table, Segment{Range{int64(i) * 3_000_000, 3_000_000}, 6.006})
	}
	o := &Outcome{}
	for range 5 {
		o.Renditions = append(o.Renditions, Rendition{Segments: table})
	}
	b, err := MarshalOutcome(o)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 200_000 {
		t.Errorf("the tables of a four-hour video take %d bytes, want at most 200000", len(b))
	}
}

func FuzzSegments(f *testing.F) {
	f.Add(`"oI0GgPgC"`)
	f.Add(`""`)
	f.Fuzz(func(t *testing.T, text string) {
		var s Segments
		if s.UnmarshalJSON([]byte(text)) != nil {
			return
		}
		for _, seg := range s {
			if seg.Offset < 0 || seg.Size < 0 || seg.Duration < 0 {
				t.Fatalf("segment %+v has a negative value, want none", seg)
			}
		}
	})
}

func TestParsePrefixReadsWhatJobsWrote(t *testing.T) {
	t.Parallel()
	tests := []struct {
		object  string
		gen     int64
		attempt int
		ok      bool
	}{
		{"videos/vid/7-1/1080p.mp4", 7, 1, true},
		{Prefix("vid", 12, 3) + "x", 12, 3, true},
		{PartsPrefix("vid", 12) + "0-2/720p.mp4", 12, 0, true},
		{"videos/vid/parts-x/0-2/720p.mp4", 0, 0, false},
		{"videos/vid/captions/de.vtt", 0, 0, false},
		{"videos/other/7-1/1080p.mp4", 0, 0, false},
		{"videos/vid/7-1", 0, 0, false},
	}
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.object, "/", "_"), func(t *testing.T) {
			t.Parallel()
			gen, attempt, ok := ParsePrefix("vid", tt.object)
			if ok != tt.ok || (ok && (gen != tt.gen || attempt != tt.attempt)) {
				t.Errorf("ParsePrefix(%q) = %d, %d, %v; want %d, %d, %v", tt.object, gen, attempt, ok, tt.gen, tt.attempt, tt.ok)
			}
		})
	}
}

func TestParseRenditionReadsOnlyWhatWorkersName(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]RenditionName{
		Prefix("vid", 12, 3) + "720p.mp4":         {12, 3, "720p"},
		Prefix("vid", 12, 3) + "1080p-source.mp4": {12, 3, "1080p"},
		Prefix("vid", 12, 3) + "audio.mp4":        {12, 3, "audio"},
	} {
		if got, ok := ParseRendition("vid", object); !ok || got != want {
			t.Errorf("ParseRendition(%q) = %v, %v; want %v", object, got, ok, want)
		}
	}
	for _, object := range []string{
		"videos/vid/012-3/720p.mp4", "videos/vid/12-000003/720p.mp4", "videos/vid/+12-3/720p.mp4", "videos/vid/12-+3/720p.mp4",
		"videos/other/12-3/720p.mp4", "videos/vid/12-3/poster.jpg", "videos/vid/12-3", "videos/vid/12-3.mp4",
		PartsPrefix("vid", 12) + "0-2/720p.mp4", "videos/vid/captions/en-x.vtt",
	} {
		if got, ok := ParseRendition("vid", object); ok {
			t.Errorf("ParseRendition(%q) = %v, want none", object, got)
		}
	}
}

func TestPrefixOfIsTheOutcomes(t *testing.T) {
	t.Parallel()
	b, err := MarshalOutcome(sample())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := PrefixOf(b); err != nil || got != sample().Prefix {
		t.Errorf("PrefixOf = %q, %v; want %q", got, err, sample().Prefix)
	}
}
