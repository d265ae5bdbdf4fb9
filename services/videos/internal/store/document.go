package store

import (
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// document is a video in Firestore. Fields that no query asks for are exempt
// from indexing in firestore.indexes.json.
type document struct {
	AccountID   string `firestore:"accountId"`
	Slug        string `firestore:"slug"`
	Title       string `firestore:"title"`
	Description string `firestore:"description"`

	Privacy      string     `firestore:"privacy"`
	PasswordHash string     `firestore:"passwordHash,omitempty"`
	ExpiresAt    *time.Time `firestore:"expiresAt,omitempty"`
	Access       int64      `firestore:"access"`

	Status      string `firestore:"status"`
	FailCode    string `firestore:"failCode,omitempty"`
	FailMessage string `firestore:"failMessage,omitempty"`
	Progress    int    `firestore:"progress"`

	UploadObject    string     `firestore:"uploadObject"`
	UploadURL       string     `firestore:"uploadUrl,omitempty"`
	UploadExpiresAt *time.Time `firestore:"uploadExpiresAt,omitempty"`
	ResumableURL    string     `firestore:"resumableUrl,omitempty"`

	SourceGeneration int64  `firestore:"sourceGeneration"`
	SourceSize       int64  `firestore:"sourceSize"`
	SourceType       string `firestore:"sourceType,omitempty"`
	JobID            string `firestore:"jobId,omitempty"`

	MediaVersion int          `firestore:"mediaVersion"`
	Media        *mediaMap    `firestore:"media,omitempty"`
	Outcome      []byte       `firestore:"outcome,omitempty"`
	Captions     []captionMap `firestore:"captions,omitempty"`
	Views        int64        `firestore:"views"`
	CreatedAt    time.Time    `firestore:"createdAt"`
	UpdatedAt    time.Time    `firestore:"updatedAt"`
	ReadyAt      *time.Time   `firestore:"readyAt,omitempty"`
	Rev          int64        `firestore:"rev"`

	// WatchUntil is there while an upload may arrive; sweeps ask for it.
	WatchUntil *time.Time `firestore:"watchUntil,omitempty"`
	// InWork is true while a job may change the video; sweeps ask for it.
	InWork bool `firestore:"inWork,omitempty"`
}

type mediaMap struct {
	Final      bool           `firestore:"final"`
	Path       string         `firestore:"path"`
	Duration   float64        `firestore:"duration"`
	Width      int            `firestore:"width"`
	Height     int            `firestore:"height"`
	HasAudio   bool           `firestore:"hasAudio"`
	Renditions []renditionMap `firestore:"renditions"`
	Poster     string         `firestore:"poster,omitempty"`
	Download   string         `firestore:"download,omitempty"`
	Storyboard bool           `firestore:"storyboard"`
}

type renditionMap struct {
	Name      string  `firestore:"name"`
	Width     int     `firestore:"width"`
	Height    int     `firestore:"height"`
	FrameRate float64 `firestore:"frameRate"`
	Bandwidth int     `firestore:"bandwidth"`
	Codecs    string  `firestore:"codecs"`
}

type captionMap struct {
	Lang   string    `firestore:"lang"`
	Label  string    `firestore:"label"`
	Object string    `firestore:"object"`
	At     time.Time `firestore:"at"`
}

// uploadGrace is how long after an upload address ended an upload that was begun
// in time is still looked for.
const uploadGrace = 24 * time.Hour

func fromVideo(v *video.Video) *document {
	d := &document{
		AccountID: v.AccountID, Slug: string(v.Slug), Title: v.Title, Description: v.Description,
		Privacy: string(v.Privacy), PasswordHash: v.PasswordHash, ExpiresAt: optional(v.ExpiresAt), Access: v.Access,
		Status: string(v.Status), Progress: v.Progress,
		UploadObject: v.Upload.Object, UploadURL: v.Upload.URL, UploadExpiresAt: optional(v.Upload.ExpiresAt), ResumableURL: v.Upload.ResumableURL,
		SourceGeneration: v.Source.Generation, SourceSize: v.Source.Size, SourceType: v.Source.ContentType, JobID: v.Source.JobID,
		Views: v.Views, CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt, ReadyAt: optional(v.ReadyAt), Rev: v.Rev,
	}
	if v.Failure != nil {
		d.FailCode, d.FailMessage = string(v.Failure.Code), v.Failure.Message
	}
	for _, c := range v.Captions {
		d.Captions = append(d.Captions, captionMap(c))
	}
	if m := v.Media; m != nil {
		d.MediaVersion, d.Outcome = m.Version, m.Outcome
		d.Media = &mediaMap{
			Final: m.Final, Path: m.Path, Duration: m.Duration, Width: m.Width, Height: m.Height, HasAudio: m.HasAudio,
			Poster: m.Poster, Download: m.Download, Storyboard: m.Storyboard,
		}
		for _, r := range m.Renditions {
			d.Media.Renditions = append(d.Media.Renditions, renditionMap(r))
		}
	}
	if v.AwaitsUpload() && !v.Upload.ExpiresAt.IsZero() {
		d.WatchUntil = optional(v.Upload.ExpiresAt.Add(uploadGrace))
	}
	d.InWork = v.Status == video.Processing || v.Status == video.Ready && v.Media != nil && !v.Media.Final
	return d
}

func toVideo(snap *firestore.DocumentSnapshot) (*video.Video, error) {
	var d document
	if err := snap.DataTo(&d); err != nil {
		return nil, shape(snap.Ref.ID, err)
	}
	v := &video.Video{
		ID: video.ID(snap.Ref.ID), AccountID: d.AccountID, Slug: video.Slug(d.Slug), Title: d.Title, Description: d.Description,
		Privacy: video.Privacy(d.Privacy), PasswordHash: d.PasswordHash, ExpiresAt: value(d.ExpiresAt), Access: d.Access,
		Status: video.Status(d.Status), Progress: d.Progress,
		Upload: video.Upload{Object: d.UploadObject, URL: d.UploadURL, ExpiresAt: value(d.UploadExpiresAt), ResumableURL: d.ResumableURL},
		Source: video.Source{Generation: d.SourceGeneration, Size: d.SourceSize, ContentType: d.SourceType, JobID: d.JobID},
		Views:  d.Views, CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt, ReadyAt: value(d.ReadyAt), Rev: d.Rev,
	}
	if d.FailCode != "" {
		v.Failure = &video.Failure{Code: video.Code(d.FailCode), Message: d.FailMessage}
	}
	for _, c := range d.Captions {
		v.Captions = append(v.Captions, video.Caption(c))
	}
	if m := d.Media; m != nil {
		v.Media = &video.Media{
			Version: d.MediaVersion, Outcome: d.Outcome,
			Final: m.Final, Path: m.Path, Duration: m.Duration, Width: m.Width, Height: m.Height, HasAudio: m.HasAudio,
			Poster: m.Poster, Download: m.Download, Storyboard: m.Storyboard,
		}
		for _, r := range m.Renditions {
			v.Media.Renditions = append(v.Media.Renditions, video.Rendition(r))
		}
	} else if d.MediaVersion > 0 { // a sweep's partial read
		v.Media = &video.Media{Version: d.MediaVersion}
	}
	return v, nil
}

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func value(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
