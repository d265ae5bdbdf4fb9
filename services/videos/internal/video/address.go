package video

import (
	"net/url"
	"strings"
)

// Addresses are where a video is found on the web. Base is the base address of
// the product, without a slash at its end.
type Addresses struct{ Base string }

// Page is the share address.
func (a Addresses) Page(s Slug) string { return a.Base + "/v/" + string(s) }

// Embed is the page for frames.
func (a Addresses) Embed(s Slug) string { return a.Base + "/embed/" + string(s) }

// Thumbnail is the picture for link previews.
func (a Addresses) Thumbnail(s Slug) string { return a.Page(s) + "/thumbnail.jpg" }

// File is an MP4 of the video for link previews that play one.
func (a Addresses) File(s Slug) string { return a.Page(s) + "/video.mp4" }

// OEmbed is where the embed code of a page is described.
func (a Addresses) OEmbed(s Slug) string {
	return a.Base + "/oembed?format=json&url=" + url.QueryEscape(a.Page(s))
}

// Playback is the folder that a token opens. The token is in the path, since
// relative addresses in playlists keep a path and lose a query.
func (a Addresses) Playback(s Slug, token string) string { return a.Page(s) + "/hls/" + token + "/" }

// Playlist is the HLS master playlist.
func (a Addresses) Playlist(s Slug, token string) string {
	return a.Playback(s, token) + "master.m3u8"
}

// Download is the owner's file, under a token that opens it.
func (a Addresses) Download(s Slug, token string) string {
	return a.Playback(s, token) + "download.mp4"
}

// Slug reads the slug out of a share or embed address of ours.
func (a Addresses) Slug(address string) (Slug, bool) {
	u, err := url.Parse(address)
	base, _ := url.Parse(a.Base)
	if err != nil || base == nil || u.Host != base.Host || u.Scheme != "http" && u.Scheme != "https" {
		return "", false
	}
	for _, prefix := range []string{"/v/", "/embed/"} {
		if slug, ok := strings.CutPrefix(u.Path, prefix); ok && slug != "" && !strings.Contains(slug, "/") {
			return Slug(slug), true
		}
	}
	return "", false
}
