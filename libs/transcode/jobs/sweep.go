package jobs

import (
	"context"
	"errors"

	"github.com/linkreel/linkreel/libs/queue"
	"github.com/linkreel/linkreel/libs/transcode"
)

// Sweeper puts due jobs into the queue if they are missing there: their wake-up was
// lost, Redis was emptied, their worker died, or their backoff is over. The workers
// sweep. The videos service does too, because there may be no worker: an autoscaler that
// has scaled to zero looks only at the queue's stream.
//
// A Sweeper belongs to one goroutine.
type Sweeper struct {
	Jobs  *Store
	Queue *queue.Queue
	// Direct, if set, gets the due jobs that the queue could not take.
	Direct func(ctx context.Context, jobID string) error

	after Cursor
}

// Item makes a job's item in the queue. Its tenant is the account, so that accounts
// take turns.
func Item(j transcode.Job) queue.Item {
	return queue.Item{ID: j.ID, Tenant: j.AccountID, Trace: j.Trace}
}

// page is how many due jobs one read lists. pages is how many pages without missing jobs
// a sweep reads. Jobs are due until a worker has time for them, so if one account has
// 10,000 uploads, a lost job behind them is found by the tenth sweep.
const page, pages = 50, 20

// Sweep checks some pages of due jobs. The next Sweep checks the pages after them,
// since the jobs that are due longest may be in the queue while a later one is missing.
// Pages with missing jobs do not count towards pages. Their number is bounded by the
// number of lost jobs, and not by the number of waiting jobs.
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

// Add puts a job into the queue.
func (s *Sweeper) Add(ctx context.Context, j transcode.Job) error {
	_, err := s.Queue.Add(ctx, Item(j))
	return err
}

func (s *Sweeper) look(ctx context.Context, r transcode.Record) (added bool, err error) {
	// A final record is due only if it is a part: the worker of its job may have died before
	// it removed the part.
	if r.State.Final() {
		return false, s.Jobs.Collect(ctx, r)
	}
	added, err = s.Queue.Add(ctx, Item(r.Job))
	// A job that went to Direct does not count as added: Sweep reads another page after added
	// jobs, so while the queue is down it would read all due jobs.
	if err != nil && s.Direct != nil {
		return false, s.Direct(ctx, r.ID)
	}
	return added, err
}
