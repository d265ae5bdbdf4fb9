package video

import (
	"slices"
	"time"
)

// Purge is the task of removing what storage has of a deleted video. It is done
// again and again until Until, since an upload that was in flight, or a worker
// that had not heard yet, may still write.
type Purge struct {
	Video   ID
	Account string
	JobIDs  []string // of the jobs that may run
	// Sessions are the resumable sessions that storage has not ended yet.
	Sessions []string
	Since    time.Time
	Due      time.Time
	Until    time.Time
}

// erasedFor is how long the objects of an erased account are looked for. Its
// record has to be gone within the hour. A file that is sent later, to an upload
// address that cannot be taken back, is removed by storage's notification and by
// the janitor, since no record names it.
const erasedFor = 15 * time.Minute

// PurgeOf is the task that v's deletion leaves. An erased account's video leaves
// a short one.
func PurgeOf(v *Video, erase bool, now time.Time) Purge {
	p := Purge{Video: v.ID, Account: v.AccountID, Since: now, Due: now, Until: now.Add(time.Hour)}
	if v.Source.JobID != "" {
		p.JobIDs = append(p.JobIDs, v.Source.JobID)
	}
	if v.Still != nil && v.Still.JobID != "" {
		p.JobIDs = append(p.JobIDs, v.Still.JobID)
	}
	// An upload that began just before its address expired may still be running.
	if last := v.Upload.ExpiresAt.Add(UploadGrace); last.After(p.Until) {
		p.Until = last
	}
	p.Sessions = slices.Clone(v.Upload.Ended)
	if v.Upload.ResumableURL != "" {
		p.Sessions = append(p.Sessions, v.Upload.ResumableURL)
	}
	// auth forgets the account only once this task is gone.
	if erase {
		p.Until = now.Add(erasedFor)
	}
	return p
}

// Next spaces out the rounds: what comes late comes soon after the deletion, from
// an upload or a worker that was at it.
func (p Purge) Next(now time.Time) time.Time {
	switch since := now.Sub(p.Since); {
	case since < 2*time.Minute:
		return now.Add(9 * time.Second) // less than a sweep, so that each sweep finds it due
	case since < time.Hour:
		return now.Add(2 * time.Minute)
	case since < 24*time.Hour:
		return now.Add(time.Hour)
	}
	return now.Add(12 * time.Hour)
}

// ErasedBy is when a task of an account that is erased from now on ends at the
// latest.
func ErasedBy(now time.Time) time.Time { return now.Add(erasedFor) }
