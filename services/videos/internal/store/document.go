package store

import (
	"time"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/label"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/libs/search"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// document is a video in Firestore. Fields that are not used in any query are exempt from indexing
// in firestore.indexes.json.
type document struct {
	AccountID   string   `firestore:"accountId"`
	Slug        string   `firestore:"slug"`
	Title       string   `firestore:"title"`
	Description string   `firestore:"description"`
	Tags        []string `firestore:"tags,omitempty"`
	ExternalID  string   `firestore:"externalId,omitempty"`
	// Terms are the keys that filtered lists use to find records. See termsOf.
	Terms []string `firestore:"terms"`

	Privacy      string    `firestore:"privacy"`
	PasswordHash string    `firestore:"passwordHash,omitempty"`
	ExpiresAt    time.Time `firestore:"expiresAt,omitzero"`
	NoDownload   bool      `firestore:"noDownload,omitempty"`
	EmbedOrigins []string  `firestore:"embedOrigins,omitempty"`
	Access       int64     `firestore:"access"`
	AccessSetAt  time.Time `firestore:"accessSetAt,omitzero"`

	Status      string `firestore:"status"`
	FailCode    string `firestore:"failCode,omitempty"`
	FailMessage string `firestore:"failMessage,omitempty"`
	Progress    int    `firestore:"progress"`

	UploadObject    string    `firestore:"uploadObject"`
	UploadURL       string    `firestore:"uploadUrl,omitempty"`
	UploadExpiresAt time.Time `firestore:"uploadExpiresAt,omitzero"`
	ResumableURL    string    `firestore:"resumableUrl,omitempty"`
	Recording       bool      `firestore:"recording,omitempty"`
	Received        int64     `firestore:"received,omitempty"`
	ReceivedAt      time.Time `firestore:"receivedAt,omitzero"`
	SessionMost     int64     `firestore:"sessionMost,omitempty"`
	EndedSessions   []string  `firestore:"endedSessions,omitempty"`

	SourceGeneration int64     `firestore:"sourceGeneration"`
	SourceSize       int64     `firestore:"sourceSize"`
	SourceType       string    `firestore:"sourceType,omitempty"`
	SourceStoredAt   time.Time `firestore:"sourceStoredAt,omitzero"`
	JobID            string    `firestore:"jobId,omitempty"`

	MediaVersion int          `firestore:"mediaVersion"`
	Media        *mediaMap    `firestore:"media,omitempty"`
	Outcome      []byte       `firestore:"outcome,omitempty"`
	Captions     []captionMap `firestore:"captions,omitempty"`
	Still        *stillMap    `firestore:"still,omitempty"`
	TakenDown    *takedownMap `firestore:"takenDown,omitempty"`
	Views        int64        `firestore:"views"`
	CreatedAt    time.Time    `firestore:"createdAt"`
	UpdatedAt    time.Time    `firestore:"updatedAt"`
	ReadyAt      time.Time    `firestore:"readyAt,omitzero"`
	PublishedAt  time.Time    `firestore:"publishedAt,omitzero"`
	Rev          int64        `firestore:"rev"`

	// Bytes is the video's size in storage, and Reserved is how many more bytes its session may
	// store. Queries sum both over an account's videos.
	Bytes        int64 `firestore:"bytes"`
	Reserved     int64 `firestore:"reserved,omitempty"`
	StorageLimit int64 `firestore:"storageLimit,omitempty"`

	// Due is set while the pipeline must check the video again.
	Due *record.Due `firestore:"due,omitempty"`
}

type mediaMap struct {
	Final      bool           `firestore:"final"`
	Path       string         `firestore:"path"`
	Duration   float64        `firestore:"duration"`
	Width      int            `firestore:"width"`
	Height     int            `firestore:"height"`
	HasAudio   bool           `firestore:"hasAudio"`
	Renditions []renditionMap `firestore:"renditions"`
	Bytes      int64          `firestore:"bytes,omitempty"`
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

type stillMap struct {
	Time   float64 `firestore:"time"`
	JobID  string  `firestore:"jobId,omitempty"`
	Object string  `firestore:"object,omitempty"`
}

type takedownMap struct {
	ID     string    `firestore:"id"`
	Reason string    `firestore:"reason"`
	At     time.Time `firestore:"at"`
}

func fromVideo(v *video.Video) any {
	d := &document{
		AccountID: v.AccountID, Slug: string(v.Slug), Title: v.Title, Description: v.Description,
		Tags: v.Tags, ExternalID: v.ExternalID, Terms: termsOf(v),
		Privacy: string(v.Privacy), PasswordHash: v.PasswordHash, ExpiresAt: v.ExpiresAt,
		NoDownload: v.NoDownload, EmbedOrigins: v.EmbedOrigins, Access: v.Access, AccessSetAt: v.AccessSetAt,
		Status: string(v.Status), Progress: v.Progress,
		UploadObject: v.Upload.Object, UploadURL: v.Upload.URL, UploadExpiresAt: v.Upload.ExpiresAt,
		ResumableURL: v.Upload.ResumableURL,
		Recording:    v.Upload.Recording, Received: v.Upload.Received, ReceivedAt: v.Upload.ReceivedAt,
		SessionMost: v.Upload.Most, EndedSessions: v.Upload.Ended,
		SourceGeneration: v.Source.Generation, SourceSize: v.Source.Size, SourceType: v.Source.ContentType, SourceStoredAt: v.Source.StoredAt,
		JobID: v.Source.JobID,
		Views: v.Views, CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt,
		ReadyAt: v.ReadyAt, PublishedAt: v.PublishedAt, Rev: v.Rev,
		Bytes: v.Bytes(), Reserved: v.Reserved(), StorageLimit: v.StorageLimit, Due: record.DueAt(string(v.ID), v.DueAt),
		Still: (*stillMap)(v.Still), TakenDown: (*takedownMap)(v.TakenDown),
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
			Bytes: m.Bytes, Poster: m.Poster, Download: m.Download, Storyboard: m.Storyboard,
		}
		for _, r := range m.Renditions {
			d.Media.Renditions = append(d.Media.Renditions, renditionMap(r))
		}
	}
	return d
}

func toVideo(snap firestoredb.Snap, d *document) *video.Video {
	v := &video.Video{
		ID: video.ID(snap.Ref.ID), AccountID: d.AccountID, Slug: video.Slug(d.Slug), Title: d.Title, Description: d.Description,
		Tags: d.Tags, ExternalID: d.ExternalID,
		Privacy: video.Privacy(d.Privacy), PasswordHash: d.PasswordHash, ExpiresAt: d.ExpiresAt,
		NoDownload: d.NoDownload, EmbedOrigins: d.EmbedOrigins, Access: d.Access, AccessSetAt: d.AccessSetAt,
		Status: video.Status(d.Status), Progress: d.Progress,
		Upload: video.Upload{
			Object: d.UploadObject, URL: d.UploadURL, ExpiresAt: d.UploadExpiresAt, ResumableURL: d.ResumableURL,
			Recording: d.Recording, Received: d.Received, ReceivedAt: d.ReceivedAt, Most: d.SessionMost, Ended: d.EndedSessions,
		},
		Source: video.Source{Generation: d.SourceGeneration, Size: d.SourceSize, ContentType: d.SourceType, JobID: d.JobID, StoredAt: d.SourceStoredAt},
		Views:  d.Views, CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt,
		ReadyAt: d.ReadyAt, PublishedAt: d.PublishedAt, Rev: d.Rev,
		StorageLimit: d.StorageLimit, StorageRoom: -1, DueAt: d.Due.Time(), Stored: snap.UpdateTime,
		Still: (*video.Still)(d.Still), TakenDown: (*video.Takedown)(d.TakenDown),
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
			Bytes: m.Bytes, Poster: m.Poster, Download: m.Download, Storyboard: m.Storyboard,
		}
		for _, r := range m.Renditions {
			v.Media.Renditions = append(v.Media.Renditions, video.Rendition(r))
		}
	}
	return v
}

// maxTerms limits the number of index entries per record. A description of two thousand characters
// has at most about 300 words, each with 6 prefixes.
const maxTerms = 2000

// termsOf returns the terms under which a filtered list can find v. The first letter of a term
// denotes its kind. Firestore allows one membership test per query, so a list queries for the
// rarest term in its filter and checks the other terms on the returned records.
func termsOf(v *video.Video) []string {
	terms := []string{"s:" + string(v.Status), "p:" + string(v.Privacy)}
	for _, t := range v.Tags {
		terms = append(terms, "t:"+label.Key(t))
	}
	for _, t := range search.Tokens(v.Words(), maxTerms) {
		terms = append(terms, "w:"+t)
	}
	return terms
}

// rarestTerm returns the term in f that is likely to match the fewest records.
func rarestTerm(f video.Filter) string {
	switch {
	case f.Query.Rarest() != "":
		return "w:" + search.Token(f.Query.Rarest())
	case len(f.Tags) > 0:
		return "t:" + label.Key(f.Tags[0])
	case f.Status != "":
		return "s:" + string(f.Status)
	}
	return "p:" + string(f.Privacy)
}
