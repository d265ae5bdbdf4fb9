package ffmpeg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

// Kind is a file's kind, as determined by its first bytes.
type Kind int

// The kinds of file. Only files of kind AcceptVideo are ever given to ffmpeg.
const (
	NotVideo    Kind = iota // text, archives, images, audio, random data
	OtherVideo              // a video format that is not accepted
	AcceptVideo             // one of the accepted containers
)

// sniffSize is enough for the longest pattern that Sniff needs: a few hundred transport
// stream packets after some leading garbage.
const sniffSize = 128 << 10

// Sniff determines a file's kind from its content alone. For an accepted container it also returns
// the name of ffmpeg's demuxer.
func Sniff(r io.ReaderAt) (kind Kind, demuxer string, err error) {
	buf := make([]byte, sniffSize)
	n, err := r.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return NotVideo, "", err
	}
	kind, demuxer = sniff(buf[:n])
	return kind, demuxer, nil
}

func sniff(b []byte) (Kind, string) {
	has := func(at int, magic string) bool {
		return len(b) >= at+len(magic) && string(b[at:at+len(magic)]) == magic
	}
	switch {
	case isISO(b):
		if imageBrand(b) {
			return NotVideo, ""
		}
		return AcceptVideo, "mov"
	case has(0, "\x1aE\xdf\xa3"):
		return AcceptVideo, "matroska"
	case has(0, "RIFF") && (has(8, "AVI ") || has(8, "AVIX")):
		return AcceptVideo, "avi"
	case has(0, "FLV"):
		return AcceptVideo, "flv"
	case has(0, "OggS"):
		return AcceptVideo, "ogg"
	case has(0, "\x00\x00\x01\xba"):
		return AcceptVideo, "mpeg"
	case has(0, "RIFF") && has(8, "CDXA"):
		return OtherVideo, ""
	case has(0, "GIF8"), // animated images; GIF is not an accepted container
		has(0, "\x30\x26\xb2\x75\x8e\x66\xcf\x11"),         // ASF, WMV
		has(0, "\x06\x0e\x2b\x34\x02\x05\x01\x01\x0d\x01"), // MXF
		has(0, ".RMF"), has(0, "DKIF"), has(0, "YUV4MPEG2"), has(0, "nut/multimedia container"),
		has(0, "\x00\x00\x01\xb3"),                 // MPEG video without a container
		has(0, "\x00\x00\x00\x01"),                 // H.264 or HEVC without a container
		has(0, "\x00\x00\x01\x67"),                 // the same, with a short start code
		has(0, "\xb7\xd8\x00\x20\x37\x49\xda\x11"), // WTV
		has(0, "\x1f\x07\x00"), has(0, "LXF\x00"):  // DV, Leitch
		return OtherVideo, ""
	case isTransportStream(b):
		return AcceptVideo, "mpegts"
	}
	return NotVideo, ""
}

// isForm reports whether a file is the body of a form (multipart/form-data), as sent by `curl -F`
// and a browser's FormData. Such a body starts with a line that contains the boundary, followed
// by the header of the first part.
func isForm(r io.ReaderAt) bool {
	buf := make([]byte, 512) // a boundary is at most 70 characters long
	n, err := r.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false // cannot fail: the caller has already read these bytes
	}
	boundary, header, ok := bytes.Cut(buf[:n], []byte("\n"))
	return ok && bytes.HasPrefix(boundary, []byte("--")) && bytes.HasPrefix(bytes.ToLower(header), []byte("content-disposition: form-data"))
}

// isISO reports whether b starts like MP4, QuickTime or 3GP: with a plausible size and a type
// that is valid for the first box.
func isISO(b []byte) bool {
	if len(b) < 8 {
		return false
	}
	size := binary.BigEndian.Uint32(b)
	if size != 0 && size != 1 && size < 8 {
		return false
	}
	switch string(b[4:8]) {
	case "ftyp", "styp", "moov", "moof", "mdat", "free", "skip", "wide", "pnot", "sidx":
		return true
	}
	return false
}

func imageBrand(b []byte) bool {
	if len(b) < 12 || string(b[4:8]) != "ftyp" {
		return false
	}
	switch string(b[8:12]) {
	case "heic", "heix", "heim", "heis", "mif1", "avif", "jxl ", "crx ":
		return true
	}
	return false
}

// isTransportStream checks for the sync byte at constant intervals. Packets may be plain, or have
// a time code before them or error correction after them. The stream may start in the middle of a
// packet.
func isTransportStream(b []byte) bool {
	for _, size := range []int{188, 192, 204} {
		need := 5
		for start := 0; start < min(size, len(b)); start++ {
			next := bytes.IndexByte(b[start:min(size, len(b))], 0x47)
			if next < 0 {
				break
			}
			start += next
			seen := 0
			for at := start; at < len(b) && b[at] == 0x47; at += size {
				seen++
			}
			if whole := (len(b) - start + size - 1) / size; seen >= need || seen >= 2 && seen == whole && start == 0 {
				return true
			}
		}
	}
	return false
}
