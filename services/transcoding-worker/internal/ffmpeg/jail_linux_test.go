package ffmpeg

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/linkreel/linkreel/libs/transcode"
)

// withoutLandlockEnv makes the test binary run as if the kernel had no Landlock.
const withoutLandlockEnv = "LINKREEL_TEST_WITHOUT_LANDLOCK"

func TestMain(m *testing.M) {
	if os.Getenv(withoutLandlockEnv) != "" {
		if err := forgetLandlock(); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// forgetLandlock makes Landlock's system calls fail, as on a kernel without Landlock, in
// every thread of this process and in its child processes.
func forgetLandlock() error {
	prog := []unix.SockFilter{
		{Code: loadWord, K: offsetNr},
		{Code: jumpEq, K: unix.SYS_LANDLOCK_CREATE_RULESET, Jt: 2},
		{Code: jumpEq, K: unix.SYS_LANDLOCK_RESTRICT_SELF, Jt: 1},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
		{Code: answer, K: absent},
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	const modeFilter, everyThread = 1, 1
	if _, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, modeFilter, everyThread, uintptr(unsafe.Pointer(&fprog))); errno != 0 {
		return errno
	}
	return nil
}

// The kernel kills a tool when the thread that forked it exits, so that thread must outlive the
// tool.
func TestAToolOutlivesTheEndOfThreads(t *testing.T) {
	t.Parallel()
	tools, dir := find(t), scratch(t)
	begun := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		begin := sync.OnceFunc(func() { close(begun) })
		_, err := tools.Transcode(t.Context(), Call{
			Dir: dir, Wall: time.Minute, CPU: time.Minute, Line: func([]byte) { begin() },
			Args: strings.Fields("-nostdin -v error -re -progress pipe:1 -stats_period 0.05 -f lavfi -i testsrc2=s=64x64:d=2 -f null -"),
		})
		ended <- err
	}()
	select {
	case <-begun:
	case err := <-ended:
		t.Fatalf("the tool exited with %v before its first progress report", err)
	}
	// Together, these goroutines lock every idle thread. When they return, the threads exit.
	var locked sync.WaitGroup
	end := make(chan struct{})
	for range 100 {
		locked.Add(1)
		go func() {
			runtime.LockOSThread()
			locked.Done()
			<-end
		}()
	}
	locked.Wait()
	close(end)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestTheJailHoldsOnThisKernel(t *testing.T) {
	t.Parallel()
	if err := find(t).SelfTest(t.Context(), scratch(t)); err != nil {
		t.Error(err)
	}
}

// A release image contains packages that were unpacked but not installed. The dynamic linker
// therefore finds some libraries only through LD_LIBRARY_PATH.
func TestAToolGetsTheWayToItsLibrariesAndNothingElse(t *testing.T) {
	t.Setenv("LD_LIBRARY_PATH", "/usr/lib/somewhere")
	t.Setenv("LINKREEL_STORAGE_KEY", "hush")
	tools := standIn(t, `[ "$LD_LIBRARY_PATH" = /usr/lib/somewhere ] && [ -z "$LINKREEL_STORAGE_KEY" ]`)
	if err := tools.SelfTest(t.Context(), scratch(t)); err != nil {
		t.Errorf("SelfTest = %v, want nil", err)
	}
}

func TestAToolThatDoesNotStartSaysNothingOfAFile(t *testing.T) {
	t.Parallel()
	tools, dir := standIn(t, `echo "error while loading shared libraries: libblas.so.3" >&2; exit 127`), scratch(t)
	if err := tools.SelfTest(t.Context(), scratch(t)); !errors.Is(err, ErrStart) {
		t.Errorf("SelfTest = %v, want ErrStart", err)
	}
	if _, err := find(t).try(t.Context(), dir, generated+"clip.mkv"); err != nil {
		t.Fatal(err)
	}
	var failure *transcode.Failure
	if _, err := tools.Probe(t.Context(), dir, filepath.Join(dir, "clip.mkv"), transcode.Limits{}); !errors.Is(err, ErrStart) || errors.As(err, &failure) {
		t.Errorf("Probe = %v, want ErrStart and no verdict on the file", err)
	}
}

// standIn returns tools that are shell scripts.
func standIn(t *testing.T, script string) *Tools {
	t.Helper()
	dir := scratch(t)
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tools, err := Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tools
}

func TestWithoutLandlockNothingRunsUnlessTheJailIsReduced(t *testing.T) {
	t.Parallel()
	if os.Getenv(withoutLandlockEnv) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), withoutLandlockEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("the test process without Landlock failed with %v:\n%s", err, out)
		}
		return
	}
	tools, dir, foreign := find(t), scratch(t), scratch(t)
	if err := tools.SelfTest(t.Context(), dir); !errors.Is(err, ErrJail) || !strings.Contains(err.Error(), "Landlock") {
		t.Errorf("SelfTest = %v, want ErrJail without Landlock", err)
	}
	if _, err := tools.try(t.Context(), dir, generated+"own.mkv"); err == nil || !strings.Contains(err.Error(), "landlock") {
		t.Errorf("a call without Landlock returned %v, want an error from Landlock", err)
	}
	tools.Reduced = true
	if _, err := tools.try(t.Context(), dir, generated+"own.mkv"); err != nil {
		t.Errorf("a call in the reduced jail returned %v, want nil", err)
	}
	// This is the access that the error above prevents.
	if _, err := tools.try(t.Context(), dir, generated+filepath.Join(foreign, "planted.mkv")); err != nil {
		t.Errorf("reading a file outside the reduced jail returned %v, want nil; otherwise, this test proves nothing", err)
	}
}

// This test does not use Input's allow-lists because the jail must work without them.
func TestJailHidesForeignFilesAndTheNetwork(t *testing.T) {
	t.Parallel()
	tools, dir, foreign := find(t), scratch(t), scratch(t)
	if _, err := tools.try(t.Context(), dir, generated+"own.mkv"); err != nil {
		t.Fatalf("writing to the tool's own folder returned %v, want nil", err)
	}
	clip, err := os.ReadFile(filepath.Join(dir, "own.mkv"))
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(foreign, "secret.mkv")
	if err := os.WriteFile(secret, clip, 0o644); err != nil {
		t.Fatal(err)
	}
	calls := 0
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			calls++
			_ = c.Close()
		}
	}()
	for name, args := range map[string]string{
		"file outside the folder":  "-v error -y -i " + secret + " -c copy stolen.mkv",
		"write outside the folder": generated + filepath.Join(foreign, "planted.mkv"),
		"password file":            "-v error -y -f data -i /etc/passwd -map 0 -c copy -f data stolen.txt",
		"own process":              "-v error -y -f data -i /proc/self/environ -map 0 -c copy -f data stolen.txt",
		"http":                     fmt.Sprintf("-v error -y -i http://%s/x.mkv -c copy stolen.mkv", listener.Addr()),
		"outgoing TCP":             fmt.Sprintf("%s -f mpegts tcp://%s", generated, listener.Addr()),
		"outgoing UDP":             generated + "-f mpegts udp://127.0.0.1:9",
	} {
		if _, err := tools.try(t.Context(), dir, args); err == nil {
			t.Errorf("%s: ffmpeg succeeded, want an error", name)
		}
	}
	_ = listener.Close()
	<-accepted
	if calls != 0 {
		t.Errorf("ffmpeg opened %d connections, want 0", calls)
	}
	for _, name := range []string{filepath.Join(foreign, "planted.mkv"), filepath.Join(dir, "stolen.mkv"), filepath.Join(dir, "stolen.txt")} {
		if info, err := os.Stat(name); err == nil && info.Size() > 0 {
			t.Errorf("ffmpeg wrote the forbidden file %s, want no file", filepath.Base(name))
		}
	}
}
