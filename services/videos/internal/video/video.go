// Package video holds the rules of a video: its fields, the table of allowed status
// changes, who may watch it and until when, how passwords are stored, and the tokens
// that carry a permission to watch.
//
// [Service] is the entry point for the rest of the service. It applies the rules,
// stores the result and does what follows a commit. It reaches storage through the
// interfaces that it declares, [Store] and [Bucket].
//
// The package guarantees that a Video built by [New] keeps every rule of the API, that
// a status only changes as the table allows, that a ready video stays ready, and that
// a caller who may not watch a video gets the same refusal on every page. Types do no
// I/O; callers pass in time, ids and randomness.
package video

import (
	"time"

	"github.com/linkreel/linkreel/libs/events"
)

// ID names a video for its owner and inside the system.
type ID string

// Slug names a video in its share address. It is random, so that an unlisted video
// cannot be found by guessing.
type Slug string

// Privacy says who may watch.
type Privacy string

// The privacies. Only a public video may be indexed. A password-protected video shows
// nothing before the password is given. An expiring video shows nothing after its time.
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
	Tags        []string
	ExternalID  string // the owner's name for it, unique among the account's videos; "" for none

	Privacy      Privacy
	PasswordHash string    // PHC string; only with Password
	ExpiresAt    time.Time // only with Expiring; exclusive: gone at this instant
	NoDownload   bool      // visitors get no file; owners always do
	EmbedOrigins []string  // which sites may frame the video; empty: any
	// Access counts the changes that invalidate permissions already given out. Tokens carry it
	// and are void once it has changed.
	Access int64
	// AccessSetAt is when the owner last set the rule. It is zero if that was at the creation.
	AccessSetAt time.Time

	Status   Status
	Failure  *Failure // only while failed
	Progress int      // 0–100; 100 only when ready

	Upload Upload
	Source Source
	Media  *Media // only once ready

	Captions []Caption // by language
	Still    *Still    // the picture that the owner chose; nil means the automatic one
	Views    int64

	TakenDown *Takedown // set while the operator has taken it down

	CreatedAt   time.Time
	UpdatedAt   time.Time // when the owner or the pipeline last changed it; views do not count
	ReadyAt     time.Time
	PublishedAt time.Time // when the media that is shown now was published

	// DueAt is when the pipeline looks at the video next. If it is zero, the pipeline does so
	// only when something happens to the video. See [Video.Schedule].
	DueAt time.Time

	// StorageLimit is how many bytes the account was allowed to store when the video was
	// created; 0 is no limit.
	StorageLimit int64
	// StorageRoom is how much of StorageLimit is free. It is negative if there is no limit, or if
	// the store has not looked it up. The store sets it when a change is made to a video that
	// awaits its upload.
	StorageRoom int64

	// Rev counts the stored states that an owner can tell apart.
	Rev int64
	// Stored identifies the stored state that was read, for writes that must not
	// undo a newer one.
	Stored time.Time
}

// Upload is where the owner sends the file.
type Upload struct {
	Object       string // the name in the bucket, the same for every attempt
	URL          string // signed; PUT
	ExpiresAt    time.Time
	ResumableURL string // an open resumable session; empty after its use, or if none could be started

	// Recording says that the file is sent while it is recorded: when no more bytes come, those
	// received are the whole file. Received is how many bytes storage had at the last check,
	// and ReceivedAt is when that number was first seen.
	Recording  bool
	Received   int64
	ReceivedAt time.Time

	// Most is how much the session may take, in an account with a storage limit. It is set
	// aside, so other sessions cannot take it, until storage has ended this one.
	Most int64

	// Ended are sessions from which the video no longer accepts a file. They stay here until
	// storage has ended them, so that nobody can use them to keep bytes there.
	Ended []string
}

// Source is the uploaded object that the current processing reads. Its generation is
// pinned: an object put there later is another source.
type Source struct {
	Generation  int64
	Size        int64
	ContentType string
	JobID       string
	StoredAt    time.Time // when storage got it
	// Encoded says that the uploader sent the file with a Content-Encoding. FileArrived refuses
	// such a file, so this is not stored.
	Encoded bool
}

// Media is the result of processing. Fields that only players need stay packed in
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
	Bytes      int64       // size of all objects

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
	Label  string // as stored; players show [Caption.Name]
	Object string
	At     time.Time
}

// Still is a picture of the video that the owner chose by its time.
type Still struct {
	Time   float64 // seconds
	JobID  string  // the job that takes it; "" once it is done
	Object string  // the picture; "" until it was taken
}

// Takedown is the operator's decision that a video must not be shown.
type Takedown struct {
	ID     string
	Reason string
	At     time.Time
}

// Failure is the public reason of a failed video.
type Failure struct {
	Code    Code
	Message string
}

// Code says why a video failed.
type Code string

// The reasons that this service detects; workers add theirs.
const (
	EmptyFile         Code = "EMPTY_FILE"
	UnsupportedFormat Code = "UNSUPPORTED_FORMAT"
	FileTooLarge      Code = "FILE_TOO_LARGE"
	UploadExpired     Code = "UPLOAD_EXPIRED"
	Internal          Code = "INTERNAL"
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
	return v.Privacy != Password && !v.Expired(now) && v.TakenDown == nil
}

// Playable reports whether the video is ready to be watched.
func (v *Video) Playable() bool { return v.Status == Ready && v.Media != nil }

// Reserved returns how much more the video's session may take than it held at the last
// check.
func (v *Video) Reserved() int64 {
	if v.Upload.ResumableURL == "" && len(v.Upload.Ended) == 0 {
		return 0
	}
	return max(0, v.Upload.Most-v.Upload.Received)
}

// Poster returns the object of the video's picture: the owner's choice, or else the
// automatic one. It returns "" if there is none.
func (v *Video) Poster() string {
	switch {
	case v.Still != nil && v.Still.Object != "":
		return v.Still.Object
	case v.Media != nil:
		return v.Media.Poster
	}
	return ""
}

// Bytes returns the video's size in storage: its source, its media, and the bytes that
// its resumable session held at the last check.
func (v *Video) Bytes() int64 {
	n := v.Upload.Received
	// A refused file is removed when it is refused.
	if v.Status != Failed || v.Source.JobID != "" {
		n += v.Source.Size
	}
	if v.Media != nil {
		n += v.Media.Bytes
	}
	return n
}

// statusEvents maps a status to the event that is written when a video enters it.
var statusEvents = map[Status]events.Type{
	Processing: events.VideoProcessing, Ready: events.VideoReady, Failed: events.VideoFailed,
}

// Changed returns the event for the change from before, or [events.Quiet] if nobody can
// see the change. Unless it is quiet, the change increments the revision. UpdatedAt
// changes with every visible change except views and progress.
func (v *Video) Changed(before *Video) events.Type {
	what, ok := statusEvents[v.Status]
	switch {
	case ok && before.Status != v.Status:
	case before.UpdatedAt.Equal(v.UpdatedAt):
		return events.Quiet
	default:
		what = events.VideoUpdated
	}
	v.Rev++
	return what
}
