package ffmpeg

import (
	"math"
	"testing"

	"github.com/linkreel/linkreel/libs/transcode"
)

func TestTheLastPictureIsHeldForSoundThatHasSamples(t *testing.T) {
	t.Parallel()
	const picture, sound = 0, 1
	for name, tt := range map[string]struct {
		packets int     // number of audio packets, each a tenth of a second long
		last    float64 // time of one additional audio packet; 0 for none
		discard bool
		hold    float64
		silent  bool
	}{
		"audio as long as the video":         {packets: 20},
		"audio one packet longer":            {packets: 22},
		"audio three seconds longer":         {packets: 50, hold: 3},
		"late packet":                        {packets: 20, last: 3600, hold: 2.1},
		"inaudible audio":                    {packets: 50, discard: true, silent: true},
		"inaudible audio with a late packet": {packets: 20, last: 3600, discard: true, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Source{Video: Video{Index: picture, Codec: "h264", PixelFormat: "yuv420p"}, Audio: &Audio{Index: sound}}
			c := scanner{source: s}
			for i := range 50 {
				c.add(packet{stream: picture, pts: float64(i) / 25, duration: 1.0 / 25, size: 100, key: i == 0}, false)
			}
			for i := range tt.packets {
				c.add(packet{stream: sound, pts: float64(i) / 10, duration: 0.1, discard: tt.discard}, false)
			}
			if tt.last > 0 {
				c.add(packet{stream: sound, pts: tt.last, duration: 0.1, discard: tt.discard}, false)
			}
			if err := c.finish(transcode.Limits{}); err != nil {
				t.Fatal(err)
			}
			if math.Abs(s.Video.Hold-tt.hold) > 0.001 || (s.Audio == nil) != tt.silent {
				t.Errorf("Hold = %v s and Audio = %v, want %v s and silent = %t", s.Video.Hold, s.Audio, tt.hold, tt.silent)
			}
		})
	}
}
