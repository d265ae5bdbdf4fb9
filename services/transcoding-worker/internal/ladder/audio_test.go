package ladder

import (
	"bufio"
	"bytes"
	"testing"

	"github.com/Eyevinn/mp4ff/aac"
	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/services/transcoding-worker/internal/fmp4"
)

func adts(t testing.TB, frames int) []byte {
	t.Helper()
	var b bytes.Buffer
	for i := range frames {
		payload := bytes.Repeat([]byte{byte(i)}, 20+i%7)
		h, err := aac.NewADTSHeader(48000, 2, aac.AAClc, uint16(len(payload)))
		if err != nil {
			t.Fatal(err)
		}
		b.Write(h.Encode())
		b.Write(payload)
	}
	return b.Bytes()
}

func TestSoundIsCutWithThePicture(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cuts := []float64{6.006, 12.012}
	if err := packFrames(bufio.NewReader(bytes.NewReader(adts(t, 1000))), &out, 3, 15, cuts); err != nil {
		t.Fatal(err)
	}
	track, err := fmp4.ReadTrack(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := track.Check(); err != nil {
		t.Error(err)
	}
	if !track.Audio || track.Codecs != "mp4a.40.2" || track.Timescale != 48000 {
		t.Errorf("got track %+v, want AAC audio with 48,000 ticks per second", track)
	}
	if got, want := track.Samples(), 703; got != want { // 15 s is 703.1 frames
		t.Errorf("the track has %d frames, want %d", got, want)
	}
	var counts []int
	for _, f := range track.Fragments {
		counts = append(counts, f.Samples)
	}
	if diff := cmp.Diff([]int{282, 281, 140}, counts); diff != "" {
		t.Errorf("frames per segment (-want +got):\n%s", diff)
	}
	data := out.Bytes()[bytes.Index(out.Bytes(), []byte("mdat"))+4:]
	if !bytes.HasPrefix(data, bytes.Repeat([]byte{3}, 23)) {
		t.Errorf("the first frame is % x, want the fourth input frame", data[:23])
	}
}

func TestVeryShortSoundStillHasAFrame(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := packFrames(bufio.NewReader(bytes.NewReader(adts(t, 2))), &out, 0, 0.001, nil); err != nil {
		t.Fatal(err)
	}
	if track, err := fmp4.ReadTrack(bytes.NewReader(out.Bytes())); err != nil || track.Samples() != 1 {
		t.Errorf("ReadTrack = %+v, %v; want one frame", track, err)
	}
}

func FuzzADTS(f *testing.F) {
	f.Add(adts(f, 3))
	f.Add([]byte{0xff, 0xf1, 0x4c, 0x80, 0, 0x1f, 0xfc})
	f.Fuzz(func(_ *testing.T, b []byte) {
		var out bytes.Buffer
		_ = packFrames(bufio.NewReader(bytes.NewReader(b)), &out, 1, 1, []float64{0.1})
	})
}
