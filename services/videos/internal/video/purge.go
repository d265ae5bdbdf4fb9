package video

import (
	"slices"
	"time"
)

// Purge is the task of removing a deleted video from storage. It has two phases. In the
// first, which ends at Until, it removes everything in repeated rounds, since an upload or
// a worker that does not know of the deletion may still write. After that, and up to Late,
// it is a tombstone that keeps only the video's ID.
type Purge struct {
	Video   ID
	Account string
	JobIDs  []string // the jobs that may still run
	// Sessions are the resumable sessions that storage has not ended yet.
	Sessions []string
	Since    time.Time
	Due      time.Time
	Until    time.Time // zero for a tombstone
	// Late is the time from which nobody can write any more. An upload address cannot be
	// revoked, so its holder can send a file for a deleted video until the address expires.
	Late time.Time
	// Stored identifies the stored task that was read.
	Stored time.Time
}

// purgedFor and erasedFor are how long a task keeps looking for all objects of a video.
// erasedFor is shorter, since auth has to forget an erased account within the hour, and
// does so only once no task names it.
const (
	purgedFor = time.Hour
	erasedFor = 15 * time.Minute
)

// sleptFor is how long a worker may be suspended and still write afterwards.
const sleptFor = 24 * time.Hour

// LongestAddress is the maximum life of an upload address: storage accepts no older
// signature.
const LongestAddress = 7 * 24 * time.Hour

// PurgeOf returns the purge task for v's deletion.
func PurgeOf(v *Video, erase bool, now time.Time) Purge {
	p := Purge{Video: v.ID, Account: v.AccountID, Since: now, Due: now, Until: now.Add(purgedFor)}
	if erase {
		p.Until = ErasedBy(now)
	}
	if v.Source.JobID != "" {
		p.JobIDs = append(p.JobIDs, v.Source.JobID)
	}
	if v.Still != nil && v.Still.JobID != "" {
		p.JobIDs = append(p.JobIDs, v.Still.JobID)
	}
	// Sessions that the video has given up are included: until storage has ended them, anybody
	// who has their address can still send bytes.
	p.Sessions = slices.Clone(v.Upload.Ended)
	if v.Upload.ResumableURL != "" {
		p.Sessions = append(p.Sessions, v.Upload.ResumableURL)
	}
	// An upload that began just before its address expired may still be running.
	p.Late = v.Upload.ExpiresAt.Add(UploadGrace)
	if v.InWork() {
		p.Late = Later(p.Late, now.Add(sleptFor))
	}
	return p
}

// IsTombstone reports whether p only waits for late uploads.
func (p Purge) IsTombstone() bool { return p.Until.IsZero() }

// Tombstone returns p as a tombstone, which stays until Late. It names no account, so
// an erasure need not wait for it.
func (p Purge) Tombstone() Purge { return Purge{Video: p.Video, Late: p.Late, Stored: p.Stored} }

// lateLook is the pause between two checks for a late upload, for installations
// without storage notifications. A check costs two reads and a write, and an address
// lives for a day.
const lateLook = time.Hour

// Next returns when the task's next round is due. The pauses grow, since most late
// writes come soon after the deletion, from an upload or a worker that was running.
func (p Purge) Next(now time.Time) time.Time {
	if p.IsTombstone() {
		next := now.Add(lateLook)
		if p.Late.After(now) && p.Late.Before(next) {
			return p.Late
		}
		return next
	}
	switch since := now.Sub(p.Since); {
	case since < 2*time.Minute:
		return now.Add(9 * time.Second) // less than a sweep, so that each sweep finds it due
	case since < time.Hour:
		return now.Add(2 * time.Minute)
	case since < 24*time.Hour: // storage keeps refusing to remove what is still left
		return now.Add(time.Hour)
	}
	return now.Add(12 * time.Hour)
}

// ErasedBy returns when the purge tasks of an account stop naming it, if the account is
// erased at now.
func ErasedBy(now time.Time) time.Time { return now.Add(erasedFor) }

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
