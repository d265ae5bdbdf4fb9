// Package video defines the rules for a video: its fields, the table of allowed status
// changes, who may watch it and until when, how passwords are stored, and the tokens that
// grant access.
//
// [Service] is the entry point for the rest of the service. It applies the rules, stores the
// result and does the work after a commit. It accesses storage through the interfaces [Store]
// and [Bucket].
//
// The package guarantees that a Video built by [New] complies with every API rule, that a
// status changes only as the table allows, that a ready video remains ready, and that a caller who
// is not allowed to watch a video gets the same error on every page. The types do not do any I/O.
// Callers pass in the time, ids and random values.
package video

import (
	"time"

	"github.com/linkreel/linkreel/libs/events"
)

// ID identifies a video to its owner and within the system.
type ID string

// Slug identifies a video in its share URL. It is random, so the slug of an unlisted video cannot
// be guessed.
type Slug string

// Privacy defines who may watch a video.
type Privacy string

// The privacies. Only a public video may be indexed. No part of a password-protected video is
// shown before a visitor enters the password. No part of an expiring video is shown after its
// expiry.
const (
	Public   Privacy = "public"
	Unlisted Privacy = "unlisted"
	Password Privacy = "password"
	Expiring Privacy = "expiring"
)

// Privacies lists every privacy.
func Privacies() []Privacy { return []Privacy{Public, Unlisted, Password, Expiring} }

// Video is one video in one account.
type Video struct {
	ID        ID
	AccountID string
	Slug      Slug

	Title       string
	Description string
	Tags        []string
	ExternalID  string // the owner's id for the video, unique in the account; "" for none

	Privacy      Privacy
	PasswordHash string    // PHC string; only with Password
	ExpiresAt    time.Time // only with Expiring; exclusive: the video has expired at this time
	NoDownload   bool      // only owners may download the file
	EmbedOrigins []string  // the sites that may embed the video in a frame; empty: any
	// Access counts the changes to the access rule that revoke existing permissions. Every token
	// contains this number and becomes invalid when the number changes.
	Access int64
	// AccessSetAt is when the owner last set the access rule. It is zero if the rule has not been
	// set since the video was created.
	AccessSetAt time.Time

	Status   Status
	Failure  *Failure // only while failed
	Progress int      // 0–100; 100 only when ready

	Upload Upload
	Source Source
	Media  *Media // only when ready

	Captions []Caption // by language
	Still    *Still    // the poster that the owner chose; nil means the automatic poster
	Views    int64

	TakenDown *Takedown // set while the operator has taken the video down

	CreatedAt   time.Time
	UpdatedAt   time.Time // when the owner or the pipeline last changed the video, not counting views
	ReadyAt     time.Time
	PublishedAt time.Time // when the current media was published

	// DueAt is when the pipeline will next check the video. If it is zero, the pipeline checks the
	// video only after a notification, a hint or a request. See [Video.Schedule].
	DueAt time.Time

	// StorageLimit is how many bytes the account was allowed to store when the video was created;
	// 0 means no limit.
	StorageLimit int64
	// StorageRoom is the unused part of StorageLimit. It is negative if there is no limit, or
	// if the store has not looked it up. The store sets StorageRoom for an update to a video that
	// awaits its upload.
	StorageRoom int64

	// Rev counts the stored states that an owner can tell apart.
	Rev int64
	// Stored identifies the stored state that was read, for writes that must not overwrite a
	// newer state.
	Stored time.Time
}

// Upload contains the URLs that the owner uploads the file to.
type Upload struct {
	Object       string // the object name, the same for every attempt
	URL          string // signed; PUT
	ExpiresAt    time.Time
	ResumableURL string // of an open session; empty after the upload or if none could be started

	// Recording means that the file is uploaded while it is being recorded. When no more bytes
	// arrive, the received bytes are the whole file. Received is how many bytes storage had
	// received at the last check, and ReceivedAt is when a check first found that number.
	Recording  bool
	Received   int64
	ReceivedAt time.Time

	// Most is how many bytes the session may store in an account with a storage limit. They are
	// reserved for this session until storage has ended it.
	Most int64

	// Ended lists the sessions from which the video no longer accepts a file. A session stays
	// listed until storage has ended it, so that nobody can use it to store bytes.
	Ended []string
}

// Source is the uploaded object that the current processing reads. Its generation is pinned, so
// an object uploaded later is a different source.
type Source struct {
	Generation  int64
	Size        int64
	ContentType string
	JobID       string
	StoredAt    time.Time // when the file arrived in storage
	// Encoded reports whether the file was uploaded with a Content-Encoding. FileArrived
	// rejects such a file, so this field is not stored.
	Encoded bool
}

// Media is the result of processing. Fields that are only needed by players are packed into
// Outcome.
type Media struct {
	Version    int
	Final      bool // the worker will not add anything else
	Path       string
	Duration   float64 // seconds
	Width      int     // as displayed
	Height     int
	HasAudio   bool
	Renditions []Rendition // tallest first
	Bytes      int64       // size of all objects

	Poster     string // object name
	Download   string // object name; empty if there is none
	Storyboard bool

	Outcome []byte
}

// Rendition is one quality level that a viewer can choose.
type Rendition struct {
	Name      string
	Width     int
	Height    int
	FrameRate float64
	Bandwidth int // peak bits per second, including audio
	Codecs    string
}

// Caption is one uploaded subtitle track.
type Caption struct {
	Lang   string // BCP 47
	Label  string // as stored; players show [Caption.Name]
	Object string
	At     time.Time
}

// Still is a poster that the owner chose by its time in the video.
type Still struct {
	Time   float64 // seconds
	JobID  string  // the job that takes the poster; "" when the job is done
	Object string  // the poster; "" until it is taken
}

// Takedown is the operator's decision to block a video.
type Takedown struct {
	ID     string
	Reason string
	At     time.Time
}

// Failure is the public reason why a video failed.
type Failure struct {
	Code    Code
	Message string
}

// Code identifies the reason why a video failed.
type Code string

// The failures that this service detects. Workers report additional codes.
const (
	EmptyFile         Code = "EMPTY_FILE"
	UnsupportedFormat Code = "UNSUPPORTED_FORMAT"
	FileTooLarge      Code = "FILE_TOO_LARGE"
	UploadExpired     Code = "UPLOAD_EXPIRED"
	Internal          Code = "INTERNAL"
)

// Expired reports whether the video has expired.
func (v *Video) Expired(now time.Time) bool {
	return !v.ExpiresAt.IsZero() && !now.Before(v.ExpiresAt)
}

// AwaitsUpload reports whether a file sent to the upload URL would be used.
func (v *Video) AwaitsUpload() bool { return v.Status == Uploading || v.Status == Failed }

// Indexable reports whether search engines may index the video.
func (v *Video) Indexable() bool { return v.Privacy == Public }

// Previewable reports whether the video's title and picture may be shown outside its page: in
// link previews, oEmbed and thumbnails.
func (v *Video) Previewable(now time.Time) bool {
	return v.Privacy != Password && !v.Expired(now) && v.TakenDown == nil
}

// Playable reports whether the video is ready to play.
func (v *Video) Playable() bool { return v.Status == Ready && v.Media != nil }

// Reserved returns how many more bytes the video's session may store, beyond those that it had
// received at the last check.
func (v *Video) Reserved() int64 {
	if v.Upload.ResumableURL == "" && len(v.Upload.Ended) == 0 {
		return 0
	}
	return max(0, v.Upload.Most-v.Upload.Received)
}

// Poster returns the object of the video's poster: the one that the owner chose, or else the
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

// Bytes returns the video's size in storage: its source, its media, and the bytes that its
// resumable session had received at the last check.
func (v *Video) Bytes() int64 {
	n := v.Upload.Received
	// A rejected file is removed immediately, so it does not count.
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

// Changed returns the event for a change from before to v, or [events.Quiet] if the change is not
// visible. A visible change increments the revision. UpdatedAt changes with every visible change
// except views and progress.
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
