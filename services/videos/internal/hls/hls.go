// Package hls renders HLS playlists and the seek-bar storyboard from the outcome of a transcoding
// job.
//
// Every rendition is one object in storage. Playlists address its segments by
// byte range, so one signed URL per rendition is enough. The package does not sign anything or
// check access rules: callers pass in the URLs.
package hls

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/linkreel/linkreel/libs/transcode"
)

// Caption is one subtitle track for MasterPlaylist.
type Caption struct {
	Lang    string // BCP 47
	Name    string // shown in the player's menu
	URI     string // URL of a WebVTT media playlist
	Default bool
}

// MasterPlaylist renders the HLS master playlist for an outcome. uri returns the URL of a
// rendition's media playlist. The bandwidths are measured and include the audio. Players
// start with the first rendition, so a medium one is listed first.
func MasterPlaylist(o *transcode.Outcome, uri func(transcode.Rendition) string, captions ...Caption) string {
	var b strings.Builder
	b.WriteString("#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-INDEPENDENT-SEGMENTS\n")
	if o.Audio != nil {
		fmt.Fprintf(&b, "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"audio\",NAME=\"Audio\",DEFAULT=YES,AUTOSELECT=YES%s,URI=%s\n", channels(*o.Audio), quoted(uri(*o.Audio)))
	}
	for _, c := range captions {
		fmt.Fprintf(&b, "#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"subs\",NAME=%s,LANGUAGE=%s,DEFAULT=%s,AUTOSELECT=YES,FORCED=NO,URI=%s\n",
			quoted(c.Name), quoted(c.Lang), yesNo(c.Default), quoted(c.URI))
	}
	for _, r := range startOrder(o.Renditions) {
		peak, average, codecs := r.Bandwidth, r.AverageBandwidth, r.Codecs
		if o.Audio != nil {
			peak += o.Audio.Bandwidth
			average += o.Audio.AverageBandwidth
			codecs += "," + o.Audio.Codecs
		}
		fmt.Fprintf(&b, "#EXT-X-STREAM-INF:BANDWIDTH=%d,AVERAGE-BANDWIDTH=%d,CODECS=%s,RESOLUTION=%dx%d,FRAME-RATE=%.3f,CLOSED-CAPTIONS=NONE",
			peak, average, quoted(codecs), r.Width, r.Height, r.FrameRate)
		if o.Audio != nil {
			b.WriteString(`,AUDIO="audio"`)
		}
		if len(captions) > 0 {
			b.WriteString(`,SUBTITLES="subs"`)
		}
		b.WriteString("\n" + uri(r) + "\n")
	}
	return b.String()
}

// channels returns the CHANNELS attribute for an audio rendition. The attribute is optional. It is
// omitted for outcomes stored before we recorded the channel count, since their audio may be mono
// or stereo.
func channels(r transcode.Rendition) string {
	if r.Channels == 0 {
		return ""
	}
	return fmt.Sprintf(`,CHANNELS="%d"`, r.Channels)
}

// startOrder moves the rendition that players should start with to the front: the largest one
// with a short side of at most 720 pixels.
func startOrder(rs []transcode.Rendition) []transcode.Rendition {
	for i, r := range rs {
		if min(r.Width, r.Height) <= 720 {
			ordered := append([]transcode.Rendition{r}, rs[:i]...)
			return append(ordered, rs[i+1:]...)
		}
	}
	return rs
}

// MediaPlaylist returns the byte-range playlist for one rendition and the playlist's size in
// bytes. url is the (signed) URL of the rendition's object. Every segment repeats the URL, so the
// playlist for a four-hour film is megabytes long. Rendering it as it is read means that a slow
// reader keeps only one segment in memory.
func MediaPlaylist(r transcode.Rendition, url string) (playlist io.Reader, size int) {
	counted, _ := io.Copy(io.Discard, newMediaPlaylist(r, url)) // neither side can fail
	return newMediaPlaylist(r, url), int(counted)
}

// mediaPlaylist is a reader that renders a playlist as it is read.
type mediaPlaylist struct {
	url      string
	segments transcode.Segments
	ended    bool
	rendered []byte
	unread   []byte // the unread part of rendered
}

func newMediaPlaylist(r transcode.Rendition, url string) *mediaPlaylist {
	target := 1.0
	// The target must be at least the duration of every segment, rounded to the nearest second.
	for _, s := range r.Segments {
		target = math.Max(target, s.Duration)
	}
	head := fmt.Appendf(nil, "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:%d\n#EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:VOD\n#EXT-X-INDEPENDENT-SEGMENTS\n"+
		"#EXT-X-MAP:URI=%s,BYTERANGE=\"%d@%d\"\n", int64(math.Round(target)), quoted(url), r.Init.Size, r.Init.Offset)
	return &mediaPlaylist{url: url, segments: r.Segments, rendered: head, unread: head}
}

func (p *mediaPlaylist) Read(b []byte) (n int, err error) {
	for n < len(b) {
		if len(p.unread) == 0 && !p.render() {
			if n == 0 {
				err = io.EOF
			}
			return n, err
		}
		copied := copy(b[n:], p.unread)
		p.unread = p.unread[copied:]
		n += copied
	}
	return n, nil
}

// render renders the next lines and returns false after the last ones.
func (p *mediaPlaylist) render() bool {
	b := p.rendered[:0]
	switch {
	case len(p.segments) > 0:
		s := p.segments[0]
		p.segments = p.segments[1:]
		b = append(b, "#EXTINF:"...)
		b = strconv.AppendFloat(b, s.Duration, 'f', 6, 64)
		b = append(b, ",\n#EXT-X-BYTERANGE:"...)
		b = strconv.AppendInt(b, s.Size, 10)
		b = append(b, '@')
		b = strconv.AppendInt(b, s.Offset, 10)
		b = append(b, '\n')
		b = append(b, p.url...)
		b = append(b, '\n')
	case !p.ended:
		p.ended = true
		b = append(b, "#EXT-X-ENDLIST\n"...)
	default:
		return false
	}
	p.rendered, p.unread = b, b
	return true
}

// CaptionPlaylist renders the media playlist for a caption track, which is one WebVTT file for
// the whole duration.
func CaptionPlaylist(duration float64, url string) string {
	return fmt.Sprintf("#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:%d\n#EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:VOD\n#EXTINF:%.6f,\n%s\n#EXT-X-ENDLIST\n",
		int64(math.Max(1, math.Ceil(duration))), duration, url)
}

// StoryboardVTT renders the WebVTT thumbnail track for an outcome. url returns the URL of a
// sheet. If the outcome has no storyboard, the track contains only the header.
func StoryboardVTT(o *transcode.Outcome, url func(object string) string) string {
	var b strings.Builder
	b.WriteString("WEBVTT\n")
	s := o.Storyboard
	if s == nil || s.Columns <= 0 || s.Rows <= 0 {
		return b.String()
	}
	sheets := make([]string, len(s.Objects))
	for i, object := range s.Objects {
		sheets[i] = url(object)
	}
	perSheet := s.Columns * s.Rows
	for i := range s.Count {
		sheet := i / perSheet
		if sheet >= len(sheets) {
			break
		}
		start, end := float64(i)*s.Interval, float64(i+1)*s.Interval
		// Show the last frame until the end because a video's length is rarely an exact multiple of
		// the interval.
		if i == s.Count-1 {
			end = math.Max(end, o.Duration)
		}
		tile := i % perSheet
		fmt.Fprintf(&b, "\n%s --> %s\n%s#xywh=%d,%d,%d,%d\n", vttTime(start), vttTime(end), sheets[sheet],
			tile%s.Columns*s.TileWidth, tile/s.Columns*s.TileHeight, s.TileWidth, s.TileHeight)
	}
	return b.String()
}

func vttTime(seconds float64) string {
	ms := int64(math.Round(seconds * 1000))
	return fmt.Sprintf("%02d:%02d:%02d.%03d", ms/3600000, ms/60000%60, ms/1000%60, ms%1000)
}

// quoted returns s as an HLS quoted-string. The grammar has no escapes, so forbidden
// characters are dropped.
func quoted(s string) string {
	return `"` + strings.Map(func(r rune) rune {
		if r == '"' || r < 0x20 {
			return -1
		}
		return r
	}, s) + `"`
}

func yesNo(b bool) string {
	if b {
		return "YES"
	}
	return "NO"
}
