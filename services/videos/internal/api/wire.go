package api

import (
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// accessOf returns v's access rule without the password. A caller can send the result back
// unchanged as an update.
func accessOf(v *video.Video, ignored []string) wire.VideoAccess {
	return wire.VideoAccess{
		Privacy: string(v.Privacy), ExpiresAt: wire.Millis(v.ExpiresAt), AllowDownload: !v.NoDownload,
		EmbedOrigins: list(v.EmbedOrigins), IgnoredFields: ignored,
	}
}

// presenter converts videos to their wire format.
type presenter struct {
	videos    *video.Service
	addresses video.Addresses
	// restoredAt returns when the installation was last restored, or zero.
	restoredAt func() time.Time
}

func (p presenter) summary(v *video.Video) wire.VideoSummary {
	s := wire.VideoSummary{
		UnderscoreID: string(v.ID), ID: string(v.ID), Title: v.Title, Slug: string(v.Slug), Status: string(v.Status), Privacy: string(v.Privacy),
		ShareURL: p.addresses.Page(v.Slug), CreatedAt: v.CreatedAt.UnixMilli(), ExpiresAt: wire.Millis(v.ExpiresAt),
		Progress: v.Progress, Tags: list(v.Tags), ExternalID: wire.OrNull(v.ExternalID),
	}
	if v.Media != nil {
		s.Duration = &v.Media.Duration
	}
	if at := p.restoredAt(); v.AccessRestored(at) {
		s.AccessRestoredAt = at.UnixMilli()
	}
	return s
}

func (p presenter) created(v *video.Video, by *identity.Principal, ignored []string) wire.VideoCreated {
	return wire.VideoCreated{
		VideoID: string(v.ID), ID: string(v.ID), Slug: string(v.Slug), UploadURL: v.Upload.URL, ShareURL: p.addresses.Page(v.Slug),
		UploadURLExpiresAt: v.Upload.ExpiresAt.UnixMilli(), ResumableUploadURL: v.Upload.ResumableURL,
		Tags: list(v.Tags), ExternalID: wire.OrNull(v.ExternalID), Video: p.full(v, by), IgnoredFields: ignored,
	}
}

// record returns a video's wire format without the URLs that give access.
func (p presenter) record(v *video.Video) wire.Video {
	f := wire.Video{
		VideoSummary: p.summary(v), Description: wire.OrNull(v.Description), UpdatedAt: v.UpdatedAt.UnixMilli(),
		Renditions: []wire.Rendition{}, Captions: []string{}, Views: v.Views,
	}
	for _, c := range v.Captions {
		f.Captions = append(f.Captions, c.Lang)
	}
	if v.Failure != nil {
		code := apierr.Code(v.Failure.Code)
		f.Error = &wire.VideoError{Code: string(code), Message: v.Failure.Message, DocURL: code.DocURL()}
	}
	if v.Still != nil {
		f.ThumbnailTime = &v.Still.Time
	}
	if v.TakenDown != nil {
		f.TakenDown = &wire.TakenDown{At: v.TakenDown.At.UnixMilli(), Reason: v.TakenDown.Reason}
	}
	if m := v.Media; m != nil {
		f.Width, f.Height = &m.Width, &m.Height
		for _, r := range m.Renditions {
			f.Renditions = append(f.Renditions, wire.Rendition{
				Name: r.Name, Width: r.Width, Height: r.Height, FrameRate: r.FrameRate, Bandwidth: r.Bandwidth, Codecs: r.Codecs,
			})
		}
	}
	return f
}

// Shown returns a function that converts videos to their wire format for events, without the
// URLs that give access. restoredAt returns when the installation was last restored, or zero.
func Shown(addresses video.Addresses, restoredAt func() time.Time) func(*video.Video) any {
	p := presenter{addresses: addresses, restoredAt: restoredAt}
	return func(v *video.Video) any { return p.record(v) }
}

// full returns a video's wire format with the URLs that give access. A caller with read access gets
// playback URLs, which stop working when the caller loses that access. A caller with write access
// gets upload URLs. The playback URLs ignore the video's privacy and expiry. A video that was taken
// down has none.
func (p presenter) full(v *video.Video, by *identity.Principal) wire.Video {
	f := p.record(v)
	if v.AwaitsUpload() && by.Scopes.Has(identity.VideosWrite) {
		f.UploadURL, f.UploadURLExpiresAt, f.ResumableUploadURL = v.Upload.URL, v.Upload.ExpiresAt.UnixMilli(), v.Upload.ResumableURL
	}
	if v.Media == nil || v.TakenDown != nil || !by.Scopes.Has(identity.VideosRead) {
		return f
	}
	token := p.videos.Own(v, by)
	playlist := p.addresses.Playlist(v.Slug, token)
	f.PlaybackURL = &playlist
	if v.Poster() != "" {
		poster := p.addresses.Playback(v.Slug, token) + "poster.jpg"
		if v.Previewable(p.videos.Now()) {
			poster = p.addresses.Thumbnail(v.Slug)
		}
		f.PosterURL = &poster
	}
	if v.Media.Download != "" {
		download := p.addresses.Download(v.Slug, token)
		f.DownloadURL = &download
	}
	return f
}

func list(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
