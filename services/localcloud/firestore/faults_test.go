package firestore_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		run  func(t *testing.T, s *session)
	}{
		{"every n-th commit is aborted and has no effect", func(t *testing.T, s *session) {
			s.server.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, Every: 3, Code: codes.Aborted})
			var got []codes.Code
			for i := range 7 {
				got = append(got, status.Code(s.write(nil, "a", int64(i))))
			}
			wantEqual(t, got, []codes.Code{0, 0, codes.Aborted, 0, 0, codes.Aborted, 0})
			wantEqual(t, s.server.Stats().Writes, int64(5))
		}},
		{"all calls are unavailable until the fault is removed", func(t *testing.T, s *session) {
			lift := s.server.Faults().Add(firestore.Fault{Code: codes.Unavailable})
			wantCode(t, s.write(nil, "a", 1), codes.Unavailable)
			wantCode(t, s.read(nil, "a"), codes.Unavailable)
			lift()
			must(t, s.write(nil, "a", 1))
		}},
		{"a fault ends after the given number of hits", func(t *testing.T, s *session) {
			s.server.Faults().Add(firestore.Fault{Code: codes.ResourceExhausted, Times: 2})
			wantCode(t, s.write(nil, "a", 1), codes.ResourceExhausted)
			wantCode(t, s.write(nil, "a", 1), codes.ResourceExhausted)
			must(t, s.write(nil, "a", 1))
		}},
		{"a lost response does not undo the commit", func(t *testing.T, s *session) {
			s.server.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, LoseAnswer: true, Times: 1})
			wantCode(t, s.write(nil, "a", 1), codes.Unavailable)
			wantEqual(t, s.find(s.begin()), 1)
		}},
		{"a call is delayed up to its deadline", func(t *testing.T, s *session) {
			s.server.Faults().Add(firestore.Fault{Methods: []string{"GetDocument"}, Delay: time.Hour})
			_, err := client(t, s.server).Doc("k/a").Get(t.Context()) // calls a different method, which is not delayed
			wantCode(t, err, codes.NotFound)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			_, err = s.GetDocument(ctx, getRequest("a"))
			wantCode(t, err, codes.DeadlineExceeded)
		}},
		{"commits fail on a full disk and the documents are kept", func(t *testing.T, s *session) {
			must(t, s.write(nil, "a", 1))
			s.server.Faults().Add(firestore.Fault{DiskFull: true})
			wantCode(t, s.write(nil, "a", 2), codes.ResourceExhausted)
			wantCode(t, s.write(nil, "b", 1), codes.ResourceExhausted)
			wantEqual(t, s.find(nil), 1)
			s.server.Faults().Clear()
			must(t, s.write(nil, "b", 1))
			wantEqual(t, s.find(nil), 2)
			must(t, firestore.CheckConsistency(s.server))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.run(t, newSession(t, firestore.Options{Path: filepath.Join(t.TempDir(), "data.db")}))
		})
	}
}

func TestFaultsATransactionSurvivesAbortedCommits(t *testing.T) {
	t.Parallel()
	s := open(t, firestore.Options{})
	c := client(t, s)
	set(t, c, "k/a", fields{"n": 0})
	s.Faults().Add(firestore.Fault{Methods: []string{"Commit"}, Every: 2, Code: codes.Aborted})
	for range 3 {
		must(t, c.RunTransaction(ctxOf(t), addOne(c)))
	}
	wantFields(t, c, "k/a", fields{"n": int64(3)})
	wantEqual(t, s.Stats().Errors[codes.Aborted] > 0, true)
}

func TestStats(t *testing.T) {
	t.Parallel()
	s := open(t, firestore.Options{})
	c := client(t, s)
	seed(t, c, map[string]fields{"a": {"n": 1}, "b": {"n": 1}})
	set(t, c, "k/a", fields{"n": 1}) // does not change the document
	_, err := c.Doc("k/none").Get(ctxOf(t))
	wantCode(t, err, codes.NotFound)
	wantIDs(t, c.Collection("k").Query, "a b")
	_, err = c.Doc("k/a").Create(ctxOf(t), fields{})
	wantCode(t, err, codes.AlreadyExists)
	st := s.Stats()
	wantEqual(t, st.Calls, map[string]int64{"Commit": 3, "BatchGetDocuments": 1, "RunQuery": 1})
	wantEqual(t, st.Errors, map[codes.Code]int64{codes.AlreadyExists: 1})
	wantEqual(t, []int64{st.Writes, st.Reads}, []int64{2, 3})
	s.ResetStats()
	wantEqual(t, s.Stats().Writes, int64(0))
}

func TestMaxSustainedWrites(t *testing.T) {
	t.Parallel()
	clk := newClock()
	s := open(t, firestore.Options{Clock: clk.now})
	c := client(t, s)
	for i := range 20 { // one write per second
		set(t, c, "k/calm", fields{"n": i})
		clk.move(time.Second)
	}
	for i := range 5 {
		set(t, c, "k/burst", fields{"n": i})
	}
	for _, tt := range []struct {
		window time.Duration
		want   string
		rate   float64
	}{{time.Second, "k/burst", 5}, {10 * time.Second, "k/calm", 1}, {time.Minute, "k/calm", 20.0 / 60}} {
		got := s.MaxSustainedWrites(tt.window)
		if got.Document != c.Doc(tt.want).Path || got.PerSecond != tt.rate {
			t.Errorf("MaxSustainedWrites(%v) = %+v, want %s at %v/s", tt.window, got, tt.want, tt.rate)
		}
	}
}

// On a full disk, every write fails. The log must contain at most one line per minute, and one line
// when writes succeed again. This test is not parallel because it replaces the process's logger.
func TestAFullDiskIsToldOnce(t *testing.T) {
	var log strings.Builder
	former := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(former)
	s := newSession(t, firestore.Options{})
	must(t, s.write(nil, "a", 1))
	end := s.server.Faults().Add(firestore.Fault{DiskFull: true})
	for range 20 {
		wantCode(t, s.write(nil, "a", 2), codes.ResourceExhausted)
	}
	if s.server.CommitError() == nil {
		t.Error("CommitError returned nil while commits fail")
	}
	end()
	must(t, s.write(nil, "a", 3))
	again := s.server.Faults().Add(firestore.Fault{DiskFull: true})
	wantCode(t, s.write(nil, "a", 4), codes.ResourceExhausted)
	again()
	must(t, s.write(nil, "a", 5))
	if s.server.CommitError() != nil || strings.Count(log.String(), "cannot commit") != 1 || strings.Count(log.String(), "level=ERROR") != 1 ||
		strings.Count(log.String(), "work again") != 1 || !strings.Contains(log.String(), "no space left") {
		t.Errorf("CommitError returned %v, want nil; the log must contain one error and one recovery line:\n%s", s.server.CommitError(), log.String())
	}
}
