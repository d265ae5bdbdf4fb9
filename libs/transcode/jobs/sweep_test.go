package jobs_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/queue"
	"github.com/linkreel/linkreel/libs/transcode"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

func openSweeper(t *testing.T) (*jobs.Sweeper, *clock, *redis.Client) {
	t.Helper()
	s, c, _ := open(t)
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	t.Cleanup(func() { _ = client.Close() })
	q := queue.New(client, queue.Options{Name: transcode.QueueName, Now: c.Now})
	return &jobs.Sweeper{Jobs: s, Queue: q}, c, client
}

// scaler returns the value that KEDA's redis-streams trigger reads
// (charts/linkreel/templates/keda.yaml).
func scaler(t *testing.T, client *redis.Client) int64 {
	t.Helper()
	n, err := client.XLen(t.Context(), queue.StreamKey(transcode.QueueName)).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func sweep(t *testing.T, s *jobs.Sweeper) {
	t.Helper()
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestADelayedJobWakesTheScalerThoughThereIsNoWorker(t *testing.T) {
	t.Parallel()
	s, c, client := openSweeper(t)
	j := create(t, s.Jobs)
	sweep(t, s)
	if n := scaler(t, client); n != 1 {
		t.Fatalf("the scaler reads %d jobs, want 1", n)
	}
	m, err := s.Queue.Next(t.Context(), "w", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	later := c.Now().Add(40 * time.Second)
	if _, err := s.Jobs.Retry(t.Context(), claim(t, s.Jobs, j.ID, "w"), later, transcode.Failure{Code: transcode.Internal}); err != nil {
		t.Fatal(err)
	}
	if err := m.Delay(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	sweep(t, s)
	if n := scaler(t, client); n != 0 {
		t.Fatalf("the scaler reads %d jobs during the backoff, want 0", n)
	}
	// No worker is left, so only the videos service sweeps.
	c.Move(40 * time.Second)
	sweep(t, s)
	if n := scaler(t, client); n != 1 {
		t.Errorf("the scaler reads %d jobs after the backoff, want 1", n)
	}
}

// The first jobs are already in the queue and remain due until a worker takes them.
func TestASweepFindsAMissingJobBehindManyThatWait(t *testing.T) {
	t.Parallel()
	s, _, client := openSweeper(t)
	add := func(i int) transcode.Job {
		j := transcode.Job{ID: transcode.JobID(fmt.Sprintf("v%03d", i), 1), VideoID: fmt.Sprintf("v%03d", i), AccountID: "many"}
		if _, err := s.Jobs.Create(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		return j
	}
	const many = 260
	for i := range many {
		add(i)
	}
	sweep(t, s)
	if n := scaler(t, client); n != many {
		t.Fatalf("one sweep added %d jobs to the empty queue, want %d", n, many)
	}
	add(many)
	sweep(t, s)
	if n := scaler(t, client); n != many+1 {
		t.Errorf("after another sweep the queue has %d jobs, want %d", n, many+1)
	}
}

func TestAFinishedPartIsCollectedOnceItsJobHasEnded(t *testing.T) {
	t.Parallel()
	s, c, _ := openSweeper(t)
	j := create(t, s.Jobs)
	leader := claim(t, s.Jobs, j.ID, "leader")
	part := j
	part.ID, part.Parent = transcode.PartID(j.ID, 0), j.ID
	if _, err := s.Jobs.Create(t.Context(), part); err != nil {
		t.Fatal(err)
	}
	if err := s.Jobs.Publish(t.Context(), claim(t, s.Jobs, part.ID, "helper"), outcome(1, true, transcode.PartsPrefix("vid", 7)+"0-1/")); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the job runs for hours and extends its lease
		c.Move(time.Hour)
		if err := s.Jobs.Heartbeat(t.Context(), leader, 2*time.Hour, 1); err != nil {
			t.Fatal(err)
		}
		sweep(t, s)
		if r := get(t, s.Jobs, part.ID); r.State != transcode.Done {
			t.Fatalf("part's state while its job is running = %s, want done", r.State)
		}
	}
	// The job's worker ends the job and dies before deleting its parts.
	if err := s.Jobs.Publish(t.Context(), leader, outcome(1, true, "videos/vid/7-1/")); err != nil {
		t.Fatal(err)
	}
	c.Move(time.Hour)
	sweep(t, s)
	if _, err := s.Jobs.Get(t.Context(), part.ID); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("Get for the part = %v, want ErrNotFound", err)
	}
}
