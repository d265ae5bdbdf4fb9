package pipeline

import (
	"context"
	"errors"

	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// Purge makes this replica look for purge tasks now: one was just committed.
func (p *Pipeline) Purge() { wake(p.kick) }

// Erase makes this replica look for accounts to erase now.
func (p *Pipeline) Erase() { wake(p.erasing) }

func wake(kick chan<- struct{}) {
	// One kick waits at most: it covers everything that was committed before it is taken.
	select {
	case kick <- struct{}{}:
	default:
	}
}

// PurgeDue works off the tasks whose time has come.
func (p *Pipeline) PurgeDue(ctx context.Context) error {
	due, err := p.o.Store.DuePurges(ctx)
	errs := []error{err}
	for _, task := range due {
		if ctx.Err() != nil {
			break
		}
		errs = append(errs, p.purge(ctx, task))
	}
	return errors.Join(errs...)
}

// purge removes what there is now. The task stays until nothing can come after.
func (p *Pipeline) purge(ctx context.Context, task video.Purge) error {
	var errs []error
	// Jobs first: a worker must not start to write what is being removed.
	for _, id := range task.JobIDs {
		// A worker that holds the job finds out at its next heartbeat.
		errs = append(errs, p.o.Jobs.Delete(ctx, id))
	}
	// Before the objects: a session that is still open could become one.
	var open []string
	for _, session := range task.Sessions {
		if err := p.o.Bucket.EndResumable(ctx, session); err != nil {
			open, errs = append(open, session), append(errs, err)
		}
	}
	task.Sessions = open
	errs = append(errs,
		p.o.Bucket.DeletePrefix(ctx, video.UploadPrefix(task.Video)),
		p.o.Bucket.DeletePrefix(ctx, transcode.VideoPrefix(string(task.Video))))
	err := errors.Join(errs...)
	now := p.o.Now()
	if err == nil && !now.Before(task.Until) {
		return p.o.Store.Purged(ctx, task.Video)
	}
	task.Due = task.Next(now)
	return errors.Join(err, p.o.Store.PutOffPurge(ctx, task))
}

// eraseRounds bounds what one sweep erases of one account, so that a large one
// does not hold up everything else: 2,000 records.
const eraseRounds = 40

// EraseDue works off the accounts that are being erased. Every round can be cut
// off anywhere: what is left is found again by asking for it.
func (p *Pipeline) EraseDue(ctx context.Context) error {
	accounts, err := p.o.Store.Erasing(ctx)
	errs := []error{err}
	for _, account := range accounts {
		errs = append(errs, p.erase(ctx, account))
	}
	return errors.Join(errs...)
}

func (p *Pipeline) erase(ctx context.Context, account string) error {
	for range eraseRounds {
		more, err := p.o.Store.EraseSome(ctx, account)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if !more {
			break
		}
	}
	remains, err := p.o.Store.Remains(ctx, account)
	if err != nil || remains {
		return err
	}
	p.o.Log.InfoContext(ctx, "account erased", "account", account)
	return p.o.Store.EndErase(ctx, account)
}
