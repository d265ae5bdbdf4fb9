package feed

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/turns"
)

// Store reads feeds.
type Store interface {
	// Page reads a page. It holds every event that has a place.
	Page(ctx context.Context, q Query) (Page, error)
	// Head is the highest place of the account's feed; 0 for an empty one.
	Head(ctx context.Context, accountID string) (int64, error)
	// PlaceOf finds the place of one of the account's events; ErrCursor if there is
	// no such event.
	PlaceOf(ctx context.Context, accountID, eventID string) (int64, error)
}

// Settler gives places to what waits.
type Settler struct {
	// Settle returns once everything that had committed before the call has a place,
	// or could not be given one; then it will be later.
	Settle func(ctx context.Context, accountID string)
	// News is closed when the account's feed grows after the call. forget frees it.
	News func(accountID string) (news <-chan struct{}, forget func())
}

// Limits of held requests in one replica, so that waiting costs memory only
// within bounds.
const (
	maxHeldOfAccount = 20
	maxHeld          = 5_000
)

// recheck is how often a held request looks by itself, in case that no news
// reach this replica.
const recheck = 5 * time.Second

// Service answers for feeds.
type Service struct {
	store   Store
	settler Settler
	stop    chan struct{}
	once    sync.Once
	held    *turns.Slots // one for each request that waits
}

// NewService makes a service.
func NewService(store Store, settler Settler) *Service {
	return &Service{store: store, settler: settler, stop: make(chan struct{}), held: turns.NewSlots(maxHeldOfAccount, maxHeld)}
}

// Place reads a cursor: one that an answer gave, the id of an event, or "", which
// is the beginning.
func (s *Service) Place(ctx context.Context, accountID, cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	if strings.HasPrefix(cursor, "evt_") {
		seq, err := s.store.PlaceOf(ctx, accountID, cursor)
		if errors.Is(err, ErrCursor) {
			// An answer may have named it a moment ago in a webhook's delivery.
			s.settler.Settle(ctx, accountID)
			seq, err = s.store.PlaceOf(ctx, accountID, cursor)
		}
		return seq, err
	}
	return ParseCursor(accountID, cursor)
}

// Head is the newest place.
func (s *Service) Head(ctx context.Context, accountID string) (int64, error) {
	s.settler.Settle(ctx, accountID)
	return s.store.Head(ctx, accountID)
}

// Read reads a page. What was changed before the call is in the feed.
func (s *Service) Read(ctx context.Context, q Query) (Page, error) {
	s.settler.Settle(ctx, q.AccountID)
	return s.store.Page(ctx, q)
}

// Page reads a page of what has a place already.
func (s *Service) Page(ctx context.Context, q Query) (Page, error) { return s.store.Page(ctx, q) }

// Wait is Read that holds until the page has an event or wait is over. It ends
// early with an empty page when the service stops, so that the caller asks
// another replica.
func (s *Service) Wait(ctx context.Context, q Query, wait time.Duration) (Page, error) {
	release, ok := s.held.Take(q.AccountID)
	if !ok {
		return Page{}, &apierr.Error{Code: apierr.RateLimited, RetryAfter: 5 * time.Second,
			Message: "Too many requests of this account are waiting for events already. Ask without `wait`, or share one reader."}
	}
	defer release()
	end := time.After(wait)
	for {
		// Before the look, so that what comes right after it is not missed.
		news, forget := s.settler.News(q.AccountID)
		page, err := s.Read(ctx, q)
		if err != nil || len(page.Events) > 0 {
			forget()
			return page, err
		}
		var over bool
		select {
		case <-news:
		case <-time.After(recheck):
		case <-end:
			over = true
		case <-s.stop:
			over = true
		case <-ctx.Done():
			over = true
		}
		forget()
		if over {
			return page, nil
		}
	}
}

// Stop lets go of every held request, now and later.
func (s *Service) Stop() { s.once.Do(func() { close(s.stop) }) }
