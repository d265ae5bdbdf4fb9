package share

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// newViewers is how many new viewers from one network a replica counts in a burst. After that, it
// counts one more every 12 seconds, or 300 per hour. That is enough for a large office with one
// IP address. A client can change its User-Agent to look like another viewer, so without a limit
// one client could add any number of views.
const newViewers = 300

// view counts a play, which the page's player reports after a minimum playback time. A viewer
// counts once per video per day. A keyed hash that changes daily tells viewers apart, so we do not
// store their IP address or browser. Redis has one sketch per video per day instead of one key per
// viewer because the viewers of a popular video must not evict other clients' rate limits.
func (s *Share) view(c *fiber.Ctx) error {
	v, g, err := s.redeem(c)
	if err != nil {
		return err
	}
	now, ip := s.o.Now(), s.o.ClientIP(c)
	// Send the same response even if nothing was counted: it would not help the player to retry.
	if g.Kind != video.Own && s.viewers.Wait(ip) == 0 {
		viewer := s.o.Keys.Pseudonym(now, string(v.ID), ip.String(), c.Get(fiber.HeaderUserAgent))
		// The pseudonym changes at midnight. An extra minute allows for clock differences between
		// replicas.
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

// views collects counts in memory and stores them at intervals. Each write needs a turn, and all
// replicas share the turns, so even a very popular video does not exceed the write rate of one
// document. A killed process loses the counts that it has not stored.
type views struct {
	store Views

	mu     sync.Mutex
	counts map[video.ID]int64
}

// turnLife is the minimum time between writes for a video, across all replicas.
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
			// If the response to a write is lost, the repeated write counts twice. Exact counts are
			// not worth a transaction per write.
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
