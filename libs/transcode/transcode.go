// Package transcode is the contract between the videos service, which owns a video's status, and
// the transcoding workers, which transcode it.
//
// A Job is for one generation of one uploaded object. Both sides use its Record, which package jobs
// stores. The worker that holds the lease writes progress, outcomes and failures to the record,
// guarded by a fencing token, and the videos service applies them to the video. A worker that has
// lost its lease cannot change the record. Progress never decreases. A published outcome is
// replaced only by an outcome with a higher version.
//
// The package knows nothing about accounts, privacy, HTTP or databases.
// services/videos/internal/hls creates the playlists, and the worker creates the files.
package transcode

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// QueueName is the name of the queue from which workers take job ids.
const QueueName = "jobs"

// OutcomeQueueName is the name of the queue on which the workers announce changes to a job's
// record. Without the announcement, the videos service finds the changes in its next sweep.
const OutcomeQueueName = "outcomes"

// Limits bound an upload. The videos service sets them in the job, so every worker applies the same
// limits. A zero field means no limit.
type Limits struct {
	MaxBytes    int64         `json:"maxBytes"`
	MaxDuration time.Duration `json:"maxDuration"`
	MaxSide     int           `json:"maxSide"`   // pixels in width or height
	MaxPixels   int           `json:"maxPixels"` // width times height
}

// Job is a request to prepare one uploaded object for playback.
type Job struct {
	ID         string // JobID(VideoID, Generation)
	AccountID  string // the account, for taking turns in the queue; empty in old records
	VideoID    string
	Object     string // the upload's name in the bucket
	Generation int64  // the object's generation; each generation has its own job
	Size       int64  // bytes, as storage reported them; 0 when unknown
	Limits     Limits
	Trace      map[string]string // W3C trace context from the request that caused the job
	CreatedAt  time.Time

	// Parent is set for a part of another job. That job's worker created the part so that
	// other workers can help. Spec is the worker's description of the part.
	Parent string
	Spec   []byte

	// Still is set for a job that takes one picture from a ready video. Its Object is a rendition,
	// and its outcome contains only a poster.
	Still *Still
}

// Still describes the picture that a job takes. The job reads only the rendition's init part and
// the one segment with the picture, so a picture from a four-hour film does not require reading
// gigabytes.
type Still struct {
	At      float64 // seconds from the beginning of the segment
	Init    Range
	Segment Range
}

// StillOf describes the picture at a given second in a rendition.
func StillOf(r Rendition, seconds float64) (Still, bool) {
	start := 0.0
	for i, s := range r.Segments {
		// The end of a video belongs to its last segment.
		if seconds < start+s.Duration || i == len(r.Segments)-1 {
			return Still{At: max(0, seconds-start), Init: r.Init, Segment: s.Range}, true
		}
		start += s.Duration
	}
	return Still{}, false
}

// StillID returns the id for a job that takes one picture. nonce distinguishes one video's picture
// jobs.
func StillID(videoID, nonce string) string { return videoID + "-still" + nonce }

// StillPrefix returns the prefix of the files from an attempt at a picture job. It differs from the
// prefixes of transcoding attempts because those attempts delete their own prefixes.
func StillPrefix(jobID string, attempt int) string {
	return fmt.Sprintf("%s%s-%d/", VideoPrefix(VideoOf(jobID)), jobID[strings.LastIndexByte(jobID, '-')+1:], attempt)
}

// PartID returns the id for one part of a job.
func PartID(jobID string, index int) string { return jobID + "." + strconv.Itoa(index) }

// IsPart reports whether an id belongs to a part.
func IsPart(id string) bool { return strings.Contains(id, ".") }

// JobID returns the job id for one object generation, so detecting an upload twice creates only one
// job.
func JobID(videoID string, generation int64) string {
	return videoID + "-" + strconv.FormatInt(generation, 10)
}

// VideoOf returns the video's id from a job's id.
func VideoOf(jobID string) string {
	return jobID[:max(0, strings.LastIndexByte(jobID, '-'))]
}

// Prefix returns the prefix of an attempt's files. It ends in a slash. Attempts never
// share a prefix, so a stale worker cannot overwrite a newer one's files.
func Prefix(videoID string, generation int64, attempt int) string {
	return fmt.Sprintf("%s%d-%d/", VideoPrefix(videoID), generation, attempt)
}

// PartsPrefix returns the prefix of a job's finished parts, which are stored until they are joined.
// It is below VideoPrefix, so deleting the video also deletes the parts. All attempts share it, so
// a dead worker's parts are not lost.
func PartsPrefix(videoID string, generation int64) string {
	return fmt.Sprintf("%sparts-%d/", VideoPrefix(videoID), generation)
}

// VideoPrefix returns the prefix of all files that were made for a video.
func VideoPrefix(videoID string) string { return "videos/" + videoID + "/" }

// ParsePrefix determines the job that wrote an object below VideoPrefix. There are two layouts.
// Both contain the generation, which identifies the job together with the video (see JobID):
//
//	videos/<id>/<generation>-<attempt>/…             an attempt's results
//	videos/<id>/parts-<generation>/<part>-<attempt>/… finished parts, until joined
//
// Parts belong to the job and outlive its attempts, so their attempt is 0. A janitor must keep both
// while the job is queued or running, because a worker that takes the job over relies on every part
// that is recorded as done. ok is false for objects that were not written by a job, such as
// captions.
func ParsePrefix(videoID, object string) (generation int64, attempt int, ok bool) {
	rest, found := strings.CutPrefix(object, VideoPrefix(videoID))
	if !found {
		return 0, 0, false
	}
	dir, _, found := strings.Cut(rest, "/")
	if !found {
		return 0, 0, false
	}
	if gen, parts := strings.CutPrefix(dir, "parts-"); parts {
		generation, err := strconv.ParseInt(gen, 10, 64)
		return generation, 0, err == nil
	}
	gen, att, found := strings.Cut(dir, "-")
	if !found {
		return 0, 0, false
	}
	generation, err := strconv.ParseInt(gen, 10, 64)
	if err != nil {
		return 0, 0, false
	}
	attempt, err = strconv.Atoi(att)
	return generation, attempt, err == nil
}

// RenditionName is the parsed name of a rendition's object.
type RenditionName struct {
	Generation int64
	Attempt    int
	Name       string // name of the rendition, as in [Rendition]
}

// ParseRendition parses the name of an object that is a rendition (video or audio). There are two
// forms:
//
//	<Prefix><name>.mp4
//	<Prefix><name>-source.mp4
//
// The second is the video repackaged from the source. An encoded rendition with the same name may
// replace it later in the same attempt, so the files must have different names. ok is false for all
// other names, even for another spelling of the same numbers. The rendition may not exist: compare
// Name with the names in the outcome.
func ParseRendition(videoID, object string) (r RenditionName, ok bool) {
	generation, attempt, ok := ParsePrefix(videoID, object)
	if !ok {
		return RenditionName{}, false
	}
	// Rebuild the prefix and compare so that each object has only one valid name.
	file, ok := strings.CutPrefix(object, Prefix(videoID, generation, attempt))
	name, mp4 := strings.CutSuffix(file, ".mp4")
	return RenditionName{generation, attempt, strings.TrimSuffix(name, "-source")}, ok && mp4
}

// State is the state of a job.
type State string

// Job states. Done and Failed are final.
const (
	Queued  State = "queued"
	Running State = "running"
	Done    State = "done"
	Failed  State = "failed"
)

// Final reports whether the job can no longer change.
func (s State) Final() bool { return s == Done || s == Failed }

// Record is a job and its progress.
type Record struct {
	Job

	State State
	// Attempt is the fencing token. Each claim increases it, and writes with a lower token are
	// rejected.
	Attempt int
	// Tries is the number of claims that have failed or have not ended. Claims that are returned
	// during a clean shutdown do not count.
	Tries int
	// Inspected means that a worker has inspected the source and done all quick work. The remaining
	// work takes a long time.
	Inspected  bool
	Worker     string
	LeaseUntil time.Time // zero unless running
	Progress   int       // 0–100, never decreases; 100 only after an outcome was published
	Outcome    *Outcome  // the latest published outcome; a running job may already have one
	Failure    *Failure  // set when failed
	UpdatedAt  time.Time
}

// Path is how the worker created the first playable rendition.
type Path string

// PathCopy repackages the source's video without encoding.
const (
	PathCopy      Path = "copy"
	PathTranscode Path = "transcode"
)

// Outcome is the result of a job. It has at least one complete rendition, so a video with an
// Outcome can be shared. Object names are complete and may have prefixes from several attempts.
type Outcome struct {
	// Version starts at 1 and increases with each publication for the same job. A later version may
	// add renditions, the storyboard and the download. It never removes them.
	Version int    `json:"version"`
	Final   bool   `json:"final"` // no later version will be published
	Path    Path   `json:"path"`
	Prefix  string `json:"prefix"` // prefix of the attempt that published this version

	Duration  float64 `json:"duration"` // seconds
	Width     int     `json:"width"`    // as displayed: rotation and pixel shape applied
	Height    int     `json:"height"`
	FrameRate float64 `json:"frameRate"`
	HasAudio  bool    `json:"hasAudio"`

	Renditions []Rendition `json:"renditions"` // video, tallest first
	Audio      *Rendition  `json:"audio,omitempty"`

	Poster       string      `json:"poster,omitempty"` // JPEG
	PosterWidth  int         `json:"posterWidth,omitempty"`
	PosterHeight int         `json:"posterHeight,omitempty"`
	Storyboard   *Storyboard `json:"storyboard,omitempty"`
	Download     string      `json:"download,omitempty"` // progressive MP4 with picture and sound

	// Bytes is the total size of all objects.
	Bytes int64 `json:"bytes,omitempty"`
}

// Rendition is one fMP4 object: an init part and segments, addressed by byte
// ranges.
type Rendition struct {
	Name             string   `json:"name"` // "1080p", "audio"; unique in an outcome, safe in a URL path
	Object           string   `json:"object"`
	Size             int64    `json:"size"`
	Width            int      `json:"width,omitempty"`
	Height           int      `json:"height,omitempty"`
	FrameRate        float64  `json:"frameRate,omitempty"`
	Channels         int      `json:"channels,omitempty"` // sound channels; 0 in old outcomes, which did not record them
	Codecs           string   `json:"codecs"`             // RFC 6381, read from the file
	Bandwidth        int      `json:"bandwidth"`          // bits per second of the largest segment
	AverageBandwidth int      `json:"averageBandwidth"`   // bits per second across all segments
	Init             Range    `json:"init"`
	Segments         Segments `json:"segments"`
}

// AudioName is the audio rendition's Name.
const AudioName = "audio"

// Range is a byte range in an object.
type Range struct {
	Offset int64 `json:"offset"`
	Size   int64 `json:"size"`
}

// Segment is one playable part of a rendition.
type Segment struct {
	Range
	Duration float64 // seconds
}

// Storyboard describes sprite sheets of small frames, Interval seconds apart,
// filled row by row.
type Storyboard struct {
	Objects    []string `json:"objects"` // JPEG sheets in order
	Columns    int      `json:"columns"`
	Rows       int      `json:"rows"`
	TileWidth  int      `json:"tileWidth"`
	TileHeight int      `json:"tileHeight"`
	Interval   float64  `json:"interval"`
	Count      int      `json:"count"` // frames across all sheets
}

// Objects returns every object that the outcome refers to.
func (o *Outcome) Objects() []string {
	if o == nil {
		return nil
	}
	var names []string
	for _, r := range o.Renditions {
		names = append(names, r.Object)
	}
	if o.Audio != nil {
		names = append(names, o.Audio.Object)
	}
	if o.Poster != "" {
		names = append(names, o.Poster)
	}
	if o.Storyboard != nil {
		names = append(names, o.Storyboard.Objects...)
	}
	if o.Download != "" {
		names = append(names, o.Download)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Uses reports whether the outcome refers to an object with the prefix.
func (o *Outcome) Uses(prefix string) bool {
	return slices.ContainsFunc(o.Objects(), func(object string) bool { return strings.HasPrefix(object, prefix) })
}

// Rendition returns the video or audio rendition with this name.
func (o *Outcome) Rendition(name string) (Rendition, bool) {
	if o == nil {
		return Rendition{}, false
	}
	if o.Audio != nil && o.Audio.Name == name {
		return *o.Audio, true
	}
	for _, r := range o.Renditions {
		if r.Name == name {
			return r, true
		}
	}
	return Rendition{}, false
}

// Code is the reason why a job failed. It is part of the public API.
type Code string

// Codes for failed jobs. Only the videos service uses UPLOAD_EXPIRED. It is included so that the
// list is complete.
const (
	NotAVideo          Code = "NOT_A_VIDEO"
	EmptyFile          Code = "EMPTY_FILE"
	UnsupportedFormat  Code = "UNSUPPORTED_FORMAT"
	CorruptFile        Code = "CORRUPT_FILE"
	TooLong            Code = "TOO_LONG"
	TooLargeDimensions Code = "TOO_LARGE_DIMENSIONS"
	FileTooLarge       Code = "FILE_TOO_LARGE"
	Timeout            Code = "TRANSCODE_TIMEOUT"
	UploadExpired      Code = "UPLOAD_EXPIRED"
	Internal           Code = "INTERNAL"
)

// Codes contains all codes.
var Codes = []Code{
	NotAVideo, EmptyFile, UnsupportedFormat, CorruptFile, TooLong, TooLargeDimensions, FileTooLarge, Timeout, UploadExpired, Internal,
}

// Failure describes why a job ended without an outcome. Message is for the uploader and does not
// name any path, tool or store.
type Failure struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// FormUpload is the message for an upload that was a form containing the file, not the file itself.
const FormUpload = "The upload was a form. Send the file itself as the body of the PUT, for example with `curl -T clip.mp4`."

func (f *Failure) Error() string { return string(f.Code) + ": " + f.Message }

// MarshalOutcome returns the stored form of an outcome: JSON with packed segment tables,
// small enough to fit in a document (about 7 bytes per segment).
func MarshalOutcome(o *Outcome) ([]byte, error) {
	if o == nil {
		return nil, nil
	}
	b, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode outcome: %w", err)
	}
	return b, nil
}

// PrefixOf returns the Prefix from an outcome in MarshalOutcome's form without unpacking its
// tables, which make up most of it.
func PrefixOf(b []byte) (string, error) {
	var o struct {
		Prefix string `json:"prefix"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return "", fmt.Errorf("decode outcome: %w", err)
	}
	return o.Prefix, nil
}

// UnmarshalOutcome decodes MarshalOutcome's form. For empty input it returns nil.
func UnmarshalOutcome(b []byte) (*Outcome, error) {
	if len(b) == 0 {
		return nil, nil
	}
	o := new(Outcome)
	if err := json.Unmarshal(b, o); err != nil {
		return nil, fmt.Errorf("decode outcome: %w", err)
	}
	return o, nil
}
