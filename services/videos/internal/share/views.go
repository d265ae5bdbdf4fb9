package share

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// newViewers is how many new viewers of one network a replica counts at once; one
// more is counted every 12 seconds, which makes as many in an hour. It is enough for
// a large office behind one address that gets a link to watch. A caller becomes
// another viewer with another User-Agent, so without a limit one caller could make
// any number of views.
const newViewers = 300

// view counts a play that the page's player reports once it was long enough. A
// viewer counts once a day and video; what tells viewers apart is a keyed hash that
// changes with the day, so neither address nor browser is kept. Redis holds one
// sketch a video and day, never a key a viewer: many viewers of one video must not
// take the room of everybody else's limits.
func (s *Share) view(c *fiber.Ctx) error {
	v, g, err := s.redeem(c)
	if err != nil {
		return err
	}
	now, ip := s.o.Now(), s.o.ClientIP(c)
	// The answer is the same when nothing is counted: the player has nothing to try again.
	if g.Kind != video.Own && s.viewers.Wait(ip) == 0 {
		viewer := s.o.Keys.Pseudonym(now, string(v.ID), ip.String(), c.Get(fiber.HeaderUserAgent))
		// The pseudonym changes at midnight. A minute more covers replicas whose clocks differ.
		midnight := now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		set := "views:" + now.UTC().Format(time.DateOnly) + ":" + string(v.ID)
		grown, repeat := s.o.Guard.Count(c.UserContext(), set, viewer, midnight.Sub(now)+time.Minute)
		if !repeat {
			s.viewers.Miss(ip)
			s.views.add(v.ID, grown)
		}
	}
	c.Set(fiber.HeaderCacheControl, "no-store")
	c.Status(fiber.StatusNoContent)
	return nil
}

// views gathers counts in memory and stores them now and then, so that a video
// that everybody watches does not take more writes than a document can, however
// many replicas there are: each write needs a turn, and turns are handed out for
// all replicas together. A process that is killed loses what it had not stored.
type views struct {
	store Views

	mu     sync.Mutex
	counts map[video.ID]int64
}

// turnLife allows one write of a video in this time, of all replicas.
const turnLife = 2 * time.Second

func (w *views) add(id video.ID, n int64) {
	if n == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[id] += n
}

func (w *views) flush(ctx context.Context, turn func(context.Context, string, time.Duration) bool) error {
	w.mu.Lock()
	todo := w.counts
	w.counts = map[video.ID]int64{}
	w.mu.Unlock()
	var failed error
	for id, n := range todo {
		if turn(ctx, "views-turn:"+string(id), turnLife) {
			// A write whose answer was lost is made again and counts twice. Exact views are not worth a
			// transaction each.
			err := w.store.AddViews(ctx, id, n)
			if err == nil {
				continue
			}
			failed = errors.Join(failed, err)
		}
		w.mu.Lock()
		w.counts[id] += n
		w.mu.Unlock()
	}
	return failed
}
