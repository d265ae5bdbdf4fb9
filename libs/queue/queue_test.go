package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/localcloud/redistest"
	"github.com/linkreel/linkreel/libs/queue"
)

func open(t *testing.T, opt queue.Options) (*queue.Queue, *redis.Client) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	t.Cleanup(func() { _ = client.Close() })
	return queue.New(client, opt), client
}

func add(t *testing.T, q *queue.Queue, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := q.Add(t.Context(), id, map[string]string{"traceparent": id}); err != nil {
			t.Fatal(err)
		}
	}
}

func take(t *testing.T, q *queue.Queue, consumer string) *queue.Message {
	t.Helper()
	m, err := q.Next(t.Context(), consumer, time.Second)
	if err != nil {
		t.Fatalf("Next for %s: %v", consumer, err)
	}
	return m
}

func empty(t *testing.T, q *queue.Queue) {
	t.Helper()
	if m, err := q.Next(t.Context(), "reader", time.Millisecond); !errors.Is(err, queue.ErrEmpty) {
		t.Fatalf("Next = %+v, %v; want ErrEmpty", m, err)
	}
}

func TestMessageIsDeliveredOnceWithItsTraceAndGoneWhenDone(t *testing.T) {
	t.Parallel()
	q, _ := open(t, queue.Options{})
	add(t, q, "a", "a", "a")
	m := take(t, q, "w1")
	if m.ID != "a" || m.Deliveries != 1 || m.Trace["traceparent"] != "a" {
		t.Errorf("message = %+v", m)
	}
	add(t, q, "a") // taken is there too
	empty(t, q)
	if err := m.Done(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := q.Length(t.Context()); err != nil || n != 0 {
		t.Errorf("Length = %d, %v; want 0", n, err)
	}
	add(t, q, "a")
	if m := take(t, q, "w2"); m.ID != "a" {
		t.Errorf("message = %+v, want a again", m)
	}
}

func TestSilentWorkersMessageGoesToAnotherAndTheOldOneIsTold(t *testing.T) {
	t.Parallel()
	q, _ := open(t, queue.Options{Silence: 60 * time.Millisecond})
	add(t, q, "a")
	old := take(t, q, "w1")
	var m *queue.Message
	for deadline := time.Now().Add(5 * time.Second); m == nil && time.Now().Before(deadline); {
		m, _ = q.Next(t.Context(), "w2", 10*time.Millisecond)
	}
	if m == nil || m.ID != "a" || m.Deliveries != 2 {
		t.Fatalf("taken over = %+v, want a for the second time", m)
	}
	for name, err := range map[string]error{
		"Beat": old.Beat(t.Context()), "Done": old.Done(t.Context()), "HandBack": old.HandBack(t.Context()),
		"Later": old.Later(t.Context(), time.Now()), "Bury": old.Bury(t.Context(), "r"),
	} {
		if !errors.Is(err, queue.ErrLost) {
			t.Errorf("%s by the replaced worker = %v, want ErrLost", name, err)
		}
	}
	if err := m.Beat(t.Context()); err != nil {
		t.Errorf("Beat by the new worker = %v", err)
	}
}

func TestBeatingKeepsTheMessage(t *testing.T) {
	t.Parallel()
	const silence = 300 * time.Millisecond
	q, _ := open(t, queue.Options{Silence: silence})
	add(t, q, "a")
	m := take(t, q, "w1")
	for end := time.Now().Add(3 * silence); time.Now().Before(end); {
		if err := m.Beat(t.Context()); err != nil {
			t.Fatalf("Beat: %v", err)
		}
		if other, err := q.Next(t.Context(), "w2", silence/10); !errors.Is(err, queue.ErrEmpty) {
			t.Fatalf("stole %+v, %v", other, err)
		}
	}
}

func TestHandedBackMessageIsFreeAtOnceAndNew(t *testing.T) {
	t.Parallel()
	q, _ := open(t, queue.Options{})
	add(t, q, "a")
	if err := take(t, q, "w1").HandBack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m := take(t, q, "w2"); m.ID != "a" || m.Deliveries != 1 || m.Trace["traceparent"] != "a" {
		t.Errorf("message = %+v, want a as new", m)
	}
}

func TestDelayedMessageComesWhenDue(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now := time.Now()
	q, _ := open(t, queue.Options{Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now }})
	add(t, q, "a")
	if err := take(t, q, "w1").Later(t.Context(), now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	empty(t, q)
	mu.Lock()
	now = now.Add(time.Minute)
	mu.Unlock()
	if m := take(t, q, "w1"); m.ID != "a" {
		t.Errorf("message = %+v", m)
	}
}

func TestBuriedMessageIsADeadLetter(t *testing.T) {
	t.Parallel()
	q, _ := open(t, queue.Options{})
	add(t, q, "a")
	if err := take(t, q, "w").Bury(t.Context(), "kills workers"); err != nil {
		t.Fatal(err)
	}
	empty(t, q)
	got, err := q.Dead(t.Context(), 10)
	if diff := cmp.Diff([]queue.DeadLetter{{ID: "a", Reason: "kills workers"}}, got); err != nil || diff != "" {
		t.Errorf("Dead: %v (-want +got):\n%s", err, diff)
	}
}

func TestEmptiedRedisIsUsableAtOnce(t *testing.T) {
	t.Parallel()
	q, client := open(t, queue.Options{})
	add(t, q, "a")
	m := take(t, q, "w")
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := m.Beat(t.Context()); !errors.Is(err, queue.ErrLost) {
		t.Errorf("Beat after the flush = %v, want ErrLost", err)
	}
	empty(t, q)
	add(t, q, "a")
	if m := take(t, q, "w"); m.ID != "a" {
		t.Errorf("message = %+v", m)
	}
}

func TestManyWorkersShareWithoutDoubling(t *testing.T) {
	t.Parallel()
	q, _ := open(t, queue.Options{})
	const n = 200
	for i := range n {
		add(t, q, fmt.Sprint(i))
	}
	var mu sync.Mutex
	seen := map[string]int{}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for {
				m, err := q.Next(context.Background(), fmt.Sprint("w", w), time.Millisecond)
				if err != nil {
					return
				}
				mu.Lock()
				seen[m.ID]++
				mu.Unlock()
				if err := m.Done(context.Background()); err != nil {
					t.Errorf("Done: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for i := range n {
		if got := seen[fmt.Sprint(i)]; got != 1 {
			t.Errorf("%d was delivered %d times, want once", i, got)
		}
	}
}

func TestScoutsAreShownEachMessageOnceAndLeaveItToTheWorkers(t *testing.T) {
	t.Parallel()
	q, client := open(t, queue.Options{})
	add(t, q, "a", "b")
	take(t, q, "w1") // a is taken, and shown all the same
	scout := func(name string) (string, error) {
		id, added, err := q.Scout(t.Context(), name, time.Millisecond)
		if err == nil && time.Since(added).Abs() > time.Minute {
			t.Errorf("%s was added at %v", id, added)
		}
		return id, err
	}
	for _, want := range []string{"a", "b"} {
		if got, err := scout("s1"); got != want || err != nil {
			t.Errorf("Scout = %q, %v; want %q", got, err, want)
		}
	}
	if got, err := scout("s2"); !errors.Is(err, queue.ErrEmpty) {
		t.Errorf("another scout is shown %q, %v", got, err)
	}
	if m := take(t, q, "w2"); m.ID != "b" {
		t.Errorf("the worker gets %q, want b", m.ID)
	}
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	add(t, q, "c")
	if got, err := scout("s1"); got != "c" || err != nil {
		t.Errorf("after Redis was emptied: Scout = %q, %v; want c", got, err)
	}
}
