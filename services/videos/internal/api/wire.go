package api

import (
	"time"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

type summary struct {
	ID         string   `json:"_id"`
	Title      string   `json:"title"`
	Slug       string   `json:"slug"`
	Status     string   `json:"status"`
	Privacy    string   `json:"privacy"`
	ShareURL   string   `json:"shareUrl"`
	CreatedAt  int64    `json:"createdAt"`
	ExpiresAt  *int64   `json:"expiresAt"`
	Duration   *float64 `json:"duration"`
	Progress   int      `json:"progress"`
	Tags       []string `json:"tags"`
	ExternalID *string  `json:"externalId"`
}

type created struct {
	VideoID            string   `json:"videoId"`
	Slug               string   `json:"slug"`
	UploadURL          string   `json:"uploadUrl"`
	ShareURL           string   `json:"shareUrl"`
	UploadURLExpiresAt int64    `json:"uploadUrlExpiresAt"`
	ResumableUploadURL string   `json:"resumableUploadUrl,omitempty"`
	Tags               []string `json:"tags"`
	ExternalID         *string  `json:"externalId"`
	IgnoredFields      []string `json:"ignoredFields,omitempty"`
}

type full struct {
	summary
	PlainID     string  `json:"id"`
	Description *string `json:"description"`
	UpdatedAt   int64   `json:"updatedAt"`

	Width         *int        `json:"width"`
	Height        *int        `json:"height"`
	PosterURL     *string     `json:"posterUrl"`
	PlaybackURL   *string     `json:"playbackUrl"`
	DownloadURL   *string     `json:"downloadUrl"`
	Renditions    []rendition `json:"renditions"`
	Captions      []string    `json:"captions"`
	ThumbnailTime *float64    `json:"thumbnailTime"`
	Views         int64       `json:"views"`
	TakenDown     *takenDown  `json:"takenDown"`

	UploadURL          string   `json:"uploadUrl,omitempty"`
	UploadURLExpiresAt int64    `json:"uploadUrlExpiresAt,omitempty"`
	ResumableUploadURL string   `json:"resumableUploadUrl,omitempty"`
	Error              *failure `json:"error,omitempty"`
}

type rendition struct {
	Name      string  `json:"name"`
	Width     int     `json:"width"`
	Height    int     `json:"height"`
	FrameRate float64 `json:"frameRate"`
	Bandwidth int     `json:"bandwidth"`
	Codecs    string  `json:"codecs"`
}

type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type takenDown struct {
	At     int64  `json:"at"`
	Reason string `json:"reason"`
}

type accessBody struct {
	Privacy       string   `json:"privacy"`
	ExpiresAt     *int64   `json:"expiresAt"`
	AllowDownload bool     `json:"allowDownload"`
	EmbedOrigins  []string `json:"embedOrigins"`
	IgnoredFields []string `json:"ignoredFields,omitempty"`
}

// accessOf never shows a password. What it shows can be sent back.
func accessOf(v *video.Video, ignored []string) accessBody {
	return accessBody{Privacy: string(v.Privacy), ExpiresAt: millis(v.ExpiresAt), AllowDownload: !v.NoDownload, EmbedOrigins: list(v.EmbedOrigins), IgnoredFields: ignored}
}

// presenter writes videos as the API shows them.
type presenter struct {
	videos    *video.Service
	addresses video.Addresses
}

func (p presenter) summary(v *video.Video) summary {
	s := summary{
		ID: string(v.ID), Title: v.Title, Slug: string(v.Slug), Status: string(v.Status), Privacy: string(v.Privacy),
		ShareURL: p.addresses.Page(v.Slug), CreatedAt: v.CreatedAt.UnixMilli(), ExpiresAt: millis(v.ExpiresAt),
		Progress: v.Progress, Tags: list(v.Tags), ExternalID: text(v.ExternalID),
	}
	if v.Media != nil {
		s.Duration = &v.Media.Duration
	}
	return s
}

func (p presenter) created(v *video.Video, ignored []string) created {
	return created{
		VideoID: string(v.ID), Slug: string(v.Slug), UploadURL: v.Upload.URL, ShareURL: p.addresses.Page(v.Slug),
		UploadURLExpiresAt: v.Upload.ExpiresAt.UnixMilli(), ResumableUploadURL: v.Upload.ResumableURL,
		Tags: list(v.Tags), ExternalID: text(v.ExternalID), IgnoredFields: ignored,
	}
}

// record is a video without the addresses that give access.
func (p presenter) record(v *video.Video) full {
	f := full{
		summary: p.summary(v), PlainID: string(v.ID), Description: text(v.Description), UpdatedAt: v.UpdatedAt.UnixMilli(),
		Renditions: []rendition{}, Captions: []string{}, Views: v.Views,
	}
	for _, c := range v.Captions {
		f.Captions = append(f.Captions, c.Lang)
	}
	if v.Failure != nil {
		f.Error = &failure{Code: string(v.Failure.Code), Message: v.Failure.Message}
	}
	if v.Still != nil {
		f.ThumbnailTime = &v.Still.Time
	}
	if v.TakenDown != nil {
		f.TakenDown = &takenDown{At: v.TakenDown.At.UnixMilli(), Reason: v.TakenDown.Reason}
	}
	if m := v.Media; m != nil {
		f.Width, f.Height = &m.Width, &m.Height
		for _, r := range m.Renditions {
			f.Renditions = append(f.Renditions, rendition(r))
		}
	}
	return f
}

// Shown gives videos as the API shows them, for events: without the addresses
// that give access.
func Shown(addresses video.Addresses) func(*video.Video) any {
	p := presenter{addresses: addresses}
	return func(v *video.Video) any { return p.record(v) }
}

// full adds the addresses that give access: to watch, and to upload for a caller who
// may change videos. The owner's work whatever the privacy, and after the video's
// expiry; a video that was taken down has none.
func (p presenter) full(v *video.Video, by *identity.Principal) full {
	f := p.record(v)
	if v.AwaitsUpload() && by.Scopes.Has(identity.VideosWrite) {
		f.UploadURL, f.UploadURLExpiresAt, f.ResumableUploadURL = v.Upload.URL, v.Upload.ExpiresAt.UnixMilli(), v.Upload.ResumableURL
	}
	if v.Media == nil || v.TakenDown != nil {
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

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func list(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func millis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}
