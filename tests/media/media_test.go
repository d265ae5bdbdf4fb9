// Package media processes files of all kinds with real workers. It checks the results by parsing
// their boxes.
//
// By default a run uses a small part of the corpus and a few kills. With LINKREEL_FULL=1 it uses
// the whole corpus and plays every result in Chromium. LINKREEL_PIECE=1/3 selects a third of the
// corpus. `LINKREEL_FULL=1 go test ./tests/media -run TestCorpus -v -timeout 1h` prints the table.
package media

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/linkreel/linkreel/libs/transcode"
)

func full() bool { return os.Getenv("LINKREEL_FULL") != "" }

const canaryText = "canary-7f3a-the-content-of-a-foreign-file"

// canaries creates a file that programs must not read and a host that programs must not call.
func canaries(t *testing.T, m *maker) (calls *atomic.Int64) {
	t.Helper()
	m.canary = filepath.Join(t.TempDir(), "canary.txt")
	if err := os.WriteFile(m.canary, []byte(strings.Repeat(canaryText+"\n", 100)), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	calls = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			_ = c.Close()
		}
	}()
	m.remote = "http://" + l.Addr().String()
	return calls
}

// The test processes every file with a worker.
func TestCorpus(t *testing.T) {
	t.Parallel()
	r := newWorld(t)
	memory := watch(t, r.start(nil).Process.Pid)
	m := &maker{t: t}
	calls := canaries(t, m)
	if !skipPlaying() {
		r.player = newPlayer(r)
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "file\twant\tgot\tseconds\tfirst\tMiB\tffmpeg\trenditions\tfaults")
	failed, ready, refused := 0, 0, 0
	var largest peaks
	for i, x := range append(append([]item(nil), good...), bad...) {
		if !mine(i) {
			continue
		}
		if only := os.Getenv("LINKREEL_ONLY"); only != "" {
			if !strings.Contains(x.name, only) {
				continue
			}
		} else if !full() && !x.often {
			continue
		}
		row, ok := r.try(m, fmt.Sprintf("corpus%d", i), x, memory)
		if !ok {
			failed++
			t.Log(row) // log the row now because the whole table may take a long time
		}
		fmt.Fprintln(w, row)
		if x.code == "" {
			ready++
		} else {
			refused++
		}
		largest.all, largest.tool = max(largest.all, r.peak.all), max(largest.tool, r.peak.tool)
	}
	_ = w.Flush()
	t.Logf("\n%s%d files should become ready and %d should fail; %d had the wrong result; %d network calls; at most %d MiB of memory for the worker and %d MiB for ffmpeg",
		table.String(), ready, refused, failed, calls.Load(), largest.all>>20, largest.tool>>20)
	if largest.all > maxMemory {
		t.Errorf("the worker and its programs used %d MiB, want at most %d", largest.all>>20, int64(maxMemory)>>20)
	}
	if failed > 0 {
		t.Errorf("%d files had the wrong result, want 0", failed)
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("the worker made %d network calls, want 0", n)
	}
}

// mine reports whether a file belongs to the piece of the corpus that LINKREEL_PIECE selects, such
// as 1/3.
func mine(i int) bool {
	piece, of, found := strings.Cut(os.Getenv("LINKREEL_PIECE"), "/")
	if !found {
		return true
	}
	n, err := strconv.Atoi(of)
	k, err2 := strconv.Atoi(piece)
	return err != nil || err2 != nil || n < 1 || i%n == k%n
}

// maxMemory is the maximum memory for a worker, including all programs that it starts.
const maxMemory = 1 << 30

// timeLimit is the maximum time for any file in the corpus on a busy machine.
const timeLimit = 2 * time.Minute

func (r *world) try(m *maker, videoID string, x item, memory *gauge) (row string, ok bool) {
	m.dir = filepath.Join(r.t.TempDir(), x.name)
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		r.t.Fatal(err)
	}
	defer os.RemoveAll(m.dir)
	j := r.submitWith(videoID, x.make(m), x.limits)
	memory.take()
	begun := time.Now()
	var first time.Duration
	record := r.await(j.ID, timeLimit, func(rec transcode.Record) bool {
		if first == 0 && rec.Outcome != nil {
			first = time.Since(begun)
		}
		return final(rec)
	})
	took := time.Since(begun)
	r.peak = memory.take()
	want, got := "ready", string(record.State)
	var faults []string
	var renditions []string
	if x.code != "" {
		want = string(x.code)
	}
	switch {
	case record.Failure != nil:
		got = string(record.Failure.Code)
		for _, leak := range []string{canaryText, m.canary, m.dir, "ffmpeg", "/"} {
			if strings.Contains(record.Failure.Message, leak) {
				faults = append(faults, "the failure message reveals "+leak)
			}
		}
	case record.Outcome != nil:
		got = "ready"
		faults = append(faults, r.check(record.Outcome, x)...)
		for _, v := range record.Outcome.Renditions {
			renditions = append(renditions, v.Name)
		}
		if r.player != nil {
			faults = append(faults, r.player.play(videoID, record.Outcome)...)
		}
		all := r.everything(record.Outcome)
		for _, leak := range []string{canaryText, "canary-meta", "canary-gps"} {
			if bytes.Contains(all, []byte(leak)) {
				faults = append(faults, "the output contains "+leak)
			}
		}
	}
	if x.code == "" && x.frames == 0 && got == "ready" {
		faults = nil // only the final state matters
	}
	ok = got == want && len(faults) == 0
	mark := strings.Join(faults, "; ")
	if got != want {
		mark = "WRONG RESULT " + mark
	}
	return fmt.Sprintf("%s\t%s\t%s\t%.1f\t%.1f\t%s\t%s\t%s", x.name, want, got, took.Seconds(), first.Seconds(), r.peak, strings.Join(renditions, " "), mark), ok
}

func (r *world) submitWith(videoID, path string, edit func(*transcode.Limits)) transcode.Job {
	limits := defaultLimits
	if edit != nil {
		edit(&limits)
	}
	return r.submitLimited(context.Background(), videoID, path, limits)
}
