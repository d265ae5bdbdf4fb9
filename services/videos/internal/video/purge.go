package video

import (
	"slices"
	"time"
)

// Purge is the task that removes a deleted video from storage. It has two phases. In the first
// phase, until Until, it removes all objects in repeated rounds because an in-flight upload or a
// worker may still write objects. In the second phase, until Late, it is a tombstone that contains
// only the video's ID.
type Purge struct {
	Video   ID
	Account string
	JobIDs  []string // the jobs that may still run
	// Sessions are the resumable sessions that have yet to be ended.
	Sessions []string
	Since    time.Time
	Due      time.Time
	Until    time.Time // end of the first phase; zero for a tombstone
	// After Late, nobody can write any more. An upload URL cannot be revoked, so anyone who has it
	// can upload a file for a deleted video until the URL expires.
	Late time.Time
	// Stored identifies the revision of the task that was read.
	Stored time.Time
}

// purgedFor and erasedFor are how long a task keeps searching for a video's objects.
// erasedFor is shorter because auth must forget an erased account within an hour, and it cannot do
// so until there are no tasks left that refer to the account.
const (
	purgedFor = time.Hour
	erasedFor = 15 * time.Minute
)

// sleptFor is the longest a worker can be suspended and still write afterwards.
const sleptFor = 24 * time.Hour

// LongestAddress is the maximum lifetime of an upload URL: storage rejects older signatures.
const LongestAddress = 7 * 24 * time.Hour

// PurgeOf returns the purge task for deleting v.
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
	// Include the sessions that the video no longer uses: until storage has ended them, anyone
	// who has their URL can still send bytes.
	p.Sessions = slices.Clone(v.Upload.Ended)
	if v.Upload.ResumableURL != "" {
		p.Sessions = append(p.Sessions, v.Upload.ResumableURL)
	}
	// An upload that began just before its URL expired may still be in progress.
	p.Late = v.Upload.ExpiresAt.Add(UploadGrace)
	if v.InWork() {
		p.Late = Later(p.Late, now.Add(sleptFor))
	}
	return p
}

// IsTombstone reports whether p is in its second phase and is only waiting for late uploads.
func (p Purge) IsTombstone() bool { return p.Until.IsZero() }

// Tombstone returns the tombstone for p, which is kept until Late. It does not refer to an account,
// so erasures do not have to wait for it.
func (p Purge) Tombstone() Purge { return Purge{Video: p.Video, Late: p.Late, Stored: p.Stored} }

// lateLook is the pause between checks for late uploads in installations without storage
// notifications. A check costs two reads and one write, and an upload URL is valid for a day.
const lateLook = time.Hour

// Next returns when the task's next round is due. The pauses grow because most late writes happen
// soon after the deletion and come from an upload or worker that was still running.
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
		return now.Add(9 * time.Second) // shorter than the pause between sweeps, so the task is due in every sweep
	case since < time.Hour:
		return now.Add(2 * time.Minute)
	case since < 24*time.Hour: // storage still fails to remove the remaining objects
		return now.Add(time.Hour)
	}
	return now.Add(12 * time.Hour)
}

// ErasedBy returns when an account's purge tasks will stop referring to the account if it is erased
// at now.
func ErasedBy(now time.Time) time.Time { return now.Add(erasedFor) }

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
