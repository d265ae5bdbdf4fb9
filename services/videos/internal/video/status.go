package video

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/transcode"
)

// Status is the state of a video.
type Status string

// The statuses.
const (
	Uploading  Status = "uploading"  // the video awaits its file
	Processing Status = "processing" // a worker is transcoding the file
	Ready      Status = "ready"      // can be played; final
	Failed     Status = "failed"     // another file may be uploaded to the same object
)

// transitions lists every allowed status change.
var transitions = map[Status][]Status{
	Uploading:  {Processing, Failed}, // failed: no file arrived in time, or the file was rejected unread
	Processing: {Ready, Failed},
	Failed:     {Processing}, // another generation was uploaded
	Ready:      {},
}

// ErrTransition means that the table does not allow the change, or that the video is no longer
// waiting for that file or job. Callers take this to mean that another caller got there first, and
// read the video again.
var ErrTransition = errors.New("video: the status does not allow this change")

// CanBecome reports whether the table allows the change.
func (s Status) CanBecome(next Status) bool {
	return slices.Contains(transitions[s], next)
}

func (v *Video) become(next Status, now time.Time) error {
	if !v.Status.CanBecome(next) {
		return fmt.Errorf("%s to %s: %w", v.Status, next, ErrTransition)
	}
	v.Status, v.UpdatedAt = next, now
	return nil
}

// UploadLimits are the limits that are checked before a worker reads the file.
type UploadLimits struct {
	MaxBytes int64
	MaxAge   time.Duration // from creation to the file's arrival
}

// FileArrived records an uploaded object. The video starts processing this generation, or
// fails immediately if its size or its Content-Encoding is not acceptable. FileArrived
// returns ErrTransition for a generation that was already recorded, and for a video that is not
// waiting for a file.
func (v *Video) FileArrived(s Source, limits UploadLimits, now time.Time) error {
	if !v.AwaitsUpload() || s.Generation <= v.Source.Generation {
		return fmt.Errorf("generation %d for a video that is %s and has generation %d: %w", s.Generation, v.Status, v.Source.Generation, ErrTransition)
	}
	if f := v.refusal(s, limits); f != nil {
		return v.refuse(s, *f, now)
	}
	if err := v.become(Processing, now); err != nil {
		return err
	}
	v.Source, v.Failure, v.Progress = s, nil, 0
	v.endSession()
	return nil
}

// refusal returns the reason for rejecting a file without processing it, or nil if the file is
// accepted.
func (v *Video) refusal(s Source, limits UploadLimits) *Failure {
	switch {
	case s.Size == 0:
		return &Failure{EmptyFile, "The uploaded file is empty. Upload it again."}
	case s.Encoded:
		// Storage decompresses such a file when it is read, so its size does not limit how much a
		// worker would read.
		return &Failure{UnsupportedFormat, "The file was uploaded with a Content-Encoding, such as gzip. " +
			"Upload it again, uncompressed and without that header."}
	case v.StorageLimit > 0 && v.StorageRoom >= 0 && s.Size > v.StorageRoom: // negative if the limit was not looked up
		return &noRoom
	case limits.MaxBytes > 0 && s.Size > limits.MaxBytes:
		return &Failure{FileTooLarge, fmt.Sprintf("The uploaded file is larger than %s. Upload a smaller one.", byteSize(limits.MaxBytes))}
	}
	return nil
}

// endSession marks the resumable session as ended. The pipeline will end it in storage.
func (v *Video) endSession() {
	if v.Upload.ResumableURL != "" {
		v.Upload.Ended = append(slices.Clone(v.Upload.Ended), v.Upload.ResumableURL)
	}
	v.Upload.ResumableURL, v.Upload.Recording, v.Upload.Received, v.Upload.ReceivedAt = "", false, 0, time.Time{}
}

// SessionGone records that storage has ended session.
func (v *Video) SessionGone(session string) {
	v.Upload.Ended = slices.DeleteFunc(slices.Clone(v.Upload.Ended), func(s string) bool { return s == session })
	if v.Upload.ResumableURL == session {
		v.Upload.ResumableURL, v.Upload.Recording, v.Upload.Received, v.Upload.ReceivedAt = "", false, 0, time.Time{}
	}
	if v.Upload.ResumableURL == "" && len(v.Upload.Ended) == 0 {
		v.Upload.Most = 0
	}
}

// idleSession is how long an empty session keeps its reserved storage.
const idleSession = time.Hour

// Forgotten ends a session that has not received anything for an hour if the account has a storage
// limit, because other uploads may need the reserved storage. A client that still wants to upload
// in parts will get a new session when it requests the video.
func (v *Video) Forgotten(now time.Time) bool {
	if v.StorageLimit <= 0 || v.Upload.ResumableURL == "" || v.Upload.Received > 0 ||
		now.Sub(Later(v.CreatedAt, v.Upload.ReceivedAt)) < idleSession {
		return false
	}
	v.endSession()
	return true
}

// noRoom is the failure for a video that exceeds its account's storage limit, whether with its
// whole file or with the part received so far.
var noRoom = Failure{FileTooLarge, "The account does not have enough storage for the uploaded file. Delete other videos, then upload it again."}

// refuse makes the video fail because its file was rejected. If the video had already failed, the
// new reason replaces the old one.
func (v *Video) refuse(s Source, f Failure, now time.Time) error {
	if v.Status != Failed {
		if err := v.become(Failed, now); err != nil {
			return err
		}
	}
	s.JobID = ""
	v.Source, v.Failure, v.Progress, v.UpdatedAt = s, &f, 0, now
	v.endSession()
	return nil
}

// Expire makes a video fail if its file did not arrive in time.
func (v *Video) Expire(limits UploadLimits, now time.Time) error {
	if v.Status != Uploading || now.Sub(v.CreatedAt) < limits.MaxAge {
		return fmt.Errorf("expire a video that is %s and was created %s ago: %w", v.Status, now.Sub(v.CreatedAt), ErrTransition)
	}
	if err := v.become(Failed, now); err != nil {
		return err
	}
	v.Failure = &Failure{UploadExpired, "No file was uploaded in time. Upload it to the new URL."}
	v.endSession()
	return nil
}

// Publish sets the video's media to m. The first media makes the video ready. Later versions
// of the same source only add to the earlier versions, so Publish returns ErrTransition for
// an older version.
func (v *Video) Publish(jobID string, m Media, now time.Time) error {
	// If the job differs, another file has been uploaded, and this result is for the old file.
	if v.Source.JobID != jobID {
		return fmt.Errorf("publish of job %s: %w", jobID, ErrTransition)
	}
	if v.Status == Ready {
		if v.Media != nil && m.Version <= v.Media.Version {
			return fmt.Errorf("publish of version %d: %w", m.Version, ErrTransition)
		}
		v.Media, v.UpdatedAt, v.PublishedAt = &m, now, now
		return nil
	}
	if err := v.become(Ready, now); err != nil {
		return err
	}
	v.Media, v.Failure, v.Progress, v.ReadyAt, v.PublishedAt = &m, nil, 100, now, now
	return nil
}

// Fail ends a job's processing with a reason. If the file was uploaded as a form, the
// failure says so. A file is never rejected for its Content-Type alone: clients may send a video
// with any Content-Type.
func (v *Video) Fail(jobID string, f Failure, now time.Time) error {
	if v.Source.JobID != jobID {
		return fmt.Errorf("failure of job %s: %w", jobID, ErrTransition)
	}
	if (f.Code == notAVideo || f.Code == corruptFile) && v.Source.isForm() {
		f = Failure{notAVideo, transcode.FormUpload}
	}
	if err := v.become(Failed, now); err != nil {
		return err
	}
	v.Failure = &f
	return nil
}

// The failures that a worker reports for a form: most forms are not videos, and `curl -d` changes
// a file's bytes.
const notAVideo, corruptFile = Code(transcode.NotAVideo), Code(transcode.CorruptFile)

// isForm reports whether the upload's Content-Type is that of a form, as with `curl -F`
// and `curl -d`.
func (s Source) isForm() bool {
	media, _, _ := strings.Cut(strings.ToLower(s.ContentType), ";")
	return slices.Contains([]string{"multipart/form-data", "application/x-www-form-urlencoded"}, strings.TrimSpace(media))
}

// UploadToReady returns how long it took from the file's arrival in storage until the video could
// be played. It returns zero if either time is unknown.
func (v *Video) UploadToReady() time.Duration {
	if v.Source.StoredAt.IsZero() || v.ReadyAt.IsZero() {
		return 0
	}
	return max(0, v.ReadyAt.Sub(v.Source.StoredAt))
}

// ReportProgress records the progress of processing. Progress never decreases and does not
// reach 100 before the video is ready.
func (v *Video) ReportProgress(percent int) {
	if v.Status == Processing {
		v.Progress = max(v.Progress, min(percent, 99))
	}
}

// UploadGrace is how long the pipeline keeps checking for an upload after the upload URL has
// expired, in case the upload began in time.
const UploadGrace = 24 * time.Hour

// Plan defines when the pipeline checks a video again without a notification.
type Plan struct {
	Upload UploadLimits
	// Replaced is how long replaced media may still be watched through URLs returned earlier.
	Replaced time.Duration
	// RecordingIdle is how long after the last byte a recording counts as finished.
	RecordingIdle time.Duration
	// Retention is how long a source is kept after its video becomes ready or fails. 0 means
	// indefinitely.
	Retention time.Duration
}

// Bounds on the pauses between checks of the same video.
const (
	firstPause    = 10 * time.Second
	uploadPause   = time.Hour // storage sends notifications, so this only covers lost ones
	progressPause = 5 * time.Minute
)

// Schedule sets when the video is due next. A video that is waiting for an upload is checked after
// 10s, 20s, 40s and so on, until the pause reaches an hour. This way, a hundred thousand abandoned
// videos cost little, yet uploads to new videos are detected quickly. An unfinished recording is
// checked ten times during RecordingIdle. Every change to a video must call Schedule before the
// video is stored.
func (v *Video) Schedule(p Plan, now time.Time) {
	pause := func(waited, most time.Duration) time.Time { return now.Add(min(max(waited, firstPause), most)) }
	v.DueAt = time.Time{}
	switch {
	case len(v.Upload.Ended) > 0:
		v.DueAt = now.Add(firstPause)
	case v.Status == Uploading && v.Upload.Recording && v.Upload.Received > 0:
		v.DueAt = now.Add(p.RecordingIdle / 10)
		if end := v.Upload.ReceivedAt.Add(p.RecordingIdle); end.After(now) && end.Before(v.DueAt) {
			v.DueAt = end
		}
	case v.Status == Uploading:
		v.DueAt = pause(now.Sub(v.CreatedAt), uploadPause)
		// A growing session uses up the account's storage limit.
		if soon := now.Add(p.RecordingIdle); v.Upload.Received > 0 && now.Sub(v.Upload.ReceivedAt) < uploadPause && soon.Before(v.DueAt) {
			v.DueAt = soon
		}
		if end := v.CreatedAt.Add(p.Upload.MaxAge); end.After(now) && end.Before(v.DueAt) {
			v.DueAt = end
		}
	// Another file may arrive while the upload URL is valid.
	case v.Status == Failed && now.Before(v.Upload.ExpiresAt.Add(UploadGrace)):
		v.DueAt = pause(now.Sub(v.UpdatedAt), uploadPause)
	case v.InWork():
		// Workers send hints, so this only covers lost hints. The longer a job has been running,
		// the less often we check it.
		v.DueAt = pause(now.Sub(v.UpdatedAt)/8, progressPause)
	default:
		v.DueAt = v.nextTidy(p, now)
	}
}

// nextTidy returns when a ready or failed video's objects will no longer be needed.
func (v *Video) nextTidy(p Plan, now time.Time) time.Time {
	decided := v.DecidedAt()
	if replaced := decided.Add(p.Replaced); v.Status == Ready && replaced.After(now) {
		return replaced
	}
	if source := decided.Add(p.Retention); p.Retention > 0 && source.After(now) {
		return source
	}
	return time.Time{}
}

// InWork reports whether a job may still change the video.
func (v *Video) InWork() bool {
	return v.Status == Processing || v.Status == Ready && (v.Media == nil || !v.Media.Final) || v.Still != nil && v.Still.JobID != ""
}

// DecidedAt returns when the video reached its current state: ready with its current media,
// or failed.
func (v *Video) DecidedAt() time.Time {
	switch {
	case v.Status == Ready && !v.PublishedAt.IsZero():
		return v.PublishedAt
	case v.Status == Ready && !v.ReadyAt.IsZero():
		return v.ReadyAt
	}
	return v.UpdatedAt
}

func byteSize(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n >= 1024 && n%1024 == 0 && i < len(units)-1 {
		n, i = n/1024, i+1
	}
	return fmt.Sprintf("%d %s", n, units[i])
}

// Measured reports whether the pipeline queries storage for the size of the video's session.
// It does so for recordings, to detect their end, and for all sessions in an account with a storage
// limit because they count towards the limit.
func (v *Video) Measured() bool {
	return v.Status == Uploading && v.Upload.ResumableURL != "" && (v.Upload.Recording || v.StorageLimit > 0) ||
		v.Status == Failed && v.Upload.ResumableURL != "" && v.StorageLimit > 0
}

// Outgrown makes a video fail if its session has received more bytes than the account may still
// store. The failure ends the session.
func (v *Video) Outgrown(now time.Time) bool {
	if v.StorageLimit <= 0 || v.StorageRoom < 0 || v.Upload.Received <= v.StorageRoom {
		return false
	}
	if v.Status != Failed && v.become(Failed, now) != nil {
		return false
	}
	v.Failure, v.UpdatedAt = &noRoom, now
	v.endSession()
	return true
}

// Retire ends the session of a failed video after its upload URL has expired. The owner gets a
// new URL and session by requesting the video.
func (v *Video) Retire(now time.Time) error {
	if v.Status != Failed || v.Upload.ResumableURL == "" || now.Before(v.Upload.ExpiresAt.Add(UploadGrace)) {
		return fmt.Errorf("retire the session of a video that is %s: %w", v.Status, ErrTransition)
	}
	v.endSession()
	return nil
}

// Receive records how much of a recording storage has received. It reports whether the recording is
// finished, that is, whether p.RecordingIdle has passed since the last byte arrived. A recording
// without any bytes is not finished: it counts as an upload that never began.
func (v *Video) Receive(n int64, p Plan, now time.Time) (over bool) {
	if n != v.Upload.Received {
		v.Upload.Received, v.Upload.ReceivedAt = n, now
		return false
	}
	return n > 0 && now.Sub(v.Upload.ReceivedAt) >= p.RecordingIdle
}
