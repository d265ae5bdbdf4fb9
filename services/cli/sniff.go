package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

// looksLikeVideo rejects a file unless its first bytes match a container that the service accepts.
// A stranger's text may have made an assistant choose the file, and a private file must not leave
// this machine. The service does all other checks.
func looksLikeVideo(path string) error {
	if info, err := os.Stat(path); err != nil {
		return err
	} else if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path) // opening a pipe would block
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // opened only for reading
	head := make([]byte, 4*192)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return err
	}
	if !container(head[:n]) {
		return &client.VideoError{
			Code:    "NOT_A_VIDEO",
			Message: "The file does not look like a video, so it was not sent. Choose an MP4, MOV, MKV, WebM, AVI, FLV, MPEG or Ogg file.",
		}
	}
	return nil
}

// container reports whether a file that begins with head may be a video.
func container(head []byte) bool {
	at := func(i int, want string) bool { return len(head) >= i+len(want) && string(head[i:i+len(want)]) == want }
	for _, atom := range []string{"ftyp", "moov", "mdat", "wide", "free", "skip", "pnot", "styp", "uuid"} { // MP4, MOV, 3GP
		if at(4, atom) {
			return true
		}
	}
	switch {
	case at(0, "\x1a\x45\xdf\xa3"), // Matroska, WebM
		at(0, "RIFF") && at(8, "AVI "),
		at(0, "FLV\x01"), at(0, "OggS"),
		at(0, "\x00\x00\x01\xba"), at(0, "\x00\x00\x01\xb3"): // MPEG program and elementary streams
		return true
	}
	// An MPEG transport stream begins each packet with G. Some streams have four bytes before the
	// G.
	for _, packet := range []struct{ from, length int }{{0, 188}, {4, 192}} {
		if last := packet.from + 2*packet.length; len(head) > last && bytes.Count(
			[]byte{head[packet.from], head[packet.from+packet.length], head[last]}, []byte{'G'},
		) == 3 {
			return true
		}
	}
	return false
}
