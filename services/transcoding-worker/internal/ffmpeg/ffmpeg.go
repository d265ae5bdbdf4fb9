// Package ffmpeg runs ffmpeg and ffprobe on untrusted files. It also identifies the format of
// such files.
//
// Every call runs in a jail. The tool can access one folder and the system's libraries, but not the
// network, other processes or any environment variable except LD_LIBRARY_PATH. Tools.SelfTest
// verifies this on the running system. The tool runs in its own process group with limits on CPU,
// memory, file size and wall time. A kill ends the whole group. The kernel enforces the memory
// limit (RLIMIT_DATA), so the limit also applies outside a container. Every call allows only one
// demuxer, which is chosen by the file's first bytes and never by its name. It allows only the file
// protocol, so a playlist disguised as a video cannot open anything else. No text from a caller is
// ever part of a command line.
package ffmpeg

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Tools specifies the paths of ffmpeg and ffprobe and the limits for each call. A limit of zero
// means the default.
type Tools struct {
	FFmpeg  string // absolute path
	FFprobe string // absolute path
	Threads int    // per call; 0 means 2
	// Memory limits the private memory of a call in bytes, including reserved but unused memory.
	// Allocations and thread stacks count; mapped files do not. Each thread beyond the second
	// adds threadMemory. 0 means DefaultMemory.
	Memory int64
	// Reduced lets calls run without Landlock on a kernel that lacks it. Those calls can read
	// everything that this process can read. If Reduced is false, calls fail on such a kernel.
	Reduced bool
	// Used is called with the resource usage of each call.
	Used func(Usage)
}

const (
	// DefaultMemory is enough for a 4K video and four encoders with two threads each. A third of
	// it is reserved but never used.
	DefaultMemory = 848 << 20
	// threadMemory is the additional memory for one more thread in the decoder and in each
	// encoder.
	threadMemory = 96 << 20
)

// Large returns the tools for a resolution above 4K. Decoding such a video needs more memory than
// all other steps combined.
func (t *Tools) Large() *Tools {
	large := *t
	large.Memory, large.Threads = 2*t.memory(), 1
	return &large
}

func (t *Tools) memory() int64 {
	memory := t.Memory
	if memory <= 0 {
		memory = DefaultMemory
	}
	return memory + threadMemory*int64(max(0, t.Threads-2))
}

// Find looks up ffmpeg and ffprobe. path may be a folder, the ffmpeg program itself, or empty to
// search PATH.
func Find(path string) (*Tools, error) {
	ffmpeg, ffprobe := "ffmpeg", "ffprobe"
	switch {
	case path == "":
	case strings.HasPrefix(filepath.Base(path), "ffmpeg"):
		ffmpeg, ffprobe = path, filepath.Join(filepath.Dir(path), "ffprobe")
	default:
		ffmpeg, ffprobe = filepath.Join(path, "ffmpeg"), filepath.Join(path, "ffprobe")
	}
	t := new(Tools)
	for _, tool := range []struct {
		name string
		dst  *string
	}{{ffmpeg, &t.FFmpeg}, {ffprobe, &t.FFprobe}} {
		found, err := exec.LookPath(tool.name)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", tool.name, err)
		}
		if *tool.dst, err = filepath.Abs(found); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// ErrTimeout means that a call exceeded its limit on wall time or CPU time.
var ErrTimeout = errors.New("ffmpeg: out of time")

// ErrMemory means that a call exceeded its memory limit.
var ErrMemory = errors.New("ffmpeg: out of memory")

// ErrStart means that a tool did not start: its jail failed, or the dynamic linker did not
// find a library. The file is not the cause.
var ErrStart = errors.New("ffmpeg: a tool did not start")

// Exit codes for failures before a tool's own code runs.
const (
	exitJail   = 126
	exitLinker = 127
)

// ExitError means that a tool failed. Stderr is the end of its error output. Log it, but never
// show it to API callers.
type ExitError struct {
	Tool   string
	Code   int
	Signal syscall.Signal
	Stderr string
}

func (e *ExitError) Error() string {
	if e.Signal != 0 {
		return fmt.Sprintf("%s was killed by %v: %s", e.Tool, e.Signal, e.Stderr)
	}
	return fmt.Sprintf("%s exited with code %d: %s", e.Tool, e.Code, e.Stderr)
}

// Call is one run of a tool.
type Call struct {
	Dir  string // the working directory and the only folder that the tool can access
	Args []string
	Wall time.Duration
	CPU  time.Duration
	// Stall ends a call that has not printed anything for this long: ffmpeg can hang indefinitely
	// when it runs out of memory. If Stall is 0, only Wall applies.
	Stall time.Duration
	// Line is called with each line of standard output.
	Line func(line []byte)
}

// Usage is the resource usage of a call.
type Usage struct {
	CPU    time.Duration
	Memory int64  // peak resident bytes
	Said   string // the end of standard error, even on success
}

// Transcode runs ffmpeg.
func (t *Tools) Transcode(ctx context.Context, c Call) (Usage, error) {
	return t.run(ctx, t.FFmpeg, c)
}

// Inspect runs ffprobe.
func (t *Tools) Inspect(ctx context.Context, c Call) (Usage, error) {
	return t.run(ctx, t.FFprobe, c)
}

const maxOutputFile = 64 << 30

func (t *Tools) run(ctx context.Context, tool string, c Call) (Usage, error) {
	return t.start(ctx, tool, c, "")
}

// start runs a tool, or the jail's self-test if test is set.
func (t *Tools) start(ctx context.Context, tool string, c Call, test string) (Usage, error) {
	name := filepath.Base(tool)
	ctx, cancel := context.WithTimeoutCause(ctx, c.Wall, ErrTimeout)
	defer cancel()
	ctx, hang := context.WithCancelCause(ctx)
	defer hang(nil)
	line := c.Line
	if c.Stall > 0 {
		silence := time.AfterFunc(c.Stall, func() { hang(fmt.Errorf("%w: no output", ErrTimeout)) })
		defer silence.Stop()
		line = func(b []byte) {
			silence.Reset(c.Stall)
			if c.Line != nil {
				c.Line(b)
			}
		}
	}
	spec := jailSpec{
		Tool: tool, Args: c.Args, Env: environment(), Dir: c.Dir,
		ReadOnly: []string{"/usr", "/lib", "/lib64", "/bin", "/opt", "/etc/alternatives", "/sys/devices/system", filepath.Dir(tool)},
		CPU:      uint64(c.CPU/time.Second) + 1,
		Memory:   uint64(t.memory()),
		FileSize: maxOutputFile,
		Reduced:  t.Reduced,
		Test:     test,
	}
	encoded, err := json.Marshal(spec)
	if err != nil {
		return Usage{}, err
	}
	cmd := jailed(spec, string(encoded))
	cmd.Env = []string{}
	var tail tailBuffer
	cmd.Stderr = &tail
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return Usage{}, err
	}
	// The parent-death signal is tied to the thread that forked. If another goroutine locked this
	// thread and returned, the thread would exit, and the kernel would kill the tool. Keep the
	// thread locked until the tool has exited.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return Usage{}, fmt.Errorf("start %s: %w", name, err)
	}
	group := cmd.Process.Pid
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-group, syscall.SIGKILL) })
	readErr := readLines(stdout, line)
	waitErr := cmd.Wait()
	if !stop() || readErr != nil {
		// Kill all processes that the tool may have left running.
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	usage := Usage{CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), Memory: peakMemory(cmd.ProcessState), Said: tail.String()}
	if t.Used != nil {
		t.Used(usage)
	}
	if ctx.Err() != nil {
		return usage, fmt.Errorf("%s: %w", name, context.Cause(ctx))
	}
	if readErr != nil {
		return usage, fmt.Errorf("read from %s: %w", name, readErr)
	}
	var exit *exec.ExitError
	if errors.As(waitErr, &exit) {
		e := &ExitError{Tool: name, Code: exit.ExitCode(), Stderr: usage.Said}
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			e.Signal = ws.Signal()
		}
		if e.Code == exitJail || e.Code == exitLinker {
			return usage, fmt.Errorf("%w: %w", ErrStart, e)
		}
		if outOfTime(e, usage.CPU, c.CPU) {
			return usage, fmt.Errorf("%w: %w", ErrTimeout, e)
		}
		if outOfMemory(e.Stderr) {
			return usage, fmt.Errorf("%w: %w", ErrMemory, e)
		}
		return usage, e
	}
	return usage, waitErr
}

// environment returns the variables that a tool inherits from this process: only
// LD_LIBRARY_PATH. The tools need it to find libraries in images with packages that were
// unpacked but not installed.
func environment() []string {
	if path := os.Getenv("LD_LIBRARY_PATH"); path != "" {
		return []string{"LD_LIBRARY_PATH=" + path}
	}
	return nil
}

// outOfTime reports whether the kernel ended a tool because it had reached its CPU-time limit. On
// SIGXCPU ffmpeg exits with code 255, unless SIGKILL ends it first. The kernel enforces the limit
// in ticks, and this count may be much higher than the CPU time that it reports at the end.
func outOfTime(e *ExitError, used, limit time.Duration) bool {
	ended := e.Signal == syscall.SIGKILL || e.Signal == 0 && e.Code == 255
	return e.Signal == syscall.SIGXCPU || used >= limit || ended && used >= limit/4*3
}

// outOfMemory reports whether said contains a message that ffmpeg or a codec prints when it
// reaches the memory limit.
func outOfMemory(said string) bool {
	for _, sign := range []string{"Cannot allocate memory", "malloc of size", "Out of memory", "out of memory", "std::bad_alloc"} {
		if strings.Contains(said, sign) {
			return true
		}
	}
	return false
}

func readLines(r io.Reader, line func([]byte)) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 64<<10), 1<<20)
	for scanner.Scan() {
		if line != nil {
			line(scanner.Bytes())
		}
	}
	if err := scanner.Err(); err != nil {
		_, _ = io.Copy(io.Discard, r) // otherwise, the tool would block on its output
		return err
	}
	return nil
}

// tailBuffer keeps the last few kilobytes written to it.
type tailBuffer struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 4 << 10

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(bytes.TrimSpace(t.buf)), "?")
}

// Progress returns a Line function that calls report with the time up to which ffmpeg has
// written its output. The call needs "-progress pipe:1".
func Progress(report func(done time.Duration)) func([]byte) {
	return func(line []byte) {
		us, found := bytes.CutPrefix(line, []byte("out_time_us="))
		if !found {
			return
		}
		if n, err := strconv.ParseInt(string(us), 10, 64); err == nil && n > 0 {
			report(time.Duration(n) * time.Microsecond)
		}
	}
}
