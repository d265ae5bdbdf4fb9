package hls

import (
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/transcode"
)

func sample() *transcode.Outcome {
	return &transcode.Outcome{
		Version: 1, Path: transcode.PathTranscode, Prefix: "videos/vid/7-1/", Duration: 10, Width: 1920, Height: 1080, FrameRate: 30, HasAudio: true,
		Renditions: []transcode.Rendition{
			{Name: "1080p", Object: "videos/vid/7-1/1080p.mp4", Width: 1920, Height: 1080, FrameRate: 30, Codecs: "avc1.640028", Bandwidth: 5000000, AverageBandwidth: 4000000,
				Init: transcode.Range{Size: 800}, Segments: transcode.Segments{segment(800, 1000, 6), segment(1800, 500, 4)}},
			{Name: "720p", Object: "videos/vid/7-1/720p.mp4", Width: 1280, Height: 720, FrameRate: 30, Codecs: "avc1.64001f", Bandwidth: 2500000, AverageBandwidth: 2000000},
		},
		Audio:      &transcode.Rendition{Name: "audio", Object: "videos/vid/7-1/audio.mp4", Codecs: "mp4a.40.2", Channels: 2, Bandwidth: 130000, AverageBandwidth: 128000},
		Storyboard: &transcode.Storyboard{Objects: []string{"videos/vid/7-1/sb0.jpg"}, Columns: 2, Rows: 2, TileWidth: 160, TileHeight: 90, Interval: 5, Count: 2},
	}
}

func segment(offset, size int64, seconds float64) transcode.Segment {
	return transcode.Segment{Range: transcode.Range{Offset: offset, Size: size}, Duration: seconds}
}

func TestMasterPlaylistListsTheStartRungFirstAndAddsTheSound(t *testing.T) {
	t.Parallel()
	got := MasterPlaylist(sample(), func(r transcode.Rendition) string { return r.Name + ".m3u8" }, Caption{Lang: "de", Name: `Deu"tsch`, URI: "de.m3u8"})
	want := `#EXTM3U
#EXT-X-VERSION:7
#EXT-X-INDEPENDENT-SEGMENTS
#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio",NAME="Audio",DEFAULT=YES,AUTOSELECT=YES,CHANNELS="2",URI="audio.m3u8"
#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID="subs",NAME="Deutsch",LANGUAGE="de",DEFAULT=NO,AUTOSELECT=YES,FORCED=NO,URI="de.m3u8"
#EXT-X-STREAM-INF:BANDWIDTH=2630000,AVERAGE-BANDWIDTH=2128000,CODECS="avc1.64001f,mp4a.40.2",RESOLUTION=1280x720,FRAME-RATE=30.000,CLOSED-CAPTIONS=NONE,AUDIO="audio",SUBTITLES="subs"
720p.m3u8
#EXT-X-STREAM-INF:BANDWIDTH=5130000,AVERAGE-BANDWIDTH=4128000,CODECS="avc1.640028,mp4a.40.2",RESOLUTION=1920x1080,FRAME-RATE=30.000,CLOSED-CAPTIONS=NONE,AUDIO="audio",SUBTITLES="subs"
1080p.m3u8
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("master playlist (-want +got):\n%s", diff)
	}
}

func TestMediaPlaylistAddressesByteRangesOfOneObject(t *testing.T) {
	t.Parallel()
	want := `#EXTM3U
#EXT-X-VERSION:7
#EXT-X-TARGETDURATION:6
#EXT-X-MEDIA-SEQUENCE:0
#EXT-X-PLAYLIST-TYPE:VOD
#EXT-X-INDEPENDENT-SEGMENTS
#EXT-X-MAP:URI="https://s/1080p.mp4?sig=a",BYTERANGE="800@0"
#EXTINF:6.000000,
#EXT-X-BYTERANGE:1000@800
https://s/1080p.mp4?sig=a
#EXTINF:4.000000,
#EXT-X-BYTERANGE:500@1800
https://s/1080p.mp4?sig=a
#EXT-X-ENDLIST
`
	playlist, size := MediaPlaylist(sample().Renditions[0], "https://s/1080p.mp4?sig=a")
	// TestReader also reads the playlist byte by byte.
	if err := iotest.TestReader(playlist, []byte(want)); err != nil || size != len(want) {
		t.Errorf("the media playlist is %d bytes long, want %d; TestReader returned %v, want nil", size, len(want), err)
	}
}

func TestStoryboardVTTPointsIntoTheSheet(t *testing.T) {
	t.Parallel()
	want := "WEBVTT\n\n00:00:00.000 --> 00:00:05.000\nu#xywh=0,0,160,90\n\n00:00:05.000 --> 00:00:10.000\nu#xywh=160,0,160,90\n"
	if diff := cmp.Diff(want, StoryboardVTT(sample(), func(string) string { return "u" })); diff != "" {
		t.Errorf("storyboard (-want +got):\n%s", diff)
	}
}

func TestMonoIsDeclaredAsMonoAndAnUnknownCountNotAtAll(t *testing.T) {
	t.Parallel()
	for channels, want := range map[int]string{1: `,CHANNELS="1",URI=`, 2: `,CHANNELS="2",URI=`, 0: `AUTOSELECT=YES,URI=`} {
		o := sample()
		o.Audio.Channels = channels
		if got := MasterPlaylist(o, func(r transcode.Rendition) string { return r.Name }); !strings.Contains(got, want) {
			t.Errorf("the playlist for %d channels does not contain %s:\n%s", channels, want, got)
		}
	}
}
