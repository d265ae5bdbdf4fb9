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
	// Page reads a page from all events that have a position. It fails in the same cases as
	// [Feed.Reached].
	Page(ctx context.Context, q Query) (Page, error)
	// Feed reads the account's feed without its pages. An account without events has an empty feed.
	Feed(ctx context.Context, accountID string) (*Feed, error)
	// PlaceOf finds the position of one of the account's events. It returns ErrCursor if there is no
	// such event.
	PlaceOf(ctx context.Context, accountID, eventID string) (int64, error)
}

// Settler places waiting events in the feed.
type Settler struct {
	// Settle returns once every event that was committed before the call has been placed. If
	// placing them fails, they are placed later.
	Settle func(ctx context.Context, accountID string)
	// News returns a channel that is closed when the account's feed grows after the call. Call
	// forget to stop waiting.
	News func(accountID string) (news <-chan struct{}, forget func())
}

// Limits on one replica's held requests. They bound the memory that these requests use.
const (
	maxHeldOfAccount = 20
	maxHeld          = 5_000
)

// recheck is the interval at which a held request reads the feed even without a hint, since hints
// may fail to reach this replica.
const recheck = 5 * time.Second

// Service reads feeds for the API.
type Service struct {
	store   Store
	settler Settler
	// restored returns the ID of the last database restore until the events that it lost would
	// have expired, and "" after that.
	restored func() string
	stop     chan struct{}
	once     sync.Once
	held     *turns.Slots // one slot for each waiting request
}

// NewService returns a service. restored returns the ID of the last database restore until the
// events that it lost would have expired, and "" after that.
func NewService(store Store, settler Settler, restored func() string) *Service {
	return &Service{store: store, settler: settler, restored: restored, stop: make(chan struct{}), held: turns.NewSlots(maxHeldOfAccount, maxHeld)}
}

// Place returns the position to which a cursor refers. The cursor comes from an earlier response,
// or it is the ID of an event, or "" for the start of the feed. from is the value for
// [Query.From].
func (s *Service) Place(ctx context.Context, accountID, cursor string) (seq int64, from *Place, err error) {
	if cursor == "" {
		return 0, nil, nil
	}
	if !strings.HasPrefix(cursor, "evt_") {
		p, err := ParseCursor(accountID, cursor)
		return p.Seq, &p, err
	}
	seq, err = s.store.PlaceOf(ctx, accountID, cursor)
	if errors.Is(err, ErrCursor) {
		// The caller may have only just received the event in a delivery.
		s.settler.Settle(ctx, accountID)
		seq, err = s.store.PlaceOf(ctx, accountID, cursor)
	}
	if errors.Is(err, ErrCursor) {
		err = s.lost(ctx, accountID)
	}
	return seq, nil, err
}

// lost returns the error for the ID of an event that does not exist. Readers store the IDs of
// events that they have received, so if there was a restore, it has probably lost this event.
func (s *Service) lost(ctx context.Context, accountID string) error {
	restore := s.restored()
	if restore == "" {
		return ErrCursor
	}
	f, err := s.store.Feed(ctx, accountID)
	if err != nil {
		return err
	}
	shared := f.Head // unless the feed has grown since the restore
	if n := len(f.Restores); n > 0 && f.Restores[n-1].ID == restore {
		shared = f.Restores[n-1].Head
	}
	return Ahead(Cursor(accountID, Place{shared, f.History()}))
}

// Head returns the highest position.
func (s *Service) Head(ctx context.Context, accountID string) (int64, error) {
	s.settler.Settle(ctx, accountID)
	f, err := s.store.Feed(ctx, accountID)
	if err != nil {
		return 0, err
	}
	return f.Head, nil
}

// Read reads a page that includes all changes committed before the call.
func (s *Service) Read(ctx context.Context, q Query) (Page, error) {
	s.settler.Settle(ctx, q.AccountID)
	return s.store.Page(ctx, q)
}

// Page reads a page from the events that already have a position.
func (s *Service) Page(ctx context.Context, q Query) (Page, error) { return s.store.Page(ctx, q) }

// Wait is like Read, but it holds the request until the page has an event or the wait is over. When
// the service stops, Wait returns early with an empty page, so the caller asks another replica.
func (s *Service) Wait(ctx context.Context, q Query, wait time.Duration) (Page, error) {
	release, ok := s.held.Take(q.AccountID)
	if !ok {
		return Page{}, &apierr.Error{Code: apierr.RateLimited, RetryAfter: 5 * time.Second,
			Message: "Too many requests from this account are already waiting for events. Send the request without `wait`, or share one reader."}
	}
	defer release()
	end := time.After(wait)
	for {
		// Subscribe before reading, so that an event immediately after the read is not missed.
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

// Stop ends every held request. Later requests are not held.
func (s *Service) Stop() { s.once.Do(func() { close(s.stop) }) }
