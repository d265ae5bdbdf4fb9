package api

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

type summary struct {
	ID      string `json:"_id"`
	Title   string `json:"title"`
	Slug    string `json:"slug"`
	Status  string `json:"status"`
	Privacy string `json:"privacy"`
}

func summaryOf(v *video.Video) summary {
	return summary{ID: string(v.ID), Title: v.Title, Slug: string(v.Slug), Status: string(v.Status), Privacy: string(v.Privacy)}
}

type created struct {
	VideoID            string `json:"videoId"`
	Slug               string `json:"slug"`
	UploadURL          string `json:"uploadUrl"`
	ShareURL           string `json:"shareUrl"`
	UploadURLExpiresAt int64  `json:"uploadUrlExpiresAt"`
	ResumableUploadURL string `json:"resumableUploadUrl,omitempty"`
}

type full struct {
	summary
	PlainID     string  `json:"id"`
	Description *string `json:"description"`
	ShareURL    string  `json:"shareUrl"`
	CreatedAt   int64   `json:"createdAt"`
	UpdatedAt   int64   `json:"updatedAt"`
	ExpiresAt   *int64  `json:"expiresAt"`
	Progress    int     `json:"progress"`

	Duration    *float64    `json:"duration"`
	Width       *int        `json:"width"`
	Height      *int        `json:"height"`
	PosterURL   *string     `json:"posterUrl"`
	PlaybackURL *string     `json:"playbackUrl"`
	DownloadURL *string     `json:"downloadUrl"`
	Renditions  []rendition `json:"renditions"`
	Captions    []string    `json:"captions"`
	Views       int64       `json:"views"`

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

func (a *API) full(ctx context.Context, v *video.Video) (full, error) {
	f := full{
		summary: summaryOf(v), PlainID: string(v.ID), Description: text(v.Description),
		ShareURL:  a.o.Addresses.Page(v.Slug),
		CreatedAt: v.CreatedAt.UnixMilli(), UpdatedAt: v.UpdatedAt.UnixMilli(),
		Progress: v.Progress, Renditions: []rendition{}, Captions: []string{}, Views: v.Views,
	}
	if !v.ExpiresAt.IsZero() {
		ms := v.ExpiresAt.UnixMilli()
		f.ExpiresAt = &ms
	}
	for _, c := range v.Captions {
		f.Captions = append(f.Captions, c.Lang)
	}
	if v.AwaitsUpload() {
		f.UploadURL, f.UploadURLExpiresAt, f.ResumableUploadURL = v.Upload.URL, v.Upload.ExpiresAt.UnixMilli(), v.Upload.ResumableURL
	}
	if v.Failure != nil {
		f.Error = &failure{Code: string(v.Failure.Code), Message: v.Failure.Message}
	}
	if m := v.Media; m != nil {
		f.Duration, f.Width, f.Height = &m.Duration, &m.Width, &m.Height
		for _, r := range m.Renditions {
			f.Renditions = append(f.Renditions, rendition(r))
		}
		if err := a.watchable(ctx, v, &f); err != nil {
			return full{}, err
		}
	}
	return f, nil
}

// watchable adds the addresses that give access. After its expiry a video has
// none, not even for its owner.
func (a *API) watchable(ctx context.Context, v *video.Video, f *full) error {
	now := a.o.Now()
	if v.Expired(now) {
		return nil
	}
	token := a.o.Keys.Sign(video.GrantFor(v, video.Own, a.o.OwnerTTL, now))
	playlist := a.o.Addresses.Playlist(v.Slug, token)
	f.PlaybackURL = &playlist
	if v.Media.Poster != "" {
		poster := a.o.Addresses.Playback(v.Slug, token) + "poster.jpg"
		if v.Previewable(now) {
			poster = a.o.Addresses.Thumbnail(v.Slug)
		}
		f.PosterURL = &poster
	}
	if v.Media.Download == "" {
		return nil
	}
	life := a.o.OwnerTTL
	if !v.ExpiresAt.IsZero() {
		life = min(life, max(time.Second, v.ExpiresAt.Sub(now).Truncate(time.Second)))
	}
	download, _, err := a.o.Bucket.SignGet(ctx, v.Media.Download, life, objectstore.GetOptions{
		ContentType: "video/mp4", ContentDisposition: `attachment; filename="` + fileName(v) + `"`,
	})
	f.DownloadURL = &download
	return err
}

// fileName is the title as a name that every system takes, or the slug.
func fileName(v *video.Video) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_'):
			return r
		case unicode.IsSpace(r) || unicode.IsPunct(r):
			return '-'
		}
		return -1
	}, v.Title)
	name = strings.Trim(name[:min(len(name), 80)], "-")
	if name == "" {
		name = string(v.Slug)
	}
	return name + ".mp4"
}

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
