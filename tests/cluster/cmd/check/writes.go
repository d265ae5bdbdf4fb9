package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// written contains the records that writes created.
type written struct {
	key, watch string        // watch is a key for reading events
	before     []writtenLink // created in bulk before the caller disturbed the deployment
	meanwhile  []writtenLink // created one by one until the caller stopped writes
	replay     string        // the response to a create with an idempotency key
}

// writtenLink is a link with a word that is not a prefix of another link's word.
type writtenLink struct{ id, slug, word string }

const bulkMost = 100

// writes creates many links in bulk and then, until ctx is done, one by one through any replica.
// Every call must succeed, even while replicas are being replaced. At the end, search must find
// every link, and each link must have exactly one event.
func writes(ctx context.Context, t *target, before int) error {
	account, key, err := makeAccount(ctx, t, "enterprise")
	if err != nil {
		return err
	}
	w := &written{key: key}
	if _, w.watch, err = makeKey(ctx, t, account, "events:read"); err != nil {
		return err
	}
	if err := w.bulk(ctx, t, before); err != nil {
		return err
	}
	if w.replay, err = replay(ctx, t, key); err != nil {
		return err
	}
	fmt.Println("     begun")
	if err := w.steadily(ctx, t); err != nil {
		return err
	}
	return w.check(context.WithoutCancel(ctx), t)
}

// bulk creates count links. Each title has a unique word and a word that all titles share.
func (w *written) bulk(ctx context.Context, t *target, count int) error {
	for first := 0; first < count; first += bulkMost {
		var items []map[string]any
		for i := first; i < min(first+bulkMost, count); i++ {
			items = append(items, map[string]any{"url": fmt.Sprintf("https://example.com/catalogue/page%06d", i), "title": fmt.Sprintf("Ancient entry no%06d", i)})
		}
		var made struct {
			Results []struct{ Data struct{ ID, Slug string } }
		}
		if _, err := t.want(ctx, http.StatusCreated, http.MethodPost, t.base+"/api/v1/links/bulk", w.key, map[string]any{"urls": items}, &made); err != nil {
			return err
		}
		for i, r := range made.Results {
			w.before = append(w.before, writtenLink{r.Data.ID, r.Data.Slug, fmt.Sprintf("no%06d", first+i)})
		}
	}
	return nil
}

// replay creates a link. It always uses the same idempotency key.
func replay(ctx context.Context, t *target, key string) (string, error) {
	body, err := json.Marshal(map[string]any{"url": "https://example.com/once"})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.base+"/api/v1/links", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Idempotency-Key", "check-writes")
	a, err := t.send(req)
	if err != nil {
		return "", err
	}
	if a.status != http.StatusCreated {
		return "", fmt.Errorf("a create with an idempotency key returned %d, want 201: %.300s", a.status, a.body)
	}
	var made struct{ ID, Slug string }
	if err := a.into(&made); err != nil {
		return "", err
	}
	return made.ID + " " + made.Slug, nil
}

// steadily creates up to 40 links per second until ctx is done.
func (w *written) steadily(ctx context.Context, t *target) error {
	const writers = 4
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		errs []error
	)
	for n := range writers {
		wg.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				word := fmt.Sprintf("w%dx%06d", n, i)
				var made struct{ ID, Slug string }
				_, err := t.want(context.WithoutCancel(ctx), http.StatusCreated, http.MethodPost, t.base+"/api/v1/links", w.key,
					map[string]any{"url": "https://example.com/between", "title": "Between " + word}, &made)
				mu.Lock()
				if err != nil {
					errs = append(errs, err)
				} else {
					w.meanwhile = append(w.meanwhile, writtenLink{made.ID, made.Slug, word})
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		return fmt.Errorf("%d of %d writes failed: %w", len(errs), len(errs)+len(w.meanwhile), errors.Join(errs...))
	}
	if len(w.meanwhile) == 0 {
		return errors.New("no link was written after the bulk requests")
	}
	ok(fmt.Sprintf("%d links written in bulk and %d one by one, none failed", len(w.before), len(w.meanwhile)))
	return nil
}

// check proves that replays, events and search return everything that was written.
func (w *written) check(ctx context.Context, t *target) error {
	if again, err := replay(ctx, t, w.key); err != nil || again != w.replay {
		return fmt.Errorf("a replay of the first create returned %q, want %q: %w", again, w.replay, err)
	}
	ok("a replay of the first create returns the same response")
	if err := w.events(ctx, t); err != nil {
		return err
	}
	before, meanwhile := ids(w.before), ids(w.meanwhile)
	for filter, want := range map[string]map[string]bool{
		"q=ancient": before, "q=entry+anc": before, "q=catalogue": before, "q=example": before, "q=ancient&archived=false": before, "q=ancient&archived=all": before,
		"domainId=default": before, "archived=all": before, "": before, "q=between": meanwhile,
	} {
		if err := t.finds(ctx, w.key, filter, want); err != nil {
			return err
		}
	}
	ok(fmt.Sprintf("each filter finds all %d links from the bulk requests, and search finds all %d later links", len(before), len(meanwhile)))
	for _, links := range [][]writtenLink{w.before, w.meanwhile} {
		for range min(100, len(links)) {
			l := links[rand.IntN(len(links))]
			for _, filter := range []string{"slug=" + url.QueryEscape(l.slug), "q=" + l.word, "q=" + url.QueryEscape(l.slug)} {
				found, err := t.list(ctx, w.key, filter)
				if err != nil || len(found) != 1 || found[0] != l.id {
					return fmt.Errorf("the filter %s finds %v, want only %s: %w", filter, found, l.id, err)
				}
			}
		}
	}
	ok("for 100 links of each kind, the slug and the unique word find only that link")
	return nil
}

func ids(links []writtenLink) map[string]bool {
	all := map[string]bool{}
	for _, l := range links {
		all[l.id] = true
	}
	return all
}

// events waits until each link has an event, and fails if a link has two.
func (w *written) events(ctx context.Context, t *target) error {
	seen, after := map[string]int{}, ""
	return until(ctx, time.Minute, fmt.Sprintf("each of these %d links has one event", len(w.before)+len(w.meanwhile)), func() (bool, error) {
		for more := true; more; {
			var page struct {
				Data       []struct{ Object string }
				NextCursor string
				HasMore    bool
			}
			if _, err := t.want(ctx, http.StatusOK, http.MethodGet, t.base+"/api/v1/events?type=link.created&limit=100&after="+url.QueryEscape(after), w.watch, nil, &page); err != nil {
				return false, err
			}
			for _, e := range page.Data {
				seen[e.Object]++
			}
			after, more = page.NextCursor, page.HasMore
		}
		all := true
		for _, links := range [][]writtenLink{w.before, w.meanwhile} {
			for _, l := range links {
				if seen[l.id] > 1 {
					return false, fmt.Errorf("the link %s has %d link.created events, want 1", l.id, seen[l.id])
				}
				all = all && seen[l.id] == 1
			}
		}
		return all, nil
	})
}

// finds fails unless a filter finds all links in want, each exactly once. The filter may find other
// links too.
func (t *target) finds(ctx context.Context, key, filter string, want map[string]bool) error {
	found, err := t.list(ctx, key, filter)
	if err != nil {
		return err
	}
	have := map[string]bool{}
	for _, id := range found {
		if have[id] {
			return fmt.Errorf("the filter %q lists %s twice", filter, id)
		}
		have[id] = true
	}
	for id := range want {
		if !have[id] {
			return fmt.Errorf("the filter %q does not find %s", filter, id)
		}
	}
	return nil
}

func (t *target) list(ctx context.Context, key, filter string) (ids []string, err error) {
	err = t.eachLink(ctx, key, filter, func(id, _ string) { ids = append(ids, id) })
	return ids, err
}

// eachLink calls do for all links that a filter finds.
func (t *target) eachLink(ctx context.Context, key, filter string, do func(id, destination string)) error {
	for cursor := ""; ; {
		var page struct {
			Data []struct {
				ID             string `json:"_id"`
				DestinationURL string
			}
			HasMore    bool
			NextCursor json.Number
		}
		if _, err := t.want(ctx, http.StatusOK, http.MethodGet, t.base+"/api/v1/links?limit=100&"+filter+cursor, key, nil, &page); err != nil {
			return err
		}
		for _, l := range page.Data {
			do(l.ID, l.DestinationURL)
		}
		if !page.HasMore {
			return nil
		}
		cursor = "&cursor=" + page.NextCursor.String()
	}
}
