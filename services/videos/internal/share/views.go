package share

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// view counts a play that the page's player reports once it was long enough. A
// viewer counts once a day and video; what tells viewers apart is a keyed hash that
// changes with the day, so neither address nor browser is kept.
func (s *Share) view(c *fiber.Ctx) error {
	v, g, err := s.opened(c)
	if err != nil {
		return err
	}
	now := s.o.Now()
	if g.Kind != video.Own {
		viewer := s.o.Keys.Pseudonym(now, string(v.ID), s.o.ClientIP(c).String(), c.Get(fiber.HeaderUserAgent))
		midnight := now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		if s.o.Guard.First(c.UserContext(), "view:"+viewer, midnight.Sub(now)+time.Minute) {
			s.views.add(v.ID)
		}
	}
	c.Set(fiber.HeaderCacheControl, "no-store")
	c.Status(fiber.StatusNoContent)
	return nil
}

// views gathers counts in memory and stores them at most every few seconds, so
// that a video that everybody watches does not take more writes than a document can. A
// process that is killed loses the last few seconds.
type views struct {
	store interface {
		AddViews(ctx context.Context, id video.ID, n int64) error
	}
	log *slog.Logger

	mu     sync.Mutex
	counts map[video.ID]int64
}

const flushViews = 2 * time.Second

func newViews(store Store, log *slog.Logger) *views {
	return &views{store: store, log: log, counts: map[video.ID]int64{}}
}

func (w *views) add(id video.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[id]++
}

func (w *views) run(ctx context.Context) error {
	every := time.NewTicker(flushViews)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			w.flush(ctx)
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			w.flush(last)
			return nil
		}
	}
}

func (w *views) flush(ctx context.Context) {
	w.mu.Lock()
	todo := w.counts
	w.counts = map[video.ID]int64{}
	w.mu.Unlock()
	var failed error
	for id, n := range todo {
		if err := w.store.AddViews(ctx, id, n); err != nil {
			failed = errors.Join(failed, err)
			w.mu.Lock()
			w.counts[id] += n
			w.mu.Unlock()
		}
	}
	if failed != nil {
		w.log.WarnContext(ctx, "views are stored later", "error", failed)
	}
}
