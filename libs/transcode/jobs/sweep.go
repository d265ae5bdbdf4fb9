package jobs

import (
	"context"
	"errors"

	"github.com/linkreel/linkreel/libs/queue"
	"github.com/linkreel/linkreel/libs/transcode"
)

// Sweeper adds due jobs that are missing from the queue because the wake-up was lost, Redis has
// lost its data, the worker died, or the backoff has ended. Both the workers and the videos service
// sweep. Without workers, the videos service must do it, because an autoscaler that has scaled to
// zero checks only the queue's stream.
//
// A Sweeper must be used by one goroutine only.
type Sweeper struct {
	Jobs  *Store
	Queue *queue.Queue
	// Direct, if set, receives the due jobs that could not be added to the queue.
	Direct func(ctx context.Context, jobID string) error

	after Cursor
}

// Item returns the queue item for a job. Its tenant is the account, so accounts take turns.
func Item(j transcode.Job) queue.Item {
	return queue.Item{ID: j.ID, Tenant: j.AccountID, Trace: j.Trace}
}

// page is how many due jobs one read returns. pages is how many pages without missing jobs a sweep
// reads. Jobs are due until a worker takes them, so if one account has 10,000 uploads, a lost job
// behind them is found by the tenth sweep.
const page, pages = 50, 20

// Sweep checks some pages of due jobs. The next Sweep continues with the following pages because
// the oldest due jobs may be in the queue while a later job is missing. Pages with missing jobs do
// not count towards pages. The number of such pages depends on the number of lost jobs, not on the
// number of waiting jobs.
func (s *Sweeper) Sweep(ctx context.Context) error {
	for read := 0; ; {
		due, next, err := s.Jobs.Due(ctx, s.after, page)
		s.after = next // even after an error, so that an unreadable record does not stop the sweep
		errs := []error{err}
		missing := false
		for _, r := range due {
			added, err := s.look(ctx, r)
			missing = missing || added
			errs = append(errs, err)
		}
		if !missing {
			read++
		}
		if err := errors.Join(errs...); err != nil || read == pages || next == (Cursor{}) {
			return err
		}
	}
}

// Add adds a job to the queue.
func (s *Sweeper) Add(ctx context.Context, j transcode.Job) error {
	_, err := s.Queue.Add(ctx, Item(j))
	return err
}

func (s *Sweeper) look(ctx context.Context, r transcode.Record) (added bool, err error) {
	// A final record is due only if it is a part: its job's worker may have died before deleting
	// the part.
	if r.State.Final() {
		return false, s.Jobs.Collect(ctx, r)
	}
	added, err = s.Queue.Add(ctx, Item(r.Job))
	// A job that was passed to Direct does not count as added. Sweep reads another page after added
	// jobs, so during a queue outage it would read all due jobs.
	if err != nil && s.Direct != nil {
		return false, s.Direct(ctx, r.ID)
	}
	return added, err
}
