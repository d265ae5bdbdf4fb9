package video

import (
	"fmt"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
)

// CheckStill validates the time of a poster that an owner requests.
func (v *Video) CheckStill(seconds float64) []apierr.Detail {
	if !v.Playable() {
		return []apierr.Detail{{Field: "time", Code: apierr.NotAllowed, Message: "The video has no picture until it is ready."}}
	}
	if most := v.Media.Duration; seconds < 0 || seconds > most {
		return []apierr.Detail{{Field: "time", Code: apierr.OutOfRange, Message: fmt.Sprintf("Use a number from 0 to %.3f, the length of the video in seconds.", most), Max: int64(most)}}
	}
	return nil
}

// AskStill records that job will take the poster at seconds. Until it has, the video keeps its
// current poster.
func (v *Video) AskStill(seconds float64, job string, now time.Time) {
	// This replaces an earlier job, so TakeStill rejects the poster from that job.
	still := Still{Time: seconds, JobID: job}
	if v.Still != nil {
		still.Object = v.Still.Object
	}
	v.Still, v.UpdatedAt = &still, now
}

// TakeStill sets the poster to object, which job took. It returns ErrTransition if the video is no
// longer waiting for that job.
func (v *Video) TakeStill(job, object string, now time.Time) error {
	if v.Still == nil || v.Still.JobID != job {
		return fmt.Errorf("picture from job %s: %w", job, ErrTransition)
	}
	v.Still.JobID, v.Still.Object, v.UpdatedAt = "", object, now
	return nil
}

// DropStill restores the automatic poster. It returns false if the video already has the
// automatic poster.
func (v *Video) DropStill(now time.Time) bool {
	if v.Still == nil {
		return false
	}
	v.Still, v.UpdatedAt = nil, now
	return true
}

// FailStill drops the request for a poster that could not be taken. The video keeps its
// previous poster.
func (v *Video) FailStill(job string, now time.Time) error {
	if v.Still == nil || v.Still.JobID != job {
		return fmt.Errorf("failure of job %s: %w", job, ErrTransition)
	}
	v.Still.JobID, v.UpdatedAt = "", now
	if v.Still.Object == "" {
		v.Still = nil
	}
	return nil
}
