package store

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	fs "cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

// An account gets exactly as many links as its limit allows, and callers are never told that the
// account is full when it is not. A commit takes 30 ms, as in Firestore.
//
// With LINKREEL_FULL, the test also fills empty accounts with up to a million links.
func TestLimitsHoldAndAreReached(t *testing.T) {
	t.Parallel()
	type run struct{ limit, begun int }
	runs := []run{{5, 0}, {500, 200}, {21_000, 20_700}}
	if os.Getenv("LINKREEL_FULL") == "1" {
		runs = append(runs, run{500, 0}, run{21_000, 0}, run{1_000_000, 999_700})
	}
	for _, r := range runs {
		t.Run(fmt.Sprintf("%d from %d", r.limit, r.begun), func(t *testing.T) {
			if r.limit < 1000 { // the larger cases need all CPUs
				t.Parallel()
			}
			b := newWorld(t)
			b.begin(t, r.begun)
			b.cloud.Firestore.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, Delay: 30 * time.Millisecond})
			b.cloud.Firestore.ResetStats()
			made, waited := b.importUpTo(t, r.limit)
			// Read the statistics before the test's own reads add to them.
			s, hot := b.cloud.Firestore.Stats(), b.cloud.Firestore.MaxSustainedWrites(10*time.Second)
			if have, err := b.Count(t.Context(), "acc"); err != nil || have != r.limit || made != r.limit-r.begun {
				t.Errorf("created %d links, counted %d, %v; want a total of %d", made, have, err, r.limit)
			}
			t.Logf("%d links created: %.2f reads and %.2f writes each, including rejected creates; %d RATE_LIMITED errors; most frequent writes: %s, %d in 10 s",
				made, float64(s.Reads)/float64(made), float64(s.Writes)/float64(made), waited, hot.Document, hot.Writes)
			if hot.Writes > 13 {
				t.Errorf("%s was written %d times in 10 s, want at most 13", hot.Document, hot.Writes)
			}
		})
	}
}

// TestAFullAccountIsCountedOnce checks that one count is enough to reject a create. A large account
// is counted only every few seconds, so a create that needed two counts would rarely complete.
func TestAFullAccountIsCountedOnce(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	b.begin(t, 3)
	p := &identity.Principal{AccountID: "acc", Quotas: identity.Quotas{Links: 3}}
	links, ctx := b.replica(t), asked(t.Context())
	b.cloud.Firestore.ResetStats()
	if err := links.Create(ctx, p, identity.Origin{Nonce: "one", At: time.Now()}, draft("")); apierr.CodeOf(err) != apierr.QuotaExceeded {
		t.Errorf("create in a full account: %v, want QUOTA_EXCEEDED", err)
	}
	results, err := links.CreateAll(asked(t.Context()), p, identity.Origin{Nonce: "two", At: time.Now()}, []link.Draft{draft(""), draft("")})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if apierr.CodeOf(r.Err) != apierr.QuotaExceeded {
			t.Errorf("item in a bulk create in a full account: %v, want QUOTA_EXCEEDED", r.Err)
		}
	}
	if n := b.cloud.Firestore.Stats().Calls["RunAggregationQuery"]; n != 2 {
		t.Errorf("the links were counted %d times for two creates, want 2", n)
	}
}

// asked returns the context of a request that starts now.
func asked(ctx context.Context) context.Context {
	return identity.WithRequest(ctx, &identity.Request{Began: time.Now()})
}

// begin stores n links in the account, with only the fields that counting needs.
func (b world) begin(t *testing.T, n int) {
	t.Helper()
	for i := 0; i < n; {
		err := b.db.DB.Commit(t.Context(), "begin", func(_ context.Context, tx *fs.Transaction) error {
			for range min(500, n-i) {
				if err := tx.Create(b.db.Collection("links").Doc(fmt.Sprint("old", i)), map[string]any{"accountId": "acc"}); err != nil {
					return err
				}
				i++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// replica returns the link service in another process.
func (b world) replica(t *testing.T) *link.Service {
	t.Helper()
	db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: "test", Endpoint: b.cloud.Endpoint, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	records := record.Open(db, record.Options{Outbox: outbox.New(db, nil, b.clock), Announce: b.heard.Announce, Now: b.clock})
	kept := New(records, Shown{Link: func(l *link.Link) any { return l.ID }, Domain: func(d *customdomain.Domain) any { return d.ID }})
	return link.NewService(link.Options{Store: kept, Now: b.clock})
}

// importUpTo creates links from 64 goroutines on three replicas until each goroutine gets
// QUOTA_EXCEEDED.
func (b world) importUpTo(t *testing.T, limit int) (made, waited int) {
	t.Helper()
	replicas := []*link.Service{b.replica(t), b.replica(t), b.replica(t)}
	p := &identity.Principal{AccountID: "acc", Quotas: identity.Quotas{Links: limit}}
	ctx, stop := context.WithCancel(identity.WithPrincipal(t.Context(), p))
	defer stop()
	go b.watch(ctx, t, limit)
	var n, retries atomic.Int64
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for k := 0; ; k++ {
				o := identity.Origin{Nonce: fmt.Sprint(i, "-", k), At: time.Now()}
				err := replicas[i%3].Create(asked(ctx), p, o, draft(""))
				switch code := apierr.CodeOf(err); {
				case err == nil:
					n.Add(1)
				// localcloud takes seconds to count a million links, which exceeds a call's timeout
				// on a busy machine.
				case code == apierr.RateLimited, code == apierr.Unavailable && limit > 100_000:
					retries.Add(1)
				case code == apierr.QuotaExceeded:
					if limit > 100_000 {
						return // counting would take longer than the rest of the test
					}
					if have, err := b.Count(ctx, "acc"); err == nil && have < limit {
						t.Errorf("got QUOTA_EXCEEDED with %d links, want it only with %d", have, limit)
					}
					return
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return int(n.Load()), int(retries.Load())
}

// watch continuously checks that the account has no more links than its limit allows.
func (b world) watch(ctx context.Context, t *testing.T, limit int) {
	for {
		have, err := b.Count(ctx, "acc")
		if err == nil && have > limit {
			t.Errorf("got %d links, want at most %d", have, limit)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(100*time.Millisecond, time.Duration(limit)*10*time.Microsecond)):
		}
	}
}
