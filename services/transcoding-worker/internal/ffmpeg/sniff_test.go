package ffmpeg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
)

func TestTheBodyOfAFormIsRecognised(t *testing.T) {
	t.Parallel()
	part := "Content-Disposition: form-data; name=\"file\"; filename=\"clip.mp4\"\r\nContent-Type: video/mp4\r\n\r\n\x00\x00\x00\x18ftypisom"
	for text, want := range map[string]bool{
		"--------------------------d74496d66958873e\r\n" + part: true,
		"------WebKitFormBoundary7MA4YWxkTrZu0gW\r\n" + part:    true,
		"--b\n" + strings.ToLower(part):                         true,
		"--b\r\nContent-Type: text/plain\r\n":                   false,
		"-- a comment\nselect 1":                                false,
		part:                                                    false, "--": false, "": false,
	} {
		if got := isForm(strings.NewReader(text)); got != want {
			t.Errorf("isForm(%q) = %v, want %v", text, got, want)
		}
	}
}

func TestSniffJudgesByContentAlone(t *testing.T) {
	t.Parallel()
	packets := func(size, lead int) string {
		p := "G" + strings.Repeat("\x00", size-1)
		return strings.Repeat("\x01", lead) + strings.Repeat(p, 8)
	}
	tests := []struct {
		name, head string
		kind       Kind
		demuxer    string
	}{
		{"mp4", "\x00\x00\x00\x18ftypisom", AcceptVideo, "mov"},
		{"QuickTime without ftyp", "\x00\x00\x10\x00moov", AcceptVideo, "mov"},
		{"QuickTime with mdat first", "\x00\x00\x00\x08wide", AcceptVideo, "mov"},
		{"heic", "\x00\x00\x00\x18ftypheic", NotVideo, ""},
		{"matroska", "\x1aE\xdf\xa3\x01", AcceptVideo, "matroska"},
		{"avi", "RIFF\x00\x00\x00\x00AVI LIST", AcceptVideo, "avi"},
		{"wav", "RIFF\x00\x00\x00\x00WAVEfmt ", NotVideo, ""},
		{"webp", "RIFF\x00\x00\x00\x00WEBPVP8 ", NotVideo, ""},
		{"flv", "FLV\x01\x05", AcceptVideo, "flv"},
		{"ogg", "OggS\x00", AcceptVideo, "ogg"},
		{"program stream", "\x00\x00\x01\xba\x44", AcceptVideo, "mpeg"},
		{"transport stream", packets(188, 0), AcceptVideo, "mpegts"},
		{"transport stream with time codes", packets(192, 4), AcceptVideo, "mpegts"},
		{"transport stream that starts mid-packet", packets(188, 77), AcceptVideo, "mpegts"},
		{"wmv", "\x30\x26\xb2\x75\x8e\x66\xcf\x11", OtherVideo, ""},
		{"gif", "GIF89a", OtherVideo, ""},
		{"jpeg", "\xff\xd8\xff\xe0", NotVideo, ""},
		{"playlist", "#EXTM3U\n", NotVideo, ""},
		{"text with only the letter G", strings.Repeat("GOOD ", 20), NotVideo, ""},
		{"one byte", "G", NotVideo, ""},
		{"empty file", "", NotVideo, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			kind, demuxer, err := Sniff(strings.NewReader(tt.head))
			if err != nil || kind != tt.kind || demuxer != tt.demuxer {
				t.Errorf("Sniff = %v, %q, %v; want %v, %q", kind, demuxer, err, tt.kind, tt.demuxer)
			}
		})
	}
}

func FuzzSniff(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x18ftypisom"))
	f.Add([]byte(strings.Repeat("G"+strings.Repeat("\x00", 187), 6)))
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, demuxer := sniff(b)
		if (kind == AcceptVideo) != (demuxer != "") {
			t.Errorf("Sniff = %v with demuxer %q, want a demuxer if and only if the kind is AcceptVideo", kind, demuxer)
		}
	})
}

// atom returns a box with content.
func atom(name string, content ...[]byte) []byte {
	body := bytes.Join(content, nil)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+8)), append([]byte(name), body...)...)
}

func words(v ...uint32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.BigEndian.AppendUint32(b, x)
	}
	return b
}

// movie returns a file with payload bytes of data, followed by an index with one track. The
// track has chunks at offsets, each with two samples of size bytes.
func movie(payload int, size uint32, offsets ...uint32) []byte {
	stbl := atom("stbl",
		atom("stsz", words(0, 0, uint32(2*len(offsets))), words(slicesOf(size, 2*len(offsets))...)),
		atom("stsc", words(0, 1, 1, 2, 1)),
		atom("stco", words(0, uint32(len(offsets))), words(offsets...)))
	return append(atom("mdat", make([]byte, payload)), atom("moov", atom("trak", atom("mdia", atom("minf", stbl))))...)
}

func slicesOf(v uint32, n int) []uint32 {
	s := make([]uint32, n)
	for i := range s {
		s[i] = v
	}
	return s
}

func TestCheckTablesFindsSamplesThatAreNotThere(t *testing.T) {
	t.Parallel()
	whole := movie(1000, 100, 8, 208, 408)
	// shared returns a file with the given number of chunks. Each chunk has one sample, and
	// all samples use the same bytes.
	shared := func(handler string, chunks int, sizes ...uint32) []byte {
		stsz := append([]uint32{0, 0, uint32(chunks)}, slicesOf(100, chunks)...)
		if len(sizes) > 0 {
			stsz = []uint32{0, sizes[0], uint32(chunks)}
		}
		stbl := atom("stbl", atom("stsz", words(stsz...)), atom("stsc", words(0, 1, 1, 1, 1)),
			atom("stco", words(0, uint32(chunks)), words(slicesOf(8, chunks)...)))
		return append(atom("mdat", make([]byte, 1000)), atom("moov", atom("trak", atom("mdia",
			atom("hdlr", words(0, 0), []byte(handler), words(0, 0, 0)), atom("minf", stbl))))...)
	}
	track := movie(10000, 4500, 8)[8+10000+8:]
	mirrored := append(atom("mdat", make([]byte, 10000)), atom("moov", track, track)...)
	tests := []struct {
		name    string
		file    []byte
		corrupt bool
	}{
		{"all samples within the file", whole, false},
		{"a few frames with the same bytes", shared("vide", 10), false},
		{"frames that add up to more bytes than the file", shared("vide", 500), true},
		{"frames of equal size that add up to more bytes than the file", shared("vide", 500, 100), true},
		{"audio samples smaller than the table declares", shared("soun", 500, 100), false},
		{"two tracks with the same bytes", mirrored, false},
		{"junk after the index", append(bytes.Clone(whole), "PK\x03\x04 whatever"...), false},
		{"last chunk beyond the end of the file", movie(1000, 100, 8, 208, 100000), true},
		{"samples too large", movie(1000, 100000, 8), true},
		{"no index", atom("mdat", make([]byte, 100)), true},
		{"index cut off", whole[:len(whole)-10], true},
		{"fragment cut off", append(atom("moov"), append(atom("moof"), atom("mdat", make([]byte, 50))[:30]...)...), true},
		{"table with fewer entries than declared", append(atom("mdat", make([]byte, 100)), atom("moov", atom("trak", atom("mdia", atom("minf", atom("stbl",
			atom("stsz", words(0, 0, 2), words(1, 1)), atom("stsc", words(0, 1, 1, 1, 1)), atom("stco", words(0, 0xffffffff, 8)))))))...), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := CheckTables(bytes.NewReader(tt.file), int64(len(tt.file)))
			if errors.Is(err, ErrCorrupt) != tt.corrupt || (err != nil) != tt.corrupt {
				t.Errorf("CheckTables = %v, want corrupt %v", err, tt.corrupt)
			}
		})
	}
}

func FuzzCheckTables(f *testing.F) {
	f.Add(movie(100, 10, 8, 28))
	f.Add(atom("moov", atom("trak", atom("mdia"))))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_ = CheckTables(bytes.NewReader(b), int64(len(b))) // must not hang or allocate what the file declares
	})
}

func FuzzParsePacket(f *testing.F) {
	f.Add([]byte("0|0.033367|-0.033367|0.033367|12873|K_"))
	f.Add([]byte("1|N/A|N/A|N/A||"))
	f.Add([]byte("0|NaN|1|inf|1|K"))
	f.Add([]byte("0|NaN|-Inf|1|1|K"))
	f.Fuzz(func(t *testing.T, line []byte) {
		p, ok := parsePacket(line)
		if !ok {
			return
		}
		for _, seconds := range []float64{p.pts, p.duration} {
			if math.IsNaN(seconds) || math.IsInf(seconds, 0) {
				t.Errorf("parsePacket(%q) returned a packet with time %v, want a finite time", line, seconds)
			}
		}
	})
}
