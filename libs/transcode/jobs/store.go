// Package jobs stores package transcode's jobs as Firestore documents. The videos
// service creates them, and the workers claim them under a lease.
//
// A claim returns a fencing token. A write with an older token has no effect and returns ErrLost.
// [Sweeper] adds jobs that the queue has lost.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/libs/waiting"
)

// Errors that a store returns. After ErrLost, a worker must stop immediately, because it no longer
// holds the job.
var (
	ErrNotFound = errors.New("jobs: no such job")
	ErrHeld     = errors.New("jobs: another worker holds the job, or it is not due yet")
	ErrFinal    = errors.New("jobs: the job is finished")
	ErrLost     = errors.New("jobs: the lease was lost")
)

// MaxTries is the number of failed claims after which a job fails permanently.
const MaxTries = 3

const collection = "jobs"

// Token proves a claim. It identifies the job and the claim's attempt.
type Token struct {
	JobID   string
	Attempt int
}

// Store stores job records in Firestore, one document per job. Any process may call its methods.
// Each method is one call or one transaction.
type Store struct {
	db  *firestoredb.DB
	now func() time.Time
}

// New returns a store. now is the clock for leases.
func New(db *firestoredb.DB, now func() time.Time) *Store {
	return &Store{db: db, now: now}
}

// document is a Record in Firestore. DueAt is the time at which the sweeper must process the job:
// for a queued job, when it was created or when its backoff ends; for a running job, when its lease
// ends. A final job has no DueAt, unless it is a part. The parent job's worker deletes the part,
// but may die before that. Therefore, a final part becomes due again and is then collected. This
// way, one field is enough for all the sweeper's queries. Limits and Still are stored with their
// fields' Go names.
type document struct {
	AccountID  string            `firestore:"accountId,omitempty"`
	VideoID    string            `firestore:"videoId"`
	Object     string            `firestore:"object"`
	Generation int64             `firestore:"generation"`
	Size       int64             `firestore:"size"`
	Limits     transcode.Limits  `firestore:"limits"`
	Trace      map[string]string `firestore:"trace,omitempty"`
	CreatedAt  time.Time         `firestore:"createdAt"`
	Parent     string            `firestore:"parent,omitempty"`
	Spec       []byte            `firestore:"spec,omitempty"`
	Still      *transcode.Still  `firestore:"still,omitempty"`

	State       transcode.State `firestore:"state"`
	Attempt     int             `firestore:"attempt"`
	Tries       int             `firestore:"tries"`
	Inspected   bool            `firestore:"looked,omitempty"`
	Worker      string          `firestore:"worker"`
	DueAt       time.Time       `firestore:"dueAt,omitzero"`
	DueBucket   int             `firestore:"dueBucket"`
	Progress    int             `firestore:"progress"`
	Outcome     []byte          `firestore:"outcome,omitempty"`
	FailCode    transcode.Code  `firestore:"failCode,omitempty"`
	FailMessage string          `firestore:"failMessage,omitempty"`
	UpdatedAt   time.Time       `firestore:"updatedAt"`
}

func (d *document) record(id string) (transcode.Record, error) {
	outcome, err := transcode.UnmarshalOutcome(d.Outcome)
	if err != nil {
		return transcode.Record{}, fmt.Errorf("job %s: %w", id, err)
	}
	r := transcode.Record{
		Job: transcode.Job{
			ID: id, AccountID: d.AccountID, VideoID: d.VideoID, Object: d.Object, Generation: d.Generation, Size: d.Size,
			Limits: d.Limits, Trace: d.Trace, CreatedAt: d.CreatedAt, Parent: d.Parent, Spec: d.Spec, Still: d.Still,
		},
		State: d.State, Attempt: d.Attempt, Tries: d.Tries, Inspected: d.Inspected, Worker: d.Worker, Progress: d.Progress,
		Outcome: outcome, UpdatedAt: d.UpdatedAt,
	}
	if r.State == transcode.Running {
		r.LeaseUntil = d.DueAt
	}
	if d.FailCode != "" {
		r.Failure = &transcode.Failure{Code: d.FailCode, Message: d.FailMessage}
	}
	return r, nil
}

// Create stores a new job as queued and reports whether it was new. An existing job with the same
// id is left unchanged.
func (s *Store) Create(ctx context.Context, j transcode.Job) (bool, error) {
	now := s.now()
	if j.CreatedAt.IsZero() {
		j.CreatedAt = now
	}
	d := &document{
		AccountID: j.AccountID, VideoID: j.VideoID, Object: j.Object, Generation: j.Generation, Size: j.Size,
		Limits: j.Limits, Trace: j.Trace, CreatedAt: j.CreatedAt, Parent: j.Parent, Spec: j.Spec, Still: j.Still,
		State: transcode.Queued, DueAt: now, DueBucket: bucketOf(j.ID), UpdatedAt: now,
	}
	err := s.db.Create(ctx, "create job", s.ref(j.ID), d)
	if errors.Is(err, firestoredb.ErrExists) {
		return false, nil
	}
	return err == nil, err
}

// Get reads a job. The error is ErrNotFound if there is none.
func (s *Store) Get(ctx context.Context, id string) (transcode.Record, error) {
	r, err := firestoredb.Get(ctx, s.db, "get job", s.ref(id), read)
	return r, notFound(err)
}

func read(snap firestoredb.Snap) (transcode.Record, error) {
	d, err := firestoredb.As[document](snap)
	if err != nil {
		return transcode.Record{}, err
	}
	return d.record(snap.Ref.ID)
}

// Claim takes the job for the given lease and returns it with its new fencing token. It returns
// ErrHeld during another lease or a backoff, and ErrFinal for a finished job. After MaxTries failed
// claims, a job fails and is not claimed again, so a file that kills its worker is not retried
// forever.
func (s *Store) Claim(ctx context.Context, id, worker string, lease time.Duration) (transcode.Record, error) {
	return s.claim(ctx, id, worker, lease, func(*document) bool { return true })
}

// ClaimNew is like Claim, but only for a job that has not been inspected or tried yet and is not
// part of another job. For other jobs it returns ErrHeld.
func (s *Store) ClaimNew(ctx context.Context, id, worker string, lease time.Duration) (transcode.Record, error) {
	return s.claim(ctx, id, worker, lease, func(d *document) bool { return !d.Inspected && d.Tries == 0 && d.Parent == "" })
}

func (s *Store) claim(ctx context.Context, id, worker string, lease time.Duration, mine func(*document) bool) (transcode.Record, error) {
	var claimed transcode.Record
	err := s.change(ctx, "claim", id, func(d *document) error {
		claimed = transcode.Record{}
		now := s.now()
		if d.State.Final() {
			return ErrFinal
		}
		if !mine(d) {
			return ErrHeld
		}
		// Another worker's lease or a backoff has not ended.
		if now.Before(d.DueAt) {
			return ErrHeld
		}
		if d.Tries >= MaxTries {
			return s.fail(d, transcode.Failure{
				Code: transcode.Internal, Message: "The video could not be prepared after several attempts.",
			})
		}
		d.State, d.Worker, d.DueAt = transcode.Running, worker, now.Add(lease)
		d.Attempt++
		d.Tries++
		r, err := d.record(id)
		claimed = r
		return err
	})
	if err != nil {
		return transcode.Record{}, err
	}
	if claimed.ID == "" {
		return transcode.Record{}, ErrFinal
	}
	return claimed, nil
}

// Heartbeat extends the lease and reports progress in percent. Progress remains below 100 until an
// outcome is published, and never decreases. ErrLost means that the caller must stop and make no
// more writes.
func (s *Store) Heartbeat(ctx context.Context, t Token, lease time.Duration, progress int) error {
	return s.holding(ctx, "heartbeat", t, func(d *document) error {
		d.DueAt = s.now().Add(lease)
		if len(d.Outcome) == 0 {
			d.Progress = max(d.Progress, min(progress, 99))
		}
		return nil
	})
}

// Publish sets the job's outcome if it is newer than the current outcome. A final outcome also ends
// the job. Publishing the same version twice succeeds because the first response may have been
// lost.
func (s *Store) Publish(ctx context.Context, t Token, o *transcode.Outcome) error {
	packed, err := transcode.MarshalOutcome(o)
	if err != nil {
		return err
	}
	err = s.change(ctx, "publish", t.JobID, func(d *document) error {
		old, err := transcode.UnmarshalOutcome(d.Outcome)
		if err != nil {
			return err
		}
		if d.Attempt == t.Attempt && old != nil && old.Version == o.Version && old.Prefix == o.Prefix {
			return nil
		}
		if d.State != transcode.Running || d.Attempt != t.Attempt || (old != nil && old.Version >= o.Version) {
			return ErrLost
		}
		d.Outcome, d.Progress = packed, 100
		if o.Final {
			d.State = transcode.Done
			s.end(d)
		}
		return nil
	})
	if errors.Is(err, ErrNotFound) {
		return ErrLost
	}
	return err
}

// Fail ends the job permanently. If an outcome has already been published, the video can be played,
// so the job ends as done with that outcome.
func (s *Store) Fail(ctx context.Context, t Token, f transcode.Failure) error {
	return s.holding(ctx, "fail", t, func(d *document) error { return s.fail(d, f) })
}

// Retry makes the job claimable again at the time at, after a failure that may be temporary. If no
// tries are left, the job fails with f, and Retry returns true.
func (s *Store) Retry(ctx context.Context, t Token, at time.Time, f transcode.Failure) (failed bool, err error) {
	err = s.holding(ctx, "retry", t, func(d *document) error {
		failed = d.Tries >= MaxTries
		if failed {
			return s.fail(d, f)
		}
		d.State, d.Worker, d.DueAt = transcode.Queued, "", at
		return nil
	})
	return failed, err
}

// Nack returns an unfinished job. The job can be claimed immediately, and this claim does not count
// as a try.
func (s *Store) Nack(ctx context.Context, t Token, but ...Return) error {
	return s.holding(ctx, "return", t, func(d *document) error {
		d.State, d.Worker, d.DueAt = transcode.Queued, "", s.now()
		d.Tries = max(0, d.Tries-1)
		for _, change := range but {
			change(d)
		}
		return nil
	})
}

// Return is an additional change that Nack makes to the job.
type Return func(*document)

// Inspected marks a job as inspected: all quick work is done, so the fast lane does not take the
// job again.
func Inspected(d *document) { d.Inspected = true }

// NotBefore prevents claims on the job before the time at. Use it if the worker has no capacity for
// the job.
func NotBefore(at time.Time) Return { return func(d *document) { d.DueAt = at } }

// Delete deletes the job's record. A worker that holds the job loses it.
func (s *Store) Delete(ctx context.Context, id string) error {
	return s.db.DeleteAll(ctx, "delete job", s.ref(id))
}

// Cursor is a position in the list of due jobs. The zero Cursor is the start of the list.
type Cursor struct {
	at time.Time
	id string
}

// dueBuckets is the number of index ranges over which due jobs are spread. Due times keep
// increasing, so all changes in a range are at its end, where Firestore accepts 500 a second. Each
// heartbeat from a running job makes two changes.
const dueBuckets = 8

var buckets = func() (all []int) {
	for b := range dueBuckets {
		all = append(all, b)
	}
	return all
}()

func bucketOf(id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return int(h.Sum32() % dueBuckets)
}

func (s *Store) due() firestore.Query {
	return s.db.Collection(collection).Where("dueBucket", "in", buckets).Where("dueAt", "<=", s.now()).OrderBy("dueAt", firestore.Asc)
}

// Waiting returns the number of due jobs, and the time when the oldest of them became due. Due jobs
// are unclaimed queued jobs, and jobs held by dead workers.
func (s *Store) Waiting() func(context.Context) (waiting.Depth, error) {
	return waiting.Query(s.db, "due jobs", "dueAt", func() []firestore.Query { return []firestore.Query{s.due()} })
}

// Due returns up to limit due jobs after a cursor, sorted by due time: queued jobs, running jobs
// with an expired lease, and final parts to be collected. next is the cursor for the next call, or
// zero at the end. If a record cannot be decoded, Due returns an error as well as the other
// records.
func (s *Store) Due(ctx context.Context, after Cursor, limit int) (records []transcode.Record, next Cursor, err error) {
	q := s.due().OrderBy(firestore.DocumentID, firestore.Asc).Limit(limit)
	if after != (Cursor{}) {
		q = q.StartAfter(after.at, after.id)
	}
	snaps, err := s.db.Query(ctx, "list due jobs", q)
	if err != nil {
		return nil, Cursor{}, err
	}
	if len(snaps) == limit {
		last := snaps[limit-1]
		at, _ := last.Data()["dueAt"].(time.Time) // the query orders by dueAt, so it is set
		next = Cursor{at, last.Ref.ID}
	}
	records, broken := firestoredb.Sift(snaps, read)
	for _, b := range broken {
		err = errors.Join(err, b.Err)
	}
	return records, next, err
}

// Collect handles a final part that is due. It deletes the record if the part's job has ended or no
// longer exists, because workers no longer need the part. Otherwise the part becomes due again
// after partKeep. A part that has since been queued again is left unchanged.
func (s *Store) Collect(ctx context.Context, part transcode.Record) error {
	parent, err := s.Get(ctx, part.Parent)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if err != nil || parent.State.Final() {
		return s.Delete(ctx, part.ID)
	}
	return s.change(ctx, "keep part of", part.ID, func(d *document) error {
		if d.State.Final() {
			s.end(d)
		}
		return nil
	})
}

func (s *Store) ref(id string) *firestore.DocumentRef {
	return s.db.Collection(collection).Doc(id)
}

// fail ends d as failed, or as done if it has an outcome.
func (s *Store) fail(d *document, f transcode.Failure) error {
	s.end(d)
	if len(d.Outcome) == 0 {
		d.State, d.FailCode, d.FailMessage = transcode.Failed, f.Code, f.Message
		return nil
	}
	o, err := transcode.UnmarshalOutcome(d.Outcome)
	if err != nil {
		return err
	}
	// Increase the version so that the videos service learns that this outcome is final.
	o.Final = true
	o.Version++
	d.State = transcode.Done
	d.Outcome, err = transcode.MarshalOutcome(o)
	return err
}

// partKeep is the time between checks on whether a finished part is still needed.
const partKeep = time.Hour

// end excludes a final job from the sweeps. A part stays in them so that it is collected.
func (s *Store) end(d *document) {
	d.DueAt = time.Time{}
	if d.Parent != "" {
		d.DueAt = s.now().Add(partKeep)
	}
}

// holding runs fn on the document if the token is still valid.
func (s *Store) holding(ctx context.Context, what string, t Token, fn func(*document) error) error {
	err := s.change(ctx, what, t.JobID, func(d *document) error {
		if d.State != transcode.Running || d.Attempt != t.Attempt {
			return ErrLost
		}
		return fn(d)
	})
	if errors.Is(err, ErrNotFound) {
		return ErrLost
	}
	return err
}

// change runs fn on the job's document in a transaction and writes it back. fn may run several
// times and must have no other effects.
func (s *Store) change(ctx context.Context, what, id string, fn func(*document) error) error {
	ref := s.ref(id)
	return notFound(s.db.Tx(ctx, what+" job", func(ctx context.Context, tx *firestore.Transaction) error {
		snap, err := tx.Get(ref)
		if err != nil {
			return err
		}
		var d document
		if err := snap.DataTo(&d); err != nil {
			return err
		}
		if err := fn(&d); err != nil {
			return err
		}
		d.UpdatedAt = s.now()
		return tx.Set(ref, &d)
	}))
}

func notFound(err error) error {
	if errors.Is(err, firestoredb.ErrNotFound) {
		return ErrNotFound
	}
	return err
}
