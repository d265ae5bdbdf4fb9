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
	"os"
	"sync"
	"time"
)

// before is what was made by the release before, and while both releases ran.
type before struct {
	Account string `json:"account"`
	Key     string `json:"key"` // with the default scopes: the release before may know no others
	// Old are the links of the release before, by what finds them alone.
	Old []oldLink `json:"old"`
	// Mixed are links made while replicas of both releases served. New says that a
	// replica of the new release made it, so that there is an event.
	Mixed []mixedLink `json:"mixed"`
	// Replay is the answer to a create with an idempotency key.
	Replay string `json:"replay"`
}

type oldLink struct{ ID, Slug, Word string }

type mixedLink struct {
	ID  string
	New bool
}

func (b *before) load(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, b)
}

func (b *before) save(file string) error {
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

const bulkMost = 100

// makeOld makes count links in bulk, each with a word of its own and one that all
// have, and one link by an idempotency key.
func makeOld(ctx context.Context, t *target, file string, count int) error {
	account, key, err := makeAccount(ctx, t, "enterprise")
	if err != nil {
		return err
	}
	b := before{Account: account, Key: key}
	for first := 0; first < count; first += bulkMost {
		var items []map[string]any
		for i := first; i < min(first+bulkMost, count); i++ {
			items = append(items, map[string]any{"url": fmt.Sprintf("https://example.com/catalogue/page%06d", i), "title": fmt.Sprintf("Ancient entry no%06d", i)})
		}
		var made struct {
			Results []struct{ Data struct{ ID, Slug string } }
		}
		if _, err := t.want(ctx, http.StatusCreated, http.MethodPost, t.base+"/api/v1/links/bulk", key, map[string]any{"urls": items}, &made); err != nil {
			return err
		}
		for i, r := range made.Results {
			b.Old = append(b.Old, oldLink{r.Data.ID, r.Data.Slug, fmt.Sprintf("no%06d", first+i)})
		}
	}
	if b.Replay, err = replay(ctx, t, key); err != nil {
		return err
	}
	ok(fmt.Sprintf("%d links are made", len(b.Old)))
	return b.save(file)
}

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
	req.Header.Set("Idempotency-Key", "check-upgrade")
	a, err := t.send(req)
	if err != nil {
		return "", err
	}
	if a.status != http.StatusCreated {
		return "", fmt.Errorf("a create with an idempotency key = %d: %.300s", a.status, a.body)
	}
	var made struct{ ID, Slug string }
	if err := a.into(&made); err != nil {
		return "", err
	}
	return made.ID + " " + made.Slug, nil
}

// write makes links one after another, through whichever replica answers, until
// ctx ends. Each must be made: an upgrade costs no call.
func write(ctx context.Context, t *target, file string) error {
	var b before
	if err := b.load(file); err != nil {
		return err
	}
	const writers = 4
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		errs []error
	)
	for w := range writers {
		wg.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				var made struct {
					ID   string
					Tags json.RawMessage // only the new release shows it
				}
				_, err := t.want(context.WithoutCancel(ctx), http.StatusCreated, http.MethodPost, t.base+"/api/v1/links", b.Key,
					map[string]any{"url": "https://example.com/between", "title": fmt.Sprintf("Between w%dx%d", w, i)}, &made)
				mu.Lock()
				if err != nil {
					errs = append(errs, err)
				} else {
					b.Mixed = append(b.Mixed, mixedLink{made.ID, made.Tags != nil})
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	byNew := 0
	for _, m := range b.Mixed {
		if m.New {
			byNew++
		}
	}
	fmt.Printf("%d links written, %d by the old release and %d by the new one, %d failed\n", len(b.Mixed), len(b.Mixed)-byNew, byNew, len(errs))
	return errors.Join(b.save(file), errors.Join(errs...))
}

// found waits until the back-fill has made everything of before findable, then
// tries each filter, and compares the feed with what the new release made.
func found(ctx context.Context, t *target, file string) error {
	var b before
	if err := b.load(file); err != nil {
		return err
	}
	if again, err := replay(ctx, t, b.Key); err != nil || again != b.Replay {
		return fmt.Errorf("an old idempotency key answered %q, not %q: %w", again, b.Replay, err)
	}
	ok("an idempotency record of the release before replays")
	if err := b.events(ctx, t); err != nil {
		return err
	}
	old := map[string]bool{}
	for _, l := range b.Old {
		old[l.ID] = true
	}
	started := time.Now()
	// The second pass finds what old replicas wrote behind the back of the first; it
	// begins ten minutes after that.
	if err := until(ctx, 5*time.Minute, "search finds every link of the release before", func() (bool, error) {
		return t.finds(ctx, b.Key, "q=ancient", old)
	}); err != nil {
		return err
	}
	fmt.Printf("     after %.0f s\n", time.Since(started).Seconds())
	for _, filter := range []string{"q=entry+anc", "q=catalogue", "q=example", "q=ancient&archived=false", "q=ancient&archived=all", "domainId=default", "archived=all", ""} {
		yes, err := t.finds(ctx, b.Key, filter, old)
		if err != nil || !yes {
			return fmt.Errorf("the filter %q does not find every old link: %w", filter, err)
		}
	}
	ok(fmt.Sprintf("each filter finds all %d old links", len(old)))
	for range min(200, len(b.Old)) {
		l := b.Old[rand.IntN(len(b.Old))]
		for _, filter := range []string{"slug=" + url.QueryEscape(l.Slug), "q=" + l.Word, "q=" + url.QueryEscape(l.Slug)} {
			ids, err := t.list(ctx, b.Key, filter)
			if err != nil || len(ids) != 1 || ids[0] != l.ID {
				return fmt.Errorf("%s finds %v, want %s: %w", filter, ids, l.ID, err)
			}
		}
	}
	ok("200 old links are found alone, by slug and by a word of their own")
	mixed := map[string]bool{}
	for _, m := range b.Mixed {
		mixed[m.ID] = true
	}
	if len(mixed) == 0 {
		return nil
	}
	return until(ctx, 12*time.Minute, "search finds every link that was made while both releases served", func() (bool, error) {
		return t.finds(ctx, b.Key, "q=between", mixed)
	})
}

// events compares: each link that the new release made has one event, and no event
// names a link twice.
func (b *before) events(ctx context.Context, t *target) error {
	key, err := makeKey(ctx, t, b.Account, "events:read")
	if err != nil {
		return err
	}
	seen := map[string]int{}
	for after := ""; ; {
		var page struct {
			Data       []struct{ Object string }
			NextCursor string
			HasMore    bool
		}
		if _, err := t.want(ctx, http.StatusOK, http.MethodGet, t.base+"/api/v1/events?type=link.created&limit=100&after="+url.QueryEscape(after), key, nil, &page); err != nil {
			return err
		}
		for _, e := range page.Data {
			seen[e.Object]++
		}
		if after = page.NextCursor; !page.HasMore {
			break
		}
	}
	byNew := 0
	for _, m := range b.Mixed {
		if m.New {
			byNew++
			if seen[m.ID] != 1 {
				return fmt.Errorf("the new release made %s, and the feed has %d events of that", m.ID, seen[m.ID])
			}
		}
	}
	if len(b.Mixed) > 0 {
		ok(fmt.Sprintf("each of %d links that the new release made meanwhile is one event", byNew))
	}
	return nil
}

// finds tells whether a filter finds all of want. It may find others too.
func (t *target) finds(ctx context.Context, key, filter string, want map[string]bool) (bool, error) {
	ids, err := t.list(ctx, key, filter)
	if err != nil {
		return false, err
	}
	have := map[string]bool{}
	for _, id := range ids {
		if have[id] {
			return false, fmt.Errorf("%q lists %s twice", filter, id)
		}
		have[id] = true
	}
	for id := range want {
		if !have[id] {
			return false, nil
		}
	}
	return true, nil
}

func (t *target) list(ctx context.Context, key, filter string) (ids []string, err error) {
	err = t.eachLink(ctx, key, filter, func(id, _ string) { ids = append(ids, id) })
	return ids, err
}

// eachLink goes through all links that a filter finds.
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
