package firestoredb_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/linkreel/linkreel/libs/firestoredb"
)

// The breaker opens after five consecutive calls without a response that span at least a second.
// Other failures never open it.
func TestDoRefusesAtOnceWhenTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"unavailable":                      {status.Error(codes.Unavailable, "connection refused"), true},
		"timed out":                        {context.DeadlineExceeded, true},
		"missing document":                 {status.Error(codes.NotFound, "gone"), false},
		"rejected value":                   {status.Error(codes.InvalidArgument, "too long"), false},
		"another writer won":               {status.Error(codes.Aborted, "contention"), false},
		"document that is too large":       {status.Error(codes.ResourceExhausted, "larger than max"), false},
		"cancelled by the caller":          {status.Error(codes.Canceled, "context canceled"), false},
		"expired transaction":              {status.Error(codes.InvalidArgument, "The referenced transaction has expired"), false},
		"error from the caller's function": {errors.New("slug is taken"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { refusesAfter(t, c.err, c.want) })
		})
	}
}

func refusesAfter(t *testing.T, failure error, want bool) {
	db := firestoredb.Use(nil, time.Minute)
	for range 5 {
		if err := db.Do(t.Context(), "try", func(context.Context) error { return failure }); err == nil {
			t.Fatal("Do = nil, want the function's error")
		}
		time.Sleep(250 * time.Millisecond) // on the fake clock of synctest
	}
	called := false
	err := db.Do(t.Context(), "get link", func(context.Context) error { called = true; return nil })
	if refused := err != nil && !called && strings.Contains(err.Error(), "Firestore does not answer"); refused != want {
		t.Errorf("after five failures: got error %v with called = %v, want refused = %v", err, called, want)
	}
}
