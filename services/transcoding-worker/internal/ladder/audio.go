package ladder

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/Eyevinn/mp4ff/aac"
	"github.com/Eyevinn/mp4ff/mp4"
)

// frameSamples is the length of an AAC frame.
const frameSamples = 1024

var sampleRates = []int{96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350}

var errADTS = errors.New("malformed AAC stream")

// adtsFrame reads the header and payload of one frame. It returns io.EOF at the end of the
// stream.
func adtsFrame(r *bufio.Reader) (payload []byte, rate, channels, object int, err error) {
	h, err := r.Peek(7)
	if err != nil {
		if errors.Is(err, io.EOF) && len(h) == 0 {
			return nil, 0, 0, 0, io.EOF
		}
		return nil, 0, 0, 0, errADTS
	}
	index := int(h[2] >> 2 & 0xf)
	length := int(h[3]&3)<<11 | int(h[4])<<3 | int(h[5]>>5)
	header := 7
	if h[1]&1 == 0 {
		header = 9
	}
	if h[0] != 0xff || h[1]&0xf0 != 0xf0 || index >= len(sampleRates) || length < header {
		return nil, 0, 0, 0, errADTS
	}
	object = int(h[2]>>6) + 1
	channels = int(h[2]&1)<<2 | int(h[3]>>6)
	frame := make([]byte, length)
	if _, err := io.ReadFull(r, frame); err != nil {
		return nil, 0, 0, 0, errADTS
	}
	return frame[header:], sampleRates[index], channels, object, nil
}

// packAudio writes an ADTS stream as fMP4 with one fragment per segment. It skips the first drop
// frames of the input, so output frame n starts exactly n frame lengths after zero. The audio
// ends with the video: limit is the duration of the video track in seconds.
func packAudio(adts, out string, drop int, limit float64, cuts []float64) error {
	in, err := os.Open(adts)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	w := bufio.NewWriterSize(file, 256<<10)
	if err := packFrames(bufio.NewReaderSize(in, 64<<10), w, drop, limit, cuts); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return file.Close()
}

func packFrames(in *bufio.Reader, out io.Writer, drop int, limit float64, cuts []float64) error {
	var frag *mp4.Fragment
	var sequence uint32
	flush := func() error {
		if frag == nil {
			return nil
		}
		f := frag
		frag = nil
		f.EncOptimize = mp4.OptimizeTrun
		return f.Encode(out)
	}
	rate, most := 0, 1
	for n := 0; n < most; {
		payload, r, channels, object, err := adtsFrame(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if drop > 0 {
			drop--
			continue
		}
		if rate == 0 {
			rate = r
			most = max(1, int(math.Floor(limit*float64(rate)/frameSamples+0.01)))
			if err := audioInit(rate, channels, object, out); err != nil {
				return err
			}
		}
		at := uint64(n) * frameSamples
		seconds := float64(at) / float64(rate)
		// A fragment begins with the frame closest to a cut.
		if frag == nil || len(cuts) > 0 && seconds >= cuts[0]-0.5*frameSamples/float64(rate) {
			for len(cuts) > 0 && seconds >= cuts[0]-0.5*frameSamples/float64(rate) {
				cuts = cuts[1:]
			}
			if err := flush(); err != nil {
				return err
			}
			sequence++
			if frag, err = mp4.CreateFragment(sequence, mp4.DefaultTrakID); err != nil {
				return err
			}
		}
		frag.AddFullSample(mp4.FullSample{
			Sample:     mp4.Sample{Flags: mp4.SyncSampleFlags, Dur: frameSamples, Size: uint32(len(payload))},
			DecodeTime: at, Data: payload,
		})
		n++
	}
	if rate == 0 {
		return fmt.Errorf("%w: no frames", errADTS)
	}
	return flush()
}

func audioInit(rate, channels, object int, out io.Writer) error {
	if object != int(aac.AAClc) || channels < 1 || channels > 2 {
		return fmt.Errorf("%w: object type %d with %d channels", errADTS, object, channels)
	}
	init := mp4.CreateEmptyInit()
	init.AddEmptyTrack(uint32(rate), "audio", "und")
	config := aac.AudioSpecificConfig{ObjectType: aac.AAClc, ChannelConfiguration: byte(channels), SamplingFrequency: rate}
	var buf bytes.Buffer
	if err := config.Encode(&buf); err != nil {
		return err
	}
	esds := mp4.CreateEsdsBox(buf.Bytes())
	init.Moov.Trak.Mdia.Minf.Stbl.Stsd.AddChild(mp4.CreateAudioSampleEntryBox("mp4a", uint16(channels), 16, uint16(rate), esds))
	return init.Encode(out)
}

// countFrames counts the frames in an ADTS stream.
func countFrames(adts string) (int, error) {
	in, err := os.Open(adts)
	if err != nil {
		return 0, err
	}
	defer func() { _ = in.Close() }()
	r := bufio.NewReaderSize(in, 64<<10)
	for n := 0; ; n++ {
		if _, _, _, _, err := adtsFrame(r); errors.Is(err, io.EOF) {
			return n, nil
		} else if err != nil {
			return 0, err
		}
	}
}
