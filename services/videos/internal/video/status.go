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
	Uploading  Status = "uploading"  // waiting for the file
	Processing Status = "processing" // the file is there and playback is being prepared
	Ready      Status = "ready"      // can be shared; final
	Failed     Status = "failed"     // another file may be uploaded at the same address
)

// transitions lists every allowed change of status.
var transitions = map[Status][]Status{
	Uploading:  {Processing, Failed}, // failed: no file came in time, or it was refused unread
	Processing: {Ready, Failed},
	Failed:     {Processing}, // another object generation was uploaded
	Ready:      {},
}

// ErrTransition means that the table does not allow the change, or that the video no
// longer waits for that file or job. Callers take it to mean that another caller was
// first, and read the video again.
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

// UploadLimits bound an upload before its content is read.
type UploadLimits struct {
	MaxBytes int64
	MaxAge   time.Duration // from creation to the file's arrival
}

// FileArrived records an object at the upload address. The video starts processing
// this generation, or fails at once if its size or its Content-Encoding is not
// acceptable. It returns ErrTransition for a generation that was seen before, and for
// a video that expects no file.
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

// refusal returns the reason why a file is not worth processing, or nil if it is.
func (v *Video) refusal(s Source, limits UploadLimits) *Failure {
	switch {
	case s.Size == 0:
		return &Failure{EmptyFile, "The uploaded file is empty. Upload it again."}
	case s.Encoded:
		// Storage decompresses such a file when it is read, so its size says nothing about what
		// a worker would get.
		return &Failure{UnsupportedFormat, "The file was uploaded with a Content-Encoding, such as gzip. " +
			"Upload it again, uncompressed and without that header."}
	case v.StorageLimit > 0 && v.StorageRoom >= 0 && s.Size > v.StorageRoom: // negative: the store has not looked it up
		return &noRoom
	case limits.MaxBytes > 0 && s.Size > limits.MaxBytes:
		return &Failure{FileTooLarge, fmt.Sprintf("The uploaded file is larger than %s. Upload a smaller one.", byteSize(limits.MaxBytes))}
	}
	return nil
}

// endSession stops taking data from the resumable session. The pipeline tells storage
// to end it.
func (v *Video) endSession() {
	if v.Upload.ResumableURL != "" {
		v.Upload.Ended = append(slices.Clone(v.Upload.Ended), v.Upload.ResumableURL)
	}
	v.Upload.ResumableURL, v.Upload.Recording, v.Upload.Received, v.Upload.ReceivedAt = "", false, 0, time.Time{}
}

// SessionGone notes that storage has ended session.
func (v *Video) SessionGone(session string) {
	v.Upload.Ended = slices.DeleteFunc(slices.Clone(v.Upload.Ended), func(s string) bool { return s == session })
	if v.Upload.ResumableURL == session {
		v.Upload.ResumableURL, v.Upload.Recording, v.Upload.Received, v.Upload.ReceivedAt = "", false, 0, time.Time{}
	}
	if v.Upload.ResumableURL == "" && len(v.Upload.Ended) == 0 {
		v.Upload.Most = 0
	}
}

// idleSession is how long an empty session keeps the room that is set aside for it.
const idleSession = time.Hour

// Forgotten ends a session that has received nothing for an hour, in an account with a
// storage limit: other uploads need the room. A client that still wants to send in
// parts gets a new session by asking for the video.
func (v *Video) Forgotten(now time.Time) bool {
	if v.StorageLimit <= 0 || v.Upload.ResumableURL == "" || v.Upload.Received > 0 ||
		now.Sub(Later(v.CreatedAt, v.Upload.ReceivedAt)) < idleSession {
		return false
	}
	v.endSession()
	return true
}

// noRoom is the failure when the account has no room for a file, or for a part of one.
var noRoom = Failure{FileTooLarge, "The account's storage has no room for the uploaded file. Delete other videos, then upload it again."}

// refuse fails the video for a file that is not worth processing. A video that
// had failed before stays failed, with the newer reason.
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

// Expire fails a video whose file did not come in time.
func (v *Video) Expire(limits UploadLimits, now time.Time) error {
	if v.Status != Uploading || now.Sub(v.CreatedAt) < limits.MaxAge {
		return fmt.Errorf("expire a video that is %s and was created %s ago: %w", v.Status, now.Sub(v.CreatedAt), ErrTransition)
	}
	if err := v.become(Failed, now); err != nil {
		return err
	}
	v.Failure = &Failure{UploadExpired, "No file was uploaded in time. Upload it to the new address."}
	v.endSession()
	return nil
}

// Publish makes m the video's media. The first media makes the video ready. Later
// versions of the same source only add to the earlier ones, so for an older version
// Publish returns ErrTransition.
func (v *Video) Publish(jobID string, m Media, now time.Time) error {
	// Another file was uploaded since, and this result is for the old one.
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

// Fail ends the processing of a job with a reason. A file that storage received as a form is
// explained as such. Its Content-Type alone refuses no file: clients may send a video with any.
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

// The failures that a worker gives a form: most are no video, and `curl -d` changes the bytes
// of others.
const notAVideo, corruptFile = Code(transcode.NotAVideo), Code(transcode.CorruptFile)

// isForm reports whether the uploader called the file a form, as `curl -F` and `curl -d` do.
func (s Source) isForm() bool {
	media, _, _ := strings.Cut(strings.ToLower(s.ContentType), ";")
	return slices.Contains([]string{"multipart/form-data", "application/x-www-form-urlencoded"}, strings.TrimSpace(media))
}

// UploadToReady returns how long the owner has waited: from when storage got the file until
// the video could be played. It is zero if either time is unknown.
func (v *Video) UploadToReady() time.Duration {
	if v.Source.StoredAt.IsZero() || v.ReadyAt.IsZero() {
		return 0
	}
	return max(0, v.ReadyAt.Sub(v.Source.StoredAt))
}

// ReportProgress records how far processing has come. Progress never decreases and never
// reaches 100 before the video is ready.
func (v *Video) ReportProgress(percent int) {
	if v.Status == Processing {
		v.Progress = max(v.Progress, min(percent, 99))
	}
}

// UploadGrace is how long the pipeline still looks for an upload after the address has
// expired, since the upload may have begun in time.
const UploadGrace = 24 * time.Hour

// Plan says when the pipeline comes back to a video without a notification.
type Plan struct {
	Upload UploadLimits
	// Replaced is how long replaced media may still be watched through addresses given out
	// before.
	Replaced time.Duration
	// RecordingIdle is how long after its last byte a recording counts as over.
	RecordingIdle time.Duration
	// Retention is how long a source is kept once its video is ready or failed; 0 means for
	// ever.
	Retention time.Duration
}

// Bounds of the pauses between two checks of the same video.
const (
	firstPause    = 10 * time.Second
	uploadPause   = time.Hour // storage notifies; this is for lost notifications
	progressPause = 5 * time.Minute
)

// Schedule sets when the video is due next. A video that waits for an upload is checked
// after 10 s, 20 s, 40 s and so on, up to every hour. So a hundred thousand forgotten
// videos cost little, and an upload to a new one is noticed soon. An unfinished
// recording is checked ten times during the pause that ends it. Every change of a video
// must call Schedule before it is stored.
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
		// A growing session takes up the account's room.
		if soon := now.Add(p.RecordingIdle); v.Upload.Received > 0 && now.Sub(v.Upload.ReceivedAt) < uploadPause && soon.Before(v.DueAt) {
			v.DueAt = soon
		}
		if end := v.CreatedAt.Add(p.Upload.MaxAge); end.After(now) && end.Before(v.DueAt) {
			v.DueAt = end
		}
	// Another file may come for as long as the upload address works.
	case v.Status == Failed && now.Before(v.Upload.ExpiresAt.Add(UploadGrace)):
		v.DueAt = pause(now.Sub(v.UpdatedAt), uploadPause)
	case v.InWork():
		// Workers give hints, so this only finds lost ones. The longer a job runs, the less
		// often it is checked.
		v.DueAt = pause(now.Sub(v.UpdatedAt)/8, progressPause)
	default:
		v.DueAt = v.nextTidy(p, now)
	}
}

// nextTidy returns when objects of a ready or failed video stop being needed.
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

// DecidedAt returns when the video got its current state: ready with its present media,
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

// Measured reports whether the pipeline asks storage how much the video's session holds.
// It asks for recordings, to notice their end, and for all sessions of an account with a
// storage limit, since they take room.
func (v *Video) Measured() bool {
	return v.Status == Uploading && v.Upload.ResumableURL != "" && (v.Upload.Recording || v.StorageLimit > 0) ||
		v.Status == Failed && v.Upload.ResumableURL != "" && v.StorageLimit > 0
}

// Outgrown fails a video whose session holds more than the account has room for,
// which ends the session.
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

// Retire ends the session of a failed video whose upload address has expired. The
// owner gets a new address and session by asking for the video.
func (v *Video) Retire(now time.Time) error {
	if v.Status != Failed || v.Upload.ResumableURL == "" || now.Before(v.Upload.ExpiresAt.Add(UploadGrace)) {
		return fmt.Errorf("retire the session of a video that is %s: %w", v.Status, ErrTransition)
	}
	v.endSession()
	return nil
}

// Receive records how much of a recording storage has, and reports whether it is over:
// storage has received nothing more for p.RecordingIdle. A recording without any bytes
// is not over: it counts as an upload that never began.
func (v *Video) Receive(n int64, p Plan, now time.Time) (over bool) {
	if n != v.Upload.Received {
		v.Upload.Received, v.Upload.ReceivedAt = n, now
		return false
	}
	return n > 0 && now.Sub(v.Upload.ReceivedAt) >= p.RecordingIdle
}
