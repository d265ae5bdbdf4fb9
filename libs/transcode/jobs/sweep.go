package jobs

import (
	"context"
	"errors"

	"github.com/linkreel/linkreel/libs/queue"
	"github.com/linkreel/linkreel/libs/transcode"
)

// Sweeper puts due jobs into the queue when it lacks them: their wake-up was
// lost, Redis was emptied, their worker died, or their back-off is over. Workers
// sweep, and the videos service does too, because there may be no worker: an
// autoscaler at zero counts only what is in the queue's stream.
//
// A Sweeper belongs to one goroutine.
type Sweeper struct {
	Jobs  *Store
	Queue *queue.Queue
	// Direct, if set, gets the due jobs that the queue could not take.
	Direct func(ctx context.Context, jobID string) error

	after Cursor
}

// Item is how a job travels in the queue: by account, so that accounts take turns.
func Item(j transcode.Job) queue.Item {
	return queue.Item{ID: j.ID, Tenant: j.AccountID, Trace: j.Trace}
}

// page is how many due jobs one read lists, and pages how many pages a sweep reads
// that have no missing jobs: behind 10,000 uploads of one account, whose jobs are due
// until a worker has time for them, a lost one is found by the tenth sweep.
const page, pages = 50, 20

// Sweep looks at some pages of due jobs. The next Sweep looks at the pages after, since
// the jobs that are longest due may be in the queue and waiting for a worker, and a
// job behind them may be missing. A page with missing jobs is followed at once: the
// reads are then bounded by what was lost and not by what waits.
func (s *Sweeper) Sweep(ctx context.Context) error {
	for read := 0; ; {
		due, next, err := s.Jobs.Due(ctx, s.after, page)
		s.after = next // after an error too: a record that cannot be read must not stop the others
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
	if r.State.Final() {
		return false, s.Jobs.Collect(ctx, r)
	}
	added, err = s.Queue.Add(ctx, Item(r.Job))
	if err != nil && s.Direct != nil {
		return false, s.Direct(ctx, r.ID)
	}
	return added, err
}
