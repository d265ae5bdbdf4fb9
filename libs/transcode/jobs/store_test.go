package jobs_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

// clock is a clock that the tests control.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

const lease = 20 * time.Second

func open(t *testing.T) (*jobs.Store, *clock, *firestore.Server) {
	t.Helper()
	cloud := cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{jobs.Indexes}, Complete: true})
	c := &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	return jobs.New(firestoredb.Use(cloud.Client(t), 5*time.Second), c.Now), c, cloud.Firestore
}

func create(t *testing.T, s *jobs.Store) transcode.Job {
	t.Helper()
	j := transcode.Job{
		ID: transcode.JobID("vid", 7), VideoID: "vid", Object: "uploads/vid", Generation: 7, Size: 99,
		Limits: transcode.Limits{MaxBytes: 1 << 40, MaxDuration: 4 * time.Hour, MaxSide: 8192, MaxPixels: 36e6},
		Trace:  map[string]string{"traceparent": "00-1-2-01"},
	}
	if fresh, err := s.Create(t.Context(), j); err != nil || !fresh {
		t.Fatalf("Create = %v, %v; want true, nil", fresh, err)
	}
	return j
}

func claim(t *testing.T, s *jobs.Store, id, worker string) jobs.Token {
	t.Helper()
	r, err := s.Claim(t.Context(), id, worker, lease)
	if err != nil {
		t.Fatalf("Claim: %v", err)
	}
	return jobs.Token{JobID: id, Attempt: r.Attempt}
}

func get(t *testing.T, s *jobs.Store, id string) transcode.Record {
	t.Helper()
	r, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	return r
}

func outcome(version int, final bool, prefix string) *transcode.Outcome {
	return &transcode.Outcome{
		Version: version, Final: final, Path: transcode.PathTranscode, Prefix: prefix, Duration: 1,
		Renditions: []transcode.Rendition{{Name: "360p", Object: prefix + "360p.mp4", Segments: transcode.Segments{{Range: transcode.Range{Offset: 8, Size: 9}, Duration: 1}}}},
	}
}

func TestCreateTwiceMakesOneJobAndKeepsIt(t *testing.T) {
	t.Parallel()
	s, c, _ := open(t)
	j := create(t, s)
	claim(t, s, j.ID, "a")
	if fresh, err := s.Create(t.Context(), j); err != nil || fresh {
		t.Errorf("second Create = %v, %v; want false, nil", fresh, err)
	}
	got := get(t, s, j.ID)
	want := transcode.Record{Job: j, State: transcode.Running, Attempt: 1, Tries: 1, Worker: "a", LeaseUntil: c.Now().Add(lease), UpdatedAt: c.Now()}
	want.CreatedAt = c.Now()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

func TestLeaseKeepsOthersOutUntilItEnds(t *testing.T) {
	t.Parallel()
	s, c, _ := open(t)
	j := create(t, s)
	first := claim(t, s, j.ID, "a")
	c.Move(lease / 2)
	if err := s.Heartbeat(t.Context(), first, lease, 10); err != nil {
		t.Fatalf("Heartbeat = %v, want no error", err)
	}
	c.Move(lease - time.Second)
	if _, err := s.Claim(t.Context(), j.ID, "b", lease); !errors.Is(err, jobs.ErrHeld) {
		t.Fatalf("Claim on a held job = %v, want ErrHeld", err)
	}
	c.Move(time.Second)
	second := claim(t, s, j.ID, "b")
	if second.Attempt != 2 {
		t.Errorf("Attempt of the second claim = %d, want 2", second.Attempt)
	}
	stale := map[string]error{
		"Heartbeat": s.Heartbeat(t.Context(), first, lease, 50),
		"Publish":   s.Publish(t.Context(), first, outcome(1, true, "p1/")),
		"Fail":      s.Fail(t.Context(), first, transcode.Failure{Code: transcode.Internal}),
		"Nack":      s.Nack(t.Context(), first),
	}
	for name, err := range stale {
		if !errors.Is(err, jobs.ErrLost) {
			t.Errorf("%s with a stale token = %v, want ErrLost", name, err)
		}
	}
	if r := get(t, s, j.ID); r.Outcome != nil || r.Progress != 10 || r.Worker != "b" {
		t.Errorf("after stale writes, record = %+v, want it unchanged", r)
	}
}

func TestProgressNeverFallsNorReachesTheEndBeforePublication(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t)
	j := create(t, s)
	tok := claim(t, s, j.ID, "a")
	for _, step := range []struct{ report, want int }{{30, 30}, {20, 30}, {100, 99}, {5, 99}} {
		if err := s.Heartbeat(t.Context(), tok, lease, step.report); err != nil {
			t.Fatal(err)
		}
		if got := get(t, s, j.ID).Progress; got != step.want {
			t.Errorf("progress after reporting %d = %d, want %d", step.report, got, step.want)
		}
	}
	if err := s.Publish(t.Context(), tok, outcome(1, false, "p/")); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, j.ID).Progress; got != 100 {
		t.Errorf("progress after publication = %d, want 100", got)
	}
}

func TestPublishRepeatedIsSuccessAndFinalEndsTheJob(t *testing.T) {
	t.Parallel()
	s, c, _ := open(t)
	j := create(t, s)
	tok := claim(t, s, j.ID, "a")
	for _, o := range []*transcode.Outcome{outcome(1, false, "p/"), outcome(1, false, "p/"), outcome(2, true, "p/"), outcome(2, true, "p/")} {
		if err := s.Publish(t.Context(), tok, o); err != nil {
			t.Fatalf("Publish for version %d = %v, want no error", o.Version, err)
		}
	}
	r := get(t, s, j.ID)
	if diff := cmp.Diff(outcome(2, true, "p/"), r.Outcome); diff != "" || r.State != transcode.Done {
		t.Errorf("state = %s, outcome (-want +got):\n%s", r.State, diff)
	}
	c.Move(time.Hour)
	if due, _, err := s.Due(t.Context(), jobs.Cursor{}, 10); err != nil || len(due) != 0 {
		t.Errorf("Due = %v, %v; want none", due, err)
	}
	if _, err := s.Claim(t.Context(), j.ID, "b", lease); !errors.Is(err, jobs.ErrFinal) {
		t.Errorf("Claim on a finished job = %v, want ErrFinal", err)
	}
}

func TestFailureAfterPublicationKeepsWhatPlays(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t)
	j := create(t, s)
	tok := claim(t, s, j.ID, "a")
	if err := s.Publish(t.Context(), tok, outcome(1, false, "p/")); err != nil {
		t.Fatal(err)
	}
	if err := s.Fail(t.Context(), tok, transcode.Failure{Code: transcode.Timeout}); err != nil {
		t.Fatal(err)
	}
	r := get(t, s, j.ID)
	if r.State != transcode.Done || r.Failure != nil || r.Outcome == nil || !r.Outcome.Final || r.Outcome.Version != 2 {
		t.Errorf("record = %+v, outcome = %+v; want done with a final second version", r, r.Outcome)
	}
}

func TestJobThatKillsItsWorkersFailsAfterThreeTries(t *testing.T) {
	t.Parallel()
	s, c, _ := open(t)
	j := create(t, s)
	for range jobs.MaxTries {
		claim(t, s, j.ID, "w")
		c.Move(lease)
	}
	if _, err := s.Claim(t.Context(), j.ID, "w", lease); !errors.Is(err, jobs.ErrFinal) {
		t.Fatalf("fourth Claim = %v, want ErrFinal", err)
	}
	r := get(t, s, j.ID)
	if r.State != transcode.Failed || r.Failure == nil || r.Failure.Code != transcode.Internal {
		t.Errorf("state = %s with failure %v, want failed with INTERNAL", r.State, r.Failure)
	}
}

func TestHandedBackWorkIsFreeAtOnceAndNotCounted(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t)
	j := create(t, s)
	for range 5 {
		if err := s.Nack(t.Context(), claim(t, s, j.ID, "w")); err != nil {
			t.Fatal(err)
		}
	}
	if r := get(t, s, j.ID); r.State != transcode.Queued || r.Tries != 0 || r.Attempt != 5 {
		t.Errorf("state = %s, tries = %d, attempt = %d; want queued, 0, 5", r.State, r.Tries, r.Attempt)
	}
}

func TestRetryWaitsAndThenGivesUp(t *testing.T) {
	t.Parallel()
	s, c, _ := open(t)
	j := create(t, s)
	for try := 1; try <= jobs.MaxTries; try++ {
		tok := claim(t, s, j.ID, "w")
		failed, err := s.Retry(t.Context(), tok, c.Now().Add(time.Minute), transcode.Failure{Code: transcode.Internal, Message: "m"})
		if err != nil || failed != (try == jobs.MaxTries) {
			t.Fatalf("Retry %d = %v, %v, want true only for the last retry", try, failed, err)
		}
		if failed {
			break
		}
		if _, err := s.Claim(t.Context(), j.ID, "w", lease); !errors.Is(err, jobs.ErrHeld) {
			t.Fatalf("Claim during backoff = %v, want ErrHeld", err)
		}
		c.Move(time.Minute)
	}
	if r := get(t, s, j.ID); r.State != transcode.Failed {
		t.Errorf("state = %s, want failed", r.State)
	}
}

func TestDueListsLongestWaitingFirst(t *testing.T) {
	t.Parallel()
	s, c, _ := open(t)
	for _, v := range []string{"c", "a", "b"} {
		if _, err := s.Create(t.Context(), transcode.Job{ID: transcode.JobID(v, 1), VideoID: v}); err != nil {
			t.Fatal(err)
		}
		c.Move(time.Second)
	}
	claim(t, s, "c-1", "w") // its lease ends after the other jobs have become due
	var got []string
	list := func() []string {
		due, _, err := s.Due(t.Context(), jobs.Cursor{}, 10)
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		for _, r := range due {
			got = append(got, r.VideoID)
		}
		return got
	}
	if diff := cmp.Diff([]string{"a", "b"}, list()); diff != "" {
		t.Errorf("due jobs during the lease (-want +got):\n%s", diff)
	}
	c.Move(lease)
	if diff := cmp.Diff([]string{"a", "b", "c"}, list()); diff != "" {
		t.Errorf("due jobs after the lease (-want +got):\n%s", diff)
	}
}

func TestADeletedJobIsLostToItsWorker(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t)
	j := create(t, s)
	token := claim(t, s, j.ID, "w")
	if err := s.Delete(t.Context(), j.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Heartbeat(t.Context(), token, lease, 1); !errors.Is(err, jobs.ErrLost) {
		t.Errorf("Heartbeat for a deleted job = %v, want ErrLost", err)
	}
}

func TestOnlyOneOfManyClaimsSucceeds(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t)
	j := create(t, s)
	var wg sync.WaitGroup
	wins := make(chan int, 8)
	for range 8 {
		wg.Go(func() {
			if r, err := s.Claim(t.Context(), j.ID, "w", lease); err == nil {
				wins <- r.Attempt
			} else if !errors.Is(err, jobs.ErrHeld) {
				t.Errorf("Claim = %v, want ErrHeld", err)
			}
		})
	}
	wg.Wait()
	if len(wins) != 1 {
		t.Errorf("%d claims succeeded, want 1", len(wins))
	}
}

func TestAJobThatIsPutOffWaitsAndLosesNoTry(t *testing.T) {
	t.Parallel()
	s, clock, _ := open(t)
	j := create(t, s)
	token := claim(t, s, j.ID, "w")
	if err := s.Nack(t.Context(), token, jobs.NotBefore(clock.Now().Add(time.Minute))); err != nil {
		t.Fatal(err)
	}
	if r := get(t, s, j.ID); r.State != transcode.Queued || r.Tries != 0 {
		t.Errorf("postponed record = %+v, want queued, 0 tries", r)
	}
	if _, err := s.Claim(t.Context(), j.ID, "w", lease); !errors.Is(err, jobs.ErrHeld) {
		t.Errorf("Claim before the job's time = %v, want ErrHeld", err)
	}
	clock.Move(time.Minute)
	if _, err := s.Claim(t.Context(), j.ID, "w", lease); err != nil {
		t.Errorf("Claim at the job's time = %v, want no error", err)
	}
	if err := s.Nack(t.Context(), token, jobs.NotBefore(clock.Now())); !errors.Is(err, jobs.ErrLost) {
		t.Errorf("NotBefore without the lease = %v, want ErrLost", err)
	}
}

func TestAJobThatWasInspectedIsForASlot(t *testing.T) {
	t.Parallel()
	s, _, _ := open(t)
	j := create(t, s)
	r, err := s.ClaimNew(t.Context(), j.ID, "fast", lease)
	if err != nil {
		t.Fatal(err)
	}
	token := jobs.Token{JobID: j.ID, Attempt: r.Attempt}
	if err := s.Publish(t.Context(), token, outcome(1, false, "p/")); err != nil {
		t.Fatal(err)
	}
	if err := s.Nack(t.Context(), token, jobs.Inspected); err != nil {
		t.Fatal(err)
	}
	if r := get(t, s, j.ID); r.State != transcode.Queued || !r.Inspected || r.Tries != 0 || r.Outcome == nil {
		t.Errorf("returned record = %+v, want queued, inspected, 0 tries, with its outcome", r)
	}
	if _, err := s.ClaimNew(t.Context(), j.ID, "fast", lease); !errors.Is(err, jobs.ErrHeld) {
		t.Errorf("second ClaimNew = %v, want ErrHeld", err)
	}
	if err := s.Nack(t.Context(), token, jobs.Inspected); !errors.Is(err, jobs.ErrLost) {
		t.Errorf("Inspected without the lease = %v, want ErrLost", err)
	}
	if r, err := s.Claim(t.Context(), j.ID, "slot", lease); err != nil || r.Attempt != 2 {
		t.Errorf("Claim after Nack: attempt = %d, error %v, want attempt 2", r.Attempt, err)
	}
}

func TestJobsWaitUntilAWorkerTakesThem(t *testing.T) {
	t.Parallel()
	s, clock, _ := open(t)
	waits := s.Waiting()
	want := func(when string, n int64, age time.Duration) {
		t.Helper()
		d, err := waits(t.Context())
		if err != nil || d.N != n || n > 0 && clock.Now().Sub(d.Oldest) != age {
			t.Errorf("%s: Waiting = %d since %v, error %v; want %d for %v", when, d.N, d.Oldest, err, n, age)
		}
	}
	want("no job", 0, 0)
	j := create(t, s)
	clock.Move(time.Hour)
	if _, err := s.Create(t.Context(), transcode.Job{ID: transcode.JobID("vid", 8), VideoID: "vid"}); err != nil {
		t.Fatal(err)
	}
	want("two jobs without a worker", 2, time.Hour)
	token := claim(t, s, j.ID, "w1")
	want("one claimed job", 1, 0)
	clock.Move(lease)
	want("job held by a dead worker", 2, lease)
	if err := s.Heartbeat(t.Context(), token, lease, 1); err != nil {
		t.Fatal(err)
	}
	want("worker has returned", 1, lease)
}
