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

// The breaker opens after five calls in a row without a response that together span a
// second or more. Nothing else opens it.
func TestDoRefusesAtOnceWhenTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"unavailable":               {status.Error(codes.Unavailable, "connection refused"), true},
		"out of time":               {context.DeadlineExceeded, true},
		"no such document":          {status.Error(codes.NotFound, "gone"), false},
		"a refused value":           {status.Error(codes.InvalidArgument, "too long"), false},
		"another writer won":        {status.Error(codes.Aborted, "contention"), false},
		"a document beyond a bound": {status.Error(codes.ResourceExhausted, "larger than max"), false},
		"a caller that left":        {status.Error(codes.Canceled, "context canceled"), false},
		"a forgotten transaction":   {status.Error(codes.InvalidArgument, "The referenced transaction has expired"), false},
		"the caller's own error":    {errors.New("slug is taken"), false},
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
			t.Fatal("Do returned no error")
		}
		time.Sleep(250 * time.Millisecond) // of the bubble's clock
	}
	called := false
	err := db.Do(t.Context(), "get link", func(context.Context) error { called = true; return nil })
	if refused := err != nil && !called && strings.Contains(err.Error(), "Firestore does not answer"); refused != want {
		t.Errorf("after five failures: %v, called %v; want refused %v", err, called, want)
	}
}
