package storage_test

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/localcloud/storage"
)

func TestASessionWithoutARequestTakesNoMemoryAndWithoutBytesNoFile(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	var used []string
	for n := range 50 {
		s := e.startSession(t, fmt.Sprint("res", n))
		call(t, "PUT", s, nil, "Content-Range", "bytes */*").want(t, 308, "")
		if n < 3 {
			call(t, "PUT", s, random(unit), "Content-Range", span(0, unit-1, "*")).want(t, 308, "")
			used = append(used, s)
		}
	}
	// The server may release a session just after the client has received the response.
	eventually(t, "no sessions remain in memory", func() bool { return e.srv.LiveSessions() == 0 })
	if n := files(t, e.dir, "tmp"); n != len(used) {
		t.Errorf("tmp contains %d files, want one for each of the %d sessions with bytes", n, len(used))
	}
	for _, s := range used {
		call(t, "PUT", s, random(9), "Content-Range", span(unit, unit+8, fmt.Sprint(unit+9))).want(t, 200, "")
	}
	if n := files(t, e.dir, "tmp"); n != 0 {
		t.Errorf("after the sessions ended, tmp contains %d files, want 0", n)
	}
}

// Neither waiting nor later requests should recreate a cancelled session's file.
func TestACancelledSessionLeavesNothing(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	for round := range 20 {
		s := e.startSession(t, "res")
		first := 0 // a session without bytes creates its file with the next request
		if round%2 == 0 {
			first = unit
			call(t, "PUT", s, random(unit), "Content-Range", span(0, unit-1, "*")).want(t, 308, "")
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				tryCall(t.Context(), "PUT", s, &slow{left: 2 * unit}, "Content-Range", span(first, first+2*unit-1, "*"))
			})
		}
		call(t, "DELETE", s, nil).want(t, 499, "")
		all.Wait()
		for _, span := range []string{"bytes */*", span(unit, unit+8, fmt.Sprint(unit+9)), span(0, 8, "9")} {
			call(t, "PUT", s, random(9), "Content-Range", span).want(t, 404, "NoSuchUpload")
		}
		if n := files(t, e.dir, "tmp") + files(t, e.dir, "data"); n != 0 {
			t.Fatalf("round %d: %d files from a cancelled session remain, want 0", round, n)
		}
	}
}

// slow is a body that is read in small pieces.
type slow struct{ left int }

func (s *slow) Read(b []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n := min(s.left, len(b), 32<<10)
	s.left -= n
	return n, nil
}

// The videos service queries the size of sessions while clients are sending.
func TestAQuestionDoesNotCutOffARequestThatGetsOn(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	s := e.startSession(t, "res")
	const size = 40 << 20 // more than keepEvery
	r, w := io.Pipe()
	done := make(chan answer, 1)
	go func() {
		a, _ := tryCall(t.Context(), "PUT", s, r, "Content-Range", span(0, size-1, fmt.Sprint(size)))
		done <- a
	}()
	piece := random(1 << 20)
	for range 38 {
		w.Write(piece)
	}
	for said := ""; said == ""; {
		w.Write(piece[:unit/8]) // the upload keeps making progress
		a := call(t, "PUT", s, nil, "Content-Range", "bytes */*")
		a.want(t, 308, "")
		said = a.header.Get("Range")
		if said != "" && said != fmt.Sprintf("bytes=0-%d", 32<<20-1) {
			t.Errorf("the query returned the range %q, want none or 32 MiB", said)
		}
	}
	go func() {
		for left := size; left > 0; left -= len(piece) {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
		w.Close()
	}()
	select {
	case a := <-done:
		a.want(t, 200, "")
	case <-time.After(time.Minute):
		t.Fatal("the active request did not finish within a minute")
	}
}

func TestAFinishedSessionIsForgottenAfterAnHour(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	done, open := e.startSession(t, "res"), e.startSession(t, "open")
	call(t, "PUT", done, random(9)).want(t, 200, "")
	at := func(ahead time.Duration) {
		t.Helper()
		e.ahead.Store(int64(ahead))
		if err := e.srv.ExpireSessions(); err != nil {
			t.Fatal(err)
		}
	}
	at(30 * time.Minute)
	call(t, "PUT", done, nil, "Content-Range", "bytes */*").want(t, 200, "")
	at(2 * time.Hour)
	call(t, "PUT", done, nil, "Content-Range", "bytes */*").want(t, 404, "")
	call(t, "PUT", open, nil, "Content-Range", "bytes */*").want(t, 308, "")
}
