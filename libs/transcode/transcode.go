// Package transcode is the contract between the videos service, which owns a
// video's status, and the transcoding workers, which own the work.
//
// A Job names one generation of one uploaded object. Both sides read its Record, which
// package jobs keeps: the worker that holds the lease writes progress, outcomes and
// failures into it, guarded by a fencing token, and the videos service applies what it
// finds to the video. A writer whose lease was taken over changes nothing that shows,
// progress never moves backwards, and an outcome, once published, is only ever replaced
// by one with a higher version.
//
// The package knows nothing of accounts, privacy, HTTP or databases. Playlists are made
// in services/videos/internal/hls, the files in the worker.
package transcode

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// QueueName is the queue on which job ids travel to the workers.
const QueueName = "jobs"

// OutcomeQueueName is the queue on which the workers say that a job's record has
// something to apply. It only saves waiting for the next sweep.
const OutcomeQueueName = "outcomes"

// Limits bound what an upload may be; they are the videos service's decision
// and travel with the job, so that every worker judges alike. A zero field is
// no limit.
type Limits struct {
	MaxBytes    int64         `json:"maxBytes"`
	MaxDuration time.Duration `json:"maxDuration"`
	MaxSide     int           `json:"maxSide"`   // pixels of width or height
	MaxPixels   int           `json:"maxPixels"` // width times height
}

// Job is a request to prepare one uploaded object for playback.
type Job struct {
	ID         string // JobID(VideoID, Generation)
	AccountID  string // whose turn the job takes in the queue; empty in old records
	VideoID    string
	Object     string // the upload's name in the bucket
	Generation int64  // the object's generation; another one is another job
	Size       int64  // bytes, as storage reported them; 0 when unknown
	Limits     Limits
	Trace      map[string]string // W3C trace context of the request that caused the job
	CreatedAt  time.Time

	// Parent is set for a part of another job, which that job's worker made so
	// that others may help; Spec is that worker's own description of the part.
	Parent string
	Spec   []byte

	// Still is set for a job that takes one picture of a video that is ready. Its
	// Object is then a rendition, and its outcome has a poster and nothing else.
	Still *Still
}

// Still is the picture that a job takes. It needs no more of the rendition than its
// init part and the one segment in which the picture lies, so that a picture of a
// film of four hours costs no gigabytes.
type Still struct {
	At      float64 // seconds from the beginning of the segment
	Init    Range
	Segment Range
}

// StillOf describes the picture at seconds of a rendition.
func StillOf(r Rendition, seconds float64) (Still, bool) {
	start := 0.0
	for i, s := range r.Segments {
		// The very end of a video is in its last segment.
		if seconds < start+s.Duration || i == len(r.Segments)-1 {
			return Still{At: max(0, seconds-start), Init: r.Init, Segment: s.Range}, true
		}
		start += s.Duration
	}
	return Still{}, false
}

// StillID names the job of taking one picture; nonce tells jobs of one video apart.
func StillID(videoID, nonce string) string { return videoID + "-still" + nonce }

// StillPrefix is where an attempt at such a job writes. It is no prefix of an
// attempt at the video itself, which cleans up after itself.
func StillPrefix(jobID string, attempt int) string {
	return fmt.Sprintf("%s%s-%d/", VideoPrefix(VideoOf(jobID)), jobID[strings.LastIndexByte(jobID, '-')+1:], attempt)
}

// PartID names one part of a job.
func PartID(jobID string, index int) string { return jobID + "." + strconv.Itoa(index) }

// IsPart tells whether an id is that of a part.
func IsPart(id string) bool { return strings.Contains(id, ".") }

// JobID names the job of one object generation, so that noticing an upload
// twice makes one job.
func JobID(videoID string, generation int64) string {
	return videoID + "-" + strconv.FormatInt(generation, 10)
}

// VideoOf is the video that a job is about, by the job's id.
func VideoOf(jobID string) string {
	return jobID[:max(0, strings.LastIndexByte(jobID, '-'))]
}

// Prefix is where an attempt writes. Attempts never share one, so a stale
// worker cannot overwrite what a newer one published. It ends in a slash.
func Prefix(videoID string, generation int64, attempt int) string {
	return fmt.Sprintf("%s%d-%d/", VideoPrefix(videoID), generation, attempt)
}

// PartsPrefix is where the finished parts of a job lie until they are joined.
// It is below VideoPrefix, so that a deleted video takes them along, and kept
// over attempts, so that a dead worker's parts are not lost.
func PartsPrefix(videoID string, generation int64) string {
	return fmt.Sprintf("%sparts-%d/", VideoPrefix(videoID), generation)
}

// VideoPrefix holds everything that was ever made for a video.
func VideoPrefix(videoID string) string { return "videos/" + videoID + "/" }

// ParsePrefix reads which job wrote an object below VideoPrefix. There are two
// layouts, and both name the generation, which together with the video is the
// job (see JobID):
//
//	videos/<id>/<generation>-<attempt>/…             an attempt's results
//	videos/<id>/parts-<generation>/<part>-<attempt>/… finished parts, until joined
//
// Parts belong to the job and outlive its attempts, so their attempt is 0. A
// janitor must leave both alone while the job is queued or running: a worker
// that takes the job over counts on every part that is recorded as done. ok is
// false for objects that no job wrote, such as captions.
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

// RenditionName is what the name of a rendition's object says.
type RenditionName struct {
	Generation int64
	Attempt    int
	Name       string // of the rendition, as in [Rendition]
}

// ParseRendition reads the name of an object that a worker made as a rendition,
// sound included. There are two forms:
//
//	<Prefix><name>.mp4
//	<Prefix><name>-source.mp4
//
// The second is the source's own picture, repackaged. An encoded rendition of the
// same name may replace it later in the same attempt, so the files must differ. ok
// is false for everything else, also for another spelling of the same numbers. It
// says nothing about whether there is such a rendition: compare Name with those
// that the outcome has.
func ParseRendition(videoID, object string) (r RenditionName, ok bool) {
	generation, attempt, ok := ParsePrefix(videoID, object)
	if !ok {
		return RenditionName{}, false
	}
	// The prefix is made again and compared, so one object has one name.
	file, ok := strings.CutPrefix(object, Prefix(videoID, generation, attempt))
	name, mp4 := strings.CutSuffix(file, ".mp4")
	return RenditionName{generation, attempt, strings.TrimSuffix(name, "-source")}, ok && mp4
}

// State is where a job stands.
type State string

// The states of a job. Queued and running jobs move on by themselves; the
// other two are final.
const (
	Queued  State = "queued"
	Running State = "running"
	Done    State = "done"
	Failed  State = "failed"
)

// Final tells whether the job will not change any more.
func (s State) Final() bool { return s == Done || s == Failed }

// Record is a job and how far it is.
type Record struct {
	Job

	State State
	// Attempt is the fencing token: each claim raises it, and writes that carry
	// an older one are refused.
	Attempt int
	// Tries counts the claims that ended badly or have not ended; work returned
	// on a clean shutdown is not counted.
	Tries int
	// Inspected says that somebody looked into the source and did what could be
	// done at once; what is left takes long.
	Inspected  bool
	Worker     string
	LeaseUntil time.Time // zero unless running
	Progress   int       // 0–100, never falling; 100 only when an outcome is published
	Outcome    *Outcome  // the latest published; a running job may have one already
	Failure    *Failure  // set when failed
	UpdatedAt  time.Time
}

// Path tells how the first playable rendition was made.
type Path string

// PathCopy is the source's own video repackaged without encoding.
const (
	PathCopy      Path = "copy"
	PathTranscode Path = "transcode"
)

// Outcome is what a job made. It has at least one complete rendition, so a
// video with an Outcome can be shared. Object names are complete and may lie
// under the prefixes of several attempts.
type Outcome struct {
	// Version starts at 1 and rises with each publication of the same job; a
	// later one may add renditions, storyboard and download, and never has less.
	Version int    `json:"version"`
	Final   bool   `json:"final"` // nothing will be added
	Path    Path   `json:"path"`
	Prefix  string `json:"prefix"` // of the attempt that published this version

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

	// Bytes is the size of all objects.
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
	Channels         int      `json:"channels,omitempty"` // of sound; 0 in outcomes from before it was recorded
	Codecs           string   `json:"codecs"`             // RFC 6381, read from the file
	Bandwidth        int      `json:"bandwidth"`          // bits per second of the largest segment
	AverageBandwidth int      `json:"averageBandwidth"`   // bits per second over all
	Init             Range    `json:"init"`
	Segments         Segments `json:"segments"`
}

// AudioName is the Name of the rendition that is the sound.
const AudioName = "audio"

// Range is a part of an object.
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
	Count      int      `json:"count"` // frames over all sheets
}

// Objects lists every object the outcome refers to.
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

// Uses tells whether the outcome refers to anything under prefix.
func (o *Outcome) Uses(prefix string) bool {
	return slices.ContainsFunc(o.Objects(), func(object string) bool { return strings.HasPrefix(object, prefix) })
}

// Rendition finds a video rendition, or the audio one, by name.
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

// Code says why a job failed; it is public.
type Code string

// The codes of a failed job. UPLOAD_EXPIRED is the videos service's own and
// listed here so that there is one list.
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

// Failure is why a job ended without an outcome. Message is for the uploader:
// it names no path, tool or store.
type Failure struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

func (f *Failure) Error() string { return string(f.Code) + ": " + f.Message }

// MarshalOutcome is the stored form of an outcome: JSON with the segment tables
// packed, small enough to live inside a document (about 7 bytes per segment).
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

// PrefixOf reads the Prefix of an outcome in MarshalOutcome's form, and leaves the
// tables, which are most of it, packed.
func PrefixOf(b []byte) (string, error) {
	var o struct {
		Prefix string `json:"prefix"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return "", fmt.Errorf("decode outcome: %w", err)
	}
	return o.Prefix, nil
}

// UnmarshalOutcome reads MarshalOutcome's form; empty input is no outcome.
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
