package idempotency_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

type world struct {
	*idempotency.Firestore
	cloud  *cloudtest.Cloud
	db     *firestoredb.DB
	offset *atomic.Int64
}

func (b world) forward(d time.Duration) { b.offset.Add(int64(d)) }

func newWorld(t testing.TB) world {
	t.Helper()
	cloud := cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{idempotency.Indexes}, Complete: true})
	db, err := firestoredb.Open(t.Context(), firestoredb.Config{Project: cloudtest.Project, Endpoint: cloud.Endpoint, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	offset := &atomic.Int64{}
	began := time.Now() // only forward advances the clock, so a turn cannot end because the machine is slow
	now := func() time.Time { return began.Add(time.Duration(offset.Load())) }
	return world{idempotency.NewFirestore(db, "secret", now), cloud, db, offset}
}

// documents returns all stored documents as strings.
func (b world) documents(t testing.TB) []string {
	t.Helper()
	snaps, err := b.db.Collection("idempotency").Documents(t.Context()).GetAll()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range snaps {
		out = append(out, fmt.Sprintf("%s %q", s.Ref.ID, s.Data()))
	}
	return out
}

var request = idempotency.Request{
	Account: "acc_1", Route: "POST /api/v1/links", Key: "order-1", Body: []byte("aa"), Secret: "lr_live_caller",
}

var answer = idempotency.Response{Status: 201, Header: map[string]string{"Content-Type": "application/json", "Location": "/api/v1/links/lnk_1", "Etag": `"r1"`}, Body: []byte(`{"id":"lnk_1"}`)}

func begin(t testing.TB, b world, r idempotency.Request) idempotency.Record {
	t.Helper()
	rec, err := b.Begin(t.Context(), r)
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	return rec
}

func finish(t testing.TB, b world, rec idempotency.Record, a idempotency.Response) {
	t.Helper()
	if err := b.Finish(t.Context(), rec, &a); err != nil {
		t.Fatalf("Finish: %v", err)
	}
}

func wantCode(t testing.TB, b world, r idempotency.Request, want apierr.Code) {
	t.Helper()
	if _, err := b.Begin(t.Context(), r); apierr.CodeOf(err) != want {
		t.Errorf("Begin = %v, want %s", err, want)
	}
}

func TestAFinishedRequestIsReplayedForADay(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	finish(t, b, begin(t, b, request), answer)
	b.forward(24*time.Hour - time.Minute)
	got := begin(t, b, request)
	if d := cmp.Diff(&answer, got.Replay); d != "" {
		t.Errorf("replay (-want +got):\n%s", d)
	}
	b.forward(2 * time.Minute)
	if later := begin(t, b, request); later.Replay != nil || later.Nonce == got.Nonce {
		t.Errorf("after a day, Begin = %+v, want a new record", later)
	}
}

func TestRecordsAreApart(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	first := begin(t, b, request)
	for name, edit := range map[string]func(*idempotency.Request){
		"another account":              func(r *idempotency.Request) { r.Account = "acc_2" },
		"another route":                func(r *idempotency.Request) { r.Route = "POST /api/v1/videos" },
		"another key":                  func(r *idempotency.Request) { r.Key = "order-2" },
		"same text, split differently": func(r *idempotency.Request) { r.Account, r.Route = "acc_1P", "OST /api/v1/links" },
		"key that looks like a path":   func(r *idempotency.Request) { r.Key = "../accounts/acc_1" },
		"key in a reserved format":     func(r *idempotency.Request) { r.Key = "__id__" },
	} {
		r := request
		edit(&r)
		if rec := begin(t, b, r); rec.Nonce == first.Nonce || rec.Replay != nil {
			t.Errorf("%s: Begin returned the first record, want a new one", name)
		}
	}
}

func TestAnotherBodyIsRefused(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	other := request
	other.Body = []byte("bb")
	rec := begin(t, b, request)
	wantCode(t, b, other, apierr.IdempotencyKeyReused)
	finish(t, b, rec, answer)
	wantCode(t, b, other, apierr.IdempotencyKeyReused)
}

func TestAConcurrentTwinIsToldToWait(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	begin(t, b, request)
	_, err := b.Begin(t.Context(), request)
	if e := apierr.From(err); e.Code != apierr.IdempotencyInProgress || e.RetryAfter <= 0 {
		t.Errorf("concurrent request: got %v with Retry-After %v, want IDEMPOTENCY_IN_PROGRESS with a Retry-After", err, e.RetryAfter)
	}
}

func TestOfAHundredTwinsOneRuns(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	var ran, waited atomic.Int64
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			rec, err := b.Begin(t.Context(), request)
			switch {
			case err == nil && rec.Replay == nil:
				ran.Add(1)
			case apierr.CodeOf(err) == apierr.IdempotencyInProgress:
				waited.Add(1)
			default:
				t.Errorf("Begin = %+v, %v, want a new record or IDEMPOTENCY_IN_PROGRESS", rec, err)
			}
		})
	}
	wg.Wait()
	if ran.Load() != 1 || waited.Load() != 99 {
		t.Errorf("%d requests ran and %d got IDEMPOTENCY_IN_PROGRESS, want 1 and 99", ran.Load(), waited.Load())
	}
}

func TestARetryAfterACrashRunsWithTheSameNonceAndTime(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	first := begin(t, b, request)
	wantCode(t, b, request, apierr.IdempotencyInProgress)
	b.forward(6 * time.Second)
	second := begin(t, b, request)
	if second.Nonce != first.Nonce || !second.At.Equal(first.At) || second.Replay != nil {
		t.Errorf("second attempt = %+v, want the first attempt's nonce and time, %+v", second, first)
	}
	// The first attempt had not died but was slow. Its late response has no effect.
	finish(t, b, first, idempotency.Response{Status: 500})
	finish(t, b, second, answer)
	if d := cmp.Diff(&answer, begin(t, b, request).Replay); d != "" {
		t.Errorf("replay (-want +got):\n%s", d)
	}
}

func TestAnAbandonedRequestRunsAgainAtOnceAsItself(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	first := begin(t, b, request)
	if err := b.Abandon(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if second := begin(t, b, request); second.Nonce != first.Nonce {
		t.Errorf("nonce of the second attempt = %q, want %q", second.Nonce, first.Nonce)
	}
}

func TestALostAnswerOfTheStoreIsNoTwin(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	b.cloud.Firestore.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, Times: 1, LoseAnswer: true, Code: codes.Unavailable})
	rec := begin(t, b, request)
	finish(t, b, rec, answer)
	if begin(t, b, request).Replay == nil {
		t.Error("Replay = nil after the request has finished, want the stored response")
	}
}

func TestContentionIsNotAnOutage(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	b.cloud.Firestore.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, Times: 1, Code: codes.Aborted})
	begin(t, b, request)
}

func TestADownStoreRefuses(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	b.cloud.Firestore.Faults().Add(firestore.Fault{Code: codes.Unavailable})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := b.Begin(ctx, request); apierr.CodeOf(err) != apierr.Unavailable {
		t.Errorf("Begin = %v, want UNAVAILABLE", err)
	}
}

func TestNothingSecretIsAtRest(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	secret := "lr_live_0123456789abcdefghijklmnopqrstuv012345"
	made := answer
	made.Body = []byte(`{"key":"` + secret + `"}`)
	finish(t, b, begin(t, b, request), made)
	for _, text := range b.documents(t) {
		for _, leak := range []string{secret, request.Key, request.Secret, "lr_live_", "acc_1"} {
			if strings.Contains(text, leak) {
				t.Errorf("the stored document contains %q as plain text: %s", leak, text)
			}
		}
	}
	if d := cmp.Diff(&made, begin(t, b, request).Replay); d != "" {
		t.Errorf("replay to the same caller (-want +got):\n%s", d)
	}
	other := request
	other.Secret = "lr_live_another"
	wantCode(t, b, other, apierr.IdempotencyKeyReused)
}

func TestAnAnswerWithoutASecretIsReplayedToEveryKeyOfTheAccount(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	finish(t, b, begin(t, b, request), answer)
	other := request
	other.Secret = "lr_live_another"
	if begin(t, b, other).Replay == nil {
		t.Error("Replay = nil for another key in the account, want the stored response")
	}
}

func TestLargeAnswersAreKeptWhileTheyFit(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	var bulk bytes.Buffer
	for i := range 100 {
		fmt.Fprintf(&bulk, `{"status":201,"data":{"destinationUrl":"https://example.com/%d/%s"}},`, i, strings.Repeat("path/", 1600))
	}
	large := answer
	large.Body = bulk.Bytes()
	finish(t, b, begin(t, b, request), large)
	if rec := begin(t, b, request); rec.Replay == nil || !bytes.Equal(rec.Replay.Body, large.Body) {
		t.Error("Replay differs from the 800 kB bulk response, want the same response")
	}
	random := request
	random.Key = "order-2"
	first := begin(t, b, random)
	noise := answer
	noise.Body = make([]byte, 2<<20)
	_, _ = rand.Read(noise.Body)
	finish(t, b, first, noise)
	if again := begin(t, b, random); again.Replay != nil || again.Nonce != first.Nonce {
		t.Errorf("after a response that is too large to store, Begin returned a replay or a different nonce, want the same nonce without a replay")
	}
}

func BenchmarkBeginFinish(b *testing.B) {
	world := newWorld(b)
	for i := 0; b.Loop(); i++ {
		r := request
		r.Key = fmt.Sprint(i)
		finish(b, world, begin(b, world, r), answer)
	}
}

func TestABodyCannotBeGuessedFromItsRecord(t *testing.T) {
	t.Parallel()
	b := newWorld(t)
	r := request
	r.Body = []byte(`{"password":"hunter2"}`)
	finish(t, b, begin(t, b, r), answer)
	sum := sha256.Sum256(r.Body)
	for _, doc := range b.documents(t) {
		if strings.Contains(doc, hex.EncodeToString(sum[:])) {
			t.Errorf("the stored document contains the plain hash of the body: %s", doc)
		}
	}
}
