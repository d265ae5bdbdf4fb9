package store

import (
	"context"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/waiting"
)

// Waits counts the waiting work: events without a position in their feed, deliveries that are due
// for an attempt, and deliveries that are waiting for a retry, for an attempt to end, or for room
// in their webhook's lane.
func (s *Store) Waits() []waiting.Look {
	due := func() []firestore.Query { return s.inLanes("<=") }
	later := func() []firestore.Query { return s.inLanes(">") }
	unplaced := []firestore.Query{s.db.Collection(outbox.Collection).Where("waiting", ">", "").
		OrderBy("waiting", firestore.Asc).OrderBy("at", firestore.Asc)}
	events := waiting.Count(s.db, "events without a place", func() []firestore.Query { return unplaced })
	return []waiting.Look{
		{Work: waiting.Work{Of: "events", For: "place"}, Depth: waiting.First(s.oldestWaiter, events)},
		{Work: waiting.Work{Of: "deliveries", For: "attempt"}, Depth: waiting.Query(s.db, "due deliveries", "dueAt", due)},
		{Work: waiting.Work{Of: "deliveries", For: "retry"}, Depth: waiting.Ageless(waiting.Count(s.db, "later deliveries", later))},
	}
}

// waiterPages limits how much of a backlog is read to find the age of its oldest event.
const waiterPages = 50

func (s *Store) oldestWaiter(ctx context.Context) (oldest time.Time, err error) {
	after := ""
	for range waiterPages {
		waiters, next, err := s.Waiters(ctx, after)
		if err != nil {
			return oldest, err
		}
		for _, since := range waiters {
			if oldest.IsZero() || since.Before(oldest) {
				oldest = since
			}
		}
		if after = next; next == "" {
			break
		}
	}
	return oldest, nil
}

// inLanes returns queries for the pending deliveries in all lanes. compare is the operator that
// compares their due time with now.
func (s *Store) inLanes(compare string) (queries []firestore.Query) {
	const most = 30 // a Firestore filter allows at most this many values
	for first := 0; first < s.lanes; first += most {
		var lanes []int
		for lane := first; lane < min(first+most, s.lanes); lane++ {
			lanes = append(lanes, lane)
		}
		queries = append(queries, s.db.Collection(deliveries).Where("lane", "in", lanes).
			Where("dueAt", compare, s.now()).OrderBy("dueAt", firestore.Asc))
	}
	return queries
}
