package clicks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// ErrOvertaken is a [Counts]' answer to a writer whose progress is not the
// stored one: another flusher, or an earlier try of its own, was faster.
var ErrOvertaken = errors.New("click counts were written by somebody else")

// Counts remembers what was counted.
type Counts interface {
	// Progress reads how far producers are counted, finishing first what an
	// interrupted writer left half done.
	Progress(ctx context.Context) (link.Progress, error)
	// Count adds tallies and moves progress from one state to the next, both or
	// neither, or fails with ErrOvertaken. Links that are gone are skipped. from
	// is the stored progress; the new one has the next Cycle.
	Count(ctx context.Context, from link.Progress, marks map[string]link.Mark, tallies []*link.Tally) (link.Progress, error)
}

// Flusher timing.
const (
	cycle = time.Second     // between two writes to one link
	lease = 4 * time.Second // how long a flusher that died keeps others away

	// After many links a flusher rests longer: their next clicks share a write, which
	// is what Firestore charges for. Counts are to show within ten seconds.
	restPerLink = time.Millisecond / 2
	restMax     = 4 * time.Second
)

// rest is the time from the begin of a cycle that wrote so many links to the next.
func rest(links int) time.Duration {
	return min(max(cycle, time.Duration(links)*restPerLink), restMax)
}

// What one cycle reads is bounded in batches, for memory, and in time: after an
// outage there is more than can be read at once, and progress in small steps
// comes to an end where one large step might time out for ever.
const (
	readMax  = 20_000
	readPage = 500
	readTime = cycle / 2
)

// Flusher counts what is in the stream.
type Flusher struct {
	redis    *redis.Client
	counts   Counts
	id       string
	now      func() time.Time
	progress *link.Progress // nil: to be read
	written  int            // links in the last cycle; 0 when more wait already
}

// NewFlusher connects to Redis at addr.
func NewFlusher(addr string, counts Counts, now func() time.Time) (*Flusher, error) {
	client, err := openRedis(addr, 2*time.Second, 2)
	if err != nil {
		return nil, err
	}
	if now == nil {
		now = time.Now
	}
	return &Flusher{redis: client, counts: counts, id: identity.NewNonce(), now: now}, nil
}

// Run counts until ctx ends, then hands the lease on.
func (f *Flusher) Run(ctx context.Context) error {
	defer func() {
		done, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = releaseScript.Run(done, f.redis, []string{keyFlusher}, f.id).Err()
		_ = f.redis.Close()
	}()
	failing, told, due := false, time.Time{}, time.Time{}
	for ctx.Err() == nil {
		started := time.Now() // the pace of writes, not a fact of the domain
		var err error
		if started.Before(due) {
			_, err = f.hold(ctx)
		} else {
			err = f.Cycle(ctx)
			due = started.Add(rest(f.written))
		}
		switch bad := err != nil && ctx.Err() == nil; {
		case bad && (!failing || time.Since(told) > 10*time.Second):
			failing, told = true, time.Now()
			slog.WarnContext(ctx, "clicks wait for the flusher", "error", err)
		case !bad && failing:
			failing = false
			slog.WarnContext(ctx, "clicks are counted again")
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(started.Add(cycle))):
		}
	}
	return nil
}

// holdScript takes or keeps the lease.
var holdScript = redis.NewScript(`
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`)

var releaseScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1`)

// hold takes or keeps the lease and says whether it is this flusher's.
func (f *Flusher) hold(ctx context.Context) (bool, error) {
	mine, err := holdScript.Run(ctx, f.redis, []string{keyFlusher}, f.id, lease.Milliseconds()).Int()
	if err != nil || mine == 0 {
		f.progress = nil // somebody else will move it
		return false, err
	}
	return true, nil
}

// Cycle counts what waits now, if this flusher has the lease.
func (f *Flusher) Cycle(ctx context.Context) error {
	f.written = 0
	if mine, err := f.hold(ctx); !mine {
		return err
	}
	entries, all, err := f.read(ctx)
	if err != nil {
		return err
	}
	backlog.Set(float64(len(entries)))
	if len(entries) == 0 {
		return nil
	}
	if err := f.count(ctx, entries); err != nil {
		f.progress = nil
		return err
	}
	if !all {
		f.written = 0
	}
	return f.trim(ctx, entries[len(entries)-1].ID)
}

// read takes batches from the log's old end; all says whether none is left.
func (f *Flusher) read(ctx context.Context) (entries []redis.XMessage, all bool, err error) {
	for started, from := time.Now(), "-"; ; {
		page, err := f.redis.XRangeN(ctx, keyClicks, from, "+", readPage).Result()
		if err != nil && len(entries) == 0 {
			return nil, false, fmt.Errorf("read click log: %w", err)
		}
		entries = append(entries, page...)
		if all = err == nil && len(page) < readPage; all || err != nil || len(entries) >= readMax || time.Since(started) > readTime {
			return entries, all, nil
		}
		from = "(" + page[len(page)-1].ID
	}
}

func (f *Flusher) count(ctx context.Context, entries []redis.XMessage) error {
	if f.progress == nil {
		p, err := f.counts.Progress(ctx)
		if err != nil {
			return fmt.Errorf("read click progress: %w", err)
		}
		f.progress = &p
	}
	sum := newTallies(*f.progress, link.DayOf(f.now()))
	for _, e := range entries {
		if err := sum.entry(e.Values); err != nil {
			slog.ErrorContext(ctx, "unreadable batch of clicks is dropped", "id", e.ID, "error", err)
		}
	}
	if len(sum.marks) == 0 {
		return nil // all of it was counted before
	}
	next, err := f.counts.Count(ctx, *f.progress, sum.marks, sum.list())
	if err != nil {
		return fmt.Errorf("write click counts: %w", err)
	}
	f.progress, f.written = &next, len(sum.sums)
	counted.Add(float64(sum.clicks))
	if sum.lost > 0 {
		lost.Add(float64(sum.lost))
		slog.ErrorContext(ctx, "clicks were lost before they could be counted", "clicks", sum.lost)
	}
	return nil
}

// trim forgets entries up to id. If that fails they are read again and skipped.
func (f *Flusher) trim(ctx context.Context, id string) error {
	ms, seq, _ := strings.Cut(id, "-")
	n, err := strconv.ParseUint(seq, 10, 64)
	if err != nil {
		return fmt.Errorf("trim click log: %w", err)
	}
	if err := f.redis.XTrimMinID(ctx, keyClicks, ms+"-"+strconv.FormatUint(n+1, 10)).Err(); err != nil {
		return fmt.Errorf("trim click log: %w", err)
	}
	return nil
}

// tallies adds up batches that are not counted yet.
type tallies struct {
	progress link.Progress
	today    link.Day
	marks    map[string]link.Mark
	sums     map[dayOfLink]*link.Tally
	clicks   int64
	lost     int64
}

type dayOfLink struct {
	link string
	day  link.Day
}

func newTallies(p link.Progress, today link.Day) *tallies {
	return &tallies{progress: p, today: today, marks: map[string]link.Mark{}, sums: map[dayOfLink]*link.Tally{}}
}

func (t *tallies) entry(values map[string]any) error {
	producer, _ := values["p"].(string)
	number, _ := values["b"].(string)
	payload, _ := values["c"].(string)
	batch, err := strconv.ParseInt(number, 10, 64)
	if err != nil || producer == "" {
		return errPayload
	}
	mark, ok := t.marks[producer]
	if !ok {
		mark = t.progress.Producers[producer]
	}
	if batch <= mark.Batch {
		return nil
	}
	// Check the whole batch before counting any of it.
	var clicks int64
	total, err := decode([]byte(payload), func(_ link.Click, n int64) { clicks += n })
	if err != nil {
		return err
	}
	_, _ = decode([]byte(payload), t.add)
	if missing := total - clicks - mark.Total; missing > 0 {
		t.lost += missing
	}
	t.clicks += clicks
	t.marks[producer] = link.Mark{Batch: batch, Total: total, Day: t.today}
	return nil
}

func (t *tallies) add(c link.Click, n int64) {
	key := dayOfLink{c.LinkID, c.Day}
	sum := t.sums[key]
	if sum == nil {
		sum = &link.Tally{LinkID: c.LinkID, Day: c.Day}
		t.sums[key] = sum
	}
	sum.Add(c, n)
}

// list is in a fixed order, so that two writers lock documents alike.
func (t *tallies) list() []*link.Tally {
	return slices.SortedFunc(maps.Values(t.sums), func(a, b *link.Tally) int {
		return cmp.Or(cmp.Compare(a.LinkID, b.LinkID), cmp.Compare(a.Day, b.Day))
	})
}
