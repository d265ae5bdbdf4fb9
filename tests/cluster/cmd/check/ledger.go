package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// entry is an acknowledged link and the results of its visits.
type entry struct {
	id, shortURL string
	clicks       int // acknowledged
	unsure       int // visits without a response or with an error; their clicks may or may not be counted
}

// ledger creates and visits links until ctx is done, and records what was acknowledged. Afterwards,
// it checks that every link exists and that every redirected visit was counted once. Failed
// requests are allowed because the caller stops parts of the system during the test. A lost record
// is an error.
func ledger(ctx context.Context, t *target, callers int) error {
	_, key, err := makeAccount(ctx, t, "enterprise")
	if err != nil {
		return err
	}
	t.client.Timeout = 5 * time.Second
	books := make([][]*entry, callers)
	refused := make([]int, callers)
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() { books[i], refused[i], errs[i] = keepBook(ctx, t, key) })
	}
	fmt.Println("     begun")
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	entries := slices.Concat(books...)
	clicks, unsure, failed := 0, 0, 0
	for i, e := range entries {
		if err := e.compare(after, t, key); err != nil {
			return fmt.Errorf("link %d of %d: %w", i+1, len(entries), err)
		}
		clicks += e.clicks
		unsure += e.unsure
	}
	for _, n := range refused {
		failed += n
	}
	if clicks == 0 {
		return errors.New("no request was acknowledged")
	}
	ok(fmt.Sprintf("all %d acknowledged links and %d acknowledged clicks exist; %d calls failed", len(entries), clicks, failed+unsure))
	return nil
}

// keepBook creates one link for every ten visits.
func keepBook(ctx context.Context, t *target, key string) (book []*entry, refused int, err error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return book, refused, nil
		case <-tick.C:
		}
		call := context.WithoutCancel(ctx) // in-flight requests must finish
		if len(book) == 0 || i%10 == 0 {
			var made struct{ ID, ShortURL string }
			if _, err := t.want(call, http.StatusCreated, http.MethodPost, t.base+"/api/v1/links", key, map[string]any{"url": "https://example.com/ledger"}, &made); err != nil {
				refused++
				continue
			}
			book = append(book, &entry{id: made.ID, shortURL: made.ShortURL})
			continue
		}
		e := book[rand.IntN(len(book))]
		a, err := t.call(call, http.MethodGet, e.shortURL, "", nil)
		switch {
		case err == nil && a.status == http.StatusFound:
			e.clicks++
		case err == nil && a.status < http.StatusInternalServerError:
			return book, refused, fmt.Errorf("an acknowledged link returned %d, want 302", a.status)
		default:
			e.unsure++
		}
	}
}

// compare waits until the link exists and all of its clicks are counted.
func (e *entry) compare(ctx context.Context, t *target, key string) error {
	for {
		var link struct{ Clicks int }
		a, err := t.call(ctx, http.MethodGet, t.base+"/api/v1/links/"+e.id, key, nil)
		switch {
		case err != nil:
		case a.status == http.StatusNotFound:
			return fmt.Errorf("%s was acknowledged but does not exist", e.id)
		case a.status == http.StatusOK:
			if err := a.into(&link); err != nil {
				return err
			}
			if link.Clicks > e.clicks+e.unsure {
				return fmt.Errorf("%s has %d clicks, want at most %d", e.id, link.Clicks, e.clicks+e.unsure)
			}
			if link.Clicks >= e.clicks {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s has %d clicks, want %d acknowledged ones and up to %d unacknowledged ones", e.id, link.Clicks, e.clicks, e.unsure)
		case <-time.After(500 * time.Millisecond):
		}
	}
}
