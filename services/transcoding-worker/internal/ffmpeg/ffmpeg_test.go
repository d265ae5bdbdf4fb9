package ffmpeg

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func find(t *testing.T) *Tools {
	t.Helper()
	tools, err := Find("")
	if err != nil {
		t.Fatalf("these tests need ffmpeg: %v", err)
	}
	return tools
}

// scratch returns a folder without symbolic links in its path because the jail uses resolved paths.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

const generated = "-nostdin -v error -y -f lavfi -i testsrc2=s=64x64:d=1 "

func (t *Tools) try(ctx context.Context, dir, args string) (Usage, error) {
	return t.Transcode(ctx, Call{Dir: dir, Args: strings.Fields(args), Wall: 2 * time.Minute, CPU: 30 * time.Second})
}

func TestLimitsEndACall(t *testing.T) {
	t.Parallel()
	tools, dir := find(t), scratch(t)
	endless := strings.Fields("-nostdin -v error -y -f lavfi -i testsrc2=s=640x360 -c:v libx264 -f null -")
	tests := []struct {
		name string
		call Call
		want error
	}{
		{"CPU time", Call{CPU: time.Second, Wall: time.Minute}, ErrTimeout},
		{"wall time", Call{CPU: time.Minute, Wall: 300 * time.Millisecond}, ErrTimeout},
		{"silence", Call{CPU: time.Minute, Wall: time.Minute, Stall: 300 * time.Millisecond}, ErrTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.call.Dir, tt.call.Args = dir, endless
			if _, err := tools.Transcode(t.Context(), tt.call); !errors.Is(err, tt.want) {
				t.Errorf("Transcode = %v, want %v", err, tt.want)
			}
		})
	}
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		small := *tools
		small.Memory = 300 << 20
		// ffmpeg may hang when it runs out of memory. If it does, Stall ends it.
		usage, err := small.Transcode(t.Context(), Call{
			Dir: dir, CPU: time.Minute, Wall: time.Minute, Stall: 3 * time.Second,
			Args: strings.Fields("-nostdin -v error -y -f lavfi -i testsrc2=s=4096x4096:r=25:d=4 -c:v libx264 -preset veryfast -threads 2 -f null -"),
		})
		if !errors.Is(err, ErrMemory) && !errors.Is(err, ErrTimeout) || usage.Memory > small.Memory {
			t.Errorf("Transcode = %v with peak memory of %d bytes, want ErrMemory or ErrTimeout with at most %d bytes", err, usage.Memory, small.Memory)
		}
	})
	t.Run("cancellation by the caller", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("lease lost")
		time.AfterFunc(200*time.Millisecond, func() { cancel(reason) })
		if _, err := tools.Transcode(ctx, Call{Dir: dir, Args: endless, CPU: time.Minute, Wall: time.Minute}); !errors.Is(err, reason) {
			t.Errorf("Transcode = %v, want the cancellation cause", err)
		}
	})
}

func TestAnEndForProcessorTimeIsRecognised(t *testing.T) {
	t.Parallel()
	const limit = time.Minute
	for _, tt := range []struct {
		end  ExitError
		used time.Duration
		want bool
	}{
		{ExitError{Signal: syscall.SIGXCPU}, 50 * time.Second, true},
		{ExitError{Signal: syscall.SIGKILL}, 57 * time.Second, true}, // the kernel's ticks exceeded the reported CPU time
		{ExitError{Code: 255}, 57 * time.Second, true},
		{ExitError{Code: 1}, 61 * time.Second, true},
		{ExitError{Signal: syscall.SIGKILL}, 10 * time.Second, false}, // killed by another process
		{ExitError{Code: 255}, 10 * time.Second, false},
		{ExitError{Signal: syscall.SIGSEGV}, 57 * time.Second, false},
		{ExitError{Code: 1}, 57 * time.Second, false},
	} {
		if got := outOfTime(&tt.end, tt.used, limit); got != tt.want {
			t.Errorf("outOfTime of %v after %v of %v = %v, want %v", &tt.end, tt.used, limit, got, tt.want)
		}
	}
}

func TestProgressReportsHowFarTheOutputReaches(t *testing.T) {
	t.Parallel()
	var got []time.Duration
	line := Progress(func(d time.Duration) { got = append(got, d) })
	for _, s := range []string{"frame=3", "out_time_us=N/A", "out_time_us=1500000", "progress=continue", "out_time_us=-5"} {
		line([]byte(s))
	}
	if len(got) != 1 || got[0] != 1500*time.Millisecond {
		t.Errorf("Progress reported %v, want [1.5s]", got)
	}
}

func TestFitRateFindsTheGrid(t *testing.T) {
	t.Parallel()
	grid := func(n int, rate float64, round float64) []float64 {
		times := make([]float64, n)
		for i := range times {
			times[i] = float64(i) / rate
			if round > 0 {
				times[i] = float64(int(times[i]/round+0.5)) * round
			}
		}
		return times
	}
	tests := []struct {
		name     string
		times    []float64
		want     Rate
		constant bool
	}{
		{"30", grid(300, 30, 0), Rate{30, 1}, true},
		{"29.97", grid(3000, 30000.0/1001, 0), Rate{30000, 1001}, true},
		{"29.97 rounded to milliseconds", grid(3000, 30000.0/1001, 0.001), Rate{30000, 1001}, true},
		{"60 rounded to milliseconds", grid(600, 60, 0.001), Rate{60, 1}, true},
		{"unusual rate", grid(500, 17.25, 0), Rate{17250, 1000}, true},
		{"single frame", grid(1, 1, 0), Rate{25, 1}, true},
		{"stall", append(grid(100, 30, 0), 10, 10+1.0/30, 10+2.0/30), Rate{30, 1}, false},
		{"long pause between two frames", []float64{0, 10800}, Rate{93, 1e6}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, constant := fitRate(tt.times, fastStep(tt.times))
			if got != tt.want || constant != tt.constant {
				t.Errorf("fitRate = %v, %v; want %v, %v", got, constant, tt.want, tt.constant)
			}
		})
	}
}
