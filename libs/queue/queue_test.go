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

	"github.com/linkreel/linkreel/libs/queue"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
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
		if _, err := q.Add(t.Context(), queue.Item{ID: id, Trace: map[string]string{"traceparent": id}}); err != nil {
			t.Fatal(err)
		}
	}
}

func take(t *testing.T, q *queue.Queue, consumer string) *queue.Message {
	t.Helper()
	m, err := q.Next(t.Context(), consumer, time.Second)
	if err != nil {
		t.Fatalf("Next for %s: got %v, want a message", consumer, err)
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
		t.Errorf("message = %+v, want a on its first delivery with its trace", m)
	}
	add(t, q, "a") // a taken message is still in the queue
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
	for deadline := time.Now().Add(time.Minute); m == nil && time.Now().Before(deadline); {
		m, _ = q.Next(t.Context(), "w2", 10*time.Millisecond)
	}
	if m == nil || m.ID != "a" || m.Deliveries != 2 {
		t.Fatalf("the other worker got %+v, want a on its second delivery", m)
	}
	for name, err := range map[string]error{
		"Heartbeat": old.Heartbeat(t.Context()), "Done": old.Done(t.Context()), "Nack": old.Nack(t.Context()),
		"Delay": old.Delay(t.Context(), time.Now()), "Bury": old.Bury(t.Context(), "r"),
	} {
		if !errors.Is(err, queue.ErrLost) {
			t.Errorf("%s by the replaced worker = %v, want ErrLost", name, err)
		}
	}
	if err := m.Heartbeat(t.Context()); err != nil {
		t.Errorf("Heartbeat by the new worker = %v, want no error", err)
	}
}

func TestHeartbeatsKeepTheMessage(t *testing.T) {
	t.Parallel()
	for silence := 300 * time.Millisecond; !keptByHeartbeats(t, silence); silence *= 2 {
		t.Logf("the machine was too busy to send a heartbeat within %v", silence)
	}
}

// keptByHeartbeats reports whether heartbeats could be sent in time. If not, another worker may
// take over the message.
func keptByHeartbeats(t *testing.T, silence time.Duration) bool {
	t.Helper()
	q, _ := open(t, queue.Options{Silence: silence})
	add(t, q, "a")
	m := take(t, q, "w1")
	for end := time.Now().Add(3 * silence); time.Now().Before(end); {
		beat := time.Now()
		heartbeat := m.Heartbeat(t.Context())
		other, err := q.Next(t.Context(), "w2", silence/10)
		if heartbeat == nil && errors.Is(err, queue.ErrEmpty) {
			continue
		}
		if time.Since(beat) < silence {
			t.Fatalf("Heartbeat = %v, and another worker got %+v, %v; want the message kept", heartbeat, other, err)
		}
		return false
	}
	return true
}

func TestReturnedMessageIsFreeAtOnceAndNew(t *testing.T) {
	t.Parallel()
	q, _ := open(t, queue.Options{})
	add(t, q, "a")
	if err := take(t, q, "w1").Nack(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m := take(t, q, "w2"); m.ID != "a" || m.Deliveries != 1 || m.Trace["traceparent"] != "a" {
		t.Errorf("message = %+v, want a on its first delivery", m)
	}
}

func TestDelayedMessageComesWhenDue(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now := time.Now()
	q, _ := open(t, queue.Options{Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now }})
	add(t, q, "a")
	if err := take(t, q, "w1").Delay(t.Context(), now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	empty(t, q)
	mu.Lock()
	now = now.Add(time.Minute)
	mu.Unlock()
	if m := take(t, q, "w1"); m.ID != "a" {
		t.Errorf("message = %+v, want a", m)
	}
}

func TestBuriedMessageIsADeadLetter(t *testing.T) {
	t.Parallel()
	q, client := open(t, queue.Options{})
	add(t, q, "a")
	if err := take(t, q, "w").Bury(t.Context(), "kills workers"); err != nil {
		t.Fatal(err)
	}
	empty(t, q)
	got, err := client.XRange(t.Context(), queue.StreamKey("jobs")+":dead", "-", "+").Result()
	if err != nil || len(got) != 1 {
		t.Fatalf("dead letters = %v, %v; want one", got, err)
	}
	if diff := cmp.Diff(map[string]any{"id": "a", "reason": "kills workers"}, got[0].Values); diff != "" {
		t.Errorf("dead letter (-want +got):\n%s", diff)
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
	if err := m.Heartbeat(t.Context()); !errors.Is(err, queue.ErrLost) {
		t.Errorf("Heartbeat after the flush = %v, want ErrLost", err)
	}
	empty(t, q)
	add(t, q, "a")
	if m := take(t, q, "w"); m.ID != "a" {
		t.Errorf("message = %+v, want a", m)
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
					t.Errorf("Done = %v, want no error", err)
				}
			}
		})
	}
	wg.Wait()
	for i := range n {
		if got := seen[fmt.Sprint(i)]; got != 1 {
			t.Errorf("message %d was delivered %d times, want once", i, got)
		}
	}
}

func TestTheFastLaneIsShownEachWaitingMessageOnceAndLeavesItToTheWorkers(t *testing.T) {
	t.Parallel()
	q, client := open(t, queue.Options{})
	add(t, q, "a", "b", "c")
	take(t, q, "w1") // a is taken, so the fast lane does not return it
	peek := func() (string, error) {
		id, added, err := q.Peek(t.Context(), time.Millisecond)
		if err == nil && time.Since(added).Abs() > time.Minute {
			t.Errorf("Peek returned the time %v for %s, want about now", added, id)
		}
		return id, err
	}
	for _, want := range []string{"b", "c"} {
		if got, err := peek(); got != want || err != nil {
			t.Errorf("Peek = %q, %v; want %q", got, err, want)
		}
	}
	if got, err := peek(); !errors.Is(err, queue.ErrEmpty) {
		t.Errorf("Peek after the last message = %q, %v, want ErrEmpty", got, err)
	}
	if m := take(t, q, "w2"); m.ID != "b" {
		t.Errorf("the worker got %q, want b", m.ID)
	}
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	add(t, q, "d")
	if got, err := peek(); got != "d" || err != nil {
		t.Errorf("after Redis was emptied: Peek = %q, %v; want d", got, err)
	}
}

func addFor(t *testing.T, q *queue.Queue, tenant string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, err := q.Add(t.Context(), queue.Item{ID: id, Tenant: tenant}); err != nil {
			t.Fatal(err)
		}
	}
}

// This test covers the fast lane too.
func TestAThousandMessagesOfOneTenantKeepNobodyWaiting(t *testing.T) {
	t.Parallel()
	q, _ := open(t, queue.Options{})
	for i := range 1000 {
		addFor(t, q, "many", fmt.Sprintf("many-%03d", i))
	}
	addFor(t, q, "one", "one-0")
	addFor(t, q, "two", "two-0", "two-1")
	var lane []string
	for range 5 {
		id, _, err := q.Peek(t.Context(), time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		lane = append(lane, id)
	}
	var got []string
	for range 6 {
		got = append(got, take(t, q, "w").ID)
	}
	want := []string{"many-000", "one-0", "two-0", "many-001", "two-1", "many-002"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order of delivery (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[:5], lane); diff != "" {
		t.Errorf("order of the fast lane (-want +got):\n%s", diff)
	}
	if n, err := q.Length(t.Context()); err != nil || n != 1003 {
		t.Errorf("Length = %d, %v; want 1003, including taken messages", n, err)
	}
}

// A tenant that adds its next message whenever its previous message is taken must not starve the
// other tenants.
func TestAComerDoesNotOvertakeForEver(t *testing.T) {
	t.Parallel()
	q, _ := open(t, queue.Options{})
	addFor(t, q, "patient", "p0", "p1")
	addFor(t, q, "eager", "e0")
	var got []string
	for i := range 4 {
		m := take(t, q, "w")
		got = append(got, m.ID)
		if m.Tenant == "eager" {
			addFor(t, q, "eager", fmt.Sprintf("e%d", i))
		}
	}
	if diff := cmp.Diff([]string{"p0", "e0", "p1", "e1"}, got); diff != "" {
		t.Errorf("order of delivery (-want +got):\n%s", diff)
	}
}

// After an upgrade, the stream may contain entries from the older version, which are not in the
// index. The sweep adds their ids again.
func TestAnEntryOfAnOlderVersionIsFound(t *testing.T) {
	t.Parallel()
	q, client := open(t, queue.Options{})
	entry, err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: "queue:{jobs}", Values: []string{"id", "a", "trace", "{}"}}).Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := client.HSet(t.Context(), "queue:{jobs}:ids", "a", entry).Err(); err != nil {
		t.Fatal(err)
	}
	addFor(t, q, "tenant", "a", "a")
	if m := take(t, q, "w"); m.ID != "a" {
		t.Errorf("message = %+v, want a", m)
	}
	empty(t, q)
	addFor(t, q, "tenant", "a") // a taken message is still in the queue
	empty(t, q)
}

// A message is added while a reader waits for one.
func TestAWaitingReaderIsWoken(t *testing.T) {
	t.Parallel()
	q, _ := open(t, queue.Options{})
	add(t, q, "running")
	take(t, q, "w1")
	got := make(chan string, 1)
	go func() {
		m, err := q.Next(context.Background(), "w2", 20*time.Second)
		if err != nil {
			got <- err.Error()
			return
		}
		got <- m.ID
	}()
	begun := time.Now()
	add(t, q, "a")
	if id := <-got; id != "a" || time.Since(begun) > 10*time.Second {
		t.Errorf("the waiting reader got %q after %v, want a within 10 s", id, time.Since(begun))
	}
}

func TestOneOfManySweepsAtATime(t *testing.T) {
	t.Parallel()
	q, client := open(t, queue.Options{})
	if !q.Turn(t.Context(), time.Minute) || q.Turn(t.Context(), time.Minute) {
		t.Error("Turn returned the wrong result, want true for the first caller and false for the second")
	}
	_ = client.Close()
	if !q.Turn(t.Context(), time.Minute) {
		t.Error("Turn without Redis = false, want true")
	}
}
