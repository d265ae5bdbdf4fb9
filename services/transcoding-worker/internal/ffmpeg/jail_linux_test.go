package ffmpeg

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// withoutLandlockEnv makes the test binary a process on a kernel without Landlock.
const withoutLandlockEnv = "LINKREEL_TEST_WITHOUT_LANDLOCK"

func TestMain(m *testing.M) {
	if os.Getenv(withoutLandlockEnv) != "" {
		if err := forgetLandlock(); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// forgetLandlock makes every thread of this process, and all that it starts, see a
// kernel without Landlock.
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

func TestTheJailHoldsOnThisKernel(t *testing.T) {
	t.Parallel()
	if err := find(t).SelfTest(t.Context(), scratch(t)); err != nil {
		t.Error(err)
	}
}

func TestWithoutLandlockNothingRunsUnlessTheJailIsReduced(t *testing.T) {
	t.Parallel()
	if os.Getenv(withoutLandlockEnv) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), withoutLandlockEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("without Landlock: %v\n%s", err, out)
		}
		return
	}
	tools, dir, foreign := find(t), scratch(t), scratch(t)
	if err := tools.SelfTest(t.Context(), dir); !errors.Is(err, ErrJail) || !strings.Contains(err.Error(), "Landlock") {
		t.Errorf("SelfTest = %v, want ErrJail for want of Landlock", err)
	}
	if _, err := tools.try(t.Context(), dir, generated+"own.mkv"); err == nil || !strings.Contains(err.Error(), "landlock") {
		t.Errorf("a call ended with %v, want it refused", err)
	}
	tools.Reduced = true
	if _, err := tools.try(t.Context(), dir, generated+"own.mkv"); err != nil {
		t.Errorf("a call in the reduced jail: %v", err)
	}
	// This is what the refusal is about.
	if _, err := tools.try(t.Context(), dir, generated+filepath.Join(foreign, "planted.mkv")); err != nil {
		t.Errorf("the reduced jail hides foreign files, so this test shows nothing: %v", err)
	}
}
