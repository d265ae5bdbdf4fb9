package media

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/transcode"
)

// item is one file in the corpus and its expected result.
type item struct {
	name string
	make func(m *maker) string // returns the path of the file
	code transcode.Code        // the expected failure; empty if the file must become ready

	// These fields describe the expected result of a ready file. frames and rate are the values for
	// full-rate renditions after the frame-rate rule is applied.
	frames        int
	slack         int // allowed difference in frames for a damaged or irregular source
	rate          float64
	width, height int
	silent        bool
	copied        bool // the file uses the fast path
	rungs         int

	limits func(*transcode.Limits)
	often  bool // part of every run, not only of a full run
}

// maker makes files with ffmpeg.
type maker struct {
	t      testing.TB
	dir    string
	canary string // the absolute path of a file with content that must not appear in any output
	remote string // a URL that programs must not call
}

func (m *maker) path(name string) string { return filepath.Join(m.dir, name) }

// ff runs ffmpeg and returns the path of its output file, which is the last argument.
func (m *maker) ff(args string) string {
	m.t.Helper()
	fields := strings.Fields(args)
	out := m.path(fields[len(fields)-1])
	fields[len(fields)-1] = out
	for i, f := range fields {
		if rest, ok := strings.CutPrefix(f, "@"); ok {
			fields[i] = m.path(rest)
		}
	}
	cmd := exec.Command("ffmpeg", append([]string{"-nostdin", "-v", "error", "-y"}, fields...)...)
	cmd.Dir = m.dir
	if b, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("ffmpeg %s failed: %v\n%s", args, err, b)
	}
	return out
}

func (m *maker) write(name string, parts ...string) string {
	m.t.Helper()
	path := m.path(name)
	if err := os.WriteFile(path, []byte(strings.Join(parts, "")), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return path
}

func (m *maker) read(path string) []byte {
	m.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	return b
}

// edit changes the bytes of a file.
func (m *maker) edit(path string, change func([]byte) []byte) string {
	m.t.Helper()
	if err := os.WriteFile(path, change(m.read(path)), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// The inputs are a moving picture and a tone.
func video(size, rate string, seconds float64) string {
	return fmt.Sprintf("-f lavfi -i testsrc2=s=%s:r=%s:d=%g", size, rate, seconds)
}

func tone(seconds float64) string {
	return fmt.Sprintf("-f lavfi -i sine=f=440:r=48000:d=%g", seconds)
}

const (
	x264 = " -c:v libx264 -preset ultrafast -pix_fmt yuv420p "
	aac  = " -c:a aac -b:a 96k "
)

func clip(args string) func(*maker) string {
	return func(m *maker) string { return m.ff(args) }
}

func random(n int) string {
	b := make([]byte, n)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(b)
	return string(b)
}

// boxAt finds a box by name and returns the offset of its content.
func boxAt(b []byte, name string) int {
	at := bytes.Index(b, []byte(name))
	if at < 4 {
		panic("the file has no box " + name)
	}
	return at + 4
}

var good = []item{
	// Containers and codecs.
	{name: "mp4-h264-aac", make: clip(video("640x360", "30", 3) + " " + tone(3) + x264 + "-g 60" + aac + "a.mp4"), frames: 90, rate: 30, width: 640, height: 360, copied: true, rungs: 1, often: true},
	{name: "mp4-faststart-1080p", make: clip(video("1920x1080", "30000/1001", 2) + " " + tone(2) + x264 + "-crf 35 -g 60 -movflags +faststart" + aac + "a.mp4"), frames: 60, rate: 29.97, width: 1920, height: 1080, copied: true, rungs: 4},
	{name: "mp4-fragmented", make: clip(video("640x360", "25", 3) + " " + tone(3) + x264 + "-g 50 -movflags +frag_keyframe+empty_moov" + aac + "a.mp4"), frames: 75, slack: 1, rate: 25, width: 640, height: 360, rungs: 1},
	{name: "mp4-open-gop", make: clip(video("640x360", "25", 4) + x264 + "-preset fast -bf 3 -g 25 -x264-params open-gop=1 a.mp4"), frames: 100, rate: 25, width: 640, height: 360, silent: true, copied: true},
	{name: "mov-h264-pcm", make: clip(video("640x360", "24000/1001", 3) + " " + tone(3) + x264 + "-g 48 -c:a pcm_s16be a.mov"), frames: 72, rate: 23.976, width: 640, height: 360, copied: true},
	{name: "mov-prores-422", make: clip(video("640x360", "25", 2) + " " + tone(2) + " -c:v prores_ks -c:a pcm_s24le a.mov"), frames: 50, rate: 25, width: 640, height: 360, often: true},
	{name: "mov-prores-4444-alpha", make: clip(video("640x360", "25", 1) + " -c:v prores_ks -profile:v 4444 -pix_fmt yuva444p10le a.mov"), frames: 25, rate: 25, width: 640, height: 360, silent: true},
	{name: "mov-qtrle-rgb", make: clip(video("320x240", "15", 2) + " -c:v qtrle a.mov"), frames: 30, rate: 15, width: 320, height: 240, silent: true},
	{name: "mov-mjpeg", make: clip(video("640x360", "30", 2) + " " + tone(2) + " -c:v mjpeg -q:v 4 -pix_fmt yuvj420p -c:a pcm_u8 a.mov"), frames: 60, rate: 30, width: 640, height: 360},
	{name: "mkv-h264-ac3-5.1", make: clip(video("640x360", "30000/1001", 3) + " " + tone(3) + x264 + "-c:a ac3 -ac 6 a.mkv"), frames: 90, rate: 29.97, width: 640, height: 360},
	{name: "mkv-hevc-aac", make: clip(video("640x360", "25", 2) + " " + tone(2) + " -c:v libx265 -preset ultrafast -x265-params log-level=none -pix_fmt yuv420p" + aac + "a.mkv"), frames: 50, rate: 25, width: 640, height: 360},
	{name: "mkv-ffv1-flac", make: clip(video("320x240", "25", 2) + " " + tone(2) + " -c:v ffv1 -c:a flac a.mkv"), frames: 50, rate: 25, width: 320, height: 240},
	{name: "webm-vp9-opus", make: clip(video("640x360", "30", 2) + " " + tone(2) + " -c:v libvpx-vp9 -deadline realtime -cpu-used 8 -c:a libopus a.webm"), frames: 60, rate: 30, width: 640, height: 360, often: true},
	{name: "webm-vp8-vorbis", make: clip(video("640x360", "30", 2) + " " + tone(2) + " -c:v libvpx -deadline realtime -cpu-used 8 -c:a libvorbis a.webm"), frames: 60, rate: 30, width: 640, height: 360},
	{name: "webm-av1-opus", make: clip(video("640x360", "30", 2) + " " + tone(2) + " -c:v libsvtav1 -preset 12 -pix_fmt yuv420p -c:a libopus a.webm"), frames: 60, rate: 30, width: 640, height: 360},
	{name: "avi-mpeg4-mp3", make: clip(video("640x360", "25", 3) + " " + tone(3) + " -c:v mpeg4 -c:a libmp3lame a.avi"), frames: 75, slack: 1, rate: 25, width: 640, height: 360},
	{name: "avi-h264-bframes", make: clip(video("640x360", "25", 3) + " " + tone(3) + " -c:v libx264 -preset veryfast -bf 2 -pix_fmt yuv420p -c:a ac3 a.avi"), frames: 75, slack: 2, rate: 25, width: 640, height: 360},
	{name: "avi-raw-rgb", make: clip(video("160x120", "15", 2) + " " + tone(2) + " -c:v rawvideo -pix_fmt bgr24 -c:a pcm_s16le a.avi"), frames: 30, rate: 15, width: 160, height: 120},
	{name: "mpegts-h264-aac", make: clip(video("640x360", "25", 3) + " " + tone(3) + x264 + "-g 50" + aac + "a.ts"), frames: 75, rate: 25, width: 640, height: 360, often: true},
	{name: "mpegts-mpeg2-mp2", make: clip(video("640x360", "25", 3) + " " + tone(3) + " -c:v mpeg2video -q:v 4 -c:a mp2 a.ts"), frames: 75, slack: 1, rate: 25, width: 640, height: 360},
	{name: "m2ts-camcorder", make: clip(video("640x360", "25", 2) + " " + tone(2) + x264 + "-c:a ac3 -mpegts_m2ts_mode 1 -f mpegts a.m2ts"), frames: 50, rate: 25, width: 640, height: 360},
	{name: "fragments-of-the-same-bytes", make: refragmented, frames: 75, rate: 25, width: 640, height: 360, silent: true, rungs: 1},
	{name: "mpegts-cut-mid-packet", make: func(m *maker) string {
		return m.edit(m.ff(video("640x360", "25", 4)+" "+tone(4)+x264+"-g 25"+aac+"a.ts"), func(b []byte) []byte { return b[100:] })
	}, frames: 75, slack: 26, rate: 25, width: 640, height: 360},
	{name: "mpegps-mpeg2", make: clip(video("640x360", "25", 3) + " " + tone(3) + " -c:v mpeg2video -q:v 4 -c:a mp2 -f vob a.mpg"), frames: 75, slack: 1, rate: 25, width: 640, height: 360},
	{name: "flv-h264-aac", make: clip(video("640x360", "30", 3) + " " + tone(3) + x264 + aac + "a.flv"), frames: 90, rate: 30, width: 640, height: 360},
	{name: "flv-sorenson-mp3", make: clip(video("320x240", "25", 2) + " " + tone(2) + " -c:v flv -c:a libmp3lame -ar 44100 a.flv"), frames: 50, rate: 25, width: 320, height: 240},
	{name: "ogg-theora-vorbis", make: clip(video("640x360", "25", 2) + " " + tone(2) + " -c:v libtheora -c:a libvorbis a.ogv"), frames: 50, rate: 25, width: 640, height: 360},
	{name: "3gp-h263-aac", make: clip(video("176x144", "15", 2) + " " + tone(2) + " -c:v h263" + aac + "-ac 1 -ar 22050 a.3gp"), frames: 30, rate: 15, width: 176, height: 144, slack: 1},

	// Shapes and rates.
	{name: "portrait-rotated-90", make: func(m *maker) string {
		m.ff(video("640x360", "30", 2) + " " + tone(2) + x264 + aac + "b.mp4")
		return m.ff("-i @b.mp4 -c copy -metadata:s:v rotate=90 a.mp4")
	}, frames: 60, rate: 30, width: 360, height: 640, often: true},
	{name: "rotated-180-hevc", make: func(m *maker) string {
		m.ff(video("640x360", "30", 1) + " -c:v libx265 -preset ultrafast -x265-params log-level=none -pix_fmt yuv420p -tag:v hvc1 b.mov")
		return m.ff("-i @b.mov -c copy -metadata:s:v rotate=180 a.mov")
	}, frames: 30, rate: 30, width: 640, height: 360, silent: true},
	{name: "vfr-mp4", make: clip("-f lavfi -i testsrc2=s=640x360:r=60:d=3 -vf select='if(lt(t\\,1)\\,1\\,if(lt(t\\,2)\\,not(mod(n\\,6))\\,not(mod(n\\,2))))' -fps_mode vfr" + x264 + "a.mp4"), frames: 180, slack: 2, rate: 60, width: 640, height: 360, silent: true},
	{name: "vfr-webm", make: clip("-f lavfi -i testsrc2=s=320x240:r=30:d=3 -vf select='not(mod(n\\,3))+lt(n\\,30)' -fps_mode vfr -c:v libvpx -deadline realtime a.webm"), frames: 90, slack: 3, rate: 30, width: 320, height: 240, silent: true},
	{name: "60fps-720p", make: clip(video("1280x720", "60", 2) + " " + tone(2) + " -c:v mpeg4 -q:v 6" + aac + "a.mp4"), frames: 120, rate: 60, width: 1280, height: 720, rungs: 3},
	{name: "60fps-720p-copied", make: clip(video("1280x720", "60", 2) + " " + tone(2) + x264 + "-g 60 -crf 35" + aac + "a.mp4"), frames: 120, rate: 60, width: 1280, height: 720, copied: true, rungs: 3, often: true},
	{name: "59.94fps", make: clip(video("640x360", "60000/1001", 2) + x264 + "a.mkv"), frames: 120, slack: 1, rate: 59.94, width: 640, height: 360, silent: true},
	{name: "120fps-becomes-60", make: clip(video("640x360", "120", 2) + " " + tone(2) + x264 + aac + "a.mp4"), frames: 120, rate: 60, width: 640, height: 360},
	{name: "240fps-becomes-60", make: clip(video("320x240", "240", 1) + x264 + "a.mp4"), frames: 60, rate: 60, width: 320, height: 240, silent: true},
	{name: "1fps", make: clip(video("640x360", "1", 8) + x264 + "a.mp4"), frames: 8, rate: 1, width: 640, height: 360, silent: true, copied: true},
	{name: "12.5fps", make: clip(video("640x360", "25/2", 4) + x264 + "a.mp4"), frames: 50, rate: 12.5, width: 640, height: 360, silent: true, copied: true},
	{name: "hdr10-hevc", make: clip(video("640x360", "25", 1) + " -c:v libx265 -preset ultrafast -pix_fmt yuv420p10le -x265-params log-level=none:colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc a.mp4"), frames: 25, rate: 25, width: 640, height: 360, silent: true},
	{name: "hlg-hevc", make: clip(video("640x360", "25", 1) + " -c:v libx265 -preset ultrafast -pix_fmt yuv420p10le -x265-params log-level=none:colorprim=bt2020:transfer=arib-std-b67:colormatrix=bt2020nc a.mov"), frames: 25, rate: 25, width: 640, height: 360, silent: true},
	{name: "h264-10bit", make: clip(video("640x360", "25", 1) + " -c:v libx264 -preset ultrafast -pix_fmt yuv420p10le a.mp4"), frames: 25, rate: 25, width: 640, height: 360, silent: true},
	{name: "h264-444", make: clip(video("640x360", "25", 1) + " -c:v libx264 -preset ultrafast -pix_fmt yuv444p a.mp4"), frames: 25, rate: 25, width: 640, height: 360, silent: true},
	{name: "interlaced-h264", make: clip(video("720x576", "50", 2) + " " + tone(2) + " -vf interlace=scan=tff -c:v libx264 -preset ultrafast -flags +ilme+ildct -x264-params tff=1 -pix_fmt yuv420p" + aac + "a.mp4"), frames: 50, rate: 25, width: 720, height: 576},
	{name: "anamorphic-pal", make: clip(video("720x576", "25", 1) + " -vf setsar=64/45" + x264 + "a.mp4"), frames: 25, rate: 25, width: 1024, height: 576, silent: true},
	{name: "odd-size", make: clip("-f lavfi -i testsrc=s=853x479:r=25:d=1 -pix_fmt yuv420p -c:v libvpx-vp9 -deadline realtime -cpu-used 8 a.webm"), frames: 25, rate: 25, width: 853, height: 479, silent: true},
	{name: "tiny-64", make: clip(video("64x64", "25", 1) + x264 + "a.mp4"), frames: 25, rate: 25, width: 64, height: 64, silent: true, copied: true},
	{name: "tiny-2", make: clip(video("2x2", "25", 1) + " -c:v ffv1 a.mkv"), frames: 25, rate: 25, width: 2, height: 2, silent: true},
	{name: "ultrawide", make: clip(video("2560x1080", "25", 1) + x264 + "-crf 35 a.mp4"), frames: 25, rate: 25, width: 2560, height: 1080, silent: true, rungs: 4},
	{name: "4k-hevc", make: clip(video("3840x2160", "25", 0.4) + " -c:v libx265 -preset ultrafast -x265-params log-level=none -crf 35 -pix_fmt yuv420p a.mp4"), frames: 10, rate: 25, width: 3840, height: 2160, silent: true, rungs: 4},
	{name: "strip-1920x40", make: clip(video("1920x40", "25", 1) + x264 + "a.mp4"), frames: 25, rate: 25, width: 1920, height: 40, silent: true},
	{name: "one-frame", make: clip(video("320x240", "25", 0.04) + x264 + "a.mp4"), frames: 1, rate: 25, width: 320, height: 240, silent: true},
	{name: "300-ms", make: clip(video("320x240", "30", 0.3) + " " + tone(0.3) + x264 + aac + "a.mp4"), frames: 9, rate: 30, width: 320, height: 240},

	// Sound and timelines.
	{name: "no-sound-1080p", make: clip(video("1920x1080", "25", 1) + " -c:v mpeg4 -q:v 10 a.mp4"), frames: 25, rate: 25, width: 1920, height: 1080, silent: true, rungs: 4},
	{name: "sound-starts-late", make: clip(video("640x360", "25", 3) + " -itsoffset 0.7 " + tone(2) + x264 + aac + "a.mp4"), frames: 75, rate: 25, width: 640, height: 360, copied: true},
	{name: "sound-longer", make: clip(video("640x360", "25", 2) + " " + tone(4) + x264 + aac + "a.mp4"), frames: 100, rate: 25, width: 640, height: 360},
	{name: "sound-a-little-longer", make: clip(video("640x360", "25", 2) + " " + tone(2.2) + x264 + aac + "a.mp4"), frames: 50, rate: 25, width: 640, height: 360, copied: true},
	{name: "sound-longer-variable-rate", make: clip(video("320x240", "60", 2) + " " + tone(5) + " -vf select='lt(mod(n\\,10)\\,3)' -fps_mode vfr -c:v libvpx -deadline realtime -c:a libopus a.webm"), frames: 300, slack: 12, rate: 60, width: 320, height: 240},
	{name: "sound-shorter", make: clip(video("640x360", "25", 3) + " " + tone(1) + x264 + aac + "a.mp4"), frames: 75, rate: 25, width: 640, height: 360, copied: true},
	{name: "picture-starts-late", make: clip("-itsoffset 1.5 " + video("640x360", "25", 2) + " " + tone(3) + x264 + aac + "a.mkv"), frames: 50, rate: 25, width: 640, height: 360},
	{name: "trimmed-by-edit-list", make: func(m *maker) string {
		m.ff(video("640x360", "25", 6) + " " + tone(6) + x264 + "-g 100" + aac + "b.mp4")
		return m.ff("-ss 1.48 -i @b.mp4 -c copy a.mp4")
	}, frames: 113, slack: 1, rate: 25, width: 640, height: 360},
	{name: "languages-and-subtitles", make: func(m *maker) string {
		m.write("s.srt", "1\n00:00:00,000 --> 00:00:01,000\nhello\n")
		return m.ff(video("640x360", "25", 2) + " " + tone(2) + " " + tone(2) + " -i @s.srt -map 0 -map 1 -map 2 -map 3 -c:s mov_text" + x264 + aac + "a.mp4")
	}, frames: 50, rate: 25, width: 640, height: 360, copied: true},
	{name: "sixty-sound-tracks", make: clip(video("320x240", "25", 1) + " " + tone(1) + " -map 0 " + strings.Repeat("-map 1 ", 60) + x264 + " -c:a pcm_s16le a.mkv"), frames: 25, rate: 25, width: 320, height: 240},
	{name: "mono-22k", make: clip(video("640x360", "25", 2) + " " + tone(2) + x264 + aac + "-ac 1 -ar 22050 a.mp4"), frames: 50, rate: 25, width: 640, height: 360, copied: true},
	{name: "cover-art-beside-video", make: func(m *maker) string {
		m.ff(video("600x600", "1", 1) + " -frames:v 1 cover.jpg")
		return m.ff(video("320x240", "25", 2) + " -i @cover.jpg -map 1 -map 0 -c:v:0 mjpeg -c:v:1 libx264 -preset ultrafast -pix_fmt yuv420p -disposition:v:0 attached_pic a.mp4")
	}, frames: 50, rate: 25, width: 320, height: 240, silent: true, copied: true},

	// These files are damaged or have wrong metadata, but are still videos.
	{name: "noise-in-the-middle", make: func(m *maker) string {
		return m.edit(m.ff(video("640x360", "25", 4)+" "+tone(4)+x264+"-g 25 -movflags +faststart"+aac+"a.mp4"), func(b []byte) []byte {
			copy(b[len(b)/2:], random(20000))
			return b
		})
	}, frames: 100, rate: 25, width: 640, height: 360, slack: 1},
	{name: "header-says-hours", make: func(m *maker) string {
		return m.edit(m.ff(video("320x240", "25", 1)+x264+"a.mp4"), func(b []byte) []byte {
			for _, name := range []string{"mvhd", "tkhd", "mdhd"} {
				at := boxAt(b, name) + 16
				if name == "tkhd" {
					at += 4
				}
				binary.BigEndian.PutUint32(b[at:], 1<<30)
			}
			return b
		})
	}, frames: 25, rate: 25, width: 320, height: 240, silent: true, copied: true, often: true},
	{name: "mkv-cut-short", make: func(m *maker) string {
		return m.edit(m.ff(video("320x240", "25", 4)+x264+"-g 25 a.mkv"), func(b []byte) []byte { return b[:len(b)/2] })
	}, frames: 50, slack: 45, rate: 25, width: 320, height: 240, silent: true},
	{name: "zip-behind-mp4", make: func(m *maker) string {
		return m.edit(m.ff(video("320x240", "25", 1)+x264+"a.mp4"), func(b []byte) []byte { return append(b, "PK\x03\x04\x14\x00\x00\x00\x00\x00 not a box"...) })
	}, frames: 25, rate: 25, width: 320, height: 240, silent: true, copied: true},
	{name: "script-in-metadata", make: clip(video("320x240", "25", 1) + x264 + "-metadata title=<script>canary-meta</script> -metadata location=+48.1-canary-gps/ -movflags use_metadata_tags a.mp4"), frames: 25, rate: 25, width: 320, height: 240, silent: true, copied: true},
}

var bad = []item{
	{name: "empty", make: func(m *maker) string { return m.write("a") }, code: transcode.EmptyFile, often: true},
	{name: "one-byte", make: func(m *maker) string { return m.write("a", "x") }, code: transcode.NotAVideo},
	{name: "text", make: func(m *maker) string { return m.write("a.txt", strings.Repeat("Hello, video.\n", 1000)) }, code: transcode.NotAVideo, often: true},
	{name: "random", make: func(m *maker) string { return m.write("a", random(300000)) }, code: transcode.NotAVideo},
	{name: "zip", make: func(m *maker) string { return m.write("a", "PK\x03\x04", random(2000)) }, code: transcode.NotAVideo},
	{name: "pdf", make: func(m *maker) string { return m.write("a", "%PDF-1.7\n", random(2000)) }, code: transcode.NotAVideo},
	{name: "html", make: func(m *maker) string { return m.write("a", "<html><script>alert(1)</script></html>") }, code: transcode.NotAVideo},
	{name: "svg-with-file", make: func(m *maker) string {
		return m.write("a", `<svg xmlns="http://www.w3.org/2000/svg"><image href="file://`, m.canary, `"/></svg>`)
	}, code: transcode.NotAVideo},
	{name: "jpeg", make: clip(video("320x240", "1", 1) + " -frames:v 1 a.jpg"), code: transcode.NotAVideo},
	{name: "png", make: clip(video("320x240", "1", 1) + " -frames:v 1 a.png"), code: transcode.NotAVideo},
	{name: "gif", make: clip(video("160x120", "10", 1) + " a.gif"), code: transcode.UnsupportedFormat},
	{name: "heic-brand", make: func(m *maker) string {
		return m.write("a", "\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic", random(500))
	}, code: transcode.NotAVideo},
	{name: "png-in-mov", make: clip(video("320x240", "1", 1) + " -frames:v 1 -c:v png a.mov"), code: transcode.NotAVideo},
	{name: "mp3", make: clip(tone(1) + " a.mp3"), code: transcode.NotAVideo},
	{name: "mp3-with-cover", make: func(m *maker) string {
		m.ff(video("300x300", "1", 1) + " -frames:v 1 c.jpg")
		return m.ff(tone(1) + " -i @c.jpg -map 0 -map 1 -c:v copy -disposition:v attached_pic a.mp3")
	}, code: transcode.NotAVideo},
	{name: "m4a", make: clip(tone(1) + aac + "a.m4a"), code: transcode.NotAVideo, often: true},
	{name: "m4a-with-cover", make: func(m *maker) string {
		m.ff(video("300x300", "1", 1) + " -frames:v 1 c.jpg")
		return m.ff(tone(1) + " -i @c.jpg -map 0 -map 1" + aac + "-c:v copy -disposition:v attached_pic a.m4a")
	}, code: transcode.NotAVideo},
	{name: "wav", make: clip(tone(1) + " a.wav"), code: transcode.NotAVideo},
	{name: "flac", make: clip(tone(1) + " a.flac"), code: transcode.NotAVideo},
	{name: "webm-sound-only", make: clip(tone(1) + " -c:a libopus a.webm"), code: transcode.NotAVideo},
	{name: "ogg-sound-only", make: clip(tone(1) + " -c:a libvorbis a.ogg"), code: transcode.NotAVideo},
	{name: "mpegts-sound-only", make: clip(tone(1) + aac + "a.ts"), code: transcode.NotAVideo},
	{name: "subtitles", make: func(m *maker) string { return m.write("a.srt", "1\n00:00:00,000 --> 00:00:01,000\nhello\n") }, code: transcode.NotAVideo},
	{name: "hls-naming-a-file", make: func(m *maker) string {
		return m.write("a.mp4", "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nfile://", m.canary, "\n#EXT-X-ENDLIST\n")
	}, code: transcode.NotAVideo, often: true},
	{name: "hls-naming-a-host", make: func(m *maker) string {
		return m.write("a.mp4", "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n", m.remote, "/a.ts\n#EXT-X-ENDLIST\n")
	}, code: transcode.NotAVideo},
	{name: "hls-with-remote-key", make: func(m *maker) string {
		return m.write("a.ts", "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXT-X-KEY:METHOD=AES-128,URI=\"", m.remote, "/k\"\n#EXTINF:5,\nfile://", m.canary, "\n#EXT-X-ENDLIST\n")
	}, code: transcode.NotAVideo},
	{name: "ffconcat", make: func(m *maker) string {
		return m.write("a.mkv", "ffconcat version 1.0\nfile '", m.canary, "'\n")
	}, code: transcode.NotAVideo, often: true},
	{name: "dash", make: func(m *maker) string {
		return m.write("a.mpd", `<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period><AdaptationSet><Representation id="1" bandwidth="1"><BaseURL>`, m.remote, `</BaseURL></Representation></AdaptationSet></Period></MPD>`)
	}, code: transcode.NotAVideo},
	{name: "sdp", make: func(m *maker) string {
		return m.write("a.sdp", "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n")
	}, code: transcode.NotAVideo},
	{name: "avi-with-playlist-subtitles", make: gab2, code: transcode.NotAVideo},
	{name: "mov-with-foreign-data", make: func(m *maker) string {
		// A data reference contains the path of a file because old QuickTime files may store
		// samples in another file.
		return m.edit(m.ff(video("320x240", "25", 1)+x264+"a.mov"), func(b []byte) []byte {
			at := boxAt(b, "url ")
			b[at+3] = 0 // clears the "in this file" flag
			return b
		})
	}, code: ""}, // ffmpeg ignores references to other files and reads this file

	{name: "mp4-without-index", make: func(m *maker) string {
		return m.edit(m.ff(video("640x360", "25", 3)+x264+"a.mp4"), func(b []byte) []byte { return b[:len(b)*8/10] })
	}, code: transcode.CorruptFile, often: true},
	{name: "mp4-cut-at-a-fifth", make: func(m *maker) string {
		return m.edit(m.ff(video("640x360", "25", 3)+x264+"-movflags +faststart a.mp4"), func(b []byte) []byte { return b[:len(b)/5] })
	}, code: transcode.CorruptFile, often: true},
	{name: "mp4-last-bytes-missing", make: func(m *maker) string {
		return m.edit(m.ff(video("640x360", "25", 3)+x264+"-movflags +faststart a.mp4"), func(b []byte) []byte { return b[:len(b)-10] })
	}, code: transcode.CorruptFile},
	{name: "mp4-all-samples-noise", make: func(m *maker) string {
		return m.edit(m.ff(video("640x360", "25", 1)+x264+"a.mp4"), func(b []byte) []byte {
			at, moov := boxAt(b, "mdat"), boxAt(b, "moov")-8
			copy(b[at:moov], random(moov-at))
			return b
		})
	}, code: transcode.CorruptFile},
	{name: "mp4-header-and-noise", make: func(m *maker) string {
		return m.write("a", "\x00\x00\x00\x18ftypisom\x00\x00\x02\x00isommp41", random(50000))
	}, code: transcode.CorruptFile},
	{name: "mkv-header-and-noise", make: func(m *maker) string { return m.write("a", "\x1aE\xdf\xa3", random(50000)) }, code: transcode.CorruptFile},
	{name: "avi-header-and-noise", make: func(m *maker) string { return m.write("a", "RIFF\x00\x10\x00\x00AVI LIST", random(50000)) }, code: transcode.CorruptFile},
	{name: "flv-header-only", make: func(m *maker) string { return m.write("a", "FLV\x01\x05\x00\x00\x00\x09\x00\x00\x00\x00") }, code: transcode.CorruptFile},
	{name: "wmv", make: clip(video("320x240", "25", 1) + " -c:v wmv2 a.wmv"), code: transcode.UnsupportedFormat},
	{name: "mxf", make: clip(video("320x240", "25", 1) + " -c:v mpeg2video a.mxf"), code: transcode.UnsupportedFormat},
	{name: "raw-h264", make: clip(video("320x240", "25", 1) + x264 + "a.h264"), code: transcode.UnsupportedFormat},
	{name: "y4m", make: clip(video("160x120", "25", 0.2) + " -pix_fmt yuv420p a.y4m"), code: transcode.UnsupportedFormat},

	// These files need far more resources than their size suggests.
	{name: "png-16000x16000-in-mov", make: clip("-f lavfi -i color=c=red:s=16000x16000:r=1:d=2 -c:v png a.mov"), code: transcode.TooLargeDimensions},
	{name: "15000x4000-ffv1", make: clip("-f lavfi -i color=c=red:s=15000x4000:r=1:d=1 -c:v ffv1 a.mkv"), code: transcode.TooLargeDimensions},
	{name: "8190x6000-png", make: clip("-f lavfi -i color=c=red:s=8190x6000:r=1:d=2 -c:v png a.mkv"), code: transcode.TooLargeDimensions},
	{name: "two-frames-a-day-apart", make: clip("-f lavfi -i color=s=64x64:r=1:d=2 -vf setpts=N*86400/TB -fps_mode vfr" + x264 + "a.mp4"), code: transcode.TooLong, often: true},
	{name: "times-patched", make: func(m *maker) string {
		return m.edit(m.ff(video("320x240", "25", 2)+x264+"-bf 0 -use_editlist 0 a.mp4"), func(b []byte) []byte {
			at := boxAt(b, "stts") + 8 // count and delta of the first run
			binary.BigEndian.PutUint32(b[at+4:], 1<<28)
			return b
		})
	}, code: transcode.TooLong},
	{name: "five-hours", make: clip("-f lavfi -i color=s=64x64:r=1/10:d=18000" + x264 + "a.mp4"), code: transcode.TooLong},
	{name: "longer-than-allowed", make: clip(video("64x64", "25", 3) + x264 + "a.mp4"), code: transcode.TooLong, limits: func(l *transcode.Limits) { l.MaxDuration = 2 * time.Second }},
	{name: "larger-than-allowed", make: clip(video("320x240", "25", 1) + x264 + "a.mp4"), code: transcode.FileTooLarge, limits: func(l *transcode.Limits) { l.MaxBytes = 1000 }},
	{name: "frames-at-the-same-bytes", make: overlapping, code: transcode.CorruptFile, often: true},
	{name: "boxes-in-boxes", make: func(m *maker) string {
		var inner []byte
		for range 2000 {
			inner = append(binary.BigEndian.AppendUint32(nil, uint32(len(inner)+8)), append([]byte("moov"), inner...)...)
		}
		return m.write("a", "\x00\x00\x00\x18ftypisom\x00\x00\x02\x00isommp41", string(inner))
	}, code: transcode.CorruptFile},
}

// overlapping creates an MP4 with a duration of one hour and a single picture. The index lists the
// picture once for each frame, in a separate chunk, so a copy would contain it once per frame.
func overlapping(m *maker) string {
	one := m.read(m.ff("-f lavfi -i testsrc2=s=640x360:r=30:d=0.03" + x264 + "-frames:v 1 one.mp4"))
	box := func(name string, parts ...[]byte) []byte {
		body := bytes.Join(parts, nil)
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+8)), append([]byte(name), body...)...)
	}
	words := func(v ...uint32) []byte {
		var b []byte
		for _, x := range v {
			b = binary.BigEndian.AppendUint32(b, x)
		}
		return b
	}
	whole := func(name string) []byte {
		at := boxAt(one, name) - 8
		return one[at : at+int(binary.BigEndian.Uint32(one[at:]))]
	}
	const frames = 30 * 3600
	picture := whole("mdat")[8:]
	ftyp := whole("ftyp")
	stbl := box("stbl", whole("stsd"), box("stts", words(0, 1, frames, 1)), box("stsc", words(0, 1, 1, 1, 1)),
		box("stsz", words(0, uint32(len(picture)), frames)),
		box("stco", words(0, frames), bytes.Repeat(words(uint32(len(ftyp)+8)), frames)))
	mdia := box("mdia", box("mdhd", words(0, 0, 0, 30, frames, 0)), whole("hdlr"), box("minf", whole("vmhd"), whole("dinf"), stbl))
	moov := box("moov", whole("mvhd"), box("trak", whole("tkhd"), mdia))
	return m.write("a.mp4", string(ftyp), string(box("mdat", picture)), string(moov))
}

// refragmented creates a fragmented MP4 with fragments that all refer to the bytes of the first
// one.
func refragmented(m *maker) string {
	one := m.read(m.ff("-f lavfi -i testsrc2=s=640x360:r=25:d=0.04" + x264 + "-frames:v 1 -movflags +frag_every_frame+empty_moov one.mp4"))
	moof, mdat := boxAt(one, "moof")-8, boxAt(one, "mdat")-8
	b := one[:mdat+int(binary.BigEndian.Uint32(one[mdat:]))]
	again := bytes.Clone(one[moof:mdat])
	tfdt, frame := boxAt(again, "tfdt"), binary.BigEndian.Uint32(one[boxAt(one, "mdhd")+12:])/25
	for i := range uint32(74) {
		// The time is a 64-bit number after the version and flags. The byte offsets are relative to
		// the start of the file.
		binary.BigEndian.PutUint32(again[tfdt+8:], (i+1)*frame)
		b = append(b, again...)
	}
	return m.write("a.mp4", string(b))
}

// gab2 creates an AVI with a playlist of file names as its subtitle track. Older versions of ffmpeg
// opened the content of such a track with any demuxer.
func gab2(m *maker) string {
	chunk := func(id string, body []byte) []byte {
		b := binary.LittleEndian.AppendUint32([]byte(id), uint32(len(body)))
		b = append(b, body...)
		if len(body)%2 == 1 {
			b = append(b, 0)
		}
		return b
	}
	list := func(kind string, parts ...[]byte) []byte {
		return chunk("LIST", append([]byte(kind), bytes.Join(parts, nil)...))
	}
	words := func(v ...uint32) []byte {
		var b []byte
		for _, x := range v {
			b = binary.LittleEndian.AppendUint32(b, x)
		}
		return b
	}
	playlist := "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nfile://" + m.canary + "\n#EXTINF:5,\n" + m.remote + "/a.ts\n#EXT-X-ENDLIST\n"
	sub := append([]byte("GAB2\x00\x02\x00"), words(0)...)
	sub = append(sub, 4, 0)
	sub = append(sub, words(uint32(len(playlist)))...)
	sub = append(sub, playlist...)
	avih := words(40000, 0, 0, 0x10, 1, 0, 1, 0, 320, 240, 0, 0, 0, 0)
	strh := append([]byte("txts\x00\x00\x00\x00"), words(0, 0, 0, 1, 25, 0, 1, 0, 0, 0, 0, 0)...)
	body := bytes.Join([][]byte{
		[]byte("AVI "),
		list("hdrl", chunk("avih", avih), list("strl", chunk("strh", strh), chunk("strf", nil))),
		list("movi", chunk("00tx", sub)),
	}, nil)
	return m.write("a.avi", string(chunk("RIFF", body)))
}
