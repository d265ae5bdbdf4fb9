package video

import (
	"net/url"
	"strings"
)

// Addresses builds videos' public URLs. Base is the product's base URL, without a
// trailing slash.
type Addresses struct{ Base string }

// Page returns the share URL.
func (a Addresses) Page(s Slug) string { return a.Base + "/v/" + string(s) }

// Embed returns the URL of the embed page.
func (a Addresses) Embed(s Slug) string { return a.Base + "/embed/" + string(s) }

// Thumbnail returns the URL of the link preview picture.
func (a Addresses) Thumbnail(s Slug) string { return a.Page(s) + "/thumbnail.jpg" }

// File returns the URL of the video as an MP4, for link previews that play files.
func (a Addresses) File(s Slug) string { return a.Page(s) + "/video.mp4" }

// OEmbed returns the URL of the oEmbed description for a share page.
func (a Addresses) OEmbed(s Slug) string {
	return a.Base + "/oembed?format=json&url=" + url.QueryEscape(a.Page(s))
}

// Playback returns the base URL of the playlists and media that a token gives access to. The token
// is in the path because relative URLs in playlists keep the path but lose the query.
func (a Addresses) Playback(s Slug, token string) string { return a.Page(s) + "/hls/" + token + "/" }

// Playlist returns the URL of the HLS master playlist.
func (a Addresses) Playlist(s Slug, token string) string {
	return a.Playback(s, token) + "master.m3u8"
}

// Download returns the URL of the download file for the owner. It requires an owner's token.
func (a Addresses) Download(s Slug, token string) string {
	return a.Playback(s, token) + "download.mp4"
}

// Slug parses one of our share or embed URLs and returns its slug.
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
