// Package video is what the product knows about a video: its fields and their
// rules, the one table of status changes, who may watch it and until when, how
// passwords are kept, and the tokens that stand for a permission to watch.
//
// It promises that a Video built by [New] keeps every rule of the API, that a
// status only moves along the table, and that nothing moves a video out of
// ready. It does no I/O; time, ids and randomness are handed in.
package video

import (
	"slices"
	"time"
)

// ID names a video for its owner and inside the system.
type ID string

// Slug names a video in its share address. It is random, so that an unlisted
// video cannot be found by trying.
type Slug string

// Privacy says who may watch.
type Privacy string

// The privacies. Only a public video may be indexed; a password one shows
// nothing before the password, an expiring one nothing after its time.
const (
	Public   Privacy = "public"
	Unlisted Privacy = "unlisted"
	Password Privacy = "password"
	Expiring Privacy = "expiring"
)

// Privacies lists every privacy.
func Privacies() []Privacy { return []Privacy{Public, Unlisted, Password, Expiring} }

// Video is one video of one account.
type Video struct {
	ID        ID
	AccountID string
	Slug      Slug

	Title       string
	Description string

	Privacy      Privacy
	PasswordHash string    // PHC string; only with Password
	ExpiresAt    time.Time // only with Expiring; exclusive: gone at this instant
	// Access counts what invalidates permissions already given out. Tokens
	// carry it and are worth nothing once it has moved on.
	Access int64

	Status   Status
	Failure  *Failure // only while failed
	Progress int      // 0–100; 100 only when ready

	Upload Upload
	Source Source
	Media  *Media // only once ready

	Captions []Caption // by language
	Views    int64

	CreatedAt time.Time
	UpdatedAt time.Time // of what the owner or the pipeline changed; views do not count
	ReadyAt   time.Time

	// Rev counts the stored states that an owner can tell apart.
	Rev int64
}

// Upload is where the owner sends the file.
type Upload struct {
	Object       string // the name in the bucket, the same for every try
	URL          string // signed; PUT
	ExpiresAt    time.Time
	ResumableURL string // an open resumable session; empty when it was used, or none could be started
}

// Source is the uploaded object that the current preparation reads. Its
// generation is pinned: an object put there later is another source.
type Source struct {
	Generation  int64
	Size        int64
	ContentType string
	JobID       string
}

// Media is what the preparation made. What only players need stays packed in
// Outcome.
type Media struct {
	Version    int
	Final      bool // nothing will be added
	Path       string
	Duration   float64 // seconds
	Width      int     // as displayed
	Height     int
	HasAudio   bool
	Renditions []Rendition // tallest first

	Poster     string // object name
	Download   string // object name; empty when there is none
	Storyboard bool

	Outcome []byte
}

// Rendition is one quality a viewer can get.
type Rendition struct {
	Name      string
	Width     int
	Height    int
	FrameRate float64
	Bandwidth int // bits per second at its peak, sound included
	Codecs    string
}

// Caption is one uploaded subtitle track.
type Caption struct {
	Lang   string // BCP 47
	Label  string // shown in the player's menu
	Object string
	At     time.Time
}

// Failure is the public reason of a failed video.
type Failure struct {
	Code    Code
	Message string
}

// Code says why a video failed.
type Code string

// The reasons that this service finds itself; workers add theirs.
const (
	EmptyFile     Code = "EMPTY_FILE"
	FileTooLarge  Code = "FILE_TOO_LARGE"
	UploadExpired Code = "UPLOAD_EXPIRED"
	Internal      Code = "INTERNAL"
)

// Expired reports whether the video's time is over.
func (v *Video) Expired(now time.Time) bool {
	return !v.ExpiresAt.IsZero() && !now.Before(v.ExpiresAt)
}

// AwaitsUpload reports whether a file put at the upload address would be used.
func (v *Video) AwaitsUpload() bool { return v.Status == Uploading || v.Status == Failed }

// Indexable reports whether search engines and previews may name the video.
func (v *Video) Indexable() bool { return v.Privacy == Public }

// Previewable reports whether the video's title and picture may be shown to
// somebody who has not asked to watch: link previews, oEmbed, thumbnails.
func (v *Video) Previewable(now time.Time) bool {
	return v.Privacy != Password && !v.Expired(now)
}

// Caption finds a caption track.
func (v *Video) Caption(lang string) (Caption, bool) {
	i := slices.IndexFunc(v.Captions, func(c Caption) bool { return c.Lang == lang })
	if i < 0 {
		return Caption{}, false
	}
	return v.Captions[i], true
}

// MaxCaptions bounds the tracks of one video.
const MaxCaptions = 50

// SetCaption adds a track or replaces the one of its language. It reports false
// when the video has as many as it may.
func (v *Video) SetCaption(c Caption, now time.Time) bool {
	captions := slices.Clone(v.Captions)
	if i := slices.IndexFunc(captions, func(o Caption) bool { return o.Lang == c.Lang }); i >= 0 {
		captions[i] = c
	} else if len(captions) >= MaxCaptions {
		return false
	} else {
		captions = append(captions, c)
	}
	slices.SortFunc(captions, func(a, b Caption) int {
		if a.Lang < b.Lang {
			return -1
		}
		return 1
	})
	v.Captions, v.UpdatedAt = captions, now
	return true
}

// RemoveCaption drops a track and reports whether there was one.
func (v *Video) RemoveCaption(lang string, now time.Time) bool {
	n := len(v.Captions)
	v.Captions = slices.DeleteFunc(slices.Clone(v.Captions), func(c Caption) bool { return c.Lang == lang })
	if len(v.Captions) == n {
		return false
	}
	v.UpdatedAt = now
	return true
}
