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
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/lograte"
	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/libs/waiting"
	"github.com/linkreel/linkreel/services/links/internal/invalidation"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// ErrOvertaken means that the stored progress is not the progress that a writer started from.
// Another flusher, or an earlier attempt by the same writer, got there first.
var ErrOvertaken = errors.New("another flusher has written these click counts")

// Counts stores the click counts of one partition.
type Counts interface {
	// Progress returns each producer's last counted batch. It first completes any interrupted
	// write.
	Progress(ctx context.Context) (link.Progress, error)
	// Count adds tallies and advances the progress in one step. It returns ErrOvertaken if from is
	// not the stored progress. It skips deleted links, and sets aside tallies that the store
	// permanently rejects; refused is how many clicks they hold. next is the progress for the next
	// call.
	Count(
		ctx context.Context, from link.Progress, marks map[string]link.Mark, tallies []*link.Tally,
	) (next link.Progress, refused int64, err error)
}

// Flusher timing.
const (
	cycle = time.Second     // interval between writes to one link
	lease = 4 * time.Second // how soon another flusher replaces a dead one

	// restPerLink makes a flusher rest longer after a cycle with many links, so that more clicks
	// share a write. Firestore charges for each write. restMax limits the rest because counts must
	// be visible within ten seconds.
	restPerLink = time.Millisecond / 2
	restMax     = 4 * time.Second
)

// rest returns the time from the start of a cycle to the start of the next. links is the number of
// links that the cycle wrote.
func rest(links int) time.Duration {
	return min(max(cycle, time.Duration(links)*restPerLink), restMax)
}

// Limits on what one cycle reads: in batches and bytes to bound memory, and in time. After an
// outage, more batches may be pending than one cycle can read. Small steps make progress, but one
// large step might time out every time.
const (
	readMax   = 20_000
	readPage  = 500
	readBytes = 32 << 20
	readTime  = cycle / 2
)

// Limits on what one cycle writes, in bytes. Firestore accepts at most 10 MiB per commit, and the
// first commit in a cycle contains all of these bytes. After a failure, the next cycle writes half
// as much, so it eventually gets under any limit that this code does not know about.
const (
	writeMax = 6 << 20
	writeMin = 64 << 10
)

// Flusher counts the clicks in one partition's stream.
type Flusher struct {
	redis    redis.UniversalClient
	part     int
	counts   Counts
	id       string
	now      func() time.Time
	progress *link.Progress // nil before the first read
	written  int            // number of links in the last cycle; 0 if more clicks are pending
	limit    int            // maximum number of bytes in a cycle
	audited  time.Time
	waits    *waiting.Report
	mine     bool          // whether the flusher had the lease in the last step
	lines    lograte.State // state of the log messages
}

// NewFlusher returns a flusher for one partition. If now is nil, it uses the system clock. The
// client may be shared.
func NewFlusher(client redis.UniversalClient, part int, counts Counts, now func() time.Time) *Flusher {
	if now == nil {
		now = time.Now
	}
	return &Flusher{redis: client, part: part, counts: counts, id: identity.NewNonce(), now: now, limit: writeMax, waits: waiting.NewReport(now)}
}

// OpenPatient returns a client for work that can wait longer for Redis than a redirect, such as
// counting and announcing.
func OpenPatient(cfg redisdb.Config, partitions int) (redis.UniversalClient, error) {
	return openRedis(cfg, 2*time.Second, 4+2*partitions)
}

// Flushers count all partitions concurrently.
type Flushers struct {
	redis  redis.UniversalClient
	parts  int
	counts func(part int) Counts
	now    func() time.Time
}

// NewFlushers returns flushers for partitions 0 to parts-1. They also empty higher partitions,
// which may contain clicks if there used to be more partitions. The client is shared. counts
// returns the store for a partition.
func NewFlushers(client redis.UniversalClient, parts int, counts func(part int) Counts, now func() time.Time) *Flushers {
	return &Flushers{client, parts, counts, now}
}

// formerEvery is the interval between checks of partitions left over from an earlier setting.
const formerEvery = 10 * time.Second

// Run counts until ctx is done.
func (f *Flushers) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for p := range f.parts {
		wg.Go(func() { NewFlusher(f.redis, p, f.counts(p), f.now).run(ctx) })
	}
	// Keep each flusher between rounds because its ID holds the lease and it caches the progress.
	former := map[int]*Flusher{}
	var failed lograte.Limits[int]
	for {
		for p := f.parts; p < invalidation.MaxPartitions && ctx.Err() == nil; p++ {
			// Nearly all of these partitions are empty, and Cycle would take a lease for each.
			// After an error, the next round will retry.
			if n, err := f.redis.XLen(ctx, streamKey(p)).Result(); err != nil || n == 0 {
				if former[p] != nil {
					former[p].forget()
				}
				continue
			}
			if former[p] == nil {
				former[p] = NewFlusher(f.redis, p, f.counts(p), f.now)
			}
			if err := former[p].Cycle(ctx); err != nil {
				if times := failed.Due(p, time.Now()); times > 0 {
					slog.WarnContext(ctx, "cannot count clicks from a removed partition; retrying", "partition", p, "error", err, "times", times)
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(formerEvery):
		}
	}
}

// run counts until ctx is done, then releases the lease.
func (f *Flusher) run(ctx context.Context) {
	defer func() {
		f.forget()
		done, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = releaseScript.Run(done, f.redis, []string{flusherKey(f.part)}, f.id).Err() // otherwise the lease expires
	}()
	due := time.Time{}
	for ctx.Err() == nil {
		started := time.Now() // real time because this only paces the writes
		var err error
		resting := started.Before(due)
		if resting {
			_, err = f.hold(ctx)
		} else {
			err = f.Cycle(ctx)
			due = started.Add(rest(f.written))
		}
		if ctx.Err() == nil {
			f.tell(ctx, err, !resting && f.mine)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(started.Add(cycle))):
		}
	}
}

// tell logs that clicks cannot be counted, at most once per minute, and logs when counting resumes.
// counts is set if this flusher had the lease and ran a cycle. Other steps do not count anything,
// so their success does not show that counting has resumed.
func (f *Flusher) tell(ctx context.Context, err error, counts bool) {
	now := time.Now()
	switch {
	case err != nil:
		if times := f.lines.Failed(now); times > 0 {
			slog.WarnContext(ctx, "cannot count clicks; retrying", "partition", f.part, "error", err, "times", times)
		}
	case counts:
		if failed, told := f.lines.Worked(now); told {
			slog.WarnContext(ctx, "resumed counting clicks", "partition", f.part, "after", failed.Round(time.Millisecond).String())
		}
	}
}

// holdScript takes or keeps the lease. Like trimScript, it must work on a full server because only
// the flusher can free memory.
var holdScript = redis.NewScript(`#!lua flags=allow-oom
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`)

var releaseScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1`)

// trimScript removes the entries below an ID and subtracts their size from the log's size.
//
// KEYS: head, clicks. ARGV: id, bytes.
var trimScript = redis.NewScript(`#!lua flags=allow-oom
redis.call('XTRIM', KEYS[2], 'MINID', ARGV[1])
local left = redis.call('HINCRBY', KEYS[1], 'c', -tonumber(ARGV[2]))
if left < 0 or redis.call('XLEN', KEYS[2]) == 0 then redis.call('HSET', KEYS[1], 'c', 0) end
return 1`)

// hold takes or keeps the lease and reports whether this flusher has it.
func (f *Flusher) hold(ctx context.Context) (bool, error) {
	mine, err := holdScript.Run(ctx, f.redis, []string{flusherKey(f.part)}, f.id, lease.Milliseconds()).Int()
	f.mine = err == nil && mine != 0
	if !f.mine {
		f.progress = nil // another flusher will change it
		f.forget()
		return false, err
	}
	return true, nil
}

// Cycle counts the pending clicks, if this flusher has the lease.
func (f *Flusher) Cycle(ctx context.Context) error {
	f.written = 0
	if mine, err := f.hold(ctx); !mine {
		return err
	}
	if err := invalidation.Watch(ctx, f.redis, f.part, f.id); err != nil {
		return err
	}
	if f.part == 0 {
		f.audit(ctx)
	}
	entries, all, err := f.read(ctx)
	if err != nil {
		return err
	}
	f.meter(ctx, entries, all)
	if len(entries) == 0 {
		return nil
	}
	n, err := f.count(ctx, entries)
	if err != nil {
		// The commit may have succeeded even though its response was lost. The next cycle reads the
		// progress again and skips the clicks that it covers.
		f.progress = nil
		if !errors.Is(err, ErrOvertaken) {
			f.limit = max(f.limit/2, writeMin)
		}
		return err
	}
	f.limit = min(2*f.limit, writeMax)
	if !all || n < len(entries) {
		f.written = 0
	}
	return f.trim(ctx, entries[:n])
}

// meter reports the number of pending batches. If the cycle did not read all of them, meter gets
// the length of the log from Redis.
func (f *Flusher) meter(ctx context.Context, read []redis.XMessage, all bool) {
	n := int64(len(read))
	if !all {
		if length, err := f.redis.XLen(ctx, streamKey(f.part)).Result(); err == nil {
			n = max(n, length)
		}
	}
	backlog.WithLabelValues(strconv.Itoa(f.part)).Set(float64(n))
	d := waiting.Depth{N: n, Oldest: f.now()}
	if len(read) > 0 {
		ms, _, _ := strings.Cut(read[0].ID, "-") // an entry's ID starts with the time when Redis received it
		if at, err := strconv.ParseInt(ms, 10, 64); err == nil {
			d.Oldest = time.UnixMilli(at)
		}
	}
	f.waits.Set(waiting.Work{Of: "click_batches", For: "count"}, d)
}

// forget removes the partition's metrics because another flusher now counts the partition and
// reports them.
func (f *Flusher) forget() {
	backlog.DeleteLabelValues(strconv.Itoa(f.part))
	f.waits.Forget()
}

// read reads batches, oldest first. all reports whether it has read every batch.
func (f *Flusher) read(ctx context.Context) (entries []redis.XMessage, all bool, err error) {
	size := 0
	for started, from := time.Now(), "-"; ; {
		page, err := f.redis.XRangeN(ctx, streamKey(f.part), from, "+", readPage).Result()
		if err != nil && len(entries) == 0 {
			return nil, false, fmt.Errorf("read click log: %w", err)
		}
		entries = append(entries, page...)
		for _, e := range page {
			size += entrySize(e)
		}
		// After an error, use the pages that were read before it.
		all = err == nil && len(page) < readPage
		if all || err != nil || len(entries) >= readMax || size > readBytes || time.Since(started) > readTime {
			return entries, all, nil
		}
		from = "(" + page[len(page)-1].ID
	}
}

// entrySize returns how many bytes appendScript added to the log's size for an entry.
func entrySize(e redis.XMessage) int {
	payload, _ := e.Values["c"].(string)
	return len(payload) + entryBytes
}

// count writes the clicks in the first n entries, as many as fit into a cycle.
func (f *Flusher) count(ctx context.Context, entries []redis.XMessage) (n int, err error) {
	if f.progress == nil {
		p, err := f.counts.Progress(ctx)
		if err != nil {
			return 0, fmt.Errorf("read click progress: %w", err)
		}
		f.progress = &p
	}
	sum := newTallies(*f.progress, link.DayOf(f.now()))
	// Always take the first entry, regardless of its size. Otherwise an entry over the limit would
	// block all later entries permanently.
	for n < len(entries) && (n == 0 || sum.size < f.limit) {
		if err := sum.entry(entries[n].Values); err != nil {
			slog.ErrorContext(ctx, "cannot read a batch of clicks; dropping it", "id", entries[n].ID, "error", err)
		}
		n++
	}
	if len(sum.marks) == 0 {
		return n, nil // all entries have already been counted
	}
	next, refused, err := f.counts.Count(ctx, *f.progress, sum.marks, sum.list())
	if err != nil {
		return 0, fmt.Errorf("write click counts: %w", err)
	}
	f.progress, f.written = &next, len(sum.sums)
	counted.Add(float64(max(0, sum.clicks-refused)))
	if refused > 0 {
		setAside.Add(float64(max(0, refused)))
		slog.ErrorContext(ctx, "Firestore rejected some clicks; moved them to the clickRefused collection", "clicks", refused)
	}
	if sum.lost > 0 {
		lost.Add(float64(sum.lost))
		slog.ErrorContext(ctx, "clicks were lost before they could be counted", "clicks", sum.lost)
	}
	return n, nil
}

// trim removes entries from the log. If that fails, the next cycle will read and skip them.
func (f *Flusher) trim(ctx context.Context, entries []redis.XMessage) error {
	size := 0
	for _, e := range entries {
		size += entrySize(e)
	}
	ms, seq, _ := strings.Cut(entries[len(entries)-1].ID, "-")
	n, err := strconv.ParseUint(seq, 10, 64)
	if err != nil {
		return fmt.Errorf("trim click log: %w", err)
	}
	keys := []string{invalidation.HeadKey(f.part), streamKey(f.part)}
	if err := trimScript.Run(ctx, f.redis, keys, ms+"-"+strconv.FormatUint(n+1, 10), size).Err(); err != nil {
		return fmt.Errorf("trim click log: %w", err)
	}
	return nil
}

const (
	auditEvery = 30 * time.Second
	// missingAfter is how long a process may go without an update before it counts as missing,
	// unless it has signed off. A restarted container takes over the spool much sooner.
	missingAfter = 15 * time.Minute
)

// audit finds processes that ended without signing off and whose spool was not taken over, and
// counts them in a metric.
func (f *Flusher) audit(ctx context.Context) {
	now := f.now()
	if now.Sub(f.audited) < auditEvery {
		return
	}
	f.audited = now
	all, err := f.redis.HGetAll(ctx, producersKey).Result()
	if err != nil {
		return // the next audit will retry
	}
	for id, sign := range all {
		s, _ := parseSign(sign)
		if now.Sub(time.Unix(s.at, 0)) < missingAfter {
			continue
		}
		// Only the replica that succeeds in removing the entry counts the process.
		if n, err := f.redis.HDel(ctx, producersKey, id).Result(); err == nil && n > 0 {
			missing.Inc()
			slog.ErrorContext(ctx, "a process ended without signing off; clicks in its spool are lost", "process", id, "host", s.host)
		}
	}
}

// tallies adds up batches that have not been counted yet.
type tallies struct {
	progress link.Progress
	today    link.Day
	marks    map[string]link.Mark
	sums     map[dayOfLink]*link.Tally
	clicks   int64
	lost     int64
	size     int // approximate number of bytes needed to write the sums
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
	// The batch may already have been counted. A replica resends a batch if it does not know the
	// outcome of the first attempt, and the flusher reads entries again after a failed trim.
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
	// A batch contains the total number of clicks that its producer has sent, including this batch.
	// If that exceeds the last total plus this batch, the difference never arrived.
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
	t.size += sum.Add(c, n) // Add returns only the increase; count stops when size reaches a cycle's limit
}

// list returns the tallies in a fixed order, so two writers lock documents in the same order.
func (t *tallies) list() []*link.Tally {
	return slices.SortedFunc(maps.Values(t.sums), func(a, b *link.Tally) int {
		return cmp.Or(cmp.Compare(a.LinkID, b.LinkID), cmp.Compare(a.Day, b.Day))
	})
}
